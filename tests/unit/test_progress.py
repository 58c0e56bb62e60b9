"Progress: the tally counts what was played, the live line stays one line, and no number is too odd to be shown."
import errno
import io
import json
import math
import os
import random
import re
import sys
import time
import tracemalloc
from dataclasses import replace

import pytest

from alphazero_nb.core.events import (EngineStatus, Events, FolderAway, GameFinished, IterationDone, MatchMoved, MatchPlayed,
                                      Message, NodesStatus, PhaseStarted, RunDone, RunStarted, SelfPlayDone, SelfPlayStopped, StepsTaken,
                                      WorkerLost, WorkerStarted, event_to_dict, JsonLines, read_events)
from alphazero_nb.ui.progress import (Pace, SafeStream, Tally, TensorBoard, TextProgress, describe,
                                      describe_milestone, milestones, progress_line, read_curves)
from alphazero_nb.core import events as kinds
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.trainer import Trainer
from alphazero_nb.ui import progress as page

AWAY = FolderAway("/content/drive/MyDrive/alphazero_nb/connect4", 42.3, "Transport endpoint is not connected", 7)
SAMPLES = [
    GameFinished(9, 50, 200, 55, 30, (1., -1.), 12.5, 90000, "cuda:0"),
    SelfPlayDone(500, 12345, 24.69, (.55, .412), .038, 1_400_000, 127.9, .93, 31., {"cuda:0": 260, "cuda:1": 240}),
    StepsTaken(2, 40, 1.9, .8),
    IterationDone(3, 75., 96, 1200, 1.9, .8, 16.2),
    MatchPlayed("run", "random", .9, .85, .95, 40, 5),
    WorkerStarted(2, "cuda:2", "Tesla T4, 15 GB", "float16", 5.1),
    WorkerLost(1, "was killed by signal 9", 3, 64),
    Message("A sentence."),
    EngineStatus(10., 26_000., 580., 127.6, .93, 1, {"cuda:0": {"evals_per_s": 26_000., "memory_gb": 1.2}}, "x o"),
    NodesStatus({"worker 0 gpu7:4a1c gpu0": "gpu7:4a1c", "worker 1 gpu7:4a1c gpu1": "gpu7:4a1c"}, .4, 12.3, 4567.),
    SelfPlayStopped(5, "GameFailed"),
    MatchMoved("run", "random", 12, 40, 731),
    PhaseStarted("judging"),
    RunStarted("connect4", "small", "cuda:0", "runs/connect4", 3, 96, minutes=10.),
    AWAY,
    MatchPlayed("run", "heuristic", .55, .52, .58, 800, 5, {
        "points a round": dict(mine=[5.12, 5.03, 5.21], theirs=[4.64, 4.55, 4.73], difference=[.48, .4, .56], share=False),
        "exact bids": dict(mine=[.491, .48, .502], theirs=[.443, .44, .446], difference=[.048, -.01, .106], share=True)}),
    RunDone(7, "runs/connect4", True, 31),
]


def test_a_match_says_how_many_games_differ_if_some_repeat():
    match = lambda different: describe(MatchPlayed("run", "random", .9, .85, .95, 400, 5, different=different))
    assert "(85.0% to 95.0%, 400 games, 18 different)" in match(18)
    for unknown in (None, 400, "18"): assert "(85.0% to 95.0%, 400 games)" in match(unknown)


def call(total, seed, ahead=.2, already=0, pause=.05, seats=2, sources=("cuda:0", "cuda:1", "cuda:10")):
    "Events of one call: bursts and pauses, games that were not asked for, and some that were done before."
    rng, done, seconds, finished = random.Random(seed), already, 0., 0
    while done < total:
        finished += 1
        seconds += rng.choice([0, 0, 0, pause, 8 * pause, 100 * pause if rng.random() < .05 else 0]) * rng.random()
        done += rng.random() >= ahead
        outcome = tuple(rng.choice([-1., 0., .5, 1.]) for _ in range(seats))
        yield GameFinished(finished, done, total, finished, rng.randint(5, 40), outcome, seconds, 70 * finished,
                           rng.choice(sources))


class Terminal(io.StringIO):
    def isatty(self): return True


@pytest.fixture(autouse=True)
def no_color(monkeypatch): monkeypatch.setenv("NO_COLOR", "1")


# The tally --------------------------------------------------------------------------------------

def slow_now(times, at):
    "The speed now from all times: cut into steps, then between steps that are whole."
    starts, before = [0.], [0]
    for count, seconds in enumerate(times):
        if seconds - starts[-1] >= .1: starts.append(seconds), before.append(count)

    def reference(end):
        found = 0
        for index in range(len(starts) - 4):
            if starts[index] <= end - 5: found = index
        return found
    if before[-1] == 0: return len(times) / at if at else 0.
    a, b = reference(starts[-1]), reference(at)
    return min((before[-1] - before[a]) / (starts[-1] - starts[a]), (len(times) - before[b]) / (at - starts[b]))


