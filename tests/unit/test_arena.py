"The arena: fair matches, honest intervals, and opponents that are as strong as they say."
import functools
import json
import math
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from alphazero_nb.core.streams import Purpose, derive_seed
from alphazero_nb.core.events import describe_measures
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game
from alphazero_nb.core.python_game import PythonGame, RuleError
from alphazero_nb.games import blob as rules
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.search import SearchSettings
from alphazero_nb.search.agent import Agent
from alphazero_nb.selfplay.settings import SelfPlaySettings
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.core.intervals import elo, linked_groups, mean_interval, score_interval
from alphazero_nb.arena.level_curve import play_pairs
from alphazero_nb.arena.players import HeuristicPlayer, Player, RandomPlayer, RolloutPlayer, get_player
from alphazero_nb.arena.matches import (DuplicateResult, MatchResult, canonical, play_duplicate, play_match, play_series, play_tables,
                                        random_openings, share_beaten)
from alphazero_nb.cli import main
from alphazero_nb.arena.ladder import check_match, default_baseline, default_ladder, run_ladder
import broken_games
from reference import Ignorant, all_positions, best_actions, late_positions

README = Path(__file__).resolve().parents[2] / "README.md"
TICTACTOE, CONNECT4 = get_game("tictactoe"), get_game("connect4")


class Watched:
    "Plays the first legal move and remembers every position it was asked about."
    def __init__(self, game, name="watched"): self.game, self.name, self.asked = game, name, []

    def acts(self, states):
        self.asked += [(state.tobytes(), self.game.mover(state)) for state in states]
        return np.array([self.game.legal_actions(state)[0] for state in states])


class First:
    "Plays the first legal action, or the last one: no luck of its own, and no look at anything else."
    def __init__(self, game, which=0, name="first"): self.game, self.which, self.name, self.asked = game, which, name, 0

    def acts(self, states):
        self.asked += len(states)
        return np.array([self.game.legal_actions(state)[self.which] for state in states])


class Perfect:
    "Plays tic-tac-toe as well as it can be played."
    name, known = "perfect", {}

    def acts(self, states): return np.array([best_actions(TICTACTOE, state, self.known)[0][0] for state in states])


# Matches


@pytest.mark.parametrize("name", ["tictactoe", "dots(rows=2,cols=2)"])
def test_every_opening_is_played_from_every_seat(name):
    game = get_game(name)
    player, opponent = Watched(game), Watched(game, "other")
    result = play_match(game, player, opponent, games=20, opening_plies=2, seed=3)
    assert len(result.scores) == len(result.lengths) == 20 and (result.player, result.opponent) == ("watched", "other")
    openings = [state.tobytes() for state in random_openings(game, 10, 2, 3)[0]]
    first = [state for state, _ in player.asked[:10]]
    assert sorted(first) == sorted(openings), "the player is on the move in one of each opening's two games"
    assert {seat for _, seat in player.asked} == {0, 1} == {seat for _, seat in opponent.asked}
    assert result.score == .5, "equal players in changed seats share the points"
    assert (result.scores[::2] + result.scores[1::2] == 1).all(), "game by game"


def test_an_odd_number_of_games_is_rounded_up():
    assert len(play_match(TICTACTOE, RandomPlayer(TICTACTOE), RandomPlayer(TICTACTOE), games=7, opening_plies=1).scores) == 8
    with pytest.raises(ValueError, match="0"): play_match(TICTACTOE, RandomPlayer(TICTACTOE), RandomPlayer(TICTACTOE), games=0)


def test_lengths_count_every_move():
    result = play_match(TICTACTOE, Watched(TICTACTOE), Watched(TICTACTOE), games=40, opening_plies=3)
    assert result.lengths.min() >= 5 and result.lengths.max() <= 9
    player, opponent = Watched(TICTACTOE), Watched(TICTACTOE)
    result = play_match(TICTACTOE, player, opponent, games=40, opening_plies=3)
    assert result.lengths.sum() == 40 * 3 + len(player.asked) + len(opponent.asked)


# Openings, held against positions that are enumerated move by move on plain tuples


def lines_of_four():
    "The cells of every line of four in Connect Four."
    ways = [(r, c, down, right) for r in range(6) for c in range(7) for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))]
    inside = [way for way in ways if way[0] + 3 * way[2] < 6 and 0 <= way[1] + 3 * way[3] < 7]
    return [[7 * (r + k * down) + c + k * right for k in range(4)] for r, c, down, right in inside]


GRID = np.arange(9).reshape(3, 3)
PLAIN = {   # Cells, lines that win, symmetries as the cell that each cell shows, and the free cell of every move
    "tictactoe": (9, [*GRID.tolist(), *GRID.T.tolist(), [0, 4, 8], [2, 4, 6]],
                  [np.rot90(g, k).ravel().tolist() for g in (GRID, GRID[:, ::-1]) for k in range(4)],
                  lambda board: [cell for cell in range(9) if not board[cell]]),
    "connect4": (42, lines_of_four(), [list(range(42)), [7 * r + 6 - c for r in range(6) for c in range(7)]],
                 lambda board: [max(cell for cell in range(c, 42, 7) if not board[cell]) for c in range(7) if not board[c]]),
}


def one_of_all(name, board):
    "The smallest of the boards that a symmetry turns this one into."
    return min(tuple(board[cell] for cell in view) for view in PLAIN[name][2])


@functools.cache
def all_openings(name, plies):
    "Every open position after so many moves, up to symmetry."
    cells, lines, _, moves = PLAIN[name]
    boards = {(0,) * cells}
    for ply in range(plies):
        boards = {board[:cell] + (1 + ply % 2,) + board[cell + 1:] for board in boards for cell in moves(board)}
        boards = {board for board in boards if 0 in board
                  and not any(board[line[0]] and len({board[cell] for cell in line}) == 1 for line in lines)}
    return {one_of_all(name, board) for board in boards}


