"Plots show the numbers they were given."
import math
import threading
from dataclasses import replace
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from alphazero_nb.core.calls import CHANCE
from alphazero_nb.core.registry import get_game
from alphazero_nb.core.intervals import independent_count, wilson_interval
from alphazero_nb.core.records import GameRecord
from alphazero_nb.network import evaluator as evaluator_module
from alphazero_nb.network.evaluator import BatchedEvaluator, UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.ui.plots import (BLUE, ORANGE, calibration, elo_mark, label, network_values, outcome_shares,
                                   plot_batch_sizes, plot_calibration, plot_evaluator, plot_games, plot_history,
                                   plot_ladder, plot_layouts, plot_losses, plot_machine, plot_measures, plot_policy, plot_strength,
                                   prior_and_visits, to_png, value_pairs)

GAME = get_game("tictactoe")


def row(minutes, policy, value): return dict(iteration=minutes, seconds=60 * minutes, policy_loss=policy, value_loss=value, games_per_s=1.0)


def match(score, low, high, opponent="rollouts:100", minutes=1.0, player="me"):
    return dict(player=player, opponent=opponent, score=score, low=low, high=high, seconds=60 * minutes, iteration=1,
                games=40, wins=20, draws=10, losses=10)


def dealt(points, bids, opponent="heuristic", minutes=1.0):
    "A match on the same deals: mine, theirs, difference of two measures, each with an interval of ±1 and ±0.1."
    row = lambda means, spread, share: dict(zip(("mine", "theirs", "difference"), ([m, m - spread, m + spread] for m in means)), share=share)
    measures = {"points $a round": row(points, 1., False), "exact bids": row(bids, .1, True)}
    return dict(match(.5, .4, .6, opponent, minutes), deals=10, measures=measures)


def bench(game="connect4", **rates):
    return dict(game=game, rows=[dict(name=name, evals_per_s=rate, evals_per_s_low=.5 * rate, evals_per_s_high=2 * rate)
                                 for name, rate in rates.items()])


def record(length, outcome, values=None, number=0):
    values = np.full((length, 2), np.nan, np.float32) if values is None else np.array(values, np.float32)
    return GameRecord(np.arange(length, dtype=np.int32), np.arange(length, dtype=np.int8) % 2, values,
                      np.zeros(length + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32),
                      np.array(outcome, np.float32), number, 0, 0)


def title(figure): return figure.texts[0].get_text()
def heights(axis): return [bar.get_height() for bar in axis.patches]


def stats(sizes=(0, 4, 0, 1), waits=None):
    edges = 10.0 ** np.arange(-1, 3)
    waits = np.array([0, 5, 0, 0, 0] if waits is None else waits)
    return dict(batch_sizes=np.array(sizes), waits=waits, wait_edges_ms=edges, total_requests=int(waits.sum()),
                total_batches=int(sum(sizes)), wait_s=.0005 * waits.sum(), busy_s=.002 * sum(sizes))


def machine(batches, presets=("tiny", "small", "medium")):
    formats = [dict(preset=preset, backend=backend, dtype=dtype, batch=batch, evals_per_s=1e3 * batch / (1 + k))
               for k, preset in enumerate(presets) for backend, dtype in (("eager", "float32"), ("eager", "bfloat16"), ("fused", "int8"))
               for batch in batches]
    return dict(preset="small", formats=formats, games=[dict(games=games, table=table, moves_per_s=9. * games)
                                                        for games in batches for table in (False, True)])


# Each figure


