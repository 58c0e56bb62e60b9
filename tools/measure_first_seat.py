"""Play Connect Four from the first seat against perfect replies: does the agent win the game that it should win?

    python tools/measure_first_seat.py AGENT... [--simulations 64 400] [--games 200] [--out nbs/data/first_seat.json]

AGENT is the folder of a run, or a game of which the package has an agent. The first player wins with perfect play, so each
game that is not won contains a mistake. With fewer than 8 stones, the second player draws its moves from the visits of a
search by the package's agent, so that the games differ. From 8 stones on its moves are exact: of those that keep its
result it draws one in proportion to the visits. The matches of a call share the positions that are solved. FILE gets a
row for each agent and number of simulations; an older row of the same pair is replaced.
"""
import argparse, itertools, json
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import numpy as np
from measure_engines import processor, store_row
from alphazero_nb.arena.matches import play_tables
from alphazero_nb.arena.players import Player
from alphazero_nb.arena.solvers import get_solver
from alphazero_nb.core.intervals import wilson_interval
from alphazero_nb.games.connect4 import CELLS
from alphazero_nb.search.agent import Agent

EXACT_FROM, STRONG = 8, 800   # Stones; simulations of the search whose visits choose among equal moves


class PerfectReplies(Player):
    "The second player: exact from 8 stones on, varied before."
    def __init__(self, seed: int, known: dict, threads: int = 2):   # known: results of the moves, by the state's bytes
        self.strong, self.rng = Agent.pretrained("connect4", STRONG, "cpu"), np.random.default_rng(seed)
        self.game, self.name, self.known, self.threads = self.strong.game, "perfect replies", known, threads
        self.solvers = [get_solver(self.game, limit=None) for _ in range(threads)]

    def _solve(self, states) -> None:
        "Solve the states that are not known yet, with a solver for each thread."
        new = list({state.tobytes(): state for state in states if state.tobytes() not in self.known}.values())
        solve = lambda k: [(state.tobytes(), self.solvers[k].results(state)) for state in new[k::self.threads]]
        with ThreadPoolExecutor(self.threads) as pool:
            for rows in pool.map(solve, range(self.threads)): self.known |= dict(rows)

    def acts(self, states) -> np.ndarray:
        "Return a move for each state, (n,)."
        states = self.game.as_states(states)
        exact = np.count_nonzero(states[:, :CELLS], axis=1) >= EXACT_FROM
        self._solve(states[exact])
        weights = self.strong.search(states).visits.astype(float)
        for i in np.flatnonzero(exact): weights[i] = self._best(weights[i], states[i])
        return np.array([self.rng.choice(len(row), p=row / row.sum()) for row in weights])

    def _best(self, row, state) -> np.ndarray:
        "Return the visits of the moves that keep the result; equal weights, if the search saw none of them."
        results = self.known[state.tobytes()]
        kept = np.where(results == results.max(), row, 0)
        return kept if kept.any() else (results == results.max()).astype(float)


def measure(agent, games: int, seed: int, known: dict) -> dict:
    game = agent.game
    if game.name != "connect4": raise SystemExit(f"the first seat is measured at connect4, and the agent plays {game.name}.")
    lines = [[] for _ in range(games)]
    ends, _ = play_tables(game, [game.new()] * games, [[agent, PerfectReplies(seed, known)]] * games, lines=lines)
    results = np.array([game.returns(end)[0] for end in ends])
    won, drawn = int((results > 0).sum()), int((results == 0).sum())
    low, high = wilson_interval(won / games, games)
    return dict(games=games, different=len({tuple(line) for line in lines}), won=won, drawn=drawn, lost=games - won - drawn,
                low=float(low), high=float(high))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agents", nargs="+", metavar="AGENT")
    parser.add_argument("--simulations", type=int, nargs="+", default=[64, 400])
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--about", default="", help="how the agent was trained")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    known = {}
    for name, simulations in itertools.product(args.agents, args.simulations):
        agent = (Agent.load if Path(name).exists() else Agent.pretrained)(name, simulations, "cpu")
        row = dict(agent=Path(name).name, about=args.about, simulations=simulations,
                   **measure(agent, args.games, args.seed, known), cpu=processor(), date=str(date.today()))
        print(json.dumps(row), flush=True)
        if args.out: store_row(args.out, row, "agent", "simulations")


if __name__ == "__main__": main()
