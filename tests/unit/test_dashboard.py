"The dashboard: plain state, one HTML, few redraws, and in a real kernel a picture that lives and then stays."
import gc
import html
import re
import tracemalloc
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from dataclasses import replace

import pytest

from alphazero_nb.core.events import (EngineStatus, GameFinished, IterationDone, MatchMoved, MatchPlayed, Message,
                                      NodesStatus, PhaseStarted, RunDone, RunStarted, StepsTaken, WorkerLost, WorkerStarted, JsonLines, describe_keeps)
from alphazero_nb.core.intervals import elo
from alphazero_nb.ui.dashboard import (Allowance, Dashboard, DashboardState, Line, Place, bar_chart, big_numbers, elo_point, game_picture,
                                       line_chart, render, render_part, result_words)
from alphazero_nb.ui import dashboard as page
from alphazero_nb.ui.progress import describe
from alphazero_nb.ui.widgets import PageWidgets
from notebook_kernel import HTML, NEW_PAGE, VIEW, answer, say
from test_progress import AWAY, SAMPLES


def words(page):
    "What a person reads in some HTML."
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def pictures(page):
    "The SVG pictures of some HTML, parsed, which fails if one is not well-formed."
    return [ElementTree.fromstring(b64decode(data)) for data in re.findall(r'data:image/svg\+xml;base64,([^"]*)', page)]


# The state and its picture ----------------------------------------------------------------------

@pytest.mark.parametrize("first", [None, *SAMPLES], ids=lambda event: type(event).__name__)
def test_events_come_in_any_order(first):
    state = DashboardState()
    for event in ([first] if first else []) + SAMPLES[::-1] + SAMPLES:
        state(event)
        assert words(render(state)).strip()
        pictures(render(state))


def test_an_empty_state_has_a_picture():
    assert "no game has ended yet" in words(render(DashboardState()))


def test_what_comes_from_outside_is_only_text():
    evil, state = '<script>alert("x")</script>', DashboardState()
    for event in (RunStarted(evil, evil, evil, evil, minutes=1), Message(evil), WorkerStarted(0, evil, evil, evil, 1.), WorkerLost(1, evil, 0, 0),
                  GameFinished(0, 1, 2, 1, 9, (1., -1.), 1., 9, evil), MatchPlayed(evil, evil, .5, .4, .6, 9, 1), MatchMoved(evil, evil, 1, 2, 3),
                  EngineStatus(1., 2., 3., 4., .5, 6, {evil: dict(evals_per_s=1.)}, evil),
                  NodesStatus({evil: evil}, 1., 2., 3.)): state(event)
    page = render(state)
    assert "<script" not in page and words(page).count(evil) >= 5
    assert not any("script" in element.tag for picture in pictures(page) for element in picture.iter())


def test_the_bars_show_the_run_and_its_present_phase(tmp_path):
    now = 100.
    state = DashboardState(clock=lambda: now)
    state(RunStarted("connect4", "small", "cpu", str(tmp_path), minutes=4))
    now = 160.
    state(GameFinished(0, 10, 40, 10, 9, (1., -1.), 5., 9, "cpu"))
    assert "1:00 of 4:00" in words(render(state)) and "3:00 left" in words(render(state)) and render(state).count("width:25.0%") == 2
    state(StepsTaken(1, 90, 1., 1., done=30, total=60))
    assert "learning: step 30 of 60" in words(render(state)) and "self-play: 10" not in words(render(state))
    state(MatchMoved("run", "rollouts:100", 3, 40, 99))
    assert "match with rollouts:100: 3 of 40 games finished" in words(render(state))
    for name in ("judging", "saving", "self-play", "something new"):
        state(PhaseStarted(name))
        assert f"● {name}" in " ".join(words(render(state)).split()) and "1:00 of 4:00" in words(render(state)), "the bar of the run stays"
    now = 200.
    state(RunDone(3, "run", True))
    now = 900.
    assert "1:40 of 4:00" in words(render(state)) and "left" not in words(render(state)), "time stands still after the end"


def places(page):
    "The tags of some HTML without its text: what takes room, and how much."
    return [re.sub(r'src="[^"]*"|alt="[^"]*"| title="[^"]*"|width:[\d.]+%|background:#\w+|color:#\w+', "", tag) for tag in re.findall(r"<[^/][^>]*>", page)]


