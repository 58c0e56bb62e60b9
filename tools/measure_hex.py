"""Compare what an agent of Hex 7 × 7 thinks of each opening with the published results.

    python tools/measure_hex.py AGENT [--simulations 400] [--out FILE]

KNOWN has the results for columns a and b1 to b3, as listed on webdocs.cs.ualberta.ca/~hayward/hex7trees, which belongs to
Hayward et al., "Solving 7x7 Hex: Virtual Connections and Game-State Reduction" (Advances in Computer Games 10, 2003); the
half turn of the board gives the other half. An agent of `hex(size=7)` is right if its expected result after the opening,
for the player who made it, has the sign of the published one. An agent of `hex(size=7,swap=1)` is right if it takes the
stone over exactly where the opening wins.
"""
import argparse, json
from datetime import date
from pathlib import Path

import alphazero_nb as az

KNOWN = dict(a1=False, a2=False, a3=False, a4=True, a5=False, a6=True, a7=True, b1=False, b2=False, b3=True)   # True: it wins
SWAP = 49   # The action that takes the first stone over


def both_halves(size: int = 7) -> dict:   # {(row, column): True if the opening wins}
    "Return the known openings, and those that a half turn makes of them."
    found = {}
    for name, wins in KNOWN.items():
        column, row = "abcdefg".index(name[0]), int(name[1]) - 1
        found[row, column] = found[size - 1 - row, size - 1 - column] = wins
    return found


def measure(agent) -> dict:
    game, rows = agent.game, {}
    if game.name not in ("hex(size=7)", "hex(size=7,swap=1)"):
        raise SystemExit(f"the known openings are those of Hex 7 × 7, and the agent plays {game.name}.")
    for (row, column), wins in both_halves().items():
        found = agent.analyse(game.play(game.new(), 7 * row + column))
        if game.actions == 49: mine = dict(expected=float(found.values[0]), thinks=bool(found.values[0] > 0))
        else: mine = dict(share=found.move(SWAP).visits / found.visits, thinks=found.best.action == SWAP)
        rows[f"{'abcdefg'[column]}{row + 1}"] = dict(wins=wins, **mine)
    right = sum(row["thinks"] == row["wins"] for row in rows.values())
    return dict(game=game.name, simulations=agent.settings.simulations, right=right, openings=len(rows), rows=rows,
                date=str(date.today()))


def told(name: str, row: dict) -> str:
    thought = f"expects {row['expected']:+.2f}" if "expected" in row else f"swaps with {row['share']:.0%} of its visits"
    return f"{name}: {thought}, {'wins' if row['wins'] else 'loses'}{'' if row['thinks'] == row['wins'] else ', wrong'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent")
    parser.add_argument("--simulations", type=int, default=400)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = measure(az.Agent.load(args.agent, args.simulations))
    print(f"{found['right']} of {found['openings']} openings right")
    print("\n".join(told(name, row) for name, row in found["rows"].items()))
    if args.out: args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
