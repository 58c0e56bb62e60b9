"A long error names the section of the page on troubleshooting that explains it, and the section is there."
import ast, builtins, json, re
from pathlib import Path

import sync

LONGEST = 100   # Characters of an error's own words, without the values in it, that need no section
PAGE = "nbs/90_troubleshooting.ipynb"
SOURCES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((sync.ROOT/sync.PACKAGE).rglob("*.py"))}


def sections():
    "The anchors of the page: {anchor: heading behind it}."
    cells = json.loads((sync.ROOT/PAGE).read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found = re.findall(r'^<a id="([\w-]+)"></a>\n+## (.+)$', text, re.M)
    assert len(found) == len(dict(found)) == text.count("<a id="), "each anchor stands once, right above a heading"
    return dict(found)


def exceptions():
    "Names of the exceptions that Python and the package have."
    bases = {cls.name: {base.id for base in cls.bases if isinstance(base, ast.Name)}
             for tree in SOURCES.values() for cls in ast.walk(tree) if isinstance(cls, ast.ClassDef)}
    known = {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)}
    while new := {name for name, parents in bases.items() if parents & known} - known: known |= new
    return known


def constants(tree):
    "Texts that a module gives a name: {name: expression}."
    return {line.targets[0].id: line.value for line in tree.body if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)}


def words(node, named):
    "The fixed text of an expression, without the values that are put into it."
    if isinstance(node, ast.Constant): return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr): return "".join(words(part, named) for part in node.values)
    if isinstance(node, ast.BinOp): return words(node.left, named) + words(node.right, named)
    if isinstance(node, ast.Name) and node.id in named: return words(named[node.id], {})
    return ""


def named_sections(node, named):
    "The sections that an expression names with `see`."
    nodes = [*ast.walk(node), *(part for name in ast.walk(node) if isinstance(name, ast.Name) and name.id in named
                                for part in ast.walk(named[name.id]))]
    return [call.args[0].value for call in nodes if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "see"]


def errors():
    "Each error of the package: (where, its words, the sections that it names)."
    kinds = exceptions()
    for path, tree in SOURCES.items():
        named = constants(tree)
        for call in ast.walk(tree):
            if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") in kinds and call.args): continue
            text = max((words(argument, named) for argument in call.args), key=len)
            yield f"{path.relative_to(sync.ROOT)}:{call.lineno}", text, named_sections(call, named)


def test_every_long_error_names_a_section():
    found = list(errors())
    assert len(found) > 300
    silent = [f"{where} ({len(text)} characters): {text}" for where, text, names in found if len(text) > LONGEST and not names]
    assert not silent, "shorten it, or add see(SECTION):\n" + "\n".join(silent)


def test_every_section_that_an_error_names_is_on_the_page():
    named = {name for _, _, names in errors() for name in names}
    assert len(named) > 5 and not named - sections().keys()


def test_an_error_leads_to_the_site_of_the_repository():
    from alphazero_nb.core.help import see
    assert see("rules") == f" Help: {sync.read_address()['site']}help/#rules."


def test_the_scan_sees_long_texts_and_sections():
    tree = ast.parse('TOO = "far " * 1\nMUCH = "one " + see("b")\nraise ValueError(f"a {x:>9} b" "c" + MUCH + see("a"))')
    call = tree.body[-1].exc
    assert words(call.args[0], constants(tree)) == "a  bcone " and named_sections(call, constants(tree)) == ["a", "b"]
