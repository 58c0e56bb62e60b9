"The check of the outputs that the notebooks keep."
import json
from pathlib import Path

import pytest

import outputs

ROOT = Path(__file__).resolve().parents[2]


def cell(key, text=None, stderr=None, picture=False):
    found = [dict(output_type="stream", name="stderr", text=[stderr])] if stderr else []
    if text: found.append(dict(output_type="execute_result", data={"text/plain": text.splitlines(True)}))
    if picture: found.append(dict(output_type="display_data", data={"image/png": "iVBO"}))
    return dict(id=key, cell_type="code", source="", outputs=found)


def write(folder, *cells):
    folder.mkdir(parents=True, exist_ok=True)
    (folder/"page.ipynb").write_text(json.dumps(dict(cells=[dict(cell_type="markdown", id="m", source=""), *cells])))


@pytest.mark.parametrize("stored, fresh, found", [
    (cell("a", "1"), cell("a", "1"), False),
    (cell("a", "1"), cell("a", "2"), True),                       # Another text
    (cell("a"), cell("a", "2"), True),                            # Nothing is kept
    (cell("b"), cell("b", "2"), True),                            # Nothing is kept, of a cell that may vary
    (cell("b", "1"), cell("b", "2"), False),                      # It may vary
    (cell("b"), cell("b", picture=True), True),
    (cell("b"), cell("b", stderr="a warning"), False),
    (cell("a", "\x1b[31m1\x1b[0m  \n"), cell("a", "1"), False)])  # Colours and spaces at the end of a line
def test_an_output_that_is_not_true_is_found(tmp_path, monkeypatch, stored, fresh, found):
    monkeypatch.setattr(outputs, "ROOT", tmp_path)
    write(tmp_path/"nbs", stored)
    write(tmp_path/"run", fresh)
    rows = outputs.differences(tmp_path/"run", {"page.ipynb": ["a"]})
    assert [row[:2] for row in rows] == [("page.ipynb", stored["id"])] * found
    outputs.update(tmp_path/"run", rows)
    assert not outputs.differences(tmp_path/"run", {"page.ipynb": ["a"]})


def test_what_differs_between_two_runs_is_not_repeatable(tmp_path):
    write(tmp_path/"one", cell("a", "1"), cell("b", "1"), cell("c"), cell("d", picture=True))
    write(tmp_path/"two", cell("a", "1"), cell("b", "2"), cell("c"), cell("d", picture=True))
    assert outputs.repeatable_cells([tmp_path/"one", tmp_path/"two"]) == {"page.ipynb": ["a"]}


def test_the_cells_that_are_compared_exist():
    for page, keys in json.loads(outputs.REPEATABLE.read_text(encoding="utf-8")).items():
        cells = outputs.cells_of(ROOT/"nbs"/page)
        assert all(outputs.text_of(cells[key]) for key in keys), page
