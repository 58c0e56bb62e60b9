"A Ray cluster of two nodes on this machine: nodes die and join, drivers are killed, and the games are those of threads."
import io
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import types
import zipfile
from collections import Counter
from pathlib import Path

import psutil
import pytest

from alphazero_nb.cli import main
from alphazero_nb.core.events import GameFinished, NodesStatus, WorkerLost
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.search.search import SearchSettings
from alphazero_nb.selfplay import cluster as cluster_page, layout as layouts
from alphazero_nb.selfplay.actors import ActorPool
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.layout import plan_layout
from alphazero_nb.selfplay.scheduler import GameScheduler, play_games
from alphazero_nb.selfplay.settings import SelfPlaySettings
from alphazero_nb.training.replay import Replay

try: import ray
except ImportError: ray = None
needs_ray = pytest.mark.skipif(ray is None, reason="Ray is not installed")
ONE = dict(num_cpus=1, object_store_memory=80 << 20, no_monitor=True, include_log_monitor=False)
TESTS = str(Path(__file__).parents[1])


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition(): assert time.monotonic() < end; time.sleep(.05)


def test_without_ray_one_sentence_says_what_to_install(monkeypatch, tmp_path, capsys):
    found = layouts.importlib.util.find_spec
    monkeypatch.setattr(layouts.importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else found(name, *rest))
    words = ["train", "tictactoe", "--iterations", "1", "--device", "cpu", "--folder", str(tmp_path / "run")]
    for option in (["--layout", "ray"], ["--ray", "auto"]):
        assert main([*words, *option]) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1 and 'pip install "alphazero_nb[ray]"' in line
    assert not (tmp_path / "run").exists()


@needs_ray
def test_a_late_start_of_ray_is_one_sentence(monkeypatch, tmp_path, capsys):
    def late(address=None, **options):
        if address != "local": raise ConnectionError("no cluster")
        raise Exception("The current node timed out during startup. This could happen because some of the raylet failed.")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", late)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    words = "train tictactoe --preset tiny --device cpu --iterations 1 --evaluate-every 0 --ray auto --folder"
    assert main([*words.split(), str(tmp_path / "run")]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "Ray has not started within the 30 s" in line and "Try again" in line


@needs_ray
def test_a_cluster_of_other_versions_is_one_sentence(monkeypatch):
    from alphazero_nb.selfplay.cluster import connect
    def other(address=None, **options): raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 1.0\n    Python: 3.8")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", other)
    with pytest.raises(ValueError, match="has other versions: Version mismatch: The cluster was started with: Ray: 1.0 Python: 3.8$"):
        connect("ray://there:10001")


RULES = """
import numpy as np
from alphazero_nb.core.python_game import PythonGame
from myhelp import LENGTH   # A module beside the package
from .names import NAME
from . import names


class Count:
    def __init__(self, seed): self.moves = 0
    def mover(self): return -1 if self.moves == LENGTH else self.moves % 2
    def legal(self): return [0, 1]
    def play(self, action): self.moves += 1
    def returns(self): return [1.0, -1.0]
    def observe(self): return np.array([self.moves])


def make(): return PythonGame(NAME, Count, players=2, actions=2, shape=(1,), max_length=4)
"""
ELSEWHERE = """
import pickle, sys
from alphazero_nb.selfplay.cluster import RemoteWorker
from alphazero_nb.selfplay.worker_process import unpack
expected, code, game = pickle.load(sys.stdin.buffer)
try: unpack(game)
except ModuleNotFoundError: print("not here")
worker = RemoteWorker(expected, False, [], code)
game = unpack(game)
print(game.name, game.over(game.state_after([0, 1, 0])), worker.folder.name in sys.path)
"""


