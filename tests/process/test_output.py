"Standard output that lacks characters, is closed, is full, or loses its reader: no traceback, and no run ends because of it."
import errno
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero_nb.arena.uci import print_line
from alphazero_nb.cli import main
from alphazero_nb.core.events import shell_command
from alphazero_nb.core.registry import get_game
from alphazero_nb.ui.match import Match
from alphazero_nb.ui.match_view import play_text
from alphazero_nb.ui.progress import PLAIN, SafeStream, TextProgress

COMMAND = [sys.executable, "-m", "alphazero_nb"]
SMALL = ["--iterations", "1", "--games-per-iter", "8", "--batch-size", "32", "--simulations", "8", "--preset", "tiny",
         "--games", "8", "--device", "cpu", "--evaluate-every", "0"]
CARDS = "blob(players=3,cards=3)"
posix = pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX")


def shell(line: str, **environment):
    "The exit code of a line of a shell, in which $AZ is the command, its output and its errors."
    done = subprocess.run(["sh", "-c", line.replace("$AZ", shlex.join(COMMAND))], capture_output=True, timeout=900,
                          env=dict(os.environ, **environment))
    return done.returncode, done.stdout, done.stderr.decode()


def saved(folder: Path) -> int: return json.loads((folder / "manifest.json").read_text())["iteration"]


@posix
def test_cards_are_shown_in_an_encoding_without_their_signs():
    full, *plain = ((encoding, *shell(f"$AZ show-game '{CARDS}' --seed 3", PYTHONIOENCODING=encoding))
                    for encoding in ("utf-8", "cp1252", "ascii"))
    full = full[2].decode()
    for encoding, code, out, errors in plain:
        assert (code, errors) == (0, "")
        assert out.decode(encoding) == "".join(PLAIN.get(sign, sign) for sign in full)
        assert set("♠♥♦♣") & set(full) and "?" not in out.decode(encoding)


def test_cards_are_played_from_python_in_an_encoding_without_their_signs(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    play_text(Match(get_game(CARDS), None, 0, seed=1), ask=lambda prompt: "quit")
    sys.stdout.flush()
    assert b"trump" in raw.getvalue()


@posix
@pytest.mark.parametrize("encoding", [pytest.param("cp1252", marks=pytest.mark.slow), "ascii"])
def test_a_run_in_a_folder_of_other_letters_is_trained(encoding, tmp_path):
    folder = tmp_path / "国际象棋 ♠"
    code, out, errors = shell(f"$AZ train tictactoe {' '.join(SMALL)} --folder {shlex.quote(str(folder))}",
                              PYTHONIOENCODING=encoding)
    assert (code, errors, saved(folder)) == (0, "", 1) and b"Play against the agent" in out


@posix
def test_a_run_without_a_standard_output_is_trained(tmp_path):
    code, _, errors = shell(f"$AZ train tictactoe {' '.join(SMALL)} --folder {tmp_path / 'a'} >&-")
    assert (code, errors, saved(tmp_path / "a")) == (0, "", 1)
    assert shell("$AZ show-game tictactoe >&- 2>&-")[0] == 0


@posix
def test_a_run_whose_reader_leaves_goes_on(tmp_path):
    line = f"($AZ train tictactoe {' '.join(SMALL)} --folder {tmp_path / 'a'}; echo $? >{tmp_path / 'code'}) | head -1"
    code, out, errors = shell(line)
    assert out.count(b"\n") == 1 and errors == "" and saved(tmp_path / "a") == 1
    assert (tmp_path / "code").read_text() in ("0\n", "141\n")   # 0: all lines were written before the reader left


@posix
@pytest.mark.parametrize("words", [pytest.param("games", marks=pytest.mark.slow), "train --help", f"show-game '{CARDS}'"])
def test_a_reader_that_has_gone_is_no_traceback(words, tmp_path):
    "The reader leaves before the first line."
    code, _, errors = shell(f"($AZ {words}; echo $? >{tmp_path / 'code'}) | true")
    assert errors == "" and (tmp_path / "code").read_text() in ("0\n", "141\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device without room")
def test_a_full_disk_is_one_sentence():
    code, _, errors = shell("$AZ show-game tictactoe >/dev/full")
    assert code == 1 and errors.startswith("alphazero-nb: the output cannot be written: ") and errors.count("\n") == 1


class Broken(io.StringIO):
    def write(self, text): raise BrokenPipeError
    def flush(self): raise ValueError("I/O operation on closed file")
    def isatty(self): raise ValueError("I/O operation on closed file")


@pytest.mark.parametrize("stream", [Broken(), None])
def test_a_listener_that_prints_never_fails(stream, monkeypatch):
    from alphazero_nb.core.events import Events, Message
    monkeypatch.setattr(sys, "stdout", stream)
    progress = TextProgress()
    events = Events([progress])
    for _ in range(3): events.emit(Message("one"))
    assert events.listeners == [progress]


def test_an_error_of_a_stream_is_kept():
    stream = SafeStream(Broken())
    stream.write("one")
    assert isinstance(stream.error, BrokenPipeError) and not stream.isatty()
    stream.settle()


@posix
@pytest.mark.parametrize("words", [("train", "gomoku(size=9)"), ("play", "my runs/it's $HOME"), ("play", "国际象棋;"),
                                   ("play", "runs/connect4", "--rules", "my rules.py")])
def test_a_printed_command_can_be_pasted(words):
    done = subprocess.run(["sh", "-c", f"alphazero-nb() {{ printf '%s\\0' \"$@\"; }}; {shell_command(*words)}"],
                          capture_output=True, timeout=900)
    if done.returncode:   # A function of this shell may have no dash in its name
        done = subprocess.run(["sh", "-c", f"az() {{ printf '%s\\0' \"$@\"; }}; az{shell_command(*words).removeprefix('alphazero-nb')}"],
                              capture_output=True, timeout=900)
    assert tuple(done.stdout.decode().split("\0")[:-1]) == words


@posix
def test_the_command_to_play_can_be_pasted(tmp_path, capsys):
    assert main(["train", "tictactoe", *SMALL, "--folder", str(tmp_path / "my runs")]) == 0
    out = capsys.readouterr().out
    line = next(line for line in out.splitlines() if line.startswith("Play against the agent: "))
    command = line.removeprefix("Play against the agent: alphazero-nb")
    code, out, errors = shell(f"echo quit | $AZ{command}")
    assert code == 0 and b"Tic-tac-toe against my runs" in out, errors


@posix
def test_the_command_of_a_failed_game_can_be_pasted():
    assert shell_command("show-game", "gomoku(size=9)", "--seed", 5) == "alphazero-nb show-game 'gomoku(size=9)' --seed 5"
    assert shell_command("show-game", "connect4", "--seed", 5) == "alphazero-nb show-game connect4 --seed 5"


@pytest.mark.parametrize("stream", [None, Broken()])
def test_an_engine_notices_that_its_output_is_closed(stream, monkeypatch):
    "The command has a stream that raises nothing; without a word of it, the engine would search and wait on."
    monkeypatch.setattr(sys, "stdout", SafeStream(stream))
    with pytest.raises(OSError, match="the output is closed"): print_line("uciok")


def test_a_full_disk_is_not_the_end_of_the_output(monkeypatch):
    class Full(io.StringIO):
        def write(self, text): raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(sys, "stdout", SafeStream(Full()))
    print_line("uciok")


def test_a_closed_input_ends_a_game(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["play", "connect4", "--simulations", "8", "--device", "cpu"]) == 0