FIGURES = dict(
    losses=(plot_losses, [[], [row(1, None, None)], [row(1, 2.0, .5)], [row(k, 2 / (k + 1), .5) for k in range(100)]]),
    strength=(plot_strength, [[], [match(1, .9, 1)], [match(0, 0, .1)],
                              [match(.5, .4, .6, name, k) for k in range(9) for name in "abc"]]),
    history=(lambda data: plot_history(*data), [([], []), ([row(1, None, None)], []), ([row(1, 2.0, .5)], [match(1, .9, 1)])]),
    layouts=(plot_layouts, [[], [bench(a=1)], [bench(a=1, processes=2), bench(processes=0, c=3e6)]]),
    ladder=(plot_ladder, [[], [match(1, .9, 1)], [match(.1 * k, .1 * k, .1 * k + .05, f"rollouts:{k}") for k in range(10)]]),
    games=(plot_games, [[], [record(5, (1, -1))], [record(k % 300 + 1, (0, 0)) for k in range(900)]]),
    measures=(plot_measures, [[], [dealt((5, 4, 1), (.5, .4, .1))],
                              [dealt((k, 4, k - 4), (k / 40, .4, 0), "$\\frac{", k) for k in range(40)]]),
    policy=(plot_policy, [dict(names=["a1"], prior=[1.0], visits=[1.0], best=0),
                          dict(names=[f"row{k}" for k in range(200)], prior=np.full(200, .005), visits=np.eye(200)[3], best=3)]),
    calibration=(plot_calibration, [calibration([], []), calibration([.5], [1]),
                                    calibration(np.linspace(-1, 1, 99), np.ones(99))]),
    batches=(plot_batch_sizes, [[0], [0, 1], [0] * 256 + [9], np.arange(4097)]),
    machine=(plot_machine, [machine([]), machine([1]), machine([1, 8, 32, 128, 512])]),
    evaluator=(plot_evaluator, [stats([0, 0], [0] * 5), stats(), stats(waits=[3, 0, 0, 0, 2])]))


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_closed_small_and_labelled(name):
    plot, many = FIGURES[name]
    for data in many:
        figure = plot(data)
        assert not plt.get_fignums() and title(figure)
        width, height = figure.get_size_inches()
        assert width <= 6 and height <= 3.5
        assert all(axis.get_xlabel() for axis in figure.axes)
        assert name in ("ladder", "layouts") or figure.axes[0].get_ylabel(), "rungs and layouts have names instead"
        png = to_png(figure)
        assert png[:4] == b"\x89PNG" and len(png) < 40_000


def contrast(color, ground):
    "The contrast of two colours by the rules of WCAG 2."
    from matplotlib.colors import to_rgb
    lights = []
    for one in (color, ground):
        parts = [part / 12.92 if part <= .04045 else ((part + .055) / 1.055) ** 2.4 for part in to_rgb(one)]
        lights.append(sum(share * part for share, part in zip((.2126, .7152, .0722), parts)))
    return (max(lights) + .05) / (min(lights) + .05)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_can_be_read_on_a_light_and_on_a_dark_page(name):
    import io
    from matplotlib.text import Text
    from PIL import Image
    plot, many = FIGURES[name]
    figure = plot(many[-1])
    file = io.BytesIO()
    figure.savefig(file, format="png")
    assert Image.open(file).getpixel((0, 0)) == (255, 255, 255, 255), "paper of its own"
    assert all(axis.get_facecolor()[:3] == (1, 1, 1) for axis in figure.axes)
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert len(texts) > 3
    for text in texts:
        assert contrast(text.get_color(), "white") >= 4.5, text.get_text()
    assert Image.open(io.BytesIO(to_png(figure))).convert("RGB").getpixel((0, 0)) == (255, 255, 255), "a report is white"


@pytest.mark.parametrize("name", sorted(set(FIGURES) - {"policy"}))
def test_a_figure_without_data_says_so(name):
    plot, (empty, *_) = FIGURES[name]
    assert title(plot(empty)).startswith("No ")


def test_the_small_picture_has_the_colours_of_the_large_one():
    from PIL import Image
    import io
    png = io.BytesIO(to_png(plot_policy(FIGURES["policy"][1][0])))
    seen = np.array(Image.open(png).convert("RGB")).reshape(-1, 3).astype(int)
    for color in (BLUE, ORANGE):
        wanted = [int(color[k:k + 2], 16) for k in (1, 3, 5)]
        assert (np.abs(seen - wanted).max(1) <= 4).sum() > 1000, color