def test_nothing_moves_while_phases_change_and_time_passes(tmp_path):
    now = 0.
    state = DashboardState(clock=lambda: now)
    state(RunStarted("tictactoe", "tiny", "cpu", str(tmp_path), minutes=4))
    seen = []
    for event in (PhaseStarted("self-play"), GameFinished(0, 10, 40, 10, 9, (1., -1.), 5., 9, "cpu"), StepsTaken(1, 90, 1., 1., done=30, total=60),
                  PhaseStarted("match"), MatchMoved("run", "random", 3, 40, 99), PhaseStarted("judging"), PhaseStarted("saving"), Message("A note.")):
        now += 10.
        state(event)
        seen.append(places(render_part(state, 0)))
    assert all(one == seen[0] for one in seen)
    before = render_part(state, 1)
    state(IterationDone(1, 60., 256, 900, 1.9, .8, 30., {}, [.8, .7, .9, 100], dict(random=.5)))
    after = render_part(state, 1)
    for part in ("Strength", "Loss"): assert part in words(before) and part in words(after)
    assert before.count("height:110px") == 2 and words(before).index("Strength") < words(before).index("Loss")


def test_a_run_ends_once_and_a_call_of_self_play_does_not_end_it(tmp_path):
    state = DashboardState()
    state(RunStarted("tictactoe", "tiny", "cpu", str(tmp_path), minutes=4))
    state(SAMPLES[1])
    assert state.ended == "" and "left" in words(render(state)) and "stop button" in words(render(state))
    state(RunDone(3, "run"))
    assert state.ended.startswith("Done.") and "left" not in words(render(state)) and "stop button" not in words(render(state))
    alone = DashboardState()
    alone(SAMPLES[1])
    assert alone.ended == describe(SAMPLES[1])


def test_strength_comes_first_and_says_what_others_score():
    state = DashboardState()
    state(RunStarted("connect4", "small", "cpu", "runs/none", minutes=1))
    assert [(value, name) for value, name, *_ in big_numbers(state)] == [("–", "strength"), ("–", "Elo"), ("0", "games")]
    state(IterationDone(1, 30., 256, 900, 1.9, .8, 30., {}, [.61, .56, .66, 300], dict(random=.56, other=.89, wrong="high")))
    state(MatchPlayed("run", "rollouts:100", .75, .6, .86, 40, 1))
    keeps, strength, games = big_numbers(state)
    assert keeps[:3] == ("61%", "keeps the result", "random 56% · other 89%") and "61% of 300 critical positions (56% to 66%)" in keeps[3]
    assert strength[:3] == ("+191 Elo", "above rollouts:100", "+70 to +315") and games[:3] == ("256", "games", "900 positions to learn from")
    assert "random (56)" in words(render(state)) and "rollouts:100" in words(render(state))
    state(MatchPlayed("run", "rollouts:100", 1., .91, 1., 40, 2))
    assert big_numbers(state)[1][:3] == ("≥ +402 Elo", "above rollouts:100", "won every game")
    state(MatchPlayed("run", "rollouts:100", 0., 0., .09, 40, 3))
    assert big_numbers(state)[1][0] == "≤ -402 Elo"


def test_a_new_call_has_its_own_speed():
    state = DashboardState()
    for k in range(40): state(GameFinished(k, k, 40, k + 1, 9, (1., -1.), (k + 1.), 9, "cpu"))
    state(EngineStatus(90., 900., 9., 9., .5, 0, {}))
    for k in range(20): state(GameFinished(k, k, 40, k + 1, 9, (1., -1.), (k + 1) / 10, 9, "cpu"))
    assert re.search(r"self-play: 19 of 40 games, (9|10)\.\d/s", words(render(state))), "the status of the last call says nothing about this one"


def test_the_last_game_is_a_picture_with_a_caption():
    page = game_picture(("tictactoe", 0, (0, 3, 1, 4, 2)))
    picture, = pictures(page)
    assert "Last game: 5 moves, the first player won" in words(page) and 'alt="Last game: 5 moves, the first player won"' in page
    assert sum(element.tag.endswith("circle") for element in picture.iter()) == 2, "two noughts"
    state = DashboardState()
    state(GameFinished(0, 1, 2, 1, 9, (1., -1.), 1., 9, "cpu"))
    for record in ((), ("no such game", 0, (1, 2)), ("tictactoe", 0, (0, 0)), ("tictactoe", 0, ())):
        state(EngineStatus(1., 2., 3., 4., .5, 6, {}, "x o <b>", 0., record))
        assert "x o <b>" in words(render(state)) and len(pictures(render(state))) == 0, "text, if there is no picture"
    state(EngineStatus(1., 2., 3., 4., .5, 6, {}, "x o", 0., ("tictactoe", 0, (0, 3, 1, 4, 2))))
    state(EngineStatus(1., 2., 3., 4., .5, 6, {}))
    assert len(pictures(render(state))) == 1, "a call that has just begun leaves the last game there"
    assert [result_words(outcome) for outcome in ([1, -1], [-1, 1], [0, 0], [.5], [1, 0, -1])] == [
        "the first player won", "the second player won", "drawn", "result +0.50", "results +1.00 / +0.00 / -1.00"]


