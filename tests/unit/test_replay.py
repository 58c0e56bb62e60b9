"Games without positions, tables of strangers, records against the rules, and the ring of rows against a slow one."
import functools, itertools, sys, tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import alphazero_nb.core.records, alphazero_nb.training.replay
from alphazero_nb.core.streams import Purpose, derive_seed
from alphazero_nb.core.calls import CHANCE
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game, list_games
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.core.records import GameRecord, check_records, join_records, split_records
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.search import SearchSettings
from alphazero_nb.selfplay.slots import SlotBlock
from alphazero_nb.selfplay.settings import SelfPlaySettings, default_settings
from alphazero_nb.training.replay import Replay, window_size
from test_python_game import connect4 as python_connect4

needs_open_spiel = pytest.mark.skipif("openspiel" not in list_games(), reason="OpenSpiel is not installed")
NAMES = ["tictactoe", "connect4", "gomoku(size=5)", "dots(rows=2,cols=2)", "blob(players=3,cards=2)", "python",
         pytest.param("openspiel(game=breakthrough,rows=4,columns=4)", marks=needs_open_spiel)]


@functools.cache
def game_of(name): return python_connect4() if name == "python" else get_game(name)


def random_record(game, rng, number=0, share=.3):
    "A random game, of which about this share of the moves has a search result."
    seed, counts, policy, values, movers, actions = derive_seed(5, Purpose.SELF_PLAY, number), [], [], [], [], []
    state = game.new(seed)
    while not game.over(state):
        legal = game.legal_actions(state)
        chosen = []
        dice = game.mover(state) == CHANCE
        if not dice and rng.random() < share:
            chosen = sorted(rng.choice(legal, size=rng.integers(1, len(legal) + 1), replace=False))
        counts.append(len(chosen))
        policy += chosen
        known = chosen or not dice and rng.random() < .5
        values.append(rng.uniform(-1, 1, game.players) if known else [np.nan] * game.players)
        movers.append(game.mover(state))
        actions.append(int(rng.choice(legal)))
        state = game.play(state, actions[-1])
    return GameRecord(
        np.array(actions, np.int32), np.array(movers, np.int8), np.array(values, np.float32),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), np.array(policy, np.int32),
        rng.integers(1, 60, len(policy)).astype(np.int32), game.returns(state), number, seed, 0)


@functools.cache
def random_records(game, count, seed=0, first=0, share=.3):
    rng = np.random.default_rng([seed, first])
    return [random_record(game, rng, first + number, share) for number in range(count)]


def searched(records): return sum(int((np.diff(record.policy_offsets) > 0).sum()) for record in records)


# Positions are computed again


@pytest.mark.parametrize("name", NAMES)
def test_positions_computed_again_are_those_that_were_played(name):
    "The game of every slot is looked at after every turn of a block."
    game = game_of(name)
    play = default_settings(game)
    play = replace(play, search=replace(play.search, simulations=6), fast_simulations=3)
    block, evaluator, seen, records = SlotBlock(game, 8, play), UniformEvaluator(game), {}, []
    for slot in range(8): block.begin(slot, slot, derive_seed(3, Purpose.SELF_PLAY, slot), 0)
    while len(records) < 8:
        block.advance()
        for slot in np.flatnonzero(block.slots["number"] >= 0):
            seen[int(block.slots["number"][slot]), int(block.slots["ply"][slot])] = block.true_states[slot].copy()
        records += block.collect()
        if block.requests.count: block.submit(evaluator)
        block.receive()
    check_records(game, records)
    lines = {record.number: game.states_of(record.actions, record.seed) for record in records}
    assert len(seen) > 16 and all((lines[number][ply] == state).all() for (number, ply), state in seen.items())
    for record in records:
        state, line = game.new(record.seed), lines[record.number]
        assert line.dtype == np.int16 and line.shape == (len(record) + 1, game.state_size)
        for ply, action in enumerate(record.actions):
            assert (line[ply] == state).all() and game.mover(line[ply]) == record.movers[ply]
            state = game.play(state, int(action))
        assert (line[-1] == state).all() and (game.returns(line[-1]) == record.outcome).all()


