"A network of one's own is checked before the first game: it answers, in float32, and it survives a save."
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from alphazero_nb.core.device import Device, get_device
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.checkpoint import check_network, fill_network, network_arrays, read_arrays, write_arrays
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.network.inference import with_memory_format
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.selfplay import actors, engine as engine_module
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.layout import Layout
from alphazero_nb.selfplay.settings import SelfPlaySettings
from alphazero_nb.training.learner import Learner, TrainSettings
from alphazero_nb.training.replay import Batch
from alphazero_nb.training.trainer import Trainer
from small_run import differ

GAME = get_game("tictactoe")


class Body(nn.Module):
    "A linear network, and the base of the faulty ones."
    def __init__(self, actions=9, players=2):
        super().__init__()
        self.policy, self.value = nn.Linear(18, actions), nn.Linear(18, players)

    def forward(self, planes):
        x = planes.flatten(1)
        return self.policy(x), torch.tanh(self.value(x))


class ObjectState(Body):
    def get_extra_state(self): return dict(note="a Python object")
    def set_extra_state(self, state): pass


class TensorState(Body):
    steps = 3
    def get_extra_state(self): return torch.tensor(self.steps)
    def set_extra_state(self, state): self.steps = int(state)


class LostState(Body):
    "Writes another state each time."
    def get_extra_state(self): return torch.rand(2)
    def set_extra_state(self, state): pass


class OneAnswer(Body):
    def forward(self, planes): return self.policy(planes.flatten(1))


class NotANumber(Body):
    def forward(self, planes):
        logits, values = super().forward(planes)
        return logits / 0, values


class NoGradient(Body):
    @torch.no_grad()
    def forward(self, planes): return super().forward(planes)


class InPlace(Body):
    "A slip that PyTorch notices only in the backward pass."
    def forward(self, planes):
        logits, values = super().forward(planes)
        values += 1 - values.detach()
        return logits, values


class Drops(Body):
    def forward(self, planes): return super().forward(nn.functional.dropout(planes, .5, self.training))


class Fails(Body):
    def forward(self, planes): return super().forward(planes[:, :1])


FAULTY = dict(
    object_state=(ObjectState, "_extra_state as dict; a run folder holds tensors only"), lost_state=(LostState, "is not the same after saving and loading"),
    half=(lambda: Body().half(), "policy.weight in float16; networks train in float32"),
    bfloat16=(lambda: Body().bfloat16(), "in bfloat16"), double=(lambda: Body().double(), "in float64"),
    one_answer=(OneAnswer, "returned shapes (9,), (9,), not (2, 9), (2, 2)"),
    actions=(lambda: Body(actions=8), "returned shapes (2, 8), (2, 2), not (2, 9), (2, 2)"),
    players=(lambda: Body(players=1), "returned shapes (2, 9), (2, 1)"), nan=(NotANumber, "it returned NaN or infinity"),
    no_gradient=(NoGradient, "cannot be trained on two positions of tictactoe: "), in_place=(InPlace, "modified by an inplace operation"),
    fails=(Fails, "cannot evaluate two positions of tictactoe, shape (2, 2, 3, 3)"))


@pytest.mark.parametrize("fault", FAULTY)
def test_a_faulty_network_is_one_sentence_before_the_first_game(fault, tmp_path):
    build, words = FAULTY[fault]
    with pytest.raises(ValueError) as caught: Trainer("tictactoe", network=build(), folder=tmp_path / "run", device="cpu")
    assert words in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("build", [Body, TensorState, lambda: PolicyValueNet(GAME, "tiny")])
def test_a_sound_network_passes_and_stays_as_it_is(build):
    network = build().train()
    before = network_arrays(network)
    check_network(GAME, network)
    after = network_arrays(network)
    assert network.training and all(np.array_equal(before[name], after[name]) for name in before)


class InFloats(nn.Module):
    "Converts its planes to float32, whatever its weights are."
    def __init__(self):
        super().__init__()
        self.policy, self.value = nn.Linear(GAME.input_size, GAME.actions), nn.Linear(GAME.input_size, GAME.players)

    def forward(self, x):
        x = x.flatten(1).float()
        return self.policy(x), torch.tanh(self.value(x))