def test_two_runs_are_laid_over_each_other(tmp_path):
    file = JsonLines(tmp_path / "other run" / "events.jsonl")
    for k in range(1, 5): file(IterationDone(k, 60. * k, 9 * k, 9, 2 / k, 1 / k, 3., {}, [.6, .5, .7, 100]))
    file(MatchPlayed("other", "rollouts:100", .7, .6, .8, 40, 4))
    state = DashboardState(compare=tmp_path / "other run")
    state(IterationDone(1, 30., 256, 900, 1.9, .8, 30., {}, [.8, .75, .84, 300]))
    state(MatchPlayed("run", "rollouts:100", .5, .4, .6, 40, 1))
    strength, loss, elo_chart = pictures(render(state))
    for chart, count in ((strength, 1), (loss, 2), (elo_chart, 1)):
        assert sum(element.get("stroke-dasharray") == "6 4" for element in chart.iter()) == count
    seen = words(render(state))
    assert all(name in seen for name in ("other run policy", "other run value", "other run against rollouts:100")) and "4 min" in seen


def test_a_folder_that_is_away_stands_at_the_top_until_it_is_back(tmp_path):
    state, away = DashboardState(), AWAY
    for event in (RunStarted("connect4", "small", "cpu", str(tmp_path)), StepsTaken(8, 90, 1., 1., done=60, total=60), away): state(event)
    seen = words(render(state))
    assert describe(away) in seen and "Finished games are kept" not in seen, "a stop keeps no games then"
    assert seen.index("Waiting for the folder") < seen.index("learning: step 60 of 60")
    state(replace(away, seconds=43., back=True))
    seen = words(render(state))
    assert "Waiting for" not in seen and seen.index("is back after 0:43. The run goes on.") > seen.index("learning") and "Finished games are kept" in seen
    for event in (away, RunDone(7, "run", True, unsaved=31)): state(event)
    seen = words(render(state))
    assert "Waiting for" not in seen and "31 games of the next one are not saved" in seen


def test_every_worker_has_its_bar():
    state = DashboardState()
    for k in range(30): state(GameFinished(k, k, 99, k + 1, 9, (1., -1.), k / 9 + 1, 9 * k, f"worker {k % 3} cuda:{k % 3}"))
    state(EngineStatus(4., 900., 9., 9., .5, 0, {f"worker {k} cuda:{k}": dict(evals_per_s=300. * k, memory_gb=3., memory_total_gb=16.,
                                                                              utilisation=70) for k in range(4)}))
    seen = words(render(state))
    assert "worker 2 cuda:2: 10 games, 600 evaluations/s, 3.0 of 16 GB, 70% busy" in seen
    assert "worker 3 cuda:3: 0 games, 900 evaluations/s" in seen


def test_a_node_with_several_devices_has_one_bar():
    state, sources = DashboardState(), [f"worker {k} n{k // 2}:ab12 gpu{k % 2}" for k in range(4)]
    for k in range(40): state(GameFinished(k, k, 99, k + 1, 9, (1., -1.), k / 9 + 1, 9 * k, sources[k % 4]))
    state(EngineStatus(4., 900., 9., 9., .5, 0, {source: dict(evals_per_s=100. * (k + 1)) for k, source in enumerate(sources)}))
    state(NodesStatus({source: source.split()[2] for source in sources}, 1.5, 7., None))
    seen = words(render(state))
    assert "n0:ab12: 20 games, 300 evaluations/s, gpu0, gpu1" in seen and "n1:ab12: 20 games, 700 evaluations/s, gpu0, gpu1" in seen
    assert "2 nodes, weights 1.5 versions old, games 7.0 MB." in seen and "worker" not in seen
    assert f"width:{300 / 7:.1f}%" in render(state) and "width:100.0%" in render(state)


def test_a_resumed_run_has_its_earlier_curves(tmp_path):
    file = JsonLines(tmp_path / "events.jsonl")
    for k in range(1, 9): file(IterationDone(k, 60. * k, 9 * k, 9, 2 / k, 1 / k, 3.))
    file(MatchPlayed("run", "rollouts:100", .7, .6, .8, 40, 5))
    state = DashboardState()
    state(RunStarted("connect4", "small", "cpu", str(tmp_path), iteration=6, games=54, iterations=3))
    assert sorted(state.iterations) == [1, 2, 3, 4, 5, 6] and len(state.matches) == 1   # 7 and 8 were never saved
    assert "iteration 6" in words(render(state)) and "0 of 3 iterations" in words(render(state)) and big_numbers(state)[2][0] == "54"
    assert len(pictures(render(state))) == 2