def test_a_line_of_play_with_an_illegal_move_is_refused():
    game = game_of("connect4")
    with pytest.raises(ValueError, match=r"connect4: action 3 is not legal at move 6; legal: 0, 1, 2, 4, 5, 6\."):
        game.states_of([3] * 6 + [3, 0])
    with pytest.raises(ValueError, match="action 0 is not legal at move 7; legal: none, the game is over"):
        game.states_of([3, 0, 3, 0, 3, 0, 3, 0])
    assert game.states_of([]).shape == (1, game.state_size)


class Count:
    "Adds one until the end; the record of a long game."
    def __init__(self, seed): self.moves = 0
    def mover(self): return -1 if self.moves == 500 else self.moves % 2
    def legal(self): return [0, 1]
    def play(self, action): self.moves += 1
    def returns(self): return [1, -1]
    def observe(self): return [self.moves % 2, self.moves // 2 % 2]


def count_game(longest): return PythonGame("count", Count, players=2, actions=2, shape=(2,), max_length=longest)


def bytes_of_running_games(game, slots=16, simulations=8):
    tracemalloc.start()
    try:
        block = SlotBlock(game, slots, SelfPlaySettings(SearchSettings(simulations=simulations)))
        return tracemalloc.get_traced_memory()[0], block
    finally: tracemalloc.stop()


def test_running_games_need_memory_in_proportion_to_the_longest_game():
    sizes = [bytes_of_running_games(count_game(longest))[0] for longest in (500, 2000, 8000)]
    growth = [(large - small) / steps for small, large, steps in zip(sizes, sizes[1:], (1500, 6000))]
    assert growth[1] < 1.1 * growth[0], f"bytes for each more move: {growth}"
    assert growth[1] < 16 * (2 * 12 + 40), "for each slot a row for each node, and some 20 bytes of the game log"


def test_games_as_long_as_those_of_chess_fit_into_memory():
    "The sizes of OpenSpiel's chess: 4,674 actions and up to 17,695 moves."
    game = PythonGame("long", Count, players=2, actions=4674, shape=(20, 8, 8), max_length=17_695)
    size, block = bytes_of_running_games(game, slots=128, simulations=64)
    assert size < 1.4e9 and block.log.tables.policy_actions.shape == (128, game.max_legal)


@pytest.mark.parametrize("name", ["connect4", "blob(players=3,cards=2)"])
def test_search_results_make_room_for_themselves(name):
    "With every search a full one the game log grows; the games are those of a log that was large from the start."
    game = game_of(name)
    play = replace(default_settings(game), full_search_fraction=1.)
    play = replace(play, search=replace(play.search, simulations=20))

    def games(roomy):
        block, evaluator, records, drawn = SlotBlock(game, 6, play), UniformEvaluator(game), [], itertools.count()
        while roomy and block.log.tables.policy_actions.shape[1] < game.max_length * game.max_legal: block.log.grow()
        room = block.log.tables.policy_actions.shape[1]
        while len(records) < 18:
            for slot in np.flatnonzero(block.slots["number"] < 0):
                number = next(drawn)
                block.begin(slot, number, derive_seed(1, Purpose.SELF_PLAY, number), 0)
            block.advance()
            records += block.collect()
            if block.requests.count: block.submit(evaluator)
            block.receive()
        return sorted(records, key=lambda record: record.number)[:12], room, block.log.tables.policy_actions.shape[1]
    small, first, last = games(False)
    large, roomy, still = games(True)
    assert small == large and searched(small) > 12 and roomy == still
    assert last > first or all(record.policy_offsets[-1] + game.max_legal <= first for record in small)
    if name == "connect4": assert last >= 4 * first


# Tables of strangers


RECORDS = random_records(game_of("connect4"), 4)
TABLE = join_records(RECORDS)


def test_tables_have_no_positions(): assert "states" not in TABLE and split_records(TABLE) == RECORDS


def changed(**fields): return {name: array for name, array in (TABLE | fields).items() if array is not None}
def with_number(name, place, number):
    array = TABLE[name].copy()
    array[place] = number
    return changed(**{name: array})


SWAPPED = TABLE["length"].copy()
SWAPPED[0], SWAPPED[1] = -1, SWAPPED[:2].sum() + 1
TEACHER = int(np.flatnonzero(TABLE["policy_counts"])[0])


@pytest.mark.parametrize("table, what", [
    (changed(actions=None), "'actions' is missing"), (changed(seed=None), "'seed' is missing"),
    (changed(length=None), "'length' is missing"),
    (changed(actions=TABLE["actions"].astype(np.int64)), "'actions' is not an array of int32"),
    (changed(values=TABLE["values"].astype(np.float64)), "'values' is not an array of float32"),
    (changed(values=TABLE["values"].ravel()), "'values' is not an array of float32 with 2 dimensions"),
    (changed(length=np.int32(5)), "'length' is not an array"),
    (changed(number=np.array(list("abcd"))), "'number' is not an array of int64"),
    (changed(movers=TABLE["movers"][:-1]), "but 'movers' has"),
    (changed(policy_visits=TABLE["policy_visits"][1:]), "but 'policy_visits' has"),
    (changed(outcome=TABLE["outcome"][:3]), "it has 4 games, but 'outcome' has 3 rows"),
    (changed(outcome=TABLE["outcome"][:, :1]), "differ in the number of players"),
    (changed(length=SWAPPED), "a number in 'length' is -1, which is less than 1"),
    (with_number("length", 0, 0), "a number in 'length' is 0"), (with_number("length", 0, 10**9), "but 'actions' has"),
    (with_number("policy_counts", 0, -1), "a number in 'policy_counts' is -1"),
    (with_number("policy_counts", 0, 2**31 - 1), "but 'policy_actions' has"),
    (with_number("seed", 2, -5), "game 2 is damaged: its seed is negative"),
    (with_number("outcome", 1, np.nan), "game 1 is damaged: its outcome is not finite"),
    (with_number("movers", -1, 2), "game 3 is damaged: a mover is not a seat below 2"),
    (with_number("values", (0, 1), np.inf), "game 0 is damaged: some values of a move are not finite"),
    (with_number("values", (TEACHER, 0), 1e30), "game 0 is damaged: a value of a move is too large"),
    (with_number("values", TEACHER, np.nan), "game 0 is damaged: a searched move has no values"),
    (with_number("policy_visits", -1, 0), "game [23] is damaged: a visit count is not positive"),
])
def test_a_table_that_cannot_be_one_is_refused_in_a_sentence(table, what):
    with pytest.raises(ValueError, match=what) as caught: split_records(table)
    assert str(caught.value).count(". ") == 0 and str(caught.value).endswith(".")


NUMBERS = st.integers(-2**31, 2**31 - 1) | st.sampled_from([-1, 0, 1, 2, 3, 7])


KINDS = ["int8", "int64", "float32", "float64", "bool", ">i4", "U3", "object"]


@st.composite
def altered_tables(draw):
    "The table with one to three of its fields altered."
    table = dict(TABLE)
    for name in draw(st.lists(st.sampled_from(sorted(TABLE)), min_size=1, max_size=3, unique=True)):
        how = draw(st.sampled_from(["drop", "type", "cut", "shape", "number", "swap", "fortran"]))
        array = table[name].copy()
        if how == "drop":
            del table[name]
            continue
        if how == "type":
            with np.errstate(all="ignore"): array = array.astype(draw(st.sampled_from(KINDS)))
        if how == "cut": array = array[draw(st.integers(0, 3)):len(array) - draw(st.integers(0, 3))]
        if how == "shape": array = draw(st.sampled_from([array.reshape(-1), array[None], array[..., None], array[:0]]))
        if how == "fortran": array = np.asfortranarray(array)
        if how in ("number", "swap") and array.size and array.dtype.kind in "if":
            i, j = (draw(st.integers(0, array.size - 1)) for _ in range(2))
            if how == "swap": array.flat[i], array.flat[j] = array.flat[j], array.flat[i]
            elif array.dtype.kind == "f": array.flat[i] = draw(st.sampled_from([np.nan, np.inf, -np.inf, 0, .5, 1e38]))
            else: array.flat[i] = np.int64(draw(NUMBERS)).astype(array.dtype)
        table[name] = array
    return table


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(altered_tables())
def test_an_altered_table_is_refused_or_whole(table):
    "Whatever is split joins to the same table, and what the rules accept of it is a game by the slow judge."
    try: records = split_records(table)
    except ValueError as error: assert str(error).startswith(("this is not a", "game ")) and "\n" not in str(error)
    else:
        joined = join_records(records) if records else table
        same = (np.array_equal(joined[name], table[name], equal_nan=joined[name].dtype.kind == "f") for name in TABLE)
        assert all(same)
        game = game_of("connect4")
        assert accepted(game, records) == all(is_whole(game, record) for record in records)


# Records against the rules


def accepted(game, records):
    try: check_records(game, records)
    except ValueError as error:
        assert str(error).endswith(".") and "\n" not in str(error)
        return False
    return True


def is_whole(game, record):
    "The slow judge: the laws of a record, one by one, by hand."
    if record.values.shape[1:] != (game.players,) or record.outcome.shape != (game.players,): return False
    if min(record.seed, record.number, record.version) < 0 or (record.policy_visits < 1).any(): return False
    state = game.new(record.seed)
    for t, action in enumerate(record.actions.tolist()):
        legal = game.legal_actions(state)
        policy = record.policy_actions[slice(*record.policy_offsets[t:t + 2])].tolist()
        known = np.isfinite(record.values[t]) & (np.abs(record.values[t]) <= 1e7)
        if action not in legal or game.mover(state) != record.movers[t]: return False
        if policy != [a for a in legal if a in policy]: return False
        if not (known.all() or (np.isnan(record.values[t]).all() and not policy)): return False
        state = game.play(state, action)
    return game.over(state) and np.array_equal(game.returns(state), record.outcome)


@pytest.mark.parametrize("name", NAMES)
def test_whole_games_are_accepted(name):
    game = game_of(name)
    records = random_records(game, 20, seed=1)
    assert all(is_whole(game, record) for record in records)
    check_records(game, records)
    check_records(game, [])


def altered(record, name, place, number):
    array = getattr(record, name).copy()
    array.flat[place % array.size] = number
    return replace(record, **{name: array})


@pytest.mark.parametrize("name", ["connect4", "blob(players=3,cards=2)", "python"])
@settings(max_examples=250, deadline=None, derandomize=True, database=None)
@given(which=st.integers(0, 2), field=st.sampled_from(
           ["actions", "movers", "values", "policy_actions", "policy_visits", "outcome", "seed"]),
       place=st.integers(0, 200), number=st.integers(-3, 12) | st.sampled_from([127, -128, 2**31 - 1, -2**31]))
def test_an_altered_game_is_refused_unless_it_is_whole(name, which, field, place, number):
    game = game_of(name)
    records = random_records(game, 3, seed=2)
    record = records[which]
    if field == "seed": record = replace(record, seed=abs(number))
    elif getattr(record, field).size:
        kind = getattr(record, field).dtype
        record = altered(record, field, place, np.int64(number).astype(kind))
    changed = [*records[:which], record, *records[which + 1:]]
    assert accepted(game, changed) == is_whole(game, record)


def cut_short(record):
    "The record without its last move."
    end = record.policy_offsets[-2]
    return replace(record, actions=record.actions[:-1], movers=record.movers[:-1], values=record.values[:-1],
                   policy_offsets=record.policy_offsets[:-1], policy_actions=record.policy_actions[:end],
                   policy_visits=record.policy_visits[:end])


def drawn_out(record):
    "The record with its last move once more."
    again = lambda array: np.concatenate([array, array[-1:]])
    return replace(record, actions=again(record.actions), movers=again(record.movers), values=again(record.values),
                   policy_offsets=again(record.policy_offsets))


def illegal(record):
    "Seven stones in a column of six."
    return replace(record, actions=np.full(len(record), 3, np.int32))


@pytest.mark.parametrize("change, what", [
    (cut_short, "game 2 breaks the rules of connect4: it stops before its end"),
    (drawn_out, "game 2 breaks the rules of connect4 at move .*: it goes on after its end"),
    (illegal, "game 2 breaks the rules of connect4 at move (6: its action is not legal|7: it goes on)"),
    (lambda r: replace(r, movers=1 - r.movers), "at move 0: its mover"),
    (lambda r: replace(r, outcome=np.array([.5, -.5], np.float32)), "its outcome differs from the result"),
    (lambda r: replace(r, policy_actions=r.policy_actions[::-1].copy()), "at move .*: its policy"),
    (lambda r: replace(r, policy_actions=r.policy_actions + 1000), "at move .*: its policy"),
    (lambda r: replace(r, policy_offsets=r.policy_offsets[:-1]), "game 2 is damaged: its fields do not fit"),
    (lambda r: replace(r, policy_offsets=r.policy_offsets + 1), "game 2 is damaged: its fields do not fit"),
    (lambda r: replace(r, actions=r.actions.astype(np.int64)), "game 2 is damaged: its fields do not fit"),
    (lambda r: replace(r, actions=r.actions.tolist()), "game 2 is damaged: its fields do not fit"),
    (lambda r: replace(r, values=r.values[:-1]), "game 2 is damaged: its fields do not fit"),
    (lambda r: replace(r, seed=1 << 63), "game 2 is damaged: its fields do not fit"),
    (lambda r: replace(r, seed=-1), "game 2 is damaged: its fields do not fit"),
    (lambda r: replace(r, outcome=np.zeros(3, np.float32), values=np.zeros((len(r), 3), np.float32)),
     "game 2 has 3 players, but the others have 2"),
])
def test_a_broken_record_is_named(change, what):
    records = random_records(game_of("connect4"), 3, seed=4)
    with pytest.raises(ValueError, match=what): check_records(game_of("connect4"), [*records[:2], change(records[2])])


def test_games_of_another_size_are_refused_before_they_are_played():
    game, records = game_of("blob(players=3,cards=2)"), random_records(game_of("blob(players=4,cards=2)"), 2)
    with pytest.raises(ValueError, match="have 4 players, but blob.* has 3"): check_records(game, records)
    with pytest.raises(ValueError, match="game 0 has .* moves, but tictactoe has at most 9"):
        check_records(game_of("tictactoe"), random_records(game_of("connect4"), 1))


def three_moves(broken="", bad=-1, only=0):
    "A game of one action, whose `start` or `returns` fails if its seed is `bad`."
    def start(state, seed):
        state[1] = seed == bad
        if broken == "start" and seed == bad: raise ValueError("it breaks")
    def mover(state): return state[0] % 2 if state[0] < 3 else -1
    def legal(state, actions):
        actions[0] = only
        return 1
    def play(state, action): state[0] += 1
    def returns(state, out):
        if broken == "returns" and state[1]: raise ValueError("it breaks")
    def observe(state, planes): planes[0] = state[0]
    return Game("three_moves", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                state_size=2, players=2, actions=1, shape=(1,), max_length=3)


@pytest.mark.parametrize("broken, move", [("start", 0), ("returns", 3)])
def test_an_error_of_the_rules_names_its_own_move(broken, move):
    records = random_records(three_moves(), 2)
    with pytest.raises(ValueError, match=f"game 1 cannot be played .*: at move {move} they raise ValueError: it breaks"):
        check_records(three_moves(broken, records[1].seed), records)


@pytest.mark.parametrize("action", [-1, 1])
def test_games_whose_rules_allow_an_action_outside_its_range_are_refused(action):
    records = [replace(record, actions=np.full(3, action, np.int32)) for record in random_records(three_moves(), 2)]
    with pytest.raises(ValueError, match="game 0 cannot be played .*: at move 0 they raise ValueError: legal returned an action "
                                         "outside 0 to actions - 1"):
        check_records(three_moves(only=action), records)


def test_an_exception_and_a_stop_in_the_rules_have_different_effects():
    class Stops(Count):
        error = KeyError("twenty")
        def play(self, action):
            super().play(action)
            if self.moves == 20: raise self.error
    calm = PythonGame("count", Count, players=2, actions=2, shape=(2,), max_length=500)
    game = PythonGame("count", Stops, players=2, actions=2, shape=(2,), max_length=500)
    records = random_records(calm, 2)
    with pytest.raises(ValueError, match="game 0 cannot be played .* count: at move 19 they raise KeyError: 'twenty'"):
        check_records(game, records)
    Stops.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt): check_records(game, records)