class Views(Body):
    "Flattens its planes with `view`, which needs them one after the other in memory."
    def forward(self, planes):
        x = planes.view(len(planes), -1)
        return self.policy(x), torch.tanh(self.value(x))


class Deep(InFloats):
    "Has weights with five dimensions."
    def __init__(self):
        super().__init__()
        self.fold = nn.Conv3d(1, 1, 3, padding=1)

    def forward(self, x): return super().forward(self.fold(x[:, None]))


def test_a_network_must_play_in_the_format_of_its_device(tmp_path):
    cpu = replace(get_device("cpu"), dtype="float32", train_dtype="float32")
    half = replace(cpu, dtype="bfloat16")
    with pytest.raises(ValueError, match="cannot play in bfloat16, as cpu does: .*dtype"):
        Trainer("tictactoe", network=InFloats(), folder=tmp_path / "run", device=half)
    assert not (tmp_path / "run").exists()
    check_network(GAME, InFloats(), cpu)
    check_network(GAME, PolicyValueNet(GAME, "tiny"), half)


class Scatters(Body):
    "Brings logits into a tensor of the input's format: in mixed precision the two differ."
    def forward(self, planes):
        logits, values = super().forward(planes)
        places = torch.arange(9, device=planes.device).expand(len(planes), 9)
        return planes.flatten(1).new_full((len(planes), 9), -100).scatter_(1, places, logits), values


def test_a_network_must_learn_in_the_format_of_its_device():
    cpu = replace(get_device("cpu"), dtype="float32", train_dtype="float32", channels_last=False)
    check_network(GAME, Scatters(), cpu)
    with pytest.raises(ValueError, match="cannot be trained"): check_network(GAME, Scatters(), replace(cpu, train_dtype="bfloat16"))


class Counts(TensorState):
    def forward(self, planes):
        self.steps += self.training
        return super().forward(planes)


def test_the_average_has_what_a_network_keeps_beside_its_tensors():
    learner, rng = Learner(Counts(), "cpu"), np.random.default_rng(0)
    batch = Batch(rng.integers(0, 2, (8, 2, 3, 3)).astype(np.int8), rng.dirichlet(np.ones(9), 8).astype(np.float32),
                  rng.uniform(-1, 1, (8, 2)).astype(np.float32))
    for _ in range(2): learner.step(batch)
    assert learner.average.module.steps == learner.network.steps == Counts.steps + 2


def test_arrays_that_are_missing_are_filled_for_the_presets_alone():
    class Ranged(Body):
        def __init__(self):
            super().__init__()
            self.ranges = nn.Parameter(torch.ones(3))
    with pytest.raises(ValueError, match="first ranges"): fill_network(Ranged(), network_arrays(Body()))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_network_must_play_in_the_memory_format_of_its_device(dtype, tmp_path):
    cpu = replace(get_device("cpu"), dtype=dtype, train_dtype=dtype, channels_last=True)
    with pytest.raises(ValueError, match="cannot play in channels_last, as cpu does: view .*use reshape or flatten in place"):
        Trainer("tictactoe", network=Views(), folder=tmp_path / "run", device=cpu)
    assert not (tmp_path / "run").exists()
    check_network(GAME, Views(), replace(cpu, channels_last=False))


def test_a_device_that_was_changed_by_hand_is_the_one_that_plays():
    for dtype in ("float32", "bfloat16"):
        device = replace(get_device("cpu"), dtype=dtype)
        with SelfPlayEngine(GAME, PolicyValueNet(GAME, "tiny"), device, settings=SelfPlaySettings(int8=False), listeners=()) as engine:
            assert engine.plan["dtype"] == dtype


def test_layouts_are_measured_in_the_format_that_was_chosen_by_hand(monkeypatch):
    one = engine_module.candidate_layouts
    monkeypatch.setattr(engine_module, "candidate_layouts", lambda *given: {"single thread": one(*given)["single thread"]})
    for dtype in ("float32", "bfloat16"):
        device = replace(get_device("cpu"), dtype=dtype)
        with SelfPlayEngine(GAME, PolicyValueNet(GAME, "tiny"), device, settings=SelfPlaySettings(int8=False), listeners=(), threads=1,
                            games=16) as engine:
            engine.calibrate(.3)
            assert engine.plan["dtype"] == dtype


