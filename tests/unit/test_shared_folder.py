"A folder that several machines share: what a producer and a trainer make of bad, late, foreign and missing files."
import _thread
import dataclasses
import errno
import json
import os
import shutil
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest

from alphazero_nb.cli import main
from alphazero_nb.core.events import GameFinished, Message, NodesStatus
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.checkpoint import network_arrays, read_arrays, write_arrays
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.scheduler import GameScheduler
from alphazero_nb.training import inbox as inbox_page, producer as producer_page, shared_folder
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.run_folder import RunFolder
from alphazero_nb.training.producer import AHEAD, produce_games
from alphazero_nb.training.inbox import SharedGames, SharedInbox, Tidier
from alphazero_nb.training.shared_folder import GameRanges, GamesFile, Reminder, list_files, read_games, read_plan
from alphazero_nb.training.trainer import Trainer
from linear_run import SETTINGS, Linear
from shared_run import counted, shared_run, waiting
from small_run import differ

FAST = dict(network=Linear(), device="cpu", every_s=.02, games=16, max_batch=16, threads=1, minutes=2)


def waiting_folder(path, **options):
    "A run folder that waits for games."
    run = shared_run(path, **options)
    with run.folder.alone(): run.plan.shared.save(run.folder.path)
    return run.folder.path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    "A run folder that waits for games: 16 per iteration. It has room for all that a machine plays in a hiccup."
    monkeypatch.setattr(producer_page, "AHEAD", 10_000)
    return waiting_folder(tmp_path / "run")


# An iteration asks for 16 games and takes whole files of up to four, so it takes 16 to 19 games.
def produce(folder, total, **options): return produce_games(folder, total=total, **(FAST | dict(listeners=()) | options))


def inbox(folder, heard=None, **options):
    run, heard = RunFolder(folder, dict(game="tictactoe", preset="custom", seed=3)), [] if heard is None else heard
    return SharedInbox(run, get_game("tictactoe"), 3, Reminder(lambda event: heard.append(event.text)), **options)


def take_all(box): return [record for games in iter(lambda: box.take()[0], []) for record in games]


def test_games_of_two_producers_are_learnt_once(folder):
    for _ in range(2): produce(folder, 1)
    while len(waiting(folder)) < 19 + 19 + 16: produce(folder, 1)
    run = shared_run(folder).fit(iterations=3)
    numbers = counted(folder)
    assert run.iteration == 3 and run.games == len(numbers) == len(set(numbers)) >= 48
    assert len({number >> 24 for number in numbers}) >= 2
    assert [row["iteration"] for row in run.folder.rows()] == [1, 2, 3]
    for path in (folder / "shared").glob("*/*.npz"): path.unlink()
    produce(folder, 1)
    assert {record.version for record in take_all(inbox(folder))} == {3}, "the newest weights play"


def test_the_trainer_reports_machines_age_and_bytes(folder):
    produce(folder, 19 + 16)
    (folder / "shared/notes.txt").write_text("x" * 5000)
    size, heard = sum(path.stat().st_size for path in (folder / "shared").glob("*/*.npz")), []
    shared_run(folder, listeners=(heard.append,)).fit(iterations=2)
    seen = [event for event in heard if isinstance(event, NodesStatus)]
    sources = {event.source for event in heard if isinstance(event, GameFinished)}
    assert set(seen[-1].nodes) == sources and set(seen[-1].nodes.values()) == {source.split()[0] for source in sources}
    assert 0 < seen[0].received_mb < seen[-1].received_mb <= size / 1e6 and seen[-1].sent_mb is None
    assert [seen[0].age, seen[-1].age] == [0, 1], "both iterations learn from games of the untrained network"


def test_the_seeds_of_all_producers_differ(folder):
    for _ in range(3): produce(folder, 16)
    seeds = [record.seed for record in take_all(inbox(folder))]
    assert len(seeds) == len(set(seeds)) >= 48


@pytest.mark.parametrize("year", [1970, 2100])
def test_a_wrong_clock_changes_nothing(folder, year):
    produce(folder, 20)
    moment = (year - 1970) * 365.25 * 86400
    for path in (folder / "shared").rglob("*"): os.utime(path, (moment, moment))
    assert len(take_all(inbox(folder))) >= 20
    shared_run(folder).fit(iterations=1)


