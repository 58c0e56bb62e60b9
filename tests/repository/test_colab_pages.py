"What holds for every page that is opened in Colab, and the game that a reader writes there."
import ast
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest

import colab
import colab_pins
import sync
from alphazero_nb.ui.board import find_drawing, register_drawing
from alphazero_nb.ui.grid import GridDrawing
from alphazero_nb.all import get_game, run_folder
from alphazero_nb.core import registry
from alphazero_nb.training import run_folder as folders

PAGES = sorted((sync.ROOT / "colab").glob("*.ipynb"))
NAMES = [page.stem for page in PAGES]


def cells(page, kind="code"):
    return ["".join(cell["source"]) for cell in json.loads(page.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


@pytest.fixture(params=PAGES, ids=NAMES)
def page(request): return request.param


# Every page -------------------------------------------------------------------------------------

def test_the_pages_are_there():
    assert {"quickstart", "your_own_game", "play", "chess"} <= set(NAMES)


def test_a_page_asks_for_a_gpu(page):
    metadata = json.loads(page.read_text(encoding="utf-8"))["metadata"]
    assert metadata["accelerator"] == "GPU" and metadata["colab"]["gpuType"] == "T4"
    assert "widgets" not in metadata, "GitHub shows no page that keeps the state of its widgets"


def test_a_page_installs_the_package_where_it_is_missing_and_nothing_else(page):
    first, line = cells(page)[0], f"%pip install -q git+{sync.read_address()['git_url']}.git"
    assert f"{first}\n".startswith(f"try: import alphazero_nb\nexcept ImportError:\n    {line}\n")
    installs = [found.strip() for found in re.findall(r"^[^#\n]*[%!] *(?:pip|uv|apt|apt-get|conda|mamba)\b.*$", "\n".join(cells(page)), re.M)]
    assert set(installs) == {line}, "torch and numpy are Colab's own; nothing but the package is installed"


def test_the_badge_opens_the_page_itself(page):
    assert sync.badge(sync.read_address(), f"colab/{page.name}") in cells(page, "markdown")[0]


def test_a_page_says_what_computes(page):
    assert any(re.search(r"\b(check_device|device_report|list_devices)\(", cell) for cell in cells(page))


def test_nothing_waits_for_a_person(page):
    "Run all goes through: no input, no typed moves, no Drive that asks for consent."
    code = "\n".join(cells(page))
    assert not re.search(r"\binput\(|\bgetpass\b|play_text\(|\bdrive\.mount\(|use_drive\s*=\s*True|\bdrive=True", code)
    calls = re.findall(r"^(?:\w+ = )?(?:play|replay)\(.*$", code, re.M)
    assert all("widgets=True" in call for call in calls), f"without a kernel these would ask for typed moves: {calls}"


def test_a_page_is_made_small_in_a_test(page):
    "A page that trains or measures does so briefly where IN_TEST is set, and away from the repository."
    code = "\n".join(cells(page))
    assert not re.search(r"\.fit\(", code) or re.search(r'if "IN_TEST" in os\.environ', code)


def test_the_quickstart_has_a_form_and_nothing_for_tests():
    "The fields as Colab reads them; each game that it offers can be loaded, and what a test chooses can be filled in."
    sources = cells(sync.ROOT / "colab/quickstart.ipynb")
    form, = [source for source in sources if "@param" in source]
    fields = colab.read_form(form)
    assert {name: (value, kind) for name, (value, _, kind) in fields.items()} == {
        "game": ("connect4", None), "minutes": (11, "number"), "use_drive": (False, "boolean")}
    assert fields["game"][0] in fields["game"][1] and all(get_game(name).name == name for name in fields["game"][1])
    filled = colab.fill_form(form, colab.FORMS["colab/quickstart.ipynb"])
    assert {name: value for name, (value, *_) in colab.read_form(filled).items()} == dict(game="tictactoe", minutes=.05, use_drive=False)
    assert not re.search(r"IN_TEST|\bos\.|tempfile|from alphazero_nb\.(?!all\b)", "\n".join(sources)) and sources[-2:] == [
        "download(folder)", 'download(export_page(folder, f"{folder}.html"))']


def test_directives_are_not_relied_on(page):
    skipped = [cell for cell in cells(page) if re.search(r"^#\| *(eval|skip|exec)", cell, re.M)]
    assert not skipped, "Colab ignores directives and runs every cell"


def outputs(page):
    return [out for cell in json.loads(page.read_text(encoding="utf-8"))["cells"] for out in cell.get("outputs", [])]


def test_a_page_keeps_what_it_showed(page):
    "Outputs of a run, without errors and without what needs a live kernel."
    assert outputs(page) and not [out for out in outputs(page) if out["output_type"] == "error"]
    kinds = {kind for out in outputs(page) for kind in out.get("data", {})}
    assert not [kind for kind in kinds if "widget" in kind], "a widget cannot be shown without its kernel"


@pytest.mark.parametrize("name", ["quickstart", "your_own_game", "play", "chess"])
def test_a_board_and_a_figure_stay_beside_the_widgets(name):
    data = [out["data"] for out in outputs(sync.ROOT / f"colab/{name}.ipynb") if "data" in out]
    assert any("image/png" in kinds for kinds in data)
    assert any("data:image/svg+xml" in "".join(kinds.get("text/html", "")) for kinds in data)


# The versions of Colab --------------------------------------------------------------------------

FREEZE = """# Do not modify this file directly
IPython==8.1.0
google-colab @ file:///colabtools/dist/google_colab-1.0.0.tar.gz
numba-cuda==0.22.2
numba==0.63.0
numpy==2.3.1
torch==2.12.0+cu128
"""


def test_versions_are_taken_from_the_list_that_google_publishes():
    pins = "# For pages, as published on 2026-08-19.\nipython==7.34.0\nnumba==0.61.2\ntorch==2.11.0\n"
    assert colab_pins.new_pins(pins, FREEZE, "2027-01-31") == (
        "# For pages, as published on 2027-01-31.\nipython==8.1.0\nnumba==0.63.0\ntorch==2.12.0\n")
    with pytest.raises(ValueError, match="no version of ipykernel"): colab_pins.new_pins("ipykernel==6.17.1", FREEZE, "")


def test_the_pinned_versions_say_where_they_come_from():
    text = colab_pins.CONSTRAINTS.read_text(encoding="utf-8")
    day = re.search(r"googlecolab/backend-info, as published on (\d{4}-\d\d-\d\d)", text)[1]
    freeze = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert colab_pins.new_pins(text, freeze, day) == text, "the same list changes nothing"


# A run's folder ---------------------------------------------------------------------------------

@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch): monkeypatch.chdir(tmp_path)   # The checkout may have runs of its own


def refused(): raise ValueError("mount failed\nwith a long story.")


def test_a_folder_is_local_unless_drive_is_wanted(capsys):
    assert run_folder("game", mount=refused) == Path("runs/game")
    assert capsys.readouterr().out == "The run is kept in runs/game.\n"


def test_without_a_drive_a_sentence_is_said_and_the_run_stays_here(capsys, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for mount, why in ((refused, "mount failed"), (lambda: tmp_path / "file", "Not a directory")):
        assert run_folder("game", drive=True, mount=mount) == Path("runs/game")
        said = capsys.readouterr().out
        assert said.startswith("Google Drive cannot be used: ") and why in said
        assert said.endswith(". The run is kept in runs/game.\n") and said.count("\n") == 1


def test_outside_colab_there_is_no_drive(capsys):
    assert run_folder("game", drive=True) == Path("runs/game")
    assert capsys.readouterr().out == ("Google Drive cannot be used: this notebook does not run in Colab. "
                                       "The run is kept in runs/game.\n")


def test_a_drive_that_cannot_be_written_is_not_used(capsys, tmp_path, monkeypatch):
    def full(path, content): raise OSError(28, "No space left on device")
    monkeypatch.setattr(folders, "write_whole", full)
    assert run_folder("game", drive=True, mount=lambda: tmp_path) == Path("runs/game")
    assert "No space left on device" in capsys.readouterr().out


def test_a_drive_is_used_and_a_run_in_it_is_found_again(capsys, tmp_path):
    folder = run_folder("game", drive=True, mount=lambda: tmp_path)
    assert folder == tmp_path / "alphazero_nb/game" and not list(folder.iterdir())
    assert capsys.readouterr().out == f"The run is kept in {folder.as_posix()}.\n"
    (folder / "manifest.json").write_text("{}")
    assert run_folder("game", drive=True, mount=lambda: tmp_path) == folder
    assert capsys.readouterr().out == (f"The run is kept in {folder.as_posix()}. "
                                       f"Training continues the run that is already there.\n")


# The game that a reader writes ------------------------------------------------------------------

OWN = sync.ROOT / "colab/your_own_game.ipynb"


def rules():
    "The code cells of the page's section on the rules that define the game."
    page = json.loads(OWN.read_text(encoding="utf-8"))["cells"]
    texts = [("".join(cell["source"]), cell["cell_type"]) for cell in page]
    first = next(i for i, (text, kind) in enumerate(texts) if text.startswith("## The rules"))
    last = next(i for i, (text, kind) in enumerate(texts) if text.startswith("That is the whole game"))
    return [text for text, kind in texts[first:last] if kind == "code"], texts[last][0]


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    "The page's game, registered while its tests run; its rules are in a file, because a function's source is looked for in one."
    path, before = tmp_path_factory.mktemp("own") / "own_game.py", dict(registry._registry)
    path.write_text("import numpy as np\nfrom numba import njit\nfrom alphazero_nb.all import *\n" + "\n".join(rules()[0]))
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})
    yield get_game("domineering")
    registry._registry.pop("domineering")
    registry._registry.update(before)


