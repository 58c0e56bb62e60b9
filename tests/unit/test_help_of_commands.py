"What the help of the command line says about defaults is what the settings say; it is text, so that --help imports nothing."
import inspect

import pytest

from alphazero_nb.benchmark import bench_cards, bench_device, bench_selfplay
from alphazero_nb.cli import _OPTIONS
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.inference import BACKENDS
from alphazero_nb.network.networks import PRESETS, default_preset
from alphazero_nb.selfplay.layout import LAYOUTS
from alphazero_nb.selfplay.settings import EFFORTS, SelfPlaySettings, default_settings
from alphazero_nb.training.learner import TrainSettings, default_training

BOARD, CARDS = get_game("connect4"), get_game("blob")


def told(option): return _OPTIONS[option]["help"]


@pytest.mark.parametrize("option, field, cards_differ", [
    ("--batch-size", "batch_size", False), ("--evaluate-every", "evaluate_every", True)])
def test_settings_of_training(option, field, cards_differ):
    board, cards, *more = (getattr(default_training(game), field) for game in (BOARD, CARDS, *map(get_game, ("pig", "2048"))))
    told_cards = f"; {cards} with hidden cards" if cards_differ else ""
    assert told(option).endswith(f"({board}{told_cards})") and set(more) == {board} and (cards != board) == cards_differ


def test_games_and_matches():
    assert f"; {default_training(CARDS).games_per_iteration} with hidden cards)" in told("--games-per-iter")
    assert TrainSettings().games_per_iteration is None and f"at most {100 * TrainSettings().match_share:.0f} percent" in told("--evaluate-every")


def test_the_search():
    assert f"({SelfPlaySettings().search.simulations}; " in told("--simulations")
    (low, few), *more = EFFORTS.values()
    rest = [f"{worlds} of {simulations}" for worlds, simulations in more]
    assert f"{low} worlds of {few} simulations, {rest[0]}, or {rest[1]} (light)" in told("--effort")
    usual = default_settings(CARDS).search
    assert (usual.worlds, usual.simulations) == (low, few) and list(EFFORTS) == _OPTIONS["--effort"]["choices"]


def test_names():
    *most, last = PRESETS
    assert told("--preset").startswith(f"network: {', '.join(most)} or {last} (train measures which one pays in its minutes; "
                                       f"otherwise cards for Blob, small for the rest)")
    assert (default_preset(CARDS), default_preset(BOARD)) == ("cards", "small")
    assert _OPTIONS["--backend"]["choices"] == list(BACKENDS) and told("--layout").startswith(", ".join(LAYOUTS[:3]) + ", or auto (auto)")


@pytest.mark.parametrize("option, name", [("--windows", "windows"), ("--seconds", "seconds"), ("--whole-games", "whole_games")])
def test_benchmarks(option, name):
    for bench in (bench_selfplay, bench_device):
        default = inspect.signature(bench).parameters[name].default
        assert _OPTIONS[option]["default"] == default and f"({default:g})" in told(option)


def test_benchmarks_of_cards_are_those_of_the_command():
    assert inspect.signature(bench_cards).parameters["game"].default == CARDS.name.partition("(")[0] == "blob"


def test_benchmarks_of_cards_take_the_settings_of_a_run():
    for option in ("--worlds", "--simulations"): assert "in train and bench" in told(option)
