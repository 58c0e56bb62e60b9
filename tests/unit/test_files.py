"Files of arrays and JSON from strangers, files that other programs hold open, and networks that cannot be saved."
import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from alphazero_nb.core.registry import get_game
from alphazero_nb.network import checkpoint
from alphazero_nb.network.checkpoint import check_network, parse_json, patiently, read_arrays, read_json, write_arrays, write_json
from alphazero_nb.training.run_folder import RunFolder
from alphazero_nb.training.trainer import Trainer
from linear_run import SETTINGS, Linear


# Arrays ------------------------------------------------------------------------------------------

def archive(path, header, content, compression=zipfile.ZIP_DEFLATED, name="x.npy"):
    "An .npz file of one array, with this text as its header."
    text = (header + "\n").encode()
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr(name, b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content)
    return path


def header(kind="<f4", order=False, shape="(4,)"): return f"{{'descr': {kind!r}, 'fortran_order': {order}, 'shape': {shape}}}"


def test_an_archive_that_unpacks_to_much_more_is_refused_before_it_takes_memory(tmp_path):
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros(300 << 20, np.uint8))
    size = (tmp_path / "bomb.npz").stat().st_size
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"would take 314,572,\d+ bytes of memory, and at most 33,554,432 are possible\.$"):
            read_arrays(tmp_path / "bomb.npz")
        peak = tracemalloc.get_traced_memory()[1]
    finally: tracemalloc.stop()
    assert size < 400_000 and peak < 4 << 20


@pytest.mark.parametrize("text", [
    header(shape=f"({1 << 40},)"), header(shape="(-4,)"), header(shape="(2, -2)"), header(shape="(0, 4)"), header("|O"),
    header("|V16", shape="()"), header("<M8[s]", shape="(2,)"), header("|S0", shape=f"({1 << 40},)"), header(shape="(3,)"),
    "(" * 3000, "7", "{}"])
def test_a_header_that_does_not_fit_its_content_is_one_sentence(tmp_path, text):
    path = archive(tmp_path / "a.npz", text, bytes(16))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"a\.npz is damaged: it is not a readable .npz file \(\w+\)\.$"): read_arrays(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally: tracemalloc.stop()


def test_an_archive_with_another_compression_is_refused(tmp_path):
    "The header of LZMA may ask for a dictionary of four gigabytes."
    with pytest.raises(ValueError, match="not a readable"):
        read_arrays(archive(tmp_path / "a.npz", header(), bytes(16), zipfile.ZIP_LZMA))


def test_arrays_come_back_as_they_were_and_in_order_of_rows(tmp_path):
    arrays = dict(a=np.asfortranarray(np.arange(12.).reshape(3, 4)), b=np.array(7), c=np.array("word"), d=np.zeros((0, 3), np.int8))
    arrays |= dict(file=np.ones(2), allow_pickle=np.zeros(3))   # As numpy calls its own arguments
    for compress in (False, True):
        write_arrays(tmp_path / "a.npz", arrays, compress)
        found = read_arrays(tmp_path / "a.npz")
        assert found.keys() == arrays.keys() and all(array.flags.c_contiguous for array in found.values())
        for name, array in arrays.items(): assert found[name].dtype == array.dtype and np.array_equal(found[name], array)


def test_arrays_that_repeat_are_written_so_that_they_can_be_read(tmp_path):
    write_arrays(tmp_path / "a.npz", dict(x=np.zeros(40 << 20, np.uint8)), compress=True)
    assert read_arrays(tmp_path / "a.npz")["x"].shape == (40 << 20,)


def test_an_array_of_objects_is_not_written(tmp_path):
    with pytest.raises(TypeError, match="x holds Python objects"): write_arrays(tmp_path / "a.npz", dict(x=np.array({"a": 1})))
    assert not list(tmp_path.iterdir())


# JSON --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("text", [b"[" * 100_000 + b"]" * 100_000, b"[" * 500 + b"]" * 500, b'{"a":' * 300 + b"1" + b"}" * 300,
                                  rb'"\ud800"', b'"\xed\xa0\x80"', b"1" * 10_000, b"\xff\xfe[\x00]\x00", b"nope"])
def test_text_that_cannot_be_handled_later_is_not_json(tmp_path, text):
    with pytest.raises(ValueError): parse_json(text)
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(ValueError, match=r"config\.json is damaged: it is not JSON\.$"): read_json(tmp_path / "config.json", "run")


@pytest.mark.parametrize("value", ["😀", ["[" * 500, "国际象棋"], {"a": [{}] * 300}, [[[[1.5, None, True]]]]])
def test_usual_json_is_read(value):
    assert parse_json(json.dumps(value).encode()) == parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


