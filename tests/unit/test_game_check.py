"""Mistakes in a first game: what the check says of each, and what training does with it."""
import os
import subprocess
import sys
import threading
from itertools import count

import numpy as np
import pytest
from numba import njit

from alphazero_nb.core import game_check
from alphazero_nb.core.game import Game
from alphazero_nb.core.game_check import ContractError
from alphazero_nb.core.registry import _registry, get_game
from alphazero_nb.core.game_check import CallTrace, check_game, check_in_process, check_new_rules
from alphazero_nb.training.trainer import Trainer
from broken_games import (BROKEN, CRASHES, WARNINGS, heap, legal_greedy, legal_without_return,
                          mover_without_return, nim, observe_that_answers, observe_with_text, play_with_helper,
                          returns_as_it_likes, returns_two_winners)


def test_a_right_game_is_described_and_warns_of_nothing(capsys):
    report = check_game(nim())
    assert not report.warnings and report.games == 20 and report.sums == (0, 0)
    assert sum(report.movers) == pytest.approx(1) and sum(report.winners) == pytest.approx(1)
    assert 4 <= report.moves[1] <= report.moves[0] <= report.moves[2] <= 10
    assert nim().check() is None
    shown = capsys.readouterr().out
    assert shown == f"{report}\n" and shown.startswith("nim keeps its contract: 20 random games, ") and "Warning" not in shown
    assert check_game(heap()).movers == report.movers, "the same games in Python"


def test_the_report_counts_what_games_recounted_by_hand_have():
    "Every game of the check, played again by hand."
    played, game = [], nim()
    check_game(game, games=6, trace=lambda function, moves, seed: played.append((function, list(moves), seed)))
    lines = {seed: max((moves for _, moves, s in played if s == seed), key=len) for seed in range(6)}
    report = check_game(game, games=6)
    ends = [game.state_after(line) for line in lines.values()]
    assert all(game.over(state) for state in ends)
    assert report.moves == (np.mean([len(line) for line in lines.values()]), min(map(len, lines.values())), max(map(len, lines.values())))
    assert report.winners[0] == pytest.approx(np.mean([game.returns(state)[0] == 1 for state in ends]))
    first = sum((len(line) + 1) // 2 for line in lines.values())
    assert report.movers[0] == pytest.approx(first / sum(map(len, lines.values())))


# What breaks the contract ------------------------------------------------------------------------

@pytest.mark.parametrize("broken", BROKEN)
def test_a_mistake_is_one_sentence_and_the_same_each_time(broken):
    make, function, words = BROKEN[broken]
    said = set()
    for check in (lambda: make().check(), lambda: check_game(make())):
        with pytest.raises(ContractError) as error: check()
        said.add(str(error.value))
    sentence, = said
    assert sentence.startswith((f"nim: {function} breaks the contract", f"heap: {function} breaks the contract"))
    assert words in sentence and "\n" not in sentence and sentence.endswith(".") and "overflow" not in sentence, sentence


@pytest.mark.parametrize("broken", [
    "an index of a helper", "NaN", "over at the start", "chance first in Python",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("five points", "seats from 1", "nothing is legal"))])