def test_a_producer_begins_again_before_its_numbers_end(folder):
    "Numbers of 24 bits: one more would be that of another game, or of another producer."
    produce(folder, 1)
    record = take_all(inbox(folder))[0]
    with pytest.raises(ValueError, match="at most 16,777,216 games"):
        shared_folder.write_games(folder / "shared", 0x80000001, [dataclasses.replace(record, number=1 << 24)])
    producer = producer_page.Producer(folder, Linear(), lambda event: None, device="cpu", games=16, max_batch=16, threads=1)
    with producer.engine:
        producer.writer.written = shared_folder.PRODUCER_GAMES
        assert producer.run(time.monotonic() + 600, float("inf"), .02) is False


def test_another_run_in_the_folder_is_another_plan(folder):
    "Only the seed differs. Without a look at it, the producer plays games that the new run refuses."
    producer = producer_page.Producer(folder, Linear(), lambda event: None, device="cpu", games=16, max_batch=16, threads=1)
    with producer.engine:
        assert not producer.plan_changed()
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(dict(config, seed=config["seed"] + 1)))
        assert producer.plan_changed() and producer.run(time.monotonic() + 600, float("inf"), .02) is False


def test_links_and_folders_with_the_name_of_a_file_are_no_games(folder):
    produce(folder, 1)
    there = list_files(folder / "shared")
    own = (folder / "shared" / there[0].name).parent
    (own / "00009999-4.npz").mkdir()
    (own / "00008888-4.npz").symlink_to(folder / "shared" / there[0].name)
    assert list_files(folder / "shared") == there


def harm(folder, how):
    "Harm the first file of games; return it."
    file = list_files(folder / "shared")[0]
    path = folder / "shared" / file.name
    table = read_arrays(path)
    about = json.loads(table["about"].tobytes())
    if how == "cut": path.write_bytes(path.read_bytes()[:200])
    elif how in ("game", "version"):
        about |= dict(game="connect4") if how == "game" else dict(version="0.0.9")
        write_arrays(path, dict(table, about=np.frombuffer(json.dumps(about).encode(), np.uint8)))
    elif how == "unsigned": write_arrays(path, {key: value for key, value in table.items() if key != "about"})
    elif how == "rules": write_arrays(path, dict(table, outcome=-table["outcome"] + .5))
    elif how == "seed": write_arrays(path, dict(table, seed=table["seed"] + 1))
    elif how == "copy": shutil.copy(path, path.with_name(f"{file.first + 10_000:08}-{file.count}.npz"))
    return file


@pytest.mark.parametrize("how, words", [
    ("cut", "is not a readable .npz file"), ("game", "its games are of 'connect4', and the run trains 'tictactoe'"),
    ("version", "it was written by alphazero_nb 0.0.9"), ("unsigned", "it does not say who wrote it"),
    ("rules", "breaks the rules of tictactoe"), ("seed", "other seeds"), ("copy", "other numbers than its name")])
def test_a_bad_file_is_one_sentence_and_is_kept(folder, how, words):
    produce(folder, 30)
    total, file, heard = len(waiting(folder)), harm(folder, how), []
    box = inbox(folder, heard, doubt_s=1000)
    good = len(take_all(box))
    assert good == total if how == "copy" else good == total - file.count
    assert heard == [], "a drive may show a file before its content"
    box.bad.doubt_s = -1   # Each look is a later one
    looks = inbox_page.LOOKS if how == "cut" else 2
    for _ in range(looks - 2): assert take_all(box) == [] and heard == []
    assert take_all(box) == []
    assert len(heard) == 1 and words in heard[0] and heard[0].count(". ") == 1
    assert len(list((folder / "shared").rglob("*.refused"))) == 1
    assert take_all(inbox(folder, heard)) and len(heard) == 1


def test_a_file_that_arrives_late_is_taken(folder):
    produce(folder, 8)
    file = list_files(folder / "shared")[0]
    path = folder / "shared" / file.name
    content, heard = path.read_bytes(), []
    path.write_bytes(content[:100])
    box = inbox(folder, heard, doubt_s=1000)
    first = take_all(box)
    path.write_bytes(content)
    box.bad.doubt_s = 0
    late = take_all(box)
    assert [record.number for record in late] == list(file.numbers) and not heard
    assert not {record.number for record in first} & {record.number for record in late}


