"""Train the agents that come with the package, and write their cards.

    python tools/train_agents.py                # all of them; a stopped run goes on
    python tools/train_agents.py connect4       # one of them
    python tools/train_agents.py --measure      # train nothing; measure again, after the search or the positions have changed

Each run has a folder in runs/agents. The network is saved into alphazero_nb/agents, and what is known about
it (how long it was trained, on what, how strong it is and against whom) into a JSON file beside it and into
alphazero_nb/agents/README.md.
"""
import argparse, json, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path: sys.path.insert(0, str(ROOT))

AGENTS = ROOT / "alphazero_nb" / "agents"
GAMES = {   # Minutes of training, opponents of the card, games or deals against each
    "tictactoe": (2, ["random", "rollouts:400"], 200),
    "connect4": (60, ["rollouts:400", "rollouts:5000"], 200),
    "gomoku(size=9)": (30, ["rollouts:400", "rollouts:2000"], 200),
    "dots(rows=3,cols=3)": (15, ["rollouts:400", "solver"], 200),
    "blob(players=4,cards=5)": (20, ["heuristic"], 2000),
    "othello(size=6)": (60, ["rollouts:400", "rollouts:2000"], 200),
    "othello(size=8)": (60, ["rollouts:400", "rollouts:2000"], 100),
    "go(size=7,komi=9)": (60, ["rollouts:400", "rollouts:2000"], 100),
    "chess(variant=gardner)": (30, ["random", "greedy", "minimax:2"], 100),
}


def train(name, minutes):
    "Train an agent up to this many minutes in all. Return its trainer."
    from alphazero_nb.core.registry import file_stem
    from alphazero_nb.training.forecast import prepare_run
    from alphazero_nb.ui.progress import TextProgress
    folder, options = ROOT / "runs" / "agents" / file_stem(name), dict(listeners=(TextProgress(),))
    manifest = folder / "manifest.json"
    left = minutes - (json.loads(manifest.read_text(encoding="utf-8"))["seconds"] / 60 if manifest.exists() else 0)
    if left <= .2: return prepare_run(name, None, folder, **options)[0]
    return prepare_run(name, left, folder, **options)[0].fit(minutes=left)


def effort(game):
    "Return the search of an agent that is measured: with hidden cards, that of its self-play."
    from alphazero_nb.selfplay.settings import default_settings
    search = default_settings(game).search
    return dict(simulations=search.simulations, worlds=search.worlds) if game.has_hidden_information else {}


def measure(agent, opponents, games):
    "Return how strong an agent is and what its levels are, as plain data."
    from alphazero_nb.arena.level_curve import calibrate_levels
    from alphazero_nb.arena.matches import play_series
    from alphazero_nb.arena.players import get_player
    from alphazero_nb.search.levels import levels_to_dict
    game = agent.game
    matches = [play_series(game, agent, get_player(name, game, seed=1), games, seed=2).to_dict() for name in opponents]
    gap = 20.0 if game.has_hidden_information else 100.0   # Luck leaves less room
    levels = dict(levels=levels_to_dict(calibrate_levels(agent, gap=gap)))
    return dict(simulations=agent.settings.simulations, judged=judged_by_positions(agent), matches=matches, **levels)


def judged_by_positions(agent):
    "Return how often an agent keeps the result in the solved positions of the package, as lines; none without positions."
    from alphazero_nb.arena.judge import judge, packaged_positions
    positions = packaged_positions(agent.game)
    return [] if positions is None else [str(row) for row in judge(agent, positions)]


def measure_again(name):
    "Measure an agent of the package again, and write the figures into its card."
    from alphazero_nb.core.registry import file_stem, get_game
    from alphazero_nb.search.agent import Agent
    (_, opponents, games), path = GAMES[name], AGENTS / f"{file_stem(name)}.json"
    agent = Agent.pretrained(name, name=file_stem(name), **effort(get_game(name)))
    card = json.loads(path.read_text(encoding="utf-8")) | measure(agent, opponents, games)
    path.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")


def make(name):
    "Train an agent, and write its network and its card."
    import torch
    from alphazero_nb.core.registry import file_stem
    from alphazero_nb.network.pretrained import save_agent
    minutes, opponents, games = GAMES[name]
    trainer = train(name, minutes)
    AGENTS.mkdir(exist_ok=True)
    network, path = AGENTS / f"{file_stem(name)}.npz", AGENTS / f"{file_stem(name)}.json"
    before = network.read_bytes() if network.exists() else b""
    save_agent(network, trainer.game, trainer.preset, trainer.network)
    card = dict(game=trainer.game.name, preset=trainer.preset, minutes=round(trainer.seconds / 60, 1),
                games=trainer.games, positions=trainer.replay.added, device=trainer.device.description,
                dtype=trainer.device.dtype, torch=torch.__version__, **measure(trainer.agent(**effort(trainer.game)), opponents, games))
    if network.read_bytes() == before and path.exists():   # A note is about the training
        card |= {key: text for key, text in json.loads(path.read_text(encoding="utf-8")).items() if key == "note"}
    path.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")


def describe(card):
    "Return the card of an agent as Markdown."
    from alphazero_nb.core.events import describe_measures
    lines = [f"## {card['game']}", "",
             f"A `{card['preset']}` network after {card['minutes']:g} minutes of self-play and training on "
             f"{card['device']} ({card['dtype']}): {card['games']:,} games, {card['positions']:,} positions. "
             f"{card.get('note', '')} Judged at {card['simulations']} simulations a move.".replace("  ", " "), ""]
    lines += [f"- {line}" for line in card["judged"]]
    for row in card["matches"]:
        means = f"; {describe_measures(row['measures'])}" if row.get("measures") else ""
        lines.append(f"- against {row['opponent']}: {row['score']:.1%} of the points "
                     f"({row['low']:.1%} to {row['high']:.1%}, {row['games']:,} games){means}")
    return "\n".join(lines)


def write_cards():
    "Write README.md from the cards."
    cards = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(AGENTS.glob("*.json"))]
    head = ("# Agents that come with the package\n\n`Agent.pretrained(game)` opens them, and "
            "`alphazero-nb play connect4` plays against one. `python tools/train_agents.py` trained them from nothing "
            "but the rules and wrote this page. A solved position is critical if some move gives its result away.")
    text = "\n\n".join([head, *map(describe, cards)]) + "\n"
    (AGENTS / "README.md").write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("games", nargs="*", metavar="GAME", help=f"one of {', '.join(GAMES)}; all, if none is named")
    parser.add_argument("--measure", action="store_true", help="train nothing, and measure the agents again")
    args = parser.parse_args()
    chosen = args.games or [*GAMES]
    for name in chosen:
        if name not in GAMES: parser.error(f"{name!r} is not one of {', '.join(GAMES)}")
    for name in chosen: (measure_again if args.measure else make)(name)
    write_cards()


if __name__ == "__main__": main()
