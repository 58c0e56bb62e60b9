"""A person's first quarter of an hour in a real JupyterLab: the dashboard moves, stop stops, run again goes on, the board answers.
And the same where the page's widgets arrive late, or never."""
import base64
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chromium import CHROMIUM, chromium

MISSING = [name for name in ("jupyterlab", "playwright", "psutil", "ipywidgets") if importlib.util.find_spec(name) is None]
MISSING += [] if CHROMIUM else ["Chromium"]
if MISSING: pytest.skip(f"{' and '.join(MISSING)} is not installed, so there is no page to look at.", allow_module_level=True)

import psutil

ROOT = Path(__file__).parents[2]


# The page ---------------------------------------------------------------------------------------

SMALL = """steps = dict(games_per_iteration=32, batch_size=64, replay_ratio=1)   # Short iterations, until it is stopped
minutes, settings = 30, TrainSettings(**steps, evaluate_every=3, evaluate_games=4, match_share=1, baseline="random")
options = dict(preset="tiny", simulations=16, layout="threads", games=32, threads=1, train_settings=settings)"""

TRAIN = "run = train("   # The cell that trains
FORM, CALL = "folder = run_folder(game, use_drive)", "train(game, minutes, folder)"


def small(source):
    "A cell of the quickstart, with these settings behind its form and in its training."
    return source.replace(FORM, f"{SMALL}\n{FORM}").replace(CALL, "train(game, minutes, folder, **options)")


CHESS = """match = play("random", "chess(fen=8/P6k/8/8/8/8/8/K7 w - - 0 1)")
match.board.patience_s = 0   # A click counts as soon as the reply is there
match"""


def quickstart(folder):
    "Writes the quickstart, small and empty, to this folder, with a cell for chess behind it."
    book = json.loads((ROOT/"colab"/"quickstart.ipynb").read_text(encoding="utf-8"))
    for cell in book["cells"]:
        if cell["cell_type"] != "code": continue
        source = "".join(cell["source"])
        cell.update(source=small(source), outputs=[], execution_count=None)
    book["cells"].append(dict(cell_type="code", id="chess", metadata={}, source=CHESS, outputs=[], execution_count=None))
    text = "\n".join("".join(cell["source"]) for cell in book["cells"])
    assert SMALL in text and f"{TRAIN}game, minutes, folder, **options)" in text, "the quickstart has other cells than this test expects"
    (folder/"quickstart.ipynb").write_text(json.dumps(book), encoding="utf-8")


