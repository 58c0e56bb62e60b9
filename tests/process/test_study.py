"""A study trains, plays, stops, continues and reports; bad input is one sentence, and nothing is lost."""
import itertools
import json
import math
import os
import signal
import sys
import threading
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import broken_games
from alphazero_nb.ablate import Stopped
from alphazero_nb.cli import main
from alphazero_nb.core import registry
from alphazero_nb.core.device import Device
from alphazero_nb.core.help import Failure
from alphazero_nb.core.registry import get_game, import_rules, register
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.lab import study as lab
from alphazero_nb.lab.strong_games import Halted
from alphazero_nb.lab.study import Study, StudyPlan, claim_folder, find_variant, games_of, study
from alphazero_nb.lab.verdict import who_is_ahead

NIM = Path(__file__).resolve().parents[2]/"examples"/"nim.py"
SMALL = (0, 2, 8)   # Strengths


@pytest.fixture(scope="module", autouse=True)
def nim():
    kept = list(sys.path)
    import_rules(NIM)
    yield
    sys.path[:] = kept


QUICK = dict(preset="tiny", train=dict(games_per_iteration=32, batch_size=32), search=dict(simulations=8))   # Learns little, and soon


def prepared(folder, variants=("nim(stones=5)", "nim(stones=4)"), iterations: int = 2, rounds: int = 2, say=lambda text: None) -> Study:
    "A study that takes iterations and rounds, however fast the machine is."
    made = Study(StudyPlan(variants, 10.0, (0, 1), SMALL, iterations, rounds), folder, say)
    made.runs.experiment.settings = lambda name: QUICK
    for key in made.runs: made.runs.trainer(*key).events.listeners[:] = []
    return made


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    made = prepared(folder)
    return made, made.run()


def test_the_result_is_plain_data_with_all_parts(finished):
    made, result = finished
    assert json.loads((made.folder/"result.json").read_text()) == json.loads(json.dumps(result))
    assert result["games"] == 20 and len(result["runs"]) == 4
    assert result["trained_minutes"] == np.mean([run["minutes"] for run in result["runs"]]), "not those that were planned"
    assert result["exact"] == {"nim(stones=5)": "first", "nim(stones=4)": "second"}
    rows = {(row["variant"], row["strength"], row["measure"]) for row in result["rows"]}
    for variant in result["variants"]:
        for strength in SMALL: assert {(variant, strength, name) for name in ("points of seat 0", "draws", "length", "forced moves")} <= rows
        assert (variant, 8, "Elo above random play") in rows and (variant, 8, "Elo of a doubling") in rows
    for row in result["rows"]: assert row["low"] <= row["mean"] <= row["high"] and math.isfinite(row["high"] - row["low"]), row
    assert {row["measure"] for row in result["gaps"]} == {row["measure"] for row in result["rows"] if row["strength"] == 8}


def test_means_are_those_of_the_stored_games(finished):
    "Counted again from the files of the rounds."
    made, result = finished
    for variant in result["variants"]:
        files = sorted(made.folder.glob(f"rounds/{variant.replace('(', '-').replace('=', '-').strip(')')}-*.json"))
        assert len(files) == 4   # Two seeds, two rounds
        games = [game for file in files for game in json.loads(file.read_text())["games"]["8"]]
        row = next(row for row in result["rows"] if (row["variant"], row["strength"], row["measure"]) == (variant, 8, "points of seat 0"))
        assert math.isclose(row["mean"], np.mean([(game["results"][0] + 1) / 2 for game in games]))
        row = next(row for row in result["rows"] if (row["variant"], row["strength"], row["measure"]) == (variant, 8, "length"))
        assert math.isclose(row["mean"], np.mean([len(game["movers"]) for game in games]))


def test_every_round_has_games_of_its_own(finished):
    made, _ = finished
    for key in made.runs:
        one, other = (json.loads(lab._round_file(made, *key, number).read_text())["games"]["0"] for number in range(2))
        assert not {game["seed"] for game in one} & {game["seed"] for game in other}
        assert [game["actions"] for game in one] != [game["actions"] for game in other]


def test_the_page_has_the_verdict_and_no_program(finished):
    made, result = finished
    page = (made.folder/"report.html").read_text(encoding="utf-8")
    assert "<script" not in page and page.count("<img") == 4 and "With perfect play the second player wins." in page
    for said in result["verdict"].values(): assert said[0] in page


