"""Files of positions, and states, that come from a stranger: `python hostile_positions.py COUNT SEED`.

Reads COUNT files and passes COUNT states to everything that takes one. Prints one line of counts as JSON. An error that
is not one sentence, a change outside the folder, or a program that starts ends it with a traceback."""
import io
import json
import os
import re
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

from alphazero_nb.arena.connect4_search import ILLEGAL
from alphazero_nb.arena.judge import judge, pad_lines, read_positions
from alphazero_nb.arena.players import HeuristicPlayer, RandomPlayer, RolloutPlayer
from alphazero_nb.arena.solvers import get_solver
from alphazero_nb.core.registry import get_game
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.one_game import GameSearch

NAMES = ["tictactoe", "connect4", "dots(rows=2,cols=2)", "gomoku(size=5)", "gomoku(size=9)", "othello(size=6)",
         "blob(players=3,cards=2)", "pig(goal=20)"]
CLEAR = re.compile(r"[^\n]{20,700}[.?]")
EXTREMES = [-1, -2, 0, 1, 127, 128, -128, 255, 32767, -32768, 65535, 2**31 - 1, -2**31]


class Uniform:
    "Evaluator that knows nothing."
    def __init__(self, game): self.game = game
    def evaluate(self, inputs, offsets, actions):
        return np.zeros(len(actions), np.float32), np.zeros((len(inputs), self.game.players), np.float32)


def line_of(game, rng, longest=40):
    "A random line of legal moves, and the state after it; seldom one in which no player moves."
    state, line, stop = game.new(), [], rng.random() < .9
    for _ in range(rng.integers(longest)):
        if game.mover(state) < 0: break
        action = int(rng.choice(game.legal_actions(state)))
        after = game.play(state, action)
        if stop and game.mover(after) < 0: break
        state, line = after, [*line, action]
    return line, state


def results_of(game, state):
    row = np.full(game.actions, ILLEGAL, np.int8)
    if game.mover(state) >= 0: row[game.legal_actions(state)] = 0
    return row


def good_file(game, rng):
    "The arrays of a file that has nothing wrong but perhaps a game that is over."
    lines, states = zip(*(line_of(game, rng) for _ in range(rng.integers(1, 4))))
    return dict(game=np.array(game.name), moves=pad_lines(lines), results=np.stack([results_of(game, s) for s in states]),
                phase=np.zeros(len(lines), np.int8), phases=np.array(["all"]))


def some_array(rng, like):
    "An array that is like another one in some respects."
    shape = tuple(int(rng.choice([n, n, n, 0, n + 1, 1, 4 * n])) for n in like.shape)
    if rng.random() < .2: shape = tuple(int(n) for n in rng.integers(0, 5, rng.integers(0, 4)))
    kind = rng.choice([like.dtype.str, like.dtype.str, "<i2", ">i4", "<i8", "<f4", "<f8", "|b1", "<U3", "<c8", "|u1"])
    with warnings.catch_warnings(action="ignore"):
        array = rng.choice(np.array(EXTREMES), shape).astype(kind)
        if array.dtype.kind == "f" and array.size: array.flat[0] = rng.choice([np.nan, np.inf, .5])
    return np.asfortranarray(array) if rng.random() < .2 else array


def spoil(game, rng, fields):
    "Change the arrays of a good file in one way; return its bytes."
    key = str(rng.choice(["moves", "moves", "results", "phase", "phases", "game"]))
    match rng.integers(8):
        case 0: fields[key] = some_array(rng, fields[key])
        case 1 if fields["moves"].size:
            fields["moves"].flat[rng.integers(fields["moves"].size)] = rng.choice([*EXTREMES, *range(game.actions)])
        case 2: fields["results"].flat[rng.integers(fields["results"].size)] = rng.integers(-128, 128)
        case 3: fields["moves"] = rng.integers(-2, game.actions + 2, (len(fields["phase"]), 60)).astype(np.int32)
        case 4: fields.pop(key)
        case 5:   # The form of a file in which rows reached the rules unchecked
            fields["states"] = rng.choice(np.array(EXTREMES), (len(fields["phase"]), game.state_size)).astype(np.int16)
            if rng.random() < .7: del fields["moves"]
        case 6: fields[key] = np.array([print, {"a": 1}], object)
        case _: pass
    out = io.BytesIO()
    np.savez_compressed(out, **fields)
    data = bytearray(out.getvalue())
    if rng.random() < .2:
        for at in rng.integers(len(data), size=rng.integers(1, 6)): data[at] ^= int(rng.integers(1, 256))
    if rng.random() < .05: data = data[:rng.integers(len(data))]
    if rng.random() < .03: data = with_header(rng)
    return bytes(data)