def test_losses_are_those_of_the_history():
    figure = plot_losses([row(1, 2.0, .5), row(2, None, None), row(4, 1.5, .25)])
    (policy,), (value,) = (axis.lines for axis in figure.axes)
    assert np.array_equal(policy.get_xdata(), [1, 2, 4]) and np.array_equal(value.get_xdata(), [1, 2, 4])
    assert np.array_equal(policy.get_ydata(), [2, np.nan, 1.5], equal_nan=True)
    assert np.array_equal(value.get_ydata(), [.5, np.nan, .25], equal_nan=True)
    assert "2.00" in title(figure) and "1.50" in title(figure)


def bars(axis):
    "The ends of all error bars."
    found = [container for container in axis.containers if isinstance(container, ErrorbarContainer)]
    return [segment for container in found for lines in container.lines[2] for segment in lines.get_segments()]


def test_strength_is_elo_with_its_interval():
    matches = [match(.5, .4, .6, minutes=1), match(10 / 11, .8, .95, minutes=3), match(.25, .2, .3, "random", 2)]
    figure = plot_strength(matches)
    axis = figure.axes[0]
    ours, other = axis.containers
    assert np.allclose(ours.lines[0].get_xdata(), [1, 3]) and np.allclose(ours.lines[0].get_ydata(), [0, 400])
    assert np.allclose(other.lines[0].get_ydata(), -400 * math.log10(3))
    ends = [400 * math.log10(p / (1 - p)) for p in (.4, .6)]
    assert np.allclose(bars(axis)[0], [[1, ends[0]], [1, ends[1]]])
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["rollouts:100", "random"]
    assert title(figure).startswith("-191 Elo against random after 2.0 minutes")


def test_a_history_is_losses_and_strength_over_the_same_minutes():
    history = [row(1, 2.0, .5), row(2, None, None), row(4, 1.5, .25)]
    matches = [match(10 / 11, .8, .95, minutes=3), match(.5, .4, .6, "b", 3.5)]
    figure = plot_history(history, matches)
    left, right = figure.axes
    for line, alone in zip(left.lines, plot_losses(history).axes):
        assert np.array_equal(line.get_xydata(), alone.lines[0].get_xydata(), equal_nan=True)
    assert left.get_ylim()[0] == 0 and left.get_ylim()[1] > 2 and left.get_xlim() == right.get_xlim()
    assert bars(right) and all(np.allclose(a, b) for a, b in zip(bars(right), bars(plot_strength(matches).axes[0]), strict=True))
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["rollouts:100", "b"]
    assert title(figure) == title(plot_strength(matches)) and title(plot_history(history, [])) == title(plot_losses(history))
    dotted = [line.get_xdata()[0] for line in right.lines if line.get_linestyle() == ":" and line.get_xdata()[0] == line.get_xdata()[1]]
    assert dotted == [3, 3.5] and right.get_title() == "3.5 min: half of the points against b", "both were reached"
    assert plot_history(history, [match(.3, .2, .4)]).axes[1].get_title() == ""


def test_another_run_is_laid_over():
    history, other = [row(1, 2.0, .5), row(4, 1.5, .25)], [row(1, 1.9, .6), row(6, 1.2, .2)]
    left, right = plot_history(history, [match(.5, .4, .6)], {"$other": (other, [match(.7, .6, .8, minutes=6)])}).axes
    dashed = [line for line in left.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata().tolist() for line in dashed] == [[1.9, 1.2], [.6, .2]] and left.get_xlim()[1] >= 6
    assert {text.get_text() for text in left.get_legend().get_texts()} >= {r"\$other: policy", "policy (nats)"}
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["rollouts:100", r"\$other: rollouts:100"]


