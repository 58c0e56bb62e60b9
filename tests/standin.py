"""A stand-in accelerator: the device "standin" of PyTorch, which computes as late as it may.

A GPU takes work and returns at once; its answers come later, in the order of each stream. So does this device, whose memory is
this machine's: an operator stays in the queue of its stream until a thread waits for it, results hold wrong numbers until then,
copies from and to pinned memory happen only then, and memory that was given back is spoiled at its place in the
queue. What is read or overwritten too early gives wrong numbers, always and on every machine. `Log` counts the operators, the
copies and the waits.

A process cannot take back a device, so this belongs into a process of its own. Devices can be named standin:0 and standin:1."""
import threading, weakref
from collections import Counter, deque
from contextlib import contextmanager

import torch
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

aten, LOCK, HERE = torch.ops.aten, threading.RLock(), threading.local()
COUNT = 2
FREE = {"empty.memory_format", "empty_strided.default", "new_empty.default", "new_empty_strided.default", "empty_like.default",
        "lift_fresh.default", "set_.source_Storage_storage_offset", "set_.source_Storage"}   # No kernel runs


def spoil(data):
    "Fill memory with wrong numbers."
    data.fill_(7.75 if data.is_floating_point() else data.dtype in (torch.bool, torch.int8, torch.uint8))   # Indices stay valid


class Log(Counter):
    """Counts of a `with` block: operators, views, up and down (copies), and waits; `names` counts the operators by name. `handed`
    are the gradients that autograd copies here, where tensors are of a class of their own, and hands over on a GPU."""
    active = []

    def __enter__(self):
        self.names = Counter()
        Log.active.append(self)
        return self

    def __exit__(self, *error): Log.active.remove(self)

    @staticmethod
    def add(what, name=""):
        for log in Log.active:
            log[what] += 1
            if name: log.names[name] += 1


def number(device):
    "Return the index of a device, of its name, or of the index itself."
    return int(str(device).rpartition(":")[2]) if device is not None and str(device)[-1].isdigit() else 0


class Stream:
    "Work in order, done when a thread waits for it."
    def __init__(self, device="standin:0", priority=0):
        self.index, self.work, self.given, self.done = number(device), deque(), 0, 0

    def give(self, work):
        if HERE.__dict__.get("recording") is not None: return HERE.recording.work.append(work)
        self.work.append(work)
        self.given += 1

    def run(self, to):
        if HERE.__dict__.get("recording") is not None: raise RuntimeError("a thread cannot wait while it records")
        with LOCK, _disable_current_modes(), torch.inference_mode():   # A host's tensor may come from there
            while self.done < to:
                self.done += 1
                self.work.popleft()()

    def wait_event(self, event):
        if event.stream is not None: self.give(lambda stream=event.stream, to=event.at: stream.run(to))

    def wait_stream(self, stream): self.wait_event(stream.record_event())
    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def query(self): return self.done == self.given
    def synchronize(self):
        Log.add("waits")
        self.run(self.given)


class Event:
    def __init__(self, enable_timing=False, blocking=False): self.stream = None
    def record(self, stream=None):
        self.stream = stream or current_stream()
        self.at = self.stream.given

    def wait(self, stream=None): (stream or current_stream()).wait_event(self)
    def query(self): return self.stream is None or self.stream.done >= self.at
    def synchronize(self):
        Log.add("waits")
        if self.stream is not None: self.stream.run(self.at)


class Graph:
    "Work that was recorded, to be given again: the closures, which know their tensors."
    def __init__(self): self.work, self.index = [], 0
    def replay(self):
        Log.add("operators", "graph")
        with LOCK:
            for work in self.work: current_stream(self.index).give(work)


@contextmanager
def record(graph, pool=None, stream=None, capture_error_mode="global"):
    "Record the work of this thread; none of it is done."
    graph.index, HERE.recording = stream.index, graph
    try:
        with use_stream(stream): yield
    finally: HERE.recording = None


DEFAULT = [Stream(f"standin:{index}") for index in range(COUNT)]


def current_stream(device=None):
    return getattr(HERE, "streams", {}).get(number(device), DEFAULT[number(device)])


@contextmanager
def use_stream(stream):
    before = getattr(HERE, "streams", {})
    HERE.streams = before | {stream.index: stream}
    try: yield
    finally: HERE.streams = before


@contextmanager
def use_device(device):
    HERE.devices = [*getattr(HERE, "devices", ()), number(device)]
    try: yield
    finally: HERE.devices.pop()


