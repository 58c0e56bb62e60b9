"What evaluators promise: each client its own answer, no client left waiting, no wrong number passed on."
import copy
import functools
import itertools
import threading
import time
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from alphazero_nb.core.device import get_device
from alphazero_nb.core.registry import get_game
from alphazero_nb.network import evaluator as evaluator_module
from alphazero_nb.network.networks import BoardNet, PolicyValueNet
from alphazero_nb.network.fused_boards import FusedBoardNet, fold_batch_norm, fused_boards_work
from alphazero_nb.network.inference import RecordedCopy, can_fuse, inference_copy
from alphazero_nb.network.evaluator import BatchedEvaluator, EvaluatorError, NetworkEvaluator, batch_shapes, out_of_memory

BACKENDS = ["eager", "fused"]
DTYPES = ["float32", "bfloat16"][:1 + (get_device("cpu").dtype == "bfloat16")]   # That this CPU computes in


def needs(backend, network=None):
    if backend == "fused" and not can_fuse(network or PolicyValueNet(GAME, "tiny"), get_device("cpu")):
        pytest.skip("the fused operators do not run this network here")


GAME = get_game("connect4")


pytestmark = pytest.mark.usefixtures("one_thread_inside")


def request(game, rng, rows):
    "Random inputs and 1 to all actions of each."
    inputs = rng.integers(0, 2, (rows, game.observation_size)).astype(np.int8)
    choices = [np.sort(rng.choice(game.actions, rng.integers(1, game.actions + 1), replace=False)) for _ in range(rows)]
    offsets = np.concatenate([[0], np.cumsum([len(c) for c in choices])]).astype(np.int32)
    return inputs, offsets, np.concatenate(choices).astype(np.int32)


class Echo:
    "Answers follow from the question: value k of a row is its number plus k, a logit its number times 8 plus the action."
    def __init__(self, players=2):
        self.players, self.rows, self.gate, self.entered = players, [], None, threading.Event()

    def evaluate(self, inputs, offsets, actions):
        self.rows.append(len(inputs))
        self.entered.set()
        if self.gate is not None: assert self.gate.wait(600)
        number = inputs[:, :4].copy().view(np.int32)[:, 0]
        values = number[:, None] + np.arange(self.players)
        return (np.repeat(number, np.diff(offsets)) * 8 + actions).astype(np.float32), values.astype(np.float32)


def question(number, rows=1, edges=2):
    "A question that carries a number for Echo, and the answer."
    inputs = np.zeros((rows, 8), np.int8)
    inputs[:, :4] = np.arange(number, number + rows, dtype=np.int32)[:, None].view(np.int8)
    actions = np.tile(np.arange(edges, dtype=np.int32), rows)
    offsets = np.arange(0, rows * edges + 1, edges, dtype=np.int32)
    numbers = np.arange(number, number + rows)
    return (inputs, offsets, actions), (np.repeat(numbers, edges) * 8. + actions, numbers[:, None] + np.arange(2.))


def same(answer, want): return all(np.array_equal(a, b) for a, b in zip(answer, want))