def first_file(folder):
    "The first file of games in the folder, its path and its content."
    file = list_files(folder / "shared")[0]
    return file, folder / "shared" / file.name, (folder / "shared" / file.name).read_bytes()


def test_a_file_that_grows_is_never_left_out(folder):
    produce(folder, 8)
    (file, path, content), heard = first_file(folder), []
    box = inbox(folder, heard, doubt_s=-1)
    for size in range(0, len(content), len(content) // 30):   # Thirty looks
        path.write_bytes(content[:size])
        assert file.numbers[0] not in {record.number for record in take_all(box)}
    path.write_bytes(content)
    assert [record.number for record in take_all(box)] == list(file.numbers) and not heard


def test_a_whole_file_under_the_name_of_a_bad_one_is_taken(folder):
    produce(folder, 8)
    (file, path, content), heard = first_file(folder), []
    box = inbox(folder, heard, doubt_s=-1)
    path.write_bytes(content[:100])
    for _ in range(inbox_page.LOOKS): take_all(box)
    assert len(heard) == 1 and not path.exists()
    path.write_bytes(content)
    assert [record.number for record in take_all(box)] == list(file.numbers)


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_comes_back_is_not_learnt_from_again(folder, restart):
    produce(folder, 80)
    file, path, content = first_file(folder)
    run = shared_run(folder).fit(iterations=1)
    for _ in range(3):
        if not path.exists(): path.write_bytes(content)   # A drive brings it back
        run = (shared_run(folder) if restart else run).fit(iterations=1)
    numbers = counted(folder)
    assert set(file.numbers) <= set(numbers) and len(numbers) == len(set(numbers))
    assert not path.exists(), "it would count as a game that waits"


def test_the_manifest_holds_all_games_that_were_learnt_from_as_few_ranges(folder):
    for _ in range(2): produce(folder, 24)
    run = shared_run(folder).fit(iterations=2)
    numbers, ranges = set(counted(folder)), json.loads((folder / "manifest.json").read_text())["plan"]["counted_games"]
    assert {number for start, end in ranges for number in range(start, end)} == numbers and len(ranges) <= 2


@pytest.mark.parametrize("saved", [None, 7, "x", [1], [[1]], [[1, "2"]], [[-1, 2]], [[[], []]], {"a": 1}, [[True, 2]], [[1, 1 << 70]]])
def test_ranges_of_a_stranger_hold_no_games(saved): assert GameRanges(saved).ranges == []


def test_ranges_hold_what_a_set_holds():
    rng = np.random.default_rng(0)
    for _ in range(50):
        ranges, held = GameRanges(), set()
        for start in rng.integers(0, 60, 30).tolist():
            numbers = range(start, start + int(rng.integers(1, 5)))
            assert ranges.hold(numbers) == bool(held & set(numbers))
            if not ranges.hold(numbers):
                ranges.add(numbers)
                held |= set(numbers)
            assert {number for first, end in ranges.ranges for number in range(first, end)} == held
            assert all(end < first for (_, end), (first, _) in zip(ranges.ranges, ranges.ranges[1:]))
        assert GameRanges(json.loads(json.dumps(ranges.ranges))).ranges == ranges.ranges


@pytest.mark.parametrize("about", [b"[" * 100_000 + b"]" * 100_000, b'{"version":' * 600 + b"1" + b"}" * 600, rb'{"version": "\ud800"}'])
def test_what_a_producer_says_about_itself_does_not_stop_the_trainer(folder, about):
    produce(folder, 48)
    file, path, _ = first_file(folder)
    write_arrays(path, dict(read_arrays(path), about=np.frombuffer(about, np.uint8)))
    with pytest.raises(ValueError, match="^it does not say who wrote it$"): read_games(folder / "shared", file, get_game("tictactoe"), 3)
    assert shared_run(folder).fit(iterations=1).iteration == 1


@pytest.mark.parametrize("where", ["request", "take", "write_games"])
@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_while_games_are_written_loses_none(folder, monkeypatch, ctrl_c, where, after):
    owner = producer_page if where == "write_games" else GameScheduler
    real, calls, engines = getattr(owner, where), [], []

    def interrupted(*arguments, **options):
        first = not calls and (where == "write_games" or any(not record.number for record in engines[0].leftover()))
        if first: calls.append(1)
        if first and not after: _thread.interrupt_main()   # What Ctrl-C does
        found = real(*arguments, **options)
        if first and after: _thread.interrupt_main()
        return found

    class Engine(SelfPlayEngine):
        def __init__(self, *arguments, **options):
            engines.append(self)
            super().__init__(*arguments, **options)
    monkeypatch.setattr(owner, where, interrupted)
    monkeypatch.setattr(producer_page, "SelfPlayEngine", Engine)
    written = produce(folder, 10_000)
    numbers, left = sorted(waiting(folder)), {record.number for record in engines[0].leftover()}
    assert calls and 0 < len(numbers) == written < 10_000 and numbers == list(range(numbers[0], numbers[0] + written))
    assert written not in left and written + len(left) == engines[0].scheduler.games, "finished games are lost"


def test_a_full_disk_keeps_games_and_says_so(folder, monkeypatch):
    said, sync = [], os.fsync
    def write(handle):
        if not said: raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)
    monkeypatch.setattr(os, "fsync", write)
    def listen(event):
        if isinstance(event, Message) and "No space left" in event.text: said.append(event.text)   # Now there is space
    written = produce(folder, 20, listeners=(listen,))
    numbers = sorted(waiting(folder))
    assert len(said) == 1 and "finished games stay in memory" in said[0]
    assert len(numbers) == written and numbers == list(range(numbers[0], numbers[0] + written)), "games are missing"
    assert not list((folder / "shared").rglob("*.part"))


