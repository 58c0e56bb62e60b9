"Every command and every piece of Python in README.md, pages and help is taken as it is written: parsed, and run where that is cheap."
import argparse
import ast
import functools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero_nb import benchmark
from alphazero_nb.cli import _get_game, main, make_parser
from alphazero_nb.lab.study import find_variant
from alphazero_nb.network.networks import PRESETS

ROOT = Path(__file__).parents[2]
PLACES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("nbs/*.ipynb")), *sorted(ROOT.glob("colab/*.ipynb"))]
FENCE = re.compile(r"```(\w+)\n(.*?)```", re.S)


def prose(path: Path) -> str:
    "The text of a page: its Markdown."
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md": return text
    return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")


def blocks(path: Path, *languages: str) -> list[str]: return [text for name, text in FENCE.findall(prose(path)) if name in languages]


def lines_of(path: Path) -> list[str]:
    "The lines of blocks for a shell, and what stands in the text as code and begins as a command does."
    inline = re.findall(r"`((?:\.venv/bin/)?(?:alphazero-nb|make|bench) [^`\n]+)`", FENCE.sub("", prose(path)))
    return [line for block in blocks(path, "sh", "bash") for line in block.splitlines() if line.strip()] + inline


def help_texts() -> str:
    "The help of the program and of all commands."
    parser = make_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return " ".join(" ".join(one.format_help().split()) for one in (parser, *commands.choices.values()))


def found() -> list[tuple[str, list[str]]]:
    "Every command of this package: the place and its words. The words of a program before it and comments are left out."
    lines = [(path.name, line) for path in PLACES for line in lines_of(path)]
    lines += [("help", line) for line in re.findall(r"alphazero-nb [a-z][\w-]*(?: [A-Z]+\b)+", help_texts())]
    words = [(place, shlex.split(line, comments=True)) for place, line in lines if "alphazero-nb" in line.split("&&")[-1].split()[0]]
    return [(place, rest[1:]) for place, rest in words if len(rest) > 1]


COMMANDS = found()


def test_commands_are_found():
    places = {place for place, _ in COMMANDS}
    assert {"README.md", "help", "quickstart.ipynb", "chess.ipynb"} <= places and len(COMMANDS) > 20
    assert ("README.md", ["bench", "machine"]) in COMMANDS
    for path in PLACES: assert not [line for line in lines_of(path) if line.startswith("bench ")], f"{path.name}: a command has its program"


@pytest.fixture(scope="module")
def nim(tmp_path_factory):
    "A folder with README's game in README's file, and the files there that have been run."
    folder = tmp_path_factory.mktemp("nim")
    text = next(block for block in blocks(ROOT / "README.md", "python") if 'az.register("nim"' in block)
    (folder / "nim.py").write_text(text, encoding="utf-8")
    return folder, set()


@pytest.mark.parametrize("place, words", COMMANDS, ids=[f"{place}: {' '.join(words)}" for place, words in COMMANDS])
def test_a_command_is_understood(place, words, nim, monkeypatch):
    folder, run = nim
    monkeypatch.chdir(folder)
    if words in ([name] for name in ("train", "selfplay", "ablate")): return   # The name of a command
    try: args = make_parser().parse_args(words)
    except SystemExit as stop:
        assert not stop.code and {"--help", "--version"} & set(words), words
        return
    if getattr(args, "preset", None): assert args.preset in PRESETS
    rules = getattr(args, "rules", None)
    if rules and rules not in run: subprocess.run([sys.executable, rules], check=True, timeout=900)
    if words[0] == "study":
        monkeypatch.setattr(sys, "path", list(sys.path))
        assert all(find_variant(str(ROOT / name) if name.endswith(".py") else name) for name in (args.game, *args.variants))
    elif rules: run.add(rules)
    elif (game := getattr(args, "game", None)) is not None:
        try: assert _get_game(args).name
        except ImportError: pytest.skip(f"{game} needs another package")


QUICK = {" ".join(words): words for _, words in COMMANDS if words[0] in ("check-device", "games", "show-game") or words == ["--help"]}


SLOW = "check-device"   # Its text and its JSON are read in tests/process/test_cli.py, in every run of the tests


@pytest.mark.parametrize("words", [pytest.param(words, id=name, marks=[pytest.mark.slow] * name.startswith(SLOW))
                                   for name, words in QUICK.items()])
def test_a_quick_command_runs(words):
    done = subprocess.run([sys.executable, "-m", "alphazero_nb", *words], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and done.stdout and not done.stderr


def test_a_measurement_needs_no_game(monkeypatch, capsys):
    few = functools.partial(benchmark.bench_machine, batches=(1, 16), games=(2, 16))
    monkeypatch.setattr(benchmark, "bench_machine", few)
    assert main(["bench", "machine", "--preset", "tiny", "--device", "cpu", "--seconds", "0.02"]) == 0
    assert "tiny" in capsys.readouterr().out
    for words in (["bench", "cards"], ["bench", "selfplay"]): assert make_parser().parse_args(words).game is None


def test_the_targets_of_make_exist():
    targets = set(re.findall(r"^([\w-]+)(?: [\w-]+)*:", (ROOT / "Makefile").read_text(), re.M)) | {"test-colab", "soak", "test"}
    wanted = {line.split()[1] for path in PLACES for line in lines_of(path) if line.startswith("make ")}
    assert {"train", "test", "sync"} <= wanted and wanted <= targets
    for name in ("README.md", "CONTRIBUTING.md"):
        lines = {" ".join(line.split("#")[0].split()) for line in lines_of(ROOT / name)}
        assert {"make train", "make test"} <= lines, f"{name} lacks one of the two commands for a clone"


@pytest.mark.parametrize("path", [path for path in PLACES if blocks(path, "python")], ids=lambda path: path.name)
def test_python_in_the_text_is_python(path):
    "README's is run by another test; pages run their own cells."
    for block in blocks(path, "python"): ast.parse(block)