def test_strength_has_a_line_for_each_opponent():
    state = DashboardState()
    for k in (1, 2):
        for opponent in ("rollouts:100", "rollouts:400"): state(MatchPlayed("run", opponent, .5, .4, .6, 40, k))
    seen = words(render(state))
    assert "against rollouts:100" in seen and "against rollouts:400" in seen
    assert elo(.5) == 0 and round(elo(10 / 11)) == 400 and elo_point(MatchPlayed("a", "b", 1., .9, 1., 40)) == (elo(.9),) * 3


def heights(picture, color):
    "Where the first line of a colour runs, pixels from the top."
    path = next(e.get("d") for e in picture.iter() if e.tag.endswith("path") and e.get("stroke") == color and "L" in e.get("d"))
    return [float(pair.split()[1]) for pair in path[1:].split("L")]


def test_what_both_made_of_the_same_deals_has_a_chart_for_each_measure():
    state, even = DashboardState(), dict(difference=[0., -1., 1.])
    for k, (mine, theirs) in enumerate([(2., 8.), (4., 8.), (8., 8.)]):
        row = lambda times: dict(even, mine=[times * mine] * 3, theirs=[times * theirs] * 3)
        state(MatchPlayed("run", "heuristic", .4, .3, .5, 40, k + 1, {
            "points a round": dict(row(1), share=False), "exact <b>bids</b>": dict(row(.1), share=True)}))
    elo_chart, points, bids = pictures(render(state))
    seen = words(render(state))
    assert all(part in seen for part in ("points a round", "this run", "heuristic", "exact <b>bids</b> (%)", "80", "against heuristic"))
    for chart in (points, bids):   # From 2 to 8, and from 20 to 80 percent
        mine, theirs = heights(chart, page.BLUE), heights(chart, page.ORANGE)
        assert mine == [page.HEIGHT - 6, pytest.approx(page.HEIGHT - 6 - (page.HEIGHT - 12) / 3, abs=.1), 6] and theirs == [6] * 3
    state(MatchPlayed("run", "random", .9, .8, 1., 40, 4))
    assert len(pictures(render(state))) == 1, "the newest opponent was met on other deals"


def test_several_players_have_results_and_two_have_winners():
    seen = []
    for outcomes in ([(1., -1.), (0., 0.), (1., -1.), (-1., 1.)], [(1., -.5, -1.), (.5, -.5, 0.)]):
        state = DashboardState()
        for k, outcome in enumerate(outcomes): state(GameFinished(k, k, 9, k + 1, 9, outcome, k + 1., 9, "cpu"))
        seen.append(words(render(state)))
    assert "50% / 25% / 25%" in seen[0] and "won by seat / drawn" in seen[0] and "mean result" not in seen[0]
    assert "+0.75 / -0.50 / -0.50" in seen[1] and "mean result by seat" in seen[1] and "won by seat" not in seen[1]


@pytest.mark.parametrize("ys", [[], [1.], [0., 0.], [1e-9, 1e9], [None, 2.], [float("nan"), 1.], [float("inf"), 1.], [-5., 5.]])
def test_odd_numbers_are_drawn_all_the_same(ys):
    drawn = line_chart([Line("a", "red", list(range(len(ys))), ys)], "Title")
    if not any(y is not None and y == y and abs(y) < float("inf") for y in ys):
        assert "no data yet" in words(drawn) and "height:110px" in drawn
        return
    chart, = pictures(drawn)
    ends = [float(number) for element in chart.iter() if element.tag.endswith("path")
            for number in re.findall(r"-?\d+\.?\d*", element.get("d"))]
    assert all(0 <= number <= page.WIDTH for number in ends)
    ElementTree.fromstring(bar_chart({int(y): k for k, y in enumerate(ys, 1) if y is not None and abs(y) < 1e6}, "Title", "moves"))


def test_an_axis_begins_where_its_data_begin_and_says_so():
    chart = line_chart([Line("policy", "red", [2., 4., 6.], [1.9, 1.5, 1.4])], "Loss", levels={"random": 2.5})
    seen = words(chart).split()
    assert "axis from 1.4" in words(chart) and seen.index("2.5") < seen.index("1.4") < seen.index("2") < seen.index("6")
    assert heights(pictures(chart)[0], "red")[-1] == page.HEIGHT - 6
    assert "axis from" not in words(line_chart([Line("elo", "red", [1., 2.], [-40, 60])], "Elo"))


def test_the_values_of_a_point_are_the_title_of_its_field():
    lines = [Line("policy", "red", [1., 2., 4.], [1.9, 1.5, 1.25]), Line("elo", "blue", [2.], [50.], [20.], [80.])]
    fields = re.findall(r'<span title="([^"]*)" style="width:([\d.]+)%"', line_chart(lines, "Title"))
    assert [html.unescape(title).split("\n") for title, _ in fields] == [
        ["1 min", "policy 1.9"], ["2 min", "policy 1.5", "elo 50 (20 to 80)"], ["4 min", "policy 1.2"]]
    assert sum(float(width) for _, width in fields) == pytest.approx(100, abs=.05)
    many = line_chart([Line("a", "red", list(range(1000)), list(range(1000)))], "Title")
    assert 30 <= many.count("<span title") <= 60
    assert 'alt="Title: policy from 1.9 to 1.2, elo from 50 to 50"' in line_chart(lines, "Title")


