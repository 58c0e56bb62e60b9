"Searches where cards are hidden: several worlds, one answer, and nothing of it from what the player cannot see."
import re

import numpy as np
import pytest

from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game
from alphazero_nb.games import blob as cards, tictactoe as stones
from alphazero_nb.network.evaluator import Ticket, UniformEvaluator
from alphazero_nb.search.search import SearchSettings, search
from alphazero_nb.search.worlds import draw_worlds, log_likelihoods, resample
from alphazero_nb.search.agent import Agent
from alphazero_nb.selfplay.slots import SlotBlock
from alphazero_nb.selfplay.settings import SelfPlaySettings
from alphazero_nb.selfplay.engine import SelfPlayEngine
from reference import HashEvaluator, Node, slow_search, visits_of


def round_states(game, count, seed=0):
    "Positions of random rounds in which there is something to decide."
    rng, found = np.random.default_rng(seed), []
    while len(found) < count:
        state = game.new(int(rng.integers(2**31)))
        for _ in range(rng.integers(game.max_length)):
            if game.over(state): break
            state = game.play(state, int(rng.choice(game.legal_actions(state))))
        if len(game.legal_actions(state)) > 1: found.append(state)
    return np.stack(found)


def test_only_games_that_hide_something_have_several_worlds():
    assert get_game("blob(players=3,cards=2)").has_hidden_information and not get_game("connect4").has_hidden_information
    game = get_game("tictactoe")
    one, two = (search(game, HashEvaluator(game), np.stack([game.new()]), SearchSettings(64, worlds=worlds)) for worlds in (1, 5))
    assert (one.visits == two.visits).all() and one.visits.sum() == 64


@pytest.mark.parametrize("worlds", [1, 2, 5])
def test_worlds_are_searched_like_positions_and_added_up(worlds):
    "Against the slow search in plain Python, in each world that was drawn."
    game = get_game("blob(players=3,cards=3)")
    evaluator, states = HashEvaluator(game), round_states(game, 12)
    found = search(game, evaluator, states, SearchSettings(30, worlds=worlds), seed=7)
    drawn = draw_worlds(game, states, worlds, 7)
    for number in range(len(states)):
        roots = [slow_search(game, evaluator, Node(game, world), 30) for world in drawn[number * worlds:(number + 1) * worlds]]
        assert (found.visits[number] == sum(visits_of(game, root) for root in roots)).all()
        mean = sum(root.sums for root in roots) / sum(root.visits for root in roots)
        assert np.allclose(found.values[number], mean, atol=1e-5)


def test_a_search_sees_nothing_that_its_player_does_not_see():
    "Swap the cards that others hold: the observation stays, and so does every visit."
    game = get_game("blob(players=4,cards=4)")
    states = round_states(game, 40, seed=3)
    swapped = np.stack([game.resample_hidden(state, 5 + k) for k, state in enumerate(states)])
    assert (swapped != states).any(1).sum() > 20, "the others' cards are other cards"
    for evaluator in (HashEvaluator(game), UniformEvaluator(game)):
        here, there = (search(game, evaluator, rows, SearchSettings(24, worlds=3), seed=1) for rows in (states, swapped))
        assert (here.visits == there.visits).all() and (here.values == there.values).all()
    here, there = (Agent(game, HashEvaluator(game), 24, seed=2).acts(rows) for rows in (states, swapped))
    assert (here == there).all()


def test_an_agent_draws_new_worlds_for_every_decision():
    game = get_game("blob(players=4,cards=4)")
    state = round_states(game, 1, seed=3)
    agent, again = (Agent(game, HashEvaluator(game), 40, seed=2) for _ in range(2))
    first, second = agent.search(state).visits, agent.search(state).visits
    assert (first != second).any() and (again.search(state).visits == first).all(), "and the same ones for the same seed"


class Answering(HashEvaluator):
    "Answers at once, as an evaluator that a block submits to."
    def submit(self, *request):
        ticket = Ticket(request)
        ticket._resolve(self.evaluate(*request))
        return ticket


def play(game, evaluator, numbers, settings, slots=4):
    "Games played in a block by hand, by number."
    block, waiting, records = SlotBlock(game, slots, settings), list(numbers), {}
    for slot in range(slots):
        if waiting: block.begin(slot, waiting[0], 100 + waiting.pop(0), 0)
    while len(records) < len(numbers):
        block.advance()
        for record in block.collect(): records[record.number] = record
        for slot in np.flatnonzero(block.slots["number"] < 0):
            if waiting: block.begin(slot, waiting[0], 100 + waiting.pop(0), 0)
        if block.requests.count:
            assert block.requests.count <= slots * block.worlds
            block.submit(evaluator)
        block.receive()
    return records


