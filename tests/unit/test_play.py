"""A board to play on: whole games with clicks of all kinds, undo, files, widgets without a front end, typed moves."""
import base64, importlib.util, json, re, threading
from dataclasses import replace
from pathlib import Path
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.arena.players import RandomPlayer, RolloutPlayer
from alphazero_nb.ui.board import Board, Square, Step, register_drawing
from alphazero_nb.ui.coach import coach
from alphazero_nb.ui.game_line import GameLine, Handicap, find_handicaps, register_handicaps
from alphazero_nb.ui.match import Match, Refused, rating_words, seconds_words
from alphazero_nb.ui.match_text import player_name, result_words, write_move
from alphazero_nb.ui.saved_game import read_saved_game
from alphazero_nb.ui.match_view import (COMPILING, ENDED, MatchView, run_typed, banner_html, expected_points, explain_wait, mark_last,
                                        match_html, move_list, piece_letters, play_text, text_board, value_bar, value_curve)
from alphazero_nb.ui.play import Choices, PlayBoard, make_match, open_match, play
from alphazero_nb.ui import board as board_module, match_view as view_page, play as play_page
from notebook_kernel import HTML, NEW_PAGE, VIEW, answer, say

GAMES = ["tictactoe", "connect4", "gomoku(size=5)", "dots(rows=2,cols=3)"]
if importlib.util.find_spec("pyspiel"):
    GAMES += [f"openspiel(game={word})" for word in ("tic_tac_toe", "connect_four", "othello", "hex,board_size=3")]


def searcher(game, simulations=10): return Agent(game, UniformEvaluator(game), simulations, "search")


def snapshot(match): return match.line, list(match.past), list(match.future)


class Race:
    "Three players in turn take 1 or 2 stones from 9; who takes the last one wins."
    def __init__(self, seed): self.left, self.seat, self.last = 9, 0, -1
    def mover(self): return self.seat if self.left else -1
    def legal(self): return [action for action in (0, 1) if action < self.left]
    def returns(self): return [1.0 if seat == self.last else -1.0 for seat in range(3)]
    def observe(self): return np.array([self.left, self.seat])

    def play(self, action):
        self.left, self.last = self.left - action - 1, self.seat
        self.seat = (self.seat + 1) % 3


RACE = PythonGame("race", Race, players=3, actions=2, shape=(2,), max_length=9)


@pytest.fixture(autouse=True)
def ratings(tmp_path, monkeypatch):
    "The file of ratings of these tests, so that none reads or writes that of a person."
    path = tmp_path / "home" / "ratings.json"
    monkeypatch.setattr("alphazero_nb.search.levels.ratings_file", lambda: path)
    return path


# Whole games ------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("kind", ["search", "random"])
def test_whole_games_with_clicks_of_all_kinds(name, kind):
    game, rng = get_game(name), np.random.default_rng(1)
    for seat in range(game.players):
        match = Match(game, searcher(game) if kind == "search" else RandomPlayer(game, 3), seat)
        while not match.over:
            if match.waiting:
                assert match.reply() and match.said
                continue
            legal, before = game.legal_actions(match.state), snapshot(match)
            action = int(rng.integers(-2, game.actions + 2)) if rng.random() < 0.5 else int(rng.choice(legal))
            done = match.move(action)
            assert done == (action in legal) and match.said.endswith(".")
            if not done: assert snapshot(match) == before
        assert np.array_equal(match.state, game.state_after(match.history))
        assert not match.move(0) and "over" in match.said and not match.reply()
        assert result_words(match.line, match.name) in ("You win.", "You lose.", "A draw.")
        assert len(match.line.analyses) == len(match.line.states) == len(match.history) + 1


def test_words_for_every_mistake():
    game = get_game("tictactoe")
    match = Match(game, searcher(game))
    for wrong, word in (("e4", "'e4'"), (None, "None"), (2.5, "2.5"), (9, "9 is not a move"), (-1, "-1 is not a move")):
        assert not match.move(wrong) and word in match.said
    assert match.move(np.int64(4)) and match.waiting
    assert not match.move(0) and match.said == "It is search's turn."
    assert match.reply() and not match.reply() and match.said == "It is your move."
    assert not match.move(4) and match.said == "4 is not a legal move here."
    match.busy = True
    before = snapshot(match)
    for method in (match.undo, match.redo, match.new, match.swap, match.hint, match.analyse, match.reply):
        assert not method() and "thinking" in match.said
    assert not match.move(0) and "thinking" in match.said and not match.load("x") and snapshot(match) == before


def test_a_player_may_move_twice_and_the_agent_too():
    game, twice = get_game("dots(rows=2,cols=2)"), set()
    match = Match(game, RandomPlayer(game, 0))
    rng = np.random.default_rng(0)
    while not match.over:
        mover = game.mover(match.state)
        match.reply() if match.waiting else match.move(int(rng.choice(game.legal_actions(match.state))))
        if game.mover(match.state) == mover: twice.add(mover)
    assert twice == {0, 1}


def test_three_players_and_a_person_in_each_seat():
    for seat in range(3):
        match = Match(RACE, searcher(RACE), seat)
        while not match.over: match.reply() if match.waiting else match.move(RACE.legal_actions(match.state)[0])
        names = [player_name(match.line, other, match.name) for other in range(3)]
        assert names[seat] == "You" and len(set(names)) == 3
        assert result_words(match.line, match.name) == ("You win." if RACE.returns(match.state)[seat] > 0 else "You lose.")
    together = Match(RACE, searcher(RACE), (0, 1))
    assert together.move(0) and together.move(0) and together.waiting and together.said.startswith("Player 2 plays")


@pytest.mark.parametrize("results, seats, words", [
    ([.5, .2, -.7], (0,), "You win."), ([.5, .2, -.7], (1,), "You lose."), ([.5, .2, -.7], (0, 1), "Player 1 wins."),
    ([1, 0, -1], (1,), "You lose."), ([-.2, -.4, -1], (0,), "You win."), ([-1, -1, -1], (2,), "A draw."), ([1, 1, 1], (2,), "A draw."),
    ([.3, .3, -.6], (1,), "search 1 and You win."), ([.3, .3, -.6], (2,), "You lose."), ([.3, -.6, .3], (0, 2), "Player 1 and Player 3 win."),
])
def test_the_highest_result_wins(results, seats, words):
    class Given(Race):
        def returns(self): return results

    game = PythonGame("given", Given, players=3, actions=2, shape=(2,), max_length=9)
    match = Match(game, seat=0)
    for _ in range(9): match.move(0)
    assert match.over and result_words(replace(match.line, seats=seats), "search") == words


@pytest.mark.parametrize("seat", [-1, 2, (), (0, 5)])
def test_seats_that_are_not_there(seat):
    game = get_game("tictactoe")
    with pytest.raises(ValueError, match="seats 0 to 1"): Match(game, searcher(game), seat)


# Agents that fail -------------------------------------------------------------------------------

class Moody:
    "An agent that misbehaves first and plays then."
    name = "moody"
    def __init__(self, game, *moods): self.game, self.moods = game, list(moods)

    def act(self, state):
        mood = self.moods.pop(0) if self.moods else None
        if isinstance(mood, BaseException): raise mood
        return self.game.legal_actions(state)[0] if mood is None else mood


@pytest.mark.parametrize("mood, word", [(RuntimeError("out of memory.\nmore"), "This failed: out of memory. "),
                                        (KeyboardInterrupt(), "Stopped. "), (99, "the agent chose 99, which is not a legal move"),
                                        (KeyError(), "This failed: KeyError. ")])
def test_an_agent_that_fails_costs_nothing(mood, word):
    game = get_game("tictactoe")
    match = Match(game, Moody(game, mood))
    match.move(4)
    before = snapshot(match)
    assert not match.reply() and word in match.said and snapshot(match) == before and not match.busy
    assert match.reply() and match.history == [4, 0]


def test_the_error_of_rules_in_python_is_shown_and_the_game_stays():
    class Broken(Race):
        def play(self, action):
            if self.left == 7: raise RuntimeError("the bag has a hole")
            super().play(action)

    game = PythonGame("broken", Broken, players=3, actions=2, shape=(2,), max_length=9)
    match = Match(game, seat=0)
    assert match.move(1) and not match.move(0) and "the bag has a hole" in match.said and match.history == [1]
    for agent in (RolloutPlayer(game, 20), searcher(game)):
        match = Match(game, agent, seat=2)
        match.move(1), match.reply()
        assert "the bag has a hole" in match.said and match.history == []


class Restless(Moody):
    "Tries to move, to begin anew and to load while it is asked for its move."
    match = None

    def act(self, state):
        match = self.match
        self.seen = [(command(*arguments), match.said) for command, arguments in ((match.move, (0,)), (match.new, ()), (match.undo, ()))]
        return super().act(state)


def test_nothing_is_done_while_the_agent_thinks():
    game = get_game("tictactoe")
    agent = Restless(game)
    match = agent.match = Match(game, agent)
    assert match.move(4) and match.reply() and match.history == [4, 0] and not match.busy
    assert all(not done and "moody is thinking" in said for done, said in agent.seen) and len(agent.seen) == 3


def test_a_command_is_done_whole_or_not_at_all(tmp_path):
    class Dying(Race):
        def returns(self): return 1 / 0   # Nobody can say who has won

    game = PythonGame("dying", Dying, players=3, actions=2, shape=(2,), max_length=9)
    match = Match(game)
    for action in (1, 1, 1, 1): assert match.move(action)
    before = vars(match).copy()
    assert not match.move(0) and "division by zero" in match.said and match.said.endswith("The game has not changed.")
    assert {**vars(match), "said": ""} == {**before, "said": ""}
    assert match.save(tmp_path / "game.json") and Match(game).load(tmp_path / "game.json")


# Undo, seats, looking back ----------------------------------------------------------------------

