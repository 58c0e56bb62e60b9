"""Measures of strong games, their intervals, and sentences, against slow and independent computations."""
import itertools
import math
import re

import numpy as np
import pytest

import broken_games
from alphazero_nb.arena.solvers import EndgameSolver, TableSolver
from alphazero_nb.core.game import Game
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.core.registry import get_game
from alphazero_nb.lab.measures import (PairScores, Sample, StrongGame, angle, decided_at, describe_depth, describe_play, difference, estimate,
                                       has_more_openings,
                                       jackknife, lead_changes, luck_measures, mean_sample, perplexity, pooled_variance, share_sample)
from alphazero_nb.lab.report import measures_table
from alphazero_nb.lab.strong_games import OPENING, STRENGTHS, draw_move, play_steps, play_strong
from alphazero_nb.lab.study import describe_unused
from alphazero_nb.lab.verdict import (count_questions, describe_gaps, divide_error, describe_variant, exact_answer, find_row, table_gaps, table_rows,
                                      too_short, who_is_ahead)
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent


def agent_of(name: str, simulations: int = 16) -> Agent:
    game = get_game(name)
    return Agent(game, UniformEvaluator(game), simulations, "uniform")


def replayed(game, played: StrongGame):
    "Yield the state before each move. Fail if a roll or a move is not possible there."
    state, actions = game.new_match(played.seed), list(played.actions)
    while not game.over(state):
        while game.mover(state) == -2:
            outcome = actions.pop(0)
            assert outcome in [number for number, share in game.chance(state) if share > 0]
            state = game.play(state, outcome)
        if game.over(state): break
        yield state, actions[0]
        assert actions[0] in game.legal_actions(state)
        state = game.play(state, actions.pop(0))
    assert not actions and np.allclose(game.returns(state), played.results, atol=1e-4)


@pytest.mark.parametrize("name", ["tictactoe", "pig(goal=20)", "dots(rows=2,cols=2)", "blob"])
@pytest.mark.parametrize("simulations", [0, 8])
def test_games_are_legal_and_repeat(name, simulations):
    agent = agent_of(name)
    games = play_strong(agent, simulations, 4, seed=3)
    assert games == play_strong(agent_of(name), simulations, 4, seed=3)
    other = play_strong(agent, simulations, 4, seed=4)
    assert [played.actions for played in games] != [played.actions for played in other]   # Their seeds differ in any case
    for played in games:
        states = list(replayed(agent.game, played))
        assert [int(agent.game.mover(state)) for state, _ in states] == played.movers
        assert [len(agent.game.legal_actions(state)) for state, _ in states] == played.legal
        for legal, choices in zip(played.legal, played.choices):
            assert choices == legal if simulations == 0 else 1 <= choices <= legal + 1e-3
            if legal == 1: assert choices == 1
        assert len(played.values) == (len(states) if simulations else 0)


def test_mirrored_openings_are_one():
    "The board after four moves, turned and mirrored by numpy, tells which openings of tic-tac-toe are the same."
    def smallest(actions):
        board = np.zeros((3, 3), int)
        for ply, action in enumerate(actions): board[divmod(action, 3)] = 1 + ply % 2
        turned = [np.rot90(side, k) for side in (board, board.T) for k in range(4)]
        return min(side.tobytes() for side in turned)
    games = play_strong(agent_of("tictactoe"), 0, 300)
    pairs = {(game.opening, smallest(game.actions[:4])) for game in games}
    assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs}) > 50
    assert {game.opening for game in play_strong(agent_of("pig(goal=20)"), 0, 3)} == {""}


def test_a_move_of_the_opening_is_drawn_by_its_visits():
    rng, weights = np.random.default_rng(0), np.array([50.0, 25, 4.9, 0])
    counts = np.bincount([draw_move(weights, OPENING - 1, rng) for _ in range(20_000)], minlength=4) / 20_000
    assert np.allclose(counts, [.8, .2, 0, 0], atol=.01)
    assert {draw_move(weights, OPENING, rng) for _ in range(50)} == {0}