@pytest.mark.parametrize("worlds", [1, 3])
def test_self_play_keeps_the_true_game_and_every_full_search_spends_its_budget(worlds):
    game = get_game("blob(players=3,cards=3)")
    settings = SelfPlaySettings(SearchSettings(20, worlds=worlds), fast_simulations=5, full_search_fraction=.5)
    records = play(game, Answering(game), range(12), settings)
    searched = 0
    for record in records.values():
        state = game.new(record.seed)
        for t in range(len(record)):
            assert record.movers[t] == game.mover(state)
            here = slice(*record.policy_offsets[t:t + 2])
            actions, visits = record.policy_actions[here], record.policy_visits[here]
            legal = game.legal_actions(state)
            assert set(actions) <= set(legal) and (len(legal) > 1 or not len(visits)), "a forced move is played without a search"
            if len(visits): assert visits.sum() == 20 * worlds
            searched += len(visits) > 0
            state = game.play(state, int(record.actions[t]))
        assert game.over(state) and (record.outcome == game.returns(state)).all()
    assert searched > 20


def test_a_game_is_the_same_whatever_plays_beside_it():
    game = get_game("blob(players=4,cards=2)")
    settings = SelfPlaySettings(SearchSettings(16, worlds=2), fast_simulations=4)
    alone, many = (play(game, Answering(game), numbers, settings, slots) for numbers, slots in ((range(3), 1), (range(9), 5)))
    assert all(alone[number] == many[number] for number in alone)


def test_threads_and_processes_play_the_same_rounds():
    game = get_game("blob(players=3,cards=2)")
    settings = SelfPlaySettings(SearchSettings(12, worlds=3), fast_simulations=4)
    found = []
    for layout in (dict(layout="threads", threads=2), dict(workers=2)):
        with SelfPlayEngine(game, None, device="cpu", games=16, max_batch=4, seed=5, settings=settings, listeners=(), **layout) as engine:
            found.append(engine.generate_games(40))
    assert found[0] == found[1]


def test_worlds_that_hide_nothing_are_the_game_itself():
    "Tic-tac-toe that claims to hide something: every world is the position, and the visits are those of one search, times the worlds."
    def resample_hidden(state, seed): pass
    same = Game("open_secret", start=stones.start, mover=stones.mover, legal=stones.legal, play=stones.play, returns=stones.returns,
                observe=stones.observe, resample_hidden=resample_hidden, state_size=12, players=2, actions=9, shape=(2, 3, 3), max_length=9)
    plain = get_game("tictactoe")
    states = np.stack([plain.new(), plain.state_after([4, 0, 8])])
    one = search(plain, HashEvaluator(plain), states, SearchSettings(50, proofs=False))
    three = search(same, HashEvaluator(same), states, SearchSettings(50, worlds=3, proofs=False))
    assert same.has_hidden_information and (three.visits == 3 * one.visits).all() and np.allclose(three.values, one.values)


@pytest.mark.parametrize("worlds", [0, -1, 64, float("nan")])
def test_bad_numbers_of_worlds_are_refused(worlds):
    with pytest.raises(ValueError, match="worlds is"): SearchSettings(worlds=worlds)


def test_the_worlds_of_a_bid_know_the_own_hand_only():
    game = get_game("blob(players=4,cards=5)")
    state = game.new(3)
    me = game.mover(state)
    for world in draw_worlds(game, np.stack([state]), 50, 0):
        assert cards.hands(world)[me] == cards.hands(state)[me]


def test_a_bust_is_worth_the_same_in_the_search_and_in_the_target():
    "The last card of a round decides: what the search backs up there is what the network learns."
    from alphazero_nb.training.replay import Replay
    game, simulations, seen = get_game("blob(players=3,cards=2)"), 10, set()
    with SelfPlayEngine(game, None, "cpu", games=16, settings=SelfPlaySettings(SearchSettings(4), full_search_fraction=1.0), layout="threads",
                        listeners=()) as engine: records = engine.generate_games(60)
    for record in records:
        state, mover = game.state_after(record.actions[:-1], record.seed), int(record.movers[-1])
        found = search(game, UniformEvaluator(game), state[None], SearchSettings(simulations, worlds=1)).values[0]
        backed_up = found * (simulations + 1) / simulations      # Beside the results, the root's own value of 0
        replay = Replay(game)
        replay.add([record])
        at = np.flatnonzero(np.diff(record.policy_offsets) > 0)[0]
        first = int(record.movers[at])
        target = replay.sample(50, np.random.default_rng(0)).values
        relative = np.roll(record.outcome, -first)
        assert (np.abs(target - relative).max(1) < 1e-6).any(), "the target is the outcome, seen from the mover"
        assert np.allclose(backed_up, record.outcome, atol=1e-5) and mover >= 0
        seen |= {round(float(value), 3) for value in record.outcome}
    assert -1.0 in seen and max(seen) > .6, "busts and bids that were met"


