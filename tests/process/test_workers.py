"""Self-play in spawned processes: whatever is killed, stopped, interrupted or wrong, every game arrives once, is the game that
threads would have played, and nothing is left behind."""
import ast
import faulthandler
import functools
import gc
import json
import multiprocessing
import os
import queue
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from pathlib import Path

import numpy as np
import psutil
import pytest

from alphazero_nb.core.help import Failure
from alphazero_nb.core.streams import Purpose, derive_seed
from alphazero_nb.core.events import GameFinished, Message, SelfPlayDone, WorkerLost, WorkerStarted
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.selfplay.slots import GameFailed, retrace
from alphazero_nb.selfplay.worker_process import Outbox, WorkerTraceback, receive
from alphazero_nb.selfplay import engine as engine_module
from alphazero_nb.selfplay.workers import Worker, WorkerHandler, WorkerPlay
from alphazero_nb.selfplay.engine import SelfPlayEngine
from processes import children

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups of Unix")


# Helpers. This module is imported by the workers that play its games, so PyTorch is imported only where a test needs it.


class Heard(list):
    "A listener that keeps what it hears."
    def __call__(self, event): self.append(event)
    def of(self, kind): return [event for event in self if type(event) is kind]
    def text(self): return [event.text for event in self.of(Message)]


def engine(game="tictactoe", network=None, **options):
    usual = dict(device="cpu", workers=2, simulations=16, games=16, listeners=())
    return SelfPlayEngine(get_game(game) if isinstance(game, str) else game, network, **dict(usual, **options))


PLAYED = {}   # Games by what they depend on


def undisturbed(n, game="tictactoe", simulations=16, seed=0):
    "The first n games, played by a thread of this process."
    key = game, simulations, seed
    if len(PLAYED.get(key, ())) < n:
        with engine(game, workers=None, layout="threads", threads=1, simulations=simulations, seed=seed) as playing:
            PLAYED[key] = playing.generate_games(n)
    return PLAYED[key][:n]


def within(seconds, function, *args):
    "What `function` returned or raised, from a thread; shows all stacks and fails if it takes longer."
    result = []

    def run():
        try: result.append(function(*args))
        except BaseException as error: result.append(error)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not result: faulthandler.dump_traceback(sys.__stderr__)
    assert result, f"nothing came back within {seconds} s"
    return result[0]


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "what was waited for did not happen"
        time.sleep(.01)
    return found


def gone(pid):
    try: return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess: return True


def threads(): return [t for t in threading.enumerate() if t.name.startswith("alphazero_nb") or t.name == "BatchedEvaluator"]


@pytest.fixture(autouse=True)
def nothing_left():
    "No test leaves a process or a thread behind."
    before = set(threads()), {child.pid for child in children()}   # Another module may keep a server of processes
    yield
    wait_for(lambda: not set(threads()) - before[0] and not {child.pid for child in children()} - before[1])


def pids(playing): return [worker.process.pid for worker in playing.pool.workers]


def at_game(count, action, source=""):
    "A listener that calls `action` when that many games have ended, of one worker if it is named."
    ended = []

    def listen(event):
        if type(event) is GameFinished and event.source.startswith(source):
            ended.append(event)
            if len(ended) == count: action()
    return listen


class Silent(Worker):
    "A worker from which nothing has been heard for a long time, whatever the clock says."
    last_seen = property(lambda self: -1e9, lambda self, now: None)


def stop_for_good(playing):
    "Stop worker 0. Only for this worker time passes; another one is never silent for too long."
    worker, playing.pool.supervisor.silence_s = playing.pool.workers[0], 1e6
    os.kill(worker.process.pid, signal.SIGSTOP)
    worker.__class__ = Silent
    return worker.process.pid


def in_worker(): return multiprocessing.parent_process() is not None


# Games in Python


class Steps:
    "In turn two players go up one or two steps; whoever takes the last one wins."
    def __init__(self, seed, height=9): self.seed, self.left, self.moves = seed, height, []
    def mover(self): return len(self.moves) % 2 if self.left > 0 else -1
    def legal(self): return [0, 1]

    def play(self, action):
        self.moves.append(action)
        self.left -= 1 + action

    def returns(self): return [1, -1] if len(self.moves) % 2 else [-1, 1]
    def observe(self): return np.array([self.left, len(self.moves)], np.int8)

    def copy(self):
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, moves=self.moves.copy())
        return other


@functools.cache
def steps(make=Steps, length=9): return PythonGame("steps", make, players=2, actions=2, shape=(2,), max_length=length)


# The same games


WAYS = [dict(workers=1), dict(devices=["cpu", "cpu"], workers=None, reproducible=True),
        dict(workers=3, games=40, threads=2, max_batch=7)]
PAIRS = [(options, name) for name in ["dots(rows=2,cols=2)", "tictactoe", "connect4"] for options in WAYS]


@pytest.mark.parametrize("options, name", [   # By default each way and each game is tried once
    pytest.param(*pair, marks=[pytest.mark.slow] * (index not in (0, 4, 8))) for index, pair in enumerate(PAIRS)])
def test_processes_play_the_games_of_threads(name, options):
    want = undisturbed(60, name)
    with engine(name, **options) as playing: parts = [within(600, playing.generate_games, n) for n in (1, 39, 20)]
    assert sum(parts, []) == want
    assert [record.number for part in parts for record in part] == list(range(60))


def test_weights_reach_processes_as_they_reach_threads():
    "Also a worker that comes later has the newest ones."
    from alphazero_nb.network.networks import PolicyValueNet
    game = get_game("tictactoe")
    nets = [PolicyValueNet(game, "tiny", seed) for seed in (1, 2)]
    usual = dict(simulations=12, games=16, max_batch=8, reproducible=True, seed=3)
    with engine(game, nets[0], devices=["cpu", "cpu"], workers=None, **usual) as playing:
        assert playing.layout.kind == "processes" and playing.layout.devices == ("cpu", "cpu")
        got = [within(600, playing.generate_games, 12)]
        playing.set_network(nets[1])
        got.append(within(600, playing.generate_games, 12))
        lost, other = pids(playing)
        playing.pool.supervisor.silence_s = 1e6
        os.kill(lost, signal.SIGKILL), os.kill(other, signal.SIGSTOP)   # It goes on when the new one has played
        playing.events.listeners.append(at_game(1, lambda: os.kill(other, signal.SIGCONT), "worker 0"))
        got.append(within(600, playing.generate_games, 12))
    with engine(game, nets[0], layout="threads", workers=None, threads=2, shared=False, **usual) as playing:
        want = [playing.generate_games(12)]
        playing.set_network(nets[1])
        want += [playing.generate_games(12), playing.generate_games(12)]
        old = engine(game, nets[0], layout="threads", workers=None, first_game=12, first_version=1, **usual)
        with old: assert old.generate_games(12) != want[1], "the weights make a difference"
    assert got == want
    assert [{record.version for record in part} for part in got] == [{0}, {1}, {1}]


