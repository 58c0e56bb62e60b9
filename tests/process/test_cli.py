"""The command line, as a person types it: what it prints, what it refuses, what it leaves on the disk."""
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import alphazero_nb
from alphazero_nb import benchmark
from alphazero_nb.ui.match_view import ENDED
from alphazero_nb.arena import ladder as ladder_page, level_curve
from alphazero_nb.arena.judge import judge, packaged_positions
from alphazero_nb.arena.players import get_player
from alphazero_nb.cli import _get_game, main, make_parser
from alphazero_nb.core.device import usable_cores
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.inference import BACKENDS
from alphazero_nb.network.saved_run import load_network
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.levels import even_levels, read_levels, stored_levels
from alphazero_nb.training.trainer import Trainer
from processes import Program

POSITIONS = Path(alphazero_nb.__file__).parent / "positions"
SMALL = ["--iterations", "1", "--games-per-iter", "8", "--batch-size", "32", "--simulations", "8", "--preset", "tiny",
         "--games", "8", "--device", "cpu", "--evaluate-every", "0"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "ttt"
    assert main(["train", "tictactoe", *SMALL, "--folder", str(folder)]) == 0
    return folder


def command(*words):
    "The exit code of a command in a process of its own, what it printed, and its errors."
    program = Program("import sys; from alphazero_nb.cli import main; sys.exit(main())", *words)
    out, errors = program.communicate(600)
    return program.returncode, out, errors


@pytest.mark.parametrize("words, code", [(["--version"], 0), (["train", "connect5"], 2)])
def test_the_package_is_the_command(words, code):
    done = subprocess.run([sys.executable, "-m", "alphazero_nb", *words], capture_output=True, text=True, timeout=900)
    assert (done.returncode, done.stdout, done.stderr) == command(*words) and done.returncode == code


def test_check_device_prints_one_json_object():
    code, out, _ = command("check-device", "--json")
    report = json.loads(out)
    assert code == 0 and report["chosen"] in [row["name"] for row in report["devices"]]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux lets a process be bound to a core")
def test_cores_are_those_that_may_be_used():
    core = min(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, [{core}]); from alphazero_nb.core.device import usable_cores; print(usable_cores())"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=900).stdout == "1\n"


def test_games_are_listed(capsys):
    assert main(["games", "--json"]) == 0
    names = {game["name"] for game in json.loads(capsys.readouterr().out)["games"]}
    assert {"connect4", "tictactoe", "gomoku(size=15)", "dots(rows=3,cols=3)"} <= names


def test_training_again_goes_on(run, capsys):
    before = json.loads((run / "manifest.json").read_text())["iteration"]
    assert main(["train", "tictactoe", *SMALL, "--folder", str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["iteration"] == before + 1 and report["games"] == 8 * report["iteration"]


def test_a_run_keeps_its_network_without_being_told(run, capsys):
    "The run of the fixture has another preset than a run has by default."
    words = [word for word in SMALL if word not in ("--preset", "tiny")]
    assert main(["train", "tictactoe", *words, "--folder", str(run)]) == 0
    assert main(["train", "tictactoe", *words, "--preset", "small", "--folder", str(run)]) == 2
    assert "'tiny', not 'small'" in capsys.readouterr().err


@pytest.mark.slow
def test_minutes_have_a_forecast_and_what_came_is_printed(tmp_path, capsys):
    words = ["train", "tictactoe", "--minutes", "1", "--device", "cpu", "--folder", str(tmp_path / "run"), "--json"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    expected = report["forecast"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["preset"] == expected["preset"]
    assert err.index("Forecast for 1 min on cpu") < err.index(f"{report['games']:,} games (expected ")
    assert expected["games"] / 2 < report["games"] < expected["games"] * 2
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["forecast"] is None, "a run that goes on has its network"


def test_the_ladder_is_one_json_object(tmp_path, capsys):
    assert main(["train", "tictactoe", *SMALL, "--folder", str(tmp_path / "run"), "--ladder", "--ladder-games", "4", "--json"]) == 0
    ladder = json.loads(capsys.readouterr().out)["ladder"]
    assert [row["opponent"] for row in ladder] == ["random", "rollouts:100", "rollouts:400"]
    assert all(row["games"] == 4 for row in ladder)


def test_the_ladder_and_the_levels_have_the_seed(tmp_path, monkeypatch, capsys):
    seen, folder = [], str(tmp_path / "run")
    def play(game, agent, games, seed=0, **options): return seen.extend([agent.seed, seed]) or []
    def measure(agent, *games, seed=0, **options): return seen.append(seed) or even_levels(8)
    monkeypatch.setattr(ladder_page, "run_ladder", play)
    monkeypatch.setattr(level_curve, "calibrate_levels", measure)
    assert main(["train", "tictactoe", *SMALL, "--folder", folder, "--seed", "5", "--ladder", "--levels"]) == 0
    assert main(["levels", folder, "--device", "cpu", "--seed", "5"]) == 0
    assert seen == [5, 5, 5, 5] and capsys.readouterr().out.count("simulations  temperature") == 2


def test_levels_are_measured_printed_and_kept(run, tmp_path, capsys):
    folder = shutil.copytree(run, tmp_path / "run")   # Other tests play the run at its even levels
    words = ["levels", str(folder), "--minutes", ".001", "--simulations", "8", "--device", "cpu"]   # The shortest tournament
    assert main([*words, "--json"]) == 0
    assert read_levels(json.loads(capsys.readouterr().out)["levels"]) == stored_levels(folder)
    assert main(words) == 0 and "simulations  temperature" in capsys.readouterr().out


@pytest.mark.parametrize("saved", [0, 1])
def test_ctrl_c_ends_training_and_the_command(saved, tmp_path, monkeypatch, capsys):
    "No ladder is played, and the command to play is printed if there is an agent to play against."
    from alphazero_nb.training.trainer import TrainingLoop
    iterate, folder = TrainingLoop._iterate, tmp_path / "run"

    def stop(loop, engine, state):
        if state.iteration == saved: raise KeyboardInterrupt
        iterate(loop, engine, state)
    monkeypatch.setattr(TrainingLoop, "_iterate", stop)
    words = [word for word in SMALL if word not in ("--iterations", "1")]
    assert main(["train", "tictactoe", *words, "--iterations", "3", "--ladder", "--folder", str(folder)]) == 130
    printed = capsys.readouterr().out
    assert "ladder" not in printed and "Stopped." in printed
    assert (f"alphazero-nb play {folder}" in printed) == (saved > 0)


def test_without_an_iteration_there_is_no_agent_to_play_against(tmp_path, capsys):
    words = [word for word in SMALL if word not in ("--iterations", "1")]
    assert main(["train", "tictactoe", *words, "--minutes", "1e-12", "--folder", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "0 iterations are saved" in printed and "alphazero-nb play" not in printed


def test_without_an_iteration_nothing_is_measured(tmp_path, capsys):
    words = [word for word in SMALL if word not in ("--iterations", "1")]
    assert main(["train", "tictactoe", *words, "--minutes", "1e-12", "--folder", str(tmp_path / "run"),
                 "--ladder", "--ladder-games", "2", "--levels"]) == 0
    printed = capsys.readouterr().out
    assert "0 iterations are saved" in printed and "Playing" not in printed and "temperature" not in printed


def test_a_ladder_that_no_match_could_play_is_refused_before_the_training(capsys):
    with pytest.raises(SystemExit) as stop: make_parser().parse_args(["train", "connect4", "--ladder-games", "1000001"])
    assert stop.value.code == 2 and "--ladder-games: '1000001'" in capsys.readouterr().err


def test_a_run_becomes_a_page(run, capsys):
    assert main(["report", str(run)]) == 0
    assert str(run / "report.html") in capsys.readouterr().out
    assert "tictactoe" in (run / "report.html").read_text()
    (run / "report.html").unlink()


def test_arena_of_a_run_and_a_yardstick(run, capsys):
    assert main(["arena", str(run), "rollouts:20", "--games", "6", "--simulations", "8", "--device", "cpu", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["games"] == 6 and row["wins"] + row["draws"] + row["losses"] == 6 and row["low"] <= row["score"] <= row["high"]


def test_a_match_of_chess_goes_into_a_file(tmp_path, capsys):
    pytest.importorskip("chess", reason="python-chess reads the file")
    import chess.pgn
    queens, file = "chess(fen=8/7k/8/8/8/8/RQR5/K7 w - - 0 1)", tmp_path / "match.pgn"
    assert main(["arena", "minimax:2", "random", "--game", queens, "--games", "4", "--pgn", str(file), "--json"]) == 0
    row, points = json.loads(capsys.readouterr().out), 0
    with open(file) as text:
        games = [chess.pgn.read_game(text) for _ in range(4)]
        assert chess.pgn.read_game(text) is None
    for read in games:
        white = {"1-0": 1, "0-1": 0, "1/2-1/2": .5}[read.headers["Result"]]
        points += white if read.headers["White"].startswith("minimax") else 1 - white
        assert not read.errors and read.end().board().is_game_over(claim_draw=True)
    assert points == row["score"] * 4 and list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_written_is_found_before_the_match(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("alphazero_nb.arena.matches.play_series", lambda *given: pytest.fail("a match was played"))
    assert main(["arena", "random", "random", "--game", "chess", "--pgn", "x" * 250]) == 2   # Too long a name for a file beside it
    assert "xxx cannot be written: File name too long." in capsys.readouterr().err and list(tmp_path.iterdir()) == []


CARDS = ["arena", "heuristic", "random", "--game", "blob", "--players", "3", "--cards", "2", "--games", "40", "--seed", "3"]


def test_cards_are_played_in_duplicate(capsys):
    from alphazero_nb.arena.players import HeuristicPlayer, RandomPlayer
    from alphazero_nb.arena.matches import play_duplicate
    from alphazero_nb.core.registry import get_game
    assert main([*CARDS, "--json"]) == 0
    row, game = json.loads(capsys.readouterr().out), get_game("blob(players=3,cards=2)")
    assert row == play_duplicate(game, HeuristicPlayer(game), RandomPlayer(game, 4), 40, seed=3).to_dict()
    assert row["deals"] == 40 and row["games"] == 120 and set(row["measures"]) == {"points a round", "exact bids"}
    assert main(CARDS) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    number = r"[+-]?\d+\.\d+%?"
    figures = rf"{number} \({number} to {number}\) against {number} \({number} to {number}\): {number} \({number} to {number}\)"
    assert re.fullmatch(rf"heuristic against random on 40 deals, from every seat: points a round {figures}; exact bids {figures}", line), line
    assert f"points a round {row['measures']['points a round']['mine'][0]:.2f} (" in line


def test_cards_are_trained_as_the_options_say(tmp_path, capsys):
    folder = tmp_path / "run"
    words = ["train", "blob", "--players", "3", "--cards", "1", "--iterations", "1", "--games-per-iter", "8", "--batch-size", "32",
             "--games", "8", "--device", "cpu", "--evaluate-every", "0", "--effort", "medium", "--worlds", "4", "--folder", str(folder)]
    assert main(words) == 0
    config, manifest = (json.loads((folder / name).read_text()) for name in ("config.json", "manifest.json"))
    assert config["game"] == "blob(players=3,cards=1)" and config["preset"] == "cards"
    assert (manifest["plan"]["search"]["simulations"], manifest["plan"]["search"]["worlds"]) == (30, 4)
    capsys.readouterr()
    assert main(["arena", str(folder), "heuristic", "--games", "4", "--simulations", "4", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["deals"] == 4


@pytest.mark.parametrize("words, name", [
    (["blob", "--players", "3"], "blob(players=3,cards=5)"), (["blob(cards=2)", "--players", "5"], "blob(players=5,cards=2)"),
    (["blob()", "--cards", "3", "--players", "6"], "blob(players=6,cards=3)"), (["connect4"], "connect4"),
    (["blob(players=5,cards=7,game=full)"], "blob(players=5,cards=7,game=full)"),
])
def test_a_game_has_its_parameters_from_brackets_and_options(words, name):
    assert _get_game(make_parser().parse_args(["train", *words])).name == name


def test_the_judge_is_asked(run, capsys):
    words = ["judge", str(run), "--simulations", "8", "--per-phase", "50", "--device", "cpu"]
    assert main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    positions = packaged_positions(get_game("tictactoe")).sample(50)
    want = judge(get_player(str(run), positions.game, 8, "cpu"), positions)
    assert rows == [json.loads(json.dumps(row.to_dict())) for row in want] and rows[-1]["positions"] == 50
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == list(map(str, want))


def test_the_solver_keeps_every_result_of_a_file(tmp_path, capsys):
    packaged_positions(get_game("tictactoe")).sample(20).save(tmp_path / "some.npz")
    assert main(["judge", "solver", "--game", "tictactoe", "--positions", str(tmp_path / "some.npz"), "--json"]) == 0
    assert [row["share"] for row in json.loads(capsys.readouterr().out)["rows"]] == [1, 1]


def test_arena_without_a_run_needs_the_game(capsys):
    assert main(["arena", "random", "rollouts:5", "--games", "2"]) == 2
    assert "--game" in capsys.readouterr().err
    for seed in ("0", str(2**63 - 1)):
        assert main(["arena", "random", "rollouts:5", "--games", "2", "--game", "tictactoe", "--seed", seed]) == 0


@pytest.mark.parametrize("seat", ["0", "1"])
def test_a_person_plays_to_the_end(run, seat, monkeypatch, capsys):
    answers = iter(["nonsense", "undo", *(str(n) for n in 3 * list(range(9)))])
    monkeypatch.setattr("builtins.input", lambda prompt: "" if prompt == ENDED else next(answers))
    assert main(["play", str(run), "--seat", seat, "--simulations", "8", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "'nonsense' is not a legal move; type one of" in printed
    assert printed.strip().splitlines()[-1] in ("You win.", "You lose.", "A draw.")


def test_a_person_may_begin_ahead(monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", lambda prompt: "quit")
    assert main(["play", "chess(variant=gardner)", "--handicap", "knight", "--simulations", "8", "--device", "cpu"]) == 0
    said, board = capsys.readouterr().out.split("\n", 1)
    assert said.startswith("Gardner chess (handicap: knight) against ") and "r . b q k" in board and "R N B Q K" in board


def test_bench_of_cards_has_a_row_for_every_effort(capsys):
    assert main(["bench", "cards", "blob", "--players", "3", "--cards", "2", "--seconds", "0.02", "--whole-games", "4",
                 "--games", "8", "--device", "cpu", "--json"]) == 0
    bench = json.loads(capsys.readouterr().out)
    assert [(row["worlds"], row["simulations"]) for row in bench["rows"].values()] == [(2, 20), (3, 30), (5, 50)]
    assert all(row["games_per_min"] > 0 and 0 < row["resample_share"] < 1 for row in bench["rows"].values())
    assert all(effort in bench["table"] for effort in ("light", "medium", "heavy"))
    assert main(["bench", "cards", "connect4", "--seconds", "0.05"]) == 2 and "has no hidden information" in capsys.readouterr().err


def test_bench_prints_what_it_promises(monkeypatch, capsys):
    few = functools.partial(benchmark.best_bare, batches=(16, 64), seconds=.02)
    monkeypatch.setattr(benchmark, "best_bare", few)   # No option shortens its search for the best way to compute
    assert main(["bench", "selfplay", "tictactoe", "--preset", "tiny", "--simulations", "8", "--windows", "2", "--seconds",
                 "0.1", "--whole-games", "10", "--games", "16", "--no-compile", "--device", "cpu", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert {"moves_per_s", "games_per_min", "evals_per_s", "bare_evals_per_s", "efficiency", "whole_s"} <= set(row)
    assert len(row["windows"]) == 2 and min(row["evals_per_s"], row["bare_evals_per_s"], row["whole_s"]) > 0


@pytest.mark.slow
def test_layouts_are_measured_side_by_side(capsys):
    assert main(["bench", "layouts", "tictactoe", "--preset", "tiny", "--simulations", "8", "--windows", "1", "--seconds", "0.2",
                 "--whole-games", "10", "--device", "cpu", "--json"]) == 0
    bench = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in bench["rows"]]
    several = {"threads, shared evaluator", "processes"} if usable_cores() > 1 else set()
    assert {"single thread"} | several <= set(names)
    assert all(row["evals_per_s"] > 0 and row["average_batch"] > 0 and 0 < row["busy_share"] <= 1 for row in bench["rows"])
    assert all(name in bench["table"] for name in names)


def test_a_run_of_workers_is_resumed_by_threads(tmp_path, capsys):
    folder = str(tmp_path / "run")
    assert main(["train", "tictactoe", *SMALL, "--folder", folder, "--workers", "1", "--layout", "processes"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"worker 0: cpu .*s to start", printed) and "1 process" in printed
    assert main(["train", "tictactoe", *SMALL, "--folder", folder, "--layout", "threads", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["iteration"] == 2


def test_moves_are_replayed(capsys):
    assert main(["show-game", "tictactoe", "--moves", "0,3,1,4,2"]) == 0
    printed = capsys.readouterr().out
    assert "x x x" in printed and "[1.0, -1.0]" in printed
    assert main(["show-game", "tictactoe", "--moves", "4"]) == 0
    assert "Seat 1 is to move." in capsys.readouterr().out


def test_the_backends_of_the_commands_are_those_of_the_copy():
    "The command line has its own list, because it does not import PyTorch."
    for command in ("train tictactoe", "bench selfplay"):
        for backend in BACKENDS: assert make_parser().parse_args([*command.split(), "--backend", backend]).backend == backend
    with pytest.raises(SystemExit): make_parser().parse_args(["train", "tictactoe", "--backend", "quick"])


def test_help_explains_every_command(capsys):
    for name in ("check-device", "games", "train", "play", "arena", "judge", "show-game", "report", "bench"):
        with pytest.raises(SystemExit) as stop: make_parser().parse_args([name, "--help"])
        assert stop.value.code == 0
    assert "--minutes" in capsys.readouterr().out


BAD = {
    "unknown game": (["train", "conect4"], ["'conect4'", "connect4"]),
    "unknown parameter": (["train", "gomoku(sise=9)"], ["'sise'", "'size'"]),
    "a judge without a game": (["judge", "solver"], ["--game"]),
    "a judge of an unsolved game": (["judge", "random", "--game", "gomoku(size=5)"], ["gomoku(size=5)", "--positions"]),
    "a judge with positions of another game": (
        ["judge", "random", "--game", "connect4", "--positions", str(POSITIONS / "tictactoe.npz")], ["tictactoe", "connect4"]),
    "unknown preset": (["train", "connect4", "--preset", "smal"], ["'smal'", "'small'"]),
    "unknown device": (["train", "connect4", "--device", "cuda:97"], ["'cuda:97'", "cpu"]),
    "unknown player": (["arena", "rolouts:5", "random", "--game", "tictactoe"], ["'rolouts:5'", "rollouts"]),
    "no playouts": (["arena", "rollouts:0", "random", "--game", "tictactoe"], ["rollouts:0"]),
    "no such card": (["train", "connect4", "--gpus", "0,1"], ["'cuda:0'", "cpu"]),
    "all cards of a machine without one": (["train", "connect4", "--gpus", "all"], ["all GPUs", "--gpus"]),
    "a huge batch": (["train", "connect4", "--batch-size", "1000000000"], ["batch_size is 1000000000", "1 and 65,536"]),
    "a huge iteration": (["train", "connect4", "--games-per-iter", "1000000000"], ["games_per_iteration", "1 and 1,000,000"]),
    "many workers": (["train", "connect4", "--workers", "1000000000"], ["workers is 1000000000", "1 and 1,024"]),
    "many simulations": (["arena", "random", "random", "--game", "connect4", "--games", "1000000000"], ["games is 1000000000"]),
    "cards that are no numbers": (["train", "connect4", "--gpus", "first"], ["'first'", "0,1"]),
    "unknown layout": (["train", "connect4", "--layout", "proceses"], ["'proceses'", "'processes'"]),
    "threads in workers": (["train", "connect4", "--layout", "threads", "--workers", "2"], ["'threads'", "workers"]),
    "no run to report": (["report", "no/such/run"], ["'no/such/run'"]),
    "an illegal move": (["show-game", "connect4", "--moves", "3,9"], ["9", "legal"]),
    "moves that are no numbers": (["show-game", "connect4", "--moves", "d4"], ["'d4'", "3,3,2"]),
    "two players at cards": (["train", "blob", "--players", "2"], ["3 to 8 players", "2"]),
    "nine players at cards": (["train", "blob", "--players", "9", "--cards", "5"], ["3 to 8 players", "9"]),
    "too many cards": (["train", "blob", "--players", "8", "--cards", "7"], ["56", "52"]),
    "too many cards in a match": (["arena", "heuristic", "random", "--game", "blob", "--players", "5", "--cards", "11"], ["55", "52"]),
    "too many cards in a bench": (["bench", "kernels", "blob", "--players", "8", "--cards", "13"], ["104", "52"]),
    "players of a board": (["train", "connect4", "--players", "3"], ["connect4", "'players'"]),
    "a size twice": (["show-game", "gomoku(size=9, size=15)"], ["'gomoku(size=9, size=15)'", "twice"]),
    "players twice": (["train", "blob(players=4)", "--players", "3"], ["blob(players=4)", "--players"]),
    "worlds of a board": (["train", "connect4", "--worlds", "3"], ["--worlds", "connect4"]),
    "effort at a board": (["train", "connect4", "--effort", "heavy"], ["--effort", "connect4"]),
    "a board has no heuristic": (["arena", "heuristic", "random", "--game", "connect4"], ["connect4", "heuristic"]),
    "a game without PGN": (["arena", "random", "random", "--game", "tictactoe", "--pgn", "x.pgn"], ["tictactoe has no PGN", "--pgn"]),
    "no folder for PGN": (["arena", "random", "random", "--game", "chess", "--pgn", "no/x.pgn"], ["no/x.pgn", "'no'"]),
    "a time and iterations": (["train", "connect4", "--minutes", "5", "--iterations", "3"], ["--minutes", "--iterations"]),
    "a ladder of one deal": (["train", "blob", "--iterations", "1", "--ladder", "--ladder-games", "1"], ["--ladder-games is 1", "at least 2"]),
    "a folder as PGN": (["arena", "random", "random", "--game", "chess", "--pgn", "."], ["is a folder"]),
    "a handicap of another game": (["play", "connect4", "--handicap", "queen"], ["connect4 has no handicap 'queen'", "none"]),
    "another game for a packaged agent": (["play", "connect4", "--game", "othello"], ["--game is for the folder of a run"]),
    "no such run": (["play", "no/such/run"], ["'no/such/run'"]),
}


@pytest.mark.parametrize("name", [name for name in BAD if "card" not in name or "cards that" in name or not torch.cuda.is_available()])
def test_bad_names_are_one_sentence_and_write_nothing(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words, expected = BAD[name]
    assert main(words) == 2
    out, error = capsys.readouterr()
    assert out in ("", f"Training {words[1]}: loading…\n")   # Said before PyTorch is imported, so before most checks
    assert error.count("\n") == 1 and all(word in error for word in expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--simulations", "0"], ["--minutes", "-1"], ["--minutes", "0"], ["--minutes", "nan"],
                                   ["--minutes", "inf"], ["--minutes", "1e999"],
                                   ["--players", "0"], ["--worlds", "0"], ["--effort", "huge"], ["--iterations", "0"],
                                   ["--batch-size", "x"], ["--seed", "-1"], ["--seed", str(2**63)],
                                   ["--minutes", "1e308"], ["--games-per-iter", str(10**20)], ["--games", "9" * 5000]])
def test_bad_numbers_are_one_sentence_and_write_nothing(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop: main(["train", "connect4", *words])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1 and words[0] in error and repr(words[1]) in error
    assert list(tmp_path.iterdir()) == []


def _snapshot(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("words,expected", [(["train", "connect4"], "'tictactoe'"), (["train", "tictactoe", "--preset", "mlp"], "'tiny'")])
def test_a_folder_of_another_run_is_left_alone(run, words, expected, capsys):
    before = _snapshot(run)
    small = SMALL if "--preset" not in words else [w for w in SMALL if w not in ("--preset", "tiny")]
    assert main([*words, *small, "--folder", str(run)]) == 2
    assert expected in capsys.readouterr().err and _snapshot(run) == before


def test_a_file_is_no_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(["train", "tictactoe", *SMALL, "--folder", str(tmp_path / "file")]) == 2
    assert "is a file" in capsys.readouterr().err and (tmp_path / "file").read_text() == "mine"


def test_a_folder_with_other_things_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    assert main(["train", "tictactoe", *SMALL, "--folder", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and list(_snapshot(tmp_path)) == [Path("thesis.txt")]


def test_a_run_of_another_game_cannot_play_this_one(run, capsys):
    assert main(["arena", str(run), "random", "--game", "connect4", "--device", "cpu"]) == 2
    assert "tictactoe" in capsys.readouterr().err


def test_a_log_gets_whole_lines(tmp_path):
    code, out, errors = command("train", "tictactoe", *SMALL, "--folder", str(tmp_path / "run"))
    assert code == 0 and "\r" not in out and "iteration 1" in out, errors
    assert f"alphazero-nb play {tmp_path / 'run'}" in out


NIM = re.search(r"^```python\n(import alphazero_nb as az\n\ndef start.*?)^```", (Path(__file__).parents[2] / "README.md").read_text("utf-8"),
                re.M | re.S)[1]


def test_a_game_of_ones_own_is_trained_and_played(tmp_path, capsys):
    "The file that README.md shows, with a worker, which imports nothing but the file."
    (tmp_path / "nim_of_mine.py").write_text(NIM)
    words = ["--rules", str(tmp_path / "nim_of_mine.py")]
    code, out, errors = command("train", "nim", *SMALL, *words, "--workers", "1", "--folder", tmp_path / "run")
    assert code == 0 and f"alphazero-nb play {tmp_path / 'run'} {' '.join(words)}\n" in out, errors
    code, out, errors = command("arena", tmp_path / "run", "random", *words, "--games", "4", "--device", "cpu")
    assert code == 0 and "of the points" in out, errors
    assert main(["arena", str(tmp_path / "run"), "random", "--games", "4", "--device", "cpu"]) == 2
    assert "must be registered first" in (said := capsys.readouterr().err) and "--rules FILE" in said and said.count("\n") == 1


RARE = """
from pathlib import Path
import numpy as np
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.core.registry import register

class Rare:
    def __init__(self, seed): self.moves = []
    def mover(self): return -1 if len(self.moves) == 8 else len(self.moves) % 2
    def legal(self): return [0, 1]
    def play(self, action):
        self.moves.append(action)
        if len(self.moves) == 8 and (Path(__file__).parent / "run/config.json").exists(): raise ZeroDivisionError("nobody thought of this")
    def returns(self): return [1.0, -1.0]
    def observe(self): return np.array([len(self.moves)])

register("rare", lambda: PythonGame("rare", Rare, players=2, actions=2, shape=(1,), max_length=8))
"""


@pytest.mark.parametrize("more", [[], ["--workers", "1"]])
def test_rules_that_raise_in_a_run_are_one_sentence(tmp_path, more):
    "They keep the contract while they are checked, and raise once the run has begun."
    (tmp_path / "rare_rules.py").write_text(RARE)
    words = ["train", "rare", *SMALL, "--rules", tmp_path / "rare_rules.py", "--folder", tmp_path / "run", *more]
    code, _, errors = command(*words)
    *_, said = errors.splitlines()
    assert code == 1 and said.startswith("alphazero-nb: game ") and "Traceback" not in errors
    assert "]: ZeroDivisionError: nobody thought of this" in said


def test_sizes_without_a_size_are_refused(capsys):
    assert main(["train", "othello", "--sizes", ""]) == 2 and "--sizes is ''" in capsys.readouterr().err


def test_a_size_without_time_for_a_run_is_refused(tmp_path, capsys):
    assert main(["train", "othello", "--sizes", "6:0.01", "--folder", str(tmp_path / "run")]) == 2
    assert "minutes above 0.02" in capsys.readouterr().err and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("agent, name", [("pretrained:connect4", "connect4.html"), ("connect4", "connect4.html"), (".", "here.html")])
def test_a_page_has_the_name_of_its_agent(tmp_path, monkeypatch, agent, name):
    from alphazero_nb.web import page
    asked, here = [], tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "connect4.html").write_text("")
    monkeypatch.setattr(page, "export_page", lambda source, out, **options: asked.append((source, str(out))) or here / "connect4.html")
    assert main(["page", agent]) == 0 and asked == [("." if agent == "." else "pretrained:connect4", name)]


@pytest.mark.parametrize("minutes, layout", [("1", None), ("3", "auto")])
def test_a_short_production_measures_no_layouts(monkeypatch, minutes, layout):
    from alphazero_nb.training import producer
    asked = []
    monkeypatch.setattr(producer, "produce_games", lambda *words, **options: asked.append(options["layout"]) or 0)
    assert main(["selfplay", "runs/nothing", "--minutes", minutes]) == 0 and asked == [layout]


@pytest.mark.parametrize("name, text, reason", [("nothing.py", None, "is not a Python file"), ("rules.txt", "", "is not a Python file"),
                                                ("json.py", "", "Python has another module called json; rename json.py")])
def test_a_file_of_rules_that_cannot_be_read(tmp_path, monkeypatch, capsys, name, text, reason):
    monkeypatch.setattr(sys, "path", list(sys.path))
    if text is not None: (tmp_path / name).write_text(text)
    assert main(["show-game", "tictactoe", "--rules", str(tmp_path / name)]) == 2
    assert reason in capsys.readouterr().err


def test_sizes_are_runs_one_after_another(tmp_path, monkeypatch):
    "What is left of each size is trained, from the weights of the size before; bad text is one sentence before all that."
    from alphazero_nb import cli
    runs = []
    monkeypatch.setattr(cli, "_train", lambda args: cli._train_sizes(args) if args.sizes else runs.append(args) or len(runs))
    train = lambda *words: cli._train(cli.make_parser().parse_args(["train", *words]))
    folder = tmp_path / "run"
    assert train("othello", "--sizes", "6:0.5, 8:10", "--folder", str(folder)) is None and len(runs) == 2
    assert train("othello", "--sizes", "6:0.5, 8:10", "--folder", str(folder), "--json") == dict(sizes=[3, 4]), "one object"
    del runs[2:]
    assert [(run.size, run.minutes, run.preset, str(run.init_from), str(run.folder)) for run in runs] == [
        (6, .5, "anysize", "None", f"{folder}-6"), (8, 10, "anysize", f"{folder}-6", f"{folder}-8")]
    assert [cli._get_game(run).name for run in runs] == ["othello(size=6)", "othello(size=8)"]
    for sizes in ("6", "6:5,", "6:0", "6:5,6:5", "six:5", ""):
        with pytest.raises(ValueError, match="as 6:5,8:10"): train("othello", "--sizes", sizes or " ")
    for words, wrong in ((["othello", "--minutes", "3"], "leave out --minutes"), (["othello(size=6)"], "already sets size; leave out --sizes"),
                         (["connect4"], "size"), (["othello", "--preset", "small"], "leave out --preset small")):
        with pytest.raises(ValueError, match=wrong): train(*words, "--sizes", "6:5,8:10")
    assert len(runs) == 2
    del runs[:]
    train("othello", "--sizes", "6:5", "--folder", f"{folder}/")
    assert str(runs[0].folder) == f"{folder}-6"


@pytest.mark.parametrize("seconds, trained", [(290, False), (280, True)])
def test_a_size_of_which_half_an_iteration_is_left_is_finished(tmp_path, monkeypatch, seconds, trained):
    from alphazero_nb import cli
    from alphazero_nb.network import saved_run
    (tmp_path / "run-6").mkdir()
    (tmp_path / "run-6/manifest.json").touch()
    saved, runs = SimpleNamespace(seconds=seconds, iteration=10), []
    monkeypatch.setattr(saved_run, "read_checkpoint", lambda folder: saved)
    monkeypatch.setattr(cli, "_train", runs.append)
    cli._train_sizes(cli.make_parser().parse_args(["train", "othello", "--sizes", "6:5", "--folder", str(tmp_path / "run")]))
    assert len(runs) == trained


@pytest.mark.parametrize("words", ["arena random random --game connect4 --games 2", "play connect4"])
def test_worlds_are_for_games_with_hidden_cards(words, capsys):
    assert main([*words.split(), "--worlds", "3"]) == 2
    assert "--worlds needs a game with hidden information" in capsys.readouterr().err


def test_a_home_in_a_path_is_the_home(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["report", "~/nothing"]) == 2 and str(tmp_path / "nothing") in capsys.readouterr().err
    assert Trainer("tictactoe", folder="~/run", device="cpu").folder.path == tmp_path / "run"
    with pytest.raises(ValueError, match="there is no folder .*nowhere") as error: load_network("~/nowhere")
    assert str(tmp_path) in str(error.value) and not (tmp_path / "~").exists()
    assert main(["train", "tictactoe", *SMALL, "--folder=~/run"]) == 0
    assert Agent.load("~/run", device="cpu").source == tmp_path / "run"


def test_a_size_that_was_trained_is_not_trained_again_and_its_file_plays_others(tmp_path, capsys, monkeypatch):
    small = ["--games-per-iter", "8", "--batch-size", "32", "--simulations", "4", "--games", "8", "--device", "cpu", "--evaluate-every", "0"]
    monkeypatch.setattr(os, "fsync", lambda file: None)   # The last save of a size is not in its time
    for sizes in ("5:0.03", "5:0.03,6:0.03"):
        assert main(["train", "gomoku", *small, "--sizes", sizes, "--folder", str(tmp_path / "run")]) == 0
        assert "Continuing" not in capsys.readouterr().out
    assert main(["train", "gomoku", *small, "--sizes", "5:0.03,6:5000", "--iterations", "1", "--folder", str(tmp_path / "run")]) == 2
    assert "leave out --minutes" in capsys.readouterr().err
    other = ["--game", "gomoku(size=8)", "--simulations", "4", "--device", "cpu"]
    assert main(["arena", str(tmp_path / "run-6"), str(tmp_path / "run-5"), "--games", "2", *other]) == 0
    monkeypatch.setattr("builtins.input", lambda prompt: "quit")
    assert main(["play", str(tmp_path / "run-5"), *other]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-5", "run-6"]


@pytest.mark.parametrize("words, option", [("machine tictactoe --simulations 8", "simulations"), ("device tictactoe --seed 3", "seed"),
                                           ("layouts tictactoe --threads 2", "threads"), ("kernels tictactoe --windows 2", "windows"),
                                           ("kernels tictactoe --device cpu", "device"),
                                           ("cards blob --effort heavy", "effort"), ("machine tictactoe --no-compile", "no-compile")])
def test_a_benchmark_refuses_what_it_does_not_use(words, option, capsys):
    assert main(["bench", *words.split()]) == 2
    assert f"bench {words.split()[0]} does not use --{option}; leave it out." in capsys.readouterr().err


def test_a_level_plays_and_the_full_agent_gives_advice(monkeypatch):
    kept = []
    monkeypatch.setattr("alphazero_nb.ui.match_view.play_text", kept.append)
    assert main(["play", "connect4", "--level", "1", "--simulations", "8", "--device", "cpu", "--seed", "5"]) == 0
    match, = kept
    assert match.agent.seed == match.full.seed == 5, "or the same moves are answered with the same game each time"
    assert match.level == 1 and match.full.temperature == 0 and match.agent.temperature > 0
    assert main(["play", "connect4", "--level", "99", "--simulations", "8", "--device", "cpu"]) == 2


def test_a_result_is_printed_although_its_games_cannot_be_written(tmp_path, monkeypatch, capsys):
    def full(*asked): raise OSError(28, "No space left on device")
    monkeypatch.setattr("alphazero_nb.cli._write_pgn", full)
    words = ["arena", "random", "random", "--game", "chess", "--games", "2", "--pgn", str(tmp_path / "x.pgn")]
    assert main(words) == 2 and "of the points" in capsys.readouterr().out
    assert main([*words, "--json"]) == 2 and json.loads(capsys.readouterr().out)["games"] == 2


@pytest.mark.parametrize("words", [["study", "connect4", "--seed", "7"], ["train", "connect4", "--level"], ["levels", "runs/x", "--game", "4"]])
def test_no_option_is_an_abbreviation_of_another(words, capsys):
    "`--seed 7`, which other commands have, trained seven agents of each variant."
    with pytest.raises(SystemExit) as stop: make_parser().parse_args(words)
    assert stop.value.code == 2 and f"unrecognized arguments: {words[2]}" in capsys.readouterr().err