def test_neighbours_meet_from_both_seats():
    steps = play_steps(agent_of("tictactoe"), (0, 4, 16), 10)
    assert [(step.stronger, step.weaker, len(step.scores)) for step in steps] == [(4, 0, 10), (16, 4, 10)]
    assert np.mean(steps[0].scores) > .5


def test_perplexity_is_the_number_of_equal_choices():
    for n in (1, 2, 7): assert math.isclose(perplexity(np.ones(n)), n)
    share = np.array([.5, .3, .2])
    assert math.isclose(perplexity(1000 * share), math.exp(-sum(p * math.log(p) for p in share)))


def test_the_jackknife_agrees_with_the_bootstrap():
    rng = np.random.default_rng(0)
    values = [int(value) for value in rng.poisson(9, 60)]
    spread = lambda rows: float(np.std(rows, ddof=1))
    drawn = [spread(rng.choice(values, len(values))) for _ in range(4000)]
    assert math.isclose(jackknife(spread, values).variance, np.var(drawn), rel_tol=.25)
    assert math.isclose(jackknife(np.mean, values).variance, mean_sample(values).variance)


def game_of(results, values, legal=None) -> StrongGame:
    n = len(values)
    return StrongGame(list(results), 0, list(range(n)), [k % 2 for k in range(n)], legal or [2] * n, [1.5] * n, values, "x")


def test_drama_of_games_made_by_hand():
    one = game_of((1, -1), [[.2, -.2], [-.3, .3], [.04, -.04], [-.2, .2], [.7, -.7], [.4, -.4], [.8, -.8], [1, -1]])
    assert lead_changes(one) == 2        # Ahead, behind, level (which is no change), behind, ahead to the end
    assert decided_at(one) == 6 / 8      # The expectation was 0.4 before the sixth move
    assert decided_at(game_of((1, -1), [[.9, -.9]])) == 0 and decided_at(game_of((1, -1), [[.1, -.1]])) == 1
    assert lead_changes(game_of((0, 0, 0), [[.5, .1, -.6], [.1, .5, -.6], [.1, .1, -.2], [.5, 0, -.5]])) == 2


def test_measures_of_games_made_by_hand():
    games = [game_of((1, -1), [[.2, -.2]] * 4, [3, 1, 2, 1]), game_of((-1, 1), [[.2, -.2]] * 6), game_of((0, 0), [[0, 0]] * 5), game_of((1, -1), [[.6, -.6]] * 5)]
    found = {name: sample.mean for name, sample in describe_play(games).items()}
    assert found["points of seat 0"] == .625 and found["draws"] == .25 and found["length"] == 5
    assert math.isclose(found["forced moves"], .125) and math.isclose(found["spread of lengths"], np.std([4, 6, 5, 5], ddof=1))
    assert math.isclose(found["legal moves"], (7 / 4 + 3 * 2) / 4) and found["openings"] == 1


def test_elo_of_known_strengths_is_found():
    "Scores drawn from Elo's curve: the truth lies within three standard errors, in nearly all of fifty matches."
    rng, gains, inside = np.random.default_rng(1), (200.0, 120.0, 40.0), 0
    for _ in range(50):
        steps = [PairScores(4 ** (k + 1), 4 ** k if k else 0, list((rng.random(400) < 1 / (1 + 10 ** (-gain / 400))).astype(float)))
                 for k, gain in enumerate(gains)]
        found, bounds = describe_depth(steps)
        assert not bounds
        total, last = found[64, "Elo above random play"], found[64, "Elo of a doubling"]
        inside += abs(total.mean - 360) < 3 * math.sqrt(total.variance) and abs(last.mean - 20) < 3 * math.sqrt(last.variance)
    assert inside >= 47


def test_a_match_without_a_loss_is_a_lower_bound():
    found, bounds = describe_depth([PairScores(4, 0, [1.0] * 20), PairScores(16, 4, [1.0, 0.0] * 10)])
    assert bounds == {(4, "Elo above random play"), (16, "Elo above random play")}


# Intervals


