"""Exported pages in Chromium, opened from a file and without network: games are played with clicks and keys, positions are those of
Python, a page asks for nothing, and hostile words are text."""
import base64
import functools
import importlib.util
import re
import time
from pathlib import Path

import numpy as np
import pytest

from chromium import CHROMIUM, chromium

if not CHROMIUM or not importlib.util.find_spec("playwright"):
    pytest.skip("Chromium or playwright is not installed, so there is no page to look at.", allow_module_level=True)

import broken_games
from alphazero_nb.core.registry import get_game, import_rules
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.search.levels import even_levels
from alphazero_nb.search.traps import look_ahead
from alphazero_nb.ui.board import find_drawing
from alphazero_nb.web.page import export_page, page_data, page_html
from alphazero_nb.web.wasm import compile_game

HOSTILE = "</script><img src=x onerror=alert(1)><script>alert(2)</script>" + "long " * 400
PAWN = "chess(fen=1n2k2r/P6p/8/8/8/8/p6P/1N2K2R w Kk - 0 1)"
PLAYED = ["tictactoe", "gomoku(size=5)", "dots(rows=3,cols=3)", "othello(size=6)"]   # With clicks, to the end
COMPARED = [*PLAYED, "connect4", PAWN, "pig", "backgammon", "2048", "nim", pytest.param("chess(variant=gardner)", marks=pytest.mark.slow)]


@functools.cache
def game_of(name): return broken_games.nim() if name == "nim" else get_game(name)


def write(file, data):
    file.write_text(page_html(data), encoding="utf-8")
    return file


def dice_that_are_known(file):
    "Every third roll is a 1, so no agent gets far in one turn: one that knows nothing may win before a test has clicked three times."
    text, before = file.read_text(encoding="utf-8"), "game.outcome(Math.random() || 0.5)"
    assert text.count(before) == 1
    known = text.replace(before, "game.outcome([0.6, 0.3, 0.05][thrown++ % 3])").replace("function roll()", "let thrown = 0;\nfunction roll()")
    file.write_text(known, encoding="utf-8")
    return file


@functools.cache
def data_of(name):
    "The data of a page with a small network that knows nothing, made once for all tests."
    game = game_of(name)
    return page_data(game, PolicyValueNet(game, "tiny", seed=1), even_levels(16), title=game.name, author="", note="", facts=[])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    "Return the file of a game's page; Connect Four is the agent that ships, with hostile words."
    folder = tmp_path_factory.mktemp("pages")

    @functools.cache
    def file_of(name):
        file = folder/f"{len(list(folder.iterdir()))}.html"
        if name == "pig": return dice_that_are_known(write(file, data_of(name)))
        if name != "connect4": return write(file, data_of(name))
        return export_page("pretrained:connect4", file, title=HOSTILE, author=HOSTILE, note=HOSTILE, simulations=16)
    return file_of


@pytest.fixture
def visit(chromium):
    "Open a file in a window of its own. At the end nothing may have been logged, asked for or left open."
    opened, seen = [], []

    def visit(file, ending="", wide=360):
        context = chromium.new_context(offline=True, viewport=dict(width=wide, height=800))
        context.set_default_timeout(600_000)
        page = context.new_page()
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: None if request.url.startswith(("blob:", file.as_uri())) else seen.append(request.url))
        page.goto(file.as_uri() + ending)
        opened.append(context)
        status(page, "Your move|agent|over|stopped|to move|won")
        return page
    yield visit
    for context in opened: context.close()
    assert seen == []


def status(page, pattern, seconds=120):
    page.locator("#status", has_text=re.compile(pattern)).wait_for(timeout=1000 * seconds)
    return page.locator("#status").inner_text()


def moves(page) -> list[int]: return page.evaluate("position.moves")


def wait(page, condition, seconds=600):
    "Wait until JavaScript says true. The page forbids strings as code, so Playwright's own way is closed."
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"{condition} after {seconds} seconds; {page.locator('#status').inner_text()}"
        page.wait_for_timeout(10)


