"One card each: the chance to win the trick, counted over all deals in plain Python, against the game's own deals and a search's bids."
import functools
import math
from itertools import combinations, permutations

import numpy as np
import pytest

from alphazero_nb.core.registry import get_game
from alphazero_nb.games import blob as rules
from alphazero_nb.games.blob import BID, HAND
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent

SUITS, RANKS, BORDER = "♠♥♣♦", "23456789TJQKA", 10 / 21
DECK = [suit + rank for suit in SUITS for rank in RANKS]


def number(card): return DECK.index(card)


def best_of(trick, trump):
    "The card that wins these, the first of which is led."
    trumps = [card for card in trick if card[0] == trump]
    return max(trumps or [card for card in trick if card[0] == trick[0][0]], key=lambda card: RANKS.index(card[1]))


@functools.cache
def exact_chance(card, trump, leads):
    "Over all deals to the other three: of those to a leader their order does not matter, behind one it is who leads that does."
    others = [other for other in DECK if other != card]
    if leads:
        won = [best_of((card, *three), trump) == card for three in combinations(others, 3)]
        return sum(won) / len(won)
    won = total = 0
    for first in others:
        if best_of((first, card), trump) != card:   # It loses to the leader already, whatever the other two hold
            total += math.comb(50, 2)
            continue
        harmless = sum(best_of((first, card, other), trump) == card for other in others if other != first)
        won, total = won + math.comb(harmless, 2), total + math.comb(50, 2)
    return won / total


def table(card, trump, place, bids=None, players=4):
    "The mover sits `place` seats behind the leader and holds this card; `bids` were made before it."
    state, me = get_game(f"blob(players={players},cards=1)").new(), (1 + place) % players
    state[:rules.CARDS] = 0
    state[rules.TRUMP] = rules.NO_TRUMP if trump is None else SUITS.index(trump)
    state[rules.DEALER], state[rules.MOVER], state[rules.BIDDERS] = 0, me, place
    state[rules.BIDS + 1:rules.BIDS + 1 + place] = [1] * place if bids is None else bids
    dealt = iter(other for other in range(52) if other != number(card))
    for seat in range(players): state[number(card) if seat == me else next(dealt)] = HAND + seat
    return state


def points(game, state, bid):
    "What the mover scores with this bid when everybody after it bids the least."
    me, state = game.mover(state), game.play(state, BID + bid)
    while not game.over(state): state = game.play(state, game.legal_actions(state)[0])
    return rules.scores(state)[me]


CASES = [("♠A", "♠", 2), ("♠4", "♠", 0), ("♠3", "♠", 3), ("♥A", "♠", 0), ("♥A", "♠", 1), ("♣2", None, 0), ("♣9", None, 0), ("♦K", None, 3)]


def test_every_order_of_a_deal_counted_one_by_one_gives_the_same():
    "The short cut of the enumeration against all 51 · 50 · 49 ordered deals."
    for card, trump in (("♥Q", "♠"), ("♥Q", None)):
        others = [other for other in DECK if other != card]
        won = sum(best_of((first, card, *rest), trump) == card for first, *rest in permutations(others, 3))
        assert won / (51 * 50 * 49) == pytest.approx(exact_chance(card, trump, False))


def test_a_trump_and_a_lead_without_trump_lose_to_higher_cards_of_their_suit_only():
    for higher, rank in enumerate(reversed(RANKS)):
        simple = math.comb(51 - higher, 3) / math.comb(51, 3)
        assert exact_chance("♦" + rank, None, True) == pytest.approx(simple)
        assert exact_chance("♦" + rank, "♦", False) == pytest.approx(simple)
    assert exact_chance("♦3", "♦", True) < BORDER < exact_chance("♦4", "♦", True)


def test_somebody_wins():
    "Over all cards, the leader and the three others win one trick together; plain suits are alike."
    for trump, suits in ((None, "♣"), ("♥", "♥♣♣♣")):
        leads, follows = (np.mean([exact_chance(suit + rank, trump, first) for suit in suits for rank in RANKS]) for first in (True, False))
        assert leads + 3 * follows == pytest.approx(1)


@pytest.mark.parametrize("card, trump, place", CASES)
def test_the_deals_of_the_game_win_as_often_as_all_deals(card, trump, place):
    game, state, draws = get_game("blob(players=4,cards=1)"), table(card, trump, place), 4000
    p = exact_chance(card, trump, place == 0)
    worlds = [game.resample_hidden(state, seed) for seed in range(draws)]
    one, zero = (np.array([points(game, world, bid) for world in worlds]) for bid in (1, 0))
    assert set(one) <= {0, 11} and set(zero) <= {0, 10} and ((one > 0) != (zero > 0)).all(), "in a world exactly one bid is kept"
    assert abs((one > 0).mean() - p) <= 4.5 * math.sqrt(p * (1 - p) / draws)
    if abs(p - BORDER) > .1: assert (one.mean() > zero.mean()) == (p > BORDER)


def test_a_search_bids_what_is_exact_where_that_is_clear():
    "Every second rank as trump, and led and followed with and without trump, fifty worlds each."
    game, states, chances = get_game("blob(players=4,cards=1)"), [], []
    for suit, trump, place in [("♠", "♠", place) for place in range(4)] + [("♥", trump, place) for trump in ("♠", None) for place in (0, 1, 3)]:
        for rank in RANKS[::2]:
            p = exact_chance(suit + rank, trump, place == 0)
            if abs(p - BORDER) > .2: states, chances = states + [table(suit + rank, trump, place)], chances + [p]
    assert sum(p > BORDER for p in chances) > 10 and sum(p < BORDER for p in chances) > 25
    bids = Agent(game, UniformEvaluator(game), simulations=100, worlds=50, seed=3).acts(np.stack(states)) - BID
    assert bids.tolist() == [int(p > BORDER) for p in chances]


@pytest.mark.parametrize("bids, left", [((0, 0, 0), [0]), ((1, 0, 0), [1]), ((1, 1, 0), [0, 1]), ((1, 1, 1), [0, 1])])
def test_a_dealer_with_one_card_is_seldom_free(bids, left):
    "The three before decide: no bid yet leaves 0, a sum of one leaves 1, and the search bids so with the best and the worst card."
    game = get_game("blob(players=4,cards=1)")
    agent = Agent(game, UniformEvaluator(game), simulations=50, worlds=20)
    for card, wish in (("♠A", 1), ("♥2", 0)):
        state = table(card, "♠", 3, bids)
        assert [action - BID for action in game.legal_actions(state)] == left
        assert agent.act(state) - BID == (wish if wish in left else left[0])


def test_visits_are_votes_of_worlds():
    "Three players, a plain queen leads: 1 is worth more although it wins less than half of the deals; visits go with the deals."
    p = math.comb(36, 2) / math.comb(51, 2)
    others = [card for card in DECK if card != "♠Q"]
    assert p == pytest.approx(np.mean([best_of(("♠Q", *two), "♥") == "♠Q" for two in combinations(others, 2)]))
    assert BORDER < p < .5 and 11 * p > 10 * (1 - p)
    game = get_game("blob(players=3,cards=1)")
    state = table("♠Q", "♥", 0, players=3)
    visits = sum(Agent(game, UniformEvaluator(game), simulations=400, worlds=60, seed=seed).search(state).visits[0] for seed in range(40))
    share = visits[BID + 1] / visits[BID:BID + 2].sum()
    assert abs(share - p) < 4.5 * math.sqrt(p * (1 - p) / 2400) + .02
