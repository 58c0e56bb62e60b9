"Plots show the numbers they were given, and the page of a run is whole, alone in its file, and believes nobody."
import ast
import base64
import hashlib
import json
import math
import re
import shlex
import shutil
import threading
import xml.etree.ElementTree as xml
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from torch import nn

from alphazero_nb.checkpoint import read_arrays, write_arrays, write_json
from alphazero_nb.evaluator import BatchedEvaluator, UniformEvaluator
from alphazero_nb.game import get_game
from alphazero_nb.play import play
from alphazero_nb.plots import (BLUE, ORANGE, calibration, elo_mark, html_text, label, network_values, outcome_shares,
                                plot_batch_sizes, plot_calibration, plot_evaluator, plot_games, plot_ladder, plot_losses,
                                plot_policy, plot_strength, prior_and_visits, read_run, report, to_png, value_pairs, wilson)
from alphazero_nb.records import GameRecord, join_records, split_records
from alphazero_nb.search import Agent
from alphazero_nb.slots import SelfPlaySettings
from alphazero_nb.train import Trainer, TrainSettings

GAME = get_game("tictactoe")


def row(minutes, policy, value): return dict(seconds=60 * minutes, policy_loss=policy, value_loss=value, games_per_s=1.0)


def match(score, low, high, opponent="rollouts:100", minutes=1.0, player="me"):
    return dict(player=player, opponent=opponent, score=score, low=low, high=high, seconds=60 * minutes, iteration=1,
                games=40, wins=20, draws=10, losses=10)


def record(length, outcome, values=None, number=0):
    values = np.full((length, 2), np.nan, np.float32) if values is None else np.array(values, np.float32)
    return GameRecord(np.zeros((length, 9), np.int16), np.arange(length, dtype=np.int32), np.arange(length, dtype=np.int8) % 2,
                      values, np.zeros(length + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32),
                      np.array(outcome, np.float32), number, 0, 0)


def title(figure): return figure.texts[0].get_text()
def heights(axis): return [bar.get_height() for bar in axis.patches]


def stats(sizes=(0, 4, 0, 1), waits=None):
    edges = 10.0 ** np.arange(-1, 3)
    waits = np.array([0, 5, 0, 0, 0] if waits is None else waits)
    return dict(batch_sizes=np.array(sizes), waits=waits, wait_edges_ms=edges, total_requests=int(waits.sum()),
                total_batches=int(sum(sizes)), wait_s=.0005 * waits.sum(), busy_s=.002 * sum(sizes))


# Each figure


