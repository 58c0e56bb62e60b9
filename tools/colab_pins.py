"""Take the versions of constraints-colab.txt from the list that Google publishes of Colab's packages.

    curl -LO https://raw.githubusercontent.com/googlecolab/backend-info/main/pip-freeze.gpu.txt
    python tools/colab_pins.py pip-freeze.gpu.txt

The list is the output of `pip freeze` on Colab's machine with a GPU. The packages of the constraints file stay, and get
the versions of the list; its date becomes today's. `make test-colab` then runs every page with these versions.
"""
import datetime, re, sys
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parent.parent/"constraints-colab.txt"
PIN = re.compile(r"^([\w.-]+)==([^\s+;]+)", re.M)   # Without a local version such as +cu128


def new_pins(constraints, freeze, date):
    "Return the text of a constraints file with the versions of a pip freeze. Raise a ValueError if that lacks a package."
    plain = lambda name: re.sub(r"[-_.]+", "-", name).lower()
    known = {plain(name): version for name, version in PIN.findall(freeze)}
    missing = [name for name, _ in PIN.findall(constraints) if plain(name) not in known]
    if missing: raise ValueError(f"the list has no version of {', '.join(missing)}; is it the output of pip freeze?")
    pinned = PIN.sub(lambda pin: f"{pin[1]}=={known[plain(pin[1])]}", constraints)
    return re.sub(r"\b\d{4}-\d\d-\d\d\b", date, pinned)


def main(file):
    text = CONSTRAINTS.read_text(encoding="utf-8")
    CONSTRAINTS.write_text(new_pins(text, Path(file).read_text(encoding="utf-8"), str(datetime.date.today())), encoding="utf-8")


if __name__ == "__main__": main(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
