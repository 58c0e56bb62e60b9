"A network in 8-bit integers: what it computes, on which machines, and that it travels with the weights."
import copy
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from alphazero_nb.core.device import get_device
from alphazero_nb.core.registry import get_game
from alphazero_nb.network import int8
from alphazero_nb.network.checkpoint import fill_network, network_arrays
from alphazero_nb.network.evaluator import NetworkEvaluator
from alphazero_nb.network.int8 import (Int8Net, QuantizedConv, can_use_int8, int8_operators_work, measure_ranges,
                                       pool_int8)
from alphazero_nb.network.fused_boards import fold_batch_norm
from alphazero_nb.network.inference import inference_copy
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.network.pretrained import load_pretrained
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.settings import default_settings
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.trainer import Trainer

GAME, CPU = get_game("connect4"), get_device("cpu")
GAMES = ["connect4", "tictactoe", "gomoku(size=9)", "dots(rows=3,cols=3)", "chess(variant=gardner)", "othello(size=6)"]
pytestmark = pytest.mark.usefixtures("one_thread_inside")
needs_int8 = pytest.mark.skipif("not int8_operators_work()", reason="this machine has no operators for 8-bit integers")


def positions(game, count, seed=0):
    "Observations of random games, (count, *shape) int8."
    rng, found = np.random.default_rng(seed), []
    while len(found) < count:
        state = game.new(int(rng.integers(1 << 30)))
        while not game.over(state) and len(found) < count:
            found.append(np.asarray(game.observe(state), np.int8))
            state = game.play(state, int(rng.choice(game.legal_actions(state))))
    return torch.from_numpy(np.stack(found).reshape(count, *game.shape))


def measured(game, preset="tiny", seed=1):
    "A network with batch norm statistics of real positions, and with ranges."
    network, planes = PolicyValueNet(game, preset, seed), positions(game, 64, seed)
    network.train()
    with torch.no_grad():
        for _ in range(5): network(planes.float())
    measure_ranges(network.eval(), planes)
    return network


def by_hand(network, planes):
    "The trunk in whole numbers, with ordinary operators in float64: integers (batch, filters, height, width)."
    net, ranges = fold_batch_norm(network), (network.ranges / 255).tolist()

    def conv(pair, x, step, out, shortcut=0.0):
        unit = pair.weight.abs().amax((1, 2, 3)) / 127
        weight = (pair.weight / unit[:, None, None, None]).round()
        total = F.conv2d(x.double(), weight.double(), padding=1) * (unit.double() * step)[:, None, None]
        return ((total + pair.bias.double()[:, None, None] + shortcut) / out).round().clamp(0, 255)
    unit = ranges[0]
    x = conv(net.stem, planes, 1.0, unit)
    for block, middle, out in zip(net.blocks, ranges[1::2], ranges[2::2]):
        x = conv(block.second, conv(block.first, x, unit, middle), middle, out, x * unit)
        unit = out
    return x


@needs_int8
@pytest.mark.parametrize("name", GAMES)
def test_the_trunk_computes_whole_numbers(name):
    "A rounding at a tie may go the other way in float32, and shift what follows by a unit."
    game = get_game(name)
    network, planes = measured(game), positions(game, 16, seed=9)
    with torch.inference_mode():
        net = Int8Net(fold_batch_norm(copy.deepcopy(network)).requires_grad_(False), torch.float32)
        got = net.trunk(planes.contiguous(memory_format=torch.channels_last).view(torch.uint8) ^ 128).double()
        apart = (got - by_hand(network, planes)).abs()
    assert got.unique().numel() > 50 and apart.max() <= 3 and (apart > 0).double().mean() < .01


@needs_int8
@pytest.mark.parametrize("name, preset", [*((name, "tiny") for name in GAMES), ("othello(size=10)", "anysize")])
def test_the_answers_are_those_of_the_network(name, preset):
    game = get_game(name)
    network, planes = measured(game, preset), positions(game, 64, seed=5)
    with torch.inference_mode():
        want, got = network(planes.float()), inference_copy(network, "cpu", dtype="int8")(planes)
    for a, b in zip(want, got):
        assert a.shape == b.shape and b.dtype == torch.float32
        assert (a - b).abs().max() < .06 * max(1, a.abs().max()) and not torch.equal(a, b)


@needs_int8
@pytest.mark.parametrize("name", ["connect4", "chess(variant=gardner)", "gomoku(size=9)"])
def test_a_trained_agent_prefers_the_same_moves(name):
    game, network = load_pretrained(name)
    planes = positions(game, 512)
    measure_ranges(network.eval(), planes[:256])
    with torch.inference_mode():
        want, values = network(planes[256:].float())
        got, rough = inference_copy(network, "cpu", dtype="int8")(planes[256:])
    assert (want.argmax(1) == got.argmax(1)).float().mean() > .93
    assert (values - rough).abs().mean() < .04