@contextmanager
def quiet():
    "Compute with ordinary tensors, below all that watches PyTorch."
    with _disable_current_modes(), torch.inference_mode(False), torch.no_grad(): yield


class Memory:
    "The memory of a tensor and its views. Nobody may use it after the last of them is gone."
    def __init__(self, data, stream):
        self.stream = stream
        weakref.finalize(self, Memory.free, data, stream).atexit = False

    @staticmethod
    def free(data, stream):
        with LOCK: stream.give(lambda: spoil(data))


class Remote(torch.Tensor):
    "A tensor of the device. `here` is its content on this machine: nonsense until its stream has run."
    @staticmethod
    def __new__(cls, here, memory=None, index=0):
        if isinstance(here, Remote): here, memory, index = here.here, here.memory, here.device.index
        self = torch.Tensor._make_wrapper_subclass(
            cls, here.shape, strides=here.stride(), storage_offset=here.storage_offset(), dtype=here.dtype,
            device=torch.device("standin", index))
        self.here, self.memory = here, memory or Memory(here, current_stream(index))
        return self

    def __init__(self, *ignored, **named): pass
    def __repr__(self): return f"Remote({tuple(self.shape)}, {self.dtype}, {self.device})"
    def __deepcopy__(self, memo):
        with torch.no_grad(): copied = self.detach().clone()
        memo[id(self)] = torch.nn.Parameter(copied, self.requires_grad) if isinstance(self, torch.nn.Parameter) else copied
        return memo[id(self)]

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None): return dispatch(func, args, kwargs or {})


class Mode(TorchDispatchMode):
    "While it is active in a thread, the device can be used there."
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        there = any(isinstance(leaf, Remote) for leaf in tree_leaves((args, kwargs)))
        if there or str(kwargs.get("device", "")).startswith("standin"): return dispatch(func, args, kwargs)
        if func in (aten.pin_memory.default, aten._pin_memory.default): return pinned(args[0].clone())
        if func is aten.is_pinned.default: return is_pinned(args[0])
        if kwargs.pop("pin_memory", None):
            host = func(*args, **kwargs)
            spoil(host)
            return pinned(host)
        return func(*args, **kwargs)


PINNED = {}   # Start of pinned memory -> a reference that ends with it


def pinned(host):
    start = host.untyped_storage().data_ptr()
    PINNED[start] = weakref.finalize(host.untyped_storage(), lambda: None)
    return host


def is_pinned(host):
    known = PINNED.get(host.untyped_storage().data_ptr())
    return known is not None and known.alive


def here(tensor): return tensor.here if isinstance(tensor, Remote) else tensor


def dispatch(func, args, kwargs):
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):   # In inference mode
        with Mode(): return func.decompose(*args, **kwargs)
    with LOCK, quiet():
        if func is aten._local_scalar_dense.default: return wait_for(args[0])
        if func is aten._to_copy.default: return move(args[0], **kwargs)
        if func is aten.copy_.default: return copy(*args, **kwargs)
        if func is aten.is_pinned.default: return False
        if func.is_view or func in (aten.detach.default, aten.lift_fresh.default): return view(func, args, kwargs)
        return compute(func, args, kwargs)


def wait_for(tensor):
    wait(tensor.device.index)
    return tensor.here.item()


def wait(index):
    Log.add("waits")
    stream = current_stream(index)
    stream.run(stream.given)


def move(source, device=None, dtype=None, non_blocking=False, memory_format=None, **rest):
    "Copy a tensor, as its method `to` does."
    device, dtype = torch.device(device) if device is not None else source.device, dtype or source.dtype
    kept = torch.preserve_format if memory_format is None else memory_format
    if device == source.device: return compute(aten._to_copy.default, (source,), dict(dtype=dtype, memory_format=kept))
    if dtype != source.dtype and isinstance(source, Remote): source = compute(aten._to_copy.default, (source,), dict(dtype=dtype))
    blank = torch.empty_like(here(source), dtype=dtype, memory_format=kept, device="cpu")
    spoil(blank)
    target = Remote(blank, index=number(device)) if device.type == "standin" else pinned(blank) if non_blocking else blank
    return copy(target, source, non_blocking)


