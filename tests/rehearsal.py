"""What the package does on an accelerator, on the one of `standin`: `python rehearsal.py PART...`, in a process of its own.

counts: a line of JSON for each network, with the counts of a batch and of a step, and whether the numbers are right.
faults: a line for each deliberate fault, and whether the numbers show it.
runs: saving and restoring, play on the CPU, a match, and weights that change while batches are computed.
operators: the check of operators on the device as it is, without an operator, and with one that computes wrongly.
"all counts" and "all operators" have the networks, too, that are large or spike."""
import contextlib, copy, json, sys, threading
from functools import partial

import numpy as np
import torch

import standin
from standin import Log, Mode
from alphazero_nb.arena.matches import play_match
from alphazero_nb.core import transfers
from alphazero_nb.core.device import Device
from alphazero_nb.core.registry import get_game
from alphazero_nb.network import evaluator as evaluator_module
from alphazero_nb.network.checkpoint import fill_network, network_arrays
from alphazero_nb.network.evaluator import BatchedEvaluator, NetworkEvaluator
from alphazero_nb.network.inference import RecordedCopy
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.search.agent import Agent
from alphazero_nb.training.learner import Learner, TrainSettings, learner_arrays, restore_learner
from alphazero_nb.training.operator_check import KINDS, check_operators
from alphazero_nb.training.replay import Batch

torch.set_num_threads(1)
CPU = Device("cpu", "CPU", "float32", "float32", False, False)
GPU = Device("standin:0", "overlaps, as CUDA", "float32", "float32", False, False, overlaps=True)
WAITS = Device("standin:0", "waits, as MPS", "float32", "float32", False, False)
NETWORKS = dict(tiny="connect4", small="connect4", medium="connect4", cards="blob(players=3,cards=2)", spiking="connect4", mlp="connect4")
ROWS = 8


class Rehearsed(NetworkEvaluator):
    "An evaluator whose device can be used in every thread that calls it."
    def begin(self, *request):
        with Mode(): read = super().begin(*request)

        def result():
            with Mode(): return read()
        return result


def ask(game, seed, rows=5):
    "Positions at random. About half of the actions are legal, the same ones for every seed."
    chance = np.random.default_rng(rows)
    legal = [np.flatnonzero(np.append(True, chance.random(game.actions - 1) < .5)) for _ in range(rows)]
    offsets, chance = np.cumsum([0] + [len(actions) for actions in legal]).astype(np.int32), np.random.default_rng(seed)
    return chance.integers(0, 2, (rows, game.input_size)).astype(np.int8), offsets, np.concatenate(legal).astype(np.int32)


def batch(game, seed):
    chance = np.random.default_rng(seed)
    policy = chance.random((ROWS, game.actions)).astype(np.float32)
    return Batch(chance.integers(0, 2, (ROWS, *game.input_shape)).astype(np.int8), policy / policy.sum(1, keepdims=True),
                 chance.uniform(-1, 1, (ROWS, game.players)).astype(np.float32))


def evaluators(game, network, device=GPU, backend="auto"):
    plain = NetworkEvaluator(game, network, CPU, shapes=(ROWS,), backend="eager")
    return plain, Rehearsed(game, copy.deepcopy(network), device, shapes=(ROWS,), backend=backend)


def learners(network):
    settings = TrainSettings(batch_size=ROWS)
    return Learner(copy.deepcopy(network), CPU, settings), Learner(copy.deepcopy(network), GPU, settings)


def same(got, want, tolerance=1e-5): return all(np.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(got, want))


def close(a, b):
    "True if two learners have the same state, but for the order in which sums were computed."
    first, second = learner_arrays(a), learner_arrays(b)
    return first.keys() == second.keys() and all(np.allclose(first[key], second[key], rtol=1e-3, atol=1e-4) for key in first)


def counts(presets=("tiny", "cards")):
    for preset in presets:
        game = get_game(NETWORKS[preset])
        network = PolicyValueNet(game, preset)
        row = dict(network=preset)
        with Mode():
            for device, key in ((GPU, "batch"), (WAITS, "waiting_batch")):
                plain, there = evaluators(game, network, device)
                with Log() as log: got = there.evaluate(*ask(game, 1))
                row[key] = dict(log, right=same(got, plain.evaluate(*ask(game, 1))), names=dict(log.names))
            plain, there = evaluators(game, network, backend="graphs")
            there.evaluate(*ask(game, 0))
            with Log() as log: got = there.evaluate(*ask(game, 1))
            row["recorded_batch"] = dict(log, right=same(got, plain.evaluate(*ask(game, 1))), names=dict(log.names))
            here, there = learners(network)
            for seed in range(2): here.step(batch(game, seed)), there.step(batch(game, seed))
            here.step(batch(game, 2))
            with Log() as log: there.step(batch(game, 2))
            row["step"] = dict(log, operators=log["operators"] - log["handed"], names=dict(log.names))
            with Log() as log: arrays = learner_arrays(there)
            row["step"]["right"], row["save"] = close(here, there), dict(log)
        print(json.dumps(row), flush=True)


