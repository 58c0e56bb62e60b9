"The rehearsal on CUDA cards that do not exist, tools/rehearse_cuda.py, as far as a CPU-only build of PyTorch shows it."
import sys
from pathlib import Path

import pytest
import torch

from alphazero_nb.network.networks import PRESETS

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    import rehearse_cuda
    return rehearse_cuda


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch is a CUDA build")
def test_a_cpu_only_build_is_refused_in_one_sentence(tool, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rehearse_cuda.py"])
    with pytest.raises(SystemExit) as ended: tool.main()
    out, error = capsys.readouterr()
    assert (ended.value.code, out, error.count("\n")) == (2, "", 1)
    assert "was built without CUDA; install a CUDA build" in error


def test_every_preset_plays_learns_and_resumes_in_every_format(tool):
    for part in (tool.play, tool.learn, tool.resume):
        rows = [row for row in tool.plan() if row[0] is part]
        assert {preset for _, preset, _, _ in rows} == set(PRESETS)
        assert all(set(formats) == {"float32", "float16", "bfloat16"} for *_, formats in rows)
