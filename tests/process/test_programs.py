"Programs that are killed, interrupted or measured: a run in a process of its own, and an engine in another."
import re
import signal
import sys
import time

import pytest

from processes import Program
from small_run import differ, trainer, weights

pytestmark = pytest.mark.usefixtures("one_thread_inside")


# Runs


RUN = """
import signal, sys, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # Whoever started the tests may have had it ignored
torch.set_num_threads(1)
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.trainer import Trainer
settings = TrainSettings(games_per_iteration=16, batch_size=32, replay_ratio=2, min_replay_ratio=2, evaluate_every=0)
run = Trainer("tictactoe", "tiny", sys.argv[1], device="cpu", simulations=8, games=16, max_batch=16, threads=1, shared=False,
              seed=3, reproducible=True, train_settings=settings, listeners=())
"""
FIT = RUN + "print('fit', flush=True)\nrun.fit(iterations=10_000)\n"
# Kills itself just before or just after a file gets its name, at the n-th file.
SUICIDE = RUN + """
import os, signal
before, left, real = sys.argv[2] == "before", [int(sys.argv[3])], os.replace
def replace(*names):
    if not str(names[1]).startswith(sys.argv[1]): return real(*names)   # numba writes its cache in the same way
    left[0] -= 1
    if left[0] == 0 and before: os.kill(os.getpid(), signal.SIGKILL)
    real(*names)
    if left[0] == 0: os.kill(os.getpid(), signal.SIGKILL)
os.replace = replace
run.fit(iterations=2)
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, one_thread_inside):
    "The run of FIT without a kill: the weights after each iteration."
    folder, found = tmp_path_factory.mktemp("undisturbed") / "run", {}
    run = trainer(folder, seed=3, reproducible=True)
    for iteration in range(1, 13):
        run.fit(iterations=1)
        found[iteration] = weights(folder)
    return found


def goes_on(folder, undisturbed):
    "Resumes a killed run by one iteration; it is as if nothing had happened. The iterations that had been kept."
    run = trainer(folder, seed=3, reproducible=True)
    kept = run.iteration
    if kept in undisturbed: assert not differ(weights(folder), undisturbed[kept])
    run.fit(iterations=1)
    assert run.iteration == kept + 1
    if kept + 1 in undisturbed: assert not differ(weights(folder), undisturbed[kept + 1])
    return kept


# Files are config; games, network, learner and manifest of the first iteration; and the same of the second.
@pytest.mark.parametrize("file, when", [(1, "before"), (1, "after"), (3, "after"), (5, "before"), (5, "after"), (9, "before")])
def test_a_kill_at_any_file_leaves_a_whole_run(tmp_path, undisturbed, when, file):
    child = Program(SUICIDE, tmp_path / "run", when, file)
    _, errors = child.communicate(timeout=900)
    assert child.returncode == -signal.SIGKILL, errors
    kept = goes_on(tmp_path / "run", undisturbed)
    assert kept == (file > 5 or (file, when) == (5, "after"))


def test_ctrl_c_returns_normally_with_all_that_was_finished(tmp_path):
    child = Program(RUN + "print('fit', flush=True)\nprint('iterations', run.fit(iterations=10_000).iteration)", tmp_path / "run")
    assert child.stdout.readline() == "fit\n"
    wait_for(lambda: (tmp_path / "run/manifest.json").exists(), child)
    child.send_signal(signal.SIGINT)   # After an iteration of ten thousand
    out, errors = child.communicate(timeout=900)
    assert child.returncode == 0, errors
    done = int(re.search(r"iterations (\d+)", out)[1])
    resumed = trainer(tmp_path / "run", seed=3, reproducible=True)
    assert 1 <= done < 10_000 and resumed.iteration == done


def wait_for(condition, child, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end and child.poll() is None, child.stderr.read()
        time.sleep(.02)


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    child = Program(FIT, tmp_path / "run")
    try:
        assert child.stdout.readline() == "fit\n", child.stderr.read()
        wait_for(lambda: (tmp_path / "run/manifest.json").exists(), child)
        other = trainer(tmp_path / "run", seed=3)
        with pytest.raises(ValueError, match="is in use by another trainer"): other.fit(iterations=1)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    other.fit(iterations=1)   # A lock ends with its process
    assert trainer(tmp_path / "run", seed=3).iteration == other.iteration


# Engines


INTERRUPTED = """
import signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # Whoever started the tests may have had it ignored
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.selfplay.engine import SelfPlayEngine
game = get_game("connect4")
net = PolicyValueNet(game, "tiny")

