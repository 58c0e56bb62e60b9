"""Build the documentation site: pages from the notebooks' stored outputs, a reference, and boards to play on.

    python tools/make_site.py                    build/site
    python tools/make_site.py --out FOLDER       elsewhere
    python tools/make_site.py --no-boards        without the boards, which take half a minute each the first time

No notebook is executed and nothing is downloaded. The Markdown is written to build/site-pages, then MkDocs turns it into HTML with
docs/mkdocs.yml. A broken link or anchor ends the build."""
import argparse, ast, base64, hashlib, importlib, json, logging, posixpath, re, shutil, sys, time
from collections import defaultdict
from pathlib import Path

import sync

ROOT = sync.ROOT
PAGES, BOARDS = ROOT/"build"/"site-pages", ROOT/"build"/"site-boards"
GROUPS = dict(core="Core", games="Games", network="Networks", search="Search", selfplay="Self-play", arena="Arena",
              training="Training", ui="Display", web="Web", measure="Measuring and commands")
TRAIN = ["quickstart", "your_own_game", "study", "chess", "cards", "several_gpus", "benchmark"]
# A few moves of each shipped agent against itself, for the picture of its board
MOVES = {"connect4": [3, 2, 5, 5, 6, 4, 4, 4, 4, 1, 5, 3, 5, 3, 3, 4, 3, 6], "tictactoe": [4, 0, 1, 7, 8],
         "dots(rows=3,cols=3)": [15, 2, 0, 13, 16, 7, 17, 11, 8, 9, 21, 1, 19],
         "gomoku(size=9)": [40, 31, 39, 41, 49, 59, 50, 51, 21, 30, 29, 37, 19, 9, 47, 38],
         "othello(size=6)": [13, 9, 16, 19, 27, 12, 8, 3, 18, 24, 7, 26, 1, 22, 2, 17],
         "othello(size=8)": [19, 34, 43, 20, 29, 44, 26, 42, 37, 21, 12, 38, 13, 17, 25, 33, 47, 18, 46, 11, 2, 4],
         "go(size=7,komi=9)": [24, 17, 16, 25, 32, 18, 23, 33, 40, 39, 31, 47, 41, 34, 38, 48, 10, 11, 9, 3],
         "chess(variant=gardner)": [369, 321, 321, 271, 172, 418, 357, 664, 174, 178, 453, 215, 174, 662],
         "blob(players=4,cards=5)": [53, 52, 53, 53, 50, 44, 35, 43, 26, 20]}
TEXTS = ["CHANGELOG.md", "CONTRIBUTING.md", "nbs/data/README.md"]   # Of the repository, as they are


# Links ------------------------------------------------------------------------------------------

def slug(text):
    "The anchor of a heading, as Python-Markdown makes it; Jupyter's anchors differ in case and punctuation."
    text = re.sub(r"[^\w\s-]", "", text).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


def relink(markdown, path, known, address):
    "`markdown` of the file at `path` with links to the pages of the site, and to the repository for all other files."
    def move(match):
        if re.match(r"[a-zA-Z][\w+.-]*:|/", match[2]): return match[0]
        name, mark, fragment = match[2].partition("#")
        if not name: return f"{match[1]}#{slug(fragment)}"
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        if target in known:
            name = name.removesuffix(".ipynb") + ".md" if name.endswith(".ipynb") else name
            return match[1] + name + (mark + slug(fragment) if mark else "")
        kind = "tree" if (ROOT/target).is_dir() else "blob"
        return f"{match[1]}{address['git_url']}/{kind}/{address['branch']}/{target}{mark}{fragment}"
    parts = re.split(r"(```.*?```|`[^`\n]*`)", markdown, flags=re.S)   # Code, at odd places, stays as it is.
    parts[::2] = [re.sub(r"(\]\()([^)\s]+)", move, part) for part in parts[::2]]
    return "".join(parts)


# Notebooks --------------------------------------------------------------------------------------

def directives(source):
    "The directives of a cell, and its source without them."
    lines = source.split("\n")
    found = {line[2:].strip() for line in lines if line.startswith("#|")}
    return found, "\n".join(line for line in lines if not line.startswith("#|")).strip("\n")


def is_imports(source):
    "Does a cell import names and do nothing else?"
    try: body = ast.parse(source).body
    except SyntaxError: return False
    return len(body) > 1 and all(isinstance(line, (ast.Import, ast.ImportFrom)) for line in body)


