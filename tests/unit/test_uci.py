"""The UCI program in one process: what it answers, when it stops, what it keeps, and that no input ends it."""
import re
import threading
import time

import numpy as np
import pytest

from alphazero_nb.core.game import get_game
from alphazero_nb.games import chess_text
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.uci import Limits, UciProgram, centipawns, handle, read_limits, read_position, run_uci, time_for_move


class Talk:
    "A program, and the lines that it has said. A search without an end is begun by `handle`."
    def __init__(self, game="chess", evaluator=None, **options):
        self.lines, game = [], get_game(game)
        self.program = UciProgram(lambda: Agent(game, evaluator or UniformEvaluator(game)), self.lines.append,
                                  room=options.pop("room", 20_000), **options)

    def __call__(self, *commands):
        "Sends commands. Returns what was said meanwhile, after the search if one was asked for and has an end."
        before = len(self.lines)
        for command in commands:
            handle(self.program, command)
            if command.startswith("go"): self.program.thread.join(60)
        return self.lines[before:]

    def __enter__(self): return self
    def __exit__(self, *error): self.program.finish()


@pytest.fixture(scope="module")
def talk():
    with Talk() as program: yield program


@pytest.fixture
def fresh(talk):
    talk("stop", "setoption name MultiPV value 1", "setoption name Simulations value 0", "ucinewgame", "position startpos")
    return talk


def moves(lines): return [line.split()[1] for line in lines if line.startswith("bestmove")]


def fields(lines):
    "The last report as {word: value}; `score` keeps both words."
    last = [line for line in lines if line.startswith("info depth")][-1]
    found = dict(re.findall(r"(depth|multipv|nodes|nps|time|hashfull) (-?\d+)", last))
    return dict({key: int(value) for key, value in found.items()}, score=re.search(r"score (\w+ -?\d+)", last)[1],
                pv=last.partition(" pv ")[2].split())


def test_it_introduces_itself_before_it_loads_anything():
    def load(): raise AssertionError("not yet")
    lines = []
    program = UciProgram(load, lines.append)
    for command in ("uci", "setoption name MultiPV value 3", "debug on", "ucinewgame", "stop", ""): handle(program, command)
    assert lines[0].startswith("id name alphazero-nb") and lines[-1] == "uciok"
    options = dict(re.findall(r"option name (.+?) type spin default (\d+)", "\n".join(lines)))
    assert set(options) == {"Simulations", "Move Overhead", "MultiPV"} and program.options["MultiPV"] == 3


def test_an_agent_that_cannot_be_loaded_ends_it_with_a_sentence():
    def load(): raise ValueError("runs/x has no network.")
    with pytest.raises(ValueError, match="runs/x has no network"): run_uci(UciProgram(load, print), ["uci", "isready", "quit"])
    game = get_game("tictactoe")
    program = UciProgram(lambda: Agent(game, UniformEvaluator(game)), print)
    with pytest.raises(ValueError, match="UCI is for chess, and this agent plays tictactoe"): handle(program, "isready")


@pytest.mark.parametrize("position, score, best", [
    ("position startpos moves f2f3 e7e5 g2g4", "mate 1", "d8h4"),
    ("position fen 7k/5Q2/6K1/8/8/8/8/8 w - - 0 1", "mate 1", "f7g7 f7f8"),
    ("position fen 7k/6pp/8/8/8/8/5PPP/3R2K1 w - - 0 1", "mate 1", "d1d8"),
    ("position fen k7/8/2K5/8/8/8/8/7R b - - 0 1", "mate -2", "a8b8 a8a7"),
])
def test_a_proven_mate_is_reported_as_such(fresh, position, score, best):
    lines = fresh(position, "go nodes 15000")
    assert fields(lines)["score"] == score and moves(lines)[0] in best.split()
    assert fields(lines)["nodes"] < 15000, "a proof ends the search"


def test_nodes_are_counted_and_the_same_search_is_the_same(fresh):
    first = fresh("position startpos", "go nodes 300")
    assert fields(first)["nodes"] == 300 and moves(first) == moves(fresh("ucinewgame", "position startpos", "go nodes 300"))
    more = fresh("go nodes 200")
    assert fields(more)["nodes"] == 200 and fresh.program.board.search.visits == 501, "the same position goes on"
    fresh("setoption name Simulations value 120", "ucinewgame", "position startpos")
    assert fields(fresh("go movetime 60000"))["nodes"] == 120


