"""Compare the outputs that the notebooks keep with those of a fresh run.

    cp -R nbs build/nbs && nbdev-test build/nbs --save
    python tools/outputs.py build/nbs                        the check of `make test`
    python tools/outputs.py build/nbs --update               takes the texts of the fresh run into the notebooks
    python tools/outputs.py --repeatable RUN RUN ...         finds the cells whose text was the same in all these runs

Every cell that shows something in the fresh run must show something in the repository. The cells of REPEATABLE must show
the same text. To find them, run the pages several times, once with ATEN_CPU_CAPABILITY=default and
ONEDNN_MAX_CPU_ISA=SSE41, and once on one core (taskset -c 0): cells that depend on the time, the processor or the number
of cores differ there. Pages with several threads or processes have none. Pictures are not compared, because each version
of matplotlib draws them differently.
"""
import argparse, json, re, sys
from pathlib import Path

from sync import ROOT, notebooks

REPEATABLE = ROOT/"tests"/"repeatable_cells.json"   # The ids of cells whose text depends on nothing but the code, by page
SHOWN = "text/plain", "text/html", "image/png", "image/svg+xml", "application/vnd.jupyter.widget-view+json"
CONTROL = re.compile(r"\x1b\[[0-9;]*m")             # Colours


def joined(text) -> str: return text if isinstance(text, str) else "".join(text)


def text_of(cell) -> str:
    "Return what a cell prints and the text of its value."
    parts = ["".join(joined(output["text"]) for output in cell["outputs"] if output.get("name") == "stdout")]   # In pieces
    parts += [joined(output["data"].get("text/plain", "")) for output in cell["outputs"] if "data" in output]
    return "\n".join(line.rstrip() for line in CONTROL.sub("", "\n".join(parts)).strip().split("\n"))


def shows(cell) -> bool:
    "Return True if a reader sees an output."
    return any(joined(output.get("text", "")).strip() if output.get("name") == "stdout" else
               any(kind in output.get("data", {}) for kind in SHOWN) for output in cell["outputs"])


def cells_of(path) -> dict:
    "Return the code cells of a notebook by their ids."
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    return {cell["id"]: cell for cell in cells if cell["cell_type"] == "code"}


def pages_of(run) -> list[str]: return sorted(path.name for path in Path(run).glob("*.ipynb"))


def repeatable_cells(runs) -> dict:
    "Return the ids of the cells that print the same text in all runs, by page."
    found = {}
    for page in pages_of(runs[0]):
        cells = [cells_of(Path(run)/page) for run in runs]
        found[page] = sorted(key for key, cell in cells[0].items()
                             if text_of(cell) and all(text_of(other[key]) == text_of(cell) for other in cells))
    return {page: keys for page, keys in found.items() if keys}


def differences(run, repeatable) -> list:
    "Return (page, id, stored text, fresh text) of each cell whose output is missing or is another one."
    found = []
    for page in pages_of(run):
        stored, fresh = cells_of(ROOT/"nbs"/page), cells_of(Path(run)/page)
        for key in stored.keys() & fresh.keys():
            pair = text_of(stored[key]), text_of(fresh[key])
            missing = shows(fresh[key]) and not shows(stored[key])
            if missing or key in repeatable.get(page, ()) and pair[0] != pair[1]: found.append((page, key, *pair))
    return sorted(found)


def update(run, found) -> None:
    "Take the outputs of a fresh run into the notebooks."
    for page in {page for page, *_ in found}:
        path, fresh = ROOT/"nbs"/page, cells_of(Path(run)/page)
        notebook, keys = json.loads(path.read_text(encoding="utf-8")), {key for name, key, *_ in found if name == page}
        for cell in notebook["cells"]:
            if cell.get("id") in keys: cell["outputs"] = fresh[cell["id"]]["outputs"]
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a folder with the notebooks of a fresh run")
    parser.add_argument("--update", action="store_true", help="take what differs into the notebooks; then run `make sync`")
    parser.add_argument("--repeatable", action="store_true", help=f"write {REPEATABLE.relative_to(ROOT)}")
    chosen = parser.parse_args()
    if chosen.repeatable:
        REPEATABLE.write_text(json.dumps(repeatable_cells(chosen.runs), indent=1) + "\n", encoding="utf-8")
        return 0
    repeatable = json.loads(REPEATABLE.read_text(encoding="utf-8"))
    found = differences(chosen.runs[0], repeatable)
    if chosen.update: update(chosen.runs[0], found)
    for page, key, stored, fresh in found:
        print(f"nbs/{page}, cell {key} keeps\n{stored or '(nothing)'}\n  and a fresh run shows\n{fresh or '(a picture)'}\n")
    count = sum(map(len, repeatable.values()))
    print(f"{len(found)} outputs are out of date; {count:,} texts were compared." if found else
          f"No output is out of date; {count:,} texts were compared.")
    return 1 if found and not chosen.update else 0


if __name__ == "__main__": sys.exit(main())
