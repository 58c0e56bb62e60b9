"""Make a set of positions with exact results, for `alphazero_nb.arena.judge`.

    python tools/make_positions.py connect4 positions.npz --count 1500 --seed 1
    python tools/make_positions.py connect4 strong.npz --player pretrained --random 0.05 0.1 --as-they-come
    python tools/make_positions.py tictactoe alphazero_nb/positions/tictactoe.npz

The positions come from games that mix random moves with those of a player, and differ by more than a symmetry. Half of
each phase is hard: no move wins at once, one or two moves keep the result, and another gives it away. In the other half
of Connect Four, some move wins at once; in other games it is taken as it comes. `--as-they-come` takes all of them so. In
tic-tac-toe, the set has all positions. The same arguments make the same set. An opening of Connect Four takes a second,
and about three quiet ones are solved for one that is hard; progress is printed, and the same command continues after a
stop. `--solved` names sets whose positions are taken first, with their results.
"""
import argparse, sys, time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path: sys.path.insert(0, str(ROOT))

PHASES = {
    "tictactoe": {"whole game": range(0, 9)},   # Every position
    "connect4": dict(opening=range(8, 12), middle=range(12, 19), late=range(24, 33)),
    "dots(rows=3,cols=3)": dict(early=range(0, 8), middle=range(8, 16), late=range(16, 23)),
    "othello(size=6)": dict(middle=range(18, 21), late=range(21, 25), end=range(25, 29)),   # 14 to 4 empty squares
}
LITTLE_RANDOM = {("connect4", "late"): (.25, .1)}   # Shares of random moves where more would make the positions easy
MOST_KEEPERS = 2                 # Moves that keep the result in a hard position
BLOCK, LONGEST = 200, 10_000     # Positions that are solved at a time; blocks of games that are played at most


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("game", choices=PHASES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=3000, help="positions of each phase")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--player", default="rollouts:50", help="plays the moves that are not random")
    parser.add_argument("--random", type=float, nargs="+", default=[1, .5, .25, .1],
                        help="shares of random moves in a game")
    parser.add_argument("--as-they-come", action="store_true", help="take easy and hard positions as they come")
    parser.add_argument("--without", type=Path, nargs="*", default=[], help="sets whose positions are left out")
    parser.add_argument("--solved", type=Path, nargs="*", default=[], help="sets whose positions come first")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def all_positions(game):
    "Return the moves to all positions of games in progress, without mirror images."
    from alphazero_nb.arena.matches import canonical
    found, layer = [[]], [([], game.new())]
    while layer:
        moves, after = [(line, state, action) for line, state in layer for action in game.legal_actions(state)], {}
        for i in np.random.default_rng(0).permutation(len(moves)):
            line, state, action = moves[i]
            state = game.play(state, action)
            if not game.over(state): after.setdefault(canonical(game, state), ([*line, action], state))
        layer = list(after.values())
        found += [line for line, _ in layer]
    return found


class Solved:
    "The results of solved positions by their moves, kept in a file beside the set until it is finished."
    def __init__(self, solvers: list, sets: list, path: Path):
        from alphazero_nb.arena.judge import read_positions
        self.solvers, self.game, self.path, self.rows = solvers, solvers[0].game, path, {}
        def read(file):
            found = read_positions(file, self.game)
            self.rows |= {tuple(line[line >= 0].tolist()): row for line, row in zip(found.moves, found.results)}
        for file in sets: read(file)
        self.first = list(self.rows)   # Candidates before any that are drawn
        if path.exists(): read(path)

    def results(self, lines: list) -> np.ndarray:   # (n, actions) int8
        "Return the exact results after each line; new ones are solved and stored."
        from alphazero_nb.arena.judge import solve_positions
        lines = [tuple(line) for line in lines]
        if new := [line for line in lines if line not in self.rows]:
            self.rows |= dict(zip(new, solve_positions(self.solvers, new, np.zeros(len(new), np.int8), ("all",)).results))
            everything = self.as_set(list(self.rows), np.zeros(len(self.rows), np.int8), ("all",))
            everything.save(self.path)
        return np.stack([self.rows[line] for line in lines])

    def as_set(self, lines: list, phase: np.ndarray, phases: tuple):
        "Return the set of these lines, all of them solved."
        from alphazero_nb.arena.judge import PositionSet, pad_lines, states_after
        moves = pad_lines(lines)
        return PositionSet(self.game, states_after(self.game, moves), np.stack([self.rows[tuple(line)] for line in lines]),
                           np.asarray(phase, np.int8), phases, moves)