# Workers that are killed


@pytest.mark.parametrize("name, games, simulations, at", [
    ("tictactoe", 400, 100, 20), pytest.param("chess(max_plies=80)", 80, 16, 10, marks=pytest.mark.slow)])
def test_a_killed_worker_is_replaced_and_its_games_are_played_again(name, games, simulations, at):
    heard = Heard()
    kill = lambda: os.kill(pids(playing)[0], signal.SIGKILL)
    with engine(name, simulations=simulations, listeners=[heard, at_game(at, kill, "worker 0")]) as playing:
        playing.pool.wait_ready()
        playing.pool.supervisor._watch = lambda: None   # It is noticed by the end of its pipe, at once, and not by the clock
        records = within(600, playing.generate_games, games)
    assert records == undisturbed(games, name, simulations)
    numbers = [event.number for event in heard.of(GameFinished)]
    assert len(numbers) == len(set(numbers)) and set(range(games)) <= set(numbers), "every game is reported once"
    lost, = heard.of(WorkerLost)
    before = heard[:heard.index(lost)]
    assert lost.finished == sum(type(event) is GameFinished and event.source == "worker 0 cpu" for event in before)
    assert lost.worker == 0 and 0 < lost.repeated <= 11
    assert lost.cause.startswith("was killed by signal 9")
    *_, done = heard.of(SelfPlayDone)
    assert sum(done.sources.values()) == len(numbers) and set(done.sources) == {"worker 0 cpu", "worker 1 cpu"}


def test_a_worker_that_is_killed_between_two_calls():
    heard = Heard()
    with engine(listeners=[heard], reproducible=True) as playing:
        records = within(600, playing.generate_games, 20)
        playing.pool.wait_ready()
        os.kill(pids(playing)[1], signal.SIGKILL)
        wait_for(lambda: len(playing.pool.workers) == 1)
        assert not heard.of(WorkerLost), "listeners are called by the thread that plays"
        records += within(600, playing.generate_games, 20)
        playing.pool.wait_ready()
        assert len(pids(playing)) == 2
    assert records == undisturbed(40)
    lost, = heard.of(WorkerLost)
    assert lost.repeated == 0


def test_a_worker_that_is_killed_while_it_starts_is_left_out():
    heard = Heard()
    with engine(listeners=[heard]) as playing:
        os.kill(pids(playing)[0], signal.SIGKILL)
        records = within(600, playing.generate_games, 30)
    assert records == undisturbed(30)
    assert not heard.of(WorkerLost) and [event.worker for event in heard.of(WorkerStarted)] == [1]
    text, = heard.text()
    assert text.startswith("worker 0 cpu could not start and is left out: its process was killed by signal 9")


def test_without_any_worker_the_run_ends():
    with engine() as playing:
        for pid in pids(playing): os.kill(pid, signal.SIGKILL)
        error = within(600, playing.generate_games, 30)
    assert type(error) is Failure and str(error).startswith("no worker could start: the process of worker ")
    assert "was killed by signal 9" in str(error)


def test_three_losses_in_a_row_end_the_run():
    "Somebody kills every worker as soon as it is ready."
    heard = Heard()

    def kill(event):
        if type(event) is WorkerStarted:
            os.kill(next(w.process.pid for w in playing.pool.workers if w.index == event.worker), signal.SIGTERM)
    with engine("connect4", simulations=5000, listeners=[heard, kill]) as playing:
        error = within(600, playing.generate_games, 500)
        assert playing.leftover() == []
        with pytest.raises(RuntimeError, match="shut down"): playing.generate_games(1)
    assert type(error) is Failure
    assert str(error) == "three workers in a row were lost without finishing a game. The first one was killed by signal 15."
    assert len(heard.of(WorkerLost)) in (3, 4), "the other one may fall at the same time"


REHEARSED = {derive_seed(0, Purpose.SELF_PLAY, number) for number in range(100)}   # A worker plays some of these before it is ready


class Deadly(Steps):
    "Kills the worker that plays it."
    def play(self, action):
        if in_worker() and self.seed not in REHEARSED: os.kill(os.getpid(), signal.SIGKILL)
        super().play(action)


def test_rules_that_kill_their_process_end_the_run():
    heard = Heard()
    with engine(steps(Deadly), workers=1, listeners=[heard], seed=1) as playing:
        error = within(600, playing.generate_games, 50)
    assert str(error).startswith("three workers in a row were lost without finishing a game. The first one was killed by signal 9")
    assert len(heard.of(WorkerLost)) == 3


class DeadlyLate(Steps):
    "Kills its worker near the end of a long game; the others are short."
    def __init__(self, seed, deadly):
        self.deadly = seed == deadly
        super().__init__(seed, 30 if self.deadly else 4)

    def play(self, action):
        if self.deadly and in_worker():
            time.sleep(.002)
            if self.left < 5: os._exit(7)
        super().play(action)


@pytest.mark.slow
def test_a_game_that_kills_five_workers_ends_the_run():
    game, heard = steps(functools.partial(DeadlyLate, deadly=derive_seed(1, Purpose.SELF_PLAY, 3)), 30), Heard()
    with engine(game, workers=1, listeners=[heard], simulations=4, seed=1) as playing:
        error = within(600, playing.generate_games, 50)
        kept = playing.leftover()
    assert str(error) == "game 3 was running in five workers that were lost. The last one ended with exit code 7."
    assert len(heard.of(WorkerLost)) == 5
    with engine(game, workers=None, layout="threads", simulations=4, seed=1) as playing: want = playing.generate_games(50)
    numbers = [record.number for record in kept]
    assert len(numbers) == len(set(numbers)) > 9 and 3 not in numbers
    assert [record for record in kept if record.number < 50] == [want[number] for number in numbers if number < 50]


# Rules that raise


def table(breaks: bool):
    "A compiled game; whatever follows the moves 0, 1, 0, 0, 0, the table collapses."
    def start(state, seed): state[0] = 1
    def mover(state): return state[1] % 2 if state[1] < 7 else -1

    def legal(state, actions):
        for action in range(3): actions[action] = action
        return 3

    def play(state, action):
        if breaks and state[0] == 270: raise ValueError("the table collapsed")
        state[0], state[1] = state[0] * 3 + action, state[1] + 1

    def returns(state, out): out[state[0] % 2], out[1 - state[0] % 2] = 1, -1
    def observe(state, planes): planes[0], planes[1] = state[0] % 100, state[1]
    return Game("table", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                state_size=2, players=2, actions=3, shape=(2,), max_length=7)


class Fragile(Steps):
    def play(self, action):
        if self.moves == [1, 0, 0, 1, 0] and action: raise OverflowError("the stairs broke")
        super().play(action)


def stairs_that_break(): return steps(Fragile), steps(), OverflowError, "the stairs broke"
def table_that_breaks(): return table(True), table(False), ValueError, "the table collapsed"