def test_layouts_stand_in_the_same_places_for_every_game():
    figure = plot_layouts([bench("a$(size=3)", slow=1000, processes=3000), bench("b", processes=500, slow=1000, other=1500)])
    left, right = figure.axes
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["processes", "slow", "other"]
    spots = lambda axis: {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in axis.patches}
    assert spots(left) == {0: 3.0, 1: 1.0} and spots(right) == {0: .5, 1: 1.0, 2: 1.5}
    assert left.get_ylim() == right.get_ylim() == (2.5, -.5), "the fastest of the first game is at the top"
    assert sorted(tuple(bar[:, 0]) for bar in bars(left)) == [(.5, 2.0), (1.5, 6.0)]
    assert title(figure) == "The fastest layout evaluates 3.0 and 3.0 times as many positions as the slowest"
    assert [axis.get_title() for axis in figure.axes] == [r"a\$(size=3)", "b"]
    without = bench(a=1000)
    for end in ("low", "high"): del without["rows"][0][f"evals_per_s_{end}"]
    assert not bars(plot_layouts([without]).axes[0]), "a spread that was not measured is not drawn"


def test_a_name_is_no_formula():
    assert label("$x$\ny") == r"\$x\$�y" and len(label("y" * 99)) == 24


def test_a_clean_score_is_a_bound():
    level, down, up, mark = elo_mark(match(1, 10 / 11, 1))
    assert (round(level), down, up, mark) == (400, 0, 0, "^")
    assert title(plot_strength([match(1, 10 / 11, 1)])).startswith("At least +400")
    assert title(plot_strength([match(0, 0, 1 / 11)])).startswith("At most -400")


def test_the_ladder_has_the_newest_match_of_each_opponent_and_the_hardest_at_the_top():
    matches = [match(.2, .1, .3, "random"), match(.9, .8, .95, "random"), match(.4, .3, .51, "rollouts:400"),
               match(.7, .6, .8, "b")]
    figure = plot_ladder(matches)
    axis = figure.axes[0]
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["random", "b", "rollouts:400"]
    assert np.allclose([container.lines[0].get_xdata()[0] for container in axis.containers],
                       [400 * math.log10(p / (1 - p)) for p in (.9, .7, .4)])
    assert [text.get_text() for text in axis.texts] == ["90%", "70%", "40%"]
    assert title(figure) == "me: stronger than 2 of 3 opponents"


def test_measures_stand_beside_those_of_the_opponent():
    rows = [dealt((9, 9, 0), (.9, .9, 0), "random", 1), dealt((5, 4.5, .5), (.5, .45, .05), minutes=2), match(.5, .4, .6, "heuristic", 3),
            dealt((6, 4.5, 1.5), (.6, .45, .15), minutes=4)]
    figure = plot_measures(rows)
    points, bids = figure.axes
    for axis, times, means, spread in ((points, 1, ([5, 6], [4.5, 4.5]), 1), (bids, 100, ([.5, .6], [.45, .45]), .1)):
        for container, line in zip(axis.containers, means):
            assert np.allclose(container.lines[0].get_xydata(), np.column_stack([[2, 4], times * np.array(line)]))
        low, high = times * (means[0][0] - spread), times * (means[0][0] + spread)
        assert np.allclose(bars(axis)[0], [[2, low], [2, high]])
    assert title(figure) == r"+1.50 points \$a round, +15.0 % exact bids above heuristic after 4.0 minutes"
    assert (points.get_ylabel(), bids.get_ylabel()) == (r"points \$a round", "exact bids (%)")
    assert title(plot_measures([match(.5, .4, .6)])).startswith("No deals")


