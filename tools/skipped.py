"""List the cells that `make test` does not run: how many of each page, and the directive that leaves them out.

    python tools/skipped.py

`slow` cells run in `make soak`, `cuda` and `mps` cells with FLAGS="slow cuda" on a GPU, and cells with `eval: false` only where
a reader runs them. The cells that install the package in Colab are left out of the list."""
import json, re
from collections import Counter

from sync import ROOT, notebooks

DIRECTIVE = re.compile(r"^#\|\s*(slow|cuda|mps|eval:\s*false)\s*$", re.MULTILINE)


def skipped(page):
    "The number of skipped cells of a page by directive."
    cells = json.loads((ROOT/page).read_text(encoding="utf-8"))["cells"]
    sources = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return Counter(" and ".join(sorted(set(found))) for source in sources
                   if (found := DIRECTIVE.findall(source)) and "%pip install" not in source)


if __name__ == "__main__":
    counts = {page: skipped(page) for page in notebooks()}
    for page, found in counts.items():
        if found: print(f"skipped in {page}: " + ", ".join(f"{count} {name}" for name, count in sorted(found.items())))
    total = sum(counts.values(), Counter())
    print("Cells that were not run: " + ", ".join(f"{count} {name}" for name, count in sorted(total.items())) + ".")
