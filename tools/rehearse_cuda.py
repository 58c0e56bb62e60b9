"""Rehearse the package on two CUDA cards without a GPU, and find where two devices or two number formats meet.

    python tools/rehearse_cuda.py            # Every part; a table, and exit status 1 if a part has a fault
    python tools/rehearse_cuda.py --faults   # Deliberate faults, to show that each is found

It needs a CUDA build of PyTorch, whose wheel can be imported without a GPU, and takes some minutes on two cores.
`fake_cards.py` has the cards. Fake tensors cannot follow numbers, the order of streams, memory, random numbers on a
card, torch.compile and worker processes. A stand-in accelerator, tests/standin.py, rehearses numbers and order.
"""
import argparse, copy, functools, math, sys, tempfile, traceback, warnings
from contextlib import contextmanager, nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path: sys.path.insert(0, str(ROOT))

PACKAGE = ROOT / "alphazero_nb"

import numpy as np
import torch
from torch import nn

from fake_cards import CARDS, Cards, Driver, Fault, install, names
from alphazero_nb.core.device import get_device, gpu_facts, list_devices, probe_device
from alphazero_nb.core.registry import get_game
from alphazero_nb.network import evaluator as evaluator_module
from alphazero_nb.network.checkpoint import check_network
from alphazero_nb.network.evaluator import BatchedEvaluator, NetworkEvaluator
from alphazero_nb.network.networks import PRESETS, PolicyValueNet
from alphazero_nb.network.pretrained import list_pretrained, read_agent, save_agent
from alphazero_nb.network.spiking import firing_rates
from alphazero_nb.search.agent import Agent
from alphazero_nb.selfplay.worker_process import pack, unpack
from alphazero_nb.training import learner as learner_module
from alphazero_nb.training.learner import Learner, TrainSettings, learner_arrays, restore_learner
from alphazero_nb.training.replay import Batch
from alphazero_nb.training.trainer import Trainer

ROWS, CARD_GAME, TINY = 8, "blob(players=3,cards=2)", ("tiny", "tictactoe")
FORMATS = dict(float32=(6, 0), float16=(7, 5), bfloat16=(8, 0))   # Compute capability of a card that trains in it
NETWORKS = [(preset, CARD_GAME if preset == "cards" else "connect4") for preset in PRESETS] + [
    TINY, ("mlp", CARD_GAME), ("spiking", "pig")]   # Other heads, and vectors
QUICK = TrainSettings(games_per_iteration=8, batch_size=ROWS, replay_ratio=1, min_replay_ratio=1, evaluate_every=1,
                      evaluate_games=2, baseline="random", match_share=1)


class OwnNet(nn.Module):
    "A network of one's own."
    def __init__(self):
        super().__init__()
        self.conv, self.policy, self.value = nn.Conv2d(2, 8, 3, padding=1), nn.Linear(72, 9), nn.Linear(72, 2)
        self.register_buffer("scale", torch.full((72,), .5))

    def forward(self, planes):
        x = torch.relu(self.conv(planes)).flatten(1) * self.scale
        return self.policy(x), torch.tanh(self.value(x))


@functools.cache
def network_of(preset, name):
    "Return the network of a preset. Nobody may change it."
    return PolicyValueNet(get_game(name), preset)


def make_network(preset, name):
    "Return the game and a new network: of a preset, or one's own."
    if isinstance(preset, type): return get_game(name), preset()
    return get_game(name), copy.deepcopy(network_of(preset, name))


def positions(game, rows=ROWS + 3):
    "Return a request to an evaluator; by default one of two batches."
    chance = np.random.default_rng(rows)
    legal = [np.flatnonzero(np.append(True, chance.random(game.actions - 1) < .5)) for _ in range(rows)]
    offsets, edges = np.cumsum([0] + [len(actions) for actions in legal]), np.concatenate(legal)
    planes = chance.integers(0, 2, (rows, game.input_size)).astype(np.int8)
    return planes, offsets.astype(np.int32), edges.astype(np.int32)