def test_checking_keeps_no_positions_of_python_rules():
    game = count_game(500)
    records = random_records(game, 3)
    check_records(game, records)
    kept = game._rules.positions.kept
    assert not kept.young and not kept.old


# The ring


class SlowReplay:
    "What the buffer was: whole games in one growing table, cut to the window; batches made a row at a time."
    def __init__(self, game, td_lambda=1.0): self.game, self.td_lambda, self.rows, self.added = game, td_lambda, [], 0

    def later(self, record, t):
        "The value target of move t: a weighted mean of the search values after it and of the outcome."
        weight, target = 1.0, np.zeros(self.game.players)
        for value in record.values[t + 1:].astype(float):
            if np.isnan(value).all(): continue
            target, weight = target + weight * (1 - self.td_lambda) * value, weight * self.td_lambda
        return (target + weight * record.outcome).astype(np.float32)

    def add(self, records):
        for record in records:
            state = self.game.new(record.seed)
            for t, action in enumerate(record.actions):
                here = slice(*record.policy_offsets[t:t + 2])
                if here.stop > here.start:
                    far, scale = (self.game.returns(state), 2) if self.game.rewards else (0, 1)
                    self.rows.append((state, record.movers[t], (self.later(record, t) - far) / scale,
                                      (record.values[t] - far) / scale,
                                      record.policy_actions[here], record.policy_visits[here]))
                    self.added += 1
                state = self.game.play(state, int(action))

    def sample(self, n, rng, mix, size):
        game, rows = self.game, self.rows[len(self.rows) - size:]
        index, turn = rng.integers(size, size=n), rng.integers(len(game.symmetries[0]), size=n)
        planes, policy = np.zeros((n, game.input_size), np.int8), np.zeros((n, game.actions), np.float32)
        values = np.zeros((n, game.players), np.float32)
        for row, (i, t) in enumerate(zip(index, turn)):
            state, mover, outcome, judged, actions, visits = rows[i]
            planes[row] = game.inputs(state)[game.symmetries[0][t]]
            policy[row, game.symmetries[1][t][actions]] = visits.astype(np.int64) / visits.sum(dtype=np.int64)
            seats = (mover + np.arange(game.players)) % game.players
            values[row] = (1 - mix) * outcome[seats].astype(float) + mix * judged[seats].astype(float)
        return planes.reshape(n, *game.input_shape), policy, values


