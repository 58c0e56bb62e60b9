"A run that is killed or interrupted again and again. Its process body lives here, in a module that starts nothing."
import os
import signal
import traceback
from dataclasses import replace

import torch

from run_v1 import SETTINGS, linear_run

QUIET = replace(SETTINGS, evaluate_every=3, replay_ratio=8)


def soak_run(folder, **options): return linear_run(folder, settings=QUIET, **options)


def train_on(folder, iterations, pipe):
    "Train to so many iterations in all; say when it begins, and how far it came. Exit code 1 tells of an error."
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    code = 0
    try:
        pipe.send("here")
        run = soak_run(folder)
        if run.iteration < iterations: run.fit(iterations=iterations - run.iteration)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        pipe.send(run.iteration)
    except KeyboardInterrupt: signal.signal(signal.SIGINT, signal.SIG_IGN)   # It fell outside of fit, or came twice
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)
