"The compiled search against a slow one written from its definition, and against exact solutions."
import numpy as np
import pytest
import torch
from numba import njit

from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.network.evaluator import NetworkEvaluator
from alphazero_nb.search import search as page
from alphazero_nb.search.tree import keep_subtree, make_trees
from alphazero_nb.search.search import (Requests, SearchSettings, apply_evaluation, init_root, run_to_leaf, search, settings_row,
                                        write_request)
from alphazero_nb.search.agent import Agent
from alphazero_nb.arena.solvers import get_solver
from broken_games import nim
from reference import (HashEvaluator, Ignorant, Node, all_positions, best_actions, late_positions, slow_batches, slow_search, solve,
                       visits_of)


def three_takers():
    "Three players take one to three stones from a pile; who takes two moves again. More than others is worth more."
    def start(state, seed): state[0] = 17
    def mover(state): return state[1] if state[0] > 0 else -1

    def legal(state, actions):
        for i in range(min(3, state[0])): actions[i] = i
        return min(3, state[0])

    def play(state, action):
        state[0] -= action + 1
        state[2 + state[1]] += action + 1
        if action != 1: state[1] = (state[1] + 1) % 3

    def returns(state, out):
        for p in range(3): out[p] = (state[2 + p] * 3 - state[2] - state[3] - state[4]) / 34

    def observe(state, planes):
        planes[0] = state[0]
        for k in range(3): planes[1 + k] = state[2 + (state[1] + k) % 3]

    return Game("three_takers", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                state_size=5, players=3, actions=3, shape=(4,), max_length=17)


_games = {}


def game_named(name):
    if name not in _games: _games[name] = three_takers() if name == "three_takers" else get_game(name)
    return _games[name]


def random_states(game, count, seed, least=0):
    "Open positions after random moves."
    rng, states = np.random.default_rng(seed), []
    while len(states) < count:
        state, path = game.new(int(rng.integers(1000))), []
        while not game.over(state):
            path.append(state)
            state = game.play(state, int(rng.choice(game.legal_actions(state))))
        if len(path) > least: states.append(path[rng.integers(least, len(path))])
    return np.stack(states)


def slow_best(root):
    "The action whose mean result, less two standard errors, is the largest."
    bounds = {edge.action: edge.value / edge.visits - 2 / edge.visits ** .5 for edge in root.edges if edge.visits}
    return max(bounds, key=bounds.get)


NAMES = ["tictactoe", "connect4", "dots(rows=2,cols=2)", "dots(rows=3,cols=3)", "three_takers"]


@pytest.mark.parametrize("budget", [1, 2, 50, 200])
@pytest.mark.parametrize("name", NAMES)
def test_visits_are_those_of_the_slow_search(name, budget):
    game = game_named(name)
    states = random_states(game, 6 if budget < 200 else 4, seed=budget)
    slow = [slow_search(game, HashEvaluator(game), Node(game, state), budget) for state in states]
    want = np.stack([visits_of(game, root) for root in slow])
    values = np.stack([root.sums / root.visits for root in slow])
    evaluator = HashEvaluator(game)
    block = search(game, evaluator, states, SearchSettings(simulations=budget, proofs=False))
    assert evaluator.batches[0] == len(states), "the block's roots are one batch"
    assert block.visits.tolist() == want.tolist()
    assert np.allclose(block.values, values, atol=1e-6)
    assert block.best.tolist() == [slow_best(root) for root in slow]
    for state, visits in zip(states, want):
        alone = search(game, HashEvaluator(game), state[None], SearchSettings(simulations=budget, proofs=False))
        assert alone.visits[0].tolist() == visits.tolist()


@pytest.mark.parametrize("c_puct, fpu", [(0.3, 0.0), (4.0, 0.2), (1.5, 1.0)])
def test_constants_mean_what_they_say(c_puct, fpu):
    game = game_named("dots(rows=2,cols=2)")
    states = random_states(game, 4, seed=5)
    found = search(game, HashEvaluator(game), states, SearchSettings(simulations=80, c_puct=c_puct, fpu=fpu, proofs=False))
    slow = [slow_search(game, HashEvaluator(game), Node(game, state), 80, c_puct, fpu) for state in states]
    assert found.visits.tolist() == [visits_of(game, root).tolist() for root in slow]


