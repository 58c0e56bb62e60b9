"""Grades against exact results, and what a coach may say about hidden cards."""
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from alphazero_nb.arena.solvers import TableSolver, Unsolved
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.ui.coach import Grade, coach, explain, grade_moves, lesson_html, lesson_text, mistake_html, why_text
from alphazero_nb.ui.game_line import GameLine
from alphazero_nb.ui.match import Match
from alphazero_nb.ui.match_view import move_list, run_typed
from alphazero_nb.ui.play import PlayBoard
from alphazero_nb.ui.tree_view import heat_html, moves_text, tree_html, tree_svg
from test_luck import two_rolls


def random_line(game, seed, seats=(0, 1), most=1000):
    rng, line = np.random.default_rng(seed), GameLine.start(game, seed, seats)
    while not game.over(line.states[-1]) and len(line.actions) < most:
        line = line.after(int(rng.choice(game.legal_actions(line.states[-1]))))
    return line


def agent_of(game, simulations=100, **settings): return Agent(game, UniformEvaluator(game), simulations, leaves=1, **settings)


def results_by_the_rules(game, state):
    "The mover's result after each move of tic-tac-toe, by plain recursion."
    def value(state):
        if game.over(state): return game.returns(state)
        mover = game.mover(state)
        return max((value(game.play(state, action)) for action in game.legal_actions(state)), key=lambda result: result[mover])
    mover = game.mover(state)
    return {action: int(value(game.play(state, action))[mover]) for action in game.legal_actions(state)}


def test_exact_grades_are_those_of_the_rules():
    game, costly = get_game("tictactoe"), 0
    for seed in range(8):
        line = random_line(game, seed)
        lesson = coach(line, agent_of(game, 20))
        assert [grade.ply for grade in lesson.grades] == list(range(len(line.actions)))
        for grade in lesson.grades[2:]:
            results = results_by_the_rules(game, line.states[grade.ply])
            best, own = max(results.values()), results[line.actions[grade.ply]]
            assert grade.exact and grade.noise == 0 and (grade.before, grade.after) == (best, own)
            assert grade.loss == best - own and results[grade.best] == best
            assert grade.costly == (own < best) and grade.mark == {0: "", 1: "?", 2: "??"}[best - own]
            costly += grade.costly
        assert lesson.mistakes == sorted((g for g in lesson.grades if g.costly), key=lambda g: (-g.loss, g.ply))
    assert costly > 8


def test_without_a_solver_what_is_called_proven_is_right():
    game = get_game("tictactoe")
    solver, proven = TableSolver(game), 0
    for seed in range(10):
        line = random_line(game, seed)
        for grade in coach(line, agent_of(game, 200), solver=None).grades:
            if not grade.exact: continue
            results = solver.results(line.states[grade.ply])
            assert (round(grade.before), round(grade.after)) == (results.max(), results[grade.action])
            proven += 1
    assert proven > 30


def test_a_solver_that_gives_up_leaves_the_search():
    class Lazy:
        game = get_game("tictactoe")
        def results(self, state): raise Unsolved("no")
    line = random_line(Lazy.game, 3)
    lazy, none = (coach(line, agent_of(Lazy.game), solver=solver) for solver in (Lazy(), None))
    assert lazy.grades == none.grades


def test_a_loss_within_the_noise_gets_no_mark():
    grade = Grade(0, 0, 1, 2, before=.5, after=-.2, noise=.1, exact=False, line=(2,), refutation=())
    assert (grade.mark, grade.costly, grade.loss) == ("?", True, pytest.approx(.7))
    assert replace(grade, noise=.8).mark == "" and not replace(grade, noise=.8).costly
    assert replace(grade, after=.2).mark == "?!" and replace(grade, after=-.8).mark == "??"
    assert replace(grade, best=1).loss == 0, "the best move loses nothing"


def test_lines_can_be_played_and_the_game_goes_on_from_a_mistake():
    game = get_game("connect4")
    line = random_line(game, 5)
    lesson = coach(line, agent_of(game, 60), solver=None)
    for grade in lesson.grades:
        for actions in (grade.line, (grade.action, *grade.refutation)):
            ahead = line.until(grade.ply)
            for action in actions: ahead = ahead.after(action)
    again = lesson.play_from(lesson.mistakes[0])
    assert len(again.actions) == lesson.mistakes[0].ply and (again.states[-1] == line.states[lesson.mistakes[0].ply]).all()


