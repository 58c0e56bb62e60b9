"""Go and Hex against OpenSpiel, Go also against plain Python with a set of all boards, and positions made by hand."""
import numpy as np
import pytest

from alphazero_nb.core.registry import get_game
from alphazero_nb.games.go import board_of, first_point, go, score
from alphazero_nb.games.hex import hex
from go_reference import PlainGo


def after(game, names):
    actions = {game.action_name(action): action for action in range(game.actions)}
    return game.state_after([actions[name] for name in names.split()])


def legal_names(game, state): return {game.action_name(action) for action in game.legal_actions(state)}


def signs(state): return "".join(".xo"[stone] for stone in board_of(state).ravel())


def pick(random, legal, leave=.02):
    "A random action; the last one, a pass, only rarely."
    return int(random.choice(legal[:-1])) if len(legal) > 1 and random.random() > leave else int(legal[-1])


# OpenSpiel --------------------------------------------------------------------------------------

def compare_with_openspiel(size, games, seed):
    """Play the same random games by both rules. They differ on purpose in one thing: where a position comes a second
    time, OpenSpiel ends the game as a draw, and here the move is forbidden."""
    pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed")
    ours, theirs = go(size, komi=7), pyspiel.load_game(f"go(board_size={size},komi=7.0)")
    random, ended, forbidden = np.random.default_rng(seed), 0, 0
    for _ in range(games):
        state, other, boards = ours.new(), theirs.new_initial_state(), {"." * size ** 2}
        while not other.is_terminal():
            assert not ours.over(state) and ours.mover(state) == other.current_player()
            legal, allowed = ours.legal_actions(state), other.legal_actions()
            assert set(legal) <= set(allowed)
            for action in set(allowed) - set(legal):
                forbidden += 1
                again = other.child(action)
                assert again.is_terminal() and again.returns() == [0, 0], "a repetition"
            action = pick(random, legal)
            state = ours.play(state, action)
            other.apply_action(action)
            if action < size ** 2: assert signs(state) not in boards
            boards.add(signs(state))
        assert ours.over(state) and ours.returns(state).tolist() == other.returns()
        ended += 1
    return ended, forbidden


@pytest.mark.parametrize("size, games", [(5, 60), (7, 30), (9, 15)])
def test_go_is_openspiels_up_to_the_first_repetition(size, games):
    assert compare_with_openspiel(size, games, size)[0] == games


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 7, 9])
def test_ten_thousand_games_are_openspiels(size):
    ended, forbidden = compare_with_openspiel(size, 10_000, size + 100)
    print(f"{size}×{size}: {ended} games, {forbidden} forbidden repetitions")
    assert ended == 10_000 and forbidden > 0


def compare_hex(size, swap, games):
    pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed")
    ours, random = hex(size, swap), np.random.default_rng(size)
    theirs = pyspiel.load_game(f"hex(board_size={size},swap={'true' if swap else 'false'})")
    for number in range(games):
        state, other = ours.new(), theirs.new_initial_state()
        while not other.is_terminal():
            legal = ours.legal_actions(state)
            assert legal == other.legal_actions() and ours.mover(state) == other.current_player()
            action = legal[-1] if swap and len(other.history()) == 1 and number % 2 else int(random.choice(legal))
            state = ours.play(state, action)
            other.apply_action(action)
            owners = {".": 0, "x": 1, "y": 1, "z": 1, "X": 1, "o": 2, "p": 2, "q": 2, "O": 2}
            assert [owners[sign] for sign in str(other).split()] == state[5:5 + size ** 2].tolist()
        assert ours.over(state) and ours.returns(state).tolist() == other.returns()


@pytest.mark.parametrize("swap", [0, 1])
@pytest.mark.parametrize("size", [3, 5, 7, 11])
def test_hex_is_openspiels(size, swap): compare_hex(size, swap, 40)


@pytest.mark.slow
@pytest.mark.parametrize("swap", [0, 1])
def test_two_thousand_games_of_hex_are_openspiels(swap): compare_hex(7, swap, 1000)


# Plain Python -----------------------------------------------------------------------------------

