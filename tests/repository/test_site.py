"""The documentation site as `make site` leaves it in build/site: links, anchors, names, searches, and thirty pages in Chromium.

The links are read from the HTML with Python's own parser, and Chromium reports every request, so MkDocs is not asked about its work."""
import functools
import http.server
import importlib.resources
import importlib.util
import json
import re
import threading
import time
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest

import make_site
import sync
from chromium import CHROMIUM, chromium

SITE = sync.ROOT/"build"/"site"
pytestmark = pytest.mark.slow
if not (SITE/"index.html").exists(): pytest.skip("There is no build/site: run `make site` first.", allow_module_level=True)
browser = pytest.mark.skipif(not CHROMIUM or not importlib.util.find_spec("playwright"), reason="Chromium or playwright is not installed")

THIRTY = """ play/ play/connect4/ play/chess-variant-gardner/ colab/quickstart/ colab/play/ colab/several_gpus/ nbs/ understand/ pages/
nbs/93_whole_loop/ nbs/10_games.tictactoe/ nbs/31_search.search/ nbs/42_selfplay.slots/ nbs/61_training.learner/ nbs/63_training.trainer/
nbs/94_why_each_part/ nbs/95_experiments/ nbs/90_troubleshooting/ nbs/15b_games.pig/ nbs/51_arena.solvers/ nbs/73_ui.board/
nbs/74_ui.card_table/ nbs/78_ui.plots/ nbs/72_ui.dashboard/ reference/ reference/search/ reference/training/ commands/train/ CHANGELOG/"""


class Page(HTMLParser):
    "The links, the anchors, the text of code, and what a page loads."
    def __init__(self, file):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key) and (key == "id" or tag == "a")}
        if tag == "a" and found.get("href"): self.links.append(found["href"])
        if tag == "link" and not set((found.get("rel") or "").split()) & {"canonical", "next", "prev"}: self.loads.append(found["href"])
        if found.get("src"): self.loads.append(found["src"])


@functools.cache
def pages(): return {file.relative_to(SITE).as_posix(): Page(file) for file in SITE.rglob("*.html") if "boards" not in file.parts}


def place(page, link):
    "The file and the anchor that a link of a page leads to. Its own address begins with site:, and other hosts are left out."
    base = sync.read_address()["site"]
    address, anchor = urldefrag(urljoin(base + page.removesuffix("index.html"), link))
    if not address.startswith(base): return None
    path = unquote(urlsplit(address).path.removeprefix(urlsplit(base).path))
    return path + "index.html" if path.endswith("/") or not path else path, unquote(anchor)


def test_every_link_and_anchor_leads_somewhere():
    wrong, counted = [], 0
    for name, page in pages().items():
        if name == "404.html": continue   # Its links are those of the place where it is shown
        for link in page.links:
            if not (target := place(name, link)): continue
            counted += 1
            file, anchor = target
            if not (SITE/file).is_file(): wrong.append(f"{name}: {link} is no file")
            elif anchor and not anchor.startswith("__") and file in pages() and anchor not in pages()[file].anchors:
                wrong.append(f"{name}: {link} has no such anchor")
    assert counted > 5000 and not wrong, "\n".join(wrong[:30])


def test_no_page_loads_anything_from_another_host():
    loads = {(name, link) for name, page in pages().items() for link in page.loads if not link.startswith("data:")}
    assert len(loads) > 500
    assert not [pair for pair in loads if not place(*pair)]
    missing = [pair for pair in loads if pair[0] != "404.html" and not (SITE/place(*pair)[0]).is_file()]
    assert not missing, missing[:20]


def test_every_notebook_is_a_page_with_its_links_and_without_directives():
    address = sync.read_address()
    for path in sync.notebooks():
        name = path.removesuffix(".ipynb") + ("/index.html" if path != sync.INDEX else ".html")
        text = (SITE/name).read_text(encoding="utf-8")
        assert sync.colab_link(address, path) in pages()[name].links, f"{name} has no Colab badge"
        assert any(link.endswith(f"/edit/{address['branch']}/{path}") for link in pages()[name].links), f"{name} has no edit link"
        assert not re.search(r"<code>#\||\n#\||<span class=\"c1\">#\|", text), f"{name} shows a directive"
        module = make_site.page_facts(path)["module"]
        file = f"alphazero_nb/{module.replace('.', '/')}.py"
        assert not module or any(link.endswith(file) for link in pages()[name].links), f"{name} does not name its module"


