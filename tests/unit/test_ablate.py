"Experiments: settings are checked before anything starts, runs take turns, and a stopped experiment goes on."
import json, math
from types import SimpleNamespace

import numpy as np
import pytest

from alphazero_nb import ablate
from alphazero_nb.arena.judge import draw_positions, solve_positions
from alphazero_nb.arena.players import RandomPlayer
from alphazero_nb.arena.solvers import get_solver
from alphazero_nb.cli import main
from alphazero_nb.core.events import RunDone
from alphazero_nb.core.registry import get_game
from alphazero_nb.ablate import (GAMES, Experiment, Laboratory, Points, Results, Runs, Stopped, compare, experiment_table, pack,
                                 plot_experiment, points_row, read_experiment, seed_spread, set_names, trainer_arguments, unpack)
from alphazero_nb.ui.plots import to_png

GAME = get_game("tictactoe")


def small(**changes):
    variants = {"more steps": dict(train=dict(replay_ratio=16))}
    control = dict(preset="mlp", train=dict(games_per_iteration=32, batch_size=32), search=dict(simulations=4),
                   play=dict(fast_simulations=4))
    return dict(game="tictactoe", minutes=.005, seeds=[0], simulations=[1, 4], games=4, per_phase=20, variants=variants,
                control=control) | changes


@pytest.fixture
def write(tmp_path):
    "Return a function that writes an experiment and returns the path of the file."
    states = draw_positions(GAME, range(0, 6), 30, RandomPlayer(GAME), seed=1)
    solve_positions([get_solver(GAME)], states, np.arange(30) % 2, ("one", "two")).save(tmp_path / "set.npz")

    def write(**changes):
        path = tmp_path / "experiment.json"
        path.write_text(json.dumps(small(**changes)))
        return path
    return write