@pytest.mark.parametrize("size, suicide, games", [(2, 0, 10), (2, 1, 10), (3, 0, 10), (3, 1, 10), (4, 1, 4), (5, 0, 3), (7, 0, 1)])
def test_go_is_the_plain_rules(size, suicide, games):
    "Long games, so that positions would repeat often."
    longest = min(6 * size * size, 200)
    game, random, repeats = go(size, .5, suicide, longest=longest), np.random.default_rng(size), 0
    for _ in range(games):
        state, plain = game.new(), PlainGo(size, .5, bool(suicide), longest)
        while not plain.over():
            legal = plain.legal()
            assert not game.over(state) and game.mover(state) == plain.seat and game.legal_actions(state) == legal
            repeats += any(plain.board[point] == "." and point not in legal for point in range(size ** 2))
            action = pick(random, legal, .03)
            state = game.play(state, action)
            plain.play(action)
            assert signs(state) == plain.board and score(state) == plain.lead()
        assert game.over(state) and game.returns(state)[0] == np.sign(plain.lead())
    assert repeats > 0


# Positions made by hand -------------------------------------------------------------------------

def test_a_ko_is_open_again_after_a_move_elsewhere():
    game = go(5)
    state = after(game, "B3 D4 C4 D2 C2 E3 A1 C3 D3")
    assert "C3" not in legal_names(game, state)
    assert "C3" in legal_names(game, after(game, "B3 D4 C4 D2 C2 E3 A1 C3 D3 A5 E5"))


def test_two_are_sent_and_one_returns():
    "White takes two stones, Black takes one back, and White's next stone would capture nothing but repeat the board."
    game = go(3, komi=0, longest=40)
    state = after(game, "B1 A2 B3 pass A3 A1 C3 pass B2 C2 A1 pass C1 pass C2 A2")
    assert signs(state) == "...o....." and "B1" not in legal_names(game, state)
    assert "B1" in legal_names(game, go_on(game, state, "pass B3")), "another board"


def lay(game, diagram, seat=0):
    "The position of a diagram, from the top row down, with `seat` to move; stones are put in reading order, nothing is taken."
    board = "".join(diagram.split())
    stones = [[point for point, sign in enumerate(board) if sign == own] for own in "xo"]
    line = []
    while any(stones): line.append(stones[len(line) % 2].pop(0) if stones[len(line) % 2] else len(board))
    if len(line) % 2 != seat: line.append(len(board))
    state = game.state_after(line)
    assert signs(state) == board and game.mover(state) == seat and not game.over(state)
    return state


def go_on(game, state, names):
    actions = {game.action_name(action): action for action in range(game.actions)}
    for name in names.split(): state = game.play(state, actions[name])
    return state


def test_a_snapback():
    "Black sends a stone, White takes it, and Black takes five stones by playing on the same point again."
    game = go(5)
    state = lay(game, "..ox. ooox. xxxx. ..... .....")
    state = go_on(game, state, "B5 A5")
    assert signs(state) == "o.ox.ooox.xxxx..........." and "B5" in legal_names(game, state)
    assert signs(go_on(game, state, "B5")) == ".x.x....x.xxxx..........."


def test_a_seki_counts_for_nobody_and_who_plays_in_it_is_taken():
    game = go(4, komi=0)
    diagram = "xx.o xx.o xxxo xxxo"
    for seat, lost in enumerate("xo"):
        state = lay(game, diagram, seat)
        assert score(state) == 10 - 4
        assert lost not in signs(go_on(game, state, "C4 C3")) and {"C4", "C3"} < legal_names(game, state)


def test_a_bent_four_in_the_corner_is_a_ko():
    """Black takes four stones and gets a bent space of four points. White plays on its vital point, and Black can live
    only by a ko, which White takes first. Nothing is dead here that was not taken."""
    game = go(5)
    state = lay(game, "..... ooo.. xxooo oxxxx ooo.x")
    state = go_on(game, state, "D1")
    assert signs(state)[15:] == ".xxxx...xx"
    state = go_on(game, state, "B1 A1 A2")
    assert signs(state)[15:] == "oxxxx.o.xx" and "A1" not in legal_names(game, state)
    assert "A1" in legal_names(game, go_on(game, state, "E5 D5")), "a threat elsewhere opens the ko again"
    assert signs(go_on(game, state, "E5 C1 pass A1")).count("x") == 1, "Black had no threat"


