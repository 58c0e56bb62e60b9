"A network of one's own is checked before the first game: it answers, in float32, and it survives a save."
import numpy as np
import pytest
import torch
from torch import nn

from alphazero_nb.core.registry import get_game
from alphazero_nb.network.checkpoint import check_network, fill_network, network_arrays, read_arrays, write_arrays
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.training.trainer import Trainer

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


class Fails(Body):
    def forward(self, planes): return super().forward(planes[:, :1])


FAULTY = dict(
    object_state=(ObjectState, "_extra_state as dict; a run folder holds tensors only"), lost_state=(LostState, "is not the same after saving and loading"),
    half=(lambda: Body().half(), "policy.weight in float16; networks train in float32"),
    bfloat16=(lambda: Body().bfloat16(), "in bfloat16"), double=(lambda: Body().double(), "in float64"),
    one_answer=(OneAnswer, "returned shapes (9,), (9,), not (2, 9), (2, 2)"),
    actions=(lambda: Body(actions=8), "returned shapes (2, 8), (2, 2), not (2, 9), (2, 2)"),
    players=(lambda: Body(players=1), "returned shapes (2, 9), (2, 1)"), nan=(NotANumber, "it returned NaN or infinity"),
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


def test_a_state_that_is_a_tensor_is_saved_and_loaded(tmp_path):
    network = TensorState()
    network.steps = 7
    write_arrays(tmp_path / "network.npz", network_arrays(network))
    assert fill_network(TensorState(), read_arrays(tmp_path / "network.npz")).steps == 7


def test_an_array_of_objects_is_not_written(tmp_path):
    with pytest.raises(TypeError, match="note holds Python objects"):
        write_arrays(tmp_path / "a.npz", dict(note=np.array([dict(a=1)], object)))
    assert not list(tmp_path.iterdir())