def test_cards_have_settings_of_their_own():
    from alphazero_nb.selfplay.settings import EFFORTS, default_settings
    game = get_game("blob(players=3,cards=2)")
    assert list(EFFORTS) == ["light", "medium", "heavy"]
    usual = SelfPlaySettings(random_start_fraction=.5, random_start_plies=4)
    assert default_settings(get_game("tictactoe")) == usual and default_settings(game).random_start_fraction == 0
    light, medium, heavy = EFFORTS.values()
    assert all(less < more for rows in ((light, medium), (medium, heavy)) for less, more in zip(*rows)), "worlds and simulations grow"
    for effort, (worlds, simulations) in EFFORTS.items():
        chosen = default_settings(game, effort)
        assert (chosen.search.worlds, chosen.search.simulations, chosen.full_search_fraction) == (worlds, simulations, 1.0)
    with pytest.raises(ValueError, match="effort 'lihgt' is unknown.*Did you mean 'light'"): default_settings(game, "lihgt")


def _fails_late(state, planes):
    if state[cards.DONE] == 1: raise ValueError("cannot be told")


def _deals_badly(state, seed):
    if state[cards.DONE] == 1: raise ValueError("cannot be dealt")


@pytest.mark.parametrize("broken, words", [("privileged", "cannot be told"), ("resample_hidden", "cannot be dealt")])
def test_an_error_in_a_world_names_moves_that_reproduce_it_if_there_are_any(broken, words):
    from alphazero_nb.selfplay.slots import GameFailed, retrace
    game = get_game("blob(players=3,cards=3)")
    rules = {name: game.functions[name] for name in ("start", "mover", "legal", "play", "returns", "observe", "resample_hidden", "privileged")}
    rules[broken] = dict(privileged=_fails_late, resample_hidden=_deals_badly)[broken]
    bad = Game("bad", **rules, privileged_size=game.privileged_size, state_size=game.state_size, players=3, actions=game.actions,
               shape=game.shape, max_length=game.max_length)
    with SelfPlayEngine(bad, None, "cpu", games=4, layout="threads", listeners=()) as engine:
        with pytest.raises(GameFailed, match=words) as told: engine.generate_games(4)
    again = re.search(r"retrace\(game, (\d+), (\[.*?\])\)", str(told.value))
    if broken == "privileged": assert again is None and "in a sampled world during the search after the moves [" in str(told.value)
    else:
        with pytest.raises(ValueError, match=words): retrace(bad, int(again[1]), [int(move) for move in again[2][1:-1].split(",")])
    moves, state = [], bad.new(1)
    while state[cards.DONE] < 1:
        moves.append(bad.legal_actions(state)[0])
        state = bad.play(state, moves[-1])
    with pytest.raises(ValueError, match=words): retrace(bad, 1, moves)



def test_what_is_revealed_has_a_size_and_stands_behind_a_vector():
    game = get_game("tictactoe")
    rules = {name: game.functions[name] for name in ("start", "mover", "legal", "play", "returns", "observe")}
    def made(**more):
        return Game("half", **rules, **more, state_size=game.state_size, players=2, actions=9, shape=game.shape, max_length=9)
    with pytest.raises(ValueError, match="go together"): made(privileged_size=3)
    with pytest.raises(ValueError, match="go together"): made(privileged=game.functions["observe"])
    with pytest.raises(ValueError, match="is a vector"): made(privileged=game.functions["observe"], privileged_size=18)


# Likely worlds


@pytest.mark.parametrize("name", ["blob(players=3,cards=2)", "blob(players=4,cards=5)", "blob(players=5,cards=7,game=full)"])
def test_the_positions_of_earlier_bids_are_those_in_which_they_were_made(name):
    "Against the rounds themselves: what the bidder saw and could bid then is what the written position shows."
    game, rng, seen = get_game(name), np.random.default_rng(1), 0
    for number in range(30):
        state, bids = game.new(number), []
        for _ in range(rng.integers(1, game.max_length)):
            if game.over(state): break
            if game.mover(state) < 0:
                state, bids = game.pass_chance(state, number)[0], []
                continue
            action = int(rng.choice(game.legal_actions(state)))
            if action >= cards.BID: bids.append((state.copy(), action))
            state = game.play(state, action)
        if game.over(state) or game.mover(state) < 0: continue
        room = game.players - 1
        before, owners, actions = np.empty((room, game.state_size), np.int16), np.empty(room, np.int64), np.empty(room, np.int64)
        count = game.earlier(state[None], before, owners, actions)
        others = [(one, action) for one, action in bids if game.mover(one) != game.mover(state)]
        assert count == len(others) and not owners[:count].any() and [action for _, action in others] == actions[:count].tolist()
        for (one, _), row in zip(others, before):
            assert game.mover(row) == game.mover(one) and game.legal_actions(row) == game.legal_actions(one)
            assert np.array_equal(game.observe(row), game.observe(one))
            seen += 1
    assert seen > 30


