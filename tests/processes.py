"Processes that tests look at from outside."
import psutil


def children(pid=None):
    "Processes below this one that run; Python's own tracker of resources, which stays, is not counted."
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(child.cmdline()): found.append(child)
        except psutil.NoSuchProcess: pass
    return found