def openings_of_match(game, openings, plies, seed):
    "The positions that a match starts from, up to symmetry: what the mover is asked first."
    asked, played = Watched(game), game.name
    play_match(game, *((asked, First(game)) if plies % 2 == 0 else (First(game), asked)), openings * 2, plies, seed)
    firsts = [state for state, _ in asked.asked[:openings]]
    return [one_of_all(played, tuple(np.frombuffer(state, np.int16)[:PLAIN[played][0]].tolist())) for state in firsts]


@pytest.mark.parametrize("name, plies, openings", [
    ("connect4", 4, 200), ("connect4", 2, 40), ("connect4", 4, 700), ("tictactoe", 1, 30), ("tictactoe", 2, 50), ("tictactoe", 4, 100),
    ("tictactoe", 4, 400), ("tictactoe", 7, 100),
])
def test_openings_differ_as_positions_while_there_are_different_ones(name, plies, openings):
    "Not as sequences of moves: other orders, turned and mirrored boards are the same opening. Then all are used equally often."
    every = all_openings(name, plies)
    for seed in range(3):
        counts = Counter(openings_of_match(get_game(name), openings, plies, seed))
        assert counts.keys() <= every, "each opening is a position that the game can reach"
        assert len(counts) == min(openings, len(every))
        assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize("name", ["connect4", "gomoku(size=15)", "dots(rows=3,cols=3)", "tictactoe"])
def test_openings_follow_from_the_seed(name):
    game = get_game(name)
    openings = lambda seed: [state.tobytes() for state in random_openings(game, 60, 4, seed)[0]]
    assert openings(1) == openings(1) != openings(2)
    assert not any(game.over(state) for state in random_openings(game, 60, 4, 1)[0])
    assert random_openings(game, 60, 4, 1)[1] == 4


def heap(stones):
    "Two players take one or two stones; the last one wins."
    def start(state, seed): state[0], state[1] = stones, 0
    def mover(state): return -1 if state[0] == 0 else state[1]
    def legal(state, actions):
        actions[0], actions[1] = 0, 1
        return min(2, state[0])
    def play(state, action): state[0], state[1] = state[0] - action - 1, 1 - state[1]
    def returns(state, out): out[1 - state[1]], out[state[1]] = 1, -1
    def observe(state, planes): planes[0] = state[0]
    return Game(f"heap{stones}", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe, state_size=2,
                players=2, actions=2, shape=(1,), max_length=max(1, stones))


def test_openings_are_as_long_as_the_game_allows():
    "A heap of three lasts three moves at most, so four moves of an opening become two: one stone each."
    game = heap(3)
    result = play_match(game, First(game), First(game), games=10)
    assert result.lengths.tolist() == [3] * 10 and result.score == .5
    states, plies = random_openings(game, 5, 4, 0)
    assert plies == 2 and {tuple(state) for state in states} == {(1, 0)}
    result = play_match(TICTACTOE, First(TICTACTOE), First(TICTACTOE), games=20, opening_plies=9)
    assert result.lengths.tolist() == [9] * 20, "eight moves, and the last free cell"


def test_openings_with_dice_differ_while_there_are_different_ones():
    game = get_game("pig")
    states, plies = random_openings(game, 50, 4, 0)
    assert plies == 4 and len({canonical(game, state) for state in states}) == 50


def test_a_match_whose_rules_go_round_in_circles_ends():
    def mover(state): return -1 if state[1] else state[0]
    def legal(state, actions):
        actions[0], actions[1] = 0, 1
        return 2
    def play(state, action):
        if action == 1: state[1] = 1
        else: state[0] = 1 - state[0]
    def start(state, seed): pass
    def returns(state, out): pass
    def observe(state, planes): pass
    class Paces(Player):
        name = "paces"
        def acts(self, states): return np.zeros(len(states), int)
    game = Game("pacing", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                state_size=2, players=2, actions=2, shape=(1,), max_length=50)
    with pytest.raises(ValueError, match="game of pacing has had .* and does not end"): play_match(game, Paces(), Paces(), 2)


def test_a_game_that_is_over_at_once_has_no_opening():
    with pytest.raises(ValueError, match="heap0 is over before the first move"): random_openings(heap(0), 2, 4, seed=0)


def test_no_match_has_a_deal_of_another_purpose():
    "64 of 64 deals of a ladder were once the first training games of its run."
    game = get_game("blob(players=3,cards=3)")
    cards = lambda state: np.frombuffer(state, np.int16)[:rules.CARDS].tobytes()
    def dealt(play):
        player = Watched(game)
        play(player, First(game))
        firsts = [np.frombuffer(state, np.int16) for state, _ in player.asked]
        return {cards(row.tobytes()) for row in firsts if row[rules.BIDDERS] == 0}
    settings = SelfPlaySettings(SearchSettings(2, worlds=1), fast_simulations=1)
    with SelfPlayEngine(game, None, device="cpu", settings=settings, threads=1, games=128, listeners=(), reproducible=True) as engine:
        records = engine.generate_games(2000)
    match = lambda iteration: derive_seed(0, Purpose.TRAINING_MATCH, iteration)
    deals = [{cards(game.new(record.seed).tobytes()) for record in records},
             dealt(lambda *players: play_series(game, *players, 64)),
             dealt(lambda *players: list(run_ladder(game, players[0], 64, ("random",)))),
             *[dealt(lambda *players: play_series(game, *players, 64, match(iteration))) for iteration in (1, 2, 10)]]
    assert [len(some) for some in deals] == [2000] + [64] * 5
    assert len(set.union(*deals)) == 2000 + 5 * 64


