"Draws by surprise and by repeats, and heads that only learn, against their definitions in NumPy."

import numpy as np
import pytest
import torch

from alphazero_nb.core.registry import get_game
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.training.forecast import measure_speed
from alphazero_nb.training.learner import Learner, TrainSettings
from alphazero_nb.training.replay import Replay, RowTables, draw_shares, make_rows
from small_run import games_of_threads


@pytest.fixture(scope="module")
def records():
    "Eight games of Connect Four, some moves of which are searched fully."
    game = get_game("connect4")
    return games_of_threads(game, PolicyValueNet(game, "tiny"), 1, 8)


def test_replies_and_near_values_are_those_of_the_games(records):
    game = get_game("connect4")
    count, rows, _ = make_rows(game, records, 10**6)
    tables, row = RowTables(*rows), 0
    for record in records:
        for move in np.flatnonzero(np.diff(record.policy_offsets) > 0):
            last = move + 1 == len(record)
            assert tables.replies[row] == (-1 if last else record.actions[move + 1])
            want = record.outcome.astype(float)
            for later in range(len(record) - 1, move, -1):
                if not np.isnan(record.values[later, 0]): want = .8 * want + .2 * record.values[later]
            assert np.allclose(tables.near[row], np.roll(want, -record.movers[move]), atol=1e-5)
            row += 1
    assert row == count and (tables.replies >= 0).any()


def test_a_second_move_of_the_same_player_is_no_reply():
    game = get_game("dots(rows=2,cols=2)")
    records = games_of_threads(game, PolicyValueNet(game, "tiny"), 1, 8)
    replies, row, again = RowTables(*make_rows(game, records, 10**6)[1]).replies, 0, 0
    for record in records:
        for move in np.flatnonzero(np.diff(record.policy_offsets) > 0):
            other = move + 1 < len(record) and record.movers[move + 1] != record.movers[move]
            again += move + 1 < len(record) and not other
            assert replies[row] == (record.actions[move + 1] if other else -1)
            row += 1
    assert again


def test_what_surprises_is_drawn_more_often(records):
    game, rng = get_game("connect4"), np.random.default_rng(0)
    replay, learner = Replay(game), Learner(PolicyValueNet(game, "tiny"), "cpu")
    count, batches = replay.add(records), []
    def surprise(batch):
        batches.append(batch)
        return learner.surprise(batch)
    before = RowTables(*replay._held[0].arrays).weights[:count].copy()
    replay.weigh(count, surprise, .5)
    assert (before == 1).all()
    whole = np.concatenate([batch.policy for batch in batches])
    with torch.no_grad():
        logits = learner.average.module.eval()(torch.from_numpy(np.concatenate([b.inputs for b in batches])).float())[0].double()
    shares = torch.softmax(logits, 1).numpy()
    want = np.where(whole > 0, whole * np.log(np.where(whole > 0, whole, 1) / shares), 0).sum(1)
    weights = RowTables(*replay._held[0].arrays).weights[:count]
    assert np.allclose(weights, .5 + .5 * want / want.mean(), rtol=.05) and weights.mean() == pytest.approx(1, abs=1e-4)
    inputs = RowTables(*replay._held[0].arrays).inputs[:count]
    draws = 20_000
    drawn = replay.sample(draws, rng).inputs.reshape(draws, -1)
    turned = {row.tobytes(): i for t in range(2) for i, row in enumerate(inputs[:, game.symmetries[0][t]])}
    seen = np.bincount([turned[row.tobytes()] for row in drawn], minlength=count) / draws
    groups = np.array([turned[row.tobytes()] for row in inputs])
    expected = np.bincount(groups, weights / count, minlength=count)
    assert np.abs(seen - expected).max() < .01 and np.corrcoef(seen, expected)[0, 1] > .95
    with pytest.raises(ValueError, match="surprise_weight"): TrainSettings(surprise_weight=1.5)


def test_repeats_are_drawn_as_often_as_others(records):
    game, replay = get_game("connect4"), Replay(get_game("connect4"), repeat_discount=1.0)
    count = replay.add([*records, *records, *records[:2]])
    ring = replay._held[0]
    tables, shares = RowTables(*ring.arrays), np.diff(draw_shares(ring, 1.0), prepend=0)
    total, different = {}, {row.tobytes() for row in tables.inputs[:count]}
    for row, share in zip(tables.inputs[:count], shares): total[row.tobytes()] = total.get(row.tobytes(), 0) + share
    assert np.allclose(list(total.values()), 1 / len(different)) and len(different) < count / 2
    assert len(set(tables.keys[:count].tolist())) == len(different)
    assert np.allclose(np.diff(draw_shares(ring, 0.0), prepend=0), 1 / count)
    assert np.allclose(draw_shares(ring, 1), draw_shares(ring, 1.0)), "a whole number, too"
    assert len(replay.sample(7, np.random.default_rng(0)).inputs) == 7


def test_extra_heads_learn_what_they_should_and_leave_the_network_alone(records):
    game, rng = get_game("connect4"), np.random.default_rng(0)
    replay = Replay(game)
    replay.add(records)
    settings = TrainSettings(soft_weight=1.0, reply_weight=1.0, near_weight=1.0)
    learner, twin = (Learner(PolicyValueNet(game, "tiny", 0), "cpu", settings) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(learner.extra.parameters(), twin.extra.parameters()))
    batch = replay.sample(16, rng)
    names = set(learner.network.state_dict())
    assert names == set(PolicyValueNet(game, "tiny").state_dict()) and set(learner.extra.heads) == {"soft", "reply", "near"}
    first = [learner.step(batch) for _ in range(150)][0]
    learner.network.eval(), learner.extra.eval()
    with torch.no_grad():
        found = learner.extra(*learner.network.features(torch.from_numpy(batch.inputs).float()))
        loss = float(learner.extra.loss(found, *map(torch.from_numpy, (batch.policy, batch.near, batch.replies))))
    soft, log = batch.policy.astype(float) ** .25, lambda name: torch.log_softmax(found[name].double(), 1).numpy()
    soft /= soft.sum(1, keepdims=True)
    there = np.flatnonzero(batch.replies >= 0)
    want = -(soft * log("soft")).sum(1).mean() - log("reply")[there, batch.replies[there]].sum() / 16 \
        + ((found["near"].numpy() - batch.near) ** 2).mean()
    assert loss == pytest.approx(want, rel=1e-3)
    least = -(soft * np.log(np.where(soft > 0, soft, 1))).sum(1).mean()
    assert -(soft * log("soft")).sum(1).mean() < least + .1 and ((found["near"].numpy() - batch.near) ** 2).mean() < .05
    assert all(np.isfinite(float(loss)) for loss in first)
    assert measure_speed(game, "tiny", "cpu", train=settings, seconds=.2).steps_per_s > 0
    with pytest.raises(ValueError, match="need a network for boards"):
        Learner(PolicyValueNet(game, "mlp"), "cpu", settings)