def test_a_group_of_more_than_one_stone_may_kill_itself_where_that_is_allowed():
    strict, free = go(3, komi=0), go(3, komi=0, suicide=1)
    for game, allowed in ((strict, False), (free, True)):
        state = lay(game, "xx. .ox oox", 1)
        assert ("A2" in legal_names(game, state)) == allowed
    assert signs(go_on(free, state, "A2")) == "xx...x..x"
    assert "A1" not in legal_names(free, lay(free, "... x.. .x.", 1)), "one stone alone would repeat the board"


def test_a_short_memory_still_knows_a_ko():
    long, short = go(5), go(5, superko=2)
    names = "B3 D4 C4 D2 C2 E3 A1 C3 D3"
    assert legal_names(long, after(long, names)) == legal_names(short, after(short, names))
    assert short.state_size < long.state_size
    with pytest.raises(ValueError, match="superko is 1; choose 2 to 51"): go(5, superko=1)   # The present position, which no ko needs


def test_dead_stones_that_nobody_took_count_as_alive():
    game = go(5, komi=0)
    wall = "C1 D1 C2 D2 C3 D3 C4 D4 C5 D5"
    assert score(after(game, f"{wall} pass pass")) == 5 and score(after(game, f"{wall} pass A1 pass pass")) == -6


def test_komi_decides_and_may_draw():
    wall = "C1 D1 C2 D2 C3 D3 C4 D4 C5 D5 pass pass"
    for komi, winner in ((4.5, 1), (5, 0), (5.5, -1), ("5.5", -1), (-3, 1)):
        game = go(5, komi=komi)
        assert game.returns(after(game, wall))[0] == winner


def test_the_longest_game_ends_by_area():
    game = go(3, komi=0, longest=4)
    state = after(game, "B2 A1 B1 C3")
    assert game.over(state) and score(state) == 2 - 2 and game.returns(state).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["go(size=9,komi=7)", "go(size=5,komi=6.5,suicide=1,superko=20,longest=30)", "hex(size=5,swap=1)"])
def test_names_come_back(name): assert get_game(name).name == name


@pytest.mark.parametrize("make, parameters, words", [
    (go, dict(size=1), "size is 1"), (go, dict(size=2.5), "size is 2.5"), (go, dict(komi="many"), "komi is 'many'"), (go, dict(komi=.3), "komi is 0.3"),
    (go, dict(komi=float("nan")), "komi is nan"), (go, dict(komi=1000), "komi is 1000"), (go, dict(komi=10**400), "komi is 1000"), (go, dict(superko=0), "superko is 0"),
    (go, dict(longest=1), "longest is 1"), (go, dict(suicide=2), "suicide is 2"), (hex, dict(size=20), "size is 20"), (hex, dict(swap=-1), "swap is -1")])
def test_wrong_parameters_are_named(make, parameters, words):
    with pytest.raises(ValueError, match=words): make(**parameters)


# Pictures ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("size", [5, 9, 19])
def test_a_board_shows_the_stones_and_the_letters_without_i(size):
    from alphazero_nb.ui.board import find_drawing
    from alphazero_nb.ui.grid import GridDrawing
    game, random = go(size), np.random.default_rng(size)
    state = game.new()
    for _ in range(3 * size): state = game.play(state, pick(random, game.legal_actions(state)))
    board = find_drawing(game)([state], [])
    assert [square.seat + 1 for square in board.squares] == board_of(state).ravel().tolist()
    assert "I" not in board.columns and board.columns[0] == "A" and tuple(board.rows) == tuple(range(size, 0, -1))
    for action in game.legal_actions(state)[:-1]:
        place = board.aims()[action]
        assert game.action_name(action) == f"{board.columns[place % size]}{board.rows[place // size]}"
    data = GridDrawing(size, size, first_point(size), "lines", rows=board.rows, columns=board.columns, stride=size + 2)
    assert data(game, state) == board


def test_a_drawing_whose_rows_overlap_is_refused():
    from alphazero_nb.ui.grid import GridDrawing
    with pytest.raises(ValueError, match="rows of 5 that are only 4 apart"): GridDrawing(5, 5, stride=4)