def channel(part): return part / 12.92 if part <= .04045 else ((part + .055) / 1.055) ** 2.4
def luminance(color): return sum(weight * channel(part / 255) for weight, part in zip((.2126, .7152, .0722), color))


def test_text_stands_out_in_every_theme():
    "Colours are those of the page, fainter by the opacity of small text; lines and bars need three to one."
    opacity = float(re.search(r"opacity:([\d.]+)", page.SMALL)[1])
    for text, behind in (((33,) * 3, (255,) * 3), ((222,) * 3, (17,) * 3), ((213,) * 3, (30,) * 3), ((204,) * 3, (31,) * 3)):   # JupyterLab, Colab, VS Code
        mixed = [opacity * a + (1 - opacity) * b for a, b in zip(text, behind)]
        light, dark = sorted((luminance(mixed), luminance(behind)), reverse=True)
        assert (light + .05) / (dark + .05) >= 4.5
        for color in (page.BLUE, page.ORANGE, page.GREEN, page.GREY):
            light, dark = sorted((luminance([int(color[k:k + 2], 16) for k in (1, 3, 5)]), luminance(behind)), reverse=True)
            assert (light + .05) / (dark + .05) >= 3
    state = DashboardState()
    for event in SAMPLES: state(event)
    assert not re.findall(r"[;\"]color:(?!inherit)", re.sub(r'<span style="color:#\w+">[●┄╌]</span>', "", render(state))), "only marks have colours of their own"
    assert min(int(size) for size in re.findall(r"font-size:(\d+)px", render(state))) >= 12


# How often --------------------------------------------------------------------------------------

def test_ten_thousand_events_in_a_second_cost_few_redraws():
    now = 0.
    allowance = Allowance(clock=lambda: now)
    taken = 0
    for now in (k / 10_000 for k in range(10_000)): taken += allowance.take(passing=int(now * 10_000) % 100 > 0)
    assert taken <= 6


def test_over_a_minute_there_are_two_redraws_a_second_whatever_comes():
    for passing in (True, False):
        now = 0.
        allowance = Allowance(clock=lambda: now)
        taken = 0
        for now in (k / 100 for k in range(6000)): taken += allowance.take(passing)
        assert 115 <= taken <= 125


def test_the_last_event_before_a_pause_is_shown():
    now = 0.
    allowance = Allowance(clock=lambda: now)
    for now in (k / 100 for k in range(1000)): allowance.take(passing=True)
    assert allowance.take(passing=False)


def test_the_time_is_divided():
    state = DashboardState()
    assert "Time:" not in render(state)
    spent = {"self-play": 6., "optimiser steps": 3., "saving": 1.}
    for k in (1, 2): state(IterationDone(k, 30. * k, 256 * k, 900, 1.9, .8, 30., spent))
    assert "Time: self-play 60%, optimiser steps 30%, saving 10%" in render(state)
    state(IterationDone(3, 90., 768, 900, 1.9, .8, 30., {"<b>": "long", "saving": -1, 5: None}))
    assert "Time: self-play 60%" in render(state) and "<b>" not in render(state)


def test_the_judge_has_a_line_and_a_curve():
    state = DashboardState()
    for k, keeps in ((1, None), (2, [.8, .75, .84, 300]), (3, None), (4, [.9, .86, .93, 300])):
        state(IterationDone(k, 30. * k, 256 * k, 900, 1.9, .8, 30., {}, keeps))
        page = render(state)
        assert ("The agent keeps" in page) == ("keeps the result (%)" in page) == (k > 1)
    assert "The agent keeps the result in 90% of 300 critical positions (86% to 93%), where some move gives it away." in page
    assert "axis from 75" in words(page) and "93" in words(page).split(), "from 0 on, the curve of a good agent is a flat line"
    for wrong in ("<b>", [.9], [.9, .95, .97, 300], [.9, .8, 1.1, 300], [True, 0, 1, 3], [.9, .8, float("nan"), 3], {"a": 1}):
        state(IterationDone(5, 150., 1280, 900, 1.9, .8, 30., {}, wrong))
        assert describe_keeps(wrong) == "" and "90% of 300" in render(state)
        state(IterationDone(4, 120., 1024, 900, 1.9, .8, 30., {}, [.9, .86, .93, 300], wrong))
        assert "<b>" not in render(state)