def batch(game):
    "Return a batch for a learner."
    planes = np.random.default_rng(0).integers(0, 2, (ROWS, *game.input_shape)).astype(np.int8)
    policy, values = np.full((ROWS, game.actions), 1 / game.actions), np.ones((ROWS, game.players))
    return Batch(planes, policy.astype(np.float32), values.astype(np.float32))


@contextmanager
def computes_in(number):
    "Raise a Fault if products and convolutions of the block are not computed in this format alone."
    Cards.formats.clear()
    yield
    if set(Cards.formats) != {number}: raise Fault(f"it computes in {names(Cards.formats)}, not in {number}")


# The parts. Each gets a network, a game, a card and a number format.

def play(preset, name, card, number):
    "Batches of an evaluator, two of them under way at once, and new weights."
    game, network = make_network(preset, name)
    evaluator = NetworkEvaluator(game, network, card, ROWS, dtype=None if number == get_device(card).dtype else number)
    with computes_in(number):
        reads = [evaluator.begin(*positions(game)) for _ in range(2)]
        for read in reads: read()
    evaluator.set_network(network.to(card))
    evaluator.evaluate(*positions(game, 3))


def learn(preset, name, card, number):
    "Steps of a learner, one of them with a gradient that is not finite; ranges for int8; play with the weights."
    game, network = make_network(preset, name)
    learner = Learner(network, card)
    with computes_in(number):
        for _ in range(2): learner.step(batch(game))
    Cards.answer = math.inf
    try: learner.step(batch(game))
    except RuntimeError as error:
        if number == "float16" or "diverged" not in str(error): raise
    finally: Cards.answer = 1.0
    learner.measure_ranges(batch(game).inputs)
    NetworkEvaluator(game, learner.average.module, card, ROWS).evaluate(*positions(game, 3))


def resume(preset, name, card, number):
    "A learner whose state is saved on one card and goes on on the other one."
    game, network = make_network(preset, name)
    first = Learner(network, other(card))
    first.step(batch(game))
    second = Learner(make_network(preset, name)[1], card)
    restore_learner(second, learner_arrays(first))
    with computes_in(number): second.step(batch(game))


def other(card):
    "Return the other card."
    return CARDS[1 - CARDS.index(card)]


def share(preset, name, card, number):
    "A learner on one card gives new weights to an evaluator on the other one, which threads share."
    game, network = make_network(preset, name)
    learner = Learner(network, other(card))
    evaluator = NetworkEvaluator(game, learner.network, card, ROWS)
    with BatchedEvaluator(evaluator, ROWS) as shared:
        for _ in range(2):
            learner.step(batch(game))
            evaluator.set_network(learner.average.module)
            tickets = [shared.submit(*positions(game, rows)) for rows in (3, 4, 5)]
            for ticket in tickets: ticket.result(600)


def own(preset, name, card, number):
    "A network of one's own is checked; then it plays and learns."
    game, network = make_network(preset, name)
    check_network(game, network, card)
    for part in (play, learn, resume): part(preset, name, card, number)


def train(preset, name, card, number):
    "A run on one card that is continued on the other one, and its agent."
    own = dict(network=preset()) if isinstance(preset, type) else dict(preset=preset)
    with tempfile.TemporaryDirectory() as folder:
        for each in (other(card), card):
            trainer = Trainer(name, folder=Path(folder) / "run", device=each, simulations=8, train_settings=QUICK,
                              games=8, max_batch=8, threads=2, layout="threads", listeners=(), **own)
            trainer.fit(iterations=1)
        if trainer.iteration != 2 or not trainer.matches: raise Fault("the run did not continue, or played no match")
        agent = Agent.load(Path(folder) / "run", simulations=8, device=card, network=own.get("network"))
        agent.act(agent.game.new(1))


