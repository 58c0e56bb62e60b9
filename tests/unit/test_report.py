"The page of a run is whole, alone in its file, and believes nobody."
import ast
import base64
import hashlib
import json
import math
import re
import shlex
import shutil
import xml.etree.ElementTree as xml
from dataclasses import asdict, replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from torch import nn

from alphazero_nb.core.registry import get_game, import_rules
from alphazero_nb.core.records import join_records, split_records
from alphazero_nb.network.checkpoint import read_arrays, write_arrays, write_json
from alphazero_nb.network.saved_run import read_saved
from alphazero_nb.search.search import SearchSettings
from alphazero_nb.selfplay.settings import SelfPlaySettings
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.trainer import TimeAccount, Trainer
from alphazero_nb.ui.play import play
from alphazero_nb.ui.report import Run, _how_part, _settings_part, html_text, read_run, report

GAME = get_game("tictactoe")


def match(score, low, high, opponent):
    return dict(player="me", opponent=opponent, score=score, low=low, high=high, games=40, wins=20, draws=10, losses=10)


def dealt(match, **changes):
    "The match on deals that were played twice."
    row = dict(mine=[5.125, 4.5, 5.75], theirs=[4.5, 4.25, 4.75], difference=[.625, .25, 1.], share=False)
    return dict(match, measures={"points a round": row, "exact <i>bids</i>": dict(row, mine=[.5, .4, .6], share=True, **changes)})


SMALL = dict(preset="tiny", device="cpu", simulations=8, games=16, layout="threads", listeners=())
QUICK = TrainSettings(games_per_iteration=16, batch_size=32, replay_ratio=2, evaluate_every=1, evaluate_games=4, match_share=1,
                      baseline="random")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "my run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TimeAccount, "allows", lambda *_: True)   # Matches are played, however long they take
        Trainer("tictactoe", folder=folder, train_settings=QUICK, **SMALL).fit(iterations=2)
    return folder


@pytest.fixture
def folder(trained, tmp_path): return shutil.copytree(trained, tmp_path / "it's a run")


@pytest.fixture(scope="module")
def written(trained):
    "The folder and the page of the run as it is, to be read only."
    folder = shutil.copytree(trained, trained.parent / "it's a run")
    return folder, report(folder)


def look(path):
    "The parsed page; fails if it is not well-formed, not small, or not alone in its file."
    text = path.read_text(encoding="utf-8")
    assert len(text) < 1_000_000 and text.startswith("<!DOCTYPE html>")
    page = xml.fromstring(text.partition("\n")[2])
    for element in page.iter():
        assert element.tag in {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "img", "pre", "div",
                               "table", "tr", "th", "td"}, element.tag
        assert not [name for name in element.attrib if name.startswith("on")], element.attrib
        assert element.get("href") is None and element.get("src", "data:image/png;base64,").startswith("data:image/png;base64,")
    rules = next(meta for meta in page.iter("meta") if meta.get("http-equiv") == "Content-Security-Policy").get("content")
    assert rules.split("; ")[0] == "default-src 'none'" and "script" not in rules
    assert not re.search(r"url\(|@import|https?:", text)
    return page


def change(path, **values): write_json(path, dict(json.loads(path.read_text()), **values))
def said(page): return "".join(page.itertext())


def images(page):
    found = {}
    for image in page.iter("img"):
        content = base64.b64decode(image.get("src").partition(",")[2])
        assert content[:4] == b"\x89PNG" and len(content) < 40_000
        found[image.get("alt")] = content
    return found


def test_the_page_of_a_run(written):
    folder, path = written
    page = look(path)
    assert path == folder / "report.html" and not plt.get_fignums()
    alts = " | ".join(images(page))
    for part in ("policy loss went", "Elo against random", "The search plays", "games of", "The search is off by"):
        assert part in alts, part
    run = read_run(folder)
    last = run.records[-1]
    assert GAME.text(GAME.state_after(last.actions.tolist(), last.seed)) in said(page)
    for part in ("2 iterations, 32 games", "settings.replay_ratio", "search.simulations"): assert part in said(page), part
    assert re.search(r"Time: .*self-play \d+%", said(page))
    assert re.search(r"After iteration \d+, the agent keeps the result in \d+% of 100 critical positions", said(page))
    assert "What it can do now" in said(page)
    cells = [cell.text for cell in page.iter("td")]
    assert "half of the points against random" in cells and any(cell.startswith("keeps the result as often as random") for cell in cells)
    assert sum(cell.text == "random" for cell in page.iter("td")) == 2 + 1, "two matches and the baseline among the settings"