def click_a_move(page, number):
    "Click on a square that can be played, or a button below the board, and wait for the move."
    before, can = len(moves(page)), page.locator("#board button[aria-label*='can be played'], #actions button")
    can.nth(number % can.count()).click()
    wait(page, f"position.moves.length > {before}")


def play_to_the_end(page, most=60):
    for turn in range(most):
        if "Your move" not in status(page, "Your move|won|draw"): return page.locator("#status").inner_text()
        click_a_move(page, 7 * turn)
    raise AssertionError(f"the game goes on after {most} moves")


# Playing -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", [*PLAYED[:3], pytest.param(PLAYED[3], marks=pytest.mark.slow)])
def test_a_game_with_clicks(name, exported, visit):
    page, game = visit(exported(name)), game_of(name)
    assert re.search("won|draw", play_to_the_end(page)) and page.locator("#curve svg").is_visible()
    end = game.state_after(moves(page))
    assert game.over(end) and page.evaluate("position.returns") == game.returns(end).tolist()
    page.locator("#undo").click()
    status(page, "Your move")
    assert page.locator("html").evaluate("element => element.scrollWidth") <= 360


def test_2048_with_keys(exported, visit):
    page, keys = visit(exported("2048")), ("ArrowLeft", "ArrowDown", "ArrowRight", "ArrowUp")
    status(page, "Your move")
    for turn in range(15):
        before = len(moves(page))
        for key in keys:
            page.keyboard.press(key)
            wait(page, "pending.size === 0 && !thinking")
            if len(moves(page)) > before: break
    state, played = game_of("2048").new(page.evaluate("seed")), moves(page)
    for action in played: state = game_of("2048").play(state, action)
    score, = re.findall(r"\d+", page.locator("#caption").inner_text())
    label = page.locator("#board svg").get_attribute("aria-label")   # Row by row, for who cannot see the tiles
    tiles = [0 if word == "empty" else int(word) for row in label.split("; ") for word in row.split(", ")]
    assert tiles == [2**int(sign) if sign else 0 for sign in state[:16]]
    assert len(played) > 15 and f"score {score}" in game_of("2048").text(state)


def test_keys_of_the_browser_are_no_moves(exported, visit):
    page = visit(exported("2048"))
    status(page, "Your move")
    for key in ("ArrowLeft", "ArrowDown", "ArrowRight", "ArrowUp"): page.keyboard.press(f"Control+{key}")
    page.wait_for_timeout(200)
    assert page.evaluate("position.movers.filter((mover) => mover >= 0).length") <= 1 and "Your move" in status(page, "Your move")


def test_requests_while_the_worker_loads_wait_for_it(exported, visit):
    page = visit(exported("tictactoe"))
    status(page, "Your move")
    page.evaluate("() => { endWorker('a test'); newGame(); newGame(); }")
    wait(page, "position.moves.length === 0 && worker !== null && pending.size === 0")
    assert "stopped" not in status(page, "Your move|stopped")


def test_a_look_back_drops_a_half_made_choice(exported, visit):
    page = visit(exported("chess(variant=gardner)"))
    status(page, "Your move")
    page.evaluate("() => playAction(position.board.steps[0].action)")
    wait(page, "position.moves.length === 2 && yours()")
    page.evaluate("() => { chosen = position.board.steps[0].start; offered = position.board.steps.slice(0, 1); render(); }")
    assert page.locator("#actions button").count() == 1
    page.evaluate("() => look(1)")
    wait(page, "viewed !== null")
    assert page.locator("#actions button").count() == 0 and page.evaluate("chosen") == -1


def test_a_new_game_shows_nothing_of_the_last_one_and_a_link_changes_no_rating(exported, visit):
    page = visit(exported("tictactoe"))
    play_to_the_end(page)
    assert page.locator("#expected").inner_text()
    page.locator("#new").click()
    wait(page, "position.moves.length === 0")
    assert page.locator("#expected").inner_text() == "" == page.locator("#effort").inner_text()
    page.evaluate("() => { at('match').checked = true; at('match').dispatchEvent(new Event('change')); }")
    page.evaluate("() => { location.hash = '#moves=0,3,1,4,2'; }")
    wait(page, "position.moves.length === 5")
    assert page.evaluate("rating.games") == 0 and page.evaluate("results.size") == 0


