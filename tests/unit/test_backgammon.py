"""Backgammon: whole turns against OpenSpiel's rules, the awkward rules by hand, and what a player and a network see."""
import re

import numpy as np
import pytest

from alphazero_nb.core.calls import CHANCE
from alphazero_nb.core.registry import get_game
from alphazero_nb.games.backgammon import BAR, LIMIT, OFF, PASS, position, side, turns

DICE = [(high, low) for high in range(1, 7) for low in range(1, high + 1)]   # Of each outcome


def names(state, game=None):
    game = game or get_game("backgammon")
    return [game.move_name(state, action) for action in game.legal_actions(state)]


def checkers(state, seat): return tuple(state[side(seat):side(seat) + 26].tolist())


def board(state): return checkers(state, 0), checkers(state, 1)


# Against OpenSpiel ------------------------------------------------------------------------------

def spiel_board(other, first):
    "The checkers of both seats as ours stand in a row; OpenSpiel's player `first` is seat 0."
    seats = []
    for player in (first, 1 - first):
        places = [0] * 26
        for point in range(24): places[24 - point if player == 0 else point + 1] = other.board(player, point)
        places[BAR] = other.board(player, 100)
        places[OFF] = 15 - sum(places)
        seats.append(tuple(places))
    return tuple(seats)


def spiel_turns(other):
    "The boards and states in which the turn of OpenSpiel's player can end. A double is two moves there."
    player, waiting, ends = other.current_player(), [other], {}
    while waiting:
        state = waiting.pop()
        for action in state.legal_actions():
            after = state.child(action)
            if after.current_player() == player: waiting.append(after)
            else: ends[tuple(after.board(seat, point) for seat in range(2) for point in [*range(24), 100])] = after
    return list(ends.values())


def spiel_dice(other, outcome):
    dice = re.search(r"roll: (\d)(\d)", other.action_to_string(-1, outcome))
    return tuple(sorted(map(int, dice.groups()), reverse=True))


def compare(game, spiel, rng):
    "Play a random game of both with the same dice. Return the numbers of turns and of boards compared."
    other = spiel.new_initial_state()
    opening = int(rng.integers(30))
    dice = spiel_dice(other, opening)
    other.apply_action(opening)
    first, count, compared = other.current_player(), 0, 0
    state = position({24: 2, 13: 5, 8: 3, 6: 5}, {24: 2, 13: 5, 8: 3, 6: 5}, dice)
    while not other.is_terminal():
        if other.is_chance_node():
            assert game.mover(state) == CHANCE
            outcome = int(rng.choice(36, p=[p for _, p in other.chance_outcomes()]))
            state = game.play(state, DICE.index(spiel_dice(other, outcome)))
            other.apply_action(outcome)
        assert game.mover(state) == other.current_player() ^ first and not game.over(state)
        ours = {board(row): row for row, _ in turns(game, state).values()}
        theirs = {spiel_board(after, first): after for after in spiel_turns(other)}
        assert ours.keys() == theirs.keys(), (game.text(state), ours.keys() ^ theirs.keys())
        chosen = sorted(ours)[int(rng.integers(len(ours)))]
        state, other, count, compared = ours[chosen], theirs[chosen], count + 1, compared + len(ours)
    assert game.over(state)
    points = other.returns()
    assert game.measures(state)["points"] == [points[first], points[1 - first]]
    assert game.returns(state).tolist() == pytest.approx([points[first] / 3, points[1 - first] / 3])
    return count, compared, int(max(points))


@pytest.mark.parametrize("games, seed", [(15, 0), pytest.param(1000, 1, marks=pytest.mark.slow)])
def test_every_turn_leads_where_open_spiels_does(games, seed):
    pyspiel = pytest.importorskip("pyspiel")
    spiel, game, rng = pyspiel.load_game("backgammon(scoring_type=full_scoring)"), get_game("backgammon"), np.random.default_rng(seed)
    played = [compare(game, spiel, rng) for _ in range(games)]
    assert all(count > 20 for count, *_ in played) and {1, 2} <= {points for *_, points in played}


# The awkward rules ------------------------------------------------------------------------------

