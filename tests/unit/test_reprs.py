"Objects that a user prints say what they are, in one line."
import pytest

import alphazero_nb as az
from alphazero_nb.training.learner import TrainSettings

GAME, CARDS = az.get_game("tictactoe"), az.get_game("blob(players=3,cards=2)")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = TrainSettings(games_per_iteration=8, batch_size=16, evaluate_every=0)
    folder = tmp_path_factory.mktemp("reprs") / "run"
    return az.Trainer(GAME, "tiny", folder, "cpu", simulations=8, train_settings=settings, games=8, listeners=()).fit(iterations=1)


def network(game=GAME): return az.NetworkEvaluator(game, az.PolicyValueNet(game, "tiny"), "cpu", 8)


@pytest.mark.parametrize("make, parts", [
    (lambda run: GAME, ["Game", "tictactoe", "2 players", "9 actions"]),
    (lambda run: run.agent(32), ["Agent", "run", "tictactoe", "32 simulations"]),
    (lambda run: az.Agent(CARDS, network(CARDS), 20, worlds=3), ["Agent", "blob", "20 simulations", "3 worlds"]),
    (lambda run: run, ["Trainer", "tictactoe", "tiny network on cpu", "1 iteration", "8 games", "run"]),
    (lambda run: run.replay, ["Replay", "tictactoe", f"{{}} positions"]),
    (lambda run: az.RandomPlayer(GAME), ["RandomPlayer", "random", "tictactoe"]),
    (lambda run: az.get_player("rollouts:7", GAME), ["RolloutPlayer", "rollouts:7", "tictactoe"]),
    (lambda run: az.get_player("minimax:2", az.get_game("chess(variant=gardner)")), ["MinimaxPlayer", "minimax:2"]),
    (lambda run: network(), ["NetworkEvaluator", "tictactoe", "on cpu", "8 positions"]),
], ids=["game", "agent", "agent of cards", "run", "replay", "player", "playouts", "minimax", "evaluator"])
def test_a_printed_object_says_what_it_is(make, parts, run):
    thing = make(run)
    text = repr(thing)
    assert "object at 0x" not in text and "\n" not in text and len(text) < 200
    for part in parts: assert part.format(len(run.replay)) in text, text


def test_an_engine_says_what_it_plays_and_if_it_is_shut_down():
    with az.SelfPlayEngine(GAME, None, "cpu", games=8, listeners=()) as engine:
        engine.generate_games(8)
        assert "tictactoe" in repr(engine) and "no network" in repr(engine) and "8 games at a time" in repr(engine)
    assert "shut down" in repr(engine) and "\n" not in repr(engine)


def test_evaluators_that_wrap_others_name_them():
    with az.BatchedEvaluator(network()) as evaluator:
        assert repr(evaluator).startswith("BatchedEvaluator(NetworkEvaluator(tictactoe")
