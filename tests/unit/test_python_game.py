"Rules in Python against the same rules compiled; OpenSpiel's games; errors on their way out; games sent to fresh processes."
import copy, ctypes, json, os, pickle, re, signal, subprocess, sys, threading
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from alphazero_nb.core.events import MatchMoved, RunDone
from alphazero_nb.core.calls import MOVER, PLAY, REWARDS, call_mover, call_play
from alphazero_nb.core.game_check import ContractError
from alphazero_nb.core.game import Game, board_symmetries
from alphazero_nb.core.registry import _registry, game_module, get_game, list_games
from alphazero_nb.core.python_game import HEADER, Positions, PythonGame, RuleError, why_not_sendable
from alphazero_nb.search.search import SearchSettings, search
from alphazero_nb.search.agent import Agent
from alphazero_nb.selfplay.slots import SlotBlock
from alphazero_nb.selfplay.settings import SelfPlaySettings
from alphazero_nb.selfplay.layout import Layout
from alphazero_nb.selfplay.actors import ActorPool
from alphazero_nb.selfplay.scheduler import play_games
from alphazero_nb.arena.players import RandomPlayer, RolloutPlayer
from alphazero_nb.arena.matches import play_match
from alphazero_nb.games.openspiel import pass_chance

needs_open_spiel = pytest.mark.skipif("openspiel" not in list_games(),
                                      reason="OpenSpiel is not installed (it has no wheel for Python 3.10)")


# The same rules, written as a person would write them -------------------------------------------

class Board:
    "Four in a line on six rows and seven columns, or three on a board of nine cells, as a plain class."
    rows, columns, line, falls = 6, 7, 4, True

    def __init__(self, seed):
        self.cells = [[None] * self.columns for _ in range(self.rows)]
        self.seat, self.winner, self.left = 0, None, self.rows * self.columns

    def mover(self): return -1 if self.winner is not None or not self.left else self.seat

    def legal(self):
        if self.falls: return [column for column in reversed(range(self.columns)) if self.cells[0][column] is None]
        return {r * self.columns + c for r in range(self.rows) for c in range(self.columns) if self.cells[r][c] is None}

    def play(self, action):
        row, column = divmod(action, self.columns)
        if self.falls: row = max(r for r in range(self.rows) if self.cells[r][column] is None)
        self.cells[row][column] = self.seat
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            cells = [(row + k * down, column + k * right) for k in range(1 - self.line, self.line)]
            mine = "".join("x" if 0 <= r < self.rows and 0 <= c < self.columns and self.cells[r][c] == self.seat else "."
                           for r, c in cells)
            if "x" * self.line in mine: self.winner = self.seat
        self.seat, self.left = 1 - self.seat, self.left - 1

    def returns(self): return [0, 0] if self.winner is None else [1, -1] if self.winner == 0 else [-1, 1]

    def observe(self):
        planes = [[[cell == seat for cell in row] for row in self.cells] for seat in (self.seat, 1 - self.seat)]
        return planes + [[[self.seat] * self.columns] * self.rows] if self.falls else planes


class Small(Board):
    rows, columns, line, falls = 3, 3, 3, False

    def copy(self):
        other = object.__new__(type(self))
        other.cells, other.seat, other.winner, other.left = [row[:] for row in self.cells], self.seat, self.winner, self.left
        return other


def connect4(make=Board, **changes):
    shape = (3, 6, 7)
    return PythonGame("connect4", make, **{**dict(players=2, actions=7, shape=shape, max_length=42,
                      symmetries=board_symmetries(shape, range(7), turns=False)), **changes})


def tictactoe(make=Small, **changes):
    return PythonGame("tictactoe", make, **{**dict(players=2, actions=9, shape=(2, 3, 3), max_length=9,
                      symmetries=board_symmetries((2, 3, 3), range(9))), **changes})


class Few(PythonGame):
    "Forgets almost everything, so that most positions are played again from the start."
    room = 3


def few(): return Few("few", Small, players=2, actions=9, shape=(2, 3, 3), max_length=9)


class Evaluator:
    "Answers that depend on every number of the observation, or on none."
    def __init__(self, game, flat):
        rng = np.random.default_rng(0)
        self.actions = rng.normal(size=(game.observation_size, game.actions)).astype(np.float32)
        self.values = rng.normal(size=(game.observation_size, game.players)).astype(np.float32)
        self.scale = 0 if flat else 1

    def evaluate(self, inputs, offsets, actions):
        rows = np.repeat(np.arange(len(inputs)), np.diff(offsets))
        logits = (inputs.astype(np.float32) @ self.actions)[rows, actions]
        return self.scale * logits, self.scale * np.tanh(inputs.astype(np.float32) @ self.values)


def random_line(game, rng):
    "Actions of a random game."
    state, actions = game.new(), []
    while not game.over(state):
        actions.append(int(rng.choice(game.legal_actions(state))))
        state = game.play(state, actions[-1])
    return actions


def assert_same(game, state, twin, other, where):
    assert game.mover(state) == twin.mover(other) and game.over(state) == twin.over(other), where
    assert game.legal_actions(state) == twin.legal_actions(other), where
    assert game.returns(state).tolist() == twin.returns(other).tolist(), where


