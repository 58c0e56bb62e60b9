"""The judge counts what it says, and refuses positions that it cannot trust."""
import os, subprocess, sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alphazero_nb.arena.connect4_search import ILLEGAL
from alphazero_nb.arena.judge import (PositionSet, can_win_at_once, draw_positions, judge, packaged_positions,
                                      read_positions, solve_positions)
from alphazero_nb.arena.matches import canonical
from alphazero_nb.arena.players import Player, RandomPlayer, RolloutPlayer, SolverPlayer
from alphazero_nb.arena.solvers import EndgameSolver, TableSolver, get_solver
from alphazero_nb.core.registry import get_game

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture(scope="module")
def positions():
    "All positions of tic-tac-toe in progress, early and late."
    game, lines = get_game("tictactoe"), {}
    waiting = [[]]
    while waiting:
        state = game.state_after(line := waiting.pop())
        if game.over(state) or state.tobytes() in lines: continue
        lines[state.tobytes()] = line
        waiting += [[*line, action] for action in game.legal_actions(state)]
    found = list(lines.values())
    return solve_positions([TableSolver(game)], found, [int(len(line) > 4) for line in found], ("early", "late"))


class First(Player):
    "Plays the first legal move."
    def __init__(self, game): self.game, self.name = game, "first"
    def acts(self, states): return np.array([self.game.legal_actions(state)[0] for state in states])


class Worst(Player):
    "Plays a move with the worst result."
    def __init__(self, solver): self.game, self.name, self.solver = solver.game, "worst", solver
    def acts(self, states):
        rows = np.stack([self.solver.results(state) for state in states])
        return np.where(rows == ILLEGAL, 9, rows).argmin(1)


def test_players_whose_share_is_known(positions):
    game = positions.game
    assert len(positions) == 4520
    players = SolverPlayer(game), Worst(TableSolver(game)), RandomPlayer(game, 0)
    perfect, worst, lots = (judge(player, positions)[-1] for player in players)
    assert perfect.kept == perfect.positions == 4520 and perfect.critical_kept == perfect.critical == worst.critical
    assert worst.kept == worst.positions - worst.critical and worst.critical_kept == 0
    legal, best = positions.results != ILLEGAL, positions.results.max(1)
    expected = (positions.results == best[:, None]).sum(1) / legal.sum(1)
    assert (expected[~positions.critical] == 1).all() and (expected[positions.critical] < 1).all()
    assert abs(lots.share_of_all - expected.mean()) < .03 and abs(lots.share - expected[positions.critical].mean()) < .03
    assert lots.interval[0] < lots.share < lots.interval[1] and perfect.share == 1 and worst.share == 0
    assert lots.share == pytest.approx(judge(RandomPlayer(game, 0), positions.take(positions.critical))[-1].share, abs=.03)


def test_phases_are_counted_apart(positions):
    early, late, both = judge(RandomPlayer(positions.game, 1), positions, block=100)
    assert (early.phase, late.phase, both.phase) == ("early", "late", "all")
    for field in ("positions", "kept", "critical", "critical_kept"):
        assert getattr(early, field) + getattr(late, field) == getattr(both, field) > 0
    assert f"{both.share:.1%} of {both.critical:,} critical positions" in str(both) and f"{both.share_of_all:.1%} of all 4,520" in str(both)
    calm = judge(RandomPlayer(positions.game, 1), positions.take(~positions.critical))[-1]
    assert str(calm) == f"all: none of {4520 - both.critical:,} positions is critical" and calm.share_of_all == 1
    assert calm.to_dict()["share"] is calm.to_dict()["interval"] is None


def test_positions_that_repeat_count_once(positions):
    "Each of 100 positions four times: the share is as uncertain as that of a hundred."
    few = positions.sample(50)
    four = PositionSet(few.game, *(np.tile(part, (4,) + (1,) * (part.ndim - 1)) for part in (few.states, few.results, few.phase)),
                       few.phases)
    once, often = judge(First(few.game), few), judge(First(few.game), four)
    for one, many in zip(once, often):
        assert many.positions == 4 * one.positions and many.share == one.share and many.interval == pytest.approx(one.interval)
    assert few.digest == few.sample(50).digest != four.digest and few.digest != positions.digest