def test_rules_of_a_package_reach_a_machine_that_has_none_of_it(tmp_path, monkeypatch):
    "The worker's side runs in a process that cannot see the folder of the rules."
    pickle = pytest.importorskip("cloudpickle")
    from alphazero_nb.selfplay.cluster import user_code, versions
    from alphazero_nb.selfplay.worker_process import pack
    package = tmp_path / "mygames"
    (package / "__pycache__").mkdir(parents=True)
    for file, text in (("__init__.py", ""), ("counting.py", RULES), ("names.py", "NAME = 'counting'"), ("table.txt", "data")):
        (package / file).write_text(text)
    (tmp_path / "myhelp.py").write_text("LENGTH = 3\n")
    (tmp_path / "unused.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    import mygames.counting
    game = mygames.counting.make()
    code = user_code(game, PolicyValueNet(game, "tiny"))
    assert sorted(zipfile.ZipFile(io.BytesIO(code)).namelist()) == [
        "mygames/__init__.py", "mygames/counting.py", "mygames/names.py", "mygames/table.txt", "myhelp.py"]
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], input=pickle.dumps((versions(), code, pack(game))), cwd=tmp_path.parent,
                          capture_output=True, env=dict(os.environ, PYTHONPATH=str(Path(TESTS).parent)), timeout=600)
    assert done.stdout.decode().splitlines() == ["not here", "counting True True"], done.stderr.decode()


def test_what_is_installed_or_too_large_is_not_sent(tmp_path, monkeypatch):
    from alphazero_nb.selfplay import cluster
    assert not any(cluster.own_files(name) for name in ("alphazero_nb", "numpy", "json", "sys", "__main__", "no_such_module"))
    assert cluster.user_code(get_game("connect4"), None) == b""
    (tmp_path / "mylines.py").write_text("import json, numpy, nothing_here\nfrom functools import partial")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [name.name for _, name in cluster.own_files("mylines")] == ["mylines.py"]
    game = get_game("tictactoe")
    monkeypatch.setattr(cluster, "user_files", lambda game, network: [(tmp_path / "mylines.py", Path("mylines.py"))])
    monkeypatch.setattr(cluster, "MOST_CODE", 10)
    with pytest.raises(ValueError, match="the files of tictactoe have 0 MB, too many for other machines"): cluster.user_code(game, None)