@pytest.mark.parametrize("game, baseline, games, words", [
    (CONNECT4, "rolouts:100", 40, "baseline.*rolouts:100.*Did you mean 'rollouts:400'"), (CONNECT4, "heuristic", 40, "has no heuristic"),
    (CONNECT4, "rollouts:0", 40, "at least one playout"), (CONNECT4, "random", 0, "evaluate_games is 0; it must be at least 1"),
    (get_game("blob(players=3,cards=2)"), "heuristic", 1, "evaluate_games is 1; it must be at least 2"),
    (CONNECT4, "runs/nowhere", 40, "runs/nowhere"), (heap(0), "random", 40, "over before the first move"),
])
def test_a_match_that_cannot_be_played_is_found_before_a_run(game, baseline, games, words):
    with pytest.raises(ValueError, match=words): check_match(game, baseline, games)


@pytest.mark.parametrize("game", [CONNECT4, TICTACTOE, heap(2), get_game("blob(players=3,cards=2)")])
def test_a_match_that_can_be_played_passes(game):
    for baseline in ("random", "rollouts:20", default_baseline(game)):
        check_match(game, baseline, 2)
        play_series(game, First(game), get_player(baseline, game), 2)


def test_a_match_seen_from_the_other_side():
    "What one scores the other does not; a perfect player loses to nobody."
    mine = play_match(TICTACTOE, Perfect(), RandomPlayer(TICTACTOE, 5), games=60, opening_plies=0, seed=2)
    theirs = play_match(TICTACTOE, RandomPlayer(TICTACTOE, 5), Perfect(), games=60, opening_plies=0, seed=2)
    assert (mine.scores >= .5).all() and mine.score > .8
    assert (theirs.scores <= .5).all() and theirs.score < .2
    drawn = play_match(TICTACTOE, Perfect(), Perfect(), games=10, opening_plies=0)
    assert (drawn.scores == .5).all()


def test_random_against_random_is_even():
    result = play_match(CONNECT4, RandomPlayer(CONNECT4, 1), RandomPlayer(CONNECT4, 2), games=300, seed=4)
    assert abs(result.score - .5) < 4 * .5 / math.sqrt(300)
    assert result.interval[0] < .5 < result.interval[1]


# Numbers


def wilson(p, n, z=1.96):
    "The interval's ends solve (p − q)² = z²·q(1 − q)/n (Wilson 1927)."
    return sorted(np.roots([1 + z * z / n, -2 * p - z * z / n, p * p]).real)


@pytest.mark.parametrize("scores", [[1.] * 10, [0.] * 3, [1, 0, .5, .5, 1], [.5], [1.] * 150 + [0.] * 50])
def test_score_and_interval(scores):
    result = MatchResult("a", "b", np.array(scores, float), np.full(len(scores), 9))
    assert result.score == pytest.approx(sum(scores) / len(scores))
    assert np.allclose(result.interval, np.clip(wilson(result.score, len(scores)), 0, 1), atol=1e-7)
    assert 0 <= result.interval[0] <= result.score <= result.interval[1] <= 1


def test_the_interval_holds_what_it_promises():
    "About 95 of 100 matches of known strength have it inside."
    rng, inside = np.random.default_rng(0), 0
    for _ in range(2000):
        low, high = MatchResult("a", "b", (rng.random(100) < .7).astype(float), np.zeros(100, int)).interval
        inside += low <= .7 <= high
    assert .93 < inside / 2000 < .97


@pytest.mark.parametrize("difference", [-700, -191, 0, 50, 400])
def test_elo_is_the_difference_that_expects_the_score(difference):
    assert elo(1 / (1 + 10 ** (-difference / 400))) == pytest.approx(difference, abs=1e-6)
    assert elo(0) is None is elo(1)


def test_a_result_as_plain_data():
    result = MatchResult("a", "b", np.array([1, 1, .5, 0, 1.]), np.full(5, 9)).to_dict()
    assert json.loads(json.dumps(result)) == result
    assert (result["wins"], result["draws"], result["losses"], result["games"]) == (3, 1, 1, 5)
    assert result["score"] == .7 and result["elo_low"] < result["elo"] < result["elo_high"]
    assert result["elo"] == pytest.approx(400 * math.log10(.7 / .3))


def test_a_printed_result_is_one_line():
    "It listed every move of every game."
    result = play_match(CONNECT4, RandomPlayer(CONNECT4, 1), RandomPlayer(CONNECT4, 2), games=300)
    assert str(result) == (f"random against random: {result.score:.1%} of the points "
                           f"({result.interval[0]:.1%} to {result.interval[1]:.1%}, 300 games)")
    assert "PlayedGame" not in repr(result)


# Players


def test_every_player_acts_on_one_state_as_on_a_block_of_one():
    states = {game: [game.new(3), game.state_after(game.legal_actions(game.new(3))[:1], 3)] for game in (BLOB, CONNECT4)}
    makes = [lambda game: RandomPlayer(game, 5), lambda game: RolloutPlayer(game, 20, 5), HeuristicPlayer,
             lambda game: Agent(game, UniformEvaluator(game), 8, seed=5)]
    for game in (BLOB, CONNECT4):
        for make in makes:
            if make is HeuristicPlayer and game.heuristic is None: continue
            for state in states[game]:
                action = make(game).act(state)
                assert type(action) is int and action == make(game).acts(state[None])[0] and action in game.legal_actions(state)
    over = TICTACTOE.state_after([0, 3, 1, 4, 2])
    for make in makes:
        if make is not HeuristicPlayer:
            with pytest.raises(ValueError, match="tictactoe: the game is over"): make(TICTACTOE).act(over)


class Last(Player):
    "A player of one's own: the last legal move."
    name = "last"

    def __init__(self, game): self.game = game

    def acts(self, states): return np.array([self.game.legal_actions(state)[-1] for state in states])


def test_a_player_of_ones_own_needs_acts_only():
    assert Last(TICTACTOE).act(TICTACTOE.new()) == 8
    assert play_match(TICTACTOE, Last(TICTACTOE), RandomPlayer(TICTACTOE), games=4).player == "last"