def test_a_finished_study_is_read_and_not_played_again(finished, monkeypatch):
    made, result = finished
    monkeypatch.setattr(lab, "play_strong", None)   # Would fail if it were called
    again = prepared(made.folder)
    assert again.run() == result


def test_a_stop_loses_nothing(tmp_path):
    "Ctrl-C after the first round; the same study continues with the games and the agents that it has."
    def stop(text):
        if text.startswith("round 1"): raise KeyboardInterrupt
    with pytest.raises(Stopped, match="the same command continues"): prepared(tmp_path, say=stop).run()
    before = {path: path.read_bytes() for path in tmp_path.glob("rounds/*.json")}
    again = prepared(tmp_path)
    trained = {key: again.runs.trainer(*key).iteration for key in again.runs}
    result = again.run()
    assert len(before) == 4 and set(trained.values()) == {2} and result["games"] == 20
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_stop_in_the_middle_of_a_round_ends_all_threads(tmp_path, monkeypatch, ctrl_c):
    "Ctrl-C while the threads search; a round that had finished is kept."
    made, numbers, begun, whole = prepared(tmp_path, rounds=1), itertools.count(1), [], lab.play_strong

    def play(agent, strength, *rest):
        begun.append(number := next(numbers))   # Of its own, also if both threads are here at once
        if number == 5: os.kill(os.getpid(), signal.SIGINT)   # In the second or third of four rounds
        if number >= 5: assert rest[-1].wait(600), "the other thread was never told to end"
        return whole(agent, strength, *rest)
    monkeypatch.setattr(lab, "play_strong", play)
    monkeypatch.setattr(lab, "usable_cores", lambda: 2)
    with pytest.raises(Stopped, match="the same command continues"): made.run()
    left = [thread for thread in threading.enumerate() if "ThreadPoolExecutor" in thread.name]
    for thread in left: thread.join(600)   # One that was about to start when Ctrl-C came
    kept = {path: path.read_bytes() for path in tmp_path.glob("rounds/*.json")}
    assert not any(thread.is_alive() for thread in left) and len(kept) < 4 and len(begun) < 12, "twelve would be all of them"
    monkeypatch.undo()
    prepared(tmp_path, rounds=1).run()
    assert len([*tmp_path.glob("rounds/*.json")]) == 4 and all(path.read_bytes() == content for path, content in kept.items())


@pytest.mark.parametrize("cores", [1, 2, 5])
def test_the_games_are_the_same_however_many_cores_play_them(tmp_path, monkeypatch, cores):
    monkeypatch.setattr(lab, "usable_cores", lambda: cores)
    made = prepared(tmp_path / str(cores), rounds=3)
    made.train()
    played = lab.play_rounds(made)
    again = {key: lab.play_together(made, [(*key, number) for number in range(3)], 1) for key in made.runs}
    assert played == again and [len(rows) for rows in played.values()] == [3] * 4
    monkeypatch.setattr(lab, "_stored_round", lambda *asked: None)
    for key in made.runs:
        for old, new in zip(played[key], lab.play_together(made, [(*key, number) for number in range(3)], 2)):
            assert {name: old[name] for name in ("games", "steps")} == {name: new[name] for name in ("games", "steps")}


def test_an_error_in_one_thread_ends_the_others_and_is_told(tmp_path, monkeypatch):
    made, whole = prepared(tmp_path, rounds=1), lab.play_steps
    monkeypatch.setattr(lab, "usable_cores", lambda: 2)
    def fail(agent, strengths, games, seed, stop):
        if [*tmp_path.glob("rounds/*.json")]: raise RuntimeError("no memory")   # After the first round
        return whole(agent, strengths, games, seed, stop)
    monkeypatch.setattr(lab, "play_steps", fail)
    with pytest.raises(Failure, match="the study stopped: no memory. What was trained and played is kept"): made.run()
    assert 1 <= len([*tmp_path.glob("rounds/*.json")]) < 4


def test_an_error_is_told_while_an_earlier_round_still_plays(tmp_path, monkeypatch):
    made, stopped = prepared(tmp_path, rounds=1), []
    made.train()
    def play(agent, strengths, seed, network, path, clock, stop):
        if "-0-" not in path.name: raise RuntimeError("no memory")   # The second seed
        stopped.append(stop.wait(600))
        raise Halted
    monkeypatch.setattr(lab, "play_round", play)
    with pytest.raises(RuntimeError, match="no memory"):
        lab.play_together(made, [("nim(stones=5)", 0, 0), ("nim(stones=5)", 1, 0)], 2)
    assert stopped == [True]


