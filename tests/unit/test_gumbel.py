"""Gumbel roots against a slow search in plain Python, and what they promise."""
import math
from dataclasses import replace

import numpy as np
import pytest

from reference import HashEvaluator, Node, back_up, judge, puct
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.gumbel import (CONSIDERED, PARTS, SCALE, VISITS, begin_halving, finish_halving, halving_order, make_halving)
from alphazero_nb.search.search import Requests, SearchSettings, init_root, run_to_request
from alphazero_nb.search.tree import add_edges, add_node, back_up as spread, make_trees
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.settings import default_settings


@pytest.mark.parametrize("moves, simulations", [(2, 3), (4, 16), (5, 20), (16, 64), (16, 16), (16, 5), (3, 100), (1, 7)])
def test_the_order_is_sequential_halving(moves, simulations):
    "Followed with fixed scores: rounds in which the better half of the moves gets equal visits, until two are left."
    visits, order = [0] * moves, halving_order(moves, simulations)
    for wanted in order:
        fitting = [k for k in range(moves) if visits[k] == wanted]
        assert fitting, "some move has so many visits"
        visits[fitting[0]] += 1   # The lower the number, the better the move
    assert sum(visits) == simulations and visits == sorted(visits, reverse=True)
    if simulations >= moves * max(1, math.ceil(math.log2(moves))): assert min(visits) >= simulations // (moves * max(1, math.ceil(math.log2(moves))))
    if moves > 2 and simulations > 2 * moves: assert abs(visits[0] - visits[1]) <= 1 and visits[2] <= visits[1]


def slow_gumbel(game, evaluator, state, budget, noise):
    "The definition, with floats: returns the edges and the raw value of the root."
    root = Node(game, state)
    root.sums += judge(game, evaluator, root)
    root.visits, raw = 1, float(root.sums[root.mover])
    order = halving_order(min(len(root.edges), CONSIDERED), budget)
    for wanted in order:
        fitting = [k for k, edge in enumerate(root.edges) if edge.visits == wanted]
        k = max(fitting, key=lambda k: noise[k] + logits_of(root, raw)[k])
        node, path = root, []
        while node.edges:
            edge = root.edges[k] if node is root else puct(node, 1.5, .2)
            if edge.child is None: edge.child = Node(game, game.play(node.state, edge.action))
            path.append((node, edge))
            node = edge.child
        back_up(path, node, game.returns(node.state) if node.mover < 0 else judge(game, evaluator, node))
    return root, raw


def logits_of(root, raw):
    "ln π + σ(completed q) of every edge."
    tried = [edge for edge in root.edges if edge.visits]
    total, mass = sum(edge.visits for edge in tried), sum(float(edge.prior) for edge in tried)
    mean = sum(float(edge.prior) * float(edge.value) / edge.visits for edge in tried)
    untried = (raw + total * mean / mass) / (1 + total) if tried else raw
    most = max((edge.visits for edge in root.edges), default=0)
    return [math.log(edge.prior) + SCALE * (VISITS + most) * ((float(edge.value) / edge.visits if edge.visits else untried) + 1) / 2
            for edge in root.edges]


def searched(game, evaluator, state, budget, seed):
    "A search of one tree: trees, halving."
    trees, settings = make_trees(1, budget, game.max_legal, game.state_size, game.players), SearchSettings(budget, proofs=False)
    requests, halving = Requests(game, trees, settings), make_halving(1, budget, game.max_legal)
    init_root(game.api, trees, 0, state)
    while True:
        requests.count, node = run_to_request(game.api, trees, requests.tables, 0, budget, requests.settings[0], 0, None, None, halving)
        if node < 0: return trees, halving
        requests.apply(*evaluator.evaluate(*requests.arguments()))
        if trees.nodes["visits"][0] == 1: begin_halving(trees, halving, 0, np.array([seed], np.uint64), 0, 0)


@pytest.mark.parametrize("name", ["tictactoe", "connect4", "dots(rows=2,cols=2)", "gomoku(size=6)"])
@pytest.mark.parametrize("budget", [3, 16, 60])
def test_the_search_is_that_of_plain_python(name, budget):
    game = get_game(name)
    evaluator, rng = HashEvaluator(game), np.random.default_rng(budget)
    for seed in range(3):
        state = game.new()
        for _ in range(seed): state = game.play(state, int(rng.choice(game.legal_actions(state))))
        trees, halving = searched(game, evaluator, state, budget, seed)
        count = int(trees.nodes["count"][0])
        noise = halving.noise[0, :count].tolist()
        root, raw = slow_gumbel(game, evaluator, state, budget, noise)
        assert trees.edges["visits"][:count].tolist() == [edge.visits for edge in root.edges]
        logits = np.array(logits_of(root, raw))
        policy = np.exp(logits - logits.max())
        most = max(edge.visits for edge in root.edges)
        best = max((k for k in range(count) if root.edges[k].visits == most), key=lambda k: noise[k] + logits[k])
        assert finish_halving(trees, 0, 1, halving) == best
        assert np.allclose(trees.edges["visits"][:count] / PARTS, policy / policy.sum(), atol=1e-3)
        assert halving.on[0] == 0


