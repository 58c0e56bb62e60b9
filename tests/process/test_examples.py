"""The examples of games: each is short, keeps its contract, is what its text says, and can be trained."""
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from alphazero_nb.arena.solvers import TableSolver
from alphazero_nb.cli import main
from alphazero_nb.core.game_check import check_game
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.networks import PolicyValueNet

FOLDER = Path(__file__).resolve().parents[2]/"examples"
NAMES = dict(nim="nim(stones=15)", domineering="domineering(size=5)", breakthrough="breakthrough(size=5)", ultimate="ultimate",
             race="race", pegs="pegs")


@pytest.fixture(scope="module", autouse=True)
def rules():
    "Every example, imported as `--rules` does it."
    kept = list(sys.path)
    sys.path.insert(0, str(FOLDER))
    for name in NAMES: importlib.import_module(name)
    yield
    sys.path[:] = kept


def test_every_example_is_tested_and_short():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(NAMES)
    for path in FOLDER.glob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) < 80 and max(map(len, lines)) <= 130 and f"--rules examples/{path.name}" in "\n".join(lines)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_keeps_its_contract(name):
    found = check_game(get_game(NAMES[name]), games=8)
    assert [warning for warning in found.warnings if "never legal" not in warning] == [], found


@pytest.mark.parametrize("name", NAMES)
def test_the_network_of_an_example_tells_all_actions_apart(name):
    game = get_game(NAMES[name])
    with torch.inference_mode():
        planes = torch.randn((1, *game.input_shape), generator=torch.Generator().manual_seed(0))
        logits, _ = PolicyValueNet(game, "tiny" if len(game.shape) == 3 else "mlp").eval()(planes)
    assert len(set(logits[0].tolist())) == game.actions


@pytest.mark.parametrize("stones", range(1, 17))
def test_nim_is_lost_with_a_multiple_of_four(stones):
    game = get_game(f"nim(stones={stones})")
    assert TableSolver(game).results(game.new()).max() == (-1 if stones % 4 == 0 else 1)


@pytest.mark.parametrize("size, first", [(2, 1), (3, 1), (4, 1)])
def test_small_boards_of_domineering(size, first):
    "Results of square boards (Breuker, Uiterwijk and van den Herik 2000): the player who moves first wins on 2, 3 and 4."
    game = get_game(f"domineering(size={size})")
    assert TableSolver(game, 10**6).results(game.new()).max() == first


def test_breakthrough_agrees_with_openspiel():
    "Legal moves, the end and the winner, along random games on 6 × 6."
    pyspiel = pytest.importorskip("pyspiel")
    theirs_game, game, rng = pyspiel.load_game("breakthrough(rows=6,columns=6)"), get_game("breakthrough(size=6)"), np.random.default_rng(0)
    def names(state):   # Ours as OpenSpiel writes them: columns from a, rows from 1 at the bottom as Black, who moves first, looks down
        seat, found = game.mover(state), {}
        for action in game.legal_actions(state):
            row, column = divmod(action // 3, 6)
            to_row, to_column = row - 1, column + action % 3 - 1
            found[(row, column, to_row, to_column)] = int(action)
        return found
    for number in range(30):
        state, theirs = game.new(), theirs_game.new_initial_state()
        while not theirs.is_terminal():
            assert not game.over(state) and game.mover(state) == theirs.current_player()
            ours = names(state)
            assert len(ours) == len(theirs.legal_actions())
            action = ours[list(ours)[int(rng.integers(len(ours)))]]
            row, column = divmod(action // 3, 6)
            match = [other for other in theirs.legal_actions() if spot(theirs.action_to_string(other), game.mover(state)) ==
                     (row, column, row - 1, column + action % 3 - 1)]
            assert len(match) == 1
            state = game.play(state, action)
            theirs.apply_action(match[0])
        assert game.over(state) and game.returns(state).tolist() == theirs.returns()


def spot(text, seat):
    "A move of OpenSpiel, such as a2a3 or b5a4*, as the mover of ours sees it: own pieces at the bottom."
    numbers = [(int(text[1]) - 1, "abcdefgh".index(text[0])), (int(text[3]) - 1, "abcdefgh".index(text[2]))]
    if seat == 0: numbers = [(row, column) for row, column in numbers]
    else: numbers = [(5 - row, 5 - column) for row, column in numbers]
    return tuple(value for pair in numbers for value in pair)


def test_ultimate_tic_tac_toe_sends_the_opponent():
    game = get_game("ultimate")
    state = game.play(game.new(), 9 * 4 + 2)                       # The centre board, its corner
    assert list(game.legal_actions(state)) == list(range(18, 27))
    for action in (9 * 2 + 4, 9 * 4 + 1, 9 * 1 + 4, 9 * 4 + 0): state = game.play(state, action)   # A row of the centre
    assert state[2 + 4] == 1 and list(game.legal_actions(state)) == list(range(9))
    state = game.play(state, 4)                                    # Sent to the board that is finished: any open one
    assert {action // 9 for action in game.legal_actions(state)} == {0, 1, 2, 3, 5, 6, 7, 8}


def test_the_pegs_can_be_solved():
    "From some holes a single peg can be left (Beeler, Gosper and Schroeppel 1972, HAKMEM 75), by a search of all positions."
    game = get_game("pegs")
    def fewest(state, known):
        key = state.tobytes()
        if key not in known:
            moves = [] if game.over(state) else game.legal_actions(state)
            known[key] = min((fewest(game.play(state, move), known) for move in moves), default=int(state.sum()))
        return known[key]
    assert fewest(game.new(0), {}) == 1


def test_the_race_pays_one_winner():
    game, rng = get_game("race"), np.random.default_rng(0)
    for seed in range(50):
        state, _ = game.pass_chance(game.new(seed), seed)
        count = 0
        while not game.over(state):
            state, _ = game.pass_chance(game.play(state, int(rng.choice(game.legal_actions(state)))), seed, count := count + 1)
        assert sorted(game.returns(state).tolist()) == [-.5, -.5, 1.]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in ("race", "pegs") else pytest.mark.slow) for name in NAMES])
def test_an_example_is_trained(name, tmp_path):
    assert main(["train", NAMES[name], "--rules", str(FOLDER/f"{name}.py"), "--iterations", "1", "--games-per-iter", "8",
                 "--batch-size", "32", "--preset", "tiny", "--simulations", "4", "--games", "8", "--device", "cpu",
                 "--evaluate-every", "0", "--folder", str(tmp_path/"run")]) == 0
