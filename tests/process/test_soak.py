"Runs that are killed and interrupted at many random moments are, in the end, the run that nobody disturbed."
import hashlib
import multiprocessing
import os
import random
import signal
import time

import numpy as np
import pytest
import torch

from soak_child import soak_run, train_on

ITERATIONS = 4


@pytest.fixture(scope="module")
def context():
    "Processes that have PyTorch and the package loaded when they begin."
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["soak_child"])
    return context


def weights(run): return {name: tensor.numpy().copy() for name, tensor in run.learner.average.module.state_dict().items()}


def games(folder):
    "Numbers of the recorded games by iteration, and a hash of their content."
    found, content = {}, hashlib.sha256()
    for path in sorted((folder / "games").glob("0*.npz")):
        with np.load(path) as table:
            found[int(path.stem)] = table["number"].tolist()
            for name in sorted(table.files): content.update(name.encode() + np.ascontiguousarray(table[name]).tobytes())
    return found, content.hexdigest()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    "The run that nobody disturbs: games and final weights, and how long it takes."
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    soak_run(tmp_path_factory.mktemp("warm") / "run").fit(iterations=1)
    folder, start = tmp_path_factory.mktemp("undisturbed") / "run", time.monotonic()
    run = soak_run(folder).fit(iterations=ITERATIONS)
    torch.set_num_threads(threads)
    return weights(run), games(folder), time.monotonic() - start


def once(context, folder, disturb, seconds, chance):
    "Let a process train, and disturb it after a random time; what it said, and how it ended."
    here, there = context.Pipe()
    process = context.Process(target=train_on, args=(folder, ITERATIONS, there))
    process.start()
    there.close()
    said = [here.recv()]
    time.sleep(chance.uniform(0, seconds))
    disturb(process, chance)
    while True:
        try:
            assert here.poll(600), "a disturbed run waits for ever"
            said.append(here.recv())
        except (EOFError, ConnectionResetError): break
    process.join(600)
    code = process.exitcode
    process.close()
    return said[1:], code


def kill(process, chance):
    if process.is_alive(): os.kill(process.pid, signal.SIGKILL)


def interrupt(process, chance):
    "One to three Ctrl-C in quick succession."
    for _ in range(chance.randint(1, 3)):
        if process.is_alive(): os.kill(process.pid, signal.SIGINT)
        time.sleep(chance.choice([0, .001, .01, .05]))


def disturb_often(context, folder, disturb, times, undisturbed, seed):
    "Disturb runs `times` times in all, each until it is complete; returns how many runs that took."
    want, recorded, seconds = undisturbed
    chance, disturbed, runs = random.Random(seed), 0, 0
    while disturbed < times:
        path, before, ended = folder / f"run{runs}", 0, False
        while not ended:
            said, code = once(context, path, disturb, seconds, chance)
            assert code in (0, 1, -signal.SIGKILL), code   # 1: a Ctrl-C came while another one was handled
            ended = code == 0 and said == [ITERATIONS]
            disturbed += not ended
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            now = soak_run(path)
            torch.set_num_threads(threads)
            assert now.iteration >= before, f"iteration {before} was saved and is lost"
            assert [row["iteration"] for row in now.history] == list(range(1, now.iteration + 1))
            before = now.iteration
            if disturbed >= times and not ended: disturb = lambda *_: None   # The last run may end in peace
        found = weights(now)
        assert found.keys() == want.keys() and all(np.array_equal(found[name], want[name]) for name in want)
        numbers = games(path)
        assert numbers == recorded, "the recorded games are other ones"
        every = sum(numbers[0].values(), [])
        assert sorted(every) == list(range(len(every))), "a game is missing or recorded twice"
        runs += 1
    return runs


@pytest.mark.parametrize("disturb", [kill, interrupt])
def test_a_few_disturbances(context, tmp_path, undisturbed, disturb): disturb_often(context, tmp_path, disturb, 5, undisturbed, 1)


@pytest.mark.slow
@pytest.mark.parametrize("disturb", [kill, interrupt])
def test_two_hundred_disturbances(context, tmp_path, undisturbed, disturb):
    disturb_often(context, tmp_path, disturb, 200, undisturbed, 2)
