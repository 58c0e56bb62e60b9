"The forecast of a run: measured speeds add up, the network that pays is chosen, and what came is put beside it."
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from alphazero_nb.arena.judge import judge, packaged_positions
from alphazero_nb.core.registry import get_game, list_games
from alphazero_nb.network.evaluator import EvaluatorError
from alphazero_nb.network.networks import PRESETS, PolicyValueNet
from alphazero_nb.search.search import SearchSettings
from alphazero_nb.selfplay import calibration
from alphazero_nb.selfplay.calibration import usual_game
from alphazero_nb.selfplay.layout import Layout
from alphazero_nb.selfplay.settings import SelfPlaySettings, default_settings
from alphazero_nb.training import forecast as page
from alphazero_nb.training.forecast import (LEAST, OPERATORS, SHARE, START_S, Speed, pays, arithmetic_limits, arithmetic_speed, expected_games,
                                             expected_share, forecast, forecast_at_speed, forecast_gpu, measure_speed, prepare_run,
                                             read_curves, train)
from alphazero_nb.training.learner import TrainSettings, default_training
from small_run import QUICK, play_until_evaluated, trainer, wait_for

pytestmark = pytest.mark.usefixtures("one_thread_inside")


@pytest.fixture(autouse=True)
def measured_in_evaluations(monkeypatch): monkeypatch.setattr(calibration, "play_for", play_until_evaluated)


def test_the_time_of_a_position_is_that_of_its_moves_and_its_steps():
    speed = Speed("tiny", evals_per_s=100, steps_per_s=2)   # A fifth of a second to play a position, a fiftieth to learn it
    assert speed.positions(22, 20, TrainSettings(replay_ratio=4, batch_size=100)) == pytest.approx(100)


@pytest.mark.parametrize("beside, positions", [
    (0, 100), (50, 100 / (.02 + .19) * .22), (1000, 1100),   # 1000: all games are played during the steps
    (1500, 1650), (4000, 22 / .0075)])                        # And more of them, until a position is drawn 1.5 times
def test_games_played_during_the_steps_take_no_time_of_their_own(beside, positions):
    speed = Speed("tiny", evals_per_s=100, steps_per_s=2, beside_per_s=beside)
    assert speed.positions(22, 20, TrainSettings(replay_ratio=4, batch_size=100)) == pytest.approx(positions)


def test_a_run_takes_the_steps_of_its_positions_or_those_that_its_time_allows():
    speed, train = Speed("tiny", evals_per_s=100, steps_per_s=2, beside_per_s=1500), TrainSettings(replay_ratio=4, batch_size=100)
    assert [speed.steps_in(22, positions, train) for positions in (0, 100, 1100, 1650)] == pytest.approx([0, 4, 44, 44])


