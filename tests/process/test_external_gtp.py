"""Programs that speak GTP in the arena: what they are told, how each way to fail ends, and whole matches with real ones."""
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from alphazero_nb.arena.external import EngineFailed
from alphazero_nb.arena.external_gtp import GtpEngine, GtpPlayer, colored, find_line, place_stones
from alphazero_nb.arena.matches import play_match
from alphazero_nb.arena.players import get_player, names_program
from alphazero_nb.core.registry import get_game
from alphazero_nb.games import go as go_rules
from processes import no_child_left

STUB = Path(__file__).resolve().parents[1] / "gtp_stub.py"
HEX = "hex(size=4)"


@pytest.fixture
def stub(tmp_path):
    "The command of a stub that behaves in a certain way; its commands go to `log`. No process may be left."
    with no_child_left(): yield lambda mode: shlex.join([sys.executable, str(STUB), mode, str(tmp_path / "log")])


def games_told(tmp_path):
    "For each `genmove` the moves on the board at that time, as the program was told."
    board, told = [], []
    for line in (tmp_path / "log").read_text("utf-8").splitlines():
        _, word, *rest = line.split() if line[:1].isdigit() else ("", line)
        if word == "clear_board": board = []
        elif word == "play": board = [*board, " ".join(rest)]
        elif word == "genmove": told.append((rest[0], list(board)))
    return told


def test_a_match_against_a_program(stub, tmp_path):
    "It is told every stone, in turns, and takes the first empty cell. The words of its board are all that it knows."
    game = get_game(HEX)
    player = get_player(f"gtp:{stub('fair')}", game)
    try: result = play_match(game, player, get_player("random", game, seed=1), 20)
    finally: player.close()
    assert len(result.scores) == 20 and player.name.startswith("gtp:") and names_program(player.name)
    for played in result.games:
        state = played.start
        for action in played.actions:
            if played.players[game.mover(state)] == player.name:
                assert action == min(game.legal_actions(state))
            state = game.play(state, action)
    for color, moves in games_told(tmp_path):   # The program's own moves are on its board already, and not told
        assert len({move.split()[1] for move in moves}) == len(moves)
        if len(moves) > 1: assert {move.split()[0] for move in moves} == {"b", "w"}


@pytest.mark.parametrize("mode", ["late", "chatter"])
def test_an_answer_is_known_by_its_number(stub, mode):
    game = get_game(HEX)
    with GtpEngine(stub(mode)) as engine:
        engine.ask("boardsize 4")
        assert [engine.ask("genmove b") for _ in range(3)] == ["A1", "B1", "C1"]
    player = get_player(f"gtp:{stub(mode)}", game)
    try: assert player.act(game.new()) == 0
    finally: player.close()


def test_a_program_that_resigns_plays_to_the_end(stub):
    game = get_game(HEX)
    player = get_player(f"gtp:{stub('resign')}", game)
    try: result = play_match(game, player, get_player("random", game), 2)
    finally: player.close()
    assert len(result.scores) == 2
    go = get_game("go(size=4,komi=0)")
    player = get_player(f"gtp:{stub('resign')}", go)
    try: assert [player.act(go.new()) for _ in range(2)][1] == go.actions - 1, "at Go it passes"
    finally: player.close()


def test_a_program_that_thinks_on_after_an_interrupt_plays_again(stub, monkeypatch):
    "It reads the next command when its move is over, and that may take as long as a move."
    game = get_game(HEX)
    player = get_player(f"gtp:{stub('slow')}", game)
    monkeypatch.setattr(GtpEngine.ask, "__defaults__", (.3, True))
    send = player.engine.send
    def stopped(line):
        send(line)
        if "genmove" in line: raise KeyboardInterrupt
    player.engine.send = stopped
    with pytest.raises(KeyboardInterrupt): player.act(game.new())
    player.engine.send = send
    try: assert player.act(game.new()) == 0
    finally: player.close()


@pytest.mark.parametrize("mode, words", [
    ("hang", "did not answer 'genmove b' within 0.5 s"),
    ("die", r"died after 'genmove b' \(exit code 1\); it said: out of luck\.$"),
    ("illegal", "answered 'A1', which is not a legal move after b a1, w b1"),
    ("empty", "answered '', which is not a legal move after the start"),
    ("refuses", "refused 'play b a1': illegal move"),
])
def test_a_program_that_fails(stub, mode, words, monkeypatch):
    if mode == "hang": monkeypatch.setattr(GtpPlayer, "patience_s", .5)
    game = get_game(HEX)
    player = get_player(f"gtp:{stub(mode)}", game)
    state = game.state_after([0, 1]) if mode in ("illegal", "refuses") else game.new()
    with pytest.raises(EngineFailed, match=words) as caught: player.act(state)
    assert "\n" not in str(caught.value) and "gtp_stub.py" in str(caught.value)
    player.close()   # Once more does no harm