class Page:
    "A notebook that is open in JupyterLab."
    def __init__(self, page, shots):
        self.page, self.shots = page, shots

    def open(self, url):
        self.page.goto(url)
        self.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=600_000)
        self.page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").first.wait_for(timeout=600_000)

    def shot(self, name, whole=None):
        (whole or self.page).screenshot(path=str(self.shots/f"{name}.png"))

    def cell(self, text):
        "The code cell in which this stands."
        return self.page.locator(".jp-Notebook .jp-CodeCell").filter(has=self.page.locator(".jp-InputArea", has_text=text)).first

    def prompt(self, cell): return cell.locator(".jp-InputPrompt").inner_text()

    def run(self, cell, mark=r"[\d*]", seconds=600):
        "Press Control and Enter, and again if JupyterLab forgot it, as it does while it connects a kernel."
        before, pressed = self.prompt(cell), 0.

        def heeded():
            nonlocal pressed
            prompt = self.prompt(cell)
            if prompt != before and re.search(mark, prompt): return True
            if "*" not in prompt and time.monotonic() - pressed > 3:
                cell.locator(".cm-content").press("Control+Enter")
                pressed = time.monotonic()
        self.until(heeded, "sign that the cell runs", seconds)

    def run_to(self, last, first=0):
        "Run the code cells up to the one with the text `last`, each after the one before has ended. Return that cell."
        for number in range(first, 100):
            cell = self.page.locator(".jp-Notebook .jp-CodeCell").nth(number)
            if last in cell.locator(".jp-InputArea").inner_text(): break
            self.run(cell, r"\d", 600)
        self.run(cell)
        return cell

    def until(self, look, what, seconds=600):
        "Looks until there is something to see, and returns it."
        end = time.monotonic() + seconds
        while not (seen := look()):
            errors = self.page.locator(".jp-OutputArea-output[data-mime-type*=stderr]").all_inner_texts()
            if time.monotonic() > end or errors:
                self.shot("failed")
                raise AssertionError("\n".join([f"no {what} after {seconds} s; the page says:", *errors, *self.outputs()]))
            self.page.wait_for_timeout(200)   # Each look makes the browser lay out the page
        return seen

    def ended(self, cell):
        "Waits until the cell is over."
        self.until(lambda: re.search(r"\[\d+\]", self.prompt(cell)), "end of the cell")

    def outputs(self): return self.page.locator(".jp-Cell-outputArea").all_inner_texts()

    def said(self, cell):
        "The text below the cell."
        return cell.locator(".jp-Cell-outputArea").inner_text()

    def pictures(self, cell):
        "The SVG pictures below the cell."
        urls = cell.locator(".jp-Cell-outputArea img").evaluate_all("images => images.map(image => image.src)")
        return [base64.b64decode(url.partition("base64,")[2]).decode() for url in urls if url.startswith("data:image/svg")]

    def wait(self, cell, what):
        "Waits until this pattern is below the cell; the match."
        return self.until(lambda: re.search(what, self.said(cell)), repr(what))

    def wait_for_kernel(self):
        "Waits until the notebook's kernel has answered; what is run before that JupyterLab may forget."
        self.page.evaluate("""async () => {
            const context = window.jupyterapp.shell.currentWidget.context.sessionContext;
            await context.ready;
            await context.session.kernel.info;
        }""")

    def wait_for_widgets(self):
        "Wait until the kernel has the page's answer that its widgets work. The kernel reads it between two cells."
        asks = """async () => {
            let printed = "";
            const kernel = window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel;
            const future = kernel.requestExecute({code: "import alphazero_nb.ui.widgets as d; print(len(d.page_widgets.working))",
                                                  store_history: false});
            future.onIOPub = message => { if (message.content.name === "stdout") printed += message.content.text; };
            await future.done;
            return printed;
        }"""
        self.until(lambda: int(self.page.evaluate(asks) or 0), "answer of the page's widgets")

    def run_all(self):
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^Run$")).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Run All Cells$")).click()

    def stop(self):
        self.page.locator(".jp-NotebookPanel-toolbar [data-jp-item-name=interrupt]").locator("jp-button, button").first.click()


# JupyterLab and Chromium ------------------------------------------------------------------------

def wait_for_port(port, process, log, seconds=600):
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        with socket.socket() as knock:
            if knock.connect_ex(("127.0.0.1", port)) == 0: return
        time.sleep(.1)
    raise AssertionError(f"JupyterLab does not answer:\n{log.read_text()[-4000:]}")


def gone(processes, seconds):
    "Which of these processes are still there after so many seconds."
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    for process in alive: process.kill()
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "A JupyterLab with its own settings, kernels and files: the address of the page, and the folder of its files."
    root, token = tmp_path_factory.mktemp("lab"), "browser-test"
    folder, log = root/"files", root/"log.txt"
    for name in ("files", "config", "data", "runtime"): (root/name).mkdir()
    quickstart(folder)
    settings = root/"config/lab/user-settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(dict(fetchNews="false", checkForUpdates=False)))
    for port in range(20_000 + os.getpid() % 12_000, 32_768):   # Below those that the system gives to others
        with socket.socket() as knock:
            if knock.connect_ex(("127.0.0.1", port)): break
    env = {key: value for key, value in os.environ.items() if key not in ("IN_TEST", "PYTEST_CURRENT_TEST", "JUPYTER_PATH")}
    env.update({f"JUPYTER_{name.upper()}_DIR": str(root/name) for name in ("config", "data", "runtime")})
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
               "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}",
               "--expose-app-in-browser", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    with open(log, "w") as out:
        process = psutil.Popen(command, cwd=folder, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                               start_new_session=True)
    try:
        wait_for_port(port, process, log)
        yield f"http://127.0.0.1:{port}/lab/tree/quickstart.ipynb?token={token}&reset", folder
    finally:
        children = process.children(recursive=True)
        process.terminate()
        left = gone([process, *children], 600)
    assert not left, f"these were still there 60 seconds after JupyterLab was asked to end: {left}\n{log.read_text()[-4000:]}"


