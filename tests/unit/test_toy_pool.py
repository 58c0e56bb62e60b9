"A pool written from the contracts alone plays, for an engine, the games of threads."
import threading
from dataclasses import replace

import pytest

from alphazero_nb.core.registry import get_game
from alphazero_nb.core.streams import Purpose, derive_seed
from alphazero_nb.network.evaluator import NetworkEvaluator
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.selfplay.contracts import GamePool, Generation, PoolReport
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.layout import LAYOUTS, plan_layout
from alphazero_nb.selfplay.pools import POOLS, register_pool
from alphazero_nb.selfplay.slots import SlotBlock

pytestmark = pytest.mark.usefixtures("one_thread_inside")
ROWS = 16   # Of a batch: a row's value depends on their number


class OneGame:
    "One thread, one game at a time, one position in a batch."
    dtype, starting, plays_on, spare_actors = "float32", 0, False, 0

    def __init__(self, game, network, layout, settings, seed, version=0, events=None):
        self.layout, self.seed, self.version, self.generation = layout, seed, version, None
        self.block = SlotBlock(game, 1, settings)
        self.evaluator = NetworkEvaluator(game, network, "cpu", shapes=(ROWS,))

    def start(self, source, actors=None):
        self.join()
        self.generation = Generation(source, actors=1)
        self.thread = threading.Thread(target=self.play, args=[self.generation], daemon=True)
        self.thread.start()
        return self.generation

    def play(self, generation):
        error = None
        try:
            while not generation.stopping and generation.source.open:
                number = generation.source.draw()
                if number is not None: generation.source.finish(self.game(number), "one game")
                elif not generation.source.wait(): break
        except BaseException as problem: error = problem
        finally: generation.leave(error)

    def game(self, number):
        self.block.begin(0, number, derive_seed(self.seed, Purpose.SELF_PLAY, number), self.version)
        self.block.advance()
        while self.block.requests.count:
            self.block.submit(self.evaluator)
            self.block.receive()
            self.block.advance()
        return self.block.collect()[0]

    def stop(self): self.generation and self.generation.stop()
    def join(self): self.generation and self.thread.join()
    def wait_ready(self, timeout_s=120.0): pass
    def set_network(self, network, version): self.evaluator.set_network(network); self.version = version
    def report(self): return PoolReport(self.block.evaluations, batches=self.block.batches, busy_s=self.block.busy_s)
    def reports(self): return {"one game": self.report()}
    def close(self): self.stop(); self.join()


@pytest.fixture
def kind():
    register_pool("one game", OneGame)
    yield "one game"
    del POOLS["one game"]
    LAYOUTS.remove("one game")


def play(kind, name="tictactoe", fails=None):
    "Two generations of games of an engine, with other weights in the second."
    game, heard = get_game(name), []
    networks = [PolicyValueNet(game, preset="tiny", seed=seed) for seed in (0, 1)]
    layout = replace(plan_layout(game, networks[0], "cpu", kind, threads=1, games=ROWS, max_batch=ROWS), max_rows=ROWS)
    with SelfPlayEngine(game, networks[0], layout=layout, simulations=8, seed=3, reproducible=True, listeners=[heard.append]) as engine:
        first = engine.generate_games(12)
        engine.set_network(networks[1])
        return first + engine.generate_games(12), engine.pool, heard


@pytest.mark.parametrize("name", ["tictactoe", "pig(goal=20)"])
def test_the_games_are_those_of_threads(kind, name):
    games, pool, heard = play(kind, name)
    assert isinstance(pool, OneGame) and games == play("threads", name)[0] and len(games) == 24
    assert pool.report().evaluations > 24 and [record.version for record in games] == [0] * 12 + [1] * 12 and heard


def test_it_has_what_the_contract_names(kind):
    pool = play(kind)[1]
    names = [name for name in vars(GamePool) if not name.startswith("_")] + list(GamePool.__annotations__)
    assert len(names) == 13 and [name for name in names if not hasattr(pool, name)] == []


def test_its_error_reaches_the_caller(kind, monkeypatch):
    def broken(pool, number): raise OSError(f"no board for game {number}")
    monkeypatch.setattr(OneGame, "game", broken)
    with pytest.raises(OSError, match="no board for game 0"): play(kind)
