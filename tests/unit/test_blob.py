"Blob: held against OpenSpiel's Oh Hell where the rules coincide, against worked examples where they do not; worlds are drawn fairly."
import functools
import itertools
import math
from collections import Counter

import numpy as np
import pytest

from alphazero_nb.core.streams import Purpose, derive_seed
from alphazero_nb.core.registry import get_game
from alphazero_nb.games import blob as rules
from alphazero_nb.games.blob import (BID, HAND, NO_TRUMP, TABLE, VOIDS, bids, blob, dealer, hands, on_table, scores,
                                     tricks, trump)
from alphazero_nb.selfplay.slots import SlotBlock
from alphazero_nb.selfplay.settings import default_settings

SPADES, HEARTS, CLUBS, DIAMONDS = range(4)


made = functools.cache(blob)


def card(name): return 13 * "♠♥♣♦".index(name[0]) + "23456789TJQKA".index(name[1])


def table(hands_, trump=NO_TRUMP, dealer=0, players=None):
    "A round with these hands (names of cards, by seat), before the bidding."
    players = len(hands_)
    state = made(players, len(hands_[0].split())).new()
    state[:52] = 0
    for seat, hand in enumerate(hands_):
        for name in hand.split(): state[card(name)] = HAND + seat
    state[rules.TRUMP], state[rules.DEALER], state[rules.MOVER] = trump, dealer, (dealer + 1) % players
    return state


def random_game(game, seed):
    "Every state of a random game."
    state, rng = game.new(seed), np.random.default_rng(seed)
    yield state
    while not game.over(state):
        state = game.play(state, int(rng.choice(game.legal_actions(state))))
        yield state


# Against OpenSpiel -------------------------------------------------------------------------------

