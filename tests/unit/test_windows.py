"What differs on Windows, simulated: there is no SIGKILL, and a launcher may stand between parent and child."
import multiprocessing
import queue
import signal
import threading
from types import SimpleNamespace

import pytest

from alphazero_nb.selfplay import worker_process
from alphazero_nb.selfplay.workers import Worker


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
