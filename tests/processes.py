"What tests measure of processes and of the machine from outside."
import time

import psutil


def children(pid=None):
    "Processes below this one that run; Python's own tracker of resources, which stays, is not counted."
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(child.cmdline()): found.append(child)
        except psutil.NoSuchProcess: pass
    return found


def patience():
    """Return how many times longer everything takes on this machine now than on a quiet one, at least 1.

    It is the time of a short computation divided by the processor time that the computation got. A limit on how long
    something may take is multiplied by it, so that a busy machine fails no test and a quiet one has the strict limit."""
    start, computed = time.monotonic(), time.thread_time()
    while (got := time.thread_time() - computed) < .05: pass
    return max(1, (time.monotonic() - start) / got)
