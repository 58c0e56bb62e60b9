"Proofs in random games: an exact result is the only one, however players who do not care decide."
import ast
import functools
import re
import threading
import types

import numpy as np
import pytest
import torch

from alphazero_nb.arena.players import RolloutPlayer, get_player
from alphazero_nb.core.compiled import lean_kernel
from alphazero_nb.core.game_check import ContractError
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game
from alphazero_nb.core.python_game import PythonGame, RuleError
from alphazero_nb.core.streams import gamma
from alphazero_nb.games import tictactoe
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.one_game import GameSearch
from alphazero_nb.search.search import Breaks, Requests, SearchSettings, init_root, sample_seeds, search
from alphazero_nb.search.tree import NotFinite, make_trees, root_of, untried_refuge
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.settings import SelfPlaySettings
from alphazero_nb.selfplay.slots import SlotBlock, retrace
from reference import HashEvaluator, Ignorant, Node, late_positions, outcomes_of, proving_search

# Random games: the tree follows from the seed, by arithmetic ---------------------------------------

PLAYERS = np.array([1, 2, 2, 3, 4, 2])   # By kind; kind 1 has opposite results, kind 5 points on the way
RESULTS = np.array([[-1, -1, 1, 1, 1], [-1, 0, 0, 1, 1], [-.3, .2, .2, .8, .8], [-1, -.7, .1, .8, 1]])
_BITS = (1 << 30) - 1


@lean_kernel
def draw(state, salt, below):
    "A number below `below` that follows from the position."
    x = (state[0] << 15 | state[1]) + salt * 7_654_321 & _BITS
    for _ in range(2):
        x = x * 1_540_483_477 & _BITS
        x ^= x >> 13
    return x % below


def start(state, seed):
    state[3], state[4] = seed % 6, seed // 6 % 8   # The kind and the style: which results, and whether there is chance
    state[0], state[1] = seed * 2_654_435_761 >> 15 & 32767, seed * 2_654_435_761 & 32767


def mover(state):
    if state[2] >= 5 or (state[2] > 0 and draw(state, 1, 8) < 2 * state[2] - 1): return -1
    if state[4] >= 4 and state[2] > 0 and draw(state, 2, 4) == 0: return -2
    return draw(state, 3, PLAYERS[state[3]])


def legal(state, actions):
    count = 1 + draw(state, 4, 3)
    for i in range(count): actions[i] = i
    return count


def play(state, action):
    mixed = draw(state, 16 + action, 1 << 30)
    state[0], state[1], state[2] = mixed >> 15, mixed & 32767, state[2] + 1


def returns(state, out):
    for player in range(len(out)): out[player] = RESULTS[state[4] % 4, draw(state, 5 + player, 5)]
    if state[3] == 1: out[1] = -out[0]


def chance(state, probabilities): probabilities[0], probabilities[1] = .25, .75
def observe(state, planes): planes[0] = state[2]


_games = {}


def random_game(kind):
    if kind not in _games:
        more = {} if kind in (0, 1, 3, 4) else dict(zero_sum=False)
        _games[kind] = Game("random", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                            chance=chance, outcomes=2, rewards=kind == 5, state_size=5, players=int(PLAYERS[kind]), actions=3,
                            shape=(1,), max_length=5, **more)
    return _games[kind]


class Guessing:
    "Random logits and values."
    def __init__(self, game, seed): self.players, self.rng = game.players, np.random.default_rng(seed)

    def evaluate(self, inputs, offsets, actions):
        return (self.rng.normal(0, 1.5, len(actions)).astype(np.float32),
                self.rng.uniform(-1, 1, (len(inputs), self.players)).astype(np.float32))


def searched(game, states, budget, leaves=1):
    "The trees of these positions after searches with proofs."
    trees, evaluator = make_trees(len(states), budget, 3, game.state_size, game.players, game.outcomes), Guessing(game, budget)
    trees.random[:] = sample_seeds(len(states), budget)
    for tree, state in enumerate(states): assert init_root(game.api, trees, tree, state)
    requests = Requests(game, trees, SearchSettings(budget), leaves)
    while requests.gather(): requests.apply(*evaluator.evaluate(*requests.arguments()))
    return trees


def below(trees, node):
    "The visited edges of a node, and whether these are all."
    row = trees.nodes[node]
    edges = trees.edges[row["first"]:row["first"] + row["count"]] if row["first"] >= 0 else trees.edges[:0]
    return edges[edges["visits"] > 0], bool(len(edges)) and bool((edges["visits"] > 0).all())