@pytest.mark.parametrize("p, seeds, spread", [(.5, 3, 0), (.9, 3, .03), (.98, 4, .005), (.7, 5, .1)])
def test_intervals_contain_the_truth(p, seeds, spread):
    "Games of agents that differ: of 600 intervals of 95 %, at least 93 % contain the true mean."
    rng, inside = np.random.default_rng(int(100 * p)), 0
    for _ in range(600):
        groups = [[share_sample(rng.random(30) < np.clip(rng.normal(p, spread), 0, 1)) for _ in range(seeds)] for _ in range(4)]
        found = estimate(groups[0], pooled_variance(groups, True), share=True)
        inside += found.low <= p <= found.high
    assert inside >= .93 * 600


def test_more_questions_make_wider_intervals():
    samples = [Sample(.5, .001), Sample(.55, .001), Sample(.6, .001)]
    pooled = pooled_variance([samples] * 3)
    widths = [found.high - found.low for found in (estimate(samples, pooled, m) for m in (1, 5, 50))]
    assert widths == sorted(widths) and widths[2] > 1.5 * widths[0]


def test_one_seed_has_the_interval_of_its_games():
    sample = share_sample([1] * 30 + [0] * 10)
    found = estimate([sample], pooled_variance([[sample]]), share=True)
    assert math.isclose(found.high - found.mean, 1.96 * math.sqrt(sample.variance), rel_tol=1e-3)


def test_a_difference_is_mirrored_when_its_sides_are_swapped():
    a, b = estimate([share_sample([1] * 20)], (0.0, 0), 1, True), estimate([share_sample([1] * 15 + [0] * 5)], (0.0, 0), 1, True)
    one, other = difference(a, b), difference(b, a)
    assert np.allclose([one.mean, one.low, one.high], [-other.mean, -other.high, -other.low]) and one.low > 0
    assert angle(0) == 0 and math.isclose(angle(1), math.pi)


def samples_of(variant: str, first: float, draws: float = .05, seeds: int = 3, strengths=(0, 4, 64), games: int = 200) -> dict:
    rows = {"points of seat 0": first, "draws": draws, "length": 20.0, "spread of lengths": 3.0, "legal moves": 4.0, "moves worth a thought": 2.0,
            "forced moves": .1, "changes of the lead": 1.5, "decided after": .6, "Elo above random play": 500.0}
    table = {(variant, strength, name): [Sample(mean, .25 / games if mean <= 1 else mean / games)] * seeds
             for strength in strengths for name, mean in rows.items()}
    return table | {(variant, 64, "Elo of a doubling"): [Sample(50.0, 20.0)] * seeds}


@pytest.mark.parametrize("first, draws, answer", [(.9, .05, "first"), (.1, .05, "second"), (.5, .95, "draw"), (.52, .1, "open"), (.6, .8, "draw")])
def test_who_is_ahead(first, draws, answer):
    rows = table_rows(samples_of("tictactoe", first, draws))
    assert who_is_ahead(rows) == answer
    assert len(describe_variant(rows)) >= 5


def test_questions_count_measures_at_full_strength_and_their_differences():
    one = samples_of("a", .5)
    assert count_questions(one) == 11 and count_questions(one | samples_of("b", .5)) == 33


def test_who_is_ahead_has_half_of_the_error():
    one = samples_of("a", .5)
    for table, intervals in ((one, 1), (one | samples_of("b", .5), 3), (one | samples_of("b", .5) | samples_of("c", .5), 6)):
        divided = divide_error(table)
        assert len(divided) == 11 and divided["points of seat 0"] == 2 * intervals and divided["draws"] == 20 * intervals
        assert math.isclose(sum(intervals / parts for parts in divided.values()), 1), "five percent in all"
    points = {key: given for key, given in one.items() if key[2] == "points of seat 0"}
    assert divide_error(points) == {"points of seat 0": 1}