@pytest.fixture(scope="module")
def shots():
    "The folder of screenshots; each run writes the same names, and other processes write theirs beside."
    folder = Path(os.environ.get("ARTEFACTS", ROOT/"tests"/"artefacts"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def new_page(chromium, shots):
    tab = chromium.new_page(viewport=dict(width=1250, height=1300))
    tab.set_default_timeout(600_000)
    return Page(tab, shots)


@pytest.fixture(scope="module")
def page(lab, shots, chromium):
    page = new_page(chromium, shots)
    page.open(lab[0])
    page.wait_for_kernel()
    return page


# What a person sees: each step needs the page as the step before left it ------------------------

def saved(folder):
    "The run's folder, and how many iterations and games it tells of."
    manifest, = folder.glob("runs/*/manifest.json")
    saved_run = json.loads(manifest.read_text(encoding="utf-8"))
    return manifest.parent, saved_run["iteration"], saved_run["games_played"]


def the_dashboard_moves(page, lab):
    cell, seen = page.run_to(TRAIN), []
    page.wait(cell, r"games")
    page.shot("1-first-sight")
    page.wait(cell, r"iteration \d")

    def different():
        now = (page.said(cell), page.pictures(cell))
        if now not in seen: seen.append(now)
        return len(seen) >= 4 and len({text for text, _ in seen}) >= 3 and seen[-1][1]
    page.until(different, "fourth state of the dashboard with curves")
    page.shot("2-training")
    assert len({text for text, _ in seen}) >= 3 and seen[-1][1], "numbers move, and there are curves"


def stop(page, cell):
    "Presses JupyterLab's own stop; how many iterations are said to be saved."
    page.stop()
    page.ended(cell)
    found = page.wait(cell, r"Stopped\. (\d+) iterations? (?:is|are) saved in runs/")
    assert "Traceback" not in page.said(cell) and "KeyboardInterrupt" not in page.said(cell)
    return int(found[1])


def stop_keeps_the_games(page, lab):
    kept = stop(page, page.cell(TRAIN))
    page.shot("3-stopped")
    run, iteration, games = saved(lab[1])
    assert kept == iteration >= 1 and games > 0
    assert sum(path.stat().st_size for path in run.rglob("*.npz")) > 0, "the games lie in the run's folder"


def running_the_cell_again_goes_on(page, lab):
    cell, (run, before, games) = page.cell(TRAIN), saved(lab[1])
    page.wait_for_widgets()
    page.run(cell)
    def went_on(): return any(int(count.replace(",", "")) > before for count in re.findall(r"iteration ([\d,]+)", page.said(cell)))
    page.until(went_on, f"more than {before} iterations")
    page.shot("4-going-on")
    widgets = cell.locator(".jupyter-widgets").count()
    kept = stop(page, cell)
    assert widgets, "this page has answered since the first run, so a widget shows it"
    page.shot("5-stopped-again")
    assert saved(lab[1])[0] == run and kept == saved(lab[1])[1] > before and saved(lab[1])[2] > games


def the_board_answers(page, lab):
    texts = page.page.locator(".jp-Notebook .jp-CodeCell .jp-InputArea").all_inner_texts()
    trained = next(number for number, text in enumerate(texts) if TRAIN in text)
    cell = page.run_to("play(agent", trained + 1)
    squares = cell.locator(".widget-gridbox .widget-gridbox button")
    squares.first.wait_for(timeout=600_000)
    board = cell.locator(".widget-gridbox img").first

    def stones(): return re.sub(r"[^xo]", "", board.get_attribute("alt"))
    assert stones() == ""
    page.shot("6-board")
    squares.nth(38).click()   # The lowest square of the middle column
    page.until(lambda: len(stones()) > 1, "answer of the agent")
    page.page.wait_for_timeout(300)
    page.shot("7-answered")
    assert sorted(stones()) == ["o", "x"], f"after one click the board says:\n{board.get_attribute('alt')}"


def a_move_of_chess_takes_two_clicks_and_a_promotion_three(page, lab):
    cell = page.cell("chess(fen=")
    page.run(cell)
    squares = cell.locator(".widget-gridbox .widget-gridbox button")
    squares.first.wait_for(timeout=600_000)
    picture = cell.locator(".widget-gridbox img").first
    def rows(): return picture.get_attribute("alt").splitlines()
    def says(words): page.until(lambda: words in page.said(cell), repr(words))
    unmarked = page.pictures(cell)[0]
    squares.nth(8).click()
    says("Now click the square")
    page.shot("7a-chosen")
    assert page.pictures(cell)[0] != unmarked and rows()[1].startswith("7 P")
    squares.nth(0).click()
    says("Choose one of the buttons")
    cell.locator("button", has_text=re.compile("^rook$")).click()
    page.until(lambda: rows()[0].startswith("8 R") and "White" in rows()[-1], "promotion and a reply")
    squares.nth(56).click()
    says("Now click the square")
    squares.nth(57).click()   # From a1 to b1
    page.until(lambda: rows()[7].startswith("1 . K"), "move of the king")
    page.shot("7b-moved")


def html_of(cell):
    return ["".join(output["data"]["text/html"]) for output in cell["outputs"] if "text/html" in output.get("data", {})]


def the_page_keeps_what_was_seen(page, lab):
    cell = page.cell(TRAIN)
    cell.scroll_into_view_if_needed()
    page.wait(cell, r"Stopped\. ")   # JupyterLab draws a cell that was out of sight a moment later
    seen = page.said(cell)
    cell.locator(".cm-content").press("Control+s")
    path, iteration = lab[1]/"quickstart.ipynb", saved(lab[1])[1]
    page.until(lambda: "Stopped. " in path.read_text(encoding="utf-8"), "saved file with the end of the run")
    book = json.loads(path.read_text(encoding="utf-8"))
    kept = next(cell for cell in book["cells"] if TRAIN in "".join(cell["source"]))
    assert not [output for output in kept["outputs"] if any("widget" in kind for kind in output.get("data", {}))]
    assert len(html_of(kept)) == 5 and f"Stopped. {iteration} iteration" in html_of(kept)[0], "head, plots, games, the heads of folds, which are empty now, and folds"

    (lab[1]/"copy.ipynb").write_text(json.dumps(book), encoding="utf-8")   # JupyterLab does not trust what it did not write
    page.open(lab[0].replace("quickstart.ipynb", "copy.ipynb"))
    cell = page.cell(TRAIN)
    cell.scroll_into_view_if_needed()
    page.wait(cell, r"Stopped\. ")
    page.shot("8-opened-again")
    assert page.said(cell).split() == seen.split() and page.pictures(cell)
    sizes = cell.locator(".jp-Cell-outputArea img").evaluate_all("images => images.map(image => image.naturalWidth)")
    assert sizes and min(sizes) > 50, "pictures are drawn in a copy that is not trusted, too"


def test_the_first_quarter_of_an_hour(page, lab):
    for step in (the_dashboard_moves, stop_keeps_the_games, running_the_cell_again_goes_on, the_board_answers,
                 a_move_of_chess_takes_two_clicks_and_a_promotion_three, the_page_keeps_what_was_seen):
        step(page, lab)


# A page whose widgets are late ------------------------------------------------------------------

LATE = ["""from alphazero_nb.core.registry import get_game
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.ui.play import play
engine = SelfPlayEngine(get_game("tictactoe"), None, device="cpu", layout="threads", simulations=100, games=32)
""", """try: engine.generate_games(10**6)   # Until it is stopped
except KeyboardInterrupt: engine.shutdown()
""", """play("random", "tictactoe")"""]

# JupyterLab waits for the file of an extension, but not for a plugin that may start later. This makes the manager one.
HOLD_MANAGER = """;(() => {
const name = "@jupyter-widgets/jupyterlab-manager", files = window._JUPYTERLAB[name];
const gate = new Promise(open => { window.startWidgetManager = open; });
const held = plugin => ({...plugin, autoStart: "defer", activate: async (...parts) => { await gate; return plugin.activate(...parts); }});
window._JUPYTERLAB[name] = {init: (...parts) => files.init(...parts), get: async path => {
  const make = await files.get(path);
  return () => { const made = make(); return Array.isArray(made.default) ? {__esModule: true, default: made.default.map(held)} : made; };
}};
})()"""
WIDGETS = re.compile("/lab/extensions/@jupyter-widgets/jupyterlab-manager/static/.*[.]js")


def hold_manager(page, url):
    "Opens a page whose widget manager does not start; returns a function that starts it."
    def changed(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text() + (HOLD_MANAGER if "remoteEntry" in route.request.url else ""))
    page.page.route(WIDGETS, changed)
    page.open(url)
    return lambda: page.page.evaluate("window.startWidgetManager()")


def hold_scripts(page, url):
    "Opens a page that gets no more scripts of its widget manager once it is open; returns a function that sends them."
    page.open(url)
    held, free = [], []
    page.page.route(WIDGETS, lambda route: route.continue_() if free else held.append(route))

    def release():
        assert held, "the board has asked for a script"
        free.append(True)
        for route in held: route.continue_()
    return release


def run_at_once(page): page.run_all()


def run_one_by_one(page):
    "The page can answer between the first two cells."
    cells = page.page.locator(".jp-Notebook .jp-CodeCell")
    page.run(cells.first)
    page.ended(cells.first)
    page.run(cells.nth(1))


def open_late(page, lab, name, hold):
    "Opens a small notebook with a new kernel, and holds what its widgets need."
    cells = [dict(cell_type="code", id=f"late-{number}", metadata={}, source=source, outputs=[], execution_count=None)
             for number, source in enumerate(LATE)]
    book = dict(nbformat=4, nbformat_minor=5, cells=cells,
                metadata=dict(kernelspec=dict(name="python3", display_name="Python 3", language="python")))
    (lab[1]/f"{name}.ipynb").write_text(json.dumps(book), encoding="utf-8")
    release = hold(page, lab[0].replace("quickstart.ipynb", f"{name}.ipynb"))
    page.wait_for_kernel()
    return release


@pytest.mark.parametrize("hold, run", [
    pytest.param(hold_manager, run_at_once, id="the manager, all cells at once", marks=pytest.mark.slow),
    pytest.param(hold_scripts, run_one_by_one, id="the scripts, cell by cell", marks=pytest.mark.slow)])
def test_where_widgets_come_late_or_never_nothing_stays_blank(chromium, shots, lab, hold, run):
    page = new_page(chromium, shots)
    name = f"9-{hold.__name__.replace('_', '-')}"
    release = open_late(page, lab, name, hold)
    run(page)
    training, playing = page.cell("generate_games"), page.cell("play(")

    page.wait(training, r"self-play: [\d,]+ of 1,000,000 games")
    first = page.said(training)
    page.until(lambda: page.said(training) != first, "move of the dashboard")
    page.until(lambda: page.pictures(training), "picture of the last game")
    assert "Loading widget" not in page.said(training)
    page.shot(f"{name}-moves")
    page.stop()
    page.wait(training, r"Stopped\. ")
    page.ended(training)

    if run is run_one_by_one: page.run(playing)
    page.wait(playing, "This is a picture")    # As long as the widgets are held, so for ever if they never come
    assert not playing.locator(".jp-Cell-outputArea button").count() and len(page.pictures(playing)) >= 2
    page.shot(f"{name}-picture")
    page.page.wait_for_timeout(500)
    assert "Stopped. " in page.said(training) and "This is a picture" in page.said(playing)

    release()
    squares = playing.locator(".widget-gridbox .widget-gridbox button")
    squares.first.wait_for(timeout=600_000)
    assert "This is a picture" not in page.said(playing)
    squares.nth(4).click()
    board = playing.locator(".widget-gridbox img").first
    page.until(lambda: sorted(re.sub(r"[^xo]", "", board.get_attribute("alt"))) == ["o", "x"], "answer of the agent")
    page.shot(f"{name}-clicked")
    page.page.close()


# Pictures ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["connect4", "chess", "dots(rows=3,cols=3)", "blob(players=4,cards=5)", "2048"])
def test_a_png_looks_like_what_the_browser_draws(chromium, name):
    from io import BytesIO

    import numpy as np
    from PIL import Image

    from alphazero_nb.core.registry import get_game
    from alphazero_nb.ui.match import Match
    from alphazero_nb.ui.match_view import MatchView, match_png
    match = Match(get_game(name), None)
    for _ in range(3): match.move(match.game.legal_actions(match.state)[-1])
    page = chromium.new_page()
    page.set_content(f"<body style='margin:0'>{MatchView(match).svg()}</body>")
    drawn = page.locator("svg").screenshot()
    page.close()
    ours = Image.open(BytesIO(match_png(match, scale=1))).convert("RGBA")
    ours = np.asarray(Image.alpha_composite(Image.new("RGBA", ours.size, "white"), ours).convert("RGB"), float)
    theirs = np.asarray(Image.open(BytesIO(drawn)).convert("RGB"), float)
    assert ours.shape == theirs.shape
    differ = np.abs(ours - theirs).max(2) > 60   # Edges and letters differ a little; the fonts need not be the same
    assert differ.mean() < .03 < np.abs(theirs - theirs.mean((0, 1))).mean() / 255, differ.mean()
