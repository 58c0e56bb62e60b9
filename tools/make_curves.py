"""Judge the agents of finished runs, and write their learning curve for the forecast.

    python tools/make_curves.py runs/5-minutes runs/11-minutes runs/30-minutes --along runs/11-minutes

The learning rate falls towards the end of a planned run, so a point of the curve is a whole run and not a moment of a
longer one. With fewer positions than any of these runs, the networks that the runs of `--along` have kept are points,
too: lower bounds, before the rate falls. The runs of a game and network replace their curve in
alphazero_nb/training/curves.json; runs of equal length that learned about as much are averaged. The judge asks for a move with 64 simulations in
the critical positions among up to 1,500 of each phase from the set that comes with the package.
"""
import argparse, json, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path: sys.path.insert(0, str(ROOT))

CURVES = ROOT / "alphazero_nb" / "training" / "curves.json"


def judge_run(folder, per_phase, along=None):   # along: only the kept networks of fewer positions
    "Yield game and preset of a run, and its points of the curve as plain data."
    from alphazero_nb.arena.judge import judge, packaged_positions
    from alphazero_nb.network.saved_run import read_config, read_saved
    from alphazero_nb.search.agent import Agent
    config = read_config(folder / "config.json")
    saved = read_saved(folder)
    rows, kept = saved.rows(), [folder / f"network-{iteration:06}.npz" for iteration in sorted(saved.checkpoint.networks)]
    learned = lambda last: sum(row["positions"] for row in rows[:last])
    networks = [network for network in kept if learned(int(network.stem[8:])) < along] if along else [folder]
    for network in networks:
        agent, last = Agent.load(network, simulations=64), int(network.stem[8:]) if along else len(rows)
        found = judge(agent, packaged_positions(agent.game).sample(per_phase))
        point = dict(minutes=rows[last - 1]["done"]["seconds"] / 60, positions=learned(last),
                     games=rows[last - 1]["done"]["games"], run=str(folder), share=found[-1].share, phases=[row.share for row in found[:-1]])
        print(f"{point['minutes']:5.1f} min, {point['positions']:7,} positions: {found[-1]}", flush=True)
        yield (config["game"], config["preset"]), point


def make_curve(points):
    "Return the curve of some runs. Points of different runs within a tenth of a length and a quarter of the positions are one."
    from alphazero_nb.core.device import get_device
    groups = []
    for point in sorted(points, key=lambda point: point["minutes"]):
        near = groups and point["minutes"] < 1.1 * groups[-1][0]["minutes"] and .8 < point["positions"] / groups[-1][0]["positions"] < 1.25
        if near and point["run"] not in [other["run"] for other in groups[-1]]: groups[-1].append(point)
        else: groups.append([point])
    mean = lambda group, key: sum(point[key] for point in group) / len(group)
    groups.sort(key=lambda group: mean(group, "positions"))
    device = get_device("auto")
    return dict(minutes=[round(mean(group, "minutes"), 1) for group in groups],
                positions=[round(mean(group, "positions")) for group in groups],
                games=[round(mean(group, "games")) for group in groups],
                share=[round(mean(group, "share"), 4) for group in groups],
                phases=[[round(sum(shares) / len(group), 4) for shares in zip(*(point["phases"] for point in group))]
                        for group in groups],
                runs=[len(group) for group in groups], device=f"{device.description}, {device.dtype}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--per-phase", type=int, default=1500)
    parser.add_argument("--along", nargs="*", type=Path, default=[], help="runs whose kept networks are points, too")
    args = parser.parse_args()
    points = {}
    for folder in args.runs:
        for name, point in judge_run(folder, args.per_phase): points.setdefault(name, []).append(point)
    fewest = {name: min(point["positions"] for point in found) for name, found in points.items()}
    for folder in args.along:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        name = config["game"], config["preset"]
        found = judge_run(folder, args.per_phase, fewest.get(name, float("inf")))
        points.setdefault(name, []).extend(point for _, point in found)
    curves = json.loads(CURVES.read_text(encoding="utf-8"))
    for (game, preset), found in points.items(): curves.setdefault(game, {})[preset] = make_curve(found)
    CURVES.write_text(json.dumps(curves, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
