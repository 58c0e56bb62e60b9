"The arena: fair matches, honest intervals, and opponents that are as strong as they say."
import json
import math

import numpy as np
import pytest

from alphazero_nb.arena import (DuplicateResult, MatchResult, RandomPlayer, RolloutPlayer, RulePlayer, climb_ladder,
                                default_ladder, default_yardstick, elo, get_player, mean_interval, meet, play_duplicate,
                                play_match, play_tables, random_openings, share_beaten)
from alphazero_nb.events import tell_measures
from alphazero_nb.game import Game, get_game
from alphazero_nb.games import blob as rules
from alphazero_nb.slots import game_seed
from alphazero_nb.search import Agent
from test_search import Ignorant, all_positions, best_actions, late_positions

TICTACTOE, CONNECT4 = get_game("tictactoe"), get_game("connect4")


class Watched:
    "Plays the first legal move and remembers every position it was asked about."
    def __init__(self, game, name="watched"): self.game, self.name, self.asked = game, name, []

    def acts(self, states):
        self.asked += [(state.tobytes(), self.game.mover(state)) for state in states]
        return np.array([self.game.legal_actions(state)[0] for state in states])


class Perfect:
    "Plays tic-tac-toe as well as it can be played."
    name, known = "perfect", {}

    def acts(self, states): return np.array([best_actions(TICTACTOE, state, self.known)[0][0] for state in states])


# Matches


@pytest.mark.parametrize("name", ["tictactoe", "dots(rows=2,cols=2)"])
def test_every_opening_is_played_from_every_seat(name):
    game = get_game(name)
    player, opponent = Watched(game), Watched(game, "other")
    result = play_match(game, player, opponent, games=20, opening_plies=2, seed=3)
    assert len(result.scores) == len(result.lengths) == 20 and (result.player, result.opponent) == ("watched", "other")
    openings = [game.replay(moves).tobytes() for moves in random_openings(game, 10, 2, 3)]
    first = [state for state, _ in player.asked[:10]]
    assert sorted(first) == sorted(openings), "the player is on the move in one of each opening's two games"
    assert {seat for _, seat in player.asked} == {0, 1} == {seat for _, seat in opponent.asked}
    assert result.score == .5, "equal players in changed seats share the points"
    assert (result.scores[::2] + result.scores[1::2] == 1).all(), "game by game"


def test_an_odd_number_of_games_is_rounded_up():
    assert len(play_match(TICTACTOE, RandomPlayer(TICTACTOE), RandomPlayer(TICTACTOE), games=7, opening_plies=1).scores) == 8
    with pytest.raises(ValueError, match="0"): play_match(TICTACTOE, RandomPlayer(TICTACTOE), RandomPlayer(TICTACTOE), games=0)


def test_lengths_count_every_move():
    result = play_match(TICTACTOE, Watched(TICTACTOE), Watched(TICTACTOE), games=40, opening_plies=3)
    assert result.lengths.min() >= 5 and result.lengths.max() <= 9
    player, opponent = Watched(TICTACTOE), Watched(TICTACTOE)
    result = play_match(TICTACTOE, player, opponent, games=40, opening_plies=3)
    assert result.lengths.sum() == 40 * 3 + len(player.asked) + len(opponent.asked)


def test_openings_are_distinct_and_open():
    for game, plies in ((CONNECT4, 4), (TICTACTOE, 2), (get_game("dots(rows=3,cols=3)"), 3)):
        openings = random_openings(game, 60, plies, seed=1)
        assert len({tuple(moves) for moves in openings}) == 60 and all(len(moves) == plies for moves in openings)
        assert not any(game.over(game.replay(moves)) for moves in openings)
        assert openings == random_openings(game, 60, plies, seed=1) != random_openings(game, 60, plies, seed=2)


def test_when_there_are_no_more_openings_they_repeat():
    openings = random_openings(TICTACTOE, 30, 1, seed=0)
    assert len(openings) == 30 and {tuple(moves) for moves in openings} == {(a,) for a in range(9)}


def test_openings_that_end_the_game_are_refused():
    with pytest.raises(ValueError, match="tictactoe.*9"): random_openings(TICTACTOE, 2, 9, seed=0)


