"How a cluster scales if its accelerators and not the cores of this machine are the limit."
import time

import pytest
import torch
from torch import nn

from alphazero_nb.core.game import get_game
from alphazero_nb.search.search import SearchSettings
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.settings import SelfPlaySettings

ray = pytest.importorskip("ray")
ROWS, BATCH_S = 128, .02


class Accelerator(nn.Module):
    "Takes 20 ms for 128 rows and no time of a core."
    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(1))

    def forward(self, planes):
        time.sleep(BATCH_S * -(-len(planes) // ROWS))
        return torch.zeros(len(planes), 9), torch.zeros(len(planes), 2)


def evaluations_per_s(actors, seconds, monkeypatch):
    "Speed of so many actors, each with an accelerator of its own."
    from alphazero_nb.selfplay import cluster
    monkeypatch.setattr(cluster, "CORES", 1)   # A place for every core
    ray.init(num_cpus=actors, include_dashboard=False, log_to_driver=False, object_store_memory=80 << 20)
    try:
        settings = SelfPlaySettings(SearchSettings(simulations=64), full_search_fraction=1)
        with SelfPlayEngine(get_game("tictactoe"), Accelerator(), layout="ray", threads=2, games=2 * ROWS, max_batch=ROWS,
                            shared=True, settings=settings, listeners=()) as engine:
            engine.pool.wait_ready()
            assert len(engine.pool.workers) == actors
            engine.play_for(2)
            before = engine.evaluations
            took = engine.play_for(seconds)
            time.sleep(.6)   # For the last report of each actor
            return (engine.evaluations - before) / took
    finally: ray.shutdown()


@pytest.mark.slow
def test_actors_scale_with_their_accelerators(monkeypatch):
    speeds = {actors: evaluations_per_s(actors, 10, monkeypatch) for actors in (1, 2, 4, 8)}
    print(speeds)
    for actors, speed in speeds.items():
        assert speed > .9 * actors * speeds[1], speeds
