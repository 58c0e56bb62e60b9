"Convolutions with fewer multiplications: against float64, on boards of many sizes, in threads, and where they cannot run."
import copy
import threading
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from alphazero_nb.core.device import get_device
from alphazero_nb.core.registry import get_game
from alphazero_nb.network import winograd
from alphazero_nb.network.evaluator import NetworkEvaluator
from alphazero_nb.network.fused_boards import fold_batch_norm
from alphazero_nb.network.inference import inference_copy
from alphazero_nb.network.networks import BoardNet, PolicyValueNet
from alphazero_nb.network.winograd import (LANES, LONGEST, ROWS, Trunk, WinogradNet, can_multiply_less, count_points, segments,
                                           toom_cook, winograd_works)
from test_evaluator import trained

GAME, CPU = get_game("connect4"), replace(get_device("cpu"), dtype="float32")
pytestmark = pytest.mark.usefixtures("one_thread_inside")


def test_this_machine_can_run_it(): assert winograd_works()


@pytest.mark.parametrize("results", range(1, LONGEST + 1))
def test_matrices_compute_a_convolution_exactly(results):
    rng = np.random.default_rng(results)
    draw = lambda count: [Fraction(int(x), int(y)) for x, y in zip(rng.integers(-9, 9, count), rng.integers(1, 9, count))]
    a, g, b = toom_cook(results)
    times = lambda matrix, vector: [sum(x * v for x, v in zip(row, vector)) for row in matrix]
    weights, cells = draw(3), draw(results + 2)
    products = [u * v for u, v in zip(times(g, weights), times(b, cells))]
    assert times(a, products) == [sum(weights[k] * cells[i + k] for k in range(3)) for i in range(results)]


@pytest.mark.parametrize("cells", range(1, 40))
def test_segments_cover_a_line(cells):
    parts = segments(cells)
    assert sum(parts) == cells and 1 <= min(parts) and max(parts) <= LONGEST and max(parts) - min(parts) <= 1
    assert count_points(cells) == cells + 2 * len(parts)


SIZES = [(1, 1), (1, 9), (2, 3), (3, 3), (4, 4), (5, 5), (6, 7), (7, 6), (8, 8), (9, 9), (10, 13), (15, 15), (19, 19), (3, 20)]


def direct(convs, inputs):
    "The layers in float64 by PyTorch's own operators: (cells, filters, positions)."
    convs = [copy.deepcopy(conv).double() for conv in convs]
    x = convs[0](inputs.double()).relu()
    for first, second in zip(convs[1::2], convs[2::2]): x = (second(first(x).relu()) + x).relu()
    return x.flatten(2).permute(2, 1, 0)


@pytest.mark.parametrize("height, width", SIZES)
@pytest.mark.parametrize("positions, filters", [(16, 8), (1, 3), (ROWS + 5, 12)])
def test_a_trunk_agrees_with_float64(height, width, positions, filters):
    torch.manual_seed(height * width)
    convs = [nn.Conv2d(planes, filters, 3, padding=1).requires_grad_(False) for planes in (3, filters, filters, filters, filters)]
    inputs = torch.randint(-128, 128, (positions, 3, height, width), dtype=torch.int8)
    got, want = Trunk(convs, height, width)(inputs.flatten(2)), direct(convs, inputs)
    assert got.shape == (height * width, filters, -(-positions // LANES) * LANES)
    assert (got[:, :, :positions] - want).abs().max() < 1e-4 * want.abs().max()


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 64, ROWS, ROWS + 1, 256])
@pytest.mark.parametrize("name, preset", [("connect4", "tiny"), ("connect4", "small"), ("gomoku(size=9)", "anysize"),
                                          ("dots(rows=3,cols=3)", "tiny"), ("chess(variant=gardner)", "tiny"), ("othello", "tiny")])