@pytest.mark.parametrize("mode, words", [("small", "refused 'boardsize 4': unacceptable size"), ("old", "speaks version '1' of GTP")])
def test_a_program_that_does_not_fit(stub, mode, words):
    with pytest.raises(EngineFailed, match=words): get_player(f"gtp:{stub(mode)}", get_game(HEX))


@pytest.mark.parametrize("name, game, words", [
    ("gtp:", HEX, "gtp: needs a command; write for example gtp:gnugo --mode gtp"),
    ("gtp:x?level=3", HEX, "may end in .movetime=MILLISECONDS or .clock=SECONDS, and in nothing else"),
    ("gtp:x?clock=3+1", HEX, "may end in .movetime=MILLISECONDS or .clock=SECONDS, and in nothing else"),
    ("gtp:x?nonsense", HEX, "has 'nonsense' after the question mark"),
    ("gtp:x", "connect4", "GTP is spoken for go, hex and othello here, and the game is connect4"),
    ("gtp:no-such-program", HEX, "'no-such-program' did not start: No such file or directory"),
])
def test_bad_names_say_what_is_wrong(name, game, words):
    with pytest.raises(ValueError, match=words) as caught: get_player(name, get_game(game))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limits, first, later", [
    ("?movetime=1900", "time_settings 0 2 1", {"time_left b 2 1", "time_left w 2 1"}),
    ("?clock=60", "time_settings 60 0 0", {"time_left b 60 0", "time_left w 60 0"}),
])
def test_a_clock_is_told_before_each_move(stub, tmp_path, limits, first, later):
    game = get_game(HEX)
    player = get_player(f"gtp:{stub('fair')}{limits}", game)
    try: play_match(game, player, get_player("random", game), 2)
    finally: player.close()
    lines = [line.partition(" ")[2] for line in (tmp_path / "log").read_text().splitlines()]
    assert first in lines and later <= set(lines)


def test_no_komi_is_sent_as_zero(stub, tmp_path):
    get_player(f"gtp:{stub('fair')}", get_game("go(size=4,komi=0)")).close()
    assert "komi 0" in [line.partition(" ")[2] for line in (tmp_path / "log").read_text().splitlines()]


def test_a_stop_does_not_mix_up_the_board(stub):
    "After an interrupt in the middle of a command the board is unknown, and told again from its start."
    game = get_game(HEX)
    player = get_player(f"gtp:{stub('fair')}", game)
    try:
        send = player.engine.send
        def stopped(line):
            send(line)
            if "play b a2" in line: raise KeyboardInterrupt
        player.engine.send = stopped
        with pytest.raises(KeyboardInterrupt): player.act(game.state_after([4, 5]))
        player.engine.send = send
        assert player.act(game.state_after([4, 5])) == 0
    finally: player.close()


@pytest.mark.parametrize("size", [5, 9])
def test_stones_can_be_put_down_in_any_order(size):
    "sgfmill's board takes nothing off on the way, whatever the order, and ends with the board of the game."
    boards = pytest.importorskip("sgfmill.boards", reason="sgfmill is the reference of this test")
    game, rng = get_game(f"go(size={size})"), np.random.default_rng(7)
    for number in range(40):
        state = game.new()
        for _ in range(int(rng.integers(1, size * size))):
            if game.over(state): break
            state = game.play(state, int(rng.choice(game.legal_actions(state))))
        words, board = rng.permutation(place_stones(game, go_rules.board_of(state))), boards.Board(size)
        for placed, text in enumerate(words, 1):
            color, place = text.split()
            board.play(int(place[1:]) - 1, "ABCDEFGHJKLMNOPQRST".index(place[0]), color)
            assert len(board.list_occupied_points()) == placed
        theirs = [[{None: 0, "b": 1, "w": 2}[board.get(size - 1 - row, column)] for column in range(size)] for row in range(size)]
        assert theirs == go_rules.board_of(state).tolist()