def test_a_run_to_compare_with_must_be_there(tmp_path):
    with pytest.raises(ValueError, match="compare: there is no run in"): Dashboard(compare=tmp_path / "typo")
    assert Dashboard(compare=tmp_path).compare == tmp_path


def test_redraws_leave_no_memory():
    state = DashboardState()
    for k in range(2000): state(GameFinished(k, k, 9999, k + 1, 9 + k % 30, (1., -1.), k / 30 + .1, 90 * k, "cpu"))
    for k in range(1, 100): state(IterationDone(k, 30. * k, 256 * k, 900 * k, 1.9 * .95 ** k, .8 * .96 ** k, 30.))
    for _ in range(10): render(state)
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for k in range(50):
            state(EngineStatus(k / 2, 26_000., 580., 127.6, .93, 1, {"cpu": dict(evals_per_s=2e4)}, "x" * 100))
            render(state)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 50_000   # One page is some 20 kB, 200 would be 4 MB
    finally: tracemalloc.stop()


# In a kernel ------------------------------------------------------------------------------------

CELL = """
import time
from alphazero_nb.core.events import GameFinished
from alphazero_nb.core.registry import get_game
from alphazero_nb.selfplay.engine import SelfPlayEngine
game = get_game("connect4")
engine = SelfPlayEngine(game, None, device="cpu", layout="threads", threads=1, simulations=200, games=32)
def take_time(event): isinstance(event, GameFinished) and time.sleep(.01)   # So 200 games are two seconds on any machine
engine.events.listeners.append(take_time)
"""


def in_widgets(cell):
    "The HTML that widgets have shown while this cell ran."
    return [state["outputs"][0]["data"][HTML] for state in cell.carried if state.get("outputs")]


def by_place(cell):
    "What each place of the page showed, [(kind, data)], the places from top to bottom: head, plots, games, heads of folds, folds."
    found = {}
    for kind, place, data in cell.shown: found.setdefault(place, []).append((kind, data))
    return list(found.values())


def last_page(cell): return "".join(shown[-1][1].get(HTML, "") for shown in by_place(cell))


def test_a_call_is_alive_in_a_widget_and_then_stays_as_html(kernel):
    pytest.importorskip("ipywidgets")
    kernel.run(CELL + NEW_PAGE + "page_widgets.ask()")
    answer(kernel)
    cell = kernel.run("engine.generate_games(300);")
    assert cell.out == "" and cell.err == "", "a dashboard prints nothing"
    assert len(by_place(cell)) == 5
    for (first, begun), *later in by_place(cell):
        assert first == "display_data" and VIEW in begun
        assert [kind for kind, _ in later] == ["update_display_data"] and HTML in later[0][1]
    assert "300 games in" in words(last_page(cell)) and "Throughput: " in words(last_page(cell))
    heads, seconds = [page for page in in_widgets(cell) if "self-play" in words(page)], cell.seconds
    assert 1 <= len(heads) <= 2 * seconds + 5
    again = kernel.run("engine.generate_games(20);")          # The next cell has places of its own
    assert again.shown[0][0] == "display_data" and not {place for _, place, _ in again.shown} & {place for _, place, _ in cell.shown}
    loop = kernel.run("for _ in range(3): engine.generate_games(20)")   # Calls of one cell share theirs
    assert [kind for kind, *_ in loop.shown].count("display_data") == 5 and "20 games in" in words(last_page(loop))


def assert_plain(cell):
    "No widget that shows something was opened. The head was replaced at most twice a second, that of a fold never before the end."
    assert len(by_place(cell)) == 5
    for (first, _), *later in by_place(cell): assert first == "display_data" and {kind for kind, _ in later} <= {"update_display_data"}
    assert all(HTML in data and VIEW not in data for _, _, data in cell.shown) and in_widgets(cell) == []
    assert not any("value" in state or "children" in state for state in cell.carried)
    head, plots, games, fold, inside = map(len, by_place(cell))
    assert (2 if cell.seconds > 1 else 1) <= head <= 2 * cell.seconds + 5 and plots <= 2 and games <= cell.seconds / 10 + 3   # What is the same is not sent again
    assert fold <= 2 and inside <= cell.seconds / 2 + 3


@pytest.mark.parametrize("accept", [None, False], ids=["no answer", "refused"])
def test_until_the_page_has_answered_a_call_is_alive_in_plain_html(kernel, accept):
    pytest.importorskip("ipywidgets")
    kernel.run(CELL + "engine.generate_games(1);" + NEW_PAGE + "page_widgets.ask()")   # What must be compiled is compiled now
    if accept is not None: answer(kernel, accept)
    cell = kernel.run("engine.generate_games(200);")
    assert_plain(cell)
    seen = [words(data[HTML]) for _, data in by_place(cell)[0]]
    assert "no game has ended yet" in seen[0] or "of 200 games" in seen[0]
    pages = [data[HTML] for _, data in by_place(cell)[0]]
    assert "200 games in" in seen[-1] and all(one != after for one, after in zip(pages, pages[1:])), "what has not changed is not sent again"