def fence(text, words):
    "`text` in a fence with attributes."
    return sync.fenced(text, f"{{ {words} }}")


def code_block(source, flags):
    "A code cell. Exported cells are marked, and a block of imports is folded."
    words = ".python .exported" if "export" in flags else ".python"
    if not is_imports(source): return fence(source, words)
    return '??? abstract "Imports"\n\n' + "\n".join("    " + line for line in fence(source, words).split("\n"))


def output_blocks(cell, folder, heading):
    "The stored outputs of a cell. Pictures become files in `folder`."
    for i, output in enumerate(cell.get("outputs", [])):
        data = output.get("data", {})
        if "image/png" in data:
            name = f"{cell['id']}-{i}.png"
            folder.mkdir(parents=True, exist_ok=True)
            (folder/name).write_bytes(base64.b64decode("".join(data["image/png"])))
            yield f"![Picture drawn by the code above: {heading}]({folder.name}/{name})" + "{ .output }"
        elif "text/html" in data: yield f'<div class="output html">{"".join(data["text/html"])}</div>'
        elif "text/markdown" in data: yield "".join(data["text/markdown"])
        else:
            text = "".join(output.get("text") or data.get("text/plain") or output.get("traceback", ""))
            text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
            text = "\n".join(line.rstrip("\r").rpartition("\r")[2].rstrip() for line in text.split("\n")).strip("\n")
            if text: yield fence(text, ".text .output")


def module_of(cells):
    "The module that a notebook exports, such as web.page, or an empty text."
    found = [re.search(r"^#\| *default_exp +(\S+)", "".join(cell["source"]), re.M) for cell in cells]
    return next((match[1] for match in found if match), "")


def page_head(path, module, address, names):
    "The line below the title: Colab, the module and the notebook."
    up = "../" * path.count("/")
    link = sync.colab_link(address, path)
    line = [f"[Run it in Colab]({link}){{ .md-button .md-button--primary }}" if path.startswith("colab/") else
            f"[![Open in Colab]({up}img/colab.svg)]({link})"]
    if module:
        file = f"{sync.PACKAGE}/{module.replace('.', '/')}.py"
        where = f"{up}reference/{group_of(module)}.md" if f"{sync.PACKAGE}.{module}" in names.values() else None
        line += [f"exports [`{sync.PACKAGE}.{module}`]({address['git_url']}/blob/{address['branch']}/{file})"]
        if where: line += [f"[reference]({where})"]
    line += [f"[edit this page]({address['git_url']}/edit/{address['branch']}/{path})"]
    return " · ".join(line) + "\n{ .pagehead }"


