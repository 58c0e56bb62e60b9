"How a cluster scales if its accelerators and not the cores of this machine are the limit."
import statistics
import time

import pytest
import torch
from torch import nn

from alphazero_nb.core.device import usable_cores
from alphazero_nb.core.game import get_game
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.search.search import SearchSettings
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.settings import SelfPlaySettings

ray = pytest.importorskip("ray")
ROWS, BATCH_S = 128, .02
ONE = dict(num_cpus=1, object_store_memory=80 << 20)


class Accelerator(nn.Module):
    "Takes 20 ms for 128 rows and no time of a core."
    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(1))

    def forward(self, planes):
        time.sleep(BATCH_S * -(-len(planes) // ROWS))
        return torch.zeros(len(planes), 7), torch.zeros(len(planes), 2)


def evaluations_per_s(engine, seconds):
    engine.play_for(2)
    before = engine.evaluations
    took = engine.play_for(seconds)
    time.sleep(.6)   # For the last report of each actor
    return (engine.evaluations - before) / took


def wait_for_actors(pool, count, timeout_s=600):
    end = time.monotonic() + timeout_s
    while len(pool.workers) < count or pool.starting:
        assert time.monotonic() < end, f"{len(pool.workers) - pool.starting} of {count} actors play"
        time.sleep(.2)


@pytest.mark.slow
def test_actors_scale_with_their_accelerators():
    "Nodes join, each with an accelerator of its own. Tables would answer most questions of tic-tac-toe."
    from ray.cluster_utils import Cluster
    cluster, speeds = Cluster(True, head_node_args=dict(ONE, include_dashboard=False)), {}
    try:
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        settings = SelfPlaySettings(SearchSettings(simulations=64), full_search_fraction=1)
        with SelfPlayEngine(get_game("connect4"), Accelerator(), layout="ray", threads=2, games=2 * ROWS,
                            max_batch=ROWS, shared=True, settings=settings, listeners=()) as engine:
            for actors in (1, 2, 4, 8):
                while len(cluster.list_all_nodes()) < actors: cluster.add_node(**ONE)
                wait_for_actors(engine.pool, actors)
                speeds[actors] = evaluations_per_s(engine, 8)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print({actors: round(speed) for actors, speed in speeds.items()})
    for actors, speed in speeds.items():
        assert abs(speed / (actors * speeds[1]) - 1) < .1, speeds


@pytest.mark.slow
def test_an_actor_is_as_fast_as_a_process(monkeypatch):
    "Connect Four and the small network, by turns, in a cluster with the priority that the package gives its own."
    monkeypatch.setenv("RAY_worker_niceness", "0")
    game, cores, ratios = get_game("connect4"), usable_cores(), []
    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, object_store_memory=80 << 20)
    try:
        rest = dict(device="cpu", threads=cores, games=128 * cores, max_batch=128, shared=False, listeners=())
        with (SelfPlayEngine(game, PolicyValueNet(game, "small"), layout="ray", **rest) as actor,
              SelfPlayEngine(game, PolicyValueNet(game, "small"), layout="processes", workers=1, **rest) as process):
            for engine in (actor, process): engine.pool.wait_ready(200)
            assert len(actor.pool.workers) == len(process.pool.workers) == 1
            for _ in range(6):
                one, other = [evaluations_per_s(engine, 5) for engine in (actor, process)]
                ratios.append(one / other)
    finally: ray.shutdown()
    print([round(ratio, 3) for ratio in ratios])
    assert statistics.median(ratios) > .95, ratios