def judged(game, trees, tree):
    "Check each node of a tree. Return how many are proven, how many of these are no ends, and how many are tied."
    known, proven, inner, tied, first = {}, 0, 0, 0, root_of(trees, tree)
    for node in range(first, first + trees.counts[tree]["nodes"]):
        row, state = trees.nodes[node], trees.states[node]
        edges, complete = below(trees, node)
        if row["visits"] == 0: continue
        mean = trees.values[node] / row["visits"]
        if row["exact"]:
            only, = outcomes_of(game, state, known)
            assert np.allclose(mean, only, atol=2e-5), (game.name, state.tolist(), mean, only)
            proven, inner = proven + 1, inner + (row["mover"] >= 0)
        elif row["mover"] >= 0 and len(edges):
            means = edges["value"] / edges["visits"]
            if complete and edges["exact"].all():
                best = edges[means > means.max() - 1e-4]
                assert len(best) > 1 and game.players > 1 and not game.zero_sum, "nothing but a tie is left open"
                tied += 1
            if game.players == 1 or game.zero_sum: assert not (edges["exact"] & (means > .9999)).any(), "a win is a proof"
    return np.array([proven, inner, tied])


def fuzz(count, seed):
    "Search `count` random games of each kind, check all proofs, and return their numbers by kind."
    found = np.zeros((len(PLAYERS), 3), int)
    for kind in range(len(PLAYERS)):
        game, budgets = random_game(kind), (12, 80, 400)
        states = np.stack([game.new(6 * (seed + number) + kind) for number in range(count)])
        for k, budget in enumerate(budgets):
            part = states[k::len(budgets)]
            trees = searched(game, part, budget, leaves=1 + 3 * (k == 1))
            for tree in range(len(part)): found[kind] += judged(game, trees, tree)
    return found


def test_the_random_games_keep_the_contract():
    for kind in range(len(PLAYERS)):
        for number in (0, 7): random_game(kind).check(games=1, seed=6 * number + kind)   # Without chance and with it


def test_proofs_are_the_only_results_of_random_games():
    found = fuzz(60, seed=1)
    assert (found[:, 1] > 20).all() and (found[[2, 3, 4, 5], 2] > 0).all() and not found[:2, 2].any(), found


@pytest.mark.slow
def test_proofs_are_the_only_results_of_5000_random_games():
    found = fuzz(834, seed=1000)
    print(f"\n{6 * 834} games; by kind: proven nodes, those before an end, and those left open by a tie\n{found}")
    assert (found[:, 1] > 300).all() and (found[[2, 3, 4, 5], 2] > 50).all() and not found[:2, 2].any()


@pytest.mark.parametrize("budget", [5, 60, 250])
@pytest.mark.parametrize("kind", ["tictactoe", "connect4", "dots(rows=2,cols=2)", 1, 2, 3, 4])
def test_visits_are_those_of_a_slow_search_with_proofs(kind, budget):
    "Late positions, and random games of two to four players, whose rules could roll but do not."
    if isinstance(kind, str): states = late_positions(get_game(kind), 7, 4, seed=budget)
    else: states = [random_game(kind).new(48 * number + 6 * style + kind) for number in range(3) for style in range(4)]
    game = get_game(kind) if isinstance(kind, str) else random_game(kind)
    for state in states:
        trees = make_trees(1, budget, game.max_legal, game.state_size, game.players, game.outcomes)
        assert init_root(game.api, trees, 0, state)
        evaluator, requests = HashEvaluator(game), Requests(game, trees, SearchSettings(budget))
        while requests.gather(): requests.apply(*evaluator.evaluate(*requests.arguments()))
        root, edges = proving_search(game, evaluator, Node(game, state), budget), trees.edges[:trees.nodes["count"][0]]
        assert [edge.visits for edge in root.edges] == edges["visits"].tolist()
        assert np.allclose(trees.values[0], root.sums, atol=1e-3) and trees.nodes["exact"][0] == (root.exact is not None)


# A player who does not care ------------------------------------------------------------------------