def runs():
    game = get_game("tictactoe")
    network = PolicyValueNet(game, "tiny")
    with Mode():
        here, there = learners(network)
        for seed in range(3): there.step(batch(game, seed))
        restored = learners(network)[1]
        restore_learner(restored, learner_arrays(there))
        print(json.dumps(dict(part="restore", right=close(there, restored))), flush=True)
        for learner in (there, restored): learner.step(batch(game, 3))
        print(json.dumps(dict(part="restore and go on", right=close(there, restored))), flush=True)
        print(json.dumps(dict(part="play on the CPU", right=comes_back(game, there))), flush=True)
        agents = [Agent(game, each, simulations=16) for each in evaluators(game, network)]
        games = [play_match(game, agent, Agent(game, evaluators(game, PolicyValueNet(game, "tiny", 1))[0], simulations=16), 10, seed=1)
                 for agent in agents]
        print(json.dumps(dict(part="match", right=games[0].to_dict()["wins"] == games[1].to_dict()["wins"])), flush=True)
        print(json.dumps(dict(part="new weights", right=weights_change(game))), flush=True)
        print(json.dumps(dict(part="new weights of a recording", right=weights_change(game, "graphs"))), flush=True)
        print(json.dumps(dict(part="a network that waits", right=one_that_waits(game))), flush=True)
    for backend in ("auto", "graphs"):
        print(json.dumps(dict(part=f"threads, {backend}", right=clients(game, network, backend))), flush=True)


def comes_back(game, learner) -> bool:
    "True if the network of a learner on the device plays on the CPU, with each backend and in 8-bit integers."
    learner.measure_ranges(batch(game, 0).inputs)
    network = learner.average.module
    plain = fill_network(PolicyValueNet(game, "tiny"), network_arrays(network))
    pairs = [[NetworkEvaluator(game, each, CPU, shapes=(ROWS,), backend=backend, dtype=dtype).evaluate(*ask(game, 1))
              for each in (network, plain)] for backend, dtype in (("eager", None), ("auto", None), ("auto", "int8"))]
    return all(same(got, want) for got, want in pairs)


class Waits(torch.nn.Module):
    "A network that looks at a number of the device while it computes."
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, planes):
        assert planes.float().sum().item() > -1e9
        return self.inside(planes)


def one_that_waits(game) -> bool:
    "True if a network that cannot be recorded is refused in one sentence, and computed without a recording."
    network = Waits(PolicyValueNet(game, "tiny"))
    plain, there = evaluators(game, network, backend="graphs")
    try: there.evaluate(*ask(game, 1))
    except RuntimeError as error: refused = "'graphs' cannot record Waits" in str(error)
    return refused and same(evaluators(game, network)[1].evaluate(*ask(game, 1)), plain.evaluate(*ask(game, 1)))


def weights_change(game, backend="auto") -> bool:
    """True if each batch is computed with the weights that were given before it, while the learner changes its own: its step
    waits for its own stream alone, so the copy is not made before the next batch is read."""
    network = PolicyValueNet(game, "tiny")
    here, there = learners(network)
    evaluator, right = Rehearsed(game, there.network, GPU, shapes=(ROWS,), backend=backend), []
    for seed in range(4):
        for learner in (here, there): learner.step(batch(game, seed))
        want = NetworkEvaluator(game, here.network, CPU, shapes=(ROWS,), backend="eager").evaluate(*ask(game, seed))
        there._blend()   # This work still lies in the learner's stream
        before = evaluator.forward
        evaluator.set_network(there.network)
        right.append((evaluator.forward is before) == (backend == "graphs"))
        read = evaluator.begin(*ask(game, seed))
        for learner in (here, there): learner.step(batch(game, 10 + seed))
        right.append(same(read(), want, 1e-3))
    return all(right)