def in_threads(functions, timeout_s=600):
    "Runs them side by side; what each returned or raised. Fails if one is still running after `timeout_s`."
    results = [None] * len(functions)

    def run(i):
        try: results[i] = functions[i]()
        except BaseException as error: results[i] = error
    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(functions))]
    for thread in threads: thread.start()
    end = time.monotonic() + timeout_s
    for thread in threads: thread.join(max(0, end - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "a client waits for ever"
    return results


def wait_until(condition, timeout_s=600):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(.002)


# One owner, many clients


def test_sixteen_threads_get_their_own_answers():
    requests, echo = 500, Echo()

    def client(index, evaluator):
        wrong, rng = 0, np.random.default_rng(index)
        for i in range(requests):
            ask, want = question(index * 20_000 + i * 5, rows=int(rng.integers(1, 5)), edges=int(rng.integers(1, 4)))
            wrong += not same(evaluator.evaluate(*ask), want)
        return wrong

    with BatchedEvaluator(echo, max_batch=24) as evaluator:
        wrong = in_threads([lambda i=i: client(i, evaluator) for i in range(16)])
        stats = evaluator.get_stats()
    assert wrong == [0] * 16
    assert stats["total_requests"] == 16 * requests and stats["queue_size"] == 0
    assert stats["total_rows"] == sum(echo.rows) and stats["total_batches"] == len(echo.rows)
    assert max(echo.rows) <= 24


def test_threads_share_a_real_network():
    "Answers of the shared evaluator are those of the bare one, to the last bit: there is one batch shape."
    bare = NetworkEvaluator(GAME, PolicyValueNet(GAME, "tiny"), device="cpu", shapes=(32,))
    rng = np.random.default_rng(0)
    asked = [[request(GAME, rng, int(rng.integers(1, 6))) for _ in range(12)] for _ in range(6)]
    wanted = [[bare.evaluate(*ask) for ask in asks] for asks in asked]
    with BatchedEvaluator(bare, max_batch=32) as evaluator:
        found = in_threads([lambda asks=asks: [evaluator.evaluate(*ask) for ask in asks] for asks in asked])
    for got, want in zip(found, wanted): assert all(same(a, b) for a, b in zip(got, want))


def test_requests_that_wait_for_a_slow_batch_are_one_batch():
    echo = Echo()
    echo.gate = threading.Event()
    with BatchedEvaluator(echo, max_batch=64) as evaluator:
        first = evaluator.submit(*question(7)[0])
        wait_until(echo.entered.is_set)
        rest = [(evaluator.submit(*ask), want) for ask, want in (question(100 * i, rows=i) for i in range(1, 9))]
        assert evaluator.get_stats()["queue_size"] == 8
        echo.gate.set()
        assert same(first.result(600), question(7)[1])
        assert all(same(ticket.result(600), want) for ticket, want in rest)
        stats = evaluator.get_stats()
    assert echo.rows == [1, 36]
    assert stats["avg_batch_size"] == 37 / 2 and stats["total_requests"] == 9


def test_a_batch_is_no_longer_than_promised():
    "Requests are never cut, so 5 rows go alone where 3 already wait in a batch of 6; a longer one is passed on whole."
    echo = Echo()
    echo.gate = threading.Event()
    with BatchedEvaluator(echo, max_batch=6) as evaluator:
        evaluator.submit(*question(0)[0])
        wait_until(echo.entered.is_set)
        tickets = [evaluator.submit(*question(0, rows)[0]) for rows in (3, 5, 1, 9, 2, 4)]
        echo.gate.set()
        for ticket in tickets: ticket.result(600)
    assert echo.rows == [1, 3, 6, 9, 6]


def test_a_lone_request_does_not_wait_for_company():
    "No second request comes. Each is answered alone, and the thread never waits for a time."
    with BatchedEvaluator(Echo(), max_batch=256) as evaluator:
        condition, waits = evaluator._threads.queue._condition, []
        wait = condition.wait
        condition.wait = lambda *limit: waits.append(limit) or wait(*limit)
        ask, want = question(3)
        for _ in range(200): assert same(evaluator.submit(*ask).result(600), want)
        stats = evaluator.get_stats()
    assert set(waits) <= {()}
    assert stats["total_batches"] == 200 and stats["avg_batch_size"] == 1


def test_statistics_count_and_time(monkeypatch):
    "The first batch takes five seconds, and the second request waits for them."
    echo, clock = Echo(), [0.0]
    echo.gate = threading.Event()
    monkeypatch.setattr(evaluator_module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    with BatchedEvaluator(echo, max_batch=8) as evaluator:
        assert {"total_requests", "total_batches", "avg_batch_size", "queue_size", "wait_s", "busy_s"} <= evaluator.get_stats().keys()
        first = evaluator.submit(*question(0)[0])
        wait_until(echo.entered.is_set)
        second = evaluator.submit(*question(1)[0])
        clock[0] = 5.0
        echo.gate.set()
        first.result(600), second.result(600)
        wait_until(lambda: evaluator.get_stats()["total_batches"] == 2)
        stats = evaluator.get_stats()
    assert stats["busy_s"] == stats["wait_s"] == 5
    assert stats["total_requests"] == 2 and stats["queue_size"] == 0


def test_a_ticket_can_be_asked_with_a_limit():
    echo = Echo()
    echo.gate = threading.Event()
    with BatchedEvaluator(echo) as evaluator:
        ticket = evaluator.submit(*question(0)[0])
        with pytest.raises(TimeoutError): ticket.result(.05)
        echo.gate.set()
        assert same(ticket.result(600), question(0)[1]) and same(ticket.result(600), question(0)[1])


# Closing and failing


def test_close_answers_every_waiting_client():
    "Eight clients wait, one of them for a network that hangs: all get an error while it hangs."
    echo = Echo()
    echo.gate = threading.Event()
    evaluator = BatchedEvaluator(echo, max_batch=4)
    answered = []

    def client(i):
        try: evaluator.evaluate(*question(i)[0])
        except EvaluatorError as error: answered.append(error)
    clients = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(8)]
    for thread in clients: thread.start()
    wait_until(lambda: echo.entered.is_set() and evaluator.get_stats()["queue_size"] >= 4)
    wait_until(lambda: evaluator.get_stats()["queue_size"] + echo.rows[0] == 8)
    closer = threading.Thread(target=evaluator.close, daemon=True)
    closer.start()
    for thread in clients: thread.join(600)
    left = sum(thread.is_alive() for thread in clients)
    echo.gate.set()
    closer.join(600)
    assert not closer.is_alive()
    assert left == 0, f"{left} of 8 clients still wait"
    assert len(answered) == 8 and all("closed" in str(error) for error in answered)


def test_after_close_a_call_raises_and_the_thread_is_gone():
    evaluator = BatchedEvaluator(Echo())
    ask, want = question(1)
    assert same(evaluator.evaluate(*ask), want)
    evaluator.close()
    evaluator.close()
    with pytest.raises(EvaluatorError, match="closed"): evaluator.evaluate(*ask)
    with pytest.raises(EvaluatorError, match="closed"): evaluator.submit(*ask).result(600)
    assert not evaluator._threads._server.is_alive()


def test_closing_while_clients_go_on_asking():
    "Whatever the moment: a right answer or an EvaluatorError, never silence."
    for round in range(20):
        evaluator = BatchedEvaluator(Echo(), max_batch=4)

        def client(i):
            for k in count():
                ask, want = question(i * 100_000 + k % 100_000)
                try: assert same(evaluator.evaluate(*ask), want)
                except EvaluatorError: return "told"
        closer = lambda: (wait_until(lambda: evaluator.get_stats()["total_batches"] >= 5 * round), evaluator.close())
        *clients, _ = in_threads([lambda i=i: client(i) for i in range(4)] + [closer])
        assert clients == ["told"] * 4


class Moody(Echo):
    "Fails when it sees a question of number 13."
    def evaluate(self, inputs, offsets, actions):
        answer = super().evaluate(inputs, offsets, actions)
        if (answer[1][:, 0] == 13).any(): raise ZeroDivisionError("unlucky")
        return answer


def test_an_exception_reaches_every_client_of_the_batch_and_no_other():
    moody = Moody()
    moody.gate = threading.Event()
    with BatchedEvaluator(moody, max_batch=4) as evaluator:
        first = evaluator.submit(*question(1)[0])
        wait_until(moody.entered.is_set)
        hit = [evaluator.submit(*question(n)[0]) for n in (2, 13, 3, 4)]
        later = [(evaluator.submit(*ask), want) for ask, want in map(question, (5, 6))]
        moody.gate.set()
        assert same(first.result(600), question(1)[1])
        for ticket in hit:
            with pytest.raises(EvaluatorError, match="unlucky") as caught: ticket.result(600)
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert all(same(ticket.result(600), want) for ticket, want in later)
        assert same(evaluator.evaluate(*question(99)[0]), question(99)[1]), "the evaluator goes on"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_even_an_exit_in_the_network_leaves_no_thread_waiting():
    class Exits(Echo):
        def evaluate(self, *ask): raise SystemExit
    evaluator = BatchedEvaluator(Exits())
    errors = in_threads([lambda: evaluator.evaluate(*question(1)[0]) for _ in range(3)])
    assert all(isinstance(error, EvaluatorError) for error in errors)
    evaluator.close()


# The network itself


class Answers(nn.Module):
    "A network of one's own, whose answer is a function of the planes."
    def __init__(self, answer):
        super().__init__()
        self.answer, self.weight = answer, nn.Parameter(torch.zeros(1))

    def forward(self, x): return self.answer(x)


def right(x): return x.flatten(1)[:, :7] * torch.arange(1, 8), x.flatten(1)[:, :2] / 2


def test_a_network_of_ones_own_works():
    rng = np.random.default_rng(5)
    evaluator = NetworkEvaluator(GAME, Answers(right), device="cpu", max_batch=8, dtype="float32")
    inputs, offsets, actions = request(GAME, rng, 21)
    logits, values = evaluator.evaluate(inputs, offsets, actions)
    rows = np.repeat(np.arange(21), np.diff(offsets))
    assert logits.tolist() == (inputs[rows, actions] * (actions + 1.)).tolist()
    assert values.tolist() == (inputs[:, :2] / 2).tolist()
    assert logits.dtype == values.dtype == np.float32


def spoiled(where, number):
    def answer(x):
        logits, values = (t.clone() for t in right(x))
        (logits if where == "logits" else values)[min(2, len(x) - 1), 1] = number
        return logits, values
    return answer


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["logits", "values"])
def test_numbers_that_are_none_are_refused(where, number):
    evaluator = NetworkEvaluator(GAME, Answers(spoiled(where, number)), device="cpu", shapes=(8,), dtype="float32")
    offsets, actions = np.arange(0, 36, 7, dtype=np.int32), np.tile(np.arange(7, dtype=np.int32), 5)
    with pytest.raises(EvaluatorError, match="NaN or infinity"):
        evaluator.evaluate(np.zeros((5, GAME.observation_size), np.int8), offsets, actions)
    with BatchedEvaluator(evaluator) as shared, pytest.raises(EvaluatorError, match="NaN or infinity"):
        shared.evaluate(np.zeros((5, GAME.observation_size), np.int8), offsets, actions)


def test_nan_outside_of_the_request_is_ignored():
    "In rows that only fill the batch, and in actions that are not legal."
    evaluator = NetworkEvaluator(GAME, Answers(spoiled("logits", float("nan"))), device="cpu", shapes=(8,), dtype="float32")
    planes = np.zeros((3, GAME.observation_size), np.int8)
    filled = evaluator.evaluate(planes[:2], np.array([0, 7, 14], np.int32), np.tile(np.arange(7, dtype=np.int32), 2))
    few = evaluator.evaluate(planes, np.array([0, 1, 2, 3], np.int32), np.array([0, 1, 2], np.int32))
    assert len(filled[0]) == 14 and len(few[0]) == 3
    for logits, values in (filled, few): assert np.isfinite(logits).all() and np.isfinite(values).all()


@pytest.mark.parametrize("name, answer", {
    "logits too narrow": lambda x: (right(x)[0][:, :6], right(x)[1]),
    "logits too wide": lambda x: (torch.cat(right(x), 1), right(x)[1]),
    "one value": lambda x: (right(x)[0], right(x)[1][:, :1]),
    "flat values": lambda x: (right(x)[0], right(x)[1][:, 0]),
    "rows lost": lambda x: tuple(t[:-1] for t in right(x)),
}.items())
def test_wrong_shapes_are_refused(name, answer):
    evaluator = NetworkEvaluator(GAME, Answers(answer), device="cpu", max_batch=4, dtype="float32")
    with pytest.raises(EvaluatorError, match=r"shape .* connect4 needs"):
        evaluator.evaluate(*request(GAME, np.random.default_rng(0), 4))


def test_a_networks_own_exception_is_the_cause():
    def broken(x): raise KeyError("lost")
    bare = NetworkEvaluator(GAME, Answers(broken), device="cpu", max_batch=4)
    ask = request(GAME, np.random.default_rng(0), 2)
    with pytest.raises(EvaluatorError, match="lost") as caught: bare.submit(*ask).result()
    assert isinstance(caught.value.__cause__, KeyError)
    with BatchedEvaluator(bare) as shared, pytest.raises(EvaluatorError, match="lost") as caught: shared.evaluate(*ask)
    assert isinstance(caught.value.__cause__, KeyError)


def test_shapes_cover_every_request_and_grow_by_two():
    for most in (1, 2, 3, 64, 100, 256):
        shapes = batch_shapes(most)
        assert shapes[0] == 1 and shapes[-1] == most and list(shapes) == sorted(set(shapes))
        assert all(b <= 2 * a for a, b in zip(shapes, shapes[1:])), "padding is less than half"
    with pytest.raises(ValueError, match="0"): NetworkEvaluator(GAME, Answers(right), device="cpu", max_batch=0)


def test_a_batch_size_may_be_a_number_of_numpy():
    assert batch_shapes(np.int64(48)) == batch_shapes(48) == (1, 2, 4, 8, 16, 32, 48)
    assert NetworkEvaluator(GAME, Answers(right), "cpu", max_batch=np.int64(4)).shapes == (1, 2, 4)


def test_only_few_batch_shapes_reach_the_network():
    seen = set()

    def answer(x):
        seen.add(len(x))
        return right(x)
    evaluator = NetworkEvaluator(GAME, Answers(answer), device="cpu", max_batch=20, dtype="float32")
    rng = np.random.default_rng(1)
    for rows in range(1, 60):
        ask = request(GAME, rng, rows)
        _, values = evaluator.evaluate(*ask)
        assert values.tolist() == (ask[0][:, :2] / 2).tolist()
    assert seen == {1, 2, 4, 8, 16, 20}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("preset, shape", [("tiny", 16), ("tiny", 64), ("small", 16), ("mlp", 16)])
def test_a_row_does_not_see_its_neighbours(preset, shape, backend, dtype):
    "Within one batch shape an answer is the same bit for bit: alone, in a full batch, in any order."
    network = PolicyValueNet(GAME, preset)
    needs(backend, network)
    evaluator = NetworkEvaluator(GAME, network, device="cpu", shapes=(shape,), backend=backend, dtype=dtype)
    inputs = np.random.default_rng(shape).integers(0, 2, (shape, GAME.observation_size)).astype(np.int8)
    every = lambda n: (np.arange(0, 7 * n + 1, 7, dtype=np.int32), np.tile(np.arange(7, dtype=np.int32), n))
    logits, values = evaluator.evaluate(inputs, *every(shape))
    logits = logits.reshape(shape, 7)
    turned = np.random.default_rng(1).permutation(shape)
    shuffled = evaluator.evaluate(inputs[turned], *every(shape))
    assert np.array_equal(shuffled[0].reshape(shape, 7), logits[turned]) and np.array_equal(shuffled[1], values[turned])
    for row in range(0, shape, 5):
        alone = evaluator.evaluate(inputs[row:row + 1], *every(1))
        assert np.array_equal(alone[0], logits[row]) and np.array_equal(alone[1][0], values[row])
    assert len(np.unique(values)) > shape, "the rows are told apart at all"


KINDS = [*itertools.product(["connect4", "gomoku(size=9)", "dots(rows=3,cols=3)", "tictactoe"], ["tiny", "small"]),
         ("othello(size=6)", "anysize"), ("gomoku(size=9)", "anysize")]


@pytest.mark.parametrize("name, preset", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_computes_the_network(backend, preset, name):
    "Batch norm folded and layers fused, after batch norm has learnt something to fold."
    game = get_game(name)
    network = trained(game, PolicyValueNet(game, preset, seed=3))
    needs(backend, network)
    planes = torch.randint(0, 2, (8, *game.shape), dtype=torch.int8)
    with torch.no_grad(): want = network.eval()(planes.float())
    got = inference_copy(network, "cpu", backend, "float32")(planes)
    for a, b in zip(got, want): assert a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-4)
    if "bfloat16" not in DTYPES: return
    rough = inference_copy(network, "cpu", backend, "bfloat16")(planes)
    for a, b in zip(rough, want): assert a.dtype == torch.float32 and (a - b).abs().max() < .05 * max(1, b.abs().max())


def trained(game, network):
    "Weights and batch norm statistics that are not the initial ones."
    torch.manual_seed(0)
    network.train()
    for _ in range(3): network(torch.randint(0, 2, (16, *game.shape)).float())
    with torch.no_grad():
        for name, parameter in network.named_parameters(): parameter += .05 * torch.randn_like(parameter)
    return network


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_copy_keeps_its_weights_until_it_is_updated(backend):
    network, rng = PolicyValueNet(GAME, "tiny"), np.random.default_rng(0)
    needs(backend, network)
    evaluator = NetworkEvaluator(GAME, network, device="cpu", max_batch=8, backend=backend)
    ask = request(GAME, rng, 8)
    before = evaluator.evaluate(*ask)
    network.train()
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            if tensor.is_floating_point(): tensor += .3
    assert same(evaluator.evaluate(*ask), before), "a later change of the weights does not reach the copy"
    assert network.training and all(p.requires_grad for p in network.parameters()), "the original is left as it was"
    evaluator.set_network(network)
    assert not same(evaluator.evaluate(*ask), before)


def test_unknown_backends_are_named():
    with pytest.raises(ValueError, match="'quick'.*eager"): inference_copy(PolicyValueNet(GAME, "tiny"), "cpu", "quick")
    with pytest.raises(ValueError, match="'graphs' needs a CUDA GPU.*cpu; choose auto"):
        NetworkEvaluator(GAME, PolicyValueNet(GAME, "tiny"), "cpu", backend="graphs")


def test_a_recording_takes_new_weights_into_its_own_tensors():
    network, batch = trained(GAME, PolicyValueNet(GAME, "tiny", seed=3)), torch.zeros(4, *GAME.shape)
    recorded = RecordedCopy(fold_batch_norm(copy.deepcopy(network).eval()), None, get_device("cpu"))
    places = [tensor.data_ptr() for tensor in recorded.net.state_dict().values()]
    assert not recorded.load(PolicyValueNet(GAME, "small")), "other shapes need another recording"
    other = trained(GAME, PolicyValueNet(GAME, "tiny", seed=4)).eval()
    with torch.no_grad(): before = recorded.net(batch)
    assert recorded.load(other) and places == [tensor.data_ptr() for tensor in recorded.net.state_dict().values()]
    with torch.no_grad(): want, got = other(batch), recorded.net(batch)
    assert all(torch.allclose(a, b, atol=1e-5) and not torch.allclose(a, c, atol=1e-2) for a, b, c in zip(got, want, before))


def test_memory_that_is_short_takes_the_recordings_with_it(monkeypatch):
    evaluator = NetworkEvaluator(GAME, PolicyValueNet(GAME, "tiny"), "cpu", shapes=(8,))
    evaluator.backend, plain = "graphs", evaluator.forward

    class Short(RecordedCopy):
        def __call__(self, planes):
            self.graphs[len(planes)] = "memory"
            if len(planes) > 4: raise torch.OutOfMemoryError("CUDA out of memory")
            return plain(planes)
    evaluator.forward = Short(None, None, evaluator.device)
    evaluator.evaluate(*request(GAME, np.random.default_rng(0), 8))
    assert list(evaluator.forward.graphs) == [4] == list(evaluator.shapes)


def test_threads_that_run_out_of_memory_together_halve_the_batch_once():
    together, rng = threading.Barrier(4, timeout=600), np.random.default_rng(2)

    def answer(x):
        if len(x) > 32:
            together.wait()
            raise torch.OutOfMemoryError("CUDA out of memory")
        return right(x)
    evaluator = NetworkEvaluator(GAME, Answers(answer), "cpu", shapes=(64,), dtype="float32")
    asks = [request(GAME, rng, 64) for _ in range(4)]
    found = in_threads([lambda ask=ask: evaluator.evaluate(*ask) for ask in asks])
    assert evaluator.shapes == (32,)
    assert all(values.tolist() == (ask[0][:, :2] / 2).tolist() for ask, (_, values) in zip(asks, found))


def test_a_batch_that_another_thread_halves_meanwhile_is_computed(monkeypatch):
    seen, network = [], Answers(lambda x: seen.append(len(x)) or right(x))
    evaluator = NetworkEvaluator(GAME, network, "cpu", shapes=(8,), dtype="float32")
    begin = evaluator._try_begin

    def late(*part):
        evaluator.shapes = (4,)   # After the part was cut
        return begin(*part)
    monkeypatch.setattr(evaluator, "_try_begin", late)
    ask = request(GAME, np.random.default_rng(2), 12)
    assert evaluator.evaluate(*ask)[1].tolist() == (ask[0][:, :2] / 2).tolist() and seen == [8, 4]


def test_unknown_number_formats_are_named():
    with pytest.raises(ValueError, match="dtype 'int9' is unknown; choose one of float32, bfloat16, float16, int8."):
        inference_copy(PolicyValueNet(GAME, "tiny"), "cpu", dtype="int9")


# Pairs of convolution and batch norm in networks of one's own


class Pairs(nn.Module):
    "A network that calls its pairs in a way of its own."
    def __init__(self, call):
        super().__init__()
        pair = lambda inputs: nn.Sequential(nn.Conv2d(inputs, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.call, self.first, self.second, self.out = call, pair(2), pair(8), nn.Linear(8 * 42, 9)

    def forward(self, x):
        x = self.call(self.second, torch.relu(self.call(self.first, x)))
        logits, values = self.out(x.flatten(1)).split((7, 2), 1)
        return logits, torch.tanh(values)


def one_by_one(pair, x):
    for layer in pair: x = layer(x)
    return x


@pytest.mark.parametrize("call", [
    lambda pair, x: pair(x), lambda pair, x: pair[1](pair[0](x)), one_by_one,
    lambda pair, x: pair[0](x) + pair(x), lambda pair, x: pair[1](pair[0](x)) / len(pair) * pair[1].running_var.mean(),
], ids=["whole", "indexed", "iterated", "half", "statistics"])
def test_a_network_may_take_its_pairs_apart(call):
    network = Pairs(call)
    with torch.no_grad():
        for _ in range(3): network(torch.randn(16, 2, 6, 7) * 3 + 1)   # Batch norm has something to fold
    planes = torch.randint(0, 2, (8, 2, 6, 7), dtype=torch.int8)
    with torch.no_grad(): want = network.eval()(planes.float())
    with torch.inference_mode(): got = inference_copy(network, "cpu", "auto", "float32")(planes)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(want, got))


def test_a_board_network_with_a_forward_of_its_own_is_not_fused():
    class Doubled(BoardNet):
        def forward(self, x):
            logits, values = super().forward(x)
            return 2 * logits, values
    network = Doubled(GAME, 16, 1).eval()
    planes = torch.randint(0, 2, (8, *GAME.shape), dtype=torch.int8)
    with torch.inference_mode():
        want, got = network(planes.float()), inference_copy(network, "cpu", "auto", "float32")(planes)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(want, got))


# Private operators


@pytest.fixture
def forget_probe():
    "The probe of the operators is tried again, and forgotten afterwards."
    fused_boards_work.cache_clear()
    yield
    fused_boards_work.cache_clear()


@pytest.mark.parametrize("error", [TypeError("unexpected argument"), RuntimeError("no such layout"), ValueError("stride"), KeyError("op")])
def test_operators_that_fail_are_not_used(error, monkeypatch, forget_probe):
    def refuse(*arguments): raise error
    monkeypatch.setattr(torch._C._nn, "mkldnn_reorder_conv2d_weight", refuse)
    network = PolicyValueNet(GAME, "tiny").eval()
    assert not can_fuse(network, get_device("cpu"))
    planes = torch.randint(0, 2, (8, *GAME.shape), dtype=torch.int8)
    with torch.inference_mode():
        want, got = network(planes.float()), inference_copy(network, "cpu", "auto", "float32")(planes)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(want, got))