def test_a_shared_first_place_is_no_draw(exported, visit):
    page = visit(exported("tictactoe"))
    status(page, "Your move")
    said = lambda results: page.evaluate("""(results) => {
        const [before, seats] = [position, data.seats];
        [position, data.seats] = [{ ...position, mover: -1, returns: results }, ["North", "East", "West"]];
        const said = status();
        [position, data.seats] = [before, seats];
        return said;
    }""", results)
    assert " and " in said([1, 1, -1]) and said([1, 1, -1]).endswith(" won.") and said([0, 0, 0]) == "The game is a draw."
    assert said([-1, 1, 1]) == "East and West won.", "two of three would both be called the agent"


def test_with_three_players_a_move_names_its_seat(tmp_path, visit):
    import_rules(Path(__file__).resolve().parents[2]/"examples"/"race.py")
    game = get_game("race")
    page = visit(write(tmp_path/"race.html", page_data(game, PolicyValueNet(game, "mlp", seed=1), even_levels(16), title="", author="", note="", facts=[])))
    click_a_move(page, 0)
    wait(page, "yours() || over()")
    page.locator("#said", has_text=re.compile("^Player [23] played .+[.]$")).wait_for()
    listed = page.locator("#moves button:not(.chance)").all_inner_texts()
    assert listed[0].startswith("1. Player 1: runner ") and any("Player 2: " in entry for entry in listed)


def test_a_move_does_not_scroll_the_page(exported, visit):
    "On a small screen the list of moves is below the window, and the board is where one looks."
    page = visit(exported("connect4"))
    page.set_viewport_size(dict(width=360, height=420))
    for turn in range(12): page.evaluate(f"() => {{ position.names.push('a long name of a move {turn}'); position.movers.push(0); position.moves.push(0); }}")
    page.evaluate("() => { scrollTo(0, 0); render(); }")
    assert page.evaluate("document.documentElement.scrollHeight > innerHeight"), "the window holds the whole page"
    assert page.evaluate("scrollY") == 0 < page.evaluate("at('moves').scrollTop")


def test_squares_are_named_as_on_the_board_of_the_notebook(exported, visit):
    page = visit(exported("connect4"), "#moves=3,0,3,0,3,0,3")
    status(page, "won")
    labels = page.locator("#board button").evaluate_all("all => all.map((each) => each.ariaLabel)")
    assert labels[0].startswith("column 0, row 6: empty") and labels[-4].startswith("column 3, row 1: ")
    assert labels[-4].endswith("winning line") and sum("winning line" in label for label in labels) == 4
    assert sum("last move" in label for label in labels) == 1
    page = visit(exported(PAWN))
    page.evaluate("() => { hint = { action: -2, shares: [] }; position.board.squares[0].alert = true; position.board.squares[1].seat = 5; render(); }")
    labels = page.locator("#board button").evaluate_all("all => all.map((each) => each.ariaLabel)")
    assert labels[0].endswith(", check") and labels[1].startswith("b8: piece ")


def test_a_board_with_steps_keeps_its_buttons_where_there_is_none(exported, visit):
    "They hold the keyboard, from the last move to the next game."
    page = visit(exported("tictactoe"))
    page.evaluate("() => { data.drawing.moves = [0]; for (const square of position.board.squares) square.action = -1; render(); }")
    assert page.locator("#board button").count() == 9


