"Training: what is learnt is what was played, a run survives being killed, and bad input leaves no trace."
import contextlib
import copy
import errno
import hashlib
import itertools
import json
import math
import re
import signal
import sys
import threading
import time
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from alphazero_nb.core.events import (IterationDone, JsonLines, MatchPlayed, Message, PhaseStarted, RunDone, RunStarted, StepsTaken,
                                      read_events)
from alphazero_nb.core.device import Device, get_device
from alphazero_nb.core.registry import get_game
from alphazero_nb.core.records import GameRecord
from alphazero_nb.games.tictactoe import tictactoe
from alphazero_nb.network.networks import PolicyValueNet, pool, pool_parts
from alphazero_nb.network.checkpoint import network_arrays
from alphazero_nb.network.int8 import int8_operators_work
from alphazero_nb.network.saved_run import load_network
from alphazero_nb.search.agent import Agent
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.settings import SelfPlaySettings, default_settings
from alphazero_nb.selfplay import layout as layout_page
from alphazero_nb.selfplay.layout import Layout
from alphazero_nb.arena.players import RandomPlayer, get_player
from alphazero_nb.arena.matches import play_match
from alphazero_nb.arena.judge import judge, packaged_positions
from alphazero_nb.training import learner as learner_page, run_folder, trainer as trainer_page
from alphazero_nb.training.replay import Batch, Replay, window_size
from alphazero_nb.training.learner import (Learner, StepThreads, TrainSettings, default_training, learner_arrays,
                                            restore_learner)
from alphazero_nb.training.trainer import TimeAccount, judge_baselines, lr_decay, make_plan
from alphazero_nb.ui.progress import describe
from small_run import QUICK, differ, trainer, weights

pytestmark = pytest.mark.usefixtures("one_thread_inside")


def picture(folder):
    "Every file below `folder` with its hash and time."
    folder = Path(folder)
    if folder.is_file(): return hashlib.sha256(folder.read_bytes()).hexdigest()
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(folder.rglob("*"))}


# What is learnt


def record_of(game, actions, visits, number=0):
    "A game by hand: `visits` are {action: visits} per move, none where it was not searched."
    visits = [dict(sorted(v.items())) for v in visits]
    states = [game.state_after(actions[:t]) for t in range(len(actions) + 1)]
    outcome = game.returns(states[-1])
    return GameRecord(
        np.array(actions, np.int32), np.array([game.mover(s) for s in states[:-1]], np.int8),
        np.tile(np.array([.5, -.5], np.float32), (len(actions), 1)), np.cumsum([0] + [len(v) for v in visits]).astype(np.int32),
        np.array([a for v in visits for a in v], np.int32), np.array([n for v in visits for n in v.values()], np.int32),
        outcome, number, 0, 0)


def test_loss_of_a_repeated_example_reaches_its_entropy():
    game = get_game("tictactoe")
    policy = np.zeros((4, 9), np.float32)
    policy[:, [0, 4, 8]] = .5, .3, .2
    entropy = -sum(p * math.log(p) for p in (.5, .3, .2))
    planes = np.tile(game.observe(game.state_after([1])), (4, 1, 1, 1))
    batch = Batch(planes, policy, np.tile(np.array([.25, -.25], np.float32), (4, 1)))
    learner = Learner(PolicyValueNet(game, "tiny"), "cpu", TrainSettings(weight_decay=0))
    losses = [learner.step(batch) for _ in range(300)]
    assert losses[0][0] > entropy + .5, "it was not known before"
    assert abs(losses[-1][0].item() - entropy) < .03 and losses[-1][1].item() < .001
    assert all(loss[0] > entropy - 1e-4 for loss in losses), "no loss is below the entropy"


def test_a_shift_of_all_logits_is_undone():
    "The policy does not depend on it. In bfloat16 it grew until the policy was lost."
    game, rng = get_game("dots(rows=3,cols=3)"), np.random.default_rng(0)
    learner = Learner(PolicyValueNet(game, "tiny", 0), "cpu", TrainSettings())
    with torch.no_grad(): learner.network.policy.out.bias += 60
    batches = [Batch(rng.integers(0, 2, (16, *game.input_shape)).astype(np.int8), np.full((16, 24), 1 / 24, np.float32),
                     np.zeros((16, 2), np.float32)) for _ in range(4)]
    for step in range(150): learner.step(batches[step % 4])
    logits, _ = learner.network(torch.from_numpy(batches[0].inputs).float())
    assert abs(float(logits.mean().detach())) < 30


def test_targets_are_the_visits_and_the_result_for_the_mover():
    game = get_game("connect4")
    moves = [3, 0, 3, 0, 3, 1, 3]
    record = record_of(game, moves, [{move: 6, (move + 1) % 7: 2} for move in moves])
    replay = Replay(game)
    replay.add([record])
    assert len(replay) == 7
    for mix in (0., .25, 1.):
        batch = replay.sample(200, np.random.default_rng(0), mix)
        seen = set()
        for planes, policy, values in zip(batch.inputs, batch.policy, batch.values):
            mine = [t for t in range(7) for turned in (0, 1) if (picture_of(game, record, t, turned) == planes).all()]
            t = mine[0]
            seen.add((t, tuple(policy)))
            want = [.75 if a == moves[t] else .25 if a == (moves[t] + 1) % 7 else 0 for a in range(7)]
            assert policy.tolist() in (want, want[::-1])
            result = np.array([1, -1]) * (1 - mix) + np.array([.5, -.5]) * mix
            assert np.allclose(values, result if t % 2 == 0 else result[::-1])
        assert len(seen) == 14, "every position, in both of its symmetries"


def picture_of(game, record, t, turned):
    planes = game.observe(game.state_after(record.actions[:t]))
    return planes[:, :, ::-1] if turned else planes


@pytest.mark.parametrize("name", ["tictactoe", "dots(rows=2,cols=2)", "gomoku(size=5)"])
def test_sampling_turns_position_and_policy_alike(name):
    "Wherever the position is turned, each action's share goes to the action that does the same there."
    game, rng = get_game(name), np.random.default_rng(1)
    moves = [int(m) for m in rng.permutation(game.actions)[:3]]
    state = game.state_after(moves)
    legal = game.legal_actions(state)
    visits = {action: i + 1 for i, action in enumerate(legal)}
    line = [*moves, legal[0]]
    while further := game.legal_actions(game.state_after(line)): line.append(int(rng.choice(further)))
    ended = record_of(game, line, [visits if t == 3 else {} for t in range(len(line))])
    replay = Replay(game)
    replay.add([ended])
    assert len(replay) == 1, "moves without a full search teach nothing"
    observation, policy = game.observe(state).ravel(), np.zeros(game.actions)
    for action, n in visits.items(): policy[action] = n / sum(visits.values())
    want = set()
    for cells, actions in zip(*game.symmetries):
        turned = np.zeros(game.actions, np.float32)
        turned[actions] = policy
        want.add((observation[cells].tobytes(), turned.round(5).tobytes()))
    batch = replay.sample(400, rng)
    got = {(p.tobytes(), q.round(5).tobytes()) for p, q in zip(batch.inputs, batch.policy)}
    assert got == want and len(want) == len(game.symmetries[0])


def test_the_window_keeps_the_newest_games():
    game = get_game("tictactoe")
    moves = [0, 3, 1, 4, 2]
    replay, record = Replay(game), record_of(game, moves, [{m: 1, 8: 1} for m in moves])
    for start in range(0, 12_000, 1000):
        replay.add([replace(record, number=number) for number in range(start, start + 1000)])
        keep = window_size(5 * (start + 1000))
        assert len(replay) == keep and replay.added == 5 * (start + 1000)
    assert len(replay) < 60_000
    sizes = [window_size(n) for n in range(0, 10**6, 1000)]
    assert sizes == sorted(sizes) and sizes[20] == 20_000 and all(size <= n for size, n in zip(sizes, range(0, 10**6, 1000)))
    batch = replay.sample(50, np.random.default_rng(0))
    assert np.allclose(batch.policy.sum(1), 1) and (batch.inputs.reshape(50, -1).sum(1) < 5).all()


def test_an_empty_buffer_says_so():
    with pytest.raises(ValueError, match="no searched position"): Replay(get_game("tictactoe")).sample(1, np.random.default_rng(0))


def test_a_gradient_that_is_none_stops_training():
    game = get_game("tictactoe")
    learner = Learner(PolicyValueNet(game, "tiny"), "cpu")
    before = network_arrays(learner.network)
    batch = Batch(np.zeros((4, *game.shape), np.int8), np.full((4, 9), np.nan, np.float32), np.zeros((4, 2), np.float32))
    with pytest.raises(RuntimeError, match="diverged"): learner.step(batch)
    names = [name for name, _ in learner.network.named_parameters()]
    assert all(np.array_equal(before[name], network_arrays(learner.network)[name]) for name in names)