def test_of_several_players_the_mean_results_are_drawn():
    outcomes = [(1, -.5, 0), (0, -.5, -1), (.5, -.5, 1), (.5, -.5, 0)]
    axis = plot_games([record(5, outcome) for outcome in outcomes]).axes[1]
    assert np.allclose([bar.get_width() for bar in axis.patches], [.5, -.5, 0])
    spread = 3.18245 * math.sqrt((.25 + .25) / 3 / 4)   # Student's, 3 degrees of freedom
    assert np.allclose(bars(axis)[0][:, 0], [.5 - spread, .5 + spread]) and np.allclose(bars(axis)[1][:, 0], [-.5, -.5])
    alone = plot_games([record(5, (1, -.5, 0))]).axes[1]
    assert [bar.get_width() for bar in alone.patches] == [1, -.5, 0], "one game has no interval"


def test_rolls_are_no_moves():
    game = record(4, (1, -1))
    rolled = replace(game, movers=np.array([0, CHANCE, 0, CHANCE], np.int8))
    assert (game.moves, rolled.moves, len(rolled)) == (4, 2, 4)
    assert "2.0 moves" in title(plot_games([rolled]))


def test_games_are_counted():
    records = [record(5, (1, -1)), record(5, (-1, 1)), record(9, (0, 0)), record(7, (1, -1))]
    assert outcome_shares(records) == {"seat 0": .5, "seat 1": .25, "draw": .25}
    left, right = plot_games(records).axes
    assert heights(left) == [2, 0, 1, 0, 1]
    assert np.allclose([bar.get_x() + bar.get_width() / 2 for bar in left.patches], [5, 6, 7, 8, 9])
    assert [bar.get_width() for bar in right.patches] == [50, 25, 25]
    low, high = wilson_interval(.5, 4)
    assert np.allclose(bars(right)[0], [[100 * low, 0], [100 * high, 0]])
    wide = plot_games([record(k, (0, 0)) for k in range(1, 500)]).axes[0]
    assert len(wide.patches) <= 41 and sum(heights(wide)) == 499


# A position


class Told:
    "Answers with given logits and the same values everywhere, the mover first."
    def __init__(self, logits, values=(.25, -.25)): self.logits, self.values, self.version = logits, values, 0

    def evaluate(self, inputs, offsets, actions):
        return np.array([self.logits[a] for a in actions], np.float32), np.tile(np.float32(self.values), (len(inputs), 1))


def test_prior_is_the_softmax_over_legal_moves_and_visits_are_the_search():
    state, logits = GAME.state_after([4, 0, 8]), np.arange(9) / 4
    agent = Agent(GAME, Told(logits), simulations=30)
    look = prior_and_visits(agent, state)
    legal = GAME.legal_actions(state)
    weights = np.exp(logits[legal])
    assert look["actions"].tolist() == legal and look["names"] == [GAME.action_name(a) for a in legal]
    assert np.allclose(look["prior"], weights / weights.sum())
    assert np.array_equal(look["visits"], agent.policy(state)[0, legal]) and np.array_equal(look["values"], agent.value(state)[0])
    assert look["actions"][look["best"]] == agent.act(state)
    axis = plot_policy(look).axes[0]
    assert np.allclose(heights(axis), np.concatenate([100 * look["prior"], 100 * look["visits"]]))
    assert [tick.get_text() for tick in axis.get_xticklabels()] == look["names"]


def test_a_finished_game_has_no_policy():
    with pytest.raises(ValueError, match="over"):
        prior_and_visits(Agent(GAME, UniformEvaluator(GAME)), GAME.state_after([0, 3, 1, 4, 2]))


@pytest.mark.parametrize("best, words", [(1, "The search plays b, but the network alone would play a"),
                                         (0, "The search plays a, not the most visited, as the network would")])
def test_a_title_says_when_the_move_to_play_is_not_the_most_visited(best, words):
    figure = plot_policy(dict(names=["a", "b"], prior=[.6, .4], visits=[.4, .6], best=best))
    assert words in " ".join(text.get_text() for text in [*figure.texts, *[axis.title for axis in figure.axes], figure._suptitle] if text)


