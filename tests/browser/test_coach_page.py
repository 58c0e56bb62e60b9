"""The coach in a real JupyterLab: a lost game, its mistakes, and another try from there, on a wide and on a narrow page.
And a handicap, a level that is stored, and a fold of the dashboard that stays open while a run goes on."""
import json
import re

import pytest

from chromium import chromium
from test_browser import lab, new_page, shots

SETUP = """from pathlib import Path
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search import levels
from alphazero_nb.search.agent import Agent
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.ui.play import play
levels.ratings_file = lambda: Path("home/ratings.json").absolute()
game = get_game('tictactoe')
agent = Agent(game, UniformEvaluator(game), 200, 'search', leaves=1)"""
CELLS = dict(lost="match = play(agent)\nmatch.board.patience_s = 0\nmatch",
             odds="match = play('greedy', 'chess(variant=gardner)')\nmatch.board.patience_s = 0\nmatch",
             rated="match = play(agent, seat=1)\nmatch.board.patience_s = 0\nmatch",
             run="engine = SelfPlayEngine(game, None, device='cpu', simulations=20, games=8, threads=1, layout='threads')\n"
                 "engine.generate_games(10**6);")


@pytest.fixture(scope="module")
def page(chromium, shots, lab):
    cells = [dict(cell_type="code", id=name, metadata={}, source=source, outputs=[], execution_count=None)
             for name, source in dict(setup=SETUP, **CELLS).items()]
    (lab[1]/"coach.ipynb").write_text(json.dumps(dict(nbformat=4, nbformat_minor=5, cells=cells, metadata=dict(
        kernelspec=dict(name="python3", display_name="Python 3", language="python")))), encoding="utf-8")
    page = new_page(chromium, shots)
    page.open(lab[0].replace("quickstart.ipynb", "coach.ipynb"))
    page.wait_for_kernel()
    page.run(page.cell("import Agent"))
    page.ended(page.cell("import Agent"))
    return page


class Board:
    "The board below a cell, and a person with a pointer."
    def __init__(self, page, name):
        self.page, self.cell = page, page.cell(CELLS[name].splitlines()[0])
        page.run(self.cell)
        page.ended(self.cell)
        self.root = self.cell.locator(".azb[data-keys=on]")
        self.root.wait_for()

    def button(self, name): return self.root.get_by_role("button", name=name, exact=True)
    def said(self): return self.root.locator(".azb-said").inner_text()
    def panel(self): return self.root.inner_text()
    def moves(self): return self.root.locator(".azb-list option").count() - 1
    def until(self, look, what): return self.page.until(look, what, 300)

    def tab(self, name):
        self.root.get_by_role("tab", name=name).click()

    def play(self, square):
        before = self.moves()
        self.root.locator(f".azb-squares > button[title^='{square}']").click()
        self.until(lambda: self.moves() > before and ("Your move" in self.said() or self.over()), "reply")

    def over(self): return self.button("Rematch").is_visible()


def fits(board, width):
    "Whether nothing in the board is wider than this."
    return board.root.evaluate("(root) => root.scrollWidth <= root.clientWidth + 1") and all(
        box is None or box["width"] <= width for box in (image.bounding_box() for image in board.root.locator("img").all()))


