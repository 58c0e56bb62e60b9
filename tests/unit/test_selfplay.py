"Self-play: a seed is a game whoever plays it, records tell the truth, and nothing that goes wrong is lost or hangs."
import ast
import re
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from alphazero_nb.core.streams import Purpose, derive_seed
from alphazero_nb.core.events import EngineStatus, GameFinished, Message, SelfPlayDone
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.network.evaluator import EvaluatorError
from alphazero_nb.search.tree import add_edges, add_node, make_trees
from alphazero_nb.search.search import SearchSettings
from alphazero_nb.selfplay.slots import GameFailed, add_noise, retrace
from alphazero_nb.core.streams import gamma, uniform
from alphazero_nb.selfplay.settings import SelfPlaySettings, default_settings
from alphazero_nb.selfplay import (calibration, engine as engine_module, layout as layout_module, pools,
                                   scheduler as scheduler_module, slots as slots_module)
from alphazero_nb.selfplay.layout import LAYOUTS as KINDS, Layout, plan_layout, read_layout
from alphazero_nb.selfplay.contracts import Generation, PoolReport
from alphazero_nb.selfplay.scheduler import GameScheduler, play_games
from alphazero_nb.selfplay.actors import Actor, ActorPool, shielded
from alphazero_nb.selfplay import cluster, worker_process
from alphazero_nb.selfplay.worker_process import RemoteScheduler
from alphazero_nb.selfplay.workers import WorkerPlay, WorkerPool
from alphazero_nb.selfplay.pools import GamePool, make_pool, register_pool
from alphazero_nb.selfplay.calibration import (candidate_layouts, choose_layout, limit_games, measure_layouts, spread_starts,
                                               usual_game)
from alphazero_nb.selfplay.engine import SelfPlayEngine
import broken_games
from linear_run import Slow
from processes import children
from reference import HashEvaluator, Node, best_actions, slow_search, visits_of

GAMES = ["connect4", "tictactoe", "gomoku(size=5)", "dots(rows=2,cols=2)"]


class Cheap(nn.Module):
    "A network that costs next to nothing and has opinions that depend on the position."
    def __init__(self, game):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.policy = nn.Parameter(torch.randn(game.observation_size, game.actions, generator=generator) / 2)
        self.value = nn.Parameter(torch.randn(game.observation_size, game.players, generator=generator) / 8)

    def forward(self, x): return x.flatten(1) @ self.policy, torch.tanh(x.flatten(1) @ self.value)


def engine(game, network=None, **options):
    usual = dict(device="cpu", simulations=16, games=16, max_batch=16, threads=2, shared=False, listeners=())
    return SelfPlayEngine(game, network or Cheap(game), **dict(usual, **options))


def play(game, n, network=None, **options):
    with engine(game, network, **options) as playing: return playing.generate_games(n)


def within(seconds, function):
    "What `function` returned or raised, from a thread; fails if it takes longer."
    result = []

    def run():
        try: result.append(function())
        except BaseException as error: result.append(error)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"nothing came back within {seconds} s"
    return result[0]


def test_a_position_has_the_same_value_at_every_place_of_a_small_block():
    "In float32 on some CPUs it has not, in a batch of 8 rows: the block is padded."
    game, chance = get_game("connect4"), np.random.default_rng(0)
    layout = Layout("threads", ("cpu",), threads=1, games=8, max_batch=8, shared=False)
    pool = ActorPool(game, PolicyValueNet(game, "tiny", 1), layout, SelfPlaySettings(), seed=0)
    rows, none = chance.integers(0, 2, (8, game.input_size), np.int8), np.zeros(0, np.int32)
    ask = lambda order: pool.inference.evaluator.evaluate(rows[order], np.zeros(9, np.int32), none)[1]
    values = ask(np.arange(8))
    assert len(np.unique(values)) > 4
    for order in (chance.permutation(8) for _ in range(60)): assert np.array_equal(ask(order), values[order])


def actors(): return [t for t in threading.enumerate() if t.name.startswith("alphazero_nb") or t.name == "BatchedEvaluator"]


# The same games


LAYOUTS = [dict(threads=threads, games=games, shared=shared, reproducible=reproducible)
           for threads, games, shared, reproducible in [(1, 8, False, True), (2, 16, False, False), (1, 24, True, False),
                                                        (2, 24, True, True), (2, 8, True, False), (3, 24, False, True)]]


@pytest.mark.parametrize("name, preset", [("connect4", "mlp"), ("dots(rows=2,cols=2)", "tiny")])
def test_a_seed_is_its_games_whatever_the_layout(name, preset):
    game, options = get_game(name), dict(simulations=8, max_batch=8)   # Blocks of 8 slots
    network, layouts = PolicyValueNet(game, preset), [dict(threads=2, games=24), *LAYOUTS]
    first, *others = [play(game, 12, network, seed=5, **options, **layout) for layout in layouts]
    for layout, records in zip(LAYOUTS, others): assert records == first, layout
    other_seed = play(game, 12, network, seed=6, **options)
    same = sum(np.array_equal(a.actions, b.actions) for a, b in zip(first, other_seed))
    assert same == 0 if name == "connect4" else same < 12   # Short games may be equal by chance, not all of them


def test_calls_may_be_cut_anywhere():
    "Two calls of 7 and one of 10 are one call of 24, and a run that starts at game 14 plays games 14 to 23."
    game = get_game("connect4")
    whole = play(game, 24)
    with engine(game, games=48) as playing: parts = [playing.generate_games(n) for n in (7, 7, 10)]
    assert sum(parts, []) == whole
    assert play(game, 10, first_game=14) == whole[14:]


@pytest.mark.parametrize("reproducible", [False, True])
def test_all_of_the_next_numbers_come_back(reproducible):
    game = get_game("tictactoe")
    with engine(game, games=48, reproducible=reproducible) as playing:
        numbers = [[record.number for record in playing.generate_games(n)] for n in (1, 30, 2, 3, 100, 1)]
        total = playing.stats()["games"]
    assert sum(numbers, []) == list(range(137))
    assert total == 137 if reproducible else 137 <= total < 137 + 25 * 48   # Later games end ahead of slow ones, not without end


def test_games_run_ahead_are_kept():
    "Slots that are free early play later games; those are kept for the next call, and no game is played twice."
    game, ended = get_game("connect4"), []
    with engine(game, games=32, listeners=[lambda event: ended.append(event.number) if isinstance(event, GameFinished) else None]) as playing:
        first = playing.generate_games(4)
        ahead = set(ended) - set(range(4))
        second = playing.generate_games(28)
    assert first + second == play(game, 32)
    assert ahead and len(ended) == len(set(ended))
    ended.clear()
    with engine(game, games=32, listeners=[lambda event: ended.append(event.number) if isinstance(event, GameFinished) else None], reproducible=True) as playing:
        playing.generate_games(4)
    assert sorted(ended) == [0, 1, 2, 3], "a reproducible engine starts nothing that was not asked for"


def test_weights_can_change_between_calls():
    game = get_game("connect4")
    network = PolicyValueNet(game, "mlp")
    with engine(game, reproducible=True) as playing:
        before = playing.generate_games(6)
        playing.set_network(network)
        after = playing.generate_games(6)
    assert {record.version for record in before} == {0} and {record.version for record in after} == {1}
    # With the version of `after`, which would be a difference by itself
    new, old = (play(game, 6, weights, first_game=6, first_version=1) for weights in (network, None))
    assert after == new and after != old, "the new weights play"


class Played(SimpleNamespace):
    "A game without moves."
    moves = 0


def settle(playing, looks=1):
    "Wait until an engine that plays on is as far ahead as it may, and each actor has looked for work so often in vain."
    scheduler, seen = playing.scheduler, Counter()
    wait = scheduler.wait

    def look():   # Called by an actor between two turns
        if scheduler.full: seen[threading.get_ident()] += 1
        return wait()
    scheduler.wait = look
    try: wait_for(lambda: len(seen) == playing.busy_actors and min(seen.values()) >= looks)
    finally: scheduler.wait = wait


def test_an_engine_plays_on_between_calls_and_not_without_end(monkeypatch):
    game, ended, done, past = get_game("tictactoe"), [], [], [0]
    hear = lambda event: (ended if isinstance(event, GameFinished) else done).append(event)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=time.sleep, perf_counter=lambda: time.perf_counter() + past[0])
    for module in (engine_module, scheduler_module): monkeypatch.setattr(module, "time", clock)
    with engine(game, games=32, play_on=True, listeners=[hear]) as playing:
        games = playing.generate_games(40)
        settle(playing)
        assert 40 <= len(playing.leftover()) <= 40 + 100 * 32   # A turn can end several games in each slot
        past[0], first = 10_000, len(ended)   # Seconds
        games += playing.generate_games(60)
        settle(playing)
        games += playing.generate_games(20)
        assert playing.stats()["seconds"] > 10_000, "the time between two calls is playing time"
    assert games == play(game, 120), "the games are those of an engine that waits"
    second = [event for event in ended[first:] if event.total == 60]
    assert [event.done for event in second] == sorted(event.done for event in second) and second[-1].done == 60
    assert [event.finished for event in second] == list(range(1, len(second) + 1))
    assert len({event.number for event in ended}) == len(ended), "each game is reported once"
    summaries = [event for event in done if isinstance(event, SelfPlayDone)]
    assert [event.games for event in summaries] == [40, 60, 20] and summaries[1].seconds > 10_000 > summaries[2].seconds
    assert not actors()