@pytest.mark.parametrize("answers", [0, 1])
def test_a_player_that_leaves_positions_without_an_answer_is_named(answers):
    class Short:
        name = "short"
        def acts(self, states): return [0] * answers
    with pytest.raises(ValueError, match=f"short returned {answers} actions for "):
        play_match(get_game("tictactoe"), Short(), RandomPlayer(get_game("tictactoe")), 4)


def test_more_playouts_are_stronger():
    match = lambda a, b, n: play_match(CONNECT4, get_player(a, CONNECT4, seed=1), get_player(b, CONNECT4, seed=2), n).score
    assert match("rollouts:20", "random", 60) > .8
    assert match("rollouts:200", "rollouts:20", 60) > .7


def test_many_playouts_find_what_is_best():
    "In every open position of tic-tac-toe with at most five empty cells, and in late dots and boxes, extra moves and all."
    late = [state for state in all_positions(TICTACTOE, TICTACTOE.new(), {}).values() if len(TICTACTOE.legal_actions(state)) <= 5]
    dots, known, wrong = get_game("dots(rows=2,cols=2)"), {}, []
    for game, states in ((TICTACTOE, late[::7]), (dots, late_positions(dots, 5, 100, 3))):
        actions = RolloutPlayer(game, 5000).acts(np.stack(states))
        for state, action in zip(states, actions):
            best, worth = best_actions(game, state, known)
            if action not in best: wrong.append((game.text(state), action, worth))
    assert not wrong, f"{len(wrong)} wrong, first:\n{wrong[0][0]}\n{wrong[0][1:]}"


def test_players_are_reproducible_by_seed():
    states = np.stack(random_openings(CONNECT4, 40, 6, 0)[0])
    for name in ("random", "rollouts:30"):
        acts = lambda seed: get_player(name, CONNECT4, seed=seed).acts(states).tolist()
        assert acts(1) == acts(1) != acts(2)
        player = get_player(name, CONNECT4, seed=1)
        assert player.acts(states).tolist() != player.acts(states).tolist(), "asked again, other playouts"
        assert player.name == name