def test_short_runs_have_a_tiny_network_and_keep_it(tmp_path):
    plan = lambda minutes, **more: StudyPlan(("tictactoe", "connect4"), minutes, (0, 1), **more)
    assert plan(10.0).run_minutes == 1.875 and set(plan(10.0).presets().values()) == {"tiny"}   # Three quarters, for four runs
    assert set(plan(40.0).presets().values()) == {"small"} == set(plan(10.0, preset="small").presets().values())
    assert StudyPlan(("blob(players=3,cards=2)",), 1.0).presets() == {"blob(players=3,cards=2)": "cards"}
    folder = tmp_path / "study"
    assert claim_folder(plan(10.0), folder) == claim_folder(plan(40.0), folder) == plan(10.0).presets(), "its runs have begun"
    assert claim_folder(plan(40.0), tmp_path / "other") == plan(40.0).presets()
    with pytest.raises(ValueError, match="preset 'huge' is unknown"): plan(10.0, preset="huge")
    stored = json.loads((folder / "study.json").read_text())
    for wrong in ([], "tiny", {"tictactoe": []}, {"other": "tiny"}, None):
        (folder / "study.json").write_text(json.dumps(dict(stored, presets=wrong)))
        assert claim_folder(plan(40.0), folder) == plan(40.0).presets(), "as if none were stored"


def test_more_training_replaces_the_games(tmp_path):
    first = prepared(tmp_path, ("nim(stones=3)",), rounds=1).run()
    before = {path.name: json.loads(path.read_text())["network"] for path in tmp_path.glob("rounds/*.json")}
    prepared(tmp_path, ("nim(stones=3)",), iterations=3, rounds=1).run()
    after = {path.name: json.loads(path.read_text())["network"] for path in tmp_path.glob("rounds/*.json")}
    assert first["games"] == 10 and before.keys() == after.keys() and not set(before.values()) & set(after.values())


def test_the_stored_games_follow_the_rules(finished):
    made, result = finished
    for name in result["variants"]:
        game, rounds = get_game(name), [json.loads(path.read_text()) for path in made.folder.glob("rounds/*.json") if name[-2] in path.name.split("-")[2]]
        for strength in SMALL:
            for played in games_of(rounds, strength):
                state = game.new_match(played.seed)
                for k, action in enumerate(played.actions):
                    legal = game.legal_actions(state)
                    assert action in legal and played.legal[k] == len(legal) and played.movers[k] == game.mover(state)
                    assert 1 <= played.choices[k] <= len(legal) + 1e-3
                    state = game.play(state, action)
                assert game.over(state) and game.returns(state).tolist() == played.results


def test_another_study_in_the_folder_is_refused(tmp_path):
    prepared(tmp_path)
    with pytest.raises(ValueError, match=r"has a study with other variants: .*nim\(stones=5\)', 'nim\(stones=4\).*another folder"): prepared(tmp_path, ("tictactoe",))


def test_a_study_of_other_rules_is_refused(tmp_path, monkeypatch):
    "Its games would answer for rules that they do not follow."
    def last_wins(name): return broken_games.nim(name=name)
    def last_loses(name):
        def returns(state, out): out[state[1]], out[1 - state[1]] = 1, -1
        return broken_games.nim(name=name, returns=returns)
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    register("edited", lambda: last_wins("edited"))
    prepared(tmp_path, ("edited",))
    prepared(tmp_path, ("edited",))
    register("edited", lambda: last_loses("edited"))
    with pytest.raises(ValueError, match="was made with other rules of edited; give this one another folder"): prepared(tmp_path, ("edited",))


class Breaking:
    "Nim in Python whose rules raise from some call on."
    calls, limit = 0, math.inf

    def __init__(self): self.left, self.seat = 4, 0
    def mover(self): return self.seat if self.left else -1
    def legal(self): return list(range(min(2, self.left)))
    def copy(self):
        other = Breaking()
        other.left, other.seat = self.left, self.seat
        return other
    def text(self): return f"{self.left} {self.seat}"
    def returns(self): return [1.0, -1.0] if self.seat else [-1.0, 1.0]
    def observe(self): return np.eye(5, dtype=np.int8)[self.left]
    def play(self, action):
        Breaking.calls += 1
        if Breaking.calls > Breaking.limit: raise IndexError("the heap fell over")
        self.left, self.seat = self.left - action - 1, 1 - self.seat