def test_a_disk_that_stays_full_ends_in_a_sentence(folder, monkeypatch):
    monkeypatch.setattr(shared_folder, "write_arrays", lambda *_, **__: (_ for _ in ()).throw(OSError("no space left.")))
    def stop_when_it_is_full(event):
        if "finished games stay in memory" in getattr(event, "text", ""): raise KeyboardInterrupt
    with pytest.raises(OSError, match=r"^[\d,]+ games are lost: the disk took no more\.$"):
        produce(folder, 10_000, listeners=(stop_when_it_is_full,))


def test_producers_wait_for_a_slow_trainer(folder, monkeypatch):
    monkeypatch.setattr(producer_page, "AHEAD", AHEAD)
    play_for, there = SelfPlayEngine.play_for, []
    def count_and_play(engine, seconds):
        there.append(len(waiting(folder)))
        play_for(engine, seconds)
    monkeypatch.setattr(SelfPlayEngine, "play_for", count_and_play)
    def stop_when_it_waits(event):
        if "Playing continues when the trainer uses them" in getattr(event, "text", ""): raise KeyboardInterrupt
    assert produce(folder, 10_000, minutes=5, listeners=(stop_when_it_waits,)) < 10_000
    assert max(there) < 16 * AHEAD <= len(waiting(folder)), "it plays while there is room, and only then"
    assert shared_run(folder).fit(iterations=3).iteration == 3


def test_a_trainer_without_producers_does_not_wait_for_ever(folder):
    run = shared_run(folder)
    games = SharedGames(run.plan.shared, run.folder, lambda event: None, patience_s=.2)
    with pytest.raises(TimeoutError, match="no game has arrived for .* start a machine that plays: alphazero-nb selfplay"):
        games.generate_games(16)


def test_new_settings_of_the_trainer_reach_a_producer(folder, monkeypatch):
    plan, write = read_plan(folder), producer_page.write_games
    changed = dataclasses.replace(plan, games=1000, play=dataclasses.replace(plan.play, fast_simulations=3))
    def write_and_change(*arguments, **about):
        changed.save(folder)
        return write(*arguments, **about)
    monkeypatch.setattr(producer_page, "write_games", write_and_change)
    first_words = []   # Each producer says once a minute how many games are written
    def stop_at_the_second(event):
        if "games written" not in getattr(event, "text", ""): return
        first_words.append(event.text)
        if len(first_words) == 2: raise KeyboardInterrupt
    produce(folder, None, listeners=(stop_at_the_second,))
    folders = [path for path in (folder / "shared").iterdir() if path.is_dir()]
    assert len(folders) == len(first_words) == 2, "a producer with other settings has other numbers"


