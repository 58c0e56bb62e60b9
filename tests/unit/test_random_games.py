"""Many random games: actions that never come, games that nobody ends, positions that come back; compiled rules and Python."""
import numpy as np
import pytest

from alphazero_nb.core.game_check import check_game
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.core.random_games import random_games
from alphazero_nb.core.registry import get_game
from broken_games import Heap, heap, nim


class Walk:
    "One step to the left or to the right on a line of nine places; nobody wins before the limit."
    def __init__(self, seed): self.place, self.moves = 4, 0
    def mover(self): return self.moves % 2 if self.moves < 20 else -1
    def legal(self): return [action for action in (0, 1) if 0 <= self.place + 2 * action - 1 < 9]
    def play(self, action): self.place, self.moves = self.place + 2 * action - 1, self.moves + 1
    def returns(self): return [0, 0]
    def observe(self): return np.eye(9, dtype=np.int8)[self.place]


def walk(observe=None, cells=9):
    changes = dict(observe=observe) if observe else {}
    return PythonGame("walk", type("Walk", (Walk,), changes), players=2, actions=2, shape=(cells,), max_length=20)


def test_a_sound_game_has_no_warning():
    for game in (nim(), heap()): assert random_games(game, 1000, seconds=600).warnings() == []


@pytest.mark.parametrize("name, unused", [("tictactoe", []), ("othello(size=6)", [14, 15, 20, 21]), ("hex(size=3,swap=1)", [])])
def test_actions_that_are_never_legal(name, unused):
    "Othello begins with four discs, and nobody ever plays there."
    game = get_game(name)
    found = random_games(game, 2000, seconds=600)
    assert found.games == 2000 and list(found.unused) == unused
    words = " ".join(found.warnings(game.action_name))
    assert ("4 actions (c3, d3, c4, …) were never legal in 1,000 random games or more" in words) == bool(unused)
    assert "never legal" not in " ".join(random_games(game, 20, seconds=600).warnings()), "twenty games prove nothing"


def test_a_bound_that_is_wrong_by_one():
    "With four actions in place of three, the last one never comes."
    class Four(Heap): pass
    game = PythonGame("four", Four, players=2, actions=4, shape=(11,), max_length=10)
    assert random_games(game, 1000, seconds=600).warnings() == ["1 action (3) was never legal in 1,000 random games or more"]


def test_a_game_that_nobody_ends():
    assert any("all 50 random games went on until the limit of 20 moves" in warning for warning in random_games(walk(), 50, 600).warnings())


@pytest.mark.parametrize("name", ["dots(rows=2,cols=2)", "tictactoe", "blob(players=3,cards=3)"])
def test_a_game_that_fills_its_board_is_not_cut_off(name):
    "The last move is no choice: there is one line, one square or one card left."
    assert random_games(get_game(name), 500, seconds=600).at_limit == 0


def test_positions_that_come_back():
    found = random_games(walk(), 200, seconds=600)
    assert found.repeats > 150 and "saw the same position twice" in found.warnings()[-1]
    def with_clock(self): return np.r_[np.eye(9, dtype=np.int8)[self.place], np.eye(20, dtype=np.int8)[self.moves]]
    assert random_games(walk(with_clock, 29), 200, seconds=600).repeats == 0, "an observation with a clock tells them apart"
    assert random_games(get_game("pig(goal=30)"), 200, seconds=600).repeats == 0, "with dice a position may come back"


def test_the_kernel_counts_as_plain_python_does():
    "The same quantities from games that Python plays move by move; other random moves, so shares are compared."
    game, rng = get_game("go(size=3,komi=0)"), np.random.default_rng(0)
    lengths, repeats = [], 0
    for seed in range(400):
        state, seen, again, count = game.new(seed), set(), False, 0
        while not game.over(state):
            key = (game.mover(state), game.observe(state).tobytes())
            again, legal = again or key in seen, game.legal_actions(state)
            seen.add(key)
            state, count = game.play(state, int(rng.choice(legal))), count + 1
        lengths.append(count if len(legal) > 1 else 0)
        repeats += again
    found = random_games(game, 400, seconds=600)
    assert abs(found.at_limit - sum(np.array(lengths) >= game.max_length)) < 80 and abs(found.repeats - repeats) < 80


def test_the_check_of_a_game_says_it():
    assert any("went on until the limit" in warning for warning in check_game(walk(), games=2).warnings)
    assert check_game(nim(), games=2).warnings == ()


def test_a_fault_that_one_game_in_a_hundred_has():
    "Twenty games do not meet it. Many do, and the error is one sentence."
    class Rare(Heap):
        def play(self, action):
            self.first = getattr(self, "first", []) + [action]
            if self.first == [2, 0, 2, 1, 0]: raise KeyError("a place that does not exist")
            super().play(action)
    game = PythonGame("rare", Rare, players=2, actions=3, shape=(11,), max_length=10)
    with pytest.raises(ValueError, match="rare: a rule raised KeyError.*a place that does not exist.* in one of up to 1,000 random games") as error:
        check_game(game, games=2)
    assert "\n" not in str(error.value)


def test_a_game_that_is_rarely_too_long_is_named():
    "Of ten stones, one or two a move: nine moves and more are one game in five hundred."
    with pytest.raises(ValueError, match="longer than its max_length"): random_games(nim(max_length=8), 10_000, seconds=600)


def test_an_action_that_does_not_exist_is_refused_before_it_is_counted():
    "The rules list it in a position that some games alone have."
    def legal(state, actions):
        n = min(3, state[0])
        for i in range(n): actions[i] = i
        if state[0] == 4: actions[2] = 3
        return n
    with pytest.raises(ValueError, match="outside 0 to actions"): random_games(nim(legal=legal), 500, seconds=600)


def test_an_action_that_is_never_legal_needs_no_name():
    game = nim(actions=4, max_legal=3, action_names=("one", "two", "three").__getitem__)
    assert "1 action (3) was never legal" in random_games(game, 1000, seconds=600).warnings(game.action_name)[0]
