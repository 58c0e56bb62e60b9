"A real notebook kernel of this Python, driven as a page in a browser drives it."
import importlib.util
import json
import os
import queue
import re
import signal
import sys
import time
from pathlib import Path

import pytest

MISSING = [name for name in ("ipykernel", "jupyter_client", "psutil") if importlib.util.find_spec(name) is None]
if MISSING: pytest.skip(f"{', '.join(MISSING)} is not installed, so there is no kernel to test with.", allow_module_level=True)

import psutil
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).parents[1]
HTML, VIEW = "text/html", "application/vnd.jupyter.widget-view+json"
NEW_PAGE = """
from alphazero_nb.ui.widgets import page_widgets
page_widgets.working.clear(), page_widgets.asked.clear()
"""


def screen(text):
    "The lines that a person sees: what follows a carriage return is written over the line."
    lines = []
    for line in text.split("\n"):
        seen = ""
        for part in line.split("\r"): seen = part + seen[len(part):]
        lines.append(seen.rstrip())
    return [line for line in lines if line]


class Cell:
    "A running or finished cell, and what it printed."
    def __init__(self, code):
        self.code, self.out, self.err, self.error, self.trace = code, "", "", "", ""
        self.status, self.begun, self.seconds = "running", time.monotonic(), None
        self.shown, self.carried = [], []   # (kind, place, what) of outputs that are no text; states of widgets

    def hear(self, kind, content):
        if kind in ("display_data", "update_display_data"):
            self.shown.append((kind, content["transient"].get("display_id"), content["data"]))
        elif kind in ("comm_open", "comm_msg"): self.carried.append(content["data"].get("state", {}))
        elif kind == "stream" and content["name"] == "stdout": self.out += content["text"]
        elif kind == "stream": self.err += content["text"]
        elif kind == "error":
            self.error = f"{content['ename']}: {content['evalue']}"
            self.trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))

    def end(self):
        self.status, self.seconds = "error" if self.error else "ok", time.monotonic() - self.begun

    def __str__(self):
        took = "" if self.seconds is None else f" after {self.seconds:.2f} s"
        parts = dict(stdout=self.out, stderr=self.err, error=self.trace)
        told = "".join(f"{name}: {text}\n" for name, text in parts.items() if text)
        return f"--- {self.code}\n--- {self.status}{took}\n{told}"


class Kernel:
    "A kernel of this very Python, whatever kernels the machine has installed."
    def __init__(self, folder):
        spec, self.seen = folder / "kernels/here/kernel.json", set()
        spec.parent.mkdir(parents=True)
        spec.write_text(json.dumps(dict(argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                                        display_name="here", language="python")))
        specs = KernelSpecManager(kernel_dirs=[str(folder / "kernels")])
        self.manager = KernelManager(kernel_name="here", kernel_spec_manager=specs)
        self.log, self.client, self.cell = open(folder / "log.txt", "w+"), None, None
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        env = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}  # It changes the kernel's streams
        try:
            self.manager.start_kernel(stdout=self.log, stderr=self.log, cwd=str(folder),
                                      env=dict(env, PYTHONPATH=os.pathsep.join(filter(None, paths))))
            self.connect()
        except BaseException:
            self.close()
            raise

    def connect(self):
        if self.client is not None: self.client.stop_channels()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=900)
        self.pid = int(self.run("import os; print(os.getpid())").out)
        self.seen.add(self.pid)

    def send(self, code):
        "Starts a cell and does not wait for it."
        self.cell = Cell(code)
        self.cell.id = self.client.execute(code)
        return self.cell

    def read(self, seconds=600, until=None):
        "Hears the running cell until it is over or has printed this text; what came if neither happens in time."
        cell, end = self.cell, time.monotonic() + seconds
        while cell.seconds is None and (until is None or until not in cell.out):
            try: message = self.client.get_iopub_msg(timeout=max(.01, end - time.monotonic()))
            except queue.Empty: raise AssertionError(f"not over after {seconds} s:\n{cell}\n{self.logged()}") from None
            cell.hear(message["msg_type"], message["content"])
            mine = message["parent_header"].get("msg_id") == cell.id
            if mine and message["msg_type"] == "status" and message["content"]["execution_state"] == "idle": cell.end()
        if cell.seconds is not None: print(cell)
        return cell

    def run(self, code, seconds=600):
        "Runs a cell that must succeed."
        self.send(code)
        cell = self.read(seconds)
        assert cell.status == "ok", f"{cell}\n{self.logged()}"
        return cell

    def interrupt(self):
        "What the stop button does: it interrupts the whole process group. The cell, once it is over."
        self.manager.interrupt_kernel()
        return self.read(600)

    def stop(self, code, when="self-play"):
        "Runs a cell, presses stop when it has printed this, and gives the cell."
        self.send(code)
        self.read(until=when)
        assert self.cell.seconds is None, f"it was over before it could be stopped:\n{self.cell}"
        return self.interrupt()

    def workers(self):
        "The processes that live below the kernel; Python's resource tracker is none of ours."
        try: below = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess: return []
        found = [process.pid for process in below if alive(process.pid) and "resource_tracker" not in command(process)]
        self.seen |= set(found)
        return found

    def logged(self):
        self.log.flush()
        return "--- log\n" + Path(self.log.name).read_text()

    def restart(self, now=True):
        self.manager.restart_kernel(now=now)
        self.connect()

    def close(self):
        "Ends the kernel and whatever is left of all its processes."
        if self.client is not None: self.client.stop_channels()
        if self.manager.has_kernel: self.manager.shutdown_kernel(now=True)
        for pid in self.seen:
            if alive(pid): os.kill(pid, signal.SIGKILL)
        self.log.close()


def command(process):
    try: return " ".join(process.cmdline())
    except psutil.Error: return ""


def alive(pid):
    try: return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess: return False


def gone(pids, seconds=600):
    "Whether all these processes end."
    end = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < end: time.sleep(.02)
    return not left


COMMS = """import json
print(json.dumps([(comm.comm_id, comm.target_name) for comm in get_ipython().kernel.comm_manager.comms.values()]))"""


def say(kernel, kind, content, metadata=None):
    "Sends a message as the page does; the kernel reads it before the next cell."
    kernel.client.shell_channel.send(kernel.client.session.msg(kind, content, metadata=metadata))


def answer(kernel, accept=True):
    "Does what a page does with the comms of the kernel: it closes those that nothing listens to."
    for comm_id, target in json.loads(kernel.run(COMMS).out):
        if target != "jupyter.widget" or not accept: say(kernel, "comm_close", dict(comm_id=comm_id, data={}))
