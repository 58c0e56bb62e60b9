"A run whose folder vanishes or turns read-only waits for it, says so, and goes on as if nothing had happened."
import builtins
import errno
import io
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest

from alphazero_nb.core.events import JsonLines, Message, read_events
from alphazero_nb.network import checkpoint
from alphazero_nb.selfplay.actors import shielded
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.training import producer as producer_page, trainer as trainer_page
from alphazero_nb.training.run_folder import read_layout_file, run_folder
from alphazero_nb.training.producer import produce_games
from alphazero_nb.ui.progress import describe
from processes import Program
from linear_run import SETTINGS, Linear, linear_run
from shared_run import counted, shared_run
from small_run import trainer, wait_for

QUIET = replace(SETTINGS, evaluate_every=0)

pytestmark = pytest.mark.usefixtures("one_thread_inside")


def saved(folder):
    "What a run saved, but for the times: its arrays to the last bit, and the numbers of its log."
    run = linear_run(folder, settings=QUIET)
    arrays = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.npz") if "unfinished" not in path.name}
    return [arrays, [[row[key] for key in ("iteration", "games", "positions", "policy_loss", "value_loss")] for row in run.history]]


def kinds(seen): return [type(event).__name__ for event in seen]
def absences(seen): return [event for event in seen if type(event).__name__ == "FolderAway"]


@pytest.fixture(scope="module")
def base(tmp_path_factory, one_thread_inside):
    "A folder with an iteration, and with finished games of the second one, which was interrupted."
    folder = tmp_path_factory.mktemp("base") / "run"

    def stop(event):
        if type(event).__name__ == "StepsTaken" and run.iteration == 1: raise KeyboardInterrupt
    run = linear_run(folder, [stop], QUIET)
    run.fit(iterations=2)
    assert (folder / "games/unfinished.npz").exists()
    return folder


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    "What three iterations save without a fault."
    folder = tmp_path_factory.mktemp("whole") / "run"
    shutil.copytree(base, folder)
    linear_run(folder, settings=QUIET).fit(iterations=2)
    return saved(folder)


# Each operation fails ---------------------------------------------------------------------------

class Drive:
    "The file operations of this process below a folder. Those with a number for which `fault` is true fail."
    def __init__(self, monkeypatch, folder):
        self.folder, self.count, self.slept, self.number = str(folder), 0, 0, errno.ENOTCONN
        self.fault = lambda number: False
        for module, names in ((os, "open replace unlink mkdir lstat stat scandir listdir fsync"), (builtins, "open"), (io, "open")):
            for name in names.split(): monkeypatch.setattr(module, name, self.failing(name, getattr(module, name)))

    def failing(self, name, call):
        def operation(place=".", *more, **options):
            ours = name == "fsync" or not isinstance(place, int) and os.fsdecode(place).startswith(self.folder)
            if ours: self.count += 1
            if ours and self.fault(self.count): raise OSError(self.number, os.strerror(self.number), str(place))
            return call(place, *more, **options)
        return operation

    def sleep(self, seconds): self.slept += 1


def disturbed(monkeypatch, base, folder, number, fault, **options):
    """Train in a copy of the folder while operations fail. Return the drive, the events, and whether it was the start that
    failed, which says so at once: then the same call is made again."""
    shutil.copytree(base, folder)
    seen, failed = [], False
    run = linear_run(folder, [seen.append], QUIET, **options)
    with monkeypatch.context() as patch:
        drive = Drive(patch, folder)
        run.folder.sleep, drive.number, drive.fault = drive.sleep, number, lambda count: fault(drive, count)
        try: run.fit(iterations=2)
        except (OSError, ValueError) as error:
            assert not seen and "\n" not in str(error), f"after the start: {error!r}"
            drive.fault, failed = lambda count: False, True
            run.fit(iterations=2)
    assert run.iteration == 3
    return drive, seen, failed


