"Laboratory files that were damaged or made by a stranger: an experiment or one sentence, and nothing is run or written."
import copy
import functools
import json
import os
import random
import re
import sys

import numpy as np
import pytest

from alphazero_nb.ablate import LARGEST, read_experiment
from alphazero_nb.arena.judge import draw_positions, solve_positions
from alphazero_nb.arena.players import RandomPlayer, names_program
from alphazero_nb.arena.solvers import get_solver
from alphazero_nb.cli import main
from alphazero_nb.core.registry import get_game

GAME = get_game("tictactoe")
ONE_SENTENCE = re.compile(r"[^\n]{20,3000}[.?]")


class Watch:
    "Programs that this process starts and files that it writes, as Python's own audit reports them."
    STARTS = "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "pty.spawn", "socket.connect"
    WRITES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.rmtree",
              "os.chmod")

    def __init__(self): self.seen = None

    def __call__(self, event, arguments):
        if self.seen is None: return
        if "__pycache__" in str(arguments): return   # Compiled code of a game that is used for the first time
        if event in self.STARTS or event in self.WRITES: self.seen.append((event, *map(str, arguments)))
        elif event == "open" and isinstance(arguments[0], (str, bytes)):
            path, mode, flags = arguments
            writes = isinstance(mode, str) and set(mode) & set("wax+")
            if not writes and isinstance(flags, int): writes = flags & (os.O_WRONLY | os.O_RDWR)
            if writes: self.seen.append((event, os.fsdecode(path)))


WATCH = Watch()
sys.addaudithook(WATCH)

GOOD = dict(game="tictactoe", minutes=1, turn=.5, seeds=[0, 1], simulations=[1, 4], games=4, per_phase=20, positions=["set.npz"],
            control=dict(preset="mlp", search=dict(simulations=4, proofs=True), play=dict(fast_simulations=4)),
            variants={"more steps": dict(train=dict(replay_ratio=16, baseline="random", evaluate_every=2, cooldown=[10, 20])),
                      "b": dict(preset="tiny", play=dict(random_start_fraction=.5, int8=False), search=dict(c_puct=1.2))})


def deep(levels):
    value = 1
    for _ in range(levels): value = [value] if levels % 2 else {"a": value}
    return value


def values(rng, marker):
    "A value that a stranger might write."
    return rng.choice([
        None, True, False, -1, 0, 1, 2, .5, -.5, 1e308, -1e308, 1e-308, float("nan"), float("inf"), -float("inf"), 2**31, 2**63,
        2**64, 10**20, 10**400, -10**400, "", " ", "1", "x" * 5000, "\0", "a\nb", "\ud800", "\u202e", "\x1b[2J", [], {}, [[]], [1, 1],
        [0], [None], ["set.npz", "set.npz"], {"a": {}}, {"": {}}, {"control": {}}, deep(50), deep(51), "random", "heuristic", "solver",
        "rollouts:0", "rollouts:99999999999999999999", "greedy", "minimax:9", "pretrained", f"uci:touch {marker}",
        f"uci:touch {marker}?movetime=1", f"uci:sh -c 'touch {marker}'", f"UCI:touch {marker}", f" uci:touch {marker}",
        f"uci\u200b:touch {marker}", f"|touch {marker}", f"$(touch {marker})", f"__import__('os').system('touch {marker}')",
        "../../../etc/passwd", "/etc/passwd", "/dev/zero", "/dev/stdin", ".", "..", "/", "set.npz/../set.npz", "none.npz", "custom",
        "smal", "mlp", "cards", "tiny", "chess(variant=gardner)", "chess(variant=../..)", "gomoku(size=9)",
        "gomoku(size=999999999)", "dots(rows=99,cols=99)", "blob", "2048", "tictactoe()", "tictactoe(size=3)", "conect4",
        "os.system", "alphazero_nb.cli", "openspiel(game=tic_tac_toe)", "openspiel(game=efg_game,filename=/etc/passwd)"])


def places(value, path=()):
    "The paths of all values of a tree."
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items: yield from places(part, (*path, key))