@pytest.mark.parametrize("iterations", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rules_that_raise_keep_what_was_trained(tmp_path, iterations):
    "In the games (everything is trained), and in the training of the second seed."
    register("breaking", lambda: PythonGame("breaking", lambda seed: Breaking(), players=2, actions=2, shape=(5,), max_length=4))
    Breaking.calls, Breaking.limit = 0, math.inf
    made = prepared(tmp_path, ("breaking",), iterations=1, rounds=1)
    train = made.train
    def limited():
        made.runs.trainer("breaking", 0).fit(iterations=1)
        if iterations == 1: train()
        Breaking.limit = Breaking.calls + 10
        if iterations == 2: train()
    made.train = limited
    with pytest.raises((ValueError, Failure)) as error: made.run()
    assert "the heap fell over" in str(error.value) and "is kept in" in str(error.value) and "\n" not in str(error.value)
    Breaking.limit = math.inf
    result = prepared(tmp_path, ("breaking",), iterations=1, rounds=1).run()
    assert [row["iterations"] for row in result["runs"]] == [1, 1]


def test_too_little_time_for_an_iteration(tmp_path):
    "A run takes one iteration at least. If this is far more than its time, a sentence says how many minutes it takes."
    made = Study(StudyPlan(("nim(stones=5)",), 1e-6, (0, 1), SMALL), tmp_path, lambda text: None)
    with pytest.raises(ValueError, match=r"1e-06 minutes are too short: an iteration of nim.* at least \d+ minutes, or fewer seeds. What was trained is kept"):
        made.run()
    result = prepared(tmp_path, ("nim(stones=5)",), iterations=1, rounds=1).run()
    assert [row["iterations"] for row in result["runs"]] == [1, 1]


@pytest.mark.parametrize("variants, words", [
    (("pig", "2048"), "the same number of players"), (("tictactoe", "tictactoe"), "the same game"), (("tictacto",), "Did you mean 'tictactoe'"),
    (("nothing.py",), "nothing.py is not a Python file")])
def test_variants_that_cannot_be_compared(variants, words):
    with pytest.raises(ValueError, match=words): StudyPlan(tuple(map(find_variant, variants)))


def test_a_preset_that_comes_too_late_changes_nothing(tmp_path):
    plan = lambda **more: StudyPlan(("tictactoe",), 10.0, (0, 1), **more)
    assert claim_folder(plan(), tmp_path) == {"tictactoe": "tiny"}
    with pytest.raises(ValueError, match="began with the preset tiny; leave out preset, or take another folder"):
        claim_folder(plan(preset="small"), tmp_path)
    assert claim_folder(plan(), tmp_path) == claim_folder(plan(preset="tiny"), tmp_path) == {"tictactoe": "tiny"}


@pytest.mark.parametrize("cores, fits", [(16, 6), (2, 1), (3, 2)])   # 3 rounds and then 15 at once; 200 s; twice 100 s
def test_rounds_end_with_their_time(tmp_path, monkeypatch, cores, fits):
    "Three agents whose rounds take 100 s each; 225 s are left for them."
    made = Study(StudyPlan(("nim(stones=5)",), 15.0, (0, 1, 2), SMALL), tmp_path, lambda text: None)
    monkeypatch.setattr(lab, "usable_cores", lambda: cores)
    monkeypatch.setattr(lab, "play_together", lambda study, keys, threads: [dict(seconds=100.0) for _ in keys])
    assert [len(rounds) for rounds in lab.play_rounds(made).values()] == [fits] * 3
    assert lab.end_of_rounds([4, 1, 1, 1, 2], 2) == 5


@pytest.mark.parametrize("given, words", [(dict(minutes=0.0), "minutes is 0.0; it must be above 0"), (dict(seeds=()), "seeds is empty"),
                                          (dict(minutes=math.nan), "minutes is nan"), (dict(seeds=(0, 0)), r"seeds are \(0, 0\); give each one once"),
                                          (dict(strengths=(64, 256)), "give 0 and one or more numbers of simulations, rising"),
                                          (dict(strengths=(0,)), "give 0 and"), (dict(strengths=(0, 64, 16)), "rising"),
                                          (dict(strengths=(0, 1.5)), "an entry of strengths is 1.5"),
                                          (dict(seeds=(-1,)), "an entry of seeds is -1; it must be at least 0"), (dict(rounds=0), "rounds is 0; it must be at least 1"), (dict(iterations=1.5), "iterations is 1.5; it must be a whole number")])
def test_numbers_that_are_none(given, words):
    with pytest.raises(ValueError, match=words): StudyPlan(("tictactoe",), **given)


def test_files_of_rules(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))   # Two of the games cannot be loaded
    assert find_variant(NIM) == find_variant(str(NIM)) == "nim(stones=15)"
    sys.path.insert(0, str(tmp_path))
    (tmp_path/"imported_before.py").write_text("from alphazero_nb.all import get_game, register\ndef make(): return get_game('tictactoe')\n"
                                               "register('imported_before', make)\n")
    import_module("imported_before")
    assert import_rules(tmp_path/"imported_before.py") == ["imported_before"]
    (tmp_path/"rules_without_a_game.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="registers no game"): find_variant(tmp_path/"rules_without_a_game.py")
    (tmp_path/"rules_of_two_games.py").write_text("from alphazero_nb.all import register\nfor name in ('a1', 'a2'): register(name, lambda: None)\n")
    with pytest.raises(ValueError, match="registers a1, a2; run it with --rules"): find_variant(tmp_path/"rules_of_two_games.py")


@pytest.mark.parametrize("words, said", [(["pig", "--variants", "2048"], "same number of players"), (["nothing.py"], "not a Python file"),
                                         (["tictactoe", "--variants", "tictactoe"], "the same game")])
def test_bad_input_of_the_command_is_one_line(words, said, capsys, tmp_path):
    assert main(["study", *words, "--folder", str(tmp_path/"x")]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not (tmp_path/"x").exists()


@pytest.mark.parametrize("name, measure", [pytest.param("race", "points of seat 2", marks=pytest.mark.slow), ("pegs", "result")])
def test_other_numbers_of_players(name, measure, tmp_path):
    "Points of every seat with three players, the result with one."
    import_rules(NIM.with_name(f"{name}.py"))
    result = prepared(tmp_path, (get_game(name).name,), iterations=1, rounds=1).run()
    assert any(row["measure"] == measure and row["strength"] == 8 for row in result["rows"])
    assert all(sentence.endswith(".") for sentence in next(iter(result["verdict"].values())))


@pytest.mark.slow
def test_the_verdict_on_nim(tmp_path):
    "Two minutes find out who wins, and that the heaps differ."
    found = study("nim(stones=15)", ["nim(stones=16)"], minutes=3, seeds=2, folder=tmp_path, say=lambda text: None).data
    ahead = [who_is_ahead([row for row in found["rows"] if row["variant"] == name]) for name in found["variants"]]
    assert ahead == ["first", "second"] and any(row["measure"] == "points of seat 0" and row["low"] > 0 for row in found["gaps"])


def test_variants_whose_names_differ_in_signs_have_folders_of_their_own(tmp_path):
    made = Study(StudyPlan(("go(size=3,komi=3)", "go(size=3,komi=-3)"), 10.0, (0,), SMALL, 1, 1), tmp_path, lambda text: None)
    assert len({made.runs.path(*key) for key in made.runs}) == 2 == len({lab._round_file(made, *key, 0) for key in made.runs})


def test_a_file_runs_again_when_an_edit_is_undone(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.delitem(sys.modules, "undone_rules", raising=False)
    file = tmp_path / "undone_rules.py"
    good = "import broken_games\nfrom alphazero_nb.core.registry import register\nregister('undone', lambda: broken_games.nim(name='undone'))\n"
    file.write_text(good)
    import_rules(file)
    file.write_text("x = (")
    with pytest.raises(SyntaxError): import_rules(file)
    file.write_text(good)
    assert import_rules(file) == ["undone"] and get_game("undone").players == 2


def test_a_file_that_was_imported_and_then_changed_is_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.delitem(sys.modules, "edited_after_import", raising=False)
    file = tmp_path / "edited_after_import.py"
    text = "import broken_games\nfrom alphazero_nb.core.registry import register\nregister('after', lambda: broken_games.nim(name='after', actions={}))\n"
    file.write_text(text.format(3))
    import_module("edited_after_import")
    file.write_text(text.format(4))
    assert import_rules(file) == ["after"] and get_game("after").actions == 4


def broken_answer(error):
    def answer(game): raise error
    return answer


def test_rules_that_fail_in_the_report_are_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "exact_answer", broken_answer(IndexError("the heap fell over")))
    with pytest.raises(Failure, match="the study stopped: the heap fell over"): prepared(tmp_path, ("nim(stones=3)",), 1, 1).run()
    monkeypatch.setattr(lab, "exact_answer", broken_answer(KeyboardInterrupt()))
    with pytest.raises(Stopped, match="the same command continues them"): prepared(tmp_path, ("nim(stones=3)",), 1, 1).run()


@pytest.mark.parametrize("spoil", [lambda found: found["games"].pop("8"), lambda found: found["games"]["8"][0].pop("results"),
                                   lambda found: found["steps"][0].pop("scores"), lambda found: found.update(seconds="1 s"),
                                   lambda found: found.update(games=[1]), lambda found: found.update(steps=3)])
def test_a_round_that_lacks_something_is_played_again(finished, tmp_path, spoil):
    file = next((finished[0].folder / "rounds").glob("*.json"))
    found = json.loads(file.read_text())
    path = tmp_path / "round.json"
    path.write_text(json.dumps(found))
    assert lab._stored_round(path, found["network"], SMALL) == found and lab._stored_round(path, "another", SMALL) is None
    spoil(found)
    path.write_text(json.dumps(found))
    assert lab._stored_round(path, found["network"], SMALL) is None


def test_every_game_of_a_study_can_have_its_network():
    with pytest.raises(ValueError, match="anysize needs a board.*connect4"): StudyPlan(("tictactoe", "connect4"), preset="anysize")


def test_a_study_needs_a_game_whose_seats_are_taken():
    with pytest.raises(ValueError, match="there is no game to study"): StudyPlan(())
    with pytest.raises(ValueError, match="leaves seats empty in some games"): StudyPlan(("blob(players=5,cards=3,deals=all)",))
    StudyPlan(("blob(players=3,cards=2)",))


def test_the_refusal_of_a_folder_names_what_differs(tmp_path):
    claim_folder(StudyPlan(("tictactoe",)), tmp_path)
    with pytest.raises(ValueError, match=r"has a study with other strengths: \[0, 4"): claim_folder(StudyPlan(("tictactoe",), strengths=(0, 8)), tmp_path)
    with pytest.raises(ValueError, match=r"other seeds: \[0, 1, 2\]"): claim_folder(StudyPlan(("tictactoe",), seeds=(3, 4, 5)), tmp_path)


def test_an_apple_gpu_plays_one_round_at_a_time(tmp_path, monkeypatch):
    made, seen = Study(StudyPlan(("nim(stones=5)",), 15.0, (0, 1, 2), SMALL), tmp_path, lambda text: None), set()
    for key in made.runs:
        object.__setattr__(made.runs.trainer(*key).plan, "device", Device("mps", "Apple GPU", "float32", "float32", False, False))
    monkeypatch.setattr(lab, "usable_cores", lambda: 8)
    monkeypatch.setattr(lab, "play_together", lambda study, keys, threads: seen.add(threads) or [dict(seconds=100.0) for _ in keys])
    lab.play_rounds(made)
    assert seen == {1}


def test_a_study_in_the_home_folder_lies_in_one_place(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "USERPROFILE"): monkeypatch.setenv(name, str(home))
    monkeypatch.chdir(tmp_path)
    made = Study(StudyPlan(("tictactoe",), seeds=(0,)), "~/study", say=lambda text: None)
    assert made.folder == made.runs.folder == home / "study" and (home / "study" / "study.json").exists()
    (home / "homely_rules.py").write_text("")
    assert import_rules("~/homely_rules.py") == [] and not (tmp_path / "~").exists()


def test_a_failure_in_a_study_is_no_bad_input(tmp_path, monkeypatch, capsys):
    def fail(error):
        def train(study): raise error
        monkeypatch.setattr(Study, "train", train)
    fail(Failure("the heap fell over."))
    assert main(["study", "tictactoe", "--seeds", "1", "--folder", str(tmp_path / "s")]) == 1
    assert "the study stopped: the heap fell over" in capsys.readouterr().err
    fail(OSError("no space left on device"))
    assert main(["study", "tictactoe", "--seeds", "1", "--folder", str(tmp_path / "s")]) == 2


@pytest.mark.parametrize("name", ["report.html", "result.json", "config.json"])
def test_a_study_leaves_the_files_of_others_alone(tmp_path, name):
    "`report.html` of a run, for example."
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=f"{name} but no study; give this one a folder of its own"): claim_folder(StudyPlan(("tictactoe",)), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == "mine"