def test_operators_are_probed_in_the_format_of_the_copy(monkeypatch):
    monkeypatch.setattr("alphazero_nb.network.inference.fused_boards_work", lambda dtype: dtype == "float32")
    network, device = PolicyValueNet(GAME, "tiny"), replace(get_device("cpu"), dtype="bfloat16")
    assert can_fuse(network, device, "float32") and can_fuse(network, replace(device, dtype="float32"))
    assert not can_fuse(network, device, "bfloat16") and not can_fuse(network, device)


def test_a_batch_that_the_operators_refuse_runs_without_them(monkeypatch):
    "The others stay fused; the warning comes once."
    needs("fused")
    weights, tried = FusedBoardNet._weights, []
    def refuse_eight(self, conv, x):
        tried.append(len(x))
        if len(x) == 8: raise TypeError("unexpected argument")
        return weights(self, conv, x)
    network = trained(GAME, PolicyValueNet(GAME, "tiny")).eval()
    inference_copy(network, "cpu", "fused", "float32")   # The operators are probed once, before they refuse
    monkeypatch.setattr(FusedBoardNet, "_weights", refuse_eight)
    planes = torch.randint(0, 2, (16, *GAME.shape), dtype=torch.int8)
    run = inference_copy(network, "cpu", "fused", "float32")
    with torch.inference_mode():
        want = network(planes.float())
        with pytest.warns(UserWarning, match="batch of 8 .TypeError: unexpected argument") as warned:
            answers = [run(planes[:rows]) for rows in (4, 8, 16, 8)]
    assert len(warned) == 1 and tried.count(8) == 1 and tried.count(16) == tried.count(4) > 1
    for rows, got in zip((4, 8, 16, 8), answers):
        assert all(torch.allclose(a[:rows], b, atol=1e-4) for a, b in zip(want, got))