def test_a_widget_manager_that_arrives_late_is_asked_again(kernel):
    pytest.importorskip("ipywidgets")
    kernel.run(CELL + NEW_PAGE + "page_widgets.ask()")
    answer(kernel, accept=False)
    assert_plain(kernel.run("engine.generate_games(100);"))
    answer(kernel, accept=False)
    control = dict(comm_id="control", target_name="jupyter.widget.control", data={})
    say(kernel, "comm_open", control, dict(version="1.0.0"))
    say(kernel, "comm_msg", dict(comm_id="control", data=dict(method="request_states")))
    answer(kernel)
    cell = kernel.run("engine.generate_games(250);")   # A call of a third of a second shows only its last picture
    assert VIEW in cell.shown[0][2] and in_widgets(cell) and "250 games in" in words(last_page(cell))


def test_a_page_answers_for_itself_only(monkeypatch):
    pages, shown = PageWidgets(), []
    monkeypatch.setattr(pages, "session", lambda: "second")
    pages.answered("first")
    assert not pages.work()
    pages.waiting.append(lambda: shown.append("board"))
    pages.answered("second")
    assert pages.work() and shown == ["board"]
    pages.ask(lambda: shown.append("at once"))
    assert shown == ["board", "at once"] and not pages.waiting


def test_a_stop_leaves_the_last_picture_and_says_what_was_kept(kernel):
    pytest.importorskip("ipywidgets")
    kernel.run(CELL + NEW_PAGE)
    kernel.send("engine.generate_games(10**6)")
    while len(kernel.cell.shown) < 5:   # The places: a moment in which one game may have ended, or many
        message = kernel.client.get_iopub_msg(timeout=900)
        kernel.cell.hear(message["msg_type"], message["content"])
    kernel.interrupt()
    cell = kernel.cell
    assert cell.error.startswith("KeyboardInterrupt")
    kept = int(re.search(r"Stopped\. ([\d,]+) games? had finished and (?:is|are) kept", words(last_page(cell)))[1].replace(",", ""))
    assert kept == int(kernel.run("print(len(engine.leftover()))").out)
    assert ["stop button" in words(data[HTML]) for _, data in by_place(cell)[4]][-2:] == [True, False]


TRAINING = """
from alphazero_nb.training.learner import TrainSettings
from alphazero_nb.training.trainer import Trainer
few = TrainSettings(games_per_iteration=32, batch_size=32, replay_ratio=2, min_replay_ratio=2, evaluate_every=2, evaluate_games=4, match_share=1, baseline="random")
run = Trainer("tictactoe", "tiny", {folder!r}, device="cpu", simulations=16, games=32, max_batch=16, train_settings=few)
"""


def test_training_shows_its_curves_and_goes_on_with_them(kernel, tmp_path):
    pytest.importorskip("ipywidgets")
    cell = kernel.run(TRAINING.format(folder=str(tmp_path / "run")) + "run.fit(iterations=3);")
    assert cell.err == "" and cell.out == ""
    last = last_page(cell)
    assert f"Done. 3 iterations are saved in {tmp_path / 'run'}." in words(last) and len(pictures(last)) in (3, 4), "a status brings the last game"
    assert [kind for kind, *_ in cell.shown].count("display_data") == 5, "a run has the same places, whatever its calls"
    cell = kernel.run(TRAINING.format(folder=str(tmp_path / "run")) + "run.fit(iterations=1);")
    last = last_page(cell)
    kept, losses, strength, *_ = pictures(last)
    games = int(re.search(r"([\d,]+) games \d+ positions", " ".join(words(last).split()))[1].replace(",", ""))
    assert "iteration 4" in words(last) and games >= 128, "some are played ahead"
    assert [len(re.findall(r"h\.01", element.get("d"))) for element in losses.iter() if "h.01" in element.get("d", "")] == [4, 4]


def test_a_wait_for_the_folder_is_shown_and_a_stop_ends_it(kernel, tmp_path):
    pytest.importorskip("ipywidgets")
    folder = tmp_path / "run"
    kernel.run(TRAINING.format(folder=str(folder)) + NEW_PAGE)
    kernel.send("run.fit(iterations=10**6);")

    def hear(words_):
        "Read what the cell shows until these words are there."
        while words_ not in words(last_page(cell)):
            message = kernel.client.get_iopub_msg(timeout=900)
            cell.hear(message["msg_type"], message["content"])
    cell = kernel.cell
    hear("iteration 2")
    folder.rename(tmp_path / "away")
    hear(f"Waiting for the folder {folder}, away for 0:0")
    kernel.interrupt()
    assert re.search(r"Stopped\. \d+ iterations are saved in .* The folder is away, so \d+ games of the next one are not saved;",
                     words(last_page(cell))) and not cell.error and not folder.exists()


