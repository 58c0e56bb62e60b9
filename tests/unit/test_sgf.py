"Games of Go and Hex as SGF, held against sgfmill, a reader and writer of its own."
import numpy as np
import pytest
from sgfmill import sgf, sgf_moves

from alphazero_nb.arena.sgf import read_nodes, read_sgf, sgf_result, write_sgf
from alphazero_nb.core.registry import get_game

GAMES = ["go(size=5,komi=0.5)", "go(size=9,komi=7)", "go(size=19,komi=-3.5,longest=80)", "hex(size=5,swap=1)", "hex(size=11)"]


def random_game(game, seed):
    state, random, actions = game.new(), np.random.default_rng(seed), []
    while not game.over(state):
        actions.append(int(random.choice(game.legal_actions(state))))
        state = game.play(state, actions[-1])
    return actions, state


@pytest.mark.parametrize("name", GAMES)
def test_a_game_comes_back_from_another_program(name):
    "sgfmill reads what was written, and what sgfmill writes again is the same game."
    game = get_game(name)
    for seed in range(40):
        actions, state = random_game(game, seed)
        headers = dict(PB=r"a ] b \ c : d", PW="Ω", C="two\nlines")
        record = write_sgf(game, actions, headers)
        theirs = sgf.Sgf_game.from_string(record)
        root = theirs.get_root()
        assert [root.get(key) for key in headers] == list(headers.values())
        assert theirs.get_size() == game.shape[1] and len(theirs.get_main_sequence()) == len(actions) + 1
        assert root.get("RE") == sgf_result(game, state)
        for text in (record, theirs.serialise().decode("utf-8")):
            assert read_sgf(text, game)[1] == actions
            assert read_nodes(text)[0]["PB"] == headers["PB"]


@pytest.mark.parametrize("name", GAMES[:3])
def test_the_stones_lie_where_the_other_program_sees_them(name):
    "Its board after the last move is ours; it knows captures, and nothing of superko."
    from alphazero_nb.games.go import board_of, score
    game = get_game(name)
    for seed in range(40):
        actions, state = random_game(game, seed)
        theirs = sgf.Sgf_game.from_string(write_sgf(game, actions))
        board, plays = sgf_moves.get_setup_and_moves(theirs)
        for colour, point in plays:
            if point is not None: board.play(*point, colour)
        seen = [[{None: 0, "b": 1, "w": 2}[board.get(row, column)] for column in range(game.shape[1])] for row in range(game.shape[1])]
        assert np.array_equal(np.array(seen)[::-1], np.asarray(board_of(state)).reshape(game.shape[1:]))
        assert board.area_score() - theirs.get_komi() == score(state)
        assert theirs.get_winner() == {1: "b", -1: "w", 0: None}[int(game.returns(state)[0])]


def test_a_file_of_another_program_is_read():
    "Words before it, comments, passes as tt, spaces, and variations, of which the first is the game."
    game, actions = read_sgf("text before (;GM[1]FF[4]SZ[9]KM[6.5]C[a \\] bracket (; in [ words]\n ; B[ee] ; W [tt]\n (;B[cc];W[])(;B[dd]))")
    assert game.name == "go(size=9,komi=6.5)" and actions == [40, 81, 20, 81]


def test_brackets_before_a_game_are_no_game():
    assert read_sgf("Final (round 3): (;GM[1]SZ[9];B[ee])")[1] == [40]


def test_at_hex_either_colour_begins_and_they_alternate():
    assert read_sgf("(;GM[11]SZ[5];W[b1];B[swap];W[c3])")[1] == [1, 25, 12]
    for text in ("(;GM[11]SZ[5];B[a1];B[b2])", "(;GM[11]SZ[5];W[b1];B[swap];B[c3])"):
        with pytest.raises(ValueError, match="out of turn"): read_sgf(text)


@pytest.mark.parametrize("suicide", [0, 1])
def test_a_file_says_whether_a_group_may_kill_itself(suicide):
    game = get_game("go(size=3,komi=0,suicide=1)" if suicide else "go(size=3,komi=0)")
    lines = [random_game(game, seed)[0] for seed in range(30)]
    for actions in lines:
        read, again = read_sgf(write_sgf(game, actions))
        assert again == actions and ("suicide=1" in read.name) == bool(suicide)
    if suicide:
        strict = get_game("go(size=3,komi=0)")
        def follows(actions):
            state = strict.new()
            for action in actions:
                if strict.over(state) or action not in strict.legal_actions(state): return False
                state = strict.play(state, action)
            return True
        assert not all(map(follows, lines)), "some of these games have such a move"


