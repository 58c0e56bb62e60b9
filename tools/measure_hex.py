"""Compare what an agent of Hex 7 × 7 thinks of each opening with the published results.

    python tools/measure_hex.py AGENT [--simulations 400] [--out FILE]

KNOWN has the results of all 49, row by row, as HexWiki draws them (hexwiki.net, "Swap", size 7). All of them were solved by
Hayward et al., "Solving 7x7 Hex: Virtual Connections and Game-State Reduction" (Advances in Computer Games 10, 2003); what
their own page, webdocs.cs.ualberta.ca/~hayward/hex7trees, says of column a and b1 to b3 is the same. An agent of
`hex(size=7)` is right if its expected result after the opening, for the player who made it, has the sign of the published
one. An agent of `hex(size=7,swap=1)` is right if it takes the stone over exactly where the opening wins.
"""
import argparse
from datetime import date
from pathlib import Path

import alphazero_nb as az
from measure_engines import processor, store_row

KNOWN = """......W
           ..W.WWW
           .WWWWW.
           WWWWWWW
           .WWWWW.
           WWW.W..
           W......"""   # W: the opening wins; seat 0 connects the top with the bottom
SWAP = 49   # The action that takes the first stone over


def known_openings() -> dict:   # {(row, column): True if the opening wins}
    "Return the known result of each opening. A half turn of the board changes nothing."
    rows = [line.strip() for line in KNOWN.split("\n")]
    assert all(rows[row][column] == rows[6 - row][6 - column] for row in range(7) for column in range(7))
    return {(row, column): rows[row][column] == "W" for row in range(7) for column in range(7)}


def measure(agent) -> dict:
    game, rows = agent.game, {}
    if game.name not in ("hex(size=7)", "hex(size=7,swap=1)"):
        raise SystemExit(f"the known openings are those of Hex 7 × 7, and the agent plays {game.name}.")
    for (row, column), wins in known_openings().items():
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
    parser.add_argument("--about", default="", help="how the agent was trained")
    parser.add_argument("--out", type=Path, help="gets a row for each game; an older one of the same game is replaced")
    args = parser.parse_args()
    found = measure(az.Agent.load(args.agent, args.simulations))
    print(f"{found['right']} of {found['openings']} openings right")
    print("\n".join(told(name, row) for name, row in found["rows"].items()))
    if args.out: store_row(args.out, dict(found, about=args.about, cpu=processor()), "game")


if __name__ == "__main__": main()
