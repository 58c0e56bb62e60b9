"""Measure self-play on Connect Four beside mctx with pgx, in alternating windows of one run.

    pip install jax mctx pgx                                     # Here, or in an environment of its own
    python tools/bench_mctx.py --python other/bin/python --out bench.json

Both search every move with 64 simulations and a residual network of 64 filters and 5 blocks with random weights. This
package plays as it does in a run, but for fast searches, so kept subtrees, shared positions and int8 count. mctx plays
in one process per core, each with one thread, float32 and so many games at once; the number that is fastest here is
found first. mctx keeps no subtree, so each of its simulations is a fresh one. Nothing else should run on the machine.
"""
import argparse, json, os, statistics, subprocess, sys, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path: sys.path.insert(0, str(ROOT))

FILTERS, BLOCKS, SIMULATIONS = 64, 5, 64


def play_with_mctx(games: int, core: int) -> None:
    """Body of a process: read seconds from the input, play for so long, and write the moves and the seconds.

    All games search at once, step by step; a game that is over begins again."""
    os.sched_setaffinity(0, {core})
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax, jax.numpy as jnp, mctx, pgx
    from pgx.experimental import auto_reset
    environment = pgx.make("connect_four")
    step, begin = jax.vmap(auto_reset(environment.step, environment.init)), jax.vmap(environment.init)
    keys = iter(jax.random.split(jax.random.PRNGKey(core), 100))

    def weights(*shape):
        return jax.random.normal(next(keys), shape) * (2 / shape[0] / (9 if len(shape) > 2 else 1)) ** .5

    def layer(inputs): return weights(FILTERS, inputs, 3, 3).transpose(2, 3, 1, 0), jnp.zeros(FILTERS)

    network = dict(stem=layer(2), blocks=[(layer(FILTERS), layer(FILTERS)) for _ in range(BLOCKS)],
                   policy=weights(2 * FILTERS, environment.num_actions), value=weights(2 * FILTERS, 1))

    def convolve(x, layer):
        kernel, bias = layer
        layout = "NHWC", "HWIO", "NHWC"
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout) + bias

    def evaluate(network, observation):
        "Batch normalisation is part of the layers; the heads see the mean and the maximum of each filter."
        x = jax.nn.relu(convolve(observation.astype(jnp.float32), network["stem"]))
        for first, second in network["blocks"]: x = jax.nn.relu(x + convolve(jax.nn.relu(convolve(x, first)), second))
        pooled = jnp.concatenate([x.mean((1, 2)), x.max((1, 2))], 1)
        return pooled @ network["policy"], jnp.tanh(pooled @ network["value"])[:, 0]

    def expand(network, key, action, state):
        mover = state.current_player
        state = jax.vmap(environment.step)(state, action)
        logits, value = evaluate(network, state.observation)
        logits = jnp.where(state.legal_action_mask, logits, jnp.finfo(logits.dtype).min)
        reward = state.rewards[jnp.arange(games), mover]
        over = state.terminated
        output = mctx.RecurrentFnOutput(reward=reward, discount=jnp.where(over, 0., -1.), prior_logits=logits,
                                        value=jnp.where(over, 0., value))
        return output, state

    def move(network, state, key):
        searching, resetting = jax.random.split(key)
        logits, value = evaluate(network, state.observation)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        found = mctx.muzero_policy(network, searching, root, expand, SIMULATIONS,
                                   invalid_actions=~state.legal_action_mask)
        return step(state, found.action, jax.random.split(resetting, games))

    move, key = jax.jit(move), jax.random.PRNGKey(100 + core)
    state = begin(jax.random.split(jax.random.PRNGKey(200 + core), games))
    state = jax.block_until_ready(move(network, state, key))   # Compiles
    print(json.dumps({module.__name__: module.__version__ for module in (jax, mctx, pgx)}), flush=True)
    for line in sys.stdin:
        start, moves = time.perf_counter(), 0
        while time.perf_counter() - start < float(line):
            key, now = jax.random.split(key)
            state = jax.block_until_ready(move(network, state, now))
            moves += games
        print(moves, time.perf_counter() - start, flush=True)


