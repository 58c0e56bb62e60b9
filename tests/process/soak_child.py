"A run that is killed or interrupted again and again. Its process body lives here, in a module that starts nothing."
import os
import signal
import traceback
from dataclasses import replace

import torch

from linear_run import SETTINGS, linear_run

QUIET = replace(SETTINGS, evaluate_every=3, replay_ratio=8)


def soak_run(folder, **options): return linear_run(folder, settings=QUIET, **options)


ERROR = 3   # Exit code of a process that failed of anything but an interrupt


def train_on(folder, iterations, pipe):
    """Train to so many iterations in all; say when it begins, and how far it came.

    An interrupt outside of `fit` ends the process, with exit code 1 where it falls while another one is being handled."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    try:
        pipe.send("here")
        run = soak_run(folder)
        if run.iteration < iterations: run.fit(iterations=iterations - run.iteration)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        pipe.send(run.iteration)
    except KeyboardInterrupt: pass
    except BaseException:
        traceback.print_exc()
        os._exit(ERROR)
    os._exit(0)