def test_a_browser_that_slept_does_not_end_the_worker(exported, visit):
    "On a phone the page and its worker stop together; the clock goes on. The rest of the patience is the worker's."
    page = visit(exported("tictactoe"))
    status(page, "Your move")
    assert page.evaluate("""() => {
        const [timer, clock] = [window.setTimeout, performance.now];
        let [now, ring] = [0, null];
        window.setTimeout = (call) => { ring = call; return 0; };
        performance.now = () => now;
        pending.set(0, { reject() {} });
        watch();
        const seen = [];
        for (const later of [1000 * data.patience + 60000, 1000 * data.patience]) { now += later; ring(); seen.push(worker !== null); }
        [window.setTimeout, performance.now] = [timer, clock];
        return seen;
    }""") == [True, False]


def test_an_old_link_is_not_shown_beside_a_later_position(exported, visit):
    page = visit(exported("tictactoe"))
    status(page, "Your move")
    page.evaluate("() => { navigator.clipboard ? (navigator.clipboard.writeText = () => Promise.reject(new Error('no'))) : 0; }")
    page.locator("#copy").click()
    page.locator("#link").wait_for()
    click_a_move(page, 0)
    assert page.locator("#link").is_hidden()


def test_without_javascript_the_page_says_so(exported, chromium):
    context = chromium.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto(exported("tictactoe").as_uri())
    assert "needs JavaScript" in page.locator("main").inner_text()
    context.close()


def test_a_search_that_was_called_off_leaves_nothing_open(exported, visit):
    page = visit(exported("connect4"))
    status(page, "Your move")
    page.locator("#level").evaluate("(menu) => { menu.value = [...menu.options].at(-1).value; menu.dispatchEvent(new Event('change')); }")
    page.evaluate("() => { window.ended = ''; search(++turn, { simulations: 100000, temperature: 0 }).catch(({ message }) => { ended = message; }); }")
    wait(page, "pending.size === 1")
    page.evaluate("() => { newGame(); }")
    wait(page, "ended !== ''")
    assert page.evaluate("ended") == "cancelled", "the watchdog had to end it"


def test_the_keyboard_plays(exported, visit):
    page = visit(exported("tictactoe"))
    status(page, "Your move")
    page.locator("#board button[tabindex='0']").focus()
    assert page.locator("#board button[tabindex='0']").count() == 1   # One stop of the tab key
    for key in ("ArrowRight", "ArrowDown", "Enter"): page.keyboard.press(key)
    wait(page, "position.moves.length === 2")
    assert moves(page)[0] == 4 and page.evaluate("document.activeElement.dataset.place") == "4"
    assert "You" in status(page, "Your move")


def test_the_keyboard_stays_on_its_button(exported, visit):
    page = visit(exported("pig"))
    status(page, "Your move")
    page.locator("#actions button", has_text="roll").focus()
    for _ in range(4):   # Nobody has to look for the button again, also where the agent has moved in between
        before = len(moves(page))
        page.keyboard.press("Enter")
        wait(page, f"position.moves.length > {before} && yours()")
        assert page.evaluate("document.activeElement.textContent") == "roll"
    page.locator("#moves button").first.focus()
    page.keyboard.press("Enter")
    wait(page, "viewed !== null")
    assert page.evaluate("document.activeElement === at('moves').querySelector('button')")
    page.locator("#back").focus()
    page.keyboard.press("Enter")
    wait(page, "viewed === null")
    assert page.evaluate("document.activeElement === [...at('moves').querySelectorAll('button')].at(-1)")
    page.locator("#undo").focus()
    while before := len(moves(page)):
        page.keyboard.press("Enter")
        wait(page, f"position.moves.length < {before} && yours()")
        assert page.evaluate("document.activeElement.id") == ("undo" if moves(page) else "hint")


def test_hint_and_a_promotion_keep_the_keyboard(exported, visit):
    page = visit(exported(PAWN))
    status(page, "Your move")
    page.locator("#hint").focus()
    page.keyboard.press("Enter")
    page.locator("#said", has_text="Hint").wait_for()
    assert page.evaluate("document.activeElement.id") == "hint"
    for name in ("a7", "a8"): page.locator(f"#board button[aria-label^='{name}:']").click()
    page.locator("#actions button", has_text="rook").focus()
    page.keyboard.press("Enter")
    wait(page, "position.moves.length > 0 && !thinking")
    assert page.evaluate("at('board').contains(document.activeElement)")


