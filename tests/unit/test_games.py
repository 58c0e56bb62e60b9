"The rules against OpenSpiel's, ply by ply; the registry; and every law of the contract, broken once."
import json
import pickle
import re

import numpy as np
import pytest

from alphazero_nb.core.game import ContractError, Game, get_game, list_games

GAMES = 1000
VARIANTS = ["tictactoe", "connect4", "gomoku(size=15)", "gomoku(size=9)", "gomoku(size=5)", "dots(rows=3,cols=3)",
            "dots(rows=2,cols=4)", "dots(rows=1,cols=2)", "dots(rows=1,cols=1)", "othello(size=8)", "othello(size=6)"]
DICE = ["pig(goal=100)", "2048(goal=2048)", "2048(goal=32)"]
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
    rng = np.random.default_rng(2)
    played = [compare(game, twin, lambda ply, legal: legal[int(rng.random() * len(legal))]) for _ in range(GAMES)]
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


@pytest.mark.parametrize("size, games", [(6, 150), (8, 30)])
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


@pytest.mark.parametrize("size", [6, 8])
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
    get_game(name).check(games=16, seed=5)


def test_every_listed_game_is_checked_and_keeps_its_name():
    "OpenSpiel's games, Blob and chess have tests of their own."
    assert {name.partition("(")[0] for name in VARIANTS + DICE} == set(list_games()) - {"openspiel", "blob", "chess"}
    for name in [*list_games(), *VARIANTS, *DICE]:
        game = get_game(name)
        assert get_game(game.name).name == pickle.loads(pickle.dumps(game)).name == game.name
    assert get_game("gomoku").name == "gomoku(size=15)" and get_game("dots").name == "dots(rows=3,cols=3)"


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
    "othello(size=7)": ["size 6 or 8", "7"],
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


def nim(**changes):
    right = dict(start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                 state_size=2, players=2, actions=3, shape=(11,), max_length=10)
    return Game("nim", **{**right, **changes})


def mover_too_high(state): return -1 if state[0] == 0 else 2 * state[1]


def mover_too_low(state): return -2 if state[0] == 0 else state[1]


def mover_that_writes(state):
    if state[0] == 4: state[1] = 0
    return -1 if state[0] == 0 else state[1]


def legal_falling(state, actions):
    n = min(3, state[0])
    for i in range(n): actions[i] = n - 1 - i
    return n


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
