"The number format and the memory format of a device are measured where it has several."
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch import nn

from alphazero_nb.core.device import Device, device_variants, get_device
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.selfplay import calibration as page
from alphazero_nb.selfplay.actors import ActorPool
from alphazero_nb.selfplay.calibration import fastest_variant, measure_layouts
from alphazero_nb.selfplay.layout import Layout, plan_layout, read_layout
from alphazero_nb.selfplay.settings import SelfPlaySettings

pytestmark = pytest.mark.usefixtures("one_thread_inside")
GAME = get_game("tictactoe")
FIRST = Device("cpu", "CPU", "float32", "float32", False, False)
SECOND = replace(FIRST, channels_last=True)
THIRD = replace(FIRST, dtype="bfloat16")
PLANES = np.zeros((8, *GAME.shape), np.int8)


class Clock:
    "A clock on which the batches of each variant take a time of their own."
    def __init__(self, *seconds): self.seconds, self.calls, self.now = seconds, 0, 0.0

    def __call__(self):
        batch, end = divmod(self.calls, 2)
        if end: self.now += 100 if batch == 0 else self.seconds[(batch - 1) % len(self.seconds)]   # The first one loads
        self.calls += 1
        return self.now


@pytest.mark.parametrize("seconds, best", [((3, 2, 4), SECOND), ((2, 3, 4), FIRST), ((3, 3, 1), THIRD), ((2, 2, 2), FIRST)])
def test_the_fastest_variant_is_taken(seconds, best):
    assert fastest_variant(PolicyValueNet(GAME, "tiny"), [FIRST, SECOND, THIRD], PLANES, clock=Clock(*seconds)) == best


class Picky(nn.Module):
    "A network whose fast number format fails, or answers wrongly in the first of its batches."
    def __init__(self, fails): super().__init__(); self.fails, self.wrong, self.bias = fails, 1, nn.Parameter(torch.zeros(9))

    def forward(self, x):
        if x.dtype == torch.bfloat16 and self.fails: raise NotImplementedError("no such operator")
        self.wrong -= x.dtype == torch.bfloat16
        return x.flatten(1)[:, :9] + self.bias + (x.dtype == torch.bfloat16 and self.wrong >= 0), torch.zeros(len(x), 2)


@pytest.mark.parametrize("fails", [True, False])
def test_a_variant_that_fails_or_is_wrong_once_is_out(fails):
    assert fastest_variant(Picky(fails), [FIRST, THIRD], PLANES, clock=lambda: 0.0) == FIRST
    assert fastest_variant(Picky(fails), [FIRST, THIRD], PLANES, clock=Clock(5, 1)) == FIRST


def test_only_a_mac_has_several():
    assert device_variants(get_device("cpu")) == [get_device("cpu")]
    variants = device_variants(Device("mps", "Apple GPU", "float32", "float32", False, False))
    assert {(each.dtype, each.channels_last) for each in variants} == {(dtype, last) for dtype in ("float32", "float16") for last in (False, True)}
    assert variants[0].dtype == "float32" and not variants[0].channels_last


def test_the_measured_variant_plays(monkeypatch):
    network, layout = PolicyValueNet(GAME, "tiny"), plan_layout(GAME, None, layout="threads", threads=1, games=16, max_batch=16)
    monkeypatch.setattr(page, "device_variants", lambda device: [FIRST, THIRD])
    monkeypatch.setattr(page, "fastest_variant", lambda network, variants, planes: variants[1] if planes.shape == (16, *GAME.shape) else None)
    row, = measure_layouts(GAME, network, {"one": layout}, .2, SelfPlaySettings(int8=False), rounds=1, evals_per_game=50)
    assert (row["layout"].number_format, row["layout"].channels_last) == ("bfloat16", False)
    assert ActorPool(GAME, network, row["layout"], SelfPlaySettings(int8=False), 0).dtype == "bfloat16"
    assert read_layout(asdict(row["layout"])) == row["layout"]


def test_one_variant_is_not_measured(monkeypatch):
    monkeypatch.setattr(page, "fastest_variant", lambda *options: 1 / 0)
    layouts = {"one": plan_layout(GAME, True, "cpu", layout="threads")}
    for network in (None, PolicyValueNet(GAME, "tiny")): assert page.with_fastest_variant(GAME, network, layouts) is layouts
    cluster = {"ray": Layout("ray", ("ray",), 1, 16, 16, None)}
    assert page.with_fastest_variant(GAME, PolicyValueNet(GAME, "tiny"), cluster) is cluster


def test_a_layout_of_an_older_run_has_the_settings_of_its_device():
    saved = {name: value for name, value in asdict(plan_layout(GAME, None)).items() if name not in ("number_format", "channels_last")}
    layout = read_layout(saved)
    assert layout.variant(THIRD) == THIRD and replace(layout, channels_last=True, number_format="float32").variant(THIRD) == SECOND