@needs_int8
def test_any_int8_input_is_exact():
    "Also at the edge of the board, where the convolution adds zeros."
    rng = torch.Generator().manual_seed(0)
    pair = fold_batch_norm(PolicyValueNet(GAME, "tiny").eval().requires_grad_(False)).stem
    planes = torch.randint(-128, 128, (5, *GAME.shape), generator=rng, dtype=torch.int8)
    unit = pair.weight.abs().amax((1, 2, 3)) / 127
    with torch.inference_mode():
        shifted = planes.contiguous(memory_format=torch.channels_last).view(torch.uint8) ^ 128
        got = QuantizedConv(pair, GAME.shape, 1.0, None, 128)(shifted, "none", torch.float32)
        weight = (pair.weight / unit[:, None, None, None]).round().double()
        want = F.conv2d(planes.double(), weight, padding=1) * unit[:, None, None] + pair.bias[:, None, None]
    assert torch.allclose(got.double(), want, rtol=1e-5, atol=1e-3)


def test_pooling_is_mean_and_maximum():
    x, out = np.random.default_rng(0).integers(0, 256, (7, 42, 19)).astype(np.uint8), np.empty((7, 38), np.float32)
    pool_int8(x, .25, out)
    assert np.allclose(out, .25 * np.concatenate([x.mean(1), x.max(1)], 1))


@needs_int8
def test_a_row_does_not_see_its_neighbours():
    evaluator = NetworkEvaluator(GAME, measured(GAME, "small"), "cpu", shapes=(32,), dtype="int8")
    planes = positions(GAME, 32, 4).flatten(1).numpy()
    ask = lambda rows: evaluator.evaluate(rows, np.zeros(len(rows) + 1, np.int32), np.zeros(0, np.int32))[1]
    whole, turned = ask(planes), np.random.default_rng(1).permutation(32)
    assert np.array_equal(ask(planes[turned]), whole[turned]) and len(np.unique(whole)) > 32
    for row in range(0, 32, 7): assert np.array_equal(ask(planes[row:row + 1])[0], whole[row])


# Where it is not used


def same(a, b): return all(torch.equal(x, y) for x, y in zip(a, b))


@pytest.mark.parametrize("ranges", [0.0, float("nan")])
def test_without_ranges_the_usual_format_computes(ranges):
    "Not a number means that the weights have diverged, which integers would hide."
    network, planes = measured(GAME), positions(GAME, 16)
    network.ranges[3] = ranges
    with torch.inference_mode():
        assert not can_use_int8(network, CPU)
        assert same(inference_copy(network, "cpu", dtype="int8")(planes), inference_copy(network, "cpu")(planes))


@pytest.mark.parametrize("preset", ["mlp", "spiking"])
def test_other_networks_ignore_it(preset):
    network, planes = PolicyValueNet(GAME, preset).eval(), positions(GAME, 16)
    with torch.inference_mode():
        assert same(inference_copy(network, "cpu", dtype="int8")(planes), inference_copy(network, "cpu")(planes))


@pytest.fixture
def forget_probe():
    int8_operators_work.cache_clear()
    yield
    int8_operators_work.cache_clear()


class Overflowing(QuantizedConv):
    "Sums as a processor does that adds two products in 16 bits."
    def add_relu(self, x, other, unit): return super().add_relu(x, other, unit).clamp(max=200)


class Missing(QuantizedConv):
    def add_relu(self, x, other, unit): raise AttributeError("'_OpNamespace' 'onednn' object has no attribute 'qconv'")


class Unshifted(QuantizedConv):
    "Pads the first layer with 0 and not with its zero point."
    def __call__(self, x, after, dtype):
        zero = self.weights[1]
        if zero: x = F.pad(x, (1, 1, 1, 1))
        return super().__call__(x, after, dtype)[:, :, 1:-1, 1:-1] if zero else super().__call__(x, after, dtype)


class Clipping(QuantizedConv):
    "Saturates where nothing is added."
    def __call__(self, x, after, dtype): return super().__call__(x, after, dtype).clamp(max=200)


@pytest.mark.parametrize("broken", [Overflowing, Missing, Unshifted, Clipping])
def test_operators_that_fail_are_not_used(broken, monkeypatch, forget_probe):
    monkeypatch.setattr(int8, "QuantizedConv", broken)
    network, planes = measured(GAME), positions(GAME, 16)
    with torch.inference_mode():
        assert not can_use_int8(network, CPU)
        assert same(inference_copy(network, "cpu", dtype="int8")(planes), inference_copy(network, "cpu")(planes))