def test_of_many_moves_the_weightiest_are_shown_in_their_order():
    prior, visits = np.zeros(100), np.zeros(100)
    prior[[70, 3]], visits[[50, 3]] = [.6, .4], [.9, .1]
    axis = plot_policy(dict(names=[str(k) for k in range(100)], prior=prior, visits=visits, best=50), most=3).axes[0]
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["3", "50", "70"]
    assert np.allclose(heights(axis), [40, 0, 60, 10, 90, 0])


# Calibration


def test_predictions_are_taken_from_the_mover():
    records = [record(3, (1, -1), [[.5, -.5], [.2, -.2], [np.nan, np.nan]]), record(1, (0, 0), [[-.1, .1]])]
    predicted, outcome, games = value_pairs(records)
    assert np.allclose(predicted, [.5, -.2, -.1]) and outcome.tolist() == [1, -1, 0] and games.tolist() == [0, 0, 1]
    given = value_pairs(records, np.array([[0, 1], [2, 3], [4, 5], [6, 7]]))
    assert given[0].tolist() == [0, 3, 4, 6] and given[1].tolist() == [1, -1, 1, 0]


def test_what_a_network_says_is_turned_to_the_seats():
    values = network_values(GAME, Told(np.zeros(9), (.5, -.25)), [record(3, (1, -1)), record(1, (1, -1))])
    assert values.tolist() == [[.5, -.25], [-.25, .5], [.5, -.25], [.5, -.25]]
    assert network_values(GAME, Told(np.zeros(9)), []).shape == (0, 2)


def test_calibration_by_hand():
    "Two bins of [−1, 1]: below zero two positions of one game, above it three of two games."
    table = calibration([-.5, -.3, .2, .4, 1.0], [-1, -1, 1, 1, 0], [7, 7, 7, 7, 9], bins=2)
    assert np.allclose(table["predicted"], [-.4, 1.6 / 3]) and np.allclose(table["outcome"], [-1, 2 / 3])
    assert table["positions"].tolist() == [2, 3] and table["games"].tolist() == [1, 2]
    p, n, z = 5 / 6, independent_count([1, 1, .5], [7, 7, 9]), 1.96
    assert 1 < n < 2
    centre, spread = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert math.isclose(table["low"][1], 2 * (centre - spread) / (1 + z * z / n) - 1)
    assert math.isclose(table["high"][1], min(1, 2 * (centre + spread) / (1 + z * z / n) - 1))
    figure = plot_calibration(table)
    axis = figure.axes[0]
    assert np.allclose(axis.lines[1].get_xydata(), np.column_stack([table["predicted"], table["outcome"]]))
    assert np.allclose(bars(axis)[1], [[1.6 / 3, table["low"][1]], [1.6 / 3, table["high"][1]]])
    gap = (2 * .6 + 3 * abs(2 / 3 - 1.6 / 3)) / 5
    assert f"{gap:.2f}" in title(figure)


def test_the_ends_of_the_scale_have_a_bin():
    table = calibration([-1, 1], [-1, 1], bins=4)
    assert table["predicted"].tolist() == [-1, 1] and table["positions"].tolist() == [1, 1]


def test_a_long_game_counts_once_among_short_ones():
    "Ten games of 20 positions and ten of one, all coins: 95 of 100 intervals contain the middle, or nearly."
    rng, sizes = np.random.default_rng(0), np.repeat([1, 20], 10)
    games = np.repeat(np.arange(20), sizes)
    tables = [calibration(np.zeros(210), np.repeat(rng.choice([-1., 1.], 20), sizes), games) for _ in range(400)]
    assert np.mean([table["low"][0] < 0 < table["high"][0] for table in tables]) > .93
    assert {int(table["games"][0]) for table in tables} == {20}


