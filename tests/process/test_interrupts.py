"""Ctrl-C ends a search that needs no network for a long time: each call runs in a process of its own, a copy of one
that has compiled everything, and gets a real interrupt."""
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and processes of Unix")
CHILD = '''
import os, signal, sys, threading, time
import numpy as np
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.arena.connect4_search import Connect4Search
from alphazero_nb.arena.hex_search import HexSearch
from alphazero_nb.arena.solvers import EndgameSolver, Unsolved
from alphazero_nb.arena.players import RolloutPlayer, get_player
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.one_game import GameSearch
from alphazero_nb.search.search import SearchSettings, search
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.settings import SelfPlaySettings
signal.signal(signal.SIGINT, signal.default_int_handler)   # Whoever started the tests may have had it ignored

# Every move ends the game, and a result takes 50 microseconds
def start(state, seed): pass
def mover(state): return -1 if state[0] else 0
def legal(state, actions):
    actions[0], actions[1] = 0, 1
    return 2
def play(state, action): state[0] = 1 + action
def returns(state, out):
    x = np.int64(state[0])
    for _ in range(30_000): x = x * 6364136223846793005 + 1442695040888963407
    out[0] = .5 if x else .25
    out[1] = -out[0]
def observe(state, planes): planes[0] = state[0]

class Short:
    def __init__(self, seed): self.moves = []
    def mover(self): return -1 if self.moves else 0
    def legal(self): return [0, 1]
    def play(self, action): self.moves.append(action)
    def returns(self): return [.5, -.5]
    def observe(self): return [len(self.moves)]

short = Game("short", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe, state_size=1, players=2,
             actions=2, shape=(1,), max_length=1)
slow = PythonGame("slow", Short, players=2, actions=2, shape=(1,), max_length=1)
def settings(n): return SearchSettings(n, proofs=False)
def searched(game, count, n): search(game, UniformEvaluator(game), np.stack([game.new()] * count), settings(n))
def acts(player, game): player.acts(game.new()[None])

def one_game(n):
    one = GameSearch(short, UniformEvaluator(short), settings(n), room=n)
    one.start(short.new())
    while one.step(n): pass

def self_play(n):
    with SelfPlayEngine(short, None, device="cpu", layout="threads", games=2, listeners=(),
                        settings=SelfPlaySettings(settings(n), fast_simulations=n)) as engine:
        engine.generate_games(2)

corner = np.eye(1, 25, dtype=np.int16)[0]   # One stone in the corner of 5 × 5 cells; a small table makes it take hours
dots, four, many = get_game("dots(rows=6,cols=6)"), get_game("connect4"), 10_000_000
def end_solver(n):
    try: EndgameSolver(get_game("othello(size=6)"), None if n == many else 10).results(get_game("othello(size=6)").new())
    except Unsolved: pass

calls = dict(   # A function of the calls, and the calls with a number of simulations
    search=("gather", lambda n: searched(short, 1, n)), block=("gather", lambda n: searched(short, 3, n)),
    leaves=("gather", lambda n: acts(Agent(short, UniformEvaluator(short), n, proofs=False), short)),
    python=("gather", lambda n: searched(slow, 1, n)), one_game=("gather", one_game), self_play=("advance", self_play),
    rollouts=("_search", lambda n: acts(RolloutPlayer(short, n), short)),
    minimax=("_act", lambda n: acts(get_player("minimax:12" if n == many else "minimax:1", dots), dots)),
    solver=("scores", lambda n: Connect4Search().scores(four.new(), limit=1 << 62 if n == many else 10)),
    hex_solver=("win", lambda n: HexSearch(5, 1024).win(corner, 1, np.array([1 << 62 if n == many else 10]))),
    end_solver=("_end", end_solver))

def interrupt(name):
    "Interrupt the main thread once a thread is inside this function."
    inside, thread = 0, threading.get_ident()
    while inside < 20:
        for number, frame in sys._current_frames().items():
            names = []
            while frame is not None and number != thread: names, frame = [*names, frame.f_code.co_name], frame.f_back
            if name in names:
                inside += 1
                break
        time.sleep(.005)
    print("interrupt", end=" ", flush=True)
    os.kill(os.getpid(), signal.SIGINT)

def run(name, call):
    "Run a call that is interrupted, and end this process."
    signal.alarm(600)   # A search that goes on ends here
    threading.Thread(target=interrupt, args=(name,), daemon=True).start()
    try: call(many)
    except KeyboardInterrupt:
        for thread in threading.enumerate():
            if "actor" in thread.name: thread.join()   # A thread of self-play stops, too
        print("stopped", end=" ", flush=True)
    sys.exit()

for name, call in calls.values(): call(20)   # Compiles everything: an interrupt of the compiler is another matter
for key, what in calls.items():
    assert threading.active_count() == 1, threading.enumerate()   # A copy of this process has no other thread
    print(key, end=" ", flush=True)
    child = os.fork()
    if child == 0: run(*what)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
'''
CALLS = ["search", "block", "leaves", "python", "one_game", "self_play", "rollouts", "minimax", "solver", "hex_solver", "end_solver"]


def test_an_interrupt_ends_a_search_that_needs_no_network():
    "Without the interrupt each of them takes several minutes or more."
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=6000)
    assert done.stdout.splitlines() == [f"{call} interrupt stopped 0" for call in CALLS], done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
