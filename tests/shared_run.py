"A run that takes its games from its folder, and programs that play into it."
import numpy as np

from alphazero_nb.training.run_folder import RunFolder
from alphazero_nb.training.shared_folder import list_files
from alphazero_nb.training.trainer import Trainer
from linear_run import SETTINGS, Linear

# Plays into the folder argv[1] until it is killed, and writes the name of each file to argv[2] once the file is there.
PRODUCER = """
import sys
from alphazero_nb.training import producer
from linear_run import Linear

log, write = open(sys.argv[2], "a", buffering=1), producer.write_games
def write_and_log(*arguments, **about):
    file = write(*arguments, **about)
    log.write(f"{file.producer} {file.first} {file.count}\\n")
    return file
producer.write_games = write_and_log
producer.produce_games(sys.argv[1], network=Linear(), device="cpu", every_s=.02, games=16, max_batch=16, threads=1,
                       listeners=())
"""

# Trains in the folder argv[1] until it is killed.
TRAINER = """
import sys
from shared_run import shared_run
print("here", flush=True)
shared_run(sys.argv[1]).fit(iterations=10_000)
"""


def shared_run(folder, settings=SETTINGS, listeners=(), **options):
    "A trainer of the linear network that learns from other processes' games."
    return Trainer("tictactoe", network=Linear(), folder=folder, train_settings=settings, listeners=listeners, device="cpu",
                   simulations=8, seed=3, from_folder=True, **options)


def counted(folder):
    "Numbers of the games of every saved iteration, in order."
    config = dict(game="tictactoe", preset="custom", seed=3)
    run = RunFolder(folder, config)
    run.adopt(next(run.checkpoints()))
    return [record.number for row in run.rows() for record in run.read_games(row)]


def waiting(folder):
    "Numbers of the games in the folder, of which the newest iterations may hold some."
    return [number for file in list_files(folder / "shared") for number in file.numbers]


def logged(path):
    "Numbers of the games that producers say they wrote, in a file or in a folder of such files."
    files = path.iterdir() if path.is_dir() else [path]
    lines = [line.split() for file in files for line in file.read_text().splitlines() if line.count(" ") == 2]
    return {int(producer) << 24 | index for producer, first, count in lines for index in range(int(first), int(first) + int(count))}


def assert_each_game_once(folder, log):
    "No game is counted twice, and every game that was written is counted or still there."
    numbers, there = counted(folder), waiting(folder)
    assert len(numbers) == len(set(numbers)), "a game was counted twice"
    assert len(there) == len(set(there))
    lost = logged(log) - set(numbers) - set(there)
    assert not lost, f"{len(lost)} games are lost"
    return numbers