@pytest.mark.parametrize("name", ["tictactoe", "connect4", "dots(rows=3,cols=3)"])
def test_visits_with_a_real_network(name):
    "A row's answer does not depend on its neighbours, so the slow search may ask one position at a time."
    game, threads = game_named(name), torch.get_num_threads()
    torch.set_num_threads(1)
    evaluator = NetworkEvaluator(game, sharp(PolicyValueNet(game, preset="tiny")), device="cpu", shapes=(8,))
    states = random_states(game, 5, seed=11)
    found = search(game, evaluator, states, SearchSettings(simulations=60, proofs=False))
    slow = [visits_of(game, slow_search(game, evaluator, Node(game, state), 60)).tolist() for state in states]
    torch.set_num_threads(threads)
    assert found.visits.tolist() == slow


def sharp(network):
    "A fresh network has no opinions; give it some."
    with torch.no_grad():
        for head in (network.policy, network.value): getattr(head, "out", head).weight *= 30
    return network


class Driver:
    "One tree, driven by the kernels one answer at a time."
    def __init__(self, game, evaluator, state, simulations):
        self.game, self.evaluator = game, evaluator
        self.row = settings_row(game, SearchSettings(proofs=False))[0]
        self.trees = make_trees(1, simulations, game.max_legal, game.state_size, game.players)
        assert init_root(game.api, self.trees, 0, state)

    def answer(self, node):
        requests = Requests(self.game, self.trees)
        t, r = self.trees, requests.tables
        write_request(self.game.api, t, r, node, 0)
        requests.count = 1
        logits, values = self.evaluator.evaluate(*requests.arguments())
        apply_evaluation(self.game.api, t, node, logits, values[0])

    def search(self, budget):
        while (node := run_to_leaf(self.game.api, self.trees, 0, budget, self.row)) >= 0:
            self.answer(node)

    def root_edges(self):
        root = self.trees.nodes[0]
        return self.trees.edges[root["first"]:root["first"] + root["count"]]

    def visits(self):
        visits = np.zeros(self.game.actions, int)
        visits[self.root_edges()["action"]] = self.root_edges()["visits"]
        return visits

    def keep(self, action):
        edge, = [e for e in self.root_edges() if e["action"] == action]
        keep_subtree(self.trees, 0, int(edge["child"]))


@pytest.mark.parametrize("name", NAMES)
def test_noised_priors_at_the_root(name):
    "Noise replaces the root's priors and no others; the search goes on from there like the slow one."
    game, rng = game_named(name), np.random.default_rng(3)
    for state in random_states(game, 3, seed=21):
        driver = Driver(game, HashEvaluator(game), state, 100)
        driver.answer(0)
        edges = driver.root_edges()
        noised = (.75 * edges["prior"] + .25 * rng.dirichlet(np.full(len(edges), .5))).astype(np.float32)
        edges["prior"] = noised
        driver.search(100)
        slow = slow_search(game, HashEvaluator(game), Node(game, state), 100, priors=noised)
        assert driver.visits().tolist() == visits_of(game, slow).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_subtree_goes_on_as_if_it_had_always_been_the_tree(name):
    "Search, move, search on, to the end of the game: the visits are those of the slow search's subtree."
    game = game_named(name)
    state = random_states(game, 1, seed=8)[0]
    driver, slow, plies = Driver(game, HashEvaluator(game), state, 90), Node(game, state), 0
    while slow.mover >= 0 and plies < 6:
        slow_search(game, HashEvaluator(game), slow, 90)
        driver.search(90)
        assert driver.visits().tolist() == visits_of(game, slow).tolist(), plies
        assert np.allclose(driver.trees.values[0], slow.sums, atol=1e-6)
        assert (driver.trees.states[0] == slow.state).all()
        edge = max(slow.edges, key=lambda edge: edge.visits)
        driver.keep(edge.action)
        slow, plies = edge.child, plies + 1
        assert driver.trees.nodes[0]["visits"] == slow.visits and driver.trees.nodes[0]["mover"] == slow.mover


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("budget", [1, 3, 64])
def test_visits_sum_to_the_budget_on_legal_moves(name, budget):
    game = game_named(name)
    states = random_states(game, 20, seed=budget)
    found = search(game, HashEvaluator(game), states, SearchSettings(simulations=budget, proofs=False))
    assert (found.visits.sum(1) == budget).all() and (found.visits >= 0).all()
    assert np.allclose(found.policy.sum(1), 1, atol=1e-6)
    for state, visits in zip(states, found.visits):
        assert set(np.flatnonzero(visits)) <= set(game.legal_actions(state))


