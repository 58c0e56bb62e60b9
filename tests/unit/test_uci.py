"""The UCI program in one process: what it answers, when it stops, what it keeps, and that no input ends it."""
import io
import re
import sys
import threading
import time

import numpy as np
import pytest

from alphazero_nb.arena import uci
from alphazero_nb.core.registry import get_game
from alphazero_nb.games import chess_text
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.arena.uci import Limits, UciProgram, centipawns, handle, print_line, read_limits, read_position, run_uci, time_for_move


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
            if command.startswith("go"): self.program.thread.join(600)
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


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(.002)


class Batches(UniformEvaluator):
    "Counts its batches. Once armed, it says that one has begun, and waits in it until it may answer."
    def __init__(self):
        super().__init__(get_game("chess"))
        self.count, self.armed, self.begun, self.may_answer = 0, False, threading.Event(), threading.Event()

    def evaluate(self, *request):
        self.count += 1
        if self.armed: assert self.begun.set() or self.may_answer.wait(600)
        return super().evaluate(*request)


def reaches(monkeypatch, event):
    "An event that is set once a thread waits for this one."
    reached, wait = threading.Event(), event.wait
    monkeypatch.setattr(event, "wait", lambda *limit: reached.set() or wait(*limit))
    return reached


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
def test_stop_ends_a_search_at_once(go):
    "It comes while a batch is evaluated, and after that batch at most one more is. The board is answered meanwhile."
    network = Batches()
    with Talk(evaluator=network) as talk:
        talk("isready", "position startpos", "go nodes 20")   # The root and its moves have been evaluated
        network.armed, program = True, talk.program
        handle(program, go)
        assert network.begun.wait(600) and program.thinking and talk("isready") == ["readyok"]
        before, said = network.count, len(talk.lines)
        stopper = threading.Thread(target=handle, args=(program, "stop"))
        stopper.start()
        wait_for(program.stopping.is_set)
        network.may_answer.set()
        stopper.join(600)
        assert len(moves(talk.lines[said:])) == 1 and network.count <= before + 1
        assert talk("stop") == [], "a second stop says nothing"


def test_infinite_waits_for_stop_even_if_all_is_proven(fresh, monkeypatch):
    waits, before = reaches(monkeypatch, fresh.program.stopping), len(fresh.lines)
    handle(fresh.program, "position startpos moves f2f3 e7e5 g2g4")
    handle(fresh.program, "go infinite")
    assert waits.wait(600) and fresh.program.thinking and not moves(fresh.lines[before:])
    assert moves(fresh("stop")) == ["d8h4"]


def test_a_full_tree_stops_and_still_answers():
    with Talk(room=300) as small:
        lines = small("position startpos", "go movetime 20000")
        assert fields(lines)["hashfull"] == 1000 and len(moves(lines)) == 1
        assert len(moves(small("go nodes 50"))) == 1


class Clock(Batches):
    "Each batch takes 10 ms of a clock that only the test moves."
    now = 0.0
    def monotonic(self): return self.now

    def evaluate(self, *request):
        self.now += .01
        return super().evaluate(*request)


@pytest.mark.parametrize("go, least, most", [
    ("go movetime 300", 25, 26), ("go wtime 6000 btime 1 winc 0 binc 0", 5, 60), ("go wtime 1 btime 1", 1, 1),
    ("go movetime 1", 1, 1)])
def test_time_is_kept(monkeypatch, go, least, most):
    "In batches of 10 ms; 50 ms of `movetime` are kept for the way. Without a limit of time it would take 1,250 of them."
    clock = Clock()
    with Talk(evaluator=clock) as talk:
        talk("isready", "position startpos")
        monkeypatch.setattr(uci, "time", clock)
        clock.count = 0
        assert len(moves(talk(go))) == 1
        assert least <= clock.count <= most


def test_a_single_move_takes_no_time():
    network = Batches()
    with Talk(evaluator=network) as talk:
        talk("isready", "position fen 7k/8/8/8/8/8/1r6/K7 w - - 0 1")
        network.count = 0
        assert moves(talk("go wtime 600000 btime 600000")) == ["a1b2"] and network.count <= 2


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


def test_a_command_behind_unknown_words_is_obeyed(fresh):
    assert fresh("joho isready") == ["readyok"] and not handle(fresh.program, "hello again quit")


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
    assert done.wait(600)
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


@pytest.mark.parametrize("word", ["movestogo", "movetime", "nodes", "depth", "mate"])
def test_a_limit_of_zero_or_less_is_not_given(word):
    clock = "wtime 60000 btime 60000 winc 0 binc 0"
    for number in (0, -3): assert read_limits(f"{clock} {word} {number}".split()) == read_limits(clock.split())