def test_a_short_line_of_othello_is_found_again():
    game, rng = get_game("othello"), np.random.default_rng(3)
    for plies in (0, 1, 4, 6):
        state = game.new()
        for _ in range(plies): state = game.play(state, int(rng.choice(game.legal_actions(state))))
        again, names = game.new(), {game.action_name(action): action for action in range(game.actions)}
        for text in find_line(game, state):
            color, place = text.split()
            assert color == "bw"[game.mover(again)]
            again = game.play(again, names[place])
        assert np.array_equal(again, state)
    for _ in range(4): state = game.play(state, int(rng.choice(game.legal_actions(state))))
    with pytest.raises(ValueError, match="can only begin othello"): find_line(game, state)


# Real programs, where they are installed ---------------------------------------------------------

def installed(name):
    found = shutil.which(name) or shutil.which(name, path="/usr/games")
    if found is None: pytest.skip(f"{name} is not installed")
    return found


def test_gnu_go_plays_by_our_rules():
    "It accepts each of our moves, superko included, and we each of its."
    command = f"{installed('gnugo')} --mode gtp --chinese-rules --positional-superko --capture-all-dead --never-resign --level 1"
    game = get_game("go(size=5,komi=3)")
    player = get_player(f"gtp:{command}", game)
    try: result = play_match(game, player, get_player("random", game, seed=2), 6)
    finally: player.close()
    assert result.score > .5


def test_grhino_plays_by_our_rules():
    game = get_game("othello")
    player = get_player(f"gtp:{installed('gtp-rhino')}", game)
    try: result = play_match(game, player, get_player("random", game, seed=2), 6)
    finally: player.close()
    assert result.score > .5


def test_two_engines_of_ours_meet(tmp_path):
    "Our engine on both ends of the pipe, with the swap and with passes."
    for name in ("go(size=4,komi=0)", "hex(size=4,swap=1)"):
        source = ("from alphazero_nb.arena.gtp import *\nfrom alphazero_nb.core.registry import get_game\nimport sys\n"
                  "from alphazero_nb.network.evaluator import UniformEvaluator\nfrom alphazero_nb.search.agent import Agent\n"
                  f"game = get_game({name!r})\n"
                  "run_gtp(GtpProgram(lambda: Agent(game, UniformEvaluator(game)), lambda line: print(line, flush=True), simulations=40), sys.stdin)\n")
        game = get_game(name)
        player = get_player(f"gtp:{shlex.join([sys.executable, '-c', source])}", game)
        try: result = play_match(game, player, get_player("random", game, seed=4), 4)
        finally: player.close()
        assert result.score > .5, name


def is_own_eye(board, cell, color):
    "Whether an empty point is an eye of a colour, by the usual rule of random playouts; only such points stay empty."
    size, (row, column) = len(board), divmod(cell, len(board))
    def seen(steps): return [board[row + down, column + right] for down, right in steps if 0 <= row + down < size and 0 <= column + right < size]
    corners = seen([(1, 1), (1, -1), (-1, 1), (-1, -1)])
    return set(seen([(1, 0), (-1, 0), (0, 1), (0, -1)])) == {color} and corners.count(3 - color) <= (len(corners) == 4)


@pytest.mark.slow
@pytest.mark.parametrize("size, komi, games", [(5, 3.5, 60), (7, 9, 80), (9, 7, 60)])
def test_the_score_is_that_of_gnu_go(size, komi, games):
    "Random games in which nobody fills an eye of its own: at the end no dead stone is left."
    game, rng = get_game(f"go(size={size},komi={komi},longest=2000)"), np.random.default_rng(size)
    with GtpEngine(f"{installed('gnugo')} --mode gtp --chinese-rules --positional-superko --level 10") as engine:
        engine.ask(f"boardsize {size}")
        engine.ask(f"komi {komi}")
        for number in range(games):
            engine.ask("clear_board")
            state = game.new()
            while not game.over(state):
                board, color = go_rules.board_of(state), game.mover(state) + 1
                moves = [move for move in game.legal_actions(state)[:-1] if not is_own_eye(board, int(move), color)]
                move = int(rng.choice(moves)) if moves else size * size
                engine.ask(f"play {colored(game, state, move)}")
                state = game.play(state, move)
            lead = go_rules.score(state)
            ours = "0" if lead == 0 else f"{'B' if lead > 0 else 'W'}+{abs(lead):.1f}"
            assert engine.ask("final_score") == ours, f"game {number}:\n{game.text(state)}"
