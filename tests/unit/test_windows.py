"What differs on Windows, simulated: there is no SIGKILL, and a launcher may stand between parent and child."
import errno
import multiprocessing
import queue
import signal
import sys
import threading
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from alphazero_nb import cli
from alphazero_nb.arena import external
from alphazero_nb.arena.connect4_search import Connect4Search
from alphazero_nb.arena.players import RolloutPlayer
from alphazero_nb.arena.solvers import EndgameSolver
from alphazero_nb.core.registry import get_game
from alphazero_nb.network import checkpoint
from alphazero_nb.selfplay import worker_process
from alphazero_nb.selfplay.workers import Worker
from alphazero_nb.training.run_folder import only_trainer


class Ended:
    "A process that has ended, its pipe and its outbox."
    def __init__(self, exitcode): self.exitcode = exitcode
    def join(self, timeout_s=None): pass
    def recv_bytes(self): raise EOFError
    def put(self, *message): pass


@pytest.mark.parametrize("code, cause", [(-15, "was killed by signal 15"), (1, "ended with exit code 1"), (None, "closed its pipe")])
def test_the_end_of_a_worker_is_told_where_nothing_is_called_kill(code, cause, monkeypatch):
    monkeypatch.delattr(signal, "SIGKILL")
    process = Ended(code)
    worker = Worker(0, "cpu", 1, [], queue.SimpleQueue(), lambda name: (process, process, process))
    assert worker.end_cause() == cause


@pytest.mark.parametrize("system, parent, ends", [("nt", 12, False), ("posix", 11, False), ("posix", 12, True)])
def test_a_worker_behind_a_launcher_lives_as_long_as_its_parent(system, parent, ends, monkeypatch):
    "The process that started it has the number 11. Its parent ends when the other end of a pipe is closed."
    ended, (ours, theirs) = threading.Event(), multiprocessing.Pipe()
    monkeypatch.setattr(worker_process, "os", SimpleNamespace(name=system, getppid=lambda: 11, _exit=lambda code: ended.set()))
    monkeypatch.setattr(worker_process.multiprocessing, "parent_process", lambda: SimpleNamespace(pid=parent, sentinel=ours))
    thread = threading.Thread(target=worker_process._end_with_parent, daemon=True)
    thread.start()
    if not ends: assert not ended.wait(.3)   # Whatever the machine's speed, it must not end
    theirs.close()
    assert ended.wait(600)
    thread.join()


def test_a_program_is_in_a_group_of_its_own():
    assert external._own_group(windows=True) == {"creationflags": 0x200} and external._own_group(windows=False) == {"start_new_session": True}


def test_a_drive_that_is_away_is_an_invalid_argument():
    assert errno.EINVAL in checkpoint.away_numbers(windows=True) and errno.EINVAL not in checkpoint.away_numbers(windows=False)


def test_a_pipe_that_nobody_reads_is_an_invalid_argument():
    gone = OSError(errno.EINVAL, "Invalid argument")
    assert cli._reader_has_gone(gone, windows=True) and not cli._reader_has_gone(gone, windows=False)
    assert cli._reader_has_gone(BrokenPipeError(), windows=False) and not cli._reader_has_gone(ValueError(), windows=True)


@pytest.mark.parametrize("error, held", [(PermissionError(13, "Permission denied"), True), (OSError(22, "a drive without locks"), False), (None, False)])
def test_a_folder_has_one_trainer(error, held, monkeypatch, tmp_path):
    def locking(handle, mode, count):
        if error: raise error
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))
    with pytest.raises(ValueError, match="in use by another trainer") if held else nullcontext():
        with only_trainer(tmp_path): pass


def test_no_wait_of_a_search_is_without_a_limit(monkeypatch):
    "Windows interrupts none before Python 3.14."
    plain = Future.result
    def result(future, timeout=None):
        assert timeout is not None or future.done()
        return plain(future, timeout)
    monkeypatch.setattr(Future, "result", result)
    game = get_game("connect4")
    assert RolloutPlayer(game, 20_000).acts([game.new()]) in range(7)
    for solver in (Connect4Search(1 << 16).scores(game.state_after([3] * 6 + [2] * 6 + [4] * 4), limit=1 << 40), EndgameSolver(get_game("tictactoe")).results(get_game("tictactoe").new())):
        assert len(solver)
