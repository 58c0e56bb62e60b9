"""Measure how many games the luck-adjusted result of a match saves, for the page "Luck".

    python tools/measure_luck.py AGENT OPPONENT [--games 10000] [--simulations 64] [--values ahead] [--label TEXT] [--out FILE]

AGENT is the folder of a run, or a game of which the package has an agent; without simulations, `--simulations 0`, its
network plays alone. OPPONENT is `optimal` (Pig), `itself`, `network` (its
network alone), or any player of the arena. `--values` says what values the positions after a roll: the network of
the agent, the network one roll `ahead`, or its search with a number of simulations. In games with hidden cards, `--games`
are deals, each from every seat. FILE gets a row for each game, label and kind of values; an older row of the same three is replaced.
"""
import argparse, json, time
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
from measure_engines import processor, store_row
from alphazero_nb.arena.luck import NetworkAlone, OneRollAhead
from alphazero_nb.arena.matches import play_series
from alphazero_nb.arena.players import Player, get_player
from alphazero_nb.core.compiled import kernel
from alphazero_nb.core.intervals import mean_interval
from alphazero_nb.games.pig import HOLD, ROLL, decide, solve_pig
from alphazero_nb.search.agent import Agent

SHARES = 1, 1/2, 1/4, 1/10, 1/20, 1/50   # Of the games


@kernel
def choose_best(wins, states):
    "Return the best action of each position of Pig; `wins` as from `solve_pig`."
    actions = np.full(len(states), ROLL)
    for i in range(len(states)):
        seat, turn = states[i, 0], states[i, 3]
        if turn == 0: continue
        roll, hold = decide(wins, states[i, 1 + seat], states[i, 2 - seat], turn)
        if hold >= roll: actions[i] = HOLD
    return actions


class OptimalPig(Player):
    "Plays Pig perfectly."
    def __init__(self, game): self.game, self.name, self.wins = game, "optimal", solve_pig(int(game.new()[6]), 1e-9)

    def acts(self, states): return choose_best(self.wins, self.game.as_states(states))


def opponent_of(name: str, player):
    if name == "optimal": return OptimalPig(player.game)
    if name == "network": return NetworkAlone(player.game, player.evaluator)
    return player if name == "itself" else get_player(name, player.game)


def oracle_of(values: str, agent, worlds: int):
    "Return what values the positions after a roll."
    if values == "network": return agent.evaluator
    if values == "ahead": return OneRollAhead(agent.game, agent.evaluator)
    return Agent(agent.game, agent.evaluator, int(values), worlds=worlds)


def first_games(match, share: float) -> dict:
    "Return the mean results of the first openings or deals of a match, plain and adjusted, with their intervals."
    part = match.deals < max(2, round(share * (match.deals.max() + 1)))
    return replace(match, scores=match.scores[part], lengths=match.lengths[part], deals=match.deals[part], games=(),
                   results=match.results[part], luck=match.luck[part]).means


def measure(agent, player, opponent, new_oracle, games: int, seed: int) -> dict:
    play_series(agent.game, player, opponent, 4, seed, luck=new_oracle())   # Compiles
    began = time.perf_counter()
    play_series(agent.game, player, opponent, games, seed)
    played = time.perf_counter()
    result = play_series(agent.game, player, opponent, games, seed, luck=new_oracle())
    ended = time.perf_counter()
    match = getattr(result, "match", result)
    means = [dict(share=share, **first_games(match, share)) for share in SHARES]
    half = lambda row: (row[2] - row[1]) / 2
    return dict(games=len(match.scores), correlation=float(np.corrcoef(match.results, match.luck)[0, 1]), openings=int(match.deals.max()) + 1, means=means,
                narrower=half(means[0]["result"]) / half(means[0]["adjusted"]),
                start_to_end_s=played - began, luck_s=max(0, ended - played - (played - began)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent")
    parser.add_argument("opponent")
    parser.add_argument("--games", type=int, default=10_000)
    parser.add_argument("--simulations", type=int, default=64)
    parser.add_argument("--worlds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--values", default="network", help="network, ahead, or a number of simulations")
    parser.add_argument("--label", default="", help="the pair, in the table")
    parser.add_argument("--about", default="", help="how the agent was trained")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    load = Agent.load if Path(args.agent).exists() else Agent.pretrained
    agent = load(args.agent, max(1, args.simulations), "cpu", worlds=args.worlds)
    player = agent if args.simulations else NetworkAlone(agent.game, agent.evaluator)
    row = dict(game=agent.game.name, label=args.label or args.opponent, about=args.about, simulations=args.simulations,
               values=args.values, **measure(agent, player, opponent_of(args.opponent, player),
                                             lambda: oracle_of(args.values, agent, args.worlds), args.games, args.seed),
               cpu=processor(), date=str(date.today()))
    print(json.dumps(row, indent=1))
    if args.out: store_row(args.out, row, "game", "label", "values")


if __name__ == "__main__": main()