def test_positions_of_one_game_do_not_narrow_the_interval():
    alone, many = calibration([.1], [1]), calibration([.1] * 50, [1] * 50, [3] * 50)
    assert np.allclose(alone["low"], many["low"]) and calibration([.1] * 50, [1] * 50)["low"] > alone["low"]


# The evaluator


class Gate:
    "An evaluator that waits for a sign."
    def __init__(self): self.open, self.entered = threading.Event(), threading.Event()

    def evaluate(self, inputs, offsets, actions):
        self.entered.set()
        assert self.open.wait(600)
        return np.zeros(len(actions), np.float32), np.zeros((len(inputs), 2), np.float32)


def question(rows): return np.zeros((rows, 4), np.int8), np.zeros(rows + 1, np.int32), np.zeros(0, np.int32)


def test_the_evaluator_counts_batches_by_their_rows():
    gate = Gate()
    gate.open.set()
    with BatchedEvaluator(gate, max_batch=8) as evaluator:
        assert evaluator.get_stats()["batch_sizes"].tolist() == [0] * 9
        for rows in (1, 2, 2, 8, 20): evaluator.evaluate(*question(rows))
    found = evaluator.get_stats()
    assert found["batch_sizes"].tolist() == [0, 1, 2, 0, 0, 0, 0, 0, 2]
    assert found["waits"].sum() == 5 and len(found["waits"]) == len(found["wait_edges_ms"]) + 1
    axis = plot_batch_sizes(found["batch_sizes"]).axes[0]
    assert heights(axis) == found["batch_sizes"].tolist()
    assert np.allclose([bar.get_x() + bar.get_width() / 2 for bar in axis.patches], range(9))


def test_the_evaluator_counts_requests_by_their_wait(monkeypatch):
    monkeypatch.setattr(evaluator_module, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    gate = Gate()
    with BatchedEvaluator(gate, max_batch=8) as evaluator:
        evaluator.submit(*question(1))
        assert gate.entered.wait(600)
        late, lost = evaluator.submit(*question(1)), evaluator.submit(*question(1))
        late.submitted -= 5
        lost.submitted -= 3600
        gate.open.set()
        lost.result(600)
    found = evaluator.get_stats()
    edges, waits = found["wait_edges_ms"], found["waits"]
    assert waits[-1] == 1 and waits[np.searchsorted(edges, 5000)] == 1 and waits.sum() == 3
    assert waits.sum() == found["total_requests"] and found["batch_sizes"].sum() == found["total_batches"] == 2


def test_what_an_evaluator_keeps_does_not_grow():
    gate = Gate()
    gate.open.set()
    with BatchedEvaluator(gate, max_batch=4) as evaluator:
        before = {name: array.nbytes for name, array in evaluator.histograms().items()}
        for rows in range(1, 200): evaluator.evaluate(*question(rows))
        assert {name: array.nbytes for name, array in evaluator.histograms().items()} == before
        evaluator.histograms()["waits"][:] = 0
    assert evaluator.get_stats()["waits"].sum() == 199, "what is returned is a copy"


def test_the_figure_of_the_evaluator():
    "Ten requests of 1 to 10 ms and thirty of 0.1 to 1 ms; two batches of 1 of 4 rows and one full one."
    left, right = plot_evaluator(stats([0, 2, 0, 0, 1], [0, 30, 10, 0, 0])).axes
    (waits,), (fill,) = left.patches, right.patches
    values, edges, _ = waits.get_data()
    assert np.allclose(values, [0, 75, 25, 0, 0]) and np.allclose(edges[1:3], [.1, 1])
    assert np.allclose(left.lines[0].get_xdata(), 2)
    values, edges, _ = fill.get_data()
    assert np.allclose(values[[2, 9]], [100 / 3, 200 / 3]) and math.isclose(values.sum(), 100)


def test_many_sizes_are_drawn_in_groups():
    axis = plot_batch_sizes(np.ones(1025, int)).axes[0]
    assert len(axis.patches) <= 66 and sum(heights(axis)) == 1025
