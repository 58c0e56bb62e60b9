"""Play matches against engines that others wrote, for the page "Against engines that others wrote".

    python tools/measure_engines.py AGENT OPPONENT [--games 100] [--simulations 400] [--label TEXT] [--out FILE]

AGENT is the folder of a run, or a game of which the package has an agent. OPPONENT is `gtp:COMMAND`, `uci:COMMAND`,
`gnubg:COMMAND` or any other player. Games begin after four random moves, each opening from both seats. With dice they
begin at the start of the game, because the rolls make them different, and both seats get the same rolls. If the game
counts points, as backgammon does, the row also has their mean for each game, with its interval. FILE gets a row for each
pair of agent and label; an older row of the same pair is replaced.
"""
import argparse, json, platform, time
from datetime import date
from pathlib import Path

import numpy as np

import alphazero_nb as az
from alphazero_nb.arena.matches import OPENING_PLIES, play_match
from alphazero_nb.arena.players import get_player
from alphazero_nb.core.intervals import mean_interval


class Timed:
    "A player, and the seconds that its moves took."
    def __init__(self, player): self.player, self.name, self.seconds, self.moves = player, player.name, 0.0, 0

    def acts(self, states):
        start = time.perf_counter()
        actions = self.player.acts(states)
        self.seconds, self.moves = self.seconds + time.perf_counter() - start, self.moves + len(states)
        return actions

    @property
    def move_s(self) -> float: return self.seconds / max(1, self.moves)


def processor() -> str:
    "Return the name of the CPU, and whether it has matrix units."
    try: text = Path("/proc/cpuinfo").read_text()
    except OSError: return platform.processor()
    name = next((line.partition(": ")[2] for line in text.splitlines() if line.startswith("model name")), platform.processor())
    return name + ", AMX" * ("amx_tile" in text)


def store_row(path: Path, row: dict, *keys: str) -> None:
    "Add a row to a file of measurements, in place of an older one with the same values of these keys."
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    rows = [old for old in rows if any(old.get(key) != row[key] for key in keys)] + [row]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def last_state(game, played):
    "Return the final position of a game of a match."
    state = played.start
    for action in played.actions: state = game.play(state, action)
    return state


def points_per_game(game, result) -> dict:
    "Return the mean points of the player and their interval, over the openings; nothing if the game counts no points."
    if game.measures is None or "points" not in game.measures(last_state(game, result.games[0])): return {}
    ends = [last_state(game, played) for played in result.games]
    seats = np.arange(len(ends)) % game.players   # By turns in every opening
    points = np.array([game.measures(end)["points"][seat] for end, seat in zip(ends, seats)])
    found = mean_interval(np.bincount(result.deals, points) / np.bincount(result.deals), result.groups)
    return dict(points=found[0], points_low=found[1], points_high=found[2])


def measure(agent, opponent: str, games: int, label: str, seed: int) -> dict:
    other = get_player(opponent, agent.game)
    mine, theirs = Timed(agent), Timed(other)
    try: result = play_match(agent.game, mine, theirs, games, 0 if agent.game.has_chance else OPENING_PLIES, seed)
    finally: getattr(other, "close", lambda: None)()
    row = result.to_dict()
    return dict(game=agent.game.name, label=label or opponent, command=opponent,
                program=getattr(getattr(other, "engine", None), "title", ""), simulations=agent.settings.simulations,
                **{key: row[key] for key in ("games", "different", "score", "low", "high", "wins", "draws", "losses", "elo")},
                **points_per_game(agent.game, result),
                move_s=mine.move_s, their_move_s=theirs.move_s, cpu=processor(), date=str(date.today()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent")
    parser.add_argument("opponent")
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--simulations", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--label", default="", help="short name of the opponent in the table")
    parser.add_argument("--about", default="", help="how the agent was trained")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    load = az.Agent.load if Path(args.agent).exists() else az.Agent.pretrained
    row = measure(load(args.agent, args.simulations), args.opponent, args.games, args.label, args.seed)
    row["about"] = args.about or ("agent of the package" if load == az.Agent.pretrained else "")
    print(json.dumps(row, indent=1))
    if args.out: store_row(args.out, row, "game", "label", "simulations", "about")


if __name__ == "__main__": main()