def with_header(rng):
    "A file whose array says that it is larger than the file, or that it is something else."
    header = str(dict(descr=str(rng.choice(["<i4", "|O", "<i999", "<U99999999"])), fortran_order=bool(rng.integers(2)),
                      shape=tuple(int(n) for n in rng.choice([0, 3, -1, 10**9, 2**62], 2)))).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("moves.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
        for name in ("game", "results", "phase", "phases"): file.writestr(f"{name}.npy", bytes(rng.integers(0, 9) * 16))
    return bytearray(out.getvalue())


def check_sentence(error, *more):
    if not CLEAR.fullmatch(str(error)): raise AssertionError(f"not one sentence: {error!r} {more}") from error


def read_files(games, rng, count, folder, seen):
    for _ in range(count):
        game = games[rng.integers(len(games))]
        path = folder / "set.npz"
        path.write_bytes(spoil(game, rng, good_file(game, rng)))
        try: found = read_positions(path, game)
        except ValueError as error:
            check_sentence(error, game)
            seen["files refused"] += 1
            continue
        for moves, state in zip(found.moves, found.states):
            line = moves[:(moves < 0).argmax() if (moves < 0).any() else None]
            assert np.array_equal(game.state_after(line), state)
        for player in (RandomPlayer(game), Agent(game, Uniform(game), 4)): judge(player, found)
        seen["files read"] += 1


def takers(game):
    "Everything that takes a state of this game from outside."
    agent, players = Agent(game, Uniform(game), 4), [RandomPlayer(game), RolloutPlayer(game, 4)]
    if game.heuristic: players.append(HeuristicPlayer(game))
    found = [agent.act, agent.acts, agent.policy, agent.value, *(f for p in players for f in (p.act, p.acts)), game.mover,
             game.over, game.legal_actions, game.chance, game.returns, game.observe, game.inputs, game.text,
             lambda state: game.play(state, 0), lambda state: game.move_name(state, 0),
             lambda state: game.resample_hidden(state, 1), lambda state: game.pass_chance(state, 1)]
    if not (game.has_chance or game.has_hidden_information): found.append(GameSearch(game, Uniform(game), room=8).start)
    try: solver = get_solver(game)
    except ValueError: return found
    return [*found, solver.scores]


def strange_state(game, games, rng):
    "A state of another game, a part of one, numbers of another kind; never a whole row of int16 of this game."
    _, state = line_of(games[rng.integers(len(games))], rng)
    match rng.integers(6):
        case 0: return state[:rng.integers(min(len(state), game.state_size))]
        case 1: return np.concatenate([state, state])
        case 2: return line_of(game, rng)[1].astype(rng.choice([np.float32, np.float64, np.complex64])) * np.nan
        case 3: return line_of(game, rng)[1].astype(np.int64) + 2**40
        case 4: return [None, 5, "board", [], [[1], [1, 2]], np.zeros((2, 3, 4), np.int16), b"x", {}][rng.integers(8)]
        case _: return state if len(state) != game.state_size else state[None, :-1]


def pass_states(games, rng, count, seen):
    accepting = [(game, takers(game)) for game in games]
    for _ in range(count):
        game, functions = accepting[rng.integers(len(games))]
        state = strange_state(game, games, rng)
        try: functions[rng.integers(len(functions))](state)
        except ValueError as error:
            check_sentence(error, game, state)
            seen["states refused"] += 1
        else:
            assert isinstance(state, (list, dict)) and not len(state), (game, state)   # A block of no states is one
            seen["empty blocks"] += 1


def main(count, seed):
    games, rng, seen = [get_game(name) for name in NAMES], np.random.default_rng(seed), Counter()
    seen.update({"files refused": 0, "files read": 0, "states refused": 0, "empty blocks": 0})
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.realpath(folder)

        watching = []

        def watch(event, arguments):
            if not watching: return
            if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pickle.find_class",
                         "os.remove", "os.rename", "os.mkdir", "socket.connect", "exec"):
                raise SystemExit(f"{event} {arguments}")
            if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
                if not os.path.realpath(arguments[0]).startswith(place): raise SystemExit(f"wrote {arguments[0]}")
        for game in games:   # Everything is compiled before the watch begins
            _, state = line_of(game, np.random.default_rng(1))   # A solver thinks long about the start
            for function in takers(game):
                try: function(state)
                except ValueError: pass
        for _ in range(10): read_files(games, rng, 4, Path(folder), Counter())
        sys.addaudithook(watch)
        watching.append(True)
        try:
            read_files(games, rng, count, Path(folder), seen)
            pass_states(games, rng, count, seen)
        finally: watching.clear()
    print(json.dumps(seen))


if __name__ == "__main__": main(*map(int, sys.argv[1:]))