def test_weights_are_packed_once_for_all_batch_shapes(monkeypatch):
    needs("fused")
    pack, packed = torch._C._nn.mkldnn_reorder_conv2d_weight, []
    def count(weight, *arguments):
        packed.append(weight.numel())
        return pack(weight, *arguments)
    monkeypatch.setattr(torch._C._nn, "mkldnn_reorder_conv2d_weight", count)
    network = trained(GAME, PolicyValueNet(GAME, "small")).eval()
    sizes = sorted(layer.weight.numel() for layer in network.modules() if isinstance(layer, nn.Conv2d))
    run = inference_copy(network, "cpu", "fused", "float32")
    planes = torch.randint(0, 2, (256, *GAME.shape), dtype=torch.int8)
    with torch.inference_mode():
        want = network(planes.float())
        for rows in batch_shapes(256):
            assert all(torch.allclose(a[:rows], b, atol=1e-4) for a, b in zip(want, run(planes[:rows])))
    assert sorted(packed) == sizes


# A device that computes while this machine goes on


class SlowDevice:
    """Begins a batch at once and computes one after the other, as a GPU does; answers as Echo. A batch takes a second of
    its clock, which stands still between batches, and none ends while the gate is closed."""
    overlaps = True

    def __init__(self):
        self.echo, self.gate, self.now, self.free, self.begun, self.read, self.most, self.fail = Echo(), threading.Event(), 0., 0., 0, 0, 0, None
        self.gate.set()

    @property
    def flying(self): return self.begun - self.read

    def perf_counter(self): return self.now

    def begin(self, inputs, offsets, actions):
        if self.fail == "begin": raise RuntimeError("no memory")
        self.begun += 1
        self.most = max(self.most, self.flying)
        self.free = max(self.free, self.now) + 1
        end, answer = self.free, self.echo.evaluate(inputs, offsets, actions)

        def result():
            assert self.gate.wait(600)
            self.now, self.read = end, self.read + 1
            if self.fail == "result": raise RuntimeError("lost")
            if self.fail == "exit": raise SystemExit
            return answer
        return result