def test_finished_games_keep_zero_visits_and_disturb_no_other():
    game = game_named("tictactoe")
    won, open_state = game.state_after([0, 3, 1, 4, 2]), game.state_after([0, 3])
    found = search(game, HashEvaluator(game), np.stack([won, open_state, won]), SearchSettings(simulations=30, proofs=False))
    alone = search(game, HashEvaluator(game), open_state[None], SearchSettings(simulations=30, proofs=False))
    assert found.visits.sum(1).tolist() == [0, 30, 0]
    assert found.visits[1].tolist() == alone.visits[0].tolist()


def test_values_are_by_seat_whoever_moves():
    "Seat 1 is about to win: its value is high, seat 0's is low, in the order of the seats."
    game = game_named("tictactoe")
    state = game.state_after([0, 3, 1, 4, 8])
    found = search(game, Ignorant(game), state[None], SearchSettings(simulations=200))
    assert game.mover(state) == 1 and found.visits[0].argmax() == 5
    assert found.values[0, 1] > .9 and found.values[0, 0] < -.9


def test_values_where_the_same_player_moves_again():
    "One line is missing: who draws it has the box and the game."
    game = game_named("dots(rows=1,cols=1)")
    state = game.state_after([0, 1, 2])
    found = search(game, Ignorant(game), state[None], SearchSettings(simulations=10))
    seat = game.mover(state)
    assert found.values[0, seat] > .8 and found.values[0, 1 - seat] < -.8


def test_bad_settings_are_refused():
    for wrong in (0, -5):
        with pytest.raises(ValueError, match=str(wrong)): SearchSettings(simulations=wrong)
    game = game_named("tictactoe")
    with pytest.raises(ValueError, match="over"): Agent(game, Ignorant(game)).act(game.state_after([0, 3, 1, 4, 2]))


def test_agent_is_the_search():
    game = game_named("connect4")
    states = random_states(game, 5, seed=2)
    agent = Agent(game, HashEvaluator(game), simulations=40, leaves=1)
    found = search(game, HashEvaluator(game), states, SearchSettings(simulations=40))
    assert agent.policy(states).tolist() == found.policy.tolist() and agent.value(states).tolist() == found.values.tolist()
    assert agent.acts(states).tolist() == found.best.tolist() == [agent.act(state) for state in states]
    assert agent.policy(states[0]).shape == (1, game.actions), "one state is a block of one"


def wrong_moves(game, states, simulations=1000, chunk=256):
    "Positions in which a search that knows nothing but the rules prefers a move that is not among the best."
    wrong, known = [], {}
    for start in range(0, len(states), chunk):
        part = np.stack(states[start:start + chunk])
        found = search(game, Ignorant(game), part, SearchSettings(simulations=simulations, proofs=False))
        for state, visits, played in zip(part, found.visits, found.best):
            best, worth = best_actions(game, state, known)
            if played not in best: wrong.append((game.text(state), game.mover(state), visits.tolist(), worth))
    return wrong