def test_a_grade_depends_on_nothing_that_the_player_cannot_see():
    game, agent = get_game("blob(players=4,cards=4)"), agent_of(get_game("blob(players=4,cards=4)"), 30, worlds=3)
    line = random_line(game, 2, seats=(1,))
    for ply in (1, 6, 11):
        state, action = line.states[ply], line.actions[ply]
        first, second = (grade_moves(agent, world[None], [action], simulations=30)[0]
                         for world in (state, game.resample_hidden(state, 77)))
        assert first == second and len(first[0].line) == 1 and first[0].refutation == ()


def test_while_cards_are_hidden_only_the_own_moves_are_graded():
    game = get_game("blob(players=3,cards=3)")
    line = random_line(game, 4, seats=(1,))
    agent = agent_of(game, 20, worlds=2)
    during, after = coach(line.until(len(line.actions) - 1), agent), coach(line, agent)
    movers = [game.mover(state) for state in line.states[:-1]]
    assert {grade.seat for grade in during.grades} == {1} and {grade.seat for grade in after.grades} == {0, 1, 2}
    assert all(values is None or movers[ply] == 1 for ply, values in enumerate(during.values))
    assert after.seats == (1,) and all(grade.seat == 1 for grade in after.mistakes)
    open_table = coach(line.until(4), agent, seats=(0, 1))
    assert open_table.grades == (), "two people share a screen: nobody's hand may show"


class Reader(HTMLParser):
    "What a page holds."
    def __init__(self, text):
        super().__init__()
        self.tags, self.images, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "img": self.images.append(dict(attributes))

    def handle_data(self, data): self.text += data


@pytest.mark.parametrize("name", ["tictactoe", "connect4", "dots(rows=2,cols=2)", "gomoku(size=5)", "othello(size=6)",
                                  "chess(variant=gardner)", "blob(players=3,cards=3)", "pig"])
def test_a_lesson_is_shown_for_every_kind_of_game(name):
    game = get_game(name)
    line = random_line(game, 1, seats=tuple(range(game.players)), most=16 if "chess" in name else 30)
    lesson = coach(line, agent_of(game, 24, worlds=2), solver=None)
    worst = next(grade for grade in lesson.grades if len(game.legal_actions(line.states[grade.ply])) > 1)
    other = next(action for action in game.legal_actions(line.states[worst.ply]) if action != worst.action)
    worst = replace(worst, best=other, line=(other,), before=.9, after=-.9, noise=0.0, exact=False)
    lesson = replace(lesson, grades=(worst,))
    page = Reader(lesson_html(lesson))
    assert "script" not in page.tags and all(image["alt"] for image in page.images)
    assert f"Move {worst.ply + 1}:" in page.text and "nan" not in page.text
    assert f"Move {worst.ply + 1}:" in lesson_text(lesson) and "95 % of the points" in explain(lesson, worst)


@pytest.mark.parametrize("name", ["connect4", "pig", "blob(players=3,cards=3)", "2048", "chess(variant=gardner)"])
def test_the_tree_is_drawn_for_every_kind_of_game(name):
    game = get_game(name)
    found = agent_of(game, 60, worlds=2).analyse(game.new_match(3))
    page = Reader(tree_html(found))
    assert page.tags.count("details") == page.tags.count("summary") and "script" not in page.tags
    assert page.text.count(" visits ·") <= 200
    assert tree_svg(found, most=20).count("<circle") <= 21
    assert heat_html(found) and moves_text(found).startswith("move")


def test_an_agent_of_another_game_is_refused():
    line = random_line(get_game("tictactoe"), 0)
    with pytest.raises(ValueError, match="plays connect4, not tictactoe"): coach(line, agent_of(get_game("connect4")))
    class Strange:
        name, game = "strange", get_game("tictactoe")
    with pytest.raises(ValueError, match="strange has no tree to look into"): coach(line, Strange(), solver=None)


def test_a_move_that_the_game_does_not_have_is_named():
    game = get_game("tictactoe")
    line = random_line(game, 1)
    for ply in (-1, 99):
        with pytest.raises(ValueError, match=f"this game has no move {ply}"): coach(line, agent_of(game), plies=[0, ply])