def test_an_event_has_the_time_at_which_its_game_ended():
    "Games that end between two calls are reported by the second one, and then had all taken the same time."
    heard, scheduler = [], GameScheduler()
    scheduler.request(1)
    before, number = time.perf_counter(), scheduler.draw()
    scheduler.finish(Played(number=number))
    assert before <= scheduler.events.get().at <= time.perf_counter()
    with engine(get_game("tictactoe"), games=8, listeners=[heard.append]) as playing:
        record, reporter = playing.generate_games(1)[0], playing._new_reporter()
        for seconds in (1.5, -2.):   # Or before the reporter
            reporter._finish(record, 0, "cpu", reporter.start + seconds)
    assert [event.seconds for event in heard[-2:]] == [1.5, 0.]


def test_what_a_call_takes_is_played_anew_before_the_next_call():
    with engine(get_game("tictactoe"), games=32, play_on=True) as playing:
        playing.generate_games(40)
        settle(playing)
        before, generation = playing.stats()["evaluations"], playing.pool.generation
        assert len(playing.generate_games(40)) == 40, "no game of this call is missing: it plays nothing itself"
        assert playing.pool.generation is generation and playing.busy_actors == 1, "and leaves the playing actor alone"
        settle(playing)
        assert playing.stats()["evaluations"] > before and len(playing.leftover()) >= 40


def test_games_rest_where_they_are_while_enough_wait_for_a_request():
    """Games that ended instead left all slots empty, and the next ones began and ended together: in Gardner's chess a
    learner waited a minute for each wave, and before that played for it alone."""
    game = get_game("connect4")
    with engine(game, games=32, play_on=True) as playing:
        games = playing.generate_games(40)
        settle(playing)
        before, plies = playing.stats()["evaluations"], [block.slots["ply"].copy() for block in playing.pool.blocks]
        settle(playing, looks=20)
        assert playing.stats()["evaluations"] == before and len(playing.scheduler.running) > 16
        assert all((block.slots["ply"] == ply).all() for block, ply in zip(playing.pool.blocks, plies))
        assert len({*np.concatenate(plies)}) > 4, "all over their length"
        for _ in range(3): games += playing.generate_games(40)
        playing.pause()
        games += playing.generate_games(5)
    assert games == play(game, 165)


def test_games_of_a_worker_rest_too():
    "The actors of a cluster play on between two calls. Their games ended there instead, and all slots were empty."
    game, resting, sent = get_game("connect4"), threading.Event(), []

    class Remote(RemoteScheduler):
        def wait(self):
            if self.full: resting.set()
            return super().wait()

    def put(what, *content):
        if what == "game": sent.append(content[0])
        if len(sent) == 3 and not resting.is_set(): source.rest(True)   # In the actor's turn: the driver has enough
    options = plan_layout(game, None, threads=1, games=8, max_batch=8), SelfPlaySettings(SearchSettings(simulations=8))
    pool = ActorPool(game, None, *options, seed=5)
    source = Remote(SimpleNamespace(put=put), pool)
    source.open = True
    source.add(range(24))
    pool.start(source)
    assert resting.wait(600)
    block, = pool.blocks
    before = len(sent), len(source.numbers), block.slots["ply"].copy()
    assert 3 <= before[0] < 12 and before[1] > 0 and (block.slots["number"] >= 0).sum() > 2, "running games stay in slots"
    source.rest(False)
    wait_for(lambda: len(sent) == 24)
    pool.stop()
    pool.join()
    want = ActorPool(game, None, *options, seed=5)
    assert sorted(sent, key=lambda record: record.number) == play_games(want, 24)


def test_workers_hear_once_that_their_games_rest_and_once_that_they_go_on():
    scheduler, sent = GameScheduler(), [[], []]
    workers = [SimpleNamespace(state="playing", rests=False, room=9, numbers=set(), outbox=SimpleNamespace(
        put=lambda *message, box=box: box.append(message))) for box in sent]
    play = WorkerPlay(SimpleNamespace(running=workers, in_state=lambda *states: [w for w in workers if w.state in states]))
    play.begin(scheduler)
    scheduler.request(1, most=3)
    play.step()
    for number in range(4): scheduler.finish(Played(number=number))
    for _ in range(2): play.step()
    scheduler.request(3, most=3)
    for worker in workers: worker.numbers.clear()
    play.step()
    for box in sent: assert [what for what, *_ in box] == ["games", "rest", "rest", "games"]
    for box in sent: assert [full for what, full in box if what == "rest"] == [True, False], "and only then come new numbers"


def test_a_pause_may_come_while_an_actor_asks_if_games_rest():
    "`rest` sets `ahead` to None in another thread; a second look at it would be an error in the actor."
    class Paused(GameScheduler):
        looks = 0
        @property
        def ahead(self):
            self.looks += 1
            return 2 if self.looks == 1 else None
        @ahead.setter
        def ahead(self, value): pass
    scheduler = Paused()
    scheduler.ready = 2
    assert scheduler.full and scheduler.looks == 1
    assert not scheduler.full


@pytest.mark.parametrize("gap", [0, 2])
def test_games_after_a_gap_are_not_ahead(gap):
    "Game 0 is requested, 1 and 2 are to be ahead. The next call would wait for the missing one, so the others go on."
    scheduler = GameScheduler()
    scheduler.request(1, most=2)
    for _ in range(5): scheduler.draw()
    for number in {*range(5)} - {gap}: scheduler.finish(Played(number=number))
    assert not scheduler.full and scheduler.draw() == 5
    scheduler.finish(Played(number=gap))
    assert scheduler.full and scheduler.draw() is None
    scheduler.request(4, most=2)
    assert not scheduler.full and not scheduler.missing and scheduler.draw() == 6


def test_games_ahead_are_bounded_even_with_a_gap():
    "A lost worker is noticed after a minute. If it has game 1, the others must not fill the memory until then."
    scheduler = GameScheduler()
    scheduler.request(1, most=2)
    for number in (scheduler.draw() for _ in range(9)):
        if number not in (1, 8): scheduler.finish(Played(number=number))
    assert not scheduler.full, "game 0 was requested, and 2 to 7 are ahead"
    for number in (8, scheduler.draw()): scheduler.finish(Played(number=number))
    assert scheduler.full and scheduler.draw() is None
    scheduler.request(2, most=2)
    assert not scheduler.full and scheduler.draw() == 10, "once game 1 is requested, the others play on"


def test_an_engine_of_one_block_pauses_between_calls():
    "Its only actor would keep the learner from its core."
    with engine(get_game("tictactoe"), games=8, threads=1, play_on=True) as playing:
        playing.generate_games(20)
        assert playing.scheduler.ahead is None and playing.pool.generation.ended and not actors()


@pytest.mark.parametrize("n, ahead", [(4, 36), (40, 72)])
def test_slots_go_on_while_the_longest_game_of_a_small_call_is_missing(n, ahead):
    "With 4 games ahead, most of the 32 slots were idle until the last of 4 requested games had ended."
    with engine(get_game("tictactoe"), games=32, play_on=True) as playing:
        playing.generate_games(n)
        assert playing.scheduler.ahead == ahead
        settle(playing)
        assert ahead <= len(playing.leftover()) <= ahead + 100 * 32   # A core that is late lets the others play on


def test_a_call_returns_more_games_if_its_caller_is_slower_than_play():
    "Otherwise the games would wait, and their core would rest."
    game = get_game("tictactoe")
    with engine(game, games=32, play_on=True) as playing:
        calls = [playing.generate_games(40, most=100)]
        settle(playing)
        calls.append(playing.generate_games(40, most=100))
        settle(playing)
        calls += [playing.generate_games(10), playing.generate_games(10, most=5)]
    assert len(calls[0]) == 40, "it had to wait, so play was not faster"
    assert [*map(len, calls[1:])] == [100, 10, 10]
    games = sum(calls, [])
    assert games == play(game, len(games)), "the games and their order are those of an engine that waits"


@pytest.mark.parametrize("finished, most, reserve, taken", [
    ([0, 1], 9, 0, 2), ([0, 1, 2, 3, 5], 9, 0, 4), ([0, 1, 2, 3], 3, 0, 3), ([0, 1, 2, 3], 9, 1, 3), ([0, 1, 2], 9, 2, 2),
    ([0, 1, 2, 3], 1, 0, 2)])
def test_a_request_is_extended_up_to_the_first_game_that_runs(finished, most, reserve, taken):
    "`reserve` of the finished games stay, and what was requested is never cut."
    scheduler = GameScheduler()
    scheduler.request(2)
    for _ in range(6): scheduler.draw()
    for number in finished: scheduler.finish(Played(number=number))
    scheduler.request(2, most, reserve)
    assert [record.number for record in scheduler.take()] == [*range(taken)]
    assert [record.number for record in scheduler.leftover()] == [number for number in finished if number >= taken]


def test_new_weights_arrive_while_it_plays_on():
    game = get_game("tictactoe")
    with engine(game, games=32, play_on=True) as playing:
        versions = [record.version for record in playing.generate_games(32)]
        playing.set_network(PolicyValueNet(game, "mlp"))
        while versions[-1] == 0 and len(versions) < 10_000:   # Games of version 0 that were played ahead come first
            versions += [record.version for record in playing.generate_games(32)]
    assert set(versions) == {0, 1} and versions[-1] == 1 and set(versions[:32]) == {0}


class BreaksOnCue(Cheap):
    "Fails once it is asked to."
    broken = threading.Event()

    def forward(self, x):
        if self.broken.is_set(): raise ZeroDivisionError("later")
        return super().forward(x)
    def __deepcopy__(self, memory): return self


