"""The repository as a whole: two configurations that agree, nothing derived that is stale, notebooks that look alike."""
import ast, configparser, json, re, shutil, subprocess, sys, tempfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import sync

try: import tomllib
except ImportError: import tomli as tomllib

ROOT = sync.ROOT
PROJECT = tomllib.loads((ROOT/"pyproject.toml").read_text(encoding="utf-8"))
INI = configparser.ConfigParser()
INI.read(ROOT/"settings.ini", encoding="utf-8")
SETTINGS = dict(INI["DEFAULT"])
NOTEBOOKS = sync.notebooks()

# What only nbdev 2 has a word for. Every other line of settings.ini must have its like in pyproject.toml.
ONLY_NBDEV_2 = {"copyright", "status", "language", "audience", "update_pyproject"}
LICENSES = {"apache2": "Apache-2.0"}


def requirements(items):
    return sorted(str(Requirement(item)) for item in items)


def packaging_facts():
    "What settings.ini says about packaging, and what pyproject.toml says, as {key: (settings.ini, pyproject.toml)}."
    project, urls = PROJECT["project"], PROJECT["project"]["urls"]
    version = re.search(r'^__version__ = "(.+)"', (ROOT/sync.PACKAGE/"__init__.py").read_text(encoding="utf-8"), re.M)
    author = project["authors"][0]
    scripts = dict(line.split("=") for line in SETTINGS["console_scripts"].split("\n"))
    return {
        "lib_name": (SETTINGS["lib_name"], project["name"]),
        "version": (SETTINGS["version"], version[1]),
        "description": (SETTINGS["description"], project["description"]),
        "min_python": (f">={SETTINGS['min_python']}", project["requires-python"]),
        "license": (LICENSES.get(SETTINGS["license"]), project["license"]),
        "author": (SETTINGS["author"], author["name"]),
        "author_email": (SETTINGS["author_email"], author.get("email", "")),
        "keywords": (SETTINGS["keywords"].split(), project["keywords"]),
        "requirements": (requirements(SETTINGS["requirements"].split()), requirements(project["dependencies"])),
        "dev_requirements": (requirements(SETTINGS["dev_requirements"].split()),
                             requirements(project["optional-dependencies"]["dev"])),
        "console_scripts": (scripts, project["scripts"]),
        "git_url": (SETTINGS["git_url"], urls["Repository"]),
        "user": (SETTINGS["user"], urls["Repository"].split("/")[-2]),
        "repo": (SETTINGS["repo"], urls["Repository"].split("/")[-1]),
        "doc_host": (f"https://{SETTINGS['user']}.github.io", urls["Homepage"].rpartition("/")[0].rpartition("/")[0]),
        "doc_baseurl": (f"/{SETTINGS['repo']}", urls["Homepage"].removeprefix(SETTINGS["doc_host"]).rstrip("/")),
        "site": (sync.read_address()["site"] + "CHANGELOG/", urls["Changelog"]),
    }


def as_nbdev_2_writes(value):
    return " ".join(value) if isinstance(value, list) else str(value)


def too_new(source):
    """Return the stars in subscripts, which Python 3.10 cannot parse. Raise a SyntaxError for other new syntax.

    `ast.parse` says nothing about such stars, and walking all nodes of all files takes seconds."""
    tree, lines, star = ast.parse(source, feature_version=(3, 10)), source.split("\n"), re.compile(r"[\[,](?:\s|#.*)*\*(?!\*)")
    starts = [0, *(part.end_lineno - 1 for part in tree.body)]
    parts = [part for part, start in zip(tree.body, starts) if star.search("\n".join(lines[start:part.end_lineno]))]
    slices = [node.slice for part in parts for node in ast.walk(part) if isinstance(node, ast.Subscript)]
    starred = [part for part in slices
               if isinstance(part, ast.Tuple) and any(isinstance(item, ast.Starred) for item in part.elts)]
    return [text for part in starred if not (text := ast.get_source_segment(source, part)).startswith("(")]


def test_the_oldest_python_can_parse_everything():
    assert SETTINGS["min_python"] == "3.10" and too_new("a[*b, 1]") == ["*b, 1"] and not too_new("a[(*b, 1)]")
    files = [path for folder in (sync.PACKAGE, "tools", "tests") for path in (ROOT/folder).rglob("*.py")]
    found = {path.name: too_new(path.read_text(encoding="utf-8")) for path in files}
    assert len(files) > 50 and not any(found.values()), {name: parts for name, parts in found.items() if parts}


