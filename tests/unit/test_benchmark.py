"A dashboard's price is measured: the processor time of the listener alone, and memory that would betray a page that is kept."
import functools
import threading
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from alphazero_nb import bench_fixtures, benchmark
from alphazero_nb.core.events import Events
from alphazero_nb.core.device import get_device
from alphazero_nb.core.registry import get_game
from alphazero_nb.ui.dashboard import DashboardState, render
from alphazero_nb.selfplay import calibration
from alphazero_nb.selfplay.actors import ActorPool
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.layout import plan_layout
from alphazero_nb.selfplay.scheduler import GameScheduler
from alphazero_nb.selfplay.settings import SelfPlaySettings
from alphazero_nb.bench_fixtures import HiddenDashboard, SimulatedGPU, Stopwatch, past_run, redraw_growth
from alphazero_nb.benchmark import (bare_rate, bench_dashboard, bench_gpu_way, bench_kernels, bench_machine,
                                    full_searches)
from small_run import play_until_evaluated


class Clock:
    "Processor time, which passes while this thread computes, and time, which passes while it waits as well."
    computed = now = 0.0
    def thread_time(self): return self.computed
    def perf_counter(self): return self.now
    monotonic = perf_counter
    def compute(self, seconds): self.computed, self.now = self.computed + seconds, self.now + seconds
    def sleep(self, seconds): self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(bench_fixtures, "time", Clock())
    return bench_fixtures.time


def test_a_stopwatch_counts_what_is_computed_and_not_what_is_waited_for(clock):
    busy, idle = Stopwatch(lambda event: clock.compute(.5)), Stopwatch(lambda event: clock.sleep(2))
    for _ in range(2): busy(None), idle(None)
    assert (busy.cpu_s, idle.cpu_s) == (1, 0) and busy.events == idle.events == 2


def test_a_stopwatch_hides_no_failure():
    told = []
    events = Events([Stopwatch(lambda event: 1 / 0), told.append])
    with pytest.warns(UserWarning, match="ZeroDivisionError"): events.emit("an event")
    assert len(events.listeners) == 1 and "ZeroDivisionError" in told[0].text


def test_listeners_that_fail_together_are_each_removed():
    events = Events([lambda event: 1 / 0, lambda event: [][1]])
    with pytest.warns(UserWarning, match="ZeroDivisionError"), pytest.warns(UserWarning, match="IndexError"): events.emit("an event")
    assert events.listeners == []


@pytest.mark.parametrize("calls", [0, 3])
def test_an_error_in_the_forward_pass_ends_its_measurement(calls):
    def forward(planes, left=iter(range(calls))):
        if next(left, None) is None: raise ValueError("no kernel fits")
        return planes, planes
    with pytest.raises(ValueError, match="no kernel fits"):
        bare_rate(forward, get_game("tictactoe"), get_device("cpu"), 1, 2, 1, .2)


def test_a_window_in_which_a_busy_machine_did_nothing_is_repeated(monkeypatch):
    "The first windows end before a single question is asked, as they do for a process that gets no core."
    def play_for(pool, scheduler, seconds): return next(waits, None) or played(pool, scheduler, seconds)
    played, waits = calibration.play_for, iter([.25, .25])
    monkeypatch.setattr(calibration, "play_for", play_for)
    game, scheduler = get_game("tictactoe"), GameScheduler()
    layout = plan_layout(game, None, layout="threads", threads=1, games=16)
    with closing(ActorPool(game, None, layout, SelfPlaySettings(), 0)) as pool:
        row = calibration.measure_window(pool, scheduler, .05)
        answers = pool.report().answers
    assert row["evals_per_s"] > 0 and answers / row["evals_per_s"] > .5, "the lost time counts"


def test_a_window_in_which_nothing_is_ever_computed_ends():
    assert calibration.play_window(lambda seconds: .25, lambda: 7, .25, limit_s=0) == .25


def test_the_bare_network_is_measured_however_late_its_turn_comes(monkeypatch):
    class Late(threading.Barrier):
        def wait(self):
            super().wait()
            if threading.current_thread() is not threading.main_thread(): time.sleep(.3)
    monkeypatch.setattr(threading, "Barrier", Late)
    assert bare_rate(lambda planes: (planes, planes), get_game("tictactoe"), get_device("cpu"), 4, 2, 1, .01) > 0


def test_a_page_that_is_kept_is_found(tmp_path):
    class Hoarder(HiddenDashboard):
        kept = []

        def draw(self):
            super().draw()
            self.kept.append(self.page)
    tidy, hoarder, start = HiddenDashboard(), Hoarder(), past_run(tmp_path, 50)
    for dashboard in (tidy, hoarder): dashboard(start)
    assert redraw_growth(tidy, 30) < 50_000
    assert redraw_growth(hoarder, 20) > 18 * len(hoarder.page) and len(hoarder.page) > 5000


