"Self-play and training in a real notebook kernel: stop, run again, restart and kill leave nothing behind and lose nothing."
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from notebook_kernel import alive, gone, psutil, screen

ENGINE = """
from alphazero_nb.core.registry import get_game
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.ui.progress import TextProgress
def build(game="connect4", workers=2, **options):
    return SelfPlayEngine(get_game(game), None, **dict(
        dict(device="cpu", workers=workers, simulations=200, games=32, listeners=(TextProgress(),)), **options))
"""
PATIENT = """
import sys, threading, time
def be_patient(engine, where):
    "Let a stop wait for its workers without an end, and print where the main thread waits, once it does."
    join, main = engine.pool.join, threading.main_thread().ident
    engine.pool.join = lambda: join(10**6)
    def inside():
        frame = sys._current_frames()[main]
        while frame and frame.f_code.co_name != where: frame = frame.f_back
        return frame is not None and frame.f_globals["__name__"] == "alphazero_nb.selfplay.workers"
    def look():
        while (engine.pool._play.idle and where == "wait_or_kill") or not inside(): time.sleep(.005)
        print("in " + where, flush=True)
    threading.Thread(target=look, daemon=True).start()
"""


def test_stop_keeps_the_finished_games_and_the_workers(kernel):
    kernel.run(ENGINE + "engine = build()\njoin = engine.pool.join\nengine.pool.join = lambda: join(10**6)")   # However slow a worker is
    workers = kernel.workers()
    cell = kernel.stop("engine.generate_games(10**6)")   # A fast machine plays a thousand before the interrupt
    assert cell.error == "KeyboardInterrupt: "
    assert kernel.workers() == workers and len(workers) == 2
    kernel.run("kept = engine.leftover(); assert 0 < len(kept) < 10**6, len(kept)")
    kernel.run("records = engine.generate_games(5); assert [record.number for record in records] == list(range(5))")
    kernel.run("records += engine.generate_games(245); assert [record.number for record in records] == list(range(250))")
    kernel.run("games = {record.number: record for record in records}\n"
               "assert all(games[record.number] == record for record in kept if record.number < 250)")
    kernel.run("with build(workers=None, layout='threads') as threads: assert threads.generate_games(100) == records[:100]")
    more = kernel.stop("engine.generate_games(10**6)")
    assert more.error == "KeyboardInterrupt: " and kernel.workers() == workers
    last = kernel.run("kept = engine.leftover()\nwhile len(engine.leftover()) == len(kept): engine.play_for(.3)\n"
                      "games = {record.number: record for record in engine.leftover()}\n"
                      "assert 0 < len(kept) < len(games) and all(games[record.number] == record for record in kept)\n"
                      "engine.shutdown()")
    assert kernel.workers() == []
    assert "Traceback" not in "".join(c.out + c.err for c in (cell, more, last)) + kernel.logged()


def test_stop_while_workers_start(kernel):
    "Python needs half a second to start, and an interrupt in that time is ignored by what will be a worker."
    kernel.run(ENGINE)
    for pause in (0, .1, .3):
        kernel.send("with build() as engine:\n  print('built', flush=True)\n  engine.generate_games(10**6)")
        kernel.read(until="built")
        time.sleep(pause)   # Whatever the moment
        assert kernel.interrupt().error == "KeyboardInterrupt: " and kernel.workers() == []
        assert "Traceback" not in kernel.cell.out + kernel.cell.err + kernel.run("").err + kernel.logged()


def pause_workers(kernel):
    for pid in (paused := kernel.workers()): os.kill(pid, signal.SIGSTOP)
    assert len(paused) == 2
    return paused