def test_the_numbers_are_gumbel():
    "Their largest, over moves of equal probability, falls on each move equally often; mean and variance are known."
    game = get_game("gomoku(size=5)")
    numbers = np.concatenate([searched(game, UniformEvaluator(game), game.new(), 1, seed)[1].noise[0] for seed in range(80)])
    assert abs(numbers.mean() - .5772) < .1 and abs(numbers.var() - math.pi ** 2 / 6) < .25


def games_of(name, root, count=12, **changes):
    game = get_game(name)
    settings = default_settings(game)
    settings = replace(settings, search=replace(settings.search, root=root, simulations=8), **changes)
    engine = SelfPlayEngine(game, None, device="cpu", settings=settings, listeners=(), threads=1, games=4, layout="threads")
    with engine: return game, sorted(engine.generate_games(count), key=lambda record: record.number)


@pytest.mark.parametrize("name", ["tictactoe", "pig(goal=10)", "blob"])
def test_self_play_teaches_legal_moves(name):
    "Also with dice and with several worlds: every target is legal and complete, and the games end by the rules."
    game, records = games_of(name, "gumbel", 4, full_search_fraction=1.0, random_start_fraction=0.0)
    for record in records:
        states = game.states_of(record.actions, record.seed)
        assert game.over(states[-1])
        for t, (first, last) in enumerate(zip(record.policy_offsets, record.policy_offsets[1:])):
            legal = game.legal_actions(states[t]) if record.movers[t] >= 0 else []
            assert set(record.policy_actions[first:last]) <= set(legal)
            if last > first: assert abs(int(record.policy_visits[first:last].sum()) - PARTS) <= len(legal)


def test_cheap_searches_are_those_of_puct():
    "Without a full search, both roots play the same games."
    _, one = games_of("tictactoe", "gumbel", full_search_fraction=1e-3)
    _, other = games_of("tictactoe", "puct", full_search_fraction=1e-3)
    assert all(np.array_equal(a.actions, b.actions) for a, b in zip(one, other))


def test_a_winning_move_gets_nearly_all_of_the_policy():
    "Results are exact where the search has seen the end of the game."
    game, records = games_of("tictactoe", "gumbel", 40, full_search_fraction=1.0, random_start_fraction=0.0)
    found = 0
    for record in records:
        states = game.states_of(record.actions, record.seed)
        for t, (first, last) in enumerate(zip(record.policy_offsets, record.policy_offsets[1:])):
            wins = [action for action in game.legal_actions(states[t]) if game.returns(game.play(states[t], action))[record.movers[t]] > 0]
            if not wins or last == first: continue
            share = record.policy_visits[first:last][np.isin(record.policy_actions[first:last], wins)].sum() / PARTS
            found += share > .9
    assert found > 5


def test_another_name_is_refused():
    with pytest.raises(ValueError, match="root is 'gumble'; choose puct or gumbel"): SearchSettings(root="gumble")


def test_a_move_that_is_proven_worse_is_not_played():
    "Two moves: a draw, and one that its last simulation has proven to lose. The second has more visits."
    trees, halving = make_trees(1, 8, 2, 1, 2), make_halving(1, 8, 2)
    root = add_node(trees, 0, -1, 0)
    add_edges(trees, 0, root, 0, np.arange(2, dtype=np.int32), 2)
    spread(trees, root, np.zeros(2, np.float32))
    for seed in range(20):
        trees.edges["prior"][:2] = .5
        begin_halving(trees, halving, 0, np.array([seed], np.uint64), 0, 0)
        trees.edges["visits"][:2], trees.edges["value"][:2], trees.edges["exact"][:2] = (3, 4), (0, -4), 1
        assert finish_halving(trees, 0, 1, halving) == 0


class Three:
    "Three players, four moves each time; the first player may end the game at once with .2 or with .1."
    def __init__(self, seed): self.moves = []
    def mover(self): return -1 if self.moves[:1] in ([0], [1]) or len(self.moves) == 4 else len(self.moves) % 3
    def legal(self): return [0, 1, 2, 3]
    def play(self, action): self.moves.append(action)
    def observe(self): return np.eye(5, dtype=np.int8)[len(self.moves)]
    def returns(self): return [{(0,): .2, (1,): .1}.get(tuple(self.moves[:1]), 0), 0, 0]


def test_the_schedule_decides_also_among_proven_moves_of_three_players():
    game, settings = PythonGame("three", Three, players=3, actions=4, shape=(5,), max_length=4), SearchSettings(16)
    trees, halving, network = make_trees(1, 16, 4, game.state_size, 3), make_halving(1, 16, 4), UniformEvaluator(game)
    requests = Requests(game, trees, settings)
    init_root(game.api, trees, 0, game.new())
    while True:
        requests.count, node = run_to_request(game.api, trees, requests.tables, 0, 16, requests.settings[0], 0, None, None, halving)
        if node < 0: break
        requests.apply(*network.evaluate(*requests.arguments()))
        if trees.nodes["visits"][0] == 1: begin_halving(trees, halving, 0, np.array([1], np.uint64), 0, 0)
    assert sorted(trees.edges["visits"][:4]) == [2, 2, 6, 6]
