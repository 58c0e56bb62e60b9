"""Lesson, tree and puzzle in a real browser: without JavaScript, with a keyboard alone, on a wide and on a narrow page."""
import importlib.util, re

import pytest

from chromium import CHROMIUM, chromium
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.ui.coach import coach, lesson_html
from alphazero_nb.ui.game_line import GameLine
from alphazero_nb.ui.puzzles import puzzle_html, puzzles
from alphazero_nb.ui.tree_view import heat_html, moves_html, tree_html

if not CHROMIUM or not importlib.util.find_spec("playwright"):
    pytest.skip("Chromium or playwright is not installed, so there is no page to look at.", allow_module_level=True)


def page_of(browser, body, width=1200, scheme="light"):
    "A page with this content, without JavaScript."
    context = browser.new_context(viewport=dict(width=width, height=800), color_scheme=scheme, java_script_enabled=False)
    context.set_default_timeout(600_000)
    page = context.new_page()
    page.set_content(f'<meta name="viewport" content="width=device-width"><style>:root {{ color-scheme: light dark }} '
                     f'body {{ margin: 8px }}</style>{body}')
    return page


@pytest.fixture(scope="module")
def made():
    "A lesson, an analysis and a puzzle of tic-tac-toe."
    game = get_game("tictactoe")
    agent, line = Agent(game, UniformEvaluator(game), 300, leaves=1), GameLine.start(game, 0, (0, 1))
    for action in (0, 4, 1, 2, 3, 6): line = line.after(action)
    return coach(line, agent), agent.analyse(game.state_after([0, 4])), puzzles([line], agent)[0]


def visible_rows(page): return page.locator("summary:visible, details > div:visible").count()


def test_the_tree_opens_with_the_keyboard_alone(chromium, made):
    page = page_of(chromium, tree_html(made[1], opened=0))
    closed = visible_rows(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    opened = visible_rows(page)
    assert opened > closed, "the first branch shows its replies"
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    deeper = visible_rows(page)
    assert deeper > opened
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    assert visible_rows(page) == closed


@pytest.mark.parametrize("width, scheme", [(1200, "light"), (1200, "dark"), (420, "light"), (420, "dark")])
def test_nothing_is_cut_off(chromium, made, width, scheme):
    lesson, found, puzzle = made
    page = page_of(chromium, lesson_html(lesson) + moves_html(found) + tree_html(found) + heat_html(found) + puzzle_html(puzzle),
                   width, scheme)
    boxes = page.locator("figure, img, summary, td, section").all()
    assert len(boxes) > 20
    for box in boxes:
        place = box.bounding_box()
        assert place is None or place["x"] >= 0 and place["x"] + place["width"] <= width, box.inner_text()
    pictures = page.locator("figure img").all()
    assert all(image.get_attribute("alt") for image in pictures)
    pair = [image.bounding_box() for image in pictures[:2]]
    assert pair[0]["y"] == pytest.approx(pair[1]["y"], abs=40), "the better move and the move played stand side by side"


def test_the_solution_of_a_puzzle_is_folded_away(chromium, made):
    page = page_of(chromium, puzzle_html(made[2]))
    answer = page.get_by_text(re.compile("The solver says so"))
    assert not answer.is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert answer.is_visible()