def test_a_page_takes_part_in_no_training(folder):
    files = lambda: {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    before = files()
    report(folder)
    assert {name: content for name, content in files().items() if name.name != "report.html"} == before
    assert Trainer("tictactoe", folder=folder, train_settings=QUICK, **SMALL).fit(iterations=1).iteration == 3


def test_the_ladder_is_shown_where_it_is_given(folder):
    page = look(report(folder, [match(.9, .8, .95, "rollouts:400"), match(1, .9, 1, "random")]))
    assert "me: stronger than 2 of 2 opponents" in images(page) and "rollouts:400" in said(page)


def test_measures_are_shown_where_the_same_deals_were_played_twice(folder, written):
    assert "deal by deal" not in said(look(written[1]))
    rewrite_log(folder, lambda rows: [row.update(match=dealt(row["match"])) for row in rows])
    page = look(report(folder, [dealt(match(.9, .8, .95, "heuristic"))]))
    cells = [cell.text for cell in page.iter("td")]
    first = cells.index("points a round")
    assert cells[first - 1:first + 4] == ["heuristic", "points a round", "5.12 (4.50 to 5.75)", "4.50 (4.25 to 4.75)", "+0.62 (+0.25 to +1.00)"]
    assert cells.count("points a round") == 3 and cells.count("exact <i>bids</i>") == 3 and "50.0% (40.0% to 60.0%)" in cells
    assert any(alt.startswith("+0.62 points a round") for alt in images(page))


def test_the_commands_on_the_page_say_what_they_should(written):
    folder, path = written
    lines = [line for block in look(path).iter("pre") for line in (block.text or "").split("\n")]
    shell = [shlex.split(line) for line in lines if line.startswith("alphazero-nb")]
    assert shell == [["alphazero-nb", "play", str(folder)], ["alphazero-nb", "arena", str(folder), "rollouts:400"]]
    board = ast.parse(next(line for line in lines if line.startswith("play("))).body[0].value
    assert ast.literal_eval(board.args[0]) == str(folder) and callable(play)
    call = ast.parse(next(line for line in lines if line.startswith("run = Trainer("))).body[0].value
    assert [ast.literal_eval(argument) for argument in call.args] == ["tictactoe", "tiny", str(folder)]
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    assert ast.literal_eval(given["seed"]) == 0 and ast.literal_eval(given["simulations"]) == 8
    settings = {keyword.arg: ast.literal_eval(keyword.value) for keyword in given["train_settings"].keywords}
    assert TrainSettings(**settings) == QUICK


def continued(folder):
    "The arguments of the Trainer on the page, as keywords."
    line = next(line for block in look(report(folder)).iter("pre") for line in (block.text or "").split("\n") if "Trainer(" in line)
    return {keyword.arg: ast.unparse(keyword.value) for keyword in ast.parse(line).body[0].value.keywords}


def test_a_run_is_continued_with_all_its_settings(folder):
    "The learning rate's plan, the searches, and settings that are the defaults of the class but not of the game."
    play_settings = SelfPlaySettings(SearchSettings(8, worlds=3, proofs=False), full_search_fraction=.5, keep_subtree=False)
    train_settings = replace(QUICK, cooldown=(100, 200), baseline="heuristic")
    plan, config = json.loads((folder / "manifest.json").read_text())["plan"], json.loads((folder / "config.json").read_text())
    change(folder / "manifest.json", plan=dict(plan, **asdict(play_settings)))
    change(folder / "config.json", settings=dict(config["settings"], **asdict(train_settings)))
    given = continued(folder)
    assert eval(given["play_settings"]) == play_settings and eval(given["train_settings"]) == train_settings
    cards = SelfPlaySettings(SearchSettings(20, worlds=2))
    blob = dict(config, game="blob(players=3,cards=2)", settings=asdict(TrainSettings()))
    page = _how_part(Run(folder, blob, get_game(blob["game"]), dict(plan=asdict(cards))), "run")
    assert "play_settings=SelfPlaySettings(search=SearchSettings(simulations=20))" in page and "train_settings=TrainSettings()" in page


def test_a_run_resumed_with_other_settings_shows_them(folder):
    Trainer("tictactoe", folder=folder, train_settings=replace(QUICK, batch_size=64), **SMALL).fit(iterations=1)
    config = json.loads((folder / "config.json").read_text())
    assert "batch_size=64" in continued(folder)["train_settings"] and (config["game"], config["seed"]) == ("tictactoe", 0)


def test_the_commands_name_the_file_of_the_rules(folder, monkeypatch):
    config = json.loads((folder / "config.json").read_text()) | dict(game="nim(stones=15)")
    file = Path(__file__).resolve().parents[2]/"examples"/"nim.py"
    import_rules(file)
    monkeypatch.chdir(file.parent)
    page = _how_part(Run(folder, config, get_game("nim(stones=15)"), {}), "run")
    assert "alphazero-nb play run --rules nim.py" in page and page.count("import_rules(&#x27;nim.py&#x27;)") == 2


def test_a_page_that_cannot_be_written_is_one_sentence(folder):
    (folder / "report.html").mkdir()
    with pytest.raises(ValueError) as caught: report(folder)
    assert str(caught.value) == f"{folder / 'report.html'} cannot be written: Is a directory."


def test_a_run_that_has_just_started(tmp_path):
    write_json(tmp_path / "config.json", dict(game="connect4", preset="small", seed=0))
    page = look(report(tmp_path))
    assert "No iteration has ended yet" in said(page) and not images(page) and "run.fit" in said(page)


def test_a_run_that_has_nothing_to_learn_from(tmp_path):
    Trainer("tictactoe", folder=tmp_path / "r", train_settings=TrainSettings(games_per_iteration=4, evaluate_every=0),
            play_settings=SelfPlaySettings(full_search_fraction=.001), **SMALL).fit(iterations=1)
    alts = images(look(report(tmp_path / "r")))
    assert "No losses yet" in alts and "No matches yet" in alts


def test_a_network_of_ones_own(tmp_path):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy, self.value = nn.Linear(GAME.observation_size, 9), nn.Linear(GAME.observation_size, 2)

        def forward(self, x): return self.policy(x.flatten(1)), self.value(x.flatten(1)).tanh()
    Trainer("tictactoe", folder=tmp_path / "r", network=Own(), train_settings=QUICK, **dict(SMALL, preset="custom")).fit(iterations=1)
    page = look(report(tmp_path / "r"))
    assert "network=your_network" in said(page) and "alphazero-nb play" not in said(page) and len(images(page)) == 4


def test_a_game_that_is_not_known_here(folder):
    change(folder / "config.json", game="halma<b>(size=9)")
    page = look(report(folder))
    last = read_run(folder).records[-1]
    assert "The rules of halma<b>(size=9) are not known here" in said(page) and str(last.actions.tolist()) in said(page)
    assert "Trainer(" not in said(page)


def test_measured_layouts_are_shown(folder):
    rows = [dict(name=name, evals_per_s=rate, evals_per_s_low=rate / 2, evals_per_s_high=2 * rate)
            for name, rate in (("single thread", 2000.0), ("$processes<i>", 3000.0))]
    write_json(folder / "layout.json", dict(machine={}, layout={}, measured=rows))
    page = look(report(folder))
    assert "The fastest layout evaluates 1.5 times as many positions as the slowest" in images(page)
    cells = [cell.text for cell in page.iter("td")]
    first = cells.index("$processes<i>")
    assert cells[first:first + 4] == ["$processes<i>", "3,000", "1,500 to 6,000", "single thread"]
    write_json(folder / "layout.json", dict(machine={}, layout={}, measured=[]))
    assert "Speed of layouts" not in _settings_part(read_run(folder))


HOSTILE = ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "&lt;b&gt; ' \" `", "$\\frac{",
           "a\u202eb\x00\x1b[31m", "]]><!--", "{0} {config} %s", "; rm -rf ~ #", "x" * 5000]


