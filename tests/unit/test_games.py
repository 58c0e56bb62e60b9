"The rules against OpenSpiel's, ply by ply; the registry; and every law of the contract, broken once."
import functools
import json
import os
import pickle
import re
import sys

import cloudpickle
import numpy as np
import pytest

from alphazero_nb.arena.judge import judge, packaged_positions
from alphazero_nb.arena.players import RandomPlayer, get_player
from alphazero_nb.cli import main
from alphazero_nb.core import registry
from alphazero_nb.core.game_check import ContractError
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import (check_loadable, file_stem, game_module, game_title, get_game, import_rules, list_games, register,
                                        same_game)
from alphazero_nb.games.go import go
from alphazero_nb.lab.study import study
from alphazero_nb.network.pretrained import check_pretrained
from broken_games import nim

GAMES = 1000
VARIANTS = ["tictactoe", "connect4", "gomoku(size=15)", "gomoku(size=9)", "gomoku(size=5)", "dots(rows=3,cols=3)",
            "dots(rows=2,cols=4)", "dots(rows=1,cols=2)", "dots(rows=1,cols=1)", "othello(size=8)", "othello(size=6)",
            "go(size=5,komi=7)", "go(size=9,komi=6.5)", "hex(size=5)", "hex(size=7,swap=1)"]
DICE = ["pig(goal=100)", "backgammon", "backgammon(gammons=0)", "2048(goal=2048)", "2048(goal=32)"]
# OpenSpiel's gomoku and its mnk both let five or more win; gomoku is the faster of the two.
TWINS = {
    "tictactoe": "tic_tac_toe", "connect4": "connect_four",
    "gomoku(size=15)": "gomoku(size=15)", "gomoku(size=9)": "gomoku(size=9)",
    "dots(rows=3,cols=3)": "dots_and_boxes(num_rows=3,num_cols=3)",
    "dots(rows=2,cols=4)": "dots_and_boxes(num_rows=2,num_cols=4)",
    "dots(rows=1,cols=2)": "dots_and_boxes(num_rows=1,num_cols=2)",
    "othello(size=8)": "othello",
}
CAN_DRAW_OFTEN = ("tictactoe", "dots(rows=2,cols=4)", "dots(rows=1,cols=2)")


def open_spiel(name):
    pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (it has no wheel for Python 3.10)")
    return pyspiel.load_game(TWINS[name])


def compare(game, twin, choose):
    "Plays one game of both, holds every ply of one against the other, returns the moves and the result."
    state, other, moves = game.new(), twin.new_initial_state(), []
    while True:
        legal = other.legal_actions()
        assert game.legal_actions(state) == legal, moves
        assert game.over(state) == other.is_terminal(), moves
        assert game.mover(state) == (-1 if other.is_terminal() else other.current_player()), moves
        assert game.returns(state).tolist() == other.returns(), moves
        if other.is_terminal(): return moves, other.returns()
        assert game.returns(state).tolist() == [0, 0], moves
        move = choose(len(moves), legal)
        state = game.play(state, move)
        other.apply_action(move)
        moves.append(move)


@pytest.mark.parametrize("name", TWINS)
def test_rules_agree_with_open_spiel(name):
    twin, game = open_spiel(name), get_game(name)
    assert game.actions == twin.num_distinct_actions() and game.players == twin.num_players()
    rng, games = np.random.default_rng(2), GAMES if game.max_length <= 42 else GAMES // 4
    played = [compare(game, twin, lambda ply, legal: legal[int(rng.random() * len(legal))]) for _ in range(games)]
    assert max(len(moves) for moves, _ in played) <= game.max_length
    results = {result[0] for _, result in played}
    assert results >= ({1, 0, -1} if name in CAN_DRAW_OFTEN else {1, -1})