@pytest.mark.parametrize("games, workers", [(stairs_that_break, 1), (table_that_breaks, 2)])
def test_an_error_in_the_rules_says_how_to_reproduce_it(games, workers):
    game, whole, kind, what = games()
    heard = Heard()
    with engine(game, workers=workers, listeners=[heard], simulations=2) as playing:
        error = within(600, playing.generate_games, 3000)
        kept = playing.leftover()
    assert type(error) is GameFailed and what in str(error) and str(error).count("Reproduce it with: ") == 1
    number, seed, line = re.search(r"^game (\d+) of .* Reproduce it with: retrace\(game, (\d+), (\[.*?\])\)$", str(error)).groups()
    assert int(seed) == derive_seed(0, Purpose.SELF_PLAY, int(number)) and f"(seed {seed})" in str(error)
    with pytest.raises(kind, match=what): retrace(game, int(seed), ast.literal_eval(line))
    assert type(error.__cause__) is WorkerTraceback
    reported = "".join(traceback.format_exception(error))
    assert reported.count(f"{kind.__name__}: {what}\n") == reported.count(f"raise {kind.__name__}") == 1, "its traceback is shown once"
    assert not heard.text() and not heard.of(WorkerLost)
    assert kept and kept == [record for record in undisturbed(max(r.number for r in kept) + 1, whole, 2)
                             if record.number in {r.number for r in kept}]


# Workers that cannot start


class Tied:
    "Rules that cannot be unpacked in a worker, or in the first one only."
    def __init__(self, folder, first_only=False): self.folder, self.first_only = str(folder), first_only
    def __call__(self, seed): return Steps(seed)

    def __setstate__(self, state):
        self.__dict__.update(state)
        if not in_worker(): return
        with open(Path(self.folder) / "starts", "a") as file: file.write("x")
        if self.first_only:
            try: os.close(os.open(Path(self.folder) / "first", os.O_CREAT | os.O_EXCL))
            except FileExistsError: return
        raise LookupError("there is no licence for this game")


def test_a_game_that_no_worker_can_load(tmp_path):
    heard = Heard()
    with engine(steps(Tied(tmp_path)), listeners=[heard]) as playing: error = within(600, playing.generate_games, 10)
    assert type(error) is RuntimeError
    assert re.match(r"worker \d cpu failed: LookupError: there is no licence for this game$", str(error))
    assert "__setstate__" in str(error.__cause__) and not heard.of(WorkerLost) + heard.of(WorkerStarted)
    assert len(heard.text()) == 1 and "could not start and is left out: " in heard.text()[0]
    assert (tmp_path / "starts").read_text() == "xx", "each worker tries once"


def test_one_of_two_workers_cannot_load_the_game(tmp_path):
    heard, game = Heard(), steps(Tied(tmp_path, True))
    with engine(game, listeners=[heard], simulations=4) as playing:
        records = within(600, playing.generate_games, 30)
        playing.pool.wait_ready()
        assert len(playing.pool.workers) == 1
        records += within(600, playing.generate_games, 30)
    assert records == undisturbed(60, steps(), 4)
    text, = heard.text()
    assert re.match(r"(worker [01] cpu) could not start and is left out: \1 failed: LookupError: there is no licence", text)
    assert (tmp_path / "starts").read_text() == "xx" and not heard.of(WorkerLost)


def test_a_network_that_no_worker_can_load():
    class Locked:   # Not one of PyTorch, which the worker would import first
        def __init__(self): self.weights = [1, 2]

        def __setstate__(self, state):
            import multiprocessing
            if multiprocessing.parent_process() is not None: raise PermissionError("these weights are locked")
    with engine(network=Locked(), workers=1) as playing: error = within(600, playing.generate_games, 10)
    assert str(error) == "worker 0 cpu failed: PermissionError: these weights are locked"


OWN_GAME = """
from alphazero_nb.core.python_game import PythonGame

class Five:
    def __init__(self, seed): self.moves = []
    def mover(self): return len(self.moves) % 2 if len(self.moves) < 5 else -1
    def legal(self): return [0, 1]
    def play(self, action): self.moves.append(action)
    def returns(self): return [1, -1] if sum(self.moves) % 2 else [-1, 1]
    def observe(self): return [len(self.moves)]

def own(): return PythonGame("five", Five, players=2, actions=2, shape=(1,), max_length=5), None
"""
OWN_NETWORK = """
import torch

class Halves(torch.nn.Module):
    def forward(self, planes): return torch.zeros(len(planes), 9), torch.full((len(planes), 2), .5)

def own(): return get_game("tictactoe"), Halves()
"""
of_its_own = pytest.mark.parametrize("own", [pytest.param(OWN_GAME, id="game"),
                                             pytest.param(OWN_NETWORK, id="network", marks=pytest.mark.slow)])


@of_its_own
def test_a_script_needs_no_guard(tmp_path, own):
    "Python runs a script without `if __name__ == '__main__':` again in each process, and with it the line that spawns."
    path = tmp_path / "unguarded.py"
    path.write_text("""
from alphazero_nb.core.registry import get_game
from alphazero_nb.selfplay.engine import SelfPlayEngine
print("a start", flush=True)
""" + own + """
for game, network in ((get_game("tictactoe"), None), own()):
    with SelfPlayEngine(game, network, workers=1, simulations=8, device="cpu", listeners=()) as engine:
        print(len(engine.generate_games(10)), "games", flush=True)
""")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and done.stdout.split("\n") == ["a start", "10 games", "10 games", ""], done.stderr


@of_its_own
def test_a_script_may_play_in_a_process_of_its_own(tmp_path, own):
    "Such a process knows the script's classes as those of `__mp_main__`, and so must the workers that it starts."
    path = tmp_path / "guarded.py"
    path.write_text("""
import multiprocessing
from alphazero_nb.core.registry import get_game
from alphazero_nb.selfplay.engine import SelfPlayEngine
""" + own + """
def play():
    with SelfPlayEngine(*own(), workers=1, simulations=8, device="cpu", listeners=()) as engine:
        print(len(engine.generate_games(10)), "games", flush=True)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=play)
    process.start()
    process.join()
    raise SystemExit(process.exitcode)
""")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and done.stdout == "10 games\n", done.stderr


def test_a_process_of_another_library_is_prepared_as_usual(monkeypatch):
    from multiprocessing import spawn
    from alphazero_nb.core.patches import without_script
    script = types.ModuleType("__main__")
    script.__file__ = "script.py"
    monkeypatch.setitem(sys.modules, "__main__", script)
    usual, seen = spawn.get_preparation_data, []
    look = lambda: seen.append({key for key in spawn.get_preparation_data("x") if key.startswith("init_main")})
    with without_script():
        for thread in (threading.Thread(target=look),): thread.start(), thread.join()
        look()
    assert seen == [{"init_main_from_path"}, set()] and spawn.get_preparation_data is usual


# Networks that fail