BAD = {
    "a misspelt setting": (dict(variants={"a": {"train": {"replay_ration": 4}}}), "Did you mean 'replay_ratio'"),
    "an unknown group": (dict(variants={"a": {"trian": {}}}), "Did you mean 'train'"),
    "a name that no file can have": (dict(control={"train": {"baseline": "x" * 300}}), "control: The baseline cannot play"),
    "a bad value": (dict(variants={"a": {"play": {"random_start_fraction": 2}}}), "random_start_fraction is 2"),
    "a group without settings": (dict(control={"train": 4}), "must be an object"),
    "a network that is no name": (dict(control={"preset": {}}), "must be a name"),
    "an unknown field": (dict(minuts=3), "'minuts' is unknown"),
    "no time": (dict(minutes=0), "minutes is 0"),
    "no seeds": (dict(seeds=[]), "needs a seed and a variant"),
    "no variants": (dict(variants={}), "needs a seed and a variant"),
    "two controls": (dict(variants={"control": {}}), "no variant may be called control"),
    "an unknown game": (dict(game="conect4"), "Did you mean 'connect4'"),
    "a game with hidden cards": (dict(game="blob"), "hidden information"),
    "a set that is not there": (dict(positions=["none.npz"]), "none.npz is missing"),
    "positions of another game": (dict(game="connect4", control={}, positions=["set.npz"]), "positions of tictactoe"),
    "time that is a text": (dict(minutes="many"), "experiment.json: "),
    "variants in a list": (dict(variants=["a"]), "experiment.json: variants is ('a',); it must be an object"),
    "a variant that is a number": (dict(variants={"a": 4}), "experiment.json: a: the entry is 4; it must be an object"),
    "an unknown network": (dict(variants={"a": {"preset": "smal"}}), "a: preset 'smal' is unknown"),
    "a network of one's own": (dict(control={"preset": "custom"}), "control: preset 'custom' is unknown"),
    "an unknown player": (dict(control={"train": {"baseline": "randm"}}), "control: The baseline cannot play: player 'randm'"),
    "a text for a number": (dict(control={"train": {"learning_rate": "fast"}}), "control: learning_rate is 'fast'; it must be a number"),
    "a number for a switch": (dict(control={"play": {"keep_subtree": 3}}), "control: keep_subtree is 3; it must be true or false"),
    "a text for a switch": (dict(variants={"a": {"play": {"int8": "no"}}}), "a: int8 is 'no'; it must be true or false"),
    "a switch for a number": (dict(control={"train": {"batch_size": True}}), "control: batch_size is True; it must be a whole number"),
    "half a position": (dict(control={"train": {"batch_size": 1.5}}), "batch_size is 1.5; it must be a whole number"),
    "more than fits": (dict(control={"train": {"batch_size": 10**9}}), "batch_size is 1000000000; it must be at most 65,536"),
    "far more games": (dict(control={"train": {"games_per_iteration": 10**20}}), "games_per_iteration is 100000000000000000000;"),
    "a number beyond all": (dict(control={"search": {"c_puct": 10**400}}), "control: c_puct is 1000"),
    "no number": (dict(control={"search": {"c_puct": math.nan}}), "control: c_puct is nan"),
    "search inside play": (dict(control={"play": {"search": {"simulations": 4}}}), "control: play has no setting 'search'"),
    "a search of a variant": (dict(variants={"a": {"search": {"worlds": 64}}}), "a: worlds is 64; it must be between 1 and 63"),
    "time without end": (dict(minutes=1e308), "minutes is 1e+308; it must be at most 1,000,000"),
    "no time at all": (dict(turn=math.nan), "turn is nan"),
    "half a game": (dict(games=.5), "games is 0.5; it must be a whole number"),
    "a seed that is a text": (dict(seeds=["a"]), "an entry of seeds is 'a'; it must be a whole number"),
    "a large seed": (dict(seeds=[2**63]), "an entry of seeds is 9223372036854775808; it must be at most"),
    "a negative seed": (dict(seeds=[-1]), "an entry of seeds is -1; it must be at least 0"),
    "a seed twice": (dict(seeds=[1, 1]), "seeds has an entry twice"),
    "seeds that are no list": (dict(seeds=4), "seeds is 4; it must be a list"),
    "no simulations": (dict(simulations=[]), "simulations is empty"),
    "a search of nothing": (dict(simulations=[0]), "an entry of simulations is 0; it must be at least 1"),
    "positions in a text": (dict(positions="set.npz"), "positions is 'set.npz'; it must be a list"),
    "positions that are a number": (dict(positions=[5]), "an entry of positions is 5; it must be a text"),
    "a set twice": (dict(positions=["set.npz", "set.npz"]), "positions has an entry twice"),
    "a name without end": (dict(variants={"x" * 100: {}}), "needs a name of 1 to 80 characters"),
    "a name with line breaks": (dict(variants={"a\nb": {}}), "it must be at most 1,000 printable characters"),
    "one folder for two": (dict(variants={"a b": {}, "a-b": {}}), "two variants have the same settings"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_one_sentence_and_starts_nothing(what, write, tmp_path, capsys):
    changes, words = BAD[what]
    assert main(["ablate", str(write(**changes)), "--folder", str(tmp_path / "runs")]) == 2
    printed = capsys.readouterr()
    assert words in printed.err and printed.err.count("\n") == 1 and not printed.out and not (tmp_path / "runs").exists()


@pytest.mark.parametrize("text", ["", "[]", "{\"game\": \"tictactoe\"}", "no json"])
def test_a_file_that_is_no_experiment_is_one_sentence(text, tmp_path):
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(ValueError, match="file.json"): read_experiment(tmp_path / "file.json")


def test_a_variant_changes_only_what_it_names():
    experiment = Experiment("tictactoe", 1, {"b": {"train": {"replay_ratio": 2}, "search": {"c_puct": 1}}},
                            {"preset": "mlp", "train": {"learning_rate": .01}})
    control, variant = (trainer_arguments(GAME, experiment.settings(name)) for name in experiment.names)
    assert control["preset"] == variant["preset"] == "mlp" and control["play_settings"].search.c_puct == 1.5
    assert (control["train_settings"].replay_ratio, variant["train_settings"].replay_ratio) == (6, 2)
    assert control["train_settings"].learning_rate == variant["train_settings"].learning_rate == .01
    assert variant["play_settings"].search.c_puct == 1 and control["train_settings"].evaluate_every == 0


class SlowAndFast(Runs):
    "Runs that only pretend to train: an iteration of `slow` takes 70 seconds, one of the others 10."
    def trainer(self, name, seed):
        if (name, seed) not in self.found:
            run = SimpleNamespace(seconds=0.0, iteration=0, games=0, events=SimpleNamespace(listeners=[]), turns=[],
                                  planned=set(), progress=SimpleNamespace(release=lambda: None))
            run.fit = lambda minutes, planned_minutes: (
                run.planned.add(planned_minutes), self.fit(run, 70 if name == "slow" else 10, minutes))
            self.found[name, seed] = run
        return self.found[name, seed]

    def fit(self, run, seconds, minutes):
        start = run.seconds
        while run.seconds - start + seconds / 2 <= 60 * minutes or run.seconds == start:
            run.seconds, run.iteration = run.seconds + seconds, run.iteration + 1
        run.turns.append(run.seconds - start)
        for listen in run.events.listeners: listen(RunDone(run.iteration, "", stopped=getattr(self, "stop", False)))


def test_runs_take_turns_and_get_the_same_time(tmp_path):
    seen, runs = [], SlowAndFast(Experiment("tictactoe", 10, {"slow": {}}, turn=2), tmp_path, print)
    runs.say = lambda text: seen.append([run.seconds for run in runs.found.values()])
    runs.train()
    assert len(runs.found) == 6 and all(abs(run.seconds - 600) <= 35 for run in runs.found.values())
    assert all(len(run.turns) >= 5 for run in runs.found.values())
    assert all(run.planned == {10} for run in runs.found.values()), "the learning rate falls once, not in every turn"
    assert all(max(row) - min(row) <= 120 + 70 for row in seen)   # Never more than a turn apart
    runs.train()
    assert len(seen) == sum(len(run.turns) for run in runs.found.values())   # Nothing is left to do


def test_a_stop_ends_the_experiment(tmp_path):
    runs = SlowAndFast(Experiment("tictactoe", 10, {"slow": {}}), tmp_path, lambda text: None)
    runs.stop = True
    with pytest.raises(Stopped, match="continues them"): runs.train()
    assert sum(len(run.turns) for run in runs.found.values()) == 1


def test_a_stop_before_the_first_game_ends_the_experiment_too(tmp_path):
    runs = SlowAndFast(Experiment("tictactoe", 10, {"slow": {}}), tmp_path, lambda text: None)
    runs.fit = lambda run, seconds, minutes: None   # It returns without a word
    with pytest.raises(Stopped, match="continues them"): runs.train()


def test_an_experiment_is_trained_judged_and_played(write, tmp_path, capsys):
    path, folder = write(positions=["set.npz"]), tmp_path / "runs"
    assert main(["ablate", str(path), "--folder", str(folder), "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result == json.loads((folder / "result.json").read_text())
    assert (folder / "plot.png").read_bytes()[1:4] == b"PNG"
    assert {row["name"] for row in result["runs"]} == {"control", "more steps"}
    assert all(row["iterations"] and row["steps"] for row in result["runs"])
    assert printed.err.count("judging") == 4 and printed.err.count("against the control") == 1
    judged = [row for row in result["rows"] if row["measure"] == "set, 4 simulations"]
    assert {row["phase"] for row in judged} == {"one", "two", "all"}
    for row in judged: assert 0 <= row["mean"] <= 1 and row["low"] <= row["difference"] <= row["high"]
    laboratory = Laboratory(read_experiment(path), folder)
    agent, found = laboratory.runs.agent("control", 0, 4), laboratory.sets["set"]
    kept = np.mean([found.keeps([agent.act(state)] * len(found))[i] for i, state in enumerate(found.states)])
    control, = [row["mean"] for row in judged if (row["name"], row["phase"]) == ("control", "all")]
    assert kept == pytest.approx(control)

    (tmp_path / "letter").write_text("mine")
    (folder / "plot.png").unlink()
    (folder / "plot.png").symlink_to(tmp_path / "letter")
    assert main(["ablate", str(path), "--folder", str(folder)]) == 0   # Nothing is trained or asked again
    assert (tmp_path / "letter").read_text() == "mine" and (folder / "plot.png").read_bytes()[1:4] == b"PNG", "links are replaced"
    again = capsys.readouterr().out
    assert "judging" not in again and "games of" not in again and "set, network alone" in again
    write_games = small(positions=[str(tmp_path / "set.npz")], games=6)
    path.write_text(json.dumps(write_games))
    assert main(["ablate", str(path), "--folder", str(folder)]) == 0   # Nothing is judged anew
    assert "judging" not in (more := capsys.readouterr().out) and "6 games of more steps" in more


def test_dollar_signs_in_the_name_of_a_set_are_no_formula():
    row = dict(measure="cost$1_$, 4 simulations", phase="all", name="a", difference=0.0, low=-.1, high=.1)
    assert to_png(plot_experiment(dict(rows=[row])))


def make_set(path, seed, count=40):
    "Write solved positions."
    states = draw_positions(GAME, range(0, 6), count, RandomPlayer(GAME), seed=seed)
    solve_positions([get_solver(GAME)], states, np.arange(count) % 2, ("one", "two")).save(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    "An experiment that has been judged by set.npz, and its folder."
    folder = tmp_path_factory.mktemp("laboratory")
    make_set(folder / "set.npz", 1)
    (folder / "experiment.json").write_text(json.dumps(small(positions=["set.npz"], games=2)))
    Laboratory(read_experiment(folder / "experiment.json"), folder / "runs", lambda text: None).run()
    return folder


def shares(folder, runs, **changes):
    "What the laboratory says about the control, by measure and phase, and what it asked."
    (folder / "experiment.json").write_text(json.dumps(small(games=2, **changes)))
    asked = []
    laboratory = Laboratory(read_experiment(folder / "experiment.json"), runs, asked.append)
    rows = [row for name in laboratory.sets for row in laboratory.judged(name, 4)]
    right = {(name, phase): np.mean([found.keeps([agent.act(state) for state in found.states])[here].mean()])
             for name, found in laboratory.sets.items() for agent in [laboratory.runs.agent("control", 0, 4)]
             for phase, here in [*((p, found.phase == i) for i, p in enumerate(found.phases)), ("all", np.full(len(found), True))]}
    return {(row["measure"].removesuffix(", 4 simulations"), row["phase"]): row["mean"] for row in rows
            if row["name"] == "control"}, right, asked


def test_another_file_of_the_same_name_is_asked_anew(trained):
    "Answers to the old positions were compared with the results of the new ones."
    found, right, asked = shares(trained, trained / "runs", positions=["set.npz"])
    assert found == pytest.approx(right) and not asked
    make_set(trained / "set.npz", 2)
    found, right, asked = shares(trained, trained / "runs", positions=["set.npz"])
    assert found == pytest.approx(right) and len(asked) == 2
    make_set(trained / "set.npz", 1)
    assert not shares(trained, trained / "runs", positions=["set.npz"])[2], "the first answers are still there"


def test_files_of_one_name_in_two_folders_are_two_sets(trained):
    for seed, name in ((1, "weak"), (3, "strong")):
        (trained / name).mkdir(exist_ok=True)
        make_set(trained / name / "set.npz", seed)
    found, right, asked = shares(trained, trained / "runs", positions=["weak/set.npz", "strong/set.npz"])
    assert found == pytest.approx(right) and {name for name, _ in found} == {"weak/set.npz", "strong/set.npz"}
    assert set_names(["a/x.npz", "b/y.npz"]) == ["x", "y"] and set_names(["a/b/x.npz", "a/x.npz"]) == ["b/x.npz", "x.npz"]


def test_a_run_that_was_trained_anew_is_asked_anew(trained):
    "A run of as many iterations had the answers of the run that was deleted."
    make_set(trained / "set.npz", 1)
    (trained / "experiment.json").write_text(json.dumps(small(positions=["set.npz"], games=2)))
    laboratory = Laboratory(read_experiment(trained / "experiment.json"), trained / "runs", lambda text: None)
    key, run = laboratory.key("control", 0), laboratory.runs.trainer("control", 0)
    run.folder.checkpoint.networks[run.iteration] = "0" * 64
    assert laboratory.key("control", 0) != key


@pytest.mark.parametrize("stored", ["xyz", "", "ff", 4, None, {}, "ff" * 100])
def test_damaged_answers_are_one_sentence(stored, trained):
    make_set(trained / "set.npz", 1)
    (trained / "experiment.json").write_text(json.dumps(small(positions=["set.npz"], games=2)))
    laboratory = Laboratory(read_experiment(trained / "experiment.json"), trained / "runs", lambda text: None)
    laboratory.results.found = dict.fromkeys(laboratory.results.found, stored)
    with pytest.raises(ValueError, match="answers.json is damaged .*delete it"): laboratory.answers("control", 0, "set", 4)
    with pytest.raises(ValueError, match="answers.json is damaged .*delete it"): laboratory.points("more steps", 0)


def test_other_settings_are_another_run(tmp_path):
    runs = Runs(Experiment("tictactoe", 1, {"a b/c": {}}), tmp_path)
    others = Runs(Experiment("tictactoe", 1, {"a b/c": {"train": {"replay_ratio": 2}}}), tmp_path)
    assert runs.path("a b/c", 0) != others.path("a b/c", 0) and runs.path("control", 0) == others.path("control", 0)
    assert runs.path("a b/c", 0).parent.parent == tmp_path


@pytest.mark.parametrize("content", [b"[1", b"[" * 200_000, b'{"a": ' * 200_000, b"\xff\xfe", b"7", b"null", b"[[1]]"])
def test_damaged_results_are_one_sentence(content, tmp_path):
    (tmp_path / "answers.json").write_bytes(content)
    with pytest.raises(ValueError, match="judged again"): Results(tmp_path / "answers.json")


def test_bits_survive_packing():
    rng = np.random.default_rng(0)
    for count in range(1, 40):
        bits = rng.random(count) < .5
        assert (unpack(pack(bits), count) == bits).all()


def test_the_spread_of_seeds_is_that_of_a_textbook():
    a, b = [1.0, 2.0, 4.0], [3.0, 3.0, 6.0]   # Variances 7/3 and 3; Student's factor for 4 degrees of freedom: 2.7764451
    assert seed_spread([a, b]) == pytest.approx(2.7764451 * math.sqrt((7 / 3 + 3) / 2 / 3))
    assert math.isnan(seed_spread([[1.0], [2.0]]))
    row = compare([np.full(2000, x / 10) for x in a], [np.full(2000, x / 10) for x in b], .5)
    assert row["difference"] == pytest.approx(-1 / 6) and row["high"] - row["low"] == pytest.approx(math.sqrt(2))


def test_with_one_seed_the_positions_are_paired():
    rng = np.random.default_rng(1)
    mine, control = rng.random(400) < .9, rng.random(400) < .9
    row, gaps = compare([mine], [control], math.nan), mine.astype(float) - control
    assert row["difference"] == pytest.approx(gaps.mean())
    assert (row["high"] - row["low"]) / 2 == pytest.approx(1.96 * gaps.std(ddof=1) / 20, rel=.05)
    twice = compare([np.tile(mine, 2)], [np.tile(control, 2)], math.nan, np.tile(np.arange(400), 2))
    assert twice == pytest.approx(row), "a position that repeats counts once"


def test_no_difference_is_known_exactly():
    "Three seeds that agree in everything had an interval without width."
    right, half = [np.ones(50)] * 3, [Points([.5] * 20, list(range(20)), 40, 40)] * 3
    row = compare(right, right, seed_spread([[1., 1., 1.]] * 2))
    assert row["low"] < -.003 and .003 < row["high"]
    row = points_row("a", half, seed_spread([[.5] * 3]))
    assert row["low"] < -.01 and .01 < row["high"] and row["difference"] == 0
    once = points_row("a", [Points([1.] * 200, [0] * 200, 400, 2)], math.nan)
    assert once["low"] < -.25 and (once["games"], once["different"]) == (400, 2)
    control = dict(measure=GAMES, phase="all") | once
    table = experiment_table(dict(rows=[control], runs=[]))
    assert "points against the control; a: 400 games, 2 different" in table
    assert f"100.0% ± {-100 * once['low'] + 50:.1f}" in table, "half of the interval would exclude a half"


def test_a_sample_is_spread_over_each_phase(write, tmp_path):
    write()
    from alphazero_nb.arena.judge import read_positions
    found = read_positions(tmp_path / "set.npz", GAME)
    part = found.sample(5)
    assert np.bincount(part.phase).tolist() == [5, 5] and len(found.sample(1000)) == 30
    rows = [np.flatnonzero((found.states == state).all(1))[0] for state in part.states]
    assert rows == [0, 6, 12, 18, 24, 1, 7, 13, 19, 25]


def test_a_run_that_rests_holds_no_positions(tmp_path):
    "Fifteen runs of chess held 8 GB, although only one of them trained at a time."
    usual = dict(preset="mlp", train=dict(games_per_iteration=32, batch_size=32), search=dict(simulations=4))
    plan = Experiment("tictactoe", .005, {"b": dict(train=dict(replay_ratio=2))}, control=usual, seeds=(0,))
    runs = Runs(plan, tmp_path, lambda text: None)
    runs.train()
    assert len(runs.found) == 2 and all(len(run.replay) == 0 < run.replay.added for run in runs.found.values())
    again = Runs(plan, tmp_path, lambda text: None)
    for (name, seed), run in runs.found.items():
        there = again.trainer(name, seed)
        assert (len(there.replay), there.replay.added, there.iteration) == (0, run.replay.added, run.iteration)
        there.fit(iterations=1)
        assert len(there.replay) == there.replay.added > run.replay.added, "it reads its positions before it goes on"


@pytest.mark.parametrize("name", ["result.json", "plot.png", "config.json"])
def test_a_folder_with_results_of_others_is_left_alone(tmp_path, name):
    "A folder of an experiment has its answers, or at least its result."
    (tmp_path / name).write_text("[1]")
    with pytest.raises(ValueError, match=name): ablate.require_own_folder(tmp_path)
    (tmp_path / "answers.json").write_text("{}")
    ablate.require_own_folder(tmp_path)


def test_a_folder_with_the_result_of_an_experiment_is_its_own(tmp_path):
    ablate.require_own_folder(tmp_path)
    for name, text in (("plot.png", ""), ("result.json", json.dumps(dict(experiment={}, rows=[])))): (tmp_path / name).write_text(text)
    ablate.require_own_folder(tmp_path)
