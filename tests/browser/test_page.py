"An exported page in Chromium, opened from a file and without network: it plays a game, asks for nothing, and shows hostile words as text."
import importlib.util
import re
import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if not CHROMIUM or not importlib.util.find_spec("playwright"):
    pytest.skip("Chromium or playwright is not installed, so there is no page to look at.", allow_module_level=True)

from playwright.sync_api import sync_playwright

from alphazero_nb.web.page import export_page

HOSTILE = "</script><img src=x onerror=alert(1)><script>alert(2)</script>" + "long " * 400


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    "The page of the agent that ships, and everything that it logged or asked for."
    file, seen = tmp_path_factory.mktemp("page")/"connect4.html", []
    export_page("pretrained:connect4", file, title=HOSTILE, author=HOSTILE, note=HOSTILE, simulations=16)
    assert file.stat().st_size < 1.5e6
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"], timeout=600_000)
        context = chromium.new_context(offline=True, viewport=dict(width=360, height=800))
        page = context.new_page()
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: None if request.url.startswith(("blob:", file.as_uri())) else seen.append(request.url))
        page.goto(file.as_uri())
        try: yield page, seen
        finally: chromium.close()


def status(page, pattern, seconds=120):
    page.locator("#status", has_text=re.compile(pattern)).wait_for(timeout=1000 * seconds)
    return page.locator("#status").inner_text()


def test_a_whole_game(opened):
    page, seen = opened
    status(page, "Your move")
    for turn in range(21):
        can = page.locator("#board button[aria-label*='can be played']")
        can.nth(turn % can.count()).click()
        if "Your move" not in status(page, "Your move|won|draw"): break
    assert re.search("won|draw", page.locator("#status").inner_text()) and page.locator("#moves li").count() >= 7
    page.locator("#undo").click()
    status(page, "Your move")
    assert seen == []


def test_words_are_text(opened):
    page, seen = opened
    assert page.locator("#title").inner_text().startswith("</script><img") and page.locator("img").count() == 0
    assert page.locator("#note").inner_text().startswith("</script><img") and page.locator("script").count() == 3
    assert page.locator("html").evaluate("element => element.scrollWidth") <= 360 and seen == []


def test_it_answers_while_it_searches(opened):
    page, seen = opened
    page.locator("#new").click()
    status(page, "Your move")
    page.locator("#level").select_option("1600")
    page.locator("#hint").click()
    page.locator("#stop").wait_for()
    page.locator("#stop").click()
    page.locator("#said", has_text="Hint").wait_for(timeout=60_000)
    assert page.evaluate("hint.visits") < 1600 and seen == []