@needs_int8
def test_a_batch_that_the_operators_refuse_runs_without_them(monkeypatch):
    network, planes = measured(GAME), positions(GAME, 16)
    run, add = inference_copy(network, "cpu", dtype="int8"), QuantizedConv.add_relu

    def refuse_eight(self, x, other, unit):
        if len(x) == 8: raise RuntimeError("could not create a primitive")
        return add(self, x, other, unit)
    with torch.inference_mode():
        want = run(planes)
        monkeypatch.setattr(QuantizedConv, "add_relu", refuse_eight)
        with pytest.warns(UserWarning, match="batch of 8"): got = run(planes[:8])
        assert same(run(planes), want)
        usual = network(planes[:8].float())
    assert all(torch.allclose(a, b, atol=.1) for a, b in zip(got, usual))


PROCESSORS = ["SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_VNNI"]
ANSWER = """import os, sys, torch
from tests.unit.test_int8 import *
planes = positions(GAME, 32, 3)
for isa in sys.argv[1:]:
    if os.fork():   # oneDNN has computed nothing yet; a copy of this process has its own
        assert os.wait()[1] == 0, isa
        continue
    os.environ["ONEDNN_MAX_CPU_ISA"] = isa
    network = measured(GAME)
    with torch.inference_mode():
        pairs = zip(network(planes.float()), inference_copy(network, "cpu", dtype="int8")(planes))
        print(isa, int8_operators_work(), *[float((a - b).abs().max()) for a, b in pairs], flush=True)
    sys.exit()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="copies of processes")
def test_processors_without_the_instructions_get_right_answers():
    "oneDNN behaves as on such a processor. There it sums two products in 16 bits, or is exact and merely slower."
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    where = dict(os.environ, PYTHONPATH=os.pathsep.join([root, os.path.join(root, "tests")]))
    done = subprocess.run([sys.executable, "-c", ANSWER, *PROCESSORS], env=where, cwd=root, timeout=900, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    answers = [line.split() for line in done.stdout.splitlines()]
    assert [isa for isa, *_ in answers] == PROCESSORS
    for isa, works, logits, values in answers:
        assert float(logits) < .1 and float(values) < .06, isa
        if isa == "AVX2": assert works == "False"


# Self-play and training


def play(network, int8=True, games=8, **options):
    settings = replace(default_settings(GAME), int8=int8)
    usual = dict(device="cpu", settings=settings, seed=4, games=16, max_batch=16, listeners=())
    with SelfPlayEngine(GAME, network, **dict(usual, **options)) as engine: return engine.generate_games(games)


@needs_int8
def test_a_seed_is_its_games_whatever_the_layout():
    network = measured(GAME)
    first, *others = [play(network, threads=threads, shared=shared, reproducible=reproducible)
                      for threads, shared, reproducible in [(1, False, True), (2, False, False), (2, True, True)]]
    assert all(games == first for games in others)
    assert play(network, threads=1, int8=False) != first, "the setting reaches the evaluator"


def small_run(folder, **options):
    settings = TrainSettings(games_per_iteration=12, batch_size=32, replay_ratio=2, min_replay_ratio=2, evaluate_every=0)
    play_settings = replace(default_settings(GAME), int8=True)
    usual = dict(listeners=(), games=16, max_batch=16, reproducible=True, train_settings=settings)
    return Trainer("connect4", "tiny", folder, device="cpu", simulations=4, play_settings=play_settings,
                   **dict(usual, **options))


def test_a_resumed_run_has_the_ranges_of_its_weights(tmp_path):
    "Interrupted after one iteration and continued, a run is the run that was not interrupted."
    whole = small_run(tmp_path / "whole").fit(iterations=2)
    small_run(tmp_path / "parts").fit(iterations=1)
    parts = small_run(tmp_path / "parts").fit(iterations=1)
    ranges = parts.network.ranges
    assert (ranges > 0).all() and torch.equal(ranges, parts.learner.network.ranges)
    want, got = network_arrays(whole.network), network_arrays(parts.network)
    assert all(np.array_equal(want[name], got[name]) for name in want)


def test_ranges_follow_the_weights(tmp_path):
    "They are those of the averaged weights that play next, on positions of the last batch."
    run = small_run(tmp_path)
    run.fit(iterations=1)
    before = run.network.ranges.clone()
    run.fit(iterations=2)
    after = run.network.ranges
    measure_ranges(other := measured(GAME), positions(GAME, 256, 8))
    fill_network(other, network_arrays(run.network))
    measure_ranges(other, positions(GAME, 256, 8))
    assert not torch.equal(before, after) and (other.ranges / after - 1).abs().median() < .3


def test_weights_from_before_have_no_ranges():
    arrays = network_arrays(measured(GAME))
    del arrays["ranges"]
    network = fill_network(measured(GAME), arrays)
    assert not network.ranges.any()
    with pytest.raises(ValueError, match="another network"): fill_network(network, arrays | dict(more=np.zeros(3)))


@needs_int8
def test_the_first_message_says_so(tmp_path):
    said = []
    small_run(tmp_path, listeners=[lambda event: said.append(getattr(event, "text", ""))]).fit(iterations=1)
    assert any(f"self-play in int8, the rest in {CPU.dtype} on " in text for text in said)