def test_it_gets_stronger(tmp_path):
    "Some seconds of tic-tac-toe: from the first policy's level against a random player to well above it."
    game = get_game("tictactoe")
    run = trainer(tmp_path / "run", simulations=32, train_settings=TrainSettings(
        games_per_iteration=64, batch_size=64, replay_ratio=16, ema_decay=.95, evaluate_every=0), games=64, max_batch=64, reproducible=True)
    raw = lambda: play_match(game, Greedy(run), RandomPlayer(game, 1), 200, opening_plies=1, seed=1).score
    before = raw()
    run.fit(iterations=8)
    assert run.history[-1]["policy_loss"] < run.history[0]["policy_loss"]
    assert raw() > max(.8, before + .1), "the network alone has learnt"
    loaded = Agent.load(tmp_path / "run", simulations=32, device="cpu")
    assert play_match(game, loaded, RandomPlayer(game, 2), 200, opening_plies=1, seed=2).score > .93


class Greedy:
    "Plays the network's first choice, without a search."
    name = "greedy"

    def __init__(self, run): self.run = run

    def acts(self, states):
        game, network = self.run.game, self.run.learner.average.module.eval()
        with torch.no_grad(): logits, _ = network(torch.from_numpy(np.stack([game.observe(s) for s in states])).float())
        legal = [game.legal_actions(state) for state in states]
        return np.array([max(actions, key=lambda a: row[a]) for actions, row in zip(legal, logits.tolist())])


# A run's life


@pytest.mark.parametrize("game, preset", [("tictactoe", "tiny"), ("connect4", "mlp")])
def test_a_run_cut_in_two_is_the_run(tmp_path, game, preset):
    options = dict(reproducible=True, seed=3, preset=preset)
    whole = trainer(tmp_path / "whole", game, **options).fit(iterations=4)
    trainer(tmp_path / "cut", game, **options).fit(iterations=1)
    trainer(tmp_path / "cut", game, **options).fit(iterations=2)
    resumed = trainer(tmp_path / "cut", game, **options)
    assert resumed.iteration == 3 and resumed.games == 48 and len(resumed.history) == 3
    resumed.fit(iterations=1)
    assert resumed.iteration == whole.iteration == 4
    assert not differ(weights(tmp_path / "whole"), weights(tmp_path / "cut"))
    same = ("iteration", "games", "positions", "policy_loss", "value_loss")
    assert [[h[k] for k in same] for h in whole.history] == [[h[k] for k in same] for h in resumed.history]
    assert whole.learner.steps == resumed.learner.steps
    for name in sorted(path.name for path in (tmp_path / "whole/games").iterdir()):
        with np.load(tmp_path / "whole/games" / name) as a, np.load(tmp_path / "cut/games" / name) as b:
            assert all(np.array_equal(a[key], b[key], equal_nan=a[key].dtype.kind == "f") for key in a)