def build(**more): return SelfPlayEngine(game, net, device="cpu", games=32, max_batch=16, simulations=48, threads=2,
                                         listeners=(), **more)
with build(shared=False) as engine: engine.generate_games(1)   # What must be compiled is compiled before the first interrupt
for shared in (False, True):
    with build(shared=shared) as engine:
        for _ in range(3):
            timer = threading.Timer(.25, lambda: signal.raise_signal(signal.SIGINT))
            try:
                timer.start()
                engine.generate_games(1_000_000)
            except KeyboardInterrupt: print("back")
            assert not [t for t in threading.enumerate() if "actor" in t.name], "an actor is still playing"
"""

GOES_ON = """
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.selfplay.engine import SelfPlayEngine
game = get_game("connect4")
net = PolicyValueNet(game, "tiny")

def build(shared): return SelfPlayEngine(game, net, device="cpu", games=32, max_batch=16, simulations=4, threads=2,
                                         shared=shared, listeners=[heard.append])
heard = []
with build(False) as engine: want = engine.generate_games(90)
for shared in (False, True):
    heard = []
    def stop(event):
        if len(heard) == 10: raise KeyboardInterrupt
    with build(shared) as engine:
        engine.events.listeners.append(stop)
        try: engine.generate_games(60)
        except KeyboardInterrupt: pass
        else: assert False
        engine.events.listeners.remove(stop)
        records = engine.generate_games(30)
        assert [r.number for r in records] == list(range(30)), [r.number for r in records]
        assert records + engine.generate_games(60) == want
        assert [r.number for r in engine.generate_games(5)] == list(range(90, 95))
print("goes on")
"""


def script(source, seconds=600):
    "The exit code of a program, what it printed, and its errors."
    program = Program(source)
    out, errors = program.communicate(seconds)
    return program.returncode, out, errors


def test_an_interrupt_comes_back_at_once():
    code, out, errors = script(INTERRUPTED)
    assert code == 0 and out.count("back") == 6, errors


def test_after_an_interrupt_nothing_is_missing():
    "The games of the interrupted call come with those of the next one, every one, and the same as ever."
    code, out, errors = script(GOES_ON)
    assert code == 0 and "goes on" in out, errors


MEMORY = """
import resource, torch
torch.set_num_threads(1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
torch.nn.functional.conv2d(torch.zeros(256, 4, 15, 15), torch.zeros(8, 4, 3, 3))
before = peak()
from torch import nn
from alphazero_nb.core.registry import get_game
from alphazero_nb.selfplay.engine import SelfPlayEngine

game, games = get_game("GAME"), GAMES
class Cheap(nn.Module):
    def forward(self, x):
        priors = (x.flatten(1) * .1).repeat(1, 1 + game.actions // x[0].numel())[:, :game.actions]
        return priors, x.sum((1, 2, 3))[:, None].sin() * torch.tensor([.1, -.1])
with SelfPlayEngine(game, Cheap(), device="cpu", games=games, simulations=200, threads=2, listeners=()) as engine:
    while engine.moves < PLIES * games: engine.play_for(1)
print("grown by", peak() - before)
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="ru_maxrss counts bytes there")
@pytest.mark.parametrize("name, games, plies", [("gomoku(size=15)", 256, 8), pytest.param("chess", 128, 24, marks=pytest.mark.slow)])
def test_memory_of_many_games(name, games, plies):
    "All games run at once. Their trees are full after a few moves, and later moves add only the records."
    code, out, errors = script(MEMORY.replace("GAMES", str(games)).replace("GAME", name).replace("PLIES", str(plies)))
    assert code == 0, errors
    assert float(out.split("grown by")[1]) < 600