FIGURES = dict(
    losses=(plot_losses, [[], [row(1, None, None)], [row(1, 2.0, .5)], [row(k, 2 / (k + 1), .5) for k in range(100)]]),
    strength=(plot_strength, [[], [match(1, .9, 1)], [match(0, 0, .1)],
                              [match(.5, .4, .6, name, k) for k in range(9) for name in "abc"]]),
    ladder=(plot_ladder, [[], [match(1, .9, 1)], [match(.1 * k, .1 * k, .1 * k + .05, f"rollouts:{k}") for k in range(10)]]),
    games=(plot_games, [[], [record(5, (1, -1))], [record(k % 300 + 1, (0, 0)) for k in range(900)]]),
    policy=(plot_policy, [dict(names=["a1"], prior=[1.0], visits=[1.0]),
                          dict(names=[f"row{k}" for k in range(200)], prior=np.full(200, .005), visits=np.eye(200)[3])]),
    calibration=(plot_calibration, [calibration([], []), calibration([.5], [1]),
                                    calibration(np.linspace(-1, 1, 99), np.ones(99))]),
    batches=(plot_batch_sizes, [[0], [0, 1], [0] * 256 + [9], np.arange(4097)]),
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
        assert name == "ladder" or figure.axes[0].get_ylabel(), "the ladder's rungs have names instead"
        png = to_png(figure)
        assert png[:4] == b"\x89PNG" and len(png) < 40_000


@pytest.mark.parametrize("name", set(FIGURES) - {"policy"})
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


def test_games_are_counted():
    records = [record(5, (1, -1)), record(5, (-1, 1)), record(9, (0, 0)), record(7, (1, -1))]
    assert outcome_shares(records) == {"seat 0": .5, "seat 1": .25, "draw": .25}
    left, right = plot_games(records).axes
    assert heights(left) == [2, 0, 1, 0, 1]
    assert np.allclose([bar.get_x() + bar.get_width() / 2 for bar in left.patches], [5, 6, 7, 8, 9])
    assert [bar.get_width() for bar in right.patches] == [50, 25, 25]
    low, high = wilson(.5, 4)
    assert np.allclose(bars(right)[0], [[100 * low, 0], [100 * high, 0]])
    wide = plot_games([record(k, (0, 0)) for k in range(1, 500)]).axes[0]
    assert len(wide.patches) <= 41 and sum(heights(wide)) == 499


def test_wilson_is_the_formula_of_the_arena():
    from alphazero_nb.arena import MatchResult
    for scores in ([1.], [0.], [1., .5, 0.], [1.] * 30 + [0.]):
        result = MatchResult("a", "b", np.array(scores), np.zeros(len(scores)))
        assert np.allclose(wilson(result.score, len(scores)), result.interval)


# A position


class Told:
    "Answers with given logits and the same values everywhere, the mover first."
    def __init__(self, logits, values=(.25, -.25)): self.logits, self.values, self.version = logits, values, 0

    def evaluate(self, observations, offsets, actions):
        return np.array([self.logits[a] for a in actions], np.float32), np.tile(np.float32(self.values), (len(observations), 1))


def test_prior_is_the_softmax_over_legal_moves_and_visits_are_the_search():
    state, logits = GAME.replay([4, 0, 8]), np.arange(9) / 4
    agent = Agent(GAME, Told(logits), simulations=30)
    look = prior_and_visits(agent, state)
    legal = GAME.legal_actions(state)
    weights = np.exp(logits[legal])
    assert look["actions"].tolist() == legal and look["names"] == [GAME.action_name(a) for a in legal]
    assert np.allclose(look["prior"], weights / weights.sum())
    assert np.array_equal(look["visits"], agent.policy(state)[0, legal]) and np.array_equal(look["values"], agent.value(state)[0])
    axis = plot_policy(look).axes[0]
    assert np.allclose(heights(axis), np.concatenate([100 * look["prior"], 100 * look["visits"]]))
    assert [tick.get_text() for tick in axis.get_xticklabels()] == look["names"]


def test_a_finished_game_has_no_policy():
    with pytest.raises(ValueError, match="over"):
        prior_and_visits(Agent(GAME, UniformEvaluator(GAME)), GAME.replay([0, 3, 1, 4, 2]))


def test_of_many_moves_the_weightiest_are_shown_in_their_order():
    prior, visits = np.zeros(100), np.zeros(100)
    prior[[70, 3]], visits[[50, 3]] = [.6, .4], [.9, .1]
    axis = plot_policy(dict(names=[str(k) for k in range(100)], prior=prior, visits=visits), most=3).axes[0]
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
    p, n, z = 5 / 6, 2, 1.96
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


def test_positions_of_one_game_do_not_narrow_the_interval():
    alone, many = calibration([.1], [1]), calibration([.1] * 50, [1] * 50, [3] * 50)
    assert np.allclose(alone["low"], many["low"]) and calibration([.1] * 50, [1] * 50)["low"] > alone["low"]


# The evaluator


class Gate:
    "An evaluator that waits for a sign."
    def __init__(self): self.open, self.entered = threading.Event(), threading.Event()

    def evaluate(self, observations, offsets, actions):
        self.entered.set()
        assert self.open.wait(30)
        return np.zeros(len(actions), np.float32), np.zeros((len(observations), 2), np.float32)


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


def test_the_evaluator_counts_requests_by_their_wait():
    gate = Gate()
    with BatchedEvaluator(gate, max_batch=8) as evaluator:
        evaluator.submit(*question(1))
        assert gate.entered.wait(10)
        late, lost = evaluator.submit(*question(1)), evaluator.submit(*question(1))
        late.submitted -= 5
        lost.submitted -= 3600
        gate.open.set()
        lost.result(10)
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


# The page


SMALL = dict(preset="tiny", device="cpu", simulations=8, games=16, layout="threads", listeners=())
QUICK = TrainSettings(games_per_iteration=16, batch_size=32, uses_per_position=2, evaluate_every=1, evaluate_games=4,
                      yardstick="random")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots") / "my run"
    Trainer("tictactoe", folder=folder, settings=QUICK, **SMALL).fit(iterations=2)
    return folder


@pytest.fixture
def folder(trained, tmp_path): return shutil.copytree(trained, tmp_path / "it's a run")


def look(path):
    "The parsed page; fails if it is not well-formed, not small, or not alone in its file."
    text = path.read_text(encoding="utf-8")
    assert len(text) < 1_000_000 and text.startswith("<!DOCTYPE html>")
    page = xml.fromstring(text.partition("\n")[2])
    for element in page.iter():
        assert element.tag in {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "img", "pre", "div",
                               "table", "tr", "th", "td"}, element.tag
        assert not [name for name in element.attrib if name.startswith("on")], element.attrib
        assert element.get("href") is None and element.get("src", "data:image/png;base64,").startswith("data:image/png;base64,")
    rules = next(meta for meta in page.iter("meta") if meta.get("http-equiv") == "Content-Security-Policy").get("content")
    assert rules.split("; ")[0] == "default-src 'none'" and "script" not in rules
    assert not re.search(r"url\(|@import|https?:", text)
    return page


def change(path, **values): write_json(path, dict(json.loads(path.read_text()), **values))
def said(page): return "".join(page.itertext())


def images(page):
    found = {}
    for image in page.iter("img"):
        content = base64.b64decode(image.get("src").partition(",")[2])
        assert content[:4] == b"\x89PNG" and len(content) < 40_000
        found[image.get("alt")] = content
    return found


def test_the_page_of_a_run(folder):
    path = report(folder)
    page = look(path)
    assert path == folder / "report.html" and not plt.get_fignums()
    alts = " | ".join(images(page))
    for part in ("policy loss went", "Elo against random", "The search plays", "games of", "The search is off by"):
        assert part in alts, part
    run = read_run(folder)
    last = run.records[-1]
    assert GAME.text(GAME.replay(last.actions.tolist(), last.seed)) in said(page)
    for part in ("2 iterations, 32 games", "settings.uses_per_position", "search.simulations"): assert part in said(page), part
    assert sum(cell.text == "random" for cell in page.iter("td")) == 2 + 1, "two matches and the yardstick among the settings"


def test_a_page_takes_part_in_no_training(folder):
    files = lambda: {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    before = files()
    report(folder)
    assert {name: content for name, content in files().items() if name.name != "report.html"} == before
    assert Trainer("tictactoe", folder=folder, settings=QUICK, **SMALL).fit(iterations=1).iteration == 3


def test_the_ladder_is_shown_where_it_is_given(folder):
    page = look(report(folder, [match(.9, .8, .95, "rollouts:400"), match(1, .9, 1, "random")]))
    assert "me: stronger than 2 of 2 opponents" in images(page) and "rollouts:400" in said(page)


def test_the_commands_on_the_page_say_what_they_should(folder):
    lines = [line for block in look(report(folder)).iter("pre") for line in (block.text or "").split("\n")]
    shell = [shlex.split(line) for line in lines if line.startswith("alphazero-nb")]
    assert shell == [["alphazero-nb", "play", str(folder)], ["alphazero-nb", "arena", str(folder), "rollouts:400"]]
    board = ast.parse(next(line for line in lines if line.startswith("play("))).body[0].value
    assert ast.literal_eval(board.args[0]) == str(folder) and callable(play)
    call = ast.parse(next(line for line in lines if line.startswith("run = Trainer("))).body[0].value
    assert [ast.literal_eval(argument) for argument in call.args] == ["tictactoe", "tiny", str(folder)]
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    assert ast.literal_eval(given["seed"]) == 0 and ast.literal_eval(given["simulations"]) == 8
    settings = {keyword.arg: ast.literal_eval(keyword.value) for keyword in given["settings"].keywords}
    assert TrainSettings(**settings) == QUICK


def test_a_run_that_has_just_started(tmp_path):
    write_json(tmp_path / "config.json", dict(game="connect4", preset="small", seed=0))
    page = look(report(tmp_path))
    assert "No iteration has ended yet" in said(page) and not images(page) and "run.fit" in said(page)


def test_a_run_that_has_nothing_to_learn_from(tmp_path):
    Trainer("tictactoe", folder=tmp_path / "r", settings=TrainSettings(games_per_iteration=4, evaluate_every=0),
            selfplay=SelfPlaySettings(full_share=0), **SMALL).fit(iterations=1)
    alts = images(look(report(tmp_path / "r")))
    assert "No losses yet" in alts and "No matches yet" in alts


def test_a_network_of_ones_own(tmp_path):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy, self.value = nn.Linear(GAME.observation_size, 9), nn.Linear(GAME.observation_size, 2)

        def forward(self, x): return self.policy(x.flatten(1)), self.value(x.flatten(1)).tanh()
    Trainer("tictactoe", folder=tmp_path / "r", network=Own(), settings=QUICK, **dict(SMALL, preset="custom")).fit(iterations=1)
    page = look(report(tmp_path / "r"))
    assert "network=your_network" in said(page) and "alphazero-nb play" not in said(page) and len(images(page)) == 4


def test_a_game_that_is_not_known_here(folder):
    change(folder / "config.json", game="halma<b>(size=9)")
    page = look(report(folder))
    last = read_run(folder).records[-1]
    assert "The rules of halma<b>(size=9) are not known here" in said(page) and str(last.actions.tolist()) in said(page)
    assert "Trainer(" not in said(page)


def test_measured_layouts_are_shown(folder):
    rows = [dict(name=name, evals_per_s=rate, evals_per_s_low=rate / 2, evals_per_s_high=2 * rate)
            for name, rate in (("single thread", 2000.0), ("$processes<i>", 3000.0))]
    write_json(folder / "layout.json", dict(machine={}, layout={}, measured=rows))
    cells = [cell.text for cell in look(report(folder)).iter("td")]
    first = cells.index("$processes<i>")
    assert cells[first:first + 4] == ["$processes<i>", "3,000", "1,500 to 6,000", "single thread"]
    write_json(folder / "layout.json", dict(machine={}, layout={}, measured=[]))
    assert "Who plays fastest" not in said(look(report(folder)))


HOSTILE = ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "&lt;b&gt; ' \" `", "$\\frac{",
           "a\u202eb\x00\x1b[31m\ud800", "]]><!--", "{0} {config} %s", "; rm -rf ~ #", "x" * 5000]


def test_names_from_a_stranger_are_only_names(folder):
    config, manifest = json.loads((folder / "config.json").read_text()), json.loads((folder / "manifest.json").read_text())
    settings = dict(config["settings"], yardstick=HOSTILE[0], **{word: word for word in HOSTILE})
    write_json(folder / "config.json", dict(config, settings=settings))
    matches = [dict(manifest["matches"][0], opponent=word, player=word) for word in HOSTILE]
    plan = {word: {word: [word]} for word in HOSTILE}
    write_json(folder / "manifest.json", dict(manifest, matches=matches, plan=dict(plan, search=HOSTILE[0])))
    page = look(report(folder, matches))
    for word in HOSTILE:
        shown = "".join(letter if letter.isprintable() else "�" for letter in word)[:200]
        assert sum(shown in (cell.text or "") for cell in page.iter("td")) >= 5, word


def test_a_stranger_s_game_name_is_no_command(folder):
    change(folder / "config.json", game="connect4; rm -rf ~")
    page = look(report(folder))
    assert not [block for block in page.iter("pre") if "rm -rf" in (block.text or "")]


def test_a_deep_nest_is_cut(folder):
    text = (folder / "manifest.json").read_text().strip()
    (folder / "manifest.json").write_text(text[:-1] + ',"plan":' + '{"a":' * 470 + "1" + "}" * 471)
    assert "a.a.a.a" in [cell.text for cell in look(report(folder)).iter("td")]


def test_escaped_and_visible():
    assert html_text("a<b>&\"'") == "a&lt;b&gt;&amp;&quot;&#x27;" and html_text("a\u202eb\x07") == "a�b�"
    assert len(html_text("x" * 1000)) == 301 and label("$x$\ny") == r"\$x\$�y" and len(label("y" * 99)) == 24


# Damage


def rewrite_games(folder, edit):
    "Changes the newest games and their hash, as a stranger could."
    manifest = json.loads((folder / "manifest.json").read_text())
    entry = manifest["games"][-1]
    arrays = read_arrays(folder / entry["file"])
    edit(arrays)
    entry["sha256"] = write_arrays(folder / entry["file"], arrays)
    write_json(folder / "manifest.json", manifest)


def rewrite_rows(folder, which, **values):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest[which][-1].update(values)
    write_json(folder / "manifest.json", manifest)


def pickled(folder):
    class Bad:
        def __reduce__(self): return (print, ("code ran",))
    rewrite_games(folder, lambda arrays: None)
    manifest = json.loads((folder / "manifest.json").read_text())
    entry = manifest["games"][-1]
    np.savez(folder / entry["file"], length=np.array([Bad()], object))
    entry["sha256"] = hashlib.sha256((folder / entry["file"]).read_bytes()).hexdigest()
    write_json(folder / "manifest.json", manifest)


def elsewhere(folder):
    "A whole file of games with its right hash, beside the run and not in it."
    shutil.copy(folder / "games/000002.npz", folder.parent / "secret.npz")
    rewrite_rows(folder, "games", file="games/../../secret.npz")


def cut(arrays):
    "Takes the last move of the last game away."
    games = split_records(arrays)
    last = games[-1]
    parts = {name: getattr(last, name)[:-1] for name in ("states", "actions", "movers", "values", "policy_offsets")}
    end = parts["policy_offsets"][-1]
    parts |= dict(policy_actions=last.policy_actions[:end], policy_visits=last.policy_visits[:end])
    arrays.update(join_records([*games[:-1], replace(last, **parts)]))


def half(path): path.write_bytes(path.read_bytes()[:len(path.read_bytes()) // 2])
def newest(folder, key): return folder / json.loads((folder / "manifest.json").read_text())[key]["file"]


def no_archive(folder):
    (folder / "games/000002.npz").write_bytes(b"PK\x03\x04 nothing")
    rewrite_rows(folder, "games", sha256=hashlib.sha256(b"PK\x03\x04 nothing").hexdigest())


def negative(arrays): arrays["length"][:2] = -1, arrays["length"][:2].sum() + 1


BACKWARDS = dict(name="a", evals_per_s=1, evals_per_s_low=2, evals_per_s_high=3)
DAMAGE = dict(
    no_folder=lambda f: shutil.rmtree(f),
    no_run=lambda f: (f / "config.json").unlink(),
    half_config=lambda f: half(f / "config.json"),
    config_list=lambda f: (f / "config.json").write_text("[1, 2]"),
    config_folder=lambda f: ((f / "config.json").unlink(), (f / "config.json").mkdir()),
    config_deep=lambda f: (f / "config.json").write_text('{"a":' * 100_000),
    game_number=lambda f: change(f / "config.json", game=4),
    seed_text=lambda f: change(f / "config.json", seed="0); import os"),
    strange_preset=lambda f: change(f / "config.json", preset="enormous"),
    half_manifest=lambda f: half(f / "manifest.json"),
    manifest_without_matches=lambda f: (f / "manifest.json").write_text(json.dumps({"iteration": 1})),
    seconds_text=lambda f: change(f / "manifest.json", seconds="<b>"),
    iteration_nan=lambda f: change(f / "manifest.json", iteration=math.nan),
    history_text=lambda f: rewrite_rows(f, "history", policy_loss="1"),
    history_infinite=lambda f: rewrite_rows(f, "history", value_loss=math.inf),
    history_of_numbers=lambda f: change(f / "manifest.json", history=[1]),
    score_seven=lambda f: rewrite_rows(f, "matches", score=7),
    interval_backwards=lambda f: rewrite_rows(f, "matches", low=.9, high=.1),
    opponent_number=lambda f: rewrite_rows(f, "matches", opponent=3),
    games_elsewhere=elsewhere,
    games_absolute=lambda f: rewrite_rows(f, "games", file="/etc/passwd"),
    games_missing=lambda f: (f / "games/000002.npz").unlink(),
    games_half=lambda f: half(f / "games/000002.npz"),
    games_pickled=pickled,
    games_no_archive=no_archive,
    games_without_outcome=lambda f: rewrite_games(f, lambda a: a.pop("outcome")),
    games_too_short=lambda f: rewrite_games(f, lambda a: a.update(actions=a["actions"][:-1])),
    games_negative_length=lambda f: rewrite_games(f, negative),
    games_strange_seat=lambda f: rewrite_games(f, lambda a: a["movers"].__setitem__(0, 9)),
    games_strange_result=lambda f: rewrite_games(f, lambda a: a["outcome"].__setitem__(0, 50)),
    games_illegal=lambda f: rewrite_games(f, lambda a: a["actions"].__setitem__(slice(None), 4)),
    games_cut=lambda f: rewrite_games(f, cut),
    games_of_words=lambda f: rewrite_games(f, lambda a: a.update(movers=a["movers"].astype("U1"))),
    network_missing=lambda f: newest(f, "network").unlink(),
    network_half=lambda f: half(newest(f, "network")),
    layout_text=lambda f: write_json(f / "layout.json", dict(measured=[dict(name="a", evals_per_s="fast")])),
    layout_backwards=lambda f: write_json(f / "layout.json", dict(measured=[BACKWARDS])))


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_one_sentence(folder, kind, capfd):
    DAMAGE[kind](folder)
    with pytest.raises(ValueError) as raised: report(folder)
    sentence = str(raised.value)
    assert "\n" not in sentence and 10 < len(sentence) < 400 and sentence.endswith(".")
    assert not (folder / "report.html").exists() and "code ran" not in capfd.readouterr().out