def test_an_error_between_calls_reaches_the_next_one():
    game = get_game("tictactoe")
    with engine(game, BreaksOnCue(game), games=32, play_on=True) as playing:
        try:
            playing.generate_games(500)
            BreaksOnCue.broken.set()
            end = time.monotonic() + 600
            while any(thread.name == "alphazero_nb actor" for thread in threading.enumerate()): assert time.monotonic() < end; time.sleep(.01)
            error = within(600, lambda: playing.generate_games(1000))
        finally: BreaksOnCue.broken.clear()
        assert isinstance(error, EvaluatorError) and "later" in str(error) and playing.closed
        assert all(record.number >= 500 for record in playing.leftover())
    assert not actors()


@pytest.mark.parametrize("end", ["pause", "play_for", "threads", "processes", "shutdown"])
def test_playing_on_ends(monkeypatch, end):
    "A benchmark may choose threads or processes. Threads end here; the threads that serve new processes wait for a call."
    game = get_game("tictactoe")
    layouts = dict(threads=plan_layout(game, None, layout="threads", threads=2, games=32, max_batch=16, shared=False),
                   processes=plan_layout(game, None, layout="processes", workers=1, games=32, max_batch=16))
    monkeypatch.setattr(engine_module, "candidate_layouts", lambda *_: {"chosen": layouts[end]})
    with SelfPlayEngine(game, None, "cpu", simulations=16, games=32, max_batch=16, threads=2, play_on=True,
                        listeners=()) as playing:
        playing.generate_games(500)
        if end == "play_for": assert playing.play_for(.1) >= .1
        elif end in layouts: playing.calibrate(.2)
        else: getattr(playing, end)()
        serving = actors() if end == "processes" else []
        assert playing.layout.kind == ("processes" if serving else "threads")
        assert not [thread for thread in actors() if thread not in serving or thread.name == "alphazero_nb actor"], \
            "an actor at work when the interpreter ends would abort it"
        if serving: assert playing.scheduler.draw() is None and playing.pool._play.idle, "no process plays"
        if end != "shutdown": assert [record.number for record in playing.generate_games(9)] == list(range(500, 509))
    assert not actors()


def test_threads_leave_half_of_their_cores_between_two_calls():
    game = get_game("tictactoe")
    with engine(game, games=64, threads=4, max_batch=16, play_on=True) as playing:
        assert playing.busy_actors == 0
        games = playing.generate_games(500)
        assert playing.busy_actors == 2 == len(actors())
        games += playing.generate_games(500)
        assert playing.busy_actors == 2
        playing.pause()
        assert playing.busy_actors == 0 and not actors()
        games += playing.generate_games(20)
    same = games == play(game, 1020)   # pytest would compare 1,020 games word by word
    assert same


@pytest.mark.parametrize("options", [dict(threads=1), dict(threads=2, shared=True)])
def test_an_engine_without_a_core_to_spare_does_not_play_on(options):
    with engine(get_game("tictactoe"), games=32, play_on=True, reproducible=False, **options) as playing:
        playing.generate_games(9)
        assert playing.busy_actors == 0 and all(thread.name == "BatchedEvaluator" for thread in actors())
        assert len(playing.generate_games(9)) == 9


def test_a_reproducible_engine_does_not_play_on():
    with engine(get_game("tictactoe"), play_on=True, reproducible=True) as playing:
        assert len(playing.generate_games(9)) == 9 and not playing.scheduler.running and not playing.leftover()


def test_seeds_of_games_are_distinct():
    seeds = {derive_seed(run, Purpose.SELF_PLAY, number) for run in range(10) for number in range(2000)}
    assert len(seeds) == 20_000 and all(0 <= seed < 2**64 for seed in seeds)
    for bit in (0, 31, 62): assert .48 < sum(seed >> bit & 1 for seed in seeds) / len(seeds) < .52


# Records


@pytest.mark.parametrize("name", GAMES)
def test_laws_of_a_record(name):
    game = get_game(name)
    plain = SelfPlaySettings(SearchSettings(20, proofs=False))
    records, full_searches = play(game, 24, seed=2, games=24, simulations=None, settings=plain), 0
    for record in records:
        state = game.new(record.seed)
        assert len(record.movers) == len(record.values) == len(record.policy_offsets) - 1 == len(record)
        assert record.seed == derive_seed(2, Purpose.SELF_PLAY, record.number)
        for t, action in enumerate(record.actions):
            legal = game.legal_actions(state)
            assert record.movers[t] == game.mover(state)
            here = slice(*record.policy_offsets[t:t + 2])
            actions, visits = record.policy_actions[here].tolist(), record.policy_visits[here]
            if actions:
                full_searches += 1
                assert visits.sum() >= 20 and (visits > 0).all() and len(legal) > 1
                assert set(actions) <= set(legal) and len(set(actions)) == len(actions)
                assert action in actions, "what was played was visited"
            searched = not np.isnan(record.values[t]).any()
            assert searched or (np.isnan(record.values[t]).all() and len(legal) == 1)
            assert not searched or (np.abs(record.values[t]) <= 1.001).all()
            state = game.play(state, int(action))
        assert game.over(state) and (game.returns(state) == record.outcome).all()
    assert len({tuple(record.actions.tolist()) for record in records}) > 12, "games differ"
    moves = sum(len(record) for record in records)
    assert .15 < full_searches / moves < .4, "about a quarter of the searches is full"


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", ["connect4", "tictactoe", "dots(rows=2,cols=2)"])
def test_searches_of_a_game_are_those_of_the_slow_search(name, keep):
    "Without noise, every search of every move, from a fresh tree or from what the last one found below the move."
    game, judge = get_game(name), HashEvaluator(get_game(name))
    settings = SelfPlaySettings(SearchSettings(simulations=40, noise_fraction=0, proofs=False), full_search_fraction=1, keep_subtree=keep)
    playing = engine(game, simulations=None, settings=settings, games=4, max_batch=4, threads=1)
    playing.pool.inference.evaluator = Submits(judge)
    for record in playing.generate_games(4):
        root, kept = Node(game, game.new(record.seed)), False
        for t, action in enumerate(record.actions):
            if len(game.legal_actions(root.state)) > 1:
                slow_search(game, judge, root, 40)
                want = visits_of(game, root)
                visits = np.zeros(game.actions, int)
                here = slice(*record.policy_offsets[t:t + 2])
                visits[record.policy_actions[here]] = record.policy_visits[here]
                assert visits.tolist() == want.tolist(), (record.number, t)
                assert np.allclose(record.values[t], root.sums / root.visits, atol=1e-6)
            edge = next((edge for edge in root.edges if edge.action == action), None)
            again = keep and edge is not None and edge.child is not None
            root, kept = edge.child if again else Node(game, game.play(root.state, int(action))), kept or again
        assert kept == keep


class Submits:
    "Makes an evaluator of anything with evaluate()."
    def __init__(self, inner): self.inner = inner

    def submit(self, *request):
        answer = self.inner.evaluate(*request)
        return type("Answered", (), dict(result=lambda self, timeout_s=None: answer))()


@pytest.mark.parametrize("share, recorded", [(.001, 0), (1., 1)])
def test_the_share_of_full_searches(share, recorded):
    game = get_game("connect4")
    settings = SelfPlaySettings(SearchSettings(simulations=20, proofs=False), fast_simulations=5, full_search_fraction=share)
    for record in play(game, 6, simulations=None, settings=settings):
        counts = np.diff(record.policy_offsets)
        states = game.states_of(record.actions, record.seed)[:-1]
        choices = np.array([len(game.legal_actions(state)) for state in states])
        assert ((counts > 0) == (choices > 1)).all() if recorded else (counts == 0).all()


def test_noise_makes_full_searches_try_more_and_is_no_part_of_a_cheap_one():
    "A network that is sure of one move: only noise makes the search look elsewhere, at the root of full searches."
    game = get_game("connect4")

    class Sure(nn.Module):
        def forward(self, x):
            logits = torch.zeros(len(x), 7)
            logits[:, 3] = 12
            return logits, torch.zeros(len(x), 2)

    def first_visits(fraction):
        settings = SelfPlaySettings(SearchSettings(simulations=50, noise_fraction=fraction, proofs=False), full_search_fraction=1, keep_subtree=False)
        records = play(game, 16, Sure(), simulations=None, settings=settings)
        assert len({tuple(r.policy_visits[:r.policy_offsets[1]]) for r in records}) == 1 or fraction, "noise differs by game"
        return np.mean([r.policy_offsets[1] for r in records])
    assert first_visits(0.) == first_visits_of_search(game, Sure()) < first_visits(.5) - 1


def test_cheap_searches_are_never_noisy():
    "Where no search is full, no amount of noise changes anything."
    game = get_game("connect4")
    games = [play(game, 8, simulations=None, settings=SelfPlaySettings(SearchSettings(simulations=16, noise_fraction=fraction, proofs=False),
                                                                       full_search_fraction=.001)) for fraction in (0., .9)]
    assert games[0] == games[1]


def test_noise_comes_once_per_search():
    "A quarter of noise leaves the sure move three quarters of the prior, and so most visits, in every search."
    class Sure(nn.Module):
        def forward(self, x):
            logits = torch.zeros(len(x), 7)
            logits[:, 3] = 20
            return logits, torch.zeros(len(x), 2)
    settings = SelfPlaySettings(SearchSettings(simulations=60, noise_fraction=.25, proofs=False), full_search_fraction=1, keep_subtree=False)
    for record in play(get_game("connect4"), 16, Sure(), simulations=None, settings=settings):
        first = slice(0, record.policy_offsets[1])
        visits = dict(zip(record.policy_actions[first].tolist(), record.policy_visits[first].tolist()))
        assert visits[3] >= 60 * .7, visits


