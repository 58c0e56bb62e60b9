"Luck-adjusted results: a slow reference with fractions, exact values of Pig, any evaluator, deals, matches, and a game with a person."
import copy
import importlib.util
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from alphazero_nb.ablate import GAMES as GAMES_WON, WITHOUT_LUCK, Points, _cell, adjusted_scores, points_row
import alphazero_nb.arena.luck as luck_module
import alphazero_nb.ui.match as match_module
from alphazero_nb.arena.ladder import run_ladder
from alphazero_nb.arena.luck import (DRAWS, FEWEST, REPEATED, NetworkAlone, OneRollAhead, SeatValues, chance_luck, deal_luck, fresh_deals, game_luck,
                                     luck_evaluator, luck_slopes, quick_player, seat_values)
from alphazero_nb.arena.matches import MatchResult, mean_result, own_part, play_duplicate, play_match, play_tables
from alphazero_nb.arena.players import HeuristicPlayer, Player, RandomPlayer, RolloutPlayer, get_player
from alphazero_nb.core.calls import CHANCE
from alphazero_nb.core.game import Game
from alphazero_nb.core.intervals import mean_interval
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.core.registry import get_game
from alphazero_nb.core.streams import Purpose, derive_seed
from alphazero_nb.games.pig import HOLD, ROLL, solve_pig
from alphazero_nb.network.evaluator import NetworkEvaluator
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.search.agent import Agent
from alphazero_nb.ui.match import Match, luck_words
from alphazero_nb.ui.match_view import match_html, play_text
from reference import HashEvaluator


# Games ---------------------------------------------------------------------------------------------------------------

def two_start(state, seed): pass


def two_mover(state):
    if state[0] >= 6: return -1
    return -2 if state[0] % 3 else state[0] // 3   # A seat moves, then chance twice


def two_legal(state, actions):
    actions[0], actions[1] = 0, 1
    return 2


def two_chance(state, probabilities):
    if state[0] % 3 == 1: probabilities[0], probabilities[2] = 0.25, 0.75
    else: probabilities[0], probabilities[1], probabilities[2] = 0.5, 0.25 + 0.125 * (state[1] % 2), 0.25 - 0.125 * (state[1] % 2)


def two_play(state, action):
    state[1] = 3 * state[1] + action
    state[0] += 1


def two_returns(state, out):
    for seat in range(2): out[seat] = (state[1] % (5 + seat)) / 5 - 0.5


def two_observe(state, planes):
    planes[0], planes[1], planes[2] = state[0], state[1] % 100, state[1] // 100


def two_rolls():
    "Two rolls after each move: a chance node follows a chance node, and the second roll depends on the first."
    return Game("two-rolls", start=two_start, mover=two_mover, legal=two_legal, play=two_play, returns=two_returns,
                observe=two_observe, chance=two_chance, outcomes=3, state_size=2, players=2, actions=2, shape=(3,),
                max_length=6, zero_sum=False)


def race():
    "Three players and a die, from the examples."
    file = Path(__file__).parents[2] / "examples" / "race.py"
    spec = importlib.util.spec_from_file_location("race_example", file)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return get_game("race")


class Coins:
    "Rules in Python: each of two players tosses a coin that lands on its head in a third of cases; more heads win."
    def __init__(self, seed): self.heads, self.seat, self.tossing = [0, 0], 0, False
    def mover(self): return -1 if self.seat == 2 else CHANCE if self.tossing else self.seat
    def legal(self): return [0, 1]
    def chance(self): return [(0, 2 / 3), (1, 1 / 3)]
    def returns(self): return [float(np.sign(self.heads[0] - self.heads[1])), float(np.sign(self.heads[1] - self.heads[0]))]
    def observe(self): return np.array([*self.heads, self.seat])

    def play(self, action):
        if not self.tossing: self.tossing = True
        else: self.heads[self.seat], self.seat, self.tossing = action, self.seat + 1, False


def coins(): return PythonGame("coins", Coins, players=2, actions=2, shape=(3,), max_length=4, outcomes=2)


GAMES = dict(pig=lambda: get_game("pig(goal=12)"), twenty48=lambda: get_game("2048(goal=32)"), race=race, two_rolls=two_rolls,
             coins=coins)


def random_games(game, count, seed=0):
    "Starts, lines and final positions of games with random moves."
    starts, lines = [game.new_match(seed + i) for i in range(count)], [[] for _ in range(count)]
    ends, _ = play_tables(game, starts, [[RandomPlayer(game, seed)] * game.players] * count, lines=lines)
    return starts, lines, ends


# The slow reference --------------------------------------------------------------------------------------------------

def reference_value(game, evaluator, state):
    "Value by seat, from the definition."
    mover, now = game.mover(state), game.returns(state).astype(float)
    if mover < 0: return now
    relative = evaluator.evaluate(game.inputs(state)[None], np.zeros(2, np.int32), np.zeros(0, np.int32))[1][0]
    value = np.zeros(game.players)
    for k in range(game.players): value[(mover + k) % game.players] = relative[k]
    return now + 2 * value if game.rewards else value


def ends_of(game, state, share=Fraction(1)):
    "All positions in which the rolls end, with exact probabilities."
    if game.mover(state) != CHANCE: return [(state, share)]
    return [end for outcome, p in game.chance(state)
            for end in ends_of(game, game.play(state, outcome), share * Fraction(p).limit_denominator(10_000))]


