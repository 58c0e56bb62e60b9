"Chance nodes: the contract, searches that do not know the dice, records, matches, boards; Pig and 2048 against other rules."
import hashlib
import json
import re
from functools import lru_cache

import numpy as np
import pytest

from alphazero_nb.arena.ladder import run_ladder
from alphazero_nb.arena.matches import play_match, play_tables
from alphazero_nb.arena.players import RandomPlayer, RolloutPlayer, get_player
from alphazero_nb.arena.solvers import get_solver
from alphazero_nb.core.calls import CHANCE, OVER
from alphazero_nb.core.game_check import ContractError
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.core.records import check_records
from alphazero_nb.core.streams import Purpose, derive_seed, dice, uniform
from alphazero_nb.games.blob import CARDS, hands
from alphazero_nb.games.pig import HOLD, ROLL, PigRollouts, decide, holds, play_outs, position, solve_pig
from alphazero_nb.games.twenty48 import largest, score
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.search import (SearchSettings, apply_evaluation, begin_circle, grow_trees, init_root, next_share,
                                        run_to_leaf, sample_seeds, search, settings_row, start_trees)
from alphazero_nb.search.tree import make_trees, root_of
from alphazero_nb.selfplay.settings import SelfPlaySettings, default_settings
from alphazero_nb.selfplay.slots import SlotBlock
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.replay import Replay
from alphazero_nb.training.trainer import Trainer
from alphazero_nb.ui.match import Match
from alphazero_nb.ui.saved_game import read_saved_game
from alphazero_nb.ui.match_view import match_html, play_text
from alphazero_nb.ui.plots import calibration, network_values, plot_games, value_pairs
from reference import HashEvaluator, explored
from small_run import games_of_threads

GAMES = ["pig(goal=12)", "2048(goal=32)"]


def random_line(game, seed):
    "States, and the actions and outcomes between them, of a random game."
    rng, states, line, rolls = np.random.default_rng(seed), [game.new(seed)], [], 0
    while not game.over(states[-1]):
        if game.mover(states[-1]) == CHANCE:
            (_, (move, *_)), rolls = game.pass_chance(states[-1], seed, rolls), rolls + 1
        else: move = int(rng.choice(game.legal_actions(states[-1])))
        line.append(move)
        states.append(game.play(states[-1], move))
    return states, line


# The contract ----------------------------------------------------------------------------------

def start(state, seed): pass


def mover(state): return -1 if state[0] == 2 else -2 if state[0] == 1 else 0


def legal(state, actions):
    actions[0], actions[1] = 0, 1
    return 2


def play(state, action):
    if state[0] == 1: state[1] = action
    state[0] += 1


def play_alike(state, action): state[0] += 1


def returns(state, out): out[0] = state[1] - 1


def observe(state, planes): planes[state[0]] = 1


def chance(state, probabilities): probabilities[0], probabilities[2] = 0.25, 0.75


def negative(state, probabilities): probabilities[0], probabilities[1] = 1.5, -0.5


def short(state, probabilities): probabilities[0] = 0.5


def empty(state, probabilities): pass


def beyond(state, probabilities): probabilities[3] = 1


def start_with_chance(state, seed): state[0] = 1


def gamble(**changes):
    right = dict(start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe, chance=chance,
                 outcomes=3, state_size=2, players=1, actions=2, shape=(3,), max_length=2)
    return Game("gamble", **{**right, **changes})


def test_a_game_that_ends_with_a_roll_is_not_cut_off():
    from alphazero_nb.core.random_games import random_games
    assert random_games(gamble(), 50, seconds=600).at_limit == 0


def test_the_right_game_keeps_the_laws_and_rolls_by_hand():
    game = gamble()
    game.check()
    rolling = game.play(game.new(), 1)
    assert game.mover(rolling) == CHANCE and not game.over(rolling) and game.has_chance
    assert game.chance(rolling) == [(0, 0.25), (2, 0.75)] and game.legal_actions(rolling) == [0, 2]
    assert game.chance(game.new()) == [] and game.move_name(rolling, 2) == "outcome 2"
    with pytest.raises(ValueError, match="action 1 is not legal here; legal: 0, 2"): game.play(rolling, 1)
    ends = [game.pass_chance(rolling, seed) for seed in range(400)]
    assert all(game.over(state) and game.returns(state)[0] == outcome - 1 for state, (outcome,) in ends)
    assert 0.68 < np.mean([outcome == 2 for _, (outcome,) in ends]) < 0.82
    assert game.pass_chance(game.new(), 0)[1] == []