def test_random_is_uniform_over_legal_moves():
    state = CONNECT4.state_after([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    counts = np.bincount(RandomPlayer(CONNECT4, 3).acts(np.tile(state, (3000, 1))), minlength=7)
    assert counts[:2].sum() == 0 and ((counts[2:] - 600) ** 2 / 600).sum() < 24, "chi-square, p about 1e-4"


@pytest.mark.parametrize("name, words", [
    ("rollout:400", "rollouts:400"), ("randm", "random"), ("rollouts:", "rollouts:N"), ("rollouts:-5", "rollouts:N"),
    ("rollouts:0", "rollouts:0"), ("rollouts:many", "rollouts:N"), ("random:3", "random"),
    ("runs/nowhere", "folder"), ("rollouts:²", "rollouts"),
])
def test_unknown_players_are_named(name, words):
    with pytest.raises(ValueError) as caught: get_player(name, CONNECT4)
    assert words in str(caught.value) and (repr(name) in str(caught.value) or name == "rollouts:0")


@pytest.mark.parametrize("name", ["random", "heuristic", "solver", "rollouts:20", "pretrained", "greedy", "minimax:2", "uci:x"])
def test_a_player_without_a_game_is_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"player '{name}' needs a game; pass one"): get_player(name)


class Holed:
    "Two players take a stone each in turn; after two stones the bag has a hole."
    def __init__(self, seed): self.left = 6
    def mover(self): return self.left % 2 if self.left else -1
    def legal(self): return [0, 1]
    def returns(self): return [1, -1]
    def observe(self): return np.array([self.left])

    def play(self, action):
        if self.left == 4: raise LookupError("the bag has a hole")
        self.left -= 1


@pytest.mark.parametrize("make", [lambda game: RolloutPlayer(game, 20), lambda game: Agent(game, UniformEvaluator(game), 20)])
def test_a_player_knows_why_a_rule_has_failed(make):
    game = PythonGame("holed", Holed, players=2, actions=2, shape=(1,), max_length=6)
    with pytest.raises(RuleError) as caught: make(game).acts(game.new()[None])
    assert isinstance(caught.value.__cause__, LookupError) and caught.value.__cause__.args == ("the bag has a hole",)


@pytest.mark.parametrize("playouts", [7, 10, 25, 109])
def test_worlds_share_all_playouts(playouts, monkeypatch):
    from alphazero_nb.arena import players
    asked = []

    def count(api, trees, random, simulations, c):
        asked.append(simulations)
        return search(api, trees, random, simulations, c)
    search = players.search_uct
    monkeypatch.setattr(players, "search_uct", count)
    get_player(f"rollouts:{playouts}", BLOB).act(BLOB.new(3))
    assert sum(asked) == playouts and len(asked) == min(10, playouts) and max(asked) - min(asked) <= 1


def test_a_player_of_another_game_is_refused(tmp_path):
    from alphazero_nb.training.learner import TrainSettings
    from alphazero_nb.training.trainer import Trainer
    settings = TrainSettings(games_per_iteration=4, batch_size=8, evaluate_every=0)
    folder = tmp_path / "run"
    Trainer("tictactoe", "tiny", folder, device="cpu", simulations=4, train_settings=settings, games=4, threads=1, shared=False,
            listeners=()).fit(iterations=1)
    with pytest.raises(ValueError, match="tictactoe.*connect4"): get_player(str(folder), CONNECT4, device="cpu")
    agent = get_player(str(folder), device="cpu", simulations=8)
    assert agent.game.name == "tictactoe" and agent.name == "run"
    assert get_player(folder, TICTACTOE, device="cpu").act(TICTACTOE.new()) in range(9)
    with pytest.raises(ValueError, match="training run"): get_player(str(tmp_path), TICTACTOE, device="cpu")


def test_a_ladder_is_a_match_per_rung():
    agent = Agent(TICTACTOE, Ignorant(TICTACTOE), simulations=100)
    results = list(run_ladder(TICTACTOE, agent, games=20, ladder=("random", "rollouts:5")))
    assert [result.opponent for result in results] == ["random", "rollouts:5"]
    assert all(len(result.scores) == 20 for result in results) and results[0].score > .7


# Several players and the same cards


BLOB = get_game("blob(players=3,cards=2)")


@pytest.mark.parametrize("results, shares", [
    ([1, -1], [1, 0]), ([0, 0], [.5, .5]), ([-1, -1], [.5, .5]), ([.3, .2, .1], [1, .5, 0]), ([.2, .2, -1, .9], [.5, .5, 0, 1]),
    ([0, 0, 0, 0], [.5] * 4),
])
def test_a_score_is_the_share_of_the_others_that_did_worse(results, shares):
    assert [share_beaten(results, seat) for seat in range(len(results))] == pytest.approx(shares)
    beaten = [[(a > b) + (a == b) / 2 for j, b in enumerate(results) if j != i] for i, a in enumerate(results)]
    assert shares == pytest.approx([sum(row) / len(row) for row in beaten]) and sum(shares) == pytest.approx(len(results) / 2)


def test_of_several_equals_each_expects_half():
    result = play_match(BLOB, RandomPlayer(BLOB, 1), RandomPlayer(BLOB, 2), games=600, seed=4)
    assert abs(result.score - .5) < 4 * .5 / math.sqrt(600) and result.interval[0] < .5 < result.interval[1]
    row = result.to_dict()
    assert row["wins"] + row["draws"] + row["losses"] == 600 and abs(row["elo"]) < 60
    same = play_match(BLOB, First(BLOB), First(BLOB), games=30)
    assert same.scores.reshape(10, 3).mean(1) == pytest.approx(.5), "deal by deal, over the seats"


def by_hand(game, state, table):
    "One game after another, one move after another."
    moves = 0
    while not game.over(state):
        state, moves = game.play(state, int(table[game.mover(state)].acts(state[None])[0])), moves + 1
    return state, moves


def test_tables_are_played_as_one_after_another():
    a, b, c = First(BLOB), First(BLOB, -1), HeuristicPlayer(BLOB)
    starts = [BLOB.new(seed) for seed in range(7)]
    tables = [[(a, b, c)[(i + seat * (1 + i % 2)) % 3] for seat in range(3)] for i in range(7)]
    rounds = []
    states, moves = play_tables(BLOB, starts, tables, lambda over, moves: rounds.append((over, moves)))
    for state, count, start, table in zip(states, moves, starts, tables):
        alone, length = by_hand(BLOB, start, table)
        assert np.array_equal(state, alone) and count == length
    assert rounds == sorted(rounds) and rounds[-1] == (7, sum(moves))


def test_every_deal_is_played_from_every_seat_and_once_without():
    "Held against a slow loop over deals and seats, which reads bids, tricks and scores itself."
    player, opponent, deals = First(BLOB, -1, "last"), HeuristicPlayer(BLOB), 12
    found = play_duplicate(BLOB, player, opponent, deals, seed=5)
    mine, theirs, met, scores = np.zeros((deals, 3)), np.zeros((deals, 3)), np.zeros((deals, 3)), []
    for deal in range(deals):
        start = BLOB.new(derive_seed(5, Purpose.OPENINGS, deal))
        theirs[deal] = rules.scores(by_hand(BLOB, start, [opponent] * 3)[0])
        for seat in range(3):
            state, _ = by_hand(BLOB, start, [player if k == seat else opponent for k in range(3)])
            points = rules.scores(state)
            mine[deal, seat], met[deal, seat] = points[seat], rules.bids(state)[seat] == rules.tricks(state)[seat]
            scores.append(sum((points[seat] > p) + (points[seat] == p) / 2 for k, p in enumerate(points) if k != seat) / 2)
    assert np.array_equal(found.mine["points a round"], mine) and np.array_equal(found.theirs["points a round"], theirs)
    assert np.array_equal(found.mine["exact bids"], met) and np.allclose(found.match.scores, scores)
    assert (found.match.player, found.match.opponent, len(found.match.lengths)) == ("last", "heuristic", 36)
    difference = mine.mean(1) - theirs.mean(1)
    spread = 2.201 * math.sqrt(((difference - difference.mean()) ** 2).sum() / 11 / 12)   # Student's, 11 degrees of freedom
    measured = found.measures["points a round"]["difference"]
    assert measured == pytest.approx([difference.mean(), difference.mean() - spread, difference.mean() + spread], abs=.01)


@pytest.mark.parametrize("make", [First, HeuristicPlayer])
def test_against_oneself_the_difference_is_exactly_zero(make):
    found = play_duplicate(BLOB, make(BLOB), make(BLOB), deals=20)
    for name, row in found.measures.items():
        assert row["difference"] == [0, 0, 0] and row["mine"] == row["theirs"]
        assert np.array_equal(found.mine[name], found.theirs[name])
    assert found.match.score == .5


def test_the_same_cards_make_the_interval_narrow():
    "Two players that seldom differ: on the same deals the difference is known better than on deals of their own."
    class Almost(HeuristicPlayer):
        def acts(self, states):
            odd = [int(state[:52].sum()) % 7 == 0 for state in states]
            return np.array([self.game.legal_actions(s)[0] if o else self.game.heuristic(s) for s, o in zip(states, odd)])
    found = play_duplicate(BLOB, Almost(BLOB), HeuristicPlayer(BLOB), deals=200)
    width = lambda key: np.ptp(found.measures["points a round"][key][1:])
    assert 0 < width("difference") < .7 * math.hypot(width("mine"), width("theirs"))


def test_the_interval_of_a_mean_holds_what_it_promises():
    rng, inside = np.random.default_rng(0), 0
    for _ in range(2000):
        _, low, high = mean_interval(rng.exponential(3, 200))
        inside += low <= 3 <= high
    assert .92 < inside / 2000 < .97


def test_a_duplicate_as_plain_data_and_as_a_line():
    match = MatchResult("a", "b", np.array([1, .5, 0, .5]), np.full(4, 9))
    mine, theirs = np.array([[11., 10.], [0., 12.]]), np.array([[0., 10.], [11., 10.]])
    found = DuplicateResult(match, dict(points=mine, exact=(mine > 0) * 1.), dict(points=theirs, exact=(theirs > 0) * 1.))
    row = found.to_dict()
    assert json.loads(json.dumps(row)) == row and (row["deals"], row["games"]) == (2, 4)
    points, exact = row["measures"]["points"], row["measures"]["exact"]
    assert points["mine"][0] == 8.25 and points["theirs"][0] == 7.75 and not points["share"] and exact["share"]
    spread = 12.7062 * 5   # Differences of 5.5 and −4.5: standard deviation 10 / √2, over √2, for one degree of freedom
    assert points["difference"] == pytest.approx([.5, .5 - spread, .5 + spread])
    line = describe_measures(row["measures"])
    assert line.startswith("points 8.25 (-20.34 to 36.84) against 7.75 (-27.19 to 42.69): +0.50 (-63.03 to +64.03); exact 75.0% (")
    assert "against 75.0% (" in line and line.count(": +") == 2
    assert found.event(7).measures == row["measures"] and found.event(7).iteration == 7 and found.event().score == match.score


def test_a_game_without_measures_compares_results():
    plain = Game("plain", **{name: getattr(rules, name) for name in ("mover", "legal", "play", "returns", "resample_hidden")},
                 start=BLOB.functions["start"], observe=lambda state, planes: None, state_size=BLOB.state_size,
                 players=3, actions=66, shape=(1,), max_length=9, max_legal=3)
    found = play_duplicate(plain, First(plain), First(plain, -1), deals=10)
    points = play_duplicate(BLOB, First(BLOB), First(BLOB, -1), deals=10).mine["points a round"]
    assert list(found.mine) == ["result"] and found.mine["result"] == pytest.approx(points / 6 - 1)


def test_empty_seats_do_not_count():
    game = get_game("blob(players=5,cards=3,deals=all)")
    found = play_duplicate(game, HeuristicPlayer(game), RandomPlayer(game), deals=40)
    taken = np.isfinite(found.mine["points a round"])
    players = [int(game.new(derive_seed(0, Purpose.OPENINGS, deal))[rules.PLAYERS]) for deal in range(40)]
    assert set(players) == {3, 4, 5} and taken.sum(1).tolist() == players and len(found.match.scores) == sum(players)
    assert np.isfinite(found.measures["exact bids"]["difference"]).all() and found.match.score > .5


def test_who_deals_nothing_is_refused_and_one_deal_has_no_spread():
    with pytest.raises(ValueError, match="tictactoe has no hidden information"):
        play_duplicate(TICTACTOE, First(TICTACTOE), First(TICTACTOE))
    with pytest.raises(ValueError, match="deals is 1"): play_duplicate(BLOB, First(BLOB), First(BLOB), deals=1)


def test_a_meeting_is_in_duplicate_where_cards_are_hidden():
    rounds = []
    cards = play_series(BLOB, HeuristicPlayer(BLOB), First(BLOB), games=6, listener=rounds.append)
    board = play_series(TICTACTOE, First(TICTACTOE), First(TICTACTOE, -1), games=6)
    assert isinstance(cards, DuplicateResult) and cards.to_dict()["deals"] == 6 and isinstance(board, MatchResult)
    assert (rounds[-1].over, rounds[-1].games) == (24, 24) and not board.event().measures


@pytest.mark.parametrize("in_python, max_length, baseline", [(True, 101, "random"), (True, 100, "rollouts:100"), (False, 1000, "rollouts:100")])
def test_long_games_in_python_are_not_met_by_playouts(in_python, max_length, baseline):
    "A match of OpenSpiel's backgammon against rollouts:100 took an hour of a run of ten minutes."
    game = SimpleNamespace(has_material=False, heuristic=None, has_hidden_information=False, max_legal=20, in_python=in_python,
                           max_length=max_length)
    assert default_baseline(game) == baseline
    assert default_ladder(game) == (("random",) if baseline == "random" else ("random", "rollouts:100", "rollouts:400"))


@pytest.mark.parametrize("facts", [dict(players=3), dict(has_hidden_information=True), dict(has_chance=True)])
def test_a_ladder_has_no_player_that_cannot_play(facts):
    "Minimax refuses more than two players, hidden cards and dice."
    game = SimpleNamespace(has_material=True, max_legal=80, **dict(players=2, has_hidden_information=False, has_chance=False) | facts)
    assert default_baseline(game) == "greedy" and default_ladder(game) == ("random", "greedy")


def test_a_game_with_a_rule_is_met_by_it():
    assert default_baseline(BLOB) == "heuristic" and default_baseline(CONNECT4) == "rollouts:100"
    assert default_ladder(BLOB) == ("random", "heuristic", "determinized-rollouts:100", "determinized-rollouts:400")
    assert default_ladder(CONNECT4) == ("random", "rollouts:100", "rollouts:400")
    assert default_baseline(get_game("chess")) == "greedy" and default_baseline(get_game("dots")) == "rollouts:100"
    assert default_baseline(get_game("2048")) == "random" and "rollouts:100" in default_ladder(get_game("2048"))
    assert default_ladder(get_game("chess(variant=gardner)")) == ("random", "greedy", "minimax:2")
    names = [result.match.opponent for result in run_ladder(BLOB, First(BLOB), 2, ("random", "heuristic", "determinized-rollouts:10"))]
    assert names == ["random", "heuristic", "determinized-rollouts:10"]


# Games that are not independent


def bootstrap(scores, groups, rng, times=2000):
    "The range of the middle 95 % of the mean, if whole groups are drawn again and again."
    parts = [scores[groups == group] for group in np.unique(groups)]
    drawn = rng.integers(len(parts), size=(times, len(parts)))
    sums, sizes = np.array([part.sum() for part in parts]), np.array([len(part) for part in parts])
    return np.quantile(sums[drawn].sum(1) / sizes[drawn].sum(1), [.025, .975])


def test_the_score_of_shared_deals_has_the_spread_of_their_means():
    "Four games of a deal count once: the interval is that of the means over deals, not of four times as many games."
    rng = np.random.default_rng(0)
    luck = rng.random(200)
    scores, deals = np.repeat(luck, 4), np.repeat(np.arange(200), 4)   # The four games of a deal go alike
    shared = MatchResult("a", "b", scores, np.ones(800), deals)
    assert np.allclose(shared.interval, bootstrap(scores, deals, rng), atol=.004)
    won = MatchResult("a", "b", np.repeat([1., 0.], [600, 200]), np.ones(800), deals)
    assert np.allclose(won.interval, wilson(.75, 200))
    uneven = MatchResult("a", "b", np.repeat([1., 0.], [3, 5]), np.ones(8), np.array([0] * 3 + [1] * 5))
    assert uneven.score == .5, "each deal counts once, in the score as in its interval"
    assert np.allclose(uneven.interval, wilson(.5, 2))
    alone = MatchResult("a", "b", np.tile([0., 1.], 200), np.ones(400), np.repeat(np.arange(200), 2))
    low, high = alone.interval   # Every deal once won and once lost: hardly any luck is left
    assert alone.score == .5 and .47 < low < .5 < high < .53


@pytest.mark.parametrize("score", [0., 1.])
def test_no_interval_is_without_width(score):
    for count in (1, 2, 18, 200):
        result = MatchResult("a", "b", np.full(2 * count, score), np.ones(2 * count), np.repeat(np.arange(count), 2))
        assert np.allclose(result.interval, np.clip(wilson(score, count), 0, 1), atol=1e-7)


@pytest.mark.parametrize("name, draw", {
    "the games of an opening are alike": lambda rng, n: np.repeat(rng.random((n, 1)) < .7, 2, 1),
    "the first seat wins": lambda rng, n: rng.random((n, 2)) < [.95, .45],
    "openings differ": lambda rng, n: rng.random((n, 2)) < rng.beta(2, 6 / 7, (n, 1)),
    "games are independent": lambda rng, n: rng.random((n, 2)) < .7,
    "many draws": lambda rng, n: rng.choice([0, .5, 1], (n, 2), p=[.1, .4, .5]),
}.items())
def test_the_interval_of_games_in_groups_holds_what_it_promises(name, draw):
    "The true score is 0.7 in each. With few groups a plain bootstrap misses it; with many, both have the same width."
    rng = np.random.default_rng(0)
    for count, times in ((5, 1000), (20, 1000), (200, 1000)):
        scores, groups = [draw(rng, count).astype(float).ravel() for _ in range(times)], np.repeat(np.arange(count), 2)
        ends = np.array([score_interval(row, groups) for row in scores])
        assert .93 < ((ends[:, 0] <= .7) & (.7 <= ends[:, 1])).mean()
    plain = np.mean([np.ptp(bootstrap(row, groups, rng, 400)) for row in scores[:40]])
    assert np.ptp(ends[:40], axis=1).mean() == pytest.approx(plain, rel=.08)


def test_groups_of_unequal_size_agree_with_the_bootstrap():
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(300), rng.integers(1, 9, 300))
    scores = (rng.random(len(groups)) < rng.beta(2, 1, 300)[groups]) * 1.
    assert np.allclose(score_interval(scores, groups), bootstrap(scores, groups, rng), atol=.006)
    numbers = rng.normal(5, 1, len(groups)) + rng.exponential(3, 300)[groups]
    assert np.allclose(mean_interval(numbers, groups)[1:], bootstrap(numbers, groups, rng), atol=.06)
    assert np.ptp(mean_interval(numbers)[1:]) < .7 * np.ptp(mean_interval(numbers, groups)[1:])