@pytest.mark.parametrize("key", sorted(packaging_facts()))
def test_packaging_agrees(key):
    ours, theirs = packaging_facts()[key]
    assert ours == theirs, f"{key}: settings.ini says {ours!r}, pyproject.toml {theirs!r}"


def test_nbdev_settings_agree():
    table = {key: as_nbdev_2_writes(value) for key, value in PROJECT["tool"]["nbdev"].items()}
    assert table == {key: SETTINGS.get(key) for key in table}


def test_every_setting_is_compared():
    unknown = SETTINGS.keys() - packaging_facts().keys() - PROJECT["tool"]["nbdev"].keys() - ONLY_NBDEV_2
    assert not unknown, f"settings.ini has lines that no test compares with pyproject.toml: {sorted(unknown)}"


def test_the_wheel_takes_its_version_and_packages_from_the_package():
    tools = PROJECT["tool"]["setuptools"]
    assert tools["dynamic"]["version"] == {"attr": f"{sync.PACKAGE}.__version__"}
    assert tools["packages"]["find"]["include"] == [sync.PACKAGE, f"{sync.PACKAGE}.*"]


def test_requirements_have_no_upper_bounds():
    for item in PROJECT["project"]["dependencies"]:
        bounds = {spec.operator for spec in Requirement(item).specifier}
        assert bounds <= {">="}, f"{item}: an upper bound or a pin would replace what Colab brings"


def test_ci_tests_the_supported_pythons():
    stated = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    workflow = (ROOT/".github"/"workflows"/"test.yaml").read_text(encoding="utf-8")
    assert re.findall(r'"(3\.\d+)"', workflow) == stated
    assert stated[0] == SETTINGS["min_python"]


# What is derived --------------------------------------------------------------------------------

def run_sync(root, *arguments):
    command = [sys.executable, str(root/"tools"/"sync.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def test_nothing_is_stale():
    done = run_sync(ROOT, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_file_of_tests_has_a_name_of_its_own():
    "pytest imports two files of one name as one module, and leaves out the tests of the second."
    names = [path.name for path in sorted((ROOT/"tests").rglob("test_*.py"))]
    assert sorted(set(names)) == sorted(names)


def test_every_module_comes_from_a_notebook():
    by_hand = {f"{sync.PACKAGE}/{name}" for name in ("__init__.py", "__main__.py", "all.py")}
    for path in (ROOT/sync.PACKAGE).rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        assert name in by_hand or name.endswith("/__init__.py") and path.stat().st_size == 0 or sync.is_generated(name, path.read_text(encoding="utf-8")), \
            f"{name} is written by hand: its source belongs in a notebook"


def copy_tree(folder, names):
    "Copy these files and what tools/sync.py needs. All is up to date as long as `test_nothing_is_stale` passes."
    for name in [*names, "pyproject.toml", "README.md", "settings.ini", "tools/sync.py"]:
        (folder/name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT/name, folder/name)
    return folder


@pytest.fixture
def some(tmp_path):
    "A copy of the front page, the first page, its module and a page of Colab."
    module = re.search(r"default_exp ([\w.]+)", (ROOT/NOTEBOOKS[0]).read_text(encoding="utf-8"))[1].replace(".", "/")
    modules = [f"{sync.PACKAGE}/{name}.py" for name in ("__init__", f"{module.rpartition('/')[0]}/__init__", module)]
    return copy_tree(tmp_path, [sync.INDEX, NOTEBOOKS[0], NOTEBOOKS[-1], *modules])


def test_the_check_notices_and_the_script_mends(some):
    copy, whole = some, sync.read_tree(some)
    module = next(name for name in whole if name.endswith(".py") and sync.is_generated(name, whole[name].decode()))
    for name in (module, "README.md", NOTEBOOKS[0]):
        with open(copy/name, "a") as file: file.write("\n\n")
    before = sync.read_tree(copy)
    check = run_sync(copy, "--check")
    assert check.returncode == 1
    for name in (module, "README.md", NOTEBOOKS[0]): assert f"stale: {name} " in check.stdout
    assert sync.read_tree(copy) == before, "a check changes nothing"
    assert run_sync(copy).returncode == 0
    mended = sync.read_tree(copy)
    assert mended.pop(f"{sync.PACKAGE}/_modidx.py") and mended == whole   # The index has these modules alone


def test_a_new_address_reaches_every_page(some, tmp_path_factory):
    "And every module, which is made of a page: the whole script shows it for one."
    copy = copy_tree(tmp_path_factory.mktemp("tree"), sync.read_tree(ROOT))
    for root in (some, copy):
        ini = (root/"settings.ini").read_text(encoding="utf-8")
        (root/"settings.ini").write_text(re.sub(r"^user = .*", "user = somebody-else", ini, flags=re.M), encoding="utf-8")
    sync.sync_address(copy), sync.build_readme(copy)
    check = run_sync(some, "--check")
    assert check.returncode == 1 and f"stale: {NOTEBOOKS[0]} " in check.stdout
    assert run_sync(some).returncode == 0
    old = f"{SETTINGS['user']}/{SETTINGS['repo']}".encode()
    assert SETTINGS["doc_host"].encode() in sync.read_tree(ROOT)["README.md"]
    for root in (some, copy): assert SETTINGS["doc_host"].encode() not in sync.read_tree(root)["pyproject.toml"]
    assert SETTINGS["doc_host"].encode() not in sync.read_tree(copy)["README.md"]
    made = [name for name, content in sync.read_tree(copy).items() if name.endswith(".py") and sync.is_generated(name, content.decode())]
    for root, skipped in ((copy, made), (some, [sync.INDEX, "README.md"])):   # Which link to pages that are not there
        assert [name for name, content in sync.read_tree(root).items() if name not in skipped and old in content] == []


# Workflows --------------------------------------------------------------------------------------

WORKFLOWS = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT/".github/workflows").glob("*.y*ml"))}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_names_major_versions_reads_only_and_ends(name):
    "Only the job that publishes the site may write, and only pages."
    text = WORKFLOWS[name]
    actions = re.findall(r"uses: *(\S+)", text)
    assert actions and all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in actions)
    assert re.search(r"^permissions:\n  contents: read\n\n", text, re.M), "by default"
    assert set(re.findall(r"([\w-]+): write", text)) <= ({"pages", "id-token"} if name == "site.yaml" else set())
    assert text.count("runs-on:") == text.count("timeout-minutes:")