def slow_tally(past, at):
    "The state of a call from all its events."
    last, n, asked = past[-1], len(past), past[-1].done - max(0, past[0].done - 1)
    missing, enough = last.total - last.done, past[-1].total - max(0, past[0].done - 1) <= 20 * asked
    left = 0. if missing <= 0 else missing * at / asked if asked and enough else None
    sources = {}
    for name in dict.fromkeys(event.source for event in past):
        times = [event.seconds for event in past if event.source == name]
        sources[name] = dict(games=len(times), average=len(times) / at if at else 0., now=slow_now(times, at))
    return dict(done=last.done, total=last.total, finished=n, seconds=at, average=n / at if at else 0.,
                now=slow_now([event.seconds for event in past], at), left_s=left,
                mean_length=sum(event.length for event in past) / n,
                wins=[sum(event.outcome[seat] > 0 for event in past) / n for seat in range(len(last.outcome))],
                draws=sum(max(event.outcome) <= 0 for event in past) / n, evaluations=last.evaluations, sources=sources)


def same(one, other):
    "Equal, nested numbers up to rounding."
    if isinstance(one, dict): return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list): return len(one) == len(other) and all(map(same, one, other))
    return one is other if one is None or other is None else math.isclose(one, other, rel_tol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_the_tally_is_what_a_slow_count_of_all_events_finds(seed):
    rng, tally = random.Random(seed), Tally()
    for number in range(4):
        total = rng.choice([1, 5, 60, 300])
        past = []
        for event in call(total, rng.random(), rng.choice([0, .2, .6]), rng.randint(0, total - 1), rng.choice([.001, .05, 2.]),
                          rng.choice([1, 2, 3])):
            tally(event)
            past.append(event)
            later = event.seconds + rng.choice([0, 0, .3, 7, 200])
            if rng.random() < .2: assert same(tally.to_dict(later), slow_tally(past, later)), (number, event)
        assert same(tally.to_dict(), slow_tally(past, event.seconds))
        assert sum(row["games"] for row in tally.to_dict()["sources"].values()) == len(past)


def test_an_interrupted_call_is_forgotten_when_the_next_begins():
    tally = Tally()
    for count in (1, 2, 7):
        past = list(call(40, count))[:count]
        for event in past: tally(event)
        assert same(tally.to_dict(), slow_tally(past, past[-1].seconds))


@pytest.mark.parametrize("done, total", [(30, 60), (8, 40)])
def test_another_call_shows_even_where_its_first_events_were_missed(done, total):
    tally = Tally()
    for index in range(1, 11): tally(GameFinished(index, index, 40, index, 9, (1., -1.), float(index), 0))
    tally(GameFinished(90, done, total, 20, 9, (1., -1.), 30., 0))
    assert tally.to_dict()["finished"] == 1 and tally.to_dict()["total"] == total


def test_games_without_a_source_count_for_all_only():
    tally = Tally()
    for event in call(60, 4, sources=("", "cpu")): tally(event)
    assert list(tally.sources) == ["cpu"] and tally.sources["cpu"].count < tally.pace.count == event.finished


def test_other_events_change_nothing():
    tally, silent = Tally(), Tally()
    for event in call(30, 1):
        for other in SAMPLES[1:]: tally(other)
        tally(event), silent(event)
    assert tally.to_dict() == silent.to_dict() and Tally().to_dict()["finished"] == 0


def test_games_played_ahead_do_not_bring_the_end_nearer():
    "Half of the games that finish were not asked for: at a quarter of the way, three times as long is left, not less."
    tally = Tally()
    for index in range(1, 51): tally(GameFinished(index, (index + 1) // 2, 100, index, 9, (1., -1.), index / 10, 0))
    assert tally.left_s() == pytest.approx(15) and tally.pace.average() == pytest.approx(10)


def test_games_of_an_earlier_call_do_not_count_as_speed():
    tally = Tally()
    for index in range(1, 11): tally(GameFinished(index, 80 + index, 100, index, 9, (1., -1.), float(index), 0))
    assert tally.left_s() == pytest.approx(10)
    tally(GameFinished(1, 0, 100, 1, 9, (1., -1.), .1, 0))   # What an interrupted call left comes first
    assert tally.left_s() is None


def test_one_early_game_is_no_estimate():
    tally = Tally()
    past = [GameFinished(index, index, 100, index, 9, (1., -1.), 8 + index / 10, 0) for index in range(1, 101)]
    lefts = []
    for event in past:
        tally(event)
        lefts.append(tally.left_s())
    assert lefts[:4] == [None] * 4 and lefts[4:] == sorted(lefts[4:], reverse=True) and lefts[-1] == 0


def pace_of(times):
    pace = Pace()
    for seconds in times: pace.add(seconds)
    return pace


@pytest.mark.parametrize("gap, burst", [(.0001, 1), (.03, 1), (.4, 1), (2, 64), (20, 1), (20, 64), (300, 1)])
def test_the_speed_now_is_the_same_in_bursts_and_at_any_moment(gap, burst):
    "Looked at after every game, also in the middle of a burst, and halfway to the next one."
    pace, rate = Pace(), burst / gap
    for index in range(int(max(12, 8 / gap))):
        for _ in range(burst):
            pace.add((index + 1) * gap)
            if (index + 1) * gap > 6 and index > 6:
                assert pace.now() == pytest.approx(rate, rel=.05)
                assert .5 * rate <= pace.now(pace.last + gap / 2) <= 1.01 * rate


def test_the_speed_now_follows_a_change_and_the_average_does_not():
    times = [index / 100 for index in range(1, 2001)] + [20 + index / 10 for index in range(1, 101)]
    pace = pace_of(times)
    assert pace.now() == pytest.approx(10, rel=.05) and pace.average() == pytest.approx(70)
    silence = [pace.now(30 + seconds) for seconds in (0, 10, 100, 1000)]
    assert silence == sorted(silence, reverse=True) and silence[1] < 1 and silence[-1] < .01


def test_many_events_leave_nothing_behind():
    tally, log = Tally(), TextProgress(Terminal(), every_s=1e9)
    events = Events([tally, log])

    def play(start, stop):
        for index in range(start, stop):
            events.emit(GameFinished(index, index, 40_000, index, 20, (1., -1.), index / 5000, 90 * index,
                                     f"cuda:{index % 4}"))
    play(1, 30_000)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        play(30_000, 40_001)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally: tracemalloc.stop()
    assert grown < 20_000, "a number per game would be 80 kB"
    assert tally.pace.count == 40_000 and len(tally.sources) == 4
    assert max(len(pace.steps) for pace in (tally.pace, *tally.sources.values())) < 60


# Words ------------------------------------------------------------------------------------------

def test_every_kind_of_event_has_a_sample():
    here = [kind for kind in vars(kinds).values() if isinstance(kind, type) and kind.__module__ == kinds.__name__]
    assert {type(event) for event in SAMPLES} == set(here) - {Events, JsonLines}


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_every_event_is_described_and_survives_json(event, tmp_path):
    line = describe(event)
    assert line and "\n" not in line and "\r" not in line and type(event).__name__ not in line
    JsonLines(tmp_path / "events.jsonl", (object,))(event)
    data = json.loads((tmp_path / "events.jsonl").read_text())
    kind = getattr(kinds, data.pop("event"))
    assert kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}) == event
    assert event_to_dict(event) == dict(event=kind.__name__, **vars(event))


def test_the_file_keeps_what_happens_rarely(tmp_path):
    listener = JsonLines(tmp_path / "events.jsonl")
    for event in SAMPLES: listener(event)
    lines = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert lines == ["IterationDone", "MatchPlayed", "WorkerStarted", "WorkerLost", "Message", "RunStarted", "MatchPlayed",
                     "RunDone"]


def test_the_file_is_read_back_as_events(tmp_path):
    path = tmp_path / "events.jsonl"
    for event in SAMPLES: JsonLines(path)(event)
    with open(path, "ab") as file: file.write(b'[1, 2]\n{"event": "Unknown"}\n{"event": "Message", "words": 3}\n\xff\n{"event": "Mess')
    assert list(read_events(path)) == [event for event in SAMPLES if type(event).__name__ in path.read_text(errors="replace")]


def test_tensorboard_reads_what_its_listener_wrote(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed")
    board = TensorBoard(tmp_path / "tb")
    for event in SAMPLES: board(event)
    found = reader.EventAccumulator(str(tmp_path / "tb")).Reload()
    scalars = {name: [(scalar.step, round(scalar.value, 3)) for scalar in found.Scalars(name)] for name in found.Tags()["scalars"]}
    assert scalars["loss/policy"] == [(3, 1.9)] and scalars["points/random"] == [(5, .9)]
    assert scalars["points/heuristic"] == [(5, .55)] and scalars["points_a_round/heuristic/mine"] == [(5, 5.12)]
    assert scalars["points_a_round/heuristic/difference"] == [(5, .48)] and scalars["exact_bids/heuristic/theirs"] == [(5, .443)]
    assert scalars["cluster/nodes"] == [(75, 1)] and scalars["cluster/weights_age"] == [(75, .4)]
    assert scalars["speed/evaluations_per_s"] == [(75, 26_000.)] and scalars["games/per_minute"] == [(3, 972.)]


def test_the_curves_of_a_resumed_run_go_on_where_they_ended(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed")
    log, speed = JsonLines(tmp_path / "events.jsonl"), SAMPLES[8]
    for iteration in range(1, 6): log(IterationDone(iteration, 1000. * iteration, 96, 1200, 1.9, .8, 16.2))
    board = TensorBoard(tmp_path / "tb")
    for event in (RunStarted("connect4", "small", "cpu", str(tmp_path)), speed,
                  RunStarted("connect4", "small", "cpu", str(tmp_path), 4, 96), speed, RunDone(4, str(tmp_path))): board(event)
    found = reader.EventAccumulator(str(tmp_path / "tb")).Reload().Scalars("speed/evaluations_per_s")
    assert [scalar.step // 1000 for scalar in found] == [0, 4]


def test_curves_may_lie_in_the_folder_of_a_new_run(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed")
    settings = TrainSettings(games_per_iteration=8, batch_size=16, evaluate_every=0)
    Trainer("tictactoe", "mlp", tmp_path / "run", train_settings=settings, device="cpu", simulations=4,
            listeners=(TensorBoard(tmp_path / "run" / "tb"),)).fit(iterations=1)
    assert "loss/policy" in reader.EventAccumulator(str(tmp_path / "run" / "tb")).Reload().Tags()["scalars"]


def test_without_tensorboard_the_listener_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r'pip install "alphazero_nb\[tb\]"'): TensorBoard(tmp_path)


def test_the_words_of_ends():
    assert describe(RunDone(1, "run")) == "Done. 1 iteration is saved in run."
    assert describe(RunDone(0, "run", True, 1)) == ("Stopped. 0 iterations are saved in run, plus 1 game of the next "
                                                    "one. Run it again to continue from there.")
    assert describe(RunDone(2, "run", error="ValueError")).startswith("Stopped by an error (ValueError). 2 iterations are saved")
    assert describe(SelfPlayStopped(1)) == "Stopped. 1 game had finished and is kept for the next call."


def test_the_words_of_a_folder_that_is_away():
    folder = AWAY.folder
    assert describe(AWAY) == (
        f"Waiting for the folder {folder}, away for 0:42 (Transport endpoint is not connected). The run goes on by itself when the "
        f"drive is mounted and writable again. If you stop it now, 7 iterations are saved, and the games since then are not.")
    assert describe(replace(AWAY, seconds=3700., back=True)) == f"The folder {folder} is back after 1:01:40. The run goes on."
    assert describe(RunDone(1, "run", True, unsaved=1)) == (
        "Stopped. 1 iteration is saved in run. The folder is away, so 1 game of the next one is not saved; only this Trainer still "
        "has it. Run it again to continue from there.")
    assert describe(RunDone(2, "run", error="OSError", unsaved=31)).startswith(
        "Stopped by an error (OSError). 2 iterations are saved in run. The folder is away, so 31 games of the next one are not saved;")


def wait_in_steps(progress, clock, seconds):
    "Events of a run that waits for its folder and finds it back."
    progress(SAMPLES[3])
    for second in range(seconds + 1):
        progress(replace(AWAY, seconds=float(second)))
        clock[0] += 1
    progress(replace(AWAY, seconds=float(seconds), back=True))


def test_a_log_says_at_once_that_the_folder_is_away_then_at_intervals_and_at_the_end(monkeypatch):
    clock, stream = [1000.], io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    wait_in_steps(TextProgress(stream, log_every_s=30.), clock, 70)
    lines = stream.getvalue().splitlines()[1:]
    assert [re.search(r"(?:away for|back after) ([\d:]+)", line)[1] for line in lines] == ["0:00", "0:30", "1:00", "1:10"]
    assert all(line.startswith("Waiting for the folder ") for line in lines[:3]) and lines[3].endswith("The run goes on.")


def test_a_terminal_counts_the_time_of_a_wait_on_one_line(monkeypatch):
    clock, terminal = [1000.], Terminal()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    wait_in_steps(TextProgress(terminal, columns=300), clock, 70)
    lines = terminal.getvalue().rstrip("\n").split("\n")
    assert len(lines) == 3 and lines[1].startswith("Waiting for the folder ") and "away for 0:00" in lines[1]
    shown = lines[2].split("\r")
    assert sum("away for" in line for line in shown) == 70 and max(map(len, shown)) < 300 and shown[-1] == describe(
        replace(AWAY, seconds=70., back=True))


def test_the_words_of_workers_and_summaries():
    assert describe(SAMPLES[5]) == "worker 2: cuda:2 Tesla T4, 15 GB, float16 (5.1 s to start)"
    assert describe(SAMPLES[6]) == ("Worker 1 was killed by signal 9 after 3 finished games. "
                                    "Its 64 unfinished games will be replayed.")
    assert describe(WorkerLost(0, "left", 1, 1)) == ("Worker 0 left after 1 finished game. "
                                                     "Its unfinished game will be replayed.")
    assert describe(WorkerLost(0, "left", 0, 0)) == "Worker 0 left after 0 finished games. It had no unfinished games."
    assert describe(SAMPLES[1]) == (
        "500 games in 0:31 (16.1 games/s), 12,345 positions, mean length 24.7, won 55.0% / 41.2%, drawn 3.8%, "
        "average batch 127.9, evaluator busy 93%; cuda:0 260 games, cuda:1 240 games")
    alone = SelfPlayDone(1, 20, 20., (1., 0.), 0., 900, 1., .5, 4000., {"cpu": 1})
    assert describe(alone).startswith("1 game in 1:06:40 (0.0 games/min), 20 positions") and "cpu" not in describe(alone)
    ready = SelfPlayDone(256, 1909, 7.5, (.48, .066), .453, 12, 12., 1., .007, {})
    assert describe(ready) == "256 games from before this call, 1,909 positions, mean length 7.5, won 48.0% / 6.6%, drawn 45.3%"


def test_the_words_of_matches():
    assert describe(SAMPLES[4]) == "run against random: 90.0% of the points (85.0% to 95.0%, 40 games)"
    assert describe(SAMPLES[-2]) == (
        "run against heuristic: points a round 5.12 (5.03 to 5.21) against 4.64 (4.55 to 4.73): +0.48 (+0.40 to +0.56); "
        "exact bids 49.1% (48.0% to 50.2%) against 44.3% (44.0% to 44.6%): +4.8% (-1.0% to +10.6%); "
        "55.0% of the opponents beaten (52.0% to 58.0%, 800 games)")


def test_a_match_of_an_older_file_is_read(tmp_path):
    old = dict(event="MatchPlayed", player="run", opponent="random", score=.9, low=.85, high=.95, games=40, iteration=5)
    (tmp_path / "events.jsonl").write_text(json.dumps(old) + "\n")
    assert list(read_events(tmp_path / "events.jsonl")) == [SAMPLES[4]]


def test_several_players_have_no_winners():
    several = SelfPlayDone(9, 200, 24., (.1, .2, .3, .1), .3, 900, 9., .5, 9., {})
    assert "won" not in describe(several) and "drawn" not in describe(several) and "mean length 24.0" in describe(several)


@pytest.mark.parametrize("per_s, words", [(1234, "1,234 games/s"), (31, "31 games/s"), (2, "2.0 games/s"), (.5, "30 games/min"),
                                          (.02, "1.2 games/min")])
def test_the_unit_fits_the_speed(per_s, words):
    past = [GameFinished(index, index, 500, index, 9, (1., -1.), index / per_s, 0) for index in range(1, 301)]
    tally = Tally()
    for event in past: tally(event)
    assert words in describe(past[-1]) and re.search(rf"now [\d,.]+, average {words}  ", progress_line(tally, 100))


@pytest.mark.parametrize("seconds", [0., -1., 1e-300, 1e300, math.inf, math.nan])
@pytest.mark.parametrize("done, total, finished", [(0, 0, 0), (0, 0, 1), (5, 0, 5), (7, 5, 7), (-1, 5, 1), (0, 10, 30)])
def test_odd_numbers_are_printed_without_an_error(seconds, done, total, finished):
    terminal, log = Terminal(), io.StringIO()
    for listener in (TextProgress(terminal, every_s=0, columns=2000), TextProgress(log, log_every_s=0)):
        for source in ("", "a", "b"): listener(GameFinished(0, done, total, finished, 0, (), seconds, 0, source))
        listener(SelfPlayDone(finished, 0, 0., (), 0., 0, 0., 0., seconds, {}))
        listener(WorkerStarted(0, "cpu", "", "float32", seconds))
        listener(StepsTaken(0, 0, None, math.nan))
        listener(IterationDone(0, seconds, 0, 0, None, None, 0.))
        assert listener.tally.to_dict(seconds)["finished"] == 1   # One that does not count on begins another call
        describe(GameFinished(0, done, total, finished, 0, (), seconds, 0))
    assert terminal.getvalue().count("\n") == 3 and log.getvalue().count("\n") == 7


# Text -------------------------------------------------------------------------------------------

def screen(text, columns):
    "What a terminal of this width shows after `text`, as lines."
    lines, row, column = [[]], 0, 0
    for sign in text:
        if sign == "\r": column = 0
        elif sign == "\n":
            row += 1
            if row == len(lines): lines.append([])
        else:
            if column == columns:
                row, column = row + 1, 0
                if row == len(lines): lines.append([])
            lines[row] += [" "] * (column + 1 - len(lines[row]))
            lines[row][column] = sign
            column += 1
    return ["".join(line).rstrip() for line in lines]


def read_all(descriptor):
    os.set_blocking(descriptor, False)
    parts = []
    while True:
        try: part = os.read(descriptor, 65536)
        except OSError: break
        if not part: break
        parts.append(part)
    return b"".join(parts)


@pytest.fixture
def pseudo_terminal():
    "A function that makes a stream of a pseudo-terminal of some width, and one that reads what arrived on the other side."
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    import struct
    opened = []

    def make(columns, encoding="utf-8"):
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        stream = open(slave, "w", encoding=encoding, newline="")
        opened.append((master, stream))
        return stream, lambda: read_all(master).decode(encoding)
    yield make
    for master, stream in opened:
        stream.close()
        os.close(master)


@pytest.mark.parametrize("columns", [12, 30, 60, 80, 200])
def test_a_terminal_shows_one_line_that_never_wraps(pseudo_terminal, columns):
    stream, read = pseudo_terminal(columns)
    progress, shown = TextProgress(stream, every_s=0), ""
    for index, event in enumerate(call(60, 3)):
        progress(event)
        shown += read()
        lines = screen(shown, columns)
        assert lines == [progress_line(progress.tally, columns - 1)] and len(lines[0]) < columns
    progress(StepsTaken(1, 20, 1.5, .5))
    shown += read()
    assert screen(shown, columns) == [describe(StepsTaken(1, 20, 1.5, .5))[:columns - 1].rstrip()]
    progress(Message("Done."))
    progress(Message("Two\nlines."))
    shown += read()
    assert screen(shown, columns) == ["Done.", "Two", "lines.", ""] and shown.endswith("\rDone.\r\nTwo\r\nlines.\r\n")


def test_a_terminal_that_is_made_narrower_is_asked_again(pseudo_terminal):
    import fcntl, struct, termios
    stream, read = pseudo_terminal(150)
    progress = TextProgress(stream, every_s=0)
    past = list(call(60, 3))
    for event in past[:20]: progress(event)
    assert len(read().split("\r")[-1]) > 100
    fcntl.ioctl(stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    progress(past[20])
    assert len(read().split("\r")[-1]) < 50


def test_a_terminal_without_the_signs_gets_others(pseudo_terminal):
    stream, read = pseudo_terminal(100, "ascii")
    progress = TextProgress(stream, every_s=0)
    for event in call(60, 3): progress(event)
    progress(Message("Größe"))
    text = read()
    assert "self-play ######------" in text and "Gr??e" in text


def test_the_line_gives_whole_numbers_or_none():
    "Whatever fits is what a wider line begins with; what is cut ends in dots."
    tally = Tally()
    for event in list(call(400, 5))[:300]: tally(event)
    words = progress_line(tally, 1000).replace("  ", " ").split()
    for columns in range(1000):
        line = progress_line(tally, columns)
        assert len(line) <= columns
        if columns < 25: continue
        shown = line.replace(" ...", "").replace("  ", " ").split()
        assert shown == [word for word in words if columns >= 60 or not set("█░") & set(word)][:len(shown)]
        assert line.endswith(" ...") == (len(shown) < len(words) - (columns < 60))
    full = words[1].count("█")
    assert len(words[1]) == 12 and full == 12 * tally.last.done // tally.last.total


def test_several_sources_are_named_in_their_order():
    tally = Tally()
    for event in call(60, 3, sources=("cuda:10", "cuda:2")): tally(event)
    line, log = progress_line(tally, 200), progress_line(tally)
    assert line.index("| cuda:2 ") < line.index("  cuda:10 ") and log.index("; cuda:2 ") < log.index(", cuda:10 ")
    for sources in (("cpu",), ("",)):
        tally = Tally()
        for event in call(60, 3, sources=sources): tally(event)
        assert "|" not in progress_line(tally, 200) and ";" not in progress_line(tally) and "cpu" not in progress_line(tally)


def test_a_cluster_shows_its_nodes_their_games_the_age_of_weights_and_the_bytes():
    tally, sources = Tally(), [f"worker {k} n{k // 2}:ab12 gpu{k % 2}" for k in range(4)]
    nodes = {source: source.split()[2] for source in sources}
    tally(NodesStatus({source: nodes[source] for source in sources[:2]}, None, 0., 0.))
    for event in call(80, 3, sources=sources): tally(event)
    tally(NodesStatus({source: nodes[source] for source in sources[2:]}, .25, 12.34, 5000.))   # Node 0 is gone
    games = {node: sum(tally.sources[source].count for source in sources if nodes[source] == node) for node in set(nodes.values())}
    assert tally.games_by_node() == games and sum(games.values()) == tally.pace.count
    log, line = progress_line(tally), progress_line(tally, 300)
    assert "1 node, weights 0.2 versions old, games 12.3 MB, weights sent 5.0 GB" in log and "1 node, " in line
    for node, count in games.items(): assert f"{node} {count} (" in log and f"{node} {count} (" in line
    assert "worker" not in log


def test_a_line_names_no_more_than_16_nodes():
    tally = Tally()
    for event in call(400, 3, sources=[f"n{k}" for k in range(100)]): tally(event)
    assert progress_line(tally).count("(") == 16 and progress_line(tally).endswith("and 84 more")


def test_a_file_gets_whole_lines_at_intervals(tmp_path, monkeypatch):
    clock = [1000.]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with open(tmp_path / "log", "w") as stream:
        progress = TextProgress(stream, log_every_s=30.)
        for index in range(1, 1001):
            clock[0] += .125
            progress(GameFinished(index, index, 1000, index, 9, (1., -1.), index / 8, 0))
        progress(SAMPLES[1])
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[-1] == describe(SAMPLES[1]) and len(lines) == 5
    assert [line.partition(", now")[0] for line in lines[:4]] == [f"self-play {done}/1,000" for done in (240, 480, 720, 960)]
    assert not set("\r█░") & set("".join(lines))


def test_the_live_line_is_drawn_at_intervals(monkeypatch):
    clock, terminal = [1000.], Terminal()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = TextProgress(terminal, every_s=.25)
    for index in range(1, 101):
        clock[0] += .125
        progress(GameFinished(index, index, 100, index, 9, (1., -1.), index / 8, 0))
    assert terminal.getvalue().count("\r") == 50


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_what_is_skipped_is_not_printed_but_counted(stream):
    past = list(call(40, 2))

    def text(skip, events):
        progress = TextProgress(stream(), every_s=0, log_every_s=0, skip=skip, columns=100)
        for event in events: progress(event)
        assert progress.tally.to_dict() == counted.to_dict()
        return progress.stream.getvalue()
    counted = Tally()
    for event in past: counted(event)
    assert text((SelfPlayDone,), [*past, SAMPLES[1], Message("Next.")]) == text((), [*past, Message("Next.")])
    assert text((SelfPlayDone, GameFinished), [*past, SAMPLES[1], Message("Next.")]) == "Next.\n"


def test_in_a_notebook_its_own_output_is_live_and_a_file_is_not(monkeypatch):
    monkeypatch.setattr(page, "has_kernel", lambda: True)
    output, file = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    for progress in (TextProgress(every_s=0), TextProgress(file, log_every_s=0)):
        for event in call(30, 2): progress(event)
    assert "\n" not in output.getvalue() and max(map(len, output.getvalue().split("\r"))) < 100
    assert "\r" not in file.getvalue() and file.getvalue().endswith("\n")


@pytest.mark.parametrize("columns", [30, 60, 80, 132, 400])
def test_lines_that_stay_fit_the_terminal_and_lose_no_word(columns):
    kept = IterationDone(1234, 7500., 314_159, 500_000, 1.9, .8, 16.2, {}, [.9, .86, .93, 300])
    for event in (*SAMPLES, kept, Message("two lines, the first of which is long enough to be wrapped somewhere\n  and a table")):
        if isinstance(event, (GameFinished, StepsTaken, MatchMoved, EngineStatus, NodesStatus, PhaseStarted)): continue
        if event == AWAY: event = replace(AWAY, seconds=0.)   # The first line of a wait stays
        terminal = Terminal()
        TextProgress(terminal, columns=columns)(event)
        lines = terminal.getvalue().removesuffix("\n").split("\n")
        longest = max(map(len, describe(event).split()))
        assert all(len(line) < max(columns, longest + 3) for line in lines), lines
        if isinstance(event, IterationDone):
            assert lines[0].split()[1:3] == ["iteration", str(event.iteration)]
            assert " ".join(map(str.strip, lines[1:])) == "Now: keeps the result in 90%." * (event == kept)
        else: assert terminal.getvalue().split() == describe(event).split()
        if event == kept and columns >= 60: assert "keeps the result in 90%" in lines[0], "strength goes last"
        if columns == 400: assert "\n".join(lines[:1] if event == kept else lines) == describe(event).replace(" of 300 critical positions (86% to 93%)", "")
    log = io.StringIO()
    TextProgress(log, columns=columns)(kept)
    assert log.getvalue().splitlines()[0] == describe(kept), "a log has all"


def test_colour_is_for_terminals_and_can_be_refused(monkeypatch):
    def text(stream):
        progress = TextProgress(stream, columns=200)
        for event in (SAMPLES[4], SAMPLES[6], Message("Plain."), RunDone(7, "runs/a")): progress(event)
        return stream.getvalue()
    plain = text(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "name", "posix")
    colored = text(Terminal())
    lines = colored.splitlines()
    assert [line[:5] for line in lines] == ["\x1b[32m", "\x1b[33m", "Plain", "\x1b[1mD"] and all(line.endswith("\x1b[0m") for line in lines if line != "Plain.")
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain and text(io.StringIO()) == plain and "\x1b" not in plain
    monkeypatch.setenv("TERM", "dumb")
    assert text(Terminal()) == plain


@pytest.mark.parametrize("event", [RunDone(7, "runs/connect4", True, 31), SelfPlayStopped(5)], ids=["run", "call"])
def test_ctrl_c_ends_the_line_in_progress_with_one_sentence(event):
    terminal = Terminal()
    progress = TextProgress(terminal, every_s=0, columns=200)
    for game in call(60, 3): progress(game)
    terminal.write("^C")   # As a terminal does
    progress(event)
    *_, live, stop, rest = terminal.getvalue().replace("\r", "\n").split("\n")
    assert live == progress_line(progress.tally, 199) + "^C" and stop == describe(event) and rest == ""
    progress(event)
    assert terminal.getvalue().endswith(f"\n{stop}\n{stop}\n"), "no line in progress, none to end"


def test_a_command_that_ends_in_the_middle_of_a_line_ends_the_line():
    for stream, want in ((Terminal(), "half a line\n"), (io.StringIO(), "half a line")):
        safe = page.SafeStream(stream)
        safe.write("half a "), safe.write("line"), safe.settle()
        assert stream.getvalue() == want
        safe.write("\n"), safe.settle()
    assert stream.getvalue() == "half a line\n"


def test_a_milestone_is_printed_once_when_its_iteration_ends(tmp_path):
    def events(first, last):
        for k in range(first, last):
            if k % 2: yield MatchPlayed("run", "random", .3 + .1 * k, .2, .9, 40, k)
            yield IterationDone(k, 30. * k, 96 * k, 1200, 1.9, .8, 16.2, {}, [share := .6 + .1 * k, share, share, 300] if k < 4 else None)
    log, folder = io.StringIO(), tmp_path / "run"
    keep, progress = JsonLines(folder / "events.jsonl"), TextProgress(log)
    for event in events(1, 5):
        keep(event)
        progress(event)
    assert [line for line in log.getvalue().splitlines() if line.startswith("Now: ")] == [
        "Now: half of the points against random; keeps the result in 90%."]
    assert log.getvalue().splitlines()[-2:][0].startswith("Now: ") and "iteration 3 " in log.getvalue().splitlines()[-3]
    log, again = io.StringIO(), [RunStarted("tictactoe", "tiny", "cpu", str(folder), 4), *events(5, 9)]
    progress = TextProgress(log)
    for event in again: progress(event)
    assert "Now:" not in log.getvalue(), "a resumed run knows what it could do before"


def test_a_phase_is_on_the_live_line_and_not_in_a_log():
    terminal, log = Terminal(), io.StringIO()
    for stream in (terminal, log): TextProgress(stream, every_s=0, log_every_s=0)(PhaseStarted("judging"))
    assert terminal.getvalue() == "\rjudging: moves in solved positions" and log.getvalue() == ""


# Milestones -------------------------------------------------------------------------------------

def test_a_milestone_is_the_first_iteration_that_reaches_its_level():
    rng = random.Random(3)
    for _ in range(200):
        history = [dict(iteration=k, seconds=30. * k, keeps=rng.choice([None, "odd", [share := rng.random(), share, share, 300]]),
                        baselines=rng.choice([{}, None, dict(random=.4, heuristic=.8, wrong="x")])) for k in range(1, rng.randint(2, 12))]
        matches = [dict(opponent=name, iteration=row["iteration"], seconds=row["seconds"], score=rng.random())
                   for row in history for name in "ab" if rng.random() < .5]
        rows = {row["what"]: row for row in milestones(history, matches)}
        for name in "ab":
            scores = {row["iteration"]: row["score"] for row in matches if row["opponent"] == name}
            what = f"half of the points against {name}"
            assert (what in rows) == bool(scores)
            if scores:
                assert rows[what]["iteration"] == min((k for k, score in scores.items() if score >= .5), default=None)
                assert rows[what]["best"] == max(scores.values())
        judged = [row for row in history if isinstance(row["keeps"], list)]
        levels = {f"keeps the result in {level}%": level / 100 for level in (90, 95, 99)} if judged else {}
        if judged and judged[-1]["baselines"]:
            levels |= {"keeps the result as often as random (40%)": .4, "keeps the result as often as heuristic (80%)": .8}
        assert {what for what in rows if what.startswith("keeps")} == set(levels)
        for what, level in levels.items():
            first = next((row for row in judged if row["keeps"][0] >= level), None)
            assert rows[what]["iteration"] == (first and first["iteration"]) and rows[what]["minutes"] == (first and first["seconds"] / 60)


def test_the_ladder_counts_for_the_end_of_a_run():
    history = [dict(iteration=3, seconds=90.)]
    rows = milestones(history, [dict(opponent="random", iteration=2, seconds=60., score=.9)],
                      [dict(opponent="random", score=.95), dict(opponent="greedy", score=.5), dict(opponent="minimax:2", score=.3)])
    assert [describe_milestone(row) for row in rows] == [
        "half of the points against random: since iteration 2", "half of the points against greedy: since iteration 3",
        "half of the points against minimax:2: not yet, 30% at best"]
    assert milestones([]) == [] and milestones([dict(iteration=1, seconds=1., keeps=None)]) == []


# Interruptions ----------------------------------------------------------------------------------

class StoppedTerminal(Terminal):
    "A terminal; a stop of the cell comes right after it has written a line that contains `after`."
    def __init__(self, after):
        super().__init__()
        self.after = after

    def write(self, text):
        super().write(text)
        if self.after and self.after in text:
            self.after = ""
            raise KeyboardInterrupt
        return len(text)


def test_a_stop_during_a_write_leaves_the_last_line_alone():
    terminal = StoppedTerminal("the first games")
    progress = TextProgress(terminal, every_s=0)
    with pytest.raises(KeyboardInterrupt): progress(PhaseStarted("self-play"))
    progress(RunDone(2, "run", True))
    lines = [line.strip() for line in screen(terminal.getvalue(), 200) if line]
    assert len(lines) == 2 and "the first games" in lines[0] and lines[1].startswith("Stopped. 2 iterations")


def test_a_stop_during_a_write_ends_the_line_of_a_command():
    terminal = StoppedTerminal("halfway")
    stream = SafeStream(terminal)
    with pytest.raises(KeyboardInterrupt): stream.write("halfway")
    stream.settle()
    assert terminal.getvalue() == "halfway\n"


def test_a_display_that_fails_is_a_warning_also_beside_a_file(tmp_path):
    def broken(event):
        if isinstance(event, RunStarted): raise ValueError("no display")
    settings = TrainSettings(games_per_iteration=4, batch_size=8, evaluate_every=0)
    run = Trainer("tictactoe", "mlp", tmp_path / "run", "cpu", simulations=4, games=4, listeners=(broken,), train_settings=settings)
    with pytest.warns(UserWarning, match="no display"): run.fit(iterations=1)
    assert run.iteration == 1 and "no display" in (tmp_path / "run" / "events.jsonl").read_text()


ODD = [dict(event="MatchPlayed", player="a", opponent=[1], score=.5, low=.4, high=.6, games=4, iteration=1),
       dict(event="MatchPlayed", player="a", opponent="b", score=7, low=.4, high=.6, games=4, iteration=1),
       dict(event="MatchPlayed", player="a", opponent="b", score=.5, low=.4, high=.6, games=4, iteration=1, measures={"points": {"mine": [1]}}),
       dict(event="IterationDone", iteration="2", seconds=1.0, games=8, positions=8, policy_loss=1.0, value_loss=1.0, games_per_s=1.0),
       dict(event="IterationDone", iteration=2, seconds="1 s", games=8, positions=8, policy_loss=1.0, value_loss=1.0, games_per_s=1.0),
       dict(event="IterationDone", iteration=2, seconds=10**400, games=8, positions=8, policy_loss=1.0, value_loss=1.0, games_per_s=1.0),
       dict(event="IterationDone", iteration=True, seconds=1.0, games=8, positions=8, policy_loss=1.0, value_loss=1.0, games_per_s=1.0)]


@pytest.mark.parametrize("row", ODD)
def test_a_line_with_another_type_is_left_out(row, tmp_path):
    "Someone may edit the file; a display that met it would end, and the run would go on without one."
    (tmp_path / "events.jsonl").write_text(json.dumps(row) + "\n")
    assert read_curves(tmp_path) == ({}, {})
    TextProgress(io.StringIO())(RunStarted("tictactoe", "tiny", "cpu", str(tmp_path), 3))


@pytest.mark.parametrize("number, arrives", [(errno.EAGAIN, True), (errno.ENOSPC, True), (errno.EPIPE, False)])
def test_an_output_that_fails_for_a_while_goes_on(number, arrives):
    class Failing(io.StringIO):
        def write(self, text):
            if text == "two": raise OSError(number, "a failure")
            return super().write(text)
    stream = SafeStream(Failing())
    for text in ("one", "two", "three"): stream.write(text)
    assert stream.stream.getvalue() == "one" + "three" * arrives and stream.error.errno == number
