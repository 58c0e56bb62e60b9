"""The house stands: a room imports only from rooms below it, and its door opens without PyTorch."""
import ast, importlib.util, subprocess, sys
from pathlib import Path

import pytest

PACKAGE = "alphazero_nb"
HOME = Path(__file__).resolve().parent.parent/PACKAGE

# From the ground up; `games` stands for every module of the subpackage.
ROOMS = ["device", "compiled", "streams", "game", "python_game", "games", "records", "events", "progress", "dashboard", "tree", "network", "inference", "evaluator",
         "checkpoint", "run_folder", "search", "slots", "actors", "workers", "selfplay", "replay", "arena", "train", "board", "table", "play", "plots", "report", "benchmark", "cli", "all"]
HEAVY = ["torch", "numba", "matplotlib"]


def modules():
    "Every module of the package, as {dotted name below the package: path}."
    found = {".".join(path.relative_to(HOME).with_suffix("").parts): path for path in sorted(HOME.rglob("*.py"))}
    return {name: path for name, path in found.items() if name.split(".")[-1] not in ("__init__", "_modidx")}


MODULES = modules()


def room(name):
    "The room in which a module lies."
    return name.split(".")[0]


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
    return {".".join(parts[:2] if parts[0] == "games" else parts[:1]) for parts in found if parts}


def test_the_reader_of_imports():
    tree = ast.parse("import alphazero_nb.tree\nimport numpy\nfrom ..game import Game\nfrom . import dots\n"
                     "from .connect4 import play\nfrom .. import records\ndef f():\n    from ..search import Agent")
    assert imports(tree, "games.hex", lazy=False) == {"tree", "game", "games.dots", "games.connect4", "records"}
    assert imports(tree, "games.hex") == imports(tree, "games.hex", lazy=False) | {"search"}


def test_every_module_has_its_place():
    strangers = {name for name in MODULES if room(name) not in ROOMS}
    assert not strangers, f"{sorted(strangers)}: give each its place in ROOMS, between what it imports and what imports it"


@pytest.mark.parametrize("name", MODULES)
def test_a_room_imports_only_from_rooms_below(name):
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    taken = imports(tree, name, lazy=name != "cli")
    rank = ROOMS.index(room(name))
    wrong = {other for other in taken if room(other) in ROOMS[rank:]}
    assert not wrong, f"{name} imports {sorted(wrong)}, which {'lies' if len(wrong) == 1 else 'lie'} not below it"


@pytest.mark.parametrize("name", [PACKAGE] + [f"{PACKAGE}.{name}" for name in MODULES if name == "cli"])
def test_the_door_opens_without_pytorch(name):
    program = f"import sys, {name}; print([heavy for heavy in {HEAVY} if heavy in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=HOME.parent, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]", f"importing {name} imports {done.stdout.strip()}"


def test_a_worker_starts_without_pytorch():
    "A spawned process that imports PyTorch takes five seconds; without a network it must not."
    program = "import sys, alphazero_nb.workers; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=HOME.parent, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