def test_a_huge_file_is_not_json(tmp_path):
    with open(tmp_path / "config.json", "wb") as file: file.truncate(1 << 40)   # No bytes on the disk
    with pytest.raises(ValueError, match="is damaged: it has 1,099,511,627,776 bytes"): read_json(tmp_path / "config.json", "run")


# Files that another program holds open ------------------------------------------------------------

def refusing(call, times):
    "A call that the system forbids the first few times."
    def attempt(*arguments, **options):
        attempt.count += 1
        if attempt.count <= times: raise PermissionError(13, "The process cannot access the file")
        return call(*arguments, **options)
    attempt.count = 0
    return attempt


def test_a_file_that_is_held_open_is_tried_again():
    waits, call = [], refusing(lambda: "done", 4)
    assert patiently(call, waits.append) == "done" and waits == [.05, .1, .2, .4]
    waits.clear()
    with pytest.raises(PermissionError): patiently(refusing(None, 99), waits.append)
    assert 3 < sum(waits) < 4


@pytest.mark.parametrize("times", [3, 99])
def test_a_manifest_that_is_held_open_is_replaced_or_kept(tmp_path, monkeypatch, times):
    write_json(tmp_path / "a.json", 1)
    monkeypatch.setattr(checkpoint, "WAITS_S", (0,) * 6)
    monkeypatch.setattr(checkpoint.os, "replace", refusing(checkpoint.os.replace, times))
    if times == 3: write_json(tmp_path / "a.json", 2)
    else:
        with pytest.raises(OSError, match=r"a\.json cannot be written: The process cannot access the file\.$"):
            write_json(tmp_path / "a.json", 2)
    assert json.loads((tmp_path / "a.json").read_text()) == (2 if times == 3 else 1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_hidden_files_do_not_make_a_folder_strange(tmp_path):
    (tmp_path / ".DS_Store").write_bytes(b"x")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / "games").mkdir()
    (tmp_path / "games/.DS_Store").write_bytes(b"x")
    config = dict(game="tictactoe", preset="tiny", seed=0)
    RunFolder(tmp_path, config)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"holds other files \('thesis\.tex'\) but no run"): RunFolder(tmp_path, config)


# Networks of one's own ----------------------------------------------------------------------------

class Extra(Linear):
    "A network with an extra state."
    def __init__(self, state):
        super().__init__()
        self.state = state

    def get_extra_state(self): return self.state
    def set_extra_state(self, state): self.state = state


class Buffer(Linear):
    def __init__(self, **buffers):
        super().__init__()
        for name, value in buffers.items(): self.register_buffer(name, value)


class Answer(Linear):
    "A network that changes its answer."
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, planes): return self.change(*super().forward(planes))


class Forgets(Linear):
    def load_state_dict(self, *arguments):
        super().load_state_dict(*arguments)
        with torch.no_grad(): self.policy.weight += 1


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(9)


@pytest.mark.parametrize("make, words", [
    (lambda: Extra(dict(step=1)), "saves _extra_state as dict; a run folder holds tensors only"),
    (lambda: Extra("text"), "saves _extra_state as str"),
    (lambda: Extra(dict(a=torch.zeros(2))), "saves _extra_state as dict"),
    (lambda: Linear().half(), "policy.weight in float16; networks train in float32, so call network.float()"),
    (lambda: Linear().bfloat16(), "policy.weight in bfloat16"), (lambda: Linear().double(), "policy.weight in float64"),
    (lambda: Buffer(scale=torch.zeros(2, dtype=torch.bfloat16)), "scale in bfloat16"),
    (lambda: Buffer(scale=torch.zeros(2, dtype=torch.complex64)), "scale in complex64"),
    (Lazy, "has not set layer.weight yet"),
    (Forgets, "is not the same after saving and loading: policy.weight differs"),
    (lambda: Answer(lambda logits, values: logits), "it returned shapes"),
    (lambda: Answer(lambda logits, values: (logits[:, :7], values)), r"it returned shapes \(2, 7\), \(2, 2\), not \(2, 9\), \(2, 2\)"),
    (lambda: Answer(lambda logits, values: (logits * torch.nan, values)), "it returned NaN or infinity"),
    (lambda: Answer(lambda logits, values: 1 / 0), "division by zero"),
])
def test_a_network_that_could_not_be_trained_or_loaded_is_refused_before_the_first_game(tmp_path, make, words):
    with pytest.raises(ValueError, match=words) as caught:
        Trainer("tictactoe", network=make(), folder=tmp_path / "run", device="cpu", train_settings=SETTINGS, listeners=())
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".") and not (tmp_path / "run").exists()


@pytest.mark.parametrize("make", [Linear, lambda: Extra(torch.arange(3)), lambda: Buffer(count=torch.tensor(3), seen=torch.tensor([True]))])
def test_a_network_that_can_be_saved_is_accepted_and_stays_as_it_is(make):
    network = make()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    check_network(get_game("tictactoe"), network)
    assert network.training and all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