@pytest.mark.parametrize("python, name", [(connect4, "connect4"), (tictactoe, "tictactoe")])
def test_python_rules_are_the_compiled_ones(python, name):
    ours, theirs, rng = python(), get_game(name), np.random.default_rng(1)
    assert ours.in_python and not theirs.in_python
    for _ in range(25):
        line = random_line(theirs, rng)
        state, other = ours.new(), theirs.new()
        for action in [*line, None]:
            assert_same(ours, state, theirs, other, line)
            if action is None: break
            assert np.array_equal(ours.observe(state), theirs.observe(other)), line
            state, other = ours.play(state, action), theirs.play(other, action)
        assert np.array_equal(state, ours.state_after(line)) and state[HEADER:HEADER + state[0]].tolist() == line
    ours.check(games=4)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("python, name", [(connect4, "connect4"), (tictactoe, "tictactoe"), (few, "tictactoe")])
def test_a_whole_search_is_the_same(python, name, flat):
    ours, theirs, rng = python(), get_game(name), np.random.default_rng(2)
    lines = [random_line(theirs, rng) for _ in range(12)]
    lines = [line[:rng.integers(len(line) + 1)] for line in lines]
    settings, evaluator = SearchSettings(simulations=60, find_wins=False), Evaluator(theirs, flat)
    one = search(ours, evaluator, np.stack([ours.state_after(line) for line in lines]), settings)
    two = search(theirs, evaluator, np.stack([theirs.state_after(line) for line in lines]), settings)
    assert np.array_equal(one.visits, two.visits) and np.array_equal(one.values, two.values)
    assert one.visits.sum() > 0


def test_a_small_store_forgets_and_stays_right():
    game = few()
    game.check(games=4)
    for line in (random_line(game, np.random.default_rng(3)) for _ in range(5)): game.state_after(line)
    kept = game._rules.positions.kept
    assert len(kept.young) <= 3 and len(kept.old) <= 3


def test_several_threads_ask_one_game_at_once():
    game = connect4(max_legal=7)
    evaluator, settings = Evaluator(game, flat=False), SearchSettings(simulations=40)
    blocks = [np.stack([game.state_after([k, k % 3, j]) for j in range(3)]) for k in range(4)]
    alone, together = [search(game, evaluator, block, settings).visits for block in blocks], [None] * 4

    def work(k): together[k] = [search(game, evaluator, blocks[k], settings).visits for _ in range(2)]
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert all(np.array_equal(alone[k], visits) for k in range(4) for visits in together[k])


def test_any_seed_is_a_game_of_its_own():
    "The class gets the whole seed, whatever its size."
    seeds = [0, 1, 2 ** 15, 2 ** 31, 2 ** 32, 2 ** 62 + 12345, 2 ** 63 - 1]

    class Seeded(Small):
        def __init__(self, seed):
            super().__init__(seed)
            self.seed = seed

    game = tictactoe(Seeded)
    rows = [game.new(seed) for seed in seeds]
    assert [game.position(row).seed for row in rows] == seeds and len({row.tobytes() for row in rows}) == len(seeds)


# Hidden cards -----------------------------------------------------------------------------------

class Cards:
    "Two players hold a card each, see their own, and say one after the other whether they bid; the higher bidder's card wins."
    def __init__(self, seed):
        self.hands, self.bids = np.random.default_rng(abs(seed)).permutation(6)[:2].tolist(), []

    def mover(self): return len(self.bids) if len(self.bids) < 2 else -1
    def legal(self): return [0, 1]
    def play(self, action): self.bids.append(action)
    def observe(self): return [self.hands[len(self.bids) % 2], len(self.bids), sum(self.bids)]
    def text(self): return f"{self.hands} {self.bids}"

    def resample_hidden(self, seed):
        mine, rng = len(self.bids) % 2, np.random.default_rng(abs(seed))
        self.hands[1 - mine] = int(rng.choice([card for card in range(6) if card != self.hands[mine]]))

    def returns(self):
        if self.bids[0] == self.bids[1]: return [0, 0]
        won = self.bids[1] if self.hands[1] > self.hands[0] else self.bids[0]
        return [1, -1] if won else [-1, 1]


def cards(make=Cards): return PythonGame("cards", make, players=2, actions=2, shape=(3,), max_length=2)


def test_another_world_looks_the_same_and_is_another():
    game = cards()
    game.check()
    state = game.state_after([1], seed=5)
    worlds = [game.resample_hidden(state, seed) for seed in range(40)]
    hands = {tuple(game.position(world).hands) for world in worlds}
    mine = game.position(state).hands[1]
    assert all(own == mine for _, own in hands) and {other for other, _ in hands} == set(range(6)) - {mine}
    for seed, world in enumerate(worlds):
        assert np.array_equal(game.observe(world), game.observe(state)) and game.position(world).bids == [1]
        assert np.array_equal(game.resample_hidden(world, seed + 1), game.resample_hidden(state, seed + 1))
        end = game.play(world, 0)
        assert game.position(end).hands == game.position(world).hands and game.over(end)


def test_a_world_is_not_resampled_later():
    game = cards()
    world = game.play(game.resample_hidden(game.new(3), 7), 1)
    with pytest.raises(ContractError, match="a row can be resampled only once"): game.resample_hidden(world, 8)


def test_a_game_without_resample_hidden_hides_nothing():
    game = tictactoe()
    state = game.state_after([4, 0])
    assert np.array_equal(game.resample_hidden(state, 9), state)


# What goes wrong --------------------------------------------------------------------------------