def test_the_page_says_what_the_agent_played(exported, visit):
    page = visit(exported("tictactoe"))
    status(page, "Your move")
    click_a_move(page, 0)
    page.locator("#said", has_text=re.compile("^The agent played .+[.]$")).wait_for()
    assert page.evaluate("at('said').textContent === `The agent played ${position.names[1]}.`")
    page.evaluate("""() => {   // What is said while the next search runs
        window.heard = [];
        new MutationObserver(() => { if (thinking) heard.push(at("said").textContent); }).observe(at("status"), { childList: true });
    }""")
    page.locator("#seat").select_option("none")
    status(page, "won|draw")
    assert len(page.evaluate("heard.filter((words) => / played /.test(words))")) > 1
    assert page.evaluate("at('said').textContent === `${seatName(position.movers[position.moves.length - 1])} played ${position.names.at(-1)}.`")


def test_what_is_asked_right_after_a_move_does_not_lose_it(exported, visit):
    for late in ("showHint()", "look(0)", "playAction(free(3))", "undo()", "goTo(latest())"):   # The worker has not answered yet
        page = visit(exported("tictactoe"), "#moves=4,0")
        status(page, "Your move")
        page.evaluate("() => { window.free = (n) => position.legal[n].action; }")
        page.evaluate(f"() => {{ const first = free(0); playAction(first); {late}; }}")
        wait(page, "position.moves.length === 4 && yours()")
        assert moves(page)[:3] == [4, 0, 1] and page.evaluate("viewed") is None, late
    page.evaluate("() => { look(1); newGame(); }")
    wait(page, "position.moves.length === 0 && yours()")
    assert page.evaluate("viewed") is None


def test_a_new_game_that_cannot_start_leaves_the_old_one_whole(exported, visit):
    page = visit(exported("pig"), "#seed=5&moves=0,4")
    status(page, "Your move")
    page.evaluate("() => { window.really = ask; ask = (...question) => question[0] === 'show' ? Promise.reject(new Error('no answer')) : really(...question); }")
    page.locator("#new").click()
    assert status(page, "stopped") == "The game stopped: no answer."
    assert page.evaluate("linkText()") == "#seed=5&moves=0,4"
    page.evaluate("() => { ask = really; }")
    page.locator("#new").click()
    wait(page, "position.moves.length === 0 && yours()")
    assert page.evaluate("seed") != 5


def test_a_seat_that_changes_while_a_new_game_opens_keeps_the_new_game(exported, visit):
    page = visit(exported("pig"), "#seed=5&moves=0,4")
    status(page, "Your move")
    page.evaluate("() => { newGame(); swapSides(); }")
    wait(page, "!opening && position.moves.length > 0 && yours()")   # The agent begins, and holds at last
    assert page.evaluate("seed") != 5 and page.evaluate("position.movers[0]") == 0


def test_promotion(exported, visit):
    page = visit(exported(PAWN))
    status(page, "Your move")
    def square(name): return page.locator(f"#board button[aria-label^='{name}:']")
    square("a7").click()
    page.locator("#said", has_text="Now choose the square.").wait_for()
    square("a8").click()
    page.locator("#actions button").first.wait_for()
    assert page.locator("#actions button").all_inner_texts() == ["queen", "rook", "bishop", "knight"]
    page.locator("#actions button", has_text="rook").click()
    status(page, "Your move|draw|won")
    assert page.locator("#moves button").first.inner_text() == "1. a7a8r" and "rook" in square("a8").get_attribute("aria-label")


def test_undo_takes_dice_back(exported, visit):
    page = visit(exported("pig"))
    for _ in range(2):
        status(page, "Your move")
        before = len(moves(page))
        page.locator("#actions button", has_text="roll").click()
        wait(page, f"position.moves.length > {before + 1}")   # The roll and its outcome
    status(page, "Your move")
    while before := len(moves(page)):
        page.locator("#undo").click()
        wait(page, f"position.moves.length < {before} && position.mover === 0")
    assert page.locator("#undo").is_disabled() and page.evaluate("position.caption")[2].startswith("This turn: 0 points")


