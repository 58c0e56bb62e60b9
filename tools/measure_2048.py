"""Let an agent of 2048 play on after its tile, and say how many points it reaches.

    python tools/measure_2048.py AGENT [--simulations 64] [--games 100] [--out nbs/data/twenty48.json]

AGENT is the folder of a run of `2048(goal=131072)`. The points are those of the usual game. FILE gets a row for each label
and number of simulations; an older row of the same pair is replaced.
"""
import argparse, json, time
from datetime import date
from pathlib import Path

import numpy as np
from measure_engines import processor, store_row
from alphazero_nb.arena.matches import play_tables
from alphazero_nb.core.intervals import mean_interval
from alphazero_nb.core.streams import Purpose, derive_seed
from alphazero_nb.games.twenty48 import largest, score
from alphazero_nb.search.agent import Agent

TILES = 512, 1024, 2048, 4096, 8192, 16384


def measure(agent, games: int, seed: int) -> dict:
    game, began = agent.game, time.perf_counter()
    if not game.name.startswith("2048("): raise SystemExit(f"the points are those of 2048, and the agent plays {game.name}.")
    seeds, lines = [derive_seed(seed, Purpose.OPENINGS, k) for k in range(games)], [[] for _ in range(games)]
    ends, _ = play_tables(game, [game.new_match(each) for each in seeds], [[agent]] * games, lines=lines, seeds=seeds)
    points, tiles = np.array([score(end) for end in ends]), np.array([largest(end) for end in ends])
    mean, low, high = mean_interval(points.astype(float))
    return dict(game=game.name, games=games, mean=float(mean), low=float(low), high=float(high), median=float(np.median(points)),
                best=int(points.max()), tiles={str(tile): float((tiles >= tile).mean()) for tile in TILES},
                moves=float(np.mean([(len(line) + 1) // 2 for line in lines])),   # A line has the rolls, too
                seconds=time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent")
    parser.add_argument("--simulations", type=int, default=64)
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--about", default="", help="how the agent was trained")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    row = dict(about=args.about, simulations=args.simulations,
               **measure(Agent.load(args.agent, args.simulations, "cpu"), args.games, args.seed), cpu=processor(), date=str(date.today()))
    print(json.dumps(row, indent=1))
    if args.out: store_row(args.out, row, "about", "simulations")


if __name__ == "__main__": main()