def first_visits_of_search(game, network):
    from alphazero_nb.network.evaluator import NetworkEvaluator
    from alphazero_nb.search.search import search
    found = search(game, NetworkEvaluator(game, network, "cpu", 16), game.new()[None], SearchSettings(simulations=50))
    return (found.visits > 0).sum()


# Chance


def test_uniform_numbers():
    random = np.array([12345], np.uint64)
    draws = np.array([uniform(random, 0) for _ in range(50_000)])
    assert 0 < draws.min() and draws.max() < 1 and len(np.unique(draws)) == len(draws)
    counts = np.histogram(draws, 50, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 100, "chi-square of 49 degrees of freedom, p about 1e-5"
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < .02


@pytest.mark.parametrize("shape", [.05, .3, 1., 1.43, 10.])
def test_gamma_variates(shape):
    "Mean and variance are the shape; the share below the mean is that of NumPy's."
    random, n = np.array([int(shape * 100)], np.uint64), 40_000
    draws = np.array([gamma(random, 0, shape) for _ in range(n)])
    twin = np.random.default_rng(0).gamma(shape, size=n)
    assert abs(draws.mean() - shape) < 5 * np.sqrt(shape / n)
    assert abs(draws.var() / shape - 1) < .05 + .15 / np.sqrt(shape) * .3
    at = np.quantile(twin, [.05, .25, .5, .75, .95])
    assert np.allclose([(draws <= a).mean() for a in at], [.05, .25, .5, .75, .95], atol=.015)


@pytest.mark.parametrize("count, total, fraction", [(7, 10., .25), (3, 1.5, 1.), (30, 10., .5)])
def test_noise_is_a_mixture_with_a_dirichlet(count, total, fraction):
    "Its mean keeps the priors (mixed with a uniform share), its variance is a Dirichlet's, and it sums to one."
    trees = make_trees(1, 4, count, 1, 2)
    root = add_node(trees, 0, -1, 0)
    add_edges(trees, 0, root, 0, np.arange(count), count)
    priors = np.random.default_rng(0).dirichlet(np.ones(count)).astype(np.float32)
    random, seen = np.array([99], np.uint64), []
    for _ in range(6000):
        trees.edges["prior"][:count] = priors
        add_noise(trees, root, random, 0, fraction, total)
        seen.append(trees.edges["prior"][:count].copy())
    noise = (np.array(seen, float) - (1 - fraction) * priors) / fraction
    assert np.allclose(np.sum(seen, 1), 1, atol=1e-5) and noise.min() > -1e-5
    share = 1 / count
    variance = share * (1 - share) / (total + 1)
    assert np.allclose(noise.mean(0), share, atol=6 * np.sqrt(variance / 6000))
    assert np.allclose(noise.var(0), variance, rtol=.2)


def first_moves(temperature, n=1500, **more):
    "Shares of the first moves played, and of the visits they were drawn from."
    game = get_game("tictactoe")
    settings = SelfPlaySettings(SearchSettings(simulations=30, noise_fraction=0, proofs=False), full_search_fraction=1, temperature=temperature,
                                final_temperature=temperature, **more)
    records = play(game, n, simulations=None, settings=settings, games=64, max_batch=64)
    visits = np.zeros(9)
    visits[records[0].policy_actions[:records[0].policy_offsets[1]]] = records[0].policy_visits[:records[0].policy_offsets[1]]
    return np.bincount([r.actions[0] for r in records], minlength=9) / n, visits / visits.sum()


@pytest.mark.parametrize("temperature", [1., .5, 2.])
def test_moves_are_drawn_by_visits(temperature):
    played, visits = first_moves(temperature)
    want = visits ** (1 / temperature) / (visits ** (1 / temperature)).sum()
    assert (visits > 0).sum() > 2
    assert np.abs(played - want).max() < 4 * np.sqrt(.25 / 1500)
    assert (played[visits == 0] == 0).all()


def test_without_temperature_the_most_visited_is_played():
    played, visits = first_moves(0., 40)
    assert played[visits.argmax()] == 1


# Endings


def test_no_thread_outlives_its_call():
    game, before = get_game("tictactoe"), len(actors())
    with engine(game, games=32, shared=True) as playing:
        playing.generate_games(8)
        assert len(actors()) <= before + 1, "actors end with the call"
    assert len(actors()) == before
    with pytest.raises(RuntimeError, match="shut down"): playing.generate_games(1)
    playing.shutdown()


def test_one_event_per_finished_game():
    game, events = get_game("tictactoe"), []
    with engine(game, reproducible=True, listeners=[events.append]) as playing: records = playing.generate_games(20)
    *events, last = [event for event in events if type(event) is not EngineStatus]   # Once a second
    assert all(type(event) is GameFinished for event in events) and type(last) is SelfPlayDone
    assert last.games == 20 and last.positions == sum(map(len, records)) and last.sources == {"cpu": 20}
    assert sum(last.wins) + last.draws == pytest.approx(1) and 0 < last.busy_share <= 1
    assert sorted(event.number for event in events) == list(range(20))
    assert [event.done for event in events] == list(range(1, 21)) and {event.total for event in events} == {20}
    lengths = {record.number: (len(record), tuple(record.outcome.tolist())) for record in records}
    assert all(lengths[event.number] == (event.length, event.outcome) for event in events)


def test_statistics_are_of_what_was_played():
    with engine(get_game("tictactoe"), reproducible=True, shared=True) as playing:
        records = playing.generate_games(30)
        stats = playing.stats()
    assert stats["games"] == 30 and stats["moves"] == sum(map(len, records))
    assert stats["evaluations"] > 0 and 1 <= stats["avg_batch_size"] <= 32 and 0 < stats["busy_share"] <= 1
    assert stats["evals_per_s"] == pytest.approx(stats["evaluations"] / stats["seconds"])


class FailsLater(Cheap):
    def __init__(self, game, calls):
        super().__init__(game)
        self.calls = calls

    def __deepcopy__(self, memo): return self

    def forward(self, x):
        self.calls.append(1)
        if len(self.calls) > 20: raise ZeroDivisionError("the card fell out")
        return super().forward(x)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_failing_network_reaches_the_caller(shared, threads):
    game, before = get_game("connect4"), len(actors())
    playing = engine(game, FailsLater(game, []), games=48, threads=threads, shared=shared)
    error = within(600, lambda: playing.generate_games(500))
    assert isinstance(error, EvaluatorError) and "the card fell out" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)
    playing.shutdown()
    wait_for(lambda: len(actors()) == before)


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(.01)


def test_weights_that_diverge_reach_the_caller():
    class Broken(nn.Module):
        def forward(self, x): return torch.full((len(x), 7), torch.nan), torch.zeros(len(x), 2)
    error = within(600, lambda: play(get_game("connect4"), 3, Broken()))
    assert isinstance(error, EvaluatorError) and "NaN" in str(error)


@pytest.mark.parametrize("shared, rule", [(False, "play"), (True, "play"), (False, "returns"), (True, "returns")])
def test_rules_that_raise_reach_the_caller(shared, rule):
    "A kernel passes on what the rules raise. With points on the way, `returns` is called in each evaluated position."
    in_play = rule == "play"
    def start(state, seed): pass
    def mover(state): return state[0] % 2
    def play_(state, action):
        state[0] += 1
        if state[0] == 5 and in_play: raise ValueError("the table collapsed")

    def legal(state, actions):
        actions[0], actions[1] = 0, 1
        return 2

    def returns(state, out):
        if state[0] == 5 and not in_play: raise ValueError("the table collapsed")

    def observe(state, planes): planes[0] = state[0]
    game = Game("table", start=start, mover=mover, legal=legal, play=play_, returns=returns, observe=observe,
                state_size=1, players=2, actions=2, shape=(1,), max_length=50, rewards=not in_play)
    error = within(600, lambda: play(game, 3, games=32, shared=shared))
    assert isinstance(error, GameFailed) and "the table collapsed" in str(error) and isinstance(error.__cause__, ValueError)
    seed, line = re.search(r"retrace\(game, (\d+), (\[.*?\])\)", str(error)).groups()
    assert len(ast.literal_eval(line)) == 5
    with pytest.raises(ValueError, match="the table collapsed"): retrace(game, int(seed), ast.literal_eval(line))


@pytest.mark.parametrize("option", ["games", "threads", "max_batch", "simulations"])
def test_zero_of_anything_is_refused(option):
    with pytest.raises(ValueError, match=rf"{option} is 0"): engine(get_game("tictactoe"), **{option: 0})
    with pytest.raises(ValueError, match=rf"{option} is -1"): engine(get_game("tictactoe"), **{option: -1})


@pytest.mark.parametrize("kind, field, value", [
    (SearchSettings, "c_puct", float("nan")), (SearchSettings, "c_puct", -1), (SearchSettings, "noise_total", 0),
    (SearchSettings, "noise_fraction", 1.5), (SearchSettings, "fpu", float("inf")), (SelfPlaySettings, "fast_simulations", 0),
    (SelfPlaySettings, "random_start_fraction", 1.5), (SelfPlaySettings, "random_start_plies", -1),
    (SelfPlaySettings, "random_start_power", -1),
    (SelfPlaySettings, "half_life", 0), (SelfPlaySettings, "temperature", -1), (SelfPlaySettings, "full_search_fraction", 2),
])
def test_a_setting_out_of_range_is_named(kind, field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}"): kind(**{field: value})


