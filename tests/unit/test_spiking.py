"The spiking network: its neurons against plain Python and snnTorch, spikes of 0 and 1, and its way through the package."
import numpy as np
import pytest
import torch
from torch import nn

from alphazero_nb.core.device import get_device
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.checkpoint import fill_network, flatten
from alphazero_nb.network.evaluator import NetworkEvaluator
from alphazero_nb.network.inference import can_fuse, inference_copy
from alphazero_nb.network.networks import KEEP, PRESETS, STEPS, Neurons, PolicyValueNet, Spike, SpikingNet, VectorNet
from alphazero_nb.network.spiking import firing_rates, layer_spikes
from alphazero_nb.training.learner import Learner, TrainSettings
from alphazero_nb.training.replay import Batch
from small_run import games_of_threads

GAMES = ["connect4", "tictactoe", "gomoku(size=5)", "blob(players=3,cards=2)"]


def planes(game, count, seed=0):
    rng, rows, state = np.random.default_rng(seed), [], game.new(seed)
    while len(rows) < count:
        rows.append(game.inputs(state).reshape(game.input_shape))
        state = game.play(state, int(rng.choice(game.legal_actions(state))))
        if game.over(state): state = game.new(seed + len(rows))
    return torch.tensor(np.stack(rows))


def warm(network, rows):
    "Let the batch norms see positions: before that, the currents of a new network are too small for more than a few spikes."
    network.train()
    with torch.no_grad():
        for _ in range(20): network(rows.float())
    return network.eval()


def slow_neuron(currents):
    "Spikes of one neuron, step by step, in plain Python."
    potential, spikes = 0.0, []
    for current in currents:
        potential = KEEP * potential + current - (spikes[-1] if spikes else 0)
        spikes.append(1 if potential > 1 else 0)
    return spikes


def test_neurons_fire_as_the_definition_says():
    rng = np.random.default_rng(0)
    currents = rng.normal(0.6, 1, (STEPS, 500)).astype(np.float32)
    fired = Neurons()(torch.tensor(currents).flatten()).reshape(STEPS, 500).numpy()
    assert [slow_neuron(currents[:, i].astype(float)) for i in range(500)] == fired.T.tolist()
    assert 0.1 < fired.mean() < 0.9


def test_the_gradient_of_a_spike_is_that_of_an_arctan():
    x = torch.linspace(-3, 3, 61, dtype=torch.float64, requires_grad=True)
    Spike.apply(1 + x).sum().backward()
    other = x.detach().clone().requires_grad_()
    (torch.atan(torch.pi * other) / torch.pi).sum().backward()
    assert torch.allclose(x.grad, other.grad)


def test_neurons_agree_with_snntorch():
    "Spikes and gradients, over steps; in snnTorch the reset is not differentiated either."
    snntorch = pytest.importorskip("snntorch")
    from snntorch import surrogate
    reference = snntorch.Leaky(beta=KEEP, threshold=1.0, spike_grad=surrogate.atan(alpha=2.0), reset_mechanism="subtract")
    currents = torch.tensor(np.random.default_rng(1).normal(0.6, 1, (STEPS, 200)), dtype=torch.float32)
    mine, theirs = currents.clone().requires_grad_(), currents.clone().requires_grad_()
    spikes = Neurons()(mine.flatten()).reshape(STEPS, 200)
    memory, expected = reference.reset_mem(), []
    for step in range(STEPS):
        fired, memory = reference(theirs[step], memory)
        expected.append(fired)
    expected = torch.stack(expected)
    assert torch.equal(spikes, expected)
    weights = torch.tensor(np.random.default_rng(2).normal(size=(STEPS, 200)), dtype=torch.float32)
    (spikes * weights).sum().backward()
    (expected * weights).sum().backward()
    assert torch.allclose(mine.grad, theirs.grad, atol=1e-6) and (mine.grad != 0).all()


@pytest.mark.parametrize("name", GAMES)
def test_hidden_layers_exchange_zeros_and_ones(name):
    "In training and in evaluation: each layer of neurons fires 0 or 1, and every hidden layer reads only that."
    game = get_game(name)
    network, seen = PolicyValueNet(game, "spiking", seed=1), []
    assert max(firing_rates(network, planes(game, 8)).values()) < 0.05
    stems = {id(module) for trunk in network.modules() if hasattr(trunk, "stem") for module in trunk.stem.modules()}
    trunks = [module for trunk in network.modules() if hasattr(trunk, "blocks") for module in trunk.blocks.modules()]
    for layer in trunks:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            assert id(layer) not in stems
            layer.register_forward_hook(lambda layer, inputs, out: seen.append(inputs[0].detach().clone()))
    for mode in (True, False):
        network.train(mode)(planes(game, 40).float())
    assert len(seen) == 2 * 2 * PRESETS["spiking"].blocks * (2 if game.privileged_size else 1)
    assert all(((spikes == 0) | (spikes == 1)).all() for spikes in seen)
    fired = layer_spikes(warm(network, planes(game, 40)), planes(game, 40))
    assert all(((spikes == 0) | (spikes == 1)).all() and spikes.shape[:2] == (STEPS, 40) for spikes in fired.values())
    rates = firing_rates(network, planes(game, 40))
    assert list(rates) == list(fired) and all(0 < rate < 1 for rate in rates.values())


