"Where a notebook is shown: each place is known by what it sets, whatever else its image contains."
import errno
import os
import sys
import types

import pytest

import colab
import alphazero_nb.core.device as page
import alphazero_nb.ui.play as play_page
from alphazero_nb.core.device import HOSTS, check_device, find_host, probe_device
from alphazero_nb.core.registry import get_game
from alphazero_nb.training import run_folder as run_folder_page
from alphazero_nb.training.run_folder import download, run_folder
from alphazero_nb.ui.match import Match

KNOWN = "COLAB_NOTEBOOK_ID", "COLAB_RELEASE_TAG", "COLAB_GPU", "KAGGLE_KERNEL_RUN_TYPE", "VSCODE_PID"


class Shell:
    "As much of IPython as is asked for."
    kernel = object()

    def __init__(self, **names): self.user_ns = names


def simulate(monkeypatch, environment=(), modules=(), names=None):
    "A process with these variables and modules, and with a kernel whose notebook has these names, if there are any."
    for name in KNOWN: monkeypatch.delenv(name, raising=False)
    for name in environment: monkeypatch.setenv(name, "1")
    monkeypatch.delitem(sys.modules, "google.colab", raising=False)
    for name in modules: monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    shell = None if names is None else Shell(**dict.fromkeys(names, "x.ipynb"))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))


PLACES = colab.PLACES | {"terminal": dict()}


@pytest.mark.parametrize("name", PLACES)
def test_each_place_is_known(name, monkeypatch):
    simulate(monkeypatch, **PLACES[name])
    assert find_host() is HOSTS[name] and set(PLACES) == set(HOSTS)


def test_an_installed_module_of_colab_is_not_colab(monkeypatch):
    "Anybody can install it; without an import, nothing is known."
    simulate(monkeypatch, names=[])
    assert find_host().name == "Jupyter" and not find_host().drive


@pytest.mark.parametrize("name, words", [("colab", "Change runtime type"), ("colab_vscode", "a Colab server with a GPU"),
                                         ("kaggle", "Accelerator"), ("vscode", "nvidia-smi"), ("terminal", "nvidia-smi")])
def test_the_advice_for_a_gpu_is_that_of_the_place(name, words, monkeypatch, capsys):
    simulate(monkeypatch, **PLACES[name])
    monkeypatch.setattr(page, "list_devices", lambda: [page.Device("cpu", "CPU", "float32", "float32", True, False)])
    monkeypatch.setattr(page, "probe_device", lambda device: dict(works=True, milliseconds=1., error=""))
    check_device()
    assert words in capsys.readouterr().out


def test_a_device_that_nobody_asked_for_is_not_touched(monkeypatch):
    def broken(index): raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
    monkeypatch.setattr(page, "device_names", lambda: ["cuda:0", "cpu"])
    monkeypatch.setattr(page, "_cuda", broken)
    assert page.get_device("cpu").name == "cpu"
    for name in ("auto", "cuda", "cuda:0"):
        with pytest.raises(RuntimeError, match="forked"): page.get_device(name)


@pytest.mark.parametrize("name", ["kaggle", "vscode", "jupyter", "terminal"])
def test_without_drive_a_run_stays_here_and_says_so(name, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    simulate(monkeypatch, **PLACES[name])
    assert run_folder("x", drive=True).parts == ("runs", "x")
    assert "does not run in Colab" in capsys.readouterr().out


@pytest.mark.parametrize("number, again", [(None, False), (errno.ENOENT, False), (errno.ENOTCONN, True), (errno.EIO, True)])
def test_a_drive_that_no_longer_answers_is_mounted_again(number, again, monkeypatch, tmp_path, capsys):
    "Run all in the same session: Colab mounts over a dead mount only if it is told to."
    mounted = []

    def listdir(folder, real=os.listdir):
        if number and folder == str(tmp_path): raise OSError(number, os.strerror(number))
        return real(folder)
    simulate(monkeypatch, **PLACES["colab"])
    mount = lambda folder, force_remount=False: mounted.append((folder, force_remount))
    sys.modules["google.colab"].drive = types.SimpleNamespace(mount=mount)
    monkeypatch.setattr(run_folder_page, "DRIVE", str(tmp_path))
    monkeypatch.setattr(os, "listdir", listdir)
    assert run_folder("x", drive=True) == tmp_path / "MyDrive/alphazero_nb/x"
    assert mounted == [(str(tmp_path), again)] and "cannot be used" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["colab_vscode", "kaggle", "terminal"])
def test_a_script_on_such_a_machine_has_its_board_at_once(name, monkeypatch):
    "It has no page that could be asked, whatever the machine's image says."
    pytest.importorskip("ipywidgets")
    simulate(monkeypatch, **dict(PLACES[name], names=None))
    made = []
    monkeypatch.setattr(play_page.PlayBoard, "make_widgets", lambda board: made.append(board))
    monkeypatch.setattr(play_page.PlayBoard, "do", lambda *_, **__: None)
    play_page.PlayBoard(Match(get_game("tictactoe"), None, 0))
    assert len(made) == 1


@pytest.mark.parametrize("name", PLACES)
def test_a_file_is_offered_as_the_place_offers_files(name, monkeypatch, tmp_path, capsys):
    simulate(monkeypatch, **PLACES[name])
    saved, file = [], tmp_path / "game.json"
    file.write_text("{}")
    if name == "colab": sys.modules["google.colab"].files = types.SimpleNamespace(download=saved.append)
    assert download(file) == file and saved == ([str(file)] if name == "colab" else [])
    said = capsys.readouterr().out
    assert said.startswith(f"{file.as_posix()}, 0.0 MB.") and said.count("\n") == 1
    assert HOSTS[name].files in said or name == "colab" and "Your browser saves it." in said
    with pytest.raises(ValueError, match="there is no file"): download(tmp_path / "other.json")


def test_a_device_whose_last_result_is_nan_does_not_work(monkeypatch):
    import torch
    product, results = torch.Tensor.__matmul__, []

    def multiply(a, b):
        results.append(product(a, b))
        return results[-1] * float("nan") if len(results) == 2 else results[-1]   # The first is that of the CPU
    monkeypatch.setattr(torch.Tensor, "__matmul__", multiply)
    found = probe_device(page.Device("cpu", "CPU", "float32", "float32", True, False))
    assert len(results) == 2 and not found["works"] and found["error"] == "results differ from the CPU by nan"
