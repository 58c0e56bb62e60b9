"""Count how often the coach is right without a solver: which moves it calls mistakes, and what it calls proven.

    python tools/measure_coach.py connect4 --games 300 --out nbs/data/coach_connect4.json
    python tools/measure_coach.py "dots(rows=3,cols=3)" --games 300 --out nbs/data/coach_dots.json

The middle levels of the agent, 3 to 6, play games. From move `--first` on, the solver of the game gives the result of every
move, and the coach grades the moves with the search of the full agent alone. A move in the same
position counts once. The file has, for each loss at which a move could be called a mistake, the share of those moves that
change the result (precision) and the share of the moves that change it which are called so (recall).
"""
import argparse, json
from pathlib import Path

import numpy as np

LEVELS = (3, 4, 5, 6)


def play_games(agents: list, games: int, seed: int) -> list:
    "Return the states and the actions of games between agents that are drawn by lot, side by side."
    game, rng = agents[0].game, np.random.default_rng(seed)
    lines = [([game.new()], []) for _ in range(games)]
    players = [[int(rng.integers(len(agents))) for _ in range(game.players)] for _ in range(games)]
    going = list(range(games))
    while going:
        movers = {i: players[i][game.mover(lines[i][0][-1])] for i in going}
        for number, agent in enumerate(agents):
            turn = [i for i in going if movers[i] == number]
            chosen = agent.choose(np.stack([lines[i][0][-1] for i in turn]))[0] if turn else []
            for i, action in zip(turn, chosen): lines[i][1].append(int(action))
        for i in going: lines[i][0].append(game.play(lines[i][0][-1], lines[i][1][-1]))
        going = [i for i in going if not game.over(lines[i][0][-1])]
    return lines


def solve(game, lines: list, first: int) -> dict:
    "Return the different moves from move `first` on, with the results of the best move and of the move played, as arrays."
    from alphazero_nb.arena.solvers import get_solver
    solver, known, pairs = get_solver(game, limit=None), {}, {}
    for states, actions in lines:
        for state, action in zip(states[first:], actions[first:]): pairs.setdefault((state.tobytes(), action), state)
    late = sorted(pairs.values(), key=np.count_nonzero, reverse=True)   # Late positions first: they help the early ones
    for state in late:
        if state.tobytes() not in known: known[state.tobytes()] = solver.results(state)
    results = np.stack([known[key] for key, _ in pairs]).astype(int)
    actions = np.array([action for _, action in pairs])
    return dict(states=np.stack(list(pairs.values())), actions=actions, before=results.max(1),
                after=results[np.arange(len(actions)), actions])


def measure(agent, moves: dict, simulations: int) -> dict:
    "Grade the moves without a solver. Return how often the grades are right."
    from alphazero_nb.ui.coach import grade_moves
    grades, roots = grade_moves(agent, moves["states"], moves["actions"], simulations=simulations)
    return count_right(grades, [(root.proven, root.values[root.mover]) for root in roots], moves["before"], moves["after"])


def count_right(grades, roots: list, before: np.ndarray, after: np.ndarray) -> dict:   # roots: (proven, value) of each position
    "Compare grades with exact results."
    from alphazero_nb.ui.coach import MISTAKE
    lost, loss = after < before, np.array([grade.loss for grade in grades])
    costly, exact = np.array([grade.costly for grade in grades]), np.array([grade.exact for grade in grades])
    right = np.array([abs(g.before - b) < 1e-4 and abs(g.after - a) < 1e-4 for g, b, a in zip(grades, before, after)])
    proven = [abs(value - best) < 1e-4 for (known, value), best in zip(roots, before) if known]
    curve = [dict(loss=round(float(at), 2), called=int((loss >= at).sum()), right=int((lost & (loss >= at)).sum()))
             for at in np.arange(.1, 1.51, .05)]
    return dict(moves=len(lost), change_the_result=int(lost.sum()), mistake=MISTAKE, called=int(costly.sum()),
                called_right=int((costly & lost).sum()), grades_proven=int(exact.sum()),
                grades_proven_right=int((exact & right).sum()), positions_proven=len(proven),
                positions_proven_right=int(np.sum(proven)), curve=curve)


def main():
    from alphazero_nb.search.agent import Agent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game")
    for name, value in dict(games=300, first=8, simulations=400, seed=1).items(): parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--moves", type=Path, help=".npz of the solved moves; written if it does not exist, otherwise read")
    args = parser.parse_args()
    agent = Agent.pretrained(args.game, device="cpu")
    players = [agent.at_level(number) for number in LEVELS]
    if args.moves and args.moves.exists(): moves = dict(np.load(args.moves))
    else:
        moves = solve(agent.game, play_games(players, args.games, args.seed), args.first)
        if args.moves: np.savez_compressed(args.moves, **moves)
    found = measure(agent, moves, args.simulations)
    found = dict(game=args.game, levels=LEVELS, games=args.games, first=args.first, simulations=args.simulations, seed=args.seed, **found)
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print({key: value for key, value in found.items() if key != "curve"})
    print(f"precision {found['called_right'] / max(1, found['called']):.1%}, "
          f"recall {found['called_right'] / max(1, found['change_the_result']):.1%}")


if __name__ == "__main__": main()
