"The GTP engine in one process, and as a command: what it answers, what it keeps, and that no line ends it."
import itertools
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from alphazero_nb.arena import gtp
from alphazero_nb.arena.gtp import GTP_COMMANDS, Clock, GtpProgram, obey, run_gtp
from alphazero_nb.arena.sgf import read_sgf, write_sgf
from alphazero_nb.core.registry import get_game
from alphazero_nb.games.go import score
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.one_game import ranked_moves


class Talk:
    "A program, and the lines that it has said."
    def __init__(self, name="go(size=5,komi=2)", evaluator=None, **options):
        self.game, self.lines = get_game(name), []
        self.program = GtpProgram(lambda: Agent(self.game, evaluator or UniformEvaluator(self.game)), self.lines.append,
                                  room=options.pop("room", 3000), **{"simulations": 20, **options})

    def __call__(self, line):
        "Sends a line. Returns the answer without its end, and requires that it is one answer."
        before = len(self.lines)
        assert obey(self.program, line)
        said = "\n".join(self.lines[before:])
        assert re.fullmatch(r"(?s)[=?][0-9]*( .*|\n.*)?\n", said + "\n" * (not said.endswith("\n"))), said
        assert self.lines[-1] == "" and "\n\n" not in said.rstrip("\n")
        return said.rstrip("\n")

    def all(self, *lines): return [self(line) for line in lines]


@pytest.fixture
def talk(): return Talk()


def test_a_game_of_go_is_the_game_of_the_rules(talk):
    assert talk.all("boardsize 5", "komi 2", "clear_board") == ["=", "=", "="]
    state, random = talk.game.new(), np.random.default_rng(1)
    for color in itertools.cycle("bw"):
        if talk.game.over(state): break
        action = int(random.choice(talk.game.legal_actions(state)))
        assert talk(f"play {color} {talk.game.action_name(action)}") == "="
        state = talk.game.play(state, action)
        assert np.array_equal(talk.program.board.state, state)
    lead = score(state)
    assert talk("final_score") == "= " + ("0" if lead == 0 else f"{'B' if lead > 0 else 'W'}+{abs(lead):g}")
    assert talk("showboard") == "= \n" + talk.game.text(state)
    assert talk("play b A1") == "? the game is over" and talk("genmove w") == "? the game is over"


def test_two_engines_play_a_whole_game(talk):
    other, colors = Talk(), itertools.cycle(["b", "w"])
    for color in colors:
        mine, theirs = (talk, other) if color == "b" else (other, talk)
        answer = mine(f"genmove {color}")
        if answer == "? the game is over": break
        assert theirs(f"play {color} {answer.removeprefix('= ')}") == "="
    assert np.array_equal(talk.program.board.state, other.program.board.state)
    record = talk("printsgf").removeprefix("= ")
    assert read_sgf(record, talk.game)[1] == talk.program.board.actions


def test_ids_comments_and_noise(talk):
    assert talk("7 protocol_version") == "=7 2" and talk("0012 name") == "=0012 alphazero-nb"
    assert talk("3\tplay  b\x01c3 # my move") == "=3" and talk("9 nonsense").startswith("?9 unknown command")
    before = len(talk.lines)
    assert all(obey(talk.program, line) for line in ("", "   ", "# only a comment", "\t")) and len(talk.lines) == before
    assert obey(talk.program, "4 quit") is False and talk.lines[before:] == ["=4", ""]


def test_the_list_of_commands_is_true(talk):
    names = talk("list_commands").removeprefix("= ").split("\n")
    assert names == list(GTP_COMMANDS) and all(talk(f"known_command {name}") == "= true" for name in names)
    assert talk("known_command kgs-chat") == "= false"
    needed = "protocol_version name version known_command list_commands quit boardsize clear_board komi play genmove undo"
    assert set(needed.split()) <= set(names)


