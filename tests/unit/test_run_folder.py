"A run folder can be stopped, killed, damaged or sent by a stranger: it goes on with all it had, or says why not."
import _thread
import fcntl
import hashlib
import json
import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import alphazero_nb.training.run_folder as folders
import alphazero_nb.training.trainer as train
from alphazero_nb.core.device import Device
from alphazero_nb.network.saved_run import read_saved
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.levels import level_on_path, store_levels
from alphazero_nb.selfplay.layout import Layout
from alphazero_nb.ui.report import report
from linear_run import SETTINGS, Linear, linear_run

QUIET = replace(SETTINGS, evaluate_every=0)


pytestmark = pytest.mark.usefixtures("one_thread_inside")


def sha256(path): return hashlib.sha256(Path(path).read_bytes()).hexdigest()
def files(folder): return {path.relative_to(folder).as_posix(): sha256(path) for path in folder.rglob("*") if path.is_file()}
def weights(run): return {name: tensor.numpy().copy() for name, tensor in run.learner.average.module.state_dict().items()}
def equal(a, b): return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def stop_at(moment, iteration):
    "A listener that interrupts the run at the first event of this kind after so many saved iterations."
    def stop(event):
        if type(event).__name__ == moment and stop.run.iteration == iteration: raise KeyboardInterrupt
    return stop


# Interrupts --------------------------------------------------------------------------------------

def test_a_second_interrupt_while_the_state_is_loaded_again_loses_nothing(tmp_path, monkeypatch, ctrl_c):
    stop, real, calls = stop_at("StepsTaken", 2), train.restore_learner, []
    run = stop.run = linear_run(tmp_path / "run", [stop], QUIET)
    whole = linear_run(tmp_path / "whole", settings=QUIET).fit(iterations=4)

    def interrupted(learner, arrays):
        calls.append(1)
        if len(calls) == 1: _thread.interrupt_main()   # What Ctrl-C does
        real(learner, arrays)
    monkeypatch.setattr(train, "restore_learner", interrupted)
    try: run.fit(iterations=4)
    except KeyboardInterrupt: pass
    assert calls, "the state was loaded again"
    before = sha256(tmp_path / "run/games/000001.npz")
    run.events.listeners.clear()
    run.fit(iterations=2)
    assert run.iteration == 4 and sha256(tmp_path / "run/games/000001.npz") == before
    assert equal(weights(run), weights(whole))


def test_a_rewind_that_fails_does_not_begin_the_run_anew(tmp_path):
    stop = stop_at("StepsTaken", 2)
    run = stop.run = linear_run(tmp_path / "run", [stop], QUIET)
    run.fit(iterations=2)
    (tmp_path / "run/games/000001.npz").rename(tmp_path / "away.npz")
    before = files(tmp_path / "run/games")
    try: run.fit(iterations=1)   # It is stopped, and one of its games is missing when it goes back
    except ValueError: pass
    run.events.listeners.clear()
    try: run.fit(iterations=1)
    except ValueError: pass
    after = files(tmp_path / "run/games")
    assert "000001.npz" not in after and all(after[name] == content for name, content in before.items())
    assert linear_run(tmp_path / "run", settings=QUIET).iteration >= 2


def test_an_interrupt_in_self_play_reads_nothing_again(tmp_path, monkeypatch):
    stop = stop_at("GameFinished", 2)
    run = stop.run = linear_run(tmp_path / "run", [stop], QUIET)
    read = []
    monkeypatch.setattr(train, "restore_learner", lambda *_: read.append(1))
    run.fit(iterations=3)
    assert run.iteration == 2 and not read and (tmp_path / "run/games/unfinished.npz").exists()


def test_a_state_that_is_not_that_of_the_folder_is_not_saved(tmp_path):
    run = linear_run(tmp_path / "run", settings=QUIET).fit(iterations=2)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    run.fit(iterations=1)
    run.folder.adopt(next(linear_run(tmp_path / "copy", settings=QUIET).folder.checkpoints()))
    before = files(tmp_path / "run")
    with pytest.raises(RuntimeError, match="does not match the state of this run"):
        with run.folder.alone(): run.folder.save(dict(iteration=5), {}, [], {}, {}, 0)
    assert files(tmp_path / "run") == before


def test_games_kept_by_a_start_that_did_not_get_far_stay(tmp_path):
    stop = stop_at("GameFinished", 1)
    run = stop.run = linear_run(tmp_path / "run", [stop], QUIET)
    run.fit(iterations=2)
    before = sha256(tmp_path / "run/games/unfinished.npz")
    again = stop_at("RunStarted", 1)
    early = again.run = linear_run(tmp_path / "run", [again], QUIET)
    early.fit(iterations=1)
    assert sha256(tmp_path / "run/games/unfinished.npz") == before