def theirs(action): return action if action >= BID else action % 13 * 4 + (2, 3, 0, 1)[action // 13]


@pytest.mark.parametrize("players", range(3, 8))
def test_the_rules_are_those_of_openspiel(players):
    pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed")
    decisions, restricted, rng = 0, 0, np.random.default_rng(players)
    for seed in itertools.count():
        if decisions > 3000: break
        cards = int(rng.choice([1, 3, min(6, 51 // players)]))   # One card shows their trump
        game = made(players, cards)
        state = game.new(seed)
        if trump(state) == NO_TRUMP: continue
        twin = pyspiel.load_game(f"oh_hell(players={players},num_tricks_fixed={cards},off_bid_penalty=true)").new_initial_state()
        twin.apply_action(cards)
        twin.apply_action(dealer(state))
        dealt = hands(state)
        for k in range(players * cards): twin.apply_action(theirs(dealt[k % players][k // players]))
        shown = next(c for c in range(13 * trump(state), 13 * trump(state) + 13) if state[c] == 0) if any(
            state[c] == 0 for c in range(13 * trump(state), 13 * trump(state) + 13)) else None
        if shown is None: continue
        twin.apply_action(theirs(shown))
        while not game.over(state):
            legal = game.legal_actions(state)
            assert sorted(map(theirs, legal)) == sorted(twin.legal_actions()) and game.mover(state) == twin.current_player()
            restricted += sum(map(lambda bid: bid < 0, bids(state))) == 1 and len(legal) == cards
            action = int(rng.choice(legal[:2] if rng.random() < .8 else legal))   # Low bids leave the dealer something to avoid
            state, decisions = game.play(state, action), decisions + 1
            twin.apply_action(theirs(action))
        assert twin.is_terminal() and scores(state) == [max(0, score) for score in twin.returns()]
    assert decisions > 3000 and restricted > 20


# Worked examples ---------------------------------------------------------------------------------

def test_the_highest_trump_wins_or_the_highest_of_the_suit_led():
    hands_ = ["♠2 ♥3", "♠A ♥4", "♥2 ♣A"]
    for suit, winner in ((NO_TRUMP, 1), (SPADES, 1), (HEARTS, 2), (CLUBS, 1), (DIAMONDS, 1)):
        game, state = made(3, 2), table(hands_, suit, dealer=2)
        for bid in (0, 0, 0): state = game.play(state, BID + bid)
        for name in ("♠2", "♠A", "♥2"): state = game.play(state, card(name))
        assert game.mover(state) == winner and tricks(state) == [seat == winner for seat in range(3)]


def test_who_can_follow_must_and_who_cannot_shows_it():
    game, state = made(3, 2), table(["♠2 ♥3", "♠A ♥4", "♥2 ♣A"], dealer=2)
    for bid in (0, 0, 0): state = game.play(state, BID + bid)
    state = game.play(state, card("♠2"))
    assert game.legal_actions(state) == [card("♠A")]
    state = game.play(state, card("♠A"))
    assert game.legal_actions(state) == sorted([card("♥2"), card("♣A")])
    with pytest.raises(ValueError, match="not legal"): game.play(state, card("♠3"))
    state = game.play(state, card("♣A"))
    assert state[VOIDS:VOIDS + 3].tolist() == [0, 0, 1 << SPADES]


@pytest.mark.parametrize("others, forbidden", [((1, 1), 0), ((0, 0), 2), ((2, 2), None), ((0, 2), 0)])
def test_the_dealer_may_not_make_the_bids_fit(others, forbidden):
    game, state = made(3, 2), table(["♠2 ♥3", "♠A ♥4", "♥2 ♣A"], dealer=2)
    for bid in others: state = game.play(state, BID + bid)
    assert game.mover(state) == 2 and game.legal_actions(state) == [BID + bid for bid in range(3) if bid != forbidden]


def test_an_exact_bid_scores_ten_and_the_bid_and_nothing_else_scores():
    game, state = made(3, 1), table(["♠2", "♠A", "♥2"], dealer=2)
    for action in (BID + 0, BID + 1, BID + 1, card("♠2"), card("♠A"), card("♥2")): state = game.play(state, action)
    assert scores(state) == [10, 11, 0] and game.over(state)
    assert np.allclose(game.returns(state), [2 * 10 / 11 - 1, 1, -1])


def test_a_full_game_is_seventeen_rounds_for_five_players_and_seven_cards():
    game, seen = made(5, 7, game="full"), []
    for state in random_game(game, 0):
        told = (int(state[rules.ROUND]), int(state[rules.SIZE]), trump(state), dealer(state))
        if not seen or seen[-1] != told and not game.over(state): seen.append(told)
    assert [size for _, size, _, _ in seen] == [7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7]
    assert [suit for _, _, suit, _ in seen] == [number % 5 for number in range(17)]
    assert all((b - a) % 5 == 1 for (*_, a), (*_, b) in zip(seen, seen[1:]))
    assert len(list(random_game(game, 0))) == game.max_length + 1


@pytest.mark.parametrize("players, cards, options", [(3, 1, {}), (4, 5, {}), (8, 6, {}), (4, 13, {}), (3, 3, dict(game="full")),
                                                     (8, 6, dict(deals="all")), (4, 5, dict(deals="cards"))])
def test_laws_of_the_contract(players, cards, options):
    game = made(players, cards, **options)
    game.check(games=6)
    assert get_game(game.name).name == game.name
    for seed in range(20):
        *_, last = random_game(game, seed)
        assert game.over(last) and (np.abs(game.returns(last)) <= 1).all()


@pytest.mark.parametrize("arguments, words", [
    (dict(players=2), "3 to 8 players"), (dict(players=9), "3 to 8 players"), (dict(cards=0), "1 to 13 cards"), (dict(cards=14), "1 to 13"),
    (dict(players=5, cards=11), "55 cards; there are 52"), (dict(game="half"), "round or full"), (dict(game="full", deals="all"), "leave deals out"),
])
def test_bad_tables_are_one_sentence(arguments, words):
    with pytest.raises(ValueError, match=words): blob(**arguments)


def test_self_play_deals_every_table():
    game = made(6, 4, deals="all")
    states = [game.new(seed) for seed in range(8000)]
    for index, values in ((rules.PLAYERS, range(3, 7)), (rules.SIZE, range(1, 5)), (rules.TRUMP, range(5))):
        counts = Counter(int(state[index]) for state in states)
        assert set(counts) == set(values)
        expected = 8000 / len(values)
        assert sum((n - expected) ** 2 / expected for n in counts.values()) < 25   # Chi-squared of 3 or 4 degrees; 0.01 % lies above 23.5
    dealers = Counter((int(state[rules.PLAYERS]), dealer(state)) for state in states)
    assert len(dealers) == 3 + 4 + 5 + 6 and min(dealers.values()) > 200
    cards = Counter(c for state in states for c in hands(state)[0])
    mean = sum(cards.values()) / 52
    assert len(cards) == 52 and sum((n - mean) ** 2 / mean for n in cards.values()) < 100   # 51 degrees; 0.01 % lies above 95


# What the mover may know -------------------------------------------------------------------------

@pytest.mark.parametrize("players, cards", [(3, 4), (5, 5), (8, 6)])
def test_worlds_are_what_was_seen_and_nothing_else(players, cards):
    "Own hand, played cards, numbers of cards and shown voids stay; and the rest does not depend on the true hands."
    game = made(players, cards)
    for seed in range(40):
        for ply, state in enumerate(random_game(game, seed)):
            if game.over(state): break
            me, world = game.mover(state), game.resample_hidden(state, 1000 * seed + ply)
            assert (game.observe(world) == game.observe(state)).all() and game.legal_actions(world) == game.legal_actions(state)
            assert hands(world)[me] == hands(state)[me] and [*map(len, hands(world))] == [*map(len, hands(state))]
            assert (world[:52] >= rules.GONE).tolist() == (state[:52] >= rules.GONE).tolist()
            for seat in range(players):
                assert not any(state[VOIDS + seat] >> (c // 13) & 1 for c in hands(world)[seat])
            again = game.resample_hidden(game.resample_hidden(state, 7), 1000 * seed + ply)
            assert (again == world).all(), "from whatever deal one starts, a seed gives the same world"


def consistent(state):
    "Every deal that fits what the mover knows, as hands of the others, by brute force."
    me, players = int(state[rules.MOVER]), int(state[rules.PLAYERS])
    others = [seat for seat in range(players) if seat != me]
    need = [sum(state[:52] == HAND + seat) for seat in others]
    unseen = [c for c in range(52) if state[c] == 0 or any(state[c] == HAND + seat for seat in others)]
    allowed = [[c for c in unseen if not state[VOIDS + seat] >> (c // 13) & 1] for seat in others]
    def split(k, taken):
        if k == len(others):
            yield ()
            return
        for hand in itertools.combinations([c for c in allowed[k] if c not in taken], need[k]):
            for rest in split(k + 1, taken | set(hand)): yield (hand, *rest)
    return list(split(0, frozenset()))


def small_deck(state, keep):
    "The same position with a deck of few cards: all others are gone, played by the mover."
    state = state.copy()
    for c in range(52):
        if state[c] == 0 and c not in keep: state[c] = rules.GONE + state[rules.MOVER]
    return state


@pytest.mark.parametrize("voids", [(0, 0), (1, 0), (0b0101, 0b0010), (0b0011, 0b0110), (0b1110, 0b0001)])
def test_every_consistent_deal_is_drawn_equally_often(voids):
    hands_ = ["♠2 ♥2 ♣2", "♥3 ♦4 ♦7", "♣3 ♠8 ♦3"]
    state = table(hands_, dealer=2)
    spare = [card(name) for name in ("♠5", "♥6", "♦9", "♣8")]
    state = small_deck(state, spare)
    state[VOIDS + 1], state[VOIDS + 2] = voids
    deals = consistent(state)
    if not deals:
        with pytest.raises(ValueError, match="no deal fits"): made(3, 3).resample_hidden(state, 0)
        return
    game, each = made(3, 3), min(60, max(20, 60_000 // len(deals)))   # Many deals show a bias with fewer draws of each
    assert game.mover(state) == 0
    draws = range(each * len(deals))
    counts = Counter(tuple(tuple(hand) for hand in hands(game.resample_hidden(state, seed))[1:]) for seed in draws)
    assert set(counts) == set(deals), "each, and no other"
    chi = sum((counts[deal] - each) ** 2 / each for deal in deals)
    degrees = len(deals) - 1
    assert chi < degrees + 4 * math.sqrt(2 * degrees) + 8, (chi, degrees)   # Four standard deviations and a little


def test_an_impossible_table_is_an_error():
    state = table(["♠2", "♥3", "♦4"], dealer=2)
    state[VOIDS + 1] = 0b1111
    with pytest.raises(ValueError, match="no deal fits"): made(3, 1).resample_hidden(state, 0)


def test_a_table_where_all_others_are_void_in_something_is_dealt():
    game = made(8, 6)
    for seed in range(20):
        state = game.new(seed)
        for seat in range(8): state[VOIDS + seat] = 1 << (seat + seed) % 4
        me, world = game.mover(state), game.resample_hidden(state, seed)
        assert [*map(len, hands(world))] == [6] * 8 and hands(world)[me] == hands(state)[me]
        assert not any(state[VOIDS + seat] >> (c // 13) & 1 for seat in range(8) if seat != me for c in hands(world)[seat])


def turned(state, order):
    "The position with its suits exchanged."
    other = state.copy()
    for c in range(52): other[13 * order[c // 13] + c % 13] = state[c]
    for index in (rules.TRUMP, rules.LED):
        if 0 <= state[index] < 4: other[index] = order[state[index]]
    for seat in range(8): other[VOIDS + seat] = sum(1 << order[suit] for suit in range(4) if state[VOIDS + seat] >> suit & 1)
    return other


def test_suits_are_alike():
    game = made(4, 5)
    observations, actions = game.symmetries
    assert len(observations) == 24 and (observations[0] == np.arange(game.input_size)).all()
    for seed in range(12):
        for state in random_game(game, seed):
            for number, order in enumerate(itertools.permutations(range(4))):
                other = turned(state, order)
                if game.over(state): assert (game.returns(other) == game.returns(state)).all()
                else:
                    assert (game.inputs(other) == game.inputs(state)[observations[number]]).all()
                    assert sorted(actions[number][game.legal_actions(state)]) == game.legal_actions(other)


# Opponents ---------------------------------------------------------------------------------------

def test_the_rule_plays_legal_moves_from_what_it_sees():
    for players, cards in ((3, 1), (4, 5), (8, 6)):
        game = made(players, cards)
        for seed in range(15):
            for state in random_game(game, seed):
                if game.over(state): break
                action = game.heuristic(state)
                assert action in game.legal_actions(state) and action == game.heuristic(game.resample_hidden(state, seed + 1))


def test_the_rule_makes_its_bid_more_often_than_chance():
    game, kept, rng = made(4, 5), np.zeros((2, 2)), np.random.default_rng(0)
    for deal in range(150):
        for who in range(2):   # The rule, then random moves, in seat 0 among rules
            state = game.new(deal)
            while not game.over(state):
                by_rule = game.mover(state) or not who
                state = game.play(state, game.heuristic(state) if by_rule else int(rng.choice(game.legal_actions(state))))
            kept[who] += bids(state)[0] == tricks(state)[0], scores(state)[0]
    assert kept[0, 0] > 55 > 40 > kept[1, 0] and kept[0, 1] > 1.5 * kept[1, 1]


def test_a_game_without_a_rule_says_so():
    from alphazero_nb.arena.players import get_player
    with pytest.raises(ValueError, match="connect4 has no heuristic"): get_player("heuristic", get_game("connect4"))


def test_rollouts_do_not_look_into_hands():
    from alphazero_nb.arena.players import RolloutPlayer
    game = made(4, 3)
    states = np.stack([next(itertools.islice(random_game(game, seed), 5, None)) for seed in range(12)])
    other = np.stack([game.resample_hidden(state, 9) for state in states])
    assert (states != other).any()
    first, second = (RolloutPlayer(game, 60, seed=3).acts(rows) for rows in (states, other))
    assert (first == second).all() and RolloutPlayer(game, 60).name == "determinized-rollouts:60"


def test_a_match_plays_the_same_deals_from_every_seat():
    from alphazero_nb.arena.matches import play_match
    game, seen = made(3, 2), []
    class Watcher:
        name = "watcher"
        def acts(self, states):
            seen.extend(map(tuple, (state[:52] for state in states if state[rules.BIDDERS] == 0)))
            return np.array([game.legal_actions(state)[0] for state in states])
    match = play_match(game, Watcher(), Watcher(), games=30)
    counts = Counter(seen)
    assert len(match.scores) == 30 and len(counts) == 10 and set(counts.values()) == {3}


# What a network sees -----------------------------------------------------------------------------

def slow_inputs(state, seats=4):
    "The places of every suit as lists in plain Python, for the mover and for the world."
    me, known, world = int(state[rules.MOVER]), [], []
    for suit in range(4):
        ranks = [13 * suit + rank for rank in range(12, -1, -1)]
        laid = dict((card, seat) for seat, card in on_table(state))
        held = {c: seat for seat, hand in enumerate(hands(state)) for c in hand}
        gone = {c for c in ranks if rules.GONE <= state[c] < TABLE}
        known.append([("own",) if held.get(c) == me else ("laid", (laid[c] - me) % seats) if c in laid else ("unseen",)
                      for c in ranks if c not in gone])
        world.append([((laid[c] if c in laid else held[c]) - me) % seats for c in ranks if c in laid or c in held])
    return known, world


def test_the_observation_lists_each_suit_from_the_top():
    game, places = made(4, 5), 13 + 13 * 4
    for seed in range(10):
        for state in random_game(game, seed):
            if game.over(state): break
            row, (known, world) = game.inputs(state), slow_inputs(state)
            for suit in range(4):
                part = row[suit * game.groups[1]:][places:places + 13 * 6].reshape(13, 6)
                told = [("own",) if p[0] else ("laid", int(p[1:5].argmax())) if p[1:5].any() else ("unseen",) for p in part if p.any()]
                assert told == known[suit] and (part.sum(1) <= 1).all()
                part = row[game.observation_size:].reshape(4, 13, 5)[suit]
                assert [int(p[:4].argmax()) for p in part if p[:4].any()] == world[suit]
                assert part[:, 4].sum() == sum(c // 13 == suit for _, c in on_table(state))


def test_the_observation_marks_the_cards_that_would_win_the_trick():
    game = made(4, 5)
    for seed in range(10):
        for state in random_game(game, seed):
            if game.over(state) or len(on_table(state)) == 0 or len(on_table(state)) == 3: continue
            suits = game.observe(state)[:4 * game.groups[1]].reshape(4, -1)
            wins = {13 * suit + rank for suit in range(4) for rank in range(13) if suits[suit][13 + 13 * 4 + 13 * 6 + rank]}
            led, lying = on_table(state)[0][1] // 13, [c for _, c in on_table(state)]
            def value(c): return (c // 13 == trump(state), c // 13 == led, c % 13)
            assert wins == {c for c in hands(state)[state[rules.MOVER]] if value(c) > max(map(value, lying))}


def test_points_and_exact_bids_are_means_over_the_rounds():
    game = made(3, 3, game="full")
    *_, state = random_game(game, 4)
    points, exact = game.measures(state).values()
    rounds = 2 * 2 + 3
    assert np.allclose(np.array(points) * rounds, scores(state)) and all(0 <= share <= 1 for share in exact)
    assert all((share == 0) == (point == 0) and point >= 10 * share for point, share in zip(points, exact))
    *_, state = random_game(made(4, 2), 1)
    assert [bool(share) for share in made(4, 2).measures(state)["exact bids"]] == [b == t for b, t in zip(bids(state), tricks(state))]


@pytest.mark.parametrize("preset", ["mlp", "tiny"])
def test_every_network_hides_hands_from_its_policy(preset):
    torch = pytest.importorskip("torch")
    from alphazero_nb.network.networks import PolicyValueNet
    game = made(4, 5)
    net = PolicyValueNet(game, preset).eval()
    for p in net.parameters(): torch.nn.init.normal_(p, std=.1)
    states = [state for state in random_game(game, 1) if not game.over(state)]
    (here, now), (there, then) = (net(torch.from_numpy(np.stack(rows)).float()) for rows in (
        [game.inputs(state) for state in states], [game.inputs(game.resample_hidden(state, 3)) for state in states]))
    assert torch.equal(here, there) and not torch.equal(now, then)


def test_the_network_for_cards_reads_suits_alike_and_hides_hands_from_its_policy():
    torch = pytest.importorskip("torch")
    from alphazero_nb.network.networks import PolicyValueNet, SuitNet
    game = made(4, 5)
    net = PolicyValueNet(game, "cards").eval()
    assert isinstance(net, SuitNet) and sum(p.numel() for p in net.parameters()) == 245_423
    for p in net.parameters(): torch.nn.init.normal_(p, std=.1)
    states = [state for seed in range(4) for state in random_game(game, seed) if not game.over(state)]
    def ask(rows): return [out.detach().numpy() for out in net(torch.from_numpy(np.stack(rows)).float())]
    logits, values = ask([game.inputs(state) for state in states])
    for observation, action in zip(*game.symmetries):
        turned, same = ask([game.inputs(state)[observation] for state in states])
        assert np.allclose(turned[:, action], logits, atol=1e-4) and np.allclose(same, values, atol=1e-4)
    other, judged = ask([game.inputs(game.resample_hidden(state, 3)) for state in states])
    assert np.allclose(other, logits, atol=1e-5) and np.abs(judged - values).max() > 1e-3


def test_what_reveals_wrongly_is_named():
    from alphazero_nb.core.game_check import ContractError
    from alphazero_nb.core.game import Game
    game = made(3, 2)
    def make(**changes):
        rules_ = {name: game.functions[name] for name in ("start", "mover", "legal", "play", "returns", "observe", "resample_hidden", "privileged")}
        return Game("broken", **{**rules_, **dict(state_size=game.state_size, players=3, actions=game.actions, shape=game.shape,
                    privileged_size=game.privileged_size, groups=game.groups, max_length=game.max_length), **changes})
    make().check(3)
    def careless(state, planes): state[0] = 7
    with pytest.raises(ContractError, match="privileged breaks the contract"): make(privileged=careless).check(3)
    with pytest.raises(ContractError, match="groups breaks the contract.*equal parts"): make(groups=(5, 10, 13)).check(3)
    telling = game.functions["privileged"]
    with pytest.raises(ContractError, match="resample_hidden breaks the contract.*the observation"):   # What is revealed is no observation
        make(observe=telling, shape=(game.privileged_size,), privileged=None, privileged_size=0, groups=None).check(3)


def test_a_slot_draws_other_numbers_than_its_deal():
    "Worlds and moves drawn from the numbers of the deal would know something of it. Both generators walk in equal steps."
    game, step = get_game("blob(players=3,cards=5)"), 0x9E3779B97F4A7C15
    block = SlotBlock(game, 1, default_settings(game))
    for number in range(20):
        seed = derive_seed(1, Purpose.SELF_PLAY, number)
        block.slots["number"] = -1
        block.begin(0, number, seed, 0)
        apart = (int(block.tables.random[0]) - seed) * pow(step, -1, 2 ** 64) % 2 ** 64
        assert min(apart, 2 ** 64 - apart) > 2 ** 32, f"{apart} steps apart"