def test_only_the_larger_die_if_only_one_can_be_used():
    "20/14 and 20/15 are open, and 9, where both lead, is closed."
    state = position({20: 1}, {16: 2}, (6, 5))
    assert names(state) == ["20/14"]
    after = get_game("backgammon").play(state, get_game("backgammon").legal_actions(state)[0])
    assert get_game("backgammon").mover(after) == CHANCE, "the turn ends without a pass"


def test_only_the_smaller_die_if_the_larger_cannot_be_used():
    assert names(position({20: 1}, {11: 2, 16: 2}, (6, 5))) == ["20/15"]


def test_both_dice_if_there_is_a_way():
    "The 6 can be played from 20 or from 10. From 20 the checkers then stand on 14 and 10, and both 5s are closed."
    state = position({20: 1, 10: 1}, {16: 2, 20: 2}, (6, 5))
    game = get_game("backgammon")
    ends = {board(row) for row, _ in turns(game, state).values()}
    assert ends == {((13, *[1 if place in (4, 15) else 0 for place in range(1, 26)]), checkers(state, 1))}
    assert names(state) == ["10/4", "20/15"]


def test_the_bar_comes_first():
    assert names(position({BAR: 1, 8: 2}, {2: 2}, (6, 2))) == ["bar/19"], "23 is the other's 2, and closed"
    assert names(position({BAR: 2, 13: 3}, {1: 2}, (6, 2))) == ["bar/19", "bar/23"]
    state = position({BAR: 2, 13: 3}, {6: 2}, (6, 2))
    game = get_game("backgammon")
    after = game.play(state, game.legal_actions(state)[0])
    assert names(state) == ["bar/23"] and game.mover(after) == CHANCE and checkers(after, 0)[BAR] == 1


def test_nobody_moves_who_cannot_enter():
    game, state = get_game("backgammon"), position({BAR: 1, 13: 5}, {place: 2 for place in range(1, 7)}, (6, 5))
    assert names(state) == ["pass"] and game.legal_actions(state) == [PASS]
    after = game.play(state, PASS)
    assert board(after) == board(state) and game.mover(after) == CHANCE and game.mover(game.play(after, 0)) == 1


@pytest.mark.parametrize("own, dice, legal", [
    ({6: 1, 3: 1}, (6, 3), ["3/off", "6/off", "6/3"]),
    ({5: 1, 2: 1}, (6, 4), ["5/off", "5/1"]),                     # A larger number takes the last checker
    ({7: 1, 2: 1}, (6, 5), ["7/1", "7/2"]),                       # Not before all are home
    ({5: 1, 4: 1}, (3, 2), ["4/1", "4/2", "5/2", "5/3"]),         # A smaller number takes none
    ({2: 2}, (6, 5), ["2/off(6)", "2/off(5)"]),                   # Either die does, and the name says which
    ({2: 1}, (6, 5), ["2/off(6)"]),                               # Only one can be used: the larger
])
def test_bearing_off(own, dice, legal):
    state = position(own, {1: 2}, dice)
    assert names(state) == legal


def test_a_hit_goes_to_the_bar():
    state, game = position({8: 1, 6: 1}, {21: 1, 22: 2}, (4, 2)), get_game("backgammon")
    assert "8/4*" in names(state) and "6/4*" in names(state)
    after = game.play(state, game.legal_actions(state)[names(state).index("8/4*")])
    assert checkers(after, 1)[BAR] == 1 and checkers(after, 1)[21] == 0 and game.mover(after) == 0


def all_orders(game, state, left, die):
    "The boards after as many equal dice as possible, in any order of the steps, from the rules in words."
    def step(row, origin):
        own, other = map(list, board(row))
        last = max(place for place in range(26) if own[place])
        target = origin - die
        if not own[origin] or (own[BAR] and origin != BAR): return None
        if target > 0 and other[25 - target] > 1: return None
        if target <= 0 and (last > 6 or (target < 0 and origin != last)): return None
        after = row.copy()
        own[origin] -= 1
        own[max(0, target)] += 1
        if target > 0 and other[25 - target]: other[25 - target], other[BAR] = 0, other[BAR] + 1
        after[side(0):side(0) + 26], after[side(1):side(1) + 26] = own, other
        return after
    depth, found = 0, {board(state): state}
    while depth < left and not any(places[0][OFF] == 15 for places in found):
        longer = {board(after): after for row in found.values() for origin in range(1, 26) if (after := step(row, origin)) is not None}
        if not longer: break
        depth, found = depth + 1, longer
    return set(found)