def opinion(calls=None, then=None, room=None):
    "A network with opinions that fails after some calls, or has room for some rows only."
    import torch

    class Opinion(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.weight = 0, torch.nn.Parameter(torch.tensor([[.125, -.125]]))

        def forward(self, x):
            import torch
            self.calls += 1
            if room is not None and len(x) > room and not self.training: raise torch.OutOfMemoryError("CUDA out of memory.")
            logits, values = (x[:, 0] - x[:, 1] / 2).flatten(1), self.weight.expand(len(x), 2)
            if calls is None or self.calls < calls: return logits, values
            if then == "raise": raise ZeroDivisionError("the card fell out")
            return (logits * torch.nan, values) if then == "nan" else (logits[:, :5], values)
    return Opinion()


def test_an_error_behind_an_interrupt_reaches_the_next_call(monkeypatch):
    from alphazero_nb.network.evaluator import EvaluatorError
    usual = engine_module._next_event
    def interrupted(events, end):
        event = usual(events, end)
        if getattr(event, "error", None) is None: return event
        monkeypatch.undo()
        events.put(event)   # The next call finds it
        raise KeyboardInterrupt
    with engine(network=opinion(150, "raise"), workers=1, max_batch=16, simulations=8) as playing:
        monkeypatch.setattr(engine_module, "_next_event", interrupted)
        assert type(within(600, playing.generate_games, 3000)) is KeyboardInterrupt
        assert type(within(600, playing.generate_games, 1)) is EvaluatorError


def test_a_worker_that_an_interrupt_kills_is_no_loss():
    workers = types.SimpleNamespace(remove=lambda worker: worker.killed or "died", vacant=[], fill=lambda: None)
    handler = WorkerHandler(workers, types.SimpleNamespace(source=None, active=False), queue.SimpleQueue())
    for killed, lost in (("did not stop in time and was killed", 0), ("was silent for 60 s and was killed", 1), ("", 2)):
        handler.replace(types.SimpleNamespace(state="playing", numbers=[0], index=0, finished=0, killed=killed))
        assert handler.losses.lost_with[0] == lost


def test_an_error_between_two_calls_is_reported():
    "New weights did not fit into the memory of a GPU: a worker started again without a word, or the run ended with another one."
    filled, events = [], queue.SimpleQueue()
    workers = types.SimpleNamespace(remove=lambda worker: "ended", vacant=[], fill=lambda: filled.append(True),
                                    in_state=lambda *states: [])
    handler = WorkerHandler(workers, WorkerPlay(workers), events)
    worker = types.SimpleNamespace(state="idle", name="worker 0 cuda:0", index=0, numbers=set(), finished=0, killed="")
    handler.handle(worker, "failed", "RuntimeError", "RuntimeError: CUDA out of memory", "")
    assert "worker 0 cuda:0 starts again after an error" in (said := events.get_nowait().text) and "out of memory" in said
    handler.play.generation = types.SimpleNamespace(stopping=False, ended=False)   # A call begins before the process has ended
    handler.replace(worker)
    assert filled == [True] and workers.vacant == [0], "the call has a worker"


@pytest.mark.parametrize("then, sentence", [
    ("raise", "evaluation failed: the card fell out"), ("nan", "NaN or infinity"),
    pytest.param("shape", r"logits of shape \(16, 5\); tictactoe needs \(16, 9\)", marks=pytest.mark.slow),
])
def test_a_network_that_fails_in_a_worker(then, sentence):
    from alphazero_nb.network.evaluator import EvaluatorError
    usual = dict(workers=1, max_batch=16, simulations=8)
    with engine(network=opinion(150, then), **usual) as playing:
        error = within(600, playing.generate_games, 3000)
        kept = playing.leftover()
    assert type(error) is EvaluatorError and re.search(sentence, str(error))
    assert then != "raise" or "the card fell out" in str(error.__cause__) and "in forward" in str(error.__cause__)
    inside = dict(usual, workers=None, layout="threads", shared=False)
    with engine(network=opinion(), **inside) as playing: want = playing.generate_games(60)
    assert kept and [record for record in kept if record.number < 60] == [want[r.number] for r in kept if r.number < 60]
    assert kept[0].number == 0


def test_a_device_without_room_for_a_batch():
    heard = Heard()
    with engine(network=opinion(room=5), listeners=[heard], workers=1, max_batch=16, simulations=8) as playing:
        records = within(600, playing.generate_games, 40)
        assert playing.layout.max_rows == 4 and playing.plan["max_rows"] == 4
        records += within(600, playing.generate_games, 10)
    assert [record.number for record in records] == list(range(50))
    reported = [text for text in heard.text() if "device memory" in text]
    assert reported == ["Out of device memory at batch size 16. Continuing with 4."]
    with engine(network=opinion(), workers=None, layout="threads", shared=False, max_batch=16, simulations=8) as playing:
        assert playing.generate_games(50) == records, "these rows do not depend on the batch"


# Parents that are killed, stopped and interrupted


HEAD = """
import faulthandler, os, signal, sys, threading, time
faulthandler.dump_traceback_later(SECONDS, exit=True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # Whoever started the tests may have had it ignored
import psutil
from alphazero_nb.core.events import GameFinished, Message, WorkerLost, WorkerStarted
from alphazero_nb.core.registry import get_game
from alphazero_nb.selfplay.engine import SelfPlayEngine

GAME = get_game("tictactoe")  # Made once: an interrupt while LLVM loads it can be fatal, whoever asked for it

def build(**options):
    usual = dict(network=None, device="cpu", workers=2, simulations=100, games=16, listeners=[tell])
    return SelfPlayEngine(GAME, **dict(usual, **options))

def tell(event):
    if type(event) is GameFinished and event.finished == 30: say("playing")
    if type(event) is WorkerLost: say("lost", event.cause)

def say(*words): print(*words, flush=True)
def interrupt_all(): os.killpg(0, signal.SIGINT)  # Another process may read a line when all games are over
def pids(engine): return [worker.process.pid for worker in engine.pool.workers]
def left():
    end = time.monotonic() + 600
    while time.monotonic() < end:
        alive = [process.cmdline() for process in psutil.Process().children() if process.status() != psutil.STATUS_ZOMBIE]
        there = [line for line in alive if "resource_tracker" not in " ".join(line)]
        if not there: break
        time.sleep(.05)
    return there

def same(records, **options):
    with build(workers=None, layout="threads", threads=1, listeners=(), **options) as one:
        return one.generate_games(len(records)) == records

def main_waits():   # In the pool's join, which the next interrupt leaves
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame and not (frame.f_code.co_name == "join" and frame.f_globals["__name__"] == "alphazero_nb.selfplay.workers"): frame = frame.f_back
    return frame
"""


class Script(subprocess.Popen):
    "A Python process in a group of its own, whose lines are read one by one."
    def __init__(self, source, seconds=600):
        self.complaints = tempfile.TemporaryFile("w+")
        super().__init__([sys.executable, "-c", HEAD.replace("SECONDS", str(seconds)) + source], text=True, cwd=Path(__file__).parent,
                         stdout=subprocess.PIPE, stderr=self.complaints, start_new_session=True)

    def __exit__(self, *error):
        if error[0]: self.kill()
        super().__exit__(*error)
        self.complaints.close()

    def line(self, word):
        "The rest of the next line, which must begin with this word."
        line = self.stdout.readline()
        assert line.startswith(word), (line, self.said())
        return line.removeprefix(word).strip()

    def said(self):
        "What it says until it ends, on both ways."
        out = self.stdout.read()
        self.wait(600)
        self.complaints.seek(0)
        return out, self.complaints.read()

    def end(self, code=0):
        "What it still says; its errors are empty."
        out, err = self.said()
        assert self.returncode == code and not err, (self.returncode, err)
        return out

    def interrupt(self): os.killpg(self.pid, signal.SIGINT)


ORPHANS = """
engine = build()
if READY: engine.pool.wait_ready()
say("workers", *pids(engine))
engine.generate_games(1_000_000)
"""


@pytest.mark.parametrize("how, when", [   # By default each signal and each moment is tried once
    (signal.SIGKILL, "in play"), (signal.SIGTERM, "at once"),
    pytest.param(signal.SIGKILL, "at once", marks=pytest.mark.slow),
    pytest.param(signal.SIGTERM, "in play", marks=pytest.mark.slow)])
def test_workers_end_with_their_parent(how, when):
    with Script(ORPHANS.replace("READY", str(when == "in play"))) as script:
        workers = [int(pid) for pid in script.line("workers").split()]
        if when == "in play": script.line("playing")
        assert len(workers) == 2 and not any(map(gone, workers))
        script.send_signal(how)
        script.wait(600)
        wait_for(lambda: all(map(gone, workers)))
        assert when == "at once" or script.said()[1] == ""


def test_an_engine_that_is_not_shut_down_ends_with_its_program():
    source = """
engine = build()
say(len(engine.generate_games(40)), "games", *pids(engine))
"""
    with Script(source) as script:
        script.line("playing")
        workers = [int(pid) for pid in script.line("40 games").split()]
        script.end()
        assert len(workers) == 2 and all(map(gone, workers))


def test_an_engine_that_a_forked_process_leaves_open_ends_with_it():
    "Such a process waits for its children before it runs what `atexit` holds; replacing workers meanwhile broke that wait."
    source = """
import multiprocessing

def play():
    engine = build()
    say(len(engine.generate_games(40)), "games", *pids(engine))

child = multiprocessing.get_context("fork").Process(target=play)
child.start()
child.join()
say("exit", child.exitcode)
"""
    with Script(source) as script:
        script.line("playing")
        workers = [int(pid) for pid in script.line("40 games").split()]
        assert script.end() == "exit 0\n"
        assert len(workers) == 2 and all(map(gone, workers))


INTERRUPTED = """
def stop(event):
    if type(event) is GameFinished and event.finished == 30: interrupt_all()
with build() as engine:
    engine.pool.wait_ready()
    join = engine.pool.join
    engine.pool.join = lambda: join(1e6)   # However slow a worker is, it is not killed
    engine.events.listeners.append(stop)
    try: engine.generate_games(10**6)
    except KeyboardInterrupt: say("back")
    engine.events.listeners.remove(stop)
    kept = engine.leftover()
    say("kept", len(kept), len({record.number for record in kept}), engine.scheduler.games)
    count = len(kept) + 200
    records = engine.generate_games(count)
    assert [record.number for record in records] == list(range(count))
    assert same(records) and all(records[record.number] == record for record in kept if record.number < count)
    assert engine.scheduler.games == count + len(engine.leftover()), "no game is played twice"
say("left", left())
"""


def test_an_interrupt_comes_back_at_once_and_loses_nothing():
    "It comes after 30 of a million games."
    with Script(INTERRUPTED) as script:
        script.line("playing")
        script.line("back")
        kept, different, finished = map(int, script.line("kept").split())
        assert 30 <= kept == different == finished < 10**6
        assert script.end() == "playing\nleft []\n", "the second call plays as well; no worker says a word"


TWICE = """
def look():
    while engine.pool._play.idle or not main_waits(): time.sleep(.005)
    say("waits")

with build() as engine:
    join, engine.pool.supervisor.silence_s = engine.pool.join, 1e6
    engine.pool.join = lambda: join(1e6)   # After one interrupt alone, it would wait for ever
    engine.pool.wait_ready()
    stopped = engine.pool.workers[0]
    def stop(event):
        if type(event) is not GameFinished or event.finished != 10: return
        os.kill(stopped.process.pid, signal.SIGSTOP)
        threading.Thread(target=look, daemon=True).start()
    engine.events.listeners.append(stop)
    try: engine.generate_games(10**6)
    except KeyboardInterrupt: say("back")
    engine.events.listeners.remove(stop)
    if not GOES_ON: raise SystemExit
    try: os.kill(stopped.process.pid, signal.SIGCONT)
    except (OSError, ValueError): pass
    count = len(engine.leftover()) + 200
    records = engine.generate_games(count)
    assert [record.number for record in records] == list(range(count)) and same(records)
    say("goes on")
say("left", left())
"""


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_second_interrupt_does_not_wait_for_a_worker_that_is_stuck(goes_on):
    with Script(TWICE.replace("GOES_ON", str(goes_on))) as script:
        script.line("playing")
        script.interrupt()
        script.line("waits")
        script.interrupt()
        script.line("back")
        out = script.end()
        assert not goes_on or out.endswith("goes on\nleft []\n")


MANY = """
def interrupt():
    seen = None
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    while not over.wait(.005):
        frame = main_waits()
        if frame is None or frame is seen: continue
        seen = frame
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

over = threading.Event()
with build() as engine:
    engine.pool.wait_ready()
    stopped = engine.pool.workers[0].process.pid
    def stop(event):
        if type(event) is GameFinished and event.finished == 10:
            os.kill(stopped, signal.SIGSTOP)
            sender.start()
    sender = threading.Thread(target=interrupt)
    engine.events.listeners.append(stop)
    try: engine.generate_games(10**6)
    except KeyboardInterrupt: over.set()
    while over.is_set():   # An interrupt that is on its way belongs to this call
        try:
            sender.join()
            time.sleep(.05)
            break
        except KeyboardInterrupt: pass
    engine.events.listeners.remove(stop)
    try: os.kill(stopped, signal.SIGCONT)
    except OSError: pass
    count = len(engine.leftover()) + 200
    records = engine.generate_games(count)
    assert [record.number for record in records] == list(range(count)) and same(records)
    say("goes on")
say("left", left())
"""


def test_an_interrupt_in_every_wait_and_then_another_call():
    "No wait is finished, so the call returns while a worker is still stuck."
    with Script(MANY) as script:
        out = script.end()
        assert out.endswith("goes on\nleft []\n"), out


def test_a_generation_waits_for_the_workers_of_the_last_one():
    "One that does not stop in time is ended. What it says later is not taken for the end of the new generation."
    with engine(simulations=100) as playing:
        pool, scheduler = playing.pool, playing.scheduler
        pool.wait_ready()
        scheduler.request(300)
        first = pool.start(scheduler)
        wait_for(lambda: len(scheduler.finished) > 20)
        stuck = pids(playing)[0]
        os.kill(stuck, signal.SIGSTOP)
        pool.stop()
        second = within(600, pool.start, scheduler)
        if not gone(stuck): os.kill(stuck, signal.SIGCONT)
        wait_for(lambda: not scheduler.missing)
        within(600, pool.join)
        assert first.ended and second.ended and first is not second
        assert scheduler.take() == undisturbed(300, simulations=100)


STARTING = """
from alphazero_nb.network.networks import PolicyValueNet
engine = build(network=PolicyValueNet(get_game("tictactoe"), "tiny"))
engine.events.listeners.append(lambda event: type(event) is Message and say("starting", event.text))
try: engine.generate_games(10**6)
except KeyboardInterrupt: say("back")
finally: engine.shutdown()
say("left", left())
"""


def test_an_interrupt_while_workers_load_pytorch():
    with Script(STARTING) as script:
        assert "Loading PyTorch" in script.line("starting 2 of 2")
        script.interrupt()
        script.line("back")
        script.line("left []")
        script.end()


BUILDING = """
import random
rng, interrupted = random.Random(1), 0
with build(listeners=()): pass
for turn in range(6):
    timer, engine = threading.Timer(rng.uniform(.001, .06), os.kill, (os.getpid(), signal.SIGINT)), None
    try:
        timer.start()
        engine = build(listeners=())
        engine.generate_games(2000)
    except KeyboardInterrupt: interrupted += 1
    timer.join()
    if engine: engine.shutdown()
    assert not left(), left()
    end = time.monotonic() + 600
    while time.monotonic() < end and [t for t in threading.enumerate() if t.name.startswith("alphazero_nb")]: time.sleep(.01)
    assert time.monotonic() < end, threading.enumerate()
say("interrupted", interrupted)
"""


def test_an_interrupt_while_an_engine_is_built_leaves_nothing():
    with Script(BUILDING) as script:
        assert int(script.line("interrupted")) > 0, "one that falls into a callback of the compiler is lost there"
        out, err = script.said()
        assert script.returncode == 0 and not out and "spawn" not in err, err


# Workers that are silent, listeners that are slow, hands that are even


def test_a_worker_that_says_nothing_is_replaced():
    heard, stopped = Heard(), []

    stop = lambda: stopped.append(stop_for_good(playing))
    with engine(simulations=100, listeners=[heard, at_game(20, stop, "worker 0")]) as playing:
        playing.pool.wait_ready()
        records = within(600, playing.generate_games, 300)
    assert records == undisturbed(300, simulations=100)
    lost, = heard.of(WorkerLost)
    assert lost.worker == 0 and lost.repeated > 0 and lost.cause == "was silent for 1e+06 s and was killed"
    assert gone(stopped[0])


class Frozen(Steps):
    "Freezes its worker when half of a message is in the pipe, once."
    def __init__(self, seed, folder=""):
        super().__init__(seed)
        self.folder = folder

    def play(self, action):
        if in_worker() and self.seed not in REHEARSED: self.freeze()
        super().play(action)

    def freeze(self):
        try: os.close(os.open(Path(self.folder) / "frozen", os.O_CREAT | os.O_EXCL))
        except FileExistsError: return
        outbox = next(thread for thread in threading.enumerate() if isinstance(thread, Outbox))
        outbox.pipe._send(struct.pack("!i", 40_000) + bytes(20_000))
        os.kill(os.getpid(), signal.SIGSTOP)


def test_a_worker_that_freezes_in_the_middle_of_a_message_is_replaced(tmp_path):
    heard, game, over = Heard(), steps(functools.partial(Frozen, folder=str(tmp_path))), threading.Event()

    def find():   # The frozen one
        while not over.wait(.01):
            for worker in list(playing.pool.workers):
                if psutil.Process(worker.process.pid).status() == psutil.STATUS_STOPPED: worker.__class__ = Silent; return
    with engine(game, workers=1, listeners=[heard], simulations=4, seed=1) as playing:
        playing.pool.wait_ready()
        playing.pool.supervisor.silence_s, finder = 1e6, threading.Thread(target=find)
        finder.start()
        try: records = within(600, playing.generate_games, 100)
        finally: over.set(), finder.join()
    assert (tmp_path / "frozen").exists() and records == undisturbed(100, steps(), 4, seed=1)
    lost, = heard.of(WorkerLost)
    assert lost.cause == "was silent for 1e+06 s and was killed" and lost.repeated > 0


def test_a_worker_that_freezes_in_the_middle_of_a_message_delays_no_end(tmp_path):
    "Nor does a message that is too long for the pipe of a frozen worker."
    game = steps(functools.partial(Frozen, folder=str(tmp_path)))
    with engine(game, workers=1, seed=1) as playing:
        playing.pool.wait_ready()
        over = []
        thread = threading.Thread(target=lambda: over.append(within(600, playing.generate_games, 1_000_000)), daemon=True)
        thread.start()
        wait_for((tmp_path / "frozen").exists)
        for worker in playing.pool.workers: worker.outbox.put("games", list(range(10**6, 10**6 + 300_000)))
        assert within(600, playing.shutdown) is None
        thread.join(600)
        assert len(over) == 1 and isinstance(over[0], RuntimeError), over   # The engine has been shut down


class Forking(Steps):
    "Kills its worker and leaves a child that holds the worker's end of the pipe, once."
    def __init__(self, seed, folder=""):
        super().__init__(seed)
        self.folder = folder

    def play(self, action):
        if in_worker() and self.seed not in REHEARSED: self.fork()
        super().play(action)

    def fork(self):
        try: file = os.open(Path(self.folder) / "child", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError: return
        child = os.fork()
        if child == 0:
            signal.pause()
        os.write(file, str(child).encode())
        os._exit(3)


def test_a_worker_whose_pipe_outlives_it_is_replaced(tmp_path):
    heard, game = Heard(), steps(functools.partial(Forking, folder=str(tmp_path)))
    with engine(game, workers=1, listeners=[heard], simulations=4, seed=1) as playing:
        records = within(600, playing.generate_games, 100)
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    lost, = heard.of(WorkerLost)
    assert lost.cause == "ended with exit code 3" and records == undisturbed(100, steps(), 4, seed=1)


@pytest.mark.parametrize("when", ["playing", "idle", "starting"])
def test_an_engine_with_a_stopped_worker_closes_at_once(when):
    with engine(simulations=100) as playing:
        if when != "starting": playing.pool.wait_ready()
        if when == "playing": playing.play_for(.3)
        for pid in pids(playing)[:1]: os.kill(pid, signal.SIGSTOP)
        assert within(600, playing.shutdown) is None


def test_a_worker_that_hangs_when_the_time_is_up_is_ended():
    heard = Heard()
    with engine(simulations=100, listeners=[heard]) as playing:
        playing.pool.wait_ready()
        stop = playing.pool.stop

        def hang_and_stop():
            if playing.pool._play.active and wait_for(lambda: playing.pool.workers[0].numbers): stop_for_good(playing)
            stop()
        playing.pool.stop = hang_and_stop
        assert within(600, playing.play_for, .5) >= .5
        playing.pool.stop = stop
        records = within(600, playing.generate_games, 200)
    assert records == undisturbed(200, simulations=100)
    lost, = heard.of(WorkerLost)
    assert lost.cause == "was silent for 1e+06 s and was killed" and lost.repeated > 0


def test_a_laptop_that_was_asleep_loses_no_worker():
    "Parent and workers are stopped together, and when they go on the clock is further than a worker may be silent."
    source = """
from types import SimpleNamespace
from alphazero_nb.selfplay import workers
asleep = [0]
def wake(*_): asleep[0] = 5000
signal.signal(signal.SIGCONT, wake)
workers.time = SimpleNamespace(monotonic=lambda: time.monotonic() + asleep[0], sleep=time.sleep)
with build(simulations=400) as engine:
    engine.pool.supervisor.silence_s = 1000
    engine.pool.wait_ready()
    records = engine.generate_games(100)
    while not asleep[0]: records += engine.generate_games(20)
    records += engine.generate_games(100)
    assert same(records, simulations=400)
say("left", left())
"""
    with Script(source) as script:
        script.line("playing")
        os.killpg(script.pid, signal.SIGSTOP)
        wait_for(lambda: psutil.Process(script.pid).status() == psutil.STATUS_STOPPED)
        os.killpg(script.pid, signal.SIGCONT)
        assert script.end().replace("playing\n", "") == "left []\n", "no worker is lost"


@pytest.mark.parametrize("layout", ["threads", "processes"])
def test_shutting_down_while_another_thread_waits_for_games(layout):
    where = dict(layout="processes") if layout == "processes" else dict(layout="threads", workers=None)
    shut = at_game(50, lambda: threading.Thread(target=playing.shutdown).start())
    with engine(simulations=100, listeners=[shut], **where) as playing:
        error = within(600, playing.generate_games, 1_000_000)
        kept = [record.number for record in playing.leftover()]
    assert type(error) is RuntimeError
    assert str(error) == "this engine was shut down while it played; finished games are in leftover()."
    assert len(kept) >= 50 and len(kept) == len(set(kept))


@pytest.mark.parametrize("reproducible", [False, True])
def test_a_slow_worker_gets_fewer_games(reproducible):
    "One worker stands still until the other one has played 240 of 300 games, with as many as it had room for."
    heard = Heard()
    go_on = at_game(240, lambda: os.kill(slow, signal.SIGCONT), "worker 1 ")
    with engine(simulations=100, listeners=[heard, go_on], reproducible=reproducible) as playing:
        playing.pool.wait_ready()
        playing.pool.supervisor.silence_s, slow = 1e6, pids(playing)[0]
        os.kill(slow, signal.SIGSTOP)
        try: records = within(600, playing.generate_games, 300)
        finally: os.kill(slow, signal.SIGCONT)
    assert records == undisturbed(300, simulations=100) and not heard.of(WorkerLost)
    done, = heard.of(SelfPlayDone)
    assert 0 < done.sources["worker 0 cpu"] < .7 * done.sources["worker 1 cpu"]


def test_listeners_that_raise_or_are_slow_lose_no_game():
    heard = Heard()

    def raises(event):
        if type(event) is GameFinished and event.finished == 7: raise KeyError("the listener fell asleep")

    def slow(event):
        if type(event) is GameFinished: time.sleep(.005)
    with engine(listeners=[raises, slow, heard], reproducible=True) as playing: records = within(600, playing.generate_games, 200)
    assert records == undisturbed(200)
    assert sorted(event.number for event in heard.of(GameFinished)) == list(range(200))
    text, = heard.text()
    assert text.startswith("A listener failed and is no longer called") and "the listener fell asleep" in text


# What is sent


def send_and_exit(pipe, records):
    "The body of a process that sends games and is gone."
    outbox = Outbox(pipe)
    for record in records: outbox.put("game", record)
    outbox.close(60)
    os._exit(0)


def test_a_worker_that_exits_at_once_has_sent_everything():
    """The games lie in the pipe as bytes. Tensors would not: what a queue of PyTorch carries is a handle into the memory of the
    sender, which the receiver opens later; once the sender is gone, that fails (ConnectionResetError or FileNotFoundError)."""
    records, context = undisturbed(20), multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=send_and_exit, args=(theirs, records))
    process.start()
    theirs.close()
    process.join(600)
    assert process.exitcode == 0
    got = []
    while True:
        try: got += receive(mine)
        except EOFError: break
    mine.close()
    assert [what for what, record in got] == ["game"] * 20 and [record for what, record in got] == records
    assert all(type(value) in (np.ndarray, int) for what, record in got for value in vars(record).values())


# Leaks and endurance


def open_things():
    gc.collect()
    me, shm = psutil.Process(), Path("/dev/shm")   # Which other programs use as well
    shared = {name for name in os.listdir(shm) if name.startswith("sem.mp-")} if shm.exists() else set()
    return dict(descriptors=me.num_fds(), threads=threading.active_count(), children=len(children())), shared


def cycles(count, workers):
    "Builds, plays and shuts down. Returns the memory that an engine leaves, in MB; nothing else may be left open."
    def cycle():
        with engine(workers=workers) as playing: assert len(within(600, playing.generate_games, 5)) == 5
    cycle()
    (before, there), memory = open_things(), []
    for _ in range(count):
        cycle()
        memory.append(psutil.Process().memory_info().rss / 2**20)
    wait_for(lambda: threading.active_count() <= before["threads"])
    after, now = open_things()
    assert all(after[what] <= before[what] for what in before) and not now - there, (before, after, now - there)
    return np.polyfit(range(count), memory, 1)[0]


def test_nothing_is_left_of_three_engines(): assert cycles(3, workers=1) < 2, "MB per engine"


@pytest.mark.slow
def test_nothing_is_left_of_fifty_engines(): assert cycles(50, workers=2) < .2, "MB per engine"


def soak(games, simulations, workers, most_kills, every=None):
    "Plays while one worker is killed every two seconds, or at every so many games; prints how long replacements took."
    heard, over = Heard(), threading.Event()

    def kill():
        for turn in range(most_kills):
            while every and playing.scheduler.games < every * (turn + 1) and not over.is_set(): time.sleep(.002)
            if over.wait(0 if every else 2): return
            there = [worker for worker in list(playing.pool.workers) if worker.state == "playing"]
            if there: os.kill(there[turn % len(there)].process.pid, signal.SIGKILL)
    with engine(simulations=simulations, workers=workers, games=8 * workers, listeners=[heard]) as playing:
        playing.pool.wait_ready()
        thread = threading.Thread(target=kill)
        thread.start()
        try: records = within(600, playing.generate_games, games)
        finally:
            over.set()
            thread.join()
        assert not isinstance(records, BaseException), records
    lost, started = heard.of(WorkerLost), heard.of(WorkerStarted)
    print(f"{games} games in {heard.of(SelfPlayDone)[0].seconds:.1f} s; {len(lost)} workers lost, {sum(e.repeated for e in lost)} "
          f"games played again; replacements took {', '.join(f'{event.seconds:.2f}' for event in started[workers:])} s")
    assert [record.number for record in records] == list(range(games))
    assert len({record.seed for record in records}) == games and not heard.text()
    numbers = [event.number for event in heard.of(GameFinished)]
    assert len(numbers) == len(set(numbers)) and set(range(games)) <= set(numbers)
    assert records[:100] == undisturbed(100, simulations=simulations)
    return len(lost)


def test_two_hundred_games_while_workers_are_killed(): assert soak(200, 2000, 2, 2, every=20) >= 1


@pytest.mark.slow
def test_ten_thousand_games_while_workers_are_killed(): assert soak(10_000, 3000, 4, 1000) >= 4


# Training runs


def test_a_run_remembers_how_much_room_its_device_has(tmp_path):
    from alphazero_nb.training.learner import TrainSettings
    from alphazero_nb.training.run_folder import read_layout_file
    from alphazero_nb.training.trainer import Trainer
    quick, heard = TrainSettings(games_per_iteration=20, min_replay_ratio=6, evaluate_every=0), [Heard(), Heard(), Heard()]
    build = lambda listener: Trainer("tictactoe", network=opinion(room=5), folder=tmp_path / "run", device="cpu", simulations=4,
                                     train_settings=quick, listeners=[listener])
    reported = "Out of device memory at batch size 128. Continuing with 4."
    build(heard[0]).fit(iterations=2)
    saved = json.loads((tmp_path / "run/layout.json").read_text())["layout"]
    assert saved["max_rows"] == 4 and saved["max_batch"] == 128
    run = build(heard[1]).fit(iterations=1)
    assert run.iteration == 3 and run.games == 60
    assert read_layout_file(tmp_path / "run/layout.json").max_rows == 4
    build(heard[2]).fit(iterations=1)
    assert [reported in listener.text() for listener in heard] == [True, False, False], "it is reported once"


TRAINING = """
import torch
from alphazero_nb.core.events import RunDone
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.trainer import Trainer
def tell(event):
    if type(event) is GameFinished and event.number >= 96 and event.finished == 30:
        say("playing")
        interrupt_all()
    if type(event) is RunDone and event.stopped: say("stopped", event.games)
torch.set_num_threads(1)   # The last bit of a training step depends on how many threads share it
say("start")
run = Trainer("tictactoe", "tiny", FOLDER, listeners=[tell], **USUAL).fit(iterations=2)
say("iterations", run.iteration)
"""


def trained(folder, listeners=(), **options):
    from alphazero_nb.training.learner import TrainSettings
    from alphazero_nb.training.trainer import Trainer
    usual = dict(device="cpu", simulations=16, games=32, max_batch=16, reproducible=True, seed=4)
    settings = TrainSettings(games_per_iteration=96, batch_size=64, replay_ratio=2, min_replay_ratio=2,
                             evaluate_every=0)
    run = Trainer("tictactoe", "tiny", folder, train_settings=settings, listeners=list(listeners), **usual, **options)
    return run.fit(iterations=2 - run.iteration), dict(usual, train_settings=settings)


@pytest.fixture(scope="module")
def undisturbed_run(tmp_path_factory, one_thread_inside): return trained(tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.mark.parametrize("options", [pytest.param(dict(threads=2), marks=pytest.mark.slow), dict(workers=1)])
def test_an_interrupted_run_goes_on_with_the_games_it_has(undisturbed_run, tmp_path, options):
    import torch
    from alphazero_nb.training.trainer import Trainer
    want, usual = undisturbed_run
    source = TRAINING.replace("FOLDER", repr(str(tmp_path / "run"))).replace("USUAL", repr(dict(usual, **options)))
    with Script(source) as script:
        script.line("start")
        script.line("playing")
        reported = int(script.line("stopped "))
        assert script.end() == "iterations 1\n"
        heard = Heard()
        kept = Trainer("tictactoe", "tiny", tmp_path / "run", **usual, listeners=()).folder.kept()
        numbers, second = {record.number for record in kept}, set(range(96, 192))
        assert len(kept) == reported and 30 <= reported <= 96 and numbers <= second
        got, _ = trained(tmp_path / "run", [heard])
        played = [event.number for event in heard.of(GameFinished)]
        assert sorted(played) == sorted(second - numbers), "the others, and each once"
        assert got.iteration == want.iteration == 2 and got.games == 192 and not got.folder.kept()
        ours, theirs = got.learner.average.module.state_dict(), want.learner.average.module.state_dict()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


# Bad arguments


@pytest.mark.parametrize("options, sentence", [
    (dict(workers=0), "workers is 0; it must be between 1 and 1,024."),
    (dict(workers=-2), "workers is -2; it must be between 1 and 1,024."),
    (dict(workers=None, devices=[]), "the number of devices is 0; it must be between 1 and 1,024."),
    (dict(workers=None, devices=["cuda:99"]), r"device 'cuda:99' is not on this machine; it has: .*cpu\."),
    (dict(workers=None, devices="cpuu"), r"device 'cpuu' is not on this machine; .* Did you mean 'cpu'\?"),
    (dict(workers=3, devices=["cpu", "cpu"]), "workers is 3 and there are 2 devices; give only one of the two."),
    (dict(layout="procesess"), r"layout 'procesess' is unknown; choose auto, threads, processes or ray\. Did you mean 'processes'\?"),
    (dict(layout="threads"), "in this process on one device; leave out devices and workers, or use layout='processes'."),
    (dict(layout="threads", workers=None, devices=["cpu"]), "layout='threads' plays in this process on one device"),
])
def test_bad_arguments_are_named(options, sentence):
    import torch
    network = torch.nn.Identity()
    with pytest.raises(ValueError, match=sentence): engine(network=network, **options)


class Unending:
    "A process that no signal ends: it waits for a dead drive."
    def __init__(self, process): self.process = process
    def __getattr__(self, name): return getattr(self.process, name)
    def kill(self): pass
    def join(self, timeout_s=None): assert timeout_s is not None
    def is_alive(self): return True


def test_a_worker_that_no_signal_ends_is_replaced():
    with engine() as playing:
        playing.pool.wait_ready()
        worker = playing.pool.workers[0]
        process, worker.process = worker.process, Unending(worker.process)
        stop_for_good(playing)
        try: assert within(600, playing.generate_games, 40) == undisturbed(40)
        finally: process.kill()
        process.join()
        assert worker not in playing.pool.workers and len(playing.pool.workers) == 2