def test_the_tree_lives_on_and_a_new_game_begins_an_empty_one(fresh):
    fresh("position startpos moves e2e4", "go nodes 400")
    search = fresh.program.board.search
    reply, answer = fields(fresh("go nodes 1"))["pv"][:2]
    fresh(f"position startpos moves e2e4 {reply} {answer}")
    fresh.program.board.begin()
    assert 1 < search.visits < 400 and np.array_equal(search.state, fresh.program.board.state)
    fresh("position startpos moves e2e4 e7e5", "go nodes 5")
    assert search.visits == 6, "a game that took another turn"
    fresh("position startpos moves e2e4 e7e5 g1f3", "ucinewgame", "position startpos", "go nodes 5")
    assert search.visits == 6 and np.array_equal(search.state, get_game("chess").new_match())


def test_lines_are_legal_and_ranked(fresh):
    fresh("setoption name MultiPV value 4", "position startpos moves e2e4 d7d5")
    lines = [line for line in fresh("go nodes 500") if " multipv " in line][-4:]
    assert [fields([line])["multipv"] for line in lines] == [1, 2, 3, 4]
    game = get_game("chess")
    for line in lines:
        state = fresh.program.board.state
        for move in fields([line])["pv"]: state = game.play(state, chess_text.uci_to_action(game, state, move))
        assert fields([line])["depth"] == len(fields([line])["pv"]) >= 1
    assert len({tuple(fields([line])["pv"][:1]) for line in lines}) == 4


def test_searchmoves_choose_among_these(fresh):
    assert moves(fresh("position startpos", "go nodes 100 searchmoves a2a3 h2h3"))[0] in ("a2a3", "h2h3")
    lines = fresh("go nodes 10 searchmoves e2e5 h2h4")
    assert any("'e2e5' is not a legal move" in line for line in lines) and moves(lines) == ["h2h4"]


def test_depth_is_the_length_of_the_line(fresh):
    lines = fresh("position startpos", "go depth 3")
    assert fields(lines)["depth"] >= 3 and len(moves(lines)) == 1


@pytest.mark.parametrize("go", ["go infinite", "go ponder wtime 100 btime 100"])
def test_stop_ends_a_search_at_once(fresh, go):
    fresh("position startpos")
    handle(fresh.program, go)
    time.sleep(.25)
    assert fresh.program.thinking and fresh("isready") == ["readyok"]
    lines = fresh("ponderhit" if "ponder" in go else "stop")
    assert len(moves(lines)) == 1
    assert fresh("stop") == [], "a second stop says nothing"


def test_infinite_waits_for_stop_even_if_all_is_proven(fresh):
    handle(fresh.program, "position startpos moves f2f3 e7e5 g2g4")
    handle(fresh.program, "go infinite")
    time.sleep(.3)
    assert fresh.program.thinking and moves(fresh("stop")) == ["d8h4"]


def test_a_full_tree_stops_and_still_answers():
    with Talk(room=300) as small:
        lines = small("position startpos", "go movetime 20000")
        assert fields(lines)["hashfull"] == 1000 and len(moves(lines)) == 1
        assert len(moves(small("go nodes 50"))) == 1


@pytest.mark.parametrize("go, least", [("go movetime 300", .2), ("go wtime 6000 btime 1 winc 0 binc 0", 0),
                                       ("go wtime 1 btime 1", 0), ("go movetime 1", 0)])
def test_time_is_kept(go, least):
    "Without a limit of time this search would take minutes."
    class Slow(UniformEvaluator):   # Otherwise the tree is full before the time is over
        def evaluate(self, *request):
            time.sleep(.002)
            return super().evaluate(*request)
    with Talk(evaluator=Slow(get_game("chess"))) as talk:
        talk("isready", "position startpos")
        start = time.monotonic()
        assert len(moves(talk(go))) == 1
        assert least <= time.monotonic() - start <= 60


def test_a_single_move_takes_no_time(fresh):
    fresh("position fen 7k/8/8/8/8/8/1r6/K7 w - - 0 1")
    assert moves(fresh("go wtime 600000 btime 600000")) == ["a1b2"]