def test_startpos_is_the_usual_start_wherever_the_games_of_the_agent_begin():
    with Talk("chess(fen=7k/5Q2/6K1/8/8/8/8/8 w - - 0 1)") as talk:
        for commands in (["isready"], ["position fen 7k/5Q2/6K1/8/8/8/8/8 w - - 0 1", "ucinewgame"], ["position startpos"]):
            assert not [line for line in talk(*commands) if line.startswith("info")]
            assert chess_text.to_fen(talk.program.board.game, talk.program.board.state) == START
        assert talk("position startpos moves e2e4 e7e5") == [] and len(moves(talk("go nodes 20"))) == 1


# Only some moves


QUEEN = "position fen 7k/5Q2/6K1/8/8/8/8/8 w - - 0 1"   # f7g7 and f7f8 mate, and f7a2 does not


def shown(lines): return {fields([line])["pv"][0] for line in lines if line.startswith("info depth")}


@pytest.mark.parametrize("position, allowed, best, score", [
    (QUEEN, "f7a2", "f7a2", None), (QUEEN, "f7a2 f7f8", "f7f8", "mate 1"), (QUEEN, "F7F8", "f7f8", "mate 1"), (QUEEN, "f7f8 e2e5", "f7f8", "mate 1"),
    ("position startpos moves f2f3 e7e5", "g2g4", "g2g4", "mate -1"), ("position fen r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "e1h1", "e1g1", None)])
def test_only_the_allowed_moves_are_searched_scored_and_shown(fresh, position, allowed, best, score):
    lines = fresh("setoption name MultiPV value 5", position, f"go nodes 2000 searchmoves {allowed}")
    names = {move.lower().replace("e1h1", "e1g1") for move in allowed.split()}
    assert moves(lines) == [best] and shown(lines) <= names, lines
    first = [line for line in lines if " multipv 1 " in line][-1:]
    if score: assert fields(first)["score"] == score
    else: assert fields(first)["score"].startswith("cp")


def test_a_tree_with_only_some_moves_is_not_used_again(fresh):
    fresh(QUEEN, "go nodes 300 searchmoves f7a2")
    assert moves(fresh("go nodes 300"))[0] in ("f7g7", "f7f8"), "the same position, with all moves"
    fresh(QUEEN, "go nodes 300 searchmoves f7a2", f"{QUEEN} moves f7a1")
    assert len(moves(fresh("go nodes 50"))) == 1, "a move that the tree did not have"
    rng, game = np.random.default_rng(3), get_game("chess")
    legal = [chess_text.move_to_uci(game, game.new(), action) for action in game.legal_actions(game.new())]
    fresh("setoption name MultiPV value 20")
    for _ in range(10):
        allowed = rng.choice(legal, rng.integers(1, 8), replace=False)
        lines = fresh("position startpos", f"go nodes 100 searchmoves {' '.join(allowed)}")
        assert shown(lines) == set(allowed) and moves(lines)[0] in allowed


def test_without_a_legal_move_among_them_there_is_no_move(fresh):
    lines = fresh("position startpos", "go nodes 20 searchmoves e2e5 e7e5")
    assert moves(lines) == ["(none)"] and not shown(lines) and any("no move after searchmoves is legal" in line for line in lines)


# Positions that cannot be read, and positions with one meaning


START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
PAWN = "fen 8/P6k/8/8/8/8/8/K7 w - - 0 1"
KINGS = "fen r3k2r/8/8/8/8/8/8/R3K2R w {} - 0 1"
REFUSED = ["", "fen", "moves e2e4", "startpos e2e4", "start", "fen startpos", START, "fen 8/8/8/8/8/8/8/8 w - - 0 1", "fen 4k3/8/8/8/8/8/8/8 w - - 0 1",
           "fen 4k3/8/8/8/8/8/8/3KK3 w - - 0 1", "fen 4k3/8/8/8/8/8/8/4K3 w -", "fen 4k3/8/8/8/8/8/8/4K3", "fen P3k3/8/8/8/8/8/8/4K3 w - - 0 1",
           "fen 4k3/4R3/8/8/8/8/8/4K3 w - - 0 1", "fen 4k3/8/8/8/8/8/8/4K3 x - - 0 1", "fen 4k3/8/8/8/8/8/8/4K4 w - - 0 1", "fen 4k3/8/8/8/8/8/8/4K3 w - e9 0 1",
           "fen 4k3/8/8/8/8/8/8/4K3 w X - 0 1", "fen 4k3/8/8/8/8/8/8/4K3 w - - x 1", "fen 4k3/8/8/8/8/8/8/4K3 w - - -3 1", "fen 4k3/8/8/8/8/8/8/4K3 w - - 0 1 7",
           "fen 4k3/PPPPPPPP/P7/8/8/8/8/4K3 w - - 0 1", "fen rnbqk/ppppp/5/PPPPP/RNBQK w - - 0 1", "startpos moves e2e4 e7e5 e4e5 g8f6", "startpos moves e2e4 e2",
           "startpos moves e2e4 0000", "startpos moves e2e4 (none)", "startpos moves Nf3", "startpos moves e7e5", "startpos moves f2f3 e7e5 g2g4 d8h4 a2a3",
           f"{PAWN} moves a7a8", f"{PAWN} moves a7a8k", f"{KINGS.format('-')} moves e1g1", "startpos moves e2e4 \u0000", "fen 4k3/8/8/8/8/8/8/4K3 w - - 0 1 moves e1e2 e8e6"]


@pytest.mark.parametrize("text", REFUSED)
def test_after_a_refused_position_there_is_no_move(fresh, text):
    fresh("position startpos moves e2e4", "go nodes 20")
    lines = fresh(f"position {text}")
    assert len(lines) == 1 and lines[0].startswith("info string ")
    for go in ("go nodes 20", "go nodes 20 searchmoves e7e5"):
        lines = fresh(go)
        assert moves(lines) == ["(none)"] and not shown(lines) and "was refused" in lines[0] and len(lines) == 2
    assert moves(fresh("position startpos moves e2e4 e7e5", "go nodes 20")) != ["(none)"]
    assert moves(fresh(f"position {text}", "ucinewgame", "go nodes 20")) != ["(none)"], "a new game begins at the usual position"


def test_a_position_during_a_search_is_refused_too(fresh):
    handle(fresh.program, "go infinite")
    handle(fresh.program, "position startpos moves e2e4")
    assert moves(fresh("stop")) != ["(none)"] and moves(fresh("go nodes 20")) == ["(none)"]


@pytest.mark.parametrize("text, same", [
    (f"{KINGS.format('KQkq')} moves e1h1", f"{KINGS.format('KQkq')} moves e1g1"), (f"{KINGS.format('KQkq')} moves e1h1 e8a8", f"{KINGS.format('KQkq')} moves e1g1 e8c8"),
    (f"{PAWN} moves a7a8Q", f"{PAWN} moves a7a8q"), ("startpos moves E2E4 e7-e5", "startpos moves e2e4 e7e5"), (KINGS.format("HAha"), KINGS.format("KQkq")),
    ("fen r3k3/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "fen r3k3/8/8/8/8/8/8/R3K2R w KQq - 0 1"), ("fen 4k3/8/8/8/8/8/P7/4K3 w - - 140 200", "fen 4k3/8/8/8/8/8/P7/4K3 w - - 0 200"),
    ("fen 4k3/8/8/8/8/8/P7/4K3 w - -", "fen 4k3/8/8/8/8/8/P7/4K3 w - - 0 1"), ("fen 4k3/8/8/8/8/8/P7/4K3 w - - 3", "fen 4k3/8/8/8/8/8/P7/4K3 w - - 3 1"),
    ("fen 4k3/8/8/8/8/8/P7/4K3 w - - moves a2a3", "fen 4k3/8/8/8/8/8/P7/4K3 w - - 0 1 moves a2a3"), ("fen 4k3/8/8/8/8/8/P7/4K3 w - e6 0 1", "fen 4k3/8/8/8/8/8/P7/4K3 w - - 0 1"),
    ("fen 4k3/8/8/8/8/8/3p4/4K3 w - - 0 1 moves e1d2 e8d7", "fen 8/3k4/8/8/8/8/3K4/8 w - - 0 2")])
def test_a_position_with_one_meaning_is_read(fresh, text, same):
    assert fresh(f"position {text}") == []
    state = fresh.program.board.state.copy()
    assert fresh(f"position {same}") == [] and chess_text.to_fen(fresh.program.board.game, state) == chess_text.to_fen(
        fresh.program.board.game, fresh.program.board.state)
    assert fresh(f"position {text}") == []
    assert len(moves(fresh("go nodes 20"))) == 1


def test_a_game_goes_on_where_nobody_can_mate_any_more(fresh):
    "A pawn is taken, and the kings walk on. Then there is nothing to search."
    lines = fresh("position fen 4k3/8/8/8/8/8/3p4/4K3 w - - 0 1 moves e1d2 e8d7 d2d3", "go nodes 20")
    assert moves(lines) == ["(none)"] and "the game is over" in lines[0] and not fresh.program.board.refused


# The opponent's time


def test_a_search_in_the_time_of_the_opponent_waits_for_its_move(monkeypatch):
    """Whatever it finds, and however short its own time: a line after `go ponder` begins a thread that ends when `ponderhit` or `stop` comes."""
    fresh = Talk(room=500)   # A search without limits ends when its tree is full
    fresh("isready")
    for position, go in (("position startpos moves e2e4 e7e5", "go ponder wtime 100 btime 100"), ("position startpos moves f2f3 e7e5 g2g4", "go ponder movetime 1"),
                         ("position startpos", "go ponder nodes 5"), ("position startpos moves f2f3 e7e5 g2g4 d8h4", "go ponder wtime 1 btime 1"), ("position x", "go ponder")):
        for end in ("ponderhit", "stop"):
            fresh(position)
            before, waits = len(fresh.lines), reaches(monkeypatch, fresh.program.released)
            handle(fresh.program, go)
            assert waits.wait(600) and fresh.program.thinking and not moves(fresh.lines[before:]), "it has answered too early"
            handle(fresh.program, end)
            fresh.program.thread.join(600)
            assert len(moves(fresh.lines[before:])) == 1 and not fresh.program.thinking
    assert fresh("ponderhit") == ["info string ponderhit is ignored; no search ponders."]
    handle(fresh.program, "position startpos")
    handle(fresh.program, "go infinite")
    assert fresh("ponderhit") == ["info string ponderhit is ignored; no search ponders."] and fresh.program.thinking, "it ends no other search"
    assert len(moves(fresh("stop"))) == 1


def test_the_clock_begins_to_run_when_the_opponent_has_moved(monkeypatch):
    "The opponent moves after 30 batches of 10 ms, and 100 ms are left for 10 more."
    class Opponent(Clock):
        def evaluate(self, *request):
            answer = super().evaluate(*request)
            if self.count == 30: handle(talk.program, "ponderhit")
            return answer
    clock = Opponent()
    with Talk(evaluator=clock) as talk:
        talk("isready", "position startpos moves e2e4")
        monkeypatch.setattr(uci, "time", clock)
        clock.count = 0
        lines = talk("go ponder movetime 150")   # 50 are kept for the way
        assert len(moves(lines)) == 1 and 39 <= clock.count <= 41
        assert fields(lines)["nodes"] > 400, "those in the time of the opponent count"


def test_the_expected_reply_is_named(fresh):
    game = get_game("chess")
    assert "option name Ponder type check default false" in fresh("uci") and fresh("setoption name Ponder value true") == []
    assert "no option" in fresh("setoption name Ponder value maybe")[0]
    lines = fresh("position startpos moves d2d4", "go nodes 400")
    _, best, word, reply = lines[-1].split()
    state = fresh.program.board.state
    assert word == "ponder" and [best, reply] == fields(lines)["pv"][:2]
    assert chess_text.uci_to_action(game, game.play(state, chess_text.uci_to_action(game, state, best)), reply) >= 0
    handle(fresh.program, f"position startpos moves d2d4 {best} {reply}")
    handle(fresh.program, "go ponder nodes 50")
    lines = fresh("stop")
    assert lines[-1].startswith("bestmove ")


# The output


@pytest.mark.parametrize("encoding, name", [("ascii", "????"), ("cp1252", "????"), ("utf-8", "国际象棋"), ("gbk", "国际象棋")])
def test_a_name_that_the_output_cannot_encode_does_not_stop_it(monkeypatch, encoding, name):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding))
    run_uci(UciProgram(lambda: None, print_line, "国际象棋"), ["uci\n", "quit\n"])
    lines = raw.getvalue().decode(encoding).splitlines()
    assert lines[0].startswith(f"id name {name} ") and lines[-1] == "uciok"


@pytest.mark.parametrize("good", [0, 1, 8])
def test_an_output_that_is_closed_ends_it_without_an_error(monkeypatch, good):
    "It closes before the first line, after it, and in the middle of a search."
    failed, game, said = [], get_game("chess"), []
    monkeypatch.setattr(threading, "excepthook", failed.append)

    def say(line):
        if len(said) == good: raise BrokenPipeError(32, "Broken pipe")
        said.append(line)
    program = UciProgram(lambda: Agent(game, UniformEvaluator(game)), say, room=1000)

    def board():
        yield from ("isready", "position startpos", "go movetime 60000") if good == 0 else ("uci", "isready", "position startpos", "go movetime 60000")
        program.thread and program.thread.join(600)
        yield "isready"
        raise AssertionError("it has not noticed that its output is closed")
    run_uci(program, board())
    assert len(said) == good and not failed and not program.thinking


def test_a_closed_input_or_output_is_the_end(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    run_uci(UciProgram(lambda: None, print_line), ["uci", "uci"])
    run_uci(UciProgram(lambda: None, lambda line: None), None)