def test_tictactoe_truth():
    "In every position that can be reached after two moves or more. (One move in, 1,000 simulations are too few.)"
    game = game_named("tictactoe")
    positions = list(all_positions(game, game.new(), {}).values())
    assert len(positions) == 4520
    wrong = wrong_moves(game, [state for state in positions if len(game.legal_actions(state)) <= 7])
    assert not wrong, f"{len(wrong)} wrong, first:\n" + "\n".join(map(str, wrong[0]))


@pytest.mark.parametrize("name", ["dots(rows=2,cols=2)", "dots(rows=3,cols=3)", "dots(rows=1,cols=3)"])
@pytest.mark.parametrize("left, simulations", [(4, 1000), (6, 20_000)])
def test_late_dots_truth(name, left, simulations):
    """Nothing is decided before the last line is drawn, so a search without a network sees only what it reaches: with
    six lines left the tree has 1,957 nodes, of which 1,000 simulations do not even see the ends."""
    game = game_named(name)
    wrong = wrong_moves(game, late_positions(game, left, 200 if left == 4 else 60, seed=4), simulations, chunk=32)
    assert not wrong, f"{len(wrong)} wrong, first:\n" + "\n".join(map(str, wrong[0]))


@pytest.mark.parametrize("first", [-1, 1])
def test_an_action_outside_its_range_is_refused(first):
    def legal(state, actions):
        n = min(3, state[0])
        for i in range(n): actions[i] = first + i
        return n
    game = nim(legal=legal)   # Three actions
    with pytest.raises(ValueError, match="legal returned an action outside 0 to actions - 1"):
        search(game, Ignorant(game), game.new()[None], SearchSettings(8))


def test_a_block_of_nothing_is_nothing():
    game = get_game("tictactoe")
    found = search(game, None, np.zeros((0, game.state_size), np.int16))
    assert found.visits.shape == (0, 9) and found.values.shape == (0, 2)


# Several leaves of one tree


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("leaves", [2, 5, 16])
def test_leaves_gathered_in_one_tree(name, leaves):
    "The same visits and the same values as the slow search, in games of two and three players, with double moves too."
    game = game_named(name)
    for state in random_states(game, 4, seed=leaves):
        settings, evaluator = SearchSettings(simulations=90, proofs=False), HashEvaluator(game)
        found = search(game, evaluator, state[None], settings, leaves=leaves)
        slow = slow_batches(game, HashEvaluator(game), Node(game, state), 90, leaves)
        assert found.visits[0].tolist() == visits_of(game, slow).tolist()
        assert np.allclose(found.values[0], slow.sums / slow.visits, atol=1e-5)
        assert max(evaluator.batches) <= leaves and sum(evaluator.batches) <= 91


def test_one_tree_fills_batches_and_many_trees_do_not_change():
    "The rows of a batch are divided among the positions; with as many positions as rows, nothing differs."
    game = game_named("connect4")
    states, settings = random_states(game, 8, seed=4), SearchSettings(simulations=200)
    alone, together, today = (HashEvaluator(game) for _ in range(3))
    first = search(game, alone, states[:1], settings, leaves=8)
    assert first.visits.sum() == 200 and 2 < np.mean(alone.batches) <= 8
    assert (search(game, HashEvaluator(game), states[:1], settings, leaves=8).visits == first.visits).all()
    found, plain = search(game, together, states, settings, leaves=8), search(game, today, states, settings)
    assert (found.visits == plain.visits).all() and (found.values == plain.values).all()
    assert together.batches == today.batches
    agent = Agent(game, HashEvaluator(game), 200, leaves=8)
    assert agent.act(states[0]) == first.best[0] and agent.acts(states).tolist() == plain.best.tolist()


def test_worlds_share_the_rows_of_a_batch():
    game = get_game("blob(players=3,cards=2)")
    state = np.stack([game.new(3)])
    for leaves in (1, 2, 12):
        evaluator = HashEvaluator(game)
        found = search(game, evaluator, state, SearchSettings(simulations=40, worlds=3), seed=1, leaves=leaves)
        assert found.visits.sum() == 120 and max(evaluator.batches) <= max(3, leaves)
        assert max(evaluator.batches) > 3 or leaves < 12