def test_the_copy_computes_the_network(name, preset, rows):
    game = get_game(name)
    network = trained(game, PolicyValueNet(game, preset, seed=3)).eval()
    planes = torch.randint(0, 2, (rows, *game.shape), dtype=torch.int8)
    with torch.inference_mode():
        want, got = copy.deepcopy(network).double()(planes.double()), inference_copy(network, "cpu", "winograd", "float32")(planes)
    for a, b in zip(want, got): assert a.shape == b.shape and b.dtype == torch.float32 and torch.allclose(a.float(), b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_a_row_does_not_see_its_place(preset):
    "Bit for bit, in a batch of more than one part."
    rows = 3 * ROWS + LANES
    run = inference_copy(trained(GAME, PolicyValueNet(GAME, preset)).eval(), "cpu", "winograd", "float32")
    planes, order = torch.randint(0, 2, (rows, *GAME.shape), dtype=torch.int8), torch.randperm(rows)
    with torch.inference_mode():
        want = [each.clone() for each in run(planes)]
        turned, lone = [each.clone() for each in run(planes[order])], torch.zeros_like(planes)
        lone[100] = planes[100]
        alone = run(lone)
    assert all(torch.equal(a[order], b) for a, b in zip(want, turned))
    assert all(torch.equal(a[100], b[100]) for a, b in zip(want, alone))


def test_threads_share_a_copy():
    run = inference_copy(trained(GAME, PolicyValueNet(GAME, "tiny")).eval(), "cpu", "winograd", "float32")
    batches = [torch.randint(0, 2, (rows, *GAME.shape), dtype=torch.int8) for rows in (16, 40, 100, 64)]
    with torch.inference_mode(): want = [[each.clone() for each in run(batch)] for batch in batches]
    wrong = []

    def ask(batch, answer):
        with torch.inference_mode():
            for _ in range(30):
                if not all(torch.equal(a, b) for a, b in zip(run(batch), answer)): wrong.append(len(batch))
    threads = [threading.Thread(target=ask, args=pair) for pair in zip(batches, want)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong


def test_answers_stay_when_the_next_batch_comes():
    run = inference_copy(trained(GAME, PolicyValueNet(GAME, "tiny")).eval(), "cpu", "winograd", "float32")
    one, two = (torch.randint(0, 2, (32, *GAME.shape), dtype=torch.int8) for _ in range(2))
    with torch.inference_mode():
        first = run(one)
        kept = [each.clone() for each in first]
        run(two)
    assert all(torch.equal(a, b) for a, b in zip(first, kept))


def test_any_mode_may_ask_next():
    "A tensor of inference mode could not be written outside of it."
    run = inference_copy(PolicyValueNet(GAME, "tiny").eval(), "cpu", "winograd", "float32")
    planes = torch.randint(0, 2, (20, *GAME.shape), dtype=torch.int8)
    with torch.inference_mode(): want = [each.clone() for each in run(planes)]
    with torch.no_grad(): assert all(torch.equal(a, b) for a, b in zip(want, run(planes)))
    assert all(torch.equal(a, b) for a, b in zip(want, run(planes)))


def test_nan_in_the_weights_reaches_the_answer():
    "ReLU of NaN is NaN; with 0 in its place, a network without numbers would play on."
    network = PolicyValueNet(GAME, "tiny").eval()
    with torch.no_grad(): network.blocks[1].first[0].weight[0, 0, 0, 0] = float("nan")
    with torch.inference_mode(): logits, values = inference_copy(network, "cpu", "winograd", "float32")(torch.ones(16, *GAME.shape, dtype=torch.int8))
    assert logits.isnan().any() and values.isnan().any()


def test_who_is_computed_this_way():
    class Own(BoardNet): "With a forward of its own, perhaps."
    assert can_multiply_less(PolicyValueNet(GAME, "tiny"), CPU) and not can_multiply_less(Own(GAME, 8, 1), CPU)
    assert not can_multiply_less(PolicyValueNet(GAME, "mlp"), CPU) and not can_multiply_less(PolicyValueNet(GAME, "spiking"), CPU)
    assert not can_multiply_less(PolicyValueNet(GAME, "tiny"), replace(CPU, dtype="bfloat16"))
    assert can_multiply_less(PolicyValueNet(GAME, "tiny"), replace(CPU, dtype="bfloat16"), "float32")
    assert not can_multiply_less(PolicyValueNet(GAME, "tiny"), replace(CPU, name="cuda:0"))
    assert not can_multiply_less(PolicyValueNet(GAME, "large"), CPU), "its weights by points would take too much memory"
    with pytest.raises(ValueError, match="backend 'winograd' cannot run VectorNet in float32 on cpu; choose auto"):
        inference_copy(PolicyValueNet(GAME, "mlp"), "cpu", "winograd", "float32")


def test_auto_chooses_it(monkeypatch):
    built, make = [], WinogradNet.__init__
    monkeypatch.setattr(WinogradNet, "__init__", lambda self, *what: built.append(what) or make(self, *what))
    for backend in ("auto", "fused", "eager"): inference_copy(PolicyValueNet(GAME, "tiny"), CPU, backend)
    assert len(built) == 1


@pytest.mark.parametrize("break_it", [lambda *_: (_ for _ in ()).throw(TypeError("another numba")), lambda scratch, *_: None])
def test_a_machine_that_cannot_run_it_goes_without(break_it, monkeypatch):
    "Layers that fail, or compute something else, are not used."
    winograd_works.cache_clear()
    try:
        monkeypatch.setattr(winograd, "advance", break_it)
        assert not winograd_works() and not can_multiply_less(PolicyValueNet(GAME, "tiny"), CPU)
        planes, network = torch.randint(0, 2, (16, *GAME.shape), dtype=torch.int8), PolicyValueNet(GAME, "tiny").eval()
        with torch.inference_mode(): want, got = network(planes.float()), inference_copy(network, CPU)(planes)
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(want, got))
    finally: winograd_works.cache_clear()


def test_a_batch_that_fails_is_computed_layer_by_layer(monkeypatch):
    network = PolicyValueNet(GAME, "tiny").eval()
    run, planes = inference_copy(network, "cpu", "winograd", "float32"), torch.randint(0, 2, (32, *GAME.shape), dtype=torch.int8)
    def refuse(*_): raise RuntimeError("no memory")
    monkeypatch.setattr(winograd, "advance", refuse)
    with torch.inference_mode(), pytest.warns(UserWarning, match="batch of 32 .RuntimeError: no memory"):
        want, got = network(planes.float()), run(planes)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(want, got))