def test_workers_that_do_not_answer_are_killed_and_their_games_played_again(kernel):
    "Only SIGKILL ends a process that is stopped: every other signal waits until it goes on."
    kernel.run(ENGINE + "from alphazero_nb.core.events import WorkerLost\nheard = []\n"
               "engine = build('tictactoe', reproducible=True, listeners=(TextProgress(), heard.append)); engine.pool.wait_ready()")
    kernel.send("engine.generate_games(10**6)")
    kernel.read(until="self-play")
    paused = pause_workers(kernel)
    assert kernel.interrupt().error == "KeyboardInterrupt: " and gone(paused)
    kernel.run("count = len(engine.leftover()) + 100   # Beyond what had begun\n"
               "records = engine.generate_games(count); assert [record.number for record in records] == list(range(count))")
    kernel.run("lost = [event for event in heard if type(event) is WorkerLost]\n"
               "assert [event.cause for event in lost] == ['did not stop in time and was killed'] * 2, lost\n"
               "assert any(event.repeated for event in lost)")
    kernel.run("engine.shutdown()")
    assert kernel.workers() == []


def test_a_second_stop_does_not_wait_for_anybody(kernel):
    kernel.run(ENGINE + PATIENT)
    kernel.send("with build('tictactoe') as engine:\n  engine.pool.wait_ready()\n  be_patient(engine, 'wait_or_kill')\n"
                "  engine.generate_games(10**6)")
    kernel.read(until="self-play")
    paused = pause_workers(kernel)
    kernel.manager.interrupt_kernel()
    kernel.read(until="in wait_or_kill")
    assert kernel.interrupt().error == "KeyboardInterrupt: "
    assert "During handling of the above exception" in kernel.cell.trace, "the second one came while the first was obeyed"
    assert gone(paused) and kernel.workers() == []


def test_a_stop_while_shutting_down_does_not_wait_either(kernel):
    kernel.run(ENGINE + PATIENT + "engine = build('tictactoe'); engine.pool.wait_ready()")
    paused = pause_workers(kernel)
    kernel.send("be_patient(engine, 'end'); engine.pool.close(timeout_s=10**6)")
    kernel.read(until="in end")
    assert kernel.interrupt().error == "KeyboardInterrupt: "
    assert gone(paused) and kernel.workers() == []


TRAINER = """
import torch
from torch import nn
from alphazero_nb.core.events import SelfPlayDone, SelfPlayStopped
from alphazero_nb.core.registry import get_game
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.trainer import Trainer
from alphazero_nb.ui.progress import TextProgress
game = get_game("tictactoe")
lines = (TextProgress(skip=(SelfPlayDone, SelfPlayStopped)),)
usual = dict(device="cpu", simulations=16, games=32, max_batch=16, reproducible=True)
few = TrainSettings(games_per_iteration=32, batch_size=32, replay_ratio=2, min_replay_ratio=2, evaluate_every=0)
"""
NETWORK = """
class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(game.observation_size, 32), nn.ReLU())
        self.policy, self.value = nn.Linear(32, game.actions), nn.Linear(32, game.players)

    def forward(self, x):
        x = self.body(x)
        return self.policy(x), torch.tanh(self.value(x))
network = Mine()
"""


def stop_training_twice(kernel, fit, folder):
    "Stops the cell in its third iteration, runs it again and stops it again."
    before = 0
    for when in ("iteration 2 ", "Continuing"):
        cell = kernel.stop(fit, when)
        assert cell.status == "ok" and "Traceback" not in cell.err + kernel.logged(), cell
        stopped = [line for line in screen(cell.out) if "Stopped" in line]
        assert len(stopped) == 1 and screen(cell.out)[-1] == stopped[0]
        kept = int(re.match(rf"Stopped\. (\d+) iterations are saved in {re.escape(folder)}[,.]", stopped[0])[1])
        assert kept >= max(before, 2)
        if before: assert f"Continuing after iteration {before}, {32 * before} games." in screen(cell.out)
        assert json.loads((Path(folder) / "manifest.json").read_text())["iteration"] == kept and kernel.workers() == []
        before = kept
    return kept


def test_training_is_stopped_and_goes_on(kernel, tmp_path):
    kernel.run(TRAINER)
    run = f"run = Trainer('tictactoe', 'tiny', {str(tmp_path / 'run')!r}, threads=2, train_settings=few, listeners=lines, **usual)\n"
    kept = stop_training_twice(kernel, run + "run.fit(iterations=10_000)", str(tmp_path / "run"))
    kernel.run(run + f"assert run.iteration == {kept}; run.fit(iterations=1); assert run.iteration == {kept + 1}")


