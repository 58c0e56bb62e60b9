"""AlphaZero in notebooks: compiled games, batched search, self-play on every device, training, and boards to play on.

`import alphazero_nb as az` has every public name and imports each when it is used first."""
__version__ = "0.2.0"

import sys
from typing import TYPE_CHECKING

from alphazero_nb.core.events import set_default_listener

if TYPE_CHECKING: from alphazero_nb.all import *


def _dashboard(skip: tuple = ()):
    "Return a dashboard, which prints lines where there is no notebook. Drawing code is imported only now."
    from alphazero_nb.ui.dashboard import Dashboard
    return Dashboard(skip=skip)


def _text(skip: tuple = ()):
    "Return a listener that prints lines."
    from alphazero_nb.ui.progress import TextProgress
    return TextProgress(skip=skip)


set_default_listener(_dashboard, _text)
if "ipykernel" in sys.modules:   # The page is asked now whether its widgets work, before a run needs one
    import alphazero_nb.ui.dashboard
_modules: dict[str, str] = {}   # Of each public name


def _public() -> dict[str, str]:
    "Return the module of each public name, as all.py imports them."
    if not _modules:
        import ast
        from pathlib import Path
        lines = ast.parse((Path(__file__).parent / "all.py").read_text(encoding="utf-8")).body
        imports = [line for line in lines if isinstance(line, ast.ImportFrom)]
        _modules.update((alias.name, line.module) for line in imports for alias in line.names)
    return _modules


def __getattr__(name: str):
    "Import a public name (PEP 562)."
    if name.startswith("_") or name not in _public():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module
    value = globals()[name] = getattr(import_module(_public()[name]), name)
    return value


def __dir__() -> list[str]: return sorted({*globals(), *_public()})