class Indifferent:
    "Player 0 ends the game with 0.8, or lets player 1, who gets nothing either way, choose; between what, the seed says."
    ends, players = [(1, -1), (-1, 1), (.9, .9), (-.9, -.9)], 3
    def __init__(self, seed): self.moves, self.pair = [], self.ends[seed % 4]
    def mover(self): return -1 if self.moves[:1] == [0] or len(self.moves) == 2 else len(self.moves)
    def legal(self): return [0, 1]
    def play(self, action): self.moves.append(action)
    def observe(self): return np.eye(3, dtype=np.int8)[len(self.moves)]

    def returns(self):
        first = .8 if self.moves == [0] else self.pair[self.moves[1]]
        return [first, 0, -first][:self.players]


def indifferent(players=3, **more):
    return PythonGame("indifferent", type("Made", (Indifferent,), dict(players=players)), players=players, actions=2,
                      shape=(3,), max_length=2, **more)


@pytest.mark.parametrize("players", [2, 3])
@pytest.mark.parametrize("leaves", [1, 8])
def test_a_sure_result_is_preferred_to_the_whim_of_a_player_who_does_not_care(players, leaves):
    "The order of this player's actions says nothing: both orders are searched alike, and nothing above the choice is proven."
    game = indifferent(players, **dict(zero_sum=False) if players == 2 else {})
    for seed in range(2):
        found = search(game, Ignorant(game), game.new(seed)[None], SearchSettings(200), leaves=leaves)
        assert found.visits[0].argmax() == 0 and .7 < found.values[0, 0] < .81
        one = GameSearch(game, Ignorant(game), leaves=leaves)
        one.start(game.play(game.new(seed), 1))
        while one.step(101): pass
        assert not one.proven and one.trees.edges["exact"][:2].all() and abs(np.diff(one.trees.edges["visits"][:2])) <= 1
        assert abs(one.trees.values[0, 0] / one.visits) < .02
    for seed, best, value in ((2, 1, .9), (3, 0, .8)):   # No whim: the same result for everybody
        found = search(game, Ignorant(game), game.new(seed)[None], SearchSettings(200))
        assert found.visits[0].argmax() == best and found.values[0, 0] == pytest.approx(value, abs=1e-5)
        assert found.visits.sum() < 200, "the root is proven"


def test_a_position_in_which_every_move_loses_is_searched_to_its_end():
    "Player 0 loses for certain and chooses who wins: all edges are proven losses, and the position is not proven."
    class Kingmaker(Indifferent):
        def mover(self): return -1 if self.moves else 0
        def returns(self): return [[-1, 1, 0], [-1, 0, 1]][self.moves[0]]
    game = PythonGame("kingmaker", Kingmaker, players=3, actions=2, shape=(3,), max_length=1)
    found = search(game, HashEvaluator(game), game.new()[None], SearchSettings(100))
    assert found.visits[0].tolist() == [50, 50] and np.allclose(found.values[0], [-1, .5, .5], atol=.05)


def test_results_of_two_players_are_opposite_unless_the_game_says_otherwise():
    "Default, declaration, and one sentence that says what to do: in the check, in a search, in self-play."
    assert get_game("tictactoe").zero_sum and not get_game("blob(players=3,cards=1)").zero_sum and not get_game("2048").zero_sum
    both, words = indifferent(2), r"zero_sum=False"
    with pytest.raises(ContractError, match=words): both.check()
    with pytest.raises(RuleError) as caught: Agent(both, Ignorant(both), 20).search(both.new())
    assert re.search(words, str(caught.value.__cause__))
    with SelfPlayEngine(both, None, device="cpu", layout="threads", simulations=4, games=4, listeners=()) as engine:
        with pytest.raises(RuntimeError, match=words): engine.generate_games(4)
    indifferent(2, zero_sum=False).check()
    with pytest.raises(ValueError, match="zero_sum is for two players"): indifferent(3, zero_sum=True)
    rules = dict(start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe, chance=chance, outcomes=2,
                 state_size=5, players=2, actions=3, shape=(1,), max_length=5)
    compiled = Game("random", **rules)
    with pytest.raises(ContractError, match=words): compiled.check(games=1, seed=20)
    with pytest.raises(ValueError, match=words): search(compiled, Ignorant(compiled), compiled.new(20)[None], SearchSettings(200))


@pytest.mark.parametrize("name, declared", [("tic_tac_toe", True), ("hex(board_size=3)", True), ("catch", False)])
def test_open_spiel_says_whether_results_are_opposite(name, declared):
    pytest.importorskip("pyspiel")
    word, _, more = name.partition("(")
    assert get_game(f"openspiel(game={word}{',' * bool(more)}{more.rstrip(')')})").zero_sum == declared


# Numbers that are none -----------------------------------------------------------------------------