class Mctx:
    "One process per core that plays with mctx when it is asked."
    def __init__(self, python: str, games: int):
        command = [python, __file__, "--games", str(games), "--core"]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes = [subprocess.Popen([*command, str(core)], **pipes) for core in sorted(os.sched_getaffinity(0))]
        self.versions = [json.loads(self._read(process)) for process in self.processes][0]

    def _read(self, process) -> str:
        line = process.stdout.readline()
        if not line: raise SystemExit("A process of mctx ended; its message is above.")
        return line

    def moves_per_s(self, seconds: float) -> float:
        "Play for so many seconds."
        for process in self.processes: print(seconds, file=process.stdin, flush=True)
        answers = [self._read(process).split() for process in self.processes]
        return sum(float(moves) / float(took) for moves, took in answers)

    def close(self) -> None:
        for process in self.processes: process.communicate()


def measure(python: str, windows: int, seconds: float) -> dict:
    "Return moves per second and fresh simulations per second of both, and of the bare network in bfloat16 or float32."
    import torch
    from alphazero_nb.benchmark import bare_rate, best_bare, full_searches, machine_facts
    from alphazero_nb.core.device import get_device
    from alphazero_nb.core.registry import get_game
    from alphazero_nb.network.inference import inference_copy
    from alphazero_nb.network.int8 import measure_ranges
    from alphazero_nb.network.networks import PolicyValueNet
    from alphazero_nb.selfplay.engine import SelfPlayEngine
    from alphazero_nb.training.forecast import random_batch
    trials = {}
    for games in (16, 32, 64, 128):
        other = Mctx(python, games)
        trials[games] = other.moves_per_s(seconds)
        other.close()
        print(f"mctx, {games} games in each process: {trials[games]:.0f} moves/s", flush=True)
    game, device = get_game("connect4"), get_device("cpu")
    network, settings = PolicyValueNet(game, "small").eval(), full_searches(game, SIMULATIONS, None)
    measure_ranges(network, torch.from_numpy(random_batch(game, 64).inputs))   # For 8-bit integers
    ways = [row for row in best_bare(game, network, device)["tried"] if row["dtype"] != "int8"]
    best, rows = max(ways, key=lambda row: row["rate"]), []
    forward = inference_copy(network, device, best["backend"], best["dtype"])
    other = Mctx(python, max(trials, key=trials.get))
    with SelfPlayEngine(game, network, device, settings=settings, listeners=()) as engine:
        engine.play_for(2 * seconds)
        for _ in range(windows):
            engine.set_network(network)   # A run changes its weights every few seconds, and the tables forget
            before = engine.stats()
            took, after = engine.play_for(seconds), engine.stats()
            change = {key: (after[key] - before[key]) / took for key in ("moves", "evaluations", "cache_hits")}
            rows.append(dict(moves_per_s=change["moves"], fresh_per_s=change["evaluations"] + change["cache_hits"],
                             mctx_moves_per_s=other.moves_per_s(seconds), bare_per_s=bare_rate(
                                 forward, game, device, best["batch"], best["threads"], best["inside"], seconds / 2)))
            print({key: round(value) for key, value in rows[-1].items()}, flush=True)
    other.close()
    ratio = lambda top, bottom: [row[top] / row[bottom] for row in rows]
    moves = ratio("moves_per_s", "mctx_moves_per_s")
    fresh = [each / SIMULATIONS for each in ratio("fresh_per_s", "mctx_moves_per_s")]
    medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    about = dict(game=game.name, preset="small", simulations=SIMULATIONS)
    return dict(about, **medians, moves_ratio=statistics.median(moves),
                moves_ratio_low=min(moves), moves_ratio_high=max(moves), fresh_ratio=statistics.median(fresh),
                fresh_ratio_low=min(fresh), fresh_ratio_high=max(fresh), windows=rows, seconds=seconds,
                bare={key: best[key] for key in ("backend", "dtype", "batch")}, mctx_games=max(trials, key=trials.get),
                mctx_trials=trials, versions=other.versions, plan=engine.plan, machine=machine_facts())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, metavar="FILE",
                        help="Python that has jax, mctx and pgx; default: this one")
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a window; default: 5")
    parser.add_argument("--out", metavar="FILE", help="write the result as JSON")
    parser.add_argument("--games", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.core is not None: return play_with_mctx(args.games, args.core)
    found = measure(args.python, args.windows, args.seconds)
    if args.out: Path(args.out).write_text(json.dumps(found) + "\n", encoding="utf-8")
    for name, what in (("moves", "moves"), ("fresh", "fresh simulations")):
        ratio, low, high = (found[f"{name}_ratio{end}"] for end in ("", "_low", "_high"))
        print(f"{what}: {ratio:.1f} times mctx ({low:.1f} to {high:.1f})")


if __name__ == "__main__": main()