def test_the_curves_are_as_long_as_the_run_was(tmp_path):
    state = DashboardState()
    state(past_run(tmp_path, 50))
    assert len(state.iterations) == 50 and len(state.matches) == 10 and "iteration 50" in render(state)


def test_the_price_of_a_dashboard():
    bench = bench_dashboard("tictactoe", "tiny", simulations=8, device="cpu", seconds=.6, iterations=20, redraws=20, games=32)
    assert not bench["shown"] and bench["seconds"] >= .6 and bench["events"] >= 32
    assert 0 < bench["listener_cpu_s"] < bench["process_cpu_s"] and bench["memory_growth_bytes"] < 20 * bench["page_bytes"]
    assert 0 < bench["share"] < 1
    assert bench["redraws"] <= 2 * bench["seconds"] + 5, "two a second, and four in reserve"


@pytest.mark.parametrize("game", ["tictactoe", "dots(rows=2,cols=2)"])
def test_kernels_are_measured_on_games_that_end_and_begin(game):
    bench = bench_kernels(game, simulations=8, slots=4, seconds=.2)
    assert bench["kernel_call_us"] > 0 and bench["simulation_us"] > 0


def test_every_move_that_is_counted_is_searched_in_full():
    "Half of the games of a run begin with moves after fast searches or none: about a tenth of the counted moves had no full search."
    game = get_game("connect4")
    with SelfPlayEngine(game, None, "cpu", settings=full_searches(game, 16, None), games=32, listeners=()) as engine:
        records = engine.generate_games(32)
    for record in records:
        state = game.state_after([])
        for action, entries, first in zip(record.actions, np.diff(record.policy_offsets), record.policy_offsets):
            if len(game.legal_actions(state)) > 1: assert entries and record.policy_visits[first:first + entries].sum() > 0
            state = game.play(state, int(action))


def test_a_simulated_gpu_computes_one_batch_after_another(clock):
    "Three batches that are given at once take their times together; their order is kept, and a pause is not busy."
    gpu = SimulatedGPU(get_game("connect4"), rows_per_s=10_000, overhead_s=.01)
    batch = np.zeros((100, 126), np.int8), np.arange(101, dtype=np.int32), np.zeros(100, np.int32)
    results, ends = [gpu.begin(*batch) for _ in range(3)], []
    assert clock.now == 0, "it does not wait to begin"
    for result in results:
        logits, values = result()
        ends.append(clock.now)
        assert logits.shape == (100,) and values.shape == (100, 2)
    assert ends == pytest.approx([.02, .04, .06])
    clock.sleep(.05)
    gpu.evaluate(*batch)
    assert gpu.busy_s == pytest.approx(.08) and clock.now == pytest.approx(.13)


@pytest.mark.parametrize("merged, rows", [(1, 16), (2, 32)])
def test_the_way_to_a_gpu_is_measured_with_all_its_parts(monkeypatch, merged, rows):
    monkeypatch.setattr(benchmark, "play_for", play_until_evaluated)
    found = bench_gpu_way("tictactoe", 5_000, slots=16, blocks=4, merged=merged, seconds=.5)
    assert 0 < found["rows_per_batch"] <= rows and 0 < found["rows_per_s"] < 5_500
    busy = found["rows_per_s"] * (1 / 5_000 + 1e-4 / found["rows_per_batch"])
    assert found["busy"] == pytest.approx(busy, abs=.1), "two batches at the start and two at the end are counted by one only"
    assert not [t for t in threading.enumerate() if t.name.startswith("BatchedEvaluator")]


@pytest.mark.parametrize("name, preset, fused", [("blob(players=3,cards=2)", "cards", ["bfloat16"]),
                                                 ("tictactoe", "tiny", ["bfloat16", "float32"])])
def test_a_network_is_fused_only_in_number_formats_that_allow_it(name, preset, fused, monkeypatch):
    for kind in ("boards", "cards"):
        monkeypatch.setattr(f"alphazero_nb.network.inference.fused_{kind}_work", lambda *dtype: True)
    network = benchmark.PolicyValueNet(get_game(name), preset)
    ways = benchmark.ways_to_run(network, replace(get_device("cpu"), dtype="bfloat16"))
    less = [("winograd", "float32")] * (preset == "tiny")
    assert ways == [("eager", "bfloat16"), ("eager", "float32"), *[("fused", dtype) for dtype in fused], *less]


@pytest.mark.parametrize("backend", ["compile", "graphs"])
def test_a_backend_that_fails_is_left_out(monkeypatch, backend):
    def attempt(network, game, device, tried, dtype, batch, threads, inside, seconds, backend=backend):
        if tried == backend: raise RuntimeError("no compiler")
        return dict(backend=tried, dtype=dtype, batch=batch, threads=threads, inside=inside, rate=1.0)
    monkeypatch.setattr(benchmark, "_try", attempt)
    game, device = get_game("tictactoe"), replace(get_device("cpu"), compiles=True, overlaps=True)
    with pytest.warns(UserWarning, match="no compiler"):
        found = benchmark.best_bare(game, benchmark.PolicyValueNet(game, "tiny"), device, batches=(16,))
    assert found["rate"] == 1 and {row["backend"] for row in found["tried"]} >= {"eager", "compile", "graphs"} - {backend}
    assert backend not in {row["backend"] for row in found["tried"]}