def test_the_next_batch_begins_before_the_last_one_has_been_read(monkeypatch):
    "Two are on their way at most, every client gets its own answer, and the busy time counts no moment twice."
    device = SlowDevice()
    device.gate.clear()
    monkeypatch.setattr(evaluator_module, "time", device)

    def client(index, evaluator):
        asks = [question(index * 20_000 + i * 5, rows=4) for i in range(60)]
        return sum(not same(evaluator.evaluate(*ask), want) for ask, want in asks)
    with BatchedEvaluator(device, max_batch=8) as evaluator:
        first = [(evaluator.submit(*ask), want) for ask, want in (question(10 ** 6 + 8 * n, rows=8) for n in range(6))]
        wait_until(lambda: device.flying == 2)   # Of six, and none has been read
        device.gate.set()
        assert all(same(ticket.result(600), want) for ticket, want in first)
        assert in_threads([lambda i=i: client(i, evaluator) for i in range(8)]) == [0] * 8
        wait_until(lambda: evaluator.get_stats()["total_requests"] == 486)
        stats = evaluator.get_stats()
    assert device.most == 2 and device.flying == 0
    assert stats["busy_s"] == device.now == stats["total_batches"], "a second a batch"


@pytest.mark.parametrize("fail, message", [("begin", "no memory"), ("result", "lost")])
def test_a_batch_that_fails_on_the_device_fails_its_clients_only(fail, message):
    device = SlowDevice()
    with BatchedEvaluator(device, max_batch=4) as evaluator:
        device.fail = fail
        with pytest.raises(EvaluatorError, match=message): evaluator.submit(*question(1)[0]).result(600)
        device.fail = None
        assert same(evaluator.submit(*question(2)[0]).result(600), question(2)[1])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_no_client_waits_when_the_reader_ends():
    device = SlowDevice()
    evaluator = BatchedEvaluator(device, max_batch=1)
    device.fail = "exit"
    tickets = [evaluator.submit(*question(n)[0]) for n in range(6)]
    for ticket in tickets:
        with pytest.raises(EvaluatorError, match="closed"): ticket.result(600)
    with pytest.raises(EvaluatorError, match="closed"): evaluator.submit(*question(9)[0]).result(600)
    evaluator.close()


