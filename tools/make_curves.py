"""Judge the networks that a run has kept on its way, and write its learning curve for the forecast.

    python tools/make_curves.py runs/connect4 runs/connect4-small

Each run replaces the curve of its game and network in alphazero_nb/training/curves.json. The judge asks for a move
with 64 simulations in up to 1,000 positions of each phase from the set that comes with the package.
"""
import argparse, json, sys
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path: sys.path.insert(0, str(ROOT))

CURVES = ROOT / "alphazero_nb" / "training" / "curves.json"


def make_curve(folder, per_phase):
    "Return game, preset and the curve of a run as plain data."
    from alphazero_nb.arena.judge import judge, packaged_positions
    from alphazero_nb.core.device import get_device
    from alphazero_nb.network.saved_run import read_config
    from alphazero_nb.search.agent import Agent
    config = read_config(folder / "config.json")
    rows = [json.loads(line) for line in (folder / "iterations.jsonl").read_text(encoding="utf-8").splitlines()]
    curve = dict(minutes=[], positions=[], share=[], phases=[])
    learned = dict(zip((row["iteration"] for row in rows), accumulate(row["positions"] for row in rows)))
    minutes_at = {row["iteration"]: row["done"]["seconds"] / 60 for row in rows}
    for iteration in map(int, json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["networks"]):
        agent = Agent.load(folder / f"network-{iteration:06}.npz", 64)
        found = judge(agent, packaged_positions(agent.game).sample(per_phase))
        minutes, positions = minutes_at[iteration], learned[iteration]
        for name, value in dict(minutes=round(minutes, 2), positions=positions, share=round(found[-1].share, 4),
                                phases=[round(row.share, 4) for row in found[:-1]]).items(): curve[name].append(value)
        print(f"{minutes:5.1f} min, {positions:7,} positions: {found[-1]}", flush=True)
    device = get_device("auto")
    return config["game"], config["preset"], dict(curve, device=f"{device.description}, {device.dtype}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--per-phase", type=int, default=1000)
    args = parser.parse_args()
    for folder in args.runs:
        game, preset, curve = make_curve(folder, args.per_phase)
        curves = json.loads(CURVES.read_text(encoding="utf-8"))
        curves.setdefault(game, {})[preset] = curve
        CURVES.write_text(json.dumps(curves, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