def is_hard(results: np.ndarray) -> np.ndarray:   # (n, actions) int8; returns (n,) bool
    "Return True where one or two moves keep the result and another does not."
    from alphazero_nb.arena.connect4_search import ILLEGAL
    legal, best = results != ILLEGAL, results.max(1, keepdims=True)
    keepers = ((results == best) & legal).sum(1)
    return (keepers <= MOST_KEEPERS) & (keepers < legal.sum(1))


def candidates(solved: Solved, first: list, plies: range, player, seed: int, random_shares: tuple):
    "Yield the moves and the state of positions: those of `first`, in order, then drawn ones."
    from alphazero_nb.arena.judge import pad_lines, states_after, varied_lines
    yield from zip(first, states_after(solved.game, pad_lines(first)))
    for more in range(LONGEST): yield from varied_lines(solved.game, plies, player, seed + more, random_shares)


def draw_half_hard(solved: Solved, plies: range, count: int, drawn, known: frozenset, say) -> list:   # drawn: as from `candidates`
    "Return the moves to `count` positions, half of them hard and without a win at once."
    from alphazero_nb.arena.judge import can_win_at_once
    from alphazero_nb.arena.matches import canonical
    game, seen, easy, hard, waiting, half = solved.game, set(known), [], [], [], count // 2
    needs_win = game.name == "connect4"
    for line, state in drawn:
        if len(easy) >= count - half and len(hard) >= half: return easy[:count - half] + hard[:half]
        key = canonical(game, state)
        if key in seen: continue
        seen.add(key)
        if can_win_at_once(game, state) or (not needs_win and len(easy) < count - half): easy.append(line)
        else: waiting.append(line)
        if len(waiting) < BLOCK or len(hard) >= half: continue
        hard += [line for line, found in zip(waiting, is_hard(solved.results(waiting))) if found]
        waiting.clear()
        say(f"{len(hard)} of {half} hard positions after {plies.start} to {plies.stop - 1} moves")
    raise SystemExit(f"only {len(easy)} easy and {len(hard)} hard positions were found; ask for fewer.")


def main():
    from alphazero_nb.arena.judge import draw_positions, read_positions
    from alphazero_nb.arena.matches import canonical
    from alphazero_nb.arena.players import get_player
    from alphazero_nb.arena.solvers import EndgameSolver, get_solver
    from alphazero_nb.core.registry import get_game
    args = read_arguments()
    game, phases = get_game(args.game), PHASES[args.game]
    known = frozenset(canonical(game, state) for path in args.without for state in read_positions(path, game).states)
    lines, phase, start, unfinished = [], [], time.monotonic(), args.out.with_suffix(".unfinished.npz")
    solver = lambda: EndgameSolver(game, limit=None) if args.game.startswith("othello") else get_solver(game, limit=None)
    solved = Solved([solver() for _ in range(args.threads)], args.solved, unfinished)

    def say(text): print(f"{time.monotonic() - start:6.0f} s: {text}", flush=True)
    for index, (name, plies) in enumerate(phases.items()):
        player, seed = get_player(args.player, game, seed=args.seed), 1_000_000 * args.seed + 10_000 * index
        if args.game == "tictactoe": drawn = all_positions(game)
        elif args.as_they_come: drawn = draw_positions(game, plies, args.count, player, seed, tuple(args.random), known=known)
        else:
            little = LITTLE_RANDOM.get((args.game, name))
            first = [] if little else [line for line in solved.first if len(line) in plies]
            drawn = candidates(solved, first, plies, player, seed, little or tuple(args.random))
            drawn = draw_half_hard(solved, plies, args.count, drawn, known, say)
        lines, phase = lines + drawn, phase + [index] * len(drawn)
        say(f"drew {len(drawn)} positions after {plies.start} to {plies.stop - 1} moves")
    for first in range(0, len(lines), BLOCK):
        solved.results(lines[first:first + BLOCK])
        say(f"solved {min(first + BLOCK, len(lines))} of {len(lines)}")
    found = solved.as_set(lines, np.array(phase), tuple(phases))
    found.save(args.out)
    unfinished.unlink(missing_ok=True)
    say(f"{args.out} has {len(found)} positions, {found.critical.mean():.0%} of them critical, "
        f"and {args.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__": main()