def sweep(monkeypatch, base, whole, root, number, fault, step=1):
    "Let each operation of a run fail in turn. Return how many runs waited."
    monkeypatch.setattr(checkpoint, "WAITS_S", (0,) * 6)
    at, waited, starts = 1, 0, 0
    while True:
        folder = root / f"{at}"
        drive, seen, start = disturbed(monkeypatch, base, folder, number, lambda drive, count: fault(drive, count, at))
        now, left = saved(folder), list(folder.rglob("*.part")) + list(folder.rglob("unfinished.npz"))
        if number == errno.EACCES: now, left = [{name: now[0][name] for name in whole[0]}, now[1]], []   # A file that is held open stays
        assert now == whole and not left, f"operation {at}"
        done = [event.iteration for event in read_events(folder / "events.jsonl") if type(event).__name__ == "IterationDone"]
        assert done == [1, 2, 3] or number == errno.EACCES and done == [1, 2], f"operation {at}: {done}"
        if drive.slept: assert absences(seen)[-1].back and not absences(seen)[0].back
        waited, starts = waited + bool(drive.slept), starts + start
        shutil.rmtree(folder)
        if at > drive.count: return waited, starts, at
        at += step


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_whatever_operation_fails_the_run_is_the_same(monkeypatch, base, whole, tmp_path, step):
    fault = lambda drive, count, at: count == at
    waited, starts, operations = sweep(monkeypatch, base, whole, tmp_path, errno.ENOTCONN, fault, step)
    print(f"{operations} operations, {starts} at the start, {waited} runs waited")
    assert operations > 80 and starts < 20 / step and waited > operations / step / 2


@pytest.mark.parametrize("name", ["ENOTCONN", "EIO", "ESTALE", "ETIMEDOUT", "EROFS", "EACCES", "ECONNABORTED", "ESHUTDOWN"])
def test_from_any_operation_on_a_drive_may_be_away_for_a_while(monkeypatch, base, whole, tmp_path, name):
    "From one operation on everything fails, until the run has slept three times."
    number = getattr(errno, name)
    fault = lambda drive, count, at: count >= at and drive.slept < 3
    assert sweep(monkeypatch, base, whole, tmp_path, number, fault, step=17)[0] > 2


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 7])
def test_whatever_operation_fails_a_run_that_plays_on_has_each_game_once(monkeypatch, base, tmp_path, step):
    at, operations = 1, 1
    while at <= operations:
        drive, *_ = disturbed(monkeypatch, base, folder := tmp_path / f"{at}", errno.ENOTCONN, lambda drive, count: count == at,
                              reproducible=False)
        run = linear_run(folder, settings=QUIET, reproducible=False)
        numbers = [record.number for row in run.folder.rows() for record in run.folder.read_games(row)]
        kept = [record.number for record in run.folder.kept()]
        assert [row["iteration"] for row in run.history] == [1, 2, 3] and sorted(numbers) == list(range(run.games)), f"operation {at}"
        assert len(kept) == len(set(kept)) and not set(kept) & set(numbers), f"operation {at}"
        at, operations = at + step, drive.count


def test_a_full_disk_ends_the_run_at_once(monkeypatch, base, tmp_path):
    shutil.copytree(base, tmp_path / "run")
    run, slept = linear_run(tmp_path / "run", settings=QUIET), []
    run.folder.sleep = slept.append

    def full(handle): raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot be written: No space left on device\.$"): run.fit(iterations=1)
    assert not slept and run.iteration == run.folder.iteration == 1
    held = {record.number for record in run.progress.held}
    assert held, "the games of the iteration are lost"
    monkeypatch.undo()
    run.fit(iterations=1)
    numbers = [record.number for row in run.folder.rows() for record in run.folder.read_games(row)]
    assert run.iteration == 2 and sorted(numbers) == list(range(run.games)) and held <= set(numbers)


# A folder that is taken away and put back ---------------------------------------------------------

def leave(run, away, moment="StepsTaken", iteration=1, back=3, here=None):
    """Take the folder of a run away at a moment, and put it back after some waits. `here` makes what stands in its place.
    Return the seconds that the run waited, and its events."""
    folder, waits, seen, gone = run.folder.path, [], [], []

    def listen(event):
        seen.append(event)
        if type(event).__name__ == moment and run.folder.checkpoint.iteration == iteration and not gone:
            gone.append(folder.rename(away))
            if here: here()

    def sleep(seconds):
        waits.append(seconds)
        left = [path.name for path in folder.rglob("*")] if here and folder.exists() else []
        assert not left and (here or not folder.exists()), f"made in the place of the folder: {left}"
        if len(waits) != back: return
        if folder.exists(): folder.rmdir()
        away.rename(folder)
    run.events.listeners.append(listen)
    run.folder.sleep = sleep
    return waits, seen