@pytest.mark.parametrize("leaves", [0, -3, 2.5, True])
def test_an_impossible_number_of_leaves_is_refused(leaves):
    game = game_named("tictactoe")
    with pytest.raises(ValueError, match="leaves is"): Agent(game, Ignorant(game), leaves=leaves)
    with pytest.raises(ValueError, match="leaves is"): search(game, Ignorant(game), game.new()[None], leaves=leaves)


# Proofs


def prover(game, state, budget, leaves=1):
    "A tree after a search with proofs."
    driver = Driver(game, HashEvaluator(game), state, budget)
    requests = Requests(game, driver.trees, SearchSettings(budget), leaves)
    while requests.gather(): requests.apply(*driver.evaluator.evaluate(*requests.arguments()))
    assert requests.pending is None or not requests.pending.any(), "no walk is left pending"
    return driver


def own_value(game, state):
    "What the network of these tests says about a position, by seat."
    legal, mover = game.legal_actions(state), game.mover(state)
    _, values = HashEvaluator(game).evaluate(game.inputs(state).reshape(1, -1), np.array([0, len(legal)]), np.array(legal))
    return np.roll(values[0], mover)


def agree(trees, edges):
    "Whether the best of these proven edges have the same result for every seat."
    means = edges["value"] / edges["visits"]
    results = [trees.values[edge["child"]] / edge["visits"] for edge in edges[means > means.max() - 1e-4]]
    return all(np.allclose(result, results[0], atol=1e-4) for result in results)


PROVEN = ["tictactoe", "dots(rows=2,cols=2)", "connect4", "three_takers"]


@pytest.mark.parametrize("name", PROVEN)
@pytest.mark.parametrize("leaves", [1, 12])
def test_proofs_are_right_and_complete(name, leaves):
    "A node is proven exactly if its edges decide it; proven nodes have the true result, and all sums follow from below."
    game, known, count, rng = game_named(name), {}, 0, np.random.default_rng(5)
    starts = late_positions(game, 6, 8, 3) if name != "connect4" else [game.state_after(moves) for moves in (
        [3, 0, 3, 0, 3, 1], [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2], [3, 2, 3, 4, 4, 3, 2, 5])]
    for state in starts:
        trees = prover(game, state, int(rng.choice([3, 30, 400])), leaves).trees
        for number in range(trees.counts[0]["nodes"]):
            node, sums, position = trees.nodes[number], trees.values[number], trees.states[number]
            if not node["visits"]: continue
            if game.over(position):
                assert node["exact"] and np.allclose(sums, node["visits"] * game.returns(position))
                continue
            edges = trees.edges[node["first"]:node["first"] + node["count"]]
            below = [edge for edge in edges if edge["visits"]]
            for edge in below: assert edge["exact"] == trees.nodes[edge["child"]]["exact"]
            for edge in below: assert np.isclose(edge["value"], trees.values[edge["child"]][node["mover"]], atol=1e-3)
            won = game.zero_sum and any(edge["exact"] and edge["value"] / edge["visits"] > .9999 for edge in below)
            assert bool(node["exact"]) == (won or (all(edges["exact"]) and agree(trees, edges)))
            count += int(node["exact"])
            if not node["exact"]:
                whole = own_value(game, position) + sum(trees.values[edge["child"]] for edge in below)
                assert np.allclose(sums, whole, atol=1e-3)
            elif name != "connect4" and game.players == 2:
                assert np.allclose(sums / node["visits"], solve(game, position, known), atol=1e-5)
            elif name == "connect4":
                best = get_solver(game, limit=None).results(position).max()
                assert np.isclose(sums[node["mover"]] / node["visits"], best, atol=1e-5)
    assert count > 5


