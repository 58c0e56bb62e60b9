"""The card table: what a seat may see and nothing else, three to eight players, clicks, words, whole games."""
import base64, re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

from alphazero_nb.core.registry import get_game
from alphazero_nb.games.blob import BID, MOVER, PLAYERS, action_name, card_name, dealer, hands, scores
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.arena.players import HeuristicPlayer, RandomPlayer, RolloutPlayer
from alphazero_nb.ui.board import Marks, board_svg
from alphazero_nb.ui.card_table import card_words, find_table, points_of, read_words, redealt, tricks_shown
from alphazero_nb.ui.game_line import Analysis
from alphazero_nb.ui.match import Match, is_open, seat_view
from alphazero_nb.ui.match_text import player_name, result_words
from alphazero_nb.ui.match_view import MatchView, match_html, play_text
from alphazero_nb.ui.play import PlayBoard, make_match, play
from alphazero_nb.ui import card_table as table_module


def answered(match):
    "The match with all agents' answers."
    while match.waiting: assert match.reply(), match.said
    return match


def played(name="blob(players=4,cards=5)", moves=0, seat=0, agent=None, seed=0):
    "A match in which the person plays by the heuristic, at the first turn of theirs after this many moves."
    game = get_game(name)
    match = answered(Match(game, agent or HeuristicPlayer(game), seat, seed=seed))
    while len(match.history) < moves and not match.over: assert match.move(game.heuristic(match.state)) and answered(match)
    return match


def shown(match):
    "All that a person gets to see and to read: the page, the text, and the words inside its pictures."
    page = match_html(match)
    svgs = [base64.b64decode(part).decode() for part in re.findall(r'base64,([^"]+)"', page)]
    for svg in svgs: ElementTree.fromstring(svg)
    return page, svgs, MatchView(match).text()


# What nobody may see ----------------------------------------------------------------------------

def in_another_world(match, seed):
    "The same match, the hidden cards dealt anew; the agents' analyses are other ones, too."
    rng, game = np.random.default_rng(seed), match.game
    view = redealt(replace(seat_view(match.line, len(match.history), match.name), seat=int(match.state[MOVER])), seed)
    analyses = []
    for state, analysis in zip(view.states, match.line.analyses):
        if analysis and state[MOVER] != match.state[MOVER]:
            visits = {action: int(rng.integers(1, 50)) for action in game.legal_actions(state)}
            analysis = Analysis(visits, tuple(rng.uniform(-1, 1, game.players)))
        analyses.append(analysis)
    other = Match(game, match.agent, match.line.seats)
    other.line = replace(match.line, states=view.states, analyses=tuple(analyses))
    other.said, other.shown, other.advice = match.said, match.shown, match.advice
    return other