def test_positions_go_to_the_device_of_the_network():
    "Of the network of a run on a GPU, for example; `meta` is a second device without one."
    game = get_game("connect4")
    fired = layer_spikes(PolicyValueNet(game, "spiking").to("meta"), planes(game, 3))
    assert {(spikes.device.type, spikes.shape[1]) for spikes in fired.values()} == {("meta", 3)}


@pytest.mark.parametrize("name", GAMES)
def test_the_signature_is_that_of_every_network(name):
    game = get_game(name)
    network = PolicyValueNet(game, "spiking").eval()
    assert type(network) is (SpikingNet if len(game.shape) == 3 else VectorNet)
    with torch.no_grad(): logits, values = network(planes(game, 5).float())
    assert logits.shape == (5, game.actions) and values.shape == (5, game.players) and values.abs().max() < 0.5
    if game.privileged_size:   # No hidden card reaches the policy
        state = game.new(seed=3)
        worlds = np.stack([game.inputs(game.resample_hidden(state, seed)) for seed in range(4)])
        with torch.no_grad(): logits, values = warm(network, planes(game, 40))(torch.tensor(worlds).float())
        assert (logits == logits[0]).all() and not (values == values[0]).all()


def test_it_is_deterministic_and_rows_do_not_touch_each_other():
    game = get_game("connect4")
    network, rows = warm(PolicyValueNet(game, "spiking"), planes(game, 40)), planes(game, 12).float()
    with torch.no_grad():
        together, again = network(rows), network(rows)
        alone = [network(row[None]) for row in rows]
    for k in (0, 1):
        assert torch.equal(together[k], again[k])
        assert torch.allclose(together[k], torch.cat([answer[k] for answer in alone]), atol=1e-5)


def test_inference_takes_the_ordinary_path_and_agrees():
    game = get_game("connect4")
    network, rows = PolicyValueNet(game, "spiking", seed=2), planes(game, 32)
    with torch.no_grad(): want = warm(network, rows)(rows.float())
    assert all(0 < rate < 1 for rate in firing_rates(network, rows).values())
    assert not can_fuse(network, get_device("cpu"))
    for backend in ("auto", "eager"):
        with torch.inference_mode(): got = inference_copy(network, "cpu", backend, dtype="float32")(rows)
        assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(got, want))
    with pytest.raises(ValueError, match=r"'fused' cannot run SpikingNet in \w+ on cpu; choose auto"):
        inference_copy(network, "cpu", "fused")


def test_it_learns_and_its_weights_can_be_stored():
    torch.manual_seed(0)
    game, settings = get_game("tictactoe"), TrainSettings(batch_size=32)
    learner, rng = Learner(PolicyValueNet(game, "spiking"), "cpu", settings), np.random.default_rng(0)
    rows = planes(game, 32).numpy().astype(np.int8)
    policy = np.eye(9, dtype=np.float32)[rng.integers(9, size=32)]
    values = rng.choice([-1, 1], (32, 1)).astype(np.float32) * np.array([[1, -1]], np.float32)
    losses = [sum(loss.item() for loss in learner.step(Batch(rows, policy, values))) for _ in range(30)]
    assert np.mean(losses[-5:]) < 0.7 * losses[0]
    other = PolicyValueNet(game, "spiking", seed=9)
    fill_network(other, flatten(learner.average.module.state_dict()))
    with torch.no_grad():
        pairs = zip(other.eval()(torch.tensor(rows).float()), learner.average.module.eval()(torch.tensor(rows).float()))
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in pairs)


def test_threads_play_the_same_games():
    game = get_game("tictactoe")
    network = PolicyValueNet(game, "spiking")
    assert games_of_threads(game, network, 1, 12) == games_of_threads(game, network, 2, 12)


def test_an_evaluator_takes_it():
    game = get_game("connect4")
    evaluator = NetworkEvaluator(game, PolicyValueNet(game, "spiking"), "cpu")
    rows = planes(game, 3).numpy().reshape(3, -1)
    logits, values = evaluator.evaluate(rows, np.array([0, 7, 14, 21], np.int32), np.tile(np.arange(7, dtype=np.int32), 3))
    assert logits.shape == (21,) and values.shape == (3, 2)
