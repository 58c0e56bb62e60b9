"Numbers out of range, missing GPUs and games without a choice are refused in one sentence, before any work."
import pytest

import alphazero_nb as az
import alphazero_nb.selfplay.layout as layout_page
from alphazero_nb.arena.matches import play_duplicate, play_match
from alphazero_nb.arena.players import RandomPlayer
from alphazero_nb.core.events import read_events
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game, register
from alphazero_nb.core.streams import Purpose, derive_seed
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.search import SearchSettings, require_number, search
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.selfplay.layout import plan_layout
from alphazero_nb.selfplay.settings import SelfPlaySettings
from alphazero_nb.training.forecast import forecast
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.trainer import Trainer

GAME, CARDS = get_game("tictactoe"), get_game("blob(players=3,cards=2)")
HUGE, SEED = 10**20, 2**63


def sentence(make) -> str:
    "The message of the ValueError that a call raises: one line."
    with pytest.raises(ValueError) as caught: make()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind, field, value, bounds", [
    (SearchSettings, "simulations", 10**9, "between 1 and 10,000,000"),
    (SelfPlaySettings, "fast_simulations", HUGE, "between 1 and 10,000,000"),
    (SelfPlaySettings, "full_search_fraction", 0, "between 0.001 and 1"),
    (TrainSettings, "batch_size", 10**9, "between 1 and 65,536"),
    (TrainSettings, "games_per_iteration", HUGE, "between 1 and 1,000,000"),
    (TrainSettings, "evaluate_games", HUGE, "between 1 and 1,000,000"),
    (TrainSettings, "replay_ratio", 1e300, "between 0 and 1,000"),
    (TrainSettings, "max_window", HUGE, "between 1 and 1,000,000,000"),
])
def test_a_setting_out_of_range_is_named_with_its_range(kind, field, value, bounds):
    assert sentence(lambda: kind(**{field: value})) == f"{field} is {value}; it must be {bounds}."


@pytest.mark.parametrize("field", ["games", "threads", "max_batch", "workers"])
def test_a_layout_has_bounds(field):
    assert f"{field} is {HUGE}; it must be between 1 and " in sentence(lambda: plan_layout(GAME, None, **{field: HUGE}))
    assert f"{field} is 1.5; it must be a whole number" in sentence(lambda: SelfPlayEngine(GAME, None, **{field: 1.5}))


SEEDED = {
    "trainer": lambda seed, folder: Trainer(GAME, folder=folder / "run", device="cpu", seed=seed),
    "engine": lambda seed, folder: SelfPlayEngine(GAME, None, seed=seed),
    "network": lambda seed, folder: PolicyValueNet(GAME, "tiny", seed),
    "player": lambda seed, folder: RandomPlayer(GAME, seed),
    "agent": lambda seed, folder: Agent(CARDS, None, seed=seed).act(CARDS.new()),
    "match": lambda seed, folder: play_match(GAME, RandomPlayer(GAME), RandomPlayer(GAME), 2, seed=seed),
    "position": lambda seed, folder: GAME.new(seed),
    "derived": lambda seed, folder: derive_seed(seed, Purpose.SAMPLES),
}


@pytest.mark.parametrize("name", SEEDED)
@pytest.mark.parametrize("seed", [SEED, -1, 1.5, HUGE])
def test_a_seed_has_63_bits(name, seed, tmp_path):
    expected = f"seed is {seed}; it must be a whole number between 0 and 2**63 - 1."
    assert sentence(lambda: SEEDED[name](seed, tmp_path)) == expected and not list(tmp_path.iterdir())


def test_the_largest_seed_plays_and_makes_networks():
    with SelfPlayEngine(GAME, None, "cpu", games=4, seed=SEED - 1, listeners=()) as engine:
        assert len(engine.generate_games(4)) == 4
    assert PolicyValueNet(GAME, "tiny", SEED - 1) is not None


def test_counts_and_times_have_bounds(tmp_path):
    random = RandomPlayer(GAME)
    assert sentence(lambda: play_match(GAME, random, random, HUGE)).endswith("between 1 and 1,000,000.")
    assert sentence(lambda: play_duplicate(CARDS, random, random, HUGE)).endswith("between 2 and 1,000,000.")
    run = Trainer(GAME, "tiny", tmp_path / "run", "cpu")
    for minutes in (1e308, 0, float("nan"), float("inf")):
        expected = f"minutes is {minutes}; it must be more than 0 and at most 10,000,000."
        assert sentence(lambda: run.fit(minutes=minutes)) == sentence(lambda: forecast(GAME, minutes, "cpu")) == expected
    assert sentence(lambda: run.fit(iterations=2.5)) == "iterations is 2.5; it must be a whole number."
    with SelfPlayEngine(GAME, None, "cpu", listeners=()) as engine:
        assert sentence(lambda: engine.generate_games(HUGE)) == f"n is {HUGE}; it must be between 0 and 1,000,000."
        assert sentence(lambda: engine.play_for(float("nan"))) == "seconds is nan; it must be at least 0."
    assert run.iteration == 0