@pytest.mark.parametrize("moment", ["RunStarted", "GameFinished", "StepsTaken", "IterationDone"])
@pytest.mark.parametrize("place", ["nothing", "an empty folder"])
def test_a_folder_that_comes_back_has_the_same_run(base, whole, tmp_path, moment, place):
    shutil.copytree(base, folder := tmp_path / "run")
    run = linear_run(folder, settings=QUIET)
    waits, seen = leave(run, tmp_path / "away", moment, 2 if moment in ("GameFinished", "IterationDone") else 1,
                        here=folder.mkdir if place != "nothing" else None)
    run.fit(iterations=2)
    assert len(waits) == 3 and saved(folder) == whole
    first, *_, last = absences(seen)
    assert (first.folder, first.seconds, first.back, last.back) == (str(folder), 0, False, True)
    assert [event.iteration for event in read_events(folder / "events.jsonl") if type(event).__name__ == "IterationDone"] == [1, 2, 3]


def test_a_run_that_plays_on_loses_no_game_and_has_none_twice(tmp_path):
    run = trainer(tmp_path / "run")
    run.fit(iterations=1)
    waits, _ = leave(run, tmp_path / "away", back=20)
    sleep = run.folder.sleep
    run.folder.sleep = lambda seconds: (time.sleep(.01), sleep(seconds))   # Actors play meanwhile
    run.fit(iterations=3)
    numbers = [record.number for row in run.folder.rows() for record in run.folder.read_games(row)]
    assert len(waits) == 20 and [row["iteration"] for row in run.history] == [1, 2, 3, 4]
    assert sorted(numbers) == list(range(run.games)) and trainer(tmp_path / "run").games == run.games


def test_a_match_is_saved_when_the_folder_is_back(tmp_path):
    run = linear_run(tmp_path / "run").fit(iterations=1)
    waits, _ = leave(run, tmp_path / "away", "MatchPlayed")
    run.fit(iterations=2)
    assert [match["iteration"] for match in run.matches] == [2] and run.iteration == 3 and len(waits) == 3


def test_a_smaller_batch_is_saved_when_the_folder_is_back(monkeypatch, base, tmp_path):
    class Engine(SelfPlayEngine):
        def __init__(self, *arguments, **options):
            engines.append(self)
            super().__init__(*arguments, **options)
    engines = []
    monkeypatch.setattr(trainer_page, "SelfPlayEngine", Engine)
    shutil.copytree(base, folder := tmp_path / "run")
    run, waits = linear_run(folder, settings=QUIET, reproducible=False), []
    run.folder.sleep = lambda seconds: waits.append((tmp_path / "away").rename(folder))

    def shrink(event):
        if type(event).__name__ == "SelfPlayDone" and not waits:
            engines[0].layout = replace(engines[0].layout, max_rows=8)
            folder.rename(tmp_path / "away")
    run.events.listeners.append(shrink)
    run.fit(iterations=1)
    assert len(waits) == 1 and read_layout_file(folder / "layout.json").max_rows == 8


def test_games_of_other_machines_wait_too(monkeypatch, tmp_path):
    monkeypatch.setattr(producer_page, "AHEAD", 10_000)   # There is room, however fast the first producer plays
    run = shared_run(tmp_path / "run")
    with run.folder.alone(): run.plan.shared.save(run.folder.path)
    for _ in range(2): produce_games(run.folder.path, total=40, network=Linear(), device="cpu", every_s=.02, games=16, threads=1, listeners=())
    run.fit(iterations=1)
    for moment in ("GameFinished", "StepsTaken"):
        waits, seen = leave(run, tmp_path / "away", moment, run.iteration)
        run.fit(iterations=1)
        run.events.listeners.clear()
        assert len(waits) == 3 and absences(seen)[-1].back
    numbers = counted(run.folder.path)
    assert run.iteration == 3 and len(numbers) == len(set(numbers)) == run.games


# The lock ------------------------------------------------------------------------------------------

def replace_by_copy(folder, away):
    "Mount the folder again: it has the same files, and their lock is free."
    shutil.copytree(folder, away)
    shutil.rmtree(folder)


def test_the_lock_is_held_again(base, tmp_path):
    shutil.copytree(base, folder := tmp_path / "run")
    refused = []

    def other(event):
        if type(event).__name__ == "IterationDone":
            try: linear_run(folder, settings=QUIET).fit(iterations=1)
            except ValueError as error: refused.append(str(error))
    run = linear_run(folder, settings=QUIET)
    run.folder.sleep = lambda seconds: (tmp_path / "away").rename(folder)

    def vanish(event):
        if type(event).__name__ == "StepsTaken" and not (tmp_path / "away").exists() and not refused: replace_by_copy(folder, tmp_path / "away")
    run.events.listeners += [vanish, other]
    run.fit(iterations=1)
    assert len(refused) == 1 and "is in use by another trainer" in refused[0]