@pytest.mark.parametrize("players, cards, kind", [(3, 4, "search"), (4, 5, "search"), (5, 3, "heuristic"), (8, 6, "heuristic")])
def test_worlds_that_differ_in_hidden_cards_look_the_same(players, cards, kind):
    game, differed, seen = get_game(f"blob(players={players},cards={cards})"), 0, 0
    agent = Agent(game, UniformEvaluator(game), 8, "search") if kind == "search" else HeuristicPlayer(game)
    for seat in range(0, players, 2):
        match = answered(Match(game, agent, seat, seed=seat))
        while not match.over:
            if kind == "search": assert match.analyse()
            assert match.hint()
            others = [in_another_world(match, seed) for seed in range(2)]
            for ply in (len(match.history), len(match.history) // 2):
                for one in (match, *others):   # the words of this command must not differ either
                    one.look(ply)
                for other in others:
                    assert shown(other) == shown(match)
                    differed, seen = differed + (hands(other.state) != hands(match.state)), seen + 1
            match.look(len(match.history))
            for other in others: other.look(len(match.history))
            for action in range(game.actions):
                if action in game.legal_actions(match.state): continue
                told = [(one.move(action), one.said) for one in (match, *others)]
                assert told[0] == told[1] == told[2] and not told[0][0]
            assert match.move(game.heuristic(match.state)) and answered(match)
    assert differed > 0.6 * seen


def test_no_card_of_others_is_named_while_the_round_goes_on():
    match = played(moves=0)
    while not match.over:
        text, hidden = MatchView(match).text(), [card for seat, hand in enumerate(hands(match.state)) if seat for card in hand]
        assert hidden and not any(card_name(card) in text for card in hidden)
        assert all(card_name(card) in text for card in hands(match.state)[0])
        with pytest.raises(ValueError, match="hidden"): table_module.dealt_hands(seat_view(match.line, len(match.history), "heuristic"))
        if len(match.history) >= 20: break
        match.move(match.game.heuristic(match.state)), answered(match)


def test_analyses_of_others_wait_for_the_end_of_the_round():
    game = get_game("blob(players=3,cards=3,game=full)")
    match = played(game.name, 4, agent=Agent(game, UniformEvaluator(game), 8, "search"))
    theirs = [ply for ply, state in enumerate(match.line.states) if state[MOVER] != 0]
    assert any(match.line.analyses[ply] for ply in theirs)
    assert not is_open(match.line, 0) and match.look(theirs[0]) and not match.hint() and "Another player moves here" in match.said
    match.look(len(match.history)), match.analyse()
    assert all(match.line.analyses[ply] for ply, state in enumerate(match.line.states) if state[MOVER] == 0)
    while not table_module.find_table(game).deal(match.state): match.move(game.heuristic(match.state)), answered(match)
    assert is_open(match.line, 0) and match.look(theirs[0]) and match.hint()
    assert f"{match.name} 2" in MatchView(match).text() and "dealt" in MatchView(match).text()
    match.look(len(match.history))
    assert not is_open(match.line, len(match.history)) and "dealt" not in MatchView(match).text()


def test_a_typed_word_does_not_tell_what_an_agent_holds():
    class Broken(HeuristicPlayer):
        def acts(self, states): raise RuntimeError("no answer")

    game = get_game("blob(players=3,cards=3)")
    seat = (dealer(game.new(0)) + 2) % 3   # an agent begins
    match, told = Match(game, Broken(game), seat), []
    words = iter(["bid 1", "SA", "nonsense", "quit"])
    play_text(match, lambda prompt: next(words), told.append)
    assert [line for line in told if "turn" in line] == ["It is heuristic 1's turn."] * 3 and not any("♠" in line for line in told)


def test_a_game_that_hides_and_has_no_table_shows_nothing(monkeypatch):
    monkeypatch.setattr(table_module, "_tables", {})
    match = Match(get_game("blob(players=3,cards=3)"), seat=0)
    assert "no table" in MatchView(match).text() and not re.search("[♠♥♣♦]", "".join(shown(match)[1]) + MatchView(match).text())


def test_a_drawing_that_fails_still_hides(monkeypatch):
    monkeypatch.setitem(table_module._tables, "blob", replace(find_table(get_game("blob")), draw=lambda view: 1 / 0))
    match = played(moves=8)
    view = MatchView(match)
    assert view.board(len(match.history)) is None and "division" in view.failed
    assert not any(card_name(card) in view.svg() for hand in hands(match.state)[1:] for card in hand)


# The picture ------------------------------------------------------------------------------------

def words_of(svg): return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("players", range(3, 9))
def test_every_number_of_players_is_drawn(players):
    match, seen = played(f"blob(players={players},cards=6)", seat=players - 1), 0
    while not match.over:
        board = MatchView(match).board(len(match.history))
        svg, aims = MatchView(match).svg(), board.aims()
        words, held = words_of(svg), hands(match.state)[match.line.seats[0]]
        for seat in range(players): assert player_name(match.line, seat, "heuristic") in words
        assert svg.count('fill="#7C2D3A"') == sum(map(len, hands(match.state))) - len(held)    # a back for each hidden card
        assert set(match.game.legal_actions(match.state)) <= set(aims) and {a for a in aims if a < BID} == set(held)
        boxes = [board.areas[aims[action]] for action in aims]
        for k, (x, y, w, h) in enumerate(boxes):
            assert 0 <= x and 0 <= y and x + w <= board.widths[0] and y + h <= board.heights[0]
            for u, v, a, b in boxes[:k]: assert x >= u + a or u >= x + w or y >= v + b or v >= y + h
        seen += 1
        match.move(match.game.heuristic(match.state)), answered(match)
    assert seen == 7


def test_legal_cards_stand_out_and_a_forbidden_bid_is_struck_out():
    match = played(moves=9)
    board, legal = MatchView(match).board(len(match.history)), match.game.legal_actions(match.state)
    marks = MatchView(match).marks(board)
    assert marks.legal == {board.aims()[action] for action in legal} and match.state[MOVER] == 0
    bid = next(match for seed in range(20) if (match := played(seed=seed)) and dealer(match.state) == 0)
    board, legal = MatchView(bid).board(len(bid.history)), bid.game.legal_actions(bid.state)
    forbidden, = {action for action in board.aims() if action >= BID} - set(legal)
    svg = MatchView(bid).svg()
    assert svg.count('stroke="#FFB3A7"') == 1 and board_svg(board, Marks()).count('stroke="#FFB3A7"') == 0
    before = bid.line
    assert not bid.move(forbidden) and "dealer may not" in bid.said and bid.line is before


def test_the_last_trick_is_shown_until_the_next_is_finished():
    match, told = played("blob(players=4,cards=3,game=full)"), 0
    while not match.over:
        view = seat_view(match.line, len(match.history), "heuristic")
        lying, last, winner = tricks_shown(view)
        cards = [action for action in match.history if action < BID]
        assert [card for _, card in last + lying] == cards[len(cards) // 4 * 4 - 4 if len(cards) >= 4 else 0:]
        if last:
            line = next(line for line in MatchView(match).text().splitlines() if line.startswith("last trick"))
            assert all(card_name(card) in line for _, card in last) and line.endswith(f"; {view.names[winner]} won it")
            assert "last trick" in words_of(MatchView(match).svg())
            told += 1
        match.move(match.game.heuristic(match.state)), answered(match)
    assert told > 10


def test_the_end_shows_all_hands_and_everybodys_points():
    match = played(moves=99)
    start, text = match.line.states[0], MatchView(match).text()
    assert match.over and all(card_name(card) in text for hand in hands(start) for card in hand)
    assert result_words(match.line, "heuristic") in match.said and "win" not in match.said and "lose" not in match.said
    assert match.said.endswith("Points: " + ", ".join(
        f"{'heuristic ' * bool(seat)}{seat + 1 if seat else 'You'} {points}" for seat, points in enumerate(scores(match.state))) + ".")
    assert match.undo() and "dealt" not in MatchView(match).text()   # and they are hidden again


@pytest.mark.parametrize("name", ["blob(players=3,cards=5)", "blob(players=5,cards=2,game=full)"])
def test_values_stand_for_points(name):
    for seed in range(5):
        match = played(name, 9999, seed=seed)
        results = match.game.returns(match.state)
        assert np.allclose([points_of(match.state, value) for value in results], scores(match.state), atol=1e-3)


def test_a_person_without_cards_watches_the_deal():
    "`deals=all` deals to three players or more of five."
    name = "blob(players=5,cards=3,deals=all)"
    seed = next(seed for seed in range(99) if get_game(name).new_match(seed)[PLAYERS] == 3)
    match = Match(get_game(name), HeuristicPlayer(get_game(name)), 4, seed=seed)
    while not match.over:
        board, text = MatchView(match).board(len(match.history)), MatchView(match).text()
        assert not board.aims() and "Your seat is empty in this deal." in words_of(MatchView(match).svg())
        assert not any(card_name(card) in text for hand in hands(match.state) for card in hand) and shown(match)
        assert match.reply(), match.said
    assert "dealt" in MatchView(match).text() and shown(match) and match.said.endswith(result_words(match.line, match.name))


# Clicks -----------------------------------------------------------------------------------------

def clickable(match):
    pytest.importorskip("ipywidgets")
    board = PlayBoard(match)
    board.patience_s = board.ignore_until = 0
    return board


@pytest.mark.parametrize("make", [HeuristicPlayer, lambda game: RolloutPlayer(game, 20), RandomPlayer,
                                  lambda game: Agent(game, UniformEvaluator(game), 6, "search")])
def test_a_full_game_by_clicks_alone(make):
    game = get_game("blob(players=4,cards=3,game=full)")
    board = clickable(play(game, make(game), widgets=True))
    match, rng, buttons, rounds = board.match, np.random.default_rng(0), len(board.widgets.grid.buttons), set()
    while not match.over:
        assert match.turn and not board.widgets.choices.widget.children
        rounds.add(int(find_table(game).deal(match.state)))
        legal, moves = game.legal_actions(match.state), match.history
        aims = MatchView(match).board(len(moves)).aims()
        action = int(rng.choice(list(aims)))
        board.widgets.grid.buttons[aims[action]].click()
        assert (match.history[:len(moves) + 1] == [*moves, action]) == (action in legal) and match.history[:len(moves)] == moves
    assert rounds == set(range(8)) and result_words(match.line, match.name) in board.widgets.panel.value
    assert len(board.widgets.grid.buttons) == buttons == 7 and np.array_equal(match.state, match.line.states[-1])


def test_buttons_lie_where_the_cards_are_drawn():
    board = clickable(played(moves=8))
    drawn = MatchView(board.match).board(len(board.match.history))
    for button, square, (x, y, w, h) in zip(board.widgets.grid.buttons, drawn.squares, drawn.areas):
        assert button.layout.grid_area == f"{y + 1} / {x + 1} / {y + h + 1} / {x + w + 1}"
        assert button.tooltip.startswith(card_words(square.action) if square.action >= 0 else "")
        assert (button.layout.visibility == "hidden") == (square.action < 0)


# Commands ---------------------------------------------------------------------------------------

def test_every_mistake_is_a_sentence_and_changes_nothing():
    match, told = played(), set()
    while not match.over:
        for action in set(range(match.game.actions)) - set(match.game.legal_actions(match.state)):
            line = match.line
            assert not match.move(action) and match.line is line and match.said.endswith(".") and match.said.count(".") == 1
            told.add(re.sub(r"[♠♥♣♦][\dTJQKA]|\d|spades|hearts|clubs|diamonds", "#", match.said))
        match.move(match.game.heuristic(match.state)), answered(match)
    assert {"You do not hold #.", "Bidding is over; play a card.", "# does not follow suit: # were led, and you hold some.",
            "Bid first: say how many tricks you will win.", "With # cards you can bid # to #."} <= told


def test_swapping_seats_deals_anew_and_undo_brings_the_game_back():
    match = played(moves=8)
    line = match.line
    assert match.swap() and match.line.seats == (1,) and "dealt again" in match.said
    assert hands(match.line.states[0]) != hands(line.states[0]) and not match.history
    assert match.undo() and match.line is line


def test_a_saved_round_goes_on(tmp_path):
    match = played(moves=9, seat=2)
    assert match.save(tmp_path / "cards.json")
    again = Match(match.game, HeuristicPlayer(match.game))
    assert again.load(tmp_path / "cards.json") and again.line.seats == (2,) and shown(again)[2] == shown(match)[2]
    assert again.undo() and again.move(again.game.heuristic(again.state))


def test_several_persons_see_the_hand_of_whoever_is_to_move():
    match = Match(get_game("blob(players=3,cards=4)"))
    for _ in range(8):
        text, mover = MatchView(match).text(), int(match.state[MOVER])
        for seat, hand in enumerate(hands(match.state)):
            assert all((card_name(card) in text) == (seat == mover) for card in hand)
        match.move(match.game.heuristic(match.state))


@pytest.mark.parametrize("words, action", [("♠A", 12), ("sa", 12), ("A♠", 12), ("h10", 21), ("HT", 21), ("♥ 10", 21), ("d2", 39), ("c3", 27),
                                           ("bid 3", BID + 3), ("bid 99", None), ("x", None), ("", None), ("♠", None), ("s1", None)])
def test_words_for_cards_and_bids(words, action):
    state = get_game("blob(players=4,cards=5)").new(0)
    assert read_words(state, words) == action
    assert read_words(state, "3") == BID + 3 and read_words(played(moves=6).state, "3") is None


def test_a_typed_round():
    game = get_game("blob(players=4,cards=3)")
    match, told = Match(game, HeuristicPlayer(game)), []

    def ask(prompt):
        if match.over: return ""
        action = game.heuristic(match.state)
        if len(told) % 3 == 0: return "SX"
        return str(action - BID) if action >= BID else "shcd"[action // 13] + "23456789TJQKA"[action % 13]

    play_text(match, ask, told.append)
    assert match.over and told[-1] == result_words(match.line, "heuristic") and any("not a legal move" in line for line in told)
    assert any(line.startswith("heuristic 2 bids ") for line in told) and any(line.startswith("heuristic 3 plays ") for line in told)


def test_players_by_name_and_in_either_order():
    game = get_game("blob(players=3,cards=2)")
    for match in (make_match(game, HeuristicPlayer(game)), make_match(HeuristicPlayer(game), game), make_match("heuristic", game.name), make_match(game, "heuristic")):
        assert match.name == "heuristic" and match.game.name == game.name and answered(match).turn
    with pytest.raises(ValueError, match="say which"): play("heuristic")