def test_a_number_may_be_of_another_library():
    np = pytest.importorskip("numpy")
    require_number("n", np.int32(3), 1, 5)
    require_number("n", np.float32(.5), 0, 1, whole=False)
    for value in (True, "3", None): sentence(lambda: require_number("n", value, 0, 5))


def test_a_whole_number_beyond_floats_is_refused(): sentence(lambda: SearchSettings(c_puct=10**400))


def test_a_run_takes_such_numbers_and_saves_them(tmp_path):
    np = pytest.importorskip("numpy")
    settings = dict(games_per_iteration=8, batch_size=16, evaluate_every=0)
    make = lambda kind: Trainer(GAME, "tiny", tmp_path / "run", "cpu", seed=kind(3), simulations=kind(8), games=kind(8), threads=1,
                                train_settings=TrainSettings(**{name: kind(value) for name, value in settings.items()}), listeners=())
    assert make(np.int64).fit(iterations=np.int64(1)).iteration == 1
    assert "RunStarted" in {type(event).__name__ for event in read_events(tmp_path / "run/events.jsonl")}
    assert make(int).fit(iterations=1).iteration == 2


@pytest.mark.parametrize("number", [0, -1, True, 2.5, 10**9])
def test_leaves_and_batches_have_bounds(number):
    network, whole = PolicyValueNet(GAME, "tiny"), type(number) is int
    bounds = "between 1 and 1,024" if whole else "a whole number"
    for make in (lambda: Agent(GAME, network, "cpu", leaves=number),
                 lambda: search(GAME, az.UniformEvaluator(GAME), GAME.new()[None], leaves=number)):
        assert sentence(make) == f"leaves is {number}; it must be {bounds}."
    evaluator = az.UniformEvaluator(GAME)
    assert sentence(lambda: az.NetworkEvaluator(GAME, network, "cpu", max_batch=number)) == (
        f"max_batch is {number}; it must be a whole number between 1 and 65,536.")
    if number != 10**9: assert sentence(lambda: az.BatchedEvaluator(evaluator, number)).startswith(f"max_batch is {number};")


def test_all_gpus_without_a_network_are_refused():
    assert "there is no network" in sentence(lambda: SelfPlayEngine(GAME, None, devices="all", listeners=()))


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_all_gpus_of_a_machine_without_one_are_refused(device, monkeypatch, tmp_path):
    "Not replaced by the CPU."
    monkeypatch.setattr(layout_page, "device_names", lambda: ["cpu"])
    network = PolicyValueNet(GAME, "tiny")
    for make in (lambda: plan_layout(GAME, network, device, devices="all"),
                 lambda: SelfPlayEngine(GAME, network, device, devices="all"),
                 lambda: Trainer(GAME, "tiny", tmp_path / "run", device, devices="all")):
        assert "GPU" in sentence(make)
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(layout_page, "device_names", lambda: ["cuda:0", "cuda:1", "cpu"])
    assert plan_layout(GAME, network, device, devices="all").devices == ("cuda:0", "cuda:1")
    monkeypatch.setattr(layout_page, "device_names", lambda: ["cpu"])
    assert plan_layout(GAME, network, "auto").devices == ("cpu",)


def corridor(choice_at: int) -> Game:
    "A game of four moves with one choice at most, before move `choice_at`."
    def start(state, seed): state[0] = 4
    def mover(state): return state[1] if state[0] > 0 else -1
    def legal(state, actions):
        actions[0], actions[1] = 0, 1
        return 2 if state[0] == choice_at else 1
    def play(state, action):
        state[0] -= 1
        state[1] = 1 - state[1]
    def returns(state, out): out[0], out[1] = 1, -1
    def observe(state, planes): planes[state[0]] = 1
    return Game(f"corridor{choice_at}", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                state_size=2, players=2, actions=2, shape=(5,), max_length=4)


def test_a_game_without_a_choice_is_refused_before_its_first_game(tmp_path):
    without, one = corridor(0), corridor(2)
    for game in (without, one): register(game.name, lambda game=game: game)
    for make in (lambda: forecast(without, 1, "cpu", "tiny"),
                 lambda: Trainer(without, "tiny", tmp_path / "a", "cpu", listeners=()).fit(iterations=1)):
        assert sentence(make).startswith("corridor0 has no choices: ")
    settings = az.TrainSettings(games_per_iteration=8, evaluate_every=0)
    play = SelfPlaySettings(SearchSettings(8), full_search_fraction=1.)
    run = Trainer(one, "tiny", tmp_path / "b", "cpu", train_settings=settings, play_settings=play, games=8, listeners=())
    assert run.fit(iterations=1).learner.steps > 0
