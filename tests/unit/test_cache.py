"The table of evaluations changes how fast games are played, and never which games."
import threading

import numpy as np
import pytest

from alphazero_nb.core.registry import get_game
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.search import cache as page
from alphazero_nb.search.cache import TRIAL, insert, lookup, make_cache, reset
from alphazero_nb.search.search import Requests
from alphazero_nb.search.tree import make_trees
from alphazero_nb.selfplay import slots as slots_module
from alphazero_nb.selfplay.layout import plan_layout
from alphazero_nb.selfplay.contracts import Generation
from alphazero_nb.selfplay.actors import Actor, ActorPool
from alphazero_nb.selfplay.engine import SelfPlayEngine

pytestmark = pytest.mark.usefixtures("one_thread_inside")


def played(game, network, n, room, monkeypatch, **options):
    "Return the games that an engine plays with tables of so many bytes, and how many evaluations came from them."
    monkeypatch.setattr(slots_module, "ROOM", room)
    with SelfPlayEngine(game, network, "cpu", games=16, simulations=16, listeners=(), **options) as engine:
        records = engine.generate_games(n)
        return records, engine.totals.report(0.0).cache_hits, engine.evaluations


def same(first, second):
    "True if the games are equal in every field."
    fields = ("number", "seed", "version")
    arrays = ("actions", "movers", "values", "policy_offsets", "policy_actions", "policy_visits", "outcome")
    return all(all(getattr(a, name) == getattr(b, name) for name in fields) and
               all(np.array_equal(getattr(a, name), getattr(b, name), equal_nan=name == "values") for name in arrays)
               for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", ["connect4", "tictactoe", "othello(size=6)", "2048(goal=32)", "dots(rows=2,cols=2)"])
def test_the_games_are_the_same_with_the_table(monkeypatch, name):
    "Also with rolls between the moves, and where a player moves twice. Tables of 4 KB lose most entries again."
    game = get_game(name)
    network = PolicyValueNet(game, "tiny", 0).eval()
    without, none, all_asked = played(game, network, 12, 0, monkeypatch)
    for room in (1 << 12, page.ROOM):
        records, cache_hits, asked = played(game, network, 12, room, monkeypatch)
        assert same(records, without)
        assert cache_hits > 0 and none == 0
        if room == page.ROOM: assert asked < all_asked


@pytest.mark.parametrize("options", [dict(layout="threads", threads=2, max_batch=8, shared=False),
                                     dict(layout="threads", threads=2, max_batch=8, shared=True),
                                     dict(layout="processes", workers=1)])
def test_every_layout_uses_the_table(monkeypatch, options):
    game = get_game("tictactoe")
    network = PolicyValueNet(game, "tiny", 0).eval()
    without, _, _ = played(game, network, 40, 0, monkeypatch)
    records, cache_hits, _ = played(game, network, 40, page.ROOM, monkeypatch, **options)
    assert same(records, without) and cache_hits > 0


class Forced:
    "Three moves without a choice: games that end without the network, as those of a full table do."
    def __init__(self, seed): self.moves = 0
    def mover(self): return -1 if self.moves == 3 else 0
    def legal(self): return [0]
    def play(self, action): self.moves += 1
    def returns(self): return [0., 0.]
    def observe(self): return [self.moves]


class Endless:
    "A source that never runs out of games."
    def __init__(self): self.drawn, self.finished, self.open, self.full = 0, 0, True, False
    def draw(self): self.drawn += 1; return self.drawn
    def finish(self, record, name): self.finished += 1


def test_games_that_need_no_network_do_not_keep_the_other_slots_waiting():
    "An actor went on with such games until it was stopped; a slot that asked the network meanwhile got no answer."
    source, game = Endless(), PythonGame("forced", Forced, players=2, actions=1, shape=(1,), max_length=3)
    layout = plan_layout(game, None, layout="threads", games=8)
    pool = ActorPool(game, None, layout, slots_module.SelfPlaySettings(), 0)
    actor, block = Actor(pool, Generation(source, 1), pool.blocks), pool.blocks[0]
    for turn in range(1, 4):
        found = []
        thread = threading.Thread(target=lambda: found.append(actor.turn(block)), daemon=True)
        thread.start()
        thread.join(600)
        assert found == [True], "there is more to do, and the turn ends"
        assert source.finished <= 40 * turn and source.drawn <= 48 * turn


def requests_of(game, rows, seed=0):
    "Return requests with random inputs and some of the actions."
    tables, rng = Requests(game, make_trees(rows, 4, game.max_legal, game.state_size, game.players)).tables, np.random.default_rng(seed)
    tables.inputs[:] = rng.integers(0, 2, tables.inputs.shape)
    for row in range(rows):
        count = int(rng.integers(1, game.max_legal + 1))
        first = tables.edge_offsets[row]
        tables.edge_offsets[row + 1] = first + count
        tables.edge_actions[first:first + count] = rng.choice(game.actions, count, replace=False)
    return tables, rng.normal(size=tables.edge_offsets[rows]).astype(np.float32), rng.normal(size=(rows, game.players)).astype(np.float32)


@pytest.mark.parametrize("name", ["connect4", "chess", "blob(players=3,cards=3)", "pig(goal=20)"])
def test_an_entry_answers_its_own_position_only(monkeypatch, name):
    "All positions in one entry, so that the hash says nothing: inputs, actions and their number decide."
    game = get_game(name)
    cache = make_cache(game, game.input_size + 8 * game.max_legal + 4 * game.players + 12)
    assert len(cache.counts) == 1
    tables, logits, values = requests_of(game, 24)
    for row in range(24): assert lookup(cache, tables, row) == -1
    insert(cache, tables, 24, logits, values)
    first, last = tables.edge_offsets[23:25]
    assert [lookup(cache, tables, row) for row in range(24)] == [-1] * 23 + [0]
    assert np.array_equal(cache.logits[0, :last - first], logits[first:last]) and np.array_equal(cache.values[0], values[23])
    for cell in range(game.input_size):
        tables.inputs[23, cell] ^= 1
        assert lookup(cache, tables, 23) == -1
        tables.inputs[23, cell] ^= 1
    for edge in range(first, last):
        tables.edge_actions[edge] += 1
        assert lookup(cache, tables, 23) == -1
        tables.edge_actions[edge] -= 1
    tables.edge_offsets[24] -= 1
    assert lookup(cache, tables, 23) == -1
    tables.edge_offsets[24] += 1
    assert lookup(cache, tables, 23) == 0
    reset(cache)
    assert lookup(cache, tables, 23) == -1


def test_the_entries_are_used_evenly():
    game = get_game("connect4")
    cache = make_cache(game)
    assert 1 << 15 <= len(cache.counts) and sum(array.nbytes for array in cache) <= page.ROOM
    tables, _, _ = requests_of(game, 4096)
    places = np.array([page.entry_of(cache, row) for row in tables.inputs]) % 256
    counts = np.bincount(places, minlength=256)
    assert len(counts) == 256 and ((counts - 16) ** 2 / 16).sum() < 350   # Chi-squared with 255 degrees: 255 ± 23


def test_a_table_that_does_not_pay_rests_until_the_weights_change():
    game = get_game("tictactoe")
    cache, (tables, logits, values) = make_cache(game), requests_of(game, 16)
    for _ in range(TRIAL // 16): [lookup(cache, tables, row) for row in range(16)]
    assert cache.state[0]["disabled"]
    insert(cache, tables, 16, logits, values)
    assert lookup(cache, tables, 0) == -1 and (cache.epochs == -1).all()
    reset(cache)
    insert(cache, tables, 16, logits, values)
    assert lookup(cache, tables, 0) >= 0


class Versions:
    "Evaluates with its version: value = version / 100. `during` is called in the middle of a batch."
    def __init__(self, game): self.game, self.version, self.during = game, 0, lambda: None

    def submit(self, inputs, edge_offsets, edge_actions):
        from alphazero_nb.network.evaluator import Ticket
        ticket = Ticket((inputs, edge_offsets, edge_actions))
        values = np.full((len(inputs), self.game.players), self.version / 100, np.float32)
        self.during()
        ticket._resolve((np.zeros(len(edge_actions), np.float32), values))
        return ticket


def test_other_weights_of_the_same_version_are_asked_again():
    "A run that falls back to its last checkpoint trains the same iteration twice."
    game = get_game("connect4")
    with SelfPlayEngine(game, PolicyValueNet(game, "tiny", 0), "cpu", games=32, simulations=8, layout="threads",
                        listeners=()) as engine:
        engine.generate_games(32)
        engine.set_network(PolicyValueNet(game, "tiny", 1), engine.version)
        engine.generate_games(32)
        for block in engine.pool.blocks:
            cache, evaluator = block.cache, engine.pool.inference.network
            entries = np.flatnonzero((cache.epochs == cache.state[0]["epoch"]) & (cache.counts > 0))
            offsets = np.concatenate([[0], np.cumsum(cache.counts[entries])]).astype(np.int32)
            actions = np.concatenate([cache.actions[entry, :cache.counts[entry]] for entry in entries])
            _, values = evaluator.evaluate(cache.inputs[entries], offsets, actions)
            assert len(entries) > 100 and np.allclose(cache.values[entries], values, atol=.02)


def test_answers_of_old_weights_are_not_kept_for_new_ones():
    "The weights change while a batch is on its way: its answers are written into the trees and not into the table."
    game = get_game("connect4")
    block, evaluator = slots_module.SlotBlock(game, 8, slots_module.SelfPlaySettings(), cached=True), Versions(game)
    for slot in range(8): block.begin(slot, slot, slot, 0)

    weights = (0,)
    def newer(): evaluator.version += 1
    for turn in range(300):
        weights = weights if weights[0] == evaluator.version else (evaluator.version,)   # Another object for other weights
        block.receive(weights)
        kept = block.cache.values[block.cache.epochs == block.cache.state[0]["epoch"]]
        assert (kept == np.float32(evaluator.version / 100)).all()
        block.advance()
        for record in block.collect(): pass
        for slot in np.flatnonzero(block.slots["number"] < 0): block.begin(slot, 8 + turn, turn, 0)
        evaluator.during = newer if turn % 7 == 3 else lambda: None
        if block.requests.count: block.submit(evaluator)
    assert block.cache_hits > 10


def test_nothing_is_kept_without_a_network_or_with_hidden_cards():
    from alphazero_nb.selfplay.settings import default_settings
    for name, network in (("tictactoe", None), ("blob(players=3,cards=2)", True)):
        game = get_game(name)
        network = network and PolicyValueNet(game, "cards", 0).eval()
        with SelfPlayEngine(game, network, "cpu", games=16, listeners=(), settings=default_settings(game)) as engine:
            engine.generate_games(16)
            assert engine.totals.report(0.0).cache_hits == 0 and engine.evaluations > 0