@pytest.mark.parametrize("name, backend, shares", [("cuda:0", "graphs", True), ("mps", "auto", True), ("cuda:0", "auto", False),
                                                   ("cpu", "auto", False)])
def test_threads_share_an_evaluator_where_each_cannot_have_its_own(monkeypatch, name, backend, shares):
    monkeypatch.setattr(actors, "get_device", lambda name: Device(name, "a card", "float32", "float32", False, False))
    monkeypatch.setattr(actors, "NetworkEvaluator", lambda *arguments, **options: UniformEvaluator(GAME))
    layout = Layout("threads", (name,), threads=2, games=8, max_batch=4, shared=False, backend=backend)
    inference = actors.Inference(GAME, PolicyValueNet(GAME, "tiny"), layout, 1, 0)
    assert inference.shared is shares
    inference.close()


def test_a_reproducible_run_repeats_random_numbers_of_the_network(tmp_path):
    "Also in two parts; and they are not those of the caller."
    network, caller = Drops(), torch.random.get_rng_state()
    def run(folder):
        return Trainer("tictactoe", network=network, folder=tmp_path / folder, device="cpu", simulations=4, listeners=(), reproducible=True,
                       train_settings=TrainSettings(games_per_iteration=8, batch_size=16, evaluate_every=0))
    whole = run("whole").fit(iterations=2)
    run("parts").fit(iterations=1)
    parts = run("parts").fit(iterations=1)
    assert parts.iteration == 2 and not differ(network_arrays(whole.network), network_arrays(parts.network))
    assert torch.equal(torch.random.get_rng_state(), caller)


def test_a_run_with_an_own_network_says_how_another_begins_with_it(tmp_path):
    Trainer("tictactoe", network=Body(), folder=tmp_path / "run", device="cpu", simulations=4, listeners=(),
            train_settings=TrainSettings(games_per_iteration=8, batch_size=16, evaluate_every=0)).fit(iterations=1)
    with pytest.raises(ValueError, match="in place of init_from"): Trainer("tictactoe", folder=tmp_path / "next", init_from=tmp_path / "run")


def test_a_preset_leaves_the_random_numbers_of_a_gpu_alone(monkeypatch):
    seen, caller = [], torch.random.get_rng_state()
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seen.append)
    PolicyValueNet(GAME, "tiny", 3)
    assert not seen and torch.equal(torch.random.get_rng_state(), caller)


def test_weights_with_five_dimensions_are_trained(tmp_path):
    device = replace(get_device("cpu"), dtype="float32", train_dtype="float32", channels_last=True)
    network = Deep()
    run = Trainer("tictactoe", network=network, folder=tmp_path / "run", device=device, simulations=4, listeners=(),
                  train_settings=TrainSettings(games_per_iteration=8, batch_size=16, evaluate_every=0))
    assert run.fit(iterations=1).iteration == 1
    assert with_memory_format(nn.Conv2d(2, 2, 3), torch.channels_last).weight.is_contiguous(memory_format=torch.channels_last)


def test_a_state_that_is_a_tensor_is_saved_and_loaded(tmp_path):
    network = TensorState()
    network.steps = 7
    write_arrays(tmp_path / "network.npz", network_arrays(network))
    assert fill_network(TensorState(), read_arrays(tmp_path / "network.npz")).steps == 7


def test_an_array_of_objects_is_not_written(tmp_path):
    with pytest.raises(TypeError, match="note holds Python objects"):
        write_arrays(tmp_path / "a.npz", dict(note=np.array([dict(a=1)], object)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("reproducible", [True, False])
def test_a_reproducible_run_asks_cudnn_for_algorithms_that_repeat(reproducible, tmp_path):
    seen, before = [], torch.backends.cudnn.deterministic

    class Looks(Body):
        def forward(self, planes):
            if self.training and torch.is_grad_enabled(): seen.append(torch.backends.cudnn.deterministic)
            return super().forward(planes)
    run = Trainer("tictactoe", network=Looks(), folder=tmp_path / "run", device="cpu", simulations=4, reproducible=reproducible,
                  train_settings=TrainSettings(games_per_iteration=8, batch_size=16, evaluate_every=0), games=8, listeners=())
    seen.clear()   # The check of the network trains it, too
    run.fit(iterations=1)
    assert seen and set(seen) == {reproducible or before} and torch.backends.cudnn.deterministic == before