def test_a_lost_game_is_graded_and_played_again_from_a_mistake(page):
    board = Board(page, "lost")
    while not board.over():   # The first free square is soon a mistake
        free = board.root.locator(".azb-squares > button[title*='empty']").first.get_attribute("title")
        board.play(free.partition(", empty")[0])
    assert "You lose" in board.said()
    board.tab("Analyse")
    board.button("Coach").click()
    board.until(lambda: board.root.locator("section").count(), "mistake")
    again = board.root.get_by_role("button", name=re.compile("Play again from move"))
    assert again.count() == board.root.locator("section").count() and "grades are proven" in board.panel()
    assert board.root.get_by_role("img", name="expected points after each move").count() == 1, "one curve"
    assert board.root.locator("section img").evaluate_all("all => all.every((one) => one.alt && one.naturalWidth > 0)")
    marked = [text for text in board.root.locator(".azb-list option").all_inner_texts() if "?" in text]
    assert marked, "the list of moves has the marks"
    for width in (1200, 420):
        board.root.evaluate("(root, width) => { root.style.width = `${width}px`; }", width)
        assert fits(board, width), width
        page.shot(f"l1-coach-{width}", board.root)
    board.root.evaluate("(root) => { root.style.width = ''; }")
    number = int(re.search(r"\d+", again.first.inner_text())[0])
    before = board.moves()
    again.first.click()
    board.until(lambda: f"Move {number - 1} of {before}" in board.said(), "position before the mistake")
    better = re.search(r"Better: (\S+)", board.root.locator("section").first.inner_text())[1]
    square = int(better)   # Squares of tic-tac-toe have their numbers as names
    board.root.locator(f".azb-squares > button[title^='column {square % 3 + 1}, row {square // 3 + 1}']").click()
    board.until(lambda: board.root.locator("section").count() == 0, "branch, without the lesson of the other line")
    board.until(lambda: "Your move" in board.said() or board.over(), "reply")
    assert board.moves() in (number, number + 1) and "You lose" not in board.said()
    board.button("Look inside").click()
    board.until(lambda: board.root.locator("details").count() or "over" in board.said(), "tree")
    page.shot("l2-branch", board.root)


def test_a_handicap_from_the_menu(page):
    board = Board(page, "odds")
    menu = board.root.get_by_role("combobox", name="Handicap")
    assert menu.locator("option").all_inner_texts() == ["none", "pawn", "knight", "rook", "queen"]
    def black(): return board.root.locator(".azb-squares > button[title*='black']").count()
    before = black()
    menu.select_option("queen")
    board.until(lambda: "handicap: queen" in board.panel(), "game with a handicap")
    board.until(lambda: black() == before - 1 and board.moves() == 0, "board with a piece less")
    page.shot("l3-handicap", board.root)
    board.button("Undo").click()
    board.until(lambda: black() == before, "game before")
    board.until(lambda: menu.input_value() == "none", "menu without a handicap")


def test_a_level_is_stored_when_the_button_is_pressed(page, lab):
    board, file = Board(page, "rated"), lab[1]/"home"/"ratings.json"
    assert not board.button("Store my level").is_visible()
    board.button("Match me").click()
    board.until(lambda: "Your level" in board.panel(), "level")
    assert not file.exists()
    board.button("Store my level").click()
    board.until(file.exists, "file")
    board.until(lambda: "is stored in" in board.said(), "place of the file")
    board.button("Hint").click()
    board.until(lambda: "because of a hint" in board.panel(), "note that this game does not count")
    page.shot("l4-level", board.root)


def test_a_fold_of_the_dashboard_stays_open_during_a_run(page):
    cell = page.cell("engine = SelfPlayEngine")
    page.run(cell)
    head = cell.locator("details").first
    page.until(head.is_visible, "head of a fold", 300)
    head.locator("summary").click()
    seen, speeds = set(), cell.locator(".jp-Cell-outputArea").get_by_text(re.compile("evaluations/s"))

    def redrawn():
        assert head.evaluate("(one) => one.open"), "the fold is open"
        words = speeds.all_inner_texts()
        if words: seen.add(words[-1])
        return len(seen) > 3
    page.until(redrawn, "redraws of what is inside the fold", 300)
    inside = cell.locator("[class^=azb-]:visible", has_text=re.compile(r": [\d,]+ evaluations/s"))
    assert inside.count(), "the devices can be seen"
    page.shot("l5-fold", cell.locator(".jp-Cell-outputArea"))
    page.stop()   # A call that is stopped ends with a traceback, so `ended` would fail
    cell.locator(".jp-InputPrompt", has_text=re.compile(r"\[\d+\]")).wait_for(timeout=300_000)
    assert cell.locator("details", has_text=re.compile(r"Throughput: .*evaluations/s")).count() == 1, "what is left folds by itself"