def test_names_from_a_stranger_are_only_names(folder):
    config = json.loads((folder / "config.json").read_text())
    settings = dict(config["settings"], baseline=HOSTILE[0], **{word: word for word in HOSTILE})
    write_json(folder / "config.json", dict(config, settings=settings))
    def name(rows): rows[:] = [dict(rows[0], match=dict(rows[0]["match"], opponent=word, player=word)) for word in HOSTILE]
    rewrite_log(folder, name)
    matches = [row["match"] for row in read_saved(folder).rows()]
    change(folder / "manifest.json", plan=dict({word: {word: [word]} for word in HOSTILE}, search=HOSTILE[0]))
    page = look(report(folder, matches))
    for word in HOSTILE:
        shown = "".join(letter if letter.isprintable() else "�" for letter in word)[:200]
        assert sum(shown in (cell.text or "") for cell in page.iter("td")) >= 5, word


def test_a_stranger_s_game_name_is_no_command(folder):
    change(folder / "config.json", game="connect4; rm -rf ~")
    page = look(report(folder))
    assert not [block for block in page.iter("pre") if "rm -rf" in (block.text or "")]


def test_a_deep_nest_is_cut(folder):
    text = (folder / "manifest.json").read_text().strip()
    (folder / "manifest.json").write_text(text[:-1] + ',"plan":' + '{"a":' * 90 + "1" + "}" * 91)
    assert "a.a.a.a" in [cell.text for cell in look(report(folder)).iter("td")]