class Seven(Small):
    "Fails when the cell in the middle is taken by the second player."
    def legal(self):
        if self.cells[1][1] == 1: raise KeyError("the middle")
        return super().legal()


def test_by_hand_the_persons_own_error_is_seen():
    with pytest.raises(KeyError, match="the middle"): tictactoe(Seven).state_after([0, 4, 1])


def test_a_kernel_raises_and_the_game_knows_the_cause(capfd):
    game = tictactoe(Seven)
    with pytest.raises(RuleError, match="game.cause") as error:
        search(game, Evaluator(game, flat=True), game.new()[None], SearchSettings(simulations=200))
    cause = game.cause(error.value)
    assert isinstance(cause, KeyError) and cause.args == ("the middle",) and cause.__traceback__.tb_next is not None
    other = ValueError("another error")
    assert game.cause(other) is other and get_game("tictactoe").cause(other) is other
    assert "the middle" not in "".join(capfd.readouterr())          # ctypes prints what it swallows
    search(game, Evaluator(game, flat=True), game.state_after([4])[None], SearchSettings(simulations=50))


def test_every_thread_has_its_own_cause():
    class Named(Small):
        def legal(self): raise LookupError(threading.current_thread().name)

    game, found, everyone = tictactoe(Named), {}, threading.Barrier(4, timeout=900)

    def work():
        try: search(game, Evaluator(game, flat=True), np.zeros((1, game.state_size), np.int16))
        except RuleError as error:
            everyone.wait()
            found[threading.current_thread().name] = game.cause(error)
    threads = [threading.Thread(target=work, name=f"actor {k}") for k in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert {name: cause.args for name, cause in found.items()} == {f"actor {k}": (f"actor {k}",) for k in range(4)}


class Interrupted(Small):
    "Sends its process a real Ctrl-C from `observe`, which kernels call, once it is armed."
    armed = False

    def observe(self):
        if type(self).armed:
            type(self).armed = False
            signal.raise_signal(signal.SIGINT)
        return super().observe()


@pytest.fixture
def interrupted():
    "The game that interrupts itself; armed, and disarmed at the end."
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    Interrupted.armed = True
    yield tictactoe(Interrupted)
    Interrupted.armed = False
    signal.signal(signal.SIGINT, before)


def advance(game):
    block = SlotBlock(game, 2, SelfPlaySettings())
    block.begin(0, 0, 0, 0)
    block.advance()


@pytest.mark.parametrize("play", [
    lambda game: Agent(game, Evaluator(game, flat=True), simulations=8).act(game.new()),
    lambda game: search(game, Evaluator(game, flat=True), game.new()[None]),
    lambda game: play_match(game, Agent(game, Evaluator(game, flat=True), simulations=8), RandomPlayer(game), 2),
    advance, lambda game: game.check(2), lambda game: game.inputs(game.new()),
], ids=["act", "search", "match", "block", "check", "inputs"])
def test_an_interrupt_inside_a_rule_comes_out_as_itself(interrupted, play):
    with pytest.raises(KeyboardInterrupt): play(interrupted)
    found = search(interrupted, Evaluator(interrupted, flat=True), interrupted.new()[None], SearchSettings(simulations=8))
    assert found.visits.sum() == 8, "the game goes on"


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit("enough"), GeneratorExit()], ids=repr)
def test_what_is_no_error_is_no_rule_error(stop):
    "In the thread of the caller, and in the threads of a player by playouts."
    class Stopping(Small):
        def returns(self): raise stop

    game = tictactoe(Stopping)
    for play in (lambda: search(game, Evaluator(game, flat=True), game.state_after([0, 1, 2, 4, 3])[None]),
                 lambda: RolloutPlayer(game, 20).acts(game.new()[None])):
        with pytest.raises(type(stop)) as raised: play()
        assert raised.value is stop


@pytest.mark.skipif(sys.platform == "win32", reason="raise() of the C library is found by another name there")
def test_an_interrupt_before_the_first_line_of_a_rule_is_no_answer(monkeypatch):
    "It arrives while the kernel runs; Python raises it before the rule begins, where nothing can catch it."
    send, ignored = ctypes.CDLL(None)["raise"], []
    send.argtypes, send.restype = [ctypes.c_int], ctypes.c_int
    interrupt = int(signal.SIGINT)

    @njit(nogil=True)
    def kernel(api, state):
        before = call_mover(api[MOVER], state)
        send(interrupt)
        return before, call_mover(api[MOVER], state)

    monkeypatch.setattr(sys, "unraisablehook", lambda described: ignored.append(described.exc_type))
    game, before = tictactoe(), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt): kernel(game.api, game.new())
    finally: signal.signal(signal.SIGINT, before)
    assert set(ignored) <= {KeyboardInterrupt}


def test_an_interrupt_in_the_match_of_a_run_stops_the_run(interrupted, tmp_path, monkeypatch):
    from alphazero_nb.training.learner import TrainSettings
    from alphazero_nb.training.trainer import Trainer
    Interrupted.armed, described = False, []

    def listen(event):
        described.append(event)
        if type(event) is MatchMoved: Interrupted.armed = True
    monkeypatch.setitem(_registry, "interrupted", lambda: interrupted)
    interrupted.name = "interrupted"
    settings = TrainSettings(games_per_iteration=4, batch_size=16, evaluate_every=1, evaluate_games=4, match_share=1, baseline="random")
    run = Trainer("interrupted", "tiny", tmp_path / "run", device="cpu", simulations=4, train_settings=settings,
                  layout="threads", games=4, threads=1, listeners=(listen,)).fit(iterations=2)
    assert type(described[-1]) is RunDone and described[-1].stopped and not described[-1].error
    assert run.iteration == 0 and [record.number for record in run.folder.kept()][:4] == [0, 1, 2, 3]