def assert_same_batch(replay, slow, mix, seed):
    batch = replay.sample(64, np.random.default_rng(seed), mix)
    planes, policy, values = slow.sample(64, np.random.default_rng(seed), mix, len(replay))
    assert np.array_equal(batch.inputs, planes) and np.array_equal(batch.policy, policy)
    assert np.array_equal(batch.values, values)


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_those_of_the_slow_buffer(name):
    game = game_of(name)
    replay, slow = Replay(game), SlowReplay(game)
    for turn in range(5):
        records = random_records(game, 1 + 3 * turn, seed=6, first=20 * turn)
        assert replay.add(records) == searched(records)
        slow.add(records)
        assert len(replay) == replay.added == slow.added
        for mix in (0., .25, 1.): assert_same_batch(replay, slow, mix, turn)


@pytest.mark.parametrize("name", NAMES + ["2048(goal=32)"])
def test_later_search_values_are_part_of_the_target(name):
    game = game_of(name)
    replay, slow = Replay(game, td_lambda=.7), SlowReplay(game, td_lambda=.7)
    records = random_records(game, 12, seed=11)
    replay.add(records)
    slow.add(records)
    for seed, mix in enumerate((0., .25, 1.)):
        batch = replay.sample(64, np.random.default_rng(seed), mix)
        assert np.allclose(batch.values, slow.sample(64, np.random.default_rng(seed), mix, len(replay))[2], atol=1e-6)
    assert replay.sample(64, np.random.default_rng(0), 0.).values.std() > 0


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(max_window=st.integers(1, 200), sizes=st.lists(st.integers(0, 12), min_size=1, max_size=25))
def test_the_ring_is_the_slow_buffer_through_growth_and_eviction(max_window, sizes):
    game = game_of("tictactoe")
    pool, first = random_records(game, 300, seed=7, share=.6), 0
    replay, slow = Replay(game, max_window), SlowReplay(game)
    for turn, size in enumerate(sizes):
        records, first = pool[first:first + size], first + size
        assert replay.add(records) == searched(records)
        slow.add(records)
        assert replay.added == slow.added and len(replay) == min(slow.added, max_window)
        if len(replay): assert_same_batch(replay, slow, .5, turn)