def test_a_proven_root_ends_its_search_and_keeps_only_the_best_moves():
    "With proofs, every move with visits is a best one, and the value is the true one."
    game, known, proven = get_game("tictactoe"), {}, 0
    states = [state for state in all_positions(game, game.new(), {}).values() if len(game.legal_actions(state)) <= 6]
    states = np.stack(states[::21])
    found = search(game, HashEvaluator(game), states, SearchSettings(simulations=8000, proofs=True))
    for state, visits, values in zip(states, found.visits, found.values):
        if not prover(game, state, 8000).trees.nodes[0]["exact"]: continue
        assert visits.sum() < 8000
        assert np.allclose(values, solve(game, state, known), atol=1e-5)
        assert set(np.flatnonzero(visits)) <= set(best_actions(game, state, known)[0]) and visits.any()
        proven += 1
    assert proven > .9 * len(states)


@pytest.mark.parametrize("simulations", [1, 2, 3, 5, 8, 16, 64])
def test_a_proven_loss_is_not_chosen(simulations):
    "Whatever the budget, the move of an agent with proofs is no proven loss while another move might be better."
    game = get_game("connect4")
    states = [game.state_after(moves) for moves in ([3, 0, 3, 0, 3], [0, 6, 1, 6, 2, 6, 5], [3, 2, 3, 4, 4, 3, 2, 5, 2])]
    for state in states:
        trees = prover(game, state, simulations).trees
        edges = trees.edges[:trees.nodes[0]["count"]]
        lost = {int(edge["action"]) for edge in edges if edge["exact"] and edge["value"] / edge["visits"] < -.9999}
        agent = Agent(game, HashEvaluator(game), simulations, proofs=True, leaves=1)
        visits = agent.search(state).visits[0]
        assert visits.any() and (len(lost) == len(edges) or not visits[list(lost)].any())


def test_proofs_are_not_used_with_hidden_cards():
    game = get_game("blob(players=3,cards=1)")
    states = np.stack([game.new(seed) for seed in range(4)])
    rows = [search(game, HashEvaluator(game), states, SearchSettings(simulations=60, proofs=proofs), seed=1)
            for proofs in (False, True)]
    assert (rows[0].visits == rows[1].visits).all()


class Counting(Ignorant):
    "Counts the positions that it is asked about."
    def evaluate(self, inputs, offsets, actions):
        self.asked = getattr(self, "asked", 0) + len(inputs)
        return super().evaluate(inputs, offsets, actions)


def test_wins_at_once_are_found_by_the_rules():
    "Column 3 wins for both. The first visit of any other move refutes it, and asks the network nothing."
    game = get_game("connect4")
    state, asked, visits = game.state_after([3, 0, 3, 0, 3])[None], {}, {}
    for find_wins in (False, True):
        evaluator, trees = Counting(game), make_trees(1, 200, 7, game.state_size, 2)
        assert init_root(game.api, trees, 0, state[0])
        requests = Requests(game, trees, SearchSettings(200, find_wins=find_wins))
        while requests.gather(): requests.apply(*evaluator.evaluate(*requests.arguments()))
        edges = trees.edges[:7]
        lost = [column for column in range(7) if column != 3]
        assert edges["exact"][lost].all() and (edges["value"][lost] == -edges["visits"][lost]).all()
        asked[find_wins], visits[find_wins] = evaluator.asked, edges["visits"][lost].tolist()
    assert visits[True].count(1) >= 5 and max(visits[True]) <= 2   # Until the first win is found, every second is asked
    assert min(visits[False]) >= 2 and asked[True] < asked[False] - 4


@pytest.mark.parametrize("name", ["three_takers", "blob(players=3,cards=1)"])
def test_wins_at_once_are_not_looked_for_where_one_says_nothing_of_the_others(name):
    game = game_named(name)
    states = np.stack([game.new(seed) for seed in range(4)])
    one, two = (search(game, HashEvaluator(game), states, SearchSettings(120, find_wins=find_wins), seed=1)
                for find_wins in (False, True))
    assert (one.visits == two.visits).all() and (one.values == two.values).all()