def test_an_error_ends_the_picture_too(kernel):
    pytest.importorskip("ipywidgets")
    kernel.run("""
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.selfplay.engine import SelfPlayEngine
class Count:
    def __init__(self, seed): self.moves = 0
    def mover(self): return -1 if self.moves > 5 else self.moves % 2
    def legal(self): return [0, 1]
    def play(self, action):
        self.moves += 1
        if self.moves == 4: raise ZeroDivisionError("a mistake in the rules")
    def returns(self): return [0, 0]
    def observe(self): return [self.moves]
game = PythonGame("count", Count, players=2, actions=2, shape=(1,), max_length=9)
engine = SelfPlayEngine(game, None, device="cpu", layout="threads", simulations=4, games=4)
""")
    cell = kernel.send("engine.generate_games(10)")
    kernel.read()
    assert "a mistake in the rules" in cell.error
    assert "Stopped by an error (GameFailed)" in words(last_page(cell))


def test_without_widgets_the_same_call_prints(kernel):
    hidden = "import sys, ipywidgets\nsys.modules['ipywidgets'] = None\n" + CELL + "sys.modules['ipywidgets'] = ipywidgets\n"
    cell = kernel.run(hidden + "engine.generate_games(50);")
    assert "50 games in" in cell.out and cell.shown == []


def test_a_dashboard_that_fails_is_reported_once_and_the_games_go_on(kernel):
    pytest.importorskip("ipywidgets")
    kernel.run(CELL + """
from alphazero_nb.ui.progress import TextProgress
from alphazero_nb.ui.dashboard import Dashboard
from alphazero_nb.ui import dashboard
broken = Dashboard()
broken.draw = lambda: 1 / 0
engine.events.listeners[:] = [broken, TextProgress()]
""")
    cell = kernel.run("records = engine.generate_games(100); print(len(records))")
    assert cell.out.count("ZeroDivisionError") == 1 and cell.out.rstrip().endswith("100")


def test_shown_by_its_name_it_is_there_again(kernel):
    pytest.importorskip("ipywidgets")
    kernel.run(CELL + "from alphazero_nb.ui.dashboard import Dashboard\nboard = Dashboard()\nengine.events.listeners[:] = [board]")
    kernel.run("engine.generate_games(50);")
    cell = kernel.run("board")
    assert len(cell.shown) == 1 and "50 games in" in words(cell.shown[0][2][HTML])


def test_a_second_start_does_not_show_the_end_of_the_first(tmp_path):
    state = DashboardState()
    state(RunStarted("tictactoe", "tiny", "cpu", str(tmp_path), minutes=1))
    state(RunDone(3, "run"))
    assert "Done" in words(render_part(state, 0))
    state(Message("Compiling…"))
    assert "Compiling…" in words(render_part(state, 0)) and "Done" not in words(render_part(state, 0))


def test_a_run_with_odd_lines_is_drawn(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"event": "IterationDone", "iteration": "2", "seconds": 1, "games": 1, "positions": 1, '
                                           '"policy_loss": 1, "value_loss": 1, "games_per_s": 1}\n')
    state = DashboardState(compare=tmp_path)
    state(RunStarted("tictactoe", "tiny", "cpu", str(tmp_path), 3))
    assert render(state)


def test_a_single_device_repeats_no_count_of_games():
    "The head of the page has the games of the run; those of one call are others."
    state = DashboardState()
    for k in range(30): state(GameFinished(k, k, 99, k + 1, 9, (1., -1.), k / 9 + 1, 9 * k, "cpu"))
    state(EngineStatus(4., 900., 9., 9., .5, 0, dict(cpu=dict(evals_per_s=300.))))
    seen = words(render(state))
    assert "cpu: 300 evaluations/s" in seen and "cpu: 30 games" not in seen


def test_a_redraw_does_not_read_all_iterations_again(monkeypatch):
    "A run of days has tens of thousands of them."
    state, read = DashboardState(), []
    for event in SAMPLES: state(event)
    monkeypatch.setattr(page, "time_shares", lambda rows: read.append(len(rows)) or "")
    for _ in range(3): render_part(state, 3, live=True), render_part(state, 4, live=True)
    assert read == [1]
    state(IterationDone(4, 80., 120, 1500, 1.8, .7, 16.2))
    for _ in range(3): render_part(state, 4, live=True)
    assert read == [1, 2]
    monkeypatch.setattr(page, "_fold_parts", lambda state: 1 // 0)
    assert "Throughput" in render_part(state, 3, live=True)