def test_a_match_seen_from_the_other_side():
    "What one scores the other does not; a perfect player loses to nobody."
    mine = play_match(TICTACTOE, Perfect(), RandomPlayer(TICTACTOE, 5), games=60, opening_plies=0, seed=2)
    theirs = play_match(TICTACTOE, RandomPlayer(TICTACTOE, 5), Perfect(), games=60, opening_plies=0, seed=2)
    assert (mine.scores >= .5).all() and mine.score > .8
    assert (theirs.scores <= .5).all() and theirs.score < .2
    drawn = play_match(TICTACTOE, Perfect(), Perfect(), games=10, opening_plies=0)
    assert (drawn.scores == .5).all()


def test_random_against_random_is_even():
    result = play_match(CONNECT4, RandomPlayer(CONNECT4, 1), RandomPlayer(CONNECT4, 2), games=300, seed=4)
    assert abs(result.score - .5) < 4 * .5 / math.sqrt(300)
    assert result.interval[0] < .5 < result.interval[1]


# Numbers


def wilson(p, n, z=1.96):
    "The interval's ends solve (p − q)² = z²·q(1 − q)/n (Wilson 1927)."
    return sorted(np.roots([1 + z * z / n, -2 * p - z * z / n, p * p]).real)


@pytest.mark.parametrize("scores", [[1.] * 10, [0.] * 3, [1, 0, .5, .5, 1], [.5], [1.] * 150 + [0.] * 50])
def test_score_and_interval(scores):
    result = MatchResult("a", "b", np.array(scores, float), np.full(len(scores), 9))
    assert result.score == pytest.approx(sum(scores) / len(scores))
    assert np.allclose(result.interval, np.clip(wilson(result.score, len(scores)), 0, 1), atol=1e-7)
    assert 0 <= result.interval[0] <= result.score <= result.interval[1] <= 1


def test_the_interval_holds_what_it_promises():
    "About 95 of 100 matches of known strength have it inside."
    rng, inside = np.random.default_rng(0), 0
    for _ in range(2000):
        low, high = MatchResult("a", "b", (rng.random(100) < .7).astype(float), np.zeros(100, int)).interval
        inside += low <= .7 <= high
    assert .93 < inside / 2000 < .97


@pytest.mark.parametrize("difference", [-700, -191, 0, 50, 400])
def test_elo_is_the_difference_that_expects_the_score(difference):
    assert elo(1 / (1 + 10 ** (-difference / 400))) == pytest.approx(difference, abs=1e-6)
    assert elo(0) is None is elo(1)


def test_a_result_as_plain_data():
    result = MatchResult("a", "b", np.array([1, 1, .5, 0, 1.]), np.full(5, 9)).to_dict()
    assert json.loads(json.dumps(result)) == result
    assert (result["wins"], result["draws"], result["losses"], result["games"]) == (3, 1, 1, 5)
    assert result["score"] == .7 and result["elo_low"] < result["elo"] < result["elo_high"]
    assert result["elo"] == pytest.approx(400 * math.log10(.7 / .3))


# Players


def test_more_playouts_are_stronger():
    match = lambda a, b, n: play_match(CONNECT4, get_player(a, CONNECT4, seed=1), get_player(b, CONNECT4, seed=2), n).score
    assert match("rollouts:20", "random", 60) > .8
    assert match("rollouts:200", "rollouts:20", 60) > .7


def test_many_playouts_find_what_is_best():
    "In every open position of tic-tac-toe with at most five empty cells, and in late dots and boxes, extra moves and all."
    late = [state for state in all_positions(TICTACTOE, TICTACTOE.new(), {}).values() if len(TICTACTOE.legal_actions(state)) <= 5]
    dots, known, wrong = get_game("dots(rows=2,cols=2)"), {}, []
    for game, states in ((TICTACTOE, late[::7]), (dots, late_positions(dots, 5, 100, 3))):
        actions = RolloutPlayer(game, 5000).acts(np.stack(states))
        for state, action in zip(states, actions):
            best, worth = best_actions(game, state, known)
            if action not in best: wrong.append((game.text(state), action, worth))
    assert not wrong, f"{len(wrong)} wrong, first:\n{wrong[0][0]}\n{wrong[0][1:]}"


def test_players_are_reproducible_by_seed():
    states = np.stack([CONNECT4.replay(moves) for moves in random_openings(CONNECT4, 40, 6, 0)])
    for name in ("random", "rollouts:30"):
        acts = lambda seed: get_player(name, CONNECT4, seed=seed).acts(states).tolist()
        assert acts(1) == acts(1) != acts(2)
        player = get_player(name, CONNECT4, seed=1)
        assert player.acts(states).tolist() != player.acts(states).tolist(), "asked again, other playouts"
        assert player.name == name