def test_training_with_workers_and_a_network_of_a_cell_is_stopped_and_goes_on(kernel, tmp_path):
    "The first games of the run are those that the network of the cell plays in threads."
    kernel.run(TRAINER + NETWORK)
    run = f"run = Trainer('tictactoe', network=network, folder={str(tmp_path / 'run')!r}, workers=1, train_settings=few, listeners=lines, **usual)\n"
    kept = stop_training_twice(kernel, run + "run.fit(iterations=10_000)", str(tmp_path / "run"))
    kernel.run(run + f"""
assert run.iteration == {kept}
with SelfPlayEngine(game, Mine(), layout="threads", listeners=(), **usual) as engine: records = engine.generate_games(32)
assert records == run.folder.read_games(run.folder.rows()[0])
with SelfPlayEngine(game, None, layout="threads", listeners=(), **usual) as engine: assert records != engine.generate_games(32)
""")


NIM = """
import numpy as np
from numba import njit
from alphazero_nb.core.game import Game
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.selfplay.engine import SelfPlayEngine
STONES, MOST = 12, 3   # Nim: two players take one to three stones in turn, and the last stone wins

@njit
def most(stones): return min(MOST, stones)

def start(state, seed): state[0] = STONES
def mover(state): return state[1] if state[0] else -1
def legal(state, actions):
    for action in range(most(state[0])): actions[action] = action
    return most(state[0])
def play(state, action):
    state[0] -= action + 1
    state[1] = 1 - state[1]
def returns(state, out): out[state[1]], out[1 - state[1]] = -1, 1
def observe(state, planes): planes[:state[0]] = 1

class Pile:
    def __init__(self, seed): self.stones, self.seat = STONES, 0
    def mover(self): return self.seat if self.stones else -1
    def legal(self): return range(most.py_func(self.stones))
    def play(self, action): self.stones, self.seat = self.stones - action - 1, 1 - self.seat
    def returns(self): return [-1, 1] if self.seat == 0 else [1, -1]
    def observe(self): return np.arange(STONES) < self.stones

data = dict(players=2, actions=3, shape=(12,), max_length=12)
def nim(): return Game("nim", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                      state_size=2, **data)
def pile(make=Pile, **more): return PythonGame("pile", make, **data, **more)
def games(game, **layout):
    with SelfPlayEngine(game, None, device="cpu", simulations=24, games=16, seed=5, listeners=(), **layout) as engine:
        return engine.generate_games(60)
moves = lambda records: [record.actions.tolist() for record in records]
"""


def test_a_game_of_a_cell_is_the_same_game_in_workers(kernel):
    kernel.run(NIM + "compiled, python = nim(), pile()\ncompiled.check(); python.check()")
    kernel.run("ours = games(compiled, layout='threads'); assert ours == games(compiled, workers=2)")
    kernel.run("theirs = games(python, layout='threads'); assert theirs == games(python, workers=2)")
    kernel.run("assert moves(ours) == moves(theirs) and len(set(map(tuple, moves(ours)))) > 20")
    kernel.run(NIM.replace("12, 3", "12, 2"))   # The cell is changed and run again
    kernel.run("other = games(nim(), workers=1); assert other == games(nim(), layout='threads') != ours")
    kernel.run("other = games(pile(), workers=1); assert other == games(pile(), layout='threads') != theirs")


UNSENDABLE = """
import threading
lock, log = threading.Lock(), open("log.txt", "a")
class Locked(Pile):
    def play(self, action):
        with lock: Pile.play(self, action)
class Logged(Pile):
    journal = log
def make_writer(file):
    class Writer(Pile):
        def play(self, action): Pile.play(self, action), file.flush()
    return Writer
"""
STARTED = """
import multiprocessing.process
begin, started = multiprocessing.process.BaseProcess.start, []
def start_and_tell(process): begin(process), started.append(process.name)
multiprocessing.process.BaseProcess.start = start_and_tell
"""


