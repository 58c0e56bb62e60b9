"The network for cards in fused operators, against PyTorch's own layers."
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alphazero_nb.core.device import get_device
from alphazero_nb.core.registry import get_game
from alphazero_nb.network import fused_cards
from alphazero_nb.network.fused_cards import (FusedSuitNet, add_rows, narrow, norm_rows, pool_halves, split_inputs,
                                              widen)
from alphazero_nb.network.fused_boards import fused_boards_work
from alphazero_nb.network.int8 import int8_operators_work
from alphazero_nb.network.inference import can_fuse, inference_copy
from alphazero_nb.network.networks import PolicyValueNet, SuitNet

OPEN = SimpleNamespace(groups=(3, 37, 9), observation_size=150, input_size=150, privileged_size=0, actions=40,
                       players=3)
fuses = pytest.mark.skipif(not fused_cards.fused_cards_work(),
                           reason="this PyTorch has no fused linear layers for the CPU")


def with_history(network):
    "Weights as after some training: norms with gains and shifts, answers that differ."
    chance = torch.Generator().manual_seed(3)
    for layer in network.modules():
        if isinstance(layer, nn.LayerNorm):
            layer.weight.data = 1 + torch.randn(layer.weight.shape, generator=chance) / 4
            layer.bias.data = torch.randn(layer.bias.shape, generator=chance) / 4
        if isinstance(layer, nn.Linear): layer.bias.data = torch.randn(layer.bias.shape, generator=chance) / 4
    for last in (network.cards, network.policy, network.value): last.weight.data *= 8
    return network.eval()


def networks():
    for name in ("blob(players=3,cards=2)", "blob(players=5,cards=5)", "blob(players=8,cards=6)"):
        game = get_game(name)
        yield pytest.param(game.input_size, lambda game=game: PolicyValueNet(game, "cards"), id=name)
    yield pytest.param(OPEN.input_size, lambda: SuitNet(OPEN, 40, 2), id="nothing hidden")


def planes(rows, size, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(-4, 5, (rows, size)).astype(np.int8))


def halves(x): return x.bfloat16().view(torch.uint16).numpy()
def floats(bits): return torch.from_numpy(bits).view(torch.bfloat16).float()


@fuses
@pytest.mark.parametrize("size, make", [*networks()])
@pytest.mark.parametrize("rows", [1, 7, 64, 300])
def test_the_same_answers_as_layer_by_layer(size, make, rows):
    network, x = with_history(make()), planes(rows, size)
    fused, plain = FusedSuitNet(network), inference_copy(network, "cpu", "eager", "bfloat16")
    with torch.inference_mode():
        want, got, rough = network(x.float()), fused(x), plain(x)
    assert not fused.refused
    for exact, mine, theirs in zip(want, got, rough):
        assert mine.shape == exact.shape and exact.std() > .1
        assert (mine.float() - exact).abs().max() < 2 * (theirs - exact).abs().max() + .02


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")   # PyTorch's, of a layer without inputs
@pytest.mark.parametrize("changes", [dict(actions=27), dict(groups=(3, 37, 0)), dict(observation_size=111, input_size=111)],
                         ids=["every action is a card", "no action is a card", "nothing but cards is seen"])
def test_a_network_may_lack_one_kind_of_actions_or_of_inputs(changes):
    game = SimpleNamespace(**{**vars(OPEN), **changes})
    network, x = PolicyValueNet(game, "cards").eval(), planes(16, game.input_size)
    sum(answer.sum() for answer in network(x.float())).backward()   # It can learn
    with torch.inference_mode(): logits, values = network(x.float())
    assert logits.shape == (16, game.actions) and values.shape == (16, 3) and logits.std() > 0
    if not fused_cards.fused_cards_work(): return
    fused = FusedSuitNet(network)
    with torch.inference_mode(): answers = fused(x)
    assert not fused.refused
    assert all(torch.allclose(a, b.float(), atol=.1) for a, b in zip((logits, values), answers))


@fuses
def test_a_row_does_not_depend_on_the_others_with_one_thread_and_with_two():
    game = get_game("blob(players=4,cards=5)")
    fused, x = FusedSuitNet(with_history(PolicyValueNet(game, "cards"))), planes(96, game.input_size)
    other = planes(96, game.input_size, seed=1)
    other[50] = x[50]
    before = torch.get_num_threads()
    try:
        answers = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            with torch.inference_mode(): answers.append((fused(x), fused(other)))
    finally: torch.set_num_threads(before)
    for mine, theirs in answers:
        assert all(torch.equal(a[50], b[50]) and not torch.equal(a, b) for a, b in zip(mine, theirs))


@fuses
@pytest.mark.parametrize("layer", ["suit", "table", "cards", "value"])
def test_weights_that_are_no_numbers_are_seen_in_the_answer(layer):
    game = get_game("blob(players=4,cards=5)")
    network = with_history(PolicyValueNet(game, "cards"))
    getattr(network, layer).weight.data[:] = torch.nan
    with torch.inference_mode(): logits, values = FusedSuitNet(network)(planes(8, game.input_size).abs())
    assert torch.isnan(logits).any() or torch.isnan(values).any()


