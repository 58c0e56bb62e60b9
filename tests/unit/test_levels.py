"""Levels of an agent, the tournament that measures them, the rating of a person, and traps."""
import json
import math

import numpy as np
import pytest

from alphazero_nb.arena.level_curve import (calibrate_levels, describe_levels, fit_curve, fit_elos, measure_curve, KNOTS, all_pairs,
                                            play_pairs)
from alphazero_nb.arena.matches import play_tables, read_scores
from alphazero_nb.arena.players import RandomPlayer
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.levels import (FLOOR, Level, Rating, choice_weights, even_levels, level_between, level_on_path,
                                        read_levels, stored_levels)
from alphazero_nb.search.traps import best_trap, look_ahead, traps_fit
from alphazero_nb.ui.coach import grade_moves
import small_run


def slow_weights(visits, legal, temperature):
    "The rule of a level, from its definition: one visit more for each legal move, a floor, then a power."
    counts = [n + 1 if ok else 0 for n, ok in zip(visits, legal)]
    powers = [count ** (1 / temperature) if count >= FLOOR * max(counts) else 0.0 for count in counts]
    return [power / sum(powers) for power in powers]


def few_start(state, seed): pass
def few_mover(state): return -1 if state[0] >= 4 else state[0] % 2
def few_play(state, action): state[0], state[1] = state[0] + 1, state[1] + action
def few_observe(state, planes): planes[0], planes[1] = state[0], state[1]


def few_legal(state, actions):
    actions[0], actions[1] = 0, 1
    return 2


def few_returns(state, out): out[0], out[1] = state[1] % 2, -(state[1] % 2)


@pytest.mark.parametrize("temperature", [0.1, 0.7, 1.5, 10])
def test_weights_follow_their_definition(temperature):
    rng = np.random.default_rng(0)
    for _ in range(50):
        legal = rng.random(9) < 0.7
        legal[rng.integers(9)] = True
        visits = np.where(legal, rng.geometric(0.1, 9) - 1, 0)
        assert choice_weights(visits, legal, temperature) == pytest.approx(slow_weights(visits, legal, temperature))


def test_an_agent_chooses_by_these_weights():
    game = get_game("tictactoe")
    agent = Agent(game, UniformEvaluator(game), simulations=30, leaves=1)
    agent.levels = (Level(30, 1.0, -100.0), Level(30, 0.0, 0.0))
    state = game.state_after([4, 0])
    found, weak = agent.search(state), agent.at_level(1)
    want = choice_weights(found.visits[0], np.isin(range(9), game.legal_actions(state)), 1.0)
    chosen = np.bincount(weak.acts(np.tile(state, (4000, 1))), minlength=9) / 4000
    assert np.abs(chosen - want).max() < 4 * math.sqrt(0.25 / 4000)
    assert agent.at_level(2).act(state) == agent.act(state) and agent.temperature == 0 and "level 1" in weak.name


def test_an_agent_at_a_level_knows_the_levels_of_the_whole_agent():
    "Also where it was made before anybody had asked for them, and from it the others follow."
    game = get_game("tictactoe")
    weak = Agent(game, UniformEvaluator(game), simulations=64).at_level(2)
    assert weak.settings.simulations < 64 and weak.levels[-1].simulations == 64
    assert weak.at_level(len(weak.levels)).settings.simulations == 64


def test_levels_get_weaker_along_the_path_and_meet_their_ends():
    levels = even_levels(64)
    assert [level.simulations for level in levels] == sorted(level.simulations for level in levels)
    assert levels[-1] == Level(64, 0.0) and levels[0].simulations == 1
    for number in np.linspace(1, 8, 29):
        level = level_between(levels, float(number))
        low, high = levels[int(math.floor(number)) - 1], levels[int(math.ceil(number)) - 1]
        assert low.simulations <= level.simulations <= high.simulations
        assert min(low.temperature, high.temperature) <= level.temperature <= max(low.temperature, high.temperature)


@pytest.mark.parametrize("number", [0, 0.99, 8.01, "3", None, math.nan])
def test_a_level_outside_of_the_table_is_refused(number):
    with pytest.raises(ValueError, match="level is"): level_between(even_levels(64), number)