def mutated(rng, marker):
    "A laboratory file with one to four changes, as bytes."
    data = copy.deepcopy(GOOD)
    if rng.random() < .2: data.update(game="chess(variant=gardner)", positions=[])
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        path = rng.choice(list(places(data)))
        if not path: continue
        parent = data
        for key in path[:-1]: parent = parent[key]
        kind = rng.random()
        if kind < .6: parent[path[-1]] = values(rng, marker)
        elif kind < .7: del parent[path[-1]]
        elif isinstance(parent, list): parent.append(values(rng, marker))
        else:
            names = ["baseline", "evaluate_every", "search", "preset", "train", "play", "batch_size", "simulations", "seed", "folder",
                     "__class__", "listeners", "engine", "device", "layout", "games_per_iteration", "worlds", "int8", "\ud800", "x" * 300]
            parent[rng.choice(names)] = values(rng, marker)
    text = json.dumps(data).encode()
    if rng.random() < .15:
        at = rng.randrange(len(text))
        text = rng.choice([text[:at], text[:at] + bytes([rng.randrange(256)]) + text[at + 1:], text[at:], text + text,
                           text[:at] + b"[" * 100_000, b"", b"\xff\xfe" + text])
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    "A folder with a good file. A game is made once, because loading its compiled rules takes most of the time."
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("alphazero_nb.ablate.get_game", functools.lru_cache(get_game))
        yield make_folder(tmp_path_factory)


def make_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("laboratory")
    states = draw_positions(GAME, range(0, 6), 30, RandomPlayer(GAME), seed=1)
    solve_positions([get_solver(GAME)], states, np.arange(30) % 2, ("one", "two")).save(folder / "set.npz")
    (folder / "good.json").write_text(json.dumps(GOOD))
    read_experiment(folder / "good.json")   # Everything is imported and compiled
    (folder / "good.json").write_text(json.dumps(GOOD | dict(game="chess(variant=gardner)", positions=[])))
    read_experiment(folder / "good.json")
    return folder


def check(experiment):
    "An experiment that was accepted has sane values everywhere."
    assert 0 < experiment.minutes <= 1e6 and 0 < experiment.turn <= 1e6 and experiment.seeds and experiment.variants
    assert all(type(seed) is int and 0 <= seed < 2**63 for seed in experiment.seeds)
    for name in experiment.names:
        for group, changes in experiment.settings(name).items():
            for key, value in changes.items() if group != "preset" else ():
                assert not isinstance(value, str) or (key == "baseline" and not names_program(value))
                if key in LARGEST: assert value is None or 0 <= value <= LARGEST[key]


def read_hostile(folder, count, seed):
    "Read mutated files. Return how many were accepted and refused."
    rng, marker, path, accepted = random.Random(seed), folder / "harm", folder / "experiment.json", 0
    for number in range(count):
        text = mutated(rng, marker)
        path.write_bytes(text)
        WATCH.seen = []
        try: experiment = read_experiment(path)
        except (ValueError, ImportError) as error:
            assert ONE_SENTENCE.fullmatch(str(error)), (seed, number, str(error), text[:2000])
            assert "experiment.json" in str(error), (seed, number, str(error))
        else:
            check(experiment)
            accepted += 1
        finally: seen, WATCH.seen = WATCH.seen, None
        assert not seen and not marker.exists(), (seed, number, seen, text[:2000])
    assert set(os.listdir(folder)) == {"set.npz", "good.json", "experiment.json"}
    return accepted, count - accepted


def test_hostile_laboratory_files_run_nothing(folder):
    accepted, refused = read_hostile(folder, 200, seed=0)
    assert accepted > 10 and refused > 50


@pytest.mark.slow
def test_ten_thousand_hostile_laboratory_files_run_nothing(folder, capsys):
    accepted, refused = read_hostile(folder, 10_000, seed=1)
    with capsys.disabled(): print(f"\n10,000 laboratory files: {accepted:,} accepted, {refused:,} refused, nothing run or written")
    assert accepted > 500 and refused > 2500


@pytest.mark.parametrize("where", ["control", "variants"])
def test_a_laboratory_file_names_no_program(where, tmp_path, capsys):
    "Its baseline was started as a command."
    settings = dict(train=dict(baseline=f"uci:touch {tmp_path / 'harm'}", evaluate_every=1))
    changes = dict(control=settings) if where == "control" else dict(variants={"a": settings})
    path = tmp_path / "experiment.json"
    path.write_text(json.dumps(dict(game="chess(variant=gardner)", minutes=.01, variants={"a": {}}, seeds=[0]) | changes))
    assert main(["ablate", str(path), "--folder", str(tmp_path / "runs")]) == 2
    printed = capsys.readouterr().err
    assert not (tmp_path / "harm").exists() and not (tmp_path / "runs").exists()
    assert "is a program, which a file may not name; choose a player of the package" in printed and printed.count("\n") == 1


def test_only_programs_are_programs():
    for name in ("random", "heuristic", "solver", "rollouts:400", "greedy", "minimax:2", "pretrained", "runs/uci", "uc:i", ""):
        assert not names_program(name)
    assert names_program("uci:stockfish") and names_program("uci:") and names_program("uci")