def test_halves_are_those_of_pytorch():
    numbers = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).float()
    kept = ~torch.isnan(numbers)
    assert all(float(number) == widen(np.uint16(half)) for half, number in enumerate(numbers.tolist()) if kept[half])
    chance = np.random.default_rng(0)
    halfway = [1 + 2 ** -8, 1 + 3 * 2 ** -8]
    for number in np.array([*chance.normal(0, 1, 500), *halfway, 3e38], np.float32):
        assert narrow(number) == halves(torch.tensor(float(number))), number
    assert np.isnan(widen(narrow(np.float32(np.nan)))) and np.isinf(widen(narrow(np.float32(np.inf))))


def test_kernels_against_pytorch():
    chance = torch.Generator().manual_seed(0)
    x, rows = (torch.randn(n, 40, generator=chance).bfloat16().float() for n in (12, 4))
    gain, shift = torch.randn(2, 40, generator=chance)
    out = np.empty((12, 40), np.uint16)
    add_rows(halves(x), halves(rows), out)
    assert torch.equal(floats(out), (x + rows.repeat(3, 1)).bfloat16().float())
    for least, after in ((-np.inf, lambda y: y), (0, torch.relu)):
        norm_rows(halves(x), gain.numpy(), shift.numpy(), np.float32(1e-5), np.float32(least), out)
        assert torch.allclose(floats(out), after(F.layer_norm(x, (40,), gain, shift)), rtol=.01, atol=1e-3)
    both, parts = np.empty((4, 80), np.uint16), x.view(3, 4, 40)
    pool_halves(halves(parts), *np.empty((2, 40), np.float32), both)
    assert torch.allclose(floats(both), torch.cat([parts.mean(0), parts.amax(0)], 1), rtol=.01)
    inputs = np.random.default_rng(0).integers(-128, 128, (6, 50)).astype(np.int8)
    split = np.empty((3, 6, 16), np.uint16)
    split_inputs(inputs, 5, 13, split)
    for part in range(3):
        assert np.array_equal(floats(split)[part, :, :13], inputs[:, 5 + 13 * part:18 + 13 * part])
        assert not split[part, :, 13:].any()


@pytest.fixture
def forget_probe():
    "The probe of the operators is tried again, and forgotten afterwards."
    fused_cards.fused_cards_work.cache_clear()
    yield
    fused_cards.fused_cards_work.cache_clear()


@pytest.mark.parametrize("answer", [TypeError("unexpected argument"), "zeros"])
def test_operators_that_fail_or_err_are_not_used(answer, monkeypatch, forget_probe):
    def refuse(self, x, *arguments):
        if answer == "zeros": return torch.zeros(len(x), len(self.bias)).bfloat16()
        raise answer
    monkeypatch.setattr(fused_cards.PackedLinear, "__call__", refuse)
    monkeypatch.setattr(fused_cards.PackedLinear, "add", refuse)
    network = PolicyValueNet(get_game("blob(players=4,cards=5)"), "cards").eval()
    assert not can_fuse(network, get_device("cpu"), "bfloat16")
    with pytest.raises(ValueError, match="'fused' cannot run SuitNet in bfloat16 on"):
        inference_copy(network, "cpu", "fused", "bfloat16")


@fuses
def test_a_batch_that_the_operators_refuse_runs_without_them(monkeypatch):
    norm = fused_cards.FusedNorm.__call__
    def refuse_eight(self, x):
        if len(x) == 8: raise TypeError("unexpected argument")
        return norm(self, x)
    monkeypatch.setattr(fused_cards.FusedNorm, "__call__", refuse_eight)
    game = get_game("blob(players=4,cards=5)")
    network, x = with_history(PolicyValueNet(game, "cards")), planes(16, game.input_size)
    run = inference_copy(network, "cpu", "fused", "bfloat16")
    with torch.inference_mode():
        want = network(x.float())
        with pytest.warns(UserWarning, match="batch of 8 .TypeError: unexpected argument") as warned:
            answers = [run(x[:rows]) for rows in (4, 8, 16, 8)]
    assert len(warned) == 1
    for rows, got in zip((4, 8, 16, 8), answers):
        assert all(torch.allclose(a[:rows], b, atol=.1) for a, b in zip(want, got))


@fuses
def test_float32_is_computed_layer_by_layer():
    game = get_game("blob(players=4,cards=5)")
    network, x = with_history(PolicyValueNet(game, "cards")), planes(16, game.input_size)
    assert not can_fuse(network, get_device("cpu"), "float32")
    with pytest.raises(ValueError, match="in float32"): inference_copy(network, "cpu", "fused", "float32")
    with torch.inference_mode(): want, got = network(x.float()), inference_copy(network, "cpu", "auto", "float32")(x)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(want, got))


def test_probes_leave_the_random_numbers_of_the_caller_alone():
    for probe in (lambda: fused_boards_work("float32"), fused_cards.fused_cards_work, int8_operators_work):
        for cached in (fused_boards_work, fused_cards.fused_cards_work, int8_operators_work): cached.cache_clear()
        torch.manual_seed(0)
        want = torch.rand(3)
        torch.manual_seed(0)
        probe()
        assert torch.equal(torch.rand(3), want)