def test_the_window_grows_more_slowly_than_the_games_and_never_beyond_its_most():
    game = game_of("tictactoe")
    records = random_records(game, 1000, seed=8, share=1.)
    new, replay = searched(records), Replay(game, max_window=24_000)
    for turn in range(1, 9):
        assert replay.add(records) == new
        assert len(replay) == min(window_size(turn * new), 24_000)
    assert window_size(turn * new) > 24_000, "the maximum was reached"
    sizes = [window_size(n, max_window=100_000) for n in range(0, 10**6, 1000)]
    assert sizes == sorted(sizes) and sizes[20] == 20_000 and sizes[-1] == 100_000 and window_size(10**8) == 500_000
    assert window_size(1000, max_window=300) == 300


def test_a_resumed_buffer_needs_only_the_newest_games():
    "Added before: so many positions that the window is the same as that of a buffer that saw them all."
    game = game_of("tictactoe")
    records = random_records(game, 60, seed=9, share=.7)
    whole = Replay(game, max_window=100)
    for start in range(0, 60, 10): whole.add(records[start:start + 10])
    resumed = Replay(game, max_window=100, added=searched(records[:30]))
    assert len(resumed) == 0 and resumed.added == searched(records[:30])
    resumed.add(records[30:])
    assert resumed.added == whole.added and len(resumed) == len(whole) == 100
    one, two = (replay.sample(50, np.random.default_rng(0), .3) for replay in (whole, resumed))
    assert all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("inputs", "policy", "values"))
    short = Replay(game, added=10**6)
    short.add(records[:3])
    assert len(short) == searched(records[:3]), "there are no more rows than were added here"