def test_negative_counts_and_seeds_are_refused():
    game = get_game("tictactoe")
    with pytest.raises(ValueError, match="seed is -1"): engine(game, seed=-1)
    with engine(game) as one:
        assert len(one.generate_games(3)) == 3
        with pytest.raises(ValueError, match="n is -2"): one.generate_games(-2)
        assert [record.number for record in within(600, lambda: one.generate_games(4))] == [3, 4, 5, 6]


class Gated(Cheap):
    "Waits in its next batch until the gate is open, once it is closed."
    def __init__(self, game):
        super().__init__(game)
        self.gate, self.reached = threading.Event(), threading.Event()
        self.gate.set()

    def __deepcopy__(self, memo): return self

    def forward(self, x):
        if not self.gate.is_set(): self.reached.set()
        assert self.gate.wait(600)
        return super().forward(x)


def frame_of(thread, name):
    "The frame of this function of the package in the stack of a thread, if it is there."
    frame, ours = sys._current_frames().get(thread.ident), lambda frame: frame.f_globals["__name__"].startswith("alphazero_nb")
    while frame is not None and not (frame.f_code.co_name == name and ours(frame)): frame = frame.f_back
    return frame


def interrupt_each_join(over):
    "Sends the main thread a real Ctrl-C, and another one in each `join` that it waits in, until it is over."
    main, seen = threading.main_thread(), None
    signal.pthread_kill(main.ident, signal.SIGINT)
    while not over.wait(.01):
        frame = frame_of(main, "join")
        if frame is None or frame is seen: continue
        seen = frame
        signal.pthread_kill(main.ident, signal.SIGINT)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
@pytest.mark.parametrize("shared", [False, True])
def test_a_call_after_two_interrupts_in_a_slow_batch(shared):
    "The next call waits until the batch is done, and every game comes, once and as ever."
    game = get_game("tictactoe")
    network, want, over = Gated(game), play(game, 500, threads=2, games=32), threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with engine(game, network, games=32, shared=shared) as playing:
        assert len(playing.generate_games(3)) == 3
        network.gate.clear()

        def interrupt():
            assert network.reached.wait(600)
            interrupt_each_join(over)
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            try: playing.generate_games(497)
            except KeyboardInterrupt: over.set()
            else: assert False, "nothing was interrupted"
        finally:
            over.set()
            thread.join()
            signal.signal(signal.SIGINT, before)
        result = []
        second = threading.Thread(target=lambda: result.append(playing.generate_games(497)), daemon=True)
        second.start()
        wait_for(lambda: frame_of(second, "play_generation"))
        playing_now = [thread for thread in actors() if "actor" in thread.name]
        assert len(playing_now) <= 2, "two threads work on one block"
        network.gate.set()
        second.join(600)
        assert result, "497 games were never returned"
    assert [record.number for record in result[0]] == list(range(3, 500))
    assert [record.actions.tolist() for record in result[0]] == [record.actions.tolist() for record in want[3:]]
    assert result[0] == want[3:]


def test_a_stop_is_for_one_generation():
    "An actor of an old generation takes no game for the new one and does not end it."
    game = get_game("tictactoe")
    network = Gated(game)
    with engine(game, network, games=16, threads=1) as playing:
        pool, scheduler = playing.pool, playing.scheduler
        network.gate.clear()
        scheduler.request(10)
        first = pool.start(scheduler)
        assert network.reached.wait(600)
        pool.stop()
        begun = set(scheduler.running)
        scheduler.request(40)
        starting = threading.Thread(target=lambda: begins.append(pool.start(scheduler)), daemon=True)
        begins = []
        starting.start()
        wait_for(lambda: frame_of(starting, "join"))
        assert not begins and scheduler.running == begun
        network.gate.set()
        starting.join(600)
        second, = begins
        wait_for(lambda: second.ended)
        events = [scheduler.events.get() for _ in range(scheduler.events.qsize())]
        assert events.index(first) < events.index(second) == len(events) - 1 and second.error is None
        assert sorted(record.number for record in scheduler.take()) == list(range(40))


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
@pytest.mark.parametrize("shared", [False, True])
def test_an_interrupted_wait_can_be_repeated(shared):
    "Python takes a thread whose `join` was interrupted for one that has ended."
    game, main = get_game("tictactoe"), threading.main_thread()
    network, before = Gated(game), signal.signal(signal.SIGINT, signal.default_int_handler)
    with engine(game, network, games=32, shared=shared) as playing:
        pool, scheduler = playing.pool, playing.scheduler
        network.gate.clear()
        scheduler.request(100)
        pool.start(scheduler)
        assert network.reached.wait(600)
        pool.stop()
        for _ in range(pool.layout.threads + 1):
            sender = threading.Thread(target=lambda: (wait_for(lambda: frame_of(main, "join")),
                                                      signal.pthread_kill(main.ident, signal.SIGINT)))
            try:
                sender.start()
                with pytest.raises(KeyboardInterrupt): pool.join()
            finally: sender.join()
        signal.signal(signal.SIGINT, before)
        open_at_end = []
        waiting = threading.Thread(target=lambda: (pool.join(), open_at_end.append(network.gate.is_set())), daemon=True)
        waiting.start()
        wait_for(lambda: open_at_end or frame_of(waiting, "join"))
        network.gate.set()
        waiting.join(600)
        assert open_at_end == [True], "it waited for the actors, and they for the network"
        assert not [thread for thread in actors() if "actor" in thread.name]


@pytest.mark.parametrize("moment", ["start", "wait"])
def test_an_interrupt_while_a_call_starts_leaves_nothing_half_started(monkeypatch, moment):
    "It falls where the main thread waits for the thread that starts the actors."
    from alphazero_nb.selfplay import actors as module
    game, fired, interrupted = get_game("tictactoe"), [], threading.Event()

    class Interrupting(threading.Thread):
        def start(self):
            super().start()
            if self.name == "alphazero_nb starter" and moment == "start" and not fired: fire()

        def run(self):   # The first starter is still at work when the main thread comes to wait for it
            if self.name == "alphazero_nb starter" and moment == "wait": interrupted.wait(600)
            super().run()

    def fire():
        fired.append(True)
        interrupted.set()
        raise KeyboardInterrupt

    def interrupted_sleep(seconds, sleep=time.sleep):
        if frame_of(threading.main_thread(), "shielded") and moment == "wait" and not fired: fire()
        sleep(seconds)
    with engine(game, games=32) as playing:
        monkeypatch.setattr(module.threading, "Thread", Interrupting)
        monkeypatch.setattr(module.time, "sleep", interrupted_sleep)
        try:
            with pytest.raises(KeyboardInterrupt): playing.generate_games(200)
        finally: monkeypatch.undo()
        assert fired and not [thread for thread in actors() if "actor" in thread.name]
        assert [record.number for record in within(600, lambda: playing.generate_games(200))] == list(range(200))


def test_what_is_shielded_is_done_whole_or_not_at_all(monkeypatch):
    "An interrupt comes while the helper thread begins, before and after it has called the function."
    for begun in (True, False):
        calling, done, thread = threading.Event(), [], threading.Thread

        def function():
            calling.set()
            wait_for(lambda: not starting)
            done.append(True)

        class Interrupting(thread):
            def start(self):
                if begun: super().start(), calling.wait(600)
                starting.clear()
                raise KeyboardInterrupt
        starting, raised = [True], []
        monkeypatch.setattr(threading, "Thread", Interrupting)
        try: shielded(function)
        except KeyboardInterrupt: raised.append(True)
        finally: monkeypatch.undo()
        assert raised and bool(done) == begun


def test_an_interrupt_while_the_summary_is_shown_loses_no_game():
    game = get_game("tictactoe")

    def stop(event):
        if type(event) is SelfPlayDone: raise KeyboardInterrupt
    with engine(game, listeners=[stop]) as playing:
        with pytest.raises(KeyboardInterrupt): playing.generate_games(20)
        playing.events.listeners.remove(stop)
        assert playing.generate_games(40) == play(game, 40)


@pytest.mark.parametrize("shared", [False, True])
def test_playing_for_a_time_ends_and_leaves_nothing_under_way(shared):
    with engine(get_game("tictactoe"), shared=shared, games=32) as playing:
        assert within(600, lambda: playing.play_for(0)) < 600
        assert within(600, lambda: playing.play_for(.2)) >= .2
        assert all(block.ticket is None or block.ticket._done.is_set() for block in playing.pool.blocks)
        assert [record.number for record in playing.generate_games(40)] == list(range(40))


def test_uneven_games_make_even_blocks():
    with engine(get_game("tictactoe"), games=33, max_batch=16) as playing:
        assert [len(block.slots) for block in playing.pool.blocks] == [11, 11, 11]
        assert playing.pool.inference.network.shapes == (16,), "padded"


# Measuring layouts


@pytest.mark.parametrize("network", [None, nn.Identity()])
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("cores", [1, 2, 3, 4, 7, 64])
def test_no_candidate_is_larger_than_the_machine(monkeypatch, cores, device, network):
    for module in (calibration, layout_module): monkeypatch.setattr(module, "usable_cores", lambda: cores)
    monkeypatch.setattr(layout_module, "device_names", lambda: list(dict.fromkeys([device, "cpu"])))
    game = get_game("tictactoe")
    found = candidate_layouts(game, network, plan_layout(game, network, device))
    for name, layout in found.items():
        assert len(layout.devices) <= cores, name
        if layout.devices[0] == "cpu": assert len(layout.devices) * layout.threads <= cores, name
    base = plan_layout(game, network, device, backend="eager")
    assert all(layout.backend == "eager" for layout in candidate_layouts(game, network, base).values())
    assert "single thread" in found and (cores == 1 or "processes" in found or network is None and device != "cpu")


