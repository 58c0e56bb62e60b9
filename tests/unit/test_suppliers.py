"A trainer learns from whatever keeps the contract of a supplier of games."
from dataclasses import replace

import pytest

from alphazero_nb.core.registry import get_game
from alphazero_nb.selfplay.contracts import GameSupplier
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.training.inbox import SharedGames
from alphazero_nb.training.trainer import RunPlan
from small_run import QUICK, differ, trainer, weights

pytestmark = pytest.mark.usefixtures("one_thread_inside")


class KeptGames:
    "Games that are there already."
    layout, at_once, busy_actors, play_on, more_games_count, plan = None, 1, 0, False, True, dict(source="a list")

    def __init__(self, batches): self.batches, self.networks, self.ended = batches, 0, False
    def generate_games(self, n, most=None): return self.batches.pop(0)
    def set_network(self, network): self.networks += 1
    def pause(self): pass
    def restore(self, records): assert not records
    def unsaved(self, played): return list(played)
    def calibrate(self): return []
    def stats(self): return dict(games_per_min=60)
    def describe(self): return "games come from a list"
    def __enter__(self): return self
    def __exit__(self, *error): self.ended = True


def test_games_of_a_list_teach_what_they_taught_the_run_that_played_them(tmp_path, monkeypatch):
    first = trainer(tmp_path / "first", "tictactoe", reproducible=True).fit(iterations=3)
    batches = [first.folder.read_games(row) for row in first.folder.rows()]
    supplier = KeptGames(list(batches))
    monkeypatch.setattr(RunPlan, "open_supplier", lambda plan, folder, state, layout, emit: supplier)
    second = trainer(tmp_path / "second", "tictactoe", reproducible=True).fit(iterations=3)
    assert not differ(weights(tmp_path / "first"), weights(tmp_path / "second")) and second.games == first.games and not supplier.batches
    assert supplier.networks == 3 and supplier.ended and not (tmp_path / "second" / "layout.json").exists()
    assert second.folder.checkpoint.plan["source"] == "a list"


@pytest.mark.parametrize("counts", [True, False], ids=["others have played more", "more came for nothing"])
def test_games_beyond_those_asked_for_give_steps_where_they_count(tmp_path, monkeypatch, counts):
    with SelfPlayEngine(get_game("tictactoe"), None, "cpu", simulations=2, listeners=()) as engine:
        supplier = KeptGames([engine.generate_games(24)])
    supplier.more_games_count = counts
    monkeypatch.setattr(RunPlan, "open_supplier", lambda *options: supplier)
    settings = replace(QUICK, games_per_iteration=8, batch_size=4)
    run = trainer(tmp_path / "run", "tictactoe", train_settings=settings).fit(iterations=1)
    counted = round(run.replay.added * (24 if counts else 8) / 24)
    assert run.games == 24 and run.learner.steps == round(counted * settings.replay_ratio / settings.batch_size) > 4


def test_both_suppliers_of_the_package_keep_the_contract():
    names = [name for name in vars(GameSupplier) if not name.startswith("_")] + list(GameSupplier.__annotations__)
    with SelfPlayEngine(get_game("tictactoe"), None, "cpu", games=4, listeners=()) as engine:
        assert [name for name in names if not hasattr(engine, name)] == [] and len(names) > 12
    assert [name for name in names if not hasattr(SharedGames, name)] == []