def reference_luck(game, evaluator, start, line):
    state, luck, moves = start, np.zeros(game.players), list(line)
    while moves:
        if game.mover(state) != CHANCE:
            state = game.play(state, moves.pop(0))
            continue
        ends = ends_of(game, state)
        assert sum(share for _, share in ends) == 1
        expected = sum(float(share) * reference_value(game, evaluator, end) for end, share in ends)
        while game.mover(state) == CHANCE: state = game.play(state, moves.pop(0))
        luck += reference_value(game, evaluator, state) - expected
    return luck


@pytest.mark.parametrize("name", GAMES)
def test_the_luck_of_rolls_is_that_of_the_slow_reference(name):
    game = GAMES[name]()
    evaluator, (starts, lines, _) = HashEvaluator(game), random_games(game, 6, seed=3)
    luck = chance_luck(game, evaluator, starts, lines)
    expected = [reference_luck(game, evaluator, start, line) for start, line in zip(starts, lines)]
    assert luck.shape == (6, game.players) and np.allclose(luck, expected, atol=1e-4) and np.abs(luck).max() > 0.01


@pytest.mark.parametrize("name", [*GAMES, "blob"])
def test_values_by_seat_are_those_of_the_definition(name):
    game = GAMES[name]() if name in GAMES else get_game("blob(players=3,cards=2)")
    evaluator, (starts, lines, ends) = HashEvaluator(game), random_games(game, 4)
    states = list(ends)
    for state, line in zip(starts, lines):
        for move in line:
            if game.mover(state) >= 0: states.append(state)
            state = game.play(state, move)
    expected = [reference_value(game, evaluator, state) for state in states]
    assert np.allclose(seat_values(game, evaluator, states), expected, atol=1e-6)
    forgetful, alike = SeatValues(game, evaluator, keep=2), SeatValues(game, evaluator)
    for part in (states[:5], states[3:], states):   # Few answers fit into memory; the values are the same
        assert np.array_equal(forgetful(part), alike(part))
    idle = HashEvaluator(game)
    for over in (list(ends), []): assert seat_values(game, idle, over).shape == (len(over), game.players)
    assert idle.batches == [], "games that are over need no network"


def test_each_network_input_is_evaluated_once():
    class Noting(HashEvaluator):
        "Keeps what it has seen."
        def evaluate(self, inputs, offsets, actions):
            seen.extend(row.tobytes() for row in inputs)
            return super().evaluate(inputs, offsets, actions)

    game, seen = get_game("pig(goal=12)"), []
    starts, lines, _ = random_games(game, 40)
    chance_luck(game, Noting(game), starts, lines)
    ends = set()
    for state, line in zip(starts, lines):
        for move in line:
            if game.mover(state) == CHANCE: ends |= {game.inputs(end).tobytes() for end, _ in ends_of(game, state)}
            state = game.play(state, move)
    assert len(seen) == len(set(seen)) and set(seen) == ends


def test_a_position_with_a_roll_has_no_value_and_an_unfinished_roll_no_luck():
    game = get_game("pig(goal=12)")
    rolling = game.play(game.new(), ROLL)
    with pytest.raises(ValueError, match="chance moves in a position"): seat_values(game, HashEvaluator(game), [rolling])
    luck = chance_luck(game, HashEvaluator(game), [game.new()] * 2, [[ROLL], []])
    assert not luck.any()


# Pig, which is solved ------------------------------------------------------------------------------------------------

class Table:
    "The exact values of Pig, with as much noise as asked for."
    def __init__(self, goal, noise=0.0):
        self.goal, self.wins = goal, solve_pig(goal, 1e-12)
        self.noise = noise * np.random.default_rng(0).standard_normal((goal, goal, 2 * goal)).astype(np.float32)

    def evaluate(self, inputs, edge_offsets, edge_actions):
        own, other, turn = inputs.reshape(len(inputs), 4, self.goal)[:, :3].sum(2, dtype=int).T
        wins = np.array([1 if o + t >= self.goal else self.wins[o, e, t] for o, e, t in zip(own, other, turn)], np.float32)
        values = 2 * wins - 1 + self.noise[own, other, turn]
        return np.zeros(len(edge_actions), np.float32), np.stack([values, -values], 1)


class Exaggerating(Table):
    "Values that are three times too far from 0."
    def evaluate(self, *question): return (lambda logits, values: (logits, 3 * values))(*super().evaluate(*question))


class Best(Player):
    "Plays Pig perfectly: the better of both actions by the exact table."
    def __init__(self, game, wins): self.game, self.name, self.wins, self.goal = game, "best", wins, len(wins)

    def acts(self, states):
        return np.array([self._choose(int(s[1 + s[0]]), int(s[2 - s[0]]), int(s[3])) for s in states])

    def _choose(self, own, other, turn):
        if turn == 0: return ROLL
        if own + turn >= self.goal: return HOLD
        reach = lambda points: 1 if points >= self.goal else self.wins[own, other, points - own]
        roll = (1 - self.wins[other, own, 0] + sum(reach(own + turn + face) for face in range(2, 7))) / 6
        return HOLD if 1 - self.wins[other, own + turn, 0] >= roll else ROLL


