"An engine that is dropped without a shutdown, as when a cell of a notebook runs again, leaves no thread and no network."
import gc
import threading
import time
import weakref

import numpy as np
import psutil
import pytest

from alphazero_nb.core.registry import get_game
from alphazero_nb.network.evaluator import BatchedEvaluator, NetworkEvaluator
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.selfplay.engine import SelfPlayEngine

GAME = get_game("tictactoe")
SMALL = dict(device="cpu", simulations=8, games=32, max_batch=16, listeners=())


def threads() -> set:
    return {thread for thread in threading.enumerate() if thread.name.startswith(("alphazero_nb", "BatchedEvaluator"))}


def wait(condition):
    "Wait until a condition holds, with a limit that only catches hangs."
    end = time.monotonic() + 600
    while not condition() and time.monotonic() < end:
        gc.collect()
        time.sleep(.02)
    assert condition()


@pytest.mark.parametrize("options", [dict(shared=True, threads=2), dict(shared=False, threads=2, play_on=True),
                                     dict(shared=False, threads=1)], ids=["shared", "plays on", "alone"])
@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_a_dropped_engine_leaves_no_thread_and_no_network(options, in_a_cycle):
    before = threads()
    engine = SelfPlayEngine(GAME, PolicyValueNet(GAME, "tiny"), **SMALL, **options)
    assert len(engine.generate_games(8)) == 8
    if in_a_cycle: engine.me = engine
    left = [weakref.ref(thing) for thing in (engine, engine.pool, engine.pool.inference.network, engine.network)]
    del engine
    wait(lambda: all(reference() is None for reference in left) and threads() <= before)


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_a_dropped_evaluator_leaves_no_thread_and_no_network(overlaps, in_a_cycle):
    before, network = threads(), PolicyValueNet(GAME, "tiny")
    bare = NetworkEvaluator(GAME, network, device="cpu", shapes=(8,))
    bare.overlaps = overlaps   # With a second thread, as on a GPU
    shared = BatchedEvaluator(bare, max_batch=8)
    ask = np.zeros((1, GAME.input_size), np.int8), np.array([0, 9], np.int32), np.arange(9, dtype=np.int32)
    assert shared.evaluate(*ask)[1].shape == (1, 2) and threads() > before
    if in_a_cycle: shared.me = shared
    left = [weakref.ref(thing) for thing in (shared, bare, network)]
    del shared, bare, network
    wait(lambda: all(reference() is None for reference in left) and threads() <= before)


def alive(process):
    try: return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess: return False


def test_a_dropped_engine_ends_its_workers():
    engine = SelfPlayEngine(GAME, None, workers=2, **SMALL)
    assert len(engine.generate_games(8)) == 8
    workers = [psutil.Process(worker.process.pid) for worker in engine.pool.workers]   # Other tests have children, too
    assert len(workers) == 2 and all(map(alive, workers))
    del engine
    wait(lambda: not any(map(alive, workers)))


def test_a_new_layout_keeps_its_pool():
    "The pool of the layout before is closed; that of the engine is not."
    engine = SelfPlayEngine(GAME, PolicyValueNet(GAME, "tiny"), shared=True, threads=2, **SMALL)
    first = weakref.ref(engine.pool)
    engine.use(engine.layout)
    wait(lambda: first() is None)
    assert len(engine.generate_games(8)) == 8
    engine.shutdown()


def test_what_a_program_has_just_played_is_not_the_oldest():
    "The same position again, and then a table that is full."
    from alphazero_nb.arena.external import EngineLine, EngineSpec, ProgramPlayer
    class Text(ProgramPlayer):
        def move_text(self, state, action): return str(action)
    game, nothing = get_game("tictactoe"), EngineLine(())
    player = Text(game, EngineSpec("none"), "none")
    player._remember(game.new(), 0, nothing, 0)                  # Eight positions
    player._remember(game.state_after([0, 1]), 2, nothing, 0)    # Six more
    player._remember(game.new(), 0, nothing, 0)                  # The eight again
    player.room = 14
    player._remember(game.state_after([0, 2]), 1, nothing, 0)    # Six have to go
    assert player._find(game.state_after([0, 1])) is not None