def test_a_complete_game_takes_at_most_sixty_lines():
    code, claim = rules()
    lines = [line for cell in code for line in cell.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) <= 60
    assert f"in {len(lines)} lines" in claim, f"the page should say {len(lines)} lines"


def test_the_game_keeps_the_contract(game): game.check(games=30)


class Dominoes:
    "Domineering as a set of free squares, written apart from the page."
    def __init__(self): self.free, self.upright = {(row, column) for row in range(5) for column in range(5)}, True

    def moves(self):
        down, right = (1, 0) if self.upright else (0, 1)
        return sorted((r, c) for r, c in self.free if (r + down, c + right) in self.free)

    def put(self, square):
        (row, column), (down, right) = square, (1, 0) if self.upright else (0, 1)
        self.free -= {square, (row + down, column + right)}
        self.upright = not self.upright


def test_whole_games_agree_with_other_rules(game):
    rng, upright_won, flat_won = random.Random(0), 0, 0
    for _ in range(300):
        state, other = game.new(), Dominoes()
        while other.moves():
            assert game.mover(state) == (0 if other.upright else 1)
            assert game.legal_actions(state) == [5 * row + column for row, column in other.moves()]
            assert np.array_equal(np.flatnonzero(game.observe(state)[:2].sum(0) == 0),
                                  sorted(5 * row + column for row, column in other.free))
            square = rng.choice(other.moves())
            state = game.play(state, 5 * square[0] + square[1])
            other.put(square)
        assert game.over(state)
        assert game.returns(state).tolist() == ([-1, 1] if other.upright else [1, -1])
        upright_won, flat_won = upright_won + (not other.upright), flat_won + other.upright
    assert upright_won > 30 and flat_won > 30