@pytest.mark.parametrize("name", ["othello(size=6)", "pig", "backgammon"])
def test_a_link_opens_the_same_position(name, exported, visit):
    first = visit(exported(name))
    for turn in range(3):
        status(first, "Your move")
        click_a_move(first, turn)
    status(first, "Your move|won|draw")
    second = visit(exported(name), first.evaluate("location.hash"))
    status(second, "Your move|won|draw")
    for what in ("position.moves", "position.board", "position.caption", "position.names"): assert first.evaluate(what) == second.evaluate(what)


def test_a_link_knows_a_start_that_the_seed_has_drawn(tmp_path, visit):
    "Where a hole of peg solitaire is free."
    import_rules(Path(__file__).resolve().parents[2]/"examples"/"pegs.py")
    game = get_game("pegs")
    file = write(tmp_path/"pegs.html", page_data(game, PolicyValueNet(game, "mlp", seed=1), even_levels(16), title="", author="", note="", facts=[]))
    first = visit(file)
    while first.evaluate("seed") % 15 == 0:
        first.locator("#new").click()
        wait(first, "!opening")
    first.locator("#actions button").first.click()
    wait(first, "position.moves.length === 1 && !thinking")
    second = visit(file, first.evaluate("location.hash"))
    for what in ("seed", "position.moves", "position.planes"): assert first.evaluate(what) == second.evaluate(what)


def test_results_that_are_not_opposite(tmp_path, visit):
    "Both may expect a good result; and a game is won by the best one."
    page = visit(write(tmp_path/"nim.html", data_of("nim") | dict(zeroSum=False)))
    page.evaluate("drawBar([.8, .8])")
    assert page.locator("#expected").inner_text() == "First 90 %, Second 90 %"
    level = page.evaluate("""() => {
        const match = document.getElementById("match");
        [match.checked, position] = [true, { ...position, mover: -1, returns: [1, .5] }];
        document.getElementById("seat").value = "1";
        const before = rating.level;
        countGame();
        return [before, rating.level];
    }""")
    assert level[1] < level[0]


def test_a_link_with_an_illegal_move_says_so(exported, visit):
    page = visit(exported("tictactoe"), "#moves=4,4")
    assert status(page, "stopped") == "The game stopped: move 2 is not legal."
    assert all(page.locator(f"#{name}").is_disabled() for name in ("undo", "copy", "hint"))
    page.evaluate("() => { undo(); copyLink(); }")   # Without an error on the page
    page.locator("#new").click()
    status(page, "Your move")


def play_forever(state, action):
    while state[0] > 0: state[1] = (state[1] + 1) % 7


def test_rules_that_never_return_are_ended(tmp_path, visit):
    endless = base64.b64encode(compile_game(broken_games.nim(play=play_forever))).decode()
    page = visit(write(tmp_path/"endless.html", data_of("nim") | dict(module=endless, patience=600)))
    page.evaluate("data.patience = 2")     # Now, and not while the page loads
    page.locator("#actions button").first.click()
    assert status(page, "stopped") == "The game stopped: the rules did not answer within 2 seconds."
    page.evaluate("data.patience = 600")
    page.locator("#new").click()
    status(page, "Your move")


def test_levels_and_a_match(exported, visit):
    "A level is another strength; a finished game against the matching agent moves the person's level."
    page = visit(exported("tictactoe"))
    status(page, "Your move")
    assert page.locator("#level").input_value() == "level8" and page.evaluate("strength()") == dict(simulations=16, temperature=0, elo=None)
    page.locator("#level").select_option("level1")
    assert page.evaluate("strength()") == dict(simulations=1, temperature=1.5, elo=None)
    page.locator("#match").check()
    assert page.locator("#level").is_hidden() and "The agent plays at level" in page.locator("#rated").inner_text()
    before = page.evaluate("rating.level")
    play_to_the_end(page)
    wait(page, "rating.games === 1")
    result, after = page.evaluate("position.returns[0]"), page.evaluate("rating.level")
    assert (after > before) == (result > 0) or result == 0
    assert re.search(r"Your level: \d\.\d \(\d\.\d to \d\.\d\)", page.locator("#rated").inner_text())
    page.locator("#undo").click()
    status(page, "Your move")
    play_to_the_end(page)
    assert page.evaluate("rating.games") == 1       # The same game counts once
    page.locator("#new").click()
    status(page, "Your move")
    assert page.evaluate("[counted, gameLevel === rating.level]") == [False, True]