@pytest.mark.parametrize("rows", [[], [dict(simulations=1, temperature=0.0)], 7, [dict(simulations=0, temperature=0.0)] * 2,
                                  [dict(simulations=1, temperature=1.0)] * 2, [dict(temperature=1.0)] * 2,
                                  [dict(simulations=10**7, temperature=1.0), dict(simulations=64, temperature=0.0)],
                                  [dict(simulations=1, temperature=0.0, elo="x")] * 2, [None, None],
                                  [dict(simulations=1, temperature=0.0, elo=elo) for elo in (5000, 0)],
                                  [dict(simulations=1, temperature=0.0, elo=elo) for elo in (float("nan"), 0)],
                                  [dict(simulations=1, temperature=0.0, elo=elo) for elo in (None, 0)]])
def test_a_damaged_table_is_refused_in_a_sentence(rows):
    with pytest.raises(ValueError): read_levels(rows)


def test_the_fit_finds_the_elos_that_made_the_results():
    rng, true = np.random.default_rng(1), -90.0 * np.arange(6)
    meetings = np.array(all_pairs(6) * 800)
    chances = 1 / (1 + 10 ** ((true[meetings[:, 1]] - true[meetings[:, 0]]) / 400))
    elos, covariance = fit_elos(meetings, (rng.random(len(chances)) < chances) * 1.0, np.eye(6))
    errors = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(elos - true) <= 4 * errors + 1e-9) and errors[-1] < 40


def test_the_curve_finds_places_with_even_distances():
    "Games of players whose Elo falls evenly along the path give levels at even distances."
    rng, places = np.random.default_rng(2), KNOTS
    true = -900.0 * places
    meetings = np.array(all_pairs(len(places)) * 300)
    chances = 1 / (1 + 10 ** ((true[meetings[:, 1]] - true[meetings[:, 0]]) / 400))
    curve = fit_curve(64, places, meetings, (rng.random(len(chances)) < chances) * 1.0)
    assert [curve.place(-100.0 * k) for k in range(8)] == pytest.approx([k / 9 for k in range(8)], abs=0.04)
    levels = curve.levels(8, 100)
    assert len(levels) == 8 and [level.elo for level in levels] == [-100.0 * k for k in range(7, -1, -1)]
    assert len(curve.levels(20, 100)) < 20   # The path is not longer


def test_pairs_play_every_opening_from_both_seats_and_the_better_one_wins():
    game = get_game("tictactoe")
    players = [Agent(game, UniformEvaluator(game), simulations=100), RandomPlayer(game)]
    meetings, scores = play_pairs(game, players, [(0, 1)], 20)
    assert meetings.tolist() == [[0, 1]] * 20 and scores.mean() > 0.7


@pytest.mark.parametrize("seconds", [0.5, 30, 100, 400])
def test_a_tournament_stops_with_its_time(seconds):
    "The clock counts finished games: a second each. Only the first twenty may be too many."
    game, ended, now = get_game("tictactoe"), [0, 0], []   # Ended in earlier rounds, and in this one
    agent = Agent(game, UniformEvaluator(game), simulations=4)
    def hear(event):
        new = event.over < ended[1] or event.games not in now
        now[:], ended[:] = [event.games], [ended[0] + ended[1] * new, event.over]
    curve = measure_curve(agent, games=600, seconds=seconds, listener=hear, clock=lambda: float(sum(ended)))
    assert curve.games == sum(ended) and curve.games <= max(20, seconds)
    assert seconds < 100 or curve.games > seconds / 2, "and the time is used"


def test_a_tournament_without_a_limit_plays_all_its_games():
    game = get_game("tictactoe")
    assert measure_curve(Agent(game, UniformEvaluator(game), simulations=4), games=150).games >= 150


def test_a_curve_follows_from_its_seed_whatever_the_agent_has_played():
    game = get_game("tictactoe")
    agent = Agent(game, UniformEvaluator(game), simulations=16)
    first = measure_curve(agent, games=120, seed=3)
    for _ in range(5): agent.act(game.new())
    again = measure_curve(agent, games=120, seed=3)
    assert np.array_equal(first.elos, again.elos) and agent.asked == 5


def test_a_calibrated_agent_keeps_its_levels(tmp_path):
    game = get_game("tictactoe")
    agent = Agent(game, UniformEvaluator(game), simulations=16)
    levels = calibrate_levels(agent, games=200)
    assert agent.levels == levels and levels[-1] == Level(16, 0.0, 0.0)
    assert [level.elo for level in levels] == sorted(level.elo for level in levels)