def pretrained(preset, name, card, number):
    "The agent that comes with the package."
    agent = Agent.pretrained(name, simulations=8, device=card)
    agent.act(agent.game.pass_chance(agent.game.new(1), 1)[0])


def choose(preset, name, card, number):
    "The devices of the machine: their names, their settings and their test."
    wanted = [*CARDS, "cpu"]
    if [device.name for device in list_devices()] != wanted: raise Fault(f"the devices are not {wanted}")
    if get_device("cuda").name != CARDS[0]: raise Fault(f"cuda is not {CARDS[0]}")
    device = get_device(card)
    if (device.name, device.train_dtype) != (card, number): raise Fault(f"{card} became {device}")
    error = probe_device(device)["error"]
    if not error.startswith("results differ"): raise Fault(error)   # There are no numbers
    gpu_facts(card)


def use(preset, name, card, number):
    "A trained network elsewhere: on the CPU, in a worker process, in a small file; and its spikes."
    game, network = make_network(preset, name)
    learner = Learner(network, card)
    learner.step(batch(game))
    learner.measure_ranges(batch(game).inputs)
    network = learner.average.module
    for dtype in (None, "int8"): NetworkEvaluator(game, network, "cpu", ROWS, dtype=dtype).evaluate(*positions(game))
    NetworkEvaluator(game, unpack(pack(network)), card, ROWS).evaluate(*positions(game))
    with tempfile.TemporaryDirectory() as folder:
        save_agent(Path(folder) / "agent.npz", game, preset, network)
        NetworkEvaluator(*read_agent(Path(folder) / "agent.npz"), card, ROWS).evaluate(*positions(game))
    firing_rates(network, batch(game).inputs)


def plan():
    "Return the rows of the table: a part, its network, its game, and its number formats. Each runs on both cards."
    small, rows = [TINY, ("cards", CARD_GAME)], [(choose, "", "", FORMATS)]
    rows += [(part, *network, FORMATS) for part in (play, learn, resume) for network in NETWORKS]
    rows += [(own, OwnNet, "tictactoe", FORMATS), (use, "spiking", "connect4", ["float32"])]
    rows += [(part, *network, ["float16"]) for part in (share, use) for network in small]
    rows += [(train, *network, ["float16", "bfloat16"]) for network in (TINY, (OwnNet, "tictactoe"))]
    return rows + [(pretrained, "", name, ["float16"]) for name in list_pretrained()]


def line_of(error):
    "Return the line of the package, or of this file, in which an error arose."
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if PACKAGE in Path(frame.filename).parents or frame.filename == __file__]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"


def try_part(part, preset, name, card, number):
    "Return the operators that a part ran, and its fault with the line that it came from, or an empty text."
    Driver.capability, before = FORMATS[number], Cards.count
    try:
        with Cards(), warnings.catch_warnings():
            warnings.simplefilter("ignore")   # Of fake tensors
            part(preset, name, card, number)
    except Exception as error:
        while error.__cause__ is not None: error = error.__cause__
        text = str(error).splitlines()[0] if str(error) else ""
        return Cards.count - before, f"{line_of(error)}: {type(error).__name__}: {text}"
    return Cards.count - before, ""


def rehearse():
    "Print the table of all parts. Return the number of faults."
    faults, tried = 0, 0
    print(f"PyTorch {torch.__version__}. Operators of each part in {', '.join(FORMATS)}, and its fault.")
    for part, preset, name, formats in plan():
        for card in CARDS:
            found = [try_part(part, preset, name, card, number) if number in formats else None for number in FORMATS]
            counts = " ".join(f"{each[0] if each else '':>7}" for each in found)
            wrong = [f"{number}: {each[1]}" for number, each in zip(FORMATS, found) if each and each[1]]
            who = f"{part.__name__:10} {getattr(preset, '__name__', preset):8} {name:24} {card}"
            print(f"{who} {counts}  {'; '.join(wrong) or 'right'}", flush=True)
            faults, tried = faults + len(wrong), tried + len(formats)
    print(f"{tried - faults} of {tried} parts are right.")
    return faults


