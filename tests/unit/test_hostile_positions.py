"Positions that come from outside are checked before compiled rules see them. Child processes show a crash as one."
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from alphazero_nb.arena.connect4_search import ILLEGAL
from alphazero_nb.arena.judge import packaged_positions, read_positions
from alphazero_nb.core.registry import get_game

TESTS = Path(__file__).parents[1]


def child(*command):
    "Run a Python program; return what it printed. A crash is an exit code below 0."
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, env=environment, timeout=1800)
    assert done.returncode == 0, (done.returncode, done.stdout[-1000:], done.stderr[-3000:])
    return done.stdout


def attack(count, seed):
    seen = json.loads(child(TESTS / "hostile_positions.py", count, seed))
    assert seen["files refused"] + seen["files read"] == seen["states refused"] + seen["empty blocks"] == count
    assert min(seen["files refused"], seen["files read"]) > count // 20, seen
    return seen


def test_hostile_files_of_positions_and_strange_states_end_in_one_sentence(): attack(100, 1)


@pytest.mark.slow
def test_ten_thousand_hostile_files_of_positions_and_as_many_strange_states(): print(attack(10_000, 2))


ROWS = '''
import sys
import numpy as np
from alphazero_nb.arena.judge import judge, read_positions
from alphazero_nb.arena.players import get_player
from alphazero_nb.core.registry import get_game
game = get_game("dots(rows=2,cols=2)")
try: judge(get_player("rollouts:50", game), read_positions(sys.argv[1], game))
except ValueError as error: print(error)
'''


def test_rows_that_no_game_can_reach_do_not_come_from_a_file(tmp_path):
    "The seat to move is 30,000: the tree would write a result there, far outside its table."
    game = get_game("dots(rows=2,cols=2)")
    states = np.stack([game.new()] * 64)
    states[:, 0] = 30_000
    np.savez(tmp_path / "set.npz", game=game.name, states=states, results=np.zeros((64, game.actions), np.int8),
             phase=np.zeros(64, np.int8), phases=["all"])
    assert "A file of states alone is not read; make it again, with moves." in child("-c", ROWS, tmp_path / "set.npz")


BOARDS = '''
import numpy as np
from alphazero_nb.arena.players import get_player
from alphazero_nb.core.registry import get_game
from alphazero_nb.search.agent import Agent
class Uniform:
    def evaluate(self, inputs, offsets, actions):
        return np.zeros(len(actions), np.float32), np.zeros((len(inputs), 2), np.float32)
small, large = get_game("gomoku(size=9)"), get_game("gomoku")
agent, takers = Agent(small, Uniform(), 200), 0
for player in (agent, get_player("rollouts:200", small), get_player("random", small)):
    for function in (player.act, player.acts, getattr(player, "policy", player.acts)):
        for _ in range(10):
            try: function(large.new())
            except ValueError as error:
                takers += "85 numbers, but this one has 229" in str(error)
print(takers)
'''


def test_the_state_of_another_board_size_is_one_sentence_with_both_sizes():
    assert int(child("-c", BOARDS)) == 90


@pytest.mark.parametrize("name", ["tictactoe", "connect4", "dots"])
def test_positions_of_the_package_follow_from_their_moves(name):
    "Played in plain Python."
    found = packaged_positions(get_game(name))
    rules = found.game.functions
    for moves, expected in list(zip(found.moves, found.states))[::101]:
        state, legal = np.zeros(found.game.state_size, np.int16), np.zeros(found.game.max_legal, np.int32)
        rules["start"](state, 0)
        for move in moves[moves >= 0]:
            assert rules["mover"](state) >= 0 and move in legal[:rules["legal"](state, legal)]
            rules["play"](state, int(move))
        assert np.array_equal(state, expected)


def test_a_file_names_the_move_that_cannot_be_played(tmp_path):
    game = get_game("tictactoe")
    row = np.full((1, 9), ILLEGAL, np.int8)
    for moves, words in (([[4, 4]], "move 1 of position 0 is not legal"), ([[9]], "move 0"), ([[2**31 - 1]], "move 0"),
                         ([[0, 3, 1, 4, 2, 5]], "move 5"), ([[0, 3, 1, 4, 2]], "do not fit its legal moves")):
        np.savez(tmp_path / "set.npz", game=game.name, moves=np.array(moves, np.int32), results=row,
                 phase=np.zeros(1, np.int8), phases=["all"])
        with pytest.raises(ValueError, match=words): read_positions(tmp_path / "set.npz", game)


def test_a_rule_that_fails_in_a_file_is_one_sentence(tmp_path):
    "Python rules raise errors of their own."
    from alphazero_nb.core.python_game import PythonGame

    class Broken:
        def __init__(self, seed): self.moves = 0
        def mover(self): return 0
        def legal(self): return [0]
        def play(self, action): self.moves += 1 // (1 - self.moves)
        def returns(self): return [0]
        def observe(self): return np.zeros(1, np.int8)

    game = PythonGame("broken", Broken, players=1, actions=1, shape=(1,), max_length=9)
    np.savez(tmp_path / "set.npz", game="broken", moves=np.zeros((1, 5), np.int32), results=np.zeros((1, 1), np.int8),
             phase=np.zeros(1, np.int8), phases=["all"])
    with pytest.raises(ValueError, match="cannot play its positions: .*division"): read_positions(tmp_path / "set.npz", game)