def test_a_cell_that_shows_something_keeps_something():
    import nbformat
    made = [nbformat.v4.new_code_cell("1", id=key) for key in ("full", "empty", "silent")]
    for cell in made[:2]: cell.outputs = [nbformat.v4.new_output("stream", text="1")]
    assert colab.describe_empty("colab/page.ipynb", made, {"full", "empty"}) == ""
    assert colab.describe_empty("colab/page.ipynb", made, {"full"}).endswith("keep no output: empty\n")


def test_the_board_of_the_game_can_be_clicked(game):
    drawing = next(cell for cell in cells(OWN) if "register_drawing(" in cell).splitlines()[0]
    exec(drawing, dict(register_drawing=register_drawing, GridDrawing=GridDrawing, SIZE=5))
    state = game.state_after([6, 7])
    shown = find_drawing(game)([state], [])
    assert [square.action for square in shown.squares] == list(range(25))
    assert [place for place, square in enumerate(shown.squares) if square.seat == 0] == [6, 11]
    assert [place for place, square in enumerate(shown.squares) if square.seat == 1] == [7, 8]


def test_a_loop_looks_at_what_a_command_returned(page):
    "A command that fails says so and returns False; a loop that goes on would ask again for ever."
    for cell in cells(page):
        for loop in ast.walk(ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", cell, flags=re.M))):
            if not isinstance(loop, ast.While): continue
            asked = [ast.unparse(each) for each in ast.walk(loop) if isinstance(each, ast.Expr)]
            assert not [each for each in asked if re.search(r"match\.(reply|move)\(", each)], cell
