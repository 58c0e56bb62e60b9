"A run says something before its first slow step: before PyTorch is imported in a terminal, before the engine is built elsewhere."
import io
import subprocess
import sys

import alphazero_nb.training.trainer as page
from alphazero_nb.core.events import Message, RunStarted
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.trainer import Trainer
from alphazero_nb.ui.progress import TextProgress

PROGRAM = """
import sys
from alphazero_nb.ui.progress import TextProgress
write = TextProgress._write
TextProgress._write = lambda self, text: (print("torch" in sys.modules, repr(text), file=sys.stderr), write(self, text))
from alphazero_nb.cli import main
sys.exit(main(["train", "no such game"]))
"""


def test_the_first_line_of_a_command_comes_before_pytorch():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=900)
    assert done.stderr.startswith("False 'Training no such game: loading") and done.returncode == 2


def test_the_first_line_of_a_run_comes_before_its_first_slow_step(tmp_path, monkeypatch):
    "Playing the rules, loading the run and building the engine can take long. The line is there when the first of them begins."
    stream, seen = io.StringIO(), {}
    for name in ("require_choices", "load_state", "SelfPlayEngine"):
        def slow(*args, name=name, real=getattr(page, name), **options):
            seen.setdefault(name, stream.getvalue())
            return real(*args, **options)
        monkeypatch.setattr(page, name, slow)
    settings = TrainSettings(games_per_iteration=4, batch_size=8, evaluate_every=0)
    run = Trainer("tictactoe", "tiny", tmp_path / "run", "cpu", simulations=4, train_settings=settings, games=4, listeners=(TextProgress(stream),))
    run.progress.is_saved = False   # As after an interrupt: the folder is loaded first
    seen.clear()
    run.fit(iterations=1)
    assert list(seen) == ["require_choices", "load_state", "SelfPlayEngine"] and set(seen.values()) == {"Compiling…\n"}


def test_a_run_says_that_it_compiles_before_its_engine_is_built(tmp_path, monkeypatch):
    heard = []

    class Watched(page.SelfPlayEngine):
        def __init__(self, *args, **options):
            heard.append("engine")
            super().__init__(*args, **options)
    monkeypatch.setattr(page, "SelfPlayEngine", Watched)
    settings = TrainSettings(games_per_iteration=4, batch_size=8, evaluate_every=0)
    Trainer("tictactoe", "tiny", tmp_path / "run", "cpu", simulations=4, train_settings=settings, games=4,
            listeners=(heard.append,)).fit(iterations=1)
    assert heard[0] == Message("Compiling…") and heard[1] == "engine"
    assert [type(event) for event in heard].index(RunStarted) > 1
    assert "Compiling" not in (tmp_path / "run" / "events.jsonl").read_text()