def test_some_games_begin_with_random_moves():
    "These moves teach nothing, some of them are random, and the others searched. Without them the games are the usual ones."
    game = get_game("connect4")

    def play(**options):
        settings = SelfPlaySettings(SearchSettings(8), full_search_fraction=1.0, **options)
        with SelfPlayEngine(game, None, "cpu", layout="threads", threads=1, games=64, settings=settings, seed=3,
                            listeners=()) as engine: return engine.generate_games(400)

    def begins(record):
        searched = np.diff(record.policy_offsets) > 0
        return int(searched.argmax()) if searched.any() else len(record)
    assert play() == play(random_start_fraction=0.0, random_start_plies=3)
    records = play(random_start_fraction=1.0, random_start_plies=6)
    starts = [begins(record) for record in records]
    counts = np.bincount(starts)
    assert len(counts) == 7 and counts.min() > 25, "each number of moves is equally likely: 57 of 400"
    chosen = [np.isnan(record.values[:length, 0]) for record, length in zip(records, starts)]   # Random, not searched
    shares = [random.mean() for random, length in zip(chosen, starts) if length == 6]
    assert 0 in shares and 1 in shares
    assert abs(np.mean(shares) - 1 / 3) < .15, "the share of random moves is the square of a uniform number"
    for record, length in zip(records, starts):
        assert (np.diff(record.policy_offsets[:length + 1]) == 0).all() and not np.isnan(record.values[length:length + 1]).any()
    first = np.bincount([record.actions[0] for record, random in zip(records, chosen) if random[:1].any()], minlength=7)
    assert first.min() > 2 and first.max() < .35 * first.sum(), "and each random move is equally likely"
    half = [begins(record) > 0 for record in play(random_start_fraction=.5, random_start_plies=6)]
    assert .3 < np.mean(half) < .56, "6/7 of a half"
    wild = play(random_start_fraction=1.0, random_start_plies=100)
    assert all(game.over(retrace(game, record.seed, record.actions)) for record in wild)
    assert any(begins(record) == len(record) for record in wild), "a game may end before its first search"


# Targets


@pytest.mark.parametrize("name", ["connect4", "tictactoe", "dots(rows=2,cols=2)"])
def test_with_proofs_a_proven_game_keeps_its_result(name):
    "Once a search has proven the result, the game ends with it, and the targets are among the best moves."
    game, known, proven = get_game(name), {}, 0
    records = play(game, 40, settings=SelfPlaySettings(SearchSettings(64, proofs=True), full_search_fraction=1.0),
                   simulations=None, seed=5)
    for record in records:
        states = game.states_of(record.actions, record.seed)
        for ply in range(len(record)):
            here = slice(*record.policy_offsets[ply:ply + 2])
            exact = np.abs(record.values[ply] - record.values[ply].round()).max() < 1e-5
            if here.start == here.stop or not exact: continue
            assert np.allclose(record.values[ply], record.outcome, atol=1e-5)
            proven += 1
            if name != "connect4":
                assert set(record.policy_actions[here]) <= set(best_actions(game, states[ply], known)[0])
    assert proven > 20


def test_layouts_are_measured_one_at_a_time(monkeypatch):
    "Also the worker of the engine that measures is gone; with two cores there are never more than two processes."
    before, alive, built = len(children()), [], []

    class Counted(WorkerPool):
        def __init__(self, game, network, layout, *args):
            alive.append(len(children()) - before)
            built.append(len(layout.devices))
            super().__init__(game, network, layout, *args)
    for module in (calibration, layout_module): monkeypatch.setattr(module, "usable_cores", lambda: 2)
    monkeypatch.setitem(pools.POOLS, "processes", Counted)
    game, heard = get_game("tictactoe"), []
    with SelfPlayEngine(game, None, "cpu", layout="auto", workers=1, simulations=8, listeners=(heard.append,)) as measuring:
        rows = measuring.calibrate(seconds=.3)
        assert set(alive) == {0} and built[:3] == [1, 2, 2], "each starts when the one before is gone"
        assert max(built) <= 2
        assert [record.number for record in measuring.generate_games(20)] == list(range(20))
        best = max(rows, key=lambda row: row["evals_per_s"])
        assert measuring.layout == best["layout"]
    assert [row["name"] for row in rows] == ["threads, an evaluator each", "single thread", "threads, larger blocks", "processes"]
    keys = ["name", "layout", "games_per_min", "evals_per_s", "moves_per_s", "average_batch", "busy_share", "ready_s"]
    assert all(list(row)[:8] == keys and row["evals_per_s_low"] <= row["evals_per_s"] <= row["evals_per_s_high"] for row in rows)
    assert all(row["beside"] == row["name"].startswith("threads") for row in rows)
    table = next(event.text for event in heard if type(event) is Message and event.text.startswith("layout "))
    assert all(row["name"] in table for row in rows)


@pytest.mark.parametrize("processes, play_on, chosen", [(101, False, "processes"), (101, True, "threads"), (130, True, "processes"),
                                                        (99, False, "threads"), (99, True, "threads")])
def test_a_run_prefers_the_layout_that_plays_beside_the_learner(processes, play_on, chosen):
    layouts = dict(processes=Layout("processes", ("cpu",) * 2, 1, 64, 32, None), threads=Layout("threads", ("cpu",), 2, 64, 32, False),
                   single=Layout("threads", ("cpu",), 1, 64, 32, False))
    rows = [dict(layout=layouts[name], evals_per_s=speed, beside=name == "threads", games_per_min=speed)
            for name, speed in dict(processes=processes, threads=100, single=60).items()]
    assert choose_layout(rows, play_on) == layouts[chosen]


@pytest.mark.parametrize("device, games_per_min, slots", [("cpu", 5_000, 128), ("cpu", 400, 96), ("cpu", 10, 32), ("cuda:0", 10, 128),
                                                          ("cuda:0", 1_000, 248)])
def test_long_games_run_in_smaller_blocks(device, games_per_min, slots):
    "Two blocks: games that run at once last for half a minute at most, unless blocks were too small for the device."
    usual = 128 if device == "cpu" else 256
    layout = Layout("threads", (device,), 2, 2 * usual, usual, False)
    assert limit_games(layout, games_per_min) == replace(layout, games=2 * slots, max_batch=slots)
    single = Layout("threads", (device,), 1, 16, 16, False)   # A user's small blocks stay
    assert limit_games(single, games_per_min) == single


def test_a_layout_is_measured_when_it_is_warm(monkeypatch):
    "The first second of a new process with rules in Python went into loading: at 0.3 s a window it seemed six times too slow."
    evaluations, played = iter([0, 0, 40, 128, 500]), []
    pool = SimpleNamespace(report=lambda: PoolReport(next(evaluations)), layout=SimpleNamespace(games=32))
    monkeypatch.setattr(calibration, "play_for", lambda pool, scheduler, seconds: played.append(seconds))
    calibration.warm_up(pool, None, .2)
    assert played == [.2] * 4 and next(evaluations) == 500
    calibration.warm_up(SimpleNamespace(report=PoolReport, layout=pool.layout), None, .2, at_most_s=.01)


@pytest.mark.parametrize("rounds, windows, visits", [(1, [1, 1, 1], "abc"), (2, [2, 2, 2], "abccba"), (5, [5, 5, 5], "abccba")])
def test_layouts_are_visited_there_and_back(monkeypatch, rounds, windows, visits):
    "Every layout alike: on each way it starts once, warms up once, and is measured for as many windows as the others."
    game, visited, counted, warmed = get_game("tictactoe"), [], Counter(), Counter()
    layouts = {name: plan_layout(game, None, layout="threads", games=games) for name, games in (("a", 8), ("b", 16), ("c", 24))}

    def visiting(game, network, layout, *args):
        visited.append({8: "a", 16: "b", 24: "c"}[layout.games])
        return make_pool(game, network, layout, *args)
    window, play_for = calibration.measure_window, calibration.play_for

    def counting(pool, scheduler, seconds):
        counted[len(visited), visited[-1], round(seconds, 9)] += 1
        return window(pool, scheduler, seconds)

    def playing(pool, scheduler, seconds):
        warmed[len(visited)] += 1
        return play_for(pool, scheduler, seconds)
    monkeypatch.setattr(calibration, "make_pool", visiting)
    monkeypatch.setattr(calibration, "measure_window", counting)
    monkeypatch.setattr(calibration, "play_for", playing)
    rows = measure_layouts(game, None, layouts, .1, rounds=rounds, evals_per_game=10.)
    assert "".join(visited) == visits
    assert [sum(count for (_, name, _), count in counted.items() if name == wanted) for wanted in "abc"] == windows
    ways = [[count for (turn, _, _), count in sorted(counted.items()) if first < turn <= first + 3] for first in range(0, len(visits), 3)]
    assert all(len(set(way)) == 1 for way in ways) and len({seconds for _, _, seconds in counted}) == 1, "alike on each way"
    assert all(warmed[turn] >= count + 1 for (turn, _, _), count in counted.items())
    assert [row["name"] for row in rows] == ["a", "b", "c"]


class Handle:
    "What a process cannot send to another one, such as an open file."
    def __deepcopy__(self, memo): return self
    def __reduce_ex__(self, protocol): raise TypeError("a handle stays in its process")