@pytest.mark.parametrize("line, words", [
    ("boardsize 9", "unacceptable size"), ("boardsize five", "no number"), ("boardsize", "syntax error"), ("komi 6.5", "komi of 2"),
    ("komi nan", "out of range"), ("komi 1e999", "out of range"), ("play b Z9", "invalid vertex"), ("play red A1", "invalid color"),
    ("play b", "syntax error"), ("play b A1 B1", "syntax error"), ("genmove", "syntax error"), ("undo", "cannot undo"),
    ("time_settings 1 2", "syntax error"), ("time_left b x 0", "no number"), ("loadsgf /no/such/file.sgf", "cannot load file"),
    ("genmov b", "Did you mean 'genmove'"), ("kata-analyze b x", "no number"), ("lz-analyze purple", "invalid color"),
    ("kata-analyze b interval", "no number"), ("kata-analyze interval x", "no number"), ("boardsize 5 9", "unacceptable size"),
    ("boardsize 9 9", "unacceptable size"), ("boardsize 5 5 5", "syntax error"),
])
def test_what_makes_no_sense_fails_and_changes_nothing(talk, line, words):
    talk("play b C3")
    if line == "undo": talk("undo")
    before = talk.program.board.state.copy()
    assert talk(line).startswith("? ") and words in talk.lines[-2]
    assert np.array_equal(talk.program.board.state, before) and talk("play w D4") in ("=", "? illegal move")


def test_an_occupied_point_is_illegal_and_undo_takes_back(talk):
    assert talk.all("play b C3", "play w C3") == ["=", "? illegal move"]
    assert talk.all("undo", "play b C3", "play w D3") == ["=", "=", "="]


def test_a_colour_that_plays_twice_leaves_a_pass_between_and_undo_takes_both(talk):
    talk.all("play b A1", "play b E5")
    assert talk.program.board.actions == [20, 25, 4]
    talk("undo")
    assert talk.program.board.actions == [20]
    assert talk("genmove b").startswith("= ") and len(talk.program.board.turns) == 2 and len(talk.program.board.actions) == 3
    talk("undo")
    assert talk("play w B2") == "=" and talk.program.board.actions == [20, 16]


def test_the_tree_is_kept_from_move_to_move():
    "After the own move and the expected reply the search begins with what it knows of the position; after `undo` with nothing."
    talk = Talk(simulations=400)
    talk("genmove b")
    board = talk.program.board
    reply = ranked_moves(board.search)[0].line[1]
    talk(f"play w {board.game.action_name(reply)}")
    board.begin()
    assert np.array_equal(board.search.state, board.state) and board.search.visits > 1
    talk.all("undo", f"play w {board.game.action_name(reply)}")
    board.begin()
    assert np.array_equal(board.search.state, board.state) and board.search.visits == 0


def test_analysis_runs_until_the_next_line():
    batches = threading.Event()

    class Counted(UniformEvaluator):
        def evaluate(self, *batch):
            batches.set()
            return super().evaluate(*batch)
    talk = Talk(evaluator=Counted(get_game("go(size=5,komi=2)")))
    talk("play b C3")
    batches.clear()
    assert obey(talk.program, "5 lz-analyze w 1")
    assert batches.wait(600)
    end = time.monotonic() + 600
    while not talk.lines[-1].startswith("info move"):
        assert time.monotonic() < end
        time.sleep(.002)
    assert obey(talk.program, "6 name")
    start = talk.lines.index("=5")
    stop = talk.lines.index("=6 alphazero-nb")
    said = talk.lines[start + 1:stop]
    assert said[-1] == "" and len(said) > 1
    move = r"info move ([A-E][1-5]|pass) visits \d+ winrate \d+ prior \d+ order \d+ pv( [A-E][1-5]| pass)+"
    assert all(re.fullmatch(f"{move}( {move})*", line) and line.count(" order 0 ") == 1 for line in said[:-1])
    assert obey(talk.program, "kata-analyze 1") and talk.program.thread is not None
    assert obey(talk.program, "quit") is False and talk.program.thread is None


@pytest.mark.parametrize("words, interval_s", {
    "": 1, "b": 1, "50": .5, "b 50": .5, "B interval 50": .5, "interval 50": .5, "black 50 ownership true": .5, "b ownership true": 1,
    "50 minmoves 3 ownership true": .5, "b minmoves 3 interval 20": .2, "interval 20 avoid b A1 1": .2, "interval 0": .01}.items())
def test_an_analysis_takes_the_words_of_every_controller(talk, monkeypatch, words, interval_s):
    found = []
    monkeypatch.setattr(gtp, "analyze", lambda program, seconds, kata, turns: found.append(seconds))
    for command in ("kata-analyze", "lz-analyze"): assert obey(talk.program, f"{command} {words}") and obey(talk.program, "name")
    assert found == pytest.approx([interval_s] * 2) and talk.lines == ["=", "", "= alphazero-nb", ""] * 2