def random_position(rng):
    "Checkers anywhere, often at home, sometimes on the bar."
    points, seats = rng.permutation(np.arange(1, 25)), []
    for seat in range(2):
        mine, count = points[12 * seat:12 * seat + 12], int(rng.integers(1, 16))
        if rng.random() < .4: mine = [point for point in mine if (point if seat == 0 else 25 - point) <= 8]
        places = [BAR if len(mine) == 0 or rng.random() < .04 else int(rng.choice(mine)) for _ in range(count)]
        if seat == 1: places = [25 - place if place < BAR else BAR for place in places]
        seats.append({place: places.count(place) for place in places})
    return seats


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_the_order_of_a_double_loses_no_board(count):
    game, rng, shorter = get_game("backgammon"), np.random.default_rng(11), 0
    for _ in range(count):
        die = int(rng.integers(1, 7))
        state = position(*random_position(rng), (die, die))
        ends = turns(game, state)
        assert {board(row) for row, _ in ends.values()} == all_orders(game, state, 4, die), game.text(state)
        lengths = {0 if line == (PASS,) else len(line) for _, line in ends.values()}
        assert len(lengths) == 1 or any(game.over(row) for row, _ in ends.values())
        shorter += max(lengths) < 4
    assert shorter > count / 10


# Results, dice and what is seen -------------------------------------------------------------------

@pytest.mark.parametrize("loser, points", [({13: 14}, 1), ({13: 15}, 2), ({19: 1, 13: 14}, 3), ({BAR: 1, 13: 14}, 3), ({18: 15}, 2)])
def test_points(loser, points):
    for gammons in (1, 0):
        game = get_game("backgammon" if gammons else "backgammon(gammons=0)")
        state = position({1: 1}, loser, (6, 5), gammons)
        end = game.play(state, game.legal_actions(state)[0])
        assert game.over(end) and game.returns(end).tolist() == pytest.approx([points / 3, -points / 3] if gammons else [1, -1])
        assert game.measures(end)["points"] == ([points, -points] if gammons else [1, -1])


def test_dice():
    game = get_game("backgammon")
    state = game.play(position({BAR: 1}, {place: 2 for place in range(1, 7)}, (6, 5)), PASS)
    assert game.chance(state) == [(k, pytest.approx((1 if high == low else 2) / 36)) for k, (high, low) in enumerate(DICE)]
    assert [game.outcome_name(k) for k in range(21)] == [f"{high}-{low}" for high, low in DICE]
    starts = [tuple(game.new(seed)[2:4].tolist()) for seed in range(3000)]
    counts = {dice: starts.count(dice) for dice in DICE}
    assert all((count == 0) if high == low else 130 < count < 270 for (high, low), count in counts.items())
    assert all(game.mover(game.new(seed)) == 0 for seed in range(9))


def test_a_game_without_end_is_a_draw():
    game, state = get_game("backgammon"), position({BAR: 1, 13: 5}, {place: 2 for place in range(1, 7)}, (6, 5))
    state[6] = LIMIT
    end = game.play(state, PASS)
    assert game.over(end) and game.returns(end).tolist() == [0, 0] and game.measures(end)["points"] == [0, 0]


def test_the_observation_is_the_movers_and_tells_positions_apart():
    game, rng, seen = get_game("backgammon"), np.random.default_rng(4), {}
    for seed in range(10):
        state, rolls = game.new(seed), 0
        while not game.over(state):
            seat = game.mover(state)
            row = game.observe(state).astype(int)
            own, other = checkers(state, seat), checkers(state, 1 - seat)
            for base, places in ((0, own), (100, other)):
                four = row[base:base + 100].reshape(25, 4)
                assert (four.sum(1) == places[1:]).all() and (four[:, :3] <= 1).all()
            assert row[200:215].sum() == own[OFF] and row[215:230].sum() == other[OFF]
            facts = own, other, state[2:6].tolist()
            assert seen.setdefault(row.tobytes(), facts) == facts
            action = int(rng.choice(game.legal_actions(state)))
            state, rolled = game.pass_chance(game.play(state, action), seed, rolls)
            rolls += len(rolled)