@pytest.mark.parametrize("rules, allowed", [("GOE", True), ("NZ", True), ("Japanese", False), ("AGA", False)])
def test_the_rules_that_a_file_names_say_whether_a_group_may_kill_itself(rules, allowed):
    assert ("suicide=1" in read_sgf(f"(;GM[1]SZ[3]RU[{rules}])")[0].name) == allowed


def test_long_names_of_properties_are_read():
    "FF[3] and older: only the capital letters count."
    assert read_nodes("(\n;GaMe[1]SiZe[9] C[a line\\\n goes on]\n; Black[ee])") == [{"GM": "1", "SZ": "9", "C": "a line goes on"}, {"B": "ee"}]


@pytest.mark.parametrize("text, words", {
    "": "no node", "(": "no node", "()": "no node", ")": "no node", "(;": "breaks off", "(;GM[1": "damaged", "(;GM[1]SZ[9];B[ee]": "breaks off",
    "(;GM[2])": "'2'", "(;SZ[9:5])": "one number", "(;SZ[x])": "one number", "(;SZ[25])": "size", "(;SZ[9]KM[many])": "komi",
    "(;SZ[9]KM[0.3])": "komi", "(;SZ[9]HA[2]AB[cc][gg])": "AB", "(;SZ[9];B[ee];B[cc])": "out of turn", "(;SZ[9];B[jj])": "cannot be read",
    "(;SZ[9];B[e5])": "cannot be read", "(;SZ[9];B[ee];W[ee])": "illegal", "(;SZ[9];B[];W[];B[aa])": "after the end",
    "(;GM[11]SZ[5];B[swap])": "illegal", "(;GM[11]SZ[5];B[f1])": "cannot be read", "(;GM[11]SZ[5];B[" + "a" * 5000 + "])": "cannot be read",
}.items())
def test_what_cannot_be_read_is_one_sentence(text, words):
    with pytest.raises(ValueError) as error: read_sgf(text)
    sentence = str(error.value)
    assert words in sentence and "\n" not in sentence and sentence.endswith(".") and len(sentence) < 300


@pytest.mark.parametrize("name, text, words", [
    ("go(size=5,komi=2)", "(;GM[11]SZ[5])", "game number '11', and go"), ("go(size=5,komi=2)", "(;SZ[9];B[aa])", "size '9', and go"),
    ("go(size=5,komi=2)", "(;GM[1]SZ[5]KM[6.5];B[aa])", "komi '6.5', and .* has 2"), ("go(size=5,komi=2)", "(;KM[many])", "komi 'many'"),
    ("hex(size=5)", "(;GM[1]SZ[5])", "game number '1', and hex"), ("hex(size=5)", "(;GM[11]SZ[11])", "size '11', and hex")])
def test_a_file_of_another_game_than_the_one_that_is_given_is_refused(name, text, words):
    with pytest.raises(ValueError, match=words) as error: read_sgf(text, get_game(name))
    assert str(error.value).endswith(".") and "\n" not in str(error.value)


@pytest.mark.parametrize("name, text", [
    ("go(size=5,komi=2)", "(;B[ba])"), ("go(size=5,komi=2)", "(;GM[1]SZ[5]KM[2.0];B[ba])"), ("go(size=5,komi=0)", "(;KM[-0]SZ[05];B[ba])"),
    ("hex(size=5)", "(;GM[11]SZ[5]KM[6.5];B[b1])")])
def test_a_file_of_the_game_that_is_given_is_read(name, text): assert read_sgf(text, get_game(name))[1] == [1]


def test_a_game_of_more_moves_than_our_limit_is_read():
    game = get_game("go(size=5,komi=2,longest=200)")
    actions = next(actions for actions, _ in (random_game(game, seed) for seed in range(1000)) if len(actions) > 50)
    read, again = read_sgf(write_sgf(game, actions))
    assert again == actions and read.name == f"go(size=5,komi=2,longest={len(actions) + 1})"
    assert read_sgf(write_sgf(game, actions[:50]))[0].name == "go(size=5,komi=2)"


def test_no_komi_is_written_as_zero(): assert "KM[0]" in write_sgf(get_game("go(size=5,komi=0)"), [])


def test_what_cannot_be_written_is_one_sentence():
    go = get_game("go(size=5)")
    for call, words in ((lambda: write_sgf(get_game("connect4"), []), "go and hex"), (lambda: write_sgf(go, [0, 0]), "move 2 is illegal"),
                        (lambda: write_sgf(go, [25, 25, 1]), "move 3"), (lambda: write_sgf(go, [], dict(B="aa")), "'B'"),
                        (lambda: write_sgf(go, [], {"][": "x"}), "property")):
        with pytest.raises(ValueError, match=words): call()