def test_a_gap_is_found_and_equal_measures_are_not_called_different():
    table = samples_of("tictactoe", .9) | samples_of("connect4", .5)
    gaps = table_gaps(table)
    assert [row["measure"] for row in gaps if row["low"] > 0 or row["high"] < 0] == ["points of seat 0"]
    said = describe_gaps(gaps)
    assert said[0].startswith("Tic-tac-toe against Connect Four: points of seat 0 +40%") and "length" in said[1]
    assert "no difference is certain" in describe_gaps(table_gaps(samples_of("tictactoe", .5) | samples_of("connect4", .5)))[0]


def test_a_value_that_may_be_larger_is_not_certain_to_be_smaller():
    "A player that won all games against random moves may be better than its Elo of that match."
    name = "Elo above random play"
    table = {(variant, 64, name): [Sample(mean, 1.) for _ in range(3)] for variant, mean in (("tictactoe", 700.), ("connect4", 400.))}
    def sure(*bounds): return [row["sure"] for row in table_gaps(table, {(variant, 64, name) for variant in bounds})]
    assert sure() == sure("tictactoe") == [True] and sure("connect4") == sure("tictactoe", "connect4") == [False]
    assert "over +300" in describe_gaps(table_gaps(table, {("tictactoe", 64, name)}))[0]
    assert "no difference is certain" in describe_gaps(table_gaps(table, {("connect4", 64, name)}))[0]


def test_few_games_are_too_short():
    assert not too_short(table_rows(samples_of("a", .6)))
    assert "points of seat 0" in too_short(table_rows(samples_of("a", .6, games=10)))


def test_weak_players_that_differ_do_not_widen_the_interval_of_strong_ones():
    "One seed of two loses every game with 4 simulations, and both win all of them with 16 and more."
    good, bad = share_sample([1] * 40), share_sample([0] * 40)
    table = {("a", strength, "points of seat 0"): [good, bad if strength == 4 else good] for strength in (4, 16, 64, 256)}
    rows = {row["strength"]: row for row in table_rows(table)}
    assert rows[256]["low"] > .9 and rows[4]["high"] - rows[4]["low"] > .9


# The exact answer


@pytest.mark.parametrize("name", ["tictactoe", "dots(rows=1,cols=3)", "hex(size=2)", "hex(size=2,swap=1)", "gomoku(size=5)", "connect4"])
def test_the_exact_answer_is_minimax(name):
    "A table of all positions where it is small, nothing where it is large."
    game = get_game(name)
    try: best = TableSolver(game, 30_000).results(game.new()).max()
    except ValueError: best = None
    answer = exact_answer(game, 30_000)
    if name in ("gomoku(size=5)", "connect4"): assert answer is None
    else: assert answer == {1: "first", 0: "draw", -1: "second"}[int(best)]


class Together:
    "The first player has one move. The second one then chooses whether both win or both lose."
    def __init__(self, moves=()): self.moves = moves
    def copy(self): return Together(self.moves)
    def mover(self): return len(self.moves) if len(self.moves) < 2 else -1
    def legal(self): return [0, 1][:len(self.moves) + 1]
    def play(self, action): self.moves = (*self.moves, action)
    def returns(self): return [2.0 * self.moves[1] - 1] * 2
    def observe(self): return np.eye(3, dtype=np.int8)[len(self.moves)]
    def text(self): return str(self.moves)


def test_a_game_whose_players_win_together_has_no_exact_answer():
    game = PythonGame("together", lambda seed: Together(), players=2, actions=2, shape=(3,), max_length=2, zero_sum=False)
    assert exact_answer(game) is None
    for solver in (TableSolver, EndgameSolver):
        with pytest.raises(ValueError, match="needs two players with opposite results"): solver(game)


def test_a_measure_that_the_strongest_lack_is_not_told_of_weaker_players():
    table = samples_of("tictactoe", .9)
    del table["tictactoe", 64, "decided after"]   # As after games without a winner
    rows = table_rows(table)
    said = " ".join(describe_variant(rows))
    assert "The lead changes" in said and "is decided after" not in said
    assert find_row(rows, "decided after") is None and find_row(rows, "decided after", 4)["strength"] == 4
    assert find_row(rows, "length")["strength"] == 64
    page = measures_table(dict(rows=rows, variants=["tictactoe"]))
    assert re.search("decided after</t[hd]>\\s*<td[^>]*>–<", page), page