def test_a_board_may_be_given_by_both_sides(talk):
    talk("play b C3")
    assert talk("boardsize 5 5") == "=" and talk.program.board.actions == []


def test_an_analysis_for_the_other_colour_leaves_the_game_as_it_is(talk):
    for analyze in ("lz-analyze w 1", "kata-analyze w"):
        assert obey(talk.program, analyze) and len(talk.program.board.actions) == 1, "a pass, for the time of the analysis"
        assert obey(talk.program, "name")   # Ends it
        assert talk("undo") == "? cannot undo"
        assert talk("play b C3") == "=" and len(talk.program.board.actions) == 1
        assert talk("undo") == "=" and np.array_equal(talk.program.board.state, talk.game.new())


def test_the_clock_divides_what_is_left():
    clock = Clock()
    assert clock.move_s(0, 25) is None
    clock.set(300, 0, 0)
    assert clock.move_s(0, 81) == pytest.approx(10) and clock.move_s(1, 3) == pytest.approx(.9 * 300 / 8)
    clock.used(0, 100)
    assert clock.left == [(200, 0), (300, 0)]
    clock.set(10, 30, 5)
    clock.used(1, 11)
    assert clock.left[1] == (30, 5) and clock.move_s(1, 81) == pytest.approx(5.4)
    clock.used(1, 6)
    assert clock.left[1] == (24, 4)
    clock.set(0, 10, 0)
    assert clock.move_s(0, 81) is None   # The protocol's word for no limit
    clock.set(0, 0, 0)
    assert clock.move_s(0, 81) == .01


@pytest.mark.parametrize("settings, full", [("300 0 0", (300, 0)), ("0 30 5", (30, 5))])
def test_a_new_game_begins_with_full_clocks(talk, settings, full):
    talk(f"time_settings {settings}")
    for command in ("clear_board", "boardsize 5"):
        assert talk.all("time_left b 12 0", command) == ["=", "="]
        assert talk.program.clock.left == [full, full] and talk.program.clock.limited


def test_hex_with_a_swap():
    talk = Talk("hex(size=5,swap=1)")
    assert talk.all("boardsize 5", "komi 6.5", "play b b1", "play w swap-pieces") == ["=", "=", "=", "="]
    assert talk.program.board.actions == [1, 25] and talk("final_score") == "? the game is not over"
    assert talk("play w a1") == "? it is black's turn" and talk("genmove b").startswith("= ")


def test_no_komi_is_zero(): assert Talk("go(size=5,komi=0)")("komi 7") == "? the agent plays with a komi of 0"


def test_a_file_is_loaded_up_to_a_move(talk, tmp_path):
    (tmp_path/"game.sgf").write_text(write_sgf(talk.game, [12, 13, 7]))
    assert talk(f"loadsgf {tmp_path/'game.sgf'}") == "=" and talk.program.board.actions == [12, 13, 7]
    assert talk(f"loadsgf {tmp_path/'game.sgf'} 3") == "=" and talk.program.board.actions == [12, 13]
    (tmp_path/"game.sgf").write_text("(;GM[1]SZ[5]KM[6.5];B[aa])")
    assert "komi '6.5'" in talk(f"loadsgf {tmp_path/'game.sgf'}") and talk.program.board.actions == [12, 13]
    (tmp_path/"game.sgf").write_text("no game")
    assert talk(f"loadsgf {tmp_path/'game.sgf'}").startswith("? this is no SGF file") and talk.program.board.actions == [12, 13]


@pytest.mark.parametrize("named, really", [("Shift_JIS", "shift_jis"), ("an-unknown-set", "utf-8"), ("idna", "utf-8")])
def test_a_file_is_read_in_the_character_set_that_it_names(talk, tmp_path, named, really):
    "In Shift_JIS, the second byte of this letter is a backslash, which would hide the bracket after it."
    (tmp_path/"game.sgf").write_bytes(f"(;GM[1]SZ[5]KM[2]CA[{named}]C[表];B[cc];W[dd])".encode(really))
    assert talk(f"loadsgf {tmp_path/'game.sgf'}") == "=" and talk.program.board.actions == [12, 18]


