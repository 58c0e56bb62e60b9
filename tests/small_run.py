"A small run, the weights it saved, whether two of them differ, and play that lasts until it can be measured."
import time

import numpy as np

from alphazero_nb.network.checkpoint import network_arrays
from alphazero_nb.network.saved_run import load_network
from alphazero_nb.selfplay import calibration
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.trainer import Trainer

SMALL = dict(preset="tiny", device="cpu", simulations=8, games=16, max_batch=16, threads=1, shared=False, listeners=())
QUICK = TrainSettings(games_per_iteration=16, batch_size=32, replay_ratio=2, min_replay_ratio=2, evaluate_every=0)


def trainer(folder, game="tictactoe", **options):
    return Trainer(game, folder=folder, **dict(dict(SMALL, train_settings=QUICK), **options))


def weights(folder): return network_arrays(load_network(folder)[1])


def differ(a, b):
    "Names of the arrays that are not the same to the last bit."
    return [name for name in sorted(a.keys() | b.keys()) if name not in a or name not in b or not np.array_equal(a[name], b[name])]


def games_of_threads(game, network, threads, count):
    "Games that so many threads of one engine play, eight at a time."
    with SelfPlayEngine(game, network, device="cpu", simulations=8, games=8, threads=threads, layout="threads") as engine:
        return engine.generate_games(count)


def play_until_evaluated(pool, scheduler, seconds, play_for=calibration.play_for):
    "Play as `play_for`, again and again until positions have been evaluated. Return the time."
    before, took = pool.report().answers, play_for(pool, scheduler, seconds)
    while pool.report().answers == before: took += play_for(pool, scheduler, seconds)
    return took


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "what was waited for did not happen"
        time.sleep(.002)
