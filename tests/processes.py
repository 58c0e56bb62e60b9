"What tests see of processes from outside, and programs that they start."
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from multiprocessing import reduction

import psutil


def children(pid=None):
    "Processes below this one that run; Python's own tracker of resources, which stays, is not counted."
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(child.cmdline()): found.append(child)
        except psutil.NoSuchProcess: pass
    return found


def _run_program(source, arguments, out, err):
    "Body of a `Program`."
    for stream, number in ((out, 1), (err, 2)): os.dup2(stream.detach(), number)
    sys.stdout, sys.stderr = open(1, "w", buffering=1, closefd=False), open(2, "w", buffering=1, closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)   # Whoever started the tests may have had it ignored
    sys.argv = ["-c", *arguments]
    exec(compile(source, "<program>", "exec"), {"__name__": "__main__"})


def _servers():
    "Processes that begin with PyTorch and the package loaded: copies of a server that loads them once."
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["alphazero_nb.all", "alphazero_nb.cli"])
    return context


class Program:
    """A Python program in a process of its own, with the methods of a `subprocess.Popen` that tests use.

    A new interpreter spends four seconds on importing PyTorch; this one has it."""
    def __init__(self, source, *arguments):
        self.stderr, (read, write) = tempfile.TemporaryFile("w+"), os.pipe()
        self.stdout = open(read)
        self.process = _servers().Process(target=_run_program, args=(
            source, list(map(str, arguments)), Handle(write), Handle(self.stderr.fileno())))
        self.process.start()
        os.close(write)
        self.pid = self.process.pid

    @property
    def returncode(self): return self.process.exitcode
    def poll(self): return self.process.exitcode
    def send_signal(self, number): os.kill(self.pid, number)

    def communicate(self, timeout=None):
        "What is left of its output, and its errors. It is killed if it takes too long."
        watchdog = threading.Timer(timeout, self.process.kill) if timeout else None
        if watchdog: watchdog.start()
        try:
            out = self.stdout.read()
            self.process.join()
        finally:
            if watchdog: watchdog.cancel()
        self.stderr.seek(0)
        return out, self.stderr.read()


class Handle:
    "A file descriptor on its way to a new process."
    def __init__(self, number): self.number = number
    def __getstate__(self): return reduction.DupFd(self.number)
    def __setstate__(self, there): self.there = there
    def detach(self): return self.there.detach()


@contextmanager
def no_child_left():
    "Fail if a process that starts inside is still there ten minutes after the end."
    before = {child.pid for child in children()}
    yield
    end = time.monotonic() + 600
    while (left := [child for child in children() if child.pid not in before]) and time.monotonic() < end: time.sleep(.05)
    assert not left, "a program outlives its player"