def test_stored_pictures_are_on_the_page():
    for path in sync.notebooks():
        cells = json.loads((sync.ROOT/path).read_text(encoding="utf-8"))["cells"]
        hidden = [cell for cell in cells if "#| hide\n" in "".join(cell["source"]) + "\n"]
        stored = sum("image/png" in output.get("data", {}) for cell in cells if cell not in hidden for output in cell.get("outputs", []))
        name = path.removesuffix(".ipynb") + ("/index.html" if path != sync.INDEX else ".html")
        assert sum("_files/" in link for link in pages()[name].loads) == stored, name


def test_every_public_name_and_every_command_has_its_place():
    anchors = {anchor for name, page in pages().items() if name.startswith("reference/") for anchor in page.anchors}
    missing = [f"{module}.{name}" for name, module in make_site.public_names().items() if f"{module}.{name}" not in anchors]
    assert not missing
    text = (SITE/"reference/web/index.html").read_text(encoding="utf-8")
    assert "Where to write, such as connect4.html" in text and "Raises a ValueError that says why" in text
    assert "minutes" in pages()["commands/train/index.html"].anchors


def test_the_reading_path_follows_itself():
    path = make_site.reading_path()
    assert len(path) == 7
    for page, following in zip(path, path[1:]):
        name = page.removesuffix(".ipynb") + "/index.html"
        footer = (SITE/name).read_text(encoding="utf-8").partition("md-footer__link--next")[0].rpartition("<a ")[2]
        link = re.search(r'href="([^"]*)"', footer)[1]
        assert place(name, link)[0] == following.removesuffix(".ipynb") + "/index.html"


def test_the_gallery_has_each_agent_with_its_board_and_its_card():
    gallery = pages()["play/index.html"]
    agents = sorted((sync.ROOT/sync.PACKAGE/"agents").glob("*.json"))
    assert len(agents) >= 6
    for file in agents:
        name, row = f"play/{file.stem}/index.html", json.loads(file.read_text(encoding="utf-8"))
        assert f"{file.stem}/" in gallery.links and f"boards/{file.stem}.svg" in gallery.loads
        board = f"../boards/{file.stem}." + ("svg" if row["game"].startswith("blob") else "html")   # Hidden cards stay at the table
        assert board in pages()[name].loads and f"{row['games']:,} games of self-play" in (SITE/name).read_text(encoding="utf-8")


def test_every_section_that_an_error_names_is_on_the_page():
    from test_help import sections
    anchors = pages()["nbs/90_troubleshooting/index.html"].anchors
    assert len(sections()) > 10 and sections().keys() <= anchors


def test_the_site_is_small():
    assert sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file()) < 60e6


# In Chromium ------------------------------------------------------------------------------------

class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words): pass


@pytest.fixture(scope="module")
def host():
    "The site on this machine."
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture
def tab(chromium, host):
    "A tab that reaches only the site and keeps a list of what it asked others for, and of errors."
    context = chromium.new_context()
    tab = context.new_page()
    tab.set_default_timeout(180_000)
    tab.refused, tab.errors = [], []
    tab.on("pageerror", lambda error: tab.errors.append(str(error)))
    def answer(route):
        if route.request.url.startswith((host, "blob:", "data:")): return route.continue_()
        tab.refused.append(route.request.url)
        route.abort()
    context.route("**/*", answer)
    yield tab
    context.close()


WIDE = """() => [...document.querySelectorAll("body *")].filter(e => {
  const box = e.getBoundingClientRect()
  if (!box.width || box.right <= innerWidth + 1) return false
  for (let p = e; p; p = p.parentElement) {
    const style = getComputedStyle(p)
    if (p !== document.body && ["auto", "scroll", "hidden", "clip"].includes(style.overflowX)) return false
    if (style.position === "fixed" || style.visibility === "hidden" || style.position === "absolute") return false
  }
  return true
}).slice(0, 3).map(e => e.outerHTML.slice(0, 90))"""


@browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_thirty_pages_fit_a_telephone_and_a_screen(tab, host, scheme):
    tab.emulate_media(color_scheme=scheme)
    names = re.split(r"[ \n]", THIRTY)
    assert len(names) == 30 and names[0] == ""
    for name in names:
        tab.goto(host + name, wait_until="load")
        assert tab.evaluate("document.body.dataset.mdColorScheme") == dict(light="default", dark="slate")[scheme]
        for width in (400, 1200):
            tab.set_viewport_size(dict(width=width, height=900))
            wide = tab.evaluate(WIDE)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width and not wide, (name, width, wide)
    assert not tab.refused and not tab.errors