@pytest.mark.parametrize("plan", ['{"a":' * 470 + "1" + "}" * 470, '"\\ud800"'])
def test_text_that_no_program_can_pass_on_is_damage(folder, plan):
    text = (folder / "manifest.json").read_text().strip()
    (folder / "manifest.json").write_text(f'{text[:-1]},"plan":{plan}}}')
    with pytest.raises(ValueError, match="manifest.json is damaged: it is not JSON"): report(folder)


def test_escaped_and_visible():
    assert html_text("a<b>&\"'") == "a&lt;b&gt;&amp;&quot;&#x27;" and html_text("a\u202eb\x07") == "a�b�"
    assert len(html_text("x" * 1000)) == 301


# Damage


def rewrite_log(folder, edit):
    "Changes the rows of the log and its hash, as a stranger could."
    rows = [json.loads(line) for line in (folder / "iterations.jsonl").read_text().splitlines()]
    edit(rows)
    log = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / "iterations.jsonl").write_bytes(log)
    change(folder / "manifest.json", log_bytes=len(log), log_sha256=hashlib.sha256(log).hexdigest())


def rewrite_games(folder, edit):
    "Changes the newest games and their hash, as a stranger could."
    arrays = read_arrays(folder / "games/000002.npz")
    edit(arrays)
    sha256 = write_arrays(folder / "games/000002.npz", arrays)
    rewrite_log(folder, lambda rows: rows[-1].update(sha256=sha256))


def rewrite_rows(folder, which, **values): rewrite_log(folder, lambda rows: rows[-1][which].update(values))


def pickled(folder):
    class Bad:
        def __reduce__(self): return (print, ("code ran",))
    np.savez(folder / "games/000002.npz", length=np.array([Bad()], object))
    sha256 = hashlib.sha256((folder / "games/000002.npz").read_bytes()).hexdigest()
    rewrite_log(folder, lambda rows: rows[-1].update(sha256=sha256))


def elsewhere(folder):
    "A whole file of games with its right hash, beside the run and not in it."
    (folder / "games/000002.npz").rename(folder.parent / "secret.npz")
    (folder / "games/000002.npz").symlink_to(folder.parent / "secret.npz")


def cut(arrays):
    "Takes the last move of the last game away."
    games = split_records(arrays)
    last = games[-1]
    parts = {name: getattr(last, name)[:-1] for name in ("actions", "movers", "values", "policy_offsets")}
    end = parts["policy_offsets"][-1]
    parts |= dict(policy_actions=last.policy_actions[:end], policy_visits=last.policy_visits[:end])
    arrays.update(join_records([*games[:-1], replace(last, **parts)]))