def notebook_page(path, known, address, names):
    "The Markdown of a notebook; its pictures are written beside it."
    cells = json.loads((ROOT/path).read_text(encoding="utf-8"))["cells"]
    folder, heading, blocks = PAGES/f"{path.removesuffix('.ipynb')}_files", "", []
    for cell in cells:
        flags, source = directives("".join(cell["source"]))
        if flags & {"hide", "hide: true"} or cell["cell_type"] == "raw": continue
        if cell["cell_type"] == "markdown":
            source = re.sub(r"\[!\[Open in Colab\]\([^)]*\)\]\([^)]*\)\n*", "", source)
            heading = (re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", source, flags=re.S), re.M) or [heading])[-1]
            blocks.append(relink(source, path, known, address))
            continue
        if source: blocks.append(code_block(source, flags))
        blocks += output_blocks(cell, folder, re.sub(r"[`*\[\]]", "", heading))
    module = module_of(cells)
    title, _, rest = blocks[0].partition("\n")
    claim = re.search(r"^> (.*)$", rest, re.M)
    words = re.sub(r"[`*]|\]\([^)]*\)|\[", "", claim[1]) if claim else title.lstrip("# ")
    head = f"---\nsource: {path}\ndescription: {json.dumps(words)}\n---\n\n{title}\n\n"
    return head + "\n\n".join([rest.strip(), page_head(path, module, address, names), *blocks[1:]]) + "\n"


def page_facts(path):
    "The title, the claim and the module of a notebook."
    cells = json.loads((ROOT/path).read_text(encoding="utf-8"))["cells"]
    text = "".join(cells[0]["source"])
    claim = re.search(r"^> (.*)$", text, re.M)
    return dict(path=path, title=text.split("\n")[0].lstrip("# "), claim=claim[1] if claim else "", module=module_of(cells))


def reading_path():
    "The notebooks that nbs/index.ipynb numbers under Understand."
    cells = json.loads((ROOT/sync.INDEX).read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    part = text.partition("## Understand")[2].partition("\n## ")[0]
    return ["nbs/" + name for name in re.findall(r"^\d+\. \[[^\]]*\]\(([^)]*\.ipynb)\)", part, re.M)]


def group_of(module): return module.partition(".")[0] if module.partition(".")[0] in GROUPS else "measure"


# Reference --------------------------------------------------------------------------------------

def public_names():
    "The module of each public name, as alphazero_nb/all.py imports them."
    lines = ast.parse((ROOT/sync.PACKAGE/"all.py").read_text(encoding="utf-8")).body
    return {alias.name: line.module for line in lines if isinstance(line, ast.ImportFrom) for alias in line.names}


def reference_pages(names, facts):
    "Reference pages by group: {path: Markdown}."
    by_group, page_of = defaultdict(list), {f"{sync.PACKAGE}.{fact['module']}": fact for fact in facts}
    for name, module in names.items(): by_group[group_of(module.partition(".")[2])].append((name, module))
    pages, rows = {}, []
    for group in GROUPS:
        if group not in by_group: continue
        text = [f"# {GROUPS[group]}: reference", "Signatures, shapes, units and errors, read from the source without running it."]
        for name, module in sorted(by_group[group], key=lambda pair: pair[0].lower()):
            fact = page_of[module]
            text += [f"::: {module}.{name}", f"Explained and tested in [{fact['title']}](../{fact['path'].removesuffix('.ipynb')}.md).\n"
                     "{ .explained }"]
        pages[f"reference/{group}.md"] = "\n\n".join(text) + "\n"
        links = ", ".join(f"[`{name}`]({group}.md#{module}.{name})" for name, module in sorted(by_group[group], key=lambda pair: pair[0].lower()))
        rows.append(f"| [{GROUPS[group]}]({group}.md) | {links} |")
    intro = ("# Reference\n\n`import alphazero_nb as az` has every name of this page. In a notebook, `from alphazero_nb.all import *` "
             "brings them all. The [commands](../commands/index.md) have pages of their own.\n\n| group | names |\n|---|---|\n")
    return {"reference/index.md": intro + "\n".join(rows) + "\n", **pages}


def action_row(action):
    "One row of a command's table: the argument, what it means, and its default."
    name = " ".join(f"`{option}`" for option in action.option_strings) or f"`{action.metavar or action.dest}`"
    if action.option_strings and action.nargs != 0: name += f" `{action.metavar or action.dest.upper()}`"
    words = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%").replace("|", "\\|").replace("<", "&lt;")
    if action.choices: words += f" One of {', '.join(f'`{choice}`' for choice in action.choices)}."
    anchor = f'<a id="{action.option_strings[-1].lstrip("-") if action.option_strings else action.dest}"></a>'
    return f"| {anchor}{name} | {words[:1].upper()}{words[1:]} |"


def command_pages():
    "The help of each command: {path: Markdown}."
    sys.path.insert(0, str(ROOT))
    parser = importlib.import_module(f"{sync.PACKAGE}.cli").make_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    pages, rows = {}, []
    for name, command in commands.choices.items():
        usage = " ".join(command.format_usage().removeprefix("usage: ").split())
        actions = [action for action in command._actions if action.dest != "help"]
        table = "\n".join(map(action_row, actions))
        pages[f"commands/{name}.md"] = (f"# alphazero-nb {name}\n\n> {command.description}\n\n{fence(usage, '.text .usage')}\n\n"
                                        f"| argument | meaning |\n|---|---|\n{table}\n")
        rows.append(f"| [`alphazero-nb {name}`]({name}.md) | {command.description} |")
    intro = "# Commands\n\nEach command prints the same with `--help`.\n\n| command | does |\n|---|---|\n"
    return {"commands/index.md": intro + "\n".join(rows) + "\n", **pages}


# Boards -----------------------------------------------------------------------------------------

def package_stamp():
    "A digest of everything in the package that an exported board is made of."
    digest = hashlib.sha256()
    for file in sorted((ROOT/sync.PACKAGE).rglob("*")):
        if file.suffix in (".py", ".js", ".css", ".html", ".npz", ".json"): digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def export_boards(folder):
    "Write one page that plays for each shipped agent, or take it from an earlier build of the same package."
    sys.path.insert(0, str(ROOT))
    from alphazero_nb.core.registry import file_stem
    from alphazero_nb.network.pretrained import list_pretrained
    from alphazero_nb.web.page import export_page
    from alphazero_nb.web.wasm import NotExportable
    kept = BOARDS/package_stamp()
    kept.mkdir(parents=True, exist_ok=True)
    for old in BOARDS.iterdir():
        if old != kept: shutil.rmtree(old)
    for game in list_pretrained():
        (folder/f"{file_stem(game)}.svg").write_text(picture(game), encoding="utf-8")
        file = kept/f"{file_stem(game)}.html"
        try:
            if not file.exists(): export_page(f"pretrained:{game}", file, title=board_title(game))
        except NotExportable: continue   # Hidden cards: the gallery links to the notebook
        shutil.copyfile(file, folder/file.name)


def picture(name):
    "The board of a game after some moves of its agent, as SVG. A card game is seen from the first seat."
    from alphazero_nb.core.registry import get_game
    from alphazero_nb.ui.board import Marks, board_svg, find_drawing, last_places
    from alphazero_nb.ui.card_table import SeatView, find_table
    game, moves = get_game(name), MOVES.get(name, [])
    states = [game.state_after(moves[:count], seed=4) for count in range(len(moves) + 1)]
    if table := find_table(game):
        names = ("You", *(f"Agent {seat}" for seat in range(1, game.players)))
        return board_svg(table.draw(SeatView(game, tuple(states), tuple(moves), 0, names, False)))
    before, board = (find_drawing(game)(states[:end], moves[:end - 1]) for end in (max(1, len(moves)), len(states)))
    return board_svg(board, Marks(last=last_places(before, board, moves[-1])) if moves else Marks())


def board_title(game):
    "The title of a game's notebook, or of the notebook that explains a variant."
    titles = {"chess(variant=gardner)": "Chess on 5×5", "blob(players=4,cards=5)": "Blob, four players", "tictactoe": "Tic-tac-toe",
              "connect4": "Connect Four", "gomoku(size=9)": "Gomoku on 9×9", "dots(rows=3,cols=3)": "Dots and boxes", "othello(size=6)": "Othello on 6×6",
              "othello(size=8)": "Othello", "go(size=7,komi=9)": "Go on 7×7"}
    return titles.get(game, game)


def agent_card(row):
    "What an agent's file says about it, as a list."
    lines = [f"Network `{row['preset']}`, trained for {row['minutes']:.0f} minutes on {row['device']}: {row['games']:,} games of self-play."]
    lines += [f"Judged with exact solutions, it {text.removeprefix('all: ')}." for text in row.get("judged") or [] if text.startswith("all: ")]
    lines += [f"{match['score']:.1%} of the points against `{match['opponent']}` in {match['games']:,} games "
              f"({match['low']:.1%} to {match['high']:.1%})." for match in row.get("matches") or [] if "score" in match]
    return lines


def in_short(row):
    "The strongest result of an agent in one sentence."
    opponents = {"random": "random moves", "greedy": "a player that looks one move ahead",
                 "heuristic": "a rule of thumb written by hand", "rollouts": "a search with {} random playouts a move",
                 "solver": "perfect play", "minimax": "a search {} moves ahead that counts material"}
    if found := re.search(r"all: keeps the result in (\S+) of ([\d,]+) critical positions", "\n".join(row.get("judged") or [])):
        return f"Keeps the result of perfect play in {found[1]} of {found[2]} positions where some move gives it away."
    match = row["matches"][-1]
    kind, _, number = match["opponent"].partition(":")
    opponent = opponents.get(kind, match["opponent"]).format(f"{int(number):,}" if number.isdigit() else number)
    return f"Scores {match['score']:.1%} of the points against {opponent}, in {match['games']:,} games."


def play_pages(boards, pictures):
    "The gallery and one page for each shipped agent: {path: Markdown}."
    pages, cards = {}, []
    agents = [json.loads(file.read_text(encoding="utf-8")) | dict(stem=file.stem) for file in (ROOT/sync.PACKAGE/"agents").glob("*.json")]
    first = ["connect4", "tictactoe", "dots-rows-3-cols-3", "gomoku-size-9", "chess-variant-gardner"]
    for row in sorted(agents, key=lambda row: (row["stem"] not in first, first.index(row["stem"]) if row["stem"] in first else 0)):
        lines = agent_card(row)
        title, stem, here = board_title(row["game"]), row["stem"], row["stem"] in boards
        frame = (f'<iframe class="board" title="{title}: a board to play on" src="../boards/{stem}.html"></iframe>\n\n'
                 f"[Save this page](boards/{stem}.html){{ download }}: it plays without the internet.") if here else \
                f"![The table of {title} after some moves](boards/{stem}.svg){{ .shot }}\n\n" * (stem in pictures) + \
                "A web page cannot hide cards from you. [The notebook about cards](../colab/cards.md) has a table to play at."
        card = "\n".join(f"- {line}" for line in lines)
        pages[f"play/{stem}.md"] = (f"---\nhide: [toc]\n---\n\n# {title}\n\n{frame}\n\n## The agent\n\n{card}\n\n"
                                    f"In a terminal:\n\n```sh\nalphazero-nb play \"{row['game']}\"\n```\n")
        shown = f"[![The board of {title} after some moves](boards/{stem}.svg)]({stem}.md)\n\n    " * (stem in pictures)
        cards.append(f"-   {shown}## {title}\n\n    {in_short(row)}\n\n    "
                     f"[{'Play' if here else 'Play in a notebook'}]({stem}.md){{ .md-button aria-label='Play {title}' }}")
    intro = ("---\nhide: [toc]\n---\n\n# Play\n\n> Agents that learnt from the rules alone. Each board is one file: the rules, the search and the network run in "
             "your browser.\n\n")
    more = ("\n\nTo play in a notebook, with analysis and all levels, open [the notebook](../colab/play.md). "
            "To make such a file from an agent of your own: `alphazero-nb page runs/connect4 --out mine.html` ([how](../nbs/79f_web.page.md)).\n")
    return {"play/index.md": intro + '<div class="grid cards games" markdown>\n\n' + "\n\n".join(cards) + "\n\n</div>" + more, **pages}


# The site ---------------------------------------------------------------------------------------

def group_pages(facts):
    "One page of contents for each group: {path: Markdown}."
    pages = {}
    for group, name in GROUPS.items():
        rows = "\n".join(f"| [{fact['title']}](../{fact['path'].removesuffix('.ipynb')}.md) | {relink(fact['claim'], 'groups/x.md', (), sync.read_address())} |"
                         for fact in facts if fact["module"] and group_of(fact["module"]) == group)
        pages[f"groups/{group}.md"] = f"# {name}\n\n| page | claim |\n|---|---|\n{rows}\n"
    return pages


def navigation(facts, pages):
    "The menu: play, train, understand, then the reference."
    page = lambda path: path.removesuffix(".ipynb") + ".md"
    path, by_group = reading_path(), defaultdict(list)
    for fact in facts:
        if fact["module"] and fact["path"] not in path: by_group[group_of(fact["module"])].append(page(fact["path"]))
    explained = [fact["path"] for fact in facts if re.match(r"nbs/9", fact["path"]) and fact["path"] not in path]
    explained.remove("nbs/90_troubleshooting.ipynb")
    return [{"Home": "index.md"},
            {"Play": ["play/index.md", *[name for name in pages if re.fullmatch(r"play/(?!index).*\.md", name)], {"In a notebook": "colab/play.md"}]},
            {"Train": ["nbs/index.md", *[f"colab/{name}.md" for name in TRAIN], "nbs/90_troubleshooting.md"]},
            {"Understand": ["understand/index.md", {"Seven pages": list(map(page, path))}, {"More": list(map(page, explained))}]},
            {"Reference": ["reference/index.md", *[{GROUPS[group]: f"reference/{group}.md"} for group in GROUPS if f"reference/{group}.md" in pages],
                           {"Commands": ["commands/index.md", *[name for name in pages if re.fullmatch(r"commands/(?!index).*", name)]]}]},
            {"All pages": ["pages/index.md", *[{GROUPS[group]: [f"groups/{group}.md", *by_group[group]]} for group in GROUPS],
                           {"Project": TEXTS}]}]


def understand_page(facts):
    "The way through the seven pages."
    by_path = {fact["path"]: fact for fact in facts}
    line = "{}. [{}](../{}.md): {}".format
    rows = [line(i, by_path[path]["title"], path.removesuffix(".ipynb"), by_path[path]["claim"]) for i, path in enumerate(reading_path(), 1)]
    return ("# Understand\n\n> Seven pages, in this order, for readers who know Python and a little PyTorch.\n\n" + "\n".join(rows) +
            "\n\nEach page ends with a link to the next one. Every page is a notebook: the badge below its title opens it in Colab, "
            "where you can change the code and run it. Cells with a coloured edge are the package itself; the others test it.\n")


# Errors of installed versions name help/#section, wherever the page stands today
HELP = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Help</title>
<p><a href="../nbs/90_troubleshooting/">Troubleshooting</a></p>
<script>location.replace("../nbs/90_troubleshooting/" + location.hash.replace(/[.]$/, ""))</script>
</html>
"""


def write_pages(boards=True):
    "Write everything that MkDocs reads to build/site-pages. Return the menu."
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT/"docs", PAGES, ignore=shutil.ignore_patterns("*.yml", "*.py", "__pycache__", "overrides"))
    (PAGES/"play"/"boards").mkdir(parents=True)
    if boards: export_boards(PAGES/"play"/"boards")
    else: (PAGES/"play"/"boards"/"connect4.html").write_text("<!DOCTYPE html><title>A board</title>", encoding="utf-8")
    address, names = sync.read_address(), public_names()
    facts = [page_facts(path) for path in sync.notebooks()]
    pictures = [file.relative_to(ROOT).as_posix() for file in (ROOT/"nbs"/"images").iterdir()]
    known = {*sync.notebooks(), *TEXTS, *pictures}
    for name in pictures: (PAGES/name).parent.mkdir(parents=True, exist_ok=True), shutil.copyfile(ROOT/name, PAGES/name)
    pages = {path.removesuffix(".ipynb") + ".md": notebook_page(path, known, address, names) for path in sync.notebooks()}
    for path in TEXTS: pages[path] = f"---\nsource: {path}\n---\n" + relink((ROOT/path).read_text(encoding="utf-8"), path, known, address)
    pages |= reference_pages(names, facts) | command_pages() | group_pages(facts) | {"understand/index.md": understand_page(facts)}
    made = {kind: {file.stem for file in (PAGES/"play"/"boards").glob(f"*.{kind}")} for kind in ("html", "svg")}
    pages |= play_pages(made["html"], made["svg"])
    pages["pages/index.md"] = "# All pages\n\nThe numbers of the notebooks are the reading order, and a group uses only groups above it.\n\n" + \
        "\n".join(f"- [{GROUPS[group]}](../groups/{group}.md)" for group in GROUPS) + "\n"
    (PAGES/"help").mkdir()
    (PAGES/"help"/"index.html").write_text(HELP, encoding="utf-8")
    for path, text in pages.items():
        (PAGES/path).parent.mkdir(parents=True, exist_ok=True)
        (PAGES/path).write_text(text, encoding="utf-8")
    return navigation(facts, pages)


def build(out, boards=True):
    "Build the site in the folder `out`."
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    menu, address = write_pages(boards), sync.read_address()
    config = load_config(str(ROOT/"docs"/"mkdocs.yml"), docs_dir=str(PAGES), site_dir=str(out), nav=menu, strict=True,
                         repo_url=address["git_url"], site_url=address["site"])
    config["extra"] |= dict(names=public_names(), address=address)
    config.plugins.on_startup(command="build", dirty=False)
    try: mkdocs_build(config)
    except SystemExit as error: sys.exit(f"The site was not built: {error or 'see above'}.")
    finally: config.plugins.on_shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT/"build"/"site", help="folder of the site")
    parser.add_argument("--no-boards", action="store_true", help="leave out the boards to play on")
    options, start = parser.parse_args(), time.perf_counter()
    build(options.out.resolve(), not options.no_boards)
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    print(f"{options.out}: {len(list(options.out.rglob('*.html')))} pages, {size / 1e6:.1f} MB, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__": main()
