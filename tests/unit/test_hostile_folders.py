"Run folders that were damaged or made by a stranger: a clear sentence or a good start, and nothing outside is touched."
import io
import json
import hashlib
import os
import re
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from alphazero_nb.core.registry import get_game
from alphazero_nb.network.evaluator import EvaluatorError
from linear_run import SETTINGS, linear_run

QUICK = replace(SETTINGS, games_per_iteration=2, batch_size=8, replay_ratio=1, evaluate_every=0)
CLEAR = re.compile(r"[^\n]{20,600}[.]")


GAME = get_game("tictactoe")


def small_run(folder): return linear_run(folder, settings=QUICK, game=GAME, games=2, max_batch=2, simulations=2)


# What is touched --------------------------------------------------------------------------------

class Watch:
    "The paths that this process changes, as Python's own audit reports them."
    CHANGES = {"os.remove": (0,), "os.rename": (0, 1), "os.mkdir": (0,), "os.rmdir": (0,), "os.truncate": (0,), "os.link": (1,),
               "os.symlink": (1,), "shutil.rmtree": (0,), "os.chmod": (0,)}

    def __init__(self): self.paths = None

    def __call__(self, event, arguments):
        if self.paths is None: return
        if event == "open":
            path, mode, flags = arguments
            writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR))
            if writes and not isinstance(path, int): self.paths.append(path)
        elif event in self.CHANGES: self.paths += [arguments[i] for i in self.CHANGES[event]]

    def outside(self, folder):
        "Changed paths that are not inside `folder`; a path counts where it really lies."
        places = [Path(os.path.realpath(os.fsdecode(path).rpartition("/")[0] or ".")) / os.path.basename(os.fsdecode(path))
                  for path in self.paths if not os.fsdecode(path).startswith("/dev/")]
        return [str(place) for place in places if not place.is_relative_to(folder) and "__pycache__" not in place.parts]


WATCH = Watch()
sys.addaudithook(WATCH)


# How a folder is altered ------------------------------------------------------------------------

HOSTILE = ["../victim.npz", "/etc/passwd", "games/../../victim.npz", "network-000001.npz\x00", "games/000001.npz", "", "NaN", "-1",
           "9" * 400, "config.json", "network-1.npz", "network-٣٣٣٣٣٣.npz", "a" * 5000]
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-3, 70), st.sampled_from([2 ** 53, 2 ** 63, -2 ** 63, 10 ** 30, 1e308, -1e308]),
                   st.floats(), st.sampled_from(HOSTILE), st.just([]), st.just({}), st.just([[[]]]), st.just({"a": {"b": [1, "c"]}}))
DTYPES = st.sampled_from(["int8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64", "complex64", "bool", "<U3", "S2",
                          "datetime64[s]"])


def places(value, path=()):
    "Every place in a JSON value, as a path of keys."
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items: yield from places(inner, (*path, key))


def put(value, path, new):
    "The JSON value with `new` at this place."
    if not path: return new
    value = value.copy()
    value[path[0]] = put(value[path[0]], path[1:], new)
    return value


def alter_json(draw, path):
    text = path.read_text(errors="replace")
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    if not lines: return
    number = draw(st.integers(0, len(lines) - 1))
    try: value = json.loads(lines[number])
    except ValueError: return
    lines[number] = json.dumps(put(value, draw(st.sampled_from(list(places(value)))), draw(VALUES)))
    path.write_text("\n".join(lines) + "\n", errors="replace")


def alter_array(draw, array):
    kind = draw(st.sampled_from(["dtype", "shape", "cut", "longer", "value", "wild", "turned"]))
    with np.errstate(all="ignore"):
        if kind == "dtype":
            try: return array.astype(draw(DTYPES))
            except (TypeError, ValueError): return array[..., None]
        if kind == "shape": return array.reshape(-1) if array.ndim > 1 else array[..., None]
        if kind == "cut": return array[:len(array) // 2] if array.ndim else np.zeros(0, array.dtype)
        if kind == "longer": return np.concatenate([array, array]) if array.ndim else np.stack([array, array])
        if kind == "turned": return array[::-1] if array.ndim else -array
        array = array.copy()
        if array.size:
            wild = [np.nan, np.inf, -1, 1e30, 0, 7] if array.dtype.kind == "f" else [-1, 0, 1, 7, 100]
            new = np.array(draw(st.sampled_from(wild))).astype(array.dtype)
            if kind == "wild": array[...] = new
            else: array.reshape(-1)[draw(st.integers(0, array.size - 1))] = new
        return array


def alter_arrays(draw, path):
    try:
        with np.load(path, allow_pickle=False) as file: arrays = dict(file)
    except Exception: return
    name = draw(st.sampled_from(sorted(arrays)))
    what = draw(st.sampled_from(["alter", "alter", "alter", "drop", "rename", "objects"]))
    array = arrays.pop(name)
    if what == "alter": arrays[name] = alter_array(draw, array)
    elif what == "rename": arrays[draw(st.sampled_from(["../x", "steps", "moments/99/step", "states", "ü"]))] = array
    elif what == "objects": arrays[name] = np.array([{"a": 1}], object)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    path.write_bytes(buffer.getvalue())


def alter_bytes(draw, path):
    content = bytearray(path.read_bytes())
    kind = draw(st.sampled_from(["flip", "cut", "empty", "tail", "gone"]))
    if kind == "gone": return path.unlink()
    if kind == "flip" and content:
        for place in draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)): content[place] ^= 1 << draw(st.integers(0, 7))
    elif kind == "cut": content = content[:draw(st.integers(0, max(0, len(content) - 1)))]
    elif kind == "empty": content = b""
    else: content += draw(st.binary(min_size=1, max_size=50))
    path.write_bytes(content)


