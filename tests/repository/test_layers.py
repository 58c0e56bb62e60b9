"""A group imports only from groups below it, a module only from modules above it in its group, lazy imports included."""
import ast, importlib.util, subprocess, sys
from pathlib import Path

import pytest

PACKAGE = "alphazero_nb"
HOME = Path(__file__).resolve().parents[2]/PACKAGE

# From the ground up. The modules of `games` stand side by side, but chess has four; `all` and `cli` may import everything.
GROUPS = dict(
    core=["help", "device", "transfers", "patches", "compiled", "streams", "events", "calls", "base_game", "registry", "random_games", "game_check", "game", "python_game", "records", "intervals"],
    games=None,
    network=["networks", "spiking", "fused_boards", "fused_cards", "int8", "winograd", "inference", "evaluator", "checkpoint", "saved_run", "pretrained"],
    search=["tree", "cache", "gumbel", "worlds", "search", "one_game", "levels", "analysis", "traps", "agent"],
    selfplay=["settings", "layout", "contracts", "slots", "scheduler", "actors", "worker_process", "workers", "cluster", "pools", "calibration", "engine"],
    arena=["connect4_search", "hex_search", "solvers", "players", "luck", "matches", "ladder", "judge", "material", "sgf", "external", "external_gtp", "session", "external_gnubg", "uci", "gtp", "level_curve"],
    training=["replay", "learner", "run_folder", "shared_folder", "producer", "inbox", "trainer", "forecast", "operator_check"],
    ui=["svg", "progress", "widgets", "board", "grid", "card_table", "dashboard", "game_line", "saved_game", "match_text", "tree_view", "coach", "puzzles", "match", "match_view", "click_grid", "play", "plots", "report"],
    web=["linker", "exports", "network", "wasm", "driver", "modules", "page"],
    bench_fixtures=[], benchmark=[], ablate=[], lab=["strong_games", "measures", "verdict", "report", "study"], cli=[], all=[], __main__=[])
ORDER = [(group, module) for group, modules in GROUPS.items() for module in modules or [""]]
CHESS = ["games.chess_board", "games.chess_moves", "games.chess", "games.chess_text"]
HEAVY = ["torch", "numba", "matplotlib"]


def modules():
    "Every module of the package, as {dotted name below the package: path}."
    found = {".".join(path.relative_to(HOME).with_suffix("").parts): path for path in sorted(HOME.rglob("*.py"))}
    return {name: path for name, path in found.items() if name.split(".")[-1] not in ("__init__", "_modidx")}


MODULES = modules()


def place(name):
    "Group and module of a module, as they stand in ORDER."
    group, _, module = name.partition(".")
    return group, "" if GROUPS.get(group, 0) is None else module


def imports(tree, name, lazy=True):
    "Modules of this package that the module `name` with this syntax `tree` imports; without those inside functions if not `lazy`."
    package = f"{PACKAGE}.{name}".rpartition(".")[0]
    waiting, found = [tree], set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and not lazy: continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import): names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
            names = [f"{source}.{alias.name}" for alias in node.names]    # `from . import tree` names a module
        else: continue
        found |= {tuple(name.split(".")[1:]) for name in names if name.split(".")[0] == PACKAGE}
    return {name for parts in found for name in (".".join(parts[:2]), ".".join(parts[:1])) if name in MODULES}


def test_the_reader_of_imports():
    tree = ast.parse("import alphazero_nb.search.tree\nimport numpy\nfrom ..core.game import Game\nfrom . import dots\n"
                     "from .connect4 import play\nfrom ..core import records\ndef f():\n    from ..search.search import Agent")
    assert imports(tree, "games.hex", lazy=False) == {"search.tree", "core.game", "games.dots", "games.connect4", "core.records"}
    assert imports(tree, "games.hex") == imports(tree, "games.hex", lazy=False) | {"search.search"}


def test_every_module_has_its_place():
    strangers = {name for name in MODULES if place(name) not in ORDER}
    assert not strangers, f"{sorted(strangers)}: give each its place in GROUPS, between what it imports and what imports it"


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_from_modules_below(name):
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    taken = imports(tree, name, lazy=name != "cli")
    rank = ORDER.index(place(name))
    below = CHESS[:CHESS.index(name)] if name in CHESS else []
    wrong = {other for other in taken if ORDER.index(place(other)) >= rank and other not in below}
    assert not wrong, f"{name} imports {sorted(wrong)}, which {'lies' if len(wrong) == 1 else 'lie'} not below it"


@pytest.mark.parametrize("name", [PACKAGE] + [f"{PACKAGE}.{name}" for name in MODULES if name == "cli"])
def test_the_door_opens_without_pytorch(name):
    program = f"import sys, {name}; print([heavy for heavy in {HEAVY} if heavy in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=HOME.parent, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]", f"importing {name} imports {done.stdout.strip()}"


def test_a_worker_starts_without_pytorch():
    "A spawned process that imports PyTorch takes five seconds; without a network it must not."
    program = "import sys, alphazero_nb.selfplay.worker_process; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=HOME.parent, timeout=900)
    assert done.stdout.strip() == "False", done.stderr