def test_groups_are_what_equal_keys_connect():
    "Held against repeated merging of sets."
    rng = np.random.default_rng(2)
    for size in (1, 5, 40):
        columns = [rng.integers(max(1, size), size=size).tolist() for _ in range(2)]
        sets = [{row for row in range(size) if column[row] == key} for column in columns for key in set(column)]
        merged = True
        while merged:
            merged = False
            for a in list(sets):
                for b in list(sets):
                    if a is not b and a & b and a in sets and b in sets:
                        sets.remove(b)
                        a |= b
                        merged = True
        groups = linked_groups(*columns)
        assert sorted(map(sorted, sets)) == sorted(np.flatnonzero(groups == k).tolist() for k in set(groups.tolist()))


def nim():
    "README's game: take one, two or three of fifteen stones."
    text = next(part for part in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S) if '"nim"' in part)
    space = {}
    exec(text.split("az.register")[0], space)
    return space["nim"]


@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("make, different", [(nim, 18), (lambda: TICTACTOE, 216)], ids=["nim", "tictactoe"])
def test_repeated_games_are_one_game(make, different, which):
    "400 games of two players without luck of their own in Nim are 18 different ones, from nine openings."
    game = make()
    result = play_match(game, First(game), First(game, which, "other"), games=400)
    assert len(result.scores) == 400 and result.different == result.to_dict()["different"] == different
    assert result.event().different == different and f"400 games, {different} different)" in str(result)
    assert len(set(result.groups.tolist())) == different // 2
    width, independent = np.ptp(result.interval), np.ptp(wilson(result.score, 400))
    if which: assert width > (3 if game.name == "nim" else 1.2) * independent
    else: assert result.score == .5 and width > .3 * independent   # The luck of the opening cancels, not its sample
    again = play_match(game, First(game), First(game, which, "other"), games=1600)
    assert again.different == different and np.ptp(again.interval) > .95 * width, "more of the same says no more"