def test_small_batches_need_no_fused_operators(monkeypatch):
    monkeypatch.setattr(winograd, "fused_boards_work", lambda dtype: False)
    network = trained(GAME, PolicyValueNet(GAME, "tiny")).eval()
    net = WinogradNet(fold_batch_norm(copy.deepcopy(network)).requires_grad_(False))
    for rows in (3, 30):
        planes = torch.randint(0, 2, (rows, *GAME.shape), dtype=torch.int8)
        with torch.inference_mode(): assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(network(planes.float()), net(planes)))


def test_the_probe_leaves_the_random_numbers_of_the_caller_alone():
    winograd_works.cache_clear()
    torch.manual_seed(0)
    want = torch.rand(3)
    torch.manual_seed(0)
    assert winograd_works()
    assert torch.equal(torch.rand(3), want)


def test_new_weights_reach_an_evaluator():
    network, other = (trained(GAME, PolicyValueNet(GAME, "tiny", seed)).eval() for seed in (1, 2))
    evaluator = NetworkEvaluator(GAME, network, "cpu", shapes=(32,), backend="winograd", dtype="float32")
    ask = np.ones((32, GAME.observation_size), np.int8), np.arange(0, 7 * 32 + 1, 7, dtype=np.int32), np.tile(np.arange(7, dtype=np.int32), 32)
    before = [each.copy() for each in evaluator.evaluate(*ask)]
    evaluator.set_network(other)
    with torch.inference_mode(): want = other(torch.ones(32, *GAME.shape))
    after = evaluator.evaluate(*ask)
    assert not np.allclose(before[0], after[0], atol=1e-2) and np.allclose(after[0].reshape(32, 7), want[0], atol=1e-4)