def test_random_is_uniform_over_legal_moves():
    state = CONNECT4.replay([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    counts = np.bincount(RandomPlayer(CONNECT4, 3).acts(np.tile(state, (3000, 1))), minlength=7)
    assert counts[:2].sum() == 0 and ((counts[2:] - 600) ** 2 / 600).sum() < 24, "chi-square, p about 1e-4"


@pytest.mark.parametrize("name, words", [
    ("rollout:400", "rollouts:400"), ("randm", "random"), ("rollouts:", "rollouts:N"), ("rollouts:-5", "rollouts:N"),
    ("rollouts:0", "rollouts:0"), ("rollouts:many", "rollouts:N"), ("random:3", "random"),
    ("runs/nowhere", "folder"), ("rollouts:²", "rollouts"),
])
def test_unknown_players_are_named(name, words):
    with pytest.raises(ValueError) as caught: get_player(name, CONNECT4)
    assert words in str(caught.value) and (repr(name) in str(caught.value) or name == "rollouts:0")


def test_a_player_of_another_game_is_refused(tmp_path):
    from alphazero_nb.train import Trainer, TrainSettings
    settings = TrainSettings(games_per_iteration=4, batch_size=8, evaluate_every=0)
    folder = tmp_path / "run"
    Trainer("tictactoe", "tiny", folder, device="cpu", simulations=4, settings=settings, games=4, threads=1, shared=False,
            listeners=()).fit(iterations=1)
    with pytest.raises(ValueError, match="tictactoe.*connect4"): get_player(str(folder), CONNECT4, device="cpu")
    agent = get_player(str(folder), device="cpu", simulations=8)
    assert agent.game.name == "tictactoe" and agent.name == "run"
    assert get_player(folder, TICTACTOE, device="cpu").act(TICTACTOE.new()) in range(9)
    with pytest.raises(ValueError, match="training run"): get_player(str(tmp_path), TICTACTOE, device="cpu")


def test_a_ladder_is_a_match_per_rung():
    agent = Agent(TICTACTOE, Ignorant(TICTACTOE), simulations=100)
    results = list(climb_ladder(TICTACTOE, agent, games=20, ladder=("random", "rollouts:5")))
    assert [result.opponent for result in results] == ["random", "rollouts:5"]
    assert all(len(result.scores) == 20 for result in results) and results[0].score > .7


# Several players and the same cards


BLOB = get_game("blob(players=3,cards=2)")


class First:
    "Plays the first legal action, or the last one: no luck of its own, and no look at anything else."
    def __init__(self, game, which=0, name="first"): self.game, self.which, self.name, self.asked = game, which, name, 0

    def acts(self, states):
        self.asked += len(states)
        return np.array([self.game.legal_actions(state)[self.which] for state in states])


@pytest.mark.parametrize("results, shares", [
    ([1, -1], [1, 0]), ([0, 0], [.5, .5]), ([-1, -1], [.5, .5]), ([.3, .2, .1], [1, .5, 0]), ([.2, .2, -1, .9], [.5, .5, 0, 1]),
    ([0, 0, 0, 0], [.5] * 4),
])
def test_a_score_is_the_share_of_the_others_that_did_worse(results, shares):
    assert [share_beaten(results, seat) for seat in range(len(results))] == pytest.approx(shares)
    beaten = [[(a > b) + (a == b) / 2 for j, b in enumerate(results) if j != i] for i, a in enumerate(results)]
    assert shares == pytest.approx([sum(row) / len(row) for row in beaten]) and sum(shares) == pytest.approx(len(results) / 2)


def test_of_several_equals_each_expects_half():
    result = play_match(BLOB, RandomPlayer(BLOB, 1), RandomPlayer(BLOB, 2), games=600, seed=4)
    assert abs(result.score - .5) < 4 * .5 / math.sqrt(600) and result.interval[0] < .5 < result.interval[1]
    told = result.to_dict()
    assert told["wins"] + told["draws"] + told["losses"] == 600 and abs(told["elo"]) < 60
    same = play_match(BLOB, First(BLOB), First(BLOB), games=30)
    assert same.scores.reshape(10, 3).mean(1) == pytest.approx(.5), "deal by deal, over the seats"


def by_hand(game, state, table):
    "One game after another, one move after another."
    moves = 0
    while not game.over(state):
        state, moves = game.play(state, int(table[game.mover(state)].acts(state[None])[0])), moves + 1
    return state, moves


def test_tables_are_played_as_one_after_another():
    a, b, c = First(BLOB), First(BLOB, -1), RulePlayer(BLOB)
    starts = [BLOB.new(seed) for seed in range(7)]
    tables = [[(a, b, c)[(i + seat * (1 + i % 2)) % 3] for seat in range(3)] for i in range(7)]
    told = []
    states, moves = play_tables(BLOB, starts, tables, lambda over, moves: told.append((over, moves)))
    for state, count, start, table in zip(states, moves, starts, tables):
        alone, length = by_hand(BLOB, start, table)
        assert np.array_equal(state, alone) and count == length
    assert told == sorted(told) and told[-1] == (7, sum(moves))


def test_every_deal_is_played_from_every_seat_and_once_without():
    "Held against a slow loop over deals and seats, which reads bids, tricks and scores itself."
    player, opponent, deals = First(BLOB, -1, "last"), RulePlayer(BLOB), 12
    found = play_duplicate(BLOB, player, opponent, deals, seed=5)
    mine, theirs, met, scores = np.zeros((deals, 3)), np.zeros((deals, 3)), np.zeros((deals, 3)), []
    for deal in range(deals):
        start = BLOB.new(game_seed(5, deal))
        theirs[deal] = rules.scores(by_hand(BLOB, start, [opponent] * 3)[0])
        for seat in range(3):
            state, _ = by_hand(BLOB, start, [player if k == seat else opponent for k in range(3)])
            points = rules.scores(state)
            mine[deal, seat], met[deal, seat] = points[seat], rules.bids(state)[seat] == rules.tricks(state)[seat]
            scores.append(sum((points[seat] > p) + (points[seat] == p) / 2 for k, p in enumerate(points) if k != seat) / 2)
    assert np.array_equal(found.mine["points a round"], mine) and np.array_equal(found.theirs["points a round"], theirs)
    assert np.array_equal(found.mine["exact bids"], met) and np.allclose(found.match.scores, scores)
    assert (found.match.player, found.match.opponent, len(found.match.lengths)) == ("last", "rule", 36)
    difference = mine.mean(1) - theirs.mean(1)
    spread = 1.96 * math.sqrt(((difference - difference.mean()) ** 2).sum() / 11 / 12)
    told = found.measures["points a round"]["difference"]
    assert told == pytest.approx([difference.mean(), difference.mean() - spread, difference.mean() + spread])


@pytest.mark.parametrize("make", [First, RulePlayer])
def test_against_oneself_the_difference_is_exactly_zero(make):
    found = play_duplicate(BLOB, make(BLOB), make(BLOB), deals=20)
    for name, row in found.measures.items():
        assert row["difference"] == [0, 0, 0] and row["mine"] == row["theirs"]
        assert np.array_equal(found.mine[name], found.theirs[name])
    assert found.match.score == .5


def test_the_same_cards_make_the_interval_narrow():
    "Two players that seldom differ: on the same deals the difference is known better than on deals of their own."
    class Almost(RulePlayer):
        def acts(self, states):
            odd = [int(state[:52].sum()) % 7 == 0 for state in states]
            return np.array([self.game.legal_actions(s)[0] if o else self.game.rule(s) for s, o in zip(states, odd)])
    found = play_duplicate(BLOB, Almost(BLOB), RulePlayer(BLOB), deals=200)
    width = lambda key: np.ptp(found.measures["points a round"][key][1:])
    assert 0 < width("difference") < .7 * math.hypot(width("mine"), width("theirs"))


def test_the_interval_of_a_mean_holds_what_it_promises():
    rng, inside = np.random.default_rng(0), 0
    for _ in range(2000):
        _, low, high = mean_interval(rng.exponential(3, 200))
        inside += low <= 3 <= high
    assert .92 < inside / 2000 < .97


def test_a_duplicate_as_plain_data_and_as_a_line():
    match = MatchResult("a", "b", np.array([1, .5, 0, .5]), np.full(4, 9))
    mine, theirs = np.array([[11., 10.], [0., 12.]]), np.array([[0., 10.], [11., 10.]])
    found = DuplicateResult(match, dict(points=mine, exact=(mine > 0) * 1.), dict(points=theirs, exact=(theirs > 0) * 1.))
    row = found.to_dict()
    assert json.loads(json.dumps(row)) == row and (row["deals"], row["games"]) == (2, 4)
    points, exact = row["measures"]["points"], row["measures"]["exact"]
    assert points["mine"][0] == 8.25 and points["theirs"][0] == 7.75 and not points["share"] and exact["share"]
    spread = 1.96 * 5   # Differences of 5.5 and −4.5: standard deviation 10 / √2, over √2
    assert points["difference"] == pytest.approx([.5, .5 - spread, .5 + spread])
    line = tell_measures(row["measures"])
    assert line.startswith("points 8.25 (3.84 to 12.66) against 7.75 (2.36 to 13.14): +0.50 (-9.30 to +10.30); exact 75.0% (")
    assert "against 75.0% (" in line and line.count(": +") == 2
    assert found.event(7).measures == row["measures"] and found.event(7).iteration == 7 and found.event().score == match.score


def test_a_game_without_measures_compares_results():
    plain = Game("plain", **{name: getattr(rules, name) for name in ("mover", "legal", "play", "returns", "redeal")},
                 start=rules._start(3, 2, False, False, False), observe=lambda state, planes: None, state_size=BLOB.state_size,
                 players=3, actions=66, shape=(1,), max_length=9, max_legal=3)
    found = play_duplicate(plain, First(plain), First(plain, -1), deals=10)
    points = play_duplicate(BLOB, First(BLOB), First(BLOB, -1), deals=10).mine["points a round"]
    assert list(found.mine) == ["result"] and found.mine["result"] == pytest.approx(points / 6 - 1)


def test_empty_seats_do_not_count():
    game = get_game("blob(players=5,cards=3,deals=all)")
    found = play_duplicate(game, RulePlayer(game), RandomPlayer(game), deals=40)
    taken = np.isfinite(found.mine["points a round"])
    players = [int(game.new(game_seed(0, deal))[rules.PLAYERS]) for deal in range(40)]
    assert set(players) == {3, 4, 5} and taken.sum(1).tolist() == players and len(found.match.scores) == sum(players)
    assert np.isfinite(found.measures["exact bids"]["difference"]).all() and found.match.score > .5


def test_who_deals_nothing_is_refused_and_one_deal_has_no_spread():
    with pytest.raises(ValueError, match="tictactoe deals nothing"): play_duplicate(TICTACTOE, First(TICTACTOE), First(TICTACTOE))
    with pytest.raises(ValueError, match="deals is 1"): play_duplicate(BLOB, First(BLOB), First(BLOB), deals=1)


def test_a_meeting_is_in_duplicate_where_cards_are_hidden():
    rounds = []
    cards = meet(BLOB, RulePlayer(BLOB), First(BLOB), games=6, listener=rounds.append)
    board = meet(TICTACTOE, First(TICTACTOE), First(TICTACTOE, -1), games=6)
    assert isinstance(cards, DuplicateResult) and cards.to_dict()["deals"] == 6 and isinstance(board, MatchResult)
    assert (rounds[-1].over, rounds[-1].games) == (24, 24) and not board.event().measures


def test_a_game_with_a_rule_is_met_by_it():
    assert default_yardstick(BLOB) == "rule" and default_yardstick(CONNECT4) == "rollouts:100"
    assert default_ladder(BLOB) == ("random", "rule", "determinized-rollouts:100", "determinized-rollouts:400")
    assert default_ladder(CONNECT4) == ("random", "rollouts:100", "rollouts:400")
    names = [result.match.opponent for result in climb_ladder(BLOB, First(BLOB), 2, ("random", "rule", "determinized-rollouts:10"))]
    assert names == ["random", "rule", "determinized-rollouts:10"]


def test_the_score_of_shared_deals_has_the_spread_of_their_means():
    "Four games of a deal count once: the interval is that of the means over deals, not of four times as many games."
    rng = np.random.default_rng(0)
    luck = rng.random(50)
    scores = np.repeat(luck, 4)                        # The four games of a deal go alike
    shared = MatchResult("a", "b", scores, np.ones(200), np.repeat(np.arange(50), 4))
    spread = 1.96 * luck.std(ddof=1) / 50 ** .5
    assert np.allclose(shared.interval, (luck.mean() - spread, luck.mean() + spread))
    alone = MatchResult("a", "b", np.repeat([0., 1.], 100), np.ones(200), np.tile(np.arange(100), 2))
    assert alone.score == .5 and alone.interval == (.5, .5)       # Every deal once won and once lost: no luck is left
