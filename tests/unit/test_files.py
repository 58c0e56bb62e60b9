"Files that other programs hold open, that claim too much, or that lie in a folder by themselves."
import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from alphazero_nb.network import checkpoint
from alphazero_nb.network.checkpoint import patiently, read_arrays, write_arrays, write_whole
from alphazero_nb.training.run_folder import LayoutFile, RunFolder, save_layout_file
from alphazero_nb.selfplay.layout import Layout

CONFIG = dict(game="tictactoe", preset="tiny", seed=0)


class HeldOpen:
    "Refuses so many times, as Windows does while another program has the file open."
    def __init__(self, times): self.times, self.calls = times, 0

    def __call__(self):
        self.calls += 1
        if self.calls <= self.times: raise PermissionError(13, "The file is in use by another program")
        return "done"


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_file_held_open_is_tried_again(times):
    waits, change = [], HeldOpen(times)
    assert patiently(change, sleep=waits.append) == "done"
    assert len(waits) == times and sum(checkpoint.WAITS_S) > 2, "some seconds in all"


def test_a_file_that_stays_open_is_an_error_in_the_end():
    waits, change = [], HeldOpen(100)
    with pytest.raises(PermissionError): patiently(change, sleep=waits.append)
    assert len(waits) == len(checkpoint.WAITS_S)


@pytest.mark.parametrize("times", [0, 3, 100])
def test_a_save_on_windows_waits_for_the_other_program(tmp_path, monkeypatch, times):
    replace, held = checkpoint.os.replace, HeldOpen(times)
    monkeypatch.setattr(checkpoint, "WAITS_S", (0.0,) * 5)
    monkeypatch.setattr(checkpoint.os, "replace", lambda *paths: (held(), replace(*paths)))
    path = tmp_path / "config.json"
    path.write_bytes(b"old")
    if times <= 5: write_whole(path, b"new")
    else:
        with pytest.raises(OSError, match="config.json cannot be written: The file is in use by another program."):
            write_whole(path, b"new")
    assert path.read_bytes() == (b"new" if times <= 5 else b"old") and len(list(tmp_path.iterdir())) == 1


def header(shape, descr="'|i1'"):
    "An .npy file that claims this shape and holds no data."
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def packed(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items(): archive.writestr(name, content)
    return file.getvalue()


BOMBS = dict(
    zeros=packed({"x.npy": header((300_000_000,)) + bytes(300_000_000)}), claim=packed({"x.npy": header((10**15,))}),
    negative=packed({"x.npy": header((-1, 4))}), objects=packed({"x.npy": header((2,), "'|O'")}),
    structured=packed({"x.npy": header((10**9,), "[('a', '<f8', (10**3,))]".replace("10**3", "1000"))}),
    no_array=packed({"x.npy": b"no array"}), nothing=b"")


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_that_claims_much_is_refused_by_its_headers(bomb, tmp_path):
    (tmp_path / "a.npz").write_bytes(BOMBS[bomb])
    with pytest.raises(ValueError, match="is damaged"): read_arrays(tmp_path / "a.npz")


PEAK = """import resource, sys
from alphazero_nb.network.checkpoint import read_arrays
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try: read_arrays(sys.argv[1])
except ValueError as error: print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts kilobytes on Linux")
def test_such_a_file_takes_no_memory(tmp_path):
    (tmp_path / "a.npz").write_bytes(BOMBS["zeros"])
    assert len(BOMBS["zeros"]) < 400_000
    out = subprocess.run([sys.executable, "-c", PEAK, tmp_path / "a.npz"], capture_output=True, text=True, check=True).stdout
    words, megabytes = out.strip().split("\n")
    assert "it would take 300,000," in words and int(megabytes) < 20


def test_files_of_the_package_are_far_from_the_limit(tmp_path):
    rows = np.zeros((4096, 42), np.int16)   # As regular as positions can be, but for their number
    rows[:, 0] = np.arange(4096)
    write_arrays(tmp_path / "a.npz", dict(states=rows), compress=True)
    assert np.array_equal(read_arrays(tmp_path / "a.npz")["states"], rows)


@pytest.mark.parametrize("name", [".DS_Store", ".ipynb_checkpoints/", "games/.DS_Store", ".git/"])
def test_a_hidden_file_does_not_occupy_a_new_folder(name, tmp_path):
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if name.endswith("/") else path.write_bytes(b"x")
    with RunFolder(tmp_path / "run", CONFIG).alone(): pass
    assert path.exists() and (tmp_path / "run/config.json").exists()


def test_another_file_is_named(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="holds other files but no run, first 'thesis.tex'"): RunFolder(tmp_path, CONFIG)


def test_a_layout_file_starts_no_cluster(tmp_path):
    path = tmp_path / "layout.json"
    save_layout_file(path, [], Layout("threads", ("cpu",), 1, 32, 16, None))
    assert LayoutFile(tmp_path).choose("auto", False, 10)[0].kind == "threads"
    saved = json.loads(path.read_text())
    path.write_text(json.dumps(dict(saved, layout=dict(saved["layout"], kind="ray"))))
    found, note = LayoutFile(tmp_path).choose("auto", False, 10)
    assert found == "auto" and "is measured again" in note