def half(path): path.write_bytes(path.read_bytes()[:len(path.read_bytes()) // 2])


def no_archive(folder):
    (folder / "games/000002.npz").write_bytes(b"PK\x03\x04 nothing")
    rewrite_log(folder, lambda rows: rows[-1].update(sha256=hashlib.sha256(b"PK\x03\x04 nothing").hexdigest()))


def negative(arrays): arrays["length"][:2] = -1, arrays["length"][:2].sum() + 1


BACKWARDS = dict(name="a", evals_per_s=1, evals_per_s_low=2, evals_per_s_high=3)
DAMAGE = dict(
    no_folder=lambda f: shutil.rmtree(f),
    no_run=lambda f: (f / "config.json").unlink(),
    half_config=lambda f: half(f / "config.json"),
    config_list=lambda f: (f / "config.json").write_text("[1, 2]"),
    config_folder=lambda f: ((f / "config.json").unlink(), (f / "config.json").mkdir()),
    config_deep=lambda f: (f / "config.json").write_text('{"a":' * 100_000),
    game_number=lambda f: change(f / "config.json", game=4),
    seed_text=lambda f: change(f / "config.json", seed="0); import os"),
    strange_preset=lambda f: change(f / "config.json", preset="enormous"),
    half_manifest=lambda f: half(f / "manifest.json"),
    manifest_without_matches=lambda f: (f / "manifest.json").write_text(json.dumps({"iteration": 1})),
    seconds_text=lambda f: change(f / "manifest.json", seconds="<b>"),
    iteration_nan=lambda f: change(f / "manifest.json", iteration=math.nan),
    history_text=lambda f: rewrite_rows(f, "done", policy_loss="1"),
    history_infinite=lambda f: rewrite_rows(f, "done", value_loss=math.inf),
    history_of_words=lambda f: rewrite_rows(f, "done", seconds="1"),
    history_without_a_number=lambda f: rewrite_rows(f, "done", iteration="<b>"),
    newer_format=lambda f: change(f / "manifest.json", format=99),
    score_seven=lambda f: rewrite_rows(f, "match", score=7),
    interval_backwards=lambda f: rewrite_rows(f, "match", low=.9, high=.1),
    measure_words=lambda f: rewrite_rows(f, "match", measures={"points": "many"}),
    measure_short=lambda f: rewrite_rows(f, "match", **dealt({}, theirs=[1.0])),
    measure_text=lambda f: rewrite_rows(f, "match", **dealt({}, theirs=["1", "2", "3"])),
    measure_backwards=lambda f: rewrite_rows(f, "match", **dealt({}, theirs=[1.0, 2.0, 0.0])),
    opponent_number=lambda f: rewrite_rows(f, "match", opponent=3),
    games_elsewhere=elsewhere,
    games_half=lambda f: half(f / "games/000002.npz"),
    games_pickled=pickled,
    games_no_archive=no_archive,
    games_without_outcome=lambda f: rewrite_games(f, lambda a: a.pop("outcome")),
    games_too_short=lambda f: rewrite_games(f, lambda a: a.update(actions=a["actions"][:-1])),
    games_negative_length=lambda f: rewrite_games(f, negative),
    games_strange_seat=lambda f: rewrite_games(f, lambda a: a["movers"].__setitem__(0, 9)),
    games_strange_result=lambda f: rewrite_games(f, lambda a: a["outcome"].__setitem__(0, 50)),
    games_illegal=lambda f: rewrite_games(f, lambda a: a["actions"].__setitem__(slice(None), 4)),
    games_cut=lambda f: rewrite_games(f, cut),
    games_of_words=lambda f: rewrite_games(f, lambda a: a.update(movers=a["movers"].astype("U1"))),
    network_missing=lambda f: max(f.glob("network-*.npz")).unlink(),
    network_half=lambda f: half(max(f.glob("network-*.npz"))),
    layout_text=lambda f: write_json(f / "layout.json", dict(measured=[dict(name="a", evals_per_s="fast")])),
    layout_backwards=lambda f: write_json(f / "layout.json", dict(measured=[BACKWARDS])))


def test_deleted_games_are_not_shown_and_do_not_matter(folder):
    (folder / "games/000002.npz").unlink()
    assert "2 iterations, 32 games" in said(look(report(folder))) and len(read_run(folder).records) == 16


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_one_sentence(folder, kind, capfd):
    DAMAGE[kind](folder)
    with pytest.raises(ValueError) as raised: report(folder)
    sentence = str(raised.value)
    assert "\n" not in sentence and 10 < len(sentence) < 400 and sentence.endswith(".")
    assert not (folder / "report.html").exists() and "code ran" not in capfd.readouterr().out