def test_one_seed_is_one_run_and_another_is_not(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)): trainer(tmp_path / name, seed=seed, reproducible=True).fit(iterations=2)
    assert not differ(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert differ(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_a_second_fit_goes_on(tmp_path):
    run = trainer(tmp_path / "run", preset="mlp", reproducible=True)
    assert run.fit(iterations=1) is run
    run.fit(iterations=2)
    trainer(tmp_path / "whole", preset="mlp", reproducible=True).fit(iterations=3)
    assert run.iteration == 3 and run.games == 48
    assert not differ(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_minutes_end_in_time(tmp_path, monkeypatch):
    "With 20 s an iteration, a fourth would be half done when the minute is over."
    clock = [0.0]
    def pass_time(event): clock[0] += 20 * isinstance(event, IterationDone)
    monkeypatch.setattr("alphazero_nb.training.trainer.time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert trainer(tmp_path / "run", listeners=[pass_time]).fit(minutes=1).iteration == 3
    assert trainer(tmp_path / "long", listeners=[pass_time]).fit(minutes=1.2).iteration == 4


LONG = dict(preset="mlp", reproducible=True, train_settings=replace(QUICK, replay_ratio=40))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, one_thread_inside):
    "Three iterations without a stop."
    return trainer(tmp_path_factory.mktemp("long") / "whole", **LONG).fit(iterations=3)


@pytest.mark.parametrize("moment", ["GameFinished", "StepsTaken"])
def test_after_an_interrupt_the_same_trainer_goes_on_as_a_resumed_one(tmp_path, whole, moment):
    "Stop in a notebook, run the cell again: nothing is learnt twice, nothing is missing."
    def stop(event):
        if type(event).__name__ == moment and run.iteration == 1: raise KeyboardInterrupt
    run = trainer(tmp_path / "run", listeners=[stop], **LONG)
    run.fit(iterations=3)
    assert run.iteration == 1, "it was stopped in its second iteration"
    run.events.listeners.clear()
    run.fit(iterations=2)
    assert run.iteration == 3 and run.games == 48 and len(run.replay) == len(whole.replay)
    assert not differ(weights(tmp_path / "run"), weights(whole.folder.path))


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
@pytest.mark.parametrize("file", ["games", "network", "learner"])
def test_an_interrupt_while_a_file_is_written_is_an_interrupt(tmp_path, monkeypatch, file):
    """In the middle of an archive it makes NumPy raise a ValueError about the archive, in the place of the interrupt.

    The iteration is saved first, and the stop comes after it."""
    before, real, sent = signal.signal(signal.SIGINT, signal.default_int_handler), zipfile._ZipWriteFile.__init__, []

    def begin(self, archive, *more):
        if archive.filename is None and run.iteration == 2 and saving[-1:] == [file] and not sent:
            sent.append(signal.raise_signal(signal.SIGINT))
            time.sleep(.05)
        real(self, archive, *more)
    run, saving, write = trainer(tmp_path / "run"), [], run_folder.write_arrays

    def write_arrays(path, *arguments, **options):
        saving.append(path.parent.name if path.parent.name == "games" else path.name.partition("-")[0])
        return write(path, *arguments, **options)
    monkeypatch.setattr(zipfile._ZipWriteFile, "__init__", begin)
    monkeypatch.setattr(run_folder, "write_arrays", write_arrays)
    try: run.fit(iterations=4)
    finally: signal.signal(signal.SIGINT, before)
    assert sent == [None] and run.iteration == 2 and [row["iteration"] for row in run.history] == [1, 2]
    assert [event.iteration for event in read_events(tmp_path / "run/events.jsonl") if isinstance(event, IterationDone)] == [1, 2]
    assert trainer(tmp_path / "run").iteration == 2 and run.fit(iterations=1).iteration == 3


def test_an_interrupted_match_does_not_lose_the_iteration_or_says_so(tmp_path):
    "Stopped while it is measured, the iteration is either saved or not counted."
    def stop(event):
        if type(event).__name__ == "MatchPlayed": raise KeyboardInterrupt
    settings = TrainSettings(games_per_iteration=16, batch_size=32, replay_ratio=2, evaluate_every=1, evaluate_games=4, match_share=1,
                             baseline="random")
    run = trainer(tmp_path / "run", train_settings=settings, listeners=[stop])
    run.fit(iterations=3)
    assert run.iteration < 3, "it was stopped"
    run.events.listeners.clear()
    resumed = trainer(tmp_path / "run", train_settings=settings)
    assert resumed.iteration == run.iteration and resumed.games == run.games


# Folders


def test_a_folder_of_another_run_is_refused_and_left_alone(tmp_path):
    folder = tmp_path / "run"
    trainer(folder).fit(iterations=1)
    before = picture(folder)
    for wrong, words in ((dict(game="connect4"), "tictactoe.*connect4"), (dict(preset="mlp"), "tiny.*mlp")):
        with pytest.raises(ValueError, match=words) as caught: trainer(folder, **wrong).fit(iterations=1)
        assert "run" in str(caught.value)
    assert picture(folder) == before


def test_a_file_and_a_strange_folder_are_refused_and_left_alone(tmp_path):
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("mine")
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine too")
    before = picture(tmp_path)
    with pytest.raises(ValueError, match="is a file"): trainer(file).fit(iterations=1)
    with pytest.raises(ValueError, match="holds other files"): trainer(folder).fit(iterations=1)
    with pytest.raises(ValueError, match="file"): trainer(file / "below").fit(iterations=1)
    assert picture(tmp_path) == before


@pytest.mark.parametrize("options, words", [
    (dict(simulations=0), "simulations is 0"), (dict(games=-1), "games is -1"), (dict(threads=-2), "threads is -2"),
    (dict(preset="tinny"), "'tinny'.*tiny"), (dict(device="cuda:77"), "cuda:77"), (dict(game="conect4"), "conect4.*connect4"),
])
def test_bad_arguments_write_nothing(tmp_path, options, words):
    with pytest.raises(ValueError, match=words): trainer(tmp_path / "run", **options).fit(iterations=1)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("arguments, words", [
    ({}, "either"), (dict(iterations=1, minutes=1), "either"), (dict(iterations=0), "iterations is 0"),
    (dict(minutes=-3), "minutes is -3"), (dict(minutes=float("nan")), "minutes is nan"),
])
def test_fit_says_what_it_wants(tmp_path, arguments, words):
    with pytest.raises(ValueError, match=words): trainer(tmp_path / "run").fit(**arguments)
    assert not (tmp_path / "run").exists()


def test_building_a_trainer_writes_nothing(tmp_path):
    trainer(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file, harm", [(file, harm) for file in ("learner", "manifest", "config")
                                        for harm in ("bit", "cut", "gone") if harm != "gone" or file == "learner"])
def test_a_damaged_checkpoint_is_named(tmp_path, file, harm):
    folder = tmp_path / "run"
    trainer(folder).fit(iterations=1)
    path = next(path for path in folder.rglob("*.*") if file in str(path.relative_to(folder)) and path.is_file())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x80
    path.unlink() if harm == "gone" else path.write_bytes(content if harm == "bit" else content[:len(content) // 2])
    before = picture(folder)
    with pytest.raises(ValueError, match=re.escape(path.name)): trainer(folder).fit(iterations=1)
    assert picture(folder) == before


@pytest.mark.parametrize("harm", ["bit", "cut", "gone"])
def test_an_agent_does_not_play_with_damaged_weights(tmp_path, harm):
    folder = tmp_path / "run"
    trainer(folder).fit(iterations=1)
    path, = folder.glob("network-*.npz")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink() if harm == "gone" else path.write_bytes(content if harm == "bit" else content[:1000])
    with pytest.raises(ValueError, match=re.escape(path.name)): Agent.load(folder, device="cpu")


def test_loading_says_what_is_missing(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, words in (("nothing", "there is no .*nothing"), ("empty", "training run"), ("file", "is a file")):
        with pytest.raises(ValueError, match=words): Agent.load(tmp_path / name, device="cpu")


def test_the_folder_holds_data_only(tmp_path):
    "Arrays without pickles and JSON; two checkpoints, every game, hashes that hold."
    folder = tmp_path / "run"
    trainer(folder).fit(iterations=3)
    manifest, before = (json.loads((folder / name).read_text()) for name in ("manifest.json", "previous.json"))
    rows = [json.loads(line) for line in (folder / "iterations.jsonl").read_text().splitlines()]
    hashes = {f"games/{row['iteration']:06}.npz": row["sha256"] for row in rows}
    for saved in (manifest, before):
        hashes[f"learner-{saved['iteration']:06}.npz"] = saved["learner_sha256"]
        hashes |= {f"network-{int(iteration):06}.npz": sha256 for iteration, sha256 in saved["networks"].items()}
    assert len(hashes) == 3 + 2 + 2
    for name, sha256 in hashes.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha256
        with np.load(folder / name, allow_pickle=False) as arrays: assert all(a.dtype != object for a in arrays.values())
    assert hashlib.sha256((folder / "iterations.jsonl").read_bytes()).hexdigest() == manifest["log_sha256"]
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    files.discard("games/unfinished.npz")   # Games of the next iteration that have finished already
    assert files == hashes.keys() | {"manifest.json", "previous.json", "config.json", "events.jsonl", "iterations.jsonl", ".lock"}
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines if line["event"] == "IterationDone"] == [1, 2, 3]


def test_a_run_accounts_for_its_time(tmp_path, monkeypatch):
    """The parts of all iterations are the time of the call, but for the last save and the end; also after a resume.

    A second passes each time that the run looks at the clock."""
    folder, seconds = tmp_path / "run", itertools.count()
    clock = lambda: float(next(seconds))
    monkeypatch.setattr("alphazero_nb.training.trainer.time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    parts = {"self-play", "replay buffer", "optimiser steps", "new weights", "matches", "other"}
    for iterations in (2, 1):
        start = clock()
        run = trainer(folder)
        built = clock()
        run.fit(iterations=iterations)
        end = clock()
        rows = run.history[-iterations:]
        assert set(rows[0]["spent"]) == parts | {"start-up"}
        assert all(set(row["spent"]) == parts | {"saving"} for row in rows[1:])
        total = sum(sum(row["spent"].values()) for row in rows)
        assert total <= end - start and all(value >= 0 for row in rows for value in row["spent"].values())
        lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        done = [line["spent"] for line in lines if line["event"] == "IterationDone"]
        assert done == [row["spent"] for row in run.history]
        assert total > (end - built) / 2, "the rest is the last save and the end of the engine"


def test_a_run_that_moves_to_half_precision_begins_with_a_usual_loss_scale():
    network = lambda: PolicyValueNet(get_game("tictactoe"), "tiny")
    arrays, there = learner_arrays(Learner(network(), "cpu")), Learner(network(), "cpu")
    there.scaler = torch.amp.GradScaler("cpu", enabled=True)   # As on a GPU that learns in float16
    restore_learner(there, arrays)
    there.scaler.scale(torch.ones(1))
    assert there.scaler.get_scale() == torch.amp.GradScaler("cpu").get_scale() > 1


def batch_of(game, rows=32):
    rng = np.random.default_rng(0)
    return Batch(rng.integers(0, 2, (rows, *game.shape)).astype(np.int8), rng.dirichlet(np.ones(game.actions), rows).astype(np.float32),
                 rng.uniform(-1, 1, (rows, game.players)).astype(np.float32))


def test_a_loss_scale_goes_on_growing_where_it_was():
    game = get_game("tictactoe")
    one, two = (Learner(PolicyValueNet(game, "tiny"), "cpu") for _ in range(2))
    for learner in (one, two): learner.scaler = torch.amp.GradScaler("cpu", enabled=True)
    for _ in range(3): one.step(batch_of(game))
    restore_learner(two, learner_arrays(one))
    assert two.scaler.state_dict() == one.scaler.state_dict() and one.scaler.state_dict()["_growth_tracker"] == 3
    old = {name: array for name, array in learner_arrays(one).items() if name != "growth"}   # Of an older version
    restore_learner(two, old)
    assert two.scaler.state_dict()["_growth_tracker"] == 0


def test_a_skipped_step_keeps_the_statistics_of_a_batch_norm_finite(monkeypatch):
    game = get_game("tictactoe")
    learner = Learner(PolicyValueNet(game, "tiny"), "cpu")
    monkeypatch.setattr(learner, "_autocast", contextlib.nullcontext)
    learner.step(batch_of(game))
    learner.device = replace(learner.device, train_dtype="float16")
    hook = next(module for module in learner.network.modules() if isinstance(module, torch.nn.Conv2d)).register_forward_hook(
        lambda module, given, out: out * float("inf"))
    learner.step(batch_of(game))
    hook.remove()
    assert learner.skipped == 1 and all(buffer.isfinite().all() for buffer in learner.network.buffers())
    learner.step(batch_of(game))
    assert learner.skipped == 0 and learner.steps == 2


def test_restored_moments_lie_in_memory_as_the_weights_do():
    "The fused step reads both by address: in another order, moments of one weight would move another."
    game, rng = get_game("connect4"), np.random.default_rng(0)
    one = Batch(rng.integers(0, 2, (32, *game.shape)).astype(np.int8), rng.dirichlet(np.ones(7), 32).astype(np.float32),
                rng.uniform(-1, 1, (32, 2)).astype(np.float32))
    learner, twin = (Learner(PolicyValueNet(game, "tiny"), "cpu") for _ in range(2))
    for _ in range(3): learner.step(one)
    restore_learner(twin, learner_arrays(learner))
    for mine, theirs in zip(twin.network.parameters(), learner.network.parameters()):
        for name in set(twin.optimizer.state[mine]) - {"step"}:
            assert twin.optimizer.state[mine][name].stride() == mine.stride() == theirs.stride()
    for _ in range(3): assert [float(loss) for loss in learner.step(one)] == [float(loss) for loss in twin.step(one)]
    assert not differ(network_arrays(learner.network), network_arrays(twin.network))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_the_gradient_of_pooling_is_that_of_mean_and_maximum(order, dtype):
    cells = torch.stack([torch.randperm(30, generator=torch.Generator().manual_seed(k)) for k in range(4 * 7)])
    x = cells.view(4, 7, 5, 6).to(dtype).contiguous(memory_format=order).requires_grad_()   # No two cells are equal
    weight = torch.arange(4. * 14).view(4, 14).to(dtype)
    want, = torch.autograd.grad(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1), x, weight)
    pooled = pool(x)
    assert torch.equal(pooled.detach(), pool(x.detach()))
    got, = torch.autograd.grad(pooled, x, weight)
    assert got.is_contiguous(memory_format=order) and got.dtype == dtype
    torch.testing.assert_close(got, want)


def test_of_equal_cells_the_first_one_has_the_gradient_of_the_maximum():
    x = torch.ones(1, 1, 2, 2, requires_grad=True)
    pool(x)[0, 1].backward()
    assert x.grad.flatten().tolist() == [1, 0, 0, 0]


def test_a_step_in_bfloat16_learns_as_one_in_float32():
    game, rng = get_game("tictactoe"), np.random.default_rng(0)
    batches = [Batch(rng.integers(0, 2, (32, *game.shape)).astype(np.int8), np.eye(9, dtype=np.float32)[rng.integers(0, 9, 32)],
                     rng.uniform(-1, 1, (32, 2)).astype(np.float32)) for _ in range(4)]
    cpu, ends = get_device("cpu"), {}
    for dtype in ("float32", "bfloat16"):
        learner = Learner(PolicyValueNet(game, "tiny"), replace(cpu, train_dtype=dtype))
        curve = np.array([[float(loss) for loss in learner.step(batches[k % 4])] for k in range(60)])
        ends[dtype] = curve[-20:].mean(0)
        assert all(weight.dtype == torch.float32 for weight in learner.network.parameters())
    first = [float(loss) for loss in Learner(PolicyValueNet(game, "tiny"), cpu).step(batches[0])]
    for before, whole, half in zip(first, ends["float32"], ends["bfloat16"]):
        assert whole < .8 * before and abs(half - whole) < .2 * (before - whole)


def test_half_of_the_threads_play_while_the_learner_learns(tmp_path):
    seen, actors = [], lambda: sum(thread.name == "alphazero_nb actor" for thread in threading.enumerate())

    def hear(event):
        if isinstance(event, (StepsTaken, MatchPlayed)): seen.append((type(event), actors(), torch.get_num_threads()))
    settings = replace(QUICK, evaluate_every=2, evaluate_games=2, baseline="random", match_share=1)
    run = trainer(tmp_path/"run", threads=2, games=32, train_settings=settings, listeners=(hear,)).fit(iterations=4)
    assert {kind: {playing for found, playing, _ in seen if found is kind} for kind in (StepsTaken, MatchPlayed)} == {
        StepsTaken: {1}, MatchPlayed: {0}}, "one actor of two beside a step, none beside a match"
    assert torch.get_num_threads() == 1 and actors() == 0
    numbers = [record.number for row in run.folder.rows() for record in run.folder.read_games(row)]
    assert numbers == list(range(64))
    versions = [record.version for row in run.folder.rows() for record in run.folder.read_games(row)]
    assert versions[:16] == [0] * 16 and max(versions) <= 3
    seen.clear()
    trainer(tmp_path/"waits", threads=2, games=32, train_settings=settings, reproducible=True, listeners=(hear,)).fit(2)
    assert {playing for _, playing, _ in seen} == {0}, "a run that must be reproducible waits for its learner"


@pytest.mark.parametrize("reproducible", [False, True])
def test_an_iteration_takes_more_games_where_its_steps_take_longer(tmp_path, monkeypatch, reproducible):
    "Each step takes until the actors have played as far ahead as they may."
    step, settings, engines = Learner.step, replace(QUICK, min_replay_ratio=.5), []
    use = SelfPlayEngine.use
    monkeypatch.setattr(SelfPlayEngine, "use", lambda engine, layout: engines.append(engine) or use(engine, layout))

    def slow_step(learner, batch):
        end = time.monotonic() + 600
        while engines[-1].busy_actors and not engines[-1].scheduler.full: assert time.monotonic() < end; time.sleep(.005)
        return step(learner, batch)
    monkeypatch.setattr(Learner, "step", slow_step)
    usual = dict(threads=2, games=32, train_settings=settings, reproducible=reproducible)
    run = trainer(tmp_path / "run", **usual).fit(iterations=4)
    rows = [run.folder.read_games(row) for row in run.folder.rows()]
    assert [record.number for row in rows for record in row] == [*range(run.games)]
    positions = [sum(int((np.diff(record.policy_offsets) > 0).sum()) for record in row) for row in rows]
    assert sum(positions) == run.replay.added
    assert run.learner.steps == sum(max(1, round(round(n * 16 / len(row)) * 2 / 32)) for n, row in zip(positions, rows))
    if reproducible: assert {*map(len, rows)} == {16}
    else: assert [*map(len, rows)] == [16] + [64] * 3, "up to four times as many, from the second iteration on"


def test_matches_and_the_judge_wait_for_their_share_of_the_time(tmp_path, monkeypatch):
    clock = [0.0]
    with monkeypatch.context() as patch:
        patch.setattr("alphazero_nb.training.trainer.time", SimpleNamespace(monotonic=lambda: clock[0]))
        account = TimeAccount()
        assert account.allows("matches", 0)   # The first is always played
        with account.on("matches"): clock[0] = .02
        assert not account.allows("matches", .05) and account.allows("saving", 0)
        clock[0] = 100.0
        assert account.allows("matches", .05)
        account.take()
        account.total["matches"] = 5   # Of 100 seconds, and one more match would follow
        assert not account.allows("matches", .05) and account.allows("matches", .1)
    settings = replace(QUICK, evaluate_every=1, evaluate_games=2, baseline="random", match_share=0)
    run = trainer(tmp_path / "run", train_settings=settings).fit(iterations=3)
    assert [row["iteration"] for row in run.matches] == [1]
    assert [row["keeps"] is None for row in run.history] == [False, True, True]


def test_a_run_is_judged_by_the_positions_of_the_package(tmp_path):
    settings = replace(QUICK, evaluate_every=2, evaluate_games=2, baseline="random", match_share=1)
    run = trainer(tmp_path / "run", train_settings=settings).fit(iterations=2)
    solved = packaged_positions(run.game)
    found = judge(run.agent(), solved.take(solved.critical).sample(100))[-1]
    assert found.critical == found.positions == 100
    assert len(run.history[0]["keeps"]) == 4 and run.history[1]["keeps"] == [found.share, *found.interval, 100], "the first is judged without a match"
    assert [row["iteration"] for row in run.matches] == [2] and "judging" in run.history[0]["spent"]
    assert f"keeps the result in {found.share:.0%} of 100 critical positions" in describe(IterationDone(**run.history[1]))
    unsolved = trainer(tmp_path / "other", "gomoku(size=5)", preset="mlp", train_settings=settings).fit(iterations=2)
    assert unsolved.matches and [row["keeps"] for row in unsolved.history] == [None, None]
    assert [row["baselines"] for row in unsolved.history] == [{}, {}]


def test_the_baselines_are_judged_by_the_same_positions(tmp_path):
    game = get_game("tictactoe")
    positions = packaged_positions(game).sample(100)
    shares = []
    for state, results in zip(positions.states, positions.results):   # By hand: the good moves among the legal ones
        legal = [results[action] for action in game.legal_actions(state)]
        shares.append(legal.count(max(legal)) / len(legal))
    plan = make_plan(game, "tiny", "cpu", train_settings=replace(QUICK, baseline="solver"))
    found = judge_baselines(plan, positions)
    assert found == {"random": pytest.approx(np.mean(shares)), "solver": 1.0}
    settings = replace(QUICK, evaluate_every=2, evaluate_games=2, baseline="random", match_share=1)
    run = trainer(tmp_path / "run", train_settings=settings).fit(iterations=3)
    assert [list(row["baselines"]) for row in run.history] == [["random"], ["random"], []]


def test_each_phase_of_an_iteration_is_reported(tmp_path):
    names = []
    def listen(event):
        if isinstance(event, PhaseStarted): names.append(event.name)
    settings = replace(QUICK, evaluate_every=2, evaluate_games=2, baseline="random", match_share=1)
    trainer(tmp_path / "run", train_settings=settings, listeners=[listen]).fit(iterations=3)
    first, second = ["self-play", "learning", "judging", "saving"], ["self-play", "learning", "match", "judging", "saving"]
    assert names == first + second + ["self-play", "learning", "saving"]


@pytest.mark.parametrize("decay", [.9, .99, .9999])
def test_whole_numbers_of_the_network_are_not_averaged(decay):
    "The places of the actions on the board stay what they are, or the policy would be another one."
    game = get_game("dots(rows=2,cols=2)")
    learner = Learner(PolicyValueNet(game, "tiny"), "cpu", TrainSettings(ema_decay=decay))
    batch = Batch(np.zeros((8, *game.shape), np.int8), np.full((8, game.actions), 1 / game.actions, np.float32),
                  np.zeros((8, 2), np.float32))
    for _ in range(40): learner.step(batch)
    assert learner.average.module.policy.cells.tolist() == game.cells.tolist()


def test_the_average_follows_at_once_and_slows_down():
    game, rng = get_game("tictactoe"), np.random.default_rng(0)
    learner = Learner(PolicyValueNet(game, "tiny"), "cpu", TrainSettings(ema_decay=.8))
    batch = Batch(rng.integers(0, 2, (16, *game.shape)).astype(np.int8), np.eye(9, dtype=np.float32)[rng.integers(0, 9, 16)],
                  rng.uniform(-1, 1, (16, 2)).astype(np.float32))
    want = None
    for step in range(60):
        learner.step(batch)
        newest = {name: array.astype(float) for name, array in network_arrays(learner.network).items()
                  if array.dtype.kind == "f"}
        share = max(.2, 9 / (10 + step))
        want = newest if step == 0 else {name: old + share * (newest[name] - old) for name, old in want.items()}
        if step in (2, 10, 59):
            found = network_arrays(learner.average.module)
            for name in want: np.testing.assert_allclose(found[name], want[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("done, rate", [(0, 2e-3), (100, 2e-3), (150, 1.1e-3), (200, 2e-4), (10_000, 2e-4)])
def test_the_learning_rate_falls_in_the_cooldown(done, rate):
    """The first step of AdamW moves each weight by the learning rate, whatever its gradient, and those of heads four times
    as far; Muon's moves them by a part of it."""
    game, rng = get_game("tictactoe"), np.random.default_rng(0)
    learner = Learner(PolicyValueNet(game, "tiny"), "cpu", TrainSettings(cooldown=(100, 200), weight_decay=0))
    before, learner.steps = [weight.detach().clone() for weight in learner.network.parameters()], done
    learner.step(Batch(rng.integers(0, 2, (16, *game.shape)).astype(np.int8),
                       np.eye(9, dtype=np.float32)[rng.integers(0, 9, 16)], np.ones((16, 2), np.float32)))
    muon = {id(weight) for weights in learner_page.matrices_of(learner.network) for weight in weights}
    moved = {name: (id(weight) in muon, (weight - old).detach())
             for (name, weight), old in zip(learner.network.named_parameters(), before)}
    for heads, most in ((False, rate), (True, 4 * rate)):
        far = [move.abs().max().item() for name, (by_muon, move) in moved.items()
               if not by_muon and name.startswith(("policy.", "value.")) == heads]
        assert max(far) == pytest.approx(most, rel=1e-3)
    shares = [move.square().mean().sqrt().item() / rate for by_muon, move in moved.values() if by_muon]
    assert len(shares) == 6 and .5 * .6 < min(shares) <= max(shares) < .5 * 1.3


@pytest.mark.parametrize("begun_s, decay", [(0, -1), (30, 0), (45, .5), (60, 1)])
def test_the_clock_says_how_far_the_learning_rate_has_fallen(monkeypatch, begun_s, decay):
    assert lr_decay(None) < 0, "a run without a time"
    monkeypatch.setattr("alphazero_nb.training.trainer.time", SimpleNamespace(monotonic=lambda: 100.0))
    assert lr_decay((100.0 - begun_s, 1.0)) == pytest.approx(decay)


@pytest.mark.parametrize("options, given, falls", [
    ({}, dict(minutes=2), True), ({}, dict(iterations=1), False), (dict(reproducible=True), dict(minutes=2), False),
    ({}, dict(minutes=2, planned_minutes=50), False)])
def test_the_learning_rate_falls_in_the_second_half_of_the_minutes(tmp_path, monkeypatch, options, given, falls):
    seconds = itertools.count()   # A second passes between two looks at the clock
    monkeypatch.setattr("alphazero_nb.training.trainer.time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    learner = trainer(tmp_path / "run", preset="mlp", **options).fit(**given).learner
    rate = max(group["lr"] for group in learner.optimizer.param_groups)   # All have the share 1
    assert (rate < .95 * learner.settings.learning_rate) == falls


@pytest.mark.parametrize("given", [dict(iterations=1, planned_minutes=1), dict(minutes=2, planned_minutes=1)])
def test_a_part_of_a_run_is_not_longer_than_the_run(tmp_path, given):
    with pytest.raises(ValueError, match="planned_minutes is 1; give it with minutes, and at least as many"):
        trainer(tmp_path / "run").fit(**given)


def test_pooling_over_parts_has_the_gradient_of_its_mean_and_maximum():
    chance = torch.Generator().manual_seed(0)
    parts = torch.randn(3, 4, 5, generator=chance, dtype=torch.float64).requires_grad_()
    assert torch.equal(pool_parts(parts).detach(), pool_parts(parts.detach()))
    assert torch.autograd.gradcheck(pool_parts, parts)
    both = torch.tensor([[[1., 2.], [3., 2.], [3., 2.]]], requires_grad=True)
    pool_parts(both)[0, 2:].sum().backward()
    assert torch.allclose(both.grad, torch.tensor([[[0, 1 / 3], [.5, 1 / 3], [.5, 1 / 3]]]))
    mean = torch.cat([parts.mean(1), parts.amax(1)], 1)
    assert torch.allclose(pool_parts(parts), mean)


def test_games_without_a_full_search_teach_nothing_and_stop_nothing(tmp_path):
    run = trainer(tmp_path / "run", play_settings=SelfPlaySettings(full_search_fraction=.001)).fit(iterations=1)
    assert run.iteration == 1 and run.learner.steps == 0 and run.history[0]["policy_loss"] is None
    assert trainer(tmp_path / "run").fit(iterations=1).learner.steps > 0


def test_a_network_of_ones_own_is_trained_and_resumed(tmp_path):
    game = get_game("tictactoe")
    mine = PolicyValueNet(game, "mlp", seed=9)
    run = trainer(tmp_path / "run", network=mine, preset="small").fit(iterations=1)
    assert run.preset == "custom" and trainer(tmp_path / "run", network=mine).fit(iterations=1).iteration == 2
    assert run.agent(simulations=4).act(game.new()) in range(9)
    with pytest.raises(ValueError, match=r"network of your own; pass it as network=MyNet\(\) to Agent.load"):
        Agent.load(tmp_path / "run", device="cpu")


def test_an_agent_with_a_network_of_ones_own_is_loaded(tmp_path):
    "It gets the saved weights, the given network keeps its own, and one of another shape is refused."
    game = get_game("tictactoe")
    run = trainer(tmp_path / "run", network=PolicyValueNet(game, "mlp", seed=9)).fit(iterations=2)
    given = PolicyValueNet(game, "mlp", seed=1)
    before = {name: value.clone() for name, value in given.state_dict().items()}
    agent = Agent.load(tmp_path / "run", simulations=8, device="cpu", network=given, name="mine")
    assert agent.name == run.agent(name="mine").name == "mine" and run.agent().name == "run"
    saved = run.network.state_dict()
    loaded = load_network(tmp_path / "run", given)[1].state_dict()
    assert all(torch.equal(loaded[name], value.cpu()) for name, value in saved.items())
    assert all(torch.equal(given.state_dict()[name], value) for name, value in before.items()), "the given network is untouched"
    states = np.stack([game.new(), game.state_after([4])])
    assert np.array_equal(agent.search(states).visits, run.agent(simulations=8).search(states).visits)
    assert load_network(tmp_path / "run/network-000002.npz", given)[2] == "run/network-000002"
    with pytest.raises(ValueError, match="does not fit the given network.*arrays differ"):
        Agent.load(tmp_path / "run", device="cpu", network=PolicyValueNet(game, "tiny"))
    trainer(tmp_path / "usual").fit(iterations=1)
    with pytest.raises(ValueError, match="preset 'tiny'; leave out network="):
        Agent.load(tmp_path / "usual", device="cpu", network=given)


def test_the_network_of_a_run_is_a_network_and_its_preset_a_name(tmp_path):
    run = trainer(tmp_path / "run")
    assert isinstance(run.network, torch.nn.Module) and run.preset == "tiny"
    assert run.network is run.learner.average.module
    mine = PolicyValueNet(get_game("tictactoe"), "mlp")
    own = trainer(tmp_path / "own", network=mine)
    assert isinstance(own.network, torch.nn.Module) and own.network is not mine and own.preset == "custom"


@pytest.mark.parametrize("name, share, uses, baseline", [
    ("connect4", .25, 6, "rollouts:100"), ("othello(size=6)", .25, 6, "rollouts:100"), ("dots", .25, 6, "rollouts:100"),
    ("pig", .25, 3, "heuristic"), ("backgammon", .25, 3, "random"), ("2048", .25, 3, "random"),
    ("gomoku(size=9)", 1, 3, "rollouts:100"), ("chess(variant=gardner)", 1, 3, "greedy"), ("chess", 1, 3, "greedy")])
def test_searches_are_full_where_many_actions_are_legal(name, share, uses, baseline):
    game = get_game(name)
    play, train = default_settings(game), default_training(game)
    assert (play.full_search_fraction, train.replay_ratio, train.baseline) == (share, uses, baseline)


@pytest.mark.parametrize("name, games", [("connect4", 512), ("gomoku(size=9)", 404), ("chess", 327),
                                         ("chess(max_plies=400)", 81), ("2048", 64)])
def test_an_iteration_has_fewer_games_if_they_are_long(name, games):
    "In chess, an iteration of 512 games took three minutes of two cores, with the same weights all the time."
    game = get_game(name)
    assert TrainSettings().iteration_games(game, 512) == games and TrainSettings().iteration_games(game, 1) == 1
    assert TrainSettings(games_per_iteration=7).iteration_games(game, 512) == 7


@pytest.mark.parametrize("name", ["chess", "go(size=19)", "connect4"])
def test_an_iteration_fits_into_the_buffer_however_many_machines_play(name):
    "Ten nodes of eight GPUs play 81,920 games at a time; those of Go were 26 GB of positions, to keep 2 GB."
    game, train = get_game(name), TrainSettings()
    games = train.iteration_games(game, 81_920)
    assert 512 <= games and games * game.max_length <= train.max_window
    assert train.most_games(game, games) * game.max_length <= train.max_window
    assert train.most_games(game, 16) == 64 and TrainSettings(games_per_iteration=9000).iteration_games(game, 8) == 9000


def test_a_run_plays_these_games_in_an_iteration(tmp_path):
    settings = replace(QUICK, games_per_iteration=None)
    usual = dict(preset="mlp", simulations=2, train_settings=settings)
    run = trainer(tmp_path / "run", "gomoku(size=9)", **usual).fit(iterations=2)
    assert run.games == 2 * (16 * 64 // 81)


@pytest.mark.parametrize("options, words", [
    (dict(settings=QUICK), "train_settings=.*play_settings="), (dict(selfplay=SelfPlaySettings()), "play_settings="),
    (dict(settings=QUICK, layout=Layout("threads", ("cpu",), 1, 16, 16, False)), "train_settings=.*play_settings="),
    (dict(train_settings=SelfPlaySettings()), "train_settings is of type SelfPlaySettings"),
    (dict(play_settings=QUICK), "play_settings is of type TrainSettings"),
    (dict(worlds=3), "no option 'worlds'.*play_settings="),
    (dict(layout=Layout("threads", ("cpu",), 1, 16, 16, False), gmaes=8), "no option 'gmaes'. Did you mean 'games'"),
])
def test_settings_of_training_and_of_self_play_are_not_confused(tmp_path, options, words):
    with pytest.raises(TypeError, match=words): trainer(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_game_that_no_name_finds_is_refused(tmp_path):
    game = tictactoe()
    game.name = "nobody_knows_it"
    with pytest.raises(ValueError, match="not registered"): trainer(tmp_path / "run", game=game)
    assert not (tmp_path / "run").exists()


def test_a_configuration_of_something_else_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}')
    with pytest.raises(ValueError, match="config.json.*'game'"): trainer(tmp_path)
    with pytest.raises(ValueError, match="config.json.*'game'"): Agent.load(tmp_path, device="cpu")


# The folder is shared, damaged, or not there -----------------------------------------------------

def test_a_damaged_newest_checkpoint_costs_one_iteration_and_is_reported(tmp_path):
    texts = []
    note = lambda event: texts.append(event.text) if type(event).__name__ == "Message" else None
    usual = dict(preset="mlp", reproducible=True)
    whole = trainer(tmp_path / "whole", **usual).fit(iterations=4)
    trainer(tmp_path / "run", **usual).fit(iterations=3)
    newest = tmp_path / "run" / "learner-000003.npz"
    newest.write_bytes(newest.read_bytes()[:1000])
    run = trainer(tmp_path / "run", listeners=[note], **usual)
    assert run.iteration == 2
    run.fit(iterations=2)
    assert any("learner-000003.npz" in text and "continues from the previous checkpoint" in text for text in texts)
    assert run.iteration == 4 and not differ(weights(tmp_path / "run"), weights(tmp_path / "whole")), "as if nothing had happened"
    assert trainer(tmp_path / "run", **usual).iteration == 4


def test_the_checkpoint_before_is_kept_and_no_older_one(tmp_path):
    trainer(tmp_path / "run").fit(iterations=4)
    assert sorted(path.name for path in (tmp_path / "run").glob("learner-*.npz")) == ["learner-000003.npz", "learner-000004.npz"]


def test_trainers_that_take_turns_lose_nothing(tmp_path):
    first, second = trainer(tmp_path / "run"), trainer(tmp_path / "run")
    first.fit(iterations=2)
    second.fit(iterations=1)
    assert second.iteration == trainer(tmp_path / "run").iteration == 3


def test_a_drive_that_is_not_mounted_is_refused(monkeypatch):
    monkeypatch.setenv("COLAB_NOTEBOOK_ID", "x")
    with pytest.raises(ValueError, match="Google Drive is not mounted"): trainer("/content/drive/MyDrive/run")
    assert not Path("/content/drive/MyDrive/run").exists()


# Threads -----------------------------------------------------------------------------------------

@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("busy", [False, True])
def test_steps_run_with_the_number_of_threads_that_is_fastest(monkeypatch, two_threads, busy):
    "With a busy core, threads that share a step wait for the one that does not run; with quiet cores, two are faster."
    clock = [0.0]
    monkeypatch.setattr("alphazero_nb.training.learner.time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def step():
        count = torch.get_num_threads()
        clock[0] += .02 if (count == 2) == busy else .002
        return count
    with StepThreads(get_device("cpu"), every=20) as threads: used = [threads.run(step) for _ in range(40)]
    best = 1 if busy else 2
    assert torch.get_num_threads() == 2, "as before"
    assert used[4:20] == used[24:] == [best] * 16 and sorted(used[:4]) == sorted(used[20:24]) == [1, 1, 2, 2]


def test_threads_of_a_reproducible_run_and_of_a_failing_step_stay_as_they_were(two_threads):
    with StepThreads(get_device("cpu"), free=False) as threads:
        assert [threads.run(torch.get_num_threads) for _ in range(8)] == [2] * 8
    with pytest.raises(ZeroDivisionError), StepThreads(get_device("cpu")) as threads:
        for k in (1, 0): threads.run(lambda: 1 / k)
    assert torch.get_num_threads() == 2


# Heads that learn


def active_units(network, planes):
    "For each head, the number of units that are active on some of these boards."
    with torch.no_grad():
        features = network.blocks(network.stem(planes).relu())
        pooled = pool(features)
        policy = network.policy.local(features) + network.policy.whole(pooled)[:, :, None, None]
        local = network.value.local(features).relu().flatten(1)
        value = network.value.hidden(torch.cat([local, pooled], 1))
    return [int((units.transpose(0, 1).flatten(1) > 0).any(1).sum()) for units in (policy, value)]


@pytest.mark.slow
def test_the_units_of_the_heads_stay_alive():
    "While there is nothing to learn yet, a head that learns too fast falls silent for good."
    game, rng = get_game("connect4"), np.random.default_rng(0)
    learner = Learner(PolicyValueNet(game, "tiny"), "cpu")
    boards = lambda count: rng.integers(0, 2, (count, *game.shape)).astype(np.int8)
    for _ in range(75):
        policy = rng.dirichlet(np.ones(7), 16).astype(np.float32)
        learner.step(Batch(boards(16), policy, rng.choice([-1, 1], (16, 2)).astype(np.float32)))
    policy, value = active_units(learner.network.eval(), torch.from_numpy(boards(256)).float())
    assert policy >= 24 and value >= 40, "of 32 and 64"


def test_the_groups_of_the_optimizer_keep_the_order_of_the_weights():
    network = PolicyValueNet(get_game("gomoku(size=5)"), "tiny")
    learner = Learner(network, "cpu", TrainSettings(cooldown=(0, 10)))
    groups = learner.optimizer.param_groups
    weights = [weight for group in groups for weight in group["params"]]
    assert [id(weight) for weight in weights] == [id(weight) for weight in network.parameters()]
    other = {id(weight): group["share"] for group in groups for weight in group["params"] if group["share"] != 1}
    heads = (network.policy.whole, network.policy.out, network.value.hidden, network.value.out)
    want = {id(weight): 4. for head in (network.policy, network.value) for weight in head.parameters()}
    whole = (network.policy.whole, network.value.hidden)   # They see the whole board
    for layer in whole: want.pop(id(layer.bias))
    rate = lambda layer: (1 if layer in whole else 4) * layer.weight[0].numel() ** -0.5
    assert other == want | {id(layer.weight): rate(layer) for layer in heads}
    planes = np.zeros((4, *network.shape), np.int8)
    for _ in range(12): learner.step(Batch(planes, np.full((4, 25), .04, np.float32), np.zeros((4, 2), np.float32)))
    assert [group["lr"] for group in groups] == pytest.approx([2e-4 * group["share"] for group in groups])


def follow_muon(weight, gradients, rate, decay):
    "Return a weight after Muon's steps for these gradients, in NumPy, from singular values: slow, and in float64."
    mean, shape = np.zeros((len(weight), weight[0].size)), weight.shape
    weight, gradients = weight.reshape(mean.shape), [each.reshape(mean.shape) for each in gradients]
    for gradient in gradients:
        mean = .95 * mean + .05 * gradient
        left, values, right = np.linalg.svd(.05 * gradient + .95 * mean, full_matrices=False)
        values = values / np.sqrt(np.square(values).sum())
        for _ in range(5): values = 3.4445 * values - 4.7750 * values ** 3 + 2.0315 * values ** 5
        weight = weight * (1 - rate * decay) - .5 * rate * np.sqrt(mean.shape[1]) * (left * values) @ right
    return weight.reshape(shape)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_convolutions_of_residual_blocks_take_the_steps_of_muon(order):
    network = PolicyValueNet(get_game("connect4"), "tiny").to(memory_format=order)
    matrices = [weight for weights in learner_page.matrices_of(network) for weight in weights]
    blocks = [f"blocks.{block}.{half}.0.weight" for block in range(3) for half in ("first", "second")]
    names = {id(weight): name for name, weight in network.named_parameters()}
    assert [names[id(weight)] for weight in matrices] == blocks
    steps, scaler = learner_page.make_optimizer(network, TrainSettings(learning_rate=.01, weight_decay=.5), get_device("cpu"))
    steps.dtype = torch.float32
    steps.param_groups[-1]["lr"] = 1e-4   # A head, whose rate is another, decides nothing here
    rng, before = np.random.default_rng(0), [weight.detach().double().numpy().copy() for weight in matrices]
    gradients = [[rng.normal(size=weight.shape) * .1 ** step for step in range(4)] for weight in matrices]
    for step in range(4):
        steps.zero_grad()
        for weight, each in zip(matrices, gradients): weight.grad = torch.tensor(each[step], dtype=torch.float32)
        steps.step()
    for weight, start, each in zip(matrices, before, gradients):
        np.testing.assert_allclose(weight.detach().numpy(), follow_muon(start, each, .01, .5), atol=2e-5)
        assert np.abs(weight.detach().numpy() - start).max() > .01


def test_weights_without_a_gradient_stay():
    network = PolicyValueNet(get_game("connect4"), "tiny")
    steps, scaler = learner_page.make_optimizer(network, TrainSettings(), get_device("cpu"))
    before = network_arrays(network)
    steps.step()
    assert not differ(before, network_arrays(network))


@pytest.mark.parametrize("frozen", [0, -1])
def test_frozen_blocks_stay_and_the_others_learn(frozen):
    "Convolutions of one shape take their steps together; some of them may have no gradient."
    network = PolicyValueNet(get_game("connect4"), "tiny")
    network.blocks[frozen].requires_grad_(False)
    steps, scaler = learner_page.make_optimizer(network, TrainSettings(), get_device("cpu"))
    before = [block.first[0].weight.detach().clone() for block in network.blocks]
    logits, values = network(torch.rand(4, *network.shape))
    (logits.square().sum() + values.square().sum()).backward()
    steps.step()
    moved = [not torch.equal(old, block.first[0].weight) for old, block in zip(before, network.blocks)]
    assert moved == [k != range(3)[frozen] for k in range(3)]


def test_a_run_from_before_muon_goes_on_with_the_mean_of_its_gradients():
    game, rng = get_game("connect4"), np.random.default_rng(0)
    one = Batch(rng.integers(0, 2, (32, *game.shape)).astype(np.int8), rng.dirichlet(np.ones(7), 32).astype(np.float32),
                rng.uniform(-1, 1, (32, 2)).astype(np.float32))
    learner, twin = (Learner(PolicyValueNet(game, "tiny"), "cpu") for _ in range(2))
    for _ in range(3): learner.step(one)
    arrays = learner_arrays(learner)
    missing = [key for key in arrays if key.endswith("exp_avg") and key + "_sq" not in arrays]
    assert len(missing) == 6   # The convolutions of three blocks
    old = arrays | {key + "_sq": np.ones_like(arrays[key]) for key in missing}   # AdamW's of the earlier package
    restore_learner(twin, old)
    for _ in range(3): assert [float(loss) for loss in learner.step(one)] == [float(loss) for loss in twin.step(one)]


def test_the_optimizer_takes_the_steps_of_adamw():
    game, taken = get_game("tictactoe"), []
    for optimizer in (learner_page.Optimizer, torch.optim.AdamW):
        torch.manual_seed(1)
        network = PolicyValueNet(game, "tiny")
        steps = optimizer(network.parameters(), .01, weight_decay=.1, fused=True)
        for step in range(5):
            if step == 3: steps.load_state_dict(copy.deepcopy(steps.state_dict()))
            steps.zero_grad()
            logits, values = network(torch.rand(8, *game.shape))
            (logits.square().mean() + (values - 1).square().mean()).backward()
            steps.step()
        taken.append(network_arrays(network))
    assert not differ(*taken) and not any(weight.requires_grad for state in steps.state.values() for weight in state.values())


# Weights of another run


SIZES = dict(preset="anysize", reproducible=True)


def test_a_run_starts_with_the_weights_of_a_run_on_a_smaller_board(tmp_path):
    small = trainer(tmp_path / "small", "gomoku(size=5)", **SIZES).fit(iterations=1)
    large = trainer(tmp_path / "large", "gomoku(size=6)", preset=None, reproducible=True, init_from=tmp_path / "small")
    assert large.preset == "anysize" and not differ(network_arrays(small.network), network_arrays(large.network))
    planes = torch.from_numpy(np.stack([large.game.observe(large.game.new())] * 2)).float()
    with torch.no_grad(): logits, _ = large.network.eval()(planes)
    assert logits.shape == (2, 36)
    large.fit(iterations=1)
    assert differ(network_arrays(small.network), network_arrays(large.network))
    again = trainer(tmp_path / "large", "gomoku(size=6)", preset=None, reproducible=True, init_from=tmp_path / "small")
    assert again.iteration == 1 and not differ(network_arrays(large.network), network_arrays(again.network)), "a resumed run keeps its own"
    one = tmp_path / "small/network-000001.npz"
    assert not differ(network_arrays(small.network), network_arrays(trainer(tmp_path / "file", "gomoku(size=6)", preset=None, init_from=one).network))


def test_weights_that_do_not_fit_are_one_sentence_before_anything_is_written(tmp_path):
    trainer(tmp_path / "tiny", "gomoku(size=5)").fit(iterations=1)
    for wrong, words in ((dict(init_from=tmp_path / "tiny"), "do not fit tiny for gomoku.size=6.: .*value.hidden.weight.*anysize"),
                         (dict(init_from=tmp_path / "tiny", preset="anysize"), "do not fit anysize"),
                         (dict(init_from=tmp_path / "nowhere"), "no folder"),
                         (dict(init_from=tmp_path / "tiny", network=torch.nn.Linear(1, 1)), "leave one out")):
        with pytest.raises(ValueError, match=words): trainer(tmp_path / "new", "gomoku(size=6)", **dict(dict(preset=None), **wrong))
    assert not (tmp_path / "new").exists()


def test_one_file_plays_every_size(tmp_path):
    small = trainer(tmp_path / "small", "gomoku(size=5)", **SIZES).fit(iterations=1)
    for path in (tmp_path / "small", tmp_path / "small/network-000001.npz"):
        for size in (5, 6, 9):
            game = get_game(f"gomoku(size={size})")
            assert not differ(network_arrays(small.network), network_arrays(load_network(path, game=game)[1]))
            agent = Agent.load(path, 4, "cpu", game=game)
            match = play_match(game, agent, RandomPlayer(game), games=2)
            assert len(match.games) == 2 and agent.game.name == f"gomoku(size={size})"
            assert agent.source == (path if size == 5 else None), "levels were measured on the board of the run"
    assert get_player(str(tmp_path / "small"), game, 4, "cpu").game.name == "gomoku(size=9)"


@pytest.mark.parametrize("run, preset, other, words", [
    ("gomoku(size=5)", "tiny", "gomoku(size=6)", r"plays gomoku.size=5., not gomoku.size=6.\. Only weights of the preset anysize"),
    ("gomoku(size=5)", "anysize", "othello(size=6)", r"plays gomoku.size=5., not othello.size=6.\.$")])
def test_a_file_that_does_not_fit_a_game_says_which_one_it_plays(tmp_path, run, preset, other, words):
    trainer(tmp_path / "run", run, preset=preset).fit(iterations=1)
    with pytest.raises(ValueError, match=words): Agent.load(tmp_path / "run", game=get_game(other))
    with pytest.raises(ValueError, match=words): get_player(tmp_path / "run", get_game(other))


def test_a_board_whose_actions_are_not_cells_has_no_network_of_any_size(tmp_path):
    with pytest.raises(ValueError, match="anysize needs a board.*connect4"): trainer(tmp_path / "run", "connect4", preset="anysize")


@pytest.mark.parametrize("name, share, ratio", [("gomoku(size=9)", 1, 3), ("gomoku(size=9)", .25, 6), ("connect4", .25, 6), ("connect4", 1, 3)])
def test_positions_are_drawn_as_often_as_the_searches_of_the_run_ask_for(name, share, ratio):
    play = replace(default_settings(get_game(name)), full_search_fraction=share)
    assert make_plan(name, device="cpu", play_settings=play).train.replay_ratio == ratio


def test_starts_that_a_slot_cannot_count_are_refused():
    with pytest.raises(ValueError, match="random_start_plies"): SelfPlaySettings(random_start_plies=10**10)


def test_a_match_has_the_time_of_its_iteration(tmp_path):
    settings = replace(QUICK, evaluate_every=1, evaluate_games=2, baseline="random", match_share=1)
    run = trainer(tmp_path / "run", train_settings=settings).fit(iterations=2)
    took = {row["iteration"]: row["seconds"] for row in run.history}
    assert run.matches and all(match["seconds"] == took[match["iteration"]] for match in run.matches)


def test_a_seed_is_a_network_whatever_the_default_device():
    game = get_game("tictactoe")
    want = network_arrays(PolicyValueNet(game, "tiny", 3))
    with torch.device("meta"): network = PolicyValueNet(game, "tiny", 3)
    assert not differ(network_arrays(network), want)


@pytest.mark.skipif("not int8_operators_work()", reason="this machine has no operators for 8-bit integers")
@pytest.mark.parametrize("backend, says", [("eager", False), ("auto", True)])
def test_the_start_names_the_numbers_that_self_play_computes_with(tmp_path, backend, says):
    heard = []
    trainer(tmp_path / "run", backend=backend, listeners=[heard.append]).fit(iterations=1)
    assert any("int8" in event.text for event in heard if isinstance(event, Message)) == says


def test_the_time_of_a_run_has_the_time_that_it_saved(tmp_path, monkeypatch):
    "All but that of the last save, which is written with it."
    run, save = trainer(tmp_path / "run"), run_folder.RunFolder.save
    def slow(*given):
        clock.late += 10 ** 6
        return save(*given)
    clock = SimpleNamespace(late=0, monotonic=lambda: time.monotonic() + clock.late)   # Each save takes a million seconds
    monkeypatch.setattr(run_folder.RunFolder, "save", slow)
    monkeypatch.setattr("alphazero_nb.training.trainer.time", clock)
    run.fit(iterations=3)
    assert 2 * 10 ** 6 <= run.seconds < 3 * 10 ** 6 and [int(row["seconds"] // 10 ** 6) for row in run.history] == [0, 1, 2]


def test_events_that_a_full_disk_refuses_are_written_later(tmp_path, monkeypatch):
    flush, failed, heard = JsonLines.flush, [], []
    def full_once(lines):
        if not failed:
            failed.append(1)
            raise OSError(errno.ENOSPC, "No space left on device")
        return flush(lines)
    monkeypatch.setattr(JsonLines, "flush", full_once)
    trainer(tmp_path / "run", listeners=(heard.append,)).fit(iterations=2)
    written = list(read_events(tmp_path / "run" / "events.jsonl"))
    assert [event.iteration for event in written if isinstance(event, IterationDone)] == [1, 2] and isinstance(written[0], RunStarted)
    assert sum("events.jsonl cannot be written now: No space left on device." in getattr(event, "text", "") for event in heard) == 1


@pytest.mark.parametrize("options, cards", [(dict(workers=4), {"cuda:0": 2, "cuda:1": 2}), (dict(layout="processes"), {"cuda:0": 1, "cuda:1": 1}), ({}, {"cuda:0": 1})])
def test_processes_of_a_run_take_turns_on_all_gpus(monkeypatch, options, cards):
    monkeypatch.setattr(layout_page, "device_names", lambda: ["cuda:0", "cuda:1", "cpu"])
    card, asked = Device("cuda:0", "card", "float16", "float16", True, True, True), []
    monkeypatch.setattr(trainer_page, "get_device", lambda name: card)
    layout = options.pop("layout", "auto")
    def engine(game, network, device, **given):
        kind = None if given["layout"] == "auto" else given["layout"]
        asked.extend(layout_page.plan_layout(game, network, device, kind, workers=given.get("workers")).devices)
    monkeypatch.setattr(trainer_page, "SelfPlayEngine", engine)
    state = SimpleNamespace(games=0, iteration=0, learner=SimpleNamespace(average=SimpleNamespace(module=True)))
    make_plan("tictactoe", engine=options, layout=layout).open_supplier(None, state, layout, print)
    assert Counter(asked) == cards


def test_a_stop_that_ends_a_display_is_in_the_file(tmp_path):
    "The dashboard draws for long after an iteration. A stop reached it there, and the file never got the iteration."
    def draw(event):
        if isinstance(event, IterationDone): raise KeyboardInterrupt
    run = trainer(tmp_path / "run", listeners=[draw]).fit(iterations=2)
    assert run.iteration == 1
    assert [event.iteration for event in read_events(tmp_path / "run/events.jsonl") if isinstance(event, IterationDone)] == [1]


def test_a_stop_before_the_first_game_is_an_end(tmp_path, monkeypatch):
    "A dashboard said for ever that the rules are compiled."
    def stopped(game): raise KeyboardInterrupt
    monkeypatch.setattr(trainer_page, "require_choices", stopped)
    heard = []
    trainer(tmp_path / "run", listeners=[heard.append]).fit(iterations=1)
    assert isinstance(heard[-1], RunDone) and heard[-1].stopped and heard[-1].iteration == 0
    assert not list(read_events(tmp_path / "run/events.jsonl")), "the file has no end without a start"


def test_the_loss_of_a_skipped_step_does_not_count(tmp_path, monkeypatch):
    "One step that float16 could not compute made the loss of its iteration NaN, and `report` refused the run."
    run = trainer(tmp_path / "run").fit(iterations=1)
    step, skipped = run.learner.step, iter([True])
    monkeypatch.setattr(run.learner, "step", lambda batch: (torch.tensor(math.nan),) * 2 if next(skipped, False) else step(batch))
    told = []
    found = trainer_page.learn(run.plan, run.progress.state, 1000, told.append)
    assert all(map(math.isfinite, found)) and math.isfinite(told[-1].policy_loss)
    monkeypatch.setattr(run.learner, "step", lambda batch: (torch.tensor(math.nan), torch.tensor(1.0)))
    assert trainer_page.learn(run.plan, run.progress.state, 1000, told.append) == (None, None) and told[-1].policy_loss is None