def test_no_broken_game_is_trained(broken, tmp_path, monkeypatch):
    "The trainer says what `check` says, in a process of its own, and leaves no folder."
    monkeypatch.setattr(game_check, "check_game", None)   # Of this process
    game = BROKEN[broken][0]()
    monkeypatch.setitem(_registry, game.name, lambda: game)
    with pytest.raises(ContractError, match=f"{BROKEN[broken][1]} breaks the contract") as error:
        Trainer(game.name, "tiny", tmp_path / "run", device="cpu", listeners=())
    assert BROKEN[broken][2] in str(error.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("broken", ["over at the start in Python", "chance first in Python"])
def test_a_python_game_that_begins_wrong_cannot_be_played_at_all(broken):
    "Not even by an engine, which checks nothing."
    with pytest.raises(ContractError, match="start breaks the contract"): BROKEN[broken][0]().new()


def test_the_moves_of_an_error_lead_there():
    game = BROKEN["seats from 1"][0]()
    with pytest.raises(ContractError, match=r"after moves \[\d\] \(seed 0\)") as error: game.check()
    move = int(str(error.value).partition("[")[2][0])
    state = game.new()
    game.compiled["play"](state, move)
    assert game.mover(state) == 2


# What cannot be compiled -------------------------------------------------------------------------

@pytest.mark.parametrize("changes, words", [
    (dict(legal=legal_without_return), "can end without `return`, but legal must return a whole number"),
    (dict(mover=mover_without_return), "can end without `return`, but mover must return a whole number"),
    (dict(observe=observe_that_answers), "but observe must return nothing"),
    (dict(observe=observe_with_text), "setitem(array(int8"),
    (dict(play=play_with_helper), "stones_that_nothing_defines"),
], ids=["no return", "a branch without return", "an answer", "a text as index", "an unknown name"])
def test_an_error_of_compilation_is_one_sentence_all_in_all(changes, words):
    "As a script prints it: a traceback of this package and one line, without numba's pages."
    (name, function), = changes.items()
    with pytest.raises(ContractError) as error: nim(**changes)
    sentence = str(error.value)
    assert sentence.startswith(f"{name} ({function.__name__}, line ") and words in sentence and sentence.endswith(".")
    assert "\n" not in sentence and error.value.__cause__ is None and error.value.__context__ is None
    line = int(sentence.partition(", line ")[2].partition(")")[0])
    assert function.__code__.co_firstlineno <= line <= max(line for *_, line in function.__code__.co_lines() if line)


# What only looks like a mistake ------------------------------------------------------------------

@pytest.mark.parametrize("odd", WARNINGS)
def test_what_looks_like_a_mistake_is_a_warning(odd, capsys):
    make, words = WARNINGS[odd]
    make().check()
    shown = [line for line in capsys.readouterr().out.splitlines() if "random games;" not in line]   # A wrong observation repeats
    assert shown[0].startswith(("nim keeps its contract: ", "heap keeps its contract: "))
    assert len(shown) == 1 + len(words) and all(word in line for word, line in zip(words, shown[1:])), shown
    assert all(line.startswith("Warning: ") and line.endswith(".") for line in shown[1:])


@pytest.mark.parametrize("returns", [returns_two_winners, returns_as_it_likes])
def test_results_of_two_players_that_do_not_cancel_are_named(returns):
    "As a warning; as an error where the game says that its players have opposite results."
    game = nim(returns=returns)
    if getattr(game, "zero_sum", False):
        with pytest.raises(ContractError, match="opposite results"): check_game(game)
    else: assert any("sum to" in warning or "all players win" in warning for warning in check_game(game).warnings)


@pytest.mark.parametrize("name", ["connect4", "dots(rows=2,cols=2)", "pig(goal=20)", "blob(players=3,cards=2)"])
def test_the_games_of_the_package_cause_no_warning(name):
    found = check_game(get_game(name), games=4).warnings   # The bids of Blob are those of its largest hands
    assert [warning for warning in found if "blob" not in name or "never legal" not in warning] == []


# In a process of its own -------------------------------------------------------------------------

@pytest.mark.skipif(sys.platform == "win32", reason="signals are exit codes there")
@pytest.mark.parametrize("fault", CRASHES)
def test_what_ends_or_holds_a_process_is_one_sentence(fault, monkeypatch):
    "The time of a call counts from the one that loops on, however slow the machine is."
    (make, words), read, looks = CRASHES[fault], CallTrace.read, count(1)

    def look(trace):
        calls, function, moves, seed = read(trace)
        loops = (function, len(moves)) in (("observe", 1), ("legal", 0))
        return (calls if loops or not calls else -next(looks)), function, moves, seed
    if "does not return" in words: monkeypatch.setattr(CallTrace, "read", look)
    limit = dict(timeout_s=.2) if "does not return" in words else {}
    with pytest.raises(ContractError, match=words + r" \(seed \d+\); ") as error: check_in_process(make(), **limit)
    assert "\n" not in str(error.value)


def test_the_child_says_what_this_process_says():
    for game in (heap(), nim(legal=legal_greedy)): assert check_in_process(game) == check_game(game)


def test_a_game_that_cannot_be_sent_is_checked_here(monkeypatch):
    lock = threading.Lock()
    assert check_in_process(heap(lock=lock)).games == 20
    with pytest.raises(ContractError, match="results must lie"): check_in_process(heap(lock=lock, returns=lambda self: [2, 0]))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert check_in_process(nim()).games == 20
    monkeypatch.setattr(sys, "executable", None)
    assert check_in_process(nim()).games == 20


def test_a_check_ends_when_its_time_is_over():
    assert check_game(nim(), seconds=0).games == 0 and "no random game ended" in str(check_game(nim(), seconds=0))


def test_rules_that_have_passed_are_checked_once(monkeypatch):
    calls = []
    monkeypatch.setattr(game_check, "check_in_process", lambda game: calls.append(game) or check_game(game))
    first = nim(legal=legal_greedy)
    file = game_check._passed_file(first)
    file.unlink(missing_ok=True)
    notes = check_new_rules(first)
    assert len(calls) == 1 and notes[0].startswith("nim keeps") and notes[1].startswith("Warning: state[0] falls")
    assert check_new_rules(first) == [] and len(calls) == 1
    again = nim(legal=legal_greedy)
    assert check_new_rules(again) == notes[1:] and len(calls) == 1, "the file beside the machine code"
    for other in (nim(legal=legal_greedy, max_length=11), nim(max_length=12), heap(), heap()):
        before = len(calls)
        check_new_rules(other)
        assert len(calls) == before + 1
    for name in ("connect4", "2048"): assert check_new_rules(get_game(name)) == []
    file = game_check._passed_file(again)
    file.write_text("{")
    assert len(check_new_rules(nim(legal=legal_greedy))) == 2


def test_the_check_is_a_note_of_the_run(tmp_path, monkeypatch):
    game = WARNINGS["one side moves in Python"][0]()
    monkeypatch.setitem(_registry, "heap", lambda: game)
    run = Trainer("heap", "tiny", tmp_path / "run", device="cpu", listeners=())
    assert run.progress.notes[0].startswith("heap keeps its contract") and "Warning: seat 1 never moves." in run.progress.notes


INTERRUPTED = '''
import os, signal, subprocess, sys, threading
from alphazero_nb.core import game_check
from broken_games import heap, wait

popen = subprocess.Popen
def start(*args, **options):
    process = popen(*args, **options)
    print(process.pid, flush=True)
    return process
subprocess.Popen = start
look = game_check.CallTrace.read
def read(trace):
    seen = look(trace)
    if seen[0] > 0: {action}
    return seen
game_check.CallTrace.read = read
try: game_check.check_in_process(heap(legal=wait))
except KeyboardInterrupt: print("interrupted", flush=True)
'''


@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
@pytest.mark.parametrize("action, said", [("os.kill(os.getpid(), signal.SIGINT)", "interrupted"),
                                          ("os.kill(os.getpid(), signal.SIGKILL)", None)], ids=["interrupt", "kill"])
def test_no_child_outlives_its_parent(action, said):
    "The rules of the child loop for ever; the parent is interrupted or killed as soon as they do."
    import psutil
    source = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + INTERRUPTED.format(action=action)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=900,
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))))
    child, *rest = done.stdout.split()
    assert rest == ([said] if said else []), done.stderr
    try: psutil.Process(int(child)).wait(600)
    except psutil.NoSuchProcess: pass