def test_a_trainer_that_took_the_folder_over_keeps_it(base, tmp_path):
    "Another runtime mounts the drive first and goes on with the run: this one ends with a sentence and changes nothing."
    shutil.copytree(base, folder := tmp_path / "run")
    run = linear_run(folder, settings=QUIET)

    def sleep(seconds):
        away = tmp_path / "away"
        linear_run(away, settings=QUIET).fit(iterations=2)
        away.rename(folder)
        before.append(saved(folder))
    before = []
    run.folder.sleep = sleep

    def vanish(event):
        if type(event).__name__ == "StepsTaken" and not before: replace_by_copy(folder, tmp_path / "away")
    run.events.listeners.append(vanish)
    with pytest.raises(RuntimeError, match="does not match the state of this run, so nothing was written"): run.fit(iterations=2)
    assert saved(folder) == before[0] and linear_run(folder, settings=QUIET).iteration == 3


# A wait that ends ---------------------------------------------------------------------------------

def interrupted(run, away, sleeps=2):
    "Stop a run while it waits. Return its events."
    waits, seen = leave(run, away, back=99)
    sleep = run.folder.sleep

    def stop(seconds):
        sleep(seconds)
        if len(waits) == sleeps: raise KeyboardInterrupt
    run.folder.sleep = stop
    return seen


def test_a_stop_while_it_waits_says_what_is_not_saved(base, whole, tmp_path):
    shutil.copytree(base, folder := tmp_path / "run")
    run = linear_run(folder, settings=QUIET)
    seen = interrupted(run, tmp_path / "away")
    run.fit(iterations=2)
    end = seen[-1]
    assert (end.iteration, end.games, end.unsaved, end.stopped) == (1, 0, 16, True)
    assert describe(end) == (f"Stopped. 1 iteration is saved in {folder}. The folder is away, so 16 games of the next one are not "
                             f"saved; only this Trainer still has them. Run it again to continue from there.")
    assert not folder.exists()
    with pytest.raises(OSError, match=r"has held this run and cannot be read \(No such file or directory\), so nothing was changed; .*\.$"):
        run.fit(iterations=2)
    assert not folder.exists(), "the next call does not begin anew in the place of the folder"
    (tmp_path / "away").rename(folder)
    run.events.listeners[:] = [seen.append]
    seen.clear()
    run.fit(iterations=2)
    assert saved(folder) == whole and min(event.number for event in seen if type(event).__name__ == "GameFinished") == 32


def test_an_interrupt_in_an_attempt_that_fails_is_an_interrupt(monkeypatch):
    begun, pressed, sleep = threading.Event(), threading.Event(), time.sleep

    def fail():
        begun.set()
        pressed.wait(600)
        raise OSError(errno.ENOTCONN, "away")

    def press(seconds):
        if not begun.is_set() or pressed.is_set(): return sleep(seconds)
        pressed.set()
        raise KeyboardInterrupt
    monkeypatch.setattr(time, "sleep", press)
    with pytest.raises(KeyboardInterrupt): shielded(fail)


def test_a_folder_that_stays_away_ends_the_run_after_twelve_hours(base, whole, tmp_path):
    shutil.copytree(base, folder := tmp_path / "run")
    run, now = linear_run(folder, settings=QUIET), [1000.]
    waits, seen = leave(run, tmp_path / "away", back=10 ** 9)
    sleep, run.folder.clock = run.folder.sleep, lambda: now[0]

    def pass_time(seconds):
        sleep(seconds)
        now[0] += 600 * seconds
    run.folder.sleep = pass_time
    with pytest.raises(OSError, match=r"has been away for 72\d minutes \(No such file or directory\); run it again when the folder is back\.$"):
        run.fit(iterations=2)
    assert seen[-1].error == "OSError" and seen[-1].unsaved == 16 and seen[-1].iteration == 1
    assert [event.seconds for event in absences(seen)] == sorted(event.seconds for event in absences(seen))
    (tmp_path / "away").rename(folder)
    run.events.listeners.clear()
    run.fit(iterations=2)
    assert saved(folder) == whole


def test_a_folder_that_cannot_be_used_at_the_start_is_an_error_at_once(monkeypatch, tmp_path):
    run, slept = linear_run(tmp_path / "run", settings=QUIET), []
    run.folder.sleep = slept.append
    with monkeypatch.context() as patch:
        drive = Drive(patch, tmp_path / "run")
        drive.number, drive.fault = errno.EROFS, lambda number: True
        with pytest.raises(OSError, match="Read-only file system"): run.fit(iterations=1)
    assert not slept and not (tmp_path / "run").exists()