def test_a_notebooks_function_takes_its_modules_along(tmp_path, monkeypatch):
    import functools
    from alphazero_nb.selfplay.cluster import user_files
    (tmp_path / "mytable.py").write_text("SIZE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import mytable
    cells = dict(__name__="__main__", mytable=mytable)
    exec("def make(seed, size): return mytable.SIZE", cells)
    game = types.SimpleNamespace(_arguments=(("a", functools.partial(cells["make"], size=3)), {}))
    assert [str(name) for _, name in user_files(game, None)] == ["mytable.py"]


@needs_ray
def test_a_worker_of_ray_gets_the_code(cluster, monkeypatch, tmp_path):
    from alphazero_nb.selfplay import cluster as page
    (tmp_path / "mycode.py").write_text("X = 1\n")
    monkeypatch.setattr(page, "is_far", lambda nodes: True)
    monkeypatch.setattr(page, "user_files", lambda game, network: [(tmp_path / "mycode.py", Path("mycode.py"))])
    game, rest = get_game("tictactoe"), dict(threads=1, games=32, max_batch=32)
    settings, scheduler = SelfPlaySettings(SearchSettings(simulations=8)), GameScheduler(run_ahead=False)
    pool = page.ClusterPool(game, None, plan_layout(game, None, layout="ray", **rest), settings, 7)
    try:
        pool.wait_ready()
        assert len(play(pool, scheduler, 40, Counter())) == 40
    finally: pool.close()


ENDED = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import patient_ray, ray
from alphazero_nb.core.registry import get_game
from alphazero_nb.selfplay.engine import SelfPlayEngine
ray.init("local", include_dashboard=False, log_to_driver=False, num_cpus=1, object_store_memory=80 << 20)
engine = SelfPlayEngine(get_game("tictactoe"), None, layout="ray", simulations=4, games=8, max_batch=8, threads=1)
engine.generate_games(8)
ray.shutdown()
engine.pool.supervisor.silence_s = 1   # Nobody will answer: 60 would only be waited for
try: engine.generate_games(200)
except RuntimeError as error: print(type(error).__name__, error)
engine.shutdown()
print(ray.is_initialized())
"""


@needs_ray
def test_nothing_calls_ray_after_its_end(monkeypatch):
    "A call would start another cluster. `make soak` tries it with a real one."
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for name in ("get", "kill", "nodes"): monkeypatch.setattr(ray, name, lambda *args, **options: pytest.fail("Ray was called"))
    pipe = cluster_page.RemotePipe(None)
    with pytest.raises(EOFError): pipe.recv_bytes()
    cluster_page.RemoteOutbox(None).put("play")
    process = cluster_page.RemoteProcess(cluster_page.RemotePipe(None))
    assert process.is_alive()
    process.kill()
    assert not process.is_alive() and cluster_page.ray_nodes() == []


@needs_ray
@pytest.mark.slow
def test_no_cluster_starts_by_itself_after_a_shutdown(tmp_path):
    room = tempfile.mkdtemp(prefix="ray")   # A short path, because sockets need one
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    try: done = subprocess.run([sys.executable, "-c", ENDED, TESTS], capture_output=True, text=True, timeout=600,
                               env=dict(environment, RAY_TMPDIR=room, PYTHONPATH=str(Path(TESTS).parent)))
    finally: shutil.rmtree(room, ignore_errors=True)
    assert done.stdout.splitlines()[-2:] == ["Failure no worker is left.", "False"], (done.stdout, done.stderr[-3000:])


@needs_ray
def test_no_more_workers_play_than_were_asked_for(cluster):
    "One is lost, and another one takes its place."
    game, rest = get_game("tictactoe"), dict(threads=1, games=32, max_batch=32)
    engine = SelfPlayEngine(game, None, layout="ray", workers=1, simulations=8, **rest)
    try:
        assert len(engine.generate_games(40)) == 40 and len(engine.pool.workers) == 1 < len(ray.nodes())
        with pytest.raises(ValueError, match="layouts are measured on one machine"): engine.calibrate()
        first, = engine.pool.workers
        first.process.kill()
        wait_for(lambda: [worker for worker in engine.pool.workers if worker is not first and worker.state != "starting"])
        assert len(engine.generate_games(40)) == 40 and len(engine.pool.workers) == 1
    finally: engine.shutdown()


AUTO = """
import sys
sys.path.insert(0, sys.argv[2])
import patient_ray
import psutil
import ray._private.services as services
from alphazero_nb.cli import main
services._find_address_from_flag = lambda flag: set()   # Clusters of other tests are not to be found
words = "train tictactoe --preset tiny --device cpu --iterations 2 --games-per-iter 8 --games 8 --simulations 4 --evaluate-every 0"
code = main([*words.split(), "--ray", "auto", "--folder", sys.argv[1]])
def listening(process):
    try: return process.name(), {one.laddr.ip for one in process.net_connections("inet") if one.status == "LISTEN"}
    except psutil.NoSuchProcess: return "", set()
found = [listening(process) for process in (psutil.Process(), *psutil.Process().children(recursive=True))]
assert {name for name, addresses in found if addresses} >= {"raylet", "gcs_server"}, found
print(sorted(set.union(*[addresses for _, addresses in found])))
sys.exit(code)
"""


@needs_ray
def test_auto_starts_a_cluster_of_its_own(tmp_path):
    "Only this machine can reach it, and it ends with the command."
    room = tempfile.mkdtemp(prefix="ray")   # A short path, because sockets need one
    try:
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        done = subprocess.run([sys.executable, "-c", AUTO, str(tmp_path / "run"), TESTS], timeout=900, capture_output=True,
                              text=True, env=dict(environment, RAY_TMPDIR=room))
        assert done.returncode == 0, done.stderr
        assert set(json.loads(done.stdout.splitlines()[-1].replace("'", '"'))) <= {"127.0.0.1", "::ffff:127.0.0.1"}
        assert "worker 0: " in done.stdout
        assert json.loads((tmp_path / "run/manifest.json").read_text())["iteration"] == 2
        def left(): return [process for process in psutil.process_iter(["cmdline"]) if room in " ".join(process.info["cmdline"] or ())]
        wait_for(lambda: not left())
    finally: shutil.rmtree(room, ignore_errors=True)


def start_cluster():
    "A head and another node, each with one core."
    import patient_ray
    from ray.cluster_utils import Cluster
    soon = dict(health_check_period_ms=500, health_check_timeout_ms=10_000, health_check_failure_threshold=3,
                enable_worker_prestart=False)   # The port of a killed node refuses at once
    cluster = Cluster()
    cluster.add_node(**ONE, include_dashboard=False, _system_config=soon)
    cluster.add_node(**ONE)
    return cluster


@pytest.fixture(scope="module")
def cluster():
    cluster = start_cluster()
    try:
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
    scheduler.request(count)
    generation, done = pool.start(scheduler), 0
    while (event := scheduler.events.get(timeout=900)) is not generation:
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
        wait_for(lambda: len(pool.workers) >= 2 and not pool.starting)
        played += play(pool, scheduler, 1000, sources)
    finally: pool.close()
    assert [record.number for record in played] == list(range(2000))
    threads = ActorPool(game, None, plan_layout(game, None, **rest), settings, 7)
    assert played == play_games(threads, 2000), "the games are not those of threads"
    lost = [event for event in iter(lambda: None if events.empty() else events.get(), None) if isinstance(event, WorkerLost)]
    assert len(lost) == 1 and lost[0].cause.endswith("its node"), lost
    assert len(sources) >= 3, f"the new node has played nothing: {sources}"


def rested(engine):
    """Wait until the workers have played as far ahead as they may. Return the games held, and the most that the scheduler allows.

    Four times `ahead` games may finish if a slow worker leaves a gap, and those that the workers have in hand."""
    scheduler, workers = engine.scheduler, engine.pool.workers
    wait_for(lambda: scheduler.full and all(worker.rests for worker in list(workers)))
    return len(engine.leftover()), 4 * scheduler.ahead + sum(worker.room for worker in list(workers))


@needs_ray
def test_workers_play_while_the_learner_learns(cluster):
    "Up to one call and the reserve ahead; the games of fixed weights are those of threads, and each record names its version."
    game, heard = get_game("tictactoe"), []
    network = PolicyValueNet(game, "tiny", seed=0)   # On any CPU, a position's value is the same in any row of a batch
    rest = dict(threads=1, max_batch=32, seed=5, settings=SelfPlaySettings(SearchSettings(simulations=16)))
    with SelfPlayEngine(game, network, layout="ray", games=32, play_on=True, listeners=[heard.append], **rest) as engine:
        engine.pool.wait_ready()
        games, before = engine.generate_games(100), engine.evaluations
        held, most = rested(engine)   # The learner learns
        wait_for(lambda: engine.evaluations > before)
        assert engine.scheduler.ahead == 100 + engine.layout.games <= held <= most
        games += engine.generate_games(400)   # More than are there
        engine.set_network(network)
        later = [engine.generate_games(100)]
        while any(record.version == 0 for record in later[-1]): later.append(engine.generate_games(100))
    versions = [record.version for part in later for record in part]
    assert set(versions) == {0, 1} and len(later) < 30, "games that began before come first, with their own version"
    with SelfPlayEngine(game, network, layout="threads", device="cpu", games=32, shared=False, listeners=(), **rest) as engine:
        assert games == engine.generate_games(500)
    statuses = [event for event in heard if isinstance(event, NodesStatus)]
    nodes, ages = statuses[-1], [status.age for status in statuses if status.age is not None]   # None: before the first game
    assert ages[:2] == [0, 0] and max(ages) > 0 and max(ages) <= 1, ages
    sources = {event.source for event in heard if isinstance(event, GameFinished)}
    assert sources <= set(nodes.nodes) and len(set(nodes.nodes.values())) == len(sources) >= 2
    assert nodes.received_mb > .1 and nodes.sent_mb > .001


@needs_ray
def test_new_weights_reach_a_cluster(cluster):
    "Twice: weights that are not the first to be sent reach it, too. The games are those of threads."
    game, found = get_game("tictactoe"), []
    first, *later = (PolicyValueNet(game, "tiny", seed) for seed in range(3))
    rest = dict(games=32, max_batch=32, threads=1, seed=5, simulations=16, reproducible=True, listeners=())
    for layout in (dict(layout="ray"), dict(layout="threads", device="cpu", shared=False)):
        with SelfPlayEngine(game, first, **layout, **rest) as engine:
            parts = [engine.generate_games(12)]
            for network in later:
                engine.set_network(network)
                parts.append(engine.generate_games(12))
        found.append(parts)
    assert found[0] == found[1]


def memory_mb(): return psutil.Process().memory_info().rss / 2**20


def learn_slowly(turns, calls=64):
    "Take games when the workers are as far ahead as they may be. Return the memory after each call."
    game, sizes = get_game("tictactoe"), []
    with SelfPlayEngine(game, None, layout="ray", threads=1, games=32, max_batch=32, simulations=16, play_on=True, listeners=()) as engine:
        engine.pool.wait_ready()
        replay = Replay(game, max_window=2000)
        for _ in range(turns):
            replay.add(engine.generate_games(calls))
            held, most = rested(engine)
            assert calls <= held <= most
            sizes.append(memory_mb())
    return sizes


@needs_ray
@pytest.mark.slow
def test_memory_is_flat_over_a_thousand_calls(cluster):
    sizes = learn_slowly(1000)
    assert max(sizes[len(sizes) // 2:]) - min(sizes[len(sizes) // 4:]) < 16, sizes


DRIVER = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from alphazero_nb.core.events import StepsTaken
from linear_run import OPTIONS, SETTINGS, Linear
from alphazero_nb.training.trainer import Trainer
def listen(event):
    if sys.argv[2] == "die" and isinstance(event, StepsTaken) and event.iteration == 2: os.kill(os.getpid(), signal.SIGKILL)
run = Trainer("tictactoe", network=Linear(), folder=sys.argv[1], train_settings=SETTINGS, listeners=(listen,), layout="ray",
              **{key: OPTIONS[key] for key in ("device", "simulations", "games", "max_batch", "threads", "seed")})
run.fit(iterations=5 - run.iteration)
print([record.number for record in run.folder.kept()])
"""


@needs_ray
@pytest.mark.slow
def test_a_killed_driver_goes_on(cluster, tmp_path):
    def drive(how):
        return subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path / "run"), how, TESTS], timeout=900, capture_output=True,
                              text=True, env=dict(os.environ, RAY_ADDRESS=cluster.address))
    killed = drive("die")
    assert killed.returncode == -9, killed.stderr
    assert json.loads((tmp_path / "run/manifest.json").read_text())["iteration"] == 2
    resumed = drive("live")
    assert resumed.returncode == 0, resumed.stderr
    rows = [json.loads(line) for line in (tmp_path / "run/iterations.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5]
    ahead = json.loads(resumed.stdout)
    assert ahead and min(ahead) >= 5 * 16 and len(set(ahead)) == len(ahead), "games that were played ahead are kept for the next start"


@needs_ray
def test_missing_nodes_are_named(cluster):
    from alphazero_nb.selfplay.cluster import wait_for_places
    with pytest.raises(ValueError, match=r"after 0.5 s the cluster has \d of 40 places for workers \(.*cpu0.*\); start more nodes"):
        wait_for_places(40, .5)