# What the check of a position alone does not see -------------------------------------------------

def cards(resample=None, **changes):
    "Three cards each, which a player lays down in any order. The row: the seat, the number of moves, the owner of each card."
    def start(state, seed):
        for card in range(6): state[2 + card] = card % 2
    def mover(state): return state[0] if state[1] < 6 else -1
    def legal(state, actions):
        count = 0
        for card in range(6):
            if state[2 + card] == state[0]:
                actions[count] = card
                count += 1
        return count
    def play(state, card): state[2 + card], state[0], state[1] = 2, 1 - state[0], state[1] + 1
    def returns(state, out): out[0], out[1] = 1, -1
    def observe(state, planes):
        for card in range(6): planes[card] = state[2 + card] == state[0]
    def keep(state, seed): pass
    return Game("cards", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe,
                resample_hidden=resample or keep, state_size=8, players=2, actions=6, max_legal=3, shape=(6,), max_length=6, **changes)


def deals_no_cards(state, seed):
    for card in range(6):
        if state[2 + card] == 1 - state[0]: state[2 + card] = 2


def test_a_world_must_be_a_game_that_can_be_played_on():
    "An empty hand of the other player shows only when that player has to move."
    check_game(cards())
    with pytest.raises(ContractError, match="cards: resample_hidden breaks the contract .*must be 1 to 3 actions, not 0"):
        check_game(cards(deals_no_cards))