def error_of(function):
    "The error of a call in a thread. Endless kernels fail the test and do not stop it."
    errors = []

    def call():
        try: function()
        except Exception as error: errors.append(error)
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(600)
    assert not thread.is_alive(), "the call does not end"
    return errors[0] if errors else None


class Ill(Ignorant):
    "Answers well at first, then with a number that is none."
    def __init__(self, game, where, number, good=3): self.game, self.where, self.number, self.good = game, where, number, good
    version = 0

    def evaluate(self, inputs, offsets, actions):
        answers = super().evaluate(inputs, offsets, actions)
        self.good -= 1
        if self.good < 0: answers[self.where][-1] = self.number
        return answers

    def submit(self, *arguments): return types.SimpleNamespace(result=functools.partial(self.evaluate, *arguments))


@pytest.mark.parametrize("where, number", [(0, np.nan), (0, np.inf), (1, np.nan), (1, -np.inf)])
@pytest.mark.parametrize("name", ["tictactoe", "pig", "blob(players=3,cards=2)", "2048"])
def test_an_evaluation_that_is_no_number_is_an_error(where, number, name):
    "In a search, the search of one game, and the slots of self-play: one sentence about the evaluator."
    game = get_game(name)

    def one_game():
        one = GameSearch(game, Ill(game, where, number), leaves=4)
        one.start(game.new())
        while one.step(100): pass

    def slots():
        block, evaluator = SlotBlock(game, 2, SelfPlaySettings(SearchSettings(20)), cached=True), Ill(game, where, number)
        for slot in range(2): block.begin(slot, slot, slot, 0)
        while not block.collect():
            block.advance()
            block.submit(evaluator)
            block.receive()
    calls = [slots, lambda: search(game, Ill(game, where, number), game.new()[None], SearchSettings(100)),
             lambda: Agent(game, Ill(game, where, number), 100).value(game.new())]
    for call in calls + [one_game] * (name == "tictactoe"):
        error = error_of(call)
        assert type(error) is NotFinite and "the evaluator returned NaN or infinity" in str(error), call
        assert "\n" not in str(error) and "Reproduce" not in str(error)


def test_a_network_of_nan_ends_a_run_with_one_sentence():
    game = get_game("tictactoe")
    network = PolicyValueNet(game, preset="tiny")
    with torch.no_grad():
        for parameter in network.parameters(): parameter.fill_(np.nan)
    with SelfPlayEngine(game, network, device="cpu", layout="threads", simulations=8, games=4, listeners=()) as engine:
        error = error_of(lambda: engine.generate_games(4))
    assert error is not None and "returned NaN or infinity" in str(error)


def ill_returns(state, out):
    out[0], out[1] = 1, -1
    if state[11] == 7: out[0] = np.nan


def loud_returns(state, out): out[0], out[1] = 5, -5


@pytest.mark.parametrize("returns, rewards", [(ill_returns, False), (loud_returns, False), (ill_returns, True)])
def test_a_result_that_is_no_number_is_an_error(returns, rewards):
    "Each kernel that reads results says so: searches, self-play with the moves that show it, playouts and minimax."
    game = Game("ill", start=tictactoe.start, mover=tictactoe.mover, legal=tictactoe.legal, play=tictactoe.play, returns=returns,
                observe=tictactoe.observe, state_size=12, players=2, actions=9, shape=(2, 3, 3), max_length=9, rewards=rewards,
                material=tictactoe.returns)
    state, words = game.state_after([0, 4, 1, 3, 8]), "results must lie in"
    for call in (lambda: search(game, Ignorant(game), state[None], SearchSettings(300)),
                 lambda: RolloutPlayer(game, 200).act(state), lambda: get_player("minimax:6", game).act(state)):
        error = error_of(call)
        assert isinstance(error, ValueError) and words in str(error), call
    with SelfPlayEngine(game, None, device="cpu", layout="threads", simulations=8, games=4, listeners=()) as engine:
        error = error_of(lambda: engine.generate_games(8))
    assert words in str(error)
    seed, line = re.search(r"retrace\(game, (\d+), (\[.*?\])\)", str(error)).groups()
    with pytest.raises(ValueError, match=words): retrace(game, int(seed), ast.literal_eval(line))


def endless_chance(state): return 0 if state[0] == 0 else -2
def never_ends(state): return 0