class Breakable(UniformEvaluator):
    broken = False
    def evaluate(self, *batch):
        if self.broken: raise RuntimeError("out of memory")
        return super().evaluate(*batch)


def test_an_evaluator_that_fails_gets_an_answer_and_the_next_search_works():
    evaluator = Breakable(get_game("go(size=5,komi=2)"))
    talk = Talk(evaluator=evaluator)
    assert talk("play b C3") == "="
    evaluator.broken = True
    assert talk("genmove w") == "? out of memory"
    assert talk("genmove b") == "? out of memory" and talk.program.board.actions == [12], "no pass is left"
    evaluator.broken = False
    assert talk("genmove w").startswith("= ") and len(talk.program.board.actions) == 2


def test_an_analysis_that_fails_leaves_nothing_that_the_next_search_waits_for():
    evaluator = Breakable(get_game("go(size=5,komi=2)"))
    talk = Talk(evaluator=evaluator)
    assert talk("genmove b").startswith("= ") and talk("genmove w").startswith("= ")
    evaluator.broken = True
    assert obey(talk.program, "kata-analyze b 1")
    end = time.monotonic() + 600
    while not any("the search failed: out of memory" in line for line in talk.lines):
        assert time.monotonic() < end
        time.sleep(.002)
    evaluator.broken = False
    answer = threading.Thread(target=lambda: obey(talk.program, "genmove b"), daemon=True)
    answer.start()
    answer.join(600)
    assert not answer.is_alive() and len(talk.program.board.actions) == 3


def test_a_weak_position_is_resigned():
    assert Talk(resign=1.1)("genmove b") == "= resign"


def test_resigning_out_of_turn_leaves_no_pass():
    talk = Talk(resign=2.0)   # More than any value
    assert talk("genmove w") == "= resign" and talk.program.board.turns == []


def test_no_line_ends_the_engine():
    "200 commands, hostile ones included: each gets one answer, and the board stays a position of the rules."
    talk, random = Talk(), np.random.default_rng(5)
    words = ["b", "w", "A1", "C3", "pass", "5", "-1", "1e9", "é", "\x00", "=", "?", "swap", "9" * 40, "'; DROP", "kata-analyze", "B" * 3000]
    for _ in range(200):
        name = str(random.choice([name for name in GTP_COMMANDS if name != "quit"] + ["", "# x", "genmov"]))
        line = " ".join([name, *map(str, random.choice(words, random.integers(4)))])
        before = len(talk.lines)
        assert obey(talk.program, line)
        talk.program.finish()
        said = [text for text in talk.lines[before:] if text[:1] in "=?" and text]
        assert len(said) == bool(line.partition("#")[0].strip(" \x00")), (line, said)
        board = talk.program.prepare()
        assert np.array_equal(board.state, board.game.state_after(board.actions))


def test_the_output_may_close_at_any_time():
    def say(line): raise BrokenPipeError
    game = get_game("go(size=5)")
    run_gtp(GtpProgram(lambda: Agent(game, UniformEvaluator(game)), say), itertools.repeat("kata-analyze 1", 3))


def test_another_game_is_refused():
    game = get_game("connect4")
    with pytest.raises(ValueError, match="^GTP is spoken for go and hex, and the game is connect4"):
        run_gtp(GtpProgram(lambda: Agent(game, UniformEvaluator(game)), print), [])


def test_the_command_speaks_gtp(tmp_path):
    "A run of Go as a process: a game of two moves, and the end of the input ends it."
    from alphazero_nb.cli import main
    assert main(["train", "go(size=3,komi=0)", "--iterations", "1", "--games-per-iter", "8", "--batch-size", "32", "--preset", "tiny",
                 "--simulations", "4", "--games", "8", "--device", "cpu", "--evaluate-every", "0", "--folder", str(tmp_path/"run")]) == 0
    done = subprocess.run([sys.executable, "-m", "alphazero_nb", "gtp", str(tmp_path/"run"), "--simulations", "8"], timeout=600,
                          input="1 boardsize 3\n2 play b B2\n3 genmove w\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"=1\n\n=2\n\n=3 ([ABC][123]|pass)\n\n", done.stdout), done.stdout
    other = subprocess.run([sys.executable, "-m", "alphazero_nb", "gtp", "connect4"], timeout=600, input="name\n", capture_output=True, text=True)
    assert other.returncode and "go and hex" in other.stderr and "Traceback" not in other.stderr