def test_closing_waits_for_what_the_device_computes_but_not_for_ever():
    device = SlowDevice()
    device.gate.clear()
    evaluator = BatchedEvaluator(device, max_batch=4)
    soon = evaluator.submit(*question(1)[0])
    wait_until(lambda: device.flying)

    def open_the_gate():
        wait_until(lambda: evaluator._threads.queue.closed)   # `close` has begun
        device.gate.set()
    in_threads([lambda: evaluator.close(60), open_the_gate], 120)
    assert same(soon.result(0), question(1)[1])
    device.gate.clear()
    evaluator = BatchedEvaluator(device, max_batch=4)
    late = [evaluator.submit(*question(n)[0]) for n in range(3)]
    in_threads([lambda: evaluator.close(.2)])   # While the gate is closed
    for ticket in late:
        with pytest.raises(EvaluatorError, match="closed"): ticket.result(0)
    device.gate.set()


@pytest.mark.parametrize("shapes", [(32,), (8,), (4, 16)])
def test_edges_picked_on_the_device_are_those_picked_here(shapes):
    "Here the device is the CPU: the same numbers, to the last bit, in whole and in split requests."
    evaluator, rng = NetworkEvaluator(GAME, PolicyValueNet(GAME, "tiny"), "cpu", shapes=shapes), np.random.default_rng(3)
    asks = [request(GAME, rng, rows) for rows in (1, 5, 32, 70)]
    wanted = [evaluator.evaluate(*ask) for ask in asks]
    evaluator.gathers = True
    assert all(same(evaluator.evaluate(*ask), want) for ask, want in zip(asks, wanted))
    begun = [evaluator.begin(*ask) for ask in asks]   # All before the first is read
    assert all(same(result(), want) for result, want in zip(begun, wanted))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU")