def copy(target, source, non_blocking=False):
    "Copy into a tensor, as `copy_` does."
    if isinstance(target, Remote) and isinstance(source, Remote): return compute(aten.copy_.default, (target, source), {})
    to, of = here(target), here(source)
    index = (target if isinstance(target, Remote) else source).device.index
    up = isinstance(target, Remote)
    Log.add("up" if up else "down")
    if up and not is_pinned(of): of = of.clone()
    stream = current_stream(index)
    stream.give(lambda: to.copy_(of))
    if not (non_blocking and is_pinned(here(source) if up else target)): wait(index)
    return target


def view(func, args, kwargs):
    Log.add("views")
    base = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Remote))
    seen = func(*tree_map(here, args), **tree_map(here, kwargs))
    return tree_map(lambda part: Remote(part, base.memory, base.device.index) if isinstance(part, torch.Tensor) else part, seen)


def index_of(func, args, kwargs):
    "Return the device of an operator. Tensors of two devices may not meet, but for single numbers of this machine."
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    there = {tensor.device.index for tensor in tensors if isinstance(tensor, Remote)}
    if kwargs.get("device") is not None: there.add(number(kwargs["device"]))
    strangers = [tensor for tensor in tensors if not isinstance(tensor, Remote) and tensor.dim()]
    if len(there) > 1 or strangers: raise RuntimeError(f"{func} got tensors of several devices")
    return there.pop()


def blank_like(tensor):
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta") if isinstance(tensor, Remote) else tensor


def compute(func, args, kwargs):
    "Queue an operator, and return its results before they are there."
    index, name = index_of(func, args, kwargs), str(func).removeprefix("aten.")
    if name not in FREE: Log.add("operators", name)
    if name == "new_empty_strided.default": Log.add("handed")
    stream = current_stream(index)
    if kwargs.get("device") is not None: kwargs = dict(kwargs, device="cpu")
    kwargs.pop("pin_memory", None)
    real_args, real_kwargs = tree_map(here, args), tree_map(here, kwargs)
    written = [argument.name for argument in func._schema.arguments if argument.alias_info and argument.alias_info.is_write]
    if written and all(returned.alias_info for returned in func._schema.returns):   # In place
        stream.give(lambda: func(*real_args, **real_kwargs))
        return result_in_place(func, args, kwargs)
    meta = dict(tree_map(blank_like, kwargs), **({"device": "meta"} if kwargs.get("device") else {}))
    try: shape = func(*tree_map(blank_like, args), **meta)
    except Exception as error: raise RuntimeError(f"{func} cannot begin before its arguments are known: {error}") from error

    def allot(part):
        if not isinstance(part, torch.Tensor): return part
        data = torch.empty_strided(part.shape, part.stride(), dtype=part.dtype)
        if data.dtype in (torch.float64, torch.complex128): raise TypeError(f"{func} computes in {data.dtype}, which MPS lacks")
        spoil(data)
        return Remote(data, index=index)
    results = tree_map(allot, shape)

    def work():
        for result, real in zip(tree_leaves(tree_map(here, results)), tree_leaves(func(*real_args, **real_kwargs))):
            if isinstance(real, torch.Tensor) and real.numel(): result.copy_(real)   # Its shape function may promise more
    stream.give(work)
    return results


def result_in_place(func, args, kwargs):
    "Return the arguments that an operator in place returns."
    named = dict(zip((argument.name for argument in func._schema.arguments), args)) | kwargs
    of = {tuple(argument.alias_info.before_set): argument.name for argument in func._schema.arguments if argument.alias_info}
    found = [named[of[tuple(returned.alias_info.before_set)]] for returned in func._schema.returns]
    return None if not found else found[0] if len(found) == 1 else tuple(found)


class Backend:
    "What `torch.standin` offers."
    Stream, Event, CUDAGraph, stream, graph = Stream, Event, Graph, staticmethod(use_stream), staticmethod(record)
    current_stream, device = staticmethod(current_stream), staticmethod(use_device)
    @staticmethod
    def is_available(): return True
    @staticmethod
    def is_initialized(): return True
    @staticmethod
    def device_count(): return COUNT
    @staticmethod
    def current_device(): return 0
    @staticmethod
    def _is_in_bad_fork(): return False
    @staticmethod
    def manual_seed_all(seed): pass
    @staticmethod
    def get_amp_supported_dtype(): return [torch.float16, torch.bfloat16]
    @staticmethod
    def empty_cache(): pass


_setup_privateuseone_for_python_backend("standin", Backend())
_foreach_utils._foreach_supported_types.append(Remote)   # As for tensors of a GPU
