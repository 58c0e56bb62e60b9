"A Ray cluster of three nodes on this machine: nodes die and join, drivers are killed, and the games are those of threads."
import json
import os
import queue
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from alphazero_nb.cli import main
from alphazero_nb.core.events import WorkerLost
from alphazero_nb.core.game import get_game
from alphazero_nb.search.search import SearchSettings
from alphazero_nb.selfplay import layout as layouts
from alphazero_nb.selfplay.actors import ActorPool
from alphazero_nb.selfplay.layout import plan_layout
from alphazero_nb.selfplay.scheduler import GameScheduler, play_games
from alphazero_nb.selfplay.settings import SelfPlaySettings

try: import ray
except ImportError: ray = None
needs_ray = pytest.mark.skipif(ray is None, reason="Ray is not installed")
ONE = dict(num_cpus=1, object_store_memory=80 << 20)
TESTS = str(Path(__file__).parents[1])


def test_without_ray_one_sentence_says_what_to_install(monkeypatch, tmp_path, capsys):
    found = layouts.importlib.util.find_spec
    monkeypatch.setattr(layouts.importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else found(name, *rest))
    words = ["train", "tictactoe", "--iterations", "1", "--device", "cpu", "--folder", str(tmp_path / "run")]
    for option in (["--layout", "ray"], ["--ray", "auto"]):
        assert main([*words, *option]) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1 and 'pip install "alphazero_nb[ray]"' in line
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def cluster():
    "A head and two more nodes, each with one core."
    from ray.cluster_utils import Cluster
    soon = dict(health_check_period_ms=500, health_check_timeout_ms=1000, health_check_failure_threshold=3)
    cluster = Cluster(True, head_node_args=dict(ONE, include_dashboard=False, _system_config=soon))
    try:
        for _ in range(2): cluster.add_node(**ONE)
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def workers(cluster):
    "The nodes that may be killed: all but the head."
    return [node for node in cluster.list_all_nodes() if node is not cluster.head_node]


def play(pool, scheduler, count, sources, at=0, action=None):
    "Play the next games on the cluster, and act once `at` of them have finished. Return them."
    scheduler.want(count)
    generation, done = pool.start(scheduler), 0
    while (event := scheduler.events.get(timeout=100)) is not generation:
        sources[event.source], done = sources[event.source] + 1, done + 1
        if done == at: action()
    if generation.error: raise generation.error
    return scheduler.take()


@needs_ray
def test_a_node_dies_and_another_joins(cluster):
    from alphazero_nb.selfplay.cluster import ClusterPool
    game, events, sources = get_game("tictactoe"), queue.SimpleQueue(), Counter()
    settings, rest = SelfPlaySettings(SearchSettings(simulations=50)), dict(threads=1, games=32, max_batch=32)
    def replace_node():
        cluster.remove_node(workers(cluster)[0], allow_graceful=False)
        cluster.add_node(**ONE)
    pool, scheduler = ClusterPool(game, None, plan_layout(game, None, layout="ray", **rest), settings, 7, events=events), GameScheduler(run_ahead=False)
    try:
        pool.wait_ready()
        played = play(pool, scheduler, 1000, sources, 300, replace_node)
        end = time.monotonic() + 60
        while (len(pool.workers) < 3 or pool.starting) and time.monotonic() < end: time.sleep(.05)
        played += play(pool, scheduler, 1000, sources)
    finally: pool.close()
    assert [record.number for record in played] == list(range(2000))
    threads = ActorPool(game, None, plan_layout(game, None, **rest), settings, 7)
    assert played == play_games(threads, 2000), "the games are not those of threads"
    lost = [event for event in iter(lambda: None if events.empty() else events.get(), None) if isinstance(event, WorkerLost)]
    assert len(lost) == 1 and lost[0].cause.endswith("its node"), lost
    assert len(sources) == 4, f"the new node has played nothing: {sources}"


DRIVER = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from alphazero_nb.core.events import StepsTaken
from run_v1 import OPTIONS, SETTINGS, Linear
from alphazero_nb.training.trainer import Trainer
def listen(event):
    if sys.argv[2] == "die" and isinstance(event, StepsTaken) and event.iteration == 2: os.kill(os.getpid(), signal.SIGKILL)
run = Trainer("tictactoe", network=Linear(), folder=sys.argv[1], train_settings=SETTINGS, listeners=(listen,), layout="ray",
              **{key: OPTIONS[key] for key in ("device", "simulations", "games", "max_batch", "threads", "seed", "reproducible")})
run.fit(iterations=5 - run.iteration)
"""


@needs_ray
def test_a_killed_driver_goes_on(cluster, tmp_path):
    def drive(how):
        return subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path / "run"), how, TESTS], timeout=150, capture_output=True,
                              text=True, env=dict(os.environ, RAY_ADDRESS=cluster.address))
    killed = drive("die")
    assert killed.returncode == -9, killed.stderr
    assert json.loads((tmp_path / "run/manifest.json").read_text())["iteration"] == 2
    resumed = drive("live")
    assert resumed.returncode == 0, resumed.stderr
    rows = [json.loads(line) for line in (tmp_path / "run/iterations.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5]


@needs_ray
def test_missing_nodes_are_named(cluster):
    from alphazero_nb.selfplay.cluster import wait_for_places
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"after 0.5 s the cluster has \d of 40 places for actors \(.*cpu0.*\); start more nodes"):
        wait_for_places(40, .5)
    assert time.monotonic() - start < 10