def test_the_levels_of_a_run_belong_to_the_network_that_was_measured(small_run_folder):
    folder = small_run_folder
    agent = Agent.load(folder, simulations=8, device="cpu")
    assert stored_levels(folder) is None and agent.levels == even_levels(8)
    calibrate_levels(agent, games=60)
    assert Agent.load(folder, device="cpu").levels == agent.levels
    file = folder / "levels.json"
    saved = json.loads(file.read_text())
    file.write_text(json.dumps(dict(saved, network="0" * 64)))
    assert stored_levels(folder) is None          # Another network
    file.write_text("{")
    with pytest.warns(UserWarning, match="levels.json is not used"): assert stored_levels(folder) is None


def test_levels_of_a_network_that_the_run_has_left_behind_are_not_stored(small_run_folder):
    agent, trainer = Agent.load(small_run_folder, simulations=8, device="cpu"), small_run.trainer(small_run_folder)
    trainer.fit(iterations=1)
    with pytest.warns(UserWarning, match="has a newer network by now"): levels = calibrate_levels(agent, games=60)
    new = Agent.load(small_run_folder, simulations=8, device="cpu")
    assert agent.levels == levels and new.levels == even_levels(8)
    old = Agent.load(small_run_folder, simulations=8, device="cpu")
    calibrate_levels(new, games=60)
    assert old.levels == new.levels, "the same network"
    other = Agent.load(small_run_folder, simulations=8, device="cpu")
    trainer.fit(iterations=1)
    assert other.levels == new.levels and Agent.load(small_run_folder, simulations=8, device="cpu").levels == even_levels(8)


@pytest.fixture
def small_run_folder(tmp_path):
    small_run.trainer(tmp_path / "run").fit(iterations=1)
    return tmp_path / "run"


def test_a_rating_finds_the_level_of_a_player():
    levels = tuple(level_on_path(1 - k / 7, 64, 100.0 * (k - 7)) for k in range(8))
    inside = []
    for true in (2, 4, 6, 7.5):
        rng, rating = np.random.default_rng(int(10 * true)), Rating(levels)
        assert rating.level == pytest.approx(4.5)   # It starts in the middle
        for _ in range(100):
            chance = 1 / (1 + 10 ** ((rating.level - true) / 4))
            rating.update(float(rng.random() < chance))
        low, high = rating.interval
        assert abs(rating.level - true) < 1.3 and high - low < 3.5
        inside.append(low <= true <= high)
        again = Rating(levels, rating.results)
        assert again.level == rating.level and again.interval == rating.interval
    assert sum(inside) >= 3


def test_a_rating_refuses_what_is_no_result():
    for score in (2, -1, math.nan, None):
        with pytest.raises(ValueError, match="score is"): Rating(even_levels(64)).update(score)


# Traps ------------------------------------------------------------------------------------------

def slow_outlook(game, state, me):
    "The definition: the result of perfect play, and the mean if the other side moves at random."
    mover = game.mover(state)
    if mover < 0: return (float(game.returns(state)[me]),) * 2
    after = [slow_outlook(game, game.play(state, action), me) for action in game.legal_actions(state)]
    if mover == me: return max(after)
    return min(sure for sure, _ in after), sum(hope for _, hope in after) / len(after)


def test_a_look_ahead_agrees_with_the_definition():
    game, rng = get_game("tictactoe"), np.random.default_rng(3)
    for _ in range(30):
        state = game.new()
        for _ in range(rng.integers(3, 8)):
            if game.over(state): break
            state = game.play(state, int(rng.choice(game.legal_actions(state))))
        if game.over(state): continue
        found, complete = look_ahead(game, state)
        assert complete
        for action, outlook in found.items():
            want = slow_outlook(game, game.play(state, action), game.mover(state))
            assert tuple(outlook) == pytest.approx(want)


def test_a_player_who_moves_twice_is_seen_as_one_player():
    "In dots and boxes a closed box gives another move."
    game = get_game("dots(rows=1,cols=2)")
    for state in [game.state_after(moves) for moves in ([0], [0, 1], [0, 1, 2])]:
        found, complete = look_ahead(game, state)
        assert complete
        for action, outlook in found.items():
            assert tuple(outlook) == pytest.approx(slow_outlook(game, game.play(state, action), game.mover(state)))