def test_processes_that_cannot_play_here_are_left_out_of_a_benchmark():
    "A network that cannot be sent to another process still plays in threads."
    game = get_game("tictactoe")
    network = PolicyValueNet(game, "tiny")
    network.handle = Handle()
    layouts = {kind: plan_layout(game, network, "cpu", layout=kind, workers=2 if kind == "processes" else None, threads=None if kind == "processes" else 1,
                                 games=16, max_batch=8) for kind in ("processes", "threads")}
    said = []
    rows = measure_layouts(game, network, layouts, .1, rounds=1, evals_per_game=10., say=said.append)
    assert [row["name"] for row in rows] == ["threads"]
    assert len(said) == 1 and said[0].startswith("The layout 'processes' cannot play here: ") and "handle" in said[0]
    with pytest.raises(ValueError, match="handle"): measure_layouts(game, network, dict(processes=layouts["processes"]), .1, rounds=1)


def answered(game, settings):
    "Share of questions that the tables answer while a pool warms up, one turn at a time."
    layout = plan_layout(game, True, "cpu", layout="threads", threads=1, games=128, max_batch=128, shared=False)
    with closing(make_pool(game, PolicyValueNet(game, "tiny"), layout, settings)) as pool:
        calibration.warm_up(pool, GameScheduler(), .01, at_most_s=600)
        report = pool.report()
    return report.cache_hits / report.answers


def take_a_turn(pool, scheduler, seconds):
    "Play one turn of each block, instead of some seconds."
    scheduler.play_freely()
    actor = Actor(pool, Generation(scheduler, actors=1), pool.blocks)
    for block in pool.blocks: actor.turn(block)


def test_a_measurement_does_not_see_the_first_moves_only(monkeypatch):
    """All games begin with one position, which the tables know after one evaluation. A slow network was still there when
    the measurement ended: Gardner's chess with `medium` seemed to make four times its evaluations per second."""
    monkeypatch.setattr(calibration, "play_for", take_a_turn)
    game = get_game("gomoku(size=9)")
    settings = replace(default_settings(game), random_start_fraction=0.0)
    spread = spread_starts(settings, usual_game(game, settings, 8)[0])
    assert answered(game, settings) > 4 * answered(game, spread)


def test_layouts_are_measured_all_over_a_game(monkeypatch):
    seen = []
    monkeypatch.setattr(engine_module, "measure_layouts", lambda *args, **options: seen.append((args[4], options)) or 1 / 0)
    with engine(get_game("tictactoe"), layout="auto") as playing, pytest.raises(ZeroDivisionError): playing.calibrate()
    (settings, options), = seen
    assert (settings.random_start_fraction, settings.random_start_power) == (1, 0) and 5 <= settings.random_start_plies <= 9
    assert settings.search == playing.settings.search and 5 < options["evals_per_game"] < 9 * 64


def test_an_interrupted_measurement_is_repeated(monkeypatch):
    measure, calls = engine_module.measure_layouts, []

    def interrupted(*args, **options):
        calls.append(args)
        if len(calls) == 1: raise KeyboardInterrupt
        return measure(*args[:3], .2, *args[4:], **options)
    monkeypatch.setattr(engine_module, "measure_layouts", interrupted)
    monkeypatch.setattr(engine_module, "candidate_layouts", lambda game, network, base: {"as planned": base})
    game = get_game("tictactoe")
    with SelfPlayEngine(game, None, "cpu", layout="auto", simulations=8, listeners=()) as measuring:
        with pytest.raises(KeyboardInterrupt): measuring.generate_games(5)
        assert [record.number for record in within(600, lambda: measuring.generate_games(5))] == list(range(5))
    assert len(calls) == 2


# Layouts


@pytest.mark.parametrize("options", [dict(workers=4, games=4, max_batch=2), dict(workers=4, games=5), dict(workers=4, games=2),
                                     dict(workers=3, games=40, max_batch=7), dict(workers=2, games=33, max_batch=16),
                                     dict(workers=3, games=16, max_batch=16, threads=2), dict(workers=2, threads=2, games=1)])
def test_every_process_has_a_game_to_play(options):
    "A process without one would wait for ever."
    layout = plan_layout(get_game("tictactoe"), None, **options)
    sizes = layout.blocks()
    assert all(sizes) and min(map(min, sizes)) >= 1 and sum(map(sum, sizes)) == layout.games == options["games"]
    assert max(map(max, sizes)) <= layout.max_batch and len(layout.devices) == min(options["workers"], layout.games)
    assert all(1 <= layout.threads and layout.of_process(index).blocks() == [size] for index, size in enumerate(sizes))


def test_a_saved_layout_opens_or_is_no_layout():
    saved = dict(kind="threads", devices=["cpu"], threads=2, games=64, max_batch=32, shared=False)
    assert read_layout(dict(saved, max_rows=8)) == Layout(**dict(saved, devices=("cpu",)), max_rows=8)
    assert read_layout(saved).max_rows is None
    for damaged in ({}, dict(saved, wheels=4), dict(saved, rows=8), [], "threads", None, dict(saved, devices=3)):
        with pytest.raises((TypeError, KeyError)): read_layout(damaged)


# Pools


class OneByOne:
    "Another kind of pool: one thread plays one game after another, each position by itself, with the rules called from Python."
    dtype, starting, plays_on, spare_actors = "", 0, False, 0

    def __init__(self, game, network, layout, settings, seed, version=0, events=None):
        from alphazero_nb.network.evaluator import NetworkEvaluator, UniformEvaluator
        from alphazero_nb.selfplay.slots import SlotBlock
        self.layout, self.seed, self.version, self.generation, self.closed = layout, seed, version, None, False
        self.network = NetworkEvaluator(game, network, "cpu", layout.max_batch) if network else UniformEvaluator(game)
        self.block, self.thread = SlotBlock(game, 1, settings), threading.Thread()

    def start(self, source, actors=None):
        self.stop()
        self.join()
        self.generation = Generation(source, actors=1)
        self.thread = threading.Thread(target=self.run, args=(self.generation,), name="alphazero_nb one by one", daemon=True)
        self.thread.start()
        return self.generation

    def run(self, generation):
        error = None
        try:
            while not generation.stopping and generation.source.open:
                number = generation.source.draw()
                if number is None: break
                generation.source.finish(self.play(number), "one by one")
        except BaseException as problem: error = problem
        finally: generation.leave(error)

    def play(self, number):
        self.block.begin(0, number, derive_seed(self.seed, Purpose.SELF_PLAY, number), self.version)
        self.block.advance()
        while self.block.requests.count:
            self.block.submit(self.network)
            self.block.receive()
            self.block.advance()
        record, = self.block.collect()
        return record

    def stop(self):
        if self.generation: self.generation.stop()

    def join(self):
        while self.generation and not self.generation.ended: time.sleep(.001)

    def set_network(self, network, version):
        self.network.set_network(network)
        self.version = version

    def close(self): self.stop()
    def wait_ready(self, timeout_s=0): pass
    def report(self): return PoolReport(self.block.evaluations, batches=self.block.batches, busy_s=self.block.busy_s)
    def reports(self): return {"one by one": self.report()}


@pytest.fixture
def one_by_one(monkeypatch):
    monkeypatch.setattr(pools, "POOLS", dict(pools.POOLS))
    register_pool("one by one", OneByOne)
    yield
    KINDS.remove("one by one")


def test_an_engine_plays_with_another_kind_of_pool(one_by_one):
    "It gets the games that threads play, in several calls, with new weights, and when a call is interrupted."
    game, events = get_game("tictactoe"), []
    other, usual = Cheap(game), dict(simulations=16, games=16, max_batch=16, seed=3, device="cpu")
    torch.nn.init.zeros_(other.policy)
    with SelfPlayEngine(game, None, **usual, layout="threads", listeners=()) as threads: want = threads.generate_games(40)

    def interrupt(event):
        if type(event) is GameFinished and event.finished == 5 and not stopped: raise stopped.append(1) or KeyboardInterrupt
    stopped = []
    with SelfPlayEngine(game, None, **usual, layout="one by one", listeners=[events.append, interrupt]) as playing:
        assert isinstance(playing.pool, OneByOne) and playing.layout.kind == "one by one"
        with pytest.raises(KeyboardInterrupt): playing.generate_games(20)
        assert playing.generate_games(20) + playing.generate_games(20) == want
        assert playing.play_for(.05) >= .05 and playing.stats()["games"] >= 40
    assert {event.source for event in events if type(event) is GameFinished} == {"one by one"}
    assert [event for event in events if type(event) is SelfPlayDone][-1].games == 20
    for kind in ("threads", "one by one"):
        with engine(game, **usual, layout=kind, reproducible=True) as playing:
            games = [playing.generate_games(5)]
            playing.set_network(other)
            games.append(playing.generate_games(5))
        if kind == "threads": of_threads = games
    assert games == of_threads and games[1][0].version == 1
    assert games[1] != play(game, 5, **usual, first_game=5, first_version=1), "the new weights play"


def test_a_failing_pool_of_another_kind_reaches_the_caller(one_by_one, monkeypatch):
    def fail(self, number): raise ZeroDivisionError("this pool is out of order")
    monkeypatch.setattr(OneByOne, "play", fail)
    with SelfPlayEngine(get_game("tictactoe"), None, layout="one by one", listeners=()) as playing:
        with pytest.raises(ZeroDivisionError, match="out of order"): playing.generate_games(3)
        with pytest.raises(RuntimeError, match="shut down"): playing.generate_games(3)


def test_a_layout_without_a_pool_is_named():
    game, layout = get_game("tictactoe"), Layout("ferry", ("cpu",), threads=1, games=4, max_batch=4, shared=False)
    with pytest.raises(ValueError, match="layout kind 'ferry' is unknown; choose threads or processes or ray, or add"):
        SelfPlayEngine(game, None, layout=layout, listeners=())
    with pytest.raises(ValueError, match="layout 'ferry' is unknown; choose auto, threads, processes or ray"):
        SelfPlayEngine(game, None, layout="ferry", listeners=())