def test_undo_and_redo_are_opposites():
    game, rng = get_game("connect4"), np.random.default_rng(5)
    match, lines = Match(game, searcher(game)), []
    while not match.over:
        lines.append(match.line)
        match.move(int(rng.choice(game.legal_actions(match.state))))
        while match.waiting: match.reply()
    end = match.line
    for line in reversed(lines): assert match.undo() and match.line is line
    assert not match.undo() and "nothing to undo" in match.said
    for line in lines[1:] + [end]: assert match.redo() and match.line is line
    assert not match.redo() and match.line is end
    match.undo(), match.undo()
    match.move(game.legal_actions(match.state)[0])
    assert not match.future and not match.redo()


def test_new_game_and_swap_are_taken_back_like_moves():
    game = get_game("tictactoe")
    match = Match(game, searcher(game))
    match.move(0), match.reply()
    line = match.line
    assert match.swap() and match.line.seats == (1,) and match.waiting and match.history == list(line.actions)
    assert "You are now player 2" in match.said
    assert match.new() and match.history == [] and match.line.seed == line.seed + 1 and match.waiting
    assert match.undo() and match.undo() and match.line is line
    assert Match(game).swap() is False


def test_looking_back_changes_nothing_and_a_move_there_starts_a_branch():
    game = get_game("tictactoe")
    match = Match(game, searcher(game))
    match.move(0), match.reply(), match.move(game.legal_actions(match.state)[-1]), match.reply()
    line = match.line
    for ply in (0, 2, 1):
        assert match.look(ply) and match.ply == ply
        assert match.line is line and match.can_play == (ply % 2 == 0)
    assert not match.move(game.legal_actions(match.here)[0]) and match.said.startswith("It is search's turn after move 1;")
    assert not match.look(5) and not match.look(-1) and not match.look("2") and match.ply == 1 and match.line is line
    assert match.look(4) and match.shown is None and match.line is line
    match.look(2)
    other = next(action for action in game.legal_actions(match.here) if action != line.actions[2])
    assert match.move(other) and match.history == [*line.actions[:2], other] and match.waiting and match.shown is None
    assert "Undo brings the other continuation back" in match.said
    branch = match.line
    assert match.undo() and match.line is line and match.redo() and match.line is branch


def test_a_hint_is_a_legal_move_and_no_move():
    game = get_game("tictactoe")
    match = Match(game, searcher(game, 300))
    match.line = match.line.after(0).after(3).after(1).after(4)
    actions = match.history
    assert match.hint() and match.advice == 2 and match.history == actions   # three in a row
    analysis = match.line.analyses[-1]
    assert 0 < sum(analysis.visits.values()) <= 300 and sum(analysis.shares().values()) == pytest.approx(1)
    assert analysis.values == (1, -1), "proven"
    assert match.move(match.advice) and match.over and not match.hint() and "over" in match.said
    assert not Match(game).hint()


def test_analysis_fills_every_position_and_keeps_earlier_results():
    game = get_game("connect4")
    match = Match(game, searcher(game, 30))
    for action in (3, 3, 2): match.move(action), match.reply()
    known = [analysis for analysis in match.line.analyses if analysis]
    assert known and match.analyse() and all(match.line.analyses) and all(match.line.values())
    assert [analysis for analysis in match.line.analyses if any(analysis is old for old in known)] == known
    assert match.analyse() and not Match(game, RandomPlayer(game)).analyse()


def test_the_number_of_simulations_is_the_matchs_own():
    game = get_game("tictactoe")
    agent = searcher(game, 10)
    match = Match(game, agent, simulations=25)
    match.move(4), match.reply()
    assert sum(match.line.analyses[1].visits.values()) == 25 and agent.settings.simulations == 10
    assert not match.set_simulations(0) and match.agent.settings.simulations == 25 and match.set_simulations(7)
    assert match.agent.settings.simulations == 7


# Files ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", GAMES)
def test_a_saved_game_is_the_game(name, tmp_path):
    game, rng = get_game(name), np.random.default_rng(2)
    match = Match(game, searcher(game))
    while not match.over: match.reply() if match.waiting else match.move(int(rng.choice(game.legal_actions(match.state))))
    match.hint()
    assert match.save(tmp_path / "game.json")
    line = read_saved_game(tmp_path / "game.json")
    assert line.game.name == game.name and line.actions == match.line.actions and line.analyses == match.line.analyses
    assert line.seats == (0,)
    other = Match(game, searcher(game))
    other.move(game.legal_actions(other.state)[0])
    mine, moves = other.line, [ply for ply, state in enumerate(match.line.states[:-1]) if game.mover(state) == 0]
    assert other.load(tmp_path / "game.json") and result_words(other.line, other.name) == result_words(match.line, match.name)
    for ply in reversed(moves): assert other.undo() and len(other.history) == ply
    assert other.undo() and other.line is mine


def test_saving_writes_over_nothing_of_others(tmp_path):
    match = Match(get_game("tictactoe"))
    (tmp_path / "mine.json").write_text("a letter")
    assert not match.save(tmp_path / "mine.json") and (tmp_path / "mine.json").read_text() == "a letter"
    assert match.save(tmp_path / "game.json") and match.move(4) and match.save(tmp_path / "game.json")
    assert match.new() and not match.save(tmp_path / "game.json")   # another game now
    assert json.loads((tmp_path / "game.json").read_text())["actions"] == [4]
    assert not match.save("") and not match.save("\0") and not match.save(tmp_path / "nowhere" / "game.json")
    assert match.said == f"{tmp_path / 'nowhere' / 'game.json'} cannot be written: No such file or directory."
    assert not match.save(tmp_path)


def test_the_button_writes_the_agent_as_a_page(tmp_path, monkeypatch):
    import alphazero_nb
    game, written = get_game("tictactoe"), []
    monkeypatch.setattr(alphazero_nb, "export_page", lambda agent, file: written.append((agent, file)), raising=False)
    monkeypatch.chdir(tmp_path)
    match = Match(game, searcher(game))
    widgets = PlayBoard(match).make_widgets()
    widgets.share.page.click()
    assert written == [(match.agent, Path("tictactoe-1.html"))] and "plays as search, in any browser" in match.said
    Path("tictactoe-1.html").write_text("a letter")
    widgets.share.page.click()
    assert len(written) == 1 and match.said == "tictactoe-1.html already exists; choose another name, such as tictactoe-2.html."
    for name, file in (("tic v1.2", "tic v1.2.html"), ("tic v1.3.html", "tic v1.3.html"), ("tic.JSON", "tic.html")):
        assert match.write_page(name) and written[-1] == (match.agent, Path(file))
    monkeypatch.undo()
    for wrong, words in ((match, "a page needs the network of an agent"), (Match(game), "There is no agent to write")):
        assert not wrong.write_page(tmp_path / "page") and wrong.said.startswith(words) and list(tmp_path.glob("page*")) == []


def test_a_game_with_the_largest_seed_is_saved_and_read(tmp_path):
    game = get_game("tictactoe")
    match = Match(game, seed=2**63 - 1)
    match.move(4)
    match.save(tmp_path / "game.json")
    assert read_saved_game(tmp_path / "game.json").seed == 2**63 - 1


