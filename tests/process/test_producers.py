"Producers and trainers of one folder are killed at random moments: no game is lost, and none is counted twice."
import json
import os
import random
import signal
import threading
import time

import pytest

from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.training import producer as producer_page
from alphazero_nb.training.producer import produce_games
from linear_run import Linear
from processes import Program
from shared_run import PRODUCER, TRAINER, assert_each_game_once, counted, logged, shared_run, waiting

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of Unix")


def kill(program):
    if program.poll() is None: os.kill(program.pid, signal.SIGKILL)
    program.communicate(600)


def start_producer(folder, logs):
    "Start a producer with a log of its own. Return both."
    logs.mkdir(exist_ok=True)
    log = logs / f"{len(list(logs.iterdir()))}"
    log.touch()
    return Program(PRODUCER, folder, log), log


def wait_for_games(program, log, count, timeout_s=600):
    "Wait until a producer has written so many games."
    end = time.monotonic() + timeout_s
    while len(logged(log)) < count:
        assert program.poll() is None and time.monotonic() < end, ("the producer writes no games", program.communicate(5))
        time.sleep(.02)


def wait_for_iteration(folder, iteration, timeout_s=600):
    "Wait until a trainer has saved so many iterations."
    end, path = time.monotonic() + timeout_s, folder / "manifest.json"
    while iteration and not (path.exists() and json.loads(path.read_text())["iteration"] >= iteration):
        assert time.monotonic() < end, "the trainer saves nothing"
        time.sleep(.02)


def kill_producers(folder, logs, times, chance):
    "Two producers play and a trainer learns, while one of the producers is killed so many times at random moments."
    run, ended = shared_run(folder), threading.Event()
    with run.folder.alone(): run.plan.shared.save(folder)
    (steady, _), others = start_producer(folder, logs), []

    def kill_and_start():
        try:
            for _ in range(times):
                program, log = start_producer(folder, logs)
                others.append(program)
                wait_for_games(program, log, chance.randint(1, 20))
                time.sleep(chance.uniform(0, .1))
                kill(program)
        finally: ended.set()
    killer = threading.Thread(target=kill_and_start)
    killer.start()
    try:
        while not ended.is_set(): run.fit(iterations=2)
    finally:
        killer.join(600)
        for program in (steady, *others): kill(program)
    while len(set(waiting(folder)) - set(counted(folder))) >= 16: run.fit(iterations=1)   # An iteration has 16 games
    return run


def check_killed_producers(tmp_path, times):
    folder, logs = tmp_path / "run", tmp_path / "logs"
    run = kill_producers(folder, logs, times, random.Random(times))
    numbers = assert_each_game_once(folder, logs)
    assert run.games == len(numbers) and len(logged(logs) - set(numbers)) < 16
    assert len({number >> 24 for number in numbers}) == times + 1, "every start has numbers of its own"


def check_killed_trainer(tmp_path, times):
    folder, logs, chance, iteration = tmp_path / "run", tmp_path / "logs", random.Random(times), 0
    run = shared_run(folder)
    with run.folder.alone(): run.plan.shared.save(folder)
    producer, _ = start_producer(folder, logs)
    try:
        for _ in range(times):
            trainer = Program(TRAINER, folder)
            assert trainer.stdout.readline() == "here\n"
            wait_for_iteration(folder, iteration + chance.randint(0, 2))
            time.sleep(chance.uniform(0, .2))
            kill(trainer)
            now = shared_run(folder)
            assert now.iteration >= iteration, "a saved iteration is lost"
            iteration = now.iteration
            if iteration: assert_each_game_once(folder, logs)
        now.fit(iterations=3)
    finally: kill(producer)
    numbers = assert_each_game_once(folder, logs)
    assert now.games == len(numbers) and iteration


def test_a_stop_before_the_first_game_is_a_stop(tmp_path, monkeypatch):
    def stopped(*arguments, **options): raise KeyboardInterrupt
    monkeypatch.setattr(producer_page, "Producer", stopped)
    assert produce_games(tmp_path, listeners=()) == 0


def test_an_error_of_the_engine_loses_no_finished_game(tmp_path, monkeypatch):
    folder, play_for, said = tmp_path / "run", SelfPlayEngine.play_for, []
    run = shared_run(folder)
    with run.folder.alone(): run.plan.shared.save(folder)

    def fail(engine, seconds):
        while 0 not in {record.number for record in engine.leftover()}: play_for(engine, .1)
        raise RuntimeError("the engine failed")
    monkeypatch.setattr(SelfPlayEngine, "play_for", fail)
    with pytest.raises(RuntimeError, match="the engine failed"): produce_games(folder, network=Linear(), device="cpu", games=16, max_batch=16, threads=1, listeners=(said.append,))
    assert waiting(folder), said


def test_a_killed_producer_costs_nothing_that_was_written(tmp_path): check_killed_producers(tmp_path, 3)
def test_a_killed_trainer_counts_each_game_once(tmp_path): check_killed_trainer(tmp_path, 3)


@pytest.mark.slow
def test_twenty_killed_producers(tmp_path): check_killed_producers(tmp_path, 20)


@pytest.mark.slow
def test_twenty_killed_trainers(tmp_path): check_killed_trainer(tmp_path, 20)