def no_five(size, rng):
    "Moves that fill a board of odd size in random order and make no line of three."
    row, column = np.divmod(np.arange(size * size), size)
    stones = [rng.permutation(np.flatnonzero((column // 2 + row) % 2 == stone)) for stone in (0, 1)]
    return [int(stones[ply % 2][ply // 2]) for ply in range(size * size)]


@pytest.mark.parametrize("size", [9, 15])
def test_full_boards_of_gomoku_agree_with_open_spiel(size):
    name, rng = f"gomoku(size={size})", np.random.default_rng(size)
    game, twin = get_game(name), open_spiel(name)
    full = no_five(size, rng)
    assert compare(game, twin, lambda ply, legal: full[ply]) == (full, [0, 0])
    for _ in range(20):
        order = no_five(size, rng)
        compare(game, twin, lambda ply, legal: order[ply] if ply < 3 * size * size // 4
                else legal[int(rng.random() * len(legal))])


@pytest.mark.parametrize("line", [range(5), (0, 1, 2, 3, 5, 4), (0, 1, 2, 3, 5, 6, 7, 8, 4)])
@pytest.mark.parametrize("step", [(0, 1), (1, 0), (1, 1), (1, -1)])
def test_five_or_more_win_in_every_direction(line, step):
    "Exactly the last stone wins, whether it makes five, six or nine, for either player and also at the rim."
    game, (down, right) = get_game("gomoku(size=9)"), step
    mine = [(down * i) * 9 + (right * i if right >= 0 else 8 - i) for i in line]
    spare = [cell for cell in (10, 12, 14, 28, 33, 35, 46, 51, 53, 64, 66, 68, 78) if cell not in mine]
    for first in (0, 1):
        moves = spare[:first] + [move for pair in zip(mine, spare[first:]) for move in pair][:2 * len(mine) - 1]
        state = game.state_after(moves[:-1])
        assert not game.over(state)
        state = game.play(state, moves[-1])
        assert game.over(state) and game.returns(state)[first] == 1 and game.returns(state)[1 - first] == -1


def test_who_closes_a_box_moves_again():
    "The mover stays exactly where a box is closed, and one line may close two."
    game = get_game("dots(rows=1,cols=2)")
    state = game.state_after([0, 1, 2, 3, 4])
    assert game.mover(state) == 1
    one = game.play(state, 5)
    assert game.mover(one) == 1 and game.returns(game.play(one, 6)).tolist() == [-1, 1]
    waited = game.play(state, 6)
    assert game.mover(waited) == 0 and game.returns(game.play(waited, 5)).tolist() == [1, -1]


class Discs:
    "Othello as a dictionary of discs, written apart from the page."
    def __init__(self, size):
        self.size, half = size, size // 2
        self.owner = {(half - 1, half - 1): 1, (half, half): 1, (half - 1, half): 0, (half, half - 1): 0}
        self.seat = 0

    def enclosed(self, square, seat):
        "The discs that turn over."
        found = set()
        for step in ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1)):
            ray = [(square[0] + step[0] * k, square[1] + step[1] * k) for k in range(1, self.size)]
            owners = [self.owner.get(spot) for spot in ray]
            stop = next((k for k, owner in enumerate(owners) if owner != 1 - seat), None)
            if stop and owners[stop] == seat: found |= set(ray[:stop])
        return found

    def moves(self, seat):
        squares = [(row, column) for row in range(self.size) for column in range(self.size)]
        return [square for square in squares if square not in self.owner and self.enclosed(square, seat)]

    def over(self): return not self.moves(0) and not self.moves(1)

    def put(self, square):
        if square is not None: self.owner.update(dict.fromkeys([square, *self.enclosed(square, self.seat)], self.seat))
        self.seat = 1 - self.seat


@pytest.mark.parametrize("size, games", [(6, 60), (8, 12), (10, 8)])
def test_othello_agrees_with_slow_rules(size, games):
    game, rng, passes, results = get_game(f"othello(size={size})"), np.random.default_rng(size), 0, set()
    for _ in range(games):
        state, slow = game.new(), Discs(size)
        while not slow.over():
            moves = slow.moves(slow.seat)
            assert game.mover(state) == slow.seat
            assert game.legal_actions(state) == ([size * row + column for row, column in moves] or [size * size])
            owners = np.full((size, size), -1)
            for square, owner in slow.owner.items(): owners[square] = owner
            seen = game.observe(state)
            assert np.array_equal(seen[0], owners == slow.seat) and np.array_equal(seen[1], owners == 1 - slow.seat)
            assert [tuple(spot) for spot in np.argwhere(seen[2]).tolist()] == moves
            square = moves[rng.integers(len(moves))] if moves else None
            passes += square is None
            state = game.play(state, size * size if square is None else size * square[0] + square[1])
            slow.put(square)
        lead = sum(1 - 2 * owner for owner in slow.owner.values())
        assert game.over(state) and game.returns(state).tolist() == [np.sign(lead), -np.sign(lead)]
        results.add(int(np.sign(lead)))
    assert passes > games // 4 and results >= {1, -1}


def turned_discs(state, size, action):
    "The row of an Othello position, transformed by hand."
    turned, cells = state.copy(), state[2:].copy()
    turned[2 + action[:size * size]] = cells
    return turned


@pytest.mark.parametrize("size", [6, 8, 10])
def test_all_eight_symmetries_of_othello_hold_for_the_rules(size):
    "Also the four that exchange the colours of the first four discs, with which `check` cannot play a whole game."
    game, rng = get_game(f"othello(size={size})"), np.random.default_rng(size)
    assert len({action.tobytes() for action in game.symmetries[1]}) == 8 and len(game.start_symmetries) == 4
    start = game.new()
    kept = [np.array_equal(turned_discs(start, size, action), start) for action in game.symmetries[1]]
    assert np.flatnonzero(kept).tolist() == list(game.start_symmetries)
    for _ in range(5):
        state = game.new()
        while not game.over(state):
            legal, move = game.legal_actions(state), int(rng.choice(game.legal_actions(state)))
            after = game.play(state, move)
            for observation, action in zip(*game.symmetries):
                turned = turned_discs(state, size, action)
                assert np.array_equal(game.inputs(state)[observation], game.inputs(turned))
                assert game.legal_actions(turned) == sorted(action[legal].tolist())
                assert np.array_equal(game.play(turned, int(action[move])), turned_discs(after, size, action))
            state = after


@pytest.mark.parametrize("name", VARIANTS + DICE)
def test_every_game_keeps_the_laws(name):
    game = get_game(name)
    game.check(games=16 if game.max_length <= 81 else 5, seed=5)


def test_every_listed_game_is_checked_and_keeps_its_name():
    "OpenSpiel's games, Blob and chess have tests of their own."
    packaged = {name for name in list_games() if game_module(name)}   # Other tests of this process may register games
    assert {name.partition("(")[0] for name in VARIANTS + DICE} == packaged - {"openspiel", "blob", "chess"}
    for name in [*packaged, *VARIANTS, *DICE]:
        game = get_game(name)
        assert get_game(game.name).name == pickle.loads(pickle.dumps(game)).name == game.name
    assert get_game("gomoku").name == "gomoku(size=15)" and get_game("dots").name == "dots(rows=3,cols=3)"


@pytest.mark.parametrize("name, title", [
    ("connect4", "Connect Four"), ("tictactoe", "Tic-tac-toe"), ("2048", "2048"), ("gomoku(size=9)", "Gomoku 9×9"), ("gomoku", "Gomoku"),
    ("dots(rows=3,cols=4)", "Dots and boxes 3×4"), ("othello(size=6)", "Othello 6×6"), ("pig(goal=100)", "Pig (goal 100)"),
    ("chess", "Chess"), ("chess(variant=gardner)", "Gardner chess"), ("chess(fen=8/8/8/8/8/8/8/K1k5 w - - 0 1)", "Chess"),
    ("blob(players=4,cards=5)", "Blob (players 4, cards 5)"), ("openspiel(game=tic_tac_toe)", "Tic tac toe (OpenSpiel)"),
    ("openspiel(game=2048)", "2048 (OpenSpiel)"),
    ("go", "Go"), ("go(size=9,komi=7)", "Go 9×9 (komi 7)"), ("hex(size=7)", "Hex 7×7"), ("my_hex(size=5)", "My hex 5×5"), ("<b>", "<b>")])
def test_a_title_is_what_people_write(name, title): assert game_title(name) == title


@pytest.mark.parametrize("name, words", {
    "conect4": ["'conect4'", "gomoku", "Did you mean 'connect4'?"],
    "zzz": ["game 'zzz' is unknown", "tictactoe"],
    "gomoku(sise=9)": ["'sise'", "size", "Did you mean 'size'?"],
    "connect4(rows=3)": ["connect4 has no parameter 'rows'", "none"],
    "gomoku(9)": ["'9'", "size"],
    "gomoku(size=9": ["'gomoku(size=9'"],
    "gomoku(size=4)": ["5 to 19", "4"],
    "gomoku(size=20)": ["5 to 19", "20"],
    "gomoku(size=-9)": ["5 to 19", "-9"],
    "gomoku(size=big)": ["5 to 19", "'big'"],
    "dots(rows=0)": ["1 to 10 rows", "0"],
    "dots(rows=2,cols=11)": ["1 to 10 cols", "11"],
    "dots(cols=many)": ["1 to 10 cols", "'many'"],
    "othello(size=7)": ["size 6, 8 or 10", "7"],
    "othello(sice=8)": ["'sice'", "Did you mean 'size'?"],
}.items())
def test_a_bad_name_is_answered_with_what_exists(name, words):
    with pytest.raises(ValueError) as error: get_game(name)
    sentence = str(error.value)
    assert all(word in sentence for word in words) and "\n" not in sentence and sentence[-1] in ".?", sentence


@pytest.mark.parametrize("name", VARIANTS)
def test_an_illegal_move_is_refused_and_changes_nothing(name):
    game = get_game(name)
    first = game.legal_actions(game.new())[0]
    state = game.play(game.new(), first)
    before = state.copy()
    for action in (-1, game.actions) + (() if name == "connect4" else (first,)):
        with pytest.raises(ValueError, match=f"action {action} is not legal here; legal: "): game.play(state, action)
    assert np.array_equal(state, before)


# A right game, nim with ten stones, of which each wrong game below changes one function.
def start(state, seed): state[0] = 10


def mover(state): return -1 if state[0] == 0 else state[1]


def legal(state, actions):
    n = min(3, state[0])
    for i in range(n): actions[i] = i
    return n


def play(state, action):
    state[0] -= action + 1
    state[1] = 1 - state[1]


def returns(state, out):
    out[state[1]] = -1
    out[1 - state[1]] = 1


def observe(state, planes): planes[state[0]] = 1


RULES = dict(start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe)
SIZES = dict(state_size=2, players=2, actions=3, shape=(11,), max_length=10)


def nim(**changes): return Game("nim", **{**RULES, **SIZES, **changes})


def test_a_game_has_at_most_127_players():
    assert nim(players=127, zero_sum=False).players == 127
    for players in (0, 128):
        with pytest.raises(ValueError, match=f"players is {players}; a game has 1 to 127"): nim(players=players)


# Names of games ---------------------------------------------------------------------------------

@pytest.fixture
def own(monkeypatch):
    "A registry that is put back."
    monkeypatch.setattr(registry, "_registry", {})


@pytest.mark.parametrize("name", ["2048", "backgammon", "blob", "chess", "connect4", "dots", "go", "gomoku", "hex", "openspiel", "othello", "pig", "tictactoe"])
def test_a_name_of_the_package_cannot_be_registered(own, name):
    "`train dots --rules own.py` trained the package's dots and said nothing."
    with pytest.raises(ValueError, match=f"^the package has a game {name}, so yours needs another name, such as my_{name}.$"):
        register(name, nim)
    assert name not in registry._registry


@pytest.mark.parametrize("name", ["hexx(size=5)", "two words", "", "my-nim", " nim", "nim ", "ni\nm", "nim()", None, 3, "nim,", "a.b"])
def test_a_name_that_cannot_be_read_back_is_not_registered(own, name):
    with pytest.raises(ValueError, match="cannot be the name of a game") as error: register(name, nim)
    assert "\n" not in str(error.value)


def test_what_is_no_function_is_not_registered(own):
    with pytest.raises(ValueError, match="needs a function that returns the game, such as lambda: game"): register("nim", nim())


def test_an_own_name_can_be_registered_again_and_in_any_script(own):
    "A cell that runs again registers the new rules."
    for name in ("nim", "围棋", "Connect4", "my_dots", "_2"):
        register(name, lambda: None)
        register(name, lambda: Game(name, **dict(RULES, **SIZES)))
        assert get_game(name).name == name and name in list_games()


def hexx(name, **sizes): return Game(name, **{**RULES, **SIZES, **sizes})


@pytest.mark.parametrize("word, factory, words", [
    ("hexx", lambda: hexx("hexx(size=5)"), "hexx has no parameter 'size'"),
    ("hexx", lambda: hexx("hexy"), "returned a game called 'hexy'; register it as 'hexy', or call the game 'hexx'"),
    ("hexx", lambda: hexx("connect4"), "returned a game called 'connect4'"),
    ("hexx", lambda: hexx("hexx, the game"), "cannot be loaded again: 'hexx, the game' is not the name of a game"),
    ("hexx", lambda: hexx(""), "cannot be loaded again"),
    ("hexx", lambda: None, "returned a NoneType, not a Game"),
    ("hexx", lambda: Game, "returned a type, not a Game"),
])
def test_a_function_whose_game_has_another_name_is_refused(own, word, factory, words):
    register(word, factory)
    with pytest.raises(ValueError, match=re.escape(words)) as error: get_game(word)
    assert "\n" not in str(error.value)


def test_a_game_whose_name_leads_elsewhere_cannot_start_a_run(own):
    register("hexx", lambda size=5: hexx(f"hexx(size={size})", max_length=5 + size))
    for name in ("hexx", "hexx(size=7)"): check_loadable(get_game(name))
    for game, words in ((hexx("hexx(size=5)", max_length=11), "with other rules or sizes"),
                        (hexx("hexx(size=5)", max_length=10, play=play_backwards), "with other rules or sizes"),
                        (hexx("hexx(size=5)", max_length=10, players=3), "with other rules or sizes"),
                        (hexx("hexx(cells=5)"), "could not be loaded again: hexx has no parameter 'cells'"),
                        (hexx("hexx(size=no)"), "could not be loaded again"),
                        (hexx("hexy"), "is not registered, so its run could not be loaded again; first call register('hexy'"),
                        (hexx("dots(rows=3,cols=3)"), "is the name of a game of the package, which has other rules"),
                        (hexx("connect4"), "give this one another name, such as my_connect4")):
        with pytest.raises(ValueError, match=re.escape(words)) as error: check_loadable(game)
        assert "\n" not in str(error.value)
    for name in VARIANTS + DICE: check_loadable(get_game(name))


def test_a_game_with_the_name_of_another_is_never_taken_for_it(own):
    "By the solver, the solved positions, the trained agent, the judge, or a worker."
    ours = get_game("connect4")
    for other in (hexx("connect4"), hexx("Connect4"), hexx("dots_rows_3_cols_3"), hexx("dots(rows=3,cols=3)"), hexx("tictactoe")):
        assert not other.packaged and packaged_positions(other) is None
        for name in ("solver", "pretrained"):
            with pytest.raises(ValueError, match="no solver|no game of the package"): get_player(name, other)
        sent = pickle.loads(cloudpickle.dumps(other))
        assert sent.name == other.name and same_game(sent, other) and not same_game(sent, ours)
    assert file_stem("Connect4") == "connect4" and ours.packaged and same_game(ours, pickle.loads(pickle.dumps(ours)))
    with pytest.raises(ValueError, match="no trained agent 'Connect4'"): check_pretrained("Connect4")
    positions = packaged_positions(ours).sample(3)
    with pytest.raises(ValueError, match="the player plays connect4 with other rules"): judge(RandomPlayer(hexx("connect4")), positions)


OWN = """
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import register
def start(state, seed): state[0] = 10
def mover(state): return -1 if state[0] == 0 else state[1]
def legal(state, actions):
    actions[0] = 0
    return 1
def play(state, action): state[0] -= 1
def returns(state, out): out[0] = 1
def observe(state, planes): planes[state[0]] = 1
def own(): return Game(NAME, start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                       state_size=2, players=2, actions=3, shape=(11,), max_length=10)
register(NAME, own)
"""


def test_a_file_of_rules_with_a_name_of_the_package_trains_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_dots.py").write_text(OWN.replace("NAME", "'dots'"))
    assert main(["train", "dots", "--rules", "own_dots.py", "--iterations", "1"]) == 2
    out, errors = capsys.readouterr()
    assert "the package has a game dots, so yours needs another name, such as my_dots." in errors and "iteration" not in out
    assert not (tmp_path / "runs").exists()


# States that enter ------------------------------------------------------------------------------

@pytest.mark.parametrize("state, words", [
    (np.zeros(84, np.int16), "has 85 numbers, but this one has 84"), (np.zeros(229, np.int16), "has 85 numbers, but this one has 229"),
    (np.zeros((85, 1), np.int16), "the shape (85, 1)"), (np.zeros(85), "the type float64"), (np.full(85, np.nan), "the type float64"),
    (np.zeros(85, bool), "the type bool"), (np.full(85, 40_000), "not int16"), (np.full(85, -2**31, np.int32), "not int16"),
    (np.array([None] * 85), "the type object"), (5, "the shape ()"), (None, "the shape ()"), ([], "0"), (["a"] * 85, "the type <U1"),
    (np.full(85, 2**63, np.uint64), "not int16"), ([0] * 84 + [10**30], "the type object")])
def test_what_is_no_state_of_the_game_is_one_sentence(state, words):
    game = get_game("gomoku(size=9)")
    for take in (game.as_state, game.mover, game.legal_actions, game.text, game.returns, game.inputs, game.observe,
                 lambda state: game.play(state, 3), lambda state: game.move_name(state, 3), lambda state: game.resample_hidden(state, 1)):
        with pytest.raises(ValueError, match=re.escape(words)) as error: take(state)
        assert "\n" not in str(error.value) and str(error.value).startswith("gomoku(size=9): ")


def test_a_state_in_another_form_is_the_same_state():
    game = get_game("gomoku(size=9)")
    state = game.state_after([3, 40, 41])
    assert game.as_state(state) is state
    frozen = state.copy()
    frozen.flags.writeable = False
    forms = [state.tolist(), state.astype(np.int64), state.astype(np.int8), state.astype(">i2"), np.repeat(state, 2)[::2], frozen]
    for form in forms:
        assert game.text(form) == game.text(state) and game.legal_actions(form) == game.legal_actions(state)
        assert np.array_equal(game.play(form, 5), game.play(state, 5)) and game.as_state(form).dtype == np.int16
        assert game.as_states(form).shape == (1, 85)
    assert np.array_equal(game.as_states(forms), [state] * 6) and game.as_states([]).shape == (0, 85)
    for block in (np.zeros((2, 84), np.int16), [state, state[:-1]], np.zeros((2, 2, 85), np.int16), np.int16(3), 3, None):
        with pytest.raises(ValueError, match="a state has"): game.as_states(block)


def mover_too_high(state): return -1 if state[0] == 0 else 2 * state[1]


def mover_too_low(state): return -2 if state[0] == 0 else state[1]


def mover_that_writes(state):
    if state[0] == 4: state[1] = 0
    return -1 if state[0] == 0 else state[1]


def legal_falling(state, actions):
    n = min(3, state[0])
    for i in range(n): actions[i] = n - 1 - i
    return n


def legal_forgetful(state, actions):
    actions[0] = 0
    return 2


def legal_twice(state, actions):
    actions[:2] = 0
    return 2


def legal_none(state, actions): return 0


def legal_too_many(state, actions):
    for i in range(4): actions[i] = i
    return 4


def legal_unknown(state, actions):
    actions[0] = 3
    return 1


def play_backwards(state, action):
    state[0] += action + 1
    state[1] = 1 - state[1]


def play_beyond(state, action): state[action + 1] = 1


def play_overflowing(state, action): state[0] = 70000 - action


def play_wrapping(state, action):
    if state[0] * 4000 > 32767: state[0] -= action + 1
    else: state[0] = 0


def returns_too_much(state, out): out[0] = 2


def returns_nothing_real(state, out): out[0] = np.nan


def returns_raising(state, out): raise ValueError("who won?")


def observe_that_writes(state, planes):
    planes[state[0]] = 1
    state[1] = 0


def observe_beyond(state, planes): planes[state[0] + 1] = 1


def observe_overflowing(state, planes): planes[0] = 30 * state[0]


def resample_seen(state, seed): state[0] = 1 + seed % 9


def resample_mover(state, seed): state[1] = 1 - state[1]


BROKEN = {
    "illegal order": (dict(legal=legal_falling), "legal", "actions must be in increasing order, not [2, 1, 0]"),
    "duplicates": (dict(legal=legal_twice), "legal", "actions must be in increasing order, not [0, 0]"),
    "actions not written": (dict(legal=legal_forgetful), "legal", "it returned 2, but wrote 1 of these actions"),
    "no action": (dict(legal=legal_none), "legal", "there must be 1 to 3 actions, not 0"),
    "too many actions": (dict(legal=legal_too_many), "legal", "out of bounds"),
    "unknown action": (dict(legal=legal_unknown), "legal", "actions must lie in 0 to 2"),
    "mover too high": (dict(mover=mover_too_high), "mover", "it must be −1 or a seat below 2, not 2"),
    "mover too low": (dict(mover=mover_too_low), "mover", "it must be −1 or a seat below 2, not -2"),
    "mover writes": (dict(mover=mover_that_writes), "mover", "it must not change the state"),
    "endless": (dict(play=play_backwards, shape=(200,)), "play", "a game must end within 10 moves"),
    "play out of bounds": (dict(play=play_beyond), "play", "out of bounds"),
    "int16 overflow": (dict(play=play_overflowing), "play", "overflow|out of bounds for int16"),
    "int16 arithmetic": (dict(play=play_wrapping), "play", "compiled and plain Python must agree"),
    "result too high": (dict(returns=returns_too_much), "returns", "results must lie in [−1, 1], not [2.0, 0.0]"),
    "result not a number": (dict(returns=returns_nothing_real), "returns", "results must lie in [−1, 1], not [nan, 0.0]"),
    "returns raises": (dict(returns=returns_raising), "returns", "who won?"),
    "observe writes": (dict(observe=observe_that_writes), "observe", "it must not change the state"),
    "observe out of bounds": (dict(observe=observe_beyond), "observe", "out of bounds"),
    "int8 overflow": (dict(observe=observe_overflowing), "observe", "overflow|out of bounds for int8"),
    "resample_hidden seen": (dict(resample_hidden=resample_seen), "resample_hidden",
                             "it must not change the mover, the legal actions or the observation"),
    "resample_hidden mover": (dict(resample_hidden=resample_mover), "resample_hidden",
                              "it must not change the mover, the legal actions or the observation"),
    "symmetry is no permutation": (dict(symmetries=[(np.arange(11), np.array([0, 1, 1]))]), "symmetries",
                                   "each action array must be a permutation of 3 numbers"),
    "symmetry of another size": (dict(symmetries=[(np.arange(10), np.arange(3))]), "symmetries",
                                 "each observation array must be a permutation of 11 numbers"),
    "symmetry of the actions": (dict(symmetries=[(np.arange(11), np.array([2, 1, 0]))]), "symmetries",
                                "symmetry 0 must transform observation and legal actions alike"),
    "symmetries that are not closed": (dict(start_symmetries=(0,), symmetries=[
        (np.arange(11), np.arange(3)), (np.arange(11), np.array([1, 2, 0]))]), "symmetries",
        "two of them in succession must be one of them"),
    "symmetry of the planes": (dict(symmetries=[(np.arange(11)[::-1], np.arange(3))]), "symmetries",
                               "symmetry 0 must transform observation and legal actions alike"),
}


def test_the_right_nim_keeps_the_laws():
    nim().check()


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_law_is_named_with_its_function_and_moves(broken):
    changes, function, words = BROKEN[broken]
    game = nim(**changes)
    with pytest.raises(ContractError) as error: game.check()
    told = re.fullmatch(r"nim: (\w+) breaks the contract after moves (\[[\d, ]*\]) \(seed \d+\): ([^\n]*)\.",
                        str(error.value))
    assert told and told[1] == function, str(error.value)
    assert any(word in told[3] for word in words.split("|")), told[3]
    moves = json.loads(told[2])
    if broken in ("result too high", "returns raises", "mover too low"): assert sum(moves) + len(moves) == 10
    if broken == "endless": assert len(moves) == 11


def mover_without_answer(state): state[0] > 0


def observe_with_object(state, planes): planes[0] = state.nonsense


@pytest.mark.parametrize("changes, words", [
    (dict(start=lambda state: None), ["start(state)", "1 arguments", "requires 2"]),
    (dict(play=lambda state, action, seat: None), ["play(state, action, seat)", "3 arguments", "requires 2"]),
    (dict(mover=mover_without_answer), ["mover (mover_without_answer, line ", "cannot be compiled"]),
    (dict(observe=observe_with_object), ["observe (observe_with_object, line ", "cannot be compiled", "nonsense"]),
])
def test_what_cannot_be_compiled_is_named(changes, words):
    with pytest.raises(ContractError) as error: nim(**changes)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


def test_a_game_of_the_package_is_loaded_once_and_one_of_your_own_each_time(monkeypatch):
    assert get_game("dots(rows=2, cols=3)") is get_game("dots(cols=3,rows=2)")
    assert get_game("dots(rows=2,cols=3)") is not get_game("dots(rows=3,cols=2)")
    monkeypatch.setitem(registry._registry, "own", lambda: Game("own", **dict(RULES, **SIZES)))
    assert get_game("own") is not get_game("own"), "a cell may have changed its rules"


# What a name or a function may be -----------------------------------------------------------------

def test_a_rule_that_is_no_function_is_named():
    with pytest.raises(ContractError, match="start is of type partial; pass a function"):
        nim(start=functools.partial(lambda stones, state, seed: None, 10))


def test_a_parameter_that_is_needed_is_asked_for(own):
    register("needs_size", lambda size: nim())
    with pytest.raises(ValueError, match=r"needs_size needs the parameter size; write needs_size\(size=...\)"): get_game("needs_size")


def test_a_file_with_a_dot_in_its_name_is_not_run(tmp_path):
    (tmp_path / "dotted.py").write_text("raise SystemExit('this file was not asked for')")
    (tmp_path / "dotted.v2.py").write_text("")
    with pytest.raises(ValueError, match="dotted.v2.py has a dot in its name"): import_rules(tmp_path / "dotted.v2.py")


def test_a_file_that_has_changed_is_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    file = tmp_path / "edited_rules.py"
    text = "from alphazero_nb.all import Game, register\nfrom broken_games import nim\nregister('edited_{0}', lambda: nim(name='edited_{0}'))\n"
    for name in ("a", "b", "b"):
        file.write_text(text.format(name))
        assert import_rules(file) == [f"edited_{name}"] and get_game(f"edited_{name}").players == 2
        assert registry.rules_file(f"edited_{name}") == file
    assert registry.rules_file("connect4") is None


def test_the_file_that_is_asked_for_last_has_the_name(tmp_path, monkeypatch):
    "Two files register one game, and the first is asked for again."
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(registry, "_files", dict(registry._files))
    for number in (3, 4):
        (tmp_path / f"twice_{number}.py").write_text(
            f"from alphazero_nb.all import register\nfrom broken_games import nim\nregister('twice', lambda: nim(name='twice', actions={number}))\n")
    for number in (3, 4, 3, 3, 4):
        assert import_rules(tmp_path / f"twice_{number}.py") == ["twice"] and get_game("twice").actions == number
        assert registry.rules_file("twice") == tmp_path / f"twice_{number}.py"
    with pytest.raises(ValueError, match="two files register twice; give each game a name of its own"):
        study(str(tmp_path / "twice_3.py"), [str(tmp_path / "twice_4.py")], folder=tmp_path / "study")


def test_a_file_is_found_that_is_newer_than_what_python_knows_of_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("early", "late"):
        (tmp_path / f"{name}_rules.py").write_text("")
        os.utime(tmp_path, ns=(10 ** 18, 10 ** 18))   # On some drives a time is as coarse as two seconds
        assert import_rules(tmp_path / f"{name}_rules.py") == []


@pytest.mark.parametrize("given, words", [
    (dict(cells=np.repeat(np.arange(5), 2)), "cells must give each of the 9 actions a place of its own"),
    (dict(cells=np.repeat(np.arange(5), 2)[:9]), "a place of its own, from 0 on"), (dict(cells=np.arange(9) - 1), "from 0 on"),
    (dict(shape=(3, 3)), r"shape is \(3, 3\); give \(planes, height, width\) or \(numbers,\)"), (dict(shape=(2, 0, 3)), "shape is")])
def test_actions_have_places_of_their_own_and_boards_have_planes(given, words):
    "Two actions at one place would always be equally likely."
    game = get_game("tictactoe")
    rules = {name: game.functions[name] for name in ("start", "mover", "legal", "play", "returns", "observe")}
    sizes = dict(state_size=game.state_size, players=2, actions=9, shape=game.shape, max_length=9)
    assert Game("own", **rules, **sizes, cells=np.arange(9)[::-1]).cells[0] == 8
    with pytest.raises(ValueError, match=words): Game("own", **rules, **(sizes | given))


@pytest.mark.parametrize("name, varies", [("connect4", False), ("blob(players=3,cards=2)", True), ("pig", False)])
def test_a_start_varies_if_the_seed_decides_it(name, varies): assert get_game(name).start_varies() == varies


def test_numbers_in_names_are_whole():
    assert go(3, longest=20.0, superko=5.0).name == "go(size=3,komi=7,superko=5,longest=20)"
    with pytest.raises(ValueError, match="'8' is no|'8'"): get_game("chess(fen=8)")


def test_a_name_without_its_parameter_is_refused(monkeypatch):
    "A run is loaded by the name of its game."
    monkeypatch.setitem(registry._registry, "piles", lambda heap=10: Game("piles", **RULES, **SIZES))
    with pytest.raises(ValueError, match=r"piles\(heap=8\) has the name 'piles', so its run would be loaded without heap"): get_game("piles(heap=8)")
    assert get_game("piles(heap=10)").name == "piles"


def test_names_come_from_functions_and_are_text():
    with pytest.raises(ValueError, match="nim: action_names is of type list; pass a function, such as names.__getitem__"): nim(action_names=["a", "b", "c"])
    game = nim(action_names=lambda action: action + 1)
    assert game.action_name(0) == game.move_name(game.new(), 0) == "1"
    assert nim(move_names=lambda state, action: state[0]).move_name(game.new(), 0) == "10"