def test_adding_touches_only_what_is_added():
    "Bytes that all adds together allocate at their peaks, for ten times as many games of equal adds."
    game = game_of("tictactoe")
    records = random_records(game, 100, seed=10, share=.5)

    def allocated(adds):
        replay, total = Replay(game), 0
        replay.add(records)
        tracemalloc.start()
        try:
            for _ in range(adds):
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                replay.add(records)
                total += tracemalloc.get_traced_memory()[1] - before
        finally: tracemalloc.stop()
        return total / adds
    few, many = allocated(10), allocated(100)
    assert many < 1.5 * few, f"{few:,.0f} bytes an add of 10, {many:,.0f} of 100"


def test_memory_is_flat_once_the_window_is_full():
    game = game_of("connect4")
    records = [random_records(game, 10, seed=11, first=100 * turn, share=.5) for turn in range(60)]
    replay = Replay(game, max_window=400)
    for add in records[:20]: replay.add(add)
    assert len(replay) == 400
    sizes = []
    tracemalloc.start()
    try:
        held = tracemalloc.get_traced_memory()[0]
        for add in records[20:]:
            replay.add(add)
            sizes.append(tracemalloc.get_traced_memory()[0] - held)
    finally: tracemalloc.stop()
    rows, entries, _ = replay._held
    assert sizes[-1] <= max(sizes[:10]) + 4096, sizes
    places = np.arange(rows.first, rows.end) % rows.capacity
    assert rows.capacity < 2 * 600 and len(entries) == rows.arrays[4][places].sum(), "entries of the window alone"
    assert entries.capacity < 2 * (len(entries) + 10 * 42 * 7)