def test_words_of_won_and_lost_games_are_for_whole_results():
    game = get_game("tictactoe")
    lesson = coach(random_line(game, 1), agent_of(game), simulations=20)
    grade = lesson.grades[0]
    other = next(action for action in game.legal_actions(lesson.line.states[0]) if action != grade.action)
    lost, partly = (replace(grade, best=other, line=(other,), before=x, after=-x, exact=True, noise=0.0) for x in (1.0, 0.6))
    assert explain(lesson, lost).startswith("This lost a won game") and "80 % of the points" in explain(lesson, partly)
    nearly = replace(lost, before=0.99999994)   # The mean of a proven search, in float32
    assert explain(lesson, nearly).startswith("This lost a won game")
    for before, noise in ((.1, .2), (.01, .001)):   # Within the error of the search; too little to see
        close = replace(lost, before=before, after=0.0, noise=noise, exact=False)
        assert "sees no difference" in explain(lesson, close) and "better" not in why_text(lesson, close)
    assert "better:" in why_text(lesson, replace(lost, before=.1, after=0.0, noise=.02, exact=False))
    assert len(coach(lesson.line, agent_of(game), simulations=20, plies=iter([0, 1])).grades) == 2


def played(match, actions):
    "The match after these moves of both sides."
    for action in actions: match.line = match.line.after(action)
    return match


def test_the_commands_of_a_match_explain():
    game = get_game("tictactoe")
    match = played(Match(game, agent_of(game, 200), seat=0), (0, 4, 1, 2, 3))
    assert match.coach() and match.said.startswith("1 mistake in 3 moves") and match.lesson.mistakes[0].ply == 4
    assert match.why() and "Move 5: 3?" in match.said and "6 holds the draw" in match.said
    assert match.lines() and match.said.startswith("move") and (match.inside.state == match.state).all()
    assert match.look(4) and match.lines() and match.inside.best.action == 6
    assert [move[-1] == "?" for move in move_list(match)] == [False] * 4 + [True]
    match.look(4), match.move(6)
    assert match.lesson is None, "another line of play has another lesson"
    assert not Match(game, agent_of(game)).coach() and not Match(game).lines()
    assert "reveal" in refused(Match(get_game("blob(players=3,cards=2)"), agent_of(get_game("blob(players=3,cards=2)"), 8), seat=1))


def refused(match):
    "What a match says to a look inside a position of another player, whose cards are hidden."
    assert match.game.mover(match.state) != 1 and not match.lines()
    return match.said


def test_the_label_of_a_picture_is_escaped_once(monkeypatch):
    game = get_game("tictactoe")
    line = GameLine.start(game, 0, (0, 1))
    for action in (0, 4, 1, 2, 3): line = line.after(action)
    lesson = coach(line, agent_of(game, 20))
    monkeypatch.setattr("alphazero_nb.ui.coach.move_names", lambda *_: (["a & b"], ["c"]))
    shown = mistake_html(lesson, lesson.mistakes[0])
    assert 'alt="Better: a &amp; b"' in shown and "</b> a &amp; b</figcaption>" in shown


def test_typed_commands_explain():
    game = get_game("tictactoe")
    match = played(Match(game, agent_of(game, 200), seat=0), (0, 4, 1, 2, 3))
    assert "expected line" in run_typed(match, "lines")
    assert run_typed(match, "why").startswith("Move 5: 3?") and "played: 3 6" in run_typed(match, "coach")
    assert all(word in run_typed(match, "help") for word in ("lines", "why", "coach"))


def test_a_board_shows_the_lesson_and_plays_from_a_mistake():
    pytest.importorskip("ipywidgets")
    game = get_game("tictactoe")
    match = played(Match(game, agent_of(game, 200), seat=0), (0, 4, 1, 2, 3, 6))
    widgets = PlayBoard(match).make_widgets()
    assert widgets.lesson.widget.children == ()
    widgets.look.coach.click()
    summary, mistake, button = widgets.lesson.widget.children
    assert "1 mistake" in summary.value and "Move 5: 3?" in mistake.value
    button.click()
    assert match.ply == 4 and match.shown == 4
    widgets.look.inside.click()
    assert "<details" in widgets.lesson.widget.children[0].value and len(widgets.lesson.widget.children) == 4
    match.board.click(6)
    assert match.history[:5] == [0, 4, 1, 2, 6] and widgets.lesson.widget.children == (), "the branch has no lesson yet"


def test_below_several_rolls_moves_have_plain_names():
    "Nothing says which position follows two rolls in a row, so nothing is played in it."
    found = agent_of(game := two_rolls(), 200).analyse(game.new())
    assert tree_html(found) and tree_svg(found) and "outcome" not in tree_html(found)
