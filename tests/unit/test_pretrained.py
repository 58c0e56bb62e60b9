"Agents that come with the package, and files that pretend to be one."
import numpy as np
import pytest
import torch

from alphazero_nb.core.registry import file_stem, get_game
from alphazero_nb.network.checkpoint import network_arrays, read_arrays, write_arrays
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.network.pretrained import list_pretrained, load_pretrained, read_agent, save_agent
from alphazero_nb.search.agent import Agent

GAME = get_game("tictactoe")


@pytest.fixture
def file(tmp_path):
    save_agent(tmp_path / "agent.npz", GAME, "tiny", PolicyValueNet(GAME, "tiny", seed=3))
    return tmp_path / "agent.npz"


def test_weights_survive_in_half_precision(file):
    game, network = read_agent(file)
    before, after = network_arrays(PolicyValueNet(GAME, "tiny", seed=3)), network_arrays(network)
    assert game.name == "tictactoe" and before.keys() == after.keys()
    for name, array in before.items():
        assert after[name].dtype == array.dtype and np.allclose(after[name], array, rtol=1e-3, atol=1e-7)


BAD = {
    "no game": (lambda arrays: arrays.pop("game"), "names no game"),
    "a number for a game": (lambda arrays: arrays.update(game=np.array(3)), "names no game"),
    "an unknown game": (lambda arrays: arrays.update(game=np.array("chess960")), "chess960"),
    "an unknown network": (lambda arrays: arrays.update(preset=np.array("huge")), "huge"),
    "a missing array": (lambda arrays: arrays.pop("network/stem.0.weight"), "does not fit"),
    "another shape": (lambda arrays: arrays.update({next(iter(arrays)): np.zeros(3, np.float16)}), "does not fit"),
    "not a number": (lambda arrays: arrays.update({k: v * np.float16("nan") for k, v in arrays.items() if v.dtype == np.float16}),
                     "does not fit"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_one_sentence(what, file):
    change, words = BAD[what]
    arrays = read_arrays(file)
    change(arrays)
    write_arrays(file, arrays)
    with pytest.raises(ValueError, match=words) as error: read_agent(file)
    assert "\n" not in str(error.value)


def test_a_damaged_file_is_one_sentence(file):
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"): read_agent(file)


@pytest.mark.parametrize("name", list_pretrained())
def test_the_agents_of_the_package_play(name):
    game, network = load_pretrained(name)
    agent = Agent.pretrained(name, simulations=16, device="cpu")
    state = game.new(1)
    assert agent.game.name == game.name == name and agent.act(state) in game.legal_actions(state)
    assert all(torch.isfinite(array).all() for array in network.state_dict().values())


def test_other_names_are_refused():
    with pytest.raises(ValueError, match="no trained agent 'conect4'"): Agent.pretrained("conect4")
    assert file_stem("dots(rows=3,cols=3)") == "dots-rows-3-cols-3"


def test_commands_may_say_that_an_agent_is_of_the_package():
    assert Agent.pretrained("pretrained:tictactoe", 8, "cpu").game.name == "tictactoe"


def test_an_agent_of_the_package_may_have_a_name_of_its_own():
    assert Agent.pretrained("tictactoe", 8, "cpu").name == "pretrained"
    assert Agent.pretrained("tictactoe", 8, "cpu", name="deep").name == "deep"


def test_numbers_beyond_half_precision_are_kept_whole(tmp_path):
    game = get_game("tictactoe")
    network = PolicyValueNet(game, "tiny")
    norm = next(module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d))
    norm.running_var.fill_(1e5)
    save_agent(tmp_path / "agent.npz", game, "tiny", network)
    assert (network_arrays(read_agent(tmp_path / "agent.npz")[1])["stem.1.running_var"] == 1e5).all()