def test_a_machine_is_measured_in_every_way_it_can_compute(monkeypatch):
    monkeypatch.setattr(benchmark, "bare_rate", lambda forward, game, device, batch, *_: 1000.0 * batch)
    pools, make = [], benchmark.ActorPool
    monkeypatch.setattr(benchmark, "ActorPool", lambda *how, **more: pools.append(make(*how, **more)) or pools[-1])
    found = bench_machine("tictactoe", ("tiny", "mlp"), "cpu", .1, batches=(1, 16), games=(2, 16))
    ways = {(row["preset"], row["backend"], row["dtype"]) for row in found["formats"]}
    assert ("tiny", "eager", "float32") in ways and ("mlp", "fused", "float32") not in ways
    assert {(row["batch"], row["evals_per_s"]) for row in found["formats"]} == {(1, 1000), (16, 16000)}
    assert [(row["games"], row["table"]) for row in found["games"]] == [(2, False), (2, True), (16, False), (16, True)]
    rooms = [{len(block.cache.counts) for block in pool.blocks} for pool in pools]   # Entries of the tables
    assert rooms[0] == rooms[2] and rooms[1] == rooms[3] and max(rooms[0]) < min(rooms[1])
    assert sum(block.cache_hits for pool in (pools[0], pools[2]) for block in pool.blocks) == 0
    assert [sum(len(block.slots) for block in pool.blocks) for pool in pools] == [2, 2, 16, 16]
    lines = found["table"].splitlines()
    assert lines[0].split()[-2:] == ["1", "16"] and all(len(line.split()) >= 4 for line in lines if line)
    assert "1,000    16,000" in next(line for line in lines if line.startswith("tiny eager float32"))


def test_a_timed_call_measures_no_layouts(monkeypatch):
    "The time that layouts take to be measured is none of the games."
    calls = []
    monkeypatch.setattr(SelfPlayEngine, "calibrate", lambda self, seconds=5.: calls.append("measured") or setattr(self, "_measure", False))
    kept = SelfPlayEngine.generate_games
    monkeypatch.setattr(SelfPlayEngine, "generate_games", lambda self, *asked: calls.append("games") or kept(self, *asked))
    few = functools.partial(benchmark.best_bare, batches=(16,), seconds=.02)
    monkeypatch.setattr(benchmark, "best_bare", few)
    benchmark.bench_selfplay("tictactoe", "tiny", 8, "cpu", 1, .1, 8, compile=False, layout="auto")
    assert calls == ["measured", "games"]


def test_a_game_counts_what_the_tables_answer(monkeypatch):
    seen, kept = {}, []
    class Watched(SelfPlayEngine):
        def __exit__(self, *error):
            kept.append(self.stats())
            super().__exit__(*error)
    monkeypatch.setattr(benchmark, "SelfPlayEngine", Watched)
    monkeypatch.setattr(benchmark, "measure_layouts", lambda *asked, say: seen.update(each=asked[-1]) or [])
    benchmark.bench_layouts("tictactoe", "tiny", 8, "cpu", 1, .1, 200)
    assert kept[0]["cache_hits"] and seen["each"] == (kept[0]["evaluations"] + kept[0]["cache_hits"]) / 200


def test_layouts_begin_anywhere_among_the_moves_and_say_nothing_before_the_json(monkeypatch, capsys):
    "Rolls are no moves; and a layout that cannot play here is a warning."
    seen, kept = {}, SelfPlayEngine.generate_games
    monkeypatch.setattr(SelfPlayEngine, "generate_games", lambda self, *asked: seen.setdefault("games", kept(self, *asked)))
    monkeypatch.setattr(benchmark, "measure_layouts", lambda *asked, say: seen.update(plies=asked[4].random_start_plies) or say("left out") or [])
    with pytest.warns(UserWarning, match="left out"): benchmark.bench_layouts("pig(goal=20)", "mlp", 8, "cpu", 1, .1, 40)
    assert seen["plies"] == int(np.mean([(record.movers >= 0).sum() for record in seen["games"]])) and not capsys.readouterr().out


def test_layouts_of_cards_have_the_blocks_of_a_run(monkeypatch):
    measured = []
    monkeypatch.setattr(benchmark, "measure_layouts", lambda *asked, say: measured.extend(asked[2].values()) or [])
    benchmark.bench_layouts("blob(players=3,cards=2)", None, 2, "cpu", 1, .1, 4)
    with SelfPlayEngine(get_game("blob(players=3,cards=2)"), None, device="cpu", listeners=()) as engine: usual = engine.layout.max_batch
    assert usual == 256 == min(layout.max_batch for layout in measured)