def best_games(goal, count, seed=0):
    "Results of the first seat, starts and lines of games between perfect players; and the exact value of the start."
    game, wins = get_game(f"pig(goal={goal})"), solve_pig(goal, 1e-12)
    starts, lines = [game.new()] * count, [[] for _ in range(count)]
    ends, _ = play_tables(game, starts, [[Best(game, wins)] * 2] * count, lines=lines, seeds=range(seed, seed + count))
    return game, np.array([game.returns(end)[0] for end in ends]), starts, lines, 2 * wins[0, 0, 0] - 1


def test_with_exact_values_and_perfect_players_every_game_has_the_same_adjusted_result():
    game, results, starts, lines, truth = best_games(20, 60)
    assert set(results) == {-1, 1}
    adjusted = results - chance_luck(game, Table(20), starts, lines)[:, 0]
    assert np.allclose(adjusted, truth, atol=1e-5)


def test_the_mean_is_right_whatever_the_evaluator():
    game, results, starts, lines, truth = best_games(12, 3000)
    network = NetworkEvaluator(game, PolicyValueNet(game, "tiny"), "cpu")
    plain = np.std(results)
    for evaluator, narrower in ((network, None), (HashEvaluator(game), False), (Table(12, noise=0.1), True)):
        adjusted = results - chance_luck(game, evaluator, starts, lines)[:, 0]
        middle, low, high = mean_interval(adjusted)
        assert low - 0.2 * (high - low) < truth < high + 0.2 * (high - low), (evaluator, low, truth, high)
        if narrower is not None: assert (np.std(adjusted) < plain) == narrower


def coverage(repeats, games, noise):
    "Share of matches whose adjusted interval covers the exact value, and the mean half-width, adjusted and plain."
    game, results, starts, lines, truth = best_games(12, repeats * games, seed=10_000)
    adjusted = results - chance_luck(game, Table(12, noise), starts, lines)[:, 0]
    rows = np.array([mean_interval(part) for part in adjusted.reshape(repeats, games)])
    plain = np.array([mean_interval(part) for part in results.reshape(repeats, games)])
    return np.mean((rows[:, 1] <= truth) & (truth <= rows[:, 2])), *((x[:, 2] - x[:, 1]).mean() / 2 for x in (rows, plain))


def test_intervals_cover_the_truth():
    share, adjusted, plain = coverage(100, 40, noise=0.1)
    assert share >= 0.88 and adjusted < plain / 2   # 95 % expected; fewer than 88 of 100 in one of 500 tries


@pytest.mark.slow
def test_a_thousand_repeats_cover_the_truth_as_often_as_they_say():
    share, adjusted, plain = coverage(1000, 40, noise=0.1)
    assert 0.935 <= share <= 0.965 and adjusted < plain / 2


# Values that see further ---------------------------------------------------------------------------------------------

def play_on(game, evaluator, state):
    "The position in which the next roll is due, or the end, if the mover plays the largest logit."
    while game.mover(state) >= 0:
        legal = np.array(game.legal_actions(state), np.int32)
        logits, _ = evaluator.evaluate(game.inputs(state)[None], np.array([0, len(legal)], np.int32), legal)
        state = game.play(state, int(legal[logits.argmax()]))
    return state


@pytest.mark.parametrize("name", GAMES)
def test_one_roll_ahead_is_the_mean_over_the_next_roll(name):
    game = GAMES[name]()
    evaluator, (starts, lines, ends) = HashEvaluator(game), random_games(game, 5, seed=2)
    states = list(ends)
    for state, line in zip(starts, lines):
        for move in line:
            if game.mover(state) >= 0: states.append(state)
            state = game.play(state, move)
    expected = [sum(float(share) * reference_value(game, evaluator, end) for end, share in
                    ends_of(game, play_on(game, evaluator, state))) for state in states]
    found = OneRollAhead(game, evaluator).value(states)
    assert found.shape == (len(states), game.players) and np.allclose(found, expected, atol=1e-4)
    assert OneRollAhead(game, evaluator).value(states[:0]).shape == (0, game.players)


class Constant(HashEvaluator):
    "Every mover expects a third of a point, the others less."
    def evaluate(self, inputs, offsets, actions):
        logits, values = super().evaluate(inputs, offsets, actions)
        values[:] = np.array([1, -2, 4], np.float32)[:values.shape[1]] / 3
        return logits, values


def test_a_roll_with_too_many_ends_is_drawn():
    game = get_game("blob(players=3,cards=2,game=full)")
    evaluator, starts = HashEvaluator(game), [game.new_match(seed) for seed in (1, 2, 3)]
    first, other = (OneRollAhead(game, evaluator, seed).value(starts) for seed in (0, 1))
    assert not np.array_equal(first, other)
    assert np.array_equal(OneRollAhead(game, evaluator).value(starts[::-1]), first[::-1])   # Each position has draws of its own
    assert np.array_equal(OneRollAhead(game, evaluator).value(starts[1:2]), first[1:2])
    sure = OneRollAhead(game, Constant(game)).value(starts)
    assert np.allclose(np.sort(sure, 1), np.array([-2, 1, 4]) / 3, atol=1e-5)   # All weights together are 1
    rolled = play_on(game, evaluator, starts[0])
    ends = []
    for seed in range(3000):
        state, rolled_on = game.pass_chance(rolled, seed, 0)
        ends.append(reference_value(game, evaluator, state))
    means = np.array([OneRollAhead(game, evaluator, seed).value(starts[:1])[0] for seed in range(200)])
    error = np.sqrt(np.var(ends, 0) / 3000 + np.var(means, 0) / 200)
    assert (np.abs(means.mean(0) - np.mean(ends, 0)) < 4 * error).all() and error.max() < 0.03