def test_a_file_gives_the_same_set(positions, tmp_path):
    positions.save(tmp_path / "set.npz")
    again = read_positions(tmp_path / "set.npz", positions.game)
    for name in ("states", "moves", "results", "phase"): assert (getattr(again, name) == getattr(positions, name)).all()
    assert again.phases == positions.phases


def test_a_set_is_saved_whole_under_its_name_or_not_at_all(positions, tmp_path, monkeypatch):
    positions.save(tmp_path / "set")
    before = (tmp_path / "set").read_bytes()
    assert read_positions(tmp_path / "set", positions.game).digest == positions.digest
    def full(*paths): raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="cannot be written: No space left"): positions.take(slice(0, 5)).save(tmp_path / "set")
    assert (tmp_path / "set").read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_wrong_file_is_refused(positions, tmp_path):
    path, game = tmp_path / "set.npz", positions.game
    positions.save(path)
    other = get_game("connect4")
    with pytest.raises(ValueError, match="has positions of tictactoe, not of connect4"): read_positions(path, other)
    with pytest.raises(ValueError, match="but the player plays connect4"): judge(RandomPlayer(other), positions)
    results = positions.results.copy()
    results[7, np.flatnonzero(results[7] != ILLEGAL)[0]] = ILLEGAL
    replace(positions, results=results).save(path)
    with pytest.raises(ValueError, match="do not fit its legal moves"): read_positions(path, game)
    replace(positions, results=positions.results[:, :5]).save(path)
    with pytest.raises(ValueError, match="results has shape"): read_positions(path, game)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="is damaged"): read_positions(path, game)
    with pytest.raises(ValueError, match="none.npz is missing"): read_positions(tmp_path / "none.npz", game)
    np.savez(path, game=game.name, moves=positions.moves)
    with pytest.raises(ValueError, match="is not a set of positions: it has no 'results'"): read_positions(path, game)
    for name in ("moves", "phase", "phases"):
        parts = dict(moves=positions.moves, results=positions.results, phase=positions.phase, phases=positions.phases)
        np.savez(path, game=game.name, **{**parts, name: np.int8(3)})
        with pytest.raises(ValueError, match="has shape|do not fit|must hold text"): read_positions(path, game)


def test_a_damaged_file_is_one_sentence(positions, tmp_path):
    "A byte changed anywhere in the file."
    path = tmp_path / "set.npz"
    positions.sample(20).save(path)
    whole, refused = path.read_bytes(), 0
    tried = range(0, len(whole), 7)
    for at in tried:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1:])
        try: read_positions(path, positions.game)   # Some bytes, such as dates, carry nothing
        except ValueError as error:
            refused += 1
            assert str(path) in str(error) and "\n" not in str(error)
    assert refused > len(tried) / 2


def test_drawn_positions_are_different_quiet_and_repeatable():
    game = get_game("connect4")
    draw = lambda **options: draw_positions(game, range(12, 15), 40, RolloutPlayer(game, 20, seed=1), 5, **options)
    lines = draw(quiet=.5)
    states = [game.state_after(line) for line in lines]
    assert sum(can_win_at_once(game, state) for state in states) == 20
    keys = {canonical(game, state) for state in states}
    assert len(keys) == 40 and {int(state[44]) for state in states} == {12, 13, 14}
    assert draw(quiet=.5) == lines
    assert not keys & {canonical(game, game.state_after(line)) for line in draw(known=frozenset(keys))}
    mirrored = states[0].copy()
    mirrored[:42] = mirrored[:42].reshape(6, 7)[:, ::-1].ravel()
    assert canonical(game, mirrored) == canonical(game, states[0])


def test_more_positions_than_there_are():
    game = get_game("tictactoe")
    with pytest.raises(ValueError, match="only 3 of 10 positions were found"):
        draw_positions(game, range(1, 2), 10, RandomPlayer(game), 0)


@pytest.mark.parametrize("name, every", [("tictactoe", 31), ("dots(rows=3,cols=3)", 31), ("connect4", 131),
                                         ("othello(size=6)", 131)])