def changed(**methods):
    "The small board with other methods."
    return type("Changed", (Small,), methods)


def grown(self, action):
    Small.play(self, action)
    self.winner, self.left = None, 9
    self.cells = [[None] * 3 for _ in range(3)]


def loose(self):
    "A copy that shares the board."
    other = object.__new__(type(self))
    other.__dict__.update(self.__dict__)
    return other


def of_the_class(self, seed):
    "A board that belongs to the class and not to the position."
    Small.__init__(self, seed)
    type(self).cells = self.__dict__.pop("cells")


def fickle(self): return np.random.default_rng().random((2, 3, 3)) < 0.5


BROKEN = {
    "mover too high": (dict(mover=lambda self: 2), "mover", "it must be −1 or a seat below 2, not 2"),
    "mover is nobody": (dict(mover=lambda self: None), "mover", "it must be −1 or a seat below 2, not None"),
    "no action": (dict(legal=lambda self: []), "legal", "there must be 1 to 9 actions, not 0"),
    "unknown action": (dict(legal=lambda self: [3, 9]), "legal", "actions must lie in 0 to 8, not [3, 9]"),
    "negative action": (dict(legal=lambda self: [3, -1]), "legal", "actions must lie in 0 to 8, not [3, -1]"),
    "an action twice": (dict(legal=lambda self: [3, 1, 3]), "legal", "actions must be distinct, not [3, 1, 3]"),
    "half an action": (dict(legal=lambda self: [0.5]), "legal", "actions must be whole numbers, not [0.5]"),
    "wrong shape": (dict(observe=lambda self: [[0] * 3] * 3), "observe", "the shape must be (2, 3, 3), not (3, 3)"),
    "fractions": (dict(observe=lambda self: np.full((2, 3, 3), 0.5)), "observe",
                  "numbers must be whole, not float64 (int8 is best)"),
    "large numbers": (dict(observe=lambda self: np.full((2, 3, 3), 200)), "observe",
                      "numbers must lie in −128 to 127, not 200 to 200"),
    "one result": (dict(returns=lambda self: [1]), "returns", "there must be 2 results, one per player, not 1"),
    "result too high": (dict(returns=lambda self: [3, -3]), "returns", "results must lie in [−1, 1], not [3, -3]"),
    "result not a number": (dict(returns=lambda self: [float("nan"), 0]), "returns", "results must lie in [−1, 1], not [nan, 0]"),
    "endless": (dict(play=grown), "play", "a game must end within 9 moves"),
    "another object": (dict(play=lambda self, action: self.copy()), "play", "it must change the position in place"),
    "an error": (dict(returns=lambda self: self.nothing), "returns", "it must not raise an error, but it raised AttributeError"),
    "a shared board": (dict(copy=loose), "", "played forward must equal the one replayed"),
    "one board for all": (dict(__init__=of_the_class, copy=loose), "", "played forward must equal the one replayed"),
    "numbers of its own": (dict(observe=fickle), "observe", "played forward must equal the one replayed"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_class_is_named(broken):
    methods, function, words = BROKEN[broken]
    with pytest.raises(ContractError) as error: tictactoe(changed(**methods)).check()
    sentence = str(error.value)
    assert sentence.startswith(f"tictactoe: {function}") and " breaks the contract after moves [" in sentence, sentence
    assert words in sentence and "\n" not in sentence and sentence.endswith("."), sentence


def test_what_cannot_become_a_game_is_said_at_once():
    with pytest.raises(ContractError, match=r"make\(0\) returns a Half, which has no method legal\(\)\."):
        tictactoe(type("Half", (), dict(__init__=lambda self, seed: None, mover=lambda self: 0)))
    with pytest.raises(ValueError, match="1 to 65536 actions and 1 to 32767 moves, not 9 and 40000"): tictactoe(max_length=40000)
    game = tictactoe()
    for row in (np.zeros(3, np.int16), np.zeros(game.state_size)):
        with pytest.raises(ValueError, match="a state has"): game.mover(row)
    with pytest.raises(ValueError, match="this is not a row of the game"): game.mover(np.full(game.state_size, 99, np.int16))
    assert game.mover(np.repeat(game.state_after([4]), 2)[::2]) == 1   # A row that is not in one piece is copied
    with pytest.raises(ValueError, match=r"action 4 is not legal here; legal: 0, 1, 2, 3, 5"): game.play(game.state_after([4]), 4)


def test_a_drawing_is_the_classes_or_the_games():
    bare, described = tictactoe(), tictactoe(text=lambda position: f"{position.left} left", action_names="abcdefghi".__getitem__)
    state = bare.state_after([4, 0])
    assert bare.text(state) == "moves [4, 0]" and described.text(state) == "7 left"
    assert bare.action_name(2) == "2" and described.action_name(2) == "c"
    assert cards().text(np.zeros(HEADER + 2, np.int16)).endswith("[]")


# OpenSpiel --------------------------------------------------------------------------------------

@needs_open_spiel
def test_connect_four_of_open_spiel_is_ours():
    ours, theirs, rng = get_game("connect4"), get_game("openspiel(game=connect_four)"), np.random.default_rng(4)
    for _ in range(40):
        line = random_line(ours, rng)
        for cut in range(len(line) + 1):
            state = theirs.new() if cut == 0 else theirs.play(state, line[cut - 1])
            assert_same(ours, ours.state_after(line[:cut]), theirs, state, line)
    theirs.check(games=3)
    assert [theirs.action_name(action) for action in range(7)] == list("0123456")


@needs_open_spiel
@pytest.mark.parametrize("name, players", [("hex,board_size=4", 2), ("breakthrough,columns=4,rows=5", 2),
                                           ("nim,pile_sizes=2;3", 2),
                                           ("go,board_size=3,komi=0.5", 2)])
def test_other_games_of_open_spiel_keep_the_laws(name, players):
    game = get_game(f"openspiel(game={name})")
    game.check(games=3)
    assert game.name == f"openspiel(game={name})" and game.players == players and game.in_python
    there = pickle.loads(pickle.dumps(game))
    assert there.name == game.name and len(pickle.dumps(game)) < 300 and why_not_sendable(game) is None
    line = random_line(game, np.random.default_rng(5))
    assert there.returns(there.state_after(line)).tolist() == game.returns(game.state_after(line)).tolist()
    assert abs(game.returns(game.state_after(line))).max() <= 1


@needs_open_spiel
def test_the_observation_says_who_moves():
    game = get_game("openspiel(game=hex,board_size=3)")
    for line, seat in (([], 0), ([4], 1)):
        planes = game.observe(game.state_after(line))
        assert planes.shape == (11, 3, 3) and planes[9 + seat].all() and not planes[10 - seat].any()


def open_spiel_game(name, actions, begins=lambda: [], then=lambda line: []):
    """Registers a game with OpenSpiel: three moves, the last mover wins an even sum. `begins` gives the outcomes that chance has
    before the first move, `then` those it has after these moves; an outcome counts as no move."""
    import pyspiel
    kind = pyspiel.GameType(short_name=name, long_name=name, dynamics=pyspiel.GameType.Dynamics.SEQUENTIAL,
        chance_mode=pyspiel.GameType.ChanceMode.EXPLICIT_STOCHASTIC, information=pyspiel.GameType.Information.PERFECT_INFORMATION,
        utility=pyspiel.GameType.Utility.ZERO_SUM, reward_model=pyspiel.GameType.RewardModel.TERMINAL, max_num_players=2,
        min_num_players=2, provides_information_state_string=False, provides_information_state_tensor=False,
        provides_observation_string=True, provides_observation_tensor=True, parameter_specification={})
    info = pyspiel.GameInfo(num_distinct_actions=actions, max_chance_outcomes=8, num_players=2, min_utility=-1., max_utility=1.,
                            utility_sum=0., max_game_length=3)

    class Observer:
        def __init__(self):
            self.tensor = np.zeros(2, np.float32)
            self.dict = dict(seen=self.tensor)
        def set_from(self, state, player): self.tensor[:] = len(state.line), sum(state.line) % 100 + (state.drawn or 0)
        def string_from(self, state, player): return str(state)

    class State(pyspiel.State):
        def __init__(self, game):
            super().__init__(game)
            self.line, self.drawn, self.left = [], None, begins()
        def current_player(self):
            if self.left: return pyspiel.PlayerId.CHANCE
            return pyspiel.PlayerId.TERMINAL if self.is_terminal() else len(self.line) % 2
        def is_terminal(self): return len(self.line) == 3 and not self.left
        def _legal_actions(self, player): return list(range(actions))
        def chance_outcomes(self): return [(outcome, 1 / len(self.left)) for outcome in self.left]
        def _apply_action(self, action):
            if self.left: self.drawn, self.left = action, []
            else:
                self.line.append(action)
                self.left = then(self.line)
        def _action_to_string(self, player, action): return str(action)
        def returns(self): return [0., 0.] if not self.is_terminal() else [1., -1.] if sum(self.line) % 2 == 0 else [-1., 1.]
        def __str__(self): return f"{self.drawn} {self.line}"

    class Made(pyspiel.Game):
        def __init__(self, params=None): super().__init__(kind, info, params or {})
        def new_initial_state(self): return State(self)
        def make_py_observer(self, iig_obs_type=None, params=None): return Observer()
    pyspiel.register_game(kind, Made)
    return f"openspiel(game={name})"


@needs_open_spiel
def test_chance_before_the_first_move_follows_from_the_seed():
    game = get_game(open_spiel_game("python_begins", 3, begins=lambda: [0, 1, 2, 3]))
    starts = [game.text(game.new(seed)) for seed in range(30)]
    assert starts == [game.text(game.new(seed)) for seed in range(30)] and len(set(starts)) == 4
    assert not game.has_hidden_information, "nothing is hidden or still to be drawn, so a search needs one world"
    assert len({game.text(game.resample_hidden(game.new(1), seed)) for seed in range(9)}) == 1
    game.check(games=3)


@needs_open_spiel
@pytest.mark.parametrize("name, games", [("pig", 3), ("pig,players=3,winscore=12", 5), ("backgammon", 3),
                                         ("einstein_wurfelt_nicht", 5), ("banqi", 1), ("maedn", 1)])
def test_games_with_dice_agree_with_open_spiel_at_every_node(name, games):
    import pyspiel
    game, rng = get_game(f"openspiel(game={name})"), np.random.default_rng(3)
    game.check(games=1)
    for seed in range(games): compare_with_dice(game, pyspiel, seed, rng)


def compare_with_dice(game, pyspiel, seed, rng):
    "Play a random game of both, and hold every decision and every roll of one against the other. Return their numbers."
    word, _, given = game.name.removeprefix("openspiel(game=").removesuffix(")").partition(",")
    other = pyspiel.load_game(f"{word}({given})" if given else word).new_initial_state()
    state, decisions, rolls = game.new(seed), 0, 0
    pass_chance(other, seed)
    while True:
        assert game.over(state) == other.is_terminal() and game.text(state) == str(other)
        if other.is_terminal(): break
        assert game.mover(state) == (-2 if other.is_chance_node() else other.current_player())
        assert game.legal_actions(state) == sorted(other.legal_actions())
        if other.is_chance_node():
            assert dict(game.chance(state)) == pytest.approx(dict(other.chance_outcomes()))
            state, (outcome,) = game.pass_chance(state, seed, rolls)
            rolls += 1
            other.apply_action(outcome)
        else:
            action = int(rng.choice(other.legal_actions()))
            state, decisions = game.play(state, action), decisions + 1
            other.apply_action(action)
    most = max(abs(other.get_game().min_utility()), abs(other.get_game().max_utility()))
    assert game.returns(state).tolist() == pytest.approx([result / most for result in other.returns()])
    return decisions, rolls


@needs_open_spiel
@pytest.mark.slow
def test_a_thousand_games_of_backgammon_agree_with_open_spiel():
    import pyspiel
    game, rng = get_game("openspiel(game=backgammon)"), np.random.default_rng(5)
    played = [compare_with_dice(game, pyspiel, seed, rng) for seed in range(1000)]
    assert all(decisions > 20 and rolls > 20 for decisions, rolls in played)


@needs_open_spiel
def test_chance_that_only_a_rare_move_brings_is_a_node_of_the_game():
    game = get_game(open_spiel_game("python_second", 3, then=lambda line: [5, 6] if line == [2, 2] else []))
    state = game.state_after([2, 2])
    assert game.mover(state) == -2 and game.chance(state) == [(5, 0.5), (6, 0.5)] and game.outcomes == 8
    assert game.mover(game.play(state, 6)) == 0 and game.mover(game.state_after([2, 1])) == 0
    game.check(games=10)


@needs_open_spiel
@pytest.mark.parametrize("name, words", {
    "hxe": ["'hxe'", "Did you mean 'hex'?"],
    "2048": ["2048", "128, not a whole number"],
    "hex,sise=5": ["'sise'", "board_size"],
    "hex,board_size=5.5": ["board_size", "'5.5'", "int"],
    "hex,swap=perhaps": ["swap", "'perhaps'", "bool"],
    "kuhn_poker": ["kuhn_poker", "hidden information"],
    "goofspiel": ["goofspiel", "one after the other"],
    "chess": ["chess", "0.00990099, not a whole number"],
    "misere": ["misere"],
}.items())
def test_what_open_spiel_cannot_give_is_one_sentence(name, words):
    with pytest.raises(ValueError) as error: get_game(f"openspiel(game={name})")
    sentence = str(error.value)
    assert all(word in sentence for word in words) and "\n" not in sentence and sentence[-1] in ".?", sentence


def test_without_open_spiel_it_is_not_listed_and_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    assert "openspiel" not in list_games() and "connect4" in list_games()
    with pytest.raises(ValueError, match="not installed: pip install open_spiel"): get_game("openspiel(game=hex)")


# Sending ----------------------------------------------------------------------------------------

WRITER = '''
import functools, json, sys
import cloudpickle, numpy as np
from numba import njit
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game, register
from alphazero_nb.core.python_game import PythonGame

HEAP = int(sys.argv[2])
WEIGHTS = np.array([1, 2, 3])

@njit
def weight(action): return WEIGHTS[action]

@njit
def most(heap): return min(weight(2), heap)

def start(state, seed): state[0] = HEAP
def mover(state): return -1 if state[0] == 0 else state[1]
def legal(state, actions):
    n = most(state[0])
    for i in range(n): actions[i] = i
    return n
@njit
def play(state, action):
    state[0] -= weight(action)
    state[1] = 1 - state[1]
def returns(state, out):
    out[state[1]], out[1 - state[1]] = -1, 1
def observe(state, planes): planes[state[0]] = 1

def compiled(name):
    return Game(name, start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe, state_size=2,
                players=2, actions=3, shape=(HEAP + 1,), max_length=HEAP, text=lambda state: f"{state[0]} of {HEAP}")

class Heap:
    def __init__(self, heap, seed): self.heap, self.seat = heap, 0
    def mover(self): return self.seat if self.heap else -1
    def legal(self): return range(most(self.heap))
    def returns(self): return [-1, 1] if self.seat == 0 else [1, -1]
    def observe(self): return np.eye(HEAP + 1, dtype=np.int8)[self.heap]
    def text(self): return f"{self.heap} of {HEAP}"
    def play(self, action):
        self.heap -= int(weight(action))
        self.seat = 1 - self.seat

def python(name):
    sizes = dict(players=2, actions=3, shape=(HEAP + 1,), max_length=HEAP)
    return PythonGame(name, functools.partial(Heap, HEAP), **sizes)

games = [compiled("nim"), compiled("connect4"), python("tictactoe"), get_game("connect4")]
register("python_heap", lambda: python("python_heap"))
games.append(get_game("python_heap"))
with open(sys.argv[1], "wb") as file: cloudpickle.dump(games, file)
'''
PLAYER = '''
def story(game):
    rng, described = np.random.default_rng(0), [repr(game), type(game).__name__]
    for seed in range(2):
        state = game.new(seed)
        while not game.over(state):
            described.append([game.legal_actions(state), game.mover(state), game.observe(state).ravel().tolist(), game.text(state)])
            state = game.play(state, int(rng.choice(game.legal_actions(state))))
        described.append(game.returns(state).tolist())
    return described
print(json.dumps([story(game) for game in games]))
'''
READER = '''
import json, pickle, sys, numpy as np
games = []
for path in sys.argv[1:]:
    with open(path, "rb") as file: games += pickle.load(file)
'''


def python(folder, program, *arguments):
    command = [sys.executable, *program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_games_of_a_script_play_the_same_in_a_fresh_process(tmp_path):
    "Helper functions, constants, lambdas, partial functions and names of the library: what arrives is what was sent."
    (tmp_path / "writer.py").write_text(WRITER + PLAYER)
    there = tmp_path / "elsewhere"
    there.mkdir()
    heaps = (10, 7)                            # The same file again, with another constant: nothing old is played.
    sent = [python(tmp_path, ["writer.py"], tmp_path / str(heap), heap) for heap in heaps]
    assert python(there, ["-c", READER + PLAYER], *(tmp_path / str(heap) for heap in heaps)) == sum(sent, [])
    for heap, stories in zip(heaps, sent):
        assert [story[1] for story in stories] == ["Game", "Game", "PythonGame", "Game", "PythonGame"]
        assert stories[1][2][3] == stories[2][2][3] == f"{heap} of {heap}" and stories[3][2][0] == list(range(7))


def test_a_game_of_the_library_goes_by_name():
    for name in ("connect4", "gomoku(size=7)"):
        assert get_game(name).__reduce__() == (get_game, (name,))
    assert tictactoe().__reduce__()[0] is not get_game        # The name of the library, and rules of our own.


def other_result(state, out): out[0], out[1] = .5, -.5


def test_a_game_of_the_library_with_one_rule_of_ones_own_goes_by_value():
    whole = get_game("connect4")
    args, arguments = whole._arguments
    changed = Game(*args, **(arguments | dict(returns=other_result)))
    assert changed.name == whole.name and changed.__reduce__()[0] is not get_game
    own = [name for name in list_games() if game_module(name) and name != "openspiel"]   # Not those that tests register
    assert len(own) > 10 and all(get_game(name).__reduce__()[0] is get_game for name in own)


def test_a_copy_is_the_game_itself():
    for game in (get_game("tictactoe"), tictactoe()): assert copy.deepcopy([game])[0] is game and copy.copy(game) is game


def guarded(lock):
    "Classes that use what cannot be sent, in a closure, in a helper function and as an attribute."
    rng = np.random.default_rng(0)

    def helper(cells): return lock is None or cells

    class Direct(Small):
        def legal(self):
            with lock: return super().legal()

    class Through(Small):
        def legal(self): return helper(super().legal()) and rng is not None

    class Holding(Small):
        key = lock

    return Direct, Through, Holding


@pytest.mark.parametrize("which, sentence", [
    (0, "Direct.legal uses the variable 'lock', a _thread.lock, which cannot be sent to another process."),
    (1, "helper uses the variable 'lock', a _thread.lock, which cannot be sent to another process."),
    (2, "Holding uses the attribute 'key', a _thread.lock, which cannot be sent to another process."),
])
def test_what_cannot_be_sent_is_named(which, sentence):
    assert why_not_sendable(tictactoe(guarded(None)[which])) is None
    assert why_not_sendable(tictactoe(guarded(threading.Lock())[which])) == sentence


LOCKED = '''
import threading
from numba import njit
from alphazero_nb.core.game import Game
from alphazero_nb.core.python_game import PythonGame, why_not_sendable

lock, numbers = threading.Lock(), (i for i in range(3))
def start(state, seed): state[0] = 3
def mover(state): return state[1] if state[0] else -1
def legal(state, actions):
    actions[0] = 0
    return 1
def play(state, action): state[0] -= 1
def returns(state, out): out[0] = 1
def observe(state, planes): planes[0] = state[0]
def text(state):
    with lock: return str(state)
def names(action, found=numbers): return str(action)

rules = dict(start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe)
sizes = dict(state_size=2, players=2, actions=1, shape=(1,), max_length=3)
for more in ({}, dict(text=text), dict(action_names=names), dict(action_names=lock.acquire)):
    print(why_not_sendable(Game("short", **rules, **sizes, **more)))
'''


def test_functions_of_a_script_that_cannot_be_sent_are_named(tmp_path):
    (tmp_path / "locked.py").write_text(LOCKED)
    done = subprocess.run([sys.executable, "locked.py"], capture_output=True, text=True, cwd=tmp_path, timeout=900)
    lines = done.stdout.splitlines()
    assert lines == ["None", "text uses the global 'lock', a _thread.lock, which cannot be sent to another process.",
                     "action_names uses the default of 'found', a generator, which cannot be sent to another process.",
                     "short: its action_names, a builtin_function_or_method, cannot be sent to another process."], done.stderr


HEAPS = """
import sys, threading
import numpy as np
from alphazero_nb.core.python_game import PythonGame

class Heap:
    def __init__(self, seed, stones): self.left, self.turn = stones, 0
    def mover(self): return self.turn if self.left else -1
    def legal(self): return [0, 1] if self.left > 1 else [0]
    def play(self, action): self.left, self.turn = self.left - 1 - action, 1 - self.turn
    def returns(self): return [1, -1] if self.turn else [-1, 1]
    def observe(self): return [self.left]

def heap(stones): return PythonGame("heap", lambda seed: Heap(seed, stones), players=2, actions=2, shape=(1,), max_length=20)

def seen(game):
    "What compiled code sees of a start: the stones."
    row, planes = np.zeros(game.state_size, np.int16), np.zeros(1, np.int8)
    game._crossing["start"](row, 1)
    game._crossing["observe"](row, planes)
    return int(planes[0])

sizes = list(map(int, sys.argv[1:]))
games = {stones: heap(stones) for stones in sizes}
threads = [threading.Thread(target=lambda stones=stones: games.__setitem__(stones, heap(stones))) for stones in sizes for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print([seen(games[stones]) for stones in sizes], [seen(heap(stones)) for stones in sizes],
      "compiled", sum(sum(rule.stats.cache_misses.values()) for rule in games[sizes[0]]._crossing.values()), games[sizes[0]].digest)
"""


def test_python_rules_are_compiled_once_and_lead_to_their_own_class(tmp_path):
    "Also where threads make games side by side, and in a process that loads what another one has compiled."
    (tmp_path / "heaps.py").write_text(HEAPS)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
    for first, sizes in ((True, "3 5 7"), (False, "7 2 9 4")):
        done = subprocess.run([sys.executable, "heaps.py", *sizes.split()], capture_output=True, text=True, cwd=tmp_path, env=env, timeout=900)
        seen, _, compiled = done.stdout.strip().partition(" compiled ")
        assert seen == " ".join(2 * [str(list(map(int, sizes.split())))]), done.stderr
        assert first or compiled == "0 None", "nothing says which class the code belongs to"


def test_the_package_works_where_nothing_can_be_written():
    source = """if True:
        from numba.core import caching
        for kind in caching.CacheImpl, caching.CompileResultCacheImpl: kind._locator_classes = []
        from alphazero_nb.core.registry import get_game
        import alphazero_nb.core.python_game
        print(get_game("tictactoe").state_after([4])[4])"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout == "1\n", done.stderr


@needs_open_spiel
def test_openspiel_games_with_rewards_give_the_result_so_far():
    game = get_game("openspiel(game=cliff_walking)")
    start = game.new()
    after = game.play(start, game.legal_actions(start)[0])
    assert game.rewards and game.api[REWARDS] == 1 and game.returns(start)[0] == 0 > game.returns(after)[0] >= -1
    game.check(games=2)
    assert not get_game("openspiel(game=connect_four)").rewards


def test_a_position_is_read_from_any_array_of_numbers():
    game = tictactoe()
    state = game.state_after([4, 0])
    for given in (state.astype(np.int64), state.tolist(), state.astype(">i2")):
        assert game.position(given).cells == game.position(state).cells and game.move_name(given, 1) == game.move_name(state, 1)


class Pile(list):
    "A position that is a list."
    def __init__(self, seed): super().__init__([10, 0])
    def mover(self): return self[1] if self[0] else -1
    def legal(self): return range(min(3, self[0]))
    def returns(self): return [-1, 1] if self[1] == 0 else [1, -1]
    def observe(self): return np.eye(11, dtype=np.int8)[self[0]]

    def play(self, action):
        self[0] -= action + 1
        self[1] = 1 - self[1]


def pile(make): return PythonGame("pile", make, players=2, actions=3, shape=(11,), max_length=10)


def test_a_position_that_is_a_list_stays_in_its_class():
    assert pile(Pile).check() is None and isinstance(pile(Pile).position(pile(Pile).state_after([0, 1])), Pile)


@pytest.mark.parametrize("make", [Pile(0), type("NoSeed", (Pile,), dict(__init__=lambda self: None))])
def test_what_takes_no_seed_is_said_so(make):
    with pytest.raises(ContractError, match=r"pile: make\(0\) raised TypeError.* pass a class whose __init__ takes a seed"): pile(make)


def test_the_store_of_a_thread_holds_the_trees_of_all_its_slots(monkeypatch):
    "A GPU plays 512 games in one thread: more nodes than the store had places, so leaves were played from the start."
    monkeypatch.setattr(PythonGame, "room", 50)
    game, replayed, replay = connect4(), [], Positions.replay
    monkeypatch.setattr(Positions, "replay", lambda self, key: replayed.append(key) or replay(self, key))
    play = SelfPlaySettings(search=SearchSettings(simulations=32), full_search_fraction=1.0)
    pool = ActorPool(game, None, Layout("threads", ("cpu",), 1, 20, 20, False), play, seed=0)
    assert game._rules.positions.room == 20 * 34
    assert len(play_games(pool, 20)) == 20
    pool.close()
    assert len(replayed) < .2 * pool.report().evaluations, "with room for 50, nearly every leaf"