def test_every_target_that_a_workflow_makes_is_there():
    targets = set(re.findall(r"^([\w-]+(?: [\w-]+)*):", (ROOT/"Makefile").read_text(encoding="utf-8"), re.M))
    targets = {name for line in targets for name in line.split()}
    made = {name for text in WORKFLOWS.values() for name in re.findall(r"run: make ([\w-]+)", text)}
    assert {"site", "site-check", "test"} <= made <= targets


# README -----------------------------------------------------------------------------------------

def test_a_readme_shows_what_a_reader_of_the_notebook_sees():
    shown = dict(output_type="execute_result", data={"text/plain": ["42"]})
    picture = dict(output_type="display_data", data={"text/plain": ["<Figure>"], "image/png": "aGk="})
    cells = [
        dict(cell_type="markdown", source="[a](01_core.game.ipynb#x) ![b](images/b.png) [c](../colab/c.ipynb) [d](https://d.org) `[e](e)`"),
        dict(cell_type="code", source="#| hide\nimport secret", outputs=[shown]),
        dict(cell_type="code", source="#| eval: false\nx = 6 * 7\nx", outputs=[shown, picture]),
        dict(cell_type="code", source="#| echo: false\nx", outputs=[shown]),
    ]
    assert sync.page(cells, "nbs") == (
        "[a](nbs/01_core.game.ipynb#x) ![b](nbs/images/b.png) [c](colab/c.ipynb) [d](https://d.org) `[e](e)`\n\n"
        "```python\nx = 6 * 7\nx\n```\n\n```text\n42\n```\n\n```text\n42\n```\n")


def links(markdown):
    "The relative links of a page."
    text = re.sub(r"```.*?```|`[^`\n]*`", "", markdown, flags=re.S)
    found = re.findall(r"(?:\]\(|\b(?:src|href)=\")([^)\s\"]+)", text)
    return [link.partition("#")[0] for link in found if not re.match(r"[a-zA-Z][\w+.-]*:|[#/]", link)]


def test_the_links_of_the_readme_lead_somewhere():
    broken = [link for link in links((ROOT/"README.md").read_text(encoding="utf-8")) if not (ROOT/link).exists()]
    assert not broken, f"README.md links to what is not there: {broken}"


def test_every_stored_measurement_has_a_row_and_every_row_its_file():
    data = ROOT/"nbs/data"
    text = (data/"README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([^`]+)`", text, re.M)
    there = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()} - {"README.md"}
    rows = [{str(path.relative_to(data)) for path in data.glob(name)} for name in named]
    assert all(rows) and set.union(*rows) == there
    assert all((data/link).exists() for link in links(text))