def test_the_positions_of_the_package_are_solved_right(name, every):
    game = get_game(name)
    found = packaged_positions(game)
    chosen = np.arange(len(found))[::every]
    if name == "connect4": chosen = chosen[(found.phase[chosen] > 0) | (np.arange(len(chosen)) % 8 == 0)]   # A few openings
    solver = EndgameSolver(game, limit=None) if name.startswith("othello") else get_solver(game, limit=None)
    again = solve_positions([solver], found.moves[chosen], found.phase[chosen], found.phases)
    assert len(chosen) > 15 and (again.results == found.results[chosen]).all()
    assert len({canonical(game, state) for state in found.states}) == len(found)


def test_a_game_without_packaged_positions_has_none():
    assert packaged_positions(get_game("gomoku(size=5)")) is None
    assert packaged_positions(get_game("dots(rows=2,cols=2)")) is None


def make_set(out, *more):
    "The positions of the command, as arrays."
    arguments = ["dots(rows=3,cols=3)", out, "--count", "20", "--player", "random", "--threads", "1", *more]
    subprocess.run([sys.executable, TOOLS / "make_positions.py", *arguments], check=True, capture_output=True, text=True)
    return read_positions(out, get_game("dots(rows=3,cols=3)"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    "A file of positions, and what is in it."
    path = tmp_path_factory.mktemp("whole") / "whole.npz"
    return path, make_set(path)


def test_a_set_is_half_hard_and_shares_nothing_with_another(whole, tmp_path):
    path, one = whole
    assert len(one) == 60 and not list(path.parent.glob("*unfinished*"))
    legal, best = one.results != ILLEGAL, one.results.max(1)
    keepers = (one.results == best[:, None]).sum(1)
    hard = (keepers <= 2) & (keepers < legal.sum(1))
    for phase in range(3): assert hard[one.phase == phase][10:].all() and len(hard[one.phase == phase]) == 20
    keys = {canonical(one.game, state) for state in one.states}
    assert len(keys) == 60
    other = make_set(tmp_path / "other.npz", "--without", path)
    assert not keys & {canonical(one.game, state) for state in other.states}
    again = make_set(tmp_path / "again.npz", "--solved", path, "--seed", "5")
    assert {canonical(one.game, state) for state in again.states} & keys, "solved positions come first"


def test_a_set_goes_on_after_a_stop_and_is_repeatable(whole, tmp_path):
    _, whole = whole
    sys.path.insert(0, str(TOOLS))
    try: import make_positions
    finally: sys.path.remove(str(TOOLS))
    game = whole.game
    solved = make_positions.Solved([get_solver(game)], [], tmp_path / "part.unfinished.npz")
    solved.results([line[line >= 0] for line in whole.moves[[40, 3, 25]]])
    assert (tmp_path / "part.unfinished.npz").exists()
    assert make_set(tmp_path / "part.npz").digest == whole.digest and not (tmp_path / "part.unfinished.npz").exists()


@pytest.mark.parametrize("name, stem, stones", [
    ("connect4", "connect4", [(8, 11), (12, 18), (24, 32)]), ("dots(rows=3,cols=3)", "dots-rows-3-cols-3", [(0, 7), (8, 15), (16, 22)]),
    ("othello(size=6)", "othello-size-6", [(18, 20), (21, 24), (25, 28)])])
def test_the_packaged_sets_are_half_hard_and_those_that_report_share_nothing(name, stem, stones):
    game, report = get_game(name), TOOLS.parent / "nbs/data/positions" / f"{stem.partition('-')[0]}-report.npz"
    sets, keys = (packaged_positions(game), read_positions(report, game)), []
    for found in sets:
        keys.append({canonical(game, state) for state in found.states})
        assert len(keys[-1]) == len(found) == 4500
        legal, best = found.results != ILLEGAL, found.results.max(1, keepdims=True)
        keepers = ((found.results == best) & legal).sum(1)
        hard = (keepers <= 2) & (keepers < legal.sum(1))
        for phase, (least, most) in enumerate(stones):
            here = found.phase == phase
            moves = (found.moves[here] >= 0).sum(1)
            assert here.sum() == 1500 and moves.min() >= least and moves.max() <= most
            wins = np.array([can_win_at_once(game, state) for state in found.states[here]])
            assert (hard[here] & ~wins).sum() >= 750, "half of a phase is hard"
            if name == "connect4": assert wins.sum() == 750
    assert not keys[0] & keys[1]


def test_no_lines_are_no_positions():
    game = get_game("tictactoe")
    assert len(solve_positions([TableSolver(game)], [], [], ("all",))) == 0