# Deliberate faults.

class LeftBehind(OwnNet):
    "Keeps an array that is no buffer, so it stays on this machine."
    def __init__(self):
        super().__init__()
        del self.scale
        self.scale = torch.full((72,), .5)


class HalfInside(OwnNet):
    "Converts numbers for a layer that was not converted."
    def forward(self, planes): return super().forward(planes.half())


def on(card):
    "Return a `send` that sends everything to one device."
    return lambda array, device: torch.from_numpy(array).to(card)


def in_double(array, device):
    "`send` that makes float64 of float32."
    return torch.from_numpy(array.astype(np.float64) if array.dtype == np.float32 else array).to(device.name)


def weights_of(card):
    "Return a `fill_network` that keeps the weights on the card that saved them, as a file without map_location does."
    def fill(network, arrays):
        weights = {key: torch.tensor(array).to(card) for key, array in arrays.items()}
        return network.load_state_dict(weights, assign=True)
    return fill


def plain_moments(learner, arrays):
    "`_moments` in another memory layout than the weights."
    moment = lambda weight: torch.ones(weight.shape, device=weight.device)
    return {index: dict(step=torch.tensor(1.0), exp_avg=moment(weight), exp_avg_sq=moment(weight))
            for index, weight in enumerate(learner.network.parameters())}


FAULTS = {   # What: where, its name that is replaced, by what; the part, its network, game, card and number format
    "a batch left on the CPU": (learner_module, "send", on("cpu"), learn, *TINY, "cuda:0", "bfloat16"),
    "a batch on the other card": (learner_module, "send", on("cuda:0"), learn, *TINY, "cuda:1", "bfloat16"),
    "positions on the other card": (evaluator_module, "send", on("cuda:0"), play, *TINY, "cuda:1", "float16"),
    "a batch in float64": (learner_module, "send", in_double, learn, *TINY, "cuda:0", "float32"),
    "no mixed precision": (Learner, "_autocast", lambda self: nullcontext(), learn, *TINY, "cuda:1", "float16"),
    "half meets float": (None, "", None, play, HalfInside, "tictactoe", "cuda:0", "float32"),
    "an array that does not move": (None, "", None, learn, LeftBehind, "tictactoe", "cuda:1", "float32"),
    "a checkpoint without map_location": (learner_module, "fill_network", weights_of("cuda:0"), resume, *TINY, "cuda:1",
                                          "float32"),
    "moments in another layout": (learner_module, "_moments", plain_moments, resume, *TINY, "cuda:0", "bfloat16")}


def show_faults():
    "Print each deliberate fault and how it was found. Return the number of those that were not."
    missed = 0
    for title, (where, what, fault, *part) in FAULTS.items():
        kept = where and getattr(where, what)
        if where: setattr(where, what, fault)
        found = try_part(*part)[1]
        if where: setattr(where, what, kept)
        missed += not found
        print(f"{title:34} {part[3]}  {found or 'not found'}", flush=True)
    print(f"{len(FAULTS) - missed} of {len(FAULTS)} deliberate faults were found.")
    return missed


def begin_in_any_thread():
    "Let every thread that asks an evaluator use the cards."
    begin = NetworkEvaluator.begin

    def wrapped(self, *request):
        with Cards(): return begin(self, *request)
    NetworkEvaluator.begin = wrapped


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", action="store_true", help="plant deliberate faults and show that each is found")
    arguments = parser.parse_args()
    if torch.version.cuda is None:
        parser.exit(2, f"PyTorch {torch.__version__} was built without CUDA; install a CUDA build in another "
                       f"environment (on Linux, `pip install torch`; no GPU is needed) and run this file there.\n")
    install()
    begin_in_any_thread()
    sys.exit(bool(show_faults() if arguments.faults else rehearse()))


if __name__ == "__main__": main()