def alter_place(draw, path, folder):
    "Something else stands where the file was."
    kind = draw(st.sampled_from(["swap", "move", "link", "folder", "link to a folder"]))
    others = [other for other in files(folder) if other != path]
    if kind == "swap" and others:
        other = draw(st.sampled_from(others))
        content, path_content = other.read_bytes(), path.read_bytes()
        path.write_bytes(content), other.write_bytes(path_content)
    elif kind == "move":
        name = draw(st.sampled_from(["network-000007.npz", "learner-000099.npz", "games/000050.npz", "notes.txt", "network-2.npz"]))
        path.rename(folder / name)
    elif kind == "link": path.unlink(), path.symlink_to(folder.parent / "victim.npz")
    elif kind == "link to a folder": path.unlink(), path.symlink_to(folder.parent)
    elif kind == "folder": path.unlink(), path.mkdir()


def files(folder): return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]


def alter(draw, folder):
    there = files(folder)
    if not there: return
    path = draw(st.sampled_from(there))
    kinds = ["bytes", "place"] + ["json"] * 3 * (path.suffix in (".json", ".jsonl")) + ["arrays"] * 3 * (path.suffix == ".npz")
    kind = draw(st.sampled_from(kinds))
    if kind == "json": alter_json(draw, path)
    elif kind == "arrays": alter_arrays(draw, path)
    elif kind == "bytes": alter_bytes(draw, path)
    else: alter_place(draw, path, folder)


def mend_hashes(folder):
    "What a stranger does who knows the format: every hash fits what is there now."
    file = lambda path: path.is_file() and not path.is_symlink()  # what is written through a link lies outside
    sha = lambda name: hashlib.sha256((folder / name).read_bytes()).hexdigest() if file(folder / name) else "0" * 64
    log = folder / "iterations.jsonl"
    if file(log):
        lines = []
        for line in log.read_bytes().splitlines():
            try: row = json.loads(line)
            except ValueError: row = None
            if isinstance(row, dict) and isinstance(row.get("iteration"), int) and 0 < row["iteration"] < 10 ** 6:
                line = json.dumps(dict(row, sha256=sha(f"games/{row['iteration']:06}.npz"))).encode()
            lines.append(line + b"\n")
        log.write_bytes(b"".join(lines))
    for name in ("manifest.json", "previous.json"):
        if not file(folder / name): continue
        try: saved = json.loads((folder / name).read_text())
        except ValueError: continue
        if not isinstance(saved, dict): continue
        if isinstance(saved.get("networks"), dict):
            saved["networks"] = {key: sha(f"network-{int(key):06}.npz") if re.fullmatch("[0-9]{1,9}", key) else value
                                for key, value in saved["networks"].items()}
            if isinstance(saved.get("iteration"), int) and 0 <= saved["iteration"] < 10 ** 9:
                saved["learner_sha256"] = sha(f"learner-{saved['iteration']:06}.npz")
            content = log.read_bytes() if file(log) else b""
            if name == "manifest.json": saved["log_bytes"] = len(content)
            bytes_ = saved.get("log_bytes")
            if isinstance(bytes_, int) and 0 <= bytes_ < 10 ** 9: saved["log_sha256"] = hashlib.sha256(content[:bytes_]).hexdigest()
        (folder / name).write_text(json.dumps(saved))


# The law ----------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def base(tmp_path_factory):
    "A folder with games of an iteration that was stopped."
    root = tmp_path_factory.mktemp("base") / "run"

    def stop(event):
        if type(event).__name__ == "StepsTaken" and run.iteration == 3: raise KeyboardInterrupt
    run = linear_run(root, [stop], replace(SETTINGS, evaluate_every=2, games_per_iteration=8))
    run.fit(iterations=4)
    assert (root / "games/unfinished.npz").exists() and len(run.matches) == 1
    (root / "layout.json").write_text('{"machine": {}, "layout": {}}')
    return root


ENDS = Counter()   # Of altered folders


def check_folder(draw, base, root):
    "Alter a copy of a run folder, and hold its start against the law."
    shutil.rmtree(root, ignore_errors=True)
    folder, victim = root / "run", root / "victim.npz"
    shutil.copytree(base, folder)
    victim.write_bytes(b"precious")
    for _ in range(draw(st.integers(1, 3))): alter(draw, folder)
    if draw(st.booleans()): mend_hashes(folder)
    WATCH.paths = []
    try:
        run = small_run(folder)
        before = run.iteration
        run.fit(iterations=1)
        assert run.iteration == before + 1
    except (ValueError, OSError, EvaluatorError) as error:
        ENDS["refused"] += 1
        assert CLEAR.fullmatch(str(error)), repr(str(error))
    except RuntimeError as error: assert "training has diverged" in str(error), repr(error)
    else:
        ENDS["started"] += 1
        assert small_run(folder).iteration == before + 1, "a start that went well is a run that goes on"
    finally: changed, WATCH.paths = WATCH.outside(folder), None
    assert not changed and victim.read_bytes() == b"precious" and {path.name for path in root.iterdir()} == {"run", "victim.npz"}


def hold(base, root, examples):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    @settings(max_examples=examples, derandomize=examples <= 50, deadline=None,   # The long check draws new ones
              database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck), report_multiple_bugs=False)
    @given(st.data())
    def law(data): check_folder(data.draw, base, root)
    ENDS.clear()
    try: law()
    finally: torch.set_num_threads(threads)
    assert min(ENDS["refused"], ENDS["started"]) > 0, f"both ends are met: {ENDS}"


def test_an_altered_folder_gives_a_sentence_or_a_start(base, tmp_path): hold(base, tmp_path / "outer", 50)


@pytest.mark.slow
def test_twenty_thousand_altered_folders(base, tmp_path): hold(base, tmp_path / "outer", 20_000)