def test_a_damaged_newest_checkpoint_takes_its_games_again(folder):
    produce(folder, 60)
    run = shared_run(folder).fit(iterations=3)
    before = run.folder.rows()
    (folder / "manifest.json").write_text("half a fi")
    run = shared_run(folder)
    assert run.iteration == 2
    run.fit(iterations=1)
    numbers = counted(folder)
    third = [record.number for record in run.folder.read_games(run.folder.rows()[-1])]
    assert len(numbers) == len(set(numbers)) and len(third) >= 16 and len(before) == 3


def test_an_interrupted_trainer_leaves_the_games_in_their_files(folder):
    produce(folder, 40)
    def stop(event):
        if type(event).__name__ == "StepsTaken": raise KeyboardInterrupt
    run = shared_run(folder, listeners=(stop,)).fit(iterations=2)
    assert run.iteration == 0 and not (folder / "games/unfinished.npz").exists()
    run.events.listeners.clear()
    assert run.fit(iterations=2).iteration == 2
    numbers = counted(folder)
    assert len(numbers) == len(set(numbers))


def test_finished_games_of_an_own_run_are_learnt_too(tmp_path):
    path = tmp_path / "run"
    options = dict(network=Linear(), folder=path, device="cpu", simulations=8, seed=3,
                   train_settings=shared_run(tmp_path / "other").train_settings)
    def stop(event):
        if isinstance(event, GameFinished) and event.done == 8: raise KeyboardInterrupt
    own = Trainer("tictactoe", games=16, threads=1, listeners=[stop], **options).fit(iterations=1)
    kept = {record.number for record in own.folder.kept()}
    run = shared_run(path)
    with run.folder.alone(): run.plan.shared.save(path)
    produce(path, 16)
    run.fit(iterations=1)
    assert kept and kept <= set(counted(path)) and not (path / "games/unfinished.npz").exists()


def test_dead_producers_leave_nothing_behind(folder):
    produce(folder, 16)
    there = folder / "shared" / "ffffffff"
    there.mkdir()
    (there / ".00000000-4.npz.77.part").write_bytes(b"half")
    tidier = Tidier(folder / "shared", every_s=0)
    tidier.look()
    assert there.exists(), "a file may just be written"
    (there / ".00000000-4.npz.77.part").rename(there / ".00000004-4.npz.77.part")
    tidier.look()
    assert there.exists(), "somebody writes"
    tidier.look()
    assert not there.exists() and list_files(folder / "shared")


@pytest.mark.parametrize("harm, words", [
    (lambda folder: shutil.rmtree(folder / "shared"), "does not take games from its folder; start its trainer with alphazero-nb train"),
    (lambda folder: (folder / "config.json").unlink(), "holds no training run"),
    (lambda folder: (folder / "shared/plan.json").write_text("{}"), "has no 'format'"),
    (lambda folder: edit(folder, version="9.9"), "has alphazero_nb 9.9, and this machine has"),
    (lambda folder: edit(folder, play=dict(search=dict(simulations=-1))), "is damaged"),
    (lambda folder: edit(folder, play=7), "is damaged"),
    (lambda folder: edit(folder, games=0), "is damaged"),
])
def test_a_producer_says_why_it_cannot_play(folder, harm, words, capsys):
    harm(folder)
    assert main(["selfplay", str(folder), "--device", "cpu"]) == 2
    line = capsys.readouterr().err
    assert words in line and line.count("\n") == 1


def edit(folder, **values):
    path = folder / "shared/plan.json"
    path.write_text(json.dumps(dict(json.loads(path.read_text()), **values)))


def test_a_network_of_ones_own_must_be_given(folder, capsys):
    assert main(["selfplay", str(folder), "--device", "cpu"]) == 2
    assert "pass it as network=MyNet() to produce_games" in capsys.readouterr().err


