"""Play matches against engines that others wrote, for the page "Against engines that others wrote".

    python tools/measure_engines.py AGENT OPPONENT [--games 100] [--simulations 400] [--label TEXT] [--out FILE]

AGENT is the folder of a run, or a game of which the package has an agent. OPPONENT is `gtp:COMMAND`, `uci:COMMAND` or any
other player. Games begin after four random moves, each opening from both seats. FILE gets a row for each pair of agent
and label; an older row of the same pair is replaced.
"""
import argparse, json, platform, time
from datetime import date
from pathlib import Path

import alphazero_nb as az
from alphazero_nb.arena.matches import play_match
from alphazero_nb.arena.players import get_player


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


def measure(agent, opponent: str, games: int, label: str, seed: int) -> dict:
    other = get_player(opponent, agent.game)
    mine, theirs = Timed(agent), Timed(other)
    try: result = play_match(agent.game, mine, theirs, games, seed=seed)
    finally: getattr(other, "close", lambda: None)()
    row = result.to_dict()
    return dict(game=agent.game.name, label=label or opponent, command=opponent,
                program=getattr(getattr(other, "engine", None), "title", ""), simulations=agent.settings.simulations,
                **{key: row[key] for key in ("games", "different", "score", "low", "high", "wins", "draws", "losses", "elo")},
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
    if args.out:
        rows = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else []
        key = lambda one: (one["game"], one["label"], one["simulations"], one["about"])
        rows = [one for one in rows if key(one) != key(row)] + [row]
        args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