@pytest.mark.parametrize("kind", [ActorPool, WorkerPool, OneByOne])
def test_every_kind_of_pool_has_the_methods_of_the_protocol(kind):
    import inspect
    for name, method in vars(GamePool).items():
        if name.startswith("_") or not callable(method): continue
        assert [p.name for p in inspect.signature(method).parameters.values()] == \
               [p.name for p in inspect.signature(getattr(kind, name)).parameters.values()][:len(inspect.signature(method).parameters)], name


def test_blocks_of_several_actors_go_into_one_batch():
    "Two blocks of 16 slots in a batch of 32 rows at most; who plays does not change the games."
    game = get_game("connect4")
    network, found = PolicyValueNet(game, "mlp", 0).eval(), []
    for threads in (1, 2, 4):
        layout = Layout("threads", ("cpu",), threads, 64, 16, True, merged=2)
        with SelfPlayEngine(game, network, "cpu", simulations=8, layout=layout, listeners=()) as playing:
            found.append(playing.generate_games(40))
            inference = playing.pool.inference
            assert playing.layout == layout and inference.network.shapes == (32,)
        stats, sizes = inference.stats(), inference.stats()["batch_sizes"]   # A longer batch would be counted as one of 32
        assert np.arange(33) @ sizes == stats["total_rows"] and (sizes[17:].sum() > 0 or threads == 1)
    assert found[0] == found[1] == found[2]
    assert str(layout) == "4 threads, a shared evaluator, blocks of 16, 2 a batch" and layout.rows(3) == 96


@pytest.mark.parametrize("slots, merged", [(256, 4), (1024, 4), (2048, 2), (8192, 1)])
def test_a_gpu_tries_merged_blocks(monkeypatch, slots, merged):
    for module in (calibration, layout_module): monkeypatch.setattr(module, "usable_cores", lambda: 4)
    monkeypatch.setattr(layout_module, "device_names", lambda: ["cuda:0", "cpu"])
    game = get_game("connect4")
    found = candidate_layouts(game, True, plan_layout(game, True, "cuda:0", max_batch=slots))["threads, merged blocks"]
    assert (found.merged, found.max_batch, found.games, found.shared) == (merged, slots, 8 * slots, True)


def test_an_engine_that_is_closed_while_it_plays_leaves_pytorch_its_threads():
    game, before = get_game("tictactoe"), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(2):
            with SelfPlayEngine(game, PolicyValueNet(game, "tiny"), device="cpu", simulations=8, threads=2, games=32, max_batch=16,
                                shared=False, play_on=True, listeners=()) as engine: engine.generate_games(8)
        assert torch.get_num_threads() == 2
    finally: torch.set_num_threads(before)


def test_the_first_error_of_a_worker_is_sent_also_if_its_report_fails():
    sent, pool = [], SimpleNamespace(reports=lambda: 1 / 0, inference=SimpleNamespace(name="cpu"))
    source = RemoteScheduler(SimpleNamespace(put=lambda *words: sent.append(words)), pool)
    Generation(source, 1).leave(ValueError("the first error"))
    assert sent[-1][:3] == ("failed", "ValueError", "the first error")
    Generation(source, 1).leave(None)
    assert sent[-1][:2] == ("failed", "ZeroDivisionError")


def test_a_window_waits_for_the_turns_that_have_begun():
    "A turn of this network takes longer than a worker has to stop after an interrupt."
    game, network = get_game("tictactoe"), Slow()
    layout = plan_layout(game, network, layout="processes", workers=1, games=4, max_batch=4)
    with closing(WorkerPool(game, network, layout, default_settings(game), 0)) as pool:
        pool.wait_ready()
        assert not pool.starting
        before = [worker.process.pid for worker in pool.workers]
        calibration.play_for(pool, GameScheduler(), .3)
        assert [worker.process.pid for worker in pool.workers] == before


@pytest.mark.parametrize("change", [dict(start=broken_games.start_over),
                                    dict(start=broken_games.start_with_chance, play=broken_games.roll, chance=broken_games.no_chance, outcomes=1)])
def test_a_player_moves_first(change):
    with SelfPlayEngine(broken_games.nim(**change), None, "cpu", layout="threads", simulations=4, games=2, listeners=()) as playing:
        with pytest.raises(GameFailed, match="at its start"): playing.generate_games(2)


def test_a_process_without_a_game_is_refused():
    for layout in (Layout("processes", ("cpu", "cpu"), 1, 16, 16, False), Layout("threads", ("cpu",), 1, 0, 16, False)):
        with pytest.raises(ValueError, match="use more games or a smaller max_batch"):
            SelfPlayEngine(get_game("tictactoe"), None, layout=layout, listeners=())


def test_a_reproducible_engine_plays_no_games_of_its_own():
    with SelfPlayEngine(get_game("tictactoe"), None, "cpu", reproducible=True, listeners=()) as playing:
        with pytest.raises(ValueError, match="use generate_games"): playing.play_for(.1)


def test_games_without_a_choice_are_played_unmeasured():
    def forced(state, actions):
        actions[0] = 0
        return 1
    told = []
    game = broken_games.nim(name="forced", legal=forced)
    with SelfPlayEngine(game, None, "cpu", layout="auto", simulations=4, listeners=(told.append,)) as playing:
        assert len(playing.generate_games(3)) == 3
    assert any("Nothing was measured" in event.text for event in told if isinstance(event, Message))


def test_rolls_count_as_no_moves_of_an_engine():
    with SelfPlayEngine(get_game("pig(goal=12)"), None, "cpu", layout="threads", simulations=4, games=4, reproducible=True, listeners=()) as playing:
        records = playing.generate_games(6)
        assert playing.stats()["moves"] == playing.moves == sum(record.moves for record in records) < sum(map(len, records))


@pytest.mark.parametrize("cards", [["cuda:0"], ["cuda:0", "cuda:1"], ["mps"]])
def test_rules_in_python_do_not_fill_a_gpu_with_processes(monkeypatch, cards):
    for module in (calibration, layout_module): monkeypatch.setattr(module, "usable_cores", lambda: 64)
    monkeypatch.setattr(layout_module, "device_names", lambda: [*cards, "cpu"])
    rules = SimpleNamespace(in_python=True)
    devices = layout_module.plan_devices(rules, True, "processes", "auto", None, None)
    assert Counter(devices) == {card: layout_module.ON_A_GPU for card in cards}
    assert len(layout_module.plan_devices(rules, True, "processes", cards[0], None, 20)) == 20, "what is asked for is given"
    assert len(layout_module.plan_devices(rules, True, "processes", "cpu", None, None)) == 64


def test_a_cluster_keeps_a_number_format(monkeypatch):
    layout = Layout("ray", (), 1, 8, 8, True, number_format="float32", channels_last=False)
    there = cluster.at_place(layout, cluster.Place("n", "n", 0, True, 2))
    assert (there.number_format, there.channels_last) == ("float32", False)


@pytest.mark.parametrize("ended, order", [(True, ["join", "network"]), (False, ["network"])])
def test_new_weights_wait_for_the_last_batch_of_a_worker(ended, order):
    "On an Apple GPU two threads must not compute at once. Where the play goes on, nothing waits."
    seen = []
    pool = SimpleNamespace(generation=SimpleNamespace(ended=ended), join=lambda: seen.append("join"),
                           set_network=lambda *given: seen.append("network"))
    worker_process._execute(iter([("network", worker_process.pack(None), 1)]), pool, None)
    assert seen == order


def test_an_outcome_that_fails_does_not_hide_a_failure():
    "While the line of a failure is looked for, rules are called that are known to fail."
    def play(state, outcome):
        if outcome < 2: raise KeyError(outcome)
        return state + outcome
    block = SimpleNamespace(game=SimpleNamespace(outcomes=4, play=play), trees=SimpleNamespace(states=np.array([[5], [8], [9]])))
    assert slots_module._rolled(block, 0, 1, [4]) == [3, 4] and slots_module._rolled(block, 0, 2, [4]) == []


def test_an_automatic_layout_follows_simple_rules_where_nothing_is_measured():
    game = get_game("tictactoe")
    for options in ({}, dict(workers=2), dict(games=8)):
        assert plan_layout(game, None, layout="auto", **options) == plan_layout(game, None, **options)


def test_a_whole_layout_takes_no_other_options():
    game, layout = get_game("tictactoe"), Layout("threads", ("cpu",), 1, 8, 8, False)
    assert plan_layout(game, None, layout=layout) is layout
    with pytest.raises(ValueError, match="leave out games, backend"):
        SelfPlayEngine(game, None, layout=layout, games=64, backend="eager", listeners=())
    with pytest.raises(ValueError, match="leave out shared"): plan_layout(game, None, layout=layout, shared=False)


def test_self_play_can_look_for_wins_in_trees_with_room_for_them():
    "Off by default; with it, each simulation may add a second node, and the games stay legal to their ends."
    game, looks = get_game("tictactoe"), SelfPlaySettings(SearchSettings(60), full_search_fraction=1, find_wins=True)
    assert not SelfPlaySettings().find_wins
    games = [play(game, 12, settings=settings) for settings in (looks, replace(looks, find_wins=False))]
    assert [record.actions.tolist() for record in games[0]] != [record.actions.tolist() for record in games[1]]
    for record in games[0]:
        assert game.over(game.state_after(record.actions.tolist()))
    rooms = [len(slots_module.SlotBlock(game, 4, settings).trees.nodes) for settings in (looks, replace(looks, find_wins=False))]
    assert rooms == [4 * 62 * 2, 4 * 62]