def clients(game, network, backend="auto") -> bool:
    "True if six threads that share the evaluator get their own answers, with two batches under way."
    with Mode(): plain, there = evaluators(game, network, backend=backend)
    asked = [[ask(game, 100 * client + n, 1 + n % 4) for n in range(12)] for client in range(6)]
    wanted, found = [[plain.evaluate(*each) for each in asks] for asks in asked], {}
    with BatchedEvaluator(there, max_batch=ROWS) as shared:
        def work(client): found[client] = [shared.evaluate(*each) for each in asked[client]]
        threads = [threading.Thread(target=work, args=(client,)) for client in range(6)]
        for thread in threads: thread.start()
        for thread in threads: thread.join(600)
    return all(same(got, want) for client in range(6) for got, want in zip(found[client], wanted[client]))


def read_too_early(tensor, device):
    "`read_later` without its wait."
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    return host.numpy


def recorded_too_early(tensor, device):
    "`read_later` whose event comes before the copy."
    host, event = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True), torch.standin.Event()
    event.record()
    host.copy_(tensor, non_blocking=True)
    return lambda: (event.synchronize(), host.numpy())[1]


BUFFER = {}


def overwritten_too_early(array, device):
    "`send` from one buffer, which the next batch overwrites before the device has read it."
    if "host" not in BUFFER: BUFFER["host"] = torch.empty(1 << 16, dtype=torch.int8, pin_memory=True)
    part = BUFFER["host"][:len(array)]
    part.numpy()[:] = array
    return part.to(device.name, non_blocking=True)


@contextlib.contextmanager
def without_order(self):
    "`after_others` without its waits."
    with self.use(): yield


def stale_input(self, tensor):
    "`DeviceGraph.__call__` without the copy of its input."
    self.graph.replay()
    return self.output


def lost_weights(self, network):
    "`RecordedCopy.load` that takes the new network instead of its numbers; the recording reads the old ones."
    self.net = copy.deepcopy(network)
    return True


def two_batches(game, backend="auto") -> bool:
    "True if two batches that are under way at once are answered rightly."
    plain, there = evaluators(game, PolicyValueNet(game, "tiny"), backend=backend)
    with Mode(): there.evaluate(*ask(game, 0))   # The weights are there
    reads = [there.begin(*ask(game, seed)) for seed in (1, 2)]
    return all([same(read(), plain.evaluate(*ask(game, seed))) for seed, read in zip((1, 2), reads)])


def faults():
    game = get_game("tictactoe")
    cases = {"none": (None, None, None, two_batches), "read too early": (evaluator_module, "read_later", read_too_early, two_batches),
             "recorded too early": (evaluator_module, "read_later", recorded_too_early, two_batches),
             "overwritten too early": (evaluator_module, "send", overwritten_too_early, two_batches),
             "no order of weights": (transfers.DeviceStream, "after_others", without_order, weights_change),
             "none in a recording": (None, None, None, partial(two_batches, backend="graphs")),
             "stale input of a recording": (transfers.DeviceGraph, "__call__", stale_input, partial(two_batches, backend="graphs")),
             "lost weights of a recording": (RecordedCopy, "load", lost_weights, partial(weights_change, backend="graphs"))}
    for name, (where, what, fault, check) in cases.items():
        kept = where and getattr(where, what)
        if where: setattr(where, what, fault)
        with Mode(): right = check(game)
        if where: setattr(where, what, kept)
        print(json.dumps(dict(fault=name, right=right)), flush=True)


def lacks(*names):
    "The device without some operators."
    compute = standin.compute

    def work(func, args, kwargs):
        if func.name() in names: raise NotImplementedError(f"The operator '{func.name()}' is not implemented for this device.")
        return compute(func, args, kwargs)
    return work


def miscomputes(name):
    "The device with an operator whose result is a fifth too large."
    compute = standin.compute

    def work(func, args, kwargs):
        result = compute(func, args, kwargs)
        return compute(standin.aten.mul.Tensor, (result, 1.2), {}) if func.name() == name else result
    return work


def operators(kinds=(KINDS[0], KINDS[4])):
    compute, small = standin.compute, (("tictactoe", "tiny"), ("blob(players=3,cards=2)", "cards"))
    cases = dict(none=(compute, kinds), wrong=(miscomputes("aten::addmm"), small[:1]),
                 missing=(lacks("aten::tanh", "aten::_foreach_lerp_.Scalar", "aten::maximum"), small))
    for name, (work, kinds) in cases.items():
        standin.compute = work
        with Mode(): report = check_operators(GPU, kinds)
        standin.compute = compute
        print(json.dumps(dict(report, case=name)), flush=True)


PARTS = {"counts": counts, "all counts": partial(counts, NETWORKS), "faults": faults, "runs": runs, "operators": operators,
         "all operators": partial(operators, KINDS)}
if __name__ == "__main__":
    for part in sys.argv[1:]: PARTS[part]()