@pytest.mark.parametrize("method", ["__init__", "resample_hidden"])
def test_seeds_have_more_than_32_bits(method):
    "NumPy's old generator takes no larger ones, and the games of a run have seeds of 63 bits."
    def draw(self, seed):
        np.random.RandomState(seed)
        if method == "__init__": self.heap, self.seat = 10, 0
    with pytest.raises(ContractError, match="start" if method == "__init__" else "resample_hidden"): check_game(heap(**{method: draw}))


@pytest.mark.parametrize("heuristic, words", [(lambda state: 7, "must return a legal action, not 7"), (lambda state: 1 // 0, "ZeroDivisionError")])
def test_a_heuristic_plays_legal_moves(heuristic, words):
    "It is the opponent of every match of a run."
    with pytest.raises(ContractError, match=f"nim: heuristic breaks the contract.*{words}"): check_game(nim(heuristic=heuristic))
    assert check_game(nim(heuristic=lambda state: 0)).games == 20


def test_an_action_that_is_never_legal_may_have_no_name():
    report = check_game(nim(actions=4, max_legal=3, action_names=("one", "two", "three").__getitem__))
    assert any("1 action (3) was never legal" in warning for warning in report.warnings)


@pytest.mark.parametrize("wrong", [(), (0, 8), (-1,)])
def test_symmetries_of_the_start_that_do_not_exist_are_refused(wrong):
    with pytest.raises(ValueError, match="nim: start_symmetries is .* give numbers from 0 to 0"): nim(start_symmetries=wrong)


def deal(state, seed): state[2], state[3] = seed % 3, (seed + 1 + seed // 3 % 2) % 3
def in_turn(state): return state[0] if state[0] < 2 else -1
def pass_or_bet(state, actions):
    actions[0], actions[1] = 0, 1
    return 2
def next_seat(state, action): state[0] += 1
def higher_card(state, out): out[0], out[1] = (1, -1) if state[2] > state[3] else (-1, 1)
def own_card(state, planes): planes[state[2 + state[0]]] = 1


def test_a_new_deal_is_no_resampling():
    "With the seed that dealt, it is the deal that was there."
    game = Game("kuhn", start=deal, resample_hidden=deal, mover=in_turn, legal=pass_or_bet, play=next_seat, returns=higher_card,
                observe=own_card, state_size=4, players=2, actions=2, shape=(3,), max_length=2)
    with pytest.raises(ContractError, match="resample_hidden breaks the contract.*must not change"): check_game(game)


@pytest.mark.parametrize("measures, words", [(lambda state: dict(moves=3), "not {'moves': 3}"), (lambda state: dict(moves=[3]), "for each seat"),
                                             (lambda state: {}, "not {}"), (lambda state: [1, 2], "for each seat"),
                                             (lambda state: dict(moves=[1, float("nan")]), "finite"), (lambda state: 1 // 0, "ZeroDivisionError")])
def test_measures_are_numbers_for_each_seat(measures, words):
    "The first match of a run asks for them, after some minutes of training."
    with pytest.raises(ContractError, match=f"nim: measures breaks the contract.*{words}"): check_game(nim(measures=measures))
    assert check_game(nim(measures=lambda state: dict(moves=[1, np.float32(2)], more=(0, 0)))).games == 20


def test_rules_of_which_no_game_ended_have_not_passed(monkeypatch):
    monkeypatch.setattr(game_check, "check_in_process", lambda game: check_game(game, seconds=0))
    game = nim(max_length=13)
    file = game_check._passed_file(game)
    file.unlink(missing_ok=True)
    assert check_new_rules(game) == ["nim: no random game ended in the time of the check."] and not file.exists()


MOST = 3


@njit
def most(state): return min(MOST, state[0])


def legal_by_most(state, actions):
    n = most(state)
    for i in range(n): actions[i] = i
    return n


def test_a_helper_that_was_compiled_before_a_change_is_named(monkeypatch):
    "Training would play with the old helper, and the check with a new one."
    nim(legal=legal_by_most)
    assert most(np.full(2, 9, np.int16)) == 3
    monkeypatch.setitem(globals(), "MOST", 2)
    with pytest.raises(ContractError, match="nim: the helper most was compiled before something that it uses changed"): nim(legal=legal_by_most)
    monkeypatch.setitem(globals(), "MOST", 3)
    assert nim(legal=legal_by_most).legal_actions(np.array([9, 0], np.int16)) == [0, 1, 2]