def test_a_refused_game_leaves_the_buffer_as_it_was():
    game = game_of("tictactoe")
    good, more = (random_records(game, 30, seed=12, first=first, share=.5) for first in (0, 30))
    replay, slow = Replay(game, max_window=50), SlowReplay(game)
    for buffer in (replay, slow): buffer.add(good)
    last = more[-1]
    for bad in (cut_short(last), replace(last, outcome=last.outcome + 2), replace(last, movers=last.movers[:-1])):
        with pytest.raises(ValueError, match=f"game {bad.number}"): replay.add([*more[:-1], bad])
        assert replay.added == slow.added and len(replay) == 50
        assert_same_batch(replay, slow, .5, 1)


def test_an_interrupted_add_leaves_the_buffer_as_it_was():
    "Ctrl-C at every line of the two modules that an add runs through; the last try comes to its end."
    game, files = game_of("tictactoe"), (alphazero_nb.core.records.__file__, alphazero_nb.training.replay.__file__)
    good, more = (random_records(game, count, seed=13, first=first, share=.5) for count, first in ((20, 0), (4, 20)))
    replay, slow = Replay(game, max_window=60), SlowReplay(game)
    for buffer in (replay, slow): buffer.add(good)
    replay.add([])

    def interrupted_at(line):
        left = [line]

        def trace(frame, event, _):
            if frame.f_code.co_filename not in files: return None
            if event == "line":
                left[0] -= 1
                if left[0] == 0: raise KeyboardInterrupt
            return trace
        before = sys.gettrace()
        sys.settrace(trace)
        try: replay.add(more)
        except KeyboardInterrupt: return True
        finally: sys.settrace(before)
        return False
    line = 1
    while interrupted_at(line):
        if replay.added != slow.added: break   # The very last line: it was added as a whole
        assert len(replay) == 60
        assert_same_batch(replay, slow, .5, line)
        line += 1
    assert line > 100
    slow.add(more)
    assert replay.added == slow.added
    assert_same_batch(replay, slow, .5, 0)


@pytest.mark.parametrize("arguments", [dict(max_window=0), dict(added=-1)])
def test_a_buffer_of_no_size_is_refused(arguments):
    with pytest.raises(ValueError, match="at least 1 and 0"): Replay(game_of("tictactoe"), **arguments)


def test_games_stay_until_the_learner_has_seen_them():
    "A first iteration larger than the window lost most of its positions, and the learner drew the others too often."
    game = game_of("tictactoe")
    records = random_records(game, 1000, seed=8, share=1.0)
    many = [replace(record, number=number) for number, record in enumerate(records * 6)]
    replay = Replay(game)
    assert replay.add(many) == len(replay) > window_size(len(replay))
    assert replay.add(records) == searched(records) and len(replay) == window_size(replay.added)