# Folders of strangers ----------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["games", "events.jsonl", "iterations.jsonl", ".lock", "manifest.json"])
def test_a_link_is_not_written_through(tmp_path, name):
    linear_run(tmp_path / "run", settings=QUIET).fit(iterations=1)
    there, outside = tmp_path / "run" / name, tmp_path / "outside"
    if there.exists(): there.rename(outside)
    else: outside.write_text("")
    before = files(outside) if outside.is_dir() else sha256(outside)
    there.symlink_to(outside)
    with pytest.raises(ValueError, match=f"{name}.* is not a plain"): linear_run(tmp_path / "run", settings=QUIET).fit(iterations=1)
    assert before == (files(outside) if outside.is_dir() else sha256(outside))


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "layout.json", "iterations.jsonl"])
def test_a_pipe_does_not_block(tmp_path, name):
    linear_run(tmp_path / "run", settings=QUIET).fit(iterations=1)
    (tmp_path / "run" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "run" / name)
    with pytest.raises(ValueError, match=f"{name}.* is not a plain"): linear_run(tmp_path / "run", settings=QUIET)


def test_a_huge_manifest_is_a_sentence(tmp_path):
    linear_run(tmp_path / "run", settings=QUIET).fit(iterations=1)
    os.truncate(tmp_path / "run/manifest.json", 1 << 40)   # No bytes on the disk
    with pytest.raises(ValueError, match=r"manifest\.json is damaged: it has 1,099,511,627,776 bytes"): linear_run(tmp_path / "run", settings=QUIET)


def test_after_a_number_beyond_floats_the_run_goes_on_from_the_checkpoint_before(tmp_path):
    linear_run(tmp_path / "run", settings=QUIET).fit(iterations=2)
    path = tmp_path / "run/manifest.json"
    path.write_text(json.dumps(dict(json.loads(path.read_text()), seconds=10**400)))
    with pytest.raises(ValueError, match="seconds is not a number"): read_saved(tmp_path / "run")
    assert linear_run(tmp_path / "run", settings=QUIET).iteration == 1


# The lock ----------------------------------------------------------------------------------------