@pytest.mark.parametrize("threads, play_on, beside", [(2, True, True), (2, False, False), (1, True, False)])
def test_the_speed_beside_the_steps_is_measured(monkeypatch, threads, play_on, beside):
    "The steps take ten seconds of a clock, and at least a hundred positions are evaluated beside them."
    clock, pools, make = [0.0], [], page.make_pool
    answers = lambda: pools[0].report().answers

    def step_rate(learner, batch, seconds, busy):
        before = answers()
        if busy: wait_for(lambda: answers() >= before + 100)
        clock[0] += 10
        return 5.0
    monkeypatch.setattr(page, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(page, "make_pool", lambda *options: pools.append(make(*options)) or pools[0])
    monkeypatch.setattr(page, "step_rate", step_rate)
    speed = measure_speed(get_game("tictactoe"), "tiny", "cpu", seconds=.6, play_on=play_on, threads=threads, games=32,
                          max_batch=16, shared=False, layout="threads")
    assert 10 <= speed.beside_per_s < answers() / 10 if beside else speed.beside_per_s == 0
    assert speed.steps_per_s == 5 and speed.evals_per_s > 0


def test_an_error_of_the_actors_beside_the_steps_is_raised(monkeypatch):
    from alphazero_nb.selfplay.actors import ActorPool
    start, generations = ActorPool.start, []

    def broken(pool, source, actors=None):
        if actors is None: return start(pool, source)
        monkeypatch.setattr(pool.inference.evaluator, "evaluate", lambda *request: 1 / 0)
        generations.append(start(pool, source, actors))
        return generations[0]
    monkeypatch.setattr(ActorPool, "start", broken)
    monkeypatch.setattr(page, "step_rate", lambda *options: wait_for(lambda: generations[0].ended) or 1.0)
    with pytest.raises(EvaluatorError, match="division by zero"):
        measure_speed(get_game("tictactoe"), "tiny", "cpu", seconds=.6, threads=2, games=32, max_batch=16, shared=False,
                      layout="threads")


def test_a_usual_game_is_counted():
    game, play = get_game("tictactoe"), SelfPlaySettings(SearchSettings(8), full_search_fraction=1, keep_subtree=False)
    length, evaluations = usual_game(game, play, 256)
    assert 5 < length <= 9 and 3 < evaluations <= 8   # Finished games are not evaluated


def test_rolls_are_not_searched():
    "Half of the plies of 2048 are new tiles."
    play = SelfPlaySettings(SearchSettings(8), full_search_fraction=1, keep_subtree=False)
    length, evaluations = usual_game(get_game("2048(goal=64)"), play, 32)
    assert 20 < length < 64 and 7 < evaluations <= 9


def test_a_forecast_takes_a_layout():
    layout = Layout("threads", ("cpu",), 1, 16, 16, False)
    assert forecast("tictactoe", 1, "cpu", "tiny", layout=layout).positions > 0


def test_cards_are_measured_in_the_blocks_of_their_run(monkeypatch):
    seen = []
    monkeypatch.setattr(page, "make_pool", lambda game, network, layout, play: seen.append(layout) or 1 / 0)
    with pytest.raises(ZeroDivisionError): measure_speed(get_game("blob(players=3,cards=2)"), "tiny", "cpu")
    assert seen[0].max_batch == 256


def at_speeds(monkeypatch, speeds):
    "Let the networks have these speeds: preset to (evaluations, steps) per second. Return the list of those measured."
    asked = []

    def measured(game, preset, device, play, *rest, **engine):
        assert play.random_start_fraction == 1, "games all over their length"
        asked.append(preset)
        return Speed(preset, *speeds[preset])
    monkeypatch.setattr(page, "measure_speed", measured)
    return asked


@pytest.mark.parametrize("minutes, preset, asked", [
    (1, "tiny", ["tiny", "small"]), (100, "small", ["tiny", "small", "medium"]), (100_000, "large", [*LEAST])])
def test_more_minutes_buy_a_larger_network(monkeypatch, minutes, preset, asked):
    speeds = dict(tiny=(20_000, 40), small=(4_000, 10), medium=(600, 2), large=(120, .3))
    measured = at_speeds(monkeypatch, speeds)
    expected = forecast("connect4", minutes, "cpu")
    assert (expected.preset, measured) == (preset, asked)
    play, train = default_settings(expected.game), default_training(expected.game)
    (evaluations, steps), moves = speeds[preset], expected.positions / play.full_search_fraction
    each = (SHARE * (60 * minutes - START_S) - expected.steps / steps) * evaluations / moves   # Evaluations of a move
    assert 10 < each < 40 and expected.positions >= LEAST[preset] and moves / 43 < expected.games < moves / 7
    assert expected.steps == pytest.approx(expected.positions * train.replay_ratio / train.batch_size)


def test_a_network_pays_by_what_it_learns_and_not_by_what_is_played(monkeypatch):
    "`medium` learns 430,000 positions six times here. Play at the same time brings over a million, drawn less often."
    at_speeds(monkeypatch, dict(tiny=(20_000, 15, 15_000), small=(20_000, 7.5, 15_000), medium=(20_000, 1.875, 15_000)))
    expected = forecast("connect4", 100, "cpu", "medium")
    assert expected.positions > 2 * LEAST["medium"] and expected.steps == pytest.approx(1.875 * SHARE * (100 * 60 - START_S))
    assert forecast("connect4", 100, "cpu").preset == "small"


@pytest.mark.parametrize("share, second, preset, asked", [
    (.9, 4.0, "small", ["tiny", "small", "small", "medium"]), (.9, .9, "tiny", ["tiny", "small", "small"]),
    (.9, .1, "tiny", ["tiny", "small", "small"]), (.1, 4.0, "tiny", ["tiny", "small"]), (1.1, .1, "small", ["tiny", "small", "medium"])])
def test_a_network_that_just_misses_is_measured_again(monkeypatch, share, second, preset, asked):
    "`small` gets this share of its number in a first measurement, and another one in the second."
    measured = at_speeds(monkeypatch, dict(tiny=(20_000, 40), small=(20_000, 40), medium=(60, .2)))
    number, shares = LEAST["small"], iter([share, second])
    def learned(game, minutes, device, speed, *rest):
        expected, positions = forecast_at_speed(game, minutes, device, speed, *rest)
        return expected, number * next(shares) if speed.preset == "small" else number / 3 if speed.preset == "tiny" else positions
    monkeypatch.setattr(page, "forecast_at_speed", learned)
    assert (forecast("connect4", 10, "cpu").preset, measured) == (preset, asked)


def test_a_network_pays_if_it_will_be_stronger_in_the_time(monkeypatch):
    curves = dict(tiny=dict(positions=[10_000, 300_000], share=[.8, .93]), small=dict(positions=[10_000, 300_000], share=[.8, .95]))
    monkeypatch.setattr(page, "read_curves", lambda: dict(connect4=curves))
    assert pays("small", 60_000, "tiny", 60_000) and not pays("small", 60_000, "tiny", 280_000)
    assert not pays("small", 40_000, "tiny", 40_000), "it has seen too little"
    assert pays("small", 300_000, "tiny", 10**7), "a curve is flat beyond its last run"
    assert pays("medium", 600_000, "small", 10**7), "there is no curve"


def test_five_minutes_without_matrix_units_are_for_the_smallest_network(monkeypatch):
    "At the speeds of two cores of an AMD EPYC, where it scored three quarters against `small`; on a GPU, their speeds differ little."
    at_speeds(monkeypatch, dict(tiny=(59_306, 23.0), small=(23_493, 6.3)))
    assert forecast("connect4", 5, "cpu").preset == "tiny"
    at_speeds(monkeypatch, dict(tiny=(59_306, 23.0), small=(50_000, 20.0), medium=(50, 1)))
    assert forecast("connect4", 5, "cpu").preset == "small"


def test_a_run_without_steps_has_a_forecast(monkeypatch):
    at_speeds(monkeypatch, dict(tiny=(1000, 10), small=(10, 1)))
    expected = forecast("connect4", 1, "cpu", train=TrainSettings(replay_ratio=0))
    assert expected.steps == 0 and expected.positions > 0 and expected.games > 0


def test_a_network_that_was_named_is_not_replaced(monkeypatch):
    at_speeds(monkeypatch, dict(medium=(100, 1)))
    assert forecast("connect4", 1, "cpu", "medium").preset == "medium"


def test_card_games_have_their_own_network(monkeypatch):
    asked = at_speeds(monkeypatch, dict(cards=(20_000, 50)))
    assert forecast("blob", 5, "cpu").preset == "cards" and asked == ["cards"]


@pytest.mark.parametrize("minutes", [0, -1])
def test_no_time_is_refused(minutes):
    with pytest.raises(ValueError, match=f"minutes is {minutes}; it must be more than 0"): forecast("connect4", minutes)


def test_a_speed_is_measured():
    speed = measure_speed(get_game("tictactoe"), "tiny", "cpu", seconds=1)
    assert speed.preset == "tiny" and speed.evals_per_s > 0 and speed.steps_per_s > 0


def test_the_curves_of_the_package_are_those_of_its_games_and_networks():
    for name, curves in read_curves().items():
        assert get_game(name).name == name and name.partition("(")[0] in list_games()
        for preset, curve in curves.items():
            assert preset in PRESETS and (np.diff(curve["positions"]) > 0).all() and curve["device"]
            assert len(curve["positions"]) == len(curve["share"]) == len(curve["minutes"])
            assert all(0 < share <= 1 for share in curve["share"])
            assert len(curve["games"]) == len(curve["positions"]) and (np.diff(curve["games"]) > 0).all()


def test_a_curve_is_followed(monkeypatch):
    curves = {"connect4": {"tiny": dict(positions=[100, 10_000], share=[.6, .8], games=[20, 400], minutes=[1, 9],
                                          device="cpu")}}
    monkeypatch.setattr(page, "read_curves", lambda: curves)
    game = get_game("connect4")
    assert [expected_share(game, "tiny", n) for n in (99, 100, 1000, 10_000, 99_999)] == [None, .6, pytest.approx(.7), .8, .8]
    found = [expected_games(game, "tiny", n) for n in (99, 100, 1000, 10_000, 20_000)]   # 5, then 15, then 25 a game
    assert found == [None, *map(pytest.approx, (20, 1000 / 15, 400, 800))]
    assert expected_games(game, "small", 1000) is None
    assert expected_share(game, "small", 1000) is None and expected_share(get_game("tictactoe"), "tiny", 1000) is None


def test_what_came_stands_beside_the_forecast(tmp_path, monkeypatch):
    at_speeds(monkeypatch, dict(tiny=(2000, 10), small=(20, 1)))
    expected = forecast("tictactoe", 1, "cpu")
    run = trainer(tmp_path / "run", "tictactoe", train_settings=replace(QUICK, evaluate_every=1, evaluate_games=2,
                                                                         baseline="random")).fit(iterations=1)
    run.history[-1]["keeps"][0] = 0.0   # What the run asked on the way, of an agent that was not finished
    solved = packaged_positions(run.game)
    keeps = judge(run.agent(), solved.take(solved.critical).sample(300))[-1].share
    assert keeps > .5
    text = replace(expected, share=.5).compare(run)
    assert f"{run.games} games (expected " in text and f"{run.replay.added} positions (expected " in text
    assert f"keeps the result in {keeps:.0%} of critical positions (expected 50%)" in text
    assert "keeps" not in replace(expected, share=None).compare(run)
    assert json.loads(json.dumps(expected.row()))["game"] == "tictactoe"


def test_a_new_run_gets_the_network_that_pays_and_an_older_one_keeps_its_own(tmp_path, monkeypatch):
    asked, said = at_speeds(monkeypatch, dict(tiny=(2000, 10), small=(20, 1))), []
    options, made, start = dict(device="cpu", say=said.append, train_settings=QUICK, simulations=4, listeners=()), [], page.Trainer.__init__
    monkeypatch.setattr(page.Trainer, "__init__", lambda run, *args, **more: (made.append(run), start(run, *args, **more))[1])
    run, expected = prepare_run("tictactoe", 1, tmp_path / "run", **options)
    assert made == [run] and str(run.network) == str(PolicyValueNet(run.game, "tiny")), "one trainer, with the new network"
    assert run.preset == expected.preset == "tiny" and said[-1] == str(expected) and asked == ["tiny", "small"]
    run.fit(iterations=1)
    monkeypatch.setattr(page, "default_preset", lambda game: "small")
    again, expected = prepare_run("tictactoe", 1, tmp_path / "run", **options)
    assert again.preset == "tiny" and again.iteration == 1 and expected is None and asked[2:] == [], "nothing to choose"


def test_a_reproducible_run_does_not_depend_on_a_measurement(tmp_path, monkeypatch):
    asked, said = at_speeds(monkeypatch, dict(tiny=(2000, 10), small=(20, 1))), []
    run, expected = prepare_run("tictactoe", 5, tmp_path / "run", device="cpu", say=said.append, reproducible=True, listeners=())
    assert (run.preset, expected, run.train_settings.cooldown, asked, said) == ("small", None, None, [], [])


def test_a_forecast_leaves_the_learning_rate_to_the_clock_or_to_you(tmp_path, monkeypatch):
    at_speeds(monkeypatch, dict(tiny=(2000, 10), small=(20, 1)))
    options = dict(device="cpu", say=lambda text: None, simulations=4, listeners=())
    for cooldown in (None, (3, 5)):
        settings = replace(QUICK, cooldown=cooldown)
        run, _ = prepare_run("tictactoe", 1, tmp_path / str(cooldown), train_settings=settings, **options)
        assert run.train_settings.cooldown == run.learner.settings.cooldown == cooldown


def test_a_run_that_has_begun_keeps_its_network(tmp_path):
    run = trainer(tmp_path / "run", "tictactoe", preset="tiny")
    run.use_preset("mlp")
    assert run.preset == "mlp" and run.fit(iterations=1).iteration == 1
    run.use_preset("mlp")
    with pytest.raises(ValueError, match="^this run trains a mlp network; a new run in another folder can have 'tiny'.$"):
        run.use_preset("tiny")


def test_train_puts_the_result_beside_the_forecast(tmp_path, monkeypatch):
    at_speeds(monkeypatch, dict(tiny=(2000, 10), small=(20, 1)))
    fit, said = page.Trainer.fit, []
    monkeypatch.setattr(page.Trainer, "fit", lambda run, minutes: fit(run, iterations=1))
    run = train("tictactoe", 1, tmp_path / "run", device="cpu", say=said.append, train_settings=QUICK, simulations=4, listeners=())
    assert run.iteration == 1 and said[-2].startswith("Forecast for 1 min") and said[-1].startswith(f"{run.games:,} games (expected ")


def test_less_than_a_minute_has_no_forecast(tmp_path, monkeypatch):
    asked = at_speeds(monkeypatch, {})
    run = train("tictactoe", .001, tmp_path / "run", device="cpu", train_settings=QUICK, simulations=4, listeners=())
    assert run.preset == "small" and not asked


# A GPU from arithmetic --------------------------------------------------------------------------

def test_the_limits_of_a_t4_are_those_of_a_hand_computation():
    "Connect Four, small: 42 cells, 64 filters; a stem of 3 planes and ten convolutions; 45 operators for 256 positions."
    limits = arithmetic_limits(get_game("connect4"), "small")
    flop = 2 * 42 * 9 * (3 * 64 + 10 * 64 * 64)
    assert flop == 31_110_912 and limits["arithmetic"] == pytest.approx(.4 * 65e12 / flop)
    assert limits["memory"] == pytest.approx(.4 * 320e9 / (45 * 2 * 42 * 64 * 2))   # Read and written, in two bytes
    assert limits["launches"] == pytest.approx(256 / 450e-6)
    assert limits["host"] == pytest.approx(1.3 / (3.6e-6 + 450e-6 / 256))
    assert {name: round(limit, -3) for name, limit in limits.items()} == dict(host=243_000, launches=569_000, arithmetic=836_000, memory=265_000)


def test_a_step_is_limited_by_launches_or_by_its_arithmetic():
    game = get_game("connect4")
    assert arithmetic_speed(game, "small", batch_size=64).steps_per_s == pytest.approx(1 / 230e-5)
    large = arithmetic_speed(game, "medium", batch_size=4096)
    assert large.steps_per_s == pytest.approx(arithmetic_limits(game, "medium")["memory"] / 3 / 4096) and large.evals_per_s < 90_000


def test_the_forecast_of_a_t4_follows_from_its_speed():
    "16 moves a game, 20 evaluations a move, every fourth of which teaches; six steps of 256 for 256 such positions."
    row, rate = forecast_gpu(get_game("connect4"), 11, "small", usual=(16, 20)), 242_636
    step_s = 3 * 256 / 264_550   # Limited by memory
    position_s = 4 * 20 / rate + 6 / 256 * step_s
    positions = SHARE * (660 - START_S) / position_s
    games = expected_games(get_game("connect4"), "small", positions)
    assert (row["source"], row["limit"]) == ("from arithmetic, not measured", "host") and "on T4" in row["forecast"]
    assert row["moves_per_s"] == pytest.approx(rate / 20, rel=1e-4) and row["games_per_min"] == pytest.approx(games / 11, rel=1e-4)
    assert row["iterations"] == pytest.approx(games / 512, rel=1e-4)
    assert row["learning"] == pytest.approx(positions * 6 / 256 * step_s / 660, rel=1e-4)


def bench(device, **row):
    row = dict(evals_per_s=50_000.0, cache_hit_share=.5, steps_per_s_256=100.0) | row
    return dict(game="connect4", machine=dict(device=device), rows=dict(small=row))


def test_a_measured_gpu_takes_precedence():
    ask = lambda preset, *benches: forecast_gpu(get_game("connect4"), 11, preset, benches=benches, usual=(16, 20))
    row = ask("small", bench("NVIDIA A100, 40 GB", evals_per_s=1.0), bench("Tesla T4, 15 GB"))
    assert row["source"] == "measured" and row["moves_per_s"] == 100_000 / 20 and row["steps_per_s"] == 100
    for preset, device in (("small", "NVIDIA A100, 40 GB"), ("small", "NVIDIA T400, 4 GB"), ("medium", "Tesla T4, 15 GB")):
        assert ask(preset, bench(device))["source"] == "from arithmetic, not measured"


def test_the_operators_are_those_of_the_page_of_transfers():
    page = json.loads((Path(__file__).parents[2] / "nbs/00a_core.transfers.ipynb").read_text(encoding="utf-8"))
    text = "".join("".join(cell["source"]) for cell in page["cells"])
    told = {name: (int(batch), int(step)) for name, batch, step in re.findall(r"^\| `(\w+)` \| (\d+) \| \d+ \| (\d+) \|", text, re.M)}
    assert OPERATORS.items() <= told.items()


def test_a_stopped_run_is_not_compared_with_its_whole_time(monkeypatch, tmp_path):
    at_speeds(monkeypatch, dict(tiny=(2000, 10), small=(20, 1), medium=(1, 1)))
    def stop(event):
        if type(event).__name__ == "PhaseStarted": raise KeyboardInterrupt
    said, options = [], dict(device="cpu", train_settings=QUICK, simulations=4)
    page.train("tictactoe", 1, tmp_path / "run", say=said.append, listeners=[stop], **options)
    assert any("Forecast" in text for text in said) and not any("expected" in text for text in said)


def test_a_trainer_takes_the_network_of_the_run_in_its_folder(monkeypatch, tmp_path):
    at_speeds(monkeypatch, dict(tiny=(2000, 10), small=(20, 1), medium=(1, 1)))
    options = dict(device="cpu", train_settings=QUICK, simulations=4, listeners=())
    page.prepare_run("tictactoe", 1, tmp_path / "run", say=lambda text: None, **options)[0].fit(iterations=1)
    again = page.Trainer("tictactoe", folder=tmp_path / "run", **options)
    assert (again.iteration, again.preset) == (1, "tiny")
    with pytest.raises(ValueError, match="holds a run with preset 'tiny'"): page.Trainer("tictactoe", "small", tmp_path / "run", **options)


def test_a_run_that_was_stopped_at_once_keeps_its_network(monkeypatch, tmp_path):
    speeds = dict(tiny=(2000, 10), small=(20, 1), medium=(1, 1))
    at_speeds(monkeypatch, speeds)
    def stop(event):
        if type(event).__name__ == "PhaseStarted": raise KeyboardInterrupt
    options = dict(device="cpu", say=lambda text: None, train_settings=QUICK, simulations=4)
    prepare_run("tictactoe", 1, tmp_path / "run", listeners=[stop], **options)[0].fit(iterations=1)
    speeds |= dict(tiny=(1e6, 1e4), small=(1e6, 1e4))   # Now `small` would pay
    assert prepare_run("tictactoe", 1, tmp_path / "run", listeners=(), **options)[0].preset == "tiny"