BROKEN = {
    "negative": (dict(chance=negative), "chance", "a probability must not be negative, but outcome 1 has -0.5"),
    "sum": (dict(chance=short), "chance", "the probabilities must add up to 1, not to 0.5"),
    "empty": (dict(chance=empty), "chance", "the list of outcomes must not be empty"),
    "beyond": (dict(chance=beyond), "chance", "out of bounds"),
    "undeclared": (dict(chance=None, outcomes=0), "mover", "a chance node, but the game has no chance"),
    "first": (dict(start=start_with_chance), "start", "chance must not move first"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_law_is_named_with_the_moves_and_the_position(broken):
    changes, function, words = BROKEN[broken]
    with pytest.raises(ContractError) as error: gamble(**changes).check()
    found = re.fullmatch(r"gamble: (\w+) breaks the contract after moves (\[[\d, ]*\]) \(seed \d+\): ([^\n]*)\.", str(error.value))
    assert found and found[1] == function and words in found[3], str(error.value)
    assert len(json.loads(found[2])) == (0 if broken == "first" else 1)
    if broken in ("negative", "sum", "empty", "undeclared"): assert "position: [1, 0]" in found[3]


class Gamble:
    "The same game in Python; `pairs` are its outcomes."
    pairs = [(0, 0.25), (2, 0.75)]
    def __init__(self, seed): self.moves = []
    def mover(self): return (0, -2, -1)[len(self.moves)]
    def legal(self): return [0, 1]
    def play(self, action): self.moves.append(action)
    def returns(self): return [self.moves[1] - 1.0]
    def observe(self): return np.eye(3, dtype=np.int8)[len(self.moves)]
    def chance(self): return self.pairs
    def text(self): return f"moves so far: {self.moves}"


def python_gamble(outcomes=3, **methods):
    return PythonGame("gamble", type("Made", (Gamble,), methods), players=1, actions=2, outcomes=outcomes, shape=(3,), max_length=2)


def test_the_right_game_in_python_keeps_the_laws(): python_gamble().check()


@pytest.mark.parametrize("pairs, words", [
    ([(0, 1.5), (1, -0.5)], "a probability must not be negative, but outcome 1 has -0.5"),
    ([(0, 0.5)], "the probabilities must add up to 1, not to 0.5"),
    ([], "the list of outcomes must not be empty"),
    ([(0, 0.5), (0, 0.5)], "outcomes must be distinct numbers from 0 to 2"),
    ([(3, 1.0)], "outcomes must be distinct numbers from 0 to 2"),
])
def test_python_games_name_the_law_the_moves_and_the_position(pairs, words):
    with pytest.raises(ContractError) as error: python_gamble(pairs=pairs).check()
    assert words in str(error.value) and re.search(r"after moves \[[01]\] .*position: moves so far: \[[01]\]", str(error.value))


def test_a_python_game_must_declare_its_dice():
    with pytest.raises(ContractError, match="not -2, a chance node, but the game has no chance; position: moves so far"):
        python_gamble(outcomes=0).check()
    with pytest.raises(ContractError, match=r"has no method chance\(\)"): python_gamble(chance=None)
    with pytest.raises(ValueError, match="chance and outcomes go together"): gamble(outcomes=0)


def test_a_roll_depends_on_the_seed_and_its_number_only():
    game = get_game("pig")
    rolling = game.play(game.new(), ROLL)
    other = game.play(game.state_after([ROLL, 5, HOLD, ROLL, 4]), ROLL)
    for seed in (3, 2**62 + 1):
        for number in range(5):
            outcome, = game.pass_chance(rolling, seed, number)[1]
            assert outcome == game.pass_chance(other, seed, number)[1][0] == int(6 * dice(seed, number))


# The search ------------------------------------------------------------------------------------

def slow_search(game, evaluator, state, budget, generator, only=None, c_puct=1.5, fpu=0.2):
    """A search with chance in plain Python: rolls step around a circle of outcomes, from the same place after all moves
    of a player's turn, and equal positions share a node. `only` is the only move to search."""
    random = np.array([generator], np.uint64)

    class Node:
        def __init__(self, state, above=None):
            self.state, self.mover, self.visits, self.edges, self.after = state, game.mover(state), 0, [], {}
            goes_on = above is not None and (self.mover < 0 or self.mover == above.mover)
            self.place = above.place if goes_on else int(uniform(random, 0) * 2 ** 32)
            self.sums = np.zeros(game.players, np.float32)

    def judge(node):
        legal = game.legal_actions(node.state)
        logits, values = evaluator.evaluate(game.inputs(node.state).reshape(1, -1), np.array([0, len(legal)], np.int32),
                                            np.array(legal, np.int32))
        weights = [np.exp(float(logit) - float(max(logits))) for logit in logits]
        node.edges = [dict(action=a, prior=np.float32(w / sum(weights)), n=0, value=np.float32(0), child=None)
                      for a, w in zip(legal, weights)]
        relative = np.roll(values[0], node.mover)
        return game.returns(node.state) + 2 * relative if game.rewards else relative

    def throw(node):
        state = node.state
        node.place = (node.place + 2654435769) % 2 ** 32
        share = (node.place + .5) / 2 ** 32
        while game.mover(state) == CHANCE:
            pairs = game.chance(state)
            outcome = next((o for k, (o, _) in enumerate(pairs) if share < sum(p for _, p in pairs[:k + 1])), pairs[-1][0])
            state, share = game.play(state, outcome), uniform(random, 0)
        if state.tobytes() not in node.after: node.after[state.tobytes()] = Node(state, node)
        return node.after[state.tobytes()]

    def spread():
        "Where there is chance, a search explores as far as the results differ where there is a first choice."
        node = root
        while node.mover == CHANCE or len(node.edges) == 1:
            below = list(node.after.values()) if node.mover == CHANCE else [e["child"] for e in node.edges if e["child"]]
            if not below: break
            node = max(below, key=lambda child: child.visits)
        means = [float(e["value"]) / e["n"] for e in node.edges if e["n"]]
        return 1 if not game.has_chance or len(means) < 2 else min(max(max(means) - min(means), .01), 1)

    def choose(node):
        tried = sum(float(e["prior"]) for e in node.edges if e["n"])
        untried = float(node.sums[node.mover]) / node.visits - at * fpu * np.sqrt(tried)
        mean = lambda e: float(e["value"]) / e["n"] if e["n"] else untried
        return max(node.edges, key=lambda e: explored(mean(e), e["prior"], e["n"], node.visits, at * c_puct))

    root = Node(state)
    root.sums, root.visits = root.sums + judge(root), 1
    root.edges = [edge for edge in root.edges if only in (None, edge["action"])]
    while root.visits <= budget:
        node, path, at = root, [], spread()
        while True:
            if node.mover == CHANCE: edge, child = None, throw(node)
            else:
                edge = choose(node)
                if edge["child"] is None: edge["child"] = Node(game.play(node.state, edge["action"]), node)
                child = edge["child"]
            path.append((node, edge))
            node = child
            if node.mover == OVER or (node.mover >= 0 and not node.visits): break
        result = game.returns(node.state) if node.mover == OVER else judge(node)
        for above, edge in path:
            if edge is not None:
                edge["n"] += 1
                edge["value"] += result[above.mover]
        for seen in [above for above, _ in path] + [node]:
            seen.visits += 1
            seen.sums += result
    return {edge["action"]: edge["n"] for edge in root.edges if edge["n"]}, root.sums / root.visits


@pytest.mark.parametrize("name, plies", [("pig(goal=30)", 6), ("2048(goal=64)", 6), ("2048(goal=64)", 60), ("backgammon", 11)])
def test_visits_are_those_of_a_slow_search_with_the_same_rolls(name, plies):
    game, evaluator = get_game(name), HashEvaluator(get_game(name))
    for seed in range(4):
        states, _ = random_line(game, seed)
        state = next(state for state in states[min(plies, len(states) - 3):] if game.mover(state) >= 0)
        want, mean = slow_search(game, evaluator, state, 150, int(sample_seeds(1, seed)[0]))
        found = search(game, evaluator, state[None], SearchSettings(simulations=150, proofs=False), seed)
        assert {int(a): int(found.visits[0, a]) for a in np.flatnonzero(found.visits[0])} == want
        assert np.allclose(found.values[0], mean, atol=1e-5)


@pytest.mark.parametrize("name, plies", [("pig(goal=30)", 6), ("2048(goal=64)", 60), ("backgammon", 11)])
def test_a_move_that_is_searched_alone_is_explored_as_in_a_slow_search(name, plies):
    game, evaluator = get_game(name), HashEvaluator(get_game(name))
    states, _ = random_line(game, 1)
    state = next(state for state in states[min(plies, len(states) - 3):] if game.mover(state) >= 0 and len(game.legal_actions(state)) > 1)
    for move in game.legal_actions(state)[:4]:
        want, mean = slow_search(game, evaluator, state, 150, int(sample_seeds(1, 5)[0]), move)
        trees = grow_trees(start_trees(game, state[None], SearchSettings(simulations=150, proofs=False), 5, moves=[move]), evaluator)
        root = trees.nodes[root_of(trees, 0)]
        assert want == {move: 150} and root["count"] == 1 and root["visits"] == 151
        assert np.allclose(trees.values[root_of(trees, 0)] / 151, mean, atol=1e-5)


def rolls_of(node_count, rolls):
    "Numbers that decide the rolls of as many chance nodes, (nodes, rolls)."
    trees = make_trees(1, 4, 2, 2, 1, 3)
    trees.random[0] = 7
    found = np.zeros((node_count, rolls))
    for node in range(node_count):
        begin_circle(trees, 0, 0)
        for roll in range(rolls): found[node, roll] = next_share(trees, 0)
    return found


def test_each_roll_is_fair_and_rolls_in_a_row_are_spread():
    shares, n = rolls_of(2000, 34), 2000
    for roll in shares.T:   # Kolmogorov and Smirnov: 2.2 / √n is exceeded once in 8,000 times
        distance = np.abs(np.sort(roll) - (np.arange(n) + .5) / n).max()
        assert distance < 2.2 / n ** .5
    for count in (5, 13, 34):
        for p in (.1, .35, .5):
            hits = (shares[:, :count] < p).sum(1)
            assert np.abs(hits - count * p).max() < 2 and hits.mean() == pytest.approx(count * p, abs=.05)
    assert np.random.default_rng(0).binomial(34, .5, n).std() > 3 * (shares < .5).sum(1).std(), "independent rolls"


def test_the_value_of_a_gamble_is_its_expectation_and_never_proven():
    game = gamble()
    found = search(game, UniformEvaluator(game), game.new()[None], SearchSettings(simulations=4000))
    assert found.values[0, 0] == pytest.approx(0.5, abs=0.05) and found.visits.sum() == 4000
    sure = gamble(returns=lambda state, out: None)   # Every outcome is worth 0: still no proof below a roll
    assert search(sure, UniformEvaluator(sure), sure.new()[None], SearchSettings(simulations=50)).visits.sum() == 50


def test_two_outcomes_with_one_position_share_a_node():
    game = gamble(play=play_alike)
    trees, row = make_trees(1, 30, 2, 2, 1, game.outcomes), settings_row(game, SearchSettings(proofs=False))[0]
    assert init_root(game.api, trees, 0, game.new())
    for _ in range(20):
        node = run_to_leaf(game.api, trees, 0, 30, row)
        if node < 0: break
        apply_evaluation(game.api, trees, node, np.zeros(2, np.float32), np.zeros(1, np.float32))
    assert trees.counts["nodes"][0] == 5, "the root, a roll below each action, and one end below each roll"


def test_a_chance_node_is_not_searched():
    game = get_game("pig")
    with pytest.raises(ValueError, match="chance moves in position 1, so there is nothing to search; roll first"):
        search(game, UniformEvaluator(game), np.stack([game.new(), game.play(game.new(), ROLL)]))


# What a search must not know -------------------------------------------------------------------

def foretold_start(state, seed): state[1], state[2] = seed % 997, seed % 991


def foretold_mover(state): return -1 if max(state[3], state[4]) >= 100 or state[6] >= 1000 else state[0]


def foretold_legal(state, actions):
    actions[0], actions[1] = 0, 1
    return 2 if state[5] > 0 else 1


def foretold_play(state, action):
    seat = state[0]
    state[6] += 1
    if action == 1:
        state[3 + seat] += state[5]
        state[5], state[0] = 0, 1 - seat
        return
    state[1], state[2] = state[1] * 29 % 997 + 1, state[2] * 31 % 991 + 2
    face = 1 + (state[1] + state[2]) % 6
    if face > 1: state[5] += face
    else: state[5], state[0] = 0, 1 - seat


def foretold_returns(state, out):
    for seat in range(2):
        if state[3 + seat] >= 100: out[seat], out[1 - seat] = 1, -1


def foretold_observe(state, planes):
    seat = state[0]
    for place in range(100):
        planes[place], planes[100 + place] = place < state[3 + seat], place < state[4 - seat]
        planes[200 + place], planes[300 + place] = place < state[5], place < state[3 + seat] + state[5]


@lru_cache
def foretold():
    "Pig with its dice in the row, as a game without chance nodes would have to do it."
    return Game("foretold", start=foretold_start, mover=foretold_mover, legal=foretold_legal, play=foretold_play,
                returns=foretold_returns, observe=foretold_observe, state_size=7, players=2, actions=2, shape=(400,), max_length=1001)


@lru_cache
def drawn(count=100):
    "Reachable positions (own, other, turn), and the probabilities of winning after a roll and after holding."
    wins, rng = solve_pig(100, 1e-7), np.random.default_rng(1)
    places = [place for place in rng.integers(100, size=(8 * count, 3)) if place[2] >= 2 and place[0] + place[2] < 100][:count]
    return places, [decide(wins, *place) for place in places]


def mean_loss(actions):
    return float(np.mean([max(pair) - pair[int(action)] for pair, action in zip(drawn()[1], actions)]))


def foretold_rows(seed):
    "The same positions, each with the dice of its own game."
    rows = np.zeros((len(drawn()[0]), 7), np.int16)
    for i, (row, place) in enumerate(zip(rows, drawn()[0])):
        foretold_start(row, derive_seed(seed, Purpose.DICE, i))
        row[3:6] = place
    return rows


def test_the_optimal_policy_of_pig_is_that_of_neller_and_presser():
    wins = solve_pig(100, 1e-7)
    assert wins[0, 0, 0] == pytest.approx(0.5306, abs=5e-5) and (0 < wins[np.nonzero(wins)]).all() and wins.max() < 1
    roll, hold = decide(wins, 0, 0, 20)
    assert roll > hold and decide(wins, 0, 0, 21)[1] > decide(wins, 0, 0, 21)[0], "from nothing, the best play holds at 21"


def test_playouts_of_pig_hold_where_the_rule_says_so():
    "Holding 70 points is the position of the other player with nothing against them."
    held, given = play_outs(np.array([[0, 0, 70], [0, 70, 0]]), 100, 20_000, np.array([1], np.uint64))
    assert abs(held + given) < .04
    assert not holds(0, 5, 21, 100) and holds(0, 3, 21, 100), "21 and an eighth of the difference, rounded"


def test_rolls_of_open_spiel_have_names():
    pytest.importorskip("pyspiel")
    game = get_game("openspiel(game=pig)")
    rolling = game.play(game.new(), 0)
    assert len({game.move_name(rolling, outcome) for outcome in range(6)}) == 6


def test_a_search_of_pig_decides_nearly_as_the_optimal_policy():
    states = np.stack([position(*place) for place in drawn()[0]])
    found = search(get_game("pig"), PigRollouts(), states, SearchSettings(simulations=2000))
    assert mean_loss(found.best) <= 0.005


def test_a_search_that_knows_the_dice_fails():
    "The test above with the dice in the row."
    found = search(foretold(), PigRollouts(), foretold_rows(0), SearchSettings(simulations=2000))
    assert mean_loss(found.best) > 0.02


def searched(game, states, evaluator=None):
    found = search(game, evaluator or PigRollouts(), states, SearchSettings(simulations=300), seed=4)
    return found.visits.tolist(), found.values.tolist()


def test_the_same_position_under_other_seeds_is_searched_alike():
    game, line = get_game("pig"), [ROLL, 3, ROLL, 5, HOLD, ROLL, 2]
    one, two = (searched(game, game.state_after(line, seed)[None]) for seed in (1, 2))
    assert one == two
    assert searched(foretold(), foretold_rows(1)[:20]) != searched(foretold(), foretold_rows(2)[:20]), "which the faulty search fails"


def test_open_spiels_dice_are_not_known_either():
    pytest.importorskip("pyspiel")
    for name in ("pig", "backgammon"):
        game = get_game(f"openspiel(game={name})")
        rows = [game.new(seed) for seed in range(40)]
        one, two = next((a, b) for i, a in enumerate(rows) for b in rows[:i] if game.text(a) == game.text(b))
        assert not np.array_equal(one, two), "the seed is part of the row"
        assert searched(game, one[None], UniformEvaluator(game)) == searched(game, two[None], UniformEvaluator(game))


# Self-play -------------------------------------------------------------------------------------

def played(game, settings, count=12, slots=4, evaluator=None):
    "Records of self-play in one block; after every step, each root is the actual position."
    block, evaluator, done, begun = SlotBlock(game, slots, settings), evaluator or HashEvaluator(game), [], 0
    while len(done) < count:
        for slot in np.flatnonzero(block.slots["number"] < 0):
            if begun < count: block.begin(int(slot), begun, derive_seed(3, Purpose.SELF_PLAY, begun), 0)
            begun += 1
        block.advance()
        for slot in np.flatnonzero((block.slots["number"] >= 0) & (block.slots["done"] == 0)):
            root = root_of(block.trees, slot * block.worlds)
            if not game.has_hidden_information: assert np.array_equal(block.trees.states[root], block.true_states[slot])
            assert block.trees.nodes["mover"][root] >= 0 and block.trees.nodes["parent"][root] == -1
        done += block.collect()
        if block.requests.count: block.requests.apply(*evaluator.evaluate(*block.requests.arguments()))
    return sorted(done, key=lambda record: record.number)


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("keep", [True, False])
def test_records_hold_the_rolls_of_their_seed(name, keep):
    game = get_game(name)
    records = played(game, SelfPlaySettings(SearchSettings(simulations=20), keep_subtree=keep))
    check_records(game, records)
    for record in records:
        states, number = game.states_of(record.actions, record.seed), 0
        assert [game.mover(state) for state in states[:-1]] == record.movers.tolist() and game.over(states[-1])
        for state, move, seat, value, entries in zip(states, record.actions, record.movers, record.values, np.diff(record.policy_offsets)):
            if seat != CHANCE: continue
            assert game.pass_chance(state, record.seed, number)[1][0] == move and np.isnan(value).all() and entries == 0
            number += 1
        assert number


def test_other_neighbours_play_the_same_games():
    game = get_game("pig(goal=12)")
    settings = SelfPlaySettings(SearchSettings(simulations=12))
    assert played(game, settings, slots=1) == played(game, settings, slots=5)


def test_threads_play_the_same_games():
    game = get_game("2048(goal=32)")
    network = PolicyValueNet(game, "tiny")
    assert games_of_threads(game, network, 1, 10) == games_of_threads(game, network, 2, 10)


def test_an_impossible_roll_in_a_record_is_named():
    from dataclasses import replace
    game = get_game("2048(goal=32)")
    record, = played(game, SelfPlaySettings(SearchSettings(simulations=4)), count=1)
    at = int(np.flatnonzero(record.movers == CHANCE)[0])
    occupied = int(np.flatnonzero(game.states_of(record.actions, record.seed)[at][:16])[0])
    actions = record.actions.copy()
    actions[at] = 2 * occupied
    with pytest.raises(ValueError, match=f"at move {at}: its action is not legal"): check_records(game, [replace(record, actions=actions)])
    movers = np.where(record.movers == CHANCE, 0, record.movers).astype(np.int8)
    with pytest.raises(ValueError, match="its mover is not the player to move"): check_records(game, [replace(record, movers=movers)])


@pytest.mark.parametrize("name", GAMES)
def test_rolls_teach_nothing(name):
    game = get_game(name)
    records = played(game, SelfPlaySettings(SearchSettings(simulations=8), full_search_fraction=1.0))
    replay = Replay(game)
    added = replay.add(records)
    assert added == sum(int((np.diff(record.policy_offsets) > 0).sum()) for record in records) > 0
    assert added <= sum(int((record.movers != CHANCE).sum()) for record in records)
    batch = replay.sample(64, np.random.default_rng(0))
    assert np.allclose(batch.policy.sum(1), 1) and np.isfinite(batch.values).all()
    predicted, outcome, _ = value_pairs(records)
    values = network_values(game, UniformEvaluator(game), records)
    moves = np.concatenate([record.movers for record in records])
    assert len(predicted) == len(outcome) <= (moves >= 0).sum() and (np.isnan(values).all(1) == (moves < 0)).all()
    states = np.concatenate([game.states_of(record.actions, record.seed)[:-1] for record in records])[moves >= 0]
    so_far = [game.returns(state) for state in states]
    assert np.allclose(values[moves >= 0], so_far), "a network that expects nothing more"
    assert np.any(so_far) == game.rewards
    assert plot_games(records) is not None and len(calibration(*value_pairs(records))["predicted"])


@pytest.mark.parametrize("name", GAMES)
def test_a_run_trains_and_plays_its_matches(name, tmp_path):
    settings = TrainSettings(games_per_iteration=16, batch_size=16, evaluate_every=1, evaluate_games=4, match_share=1.0)
    run = Trainer(name, "mlp", tmp_path / "run", "cpu", simulations=8, games=16, train_settings=settings, listeners=()).fit(iterations=1)
    assert run.history and len(run.matches) == 1 and 0 <= run.matches[0]["score"] <= 1
    again = Trainer(name, "mlp", tmp_path / "run", "cpu", simulations=8, games=16, train_settings=settings, listeners=()).fit(iterations=1)
    assert again.iteration == 2
    agent = Agent.load(tmp_path / "run", simulations=8, device="cpu")
    assert agent.act(agent.game.new()) in agent.game.legal_actions(agent.game.new())


# The arena -------------------------------------------------------------------------------------

class Timid:
    "Holds as soon as it may."
    name = "timid"
    def __init__(self, game): self.game = game
    def acts(self, states): return np.array([self.game.legal_actions(state)[-1] for state in states])


def test_all_tables_of_an_opening_have_the_same_rolls(monkeypatch):
    game, rolled = get_game("pig(goal=20)"), {}
    original = type(game).pass_chance
    def noted(self, state, seed, number=0):
        after, outcomes = original(self, state, seed, number)
        for k, outcome in enumerate(outcomes): rolled.setdefault((seed, number + k), []).append(outcome)
        return after, outcomes
    monkeypatch.setattr(type(game), "pass_chance", noted)
    result = play_match(game, Timid(game), RandomPlayer(game, 1), games=10, seed=2)
    assert len(result.scores) == 10
    shared = [outcomes for outcomes in rolled.values() if len(outcomes) > 1]
    assert len(shared) > 20 and all(len(set(outcomes)) == 1 for outcomes in shared)


def test_one_player_is_compared_on_the_same_openings_and_rolls():
    game = get_game("2048(goal=256)")
    strong, weak = RolloutPlayer(game, 10, seed=1), RandomPlayer(game, 2)
    result = play_match(game, strong, weak, games=6, seed=3)
    assert len(result.scores) == len(result.lengths) == 6 and result.score > 0.7
    assert play_match(game, weak, strong, games=6, seed=3).score < 0.3
    even = play_match(game, Timid(game), Timid(game), games=6, seed=4)
    assert even.scores.tolist() == [0.5] * 6, "the same play on the same rolls has the same result"
    rungs = list(run_ladder(game, strong, games=3, ladder=("random", "rollouts:5")))
    assert [len(rung.scores) for rung in rungs] == [3, 3]


def test_dice_cannot_be_solved_by_a_table():
    with pytest.raises(ValueError): get_solver(get_game("pig(goal=10)"))


def test_uct_holds_and_rolls():
    game = get_game("pig")
    player = RolloutPlayer(game, 2000, seed=1)   # Each of twenty searches is right in at least nine of ten cases
    for row, action in (position(60, 60, 39), HOLD), (position(0, 0, 2), ROLL):
        assert (player.acts(np.stack([row] * 20)) == action).sum() >= 15


# The board -------------------------------------------------------------------------------------

def test_a_match_shows_rolls_and_keeps_them(tmp_path):
    game = get_game("pig")
    match = Match(game, seat=(0, 1), seed=11)
    assert match.move(ROLL)
    face = game.pass_chance(game.play(game.new(11), ROLL), 11)[1][0] + 1
    assert match.said.startswith(f"Player 1 plays roll. Rolled: {face}.") and len(match.history) == 1
    once = match.state.copy()
    assert match.undo() and match.move(ROLL) and np.array_equal(match.state, once), "taken back, it meets the same roll"
    for _ in range(6): assert match.move(game.legal_actions(match.state)[0])
    assert match.save(tmp_path / "game.json")
    saved = json.loads((tmp_path / "game.json").read_text())
    line = read_saved_game(tmp_path / "game.json")
    assert line.rolls == match.line.rolls == tuple(map(tuple, saved["rolls"]))
    assert all(np.array_equal(a, b) for a, b in zip(line.states, match.line.states)) and f"({face})" not in match_html(match)
    for rolls in (saved["rolls"][:-1], [[]] * 7, [[9], *saved["rolls"][1:]], "six"):
        (tmp_path / "game.json").write_text(json.dumps(dict(saved, rolls=rolls)))
        with pytest.raises(ValueError, match="is damaged"): read_saved_game(tmp_path / "game.json")


def test_2048_is_a_board_for_one():
    game = get_game("2048(goal=32)")
    match, said = Match(game, Agent(game, UniformEvaluator(game), 16), seed=2), []
    assert match.turn and "2048" in match_html(match) and match.hint() and "would play" in match.said
    def ask(prompt): return "" if match.over else game.action_name(game.legal_actions(match.state)[0])
    play_text(match, ask=ask, say=said.append)
    assert match.over and re.search(r"Score \d+, largest tile \d+\.", said[-1]) and any(" New: " in line for line in said)
    assert match.undo() and match.look(1) and match.swap() is False


def test_backgammon_is_playable_with_names_that_depend_on_the_dice():
    pytest.importorskip("pyspiel")
    game = get_game("openspiel(game=backgammon)")
    match, said = Match(game, RandomPlayer(game, 1), seat=0, seed=3), []
    words = iter(["help", "hint"])
    def ask(prompt):
        if len(match.history) > 12: raise EOFError
        assert len(said) < 1000, said[-1]   # A move that is refused is asked for again
        return next(words, None) or game.move_name(match.state, game.legal_actions(match.state)[0])
    play_text(match, ask=ask, say=said.append)
    assert len(match.history) > 12 and sum("Rolled: " in line for line in said) > 6 and any("/" in line for line in said)
    assert "Turn: " in match_html(match)


# Blob ------------------------------------------------------------------------------------------

def test_blobs_next_deal_is_chance():
    game, rng = get_game("blob(players=3,cards=3,game=full)"), np.random.default_rng(0)
    state = game.new(4)
    while game.mover(state) >= 0: state = game.play(state, int(rng.choice(game.legal_actions(state))))
    assert game.chance(state) == [(card, pytest.approx(1 / 52)) for card in range(CARDS)]
    counts, dealt = np.zeros(CARDS), [game.pass_chance(state, seed) for seed in range(300)]
    for after, cards in dealt:
        assert len(cards) == len(set(cards)) == 6 and [sorted(cards[seat::3]) for seat in range(3)] == hands(after)
        assert game.mover(after) >= 0
        counts[cards] += 1
    assert counts.min() > 15 and counts.max() < 60, "each card is dealt in 6 of 52 deals"
    game.check(games=4)
    records = played(game, default_settings(game), count=3, slots=2)
    check_records(game, records)
    assert all((record.movers == CHANCE).sum() == 3 * (2 + 1 + 1 + 1 + 2 + 3) for record in records)


def test_rounds_of_blob_are_what_they_were():
    "Hashes of moves and searches, taken before the next deal became a chance node."
    for name, want in (("blob(players=4,cards=3)", "1f20d65d59ed03e6"), ("blob(players=3,cards=5,deals=all)", "45006576110b91ea")):
        game, found = get_game(name), hashlib.sha256()
        records = played(game, default_settings(game), count=8, slots=4, evaluator=UniformEvaluator(game))
        for record in records:
            for array in (record.actions, record.policy_actions, record.policy_visits): found.update(np.ascontiguousarray(array).tobytes())
            found.update(game.inputs(game.new(record.seed)).tobytes())
        assert found.hexdigest()[:16] == want, name


# Pig and 2048 against other rules ---------------------------------------------------------------

def test_pig_agrees_with_open_spiel():
    pyspiel = pytest.importorskip("pyspiel")
    twin, game, rng = pyspiel.load_game("pig"), get_game("pig"), np.random.default_rng(2)
    for seed in range(60):
        state, other, rolls = game.new(), twin.new_initial_state(), 0
        while not other.is_terminal():
            assert game.mover(state) == (CHANCE if other.is_chance_node() else other.current_player())
            if other.is_chance_node():
                assert game.chance(state) == [(k, pytest.approx(p)) for k, p in other.chance_outcomes()]
                (_, (move,)), rolls = game.pass_chance(state, seed, rolls), rolls + 1
            else:   # OpenSpiel also lets a player hold nothing, and makes it hold what wins
                ours, theirs = set(game.legal_actions(state)), set(other.legal_actions())
                wins, nothing = theirs == {HOLD}, ours == {ROLL}
                assert ours == theirs or wins or nothing
                move = int(rng.choice(sorted(ours & theirs)))
            state = game.play(state, move)
            other.apply_action(move)
        assert game.over(state) and game.returns(state).tolist() == other.returns()


def slow_left(line):
    "A line of 2048 after a move to the left, and its points, from the rules in words."
    tiles, merged, points = [tile for tile in line if tile], [], 0
    while tiles:
        tile = tiles.pop(0)
        if tiles and tiles[0] == tile:
            points += 2 * tile
            merged.append(2 * tiles.pop(0))
        else: merged.append(tile)
    return merged + [0] * (len(line) - len(merged)), points


def slow_move(grid, direction):
    turned = np.rot90(grid, {3: 0, 0: 1, 1: 2, 2: 3}[direction])
    rows = [slow_left(row.tolist()) for row in turned]
    return np.rot90(np.array([row for row, _ in rows]), -{3: 0, 0: 1, 1: 2, 2: 3}[direction]), sum(points for _, points in rows)


def tiles(state): return np.where(state[:16] > 0, 2 ** state[:16].astype(int), 0).reshape(4, 4)


def test_2048_agrees_with_slow_rules():
    game = get_game("2048(goal=512)")
    for seed in range(12):
        states, line = random_line(game, seed)
        points = 0
        assert sorted(set(tiles(states[0]).ravel())) in ([0, 2], [0, 2, 4], [0, 4]) and (tiles(states[0]) > 0).sum() == 2
        for state, move, after in zip(states, line, states[1:]):
            grid = tiles(state)
            if game.mover(state) == CHANCE:
                free = np.flatnonzero(grid.ravel() == 0)
                want = {2 * cell + four: (0.9, 0.1)[four] / len(free) for cell in free.tolist() for four in (0, 1)}
                assert dict(game.chance(state)) == pytest.approx(want)
                grid.ravel()[move // 2] = 2 + 2 * (move % 2)
                assert np.array_equal(tiles(after), grid)
                continue
            moves = {direction: slow_move(grid, direction) for direction in range(4)}
            assert game.legal_actions(state) == [d for d, (board, _) in moves.items() if not np.array_equal(board, grid)]
            points += moves[move][1]
            assert np.array_equal(tiles(after), moves[move][0]) and score(after) == points
            assert [np.argmax(game.observe(state)[:, k // 4, k % 4]) for k in range(16)] == state[:16].tolist()
        assert largest(states[-1]) == tiles(states[-1]).max()
        assert game.returns(states[-1])[0] == pytest.approx(2 * np.log1p(80 * points / (512 * 8)) / np.log(81) - 1)


def test_reaching_the_goal_of_2048_is_worth_1():
    game = get_game("2048(goal=16)")
    ends = [random_line(game, seed)[0][-1] for seed in range(30)]
    assert any(largest(state) == 16 for state in ends)
    assert all(game.returns(state)[0] == 1 for state in ends if largest(state) == 16)


def too_much(state, out): out[0] = 2


def test_points_on_the_way_are_a_part_of_the_result():
    game = get_game("2048(goal=64)")
    states, _ = random_line(game, 3)
    so_far, points = [float(game.returns(state)[0]) for state in states], np.array([score(state) for state in states])
    assert so_far == sorted(so_far) and so_far[0] == -1
    assert so_far[:-1] == pytest.approx((2 * np.log1p(80 * points / (64 * 5)) / np.log(81) - 1)[:-1])
    pig = get_game("pig")
    assert pig.returns(pig.state_after([ROLL, 5, HOLD])).tolist() == [0, 0], "known at the end only"
    law = r"returns breaks the contract after moves \[\] .*results must lie in \[−1, 1\], not \[2"
    with pytest.raises(ContractError, match=law): gamble(rewards=True, returns=too_much).check()


def test_the_symmetries_of_2048_hold_for_its_rules():
    game, grid = get_game("2048(goal=64)"), np.arange(16).reshape(4, 4)
    states, line = random_line(game, 5)
    for k, (observation, action) in enumerate(zip(*game.symmetries)):
        came = observation[:16]
        for state, move in zip(states, line):
            if game.mover(state) == CHANCE: continue
            turned, after = state.copy(), game.play(state, move)
            turned[:16] = state[:16][came]
            assert np.array_equal(game.inputs(state)[observation], game.inputs(turned))
            assert game.legal_actions(turned) == sorted(action[game.legal_actions(state)].tolist())
            assert np.array_equal(game.play(turned, int(action[move]))[:16], after[:16][came])
    assert len({tuple(action) for action in game.symmetries[1].tolist()}) == 8 and game.start_symmetries == (0,)


@pytest.mark.parametrize("name, words", {"pig(goal=5)": "goal is 5; choose 10 to 200", "2048(goal=100)": "goal is 100; choose a power of 2",
                                         "pig(gaol=50)": "Did you mean 'goal'"}.items())
def test_a_bad_goal_is_answered(name, words):
    with pytest.raises(ValueError, match=re.escape(words)): get_game(name)


def test_the_default_players_exist():
    for name in GAMES:
        game = get_game(name)
        for player in ("random", "rollouts:5", *["heuristic"] * (game.heuristic is not None)):
            ends, _ = play_tables(game, [game.new(1)], [[get_player(player, game)] * game.players])
            assert game.over(ends[0])


@pytest.mark.parametrize("tile", [1024, 8192, 32768])
def test_2048_plays_on_after_its_tile(tile):
    "With the largest goal, two tiles of 1024 or more merge and the game goes on; at the default goal of 2048 it is over."
    game, exponent = get_game("2048(goal=131072)"), tile.bit_length() - 1
    state = game.new(0)
    state[:16] = [exponent, exponent] + [0] * 14
    after = game.play(state, 3)   # To the left
    assert after[0] == exponent + 1 and not game.over(after) and 1000 * int(after[18]) + int(after[17]) == 2 * tile
    assert game.measures(game.pass_chance(after, 5)[0])["score"] == [2.0 * tile]
    usual = get_game("2048")
    state = usual.new(0)
    state[:16] = [10, 10] + [0] * 14
    assert usual.over(usual.play(state, 3)) and usual.returns(usual.play(state, 3))[0] == 1


def test_outcomes_that_lead_to_one_position_share_its_branch():
    from alphazero_nb.search.analysis import analyse
    def points(state, out): out[0] = 0
    game = gamble(play=play_alike, returns=points)
    tree = analyse(Agent(game, UniformEvaluator(game), 50), game.new()).tree
    rolls = [branch for branch in tree if branch.branches]
    assert rolls and all(sum(outcome.prior for outcome in branch.branches) == pytest.approx(1) for branch in rolls)
