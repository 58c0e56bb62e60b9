"What a thread does to devices other than its own."
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from alphazero_nb.core.device import Device
from alphazero_nb.core.transfers import DeviceGraph, DeviceStream, read_later


class ManyCards:
    """Changes the card of a thread as `torch.cuda` does. A stream ends with a return to the stream before it, and so to its card;
    a device ends without touching the one before it."""
    def __init__(self): self.touched, self.here = set(), threading.local()

    def _go_to(self, index):
        self.touched.add(index)
        self.here.index = index

    def Stream(self, name): return SimpleNamespace(index=int(name[-1]), wait_stream=lambda other: None)
    def current_stream(self, name): return self.Stream(name)

    def Event(self, blocking):
        return SimpleNamespace(record=lambda stream: None, synchronize=lambda: self._go_to(getattr(self.here, "index", 0)))

    @contextmanager
    def stream(self, stream):
        before = getattr(self.here, "index", 0)
        self._go_to(stream.index)
        yield
        self._go_to(before)

    @contextmanager
    def device(self, name):
        before, self.here.index = getattr(self.here, "index", 0), int(name[-1])
        yield
        self.here.index = before


@pytest.fixture
def cards(monkeypatch):
    monkeypatch.setattr(torch, "cards", found := ManyCards(), raising=False)
    return found


def test_a_thread_of_the_second_card_leaves_the_first_one_alone(cards, monkeypatch):
    "A context on the first card takes half a gigabyte there, or fails if that card is full."
    device = Device("cards:1", "a card", "float16", "float16", True, True, overlaps=True)
    whole, kept = torch.empty, []
    monkeypatch.setattr(torch, "empty", lambda *shape, **options: whole(*shape, **(options | dict(pin_memory=False))))

    def work():
        stream = DeviceStream(device)
        with stream.use(): pass
        with stream.after_others(): pass
        kept.append(read_later(torch.ones(3), device)().tolist())
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert kept == [[1, 1, 1]] and cards.touched == {1}


def test_one_graph_is_recorded_at_a_time(monkeypatch):
    "PyTorch waits for the whole device and empties its pool at the start of a recording, which ends every other one."
    inside, most, counting = [], [], threading.Lock()

    class Recording(ManyCards):
        CUDAGraph = lambda self: SimpleNamespace()

        @contextmanager
        def graph(self, graph, stream, capture_error_mode):
            with counting: inside.append(1), most.append(len(inside))
            time.sleep(.05)   # Time for another thread to come in
            yield
            with counting: inside.pop()
    monkeypatch.setattr(torch, "cards", Recording(), raising=False)
    device = Device("cards:0", "a card", "float16", "float16", True, True, overlaps=True)
    threads = [threading.Thread(target=DeviceGraph, args=(device, lambda x: x, torch.ones(3))) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert most == [1, 1, 1]
