"""Measure what likely worlds gain at Blob, for the page "Worlds".

    python tools/measure_worlds.py PLAYER OPPONENT [--deals 2000] [--game NAME] [--out FILE]

A player is `SIMULATIONS,WORLDS,CANDIDATES`, the agent of the package with this search, or any player of the arena. All
deals are played from every seat. FILE gets a row for each pair; an older row of the same pair is replaced.
"""
import argparse, json, time
from datetime import date
from pathlib import Path

from measure_engines import processor, store_row
from alphazero_nb.arena.matches import play_series
from alphazero_nb.arena.players import get_player
from alphazero_nb.search.agent import Agent


def player_of(text: str, base: Agent):
    "Return the agent with this search, or another player."
    if "," not in text: return get_player(text, base.game, seed=1)
    simulations, worlds, candidates = map(int, text.split(","))
    return Agent(base.game, base.evaluator, simulations, text, seed=worlds * candidates, worlds=worlds, candidates=candidates)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("player")
    parser.add_argument("opponent")
    parser.add_argument("--deals", type=int, default=2000)
    parser.add_argument("--game", default="blob(players=4,cards=5)")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    base = Agent.pretrained(args.game, device="cpu")
    player, opponent = (player_of(text, base) for text in (args.player, args.opponent))
    play_series(base.game, player, opponent, 2, args.seed + 1)   # Compiles
    began = time.perf_counter()
    measures = play_series(base.game, player, opponent, args.deals, args.seed).to_dict()["measures"]
    seconds = time.perf_counter() - began
    row = dict(game=base.game.name, player=args.player, opponent=args.opponent, deals=args.deals,
               **{name: found["difference"] for name, found in measures.items()}, seconds=seconds,
               cpu=processor(), date=str(date.today()))
    print(json.dumps(row))
    if args.out: store_row(args.out, row, "player", "opponent")


if __name__ == "__main__": main()
