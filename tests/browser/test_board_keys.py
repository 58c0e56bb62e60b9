"""The board with a keyboard alone, in a real JupyterLab: whole games, one tab stop, names for a screen reader, contrast, narrow pages."""
import json
import re

import pytest

from chromium import chromium
from test_browser import lab, new_page, shots

CELLS = dict(
    connect4="match = play('random', 'connect4')\nmatch.board.patience_s = 0\nmatch",
    chess="match = play('random', 'chess(variant=gardner)')\nmatch.board.patience_s = 0\nmatch",
    levels="match = Match(game, Agent(game, UniformEvaluator(game), 20, 'search'))\nPlayBoard(match)\nmatch",
    blob="match = play('heuristic', 'blob(players=3,cards=3)')\nmatch.board.patience_s = 0\nmatch")
SETUP = """from alphazero_nb.core.registry import get_game
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search.agent import Agent
from alphazero_nb.ui.match import Match
from alphazero_nb.ui.play import PlayBoard, play
game = get_game('connect4')"""

FOCUS = "() => { const one = document.activeElement; return one.closest('.azb-squares') ? one.title : one.closest('.azb') ? 'control' : ''; }"
CONTRAST = """(root) => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return [n[0], n[1], n[2], n[3] ?? 1]; };
  const over = ([r, g, b, a], under) => [r, g, b].map((one, k) => one * a + under[k] * (1 - a));
  const light = (rgb) => rgb.map((one) => { one /= 255; return one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4; })
    .reduce((sum, one, k) => sum + one * [.2126, .7152, .0722][k], 0);
  const behind = (one) => {
    const back = parse(getComputedStyle(one).backgroundColor);
    return back[3] === 1 ? back.slice(0, 3) : over(back, one.parentElement ? behind(one.parentElement) : [255, 255, 255]);
  };
  const found = [];
  for (const one of root.querySelectorAll("*")) {
    const words = [...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
    if (!/[\\p{L}\\p{N}]/u.test(words) || !one.checkVisibility() || one.closest("style, .azb-live, [disabled]")) continue;
    let alpha = 1;
    for (let up = one; up; up = up.parentElement) alpha *= getComputedStyle(up).opacity;
    const color = parse(getComputedStyle(one).color), back = behind(one);
    const [a, b] = [light(over([...color.slice(0, 3), color[3] * alpha], back)), light(back)].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) found.push([words, (a + .05) / (b + .05)]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def page(chromium, shots, lab):
    cells = [dict(cell_type="code", id=name, metadata={}, source=source, outputs=[], execution_count=None)
             for name, source in dict(setup=SETUP, **CELLS).items()]
    (lab[1]/"keys.ipynb").write_text(json.dumps(dict(nbformat=4, nbformat_minor=5, cells=cells, metadata=dict(
        kernelspec=dict(name="python3", display_name="Python 3", language="python")))), encoding="utf-8")
    page = new_page(chromium, shots)
    page.open(lab[0].replace("quickstart.ipynb", "keys.ipynb"))
    page.wait_for_kernel()
    page.run(page.cell("import Agent"))
    page.ended(page.cell("import Agent"))
    return page


class Keys:
    "A person without a pointer at the board below a cell."
    def __init__(self, page, name):
        self.page, self.keyboard = page, page.page.keyboard
        cell = page.cell(CELLS[name].splitlines()[0])
        page.run(cell)
        page.ended(cell)
        self.root = cell.locator(".azb[data-keys=on]")
        self.root.wait_for()
        for _ in range(20):   # From the cell into the board
            self.keyboard.press("Tab")
            if self.at(): break
        assert self.square(), "the first stop of a board is a square"

    def at(self): return self.page.page.evaluate(FOCUS)
    def square(self): return self.at() not in ("", "control")
    def said(self): return self.root.locator(".azb-said").inner_text()
    def moves(self): return self.root.locator(".azb-list option").count() - 1
    def names(self): return self.root.locator(".azb-squares > button:visible").evaluate_all("all => all.map((one) => one.title)")
    def over(self): return self.root.get_by_role("button", name="Rematch").is_visible()

    def go(self, name):
        "Move the cursor to the square whose name begins like this."
        target = self.root.locator(f".azb-squares > button[title^='{name}']").bounding_box()
        for _ in range(20):
            if self.at().startswith(name): return
            here = self.page.page.evaluate("() => { const { x, y } = document.activeElement.getBoundingClientRect(); return { x, y }; }")
            dx, dy = target["x"] - here["x"], target["y"] - here["y"]
            self.keyboard.press(("ArrowRight" if dx > 0 else "ArrowLeft") if abs(dx) > 2 else "ArrowDown" if dy > 0 else "ArrowUp")
        raise AssertionError(f"the cursor stands on {self.at()!r} and does not reach {name!r}")

    def enter(self, done):
        "Press Enter, and wait for an answer."
        self.keyboard.press("Enter")
        self.page.until(done, "answer")

    def answered(self, moves):
        "Return True if there are more moves than before, and the person is to move or the game is over."
        return self.moves() > moves and ("Your move" in self.said() or self.over())


def test_connect_four_with_a_keyboard_alone(page):
    keys = Keys(page, "connect4")
    assert keys.root.locator(".azb-squares > button[tabindex='0']").count() == 1 and len(keys.names()) == 42
    start = keys.at()
    keys.keyboard.press("Tab"), keys.keyboard.press("Shift+Tab")
    assert keys.at() == start, "the board is one stop, which keeps its place"
    for turn in range(30):
        column, moves = (2, 3, 3, 4, 5, 0, 6, 1)[turn % 8], keys.moves()
        keys.go(f"column {column}, row 6")
        keys.enter(lambda: keys.answered(moves) or "not a legal move" in keys.said())
        assert keys.at().startswith(f"column {column}, row 6"), "the focus stays after a move and after the reply"
        if keys.over(): break
    assert keys.over() and re.search("You (win|lose)|A draw", keys.said())
    assert page.page.evaluate("(root) => root.querySelector('[role=status]').textContent", keys.root.element_handle()) == keys.said()
    marked = [name for name in keys.names() if "winning line" in name]
    assert len(marked) >= 4 or "draw" in keys.said()
    page.shot("k1-connect4", keys.root)
    for _ in range(5):
        keys.keyboard.press("Tab")
        if page.page.evaluate("document.activeElement.textContent") == "Rematch": break
    keys.keyboard.press("Enter")
    page.until(lambda: not keys.over() and keys.moves() <= 1, "rematch")
    page.until(keys.square, "focus on the board, as the button has gone")


def test_gardners_chess_with_a_keyboard_alone(page):
    keys = Keys(page, "chess")
    for turn in range(8):
        if keys.over(): break
        moves, own = keys.moves(), [name for name in keys.names() if "can move" in name]
        keys.go(own[turn % len(own)].split(",")[0])
        keys.enter(lambda: "Now click" in keys.said())
        targets = [name for name in keys.names() if "can move here" in name]
        target = next((name for name in targets if "black" in name), targets[turn % len(targets)])
        keys.go(target.split(",")[0])
        keys.enter(lambda: keys.answered(moves) or "buttons below" in keys.said())
        if "buttons below" in keys.said():
            page.until(lambda: keys.root.locator(".azb-choices button").count(), "choice of a piece")
            keys.keyboard.press("Tab")
            keys.enter(lambda: keys.answered(moves))
        page.until(keys.square, "focus on the board after the move and the reply")
    page.until(lambda: keys.over() or keys.moves() >= 16, "eight moves and replies")
    page.shot("k2-chess", keys.root)


def test_cards_with_a_keyboard_alone(page):
    keys = Keys(page, "blob")
    for _ in range(8):
        if keys.over(): break
        moves, allowed = keys.moves(), [name for name in keys.names() if "not allowed" not in name]
        keys.go(allowed[-1])
        keys.enter(lambda: keys.answered(moves))
        if not keys.over(): page.until(keys.square, "focus on the table, as the card has gone")
    assert keys.over() and "Points" in keys.said()
    page.shot("k3-cards", keys.root)


def test_every_control_has_a_name_and_every_text_can_be_read(page):
    keys = Keys(page, "levels")
    tree = page.page.context.new_cdp_session(page.page)
    root = tree.send("Runtime.evaluate", dict(expression="[...document.querySelectorAll('.azb')].at(-1)"))["result"]["objectId"]
    handle, seen = keys.root.element_handle(), {}
    page.page.evaluate("(root) => document.querySelectorAll('.azb').forEach((one) => one === root || one.remove())", handle)
    root = tree.send("Runtime.evaluate", dict(expression="document.querySelector('.azb')"))["result"]["objectId"]
    for theme in ("Light", "Dark"):
        page.page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme: `JupyterLab ${theme}`})", theme)
        page.until(lambda: page.page.evaluate("document.body.dataset.jpThemeLight") == str(theme == "Light").lower(), "theme")
        for tab in ("Play", "Analyse", "Share"):
            keys.root.get_by_role("tab", name=tab).click()
            for role in ("button", "textbox", "slider", "listbox", "combobox", "tab", "group", "image"):
                found = tree.send("Accessibility.queryAXTree", dict(objectId=root, role=role))["nodes"]
                names = [node["name"]["value"] for node in found if not node["ignored"]]
                assert all(re.search(r"\w", name) for name in names), (role, names)
                seen.setdefault(role, set()).update(names)
            assert page.page.evaluate(CONTRAST, handle) == [], (theme, tab)
        page.shot(f"k4-{theme.lower()}", keys.root)
    assert {"Undo", "Rematch"} & seen["button"] and "column 3, row 1, empty" in seen["button"]
    assert {"Level"} <= seen["slider"] and {"File"} <= seen["textbox"] and {"Moves"} <= seen["listbox"]
    page.page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})")


@pytest.mark.parametrize("width", [320, 420, 1000])
def test_a_board_scales_to_its_container(page, width):
    keys = Keys(page, "connect4")
    keys.root.evaluate("(root, width) => { root.style.width = `${width}px`; }", width)
    keys.root.locator("[title='column 3, row 1, empty']").scroll_into_view_if_needed()
    picture = keys.root.locator(".azb-board img").bounding_box()
    assert picture["width"] <= width and keys.root.evaluate("(root) => root.scrollWidth <= root.clientWidth + 1")
    for column in range(7):
        box = keys.root.locator(f"[title='column {column}, row 1, empty']").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        at, rows = (24 + 51 * (column + .5)) / 405, (24 + 51 * 5.5) / 354   # The middle of this hole in the picture
        assert abs(x - picture["x"] - at * picture["width"]) < 3 and abs(y - picture["y"] - rows * picture["height"]) < 3
        assert page.page.evaluate("([x, y]) => document.elementFromPoint(x, y).title", [x, y]) == f"column {column}, row 1, empty"
    page.shot(f"k5-{width}", keys.root)