def test_other_ways_of_playing_are_refused_with_it(tmp_path, capsys):
    words = ["train", "tictactoe", "--folder", str(tmp_path / "run"), "--from-folder", "--iterations", "1", "--device", "cpu"]
    assert main([*words, "--threads", "2"]) == 2
    assert "so leave out threads" in capsys.readouterr().err and not (tmp_path / "run").exists()


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_leads_nowhere(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    produce(folder, 8)
    producer = folder / "shared" / list_files(folder / "shared")[0].name.partition("/")[0]
    (folder / "shared" / "eeeeeeee").symlink_to(producer)
    assert all(file.producer != 0xeeeeeeee for file in list_files(folder / "shared"))
    shutil.rmtree(folder / "shared")
    (folder / "shared").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is not a plain folder"): shared_run(folder)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_numbers_are_apart_from_each_other_and_from_those_of_a_trainer():
    first, last = GamesFile(0, 1 << 31, 1).numbers[0], GamesFile((1 << 24) - 1, (1 << 32) - 1, 1).numbers[-1]
    assert 1 << 50 < first < last < 1 << 63 and last in np.arange(last, last + 1, dtype=np.int64)
    a, b = GamesFile((1 << 24) - 1, 1 << 31, 1), GamesFile(0, (1 << 31) + 1, 1)
    assert a.numbers[-1] < b.numbers[0]


def test_a_plan_survives_the_file(folder):
    assert read_plan(folder) == shared_run(folder).plan.shared


def test_producers_begin_with_the_weights_that_the_run_begins_with(tmp_path, monkeypatch):
    def stop(games, n, most): raise KeyboardInterrupt
    options = dict(device="cpu", simulations=4, listeners=())
    Trainer("tictactoe", "tiny", tmp_path / "first", **options, train_settings=TrainSettings(games_per_iteration=8, batch_size=16, evaluate_every=0)).fit(iterations=1)
    monkeypatch.setattr(SharedGames, "generate_games", stop)
    run = Trainer("tictactoe", None, tmp_path / "run", **options, from_folder=True, init_from=tmp_path / "first")
    run.fit(iterations=1)
    theirs = producer_page.NewestWeights(tmp_path / "run", read_plan(tmp_path / "run")).network
    assert not differ(network_arrays(run.network), network_arrays(theirs))


def test_an_iteration_asks_for_the_games_that_the_plan_names(tmp_path, monkeypatch):
    asked = []
    def generate(games, n, most):
        asked.append(n)
        raise KeyboardInterrupt
    monkeypatch.setattr(SharedGames, "generate_games", generate)
    Trainer("gomoku(size=9)", "tiny", tmp_path / "run", "cpu", from_folder=True, listeners=()).fit(iterations=1)
    assert asked == [read_plan(tmp_path / "run").games]


def test_the_command_line_plays_and_learns(tmp_path, capsys):
    run = ["--folder", str(tmp_path / "run"), "--device", "cpu", "--iterations", "1", "--json"]
    own = ["train", "tictactoe", *run, "--preset", "tiny", "--simulations", "4", "--games-per-iter", "16", "--evaluate-every", "0"]
    Trainer("tictactoe", "tiny", tmp_path / "run", "cpu", simulations=4, from_folder=True, listeners=())   # Writes nothing
    assert main(["selfplay", str(tmp_path / "run")]) == 2
    trainer = Trainer("tictactoe", "tiny", tmp_path / "run", "cpu", simulations=4, from_folder=True, listeners=(),
                      train_settings=dataclasses.replace(shared_run(tmp_path / "x").train_settings))
    with trainer.folder.alone(): trainer.plan.shared.save(tmp_path / "run")
    capsys.readouterr()
    def play(seconds):
        words = ["selfplay", str(tmp_path / "run"), "--minutes", str(seconds / 60), "--games", "16", "--device", "cpu", "--json"]
        assert main(words) == 0
        return json.loads(capsys.readouterr().out)["games"]
    assert any(play(seconds) >= 16 for seconds in (1, 4, 16, 60)), "a machine may be busy with something else for a second"
    assert main([*own, "--from-folder"]) == 0
    assert json.loads(capsys.readouterr().out)["iteration"] == 1


def test_read_games_needs_its_own_place(folder):
    produce(folder, 8)
    file = list_files(folder / "shared")[0]
    assert read_games(folder / "shared", file, get_game("tictactoe"), 3)[1]["evaluations"] >= 0
    with pytest.raises(ValueError, match="other seeds"): read_games(folder / "shared", file, get_game("tictactoe"), 4)


@pytest.mark.parametrize("number, hours", [(errno.ENOSPC, 1 / 6), (errno.ENOTCONN, 12)])
def test_games_stay_in_memory_as_long_as_the_drive_may_be_away(folder, monkeypatch, number, hours):
    def fail(*_, **__): raise OSError(number, "a failure")
    now, writer = [1.0], producer_page.GamesWriter(folder, read_plan(folder), 1 << 31, "cpu", Reminder(lambda event: None))
    monkeypatch.setattr(producer_page, "write_games", fail)
    monkeypatch.setattr(producer_page, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for now[0] in (1.0, 1 + 3599 * hours): writer.write([now[0]])
    now[0] = 1 + 3601 * hours
    with pytest.raises(OSError, match="a failure"): writer.write([3])
    assert len(writer.held) == 3


def test_a_producer_waits_for_weights_that_a_drive_does_not_show_yet(folder, monkeypatch):
    "It would play with the untrained network."
    produce(folder, 19)
    shared_run(folder).fit(iterations=1)
    file, said = folder/"network-000001.npz", []
    file.rename(folder/"later")
    monkeypatch.setattr(producer_page, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: (folder/"later").rename(file)))
    producer = producer_page.Producer(folder, Linear(), said.append, device="cpu", games=16, max_batch=16, threads=1)
    with producer.engine: assert producer.weights.iteration == 1
    assert "Playing begins when it can be read." in said[0].text


def test_a_producer_that_plays_gets_newer_weights(folder):
    "The version of a record is only a label: the arrays are compared."
    usual = dict(device="cpu", games=16, max_batch=16, threads=1)
    producer = producer_page.Producer(folder, Linear(), lambda event: None, **usual)
    with producer.engine as engine:
        produce(folder, 19)
        run = shared_run(folder).fit(iterations=1)
        producer.load_weights()
        playing, newest, first = (network_arrays(network) for network in (engine.network, run.network, Linear()))
    assert engine.version == 1 and not differ(playing, newest) and differ(playing, first)


def test_a_producer_does_not_wait_for_ever_for_weights(folder, monkeypatch):
    produce(folder, 19)
    shared_run(folder).fit(iterations=1)
    (folder/"network-000001.npz").unlink()
    now = iter(range(0, 10_000, 100))
    monkeypatch.setattr(producer_page, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda seconds: None))
    with pytest.raises(ValueError, match="network-000001.npz"): produce(folder, 19)