def test_a_gpu_computes_the_next_batch_while_the_last_one_travels():
    bare, rng = NetworkEvaluator(GAME, PolicyValueNet(GAME, "tiny"), "cuda", shapes=(64,)), np.random.default_rng(0)
    asked = [[request(GAME, rng, int(rng.integers(1, 33))) for _ in range(50)] for _ in range(6)]
    wanted = [[bare.evaluate(*ask) for ask in asks] for asks in asked]
    with BatchedEvaluator(bare, max_batch=64) as evaluator:
        found = in_threads([lambda asks=asks: [evaluator.evaluate(*ask) for ask in asks] for asks in asked])
    for got, want in zip(found, wanted): assert all(same(a, b) for a, b in zip(got, want))


def test_a_device_gets_few_shapes(monkeypatch):
    "Each number of edges would be a shape of its own, and Apple's GPUs compile and keep a graph for each shape."
    sizes, send = set(), evaluator_module.send
    monkeypatch.setattr(evaluator_module, "send", lambda array, device: (sizes.add(len(array)), send(array, device))[1])
    evaluator, rng = NetworkEvaluator(GAME, PolicyValueNet(GAME, "tiny"), "cpu", shapes=(64,)), np.random.default_rng(0)
    evaluator.gathers = True
    edges = {len(ask[2]) for rows in range(1, 65) if evaluator.evaluate(*(ask := request(GAME, rng, rows)))}
    assert len(edges) > 30 and len(sizes) <= 9


def test_more_than_eight_sets_of_weights_are_compiled(monkeypatch):
    "PyTorch compiles one code object eight times; then it runs it as it is."
    import torch._dynamo.utils as dynamo
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))   # Traces, and calls no compiler
    game, before = get_game("tictactoe"), dynamo.counters["stats"]["unique_graphs"]
    planes = torch.zeros(4, *game.shape, dtype=torch.int8)
    for seed in range(12):
        network = PolicyValueNet(game, "mlp", seed).eval()
        with torch.inference_mode():
            for a, b in zip(inference_copy(network, "cpu", "compile", "float32")(planes), network(planes.float())): torch.testing.assert_close(a, b)
    assert dynamo.counters["stats"]["unique_graphs"] == before + 12


@pytest.mark.parametrize("words", ["DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.", "Invalid buffer size: 19.45 GB",
                                   "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"])
def test_libraries_have_other_words_for_a_full_memory(words):
    assert out_of_memory(RuntimeError(words)) and not out_of_memory(ValueError(words)) and not out_of_memory(RuntimeError("no engine"))