def test_a_trainer_that_is_refused_changes_nothing(tmp_path):
    linear_run(tmp_path / "run", settings=QUIET).fit(iterations=1)
    half = tmp_path / "run/games/.000002.npz.12345.part"
    half.write_bytes(b"another trainer is writing this")
    other = linear_run(tmp_path / "run", settings=QUIET)
    with open(tmp_path / "run/.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = files(tmp_path / "run")
        with pytest.raises(ValueError, match="is in use by another trainer"): other.fit(iterations=1)
        assert files(tmp_path / "run") == before
    other.fit(iterations=1)
    assert not half.exists(), "a trainer that owns the folder removes what a killed one left"


# What only saves time never blocks a start -------------------------------------------------------

def notes(run): return [event.text for event in run.seen if type(event).__name__ == "Message"]


def listening(folder, **options):
    seen = []
    run = linear_run(folder, [seen.append], **dict(dict(settings=QUIET), **options))
    run.seen = seen
    return run


@pytest.mark.parametrize("harm", ["other games", "half", "text", "empty"])
def test_damaged_unfinished_games_are_played_again(tmp_path, harm):
    stop = stop_at("StepsTaken", 1)
    run = stop.run = linear_run(tmp_path / "run", [stop], QUIET)
    run.fit(iterations=2)
    path = tmp_path / "run/games/unfinished.npz"
    content = path.read_bytes()
    other = linear_run(tmp_path / "other", settings=QUIET, seed=4).fit(iterations=2).folder.file("games", 2)
    path.write_bytes({"other games": other.read_bytes(), "half": content[:len(content) // 2],
                      "text": b"half a fi", "empty": b""}[harm])
    again = listening(tmp_path / "run").fit(iterations=2)
    assert again.iteration == 3 and again.games == 48
    if harm != "other games": assert any("unfinished.npz" in text and "played again" in text for text in notes(again))
    if harm == "other games": return   # Legal games of these numbers: they count
    assert equal(weights(again), weights(linear_run(tmp_path / "whole", settings=QUIET).fit(iterations=3)))


@pytest.mark.parametrize("text", ["half a lay", "[]", '{"machine": 1, "layout": 2}'])
def test_a_damaged_layout_is_measured_again(tmp_path, text):
    listening(tmp_path / "run").fit(iterations=1)
    (tmp_path / "run/layout.json").write_text(text)
    assert listening(tmp_path / "run", reproducible=False).fit(iterations=1).iteration == 2


def test_a_layout_that_names_ray_is_measured_again(tmp_path, monkeypatch):
    "The file can come from another machine, and Ray may be missing here."
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    path = tmp_path / "run/layout.json"
    listening(tmp_path / "run").fit(iterations=1)
    for devices in (("cpu",), ("ray",)):
        folders.save_layout_file(path, [], Layout("ray", devices, 1, 16, 16, False))
        layout, note = folders.LayoutFile(tmp_path / "run").choose("auto", False, 60)
        assert layout == "auto" and note.endswith("The layout is measured again."), note


def test_a_missing_file_of_games_costs_these_games_only(tmp_path):
    linear_run(tmp_path / "run", settings=QUIET).fit(iterations=3)
    (tmp_path / "run/games/000002.npz").unlink()
    run = listening(tmp_path / "run")
    held = len(run.replay)
    run.fit(iterations=1)
    assert run.iteration == 4 and held > 0
    assert any("000002.npz" in text and "iteration 2 are left out" in text for text in notes(run))


@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_a_damaged_log_costs_curves_and_not_the_run(tmp_path, harm):
    linear_run(tmp_path / "run", settings=QUIET).fit(iterations=4)
    path = tmp_path / "run/iterations.jsonl"
    content = bytearray(path.read_bytes())
    content[10] ^= 0x20
    path.unlink() if harm == "gone" else path.write_bytes(content if harm == "flip" else content[:len(content) // 2])
    run = listening(tmp_path / "run").fit(iterations=1)
    assert run.iteration == 5 and any("iterations.jsonl" in text for text in notes(run))
    assert run.history and run.history[-1]["iteration"] == 5
    again = listening(tmp_path / "run").fit(iterations=1)
    assert again.iteration == 6 and not any("iterations.jsonl" in text for text in notes(again)), "the log is whole again"


def test_a_folder_that_lost_its_manifests_is_not_begun_anew(tmp_path):
    linear_run(tmp_path / "run", settings=QUIET).fit(iterations=3)
    for name in ("manifest.json", "previous.json"): (tmp_path / "run" / name).unlink()
    before = files(tmp_path / "run")
    with pytest.raises(ValueError, match="no manifest.json"): linear_run(tmp_path / "run", settings=QUIET)
    assert files(tmp_path / "run") == before


# Formats -----------------------------------------------------------------------------------------

def test_a_folder_of_a_newer_format_is_refused(tmp_path):
    linear_run(tmp_path / "run", settings=QUIET).fit(iterations=1)
    path = tmp_path / "run/manifest.json"
    path.write_text(json.dumps(dict(json.loads(path.read_text()), format=3)))
    with pytest.raises(ValueError, match="format 3.*newer alphazero_nb"): linear_run(tmp_path / "run", settings=QUIET)


# Growth ------------------------------------------------------------------------------------------

def test_games_outside_the_window_are_not_read_and_may_be_deleted(tmp_path):
    settings = replace(QUIET, max_window=40)
    whole = linear_run(tmp_path / "whole", settings=settings).fit(iterations=7)
    linear_run(tmp_path / "run", settings=settings).fit(iterations=6)
    for number in (1, 2, 3): (tmp_path / f"run/games/{number:06}.npz").unlink()
    run = linear_run(tmp_path / "run", settings=settings).fit(iterations=1)
    assert len(run.replay) == 40 and equal(weights(run), weights(whole))


def test_the_manifest_does_not_grow_and_the_log_only_at_its_end(tmp_path):
    run, sizes, logs = linear_run(tmp_path / "run", settings=QUIET), [], []
    for _ in range(6):
        run.fit(iterations=1)
        sizes.append((tmp_path / "run/manifest.json").stat().st_size)
        logs.append((tmp_path / "run/iterations.jsonl").read_bytes())
    assert max(sizes[1:]) - min(sizes[1:]) < 40, f"{sizes}: only digits of counts may come"
    assert all(after.startswith(before) for before, after in zip(logs, logs[1:]))
    assert [json.loads(line)["iteration"] for line in logs[-1].splitlines()] == [1, 2, 3, 4, 5, 6]


def test_old_networks_become_sparser_and_the_best_stays(tmp_path):
    from alphazero_nb.training.run_folder import spared_networks
    there = set()
    for newest in range(1, 3001):
        there = spared_networks(there | {newest}, newest, every=5)
        ages = sorted(newest - number for number in there)
        assert ages[0] == 0 and len(there) <= 10 + 4 * (newest // 20).bit_length()
        if newest > 100: assert ages[-1] > newest / 2, "the first half of the run is still there"
    run = linear_run(tmp_path / "run", settings=replace(SETTINGS, evaluate_every=1)).fit(iterations=30)
    kept = {int(path.stem[-6:]) for path in (tmp_path / "run").glob("network-*.npz")}
    scores = {row["iteration"]: row["score"] for row in run.matches}
    best = max(scores, key=lambda iteration: (scores[iteration], iteration))
    assert best in kept and {29, 30} <= kept and len(kept) < 25
    assert len(list((tmp_path / "run").glob("learner-*.npz"))) == 2


def test_games_are_compressed(tmp_path):
    linear_run(tmp_path / "run", settings=QUIET).fit(iterations=1)
    with zipfile.ZipFile(tmp_path / "run/games/000001.npz") as file:
        assert {entry.compress_type for entry in file.infolist()} == {zipfile.ZIP_DEFLATED}


# What a run needs is checked before its first game -----------------------------------------------

@pytest.mark.parametrize("settings, words", [
    (dict(baseline="rolouts:100"), "rolouts:100.*Did you mean"), (dict(evaluate_games=0), "evaluate_games is 0"),
    (dict(batch_size=0), "batch_size is 0"), (dict(batch_size=2.5), "batch_size is 2.5"), (dict(learning_rate="fast"), "learning_rate"),
    (dict(cooldown=(5, 5)), r"cooldown is \(5, 5\)"), (dict(cooldown=7), "cooldown is 7"),
    (dict(search_value_weight=2), "search_value_weight is 2"), (dict(games_per_iteration=0), "games_per_iteration is 0"),
    (dict(evaluate_every=-1), "evaluate_every is -1"), (dict(max_window=0), "max_window is 0"), (dict(baseline=7), "baseline"),
])
def test_bad_settings_are_found_before_the_first_game(tmp_path, settings, words):
    with pytest.raises(ValueError, match=words): linear_run(tmp_path / "run", settings=replace(SETTINGS, **settings))
    assert not (tmp_path / "run").exists()


# The agent alone --------------------------------------------------------------------------------

def test_a_packed_agent_plays_elsewhere_as_it_plays_here(tmp_path):
    linear_run(tmp_path / "my run").fit(iterations=2)
    levels = tuple(level_on_path(share, 16, -200 * share) for share in (1, .5, 0))
    store_levels(tmp_path / "my run", levels, 100)
    packed = folders.pack_agent(tmp_path / "my run")
    assert packed == tmp_path / "my run.zip"
    with zipfile.ZipFile(packed) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {"my run"}, "it unpacks into one folder"
        archive.extractall(tmp_path / "elsewhere")
    there = tmp_path / "elsewhere/my run"
    one, other = (Agent.load(folder, simulations=16, device="cpu", network=Linear()) for folder in (tmp_path / "my run", there))
    states = [one.game.new(), one.game.state_after([4, 0])]
    assert np.array_equal(one.search(states).visits, other.search(states).visits)
    assert one.levels == other.levels == levels
    assert len(read_saved(there).rows()) == 2 and report(there).name == "report.html"
    with pytest.raises(ValueError, match=r"learner-000002\.npz"): linear_run(there)


def test_without_a_whole_network_nothing_is_packed(tmp_path):
    with pytest.raises(ValueError, match="config.json"): folders.pack_agent(tmp_path)
    run = linear_run(tmp_path / "run")
    run.fit(iterations=1)
    network, = (tmp_path / "run").glob("network-*.npz")
    network.write_bytes(network.read_bytes()[:-9])
    with pytest.raises(ValueError, match="network-000001.npz"): folders.pack_agent(tmp_path / "run")
    assert not (tmp_path / "run.zip").exists()


def test_a_link_in_the_folder_of_a_stranger_is_not_packed(tmp_path):
    linear_run(tmp_path / "run", settings=QUIET).fit(iterations=1)
    (tmp_path / "secret").write_text("a key")
    (tmp_path / "run/levels.json").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"levels\.json is not a plain file"): folders.pack_agent(tmp_path / "run")
    assert not (tmp_path / "run.zip").exists()


def test_a_layout_of_another_device_is_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "device_names", lambda: ["cuda:0", "cpu"])
    folders.save_layout_file(tmp_path / "layout.json", [], Layout("threads", ("cpu",), 1, 16, 16, False))
    assert folders.LayoutFile(tmp_path).choose("auto", False, 60, "cuda:0")[0] == "auto"
    assert folders.LayoutFile(tmp_path).choose("auto", False, 60, "cpu")[0].devices == ("cpu",)


@pytest.mark.parametrize("bad", [dict(number_format="x"), dict(backend="x"), dict(merged=65536), dict(channels_last=3),
                                 dict(kind="processes", devices=("cpu", "cpu"))])
def test_a_layout_that_cannot_be_is_measured_again(tmp_path, bad):
    folders.save_layout_file(tmp_path / "layout.json", [], replace(Layout("threads", ("cpu",), 1, 16, 16, False), **bad))
    layout, note = folders.LayoutFile(tmp_path).choose("auto", False, 60, "cpu")
    assert layout == "auto" and "The layout is measured again." in note


def test_the_agent_of_this_folder_is_packed(tmp_path, monkeypatch):
    run = linear_run(tmp_path / "mine", settings=QUIET)
    run.fit(iterations=1)
    monkeypatch.chdir(tmp_path / "mine")
    assert folders.pack_agent(".").name == "mine.zip" and zipfile.ZipFile(tmp_path / "mine.zip").namelist()[0].startswith("mine/")


def test_a_run_in_a_layout_of_its_own_keeps_the_measured_one(tmp_path):
    run = linear_run(tmp_path, settings=QUIET)
    run.fit(iterations=1)
    measured = Layout("threads", ("cpu",), 1, 16, 16, False, max_rows=8)
    folders.LayoutFile(tmp_path).save([], measured)
    again = linear_run(tmp_path, settings=QUIET)
    again.fit(iterations=1)
    assert again.iteration == 2 and folders.read_layout_file(tmp_path / "layout.json") == measured


def test_a_smaller_batch_keeps_the_measured_layouts(tmp_path):
    layout, file = Layout("threads", ("cpu",), 1, 16, 16, False), folders.LayoutFile(tmp_path)
    file.save([dict(name="threads", layout=layout, evals_per_s=5.0)], layout)
    file.save([], replace(layout, max_rows=8))
    saved = json.loads((tmp_path / "layout.json").read_text())
    assert saved["measured"] == [dict(name="threads", layout=str(layout), evals_per_s=5.0)] and saved["layout"]["max_rows"] == 8
    (tmp_path / "layout.json").write_text(json.dumps(dict(saved, machine={})))   # From elsewhere
    file.save([], layout)
    assert json.loads((tmp_path / "layout.json").read_text())["measured"] == []


def test_a_layout_of_another_gpu_is_measured_again(tmp_path, monkeypatch):
    "Two GPUs have the same name in PyTorch, cuda:0."
    card, asked, path = "L4, 22 GB", [], tmp_path / "layout.json"
    def get_device(name):
        asked.append(name)
        return Device(name, card if name == "cuda:0" else "CPU", "float16", "bfloat16", True, True)
    monkeypatch.setattr(folders, "device_names", lambda: ["cuda:0", "cpu"])
    monkeypatch.setattr(folders, "get_device", get_device)
    for device in ("cuda:0", "cpu"):   # The second layout takes the place of the first
        card = "L4, 22 GB"
        folders.save_layout_file(path, [], Layout("threads", (device,), 1, 16, 16, False))
        assert folders.read_layout_file(path).devices == (device,)
        card = "A100, 40 GB"
        assert (folders.read_layout_file(path) is None) == (device == "cuda:0")
        assert set(asked) == {device}, "the other device is left alone"
        asked.clear()
        assert folders.LayoutFile(tmp_path).choose("auto", False, 60, "cuda:1")[0] == "auto" and not asked
    folders.save_layout_file(path, [], Layout("threads", ("cuda:0",), 1, 16, 16, False))
    monkeypatch.setattr(folders, "get_device", lambda name: (_ for _ in ()).throw(RuntimeError("no CUDA GPUs are available")))
    assert folders.read_layout_file(path) is None


def test_a_layout_that_is_not_measured_is_not_said_to_be(tmp_path):
    (tmp_path / "layout.json").write_text("{")
    for minutes, said in ((None, False), (2, False), (3, True)):
        layout, note = folders.LayoutFile(tmp_path).choose("auto", False, minutes, "cpu")
        assert "it is not JSON" in note and (layout == "auto") == said == note.endswith("The layout is measured again.")
    assert folders.LayoutFile(tmp_path).choose("auto", True, 5, "cpu")[0] is None
