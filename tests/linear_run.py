"The smallest network, for tests that need many short runs."
import time

import torch
from torch import nn
from torch.nn.functional import linear, pad

from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.trainer import Trainer

SETTINGS = TrainSettings(games_per_iteration=16, batch_size=32, replay_ratio=2, evaluate_every=2, evaluate_games=4, match_share=1,
                         baseline="random")
OPTIONS = dict(device="cpu", simulations=8, games=16, max_batch=16, threads=1, shared=False, seed=3, reproducible=True)


class Linear(nn.Module):
    "One layer for the policy and one for the value: a kilobyte of weights."
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.policy, self.value = nn.Linear(18, 9), nn.Linear(18, 2)

    def forward(self, planes):
        "Two more inputs of zero: where a row begins at another alignment than the next one, it may have other last bits."
        flat = pad(planes.flatten(1), (0, 2))
        logits, value = (linear(flat, pad(layer.weight, (0, 2)), layer.bias) for layer in (self.policy, self.value))
        return logits, torch.tanh(value)


class Slow(Linear):
    "The same, but a turn of it takes longer than a worker has to stop."
    def forward(self, x):
        time.sleep(1.5)
        return super().forward(x)


def linear_run(folder, listeners=(), settings=SETTINGS, game="tictactoe", **options):
    "A trainer of that network on tic-tac-toe."
    return Trainer(game, network=Linear(), folder=folder, train_settings=settings, listeners=listeners, **dict(OPTIONS, **options))
