"""The UCI program as a process: games with a clock against other programs, and python-chess as its board."""
import io
import os
import shlex
import shutil
import subprocess
import sys

import pytest

chess = pytest.importorskip("chess", reason="python-chess is the reference of these tests")
import chess.engine
import chess.pgn

from alphazero_nb.arena.external import UciEngine
from alphazero_nb.arena.matches import play_match
from alphazero_nb.arena.players import get_player
from alphazero_nb.cli import main
from alphazero_nb.core.registry import get_game
from alphazero_nb.games import chess_text
from small_run import trainer
from uci_clock import play_clocked

PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/games"])
PROGRAMS = {"stockfish": ("", {"Skill Level": 0, "Slow Mover": 10, "nodestime": 10}),   # 10 nodes are a millisecond
            "gnuchess": ("--uci", {})}
FOUND = {name: shutil.which(name, path=PATH) for name in PROGRAMS}


PROGRAM = """
import os, sys
from numba.core import event
class Tell(event.Listener):
    def on_start(self, event): print("info string the compiler is at work", flush=True)
    def on_end(self, event): pass
if "TELL" in os.environ: event.register("numba:compiler_lock", Tell())
from alphazero_nb.cli import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    "The command of the program with an agent that has hardly learnt anything."
    folder = tmp_path_factory.mktemp("uci") / "chess"
    run = trainer(folder, game="chess(max_plies=6)")
    run.fit(iterations=1)
    return shlex.join([sys.executable, "-c", PROGRAM, "uci", str(folder), "--device", "cpu"])


def play_games(program, name, games, clock_s, increment_s, text, **options_of_ours):
    "Plays games with both colours by turns. Returns the games, and writes their PGN."
    game, played = get_game("chess"), []
    words, options = PROGRAMS[name]
    with UciEngine(program, options_of_ours) as ours, UciEngine(f"{FOUND[name]} {words}", options) as other:
        for number in range(games):
            pair = (ours, other) if number % 2 == 0 else (other, ours)
            played.append(play_clocked(game, pair, clock_s, increment_s))
            names = ["alphazero_nb", name] if number % 2 == 0 else [name, "alphazero_nb"]
            text.write(chess_text.write_pgn(game, played[-1].actions, dict(White=names[0], Black=names[1], Round=number + 1)) + "\n")
    return played


def check_games(played, text):
    "Nobody moved illegally, nobody lost on time, nobody died; python-chess reads the same games with the same results."
    assert [game.ending for game in played] == [""] * len(played)
    assert all(min(game.left_s) > 0 for game in played)
    text.seek(0)
    for game in played:
        read = chess.pgn.read_game(text)
        assert read.errors == [] and len(list(read.mainline_moves())) == len(game.actions)
        board = read.end().board()
        want = {(1, -1): "1-0", (-1, 1): "0-1", (0, 0): "1/2-1/2"}[tuple(map(int, game.result))]
        assert read.headers["Result"] == want
        if want != "1/2-1/2": assert board.is_checkmate() and board.result() == want
        else: assert board.is_game_over(claim_draw=True)
    assert chess.pgn.read_game(text) is None


@pytest.mark.skipif(not FOUND["stockfish"], reason="Debian's stockfish is not installed: apt-get install stockfish")
def test_two_games_with_a_clock(program):
    text = io.StringIO()
    check_games(play_games(program, "stockfish", 2, 60, 1, text, Simulations=50), text)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_twenty_games_with_a_clock(program, name):
    if not FOUND[name]: pytest.skip(f"Debian's {name} is not installed: apt-get install {name}")
    text = io.StringIO()
    check_games(play_games(program, name, 20, 10, .1, text), text)


@pytest.fixture(scope="module")
def engine(program):
    "The program as python-chess runs it."
    with chess.engine.SimpleEngine.popen_uci(shlex.split(program), timeout=900) as engine: yield engine


def test_python_chess_as_the_board(engine):
    "python-chess as the board: options, a game, an analysis that is stopped, and a mate."
    board = chess.Board()
    assert {"Simulations", "Move Overhead", "MultiPV"} <= set(engine.options) and engine.id["name"].startswith("alphazero_nb chess")
    engine.configure({"Move Overhead": 20})
    for _ in range(6):
        result = engine.play(board, chess.engine.Limit(nodes=40), info=chess.engine.INFO_ALL)
        assert result.move in board.legal_moves and result.info["nodes"] > 0 and result.info["pv"][0] == result.move
        board.push(result.move)
    assert engine.play(board, chess.engine.Limit(time=.1)).move in board.legal_moves   # However many nodes that are
    infos = engine.analyse(board, chess.engine.Limit(nodes=200), multipv=3)
    assert len(infos) == 3 and all(info["pv"][0] in board.legal_moves for info in infos)
    with engine.analysis(board) as analysis:
        for _ in range(3): analysis.next()
        analysis.stop()
        assert analysis.wait().move in board.legal_moves
    mate = chess.Board("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1")
    found = engine.play(mate, chess.engine.Limit(white_clock=20, black_clock=20, white_inc=.1, black_inc=.1), info=chess.engine.INFO_SCORE)
    assert found.move == chess.Move.from_uci("d1d8") and found.info["score"].white() == chess.engine.Mate(1)


def test_everything_is_compiled_before_readyok(program, monkeypatch):
    "In a process that has just begun, the compiler neither compiles nor loads anything for the first moves after `readyok`."
    class Heard(UciEngine):
        def ready(self):
            self.before = []
            self.send("isready")
            self.wait_for("readyok", self.ready_s, self.before.append)
    monkeypatch.setenv("TELL", "1")
    after = []
    with Heard(program) as engine:
        assert any("the compiler is at work" in line for line in engine.before)
        for go in ("go movetime 150", "go wtime 3000 btime 3000", "go infinite"):
            engine.send("position startpos")
            engine.send(go)
            if go == "go infinite":
                after.append(engine.wait_for("info", 600))
                engine.send("stop")
            engine.wait_for("bestmove", 600, after.append)
    assert after and not [line for line in after if "the compiler is at work" in line]


def run(program, lines, **options):
    return subprocess.run(shlex.split(program), input=lines, capture_output=True, timeout=900, **options)


def test_it_ends_with_its_input_and_says_what_is_wrong(program, capfd):
    "The input ends in the middle of a search, or has bytes that are no text; a folder has no chess, or is not there."
    done = run(program, b"uci\nisready\n\xff\xfe\nposition startpos\ngo infinite\n")
    assert done.returncode == 0 and done.stderr == b"" and b"unknown" in done.stdout and done.stdout.count(b"bestmove") == 1
    assert main(["uci", shlex.split(program)[-3].replace("/chess", "/nothing")]) == 2   # Before it reads a line
    out, errors = capfd.readouterr()
    assert out == "" and errors.startswith("alphazero-nb: there is no folder and no trained agent") and errors.count("\n") == 1


@pytest.fixture(scope="module")
def foreign(program, tmp_path_factory):
    "The command of the program with the same agent in a folder whose name is Chinese."
    words = shlex.split(program)
    folder = tmp_path_factory.mktemp("uci") / "国际象棋"
    shutil.copytree(words[words.index("uci") + 1], folder)
    return shlex.join([str(folder) if word == words[words.index("uci") + 1] else word for word in words])


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("cp1252", marks=pytest.mark.slow)])
def test_a_folder_with_another_alphabet(foreign, encoding):
    done = run(foreign, b"uci\nisready\nposition startpos\ngo nodes 10\nquit\n", env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})
    lines = done.stdout.decode(encoding).splitlines()
    assert done.returncode == 0 and done.stderr == b"" and "uciok" in lines and "readyok" in lines and lines[-1].startswith("bestmove ")
    assert lines[0].split()[:3] == ["id", "name", "alphazero_nb"] and "????" in lines[0]


@pytest.mark.parametrize("output", [">&-", "| head -n 1"])
def test_an_output_that_is_closed_is_no_error(program, output):
    "From the start, or while the program is talking."
    done = subprocess.run(f"set -o pipefail; {{ echo uci; echo isready; echo position startpos; echo go nodes 2000; echo uci; echo quit; }} | {program} {output}",
                          shell=True, executable="/bin/bash", capture_output=True, timeout=900)
    assert done.stderr == b"" and done.returncode in ((0,) if output == ">&-" else (0, 141))   # 141: the reader has left


def test_python_chess_ponders_with_it(engine):
    "The board lets it search in the time of the opponent, who makes the expected move or another one."
    board = chess.Board()
    assert "Ponder" in engine.options
    for expected in (True, False, True, False):
        result = engine.play(board, chess.engine.Limit(nodes=300), ponder=True)
        board.push(result.move)
        assert result.ponder in board.legal_moves
        others = [move for move in board.legal_moves if move != result.ponder]
        board.push(result.ponder if expected else others[0])
    assert engine.play(board, chess.engine.Limit(nodes=50)).move in board.legal_moves


@pytest.mark.skipif(not FOUND["stockfish"], reason="Debian's stockfish is not installed: apt-get install stockfish")
def test_a_match_against_stockfish():
    "A player of the arena against random moves: it wins, and no spelling and no end of a game is a failure."
    game = get_game("chess")
    player = get_player(f"uci:{FOUND['stockfish']}?Skill Level=20&nodes=300", game)
    try: result = play_match(game, player, get_player("random", game, seed=3), 4)
    finally: player.close()
    assert result.score == 1 and player.engine.process.returncode is not None