class Repeating:
    "It has value() and returns what the network says: its luck is that of the network."
    def __init__(self, game, evaluator): self.game, self.evaluator, self.asked = game, evaluator, []

    def value(self, states):
        self.asked.append(np.array(states))
        return seat_values(self.game, self.evaluator, states)


@pytest.mark.parametrize("name", GAMES)
def test_what_has_value_is_asked_once_for_each_position(name, monkeypatch):
    monkeypatch.setattr(luck_module, "ASKED", 7)
    game = GAMES[name]()
    evaluator, (starts, lines, _) = HashEvaluator(game), random_games(game, 6, seed=3)
    oracle = Repeating(game, evaluator)
    luck = chance_luck(game, oracle, starts, lines)
    assert np.allclose(luck, chance_luck(game, evaluator, starts, lines), atol=1e-5) and np.abs(luck).max() > 0.01
    rows = np.concatenate(oracle.asked)
    assert max(len(part) for part in oracle.asked) <= 7 and len(np.unique(rows, axis=0)) == len(rows) > 0
    assert {game.mover(row) >= 0 for row in rows} == {True}   # What is over, or a roll, is not asked for


def test_an_agent_that_measures_luck_keeps_its_own_moves():
    game = get_game("pig(goal=12)")
    agent, (starts, lines, _) = Agent(game, HashEvaluator(game), 8), random_games(game, 5)
    values = seat_values(game, agent, starts)
    assert agent.asked == 0 and np.array_equal(values, Agent(game, HashEvaluator(game), 8).value(starts[:1]).repeat(5, 0))
    first, second = (chance_luck(game, agent, starts, lines) for _ in range(2))
    assert np.array_equal(first, second) and not np.array_equal(first, chance_luck(game, agent.evaluator, starts, lines))
    assert seat_values(game, agent, starts[:0]).shape == (0, 2)


def test_one_roll_ahead_leaves_less_spread_and_the_mean_stays_right():
    game, results, starts, lines, truth = best_games(12, 1500)
    table, spreads = Table(12, noise=0.3), []
    for judge in (table, OneRollAhead(game, table), Agent(game, Table(12, noise=0.6), 64)):
        adjusted = results - chance_luck(game, judge, starts, lines)[:, 0]
        middle, low, high = mean_interval(adjusted)
        assert low - 0.2 * (high - low) < truth < high + 0.2 * (high - low), (low, truth, high)
        spreads.append(np.std(adjusted))
    assert spreads[1] < 0.8 * spreads[0] and spreads[2] < 0.8 * np.std(results)


def test_an_evaluator_with_a_value_head_is_an_evaluator():
    game = get_game("pig(goal=12)")
    evaluator = HashEvaluator(game)
    evaluator.value = "a layer of a network"
    assert np.array_equal(seat_values(game, evaluator, [game.new()]), seat_values(game, HashEvaluator(game), [game.new()]))
    evaluator.evaluator = None   # A wrapper's inner part
    assert quick_player(game, RolloutPlayer(game, 2), evaluator).evaluator is evaluator


def test_what_plays_another_game_cannot_measure_luck():
    pig, four = get_game("pig(goal=12)"), get_game("connect4")
    for other in (Agent(four, HashEvaluator(four)), OneRollAhead(four, HashEvaluator(four))):
        with pytest.raises(ValueError, match="connect4 is the game of what should measure luck, not pig"):
            seat_values(pig, other, [pig.new()])


def test_a_match_takes_one_roll_ahead_for_its_luck():
    game = get_game("pig(goal=12)")
    for judge in (OneRollAhead(game, Table(12, noise=0.3)), Agent(game, Table(12, noise=0.3), 16)):
        match = play_match(game, RandomPlayer(game), RandomPlayer(game, 1), 6, seed=1, luck=judge)
        luck = chance_luck(game, judge, [one.start for one in match.games], [one.actions for one in match.games], seed=1)
        assert np.allclose(match.luck, luck[np.arange(6), np.arange(6) % 2]) and match.means
    blob = get_game("blob(players=3,cards=2)")
    judge, starts = OneRollAhead(blob, HashEvaluator(blob)), [blob.new_match(1)] * 3
    tables = [[RolloutPlayer(blob, 10)] * 3] * 3   # Its quick player is the network of the judge, without a search
    assert np.array_equal(deal_luck(blob, judge, starts, tables), deal_luck(blob, judge.evaluator, starts, tables))


# Deals ---------------------------------------------------------------------------------------------------------------

def test_the_luck_of_a_deal_is_that_of_the_definition():
    game = get_game("blob(players=3,cards=3)")
    evaluator, heuristic = HashEvaluator(game), HeuristicPlayer(game)
    starts = [game.new_match(seed) for seed in (1, 1, 2)]
    agent = Agent(game, evaluator, 4)
    tables = [[agent, heuristic, heuristic], [heuristic, agent, heuristic], [agent] * 3]
    luck = deal_luck(game, evaluator, starts, tables, seed=5, draws=4)
    alone = NetworkAlone(game, evaluator)
    for start, table, found, number in zip(starts, tables, luck, (0, 0, 1)):
        deals = [start, *fresh_deals(game, start, 4, derive_seed(5, Purpose.LUCK, number))]
        quick = [alone if player is agent else player for player in table]
        results = np.array([game.returns(play_tables(game, [deal], [quick])[0][0]) for deal in deals])
        assert np.allclose(found, REPEATED * (results[0] - results[1:].mean(0)), atol=1e-6)
    assert np.abs(luck).max() > 0