@pytest.mark.parametrize("rule, words", [(endless_chance, "max_length"), (never_ends, "max_length")])
def test_a_game_without_an_end_is_an_error(rule, words):
    "Chance that moves for ever, and playouts that find no end."
    def step(state, action): state[0] = 1
    def both(state, actions):
        actions[0], actions[1] = 0, 1
        return 2
    game = Game("endless", start=start_of_nothing, mover=rule, legal=both, play=step, returns=nothing, observe=nothing_seen,
                chance=chance, outcomes=2, state_size=1, players=2, actions=2, shape=(1,), max_length=9)
    for player in (Agent(game, Ignorant(game), 20), RolloutPlayer(game, 20)) if rule is endless_chance else (RolloutPlayer(game, 20),):
        error = error_of(lambda: player.act(game.new()))
        assert isinstance(error, ValueError) and words in str(error)


def start_of_nothing(state, seed): pass
def nothing(state, out): pass
def nothing_seen(state, planes): pass


@pytest.mark.parametrize("shape", [np.nan, 0.0, -1.0, np.inf])
def test_noise_without_a_shape_is_an_error(shape):
    error = error_of(lambda: gamma(np.zeros(1, np.uint64), 0, shape))
    assert isinstance(error, ValueError) and "positive" in str(error)


@pytest.mark.parametrize("name", ["tictactoe", "dots(rows=2,cols=2)", "pig(goal=20)", "blob(players=3,cards=2)"])
def test_a_search_that_returns_to_python_after_each_simulation_is_the_same(name, monkeypatch):
    "The same visits, values and batches, with one leaf and with several; the same games of self-play."
    game, settings, found = get_game(name), SearchSettings(200, worlds=2), []
    states = np.stack([game.new(seed) for seed in range(3)])

    def results():
        for leaves in (1, 12):
            evaluator = HashEvaluator(game)
            result = search(game, evaluator, states, settings, seed=1, leaves=leaves)
            yield result.visits.tolist(), result.values.tolist(), evaluator.batches
        with SelfPlayEngine(game, None, device="cpu", layout="threads", simulations=20, games=4, seed=3, listeners=()) as engine:
            yield engine.generate_games(6)
    found.append(list(results()))
    monkeypatch.setattr(Breaks, "__enter__", lambda self: self.trees.left.__setitem__(0, 1))
    assert list(results()) == found[0]


class Sees:
    "Likes some actions, and thinks that every position is a draw."
    def __init__(self, *actions): self.liked = actions

    def evaluate(self, inputs, offsets, actions):
        return 10 * np.isin(actions, self.liked).astype(np.float32), np.zeros((len(inputs), 2), np.float32)


def position_searched(game, evaluator, state, simulations):
    "The trees of a finished search of one position, and the edges of its root."
    trees = make_trees(1, simulations, game.max_legal, game.state_size, game.players)
    requests = Requests(game, trees, SearchSettings(simulations))
    init_root(game.api, trees, 0, state)
    while requests.gather(): requests.apply(*evaluator.evaluate(*requests.arguments()))
    first, count = trees.nodes[0]["first"], trees.nodes[0]["count"]
    return trees, trees.edges[first:first + count]


@pytest.mark.parametrize("simulations", [16, 32, 64])
def test_where_every_tried_move_loses_the_rest_is_played_and_not_taught(simulations):
    "Nothing stops an open four. The moves that are not tried yet are no better, and one of them was the whole target."
    game, cell = get_game("gomoku(size=9)"), lambda row, column: 9 * row + column
    state = game.state_after([cell(4, 3), 0, cell(4, 4), 2, cell(4, 5), 4, cell(4, 6)])
    trees, edges = position_searched(game, Sees(cell(4, 2), cell(4, 7)), state, simulations)
    before = edges["visits"].copy()
    chosen = untried_refuge(trees, 0) - trees.nodes[0]["first"]
    assert chosen >= 0 == before[chosen] and (before > 0).sum() > 4 and np.array_equal(edges["visits"], before)
    edges["visits"][chosen] = 1   # Now a move is left that is not refuted
    assert untried_refuge(trees, 0) == -1


@pytest.mark.parametrize("moves, simulations", [([], 64), ([3, 0, 3, 0, 3], 64), ([3, 0, 3, 0, 3, 0], 64), ([], 1)])
def test_a_refuge_is_sought_only_where_all_tried_moves_lose(moves, simulations):
    game = get_game("connect4")
    trees, _ = position_searched(game, Sees(), game.state_after(moves), simulations)
    assert untried_refuge(trees, 0) == -1