def test_likely_worlds_are_those_of_bayes():
    "All deals of two hidden cards, weighed by hand with the policy of an evaluator, against the worlds that were drawn."
    game = get_game("blob(players=3,cards=1)")
    evaluator = HashEvaluator(game)
    state = game.new(5)
    for bid in (1, 0): state = game.play(state, cards.BID + bid)
    mover, (first, second) = game.mover(state), [(game.mover(state) + k) % 3 for k in (1, 2)]
    mine = int(np.flatnonzero(state[:52] == cards.HAND + mover)[0])
    worlds = []
    for one in range(52):
        for two in range(52):
            if len({one, two, mine}) < 3: continue
            world = state.copy()
            world[:52] = 0
            world[[mine, one, two]] = cards.HAND + mover, cards.HAND + first, cards.HAND + second
            worlds.append(world)
    worlds = np.stack(worlds)
    weight = []
    for world in worlds:
        share, row = 1.0, world.copy()
        row[cards.BIDS:cards.BIDS + 3], row[cards.BIDDERS] = -1, 0
        row[cards.MOVER] = first
        for bid in (1, 0):
            actions = game.legal_actions(row)
            logits, _ = evaluator.evaluate(game.inputs(row)[None], np.array([0, len(actions)], np.int32), np.array(actions, np.int32))
            share *= np.exp(logits[actions.index(cards.BID + bid)]) / np.exp(logits).sum()
            row = game.play(row, cards.BID + bid)
        weight.append(share)
    assert np.allclose(np.exp(log_likelihoods(game, evaluator, worlds)), weight, rtol=1e-4)
    exact = np.bincount(np.argmax(worlds[:, :52] == cards.HAND + first, 1), weight, 52) / sum(weight)
    drawn = draw_worlds(game, state[None], 4000, 3, evaluator, 16)
    found = np.bincount(np.argmax(drawn[:, :52] == cards.HAND + first, 1), minlength=52) / len(drawn)
    plain = np.bincount(np.argmax(draw_worlds(game, state[None], 64000, 3)[:, :52] == cards.HAND + first, 1), minlength=52) / 64000
    assert abs(found - exact).max() < .012 and abs(found - exact).sum() < .7 * abs(plain - exact).sum()


def test_resampling_keeps_each_as_often_as_its_share_says():
    rng = np.random.default_rng(0)
    likelihoods = np.log(rng.dirichlet(np.ones(40), 6)) - 300
    share = np.exp(likelihoods + 300)
    kept = np.stack([np.bincount(row, minlength=40) for row in resample(likelihoods, 25, rng)])
    assert (kept.sum(1) == 25).all() and (abs(kept - 25 * share) < 1 + 1e-9).all()
    mean = np.mean([np.stack([np.bincount(row, minlength=40) for row in resample(likelihoods, 25, rng)]) for _ in range(400)], 0)
    assert abs(mean - 25 * share).max() < .15


def test_likely_worlds_show_nothing_that_is_hidden():
    game = get_game("blob(players=4,cards=4)")
    states, evaluator = round_states(game, 20, seed=3), HashEvaluator(game)
    swapped = np.stack([game.resample_hidden(state, 5 + k) for k, state in enumerate(states)])
    for one, two in zip(states, swapped):
        a, b = (draw_worlds(game, row[None], 4, 2, evaluator, 8) for row in (one, two))
        assert np.array_equal(a, b)
        assert all(np.array_equal(game.observe(world), game.observe(one)) for world in a)


def test_an_agent_draws_likely_worlds_where_a_game_shows_choices():
    game = get_game("blob(players=3,cards=2)")
    states, evaluator = round_states(game, 30, seed=8), HashEvaluator(game)
    asked = [Agent(game, evaluator, 16, worlds=3, **more).search(states).visits for more in (dict(candidates=8), dict(candidates=8), {})]
    assert (asked[0] == asked[1]).all() and (asked[0] != asked[2]).any()
    for wrong in (0, 1001, 2.5):
        with pytest.raises(ValueError, match="candidates"): Agent(game, evaluator, candidates=wrong)