def test_the_network_alone_plays_its_largest_logit():
    game = get_game("blob(players=3,cards=3)")
    evaluator, state = HashEvaluator(game), game.new_match(4)
    while not game.over(state):
        legal = game.legal_actions(state)
        logits, _ = evaluator.evaluate(game.inputs(state)[None], np.array([0, len(legal)], np.int32), np.array(legal, np.int32))
        action, = NetworkAlone(game, evaluator).acts(state)
        assert action == legal[int(logits.argmax())]
        state = game.play(state, int(action))


def test_fresh_deals_have_as_many_players_and_all_cards():
    game = get_game("blob(players=5,cards=3,deals=all)")
    starts = {int(game.new_match(seed)[92]): game.new_match(seed) for seed in range(40)}   # By number of players
    assert set(starts) == {3, 4, 5}
    for players, start in starts.items():
        deals = fresh_deals(game, start, 30, seed=1)
        assert {int(deal[92]) for deal in deals} == {players} and len({deal.tobytes() for deal in deals}) > 20
        assert {int(deal[93]) for deal in deals} == {1, 2, 3}
    alien = np.array(starts[3])
    alien[92] = 2
    with pytest.raises(ValueError, match="deals to 2 players too seldom"): fresh_deals(game, alien, 1, 0)


def test_the_mean_luck_of_deals_is_zero():
    game = get_game("blob(players=3,cards=2)")
    heuristic, evaluator = HeuristicPlayer(game), HashEvaluator(game)
    starts = [game.new_match(derive_seed(0, Purpose.OPENINGS, k)) for k in range(300)]
    luck = deal_luck(game, evaluator, starts, [[heuristic] * 3] * 300)
    results = np.array([game.returns(end) for end in play_tables(game, starts, [[heuristic] * 3] * 300)[0]])
    for seat in range(3):
        middle, low, high = mean_interval(luck[:, seat])
        assert low - (high - low) / 4 < 0 < high + (high - low) / 4
        # The quick game is the game itself here: two thirds of its spread are gone, but for that of the fresh deals
        assert np.var(results[:, seat] - luck[:, seat]) < 0.25 * np.var(results[:, seat])


def test_a_full_game_counts_every_deal_with_drawn_ones():
    game = get_game("blob(players=3,cards=2,game=full)")
    evaluator, heuristic = HashEvaluator(game), HeuristicPlayer(game)
    starts, lines = [game.new_match(seed) for seed in range(200)], [[] for _ in range(200)]
    tables = [[heuristic] * 3] * 200
    play_tables(game, starts, tables, lines=lines)
    luck = game_luck(game, evaluator, starts, lines, tables, seed=1)
    assert np.array_equal(luck, game_luck(game, evaluator, starts, lines, tables, seed=1))
    assert not np.array_equal(luck, game_luck(game, evaluator, starts, lines, tables, seed=2))
    deal = chance_luck(game, evaluator, starts, lines)
    for seat in range(3):
        for part in (luck, deal):
            middle, low, high = mean_interval(part[:, seat])
            assert low - (high - low) / 4 < 0 < high + (high - low) / 4
    assert DRAWS > 1 and np.std(deal) > 0


def test_luck_of_deals_needs_no_more_of_a_player_than_a_match():
    game = get_game("blob(players=3,cards=2)")
    class Mine:
        name = "mine"
        def acts(self, states): return np.array([game.legal_actions(state)[0] for state in states])
    agent = Agent(game, HashEvaluator(game), 2, worlds=1)
    assert play_duplicate(game, agent, Mine(), 3, luck=True).match.luck.shape == (9,)


def test_luck_may_be_switched_off():
    for name in ("pig(goal=12)", "blob(players=3,cards=2)"):
        game = get_game(name)
        assert play_match(game, get_player("heuristic", game), RandomPlayer(game, 1), 4, luck=False).luck is None


@pytest.mark.parametrize("deals", [6, 10])   # Shares of 1/6 and of 1/10 do not add up to 1
def test_a_mean_of_equal_results_is_no_certainty(deals):
    mean, low, high = mean_result(np.ones(deals), np.arange(deals))
    assert high - low > .1 and low <= mean <= high


def test_constant_luck_has_no_slope():
    assert (luck_slopes(np.full(60, -1.), np.full(60, .1)) == 1).all()