def test_games_that_differ_stay_independent_where_openings_repeat():
    "All openings of one move are in use, so an opening brings no luck of its own."
    result = play_match(CONNECT4, RandomPlayer(CONNECT4, 1), RandomPlayer(CONNECT4, 2), games=100, opening_plies=1)
    assert result.different == 100 and len(set(result.groups.tolist())) == 50 and "different" not in str(result)


def test_a_deal_that_repeats_counts_once():
    "Sixty deals of which three are different say as much as these three."
    game = get_game("blob(players=3,cards=1)")
    starts = [game.new(derive_seed(0, Purpose.OPENINGS, deal)) for deal in range(3)]
    few = [starts[deal % 3] for deal in range(60)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("alphazero_nb.arena.matches.start_positions", lambda game, deals, *rest: (few[:deals], 0))
        found = play_duplicate(game, First(game), HeuristicPlayer(game), deals=60)
        once = play_duplicate(game, First(game), HeuristicPlayer(game), deals=3)
    assert (found.match.different, once.match.different, found.to_dict()["different"]) == (9, 9, 9)
    for name, row in found.measures.items():
        for key in ("mine", "theirs", "difference"): assert row[key] == pytest.approx(once.measures[name][key])
    assert np.allclose(found.match.interval, once.match.interval)


def test_with_one_player_both_games_of_a_pair_count():
    game = get_game("2048")
    result = play_match(game, First(game), First(game, -1, "last"), games=3)
    assert len(result.games) == 6 and result.different == 3 and result.groups.tolist() == [0, 1, 2]


def test_a_result_without_games_knows_nothing_of_repetitions():
    result = MatchResult("a", "b", np.ones(4), np.ones(4))
    assert result.different is result.event().different is None and "(51.0% to 100.0%, 4 games)" in str(result)


def test_the_command_line_says_how_many_games_differ(capsys):
    play = ["arena", "random", "random", "--game", "tictactoe", "--games", "800"]
    assert main(play) == 0
    words = re.search(r"lost; 800 games, (\d+) different", capsys.readouterr().out)
    assert main([*play, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["games"] == 800 and row["different"] == int(words[1]) < 800
    assert main(["arena", "random", "random", "--game", "connect4", "--games", "20"]) == 0
    assert "different" not in capsys.readouterr().out


def test_playouts_end_in_a_match_of_chess():
    "A match is cut after 1,024 plies and a game of training after 100, so a playout may be longer than max_length."
    game = get_game("chess(variant=gardner)")
    result = play_match(game, get_player("rollouts:2", game), get_player("random", game), games=2)
    assert len(result.scores) == 2


def test_an_empty_seat_plays_no_game():
    "Deals for three to five players: where the player's seat is empty, there is no result. A match in duplicate knew it."
    game = get_game("blob(players=5,cards=3,deals=all)")
    class First(Player):
        name = "first"
        def acts(self, states): return np.array([game.legal_actions(state)[0] for state in states])
    a, b = HeuristicPlayer(game), First()
    want = play_duplicate(game, a, b, deals=40, seed=0).match.scores
    match = play_match(game, a, b, games=200, seed=0)
    assert len(want) < 200 and np.array_equal(match.scores, want)
    assert all(len(each) == len(want) for each in (match.games, match.deals, match.results, match.lengths))
    assert np.array_equal(play_pairs(game, [a, b], [(0, 1)], 200, 0)[1], want)


def test_a_name_that_no_file_can_have_is_an_unknown_player():
    with pytest.raises(ValueError, match="is unknown; choose random"): get_player("x" * 300, get_game("connect4"))


@pytest.mark.parametrize("name", ["solver", "random", "heuristic"])
def test_without_a_game_a_folder_is_a_run_whatever_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match="config.json|no checkpoint|no training run"): get_player(name)


def test_duplicate_deals_need_two_players():
    def resample(state, seed): pass
    game = broken_games.nim(players=1, resample_hidden=resample)
    with pytest.raises(ValueError, match="nim has one player, and duplicate deals need two; use play_match"):
        play_duplicate(game, RandomPlayer(game), RandomPlayer(game), deals=2)


def test_equal_shares_have_an_interval_with_a_width():
    "A few deals of exact bids do not show that all bids are exact."
    match, mine = MatchResult("a", "b", np.ones(15), np.full(15, 9)), np.ones((5, 3))
    found = DuplicateResult(match, dict(exact=mine), dict(exact=.5 * mine)).measures["exact"]
    assert found["share"] and found["mine"][0] == found["mine"][2] == 1 and found["mine"][1] < .9 and found["theirs"][1] < .5 < found["theirs"][2]
    assert found["difference"][0] == .5 and found["difference"][1] < .4 and .6 < found["difference"][2]


def test_deals_that_are_all_won_have_an_interval_with_a_width():
    "Two won deals showed a difference of +1.00 (+1.00 to +1.00)."
    match, theirs = MatchResult("a", "b", np.ones(10), np.full(10, 9)), np.tile([1., -1.], (5, 1))
    found = DuplicateResult(match, dict(result=np.ones((5, 2))), dict(result=theirs)).measures["result"]
    assert not found["share"] and found["theirs"] == [0, 0, 0], "players that share a point have 0 on average"
    for middle, low, high in (found["mine"], found["difference"]): assert middle == pytest.approx(high) == 1 and low < .5


def test_an_agent_of_the_package_brings_its_game():
    for game in (None, TICTACTOE):
        assert get_player("pretrained:tictactoe", game, 8, "cpu").game.name == "tictactoe"
    with pytest.raises(ValueError, match="pretrained:tictactoe plays tictactoe, not connect4"):
        get_player("pretrained:tictactoe", CONNECT4, 8, "cpu")
    with pytest.raises(ValueError, match="no trained agent 'conect4'.*Did you mean 'connect4'"): get_player("pretrained:conect4")
    with pytest.raises(ValueError, match="write pretrained:connect4"): get_player("connect4", CONNECT4)
    assert main(["arena", "random", "pretrained:tictactoe", "--games", "2", "--simulations", "4", "--device", "cpu"]) == 0