def test_games_that_the_manifest_counts_take_no_room(tmp_path):
    "A run with large iterations goes on with small ones: the files of its last iteration stay until the next one."
    path = waiting_folder(tmp_path / "run", settings=dataclasses.replace(SETTINGS, games_per_iteration=96))
    produce(path, 120)
    run = shared_run(path, settings=dataclasses.replace(SETTINGS, games_per_iteration=96))
    run.fit(iterations=1)
    run = shared_run(path)
    with run.folder.alone(): run.plan.shared.save(path)
    plan = read_plan(path)
    writer, weights = producer_page.GamesWriter(path, plan, 1 << 31, "cpu", Reminder(print)), producer_page.NewestWeights(path, plan, Linear())
    assert plan.games == 16 and len(waiting(path)) >= 96 and not writer.has_room()
    assert weights.look()
    writer.counted = weights.counted
    for file in list_files(path / "shared"):   # Those that a hiccup has added
        if not weights.counted.hold(file.numbers): (path / "shared" / file.name).unlink()
    assert len(waiting(path)) >= 96 and writer.has_room()


def test_a_huge_manifest_is_a_problem_of_the_folder(folder):
    weights = producer_page.NewestWeights(folder, read_plan(folder), Linear())
    with open(folder/"manifest.json", "wb") as file: file.truncate(1 << 40)   # No bytes on the disk
    assert not weights.look() and "manifest.json is damaged: it has 1,099,511,627,776 bytes" in weights.problem


def test_a_producer_reads_no_log(folder, monkeypatch):
    "It needs the manifest alone; the log of a run of a week is megabytes, read at each iteration."
    from alphazero_nb.network import saved_run
    produce(folder, 19)
    shared_run(folder).fit(iterations=1)
    weights = producer_page.NewestWeights(folder, read_plan(folder), Linear())
    monkeypatch.setattr(saved_run, "read_log", lambda *args: pytest.fail("the log was read"))
    assert weights.look() and weights.iteration == 1 and not weights.problem