def test_a_game_that_cannot_be_sent_is_refused_before_a_process_starts(kernel):
    kernel.restart()   # So that even Python's resource tracker would be seen
    kernel.run(NIM + UNSENDABLE + STARTED)
    for make, what in (("Locked", "Locked.play uses the global 'lock', a _thread.lock"),
                       ("lambda seed: Locked(seed)", "Locked.play uses the global 'lock', a _thread.lock"),
                       ("Logged", "'journal', a _io.TextIOWrapper"), ("make_writer(log)", "'file', a _io.TextIOWrapper"),
                       ("Pile, action_names=lambda action: str(lock)", "action_names uses the global 'lock', a _thread.lock")):
        kernel.send(f"games(pile({make}), workers=2)")
        cell = kernel.read()
        assert cell.error.startswith("ValueError: pile cannot be played in worker processes: ") and what in cell.error, cell
        assert cell.error.endswith("which cannot be sent to another process. Use layout='threads' to play it in this process.")
        assert "\n" not in cell.error
    assert psutil.Process(kernel.pid).children(recursive=True) == []
    kernel.run("assert started == []; games(pile(), workers=2); assert len(started) == 2, started")
    kernel.run("assert len(games(pile(Locked), layout='threads')) == 60; multiprocessing.process.BaseProcess.start = begin")


@pytest.mark.parametrize("how, when", [("killed", "starting"), ("killed", "playing"), ("killed", "forked"),
                                       pytest.param("restarted", "playing", marks=pytest.mark.slow), ("restarted politely", "idle")])
def test_workers_end_with_their_kernel(kernel, how, when):
    "Also when a fork of the kernel, as PyTorch's DataLoader makes them, lives on and holds the pipes open."
    kernel.run(ENGINE)
    if when in ("starting", "playing"):
        kernel.send("engine = build('tictactoe')\nprint('built', flush=True)\nengine.generate_games(10**6)")
        kernel.read(until="built" if when == "starting" else "self-play")
    else: kernel.run("engine = build('tictactoe'); engine.pool.wait_ready()")
    workers = kernel.workers()
    assert len(workers) == 2
    if when == "forked": kernel.run("import os, time\nif not os.fork(): time.sleep(600); os._exit(0)")
    forks = set(kernel.workers()) - set(workers)
    if how == "killed": os.kill(kernel.pid, signal.SIGKILL)
    else: kernel.manager.restart_kernel(now=how == "restarted")
    assert gone(workers), [psutil.Process(pid) for pid in workers if alive(pid)]
    for pid in forks: os.kill(pid, signal.SIGKILL)   # Which fails if it has not outlived them
    kernel.restart() if how == "killed" else kernel.connect()


@pytest.mark.parametrize("layout", ["workers=2", "workers=None, layout='threads'"])
def test_progress_is_one_line_and_one_summary(kernel, layout):
    kernel.run(ENGINE)
    ready = "engine.pool.wait_ready(); time.sleep(.2)"   # Both workers speak, and a line in motion is drawn five times a second
    cell = kernel.run(f"import time\nwith build('tictactoe', {layout}) as engine: {ready}; records = engine.generate_games(1000)")
    lines = screen(cell.out)
    reported = [line for line in lines if line.startswith("worker ")]
    assert len(reported) == (2 if layout == "workers=2" else 0) and len(set(reported)) == len(reported)
    assert [line for line in lines if line not in reported] == [lines[-1]] and re.match(r"1,000 games in ([\d.]+ s|\d+:\d\d) \(", lines[-1])
    assert cell.out.count("1,000 games in") == 1 and cell.err == ""
    states = re.findall(r"\r(self-play [^\r\n]*)", cell.out)
    assert 1 <= len(states) <= 5 * cell.seconds + 1 and max(map(len, states)) < 100, "five a second at most"
    assert cell.out.count("\n") == len(lines)