def test_a_look_that_is_too_wide_or_not_for_this_game():
    game = get_game("gomoku(size=9)")
    found, complete = look_ahead(game, game.new(), most=100)
    assert found is None and not complete and best_trap(game, game.new(), [5, 7], most=100) == 5
    for name in ("pig", "blob"):
        with pytest.raises(ValueError, match="traps need two players"): look_ahead(get_game(name), get_game(name).new())


def test_results_that_need_not_be_opposite_have_no_traps():
    for zero_sum in (True, False):
        game = Game("few", start=few_start, mover=few_mover, legal=few_legal, play=few_play, returns=few_returns,
                    observe=few_observe, state_size=2, players=2, actions=2, shape=(2,), max_length=4, zero_sum=zero_sum)
        assert traps_fit(game) == zero_sum


class Refuting(UniformEvaluator):
    "Sees nothing in a position, and looks at one move last of all, or first where one of the others was played."
    def evaluate(self, inputs, offsets, actions):
        logits, values = super().evaluate(inputs, offsets, actions)
        values[:] = 0
        for start, end in zip(offsets[:-1], offsets[1:]):
            logits[start:end] = np.where(np.asarray(actions[start:end]) == 8, -20.0 if end - start == 6 else 20.0, 0.0)
        return logits, values


def test_where_all_tried_moves_lose_an_untried_one_is_played():
    game = get_game("tictactoe")
    agent = Agent(game, Refuting(game), simulations=10, leaves=1, find_wins=False)   # It would soon find another move
    state = game.state_after([6, 4, 7])
    analysis = agent.analyse(state)
    assert analysis.best.value is None and analysis.best.action == 8 and any(move.proven for move in analysis.moves)
    agent.traps = True
    assert agent.act(state) in game.legal_actions(state)
    (grade,), _ = grade_moves(agent, state[None], [8], simulations=10)
    assert grade.action == grade.best == 8 and grade.before == grade.after


class Remembered:
    "A player that answers a position once and remembers the move."
    def __init__(self, agent): self.agent, self.name, self.moves = agent, "agent", {}

    def acts(self, states):
        for state in states:
            if state.tobytes() not in self.moves: self.moves[state.tobytes()] = self.agent.act(state)
        return np.array([self.moves[state.tobytes()] for state in states])


def test_traps_win_more_against_random_moves_and_never_lose():
    "97.8 % of the points are possible from the empty board over both seats; a choice at random among equal moves: 93.6 %."
    game = get_game("tictactoe")
    agent = Agent(game, UniformEvaluator(game), simulations=64)
    agent.traps = True
    player, tables = Remembered(agent), []
    for k in range(250): tables += [[player, RandomPlayer(game, k)], [RandomPlayer(game, k), player]]
    ends, _ = play_tables(game, [game.new()] * len(tables), tables)
    scores = np.array(read_scores(game, ends))
    assert scores.min() > 0 and scores.mean() > 0.96


def test_traps_are_for_play_and_change_no_search():
    game = get_game("tictactoe")
    agent, state = Agent(game, UniformEvaluator(game), simulations=64), game.state_after([0, 4])
    plain, policy = agent.act(state), agent.policy(state)
    agent.traps = True
    found, complete = look_ahead(game, state)
    assert complete and agent.act(state) == max(found, key=found.get) and (agent.policy(state) == policy).all()
    agent.traps = False
    assert agent.act(state) == plain


@pytest.mark.parametrize("name", ["connect4", "chess(variant=gardner)", "gomoku(size=9)", "tictactoe", "dots(rows=3,cols=3)"])
def test_shipped_agents_have_measured_levels(name):
    levels = stored_levels(f"pretrained:{name}")
    elos, simulations = [level.elo for level in levels], [level.simulations for level in levels]
    assert elos[-1] == 0 and np.ptp(np.diff(elos)) < 0.5 and 75 < np.diff(elos)[0] <= 100
    assert simulations == sorted(simulations) and simulations[-1] == 64 and levels[0].temperature > 0.5


def test_levels_that_were_not_measured_have_no_strength():
    header, *rows = describe_levels(even_levels(64)).splitlines()
    assert len(rows) == 8 and all(row.split()[-1] == "–" and len(row) == len(header) for row in rows)
    assert [row.split()[-1] for row in describe_levels((Level(1, 1.5, -700.0), Level(64, 0.0, 0.0))).splitlines()[1:]] == ["0", "-700"]