# Each notebook ----------------------------------------------------------------------------------

@pytest.fixture(params=NOTEBOOKS)
def notebook(request):
    return request.param


def read(name):
    return json.loads((ROOT/name).read_text(encoding="utf-8"))["cells"]


def test_a_notebook_opens_with_title_claim_and_badge(notebook):
    first = read(notebook)[0]
    assert first["cell_type"] == "markdown"
    address, text = sync.read_address(), "".join(first["source"])
    assert re.match(r"# \S.*\n\n> \S", text), f"{notebook}: the first cell opens with `# Title`, an empty line and `> claim`"
    opened = [name for name in NOTEBOOKS if sync.badge(address, name) in text]
    assert opened, f"{notebook}: the first cell lacks its badge, {sync.badge(address, notebook)}"
    assert opened[0] == notebook or notebook == sync.INDEX, f"{notebook}: its badge opens {opened[0]}"


def test_a_notebook_is_small(notebook):
    size = (ROOT/notebook).stat().st_size
    assert size < 200_000, f"{notebook}: {size} bytes; a page stays under 200 KB"


def test_a_notebook_names_no_place_on_a_machine(notebook):
    here = {str(ROOT), str(Path.home()), sys.prefix, tempfile.gettempdir()}
    places = "|".join([re.escape(place) for place in here if len(place) > 1]
                      + ["/home", "/Users", "/root", "/tmp", "/private", "/var/folders"])
    text = (ROOT/notebook).read_text(encoding="utf-8")
    found = re.findall(rf"(?<![\w.:/~-])(?:{places})/[^\s\"\\]*|site-packages/[^\s\"\\]*", text)
    assert not found, f"{notebook}: {found[:3]} means nothing on another machine"


def test_the_links_of_a_notebook_lead_somewhere(notebook):
    text = "\n\n".join("".join(cell["source"]) for cell in read(notebook) if cell["cell_type"] == "markdown")
    broken = [link for link in links(text) if not ((ROOT/notebook).parent/link).exists()]
    assert not broken, f"{notebook} links to what is not there: {broken}"


def test_the_first_page_names_every_page():
    shown = (ROOT/"README.md").read_text(encoding="utf-8")
    assert [page.name for page in (ROOT/"nbs").glob("[0-9]*_*.ipynb") if f"(nbs/{page.name})" not in shown] == []


def test_each_page_of_a_module_leads_to_the_page_after_it():
    pages = sorted(page.name for page in (ROOT/"nbs").glob("[0-8]*_*.ipynb"))
    for page, after in zip(pages, pages[1:]):
        text = [cell for cell in read(f"nbs/{page}") if cell["cell_type"] == "markdown"][-1]
        text = "".join(text["source"])
        assert after in links(text[text.index("Next: "):]), f"{page} does not lead to {after}"


def test_the_path_of_a_reader_leads_from_page_to_page():
    section = (ROOT/"README.md").read_text(encoding="utf-8").partition("\n## Understand\n")[2].partition("\n## ")[0]
    pages = links(section)
    assert len(pages) == 7
    for page, after in zip(pages, [*pages[1:], "nbs/index.ipynb"]):
        text = "".join([cell for cell in read(page) if cell["cell_type"] == "markdown"][-1]["source"])
        assert links(text[text.index("On the path: "):])[0] == Path(after).name, f"{page} does not lead to {after}"


def test_a_notebook_installs_the_package_where_it_is_missing(notebook):
    "In Colab, on Kaggle or elsewhere. Colab ignores nbdev's directives; a comment in place of the command would be a syntax error."
    first = next("".join(cell["source"]) for cell in read(notebook) if "import alphazero_nb\n" in "".join(cell["source"]))
    command = f"%pip install -q git+{sync.read_address()['git_url']}.git"
    assert f"try: import alphazero_nb\nexcept ImportError:\n    {command}\n" in f"{first}\n"


def test_a_notebook_works_where_nbdev_is_not(notebook):
    code = "\n".join("".join(cell["source"]) for cell in read(notebook) if cell["cell_type"] == "code")
    found = re.findall(r"^\s*(?:import|from)\s+(nbdev|fastcore|execnb)\b|(nbdev_export\(|show_doc\()", code, re.M)
    assert not found, f"{notebook}: Colab has no nbdev"