def test_a_kept_subtree_keeps_its_proofs():
    game = get_game("connect4")
    driver = prover(game, game.state_after([3, 0, 3, 0, 3, 1]), 300)
    edges = driver.root_edges()
    action = int(edges["action"][edges["exact"] == 1][0])
    child = driver.trees.nodes[int(edges["child"][edges["exact"] == 1][0])].copy()
    driver.keep(action)
    assert driver.trees.nodes[0]["exact"] == 1 == child["exact"] and driver.trees.nodes[0]["visits"] == child["visits"]
    assert run_to_leaf(game.api, driver.trees, 0, 10_000, settings_row(game, SearchSettings())[0]) == -1
    assert driver.trees.nodes[0]["visits"] == child["visits"]


@pytest.mark.parametrize("name", ["tictactoe", "pig(goal=20)", "blob(players=3,cards=2)"])
def test_very_many_positions_are_searched_in_blocks(name, monkeypatch):
    "Without chance nothing changes; with it, each block has draws of its own, and the same ones again."
    game, made, whole = get_game(name), [], page.make_trees
    over = game.new_match(0)
    while not game.over(over): over = game.pass_chance(game.play(over, game.legal_actions(over)[-1]), 0, 0)[0]
    states = np.stack([game.new_match(seed) if seed % 2 else over for seed in range(90)] + [game.new_match(seed) for seed in range(90)])
    settings = SearchSettings(simulations=24, worlds=2)
    first = search(game, HashEvaluator(game), states, settings, seed=3, leaves=1)
    monkeypatch.setattr(page, "MOST_TREES", 1)
    monkeypatch.setattr(page, "make_trees", lambda count, *sizes: made.append(count) or whole(count, *sizes))
    parts, again = (search(game, HashEvaluator(game), states, settings, seed=3, leaves=16) for _ in range(2))
    worlds = 2 if game.has_hidden_information else 1
    assert made == [64 * worlds, 64 * worlds, 7 * worlds] * 2
    assert (parts.visits == again.visits).all() and (parts.values == again.values).all()
    closed = np.array([game.over(state) for state in states])
    assert (parts.visits.sum(1) > 0).tolist() == (~closed).tolist() and (parts.values[closed] == game.returns(over)).all()
    if name == "tictactoe": assert (first.visits == parts.visits).all() and (first.values == parts.values).all()
    else: assert (first.visits.sum(1) == parts.visits.sum(1)).all()


class MoverOnly(HashEvaluator):
    "An evaluator that knows the value of the mover alone, as many do."
    def evaluate(self, *asked):
        logits, values = super().evaluate(*asked)
        return logits, np.ascontiguousarray(values[:, :1])


class Shorter(HashEvaluator):
    def evaluate(self, *asked):
        logits, values = super().evaluate(*asked)
        return logits[:-1], values


@pytest.mark.parametrize("evaluator", [MoverOnly, Shorter])
def test_answers_of_another_shape_are_refused(evaluator):
    "Compiled code would take the values of other positions for those of the other seats, and read beyond the logits."
    game = get_game("tictactoe")
    with pytest.raises(ValueError, match=r"the evaluator returned logits and values of the shapes .* check your evaluate"):
        search(game, evaluator(game), game.new()[None], SearchSettings(16))


@pytest.mark.parametrize("name, simulations", [("gomoku(size=19)", 100_000), ("go(size=19)", 3_000_000)])
def test_positions_at_once_have_edges_that_can_be_counted(name, simulations):
    game = get_game(name)
    count = page.positions_at_once(game, SearchSettings(simulations))
    assert 1 <= count < 64 and count * (simulations + 2) * game.max_legal < 2 ** 31


def test_a_warm_up_reads_no_place_beyond_its_arrays(monkeypatch):
    "The start is proven within the warm-up."
    from alphazero_nb.search import one_game
    monkeypatch.setattr(one_game, "count_plies", njit(boundscheck=True)(one_game.count_plies.py_func))
    game = get_game("dots(rows=1,cols=1)")
    one = one_game.GameSearch(game, HashEvaluator(game), leaves=64)
    one_game.warm_up(one)   # Would raise an IndexError