def test_an_answer_changes_only_with_who_is_ahead():
    for random, words in ((.6, "60%: the share, not the answer, changes"), (.4, "40%: the answer changes")):
        table = samples_of("tictactoe", .9)
        table["tictactoe", 0, "points of seat 0"] = [Sample(random, .25 / 200)] * 3
        assert words in " ".join(describe_variant(table_rows(table)))


def test_a_game_with_many_starts_has_no_exact_answer():
    "With the seed 0 the first player would take the only stone."
    def start(state, seed): state[0] = 1 + seed % 4
    assert exact_answer(broken_games.nim(start=start)) is None and exact_answer(broken_games.nim()) == "first"


def test_dice_and_cards_have_no_exact_answer():
    for name in ("pig", "2048", "blob"): assert exact_answer(get_game(name)) is None


def test_actions_that_are_never_used_are_named():
    game = get_game("tictactoe")
    games = [StrongGame([0, 0], 0, [0, 1, 2, 3, 4, 5, 6, 7], [0, 1] * 4, [2] * 8, [1] * 8, [], "")] * 30
    assert describe_unused(game, games, ()) == [f"Strong play never used 1 of 9 actions in 240 moves: {game.action_name(8)}."]
    assert describe_unused(game, games, (8,)) == [] and describe_unused(game, games[:5], ()) == []


# Luck


def test_luck_explains_the_whole_or_nothing():
    "Results that are luck alone, and results that owe nothing to it."
    rng = np.random.default_rng(0)
    games = [StrongGame([value, -value], 0, [], [0], [1], [1.0], [], "", [value, -value]) for value in rng.choice([-1, 1], 40)]
    assert luck_measures(games)["luck"].mean == 1
    games = [StrongGame(game.results, 0, [], [0], [1], [1.0], [], "", [0.0, 0.0]) for game in games]
    assert luck_measures(games)["luck"].mean == 0
    assert luck_measures([StrongGame([1, -1], 0, [], [0], [1], [1.0], [], "")] * 3) == {}


def test_games_with_dice_have_luck_and_others_have_none():
    games = play_strong(agent_of("pig(goal=20)"), 8, 6)
    assert all(len(game.luck) == 2 for game in games) and all(not game.luck for game in play_strong(agent_of("pig(goal=20)"), 0, 3))
    assert all(not game.luck for game in play_strong(agent_of("tictactoe"), 8, 3))


def test_a_result_of_one_player_stays_between_its_bounds():
    found = find_row(table_rows({("2048", strength, "result"): [Sample(.95, .01)] * 3 for strength in (0, 64)}), "result")
    assert -1 <= found["low"] < .95 < found["high"] <= 1


def test_the_scale_of_luck_does_not_matter():
    "A network that expects three times too much has explained all the same."
    rng = np.random.default_rng(1)
    def explained(pairs): return luck_measures([StrongGame([one, -one], 0, [], [0], [1], [1.0], [], "", [lucky, -lucky]) for one, lucky in pairs])["luck"].mean
    results = rng.choice([-1.0, 1.0], 400)
    assert explained([(one, 3 * one) for one in results]) == pytest.approx(1)
    assert explained([(one, -one) for one in results]) == 0
    mixed = .5 * results + rng.normal(0, .5, 400)
    assert explained(list(zip(results, mixed))) == pytest.approx(np.corrcoef(results, mixed)[0, 1] ** 2, abs=.01)


@pytest.mark.parametrize("openings, more", [("abcdefghij", True), ("aaaaaaaaab", False), ("aaaaaaaabc", True), ("aabbccddee", False)])
def test_games_show_no_more_openings_than_there_are_games(openings, more):
    games = [StrongGame([1, -1], 0, [], [0], [1], [1.0], [], opening) for opening in openings]
    assert has_more_openings(games) == more