# Real processes ----------------------------------------------------------------------------------

CHILD = """
import sys
from dataclasses import replace
from alphazero_nb.ui.progress import TextProgress
from linear_run import SETTINGS, linear_run
linear_run(sys.argv[1], [TextProgress(sys.stdout)], replace(SETTINGS, evaluate_every=0)).fit(iterations=100_000)
print("end")
"""


def child_without_folder(folder, away):
    "Start a run in a process of its own, and take its folder away. Return the process, which waits, and its iterations."
    child = Program(CHILD, folder)
    wait_for(lambda: (folder / "manifest.json").exists() and linear_run(folder, settings=QUIET).iteration >= 2)
    folder.rename(away)
    for line in child.stdout:
        if line.startswith(f"Waiting for the folder {folder}, away for 0:00 (No such file or directory)."): break
    else: raise AssertionError(child.communicate(600))
    return child, linear_run(away, settings=QUIET).iteration


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_a_runtime_that_ends_while_the_drive_is_away_goes_on_in_a_new_one(tmp_path, capsys):
    "The runtime is killed. The new one mounts the drive and makes the same calls."
    drive = tmp_path / "drive"
    mounted = lambda: run_folder("run", drive=True, mount=lambda: drive)
    child, iterations = child_without_folder(folder := mounted(), tmp_path / "away")
    child.send_signal(signal.SIGKILL)
    child.communicate(600)
    assert not folder.exists()
    before, rows = saved(tmp_path / "away")
    (tmp_path / "away").rename(folder)
    assert mounted() == folder and "Training continues the run that is already there" in capsys.readouterr().out
    run = linear_run(folder, settings=QUIET)
    assert run.iteration == iterations >= 2
    run.fit(iterations=2)
    after, more = saved(folder)
    names = [f"games/{number:06}.npz" for number in range(1, iterations + 3)]
    assert [after[name] for name in names[:iterations]] == [before[name] for name in names[:iterations]] and more[:iterations] == rows
    assert sorted(name for name in after if "games" in name) == names and [row[0] for row in more] == list(range(1, iterations + 3))
    numbers = [record.number for row in run.folder.rows() for record in run.folder.read_games(row)]
    assert sorted(numbers) == list(range(run.games)) == list(range(16 * (iterations + 2)))


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_a_real_interrupt_ends_the_wait(tmp_path):
    folder = tmp_path / "run"
    child, iterations = child_without_folder(folder, tmp_path / "away")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(600)
    assert f"Stopped. {iterations} iterations are saved in {folder}. The folder is away, so 16 games of the next one" in out
    assert out.endswith("end\n") and err == "" and not folder.exists()


# The file of events ------------------------------------------------------------------------------

@pytest.mark.parametrize("number, words", [(errno.EACCES, "cannot be written: Permission denied."), (errno.ENOSPC, "cannot be written now: No space left on device.")])
def test_a_file_of_events_that_cannot_be_written_does_not_hold_the_run(monkeypatch, tmp_path, number, words):
    seen, slept, real = [], [], builtins.open
    run = linear_run(tmp_path / "run", [seen.append], QUIET)
    run.folder.sleep = slept.append

    def refuse(path, *more, **options):
        if str(path).endswith("events.jsonl"): raise OSError(number, os.strerror(number))
        return real(path, *more, **options)
    monkeypatch.setattr(builtins, "open", refuse)
    run.fit(iterations=2)
    assert run.iteration == 2 and not slept and len([event for event in seen if words in getattr(event, "text", "")]) == 1


def test_lines_that_were_written_by_half_are_written_once(monkeypatch, tmp_path):
    lines, texts = JsonLines(tmp_path / "events.jsonl"), [f"number {k}" for k in range(5)]

    class Half(io.FileIO):
        def write(self, data):
            super().write(data[:len(data) // 2])
            raise OSError(errno.ENOTCONN, "away")
    lines(Message(texts[0]))
    monkeypatch.setattr(builtins, "open", lambda path, mode: Half(path, mode))
    for text in texts[1:4]:
        with pytest.raises(OSError): lines(Message(text))
    monkeypatch.undo()
    lines(Message(texts[4]))
    assert [event.text for event in read_events(tmp_path / "events.jsonl")] == texts
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 5