def test_another_board_reaches_no_memory_of_others(monkeypatch):
    game = get_game("gomoku(size=9)")
    run = inference_copy(PolicyValueNet(game, "anysize").eval(), "cpu", "winograd", "float32")
    monkeypatch.setattr(winograd, "enter", lambda *_: pytest.fail("it would read 56 cells too many"))
    with torch.inference_mode(), pytest.raises((IndexError, RuntimeError)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(torch.zeros(16, game.shape[0], 5, 5, dtype=torch.int8))


@pytest.mark.parametrize("change", [dict(dilation=(2, 2), padding=(2, 2)), dict(padding_mode="circular"), dict(kernel_size=5, padding=2)])
def test_a_changed_layer_is_computed_as_it_is(change):
    network = trained(GAME, PolicyValueNet(GAME, "tiny"))
    network.blocks[0].first[0] = nn.Conv2d(32, 32, bias=False, **dict(dict(kernel_size=3, padding=1), **change))
    planes = torch.randint(0, 2, (16, *GAME.shape), dtype=torch.int8)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")   # Fused operators do not know every kind of padding
        want, got = network.eval()(planes.float()), inference_copy(network, CPU)(planes)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(want, got))


def test_a_stem_of_another_kind_is_left_alone():
    network = PolicyValueNet(GAME, "tiny").eval()
    network.stem = nn.Conv2d(GAME.shape[0], 32, 3, padding=1)
    planes = torch.ones(16, *GAME.shape, dtype=torch.int8)
    with torch.inference_mode(): want, got = network(planes.float()), inference_copy(network, CPU, "eager")(planes)
    assert not can_multiply_less(network, CPU) and all(torch.allclose(a, b, atol=1e-4) for a, b in zip(want, got))


@pytest.mark.parametrize("form", [torch.float64, torch.bfloat16])
def test_weights_of_another_format_are_converted(form):
    network, planes = PolicyValueNet(GAME, "tiny").eval(), torch.ones(16, *GAME.shape, dtype=torch.int8)
    with torch.inference_mode(): want, got = network(planes.float()), inference_copy(copy.deepcopy(network).to(form), CPU, "winograd")(planes)
    assert all(torch.allclose(a, b, atol=2e-2) for a, b in zip(want, got))


@pytest.mark.parametrize("backend", ["eager", "fused"])
def test_other_backends_do_without_it(backend, monkeypatch):
    monkeypatch.setattr(winograd, "winograd_works", lambda: pytest.fail("asked"))
    inference_copy(PolicyValueNet(GAME, "tiny"), "cpu", backend, "float32")


def test_the_default_device_does_not_matter():
    run = inference_copy(PolicyValueNet(GAME, "tiny").eval(), "cpu", "winograd", "float32")
    planes = torch.ones(16, *GAME.shape, dtype=torch.int8)
    with torch.inference_mode(), torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("error")
        logits, values = run(planes)
    assert logits.device.type == "cpu" and logits.is_contiguous()


@pytest.mark.parametrize("rows", [16, 100])
def test_the_number_of_threads_does_not_matter(rows):
    "A shared evaluator has all cores inside, an actor's own has one: their games must agree to the last bit."
    run, before = inference_copy(trained(GAME, PolicyValueNet(GAME, "tiny")).eval(), "cpu", "winograd", "float32"), torch.get_num_threads()
    planes, answers = torch.randint(0, 2, (rows, *GAME.shape), dtype=torch.int8), []
    try:
        for threads in (1, 2, 3, 4):
            torch.set_num_threads(threads)
            with torch.inference_mode(): answers.append(run(planes))
    finally: torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in answers[1:] for a, b in zip(answers[0], other))


@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_the_order_of_weights_in_memory_does_not_matter(preset):
    "A learner on a CPU keeps them in channels_last, and a worker process gets them in the usual order: their games must agree."
    network = trained(GAME, PolicyValueNet(GAME, preset)).eval()
    other = copy.deepcopy(network).to(memory_format=torch.channels_last)
    planes = torch.randint(0, 2, (32, *GAME.shape), dtype=torch.int8)
    with torch.inference_mode(): want, got = (inference_copy(each, "cpu", "winograd", "float32")(planes) for each in (network, other))
    assert all(torch.equal(a, b) for a, b in zip(want, got))