def test_no_clock_runs_out():
    "Whatever the clocks, a game of 300 moves never needs more than there is, if each move takes its time and 30 ms."
    rng = np.random.default_rng(0)
    for _ in range(300):
        left, increment, to_go = float(rng.integers(2000, 200_000)), int(rng.choice([0, 100, 2000])), int(rng.choice([0, 1, 40]))
        period, added = to_go, left
        for _ in range(300 if increment else 60):
            limits = Limits((int(left), None), (increment, 0), period or None)
            spent = time_for_move(limits, 0, 50) + 30
            assert 0 < spent <= max(left, 81), (limits, spent)
            left, period = left - spent + increment, period - 1 if to_go else 0
            if to_go and period == 0: left, period = left + added, to_go
            if left < 200: break


def test_values_are_centipawns():
    assert centipawns(0) == 0 and centipawns(1) == 2000 and centipawns(-1) == -2000
    assert [centipawns(-v) for v in (.1, .5, .9)] == [-centipawns(v) for v in (.1, .5, .9)]
    assert centipawns(2 * .64 - 1) == pytest.approx(100, abs=1), "a score of 64 % is a lead of 100 Elo"


@pytest.mark.parametrize("text, sentence", [
    ("hello", "the command 'hello' is unknown"), ("positon startpos", "Did you mean 'position'?"),
    ("position", "position needs startpos, or fen and a position"), ("position fen", "needs a position after the word fen"),
    ("position startpos moves e2e5", "the move 'e2e5' is not legal"), ("position startpos moves e2e4 e2", "'e2' is not a move"),
    ("position fen not a position at all", "position|FEN"), ("position moves e2e4", "needs startpos"),
    ("position startpos e2e4", "needs startpos"), ("setoption", "setoption needs name"), ("setoption name", "no option ''"),
    ("setoption name MultiPV", "MultiPV is ''"), ("setoption name MultiPV value 0", "MultiPV is '0'; it must be a whole number from 1"),
    ("setoption name Simulations value 100001", "Simulations is '100001'; it must be a whole number from 0 to 100000"),
    ("setoption name Hash value 16", "no option 'Hash'"), ("setoption value 3", "setoption needs name"),
])
def test_a_bad_command_gets_one_sentence_and_changes_nothing(fresh, text, sentence):
    fresh("position startpos moves e2e4")
    state = fresh.program.board.state.copy()
    lines = fresh(text)
    assert len(lines) == 1 and lines[0].startswith("info string ") and re.search(sentence, lines[0]), lines
    assert np.array_equal(fresh.program.board.state, state) and fresh("isready") == ["readyok"]


@pytest.mark.parametrize("text", ["go wtime", "go wtime x btime", "go movetime nodes", "go nodes -5", "go depth 99999999999999999999",
                                  "go movetime ٣", "go winc 5 nodes 30 what ever"])
def test_a_go_that_is_cut_off_still_gets_a_move(fresh, text):
    fresh("position startpos", "setoption name Simulations value 40")
    lines = fresh(text)
    assert len(moves(lines)) == 1 and all(line.startswith(("info ", "bestmove ")) for line in lines)


def test_commands_during_a_search(fresh):
    handle(fresh.program, "go infinite")
    for text in ("go infinite", "position startpos moves e2e4"):
        handle(fresh.program, text)
        assert fresh.lines[-1] == f"info string {text.split()[0]} is ignored during a search; send stop first."
    lines = fresh("stop")
    assert len(moves(lines)) == 1
    handle(fresh.program, "go infinite")
    before = len(fresh.lines)
    handle(fresh.program, "ucinewgame")
    assert len(moves(fresh.lines[before:])) == 1 and not fresh.program.thinking, "a new game ends the search"


def test_a_board_may_ask_again_the_moment_it_hears_a_move():
    "Sends the next position and `go` from inside the line `bestmove`, 30 times."
    game, moves_made, done = get_game("chess"), [], threading.Event()

    def hear(line):
        if not line.startswith("bestmove"):
            assert not line.startswith("info string"), line
            return
        moves_made.append(line.split()[1])
        if len(moves_made) == 30: return done.set()
        threading.Thread(target=lambda: [handle(program, text) for text in (
            f"position startpos moves {' '.join(moves_made)}", "go nodes 20")]).start()
    program = UciProgram(lambda: Agent(game, UniformEvaluator(game)), hear, room=1000)
    handle(program, "position startpos")
    handle(program, "go nodes 20")
    assert done.wait(60)
    program.finish()