@pytest.mark.parametrize("help", ["watched", "hint", "undo", "late"])
def test_a_game_with_help_changes_no_rating(exported, visit, help):
    "Nor does one that the agent played for the person, or that began at another level."
    page = visit(exported("tictactoe"))
    status(page, "Your move")
    if help != "late": page.locator("#match").check()
    if help == "watched":
        page.locator("#seat").select_option("none")
        status(page, "won|draw")
        page.locator("#seat").select_option("0")
        wait(page, "!opening")
    else:
        click_a_move(page, 0)
        wait(page, "position.moves.length === 2 && yours() && !thinking")
        if help == "late": page.locator("#match").check()
        else: page.locator(f"#{help}").click()
        wait(page, dict(hint="hint !== null", undo="!opening && position.moves.length === 0", late="true")[help])
        play_to_the_end(page)
    assert page.evaluate("[over(), rating.games]") == [True, 0]


def test_a_level_does_not_use_what_a_deeper_search_knows(exported, visit):
    page = visit(exported("tictactoe"))
    def think(**how): return page.evaluate("how => ask('think', { seed, moves: [], ...how })", how)
    deep, light = think(simulations=16), [think(simulations=4, temperature=1.5) for _ in range(30)]
    assert deep["visits"] >= 16 and {found["visits"] for found in light} == {5} and len({found["action"] for found in light}) > 1
    assert think(simulations=16)["action"] == deep["action"]


def test_a_page_sets_the_traps_of_python(exported, visit):
    "After the corner and the middle all moves draw, and one leaves the opponent a single reply that does."
    page, game = visit(exported("tictactoe")), game_of("tictactoe")
    found, complete = look_ahead(game, game.state_after([0, 4]))
    best = max(found, key=found.get)
    think = "how => ask('think', { seed, moves: [0, 4], simulations: 1600, ...how })"
    assert complete and page.evaluate(think, {})["action"] == best
    assert len({page.evaluate(think, dict(temperature=1.5, simulations=4))["action"] for _ in range(30)}) > 1   # A level does not


# The same positions as in Python ------------------------------------------------------------------

WATCH = """async ({ seed, moves }) => {
  const seen = [];
  for (let ply = 0; ply <= moves.length; ply++) {
    const { mover, legal, returns, board, planes } = await ask("look", { seed, moves: moves.slice(0, ply) });
    seen.push([mover, legal.map(({ action }) => action), returns, board ? board.squares.map(({ seat, sign }) => [seat, sign]) : planes]);
  }
  return seen;
}"""


def random_game(game, draw, rng, most=60):
    "A seed, moves, and at each position the mover, the legal actions, the results, and the pieces or the planes."
    seed = int(rng.integers(2**31))
    states, actions, seen = [game.new_match(seed)], [], []
    while True:
        state, board = states[-1], draw(states, actions)
        mover, legal = game.mover(state), game.legal_actions(state)
        drawn = [[square.seat, square.sign] for square in board.squares] if board else game.observe(state).tolist()
        seen.append([mover, legal if mover >= 0 else [], game.returns(state).tolist(), None if game.name.startswith(("pig", "backgammon")) else drawn])
        if not legal or len(actions) == most: return dict(seed=seed, moves=actions), seen
        actions = [*actions, int(rng.choice(legal))]
        states = [*states, game.play(state, actions[-1])]


