"""Run the notebooks as Colab's "Run all" does, with the Python and the packages that run this file.

    make test-colab                                             all pages, with the versions of constraints-colab.txt
    .venv-colab/bin/python tools/colab.py nbs/05_core.events.ipynb   these pages only
    .venv-colab/bin/python tools/colab.py --slow                also the cells marked `#| slow`

Every code cell runs, in order and in a real kernel. Colab knows no directives, so cells marked
`#| eval: false` or `#| cuda` run too; those marked `#| slow` are safe but long, and are left out.
The kernel starts in an empty folder, as in Colab, and IN_TEST is set, so that the pages of colab/
choose their small settings; where a page has a form, its small values are those of FORMS.
The package is the installed one. Nothing is written to the notebooks. Every cell of colab/ that
shows something here must keep an output in the repository.
"""
import argparse, ast, json, os, re, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

import sync
from outputs import shows

SHOWN = ("ipykernel", "ipython", "ipywidgets", "numba", "numpy", "torch")
ENVIRONMENT = dict(IN_TEST="1", PYDEVD_DISABLE_FILE_VALIDATION="1")   # The second silences a warning of the old kernel

COLAB = "COLAB_RELEASE_TAG", "COLAB_GPU"   # Variables of its image, on which Kaggle's is built
PLACES = {   # Where a notebook may be shown: variables, modules and names of the notebook that are known there
    "colab": dict(environment=(*COLAB, "COLAB_NOTEBOOK_ID"), modules=["google.colab"], names=[]),
    "colab_vscode": dict(environment=COLAB, modules=["google.colab"], names=["__vsc_ipynb_file__"]),
    "kaggle": dict(environment=(*COLAB, "KAGGLE_KERNEL_RUN_TYPE"), modules=["google.colab"], names=[]),
    "vscode": dict(environment=(), modules=[], names=["__vsc_ipynb_file__"]),
    "jupyter": dict(environment=(), modules=[], names=[]),
}
SIMULATE = """import os, sys, types
os.environ.update({environment})
for name in {modules}: sys.modules[name] = types.ModuleType(name)
if {modules}: sys.modules["google.colab"].files = types.SimpleNamespace(download=lambda path: print("The browser saves", path))
globals().update({names})"""
UNMEASURED = {"e92b4b8a"}   # Cells of colab/ that keep nothing until their page is measured again, on one quiet machine
FORMS = {"colab/quickstart.ipynb": dict(game="tictactoe", minutes=.05)}   # What a test chooses
FIELD = re.compile(r"^(\w+) *= *(.+?) *# *@param *(.*)$", re.M)   # As Colab reads a form: a value, and what may be chosen


def read_form(source):
    "The fields of a cell as Colab reads them: for each name its value, the list of choices or None, and the type or None."
    fields = {}
    for name, value, about in FIELD.findall(source):
        choices, end = json.JSONDecoder().raw_decode(about) if about.startswith("[") else (None, 0)
        kind = re.search(r'"?type"?: *"(\w+)"', about[end:])
        fields[name] = ast.literal_eval(value), choices, kind and kind[1]
    return fields


def fill_form(source, values):
    "The cell with these values in the fields of its form."
    return FIELD.sub(lambda field: field[0].replace(field[2], repr(values[field[1]]), 1) if field[1] in values else field[0], source)


def is_slow(cell):
    "Does the cell open with the directive `#| slow`?"
    lines = cell.source.split("\n")
    head = [line for line in lines if line.strip()]
    top = next((i for i, line in enumerate(head) if not line.startswith("#|")), len(head))
    return any(line[2:].strip() == "slow" for line in head[:top])


def this_kernel(folder):
    "A manager of kernels of this very Python, whatever kernels the machine has installed."
    spec = Path(folder)/"kernels"/"here"/"kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps(dict(argv=argv, display_name="here", language="python")), encoding="utf-8")
    specs = KernelSpecManager(kernel_dirs=[str(spec.parents[1])], ensure_native_kernel=False)
    return AsyncKernelManager(kernel_name="here", kernel_spec_manager=specs)


