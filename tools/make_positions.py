"""Make a set of positions with exact results, for `alphazero_nb.arena.judge`.

    python tools/make_positions.py connect4 positions.npz --count 3000 --seed 1
    python tools/make_positions.py connect4 strong.npz --player pretrained --random 0.05 0.1 --as-they-come
    python tools/make_positions.py tictactoe alphazero_nb/positions/tictactoe.npz

The positions come from games that mix random moves with those of a player. In Connect Four, no move wins
at once in half of the positions of each phase, unless they are taken as they come. In tic-tac-toe, the set has all
positions. The same arguments make the same set. Openings take a second each; progress is printed, and the same
command continues after a stop.
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
}


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("game", choices=PHASES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=3000, help="positions of each phase")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--player", default="rollouts:50", help="plays the moves that are not random")
    parser.add_argument("--random", type=float, nargs="+", default=[1, .5, .25, .1],
                        help="shares of random moves in a game")
    parser.add_argument("--as-they-come", action="store_true",
                        help="do not balance positions in which a move wins at once")
    parser.add_argument("--without", type=Path, nargs="*", default=[], help="sets whose positions are left out")
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


def solve_in_blocks(solvers, lines, phase, phases, out, say, block=200):
    "Return the solved set, and leave it in the file `out`. What an earlier call has solved is read from a second file."
    from alphazero_nb.arena.judge import PositionSet, pad_lines, read_positions, solve_positions, states_after
    game, moves, half_done = solvers[0].game, pad_lines(lines), out.with_suffix(".unfinished.npz")
    states = states_after(game, moves)
    results = read_positions(half_done, game).results if half_done.exists() else np.zeros((0, game.actions), np.int8)
    solved = lambda: PositionSet(game, *(part[:len(results)] for part in (states, results, phase)), phases,
                                 moves[:len(results)])
    if half_done.exists() and not np.array_equal(read_positions(half_done, game).moves, solved().moves):
        raise SystemExit(f"{half_done} comes from other arguments; delete it, or name another file.")
    while len(results) < len(states):
        part = slice(len(results), len(results) + block)
        results = np.concatenate([results, solve_positions(solvers, moves[part], phase[part], phases).results])
        solved().save(half_done)
        say(f"solved {len(results)} of {len(states)}")
    solved().save(out)
    half_done.unlink(missing_ok=True)
    return solved()


def main():
    from alphazero_nb.arena.judge import draw_positions, read_positions
    from alphazero_nb.arena.matches import canonical
    from alphazero_nb.arena.players import get_player
    from alphazero_nb.arena.solvers import get_solver
    from alphazero_nb.core.registry import get_game
    args = read_arguments()
    game, phases = get_game(args.game), PHASES[args.game]
    known = frozenset(canonical(game, state) for path in args.without for state in read_positions(path, game).states)
    lines, phase, start = [], [], time.monotonic()

    def say(text): print(f"{time.monotonic() - start:6.0f} s: {text}", flush=True)
    for index, plies in enumerate(phases.values()):
        player = get_player(args.player, game, seed=args.seed)
        drawn = all_positions(game) if args.game == "tictactoe" else draw_positions(
            game, plies, args.count, player, 1_000_000 * args.seed + 10_000 * index, args.random,
            quiet=.5 if args.game == "connect4" and not args.as_they_come else None, known=known)
        lines, phase = lines + drawn, phase + [index] * len(drawn)
        say(f"drew {len(drawn)} positions after {plies.start} to {plies.stop - 1} moves")
    solvers = [get_solver(game, limit=None) for _ in range(args.threads)]
    found = solve_in_blocks(solvers, lines, np.array(phase, np.int8), tuple(phases), args.out, say)
    say(f"{args.out} has {len(found)} positions, {found.critical.mean():.0%} of them critical, "
        f"and {args.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__": main()
