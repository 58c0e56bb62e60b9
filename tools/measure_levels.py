"""Measure whether the levels of an agent keep their promises.

    python tools/measure_levels.py calibrate GAME [--games 1700] [--gap 100]  write the levels of a shipped agent
    python tools/measure_levels.py gaps AGENT [--games 1700] [--out FILE]     Elo between neighbouring levels
    python tools/measure_levels.py match AGENT [--games 120] [--out FILE]     "match me" with players of five strengths

AGENT is the folder of a run, or a game of which the package has an agent. The games have other openings than those of
`calibrate_levels`. `gaps` plays every level against every other one and fits one Elo to each. `match` lets rollout
players of rising strength play against the level that their rating proposes, with three seeds each.
"""
import argparse, json, sys, time
from pathlib import Path

import numpy as np

import alphazero_nb as az
from alphazero_nb.arena.level_curve import all_pairs, fit_elos, play_pairs
from alphazero_nb.arena.matches import play_tables, read_scores, start_positions
from alphazero_nb.core.intervals import Z95
from alphazero_nb.core.registry import file_stem
from alphazero_nb.search.levels import Rating, levels_to_dict

SEED = 10_000   # Of openings that no calibration plays


def load(name: str):
    agent = (az.Agent.load if Path(name).exists() else az.Agent.pretrained)(name)
    return agent.at_level(len(agent.levels))


def calibrate(game: str, games: int, gap: float) -> dict:
    "Measure the levels of an agent of the package, and write them into the file that describes it."
    levels = levels_to_dict(az.calibrate_levels(az.Agent.pretrained(game), games, gap=gap))
    file = Path(az.__file__).parent / "agents" / f"{file_stem(game)}.json"
    about = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(dict(about, levels=levels), indent=1) + "\n", encoding="utf-8")
    return dict(game=game, levels=levels)


def measure_gaps(agent, games: int) -> dict:
    "Play all pairs of levels, in rounds of ten games a pair, and fit an Elo to each level."
    players = [agent.at_level(k) for k in range(len(agent.levels), 0, -1)]   # The strongest first
    pairs, start = all_pairs(len(players)), time.perf_counter()
    meetings, scores = np.empty((0, 2), int), np.empty(0)
    while len(scores) < games:
        met, won = play_pairs(agent.game, players, pairs, 10, SEED + len(scores))
        meetings, scores = np.vstack([meetings, met]), np.r_[scores, won]
        elos, covariance = fit_elos(meetings, scores, np.eye(len(players)), spread=1000.0)   # Nearly no prior
        links = np.eye(len(players))[:-1] - np.eye(len(players))[1:]
        gaps, errors = links @ elos, np.sqrt(np.diag(links @ covariance @ links.T))
        print(f"{len(scores)} games, {time.perf_counter() - start:.0f} s: range {-elos[-1]:.0f}, gaps "
              f"{gaps.round().tolist()}, inside 100 ± 50: {int((abs(gaps - 100) <= 50).sum())}", flush=True)
    return dict(game=agent.game.name, simulations=agent.settings.simulations, games=len(scores), range=-elos[-1],
                elos=elos[::-1].tolist(), errors=np.sqrt(np.diag(covariance))[::-1].tolist(),
                gaps=[[gap, gap - Z95 * error, gap + Z95 * error] for gap, error in zip(gaps[::-1], errors[::-1])],
                levels=levels_to_dict(agent.levels))


class Sitting:
    "One simulated person who is matched by a rating."
    def __init__(self, agent, player, seed: int):
        self.agent, self.player, self.seed, self.rating, self.scores = agent, player, seed, Rating(agent.levels), []

    def opponent(self, number: int):
        level = self.rating.level
        agent = self.agent.at_level(level)
        agent.seed = 1_000_003 * self.seed + number
        return agent


def measure_match(agent, games: int, strengths=(5, 15, 40, 100, 250), seeds: int = 3) -> dict:
    "Let rollout players play against the levels that their ratings propose, all of them side by side."
    game, sittings = agent.game, [Sitting(agent, az.get_player(f"rollouts:{n}", agent.game, seed=seed), seed)
                                  for n in strengths for seed in range(seeds)]
    for number in range(games):
        starts, _ = start_positions(game, len(sittings), 2, SEED + number)
        opponents = [sitting.opponent(number) for sitting in sittings]
        seats = [(sitting.player, other)[::1 if number % 2 == 0 else -1] for sitting, other in zip(sittings, opponents)]
        ends, _ = play_tables(game, starts, seats)
        for sitting, end in zip(sittings, ends):
            result = game.returns(end)
            sitting.scores.append(float((np.sign(result[number % 2] - result[1 - number % 2]) + 1) / 2))
            sitting.rating.update(sitting.scores[-1])
        if (number + 1) % 20 == 0: print(number + 1, [round(s.rating.level, 1) for s in sittings], flush=True)
    rows = [dict(player=s.player.name, seed=s.seed, level=s.rating.level, interval=s.rating.interval,
                 score=float(np.mean(s.scores[20:]))) for s in sittings]
    for row in rows: print(row)
    print(f"{sum(abs(row['score'] - 0.5) <= 0.1 for row in rows)} of {len(rows)} within 50 ± 10 % over games 21 to {games}")
    return dict(game=game.name, games=games, rows=rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["calibrate", "gaps", "match"])
    parser.add_argument("agent")
    parser.add_argument("--games", type=int)
    parser.add_argument("--gap", type=float, default=100.0, help="Elo from level to level")
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.what == "calibrate": return print(json.dumps(calibrate(args.agent, args.games or 1700, args.gap), indent=1))
    agent = load(args.agent)
    result = measure_gaps(agent, args.games or 1700) if args.what == "gaps" else measure_match(agent, args.games or 120)
    if args.out: Path(args.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__": sys.exit(main())
