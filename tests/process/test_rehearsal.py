"""What the package does on an accelerator, on one that does not exist (`standin`): numbers, waits, operators, types.

The list of what MPS has is PyTorch's own, native_functions.yaml, which its wheel of every platform brings along."""
import json, os, re, subprocess, sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).resolve().parents[1]
backend = pytest.importorskip("torch.utils.backend_registration")
pytestmark = pytest.mark.skipif(not hasattr(backend, "_setup_privateuseone_for_python_backend"),
                                reason="this PyTorch takes no accelerator that is written in Python")


def rehearse(*parts):
    "Return the lines that parts of the rehearsal print, as dicts."
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = subprocess.run([sys.executable, TESTS / "rehearsal.py", *parts], capture_output=True, text=True, timeout=1800, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def mps_operators():
    "Return the names of the operators that PyTorch has for MPS: kernels of their own, and those composed of others."
    import torchgen
    text = (Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml").read_text()
    entries = {re.match(r"[\w.]+", entry).group(): entry for entry in re.split(r"^- func: ", text, flags=re.M)[1:]}

    def known(name):
        entry = entries[name]
        other = re.search(r"^  structured_delegate: ([\w.]+)", entry, re.M)
        if other and known(other[1]): return True
        kinds = re.findall(r"^    ([\w, ]+): \w", entry, re.M) if "\n  dispatch:" in entry else ["CompositeImplicitAutograd"]
        return any(kind == "MPS" or kind.startswith("Composite") for line in kinds for kind in line.split(", "))
    return {name for name in entries if known(name)}


def the_numbers_are_those_of_the_cpu(lines, rows):
    assert [row["network"] for row in rows] in (["tiny", "cards"], ["tiny", "small", "medium", "cards", "spiking", "mlp"])
    assert all(row[part]["right"] for row in rows for part in ("batch", "waiting_batch", "recorded_batch", "step"))


def a_batch_and_a_step_wait_once(lines, rows):
    """A batch sends one array and reads one; a step sends three and reads the norm of the gradient. A device that does not
    overlap waits for each copy."""
    for row in rows:
        assert {key: row["batch"][key] for key in ("up", "down", "waits")} == dict(up=1, down=1, waits=1)
        assert {key: row["waiting_batch"][key] for key in ("up", "down", "waits")} == dict(up=1, down=1, waits=2)
        assert row["step"]["up"] == 3 and row["step"].get("down", 0) == 0 and row["step"]["waits"] == 1


def a_recorded_batch_is_four_operators_and_waits_once(lines, rows):
    "One copies the planes into the recording's memory, one is the recording, and two pick the edges and join the answer."
    for row in rows:
        assert row["recorded_batch"]["names"] == {"copy_.default": 1, "graph": 1, "index_select.default": 1, "cat.default": 1}
        assert {key: row["recorded_batch"][key] for key in ("up", "down", "waits")} == dict(up=1, down=1, waits=1)


def the_page_has_these_counts(lines, rows):
    page = json.loads((TESTS.parent / "nbs/00a_core.transfers.ipynb").read_text())
    text = "".join("".join(cell["source"]) for cell in page["cells"])
    told = {name: tuple(map(int, numbers)) for name, *numbers in re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", text, re.M)}
    assert told.keys() == {"tiny", "small", "medium", "cards", "spiking", "mlp"}
    for row in rows:
        assert told[row["network"]] == (row["batch"]["operators"], row["batch"]["waits"], row["step"]["operators"], row["step"]["waits"])


def mps_has_every_operator(lines, rows):
    used, there = {name for row in rows for part in ("waiting_batch", "step") for name in row[part]["names"]}, mps_operators()
    assert {"convolution", "index_select", "linalg_vector_norm"} <= there and "_fake_quantize_learnable_per_tensor_affine" not in there
    assert {name.removesuffix(".default") for name in used} - there == set()


def it_trains_saves_plays_and_changes_its_weights(lines, rows):
    assert {row["part"]: row["right"] for row in lines if "part" in row} == dict.fromkeys(
        ("restore", "restore and go on", "play on the CPU", "match", "new weights", "new weights of a recording",
         "a network that waits", "threads, auto", "threads, graphs"), True)


def faults_give_wrong_numbers(lines, rows):
    found = {row["fault"]: row["right"] for row in lines if "fault" in row}
    assert found == {"none": True, "none in a recording": True, **dict.fromkeys((
        "read too early", "recorded too early", "overwritten too early", "no order of weights", "stale input of a recording",
        "lost weights of a recording"), False)}


def the_check_of_operators_names_what_is_missing_and_what_is_wrong(lines, rows):
    found = {report["case"]: report for report in lines if "case" in report}
    used = {name.removesuffix(".default") for row in rows for part in ("batch", "step") for name in row[part]["names"]}
    assert found["none"]["faults"] == [] and used <= {name.removeprefix("aten::") for name in found["none"]["operators"]}
    names = lambda case, kind: [fault["operator"] for fault in found[case]["faults"] if fault["kind"] == kind]
    assert sorted(names("missing", "missing")) == ["aten::_foreach_lerp_.Scalar", "aten::maximum", "aten::tanh"]
    assert names("missing", "wrong") == [], "the CPU has taken the place of what is missing"
    assert set(names("wrong", "wrong")) == {"aten::addmm", ""}, "the operator, and the numbers of the whole"
    assert {fault["where"] for fault in found["wrong"]["faults"]} >= {"Learning (tiny, tictactoe)", "Playing (tiny, tictactoe, float32)"}


CHECKS = [the_numbers_are_those_of_the_cpu, a_batch_and_a_step_wait_once,
          a_recorded_batch_is_four_operators_and_waits_once, the_page_has_these_counts, mps_has_every_operator,
          it_trains_saves_plays_and_changes_its_weights, faults_give_wrong_numbers,
          the_check_of_operators_names_what_is_missing_and_what_is_wrong]


@pytest.mark.parametrize("part", ["", pytest.param("all ", marks=pytest.mark.slow)], ids=["some", "all"])
def test_the_package_is_rehearsed_on_an_accelerator(part):
    "One test, because its process is expensive and the tests of a module may run in several workers."
    lines = rehearse(f"{part}counts", *([f"{part}operators", "runs", "faults"] if part else ["runs"]))
    for check in CHECKS if part else CHECKS[:6]: check(lines, [row for row in lines if "network" in row])
