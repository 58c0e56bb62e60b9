"""Measure how a Ray cluster scales, and a worker of it beside a process, in alternating windows of one run.

    python tools/bench_cluster.py --out bench.json

The first part has nodes on this machine, each with an accelerator that takes 20 ms for 128 positions and no time of a
core, so that accelerators and not cores are the limit. The second part plays Connect Four with the small network.
Nothing else should run on the machine."""
import argparse, json, os, statistics, sys, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path: sys.path.insert(0, str(ROOT))
os.environ.setdefault("RAY_worker_niceness", "0")   # As processes have it; a cluster of the package sets it, too

import torch
from torch import nn

from alphazero_nb.benchmark import machine_facts
from alphazero_nb.core.device import usable_cores
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.search.search import SearchSettings
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.settings import SelfPlaySettings

ROWS, BATCH_S, MEMORY = 128, .02, 80 << 20


class Accelerator(nn.Module):
    "A network for Connect Four that takes 20 ms for 128 rows and no time of a core."
    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(1))

    def forward(self, planes):
        time.sleep(BATCH_S * -(-len(planes) // ROWS))
        return torch.zeros(len(planes), 7), torch.zeros(len(planes), 2)


def evaluations_per_s(engine: SelfPlayEngine, seconds: float) -> float:
    "Return the evaluations per second of a window, after a short one that is not counted."
    engine.play_for(2)
    before = engine.evaluations
    took = engine.play_for(seconds)
    time.sleep(.6)   # For the last report of each worker
    return (engine.evaluations - before) / took


def wait_for_workers(pool, count: int, timeout_s: float = 600) -> None:
    "Wait until so many workers play. Raise a TimeoutError if they do not come."
    end = time.monotonic() + timeout_s
    while len(pool.workers) < count or pool.starting:
        if time.monotonic() > end: raise TimeoutError(f"only {len(pool.workers) - pool.starting} of {count} workers play.")
        time.sleep(.2)


def measure_scale(ray, counts: tuple, seconds: float) -> dict:   # Workers -> evaluations per second
    "Measure a cluster whose nodes join one after another, each with an accelerator of its own."
    from ray.cluster_utils import Cluster
    node = dict(num_cpus=1, object_store_memory=MEMORY)
    cluster, speeds = Cluster(True, head_node_args=dict(node, include_dashboard=False)), {}
    settings = SelfPlaySettings(SearchSettings(simulations=64), full_search_fraction=1)
    try:
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        with SelfPlayEngine(get_game("connect4"), Accelerator(), layout="ray", threads=2, games=2 * ROWS,
                            max_batch=ROWS, shared=True, settings=settings, listeners=()) as engine:
            for workers in counts:
                while len(cluster.list_all_nodes()) < workers: cluster.add_node(**node)
                wait_for_workers(engine.pool, workers)
                speeds[workers] = evaluations_per_s(engine, seconds)
    finally:
        ray.shutdown()
        cluster.shutdown()
    return speeds


def measure_worker(ray, windows: int, seconds: float) -> list[float]:
    "Return the evaluations per second of a cluster's worker over those of a process, for each window."
    game, cores = get_game("connect4"), usable_cores()
    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, object_store_memory=MEMORY)
    options = dict(device="cpu", threads=cores, games=128 * cores, max_batch=128, shared=False, listeners=())
    try:
        with (SelfPlayEngine(game, PolicyValueNet(game, "small"), layout="ray", **options) as worker,
              SelfPlayEngine(game, PolicyValueNet(game, "small"), layout="processes", workers=1, **options) as process):
            for engine in (worker, process): engine.pool.wait_ready(600)
            return [evaluations_per_s(worker, seconds) / evaluations_per_s(process, seconds) for _ in range(windows)]
    finally: ray.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--windows", type=int, default=6, help="windows of the second part; default: 6")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a window; default: 8")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8], help="default: 1 2 4 8")
    parser.add_argument("--out", metavar="FILE", help="write the result as JSON")
    args = parser.parse_args()
    try: import ray
    except ImportError: raise SystemExit('bench_cluster needs Ray: pip install "alphazero_nb[ray]"') from None
    speeds = measure_scale(ray, args.workers, args.seconds)
    for workers, speed in speeds.items():
        print(f"{workers} workers: {speed:,.0f} evaluations/s, {speed / speeds[args.workers[0]]:.2f} times the first")
    ratios = measure_worker(ray, args.windows, args.seconds)
    print(f"a worker against a process: {statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})")
    found = dict(evaluations_per_s=speeds, actor_over_process=ratios, machine=machine_facts())
    if args.out: Path(args.out).write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