@pytest.mark.parametrize("results", [[1.] * 8, [1., -1.] * 4, [1., -1.]])
def test_a_mean_result_has_an_interval_although_all_results_are_the_same(results):
    n = len(results)
    match = MatchResult("a", "b", (np.array(results) + 1) / 2, np.ones(n), np.repeat(np.arange(n // 2), 2), results=np.array(results), luck=np.zeros(n))
    middle, low, high = match.means["result"]
    assert -1 <= low < high <= 1 and low <= middle <= high


def test_a_quick_player_answers_at_once():
    game = get_game("blob(players=3,cards=2)")
    mine, theirs = HashEvaluator(game), HashEvaluator(game)
    assert quick_player(game, Agent(game, mine), theirs).evaluator is mine
    assert quick_player(game, RolloutPlayer(game, 10), theirs).evaluator is theirs
    random = RandomPlayer(game, 3)
    copy = quick_player(game, random, theirs)
    state = game.new_match(1)
    copy.acts([state] * 50)
    assert random.rng.bit_generator.state == RandomPlayer(game, 3).rng.bit_generator.state   # Its own moves stay the same


# How much of the luck is taken off -----------------------------------------------------------------------------------

def made_up(rng, count, factor, noise):
    "Results of openings, and a luck that is `factor` times the true one, with noise. The true mean is 0.1."
    true = rng.standard_normal(count)
    return 0.1 + true + 0.5 * rng.standard_normal(count), factor * true + noise * rng.standard_normal(count)


def test_each_half_takes_the_slope_of_the_other():
    results, luck = made_up(np.random.default_rng(0), 90, 2.0, 1.0)
    slopes, odd = luck_slopes(results, luck), np.arange(90) % 2 == 1
    for part in (odd, ~odd): assert np.allclose(slopes[part], np.polyfit(luck[~part], results[~part], 1)[0])
    assert len(set(slopes)) == 2 and (np.abs(slopes - 0.4) < 0.15).all()   # 2 / (2² + 1²)
    groups = np.arange(90) // 2   # Openings that share a game stay together
    slopes, odd = luck_slopes(results, luck, groups), groups % 2 == 1
    for part in (odd, ~odd): assert np.allclose(slopes[part], np.polyfit(luck[~part], results[~part], 1)[0])


def test_a_slope_needs_openings_and_spread_and_is_never_negative():
    results, luck = made_up(np.random.default_rng(1), 2 * FEWEST, 3.0, 0.0)
    assert np.allclose(luck_slopes(results, luck), 1 / 3, atol=0.1)
    assert (luck_slopes(results[1:], luck[1:]) == 1).all() and (luck_slopes(results, np.zeros(2 * FEWEST)) == 1).all()
    assert (luck_slopes(results, -luck) == 0).all() and luck_slopes([], []).shape == (0,)


@pytest.mark.parametrize("factor, noise", [(1, 0), (1, 0.5), (3, 1), (0, 1), (-1, 1)])
def test_fitted_slopes_keep_the_mean_and_the_cover_and_add_no_spread(factor, noise):
    rng, rows, plain = np.random.default_rng([5, noise > 0]), [], []
    for _ in range(2000):
        results, luck = made_up(rng, 50, factor, noise)
        rows.append(mean_interval(results - luck_slopes(results, luck) * luck))
        plain.append(mean_interval(results))
    rows, plain = np.array(rows), np.array(plain)
    assert 0.93 <= np.mean((rows[:, 1] <= 0.1) & (0.1 <= rows[:, 2])) <= 0.97
    assert abs(rows[:, 0].mean() - 0.1) < 3 * rows[:, 0].std() / np.sqrt(2000)
    width, whole = ((x[:, 2] - x[:, 1]).mean() for x in (rows, plain))
    assert width < 1.03 * whole and (factor <= 0 or width < 0.8 * whole)


def test_a_match_of_many_openings_fits_how_much_to_take_off():
    game = get_game("pig(goal=12)")
    match = play_match(game, Best(game, solve_pig(12, 1e-12)), RandomPlayer(game), 120, seed=3, luck=Table(12))
    triple = play_match(game, Best(game, solve_pig(12, 1e-12)), RandomPlayer(game), 120, seed=3, luck=Exaggerating(12))
    results, luck = (values.reshape(60, 2).mean(1) for values in (match.results, match.luck))
    assert np.allclose(triple.luck, 3 * match.luck, atol=1e-4) and len(set(match.groups)) > 2 * FEWEST
    assert np.allclose(match.without_luck, results - luck_slopes(results, luck, match.groups) * luck)
    assert np.allclose(match.without_luck, triple.without_luck, atol=1e-4)
    assert np.allclose(match.means["adjusted"], mean_interval(match.without_luck, match.groups))


# Matches -------------------------------------------------------------------------------------------------------------

def test_a_match_shows_both_means():
    game = get_game("pig(goal=12)")
    agent, again = Agent(game, Table(12), 8), Agent(game, Table(12), 8)   # Each search draws new rolls
    plain = play_match(game, agent, RandomPlayer(game), 40, seed=1)
    match = play_match(game, again, RandomPlayer(game), 40, seed=1, luck=True)
    assert np.array_equal(plain.scores, match.scores) and plain.luck is None and plain.means == {}
    assert np.array_equal(match.results, 2 * match.scores - 1) and np.array_equal(plain.results, match.results)
    luck = chance_luck(game, agent.evaluator, [one.start for one in match.games], [one.actions for one in match.games])
    assert np.allclose(match.luck, luck[np.arange(40), np.arange(40) % 2])
    pairs = (match.results - match.luck).reshape(20, 2).mean(1)
    assert np.allclose(match.means["adjusted"], mean_interval(pairs, match.groups))
    assert np.isclose(match.means["result"][0], match.results.mean())
    assert match.to_dict()["luck"] == match.means == match.event().luck and "luck" not in plain.to_dict()
    assert "without luck" in str(match) and "without luck" not in str(plain)
    width = {name: high - low for name, (_, low, high) in match.means.items()}
    assert width["adjusted"] < width["result"]


def test_luck_needs_chance_and_an_evaluator():
    pig, four = get_game("pig(goal=12)"), get_game("connect4")
    assert play_match(pig, RandomPlayer(pig), RandomPlayer(pig, 1), 4, luck=True).luck is None
    agent = Agent(four, HashEvaluator(four), 2)
    assert play_match(four, agent, RandomPlayer(four), 2, luck=True).luck is None and luck_evaluator(four, agent) is None
    agent = Agent(pig, HashEvaluator(pig), 2)
    assert luck_evaluator(pig, RandomPlayer(pig), agent) is agent.evaluator
    assert play_match(pig, RandomPlayer(pig), agent, 4, luck=True).luck is not None


def test_with_a_single_player_the_results_of_both_are_compared():
    game = get_game("2048(goal=32)")
    evaluator = HashEvaluator(game)
    match = play_match(game, Agent(game, evaluator, 4), RandomPlayer(game), 6, luck=evaluator)
    assert len(match.games) == 12 and match.results.shape == match.luck.shape == (6,)
    luck = chance_luck(game, evaluator, [one.start for one in match.games], [one.actions for one in match.games])
    assert np.allclose(match.luck, luck[::2, 0] - luck[1::2, 0])
    assert np.array_equal(np.sign(match.results), np.sign(match.scores - .5))
    assert own_part([[3], [1], [2], [5]]).tolist() == [2, -3]


def test_a_duplicate_has_the_luck_of_the_player():
    game = get_game("blob(players=3,cards=2)")
    agent, heuristic = Agent(game, HashEvaluator(game), 2, worlds=1), HeuristicPlayer(game)
    result = play_duplicate(game, agent, heuristic, 5, seed=2, luck=True)
    match = result.match
    assert match.results.shape == match.luck.shape == (15,) and "without luck" in str(result)
    tables = [[agent if seat == i % 3 else heuristic for seat in range(3)] for i in range(15)]
    luck = deal_luck(game, agent.evaluator, [one.start for one in match.games], tables, seed=2)
    assert np.allclose(match.luck, luck[np.arange(15), np.arange(15) % 3])
    assert result.event().luck == result.to_dict()["luck"] == match.means


def test_measures_that_need_a_finished_game_lose_no_match():
    game = copy.copy(get_game("blob(players=3,cards=2)"))
    whole = game.measures
    def finished(state):
        if not game.over(state): raise ZeroDivisionError("no round was played")
        return whole(state)
    game.measures = finished
    agent, heuristic = Agent(game, HashEvaluator(game), 2, worlds=1), HeuristicPlayer(game)
    assert play_duplicate(game, agent, heuristic, 5, seed=2, luck=True).match.luck.shape == (15,)


def test_an_absent_player_has_no_luck():
    game = get_game("blob(players=4,cards=2,deals=all)")
    agent, heuristic = Agent(game, HashEvaluator(game), 2, worlds=1), HeuristicPlayer(game)
    match = play_duplicate(game, agent, heuristic, 8, seed=1, luck=True).match
    assert {3, 4} == set(np.bincount(match.deals)) and match.luck.shape == match.scores.shape and np.isfinite(match.luck).all()


def test_the_ladder_passes_it_on():
    game = get_game("pig(goal=12)")
    rows = list(run_ladder(game, Agent(game, Table(12), 2), 6, ("random", "heuristic"), luck=True))
    assert [bool(row.means) for row in rows] == [True, True]


# A game against a person ---------------------------------------------------------------------------------------------

def played(agent, seat=0, **options):
    match = Match(agent and agent.game, agent, seat, **options)
    while not match.over:
        assert match.move(match.game.legal_actions(match.state)[-1]) if match.turn else match.reply(), match.said
    return match


@pytest.mark.parametrize("name", ["pig(goal=12)", "2048(goal=32)", "blob(players=3,cards=2)"])
def test_a_game_with_a_person_ends_with_its_luck(name):
    game = get_game(name)
    agent, seat = Agent(game, HashEvaluator(game), 2, worlds=1), game.players - 1
    match = played(agent, seat, seed=4)
    moves = [move for action, rolled in zip(match.line.actions, match.line.rolls) for move in (action, *rolled)]
    luck = game_luck(game, OneRollAhead(game, agent.evaluator), match.line.states[:1], [moves], [[agent] * game.players], 4)[0, seat]
    result = game.returns(match.state)[seat]
    words = luck_words(match)
    assert f"{luck:+.2f}" in words and f"{result - luck:+.2f}" in words and words in match_html(match)
    said = []
    play_text(match, ask=lambda prompt: "", say=said.append)
    assert words in said[-1]
    match.undo()
    assert luck_words(match) == "" and words not in match_html(match)
    match.redo()
    assert luck_words(match) == words


def test_a_game_with_very_many_rolls_is_not_looked_at_one_roll_ahead(monkeypatch):
    game = get_game("pig(goal=12)")
    for most, judge in ((100_000, OneRollAhead), (100, lambda game, evaluator: evaluator)):
        monkeypatch.setattr(match_module, "MOST_AHEAD", most)
        match = played(Agent(game, HashEvaluator(game), 2), seed=4)
        moves = [move for action, rolled in zip(match.line.actions, match.line.rolls) for move in (action, *rolled)]
        luck = chance_luck(game, judge(game, HashEvaluator(game)), match.line.states[:1], [moves])[0, 0]
        assert f"Luck gave you {luck:+.2f}" in luck_words(match)


def test_a_roll_of_many_dice_or_in_python_is_not_looked_at_one_roll_ahead():
    two = two_rolls()   # 27 rolls in a row would have more ends than there is time for; two have nine
    for game, judge in ((two, OneRollAhead), (coins(), lambda game, evaluator: evaluator)):
        match = played(Agent(game, HashEvaluator(game), 2), seed=4)
        moves = [move for action, rolled in zip(match.line.actions, match.line.rolls) for move in (action, *rolled)]
        luck = chance_luck(game, judge(game, HashEvaluator(game)), match.line.states[:1], [moves])[0, 0]
        assert f"Luck gave you {luck:+.2f}" in luck_words(match)


@pytest.mark.parametrize("error, why", [(ValueError("no such roll.\nMore"), "no such roll"), (KeyboardInterrupt(), "KeyboardInterrupt")])
def test_a_game_ends_also_where_its_luck_cannot_be_measured(monkeypatch, error, why):
    def fails(*question): raise error
    monkeypatch.setattr(match_module, "game_luck", fails)
    game = get_game("pig(goal=12)")
    match = played(Agent(game, HashEvaluator(game), 2), seed=4)
    assert match.over and luck_words(match) == f"Luck was not measured: {why}."


def test_other_games_with_a_person_end_without_a_word_about_luck():
    pig, small = get_game("pig(goal=12)"), get_game("tictactoe")
    class Rolls(RandomPlayer): pass
    for match in (played(Agent(small, HashEvaluator(small), 2)), played(Rolls(pig)), played(Agent(pig, HashEvaluator(pig), 2), (0, 1))):
        assert match.over and luck_words(match) == "" and "Luck" not in match_html(match)


# The figures of the page ---------------------------------------------------------------------------------------------

@pytest.mark.slow
def test_pig_against_the_optimal_policy_needs_a_tenth_of_the_games(tmp_path):
    from alphazero_nb.training.learner import TrainSettings
    from alphazero_nb.training.trainer import Trainer
    run = Trainer("pig", preset="tiny", device="cpu", folder=tmp_path / "pig", games=128, simulations=16, threads=1, listeners=(),
                  train_settings=TrainSettings(games_per_iteration=128, evaluate_every=0))
    run.fit(iterations=30)
    agent, game = run.agent(1), run.game
    match = play_match(game, NetworkAlone(game, agent.evaluator), Best(game, solve_pig(100, 1e-9)), 10_000, luck=agent.evaluator)
    (plain, *ends), (adjusted, low, high) = match.means["result"], match.means["adjusted"]
    assert ends[0] <= adjusted <= ends[1]
    few = match.deals < 500
    tenth = mean_interval(((match.results - match.luck)[few]).reshape(-1, 2).mean(1))
    assert tenth[2] - tenth[1] <= ends[1] - ends[0]
    network = NetworkEvaluator(game, PolicyValueNet(game, "tiny"), "cpu")
    unknown = own_part(chance_luck(game, network, [one.start for one in match.games], [one.actions for one in match.games]))
    pairs = (match.results - unknown).reshape(-1, 2).mean(1)
    assert abs(pairs.mean() - adjusted) < 4 * pairs.std() / np.sqrt(len(pairs))   # Standard errors; one run in 16,000 has more


@pytest.mark.slow
def test_blob_against_the_heuristic_needs_half_of_the_deals():
    agent = Agent.pretrained("blob(players=4,cards=5)", 20, "cpu", worlds=2)
    match = play_duplicate(agent.game, agent, HeuristicPlayer(agent.game), 300, luck=True).match
    half = match.deals < 150
    by_deal = lambda values, part: mean_interval(values[part].reshape(-1, 4).mean(1))
    plain, adjusted = match.means["result"], by_deal(match.results - match.luck, half)
    assert adjusted[2] - adjusted[1] <= 1.05 * (plain[2] - plain[1])
    assert plain[1] <= match.means["adjusted"][0] <= plain[2]


# The laboratory ------------------------------------------------------------------------------------------------------

def test_the_laboratory_compares_dice_games_without_luck_too():
    game = get_game("pig(goal=12)")
    match = play_match(game, Agent(game, Table(12), 4), RandomPlayer(game), 40, luck=True)
    row = [match.independent.tolist(), match.groups.tolist(), 40, match.different]
    points = Points(*row, adjusted_scores(match))
    plain, adjusted = points_row("a", [points], float("nan")), points_row("a", [points], float("nan"), adjusted=True)
    middle, low, high = match.means["adjusted"]
    assert np.allclose([adjusted["mean"], adjusted["low"] + .5, adjusted["high"] + .5], [(1 + x) / 2 for x in (middle, low, high)])
    assert adjusted["measure"] == WITHOUT_LUCK and plain["measure"] == GAMES_WON and plain["mean"] == match.score
    assert adjusted["high"] - adjusted["low"] < plain["high"] - plain["low"]
    assert Points(*row).adjusted is None and adjusted_scores(play_match(game, RandomPlayer(game), RandomPlayer(game), 4)) is None
    with pytest.raises(ValueError): Points(*row, [0.5])
    with pytest.raises(ValueError): Points(*row, [float("nan")] * 20)
    assert f"{adjusted['mean']:.1%} ±" in _cell(adjusted)


def test_the_luck_of_one_seat_is_not_told_of_the_other():
    pig = get_game("pig(goal=12)")
    match = played(Agent(pig, HashEvaluator(pig), 2), seed=4)
    assert luck_words(match) and match.swap() and luck_words(match) == ""