def describe_failure(name, cells, at, error):
    "Name the cell that failed, with the traceback of the kernel."
    cell = cells[at]
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(getattr(error, "traceback", "") or error)).rstrip()
    return f"FAILED {name}, cell {at + 1} ({cell.get('id', 'without an id')}):\n{text}\n"


def describe_empty(name, cells, kept):
    "Name the cells that show something now and keep nothing in the repository."
    empty = [cell.id for cell in cells if cell.cell_type == "code" and shows(cell) and cell.id not in kept | UNMEASURED]
    return f"FAILED {name}: these cells show something and keep no output: {', '.join(empty)}\n" if empty else ""


def simulate(place):
    "The cell that makes a kernel believe that its notebook is shown in this place."
    known = PLACES[place]
    environment, names = dict.fromkeys(known["environment"], "1"), dict.fromkeys(known["names"], "page.ipynb")
    return nbformat.v4.new_code_cell(SIMULATE.format(environment=environment, modules=known["modules"], names=names))


def run_notebook(name, slow=False, cell_timeout=300, place=None):
    "Run a page. Return how many cells ran, how many slow ones did not, the seconds, and the failure or an empty text."
    book = nbformat.read(sync.ROOT/name, as_version=4)
    skipped = 0
    if place: book.cells.insert(0, simulate(place))
    kept = {cell.get("id") for cell in book.cells if cell.cell_type == "code" and shows(cell)}
    for cell in book.cells:
        if cell.cell_type != "code": continue
        cell.outputs, cell.execution_count, cell.source = [], None, fill_form(cell.source, FORMS.get(name, {}))
        if is_slow(cell) and not slow: cell.source, skipped = "", skipped + 1
    begun, failure, at = time.monotonic(), "", [0]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as empty:
        client = NotebookClient(book, km=this_kernel(folder), timeout=cell_timeout, resources=dict(metadata=dict(path=empty)),
                                on_cell_start=lambda cell, cell_index: at.__setitem__(0, cell_index))
        try: client.execute(env=dict(os.environ, **ENVIRONMENT), cleanup_kc=True)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error: failure = describe_failure(name, book.cells, at[0], error)
    if not failure and not place and name.startswith("colab/"): failure = describe_empty(name, book.cells, kept)
    ran = sum(cell.cell_type == "code" for cell in book.cells) - skipped
    return ran, skipped, time.monotonic() - begun, failure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=sync.notebooks(), metavar="NOTEBOOK", help="these pages; without a name, all")
    parser.add_argument("--slow", action="store_true", help="run the cells marked `#| slow` too")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="pages at a time (default 1)")
    parser.add_argument("--cell-timeout", type=int, default=300, metavar="S", help="seconds that a cell may take (default 300)")
    parser.add_argument("--place", choices=PLACES, help="simulate that the pages are shown there")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, " + ", ".join(f"{package} {version(package)}" for package in SHOWN), flush=True)
    absent = [name for name in options.names if not (sync.ROOT/name).is_file()]
    if absent: parser.error(f"there is no {', no '.join(absent)}; a page is named as seen from the repository.")
    jobs, failures, pool = {}, [], ThreadPoolExecutor(options.workers)
    try:
        for name in options.names: jobs[pool.submit(run_notebook, name, options.slow, options.cell_timeout, options.place)] = name
        for job in as_completed(jobs):
            ran, skipped, seconds, failure = job.result()
            left = f", {skipped} slow left out" if skipped else ""
            print(failure or f"ok {jobs[job]}: {ran} cells in {seconds:.1f} s{left}", flush=True)
            if failure: failures.append(jobs[job])
    except KeyboardInterrupt:
        print("Stopped.", flush=True)
        os._exit(130)   # A kernel ends when nobody is left who started it.
    print(f"{len(jobs) - len(failures)} of {len(jobs)} pages run" + (f"; these fail: {', '.join(failures)}" if failures else "."))
    sys.exit(bool(failures))


if __name__ == "__main__": main()