def test_a_game_goes_on_where_our_rules_have_ended_it(fresh):
    "After a third repetition a board may go on; then the position counts, and its past does not."
    knights = "g1f3 g8f6 f3g1 f6g8 " * 2
    lines = fresh(f"position startpos moves {knights}", "go nodes 50")
    assert moves(lines) != ["(none)"] and not any("over" in line for line in lines)
    fifty = "position fen 4k3/8/8/8/8/8/3R4/4K3 w - - {} 80"
    for position in (fifty.format(100), f"{fifty.format(99)} moves e1f1", f"{fifty.format(99)} moves e1f1 e8e7"):
        assert len(moves(lines := fresh(position, "go nodes 50"))) == 1 and moves(lines) != ["(none)"]
    lines = fresh(f"position startpos moves {knights}e2e4 e7e5", "go nodes 50")
    assert len(moves(lines)) == 1 and moves(lines) != ["(none)"]
    for position in ("startpos moves f2f3 e7e5 g2g4 d8h4", "fen 7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "fen 8/8/8/4k3/8/8/8/4K3 w - - 0 1"):
        lines = fresh(f"position {position}", "go")   # Mate, stalemate, and no mate possible
        assert moves(lines) == ["(none)"] and "the game is over" in lines[0]


def test_noise_never_ends_it(fresh):
    "Words of the protocol in any order, cut anywhere: afterwards it plays as before."
    rng = np.random.default_rng(7)
    words = ("uci isready position startpos fen moves e2e4 e7e5 go nodes 5 movetime 3 wtime btime -1 infinite stop setoption name value "
             "MultiPV 2 ucinewgame ponderhit debug on \x00 ß " + "r1bqkbnr/pppp1ppp/2n5/4p3 w KQkq - 0 1").split(" ")
    fresh("setoption name Simulations value 10")
    for _ in range(250):
        text = " ".join(rng.choice(words, rng.integers(1, 9))) + " "
        handle(fresh.program, text[:rng.integers(1, len(text) + 1)])
    fresh("stop", "ucinewgame", "setoption name MultiPV value 1")
    assert fresh("isready") == ["readyok"]
    assert moves(fresh("position startpos moves f2f3 e7e5 g2g4", "go nodes 200")) == ["d8h4"]


def test_a_network_that_fails_is_reported():
    class Broken(UniformEvaluator):
        left = 1000

        def evaluate(self, *request):
            self.left -= 1
            if self.left < 0: raise RuntimeError("the device is gone")
            return super().evaluate(*request)
    game = get_game("chess")
    evaluator = Broken(game)
    with Talk(evaluator=evaluator) as talk:
        talk("isready", "position startpos")
        for left, found in ((30, True), (0, False)):
            evaluator.left = left
            lines = talk("ucinewgame", "position startpos", "go nodes 1000")
            assert any(line == "info string the search failed: the device is gone" for line in lines)
            assert (moves(lines) != ["(none)"]) == found and len(moves(lines)) == 1


def test_gardner_chess_speaks_too():
    with Talk("chess(variant=gardner)") as talk:
        lines = talk("position startpos", "go nodes 60")
        game = get_game("chess(variant=gardner)")
        assert chess_text.uci_to_action(game, game.new_match(), moves(lines)[0]) >= 0


def test_more_simulations_than_a_tree_has_room_for_are_refused():
    with pytest.raises(ValueError, match="Simulations is 100001; it must be a whole number from 0 to 100000"):
        UciProgram(print, print, Simulations=100_001)
    with Talk(room=100, Simulations=100_000) as small: assert len(moves(small("position startpos", "go"))) == 1


def test_limits_and_positions_are_read():
    assert read_limits("wtime 5 btime 7 winc 1 binc 2 movestogo 9".split()) == Limits((5, 7), (1, 2), 9)
    assert read_limits(["infinite"]).infinite and read_limits(["mate", "3"]).depth and not read_limits([]).infinite
    assert len(read_limits("wtime btime nodes x".split()).faults) == 3
    assert read_position(get_game("chess"), "fen a b c moves d e".split()) == ("a b c", ["d", "e"])