def test_names_of_moves_are_different_and_boards_can_be_read():
    game, rng = get_game("backgammon"), np.random.default_rng(9)
    for seed in range(20):
        state, rolls = game.new(seed), 0
        while not game.over(state):
            assert len(set(names(state))) == len(game.legal_actions(state))
            lines = game.text(state).splitlines()
            assert len(lines) == 14 and max(map(len, lines)) < 80
            found = re.search(r"bar: x (\d+), o (\d+); off: x (\d+), o (\d+); ([xo]) has", lines[-1])
            assert [int(found[k]) for k in range(1, 5)] == [checkers(state, seat)[place] for place in (BAR, OFF) for seat in range(2)]
            assert "xo".index(found[5]) == game.mover(state)
            state, rolled = game.pass_chance(game.play(state, int(rng.choice(game.legal_actions(state)))), seed, rolls)
            rolls += len(rolled)


def test_the_contract():
    for name in ("backgammon", "backgammon(gammons=0)"): get_game(name).check(games=3)
    assert get_game("backgammon(gammons=1)").name == "backgammon" and get_game("backgammon").has_chance


@pytest.mark.parametrize("name, words", [("backgammon(gammons=2)", "gammons is 2; choose 0 or 1"), ("backgammon(cube=1)", "no parameter 'cube'")])
def test_bad_names(name, words):
    with pytest.raises(ValueError, match=words): get_game(name)


@pytest.mark.parametrize("own, other, dice, words", [
    ({26: 1}, {1: 1}, (2, 1), "26: 1 is no place"), ({1: 16}, {1: 1}, (2, 1), "1: 16 is no place"),
    ({1: 8, 2: 8}, {1: 1}, (2, 1), "seat 0 has 16 checkers"), ({1: 1}, {}, (2, 1), "seat 1 has 0 checkers"),
    ({1: 1}, {24: 1}, (2, 1), "same point"), ({1: 1}, {1: 1}, (1, 2), "give two, the larger one first"),
])
def test_impossible_positions(own, other, dice, words):
    with pytest.raises(ValueError, match=words): position(own, other, dice)


def test_points_of_a_match():
    "`tools/measure_engines.py` reports the mean points of the player, whichever seat it has."
    from measure_engines import points_per_game
    from alphazero_nb.arena.matches import play_match
    from alphazero_nb.arena.players import RandomPlayer, RolloutPlayer
    game, first = get_game("backgammon"), RolloutPlayer(get_game("backgammon"), 4)
    result = play_match(game, first, RandomPlayer(game, 1), 12, opening_plies=0, seed=3)
    found, points = points_per_game(game, result), []
    for played in result.games:
        state = played.start
        assert board(state) == board(game.new()) and game.mover(state) == 0
        for action in played.actions: state = game.play(state, action)
        points.append(3 * game.returns(state)[played.players.index(first.name)])
    assert np.array_equal(np.sign(points), 2 * result.scores - 1) and {played.players.index(first.name) for played in result.games} == {0, 1}
    assert found["points"] == pytest.approx(np.mean(points)) and found["points_low"] < found["points"] < found["points_high"]
    pig = get_game("pig(goal=20)")
    assert points_per_game(pig, play_match(pig, RandomPlayer(pig), RandomPlayer(pig, 1), 2)) == {}


def test_a_terminal_takes_moves_by_their_names():
    from alphazero_nb.arena.players import RandomPlayer
    from alphazero_nb.ui.match import Match
    from alphazero_nb.ui.play import play_text
    game = get_game("backgammon")
    match, said = Match(game, RandomPlayer(game, 1), seat=0, seed=3), []
    def ask(prompt):
        if len(match.history) > 20: raise EOFError
        return names(match.state)[0]
    play_text(match, ask=ask, say=said.append)
    assert len(match.history) > 20 and any("/" in line for line in said) and any("bar: x" in line for line in said)


def test_the_text_of_a_game_that_is_over_says_who_has_won():
    game = get_game("backgammon")
    state = position({1: 1}, {13: 14}, (6, 5))
    end = game.play(state, game.legal_actions(state)[0])
    assert game.over(end) and game.text(end).endswith("x has won")