@pytest.mark.parametrize("name", COMPARED)
def test_twenty_random_games_are_those_of_python(name, exported, visit):
    page, game, rng = visit(exported(name)), game_of(name), np.random.default_rng(20)
    draw = find_drawing(game)
    for _ in range(20):
        job, seen = random_game(game, draw, rng)
        assert page.evaluate(WATCH, job) == seen, job


# The agent that ships -----------------------------------------------------------------------------

def test_a_whole_game_and_words_as_text(exported, visit):
    page = visit(exported("connect4"))
    assert exported("connect4").stat().st_size < 1.5e6
    assert page.locator("#title").inner_text().startswith("</script><img") and page.locator("img").count() == 0
    assert page.locator("#note").inner_text().startswith("</script><img") and page.locator("script").count() == 3
    assert re.search("won|draw", play_to_the_end(page)) and page.locator("#moves li").count() >= 7
    assert page.locator("html").evaluate("element => element.scrollWidth") <= 360


def test_names_of_a_game_are_text(tmp_path, visit):
    names = dict(title=HOSTILE, names=[f"{HOSTILE}{k}" for k in range(3)], seats=[HOSTILE, f"2{HOSTILE}"], facts=[HOSTILE])
    page = visit(write(tmp_path/"nim.html", data_of("nim") | names))
    assert page.locator("#actions button").count() == 3 and page.locator("#actions button").first.inner_text().startswith("</script><img")
    play_to_the_end(page)
    assert page.locator("img").count() == 0 and page.locator("html").evaluate("element => element.scrollWidth") <= 360


def test_it_answers_while_it_searches(exported, visit):
    page = visit(exported("connect4"))
    status(page, "Your move")
    page.locator("#level").select_option("1600")
    page.locator("#hint").click()
    page.locator("#stop").wait_for()
    page.locator("#stop").click()
    page.locator("#said", has_text="Hint").wait_for()
    assert page.evaluate("hint.visits") < 1600


def observe_what_is_left(state, planes): planes[10 // state[0]] = 1


def test_rules_that_show_nothing_at_the_end(tmp_path, visit):
    "The contract asks `observe` only while a player is to move."
    game = broken_games.nim(observe=observe_what_is_left)
    page = visit(write(tmp_path/"nim.html", page_data(game, PolicyValueNet(game, "mlp", seed=1), even_levels(16), title="", author="", note="", facts=[])))
    assert "won" in play_to_the_end(page) and page.evaluate("position.mover") == -1


@pytest.mark.parametrize("ending, said", [("#moves=4%2C0", None), ("#moves=4,x,0", "move 2"), ("#moves=4,-1,0", "move 2"), ("#moves=4,1234567", "move 2")])
def test_a_link_is_read_whole_or_refused(exported, visit, ending, said):
    page = visit(exported("tictactoe"), ending)
    if said: assert status(page, "stopped") == f"The game stopped: {said} is not legal."
    else:
        status(page, "Your move")
        assert moves(page) == [4, 0]


def test_back_from_a_bad_link_is_the_game(exported, visit):
    page = visit(exported("tictactoe"), "#moves=4,0")
    status(page, "Your move")
    page.evaluate("() => { location.hash = '#moves=4,4'; }")
    status(page, "stopped")
    page.evaluate("() => { history.back(); }")
    status(page, "Your move")
    assert moves(page) == [4, 0] and page.locator("#undo").is_enabled()


def test_the_last_look_counts(exported, visit):
    "An early position is still on its way when the newest one is chosen, which is there."
    page = visit(exported("tictactoe"), "#moves=4,0")
    status(page, "Your move")
    page.evaluate("() => { look(1); look(position.moves.length); }")
    wait(page, "pending.size === 0")
    page.wait_for_timeout(50)
    assert page.evaluate("viewed") is None


def test_few_simulations_do_not_use_a_deep_tree(exported, visit):
    page = visit(exported("connect4"))
    def think(simulations): return page.evaluate("simulations => ask('think', { seed, moves: [], simulations })", simulations)["visits"]
    assert think(400) > 300 and think(16) <= 17
