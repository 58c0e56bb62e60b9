"Compiled code on disk is used again only where everything that was compiled in is unchanged."
import ctypes, enum, errno, gc, importlib.util, os, shutil, subprocess, sys, threading, types, weakref
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from numba import TypingError, int64, njit
from numba.experimental import jitclass
from numba.extending import intrinsic, overload

from alphazero_nb.core.compiled import compile_for, digest, kernel, lean_kernel, outside_names, source_digest
from alphazero_nb.core import compiled

PACKAGE = Path(__file__).resolve().parents[2]/"alphazero_nb"


def run(folder, program, *args, **more):
    "What a new process in `folder` prints; it must succeed. The package of this checkout is found after the folder."
    paths = os.pathsep.join([str(folder), str(PACKAGE.parent)])
    env = dict(os.environ, PYTHONPATH=paths, PYTHONDONTWRITEBYTECODE="1", **more)
    done = subprocess.run([sys.executable, *program, *map(str, args)], capture_output=True, text=True, cwd=folder,
                          env=env, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


# Sources ----------------------------------------------------------------------------------------

SOURCE = """import numpy as np
from numba import njit
TABLE, LIMIT, ROW = np.array([1, 2, 3], np.int16), 5, np.dtype([("a", "i4"), ("b", "f8")])

@njit
def capped(x): return min(x, LIMIT)

def rule(state, action):
    row = np.zeros(1, ROW)
    state[0] = capped(TABLE[action]) + row[0].a
"""
SAME = [("import numpy as np\n", "# A comment, which moves every line\nimport numpy as np\n"), ("min(x, LIMIT)", "min(x,LIMIT)  # At most five"),
        ("def rule(state, action):\n", 'def rule(state, action):\n    "Play a move."\n'), ("LIMIT)\n", "LIMIT)\n\n\ndef other(): return 7\n")]
OTHER = [("LIMIT, ROW = np.array([1, 2, 3], np.int16), 5", "LIMIT, ROW = np.array([1, 2, 3], np.int16), 6"), ("[1, 2, 3]", "[1, 2, 4]"),
         ("np.int16", "np.int32"), ('"b", "f8"', '"b", "f4"'), ("min(", "max("), ("@njit", "@njit(fastmath=True)"), ("+ row", "- row")]


def digest_of(file, text):
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return source_digest(module.rule)


def test_a_digest_of_sources_follows_the_meaning_and_not_the_text(tmp_path):
    names = (tmp_path/f"source{k}.py" for k in range(99))
    first = digest_of(next(names), SOURCE)
    assert first is not None and all(old in SOURCE for old, _ in SAME + OTHER)
    for old, new in SAME: assert digest_of(next(names), SOURCE.replace(old, new, 1)) == first, new
    others = [digest_of(next(names), SOURCE.replace(old, new, 1)) for old, new in OTHER]
    assert len({first, *others}) == 1 + len(OTHER)


def test_a_digest_of_sources_needs_the_sources(tmp_path):
    names = {}
    exec("def rule(state, action): state[0] = action", names)
    assert source_digest(names["rule"]) is None
    with_pointer = SOURCE + "import ctypes\nLIMIT = ctypes.c_int(5)\n"
    assert digest_of(tmp_path/"pointer.py", with_pointer) is None


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
from alphazero_nb.core.game import Game
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
from alphazero_nb.core.game_check import check_game
from pile_rules import pile
game = pile()
state = game.new()
check_game(game, games=2)
hits = sum(sum(f.stats.cache_hits.values()) for f in game.compiled.values())
print(state[0], state[0] - game.play(state, 1)[0], game.observe(state)[0], hits)
"""


@pytest.fixture
def pile(tmp_path):
    "A folder with rules that take their numbers and a helper from other files."
    for name, text in (("pile_settings", SETTINGS), ("pile_deep", DEEP), ("pile_rules", RULES), ("show", SHOW)):
        (tmp_path/f"{name}.py").write_text(text)
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
    assert run(pile, ["show.py"]) == ["6", "13", "13", "7"], "only play uses it, and is compiled"
    assert run(pile, ["show.py"]) == ["6", "13", "13", "8"], "the next process loads all eight rules"


# The digest -------------------------------------------------------------------------------------

Pair, space = namedtuple("Pair", "a b"), types.ModuleType("space")
HERE, OFFSET = 1, 2
size = threading.Lock()   # A name that the functions below take as an attribute and not from here


class Color(enum.IntEnum): RED, BLUE = 1, 2


def made(value, default=0):
    "A function whose closure holds `value`."
    def function(x, y=default): return x.size + value
    return function


def uses(name, value):
    "A function that looks up `name`, which has this value."
    source = f"def function(x): return x.size + {name}"
    exec(source, names := {name.partition(".")[0]: value})
    return names["function"]


@njit
def helper(x): return x + HERE


@njit
def far(x): return helper(x) + space.number


@intrinsic
def shifted(typingctx, x):
    return x(x), lambda context, builder, signature, args: builder.add(args[0], constant(context, x))
def constant(context, x): return context.get_constant(x, OFFSET)


@njit
def native(x): return shifted(x)


@njit
def falling(x): return falling(x - 1) if x > HERE else x


@njit
def ping(x): return pong(x - 1) if x > HERE else x
@njit
def pong(x): return ping(x - 1) if x > 0 else x


@pytest.mark.parametrize("values", [
    (1, 2), (1, 1.0), (1, True), (0.0, -0.0), ("a", b"a"), ((1, 2), [1, 2]), ((1, (2, 3)), (1, 2, 3)), (None, False),
    (np.int8(1), np.int16(1)), (np.arange(4), np.arange(4).reshape(2, 2)), (np.dtype("i4"), np.dtype("i8")),
    (np.zeros((2, 3)), np.zeros((2, 3), order="F")), (np.zeros(1, "i4,i4"), np.zeros(1, "i4,f4")), (np.add, np.subtract),
    (np.float32, np.float64), (Pair(1, 2), (1, 2)), (Pair(1, 2), Pair(1, 3)), (Color.RED, Color.BLUE), (len, max),
    (ValueError, KeyError), (helper, far), (njit(made(1)), njit(fastmath=True)(made(1)))])
def test_different_values_have_different_digests(values):
    def in_module(value):
        module = types.ModuleType("module")
        module.word = value
        return uses("module.word", module)
    for wrap in (made, lambda value: made(0, value), lambda value: uses("word", value),
                 lambda value: made((value, 1)), in_module):
        one, other, again = (digest(wrap(value)) for value in (*values, values[0]))
        assert None not in (one, other) and one != other and one == again


@pytest.mark.parametrize("function, where, name, value", [
    (helper, None, "HERE", 2), (far, None, "HERE", 2), (far, space, "number", 2), (native, None, "OFFSET", 3),
    (falling, None, "HERE", 2), (pong, None, "HERE", 2), (ping, None, "HERE", 2)])
def test_a_change_anywhere_below_changes_the_digest(monkeypatch, function, where, name, value):
    monkeypatch.setattr(space, "number", 1, raising=False)
    before = digest(function)
    with monkeypatch.context() as change:
        change.setattr(where or sys.modules[__name__], name, value)
        assert digest(function) != before != None
    assert digest(function) == before


@jitclass([("x", int64)])
class Box:
    def __init__(self): self.x = 1


def plain(x): return x
@overload(plain)
def compiled_plain(x): return lambda x: x + HERE


def importing(x):
    import pytest
    return pytest


@pytest.mark.parametrize("value", [
    threading.Lock(), (1, threading.Lock()), ctypes.CFUNCTYPE(None)(lambda: None), ctypes.CDLL(None).abs, {1}, iter([1]), Box,
    object(), np.array([None]), plain, pytest, getattr, type("Lost", (Exception,), {})], ids=lambda value: type(value).__name__)
def test_what_cannot_be_read_has_no_digest(value):
    assert digest(made(value)) is None and digest(uses("word", value)) is None
    assert digest(importing) is None and digest(helper) is not None


LOST = """
from alphazero_nb.core.compiled import kernel

class Lost(Exception): pass

@kernel
def fall(height):
    if height > 3: raise Lost("down", height)
    return height

try: fall(5)
except Lost as error: print(*error.args)
"""


def test_an_exception_of_a_script_is_the_same_one_in_its_next_process(tmp_path):
    "Code on disk would raise a copy of its class, which `except` does not catch."
    (tmp_path/"lost.py").write_text(LOST)
    assert run(tmp_path, ["lost.py"]) == run(tmp_path, ["lost.py"]) == ["down", "5"]


def test_only_names_that_are_looked_up_count():
    "This module has a lock named `size`, and the function takes the attribute of an array."
    assert ("size",) not in outside_names(made(1).__code__) and digest(made(1)) is not None
    def inner(x): return [np.linalg.norm(y) + HERE for y in x]
    assert {("np", "linalg", "norm"), ("HERE",)} <= set(outside_names(inner.__code__))


DIGESTS = """
from alphazero_nb.core.compiled import digest
from alphazero_nb.core.registry import get_game
from alphazero_nb.selfplay.slots import play_step
from pile_rules import pile, legal
def chooses(x): return x in {"a", "b", "c", 1, 2.0}
print(digest(play_step), get_game("tictactoe").digest, pile().digest, digest(chooses))
"""


def test_digests_are_the_same_in_every_process(pile):
    first, second = (run(pile, ["-c", DIGESTS], PYTHONHASHSEED=seed) for seed in "12")
    assert first == second and len(set(first)) == 4 and "None" not in first


# Compiling --------------------------------------------------------------------------------------

@pytest.fixture
def on_disk(tmp_path, monkeypatch):
    "A folder for code; a function (source, name) -> the compiled function `name` of a fresh module with this source."
    monkeypatch.setattr(compiled.numba.config, "CACHE_DIR", str(tmp_path / "code"))

    def load(source, name="f"):
        file = tmp_path / "fresh.py"
        file.write_text("from alphazero_nb.core.compiled import *\n" + source)
        module = types.ModuleType("fresh")
        monkeypatch.setitem(sys.modules, "fresh", module)
        exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
        for value in vars(module).values():
            if getattr(value, "__module__", "") == "builtins": value.__module__ = "fresh"
        return getattr(module, name)
    load.files = lambda: sorted((tmp_path / "code").rglob("*.nbc"))
    return load


def hits(function): return sum(function.stats.cache_hits.values())


def hits_after(on_disk):
    f = on_disk(ADDING.format(1))
    f(3)
    return hits(f)


ADDING = "N = {}\n@kernel\ndef g(x): return x + N\n@kernel\ndef f(x): return 2 * g(x)\n"


def test_code_is_loaded_while_it_is_the_same(on_disk):
    for n, found in ((1, 0), (1, 1), (2, 0), (1, 1), (2, 1)):
        f = on_disk(ADDING.format(n))
        assert (f(3), hits(f)) == (2 * (3 + n), found)
    assert f(.5) == 5. and hits(f) == 1 and hits(on_disk(ADDING.format(2))) == 0


def test_a_helper_counts_as_what_it_was_when_it_was_compiled(on_disk):
    "It was compiled with the old constant, and the caller is compiled with it after the change."
    f, g = (on_disk(ADDING.format(1), name) for name in "fg")
    f = types.FunctionType(f.py_func.__code__, dict(f.py_func.__globals__, g=g), "f")
    f.__module__ = "fresh"
    assert g(3) == 4
    g.py_func.__globals__["N"] = 2
    assert kernel(f)(3) == 8, "numba links what is compiled"
    assert on_disk(ADDING.format(2))(3) == 10, "and a new process must not load that"


def test_the_caller_of_an_njit_helper_that_was_called_before_is_not_kept(on_disk):
    "Nobody noted the constant with which numba compiled it."
    source = "from numba import njit\nN = {}\n@njit\ndef g(x): return x + N\ndef f(x): return 2 * g(x)\n"
    f = on_disk(source.format(1))
    f.__module__, g = "fresh", f.__globals__["g"]
    assert g(3) == 4
    f.__globals__["N"] = 2
    assert kernel(f)(3) == 8 and not on_disk.files()
    for found in (0, 1):   # A helper that its caller compiles is noted
        f = kernel(on_disk(source.format(2)))
        f.py_func.__module__ = "fresh"
        assert (f(3), hits(f)) == (10, found)


def test_a_function_that_changed_between_two_types_is_not_kept(on_disk):
    g = on_disk(ADDING.format(1), "g")
    assert g(1) == 2 and len(on_disk.files()) == 1
    g.py_func.__globals__["N"] = 5
    assert g(1.) == 6. and g(1) == 2 and len(on_disk.files()) == 1


def test_another_build_of_the_same_python_has_the_same_digests_and_files_of_its_own(on_disk, monkeypatch):
    f = on_disk(ADDING.format(1))
    first = compiled.digest(f)
    assert f(3) == 8
    files = len(on_disk.files())
    monkeypatch.setattr(compiled, "VERSIONS", "3.11.7 (another compiler) " + compiled.LIBRARIES)
    g = on_disk(ADDING.format(1))
    assert compiled.digest(g) == first and g(3) == 8 and hits(g) == 0 and len(on_disk.files()) > files


def test_old_versions_go(on_disk, monkeypatch):
    monkeypatch.setattr(compiled, "ROOM", room := 4)
    one = "N = {}\n@kernel\ndef f(x): return x + N\n"
    for n in range(room + 3): assert on_disk(one.format(n))(1) == n + 1
    assert len(on_disk.files()) == room
    assert on_disk(one.format(0))(1) == 1 and len(on_disk.files()) == room


def test_damaged_code_is_compiled_again(on_disk):
    assert on_disk(ADDING.format(1))(3) == 8
    for file in on_disk.files(): file.write_bytes(file.read_bytes()[:-1])
    f = on_disk(ADDING.format(1))
    assert f(3) == 8 and hits(f) == 0 and hits_after(on_disk) == 1


def test_a_full_disk_costs_a_compilation_and_nothing_else(on_disk, monkeypatch):
    def full(*names): raise OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as change:
        change.setattr(os, "replace", full)
        assert on_disk(ADDING.format(1))(3) == 8
    assert hits_after(on_disk) == 0


def test_functions_in_a_closure_are_kept_too(on_disk):
    source = ("def make(h):\n    def f(x): return h(x) + 1\n    return f\n"
              "@kernel\ndef {0}(x): return x + {1}\nf = kernel(make({0}))")
    for name, n, found in (("one", 1, 0), ("one", 1, 1), ("one", 2, 0), ("two", 2, 0), ("two", 2, 1)):
        f = on_disk(source.format(name, n))
        assert (f(1), hits(f)) == (2 + n, found)


TUPLES = """
from typing import NamedTuple
import numpy as np
from alphazero_nb.core.compiled import kernel
{where}
@kernel
def total(pair, pairs): return pair.a.sum() + pairs[0].b
pair = Pair(np.arange(3.), 4)
print(total(pair, (pair, pair)), len(total.overloads), sum(total.stats.cache_hits.values()))
"""
PAIR = "class Pair(NamedTuple):\n    a: np.ndarray\n    b: int\n"


@pytest.mark.parametrize("where, found", [(PAIR, "0"), ("from pairs import Pair", "1")], ids=["script", "module"])
def test_code_for_a_named_tuple_is_kept_if_its_class_can_be_found_again(tmp_path, where, found):
    "The class of a script is another one in every process: code from disk would not know it."
    (tmp_path/"pairs.py").write_text("from typing import NamedTuple\nimport numpy as np\n" + PAIR)
    (tmp_path/"tuples.py").write_text(TUPLES.format(where=where))
    assert run(tmp_path, ["tuples.py"])[-1] == "0"
    assert run(tmp_path, ["tuples.py"]) == ["7.0", "1", found]


def test_compiling_for_one_signature():
    assert compile_for(int64(int64), global_factorial)(5) == 120
    with pytest.raises(TypingError): compile_for(int64(int64), lambda x: x.nothing)


def global_factorial(n): return n * global_factorial(n - 1) if n > 1 else 1


def test_without_the_parts_of_numba_functions_are_compiled_anew(monkeypatch, on_disk):
    monkeypatch.setattr(compiled, "register_dispatcher", None)
    assert on_disk(ADDING.format(1))(3) == 8 and on_disk.files() == []
    assert compile_for(int64(int64), global_factorial)(5) == 120


OTHER_NUMBA = """
import numba.core.caching as caching
del caching.CompileResultCacheImpl
from alphazero_nb.core.registry import get_game
game = get_game("tictactoe")
print(game.state_after([4, 0]).sum(), len(game.digest))
"""


def test_with_another_version_of_numba_games_work():
    done = subprocess.run([sys.executable, "-c", OTHER_NUMBA], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and len(done.stdout.split()) == 2, done.stderr


# The package's own kernels ----------------------------------------------------------------------

EVALUATE = """
import alphazero_nb, numpy as np
from alphazero_nb.core.calls import REWARDS
from alphazero_nb.search.tree import add_edges, add_node, make_trees
from alphazero_nb.search.search import apply_evaluation
trees = make_trees(1, simulations=4, max_legal=4, state_size=2, players=1)
add_node(trees, 0, -1, 0)
add_edges(trees, 0, 0, 0, np.arange(2, dtype=np.int32), 2)
apply_evaluation(np.zeros(REWARDS + 1, np.int64), trees, 0, np.zeros(2, np.float32), np.zeros(1, np.float32))
print(alphazero_nb.__file__, trees.nodes["visits"][0], sum(apply_evaluation.stats.cache_hits.values()))
"""


def test_a_kernel_follows_the_kernels_it_calls(tmp_path):
    "As after an update of an editable install: one module of the package changes, its callers do not."
    shutil.copytree(PACKAGE, tmp_path/"alphazero_nb", ignore=shutil.ignore_patterns("__pycache__"))
    where, visits, _ = run(tmp_path, ["-c", EVALUATE])
    assert Path(where).parent == tmp_path/"alphazero_nb" and visits == "1"
    change(tmp_path/"alphazero_nb"/"search"/"tree.py", "        row.visits += 1\n", "        row.visits += 5\n")
    assert run(tmp_path, ["-c", EVALUATE])[1] == "5"


# Workers ----------------------------------------------------------------------------------------

MEANWHILE = """
import pathlib, sys
from alphazero_nb.selfplay.engine import SelfPlayEngine
from pile_rules import pile

if __name__ == "__main__":
    game, (name, old, new) = pile(), sys.argv[1:]
    file = pathlib.Path(name)
    file.write_text(file.read_text().replace(old, new))
    try:
        with SelfPlayEngine(game, None, device="cpu", workers=1, layout="processes", simulations=4, games=4,
                            listeners=()) as engine:
            print(len(engine.generate_games(3)), "games")
    except Exception as error: print(type(error).__name__, error)
"""


@pytest.mark.parametrize("name, old, new", [("pile_deep.py", "0", "10"), ("pile_settings.py", "12", "13"),
                                            ("pile_deep.py", "0", "0")])
def test_a_worker_notices_rules_that_changed_after_the_parent_imported_them(pile, name, old, new):
    "The second change reaches the observation alone, which no game without a network shows."
    (pile/"meanwhile.py").write_text(MEANWHILE)
    printed = " ".join(run(pile, ["meanwhile.py"], name, old, new))
    if old == new: assert printed == "3 games"
    else: assert printed.startswith("ValueError the rules of pile in this worker differ from those in the parent, "), printed


def test_code_of_a_module_that_nobody_can_find_is_not_stored(tmp_path):
    "A file that runs as a module without a name in sys.modules would be stored as the module '<dynamic>'."
    (tmp_path/"rules.py").write_text("from alphazero_nb.core.compiled import kernel\n"
                                     "@kernel\ndef twice(x): return 2 * x\n")
    (tmp_path/"use.py").write_text("import importlib.util\n"
                                   "spec = importlib.util.spec_from_file_location('somewhere', 'rules.py')\n"
                                   "rules = importlib.util.module_from_spec(spec)\n"
                                   "spec.loader.exec_module(rules)\n"
                                   "print(rules.twice(21))\n")
    assert [run(tmp_path, ["use.py"]) for _ in range(2)] == [["42"], ["42"]]
    assert not list(tmp_path.rglob("*.nbc"))


# Code without reference counts -----------------------------------------------------------------

@kernel
def total_of_a_copy(numbers): return numbers.copy().sum()


@lean_kernel
def checked_total(pair, least):
    first, second = pair
    total = 0.0
    for i in range(len(first)): total += first[i] + second[i]
    if total < least: raise ValueError("too small")
    return total + total_of_a_copy(first[1:])


@pytest.mark.parametrize("least, want", [(0, 3 + 12 + 3), (100, "too small")])
def test_a_lean_kernel_leaves_arrays_as_it_finds_them(least, want):
    "In a call that returns and in one that raises, through a callee that counts."
    pair = np.arange(3.0), np.full(3, 4.0)
    seen, counts = [weakref.ref(array) for array in pair], [sys.getrefcount(array) for array in pair]
    for _ in range(20):
        try: found = checked_total(pair, least)
        except ValueError as error: found = str(error)
        assert found == want
    gc.collect()
    assert [sys.getrefcount(array) for array in pair] == counts
    del pair
    gc.collect()
    assert [one() for one in seen] == [None, None]


def first_plus(row, number): row[0] += number
def rows_plus(row, number): row[:] = row + np.arange(len(row)) + number


@pytest.mark.parametrize("rule, counts, want", [(first_plus, False, [5, 0, 0]), (rows_plus, True, [5, 6, 7])])
def test_rules_are_compiled_without_counts_unless_they_make_arrays(rule, counts, want):
    compiled_rule, row = compile_for((int64[::1], int64), rule), np.zeros(3, np.int64)
    compiled_rule(row, 5)
    assert row.tolist() == want and compiled_rule.targetoptions.get("_nrt", True) == counts


def test_a_numba_without_the_option_counts(monkeypatch):
    def refuse(*args, **options):
        if "_nrt" in options: raise KeyError("Unrecognized options: {'_nrt'}")
        return njit(*args, **options)
    monkeypatch.setattr(compiled, "njit", refuse)
    assert not compiled._can_be_lean()
    for name in ("_COUNTS", "_LEAN"): monkeypatch.setattr(compiled, name, {})
    row = np.zeros(3, np.int64)
    compile_for((int64[::1], int64), rows_plus)(row, 1)
    assert row.tolist() == [1, 2, 3] and lean_kernel(lambda x: x + 1)(1) == 2


RECURSION = """
import numpy as np
from numba import njit
from alphazero_nb.core.compiled import kernel

@njit
def count(n): return 0 if n <= 0 else 1 + count(n - 1)

@kernel
def counted(n): return count(n)
"""


def test_a_recursion_that_widens_its_numbers_works_in_the_next_process(tmp_path):
    "The helper for int16 calls the one for int64, which calls itself; numba cannot load such code from disk."
    (tmp_path / "recursion.py").write_text(RECURSION)
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", "from recursion import *; print(counted(np.int16(9)))"], cwd=tmp_path,
                              capture_output=True, text=True, timeout=900, env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))))
        assert (done.returncode, done.stdout) == (0, "9\n"), done.stderr


# Code from disk runs without numba's compiler ---------------------------------------------------

VARIOUS = """
import math
import numpy as np
from numba import njit
from alphazero_nb.core.compiled import kernel, lean_kernel

@njit
def half(x): return x / 2

@lean_kernel
def numbers(row, n): return math.exp(half(row[0])) + math.lgamma(row[1]) + row[n] ** .5 + n ** 3 + n // 3

@kernel
def product(rows): return np.dot(rows, rows)

@kernel
def draws(seed):
    np.random.seed(seed)
    return np.random.randint(1000), np.random.normal(), np.zeros(2), {seed, 3}

@kernel
def texts(name): return name + "s", hash(name) == hash(name + "")

@kernel
def fails(n):
    if n: raise ValueError("not that", n)
    return n
"""
USE = """
import sys
import numpy as np
import various
rows = np.array([[4., 1], [2, 3]])
print(various.numbers(rows[0], 1), various.draws(3), various.texts("move"))
try: various.fails(1)
except ValueError as error: print(error)
compiler = "numba.np.linalg" in sys.modules
print(various.product(rows))   # Needs that module for its own sake
kept = [function for function in vars(various).values() if getattr(function, "_cache", None) and hasattr(function._cache, "files")]
print("|", sum(sum(function.stats.cache_hits.values()) for function in kept), compiler)
"""


def test_code_from_disk_needs_no_compiler(tmp_path):
    pytest.importorskip("scipy", reason="numba multiplies matrices with SciPy")
    (tmp_path/"various.py").write_text(VARIOUS)
    compiling, loading = (" ".join(run(tmp_path, ["-c", USE])).split(" | ") for _ in range(2))
    assert compiling[1] == "0 True" and loading[1] == "5 False"
    assert compiling[0] == loading[0] and "('moves', True)" in loading[0] and "('not that', 1)" in loading[0]


INTERRUPTED = """
import os, signal
from numba.core.registry import cpu_target

from doubled import first, twice
signal.signal(signal.SIGINT, signal.default_int_handler)   # A shell may have started this with Ctrl-C ignored
engine, asked = cpu_target.target_context.codegen()._engine._ee, []
first(1)   # What all code needs is compiled

def pressed(what, answer):
    def answered(*arguments):
        if what not in asked: os.kill(os.getpid(), signal.SIGINT)   # Python looks for it where a function begins
        asked.append(what)
        return answer(*arguments)
    return answered
engine._object_cache_notify = pressed("compiled", engine._object_cache_notify)
engine._object_cache_getbuffer = pressed("loaded", engine._object_cache_getbuffer)

interrupts = 0
for attempt in range(4):
    try: print(twice(21), interrupts, *sorted(set(asked)), "|")
    except KeyboardInterrupt: interrupts += 1
"""


def test_ctrl_c_while_code_is_compiled_or_loaded_is_neither_lost_nor_deadly(tmp_path):
    "At the moment when LLVM asks for code, and when it gives it. Without care the process died, or went on."
    (tmp_path/"doubled.py").write_text("from alphazero_nb.core.compiled import kernel\n\n"
                                       "@kernel\ndef first(n): return n\n\n@kernel\ndef twice(n): return n + n\n")
    compiling, loading = (" ".join(run(tmp_path, ["-c", INTERRUPTED])).split(" | ") for _ in range(2))
    assert compiling[0] == "42 1 compiled loaded" and loading[0] == "42 1 loaded"


FREED = """
import collections, gc, os, signal, sys
from numba import njit

import alphazero_nb.core.compiled
signal.signal(signal.SIGINT, signal.default_int_handler)   # A shell may have started this with Ctrl-C ignored

@njit
def first(n): return n
@njit
def inner(n): return 3 * n
@njit
def outer(n): return inner(n) + 1
first(1)   # What all code needs is compiled

def compiled(pressed):
    "Compile with a Ctrl-C at this line of this caller; without one return all such lines that ran."
    seen = {}

    def line(frame, event, _):
        if event in ("line", "return"):
            there = frame.f_code.co_name, frame.f_lineno, event, frame.f_back.f_code.co_name, frame.f_back.f_lineno
            if there not in seen and there == pressed: signal.raise_signal(signal.SIGINT)
            seen[there] = True
        return line

    def called(frame, event, _):
        code = frame.f_code
        if frame.f_back.f_code.co_name == "__del__": return   # Python lets no exception leave it
        if "llvmlite" in code.co_filename and code.co_name in ("link_in", "close", "detach", "_dispose"): return line
    interrupted = False
    sys.settrace(called)
    try: outer(1)
    except KeyboardInterrupt: interrupted = True
    finally: sys.settrace(None)
    gc.collect()
    return (interrupted and outer(2)) if pressed else list(seen)

def apart(work):
    "What a copy of this process prints, and how it ended."
    end, into = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(into, 1), os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        print(repr(work()), flush=True)
        os._exit(0)
    os.close(into)
    with os.fdopen(end) as text: said = text.read()
    return eval(said or "None"), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

places, code = apart(lambda: compiled(None))
ends = collections.Counter(apart(lambda: compiled(place)) for place in places[::max(1, len(places) // 60)])
print(len(places) > 40, *sorted(ends, key=str))
"""


DROPPED = """
import signal, time
from llvmlite import binding

import alphazero_nb.core.compiled
signal.signal(signal.SIGINT, signal.default_int_handler)   # A shell may have started this with Ctrl-C ignored

class Interrupted(binding.ffi.ObjectRef):
    def _dispose(self): signal.raise_signal(signal.SIGINT)

try:
    Interrupted(1)   # Freed at once
    time.sleep(3600)   # A Ctrl-C must also end a wait; `run` allows less
except KeyboardInterrupt: print("heard")
"""


def test_ctrl_c_while_python_drops_an_object_of_llvm_is_heard(tmp_path):
    "Python lets no exception out of a `__del__`."
    assert run(tmp_path, ["-c", DROPPED]) == ["heard"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="copies of a process")
def test_ctrl_c_while_an_object_of_llvm_is_freed_frees_it_once(tmp_path):
    "At each line that frees one, or gives one away. Python freed it again, and the process died."
    assert " ".join(run(tmp_path, ["-c", FREED])) == "True (7, 0)"
