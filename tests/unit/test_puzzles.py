"""Puzzles against exact results by plain recursion, and against players whose answers are known."""
import numpy as np
import pytest

from alphazero_nb.arena.matches import PlayedGame, canonical, play_match
from alphazero_nb.arena.players import RandomPlayer
from alphazero_nb.core.records import GameRecord
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.ui.game_line import GameLine
from alphazero_nb.ui.puzzles import moves_of, puzzle_html, puzzles
from test_coach import random_line, results_by_the_rules

GAME = get_game("tictactoe")


def agent(simulations=100): return Agent(GAME, UniformEvaluator(GAME), simulations, leaves=1)


class Fixed:
    "Plays the best or the worst move by the rules."
    def __init__(self, choose): self.choose = choose
    def acts(self, states):
        rows = [results_by_the_rules(GAME, state) for state in states]
        return np.array([self.choose(row, key=row.get) for row in rows])


@pytest.fixture(scope="module")
def found():
    games = [random_line(GAME, seed) for seed in range(30)]
    return puzzles(games, agent(), players=[RandomPlayer(GAME, 1), Fixed(max)], simulations=30)


def test_one_move_keeps_the_result_and_no_other(found):
    assert len(found) > 8
    for puzzle in found:
        results = results_by_the_rules(GAME, puzzle.state)
        best = [action for action, result in results.items() if result == max(results.values())]
        assert best == [puzzle.solution] and puzzle.result == max(results.values()) and puzzle.exact
        assert puzzle.margin == max(results.values()) - sorted(results.values())[-2] > 0
        assert puzzle.played != puzzle.solution and puzzle.seat == GAME.mover(puzzle.state)
        word = {1: "wins", 0: "keeps the draw"}[puzzle.result]
        assert puzzle.task == f"Player {puzzle.seat + 1} to move. Find the only move that {word}."
    assert len({canonical(GAME, puzzle.state) for puzzle in found}) == len(found)


def test_the_easiest_come_first(found):
    shares = [puzzle.missed for puzzle in found]
    assert all(strong == 0 for _, strong in shares), "a perfect player misses nothing"
    assert [sum(share) for share in shares] == sorted(sum(share) for share in shares)
    assert shares[0][0] < shares[-1][0] and all(share * 4 == round(share * 4) for share, _ in shares)


def test_a_deep_search_finds_what_the_rules_say():
    games = [random_line(GAME, seed) for seed in range(8)]
    found = puzzles(games, agent(), solver=None, simulations=200, players=[Fixed(min)])
    assert len(found) > 3
    for puzzle in found:
        results = results_by_the_rules(GAME, puzzle.state)
        assert puzzle.missed == (1.0,) and not puzzle.exact and "only move that is good" in puzzle.task
        assert [a for a, result in results.items() if result == max(results.values())] == [puzzle.solution]


def test_every_kind_of_game_has_the_same_moves():
    line = random_line(GAME, 3)
    record = GameRecord(np.array(line.actions, np.int32), *[None] * 6, number=0, seed=0, version=0)
    kinds = [moves_of(GAME, one) for one in (line, record, PlayedGame(("a", "b"), GAME.new(), list(line.actions)))]
    assert all([(state.tobytes(), action) for state, action in kind]
               == [(state.tobytes(), action) for state, action in zip(line.states, line.actions)] for kind in kinds)
    with pytest.raises(ValueError, match="list is not a game; pass a GameLine, a GameRecord or a PlayedGame"):
        puzzles([[1, 2]], agent())
    assert puzzles([], agent()) == ()


def test_moves_of_chance_are_no_puzzles():
    pig = get_game("pig(goal=20)")
    line = random_line(pig, 1)
    actions = [action for move, rolled in zip(line.actions, line.rolls) for action in (move, *rolled)]
    played = PlayedGame(("a", "b"), line.states[0], actions)
    assert [action for _, action in moves_of(pig, played)] == list(line.actions)


def test_an_answer_and_a_page(found):
    puzzle = found[0]
    assert puzzle.answer(puzzle.solution).startswith("Yes") and "played in the game, too" in puzzle.answer(puzzle.played)
    page = puzzle_html(puzzle)
    assert "<details>" in page and "<details open>" in puzzle_html(puzzle, solution=True) and puzzle.task in page
    assert puzzle.to_dict()["solution"] == puzzle.solution


def test_a_match_makes_puzzles():
    match = play_match(GAME, RandomPlayer(GAME, 3), RandomPlayer(GAME, 4), games=12, opening_plies=2)
    found = puzzles(match.games, agent(), simulations=20)
    assert found and all(len(puzzle.missed) == 4 for puzzle in found), "four levels of the agent have been asked"


def test_the_folder_of_a_run_gives_its_newest_games(tmp_path):
    from alphazero_nb.training.run_folder import newest_games
    from small_run import trainer
    run = trainer(tmp_path / "run")
    run.fit(iterations=2)
    games, simple = newest_games(tmp_path / "run"), agent(20)
    assert len(games) == run.games and [game.number for game in games] == sorted(game.number for game in games)
    assert newest_games(tmp_path / "run", 5) == games[-5:]
    options = dict(players=[Fixed(max)], simulations=20)
    found = puzzles(tmp_path / "run", simple, **options)
    assert found and [puzzle.to_dict() for puzzle in found] == [puzzle.to_dict() for puzzle in puzzles(games[-30:], simple, **options)]


def test_a_folder_without_games_of_this_game_is_a_sentence(tmp_path):
    from small_run import trainer
    with pytest.raises(ValueError, match="config.json"): puzzles(tmp_path / "nothing", agent())
    run = trainer(tmp_path / "run", "connect4")
    run.fit(iterations=1)
    with pytest.raises(ValueError, match="holds a run of connect4, but the agent plays tictactoe"): puzzles(str(tmp_path / "run"), agent())
    for file in (tmp_path / "run" / "games").glob("*.npz"): file.write_bytes(b"no")
    connect4 = get_game("connect4")
    with pytest.raises(ValueError, match="damaged|npz"): puzzles(str(tmp_path / "run"), Agent(connect4, UniformEvaluator(connect4), 10))
