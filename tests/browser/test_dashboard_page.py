"The dashboard in a real browser: it fits narrow and wide pages, its values are under the pointer, and its pictures have words."
import importlib.util
import re

import pytest

from chromium import CHROMIUM, chromium

if not CHROMIUM or importlib.util.find_spec("playwright") is None:
    pytest.skip("Chromium or playwright is not installed, so there is no page to look at.", allow_module_level=True)

from alphazero_nb.core.events import EngineStatus, GameFinished, IterationDone, MatchPlayed, Message, RunStarted
from alphazero_nb.ui.dashboard import LIVE, DashboardState, render, render_part


@pytest.fixture(scope="module")
def page():
    state = DashboardState(clock=lambda: 60.)
    state(RunStarted("tictactoe", "tiny", "cuda:0", "runs/none", minutes=10))
    for k in range(90): state(GameFinished(k, k, 500, k + 1, 5 + k % 5, ((1., -1.), (0., 0.))[k % 2], k / 30 + .1, 90 * k, f"cuda:{k % 2}"))
    for k in range(1, 12):
        state(IterationDone(k, 18. * k, 256 * k, 900 * k, 1.9 * .95 ** k, .8 * .96 ** k, 30., {}, [.5 + .04 * k, .4 + .04 * k, .54 + .04 * k, 100],
                            {"random": .55, "rollouts:100": .89}))
    state(MatchPlayed("run", "rollouts:100", .7, .6, .8, 40, 10))
    state(EngineStatus(3., 900., 9., 9., .5, 0, {f"cuda:{k}": dict(evals_per_s=450., memory_gb=3., memory_total_gb=16.) for k in range(2)},
                       "", .3, ("tictactoe", 0, (0, 3, 1, 4, 2))))
    state(Message("A sentence that is much longer than a narrow page is wide, so that it must be cut and must not widen the page. " * 2))
    return render(state)


@pytest.mark.parametrize("width", [360, 420, 1200])
def test_a_page_of_any_width_has_room_for_it(chromium, page, width):
    tab = chromium.new_page(viewport=dict(width=width, height=800))
    tab.set_content(f"<body>{page}</body>")
    for fold in tab.locator("summary").all(): fold.click()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert "cuda:1: 45 games, 450 evaluations/s, 3.0 of 16 GB" in tab.locator("details").first.inner_text()
    sizes = tab.evaluate("[...document.querySelectorAll('img')].map(image => [image.naturalWidth, image.width, image.height])")
    assert len(sizes) == 4 and all(min(size) > 100 for size in sizes)
    tab.close()


def test_the_values_of_a_point_are_under_the_pointer(chromium, page):
    tab = chromium.new_page(viewport=dict(width=1200, height=800))
    tab.set_content(f"<body>{page}</body>")
    image = tab.locator("img").first.bounding_box()
    for share, want in ((.02, "0.3 min\nthis run 54 (44 to 58)"), (.5, "1.8 min\nthis run 74 (64 to 78)"), (.99, "3.3 min\nthis run 94 (84 to 98)")):
        at = image["x"] + share * image["width"], image["y"] + image["height"] / 2
        assert tab.evaluate("([x, y]) => document.elementFromPoint(x, y).title", at) == want
    tab.close()


def test_a_screen_reader_hears_what_the_pictures_show(chromium, page):
    tab = chromium.new_page()
    tab.set_content(f"<body>{page}</body>")
    heard = re.findall(r'img "(.*)"', tab.locator("body").aria_snapshot())
    assert heard == ["Strength: keeps the result (%): this run from 54 to 94, random 55, rollouts:100 89", "Loss: policy from 1.8 to 1.1, value from 0.77 to 0.51",
                     "Strength: Elo: against rollouts:100 from 147 to 147, equal 0", "Last game: 5 moves, the first player won",
                     "Length of the last games: 5 to 9 moves"]
    tab.close()


def test_an_open_fold_stays_open_while_the_page_is_redrawn(chromium):
    states = [DashboardState(clock=lambda: 60.) for _ in range(2)]   # Two dashboards on a page
    tab = chromium.new_page(viewport=dict(width=420, height=800))
    for state in states: state(RunStarted("tictactoe", "tiny", "cpu", "runs/none", minutes=10))
    tab.set_content("".join(f'<div id="p{k}-{number}">{render_part(state, number, live=True)}</div>'
                            for k, state in enumerate(states) for number in range(len(LIVE))))

    def redraw(number, text):
        states[number](Message(text))
        for part in (0, 1, 2, 4):
            tab.evaluate("([place, html]) => { document.getElementById(place).innerHTML = html; }",
                         [f"p{number}-{part}", render_part(states[number], part, live=True)])
        return tab.locator(f"#p{number}-4").get_by_text(text)

    assert not redraw(0, "first").is_visible()
    tab.locator("summary", has_text="Messages").first.focus()
    tab.keyboard.press("Enter")
    assert redraw(0, "second").is_visible() and redraw(0, "third").is_visible()
    assert not redraw(1, "other").is_visible(), "the fold of the other dashboard is closed"
    tab.keyboard.press("Enter")
    assert not redraw(0, "fourth").is_visible()
    assert "<style" not in render(states[0]) and "Messages: 4" in render(states[0]), "what is left at the end folds by itself"
    tab.close()