GOOD = dict(game="tictactoe", seed=0, seats=[0], agent="a", actions=[4, 0], outcome=None, thoughts=[None, None, None])
DAMAGE = {
    "nothing": None, "no JSON": "{", "a list": "[]", "deep": "[" * 100_000, "another game": dict(game="connect4"),
    "an illegal move": dict(actions=[4, 4]), "a move of words": dict(actions=["e4", 0]), "a negative move": dict(actions=[4, -1]),
    "moves after the end": dict(actions=[0, 3, 1, 4, 2, 5], thoughts=[None] * 7), "a true move": dict(actions=[4, True]),
    "no seats": dict(seats=[]), "a strange seat": dict(seats=[2]), "seats no list": dict(seats=0),
    "a seed of words": dict(seed="x"),
    "too few thoughts": dict(thoughts=[None]), "a thought of words": dict(thoughts=["deep", None, None]),
    "values of another game": dict(thoughts=[dict(values=[0], visits={}), None, None]),
    "infinite values": dict(thoughts=[dict(values=[float("nan"), 0], visits={}), None, None]),
    "visits of no action": dict(thoughts=[dict(values=[0, 0], visits={"99": 1}), None, None]),
    "visits of an illegal move": dict(thoughts=[None, dict(values=[0, 0], visits={"4": 1}), None]),
    "negative visits": dict(thoughts=[dict(values=[0, 0], visits={"1": -1}), None, None]),
    "a value beyond floats": dict(thoughts=[dict(values=[10**400, 0], visits={}), None, None]),
    "rolls where nobody rolls": dict(rolls=[[1], []]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_bad_file_is_a_sentence_and_costs_nothing(damage, tmp_path):
    path, what = tmp_path / "game.json", DAMAGE[damage]
    if what is not None: path.write_text(what if isinstance(what, str) else json.dumps({**GOOD, **what}))
    match = Match(get_game("tictactoe"))
    match.move(4)
    before = snapshot(match)
    assert not match.load(path) and match.said.endswith(".") and "\n" not in match.said and snapshot(match) == before
    with pytest.raises(ValueError): read_saved_game(path, get_game("tictactoe"))


def test_the_good_file_of_these_tests_is_good(tmp_path):
    thoughts = [None, dict(values=[0, 0], visits={"0": 3, "8": 1}), None]
    (tmp_path / "game.json").write_text(json.dumps(dict(GOOD, thoughts=thoughts)))
    assert Match(get_game("tictactoe")).load(tmp_path / "game.json")


def test_a_folder_is_no_saved_game(tmp_path):
    match = Match(get_game("tictactoe"))
    assert not match.load(tmp_path) and not match.load("") and not match.load("\0")


# Pictures ---------------------------------------------------------------------------------------

def test_a_drawing_that_fails_is_replaced_by_letters(monkeypatch):
    monkeypatch.setattr(board_module, "_drawings", dict(board_module._drawings))
    squares = tuple(Square(k, sign="Q") for k in range(2))
    register_drawing("race", lambda game, state: Board("cells", (50,), (50,) * 2, squares))
    assert MatchView(Match(RACE)).board(0).widths == (50,) * 2
    register_drawing("race", lambda game, state: 1 / 0)
    view = MatchView(Match(RACE))
    assert view.board(0) is None and "division by zero" in view.failed and "<svg" in view.svg()
    pytest.importorskip("ipywidgets")
    board = PlayBoard(view.match)
    board.widgets.choices.buttons[1].click()
    assert view.match.history == [1] and "division by zero" in board.widgets.panel.value


def pictures(text): return [base64.b64decode(part).decode() for part in re.findall(r'base64,([^"]+)"', text)]


@pytest.mark.parametrize("name", GAMES + ["race"])
def test_every_picture_is_well_formed_and_names_are_escaped(name):
    game = RACE if name == "race" else get_game(name)
    match = Match(game, Agent(game, UniformEvaluator(game), 20, "<b>&\"x"))
    while not match.over: match.reply() if match.waiting else match.hint() and match.move(match.advice)
    for ply in range(len(match.history) + 1):
        match.look(ply)
        page = match_html(match)
        assert "<b>&" not in page and len(pictures(page)) >= 2 + game.players
        for svg in pictures(page): ElementTree.fromstring(svg)
    for svg in (value_bar(match), value_curve(match)): ElementTree.fromstring(svg)


def test_visits_are_drawn_where_the_moves_go():
    game = get_game("connect4")
    match = Match(game, searcher(game, 70))
    match.move(3)
    before = MatchView(match).board(1).aims()
    match.reply()
    marks = MatchView(match).marks(MatchView(match).board(2))
    assert sum(marks.shares.values()) == pytest.approx(1) and set(marks.shares) <= set(before.values())
    assert marks.last == {before[match.history[-1]]} and len(marks.legal) == 7
    match.hint()
    marks, aims = MatchView(match).marks(MatchView(match).board(2)), MatchView(match).board(2).aims()
    assert set(marks.shares) <= set(aims.values()) and marks.best == aims[match.advice]
    assert not MatchView(match).marks(MatchView(match).board(2), visits=False).shares


def test_expected_points():
    assert expected_points((1, -1)) == [1, 0] and expected_points((0, 0)) == [0.5, 0.5]
    assert expected_points((1, -1, 0)) == [1, 0, 0.5]


# Widgets ----------------------------------------------------------------------------------------

def clickable(name, **options):
    game = RACE if name == "race" else get_game(name)
    board = PlayBoard(Match(game, searcher(game), **options))
    board.patience_s = board.ignore_until = 0
    return board


@pytest.mark.parametrize("name", GAMES + ["race"])
def test_a_game_by_clicks_alone(name):
    pytest.importorskip("ipywidgets")
    board, rng = clickable(name, seat=1), np.random.default_rng(3)
    match, game = board.match, board.match.game
    assert match.turn and match.history   # the agent has begun
    while not match.over:
        offered = [button for button in board.widgets.choices.widget.children]
        buttons = offered if offered else board.widgets.grid.buttons
        moves = len(match.history)
        buttons[rng.integers(len(buttons))].click()
        assert match.turn or match.over
        assert len(match.history) > moves or "not a legal move" in match.said or "No move belongs to this square" in match.said
    assert result_words(match.line, match.name) in board.widgets.panel.value and np.array_equal(match.state, game.state_after(match.history))


def test_the_buttons_do_what_they_say(tmp_path, monkeypatch):
    pytest.importorskip("ipywidgets")
    monkeypatch.chdir(tmp_path)
    board = clickable("tictactoe")
    match, widgets = board.match, board.widgets
    play, look, share = widgets.play, widgets.look, widgets.share
    widgets.grid.buttons[4].click()
    first = match.line
    widgets.grid.buttons[4].click()
    assert match.line is first and "4 is not a legal move here" in widgets.panel.value
    play.hint.click()
    assert match.advice is not None and 'would play' in widgets.panel.value
    play.undo.click(), play.redo.click()
    assert match.history == list(first.actions)
    assert look.moves.options[1][0] == "1. 4" and look.moves.value == 2
    look.back.click()
    assert match.ply == 1 == look.moves.value
    widgets.grid.buttons[match.game.legal_actions(match.state)[0]].click()
    assert "It is search's turn after move 1" in match.said and match.history == list(first.actions)
    look.moves.value = 0
    assert match.ply == 0
    look.back.click(), look.forth.click(), look.forth.click(), look.forth.click()
    assert match.ply == 2 and match.shown is None
    look.analyse.click()
    assert all(match.line.values()) and widgets.curve.value
    look.moves.value = 0
    widgets.grid.buttons[8].click()                                    # a branch
    assert match.history[0] == 8 and len(match.history) == 2 and match.undo() and match.history == list(first.actions)
    assert share.file.value == "tictactoe-1.json"
    share.save.click(), share.save.click()
    assert match.said == "Saved as tictactoe-1.json, over the earlier save of this game."
    play.new.click()
    assert match.history == [] and share.file.value == "tictactoe-2.json"
    share.load.click()
    assert match.said == "There is no file 'tictactoe-2.json'." and match.history == []
    share.file.value = "tictactoe-1.json"
    share.save.click()
    assert match.said == "tictactoe-1.json already exists; choose another name, such as tictactoe-2.json."
    assert share.file.value == "tictactoe-2.json" and json.loads(Path("tictactoe-1.json").read_text())["actions"] == list(first.actions)
    share.file.value = "tictactoe-1.json"
    share.load.click()
    assert match.history == list(first.actions)
    play.swap.click()
    assert match.line.seats == (1,) and len(match.history) == 3 and match.turn
    drawn = widgets.grid.picture.value
    look.visits.value = False
    assert widgets.grid.picture.value != drawn


def test_an_agent_without_levels_has_a_number_of_simulations():
    pytest.importorskip("ipywidgets")
    game = get_game("tictactoe")
    class Unlevelled(Agent):
        levels = ()
    board = PlayBoard(Match(game, Unlevelled(game, UniformEvaluator(game), 10, "search")))
    play, match = board.widgets.play, board.match
    assert play.level.layout.display == play.match_me.layout.display == "none" and play.strength.layout.display == ""
    assert [number for _, number in play.strength.options] == [10, 50, 200, 800, 3200] and not match.set_level(1)
    play.strength.value = 50
    assert match.agent.settings.simulations == 50 and "quick, 50 simulations" == play.strength.options[1][0]
    board.widgets.grid.buttons[4].click()
    assert play.strength.options[1][0].endswith(" s a move") and play.strength.value == 50


class Frog:
    "A frog on one of four places hops one or two to the right; on the last place it may stay a frog or become a prince."
    def __init__(self, seed): self.at, self.hops = 0, 0
    def mover(self): return -1 if self.at == 3 else self.hops % 2
    def legal(self): return [action for action in range(4) if (self.at + action % 2 + 1) <= 3 and (action < 2 or self.at + action % 2 == 2)]
    def returns(self): return [1.0, -1.0] if self.hops % 2 else [-1.0, 1.0]
    def observe(self): return np.array([self.at])
    def play(self, action): self.at, self.hops = self.at + action % 2 + 1, self.hops + 1


def draw_frog(game, state):
    at = game.position(state).at
    steps = tuple(Step(action, at, at + action % 2 + 1, "prince" if action > 1 else "frog") for action in game.legal_actions(state))
    return Board("cells", (50,), (50,) * 4, tuple(Square(seat=0 if place == at else -1) for place in range(4)), steps=steps)


def test_a_game_of_ones_own_with_moves_from_square_to_square(monkeypatch):
    pytest.importorskip("ipywidgets")
    monkeypatch.setattr(board_module, "_drawings", dict(board_module._drawings))
    register_drawing("frog", draw_frog)
    board = PlayBoard(Match(PythonGame("frog", Frog, players=2, actions=4, shape=(1,), max_length=3)))
    board.widgets or board.make_widgets()
    click, choices = (lambda place: board.widgets.grid.buttons[place].click()), board.widgets.choices.widget
    click(0), click(2)
    assert board.match.history == [1] and not choices.children
    click(2), click(3)
    assert [button.description for button in choices.children] == ["frog", "prince"] and board.match.history == [1]
    choices.children[1].click()
    assert board.match.history == [1, 2] and board.match.over and not choices.children


PAWN = "chess(fen=8/P6k/8/8/8/8/7p/K7 w - - 0 1)"   # a7 is place 8, a8 is place 0, a1 is place 56


def test_chess_by_clicks():
    pytest.importorskip("ipywidgets")
    board = PlayBoard(Match(get_game(PAWN)))   # Two people
    match, widgets = board.match, board.widgets
    def click(*places):
        for place in places: widgets.grid.buttons[place].click()
        return match.said
    def drawn(): return widgets.grid.picture.value
    before = drawn()
    assert click(1) == "No move starts on this square." and click(15) == "No move starts on this square." and drawn() == before
    assert "Now click" in click(56) and drawn() != before and click(56) == "Your move." and drawn() == before
    assert click(56, 0) == "This piece cannot go there." and drawn() == before and match.history == []
    assert "Now click" in click(56, 8)                         # another piece of one's own
    assert "buttons below" in click(0) and match.history == []
    assert [button.description for button in widgets.choices.widget.children] == ["queen", "rook", "bishop", "knight"]
    click(56)                                                  # changed one's mind
    assert not widgets.choices.widget.children
    click(56, 8, 0)
    widgets.choices.widget.children[3].click()
    assert "a8=N" in match.said and match.game.text(match.state).startswith("8 N") and not widgets.choices.widget.children
    click(15, 14)
    assert "Kg7" in match.said and len(match.history) == 2    # Black's move has the name that White would use
    widgets.play.undo.click()
    assert len(match.history) == 1 and "Now click" in click(15)
    widgets.look.back.click()
    assert "Now click" in click(56) and match.ply == 0 and len(match.history) == 1
    assert "plays Kb2. Undo brings" in click(49) and len(match.history) == 1


def test_the_board_of_chess_is_seen_from_ones_own_side():
    pytest.importorskip("ipywidgets")
    board = PlayBoard(Match(get_game(PAWN), RandomPlayer(get_game(PAWN)), seat=1))
    match, widgets = board.match, board.widgets
    board.patience_s = board.ignore_until = 0
    assert len(match.history) == 1 and widgets.play.turn.layout.display == ""
    top = MatchView(match).board(1)
    assert top.rows[0] == 1 and top.squares[63 - 15].sign == "K" and top.squares[63 - 15].seat == 1
    widgets.play.turn.value = True
    assert board.view.board(1).squares[15].sign == "K"
    widgets.grid.buttons[15].click()
    assert board.view.choice.start == 15
    widgets.play.turn.value = False                        # nothing is chosen on the turned board
    assert board.view.choice.start == -1 and board.view.board(1).rows[0] == 1
    start = next(step for step in board.view.board(1).steps if step.start == 48)
    widgets.grid.buttons[start.start].click(), widgets.grid.buttons[start.to].click()
    assert len(match.history) >= 3 and match.history[1] == start.action
    tictactoe = clickable("tictactoe")
    assert tictactoe.widgets.play.turn.layout.display == "none"


def test_a_game_of_chess_against_a_search_with_pictures(tmp_path):
    "By clicks alone; the visits are arrows, and the game opens again, move by move, with its analysis."
    pytest.importorskip("ipywidgets")
    board, rng = clickable("chess(variant=gardner,max_plies=20)", seat=1), np.random.default_rng(4)
    match, game = board.match, board.match.game
    while not match.over and len(match.history) < 12:
        step = board.view.board(match.ply).steps[rng.integers(len(board.view.board(match.ply).steps))]
        for place in (step.start, step.to): board.widgets.grid.buttons[place].click()
        if board.view.choice.steps: board.widgets.choices.widget.children[0].click()
    state = game.new_match()
    for action in match.history: state = game.play(state, action)
    assert np.array_equal(state, match.state)
    match.hint(), match.analyse(), match.save(tmp_path / "game.json")
    again = open_match(tmp_path / "game.json", searcher(game), widgets=False)
    for ply in range(len(match.history) + 1):
        again.look(ply)
        view = MatchView(again)
        marks, page = view.marks(view.board(ply)), match_html(again)
        assert sum(marks.arrows.values()) == pytest.approx(1) or game.over(again.state)
        assert len(marks.last) == (2 if ply else 0) and not marks.legal and not marks.shares
        for svg in pictures(page): ElementTree.fromstring(svg)


def test_a_click_made_while_the_agent_thinks_is_no_move():
    pytest.importorskip("ipywidgets")
    board = clickable("connect4")
    board.patience_s = 60
    seen = []
    reply = board.match.reply
    board.match.reply = lambda: seen.append(("azb-wait" in board.widgets.grid.grid._dom_classes, "is thinking" in board.widgets.panel.value)) or reply()
    board.widgets.grid.buttons[3].click()
    board.widgets.grid.buttons[3].click()   # the second half of a double click
    assert len(board.match.history) == 2 and "came before the agent" in board.widgets.panel.value
    assert seen == [(True, True)] and "azb-wait" not in board.widgets.grid.grid._dom_classes
    board.ignore_until = 0.0
    board.widgets.grid.buttons[3].click()
    assert len(board.match.history) == 4


def test_a_click_made_while_the_board_is_drawn_is_no_move():
    pytest.importorskip("ipywidgets")
    board, drawn = clickable("connect4"), []
    draw = board.draw
    board.draw = lambda *args, **options: (drawn.append(board.ignore_until), draw(*args, **options))
    board.patience_s = 60
    board.widgets.grid.buttons[3].click()
    assert board.ignore_until > drawn[-1] == 0, "the time begins when the reply is on display"


def test_a_proven_reply_says_nothing_about_the_time_of_others():
    game = get_game("tictactoe")
    match = Match(game, searcher(game, 200), seat=1)
    for action in (0, 1, 2, 4, 3, 5, 7, 6): match.line = match.line.after(action)   # One square is left
    match.seconds = {200: 2.0}
    assert match.reply() and match.over and match.seconds == {200: 2.0}
    assert seconds_words(match, 3200) == ", about 32.0 s a move"


@pytest.mark.parametrize("mood", [RuntimeError("out of memory"), KeyboardInterrupt()])
def test_the_next_click_asks_an_agent_again_that_failed(mood):
    pytest.importorskip("ipywidgets")
    game = get_game("tictactoe")
    board = PlayBoard(Match(game, Moody(game, mood)))
    board.patience_s = 0
    board.widgets.grid.buttons[4].click()
    assert board.match.history == [4] and "ask the agent again" in board.widgets.panel.value and "azb-wait" not in board.widgets.grid.grid._dom_classes
    board.ignore_until = 0.0
    board.widgets.grid.buttons[8].click()
    assert board.match.history == [4, 0]


def test_many_moves_become_a_list():
    pytest.importorskip("ipywidgets")
    clicked = []
    choices = Choices(clicked.append, str)
    choices.show(list(range(3)))
    assert [button.description for button in choices.widget.children] == ["0", "1", "2"]
    choices.widget.children[2].click()
    choices.show(list(range(500)))
    choices.go.click()
    choices.list.value = 321
    choices.go.click()
    assert clicked == [2, 321] and len(choices.widget.children) == 2
    choices.show([7])
    choices.widget.children[0].click()
    assert clicked == [2, 321, 7]


def test_the_number_of_widgets_does_not_grow_with_the_game():
    pytest.importorskip("ipywidgets")
    board = clickable("race")
    for _ in range(20): board.widgets.choices.widget.children[0].click() if board.match.turn else board.widgets.play.new.click()
    assert len(board.widgets.choices.buttons) == RACE.actions


def test_a_text_function_that_fails_does_not_stop_the_match():
    pytest.importorskip("ipywidgets")
    game = get_game("tictactoe")
    functions = {key: game.functions[key] for key in ("start", "mover", "legal", "play", "returns", "observe")}
    silent = Game("silent", **functions, state_size=12, players=2, actions=9, shape=(2, 3, 3), max_length=9,
                  cells=np.arange(9), text=lambda state: 1 / 0, action_names=lambda action: "abcdefghi"[action])
    board = PlayBoard(Match(silent, searcher(silent)))
    board.widgets.grid.buttons[4].click()
    assert len(board.match.history) == 2 and "e" in board.match.said


# A page whose widgets are late ------------------------------------------------------------------

def test_a_board_is_a_picture_until_the_page_has_answered(kernel):
    pytest.importorskip("ipywidgets")
    kernel.run(NEW_PAGE + "from alphazero_nb.ui.play import play\nmatch = play('random', 'tictactoe', seat=1)")
    cell = kernel.run("match")
    (first, place, data), = cell.shown
    assert first == "display_data" and set(data) == {HTML} and len(cell.carried) <= 2, "nothing but the question is opened"
    assert "This is a picture" in data[HTML] and "1 move<" in data[HTML] and len(pictures(data[HTML])) >= 3
    answer(kernel, accept=False)
    assert kernel.run("").shown == []
    say(kernel, "comm_open", dict(comm_id="control", target_name="jupyter.widget.control", data={}), dict(version="1.0.0"))
    kernel.run("")
    answer(kernel)
    (kind, where, data), = kernel.run("").shown
    assert kind == "update_display_data" and where == place and VIEW in data
    kernel.run("match.board.patience_s = match.board.ignore_until = 0\n"
               "match.board.widgets.grid.buttons[match.game.legal_actions(match.state)[0]].click()\n"
               "assert len(match.history) == 3")


def test_on_a_page_that_has_answered_the_widgets_follow_the_picture_at_once(kernel):
    pytest.importorskip("ipywidgets")
    kernel.run(NEW_PAGE + "page_widgets.ask()\nfrom alphazero_nb.ui.play import play")
    answer(kernel)
    first, second = kernel.run("play('random', 'tictactoe')").shown
    assert [first[0], second[0]] == ["display_data", "update_display_data"] and first[1] == second[1]
    assert HTML in first[2] and VIEW in second[2]


def test_in_colab_the_widgets_are_shown_at_once_and_no_page_is_asked(kernel):
    pytest.importorskip("ipywidgets")
    kernel.run(NEW_PAGE + "import os\nfrom alphazero_nb.ui.play import play")
    kernel.run("os.environ['COLAB_NOTEBOOK_ID'] = 'x'")
    try:
        cell = kernel.run("play('random', 'tictactoe')")
        (kind, _, data), = cell.shown
        assert kind == "display_data" and VIEW in data
        assert kernel.run("page_widgets.ask(); print(page_widgets.asked)").out == "set()\n"
    finally: kernel.run("del os.environ['COLAB_NOTEBOOK_ID']")


# Typed moves ------------------------------------------------------------------------------------

def typed(match, *words, after=()):
    "What is said when these words are typed, and those in `after` when the game is over."
    rest, later, said = iter(words), iter(after), []

    def ask(prompt):
        try: return next(later if prompt == ENDED else rest)
        except StopIteration: raise EOFError from None

    play_text(match, ask, said.append)
    return said


def test_typed_words(tmp_path):
    game = get_game("gomoku(size=5)")
    match = Match(game, searcher(game))
    file = tmp_path / "g.json"
    said = typed(match, "c3", "zz", "C4", "undo", "redo", "hint", "", f"save {file}", "swap", "new", f"load {file}")
    wrong, = (line for line in said if "'zz'" in line)
    assert wrong.startswith("'zz' is not a legal move; type one of b5, c5, ") and wrong.endswith(" (23 in all), or help.")
    assert any("would play" in line for line in said)
    assert match.history[0] == 12 and match.history[2] == 7 and len(match.history) == 4
    assert plain(said[-1].rpartition("\n")[0]) == game.text(match.state).split()


def plain(text): return text.replace("(", " ").replace(")", " ").split()


def test_the_terminal_lists_its_commands_and_explains_a_missing_file_name():
    said = typed(Match(get_game("tictactoe")), "HELP", "Save", "load", "Undo")
    assert "help" in said[0]
    for word in ("undo", "redo", "hint", "swap", "new", "save FILE", "load FILE", "help", "quit"): assert f"  {word} " in said[2]
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8." in said[2] and said[3] == "save needs a file name, for example: save game.json."
    assert said[4].startswith("load needs a file name") and said[5] == "There is nothing to undo." and len(said) == 6


@pytest.mark.parametrize("name", GAMES[:4])
def test_the_terminal_marks_the_last_move_and_names_the_sides(name):
    game, rng = get_game(name), np.random.default_rng(7)
    for seat in (0, 1):
        match = Match(game, searcher(game), seat)
        letters = piece_letters(game)
        assert letters == ["x", "o"]
        while not match.over:
            match.reply() if match.waiting else match.move(int(rng.choice(game.legal_actions(match.state))))
            board, _, words = text_board(MatchView(match), letters).rpartition("\n")
            before, after = (game.text(state) for state in match.line.states[-2:])
            who = ["You", "search"][(game.mover(match.line.states[-2]) != seat)]
            assert words == (f"x: {'You' if seat == 0 else 'search'}, o: {'search' if seat == 0 else 'You'}; "
                             f"last move: {game.action_name(match.history[-1])} by {who}")
            assert plain(board) == after.split()
            inside = re.findall(r"\(([^ ()]+)\)", board)
            assert 1 <= len(inside) <= 3 and (name.startswith("dots") or inside == ["xo"[game.mover(match.line.states[-2])]])
            match.look(0)
            assert "(" not in text_board(MatchView(match), letters) and "last" not in text_board(MatchView(match), letters)
            match.look(len(match.history))


def test_chess_in_the_terminal():
    match = Match(get_game(PAWN))
    said = typed(match, "a7a8", "A7A8Q", "h7g7", "help")
    assert said[2] == "'a7a8' is not a legal move; type one of Kb1, Ka2, Kb2, a8=Q, a8=N, a8=B, a8=R, or help."
    assert match.history == [match.history[0], match.history[1]] and said[3] == "Player 1 plays a8=Q. Player 2 is to move."
    assert said[4].splitlines()[:2] == [" 8(Q). . . . . . .", " 7(.). . . . . . k"]
    assert said[4].endswith("\nWhite: Player 1, Black: Player 2; last move: a8=Q by Player 1") and "(White)" not in said[4]


def test_games_whose_text_has_no_letters_name_the_seats():
    match = Match(RACE, searcher(RACE), seat=1)
    match.reply()
    assert piece_letters(RACE) == []
    assert text_board(MatchView(match), []).endswith("\n1: search 1, 2: You, 3: search 3; last move: 0 by search 1")


def test_marks_are_left_out_where_they_would_hide_something():
    assert mark_last("a.b", "axb") == " axb"                            # no room
    assert mark_last(". . . . . .", "x x x x x .") == " x x x x x ."      # too many places
    assert mark_last(". .\n", "x .") == " x ."                          # other lines
    assert mark_last(". .", "x .") == "(x)."


def test_a_typed_game_ends_with_its_result(monkeypatch, capsys):
    answers = iter(["nonsense", "undo", *"012345678" * 3])
    monkeypatch.setattr("builtins.input", lambda prompt: "" if prompt == ENDED else next(answers))
    match = play("random", "tictactoe", seat=1)   # no notebook here, so moves are typed
    assert isinstance(match, Match) and match.over
    printed = capsys.readouterr().out
    assert "'nonsense' is not a legal move; type one of " in printed and printed.strip().splitlines()[-1] == result_words(match.line, match.name)


def test_a_slow_first_reply_is_explained_and_no_other_one(monkeypatch):
    told = threading.Event()
    monkeypatch.setattr("alphazero_nb.ui.match_view.explain_wait",
                        lambda say: explain_wait(lambda words: (say(words), told.set()), after_s=0))
    match, reply = Match(get_game("tictactoe"), RandomPlayer(get_game("tictactoe"))), Match.reply
    monkeypatch.setattr(Match, "reply", lambda self: told.wait(600) and reply(self))
    said = typed(match, *"01")
    first = next(k for k, line in enumerate(said) if "Your move." in line)
    assert said.count(COMPILING) == 1 and said[first - 1] == COMPILING


def test_the_result_is_said_once_and_last():
    game = get_game("tictactoe")
    for seat in (0, 1):
        said = typed(Match(game, searcher(game), seat), *"012345678" * 3)
        ends = [line for line in said if line.rstrip(".").endswith(("You win", "You lose", "A draw"))]
        assert len(ends) == 1 and said[-1] == ends[0] and not any(line.strip() == "" for line in said)


def test_after_the_end_the_coach_still_answers():
    game = get_game("tictactoe")
    match = Match(game, searcher(game, 200), 1)
    said = typed(match, *"876543210" * 3, after=["why", "lines", "coach", "0", "rematch"])
    end = next(k for k, line in enumerate(said) if line in ("You lose.", "A draw."))
    why, lines, lesson, refused, again = said[end + 1:end + 6]
    last = max(ply for ply, state in enumerate(match.past[-1].states[:-1]) if game.mover(state) == 1)
    assert why.startswith(f"Move {last + 1}: ") and lines.startswith("Before the last move:\n")
    assert "grades are proven" in lesson and refused == "The game is over." and again.startswith("Rematch.")
    assert match.line.seats == (0,)


def test_enter_leaves_a_game_that_is_over():
    game, asked = get_game("tictactoe"), []
    match = Match(game)   # Two people
    for action in (0, 3, 1, 4, 2): match.move(action)
    play_text(match, lambda prompt: asked.append(prompt) or "", lambda words: None)
    assert asked == [ENDED]


def test_a_slow_first_hint_is_explained(monkeypatch):
    told = threading.Event()
    monkeypatch.setattr("alphazero_nb.ui.match_view.explain_wait",
                        lambda say: explain_wait(lambda words: (say(words), told.set()), after_s=0))
    game, hint = get_game("tictactoe"), Match.hint
    monkeypatch.setattr(Match, "hint", lambda self: told.wait(600) and hint(self))
    said = typed(Match(game, searcher(game)), "hint", "hint")
    assert said.count(COMPILING) == 1 and said.index(COMPILING) < next(k for k, line in enumerate(said) if "would play" in line)


def test_where_nobody_can_type_the_game_waits():
    from IPython.core.error import StdinNotImplementedError   # What a notebook run by a program raises
    match, said = Match(get_game("tictactoe"), seat=0), []

    def ask(prompt): raise StdinNotImplementedError("raw_input was called, but this frontend does not support input requests.")

    assert play_text(match, ask, said.append) is match and "Moves cannot be typed" in said[-1]

    def stopped(prompt): raise KeyboardInterrupt

    match.move(4)
    assert play_text(match, stopped, said.append) is match and match.history == [4]


def test_leaving_a_typed_game_keeps_it():
    game = get_game("tictactoe")
    for word in ("quit", "exit", "q", "Q"):
        match = Match(game, searcher(game))
        typed(match, "4", word, "0")
        assert len(match.history) == 2
    failing = Match(game, Moody(game, RuntimeError("no")))
    assert any("failed: no." in line for line in typed(failing, "4", "", "8")) and failing.history[:3] == [4, 0, 8]


# play and open_match ----------------------------------------------------------------------------

def test_play_and_open_match_return_a_match_everywhere(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ipywidgets")
    monkeypatch.setattr("builtins.input", lambda prompt: "quit")
    typed, clicked = play("random", "tictactoe"), play("random", "tictactoe", widgets=True)
    assert clicked.save(tmp_path / "game.json")
    opened, drawn = open_match(tmp_path / "game.json"), open_match(tmp_path / "game.json", widgets=True)
    assert {type(match) for match in (typed, clicked, opened, drawn)} == {Match}
    assert typed.board is opened.board is None and all(match.board.match is match for match in (clicked, drawn))
    capsys.readouterr()
    opened._ipython_display_()
    assert capsys.readouterr().out == f"{opened}\n" and str(opened).startswith("Match(tictactoe, 0 moves: ")


def test_the_board_follows_commands_from_code():
    pytest.importorskip("ipywidgets")
    match = play("random", "tictactoe", widgets=True)
    panel, picture = match.board.widgets.panel, match.board.widgets.grid.picture
    seen = [picture.value]
    for work in (lambda: match.move(4), match.reply, match.undo):
        assert work() and match.said.split(".")[0] in panel.value
        seen.append(picture.value)
    assert seen[0] == seen[3] and len(set(seen)) == 3
    assert not match.move("e4") and "is not a move" in panel.value



def test_what_does_not_fit_is_a_sentence(tmp_path):
    agent = searcher(get_game("tictactoe"))
    for arguments, word in (((agent, "connect4"), "plays tictactoe, not connect4"), ((tmp_path,), "no training run"),
                            (("no/such/run",), "'no/such/run' is unknown"), (("random",), "which"), (("rollouts:5",), "say which"),
                            (("random", "conect4"), "game 'conect4' is unknown"), ((Moody(None),), "which game")):
        with pytest.raises(ValueError, match=word) as told: play(*arguments)
        assert str(told.value).endswith((".", "?")) and "\n" not in str(told.value)


@pytest.mark.parametrize("call, words", [("play('random', 'connect4', seat=7)", "seat is 7; connect4 has seats 0 to 1."),
                                         ("open_match('nowhere.json')", "There is no file 'nowhere.json'."),
                                         ("play('nowhere')", "player 'nowhere' is unknown")])
def test_a_notebook_shows_a_mistake_as_one_sentence(call, words, capsys):
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell()   # What a kernel runs cells with
    result = shell.run_cell(f"from alphazero_nb.ui.play import open_match, play\n{call}")
    shown = capsys.readouterr().out.strip()
    assert isinstance(result.error_in_exec, Refused) and shown.startswith(words)
    assert "Traceback" not in shown and "\n" not in shown


def test_a_run_folder_is_an_agent(tmp_path):
    from alphazero_nb.training.trainer import Trainer
    trainer = Trainer("tictactoe", "tiny", tmp_path / "run", "cpu", simulations=4, games=8, layout="threads", listeners=())
    trainer.fit(iterations=1)
    match = make_match(tmp_path / "run", device="cpu")
    assert match.name == "run" and match.agent.settings.simulations == 200 and match.move(4) and match.reply()
    with pytest.raises(ValueError, match="plays tictactoe, not connect4"): play(tmp_path / "run", "connect4")


def test_a_saved_game_is_replayed_without_its_agent(tmp_path):
    pytest.importorskip("ipywidgets")
    game = get_game("connect4")
    match = Match(game, searcher(game))
    for action in (3, 3, 2): match.move(action), match.reply()
    match.save(tmp_path / "game.json")
    again = open_match(tmp_path / "game.json", widgets=True)
    board = again.board
    assert again.ply == 0 and again.history == match.history and board.widgets.curve.value
    shown = set()
    for _ in match.history:
        shown.add(board.widgets.grid.picture.value)
        board.widgets.look.forth.click()
    assert len(shown) == len(match.history) and again.shown is None
    assert open_match(tmp_path / "game.json", agent=searcher(game)).analyse()
    with pytest.raises(ValueError, match="no file"): open_match(tmp_path / "other.json")


def test_a_board_says_that_another_cell_keeps_the_kernel_busy(kernel):
    kernel.run(NEW_PAGE + "from alphazero_nb.ui.play import busy_notice, play\nmatch = play('random', 'tictactoe')\nmatch")
    answer(kernel)
    kernel.run("")
    assert kernel.run("print(repr(match.board.widgets.notice.value))").out == "''\n"
    kernel.run("busy_notice.after_s = 0")
    cell = kernel.run("import time\nwhile not match.board.widgets.notice.value: time.sleep(.01)")   # Ends because of the note
    assert any("kernel is running another cell" in state.get("value", "") for state in cell.carried)
    assert cell.carried[-1]["value"] == "", "the note goes away with the end of the cell"
    stopped = kernel.stop("while not match.board.widgets.notice.value: time.sleep(.01)\nprint('self-play', flush=True)\n"
                          "while True: time.sleep(.01)")
    assert stopped.carried[-1]["value"] == ""


# Notation, levels, the end of a game --------------------------------------------------------------

def test_chess_is_written_as_in_books_and_files_keep_numbers(tmp_path):
    game = get_game("chess")
    match = Match(game, seat=0)
    for word in ("e4", "e5", "Bc4", "Nc6", "Qh5", "Nf6", "qxf7"): typed(match, word)   # Capitals do not matter here
    assert move_list(match) == ["1. e4", "2. e5", "3. Bc4", "4. Nc6", "5. Qh5", "6. Nf6", "7. Qxf7#"]
    assert match.over and match.said == "Player 1 plays Qxf7#. Player 1 wins."
    match.save(tmp_path / "game.json")
    assert json.loads((tmp_path / "game.json").read_text())["actions"] == match.history
    assert "checkmate by white" in banner_html(MatchView(match)).lower()
    match.look(3)
    assert banner_html(MatchView(match)) == "" and typed(match, "moves") != [] and write_move(game, match.here, match.history[3]) == "Nc6"


def test_a_game_of_ones_own_may_have_a_notation(monkeypatch):
    from alphazero_nb.ui import match_text
    monkeypatch.setattr(match_text, "_notations", dict(match_text._notations))
    match_text.register_notation("race", lambda game, state, action: f"take {action + 1}")
    match = Match(RACE)
    match.move(1)
    assert match.said.startswith("Player 1 plays take 2.") and move_list(match) == ["1. Player 1: take 2"]


def test_marks_of_a_coach_stand_in_the_list_of_moves():
    from types import SimpleNamespace
    match = Match(get_game("tictactoe"))
    match.move(4), match.move(1)
    match.lesson = SimpleNamespace(marks=lambda: {1: "??"})
    assert move_list(match) == ["1. 4", "2. 1 ??"]
    match.move(0)
    assert match.lesson is None, "another line needs another lesson"


class Weak(Agent):
    "An agent of four levels: all but the last play the first legal move."
    levels = (1, 2, 3, 4)

    def at_level(self, number):
        agent = Moody(self.game)
        agent.name = f"level {number:g}"
        return agent


class Ladder:
    "A rating that goes up by a level with a win, and down with a defeat."
    def __init__(self, levels): self.level, self.top, self.met = (1 + len(levels)) / 2, len(levels), []
    def update(self, score, level): self.level, self.met = min(self.top, max(1, self.level + 2 * score - 1)), [*self.met, level]
    @property
    def interval(self): return max(1, self.level - 1), min(self.top, self.level + 1)


def test_a_hint_may_be_a_move_that_the_search_left_out():
    game = get_game("tictactoe")
    match = Match(game, Agent(game, UniformEvaluator(game), simulations=1), seat=(0, 1))
    for action in (6, 0, 7, 4): match.move(action)
    assert match.hint(), match.said   # Eight wins, but the only simulation looked elsewhere
    assert match.advice == 8 and match.said == "agent would play 8."


def test_a_level_plays_and_the_full_agent_gives_advice():
    game = get_game("tictactoe")
    match = Match(game, Weak(game, UniformEvaluator(game), 200, "search"))
    assert match.level == 4 and match.agent is match.full
    assert match.set_level(1) and match.said == "search now plays at level 1 of 4."
    match.move(4), match.reply()
    assert match.history == [4, 0] and match.line.analyses == (None,) * 3, "the first legal move, without a search"
    assert match.hint() and sum(match.line.analyses[2].visits.values()) == 200
    for wrong in (0, 4.5): assert not match.set_level(wrong) and match.said == "search has levels 1 to 4." and match.level == 1
    assert match.set_level(4) and match.agent is match.full and "(full)" in match.said
    assert not Match(game).set_level(1) and not Match(game).match_me(True)


def test_the_level_follows_the_results_and_each_game_counts_once(monkeypatch):
    monkeypatch.setattr("alphazero_nb.search.levels.Rating", Ladder)
    game = get_game("tictactoe")
    match = Match(game, Weak(game, UniformEvaluator(game), 200, "search"))
    assert match.match_me(True) and match.level == 2.5
    def win():
        while not match.over:
            if match.waiting: match.reply()
            else: match.move(next((a for a in game.legal_actions(match.state) if game.over(game.play(match.state, a))),
                                  game.legal_actions(match.state)[-1]))
    win()
    assert match.finished == {0: dict(You=1.0, search=0.0)} and match.rating.level == 3.5 and match.level == 2.5
    assert "Your level: 3.5 (2.5 to 4.0)" in banner_html(MatchView(match))
    match.undo(), win()
    assert match.over and len(match.finished) == 1 and match.rating.level == 3.5
    assert match.rematch() and match.line.seats == (1,) and match.level == 3.5 and match.history == [] and match.waiting
    win()
    assert "You lose." in match.said and match.rating.level == 2.5 and len(match.finished) == 2
    assert "Score after 2 games: You 1, search 1." in banner_html(MatchView(match))
    assert match.rating.met == [2.5, 3.5]
    assert match.new() and match.level == 2.5 and match.set_level(1)   # A level of one's own, for one game
    win()
    assert match.rating.met == [2.5, 3.5, 1] and match.rematch() and match.level == match.rating.level
    while match.waiting: match.reply()
    assert match.move(game.legal_actions(match.state)[0]) and match.set_level(2)   # In the middle of a game
    win()
    assert match.rating.met == [2.5, 3.5, 1] and "because of a change of level" in banner_html(MatchView(match))
    assert match.match_me(False) and match.rating is None and match.set_level(3.5)
    assert match.new() and match.line.seats == (0,) and match.level == 3.5


def test_the_real_levels_and_the_real_rating_fit():
    pytest.importorskip("ipywidgets")
    board = clickable("connect4")
    match, play = board.match, board.widgets.play
    play.match_me.value = True
    assert match.rating is not None and play.level.disabled and 1 < match.level < len(match.levels)
    while not match.over: match.move(match.game.legal_actions(match.state)[0]) and match.waiting and match.reply()
    assert len(match.rating.results) == 1 and re.search(r"Your level: \d\.\d \(\d\.\d to \d\.\d\)", play.words.value + board.widgets.panel.value)
    assert play.rematch.layout.display == ""
    play.rematch.click()
    assert match.line.seats == (1,) and len(match.history) == 1 and play.rematch.layout.display == "none"
    play.match_me.value = False
    assert not play.level.disabled
    play.level.value = 2
    assert match.level == 2 and match.agent.temperature > 0


@pytest.mark.parametrize("name, length", [("tictactoe", 3), ("connect4", 4), ("gomoku(size=6)", 5)])
def test_the_winning_line_is_the_line_of_the_rules(name, length):
    "Every finished random game: it has a line of enough pieces through the last move if and only if somebody has won."
    game, rng, seen = get_game(name), np.random.default_rng(6), set()
    for _ in range(60):
        match = Match(game)
        while not match.over: match.move(int(rng.choice(game.legal_actions(match.state))))
        view = MatchView(match)
        board, won = view.board(match.ply), game.returns(match.state).max() > 0
        marks = view.marks(board)
        assert bool(marks.won) == bool(won) and all(len(line) >= length for line in marks.won)
        for line in marks.won:
            assert marks.last <= set(line) and {board.squares[place].seat for place in line} == {int(game.returns(match.state).argmax())}
        match.look(match.ply - 1)
        assert not view.marks(view.board(match.ply)).won
        seen.add(bool(won))
    assert True in seen


@pytest.mark.parametrize("name", [*GAMES, "chess(variant=gardner)", "2048", "othello(size=6)", "blob(players=3,cards=3)"])
def test_every_square_has_a_name_of_its_own(name):
    pytest.importorskip("ipywidgets")
    board, rng = clickable(name), np.random.default_rng(2)
    match = board.match
    for _ in range(6):
        if board.widgets.grid is None:
            assert name.startswith("openspiel(game=hex"), "all others have a drawing"
            return
        names = [button.tooltip for button in board.widgets.grid.buttons if button.layout.visibility != "hidden"]
        assert all(names) and len(set(names)) == len(names) and all(len(one) < 90 for one in names)
        if not match.over: match.move(int(rng.choice(match.game.legal_actions(match.state)))) and match.waiting and match.reply()
    assert any("last move" in one for one in names) or match.over or name.startswith(("blob", "2048"))


def test_names_say_what_lies_on_a_square():
    pytest.importorskip("ipywidgets")
    board = clickable("connect4")
    def said(place): return board.widgets.grid.buttons[place].tooltip
    assert said(38) == "column 3, row 1, empty"
    board.widgets.grid.buttons[38].click()
    assert said(38) == "column 3, row 1, yours"
    chess = PlayBoard(Match(get_game("chess")))
    names = [button.tooltip for button in chess.widgets.grid.buttons]
    assert names[60] == "e1, white king" and names[52] == "e2, white pawn, can move" and names[36] == "e4, empty"
    chess.widgets.grid.buttons[52].click()
    assert chess.widgets.grid.buttons[52].tooltip == "e2, white pawn, chosen"
    assert chess.widgets.grid.buttons[36].tooltip == "e4, empty, can move here"


def test_the_agent_on_a_board_sets_traps_and_the_agent_itself_stays_as_it_is():
    "Every first move of tic-tac-toe is proven equal; the match plays the one that the search of traps finds."
    from alphazero_nb.search.traps import trap_move
    game = get_game("tictactoe")
    agent = Agent(game, UniformEvaluator(game), 2000, "search", find_wins=False)
    match = Match(game, agent, seat=1)
    assert match.reply() and not agent.traps and match.full.traps and match.full.evaluator is agent.evaluator
    assert match.history == [trap_move(agent.analyse(game.new_match()))] and match.line.analyses[0].values == (0, 0)


# Help, and a level that is kept -----------------------------------------------------------------

def rated(game, seat=0):
    match = Match(game, Weak(game, UniformEvaluator(game), 50, "search"), seat)
    return match if match.match_me(True) else None


def finish(match):
    "Play to the end, each with the first legal move."
    while not match.over: match.reply() if match.waiting else match.move(match.game.legal_actions(match.state)[0])


HELP = dict(hint=lambda match: match.hint(), lines=lambda match: match.lines(), tree=lambda match: match.open_tree(), why=lambda match: match.why(),
            coach=lambda match: match.coach(), analysis=lambda match: match.analyse(), undo=lambda match: match.undo(),
            swap=lambda match: match.swap(), branch=lambda match: match.look(0) and match.move(8))


@pytest.mark.parametrize("help", HELP)
def test_a_game_with_help_changes_no_rating(help, monkeypatch):
    monkeypatch.setattr("alphazero_nb.search.levels.Rating", Ladder)
    game = get_game("tictactoe")
    match = rated(game)
    match.move(4), match.reply()
    before = match.rating.level
    assert HELP[help](match) and "because of" in rating_words(match)
    finish(match)
    assert match.rating.level == before and len(match.finished) == 1 and "because of" in banner_html(MatchView(match))
    assert match.new() and "because of" not in rating_words(match)
    finish(match)
    assert match.rating.level != before, "the next game counts"
    assert not match.hint()
    assert match.coach() and "because of" not in rating_words(match), "help after the end takes nothing back"


def test_a_level_is_stored_only_when_asked_and_continues(ratings):
    game = get_game("connect4")
    def agent(): return searcher(game)
    match = Match(game, agent())
    assert not match.keep_level() and "Match me first" in match.said and not ratings.exists()
    match.match_me(True), finish(match)
    level = match.rating.level
    match.new(), match.match_me(False)
    assert not ratings.exists(), "nothing is written before the person asks"
    match.match_me(True), match.new(), finish(match)
    assert match.keep_level() and str(ratings) in match.said and "1 game is" in match.said
    again = Match(game, agent())
    assert again.match_me(True) and "1 game, which you have stored" in again.said
    assert again.rating.level == match.rating.level != Match(game, agent()).level
    finish(again), again.new(), finish(again)
    assert again.keep_level() and len(json.loads(ratings.read_text())["ratings"]) == 1
    assert len(json.loads(ratings.read_text())["ratings"][0]["results"]) == len(again.rating.results)


def test_a_level_belongs_to_an_agent_and_its_levels(ratings):
    from alphazero_nb.search.levels import Rating, even_levels, store_rating, stored_rating
    one, two = even_levels(16), even_levels(64)
    for levels, agent, score in ((one, "a", 1), (two, "a", 0), (one, "b", 0.5)):
        store_rating(Rating(levels, [(4, score)]), "connect4", agent)
    for levels, agent, score in ((one, "a", 1), (two, "a", 0), (one, "b", 0.5)):
        assert stored_rating(levels, "connect4", agent).results == ((4.0, float(score)),)
    assert stored_rating(one, "othello", "a") is None and stored_rating(two, "connect4", "b") is None


@pytest.mark.parametrize("content", ["{", "[]", '{"ratings": 3}', '{"ratings": [3]}', None])
def test_a_damaged_file_of_ratings_is_a_sentence_and_stays(content, ratings):
    game = get_game("connect4")
    match = Match(game, searcher(game))
    if content is None:
        match.match_me(True), finish(match), match.keep_level()
        saved = json.loads(ratings.read_text())
        saved["ratings"][0]["results"] = [["four", 1]]
        content = json.dumps(saved)
    ratings.parent.mkdir(exist_ok=True)
    ratings.write_text(content)
    match = Match(game, searcher(game))
    assert match.match_me(True) and "is not used" in match.said and match.rating.results == ()
    if '"four"' not in content: assert not match.keep_level() and ratings.read_text() == content
    assert match.said.count(str(ratings)) == 1


# Handicaps --------------------------------------------------------------------------------------

def test_a_handicap_of_chess_is_the_usual_start_without_a_piece():
    from alphazero_nb.games.chess_board import FENS
    from alphazero_nb.games.chess_text import to_fen
    letters = dict(pawn="p", knight="n", rook="r", queen="q")
    for name, size in (("chess", 8), ("chess(variant=gardner)", 5)):
        game = get_game(name)
        for seat in (0, 1):
            found = find_handicaps(game, seat)
            assert list(found) == list(letters)
            for word, state in found.items():
                board, usual = to_fen(game, state).split()[0], FENS[size].split()[0]
                letter = letters[word] if seat == 0 else letters[word].upper()
                missing = {one: usual.count(one) - board.count(one) for one in "PNBRQKpnbrqk"}
                assert {one: count for one, count in missing.items() if count} == {letter: 1}, (name, seat, word)
                assert not game.over(state) and game.mover(state) == 0
    rights = [to_fen(get_game("chess"), Handicap("rook", seat).start(get_game("chess"))).split()[2] for seat in (0, 1)]
    assert rights == ["KQk", "Kkq"], "there is no castling with a rook that is missing"


def test_a_repetition_counts_from_the_start_of_a_handicap():
    from alphazero_nb.games.chess_text import uci_to_action
    game = get_game("chess")
    line = GameLine.start(game, 0, (0,), "queen")
    for move in ("g1f3", "g8f6", "f3g1", "f6g8") * 2: line = line.after(uci_to_action(game, line.states[-1], move))
    assert game.over(line.states[-1]) and "threefold" in game.text(line.states[-1])


def test_corners_of_othello():
    for size in (6, 8):
        game = get_game(f"othello(size={size})")
        for seat in (0, 1):
            for count, state in enumerate(find_handicaps(game, seat).values(), 1):
                new = game.new()
                where = np.flatnonzero(state != new) - 2
                assert len(where) == count and set(where) <= {0, size - 1, size * size - size, size * size - 1}
                assert (state[2:][where] == seat + 1).all()


@pytest.mark.parametrize("name, handicap, seat", [("chess(variant=gardner)", "knight", 0), ("othello(size=6)", "3 corners", 1),
                                                  ("chess", "rook", 0), ("chess", "rook", 1)])
def test_a_whole_game_with_a_handicap_is_saved_taken_back_and_graded(name, handicap, seat, tmp_path):
    game = get_game(name)
    match = Match(game, searcher(game, 4), seat, handicap=handicap)
    start = find_handicaps(game, seat)[handicap]
    def starts(line): return np.array_equal(line.states[0], start) and line.handicap == Handicap(handicap, seat)
    rng = np.random.default_rng(0)
    for _ in range(6 if name == "chess" else 30):
        if match.over: break
        match.reply() if match.waiting else match.move(int(rng.choice(game.legal_actions(match.state))))
    assert starts(match.line) and f"handicap: {handicap}" in match_html(match)
    file, state = tmp_path / "game.json", match.state
    assert match.save(file) and starts(read_saved_game(file)) and np.array_equal(read_saved_game(file).states[-1], state)
    match.undo()
    assert starts(match.line) and len(match.line.actions) < len(read_saved_game(file).actions)
    match.look(2), match.move(game.legal_actions(match.here)[-1]) if match.can_play else None
    assert starts(match.line)
    other = Match(game, searcher(game, 4), seat)
    assert other.load(file) and starts(other.line) and np.array_equal(other.state, state)
    lesson = coach(other.line.until(4), searcher(game, 4), simulations=4)
    assert len(lesson.grades) == 4 and lesson.to_dict()["handicap"] == dict(name=handicap, seat=seat)
    assert match.new() and starts(match.line) and match.history == []
    assert match.rematch() and match.line.handicap == Handicap(handicap, 1 - seat) and match.line.seats == (1 - seat,)
    assert np.array_equal(match.state, find_handicaps(game, 1 - seat)[handicap]), "the handicap stays with the person"
    assert match.swap() and starts(match.line), "another seat is another position, so the game starts again"
    assert match.set_handicap("") and match.line.handicap is None and np.array_equal(match.state, game.new_match())
    assert match.undo() and starts(match.line)


def test_a_wrong_handicap_is_a_sentence(tmp_path):
    chess, connect4 = get_game("chess(variant=gardner)"), get_game("connect4")
    with pytest.raises(ValueError, match="chess.variant=gardner. has no handicap 'kniht'; it has: pawn, knight, rook, queen. Did you mean 'knight'"):
        play("greedy", chess, handicap="kniht")
    with pytest.raises(ValueError, match="connect4 has no handicap 'queen'; it has none."): play("random", connect4, handicap="queen")
    match = Match(chess, RandomPlayer(chess))
    line = match.line
    assert not match.set_handicap("king") and match.line is line and "it has: pawn" in match.said
    match.set_handicap("queen"), match.save(tmp_path / "good.json")
    good = json.loads((tmp_path / "good.json").read_text())
    for bad, word in ((dict(name="king", seat=0), "has no handicap"), (dict(name="queen"), "damaged"), (dict(name="queen", seat=2), "damaged"),
                      (dict(name=["queen"], seat=0), "damaged"), ("queen", "damaged"), (dict(name="queen", seat=0, more=1), "damaged")):
        (tmp_path / "bad.json").write_text(json.dumps({**good, "handicap": bad}))
        with pytest.raises(ValueError, match=word): read_saved_game(tmp_path / "bad.json")


def test_a_game_of_ones_own_can_have_handicaps(monkeypatch):
    from alphazero_nb.ui import game_line
    monkeypatch.setattr(game_line, "_handicaps", dict(game_line._handicaps))
    game = get_game("tictactoe")
    register_handicaps("tictactoe", lambda game, seat: {"centre": np.array([*game.new()[:4], seat + 1, *game.new()[5:]])})
    match = Match(game, searcher(game), handicap="centre")
    assert match.state[4] == 1 and match.state.dtype == np.int16 and 4 not in game.legal_actions(match.state)


def test_a_game_with_a_handicap_changes_no_rating(monkeypatch):
    monkeypatch.setattr("alphazero_nb.search.levels.Rating", Ladder)
    game = get_game("othello(size=6)")
    match = Match(game, Weak(game, UniformEvaluator(game), 5, "search"), handicap="4 corners")
    match.match_me(True)
    before = match.rating.level
    assert "because of the handicap" in rating_words(match)
    finish(match)
    assert match.rating.level == before and len(match.finished) == 1


def test_the_menu_offers_the_handicaps_of_the_game():
    board = clickable("othello(size=6)")
    match, menu = board.match, board.widgets.play.handicap
    assert [name for _, name in menu.options] == ["", "1 corner", "2 corners", "3 corners", "4 corners"] and menu.layout.display == ""
    line = match.line
    menu.value = "2 corners"
    assert match.line.handicap == Handicap("2 corners", match.line.seats[0]) and "Othello 6×6 (handicap: 2 corners)" in board.widgets.panel.value
    board.widgets.play.undo.click()
    assert match.line is line and menu.value == ""
    assert clickable("connect4").widgets.play.handicap.layout.display == "none"


def test_the_button_stores_the_level(ratings):
    board = clickable("connect4")
    play = board.widgets.play
    assert play.keep.layout.display == "none"
    play.match_me.value = True
    assert play.keep.layout.display == "" and not ratings.exists()
    play.keep.click()
    assert ratings.exists() and "0 games is stored" in board.widgets.panel.value


def test_one_curve_stands_below_the_board_and_marks_the_mistakes():
    board = clickable("tictactoe")
    match, widgets = board.match, board.widgets
    finish(match)
    assert widgets.curve.value and match.coach()
    inside = "".join(part.value for part in widgets.lesson.widget.children if hasattr(part, "value"))
    curve, = pictures(widgets.curve.value)
    assert "expected points" not in "".join(pictures(inside)) and match.lesson.mistakes
    for grade in match.lesson.mistakes: assert f">{grade.ply + 1}{grade.mark}<" in curve
    assert curve.count("<polyline") == 1 and curve.count("<circle") >= len(match.lesson.mistakes)
    match.undo()
    assert "??" not in "".join(pictures(widgets.curve.value))


def test_a_look_inside_after_the_end_is_about_the_last_move():
    board = clickable("tictactoe")
    match, widgets = board.match, board.widgets
    finish(match)
    widgets.look.inside.click()
    assert np.array_equal(match.inside.state, match.line.states[-2]) and match.said.startswith("Before the last move, the best was ")
    assert "<pre" not in widgets.panel.value and "<table" in widgets.lesson.widget.children[0].value, "the table stands once, below"
    assert widgets.lesson.widget.children[0].value.count("expects") == 1
    assert match.lines() and match.said.startswith("Before the last move:\n"), "a terminal gets the table"


# Files and words that look alike ------------------------------------------------------------------

def test_undo_to_another_game_does_not_write_over_its_file(tmp_path):
    match, file = Match(get_game("tictactoe")), tmp_path / "b.json"
    match.move(4), match.new(), match.move(0)
    assert match.save(file) and match.undo() and match.undo() and match.history == [4]
    assert not match.save(file) and json.loads(file.read_text())["actions"] == [0]


def test_the_swap_of_hex_can_be_typed():
    match = Match(get_game("hex(size=3,swap=1)"))
    match.move(0)
    run_typed(match, "swap")
    assert match.history == [0, 9] and match.line.seats == (0, 1)


def test_names_of_files_that_cannot_be_are_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    share = clickable("tictactoe").widgets.share
    for name in ("", "/", "a" * 300):
        share.file.value = name
        share.offer()
        assert share.file.value == name
    match = Match(get_game("tictactoe"))
    assert match.move(4) and match.save("~/g-1.json") and (tmp_path / "g-1.json").exists()
    share.file.value = "~/g-1.json"
    share.offer()
    assert share.file.value == str(tmp_path / "g-2.json")
    assert open_match("~/g-1.json", widgets=False).history == [4]


def test_random_numbers_of_a_followed_agent_go_on():
    "Each game at a level would else have the numbers of the one before, and a line that has won would win again."
    connect4 = get_game("connect4")
    match = Match(connect4, searcher(connect4))
    assert match.match_me(True) and match.level < len(match.levels)
    finish(match)
    asked = match.agent.asked
    assert asked and match.new() and match.agent.asked >= asked


def test_a_game_that_began_at_another_level_does_not_count(monkeypatch):
    monkeypatch.setattr("alphazero_nb.search.levels.Rating", Ladder)
    game = get_game("tictactoe")
    match = Match(game, Weak(game, UniformEvaluator(game), 200, "search"))
    match.set_level(1), match.move(4), match.reply()
    assert match.match_me(True) and "because of a change of level" in rating_words(match)
    finish(match)
    assert match.rating.met == []


def test_a_player_without_simulations_refuses_their_number():
    game = get_game("tictactoe")
    match = Match(game, RandomPlayer(game))
    assert not match.set_simulations(100) and "has no number of simulations" in match.said
    assert not Match(game).set_simulations(100)


def test_the_menu_has_the_handicaps_of_the_seat(monkeypatch):
    from alphazero_nb.ui import game_line
    monkeypatch.setattr(game_line, "_handicaps", dict(game_line._handicaps))
    game = get_game("tictactoe")
    register_handicaps("tictactoe", lambda game, seat: {f"seat {seat}": game.new()})
    board = PlayBoard(Match(game, searcher(game), 1, handicap="seat 1"))
    assert "Drawing failed" not in board.widgets.panel.value and board.widgets.play.handicap.value == "seat 1"
    assert [name for name, _ in board.widgets.play.handicap.options] == ["none", "seat 1"]


def test_after_the_largest_seed_comes_another_game():
    match = Match(get_game("tictactoe"), seed=2 ** 63 - 1)
    assert match.new() and match.rematch() and match.line.seed not in (2 ** 63 - 1, -1)


def test_a_move_is_put_into_words_once(monkeypatch):
    "Chess asks for all legal moves to write one, and a board wrote all moves of the game twice a turn."
    match, asked, write = Match(get_game("chess")), [], view_page.write_move
    monkeypatch.setattr(view_page, "write_move", lambda *args: asked.append(args) or write(*args))
    for move in ("e4", "e5", "Nf3", "Nc6"): typed(match, move)
    asked.clear()
    match.words.clear()
    first = move_list(match)
    assert first == move_list(match) == ["1. e4", "2. e5", "3. Nf3", "4. Nc6"] and len(asked) == 4
    for undone in range(2): match.undo()
    for move in ("Bc4", "d6"): typed(match, move)
    assert move_list(match)[-2:] == ["3. Bc4", "4. d6"]


def test_a_stop_while_the_board_is_drawn_leaves_it_open():
    "The squares stayed locked, and the board said that the agent thinks."
    game = get_game("tictactoe")
    board = PlayBoard(Match(game, Moody(game)))
    draw = board.draw
    def stopped(thinking=False):
        draw(thinking)
        if thinking: raise KeyboardInterrupt
    board.draw = stopped
    board.widgets.grid.buttons[4].click()
    assert "azb-wait" not in board.widgets.grid.grid._dom_classes and board.match.said.startswith("Stopped.")
    board.draw = draw
    assert board.match.waiting and not board.busy


def test_a_board_that_answers_beside_a_cell_has_no_note(monkeypatch):
    "JupyterLab with ipykernel 7.0 to 7.3 has a thread for clicks; the board said that it waits for the cell."
    notice = play_page.BusyNotice()
    monkeypatch.setattr(play_page, "busy_notice", notice)
    board = PlayBoard(Match(get_game("tictactoe")))
    notice.add(board.widgets)
    notice.begin()
    notice.show("busy", notice.event)
    click = threading.Thread(target=board.widgets.grid.buttons[4].click)
    click.start()
    click.join()
    assert board.match.history == [4] and board.widgets.notice.value == ""
    notice.begin()
    assert notice.timer.finished.is_set(), "no timer but the one that the click has ended"
