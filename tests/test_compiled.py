"Compiled code on disk is used again only where everything that was compiled in is unchanged."
import os, shutil, subprocess, sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent/"alphazero_nb"


def run(folder, program, *args, **more):
    "What a new process that starts in `folder` prints; it must succeed. The package of this checkout is found after the folder."
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(folder), str(PACKAGE.parent)]), PYTHONDONTWRITEBYTECODE="1", **more)
    done = subprocess.run([sys.executable, *program, *map(str, args)], capture_output=True, text=True, cwd=folder, env=env, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


# Rules that import from another file ------------------------------------------------------------

SETTINGS = """
import numpy as np
from numba import njit
import pile_deep
STONES, WIDTH, TABLE = 5, 12, np.array([1, 2, 3])

@njit
def taken(action): return TABLE[action] + pile_deep.EXTRA
"""
DEEP = "EXTRA = 0\n"
RULES = """
import pile_settings
from alphazero_nb.game import Game
from pile_settings import STONES, taken

def start(state, seed): state[0] = STONES
def mover(state): return state[1] if state[0] > 0 else -1
def legal(state, actions):
    for action in range(3): actions[action] = action
    return 3
def play(state, action):
    state[0] -= taken(action)
    state[1] = 1 - state[1]
def returns(state, out): out[state[1]], out[1 - state[1]] = -1, 1
def observe(state, planes): planes[0] = pile_settings.WIDTH

def pile():
    return Game("pile", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                state_size=2, players=2, actions=3, shape=(1,), max_length=30)
"""
SHOW = """
from pile_rules import pile
game = pile()
state = game.new()
game.check(games=2)
hits = sum(sum(f.stats.cache_hits.values()) for f in game.compiled.values())
print(state[0], state[0] - game.play(state, 1)[0], game.observe(state)[0], hits)
"""


@pytest.fixture
def pile(tmp_path):
    "A folder with rules that take their numbers and a helper from other files."
    for name, text in (("pile_settings", SETTINGS), ("pile_deep", DEEP), ("pile_rules", RULES)): (tmp_path/f"{name}.py").write_text(text)
    (tmp_path/"show.py").write_text(SHOW)
    return tmp_path


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_rules_follow_what_they_import(pile):
    assert run(pile, ["show.py"])[:3] == ["5", "2", "12"]
    change(pile/"pile_settings.py", "STONES, WIDTH, TABLE = 5, 12, np.array([1, 2, 3])",
           "STONES, WIDTH, TABLE = 6, 13, np.array([1, 3, 5])")
    assert run(pile, ["show.py"])[:3] == ["6", "3", "13"]
    change(pile/"pile_deep.py", "0", "10")
    assert run(pile, ["show.py"])[:3] == ["6", "13", "13"]


# The package's own kernels ----------------------------------------------------------------------

RECEIVE = """
import alphazero_nb, numpy as np
from alphazero_nb.search import receive
from alphazero_nb.tree import Trees, add_edges, add_node
t = Trees(1, 4, 4, 2, 1)
add_node(t.trees, t.nodes, t.values, t.node_room, 0, -1, 0)
add_edges(t.trees, t.nodes, t.edges, t.edge_room, 0, 0, 0, np.arange(2, dtype=np.int32), 2)
receive(t.nodes, t.edges, t.values, 0, np.zeros(2, np.float32), np.zeros(2, np.float32), np.zeros(2, np.float32))
print(alphazero_nb.__file__, t.nodes[0].visits if hasattr(t.nodes[0], "visits") else t.nodes[0]["visits"],
      sum(receive.stats.cache_hits.values()))
"""


def test_a_kernel_follows_the_kernels_it_calls(tmp_path):
    "As after an update of an editable install: one module of the package changes, its callers do not."
    shutil.copytree(PACKAGE, tmp_path/"alphazero_nb", ignore=shutil.ignore_patterns("__pycache__"))
    where, visits, _ = run(tmp_path, ["-c", RECEIVE])
    assert Path(where).parent == tmp_path/"alphazero_nb" and visits == "1"
    change(tmp_path/"alphazero_nb"/"tree.py", "        row.visits += 1\n", "        row.visits += 5\n")
    assert run(tmp_path, ["-c", RECEIVE])[1] == "5"


# Workers ----------------------------------------------------------------------------------------

MEANWHILE = """
import pathlib, sys
from alphazero_nb.selfplay import SelfPlayEngine
from pile_rules import pile

if __name__ == "__main__":
    game, (name, old, new) = pile(), sys.argv[1:]
    file = pathlib.Path(name)
    file.write_text(file.read_text().replace(old, new))
    try:
        with SelfPlayEngine(game, None, device="cpu", workers=1, layout="processes", simulations=4, games=4, listeners=()) as engine:
            print(len(engine.generate_games(3)), "games")
    except Exception as error: print(type(error).__name__, error)
"""


@pytest.mark.parametrize("name, old, new", [("pile_deep.py", "0", "10"), ("pile_settings.py", "12", "13"), ("pile_deep.py", "0", "0")])
def test_a_worker_notices_rules_that_changed_after_the_parent_imported_them(pile, name, old, new):
    "The second change reaches the observation alone, which no game without a network shows."
    (pile/"meanwhile.py").write_text(MEANWHILE)
    told = " ".join(run(pile, ["meanwhile.py"], name, old, new))
    if old == new: assert told == "3 games"
    else: assert told.startswith("ValueError the rules of pile are not the same here as in the parent:") and "\n" not in told, told