@browser
@pytest.mark.parametrize("words, wanted", [("resign", "nbs/19_games.chess_text/"), ("replay ratio", "nbs/61_training.learner/"),
                                           ("replay_ratio", "reference/training/"), ("Drive", "nbs/62_training.run_folder/")])
def test_a_search_finds_its_page(tab, host, words, wanted):
    tab.set_viewport_size(dict(width=1280, height=900))
    tab.goto(host)
    tab.locator("input.md-search__input").click()
    tab.keyboard.type(words)
    found = tab.locator(".md-search-result__item")
    found.first.wait_for()
    links = found.evaluate_all("items => items.map(item => item.querySelector('a').pathname.slice(1))")   # The first ten pages
    assert wanted in links
    assert not tab.refused and not tab.errors


@browser
def test_the_first_page_plays(tab, host):
    tab.set_viewport_size(dict(width=1280, height=900))
    tab.goto(host)
    board = tab.frame_locator("iframe.board")
    board.locator("#board button:not([disabled])").nth(3).click()
    board.locator("#moves").filter(has_text=re.compile(r"\d\D+\d")).wait_for()
    board.locator("#status", has_text="Your move").wait_for()
    assert len(board.locator("#moves button").all()) == 2
    heights = "f => [f.clientHeight, f.contentDocument.body.scrollHeight]"
    outer, inner = tab.locator("iframe.board").evaluate(heights)
    assert outer >= inner   # Nothing scrolls inside the frame
    assert not tab.refused and not tab.errors


@browser
def test_the_first_page_is_ready_soon(tab, host):
    "The time from the request to a board that takes a move is printed; only a page that hangs fails."
    tab.set_viewport_size(dict(width=1280, height=900))
    start = time.perf_counter()
    tab.goto(host, wait_until="commit")
    tab.frame_locator("iframe.board").locator("#board button:not([disabled])").nth(3).click(timeout=60_000)
    print(f"The first page takes a move after {time.perf_counter() - start:.2f} s.")


@browser
def test_the_address_in_an_error_leads_to_its_section(tab, host):
    from alphazero_nb.core.help import SITE, see
    tab.goto(see("rules").removeprefix(" Help: ").replace(SITE, host))
    tab.wait_for_url(f"{host}nbs/90_troubleshooting/#rules")
    assert tab.locator("#rules").evaluate("a => a.getBoundingClientRect().top") < 900
    assert not tab.refused and not tab.errors


AXE = "axe.run({resultTypes: ['violations']}).then(found => found.violations.flatMap(one => one.nodes.map(node => " \
      "[one.id, one.impact, node.target.flat().join(' '), node.failureSummary])))"


@browser
@pytest.mark.skipif(not importlib.util.find_spec("axe_playwright_python"), reason="axe-playwright-python is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_mend(tab, host, scheme):
    "All rules of axe-core, also inside the frames with boards."
    axe = (importlib.resources.files("axe_playwright_python")/"axe.min.js").read_text(encoding="utf-8")
    tab.emulate_media(color_scheme=scheme)
    tab.set_viewport_size(dict(width=1280, height=900))
    for name in ("", "play/", "play/chess-variant-gardner/", "nbs/", "nbs/31_search.search/", "nbs/90_troubleshooting/",
                 "reference/training/", "commands/train/", "colab/quickstart/"):
        tab.goto(host + name, wait_until="load")
        if name in ("", "play/chess-variant-gardner/"):
            tab.frame_locator("iframe.board").locator("#board button:not([disabled])").first.wait_for()
        for frame in tab.frames: frame.evaluate(axe)
        assert tab.evaluate(AXE) == [], name
    assert not tab.refused and not tab.errors


@browser
def test_a_board_follows_the_colours_that_the_reader_chose(tab, host):
    tab.emulate_media(color_scheme="light")
    tab.goto(host)
    body = tab.frame_locator("iframe.board").locator("body")
    back = lambda: body.evaluate("b => getComputedStyle(b).backgroundColor")
    assert back() == "rgb(255, 255, 255)"
    tab.locator("label.md-header__button[title=Dark]").click()
    tab.wait_for_function("document.body.dataset.mdColorScheme === 'slate'")
    body.evaluate("b => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert back() != "rgb(255, 255, 255)"
