"""Two CUDA cards that do not exist: PyTorch computes on them with fake tensors, and no driver is asked.

A fake tensor has a shape, a number format, a memory layout and a device, and no numbers. PyTorch chooses operators,
autocast and the fused AdamW for it as it does on a GPU. `Cards` lets real tensors of this machine stay real, so NumPy,
the search and the files work as ever; a number that is read from a card is always `Cards.answer`. `Driver` answers for
`torch.cuda`, and `backward` replaces autograd's engine, because both ask the driver. `check` finds what fake tensors
let pass. A process cannot take this back. It needs a CUDA build of PyTorch."""
import functools
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

aten, CARDS = torch.ops.aten, ("cuda:0", "cuda:1")
PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.convolution, aten.convolution_backward}
SAME = PRODUCTS | {   # A GPU converts no numbers for these; fake tensors let them pass
    aten.mv, aten.addmv, aten.dot, aten.index_add, aten.index_add_, aten.lerp, aten.lerp_, aten._foreach_lerp_,
    aten.native_layer_norm, aten.native_layer_norm_backward}


class Fault(Exception):
    "Two devices, number formats or memory layouts met that may not meet."


class Stream:
    "Has a card and no order."
    def __init__(self, device=None, priority=0): self.device = torch.device(device or Driver.current)
    def wait_stream(self, stream): pass
    def synchronize(self): pass


class Event:
    "Belongs to the card of the first stream in which it was recorded."
    device = None
    def __init__(self, enable_timing=False, blocking=False): pass

    def record(self, stream=None):
        device = (stream or Driver.current_stream()).device
        if self.device not in (None, device): raise Fault(f"an event of {self.device} is in a stream of {device}")
        self.device = device

    def synchronize(self):
        if self.device is None: raise Fault("a thread waits for an event that was not recorded")


class Driver:
    "The names of `torch.cuda` that ask the driver, for two cards of one compute capability."
    capability, current, streams, Stream, Event = (8, 0), CARDS[0], {}, Stream, Event
    default_generators = tuple(torch.Generator() for _ in CARDS)
    @staticmethod
    def is_available(): return True
    @staticmethod
    def is_initialized(): return True
    @staticmethod
    def device_count(): return len(CARDS)
    @staticmethod
    def current_device(): return torch.device(Driver.current).index
    @staticmethod
    def get_device_capability(device=None): return Driver.capability
    @staticmethod
    def get_device_name(device=None): return "a card that does not exist"
    @staticmethod
    def get_device_properties(device=None): return SimpleNamespace(total_memory=1 << 34, major=Driver.capability[0])
    @staticmethod
    def mem_get_info(device=None): return 1 << 33, 1 << 34
    @staticmethod
    def utilization(device=None): return 0
    @staticmethod
    def is_bf16_supported(including_emulation=True): return True   # With emulation, as a T4 says
    @staticmethod
    def is_current_stream_capturing(): return False
    @staticmethod
    def empty_cache(): pass
    @staticmethod
    def current_stream(device=None):
        device = str(device or Driver.current)
        return Driver.streams.get(device) or Stream(device)
    @staticmethod
    @contextmanager
    def device(device):
        before, Driver.current = Driver.current, str(device)
        try: yield
        finally: Driver.current = before
    @staticmethod
    @contextmanager
    def stream(stream):
        before, Driver.streams = Driver.streams, Driver.streams | {str(stream.device): stream}
        try: yield
        finally: Driver.streams = before


class Fake(FakeTensorMode):
    avoid_device_init = True   # There is no driver, whatever `Driver` says
    def __deepcopy__(self, memo): return self   # Every fake tensor refers to it


def is_fake(value):
    "Return True for a tensor of a card."
    return isinstance(value, FakeTensor)


def to_fake(value):
    "Return a fake tensor for a real one, and anything else as it is."
    return Cards.fake.from_tensor(value.detach()) if isinstance(value, torch.Tensor) and not is_fake(value) else value


def is_card(device):
    "Return True for the name or the device of a card."
    return device is not None and torch.device(device).type == "cuda"


class Cards(TorchDispatchMode):
    "While it is active in a thread, the cards can be used there."
    fake, answer = None, 1.0         # See `install`; the number that every read returns
    count, formats = 0, Counter()    # Operators so far; number formats of products and convolutions

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if FakeTensor in types or is_card(kwargs.get("device")): return on_card(func, args, kwargs)
        if func in (aten.pin_memory.default, aten._pin_memory.default): return args[0].clone()
        if func is aten.is_pinned.default: return False
        kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)


@functools.cache
def is_composite(func):
    "Return True if an operator is made of others for every device."
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def on_card(func, args, kwargs):
    "Run an operator on fake tensors. Raise a Fault if a GPU would not."
    if func is torch.ops.prim.device.default: return args[0].fake_device
    if is_composite(func):   # In inference mode
        with Cards(): return func.decompose(*args, **kwargs)
    if func is aten._local_scalar_dense.default: return torch.tensor(Cards.answer).to(args[0].dtype).item()
    if func is aten.equal.default: return True
    if func is aten._to_copy.default and not is_card(kwargs.get("device", CARDS[0])):
        return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
    if func is aten.copy_.default and not is_fake(args[0]): return args[0].fill_(1)
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    check(func, tensors, args, kwargs.get("device"))
    if not all(map(is_fake, tensors)): args, kwargs = tree_map(to_fake, (args, kwargs))
    with Cards.fake: result = func(*args, **kwargs)
    Cards.fake.fake_tensor_converter.meta_converter.tensor_memo.clear()   # Weak references are in Module.to's way
    if any(is_fake(leaf) and leaf.dim() and leaf.dtype == torch.float64 for leaf in tree_leaves(result)):
        raise Fault(f"{func} computes in float64")   # A GPU can, up to 64 times slower
    return result


def names(kinds):
    "Return devices or number formats as text."
    return " and ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))


def check(func, tensors, args, device):
    "Count an operator. Raise a Fault if its tensors lie on two devices, or have number formats that it does not take."
    kind, formats = func.overloadpacket, {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    if not func.is_view: Cards.count += 1
    if kind in PRODUCTS: Cards.formats.update(str(each).removeprefix("torch.") for each in formats)
    if kind in (aten._to_copy, aten.copy_): return
    places = {tensor.device for tensor in tensors if is_fake(tensor) or tensor.dim()}   # A single number may come along
    if device is not None: places.add(torch.device(device))
    if len(places) > 1: raise Fault(f"{func} got tensors on {names(places)}")
    if kind in SAME and len(formats) > 1: raise Fault(f"{func} got {names(formats)}")
    if kind is aten._fused_adamw_: check_fused(args[:4])


def check_fused(lists):
    "Raise a Fault unless each weight, its gradient and its moments have one number format and one memory layout."
    for parts in zip(*lists):
        formats, layouts = {part.dtype for part in parts}, {part.stride() for part in parts}
        if len(formats) > 1: raise Fault(f"the fused step got {names(formats)}")
        if len(layouts) > 1: raise Fault("the fused step got two memory layouts")


def backward(loss, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    "`Tensor.backward` without autograd's engine and hooks: go through the graph, each node after all that need it."
    uses, found = Counter(), [loss.grad_fn]
    for node in found:
        for following, _ in node.next_functions:
            if following is not None and following not in uses: found.append(following)
            uses[following] += 1
    gradients, ready = {loss.grad_fn: [torch.ones_like(loss)]}, [loss.grad_fn]
    with torch.no_grad():
        for node in ready:
            for (following, index), result in zip(node.next_functions, run_node(node, gradients.pop(node))):
                if following is None: continue
                room = gradients.setdefault(following, [None] * len(following._input_metadata))
                if result is not None: add(room, index, fit(result, following._input_metadata[index]))
                uses[following] -= 1
                if not uses[following]: ready.append(following)


def run_node(node, gradients):
    "Return the gradients of a node's inputs. A weight, where the graph ends, keeps its gradient, in its memory layout."
    if hasattr(node, "variable"):
        weight, gradient = node.variable, gradients[0]
        if gradient.stride() != weight.stride(): gradient = torch.empty_like(weight).copy_(gradient)
        weight.grad = gradient if weight.grad is None else weight.grad + gradient
        return ()
    result = node.apply(*gradients) if isinstance(node, torch.autograd.function.BackwardCFunction) else node(*gradients)
    return result if isinstance(result, tuple) else (result,)


def fit(gradient, want):
    "Return a gradient in the shape and number format of its tensor, as autograd does."
    if gradient.device != want.device: raise Fault(f"a tensor on {want.device} got a gradient on {gradient.device}")
    if gradient.shape != want.shape: gradient = gradient.sum_to_size(want.shape)
    return gradient.to(want.dtype)


def add(room, index, gradient):
    "Add a gradient to those that arrived before it."
    room[index] = gradient if room[index] is None else room[index] + gradient


def install():
    "Let this process use the cards, wherever `Cards` is active."
    for name in vars(Driver):
        if name[0] != "_" and hasattr(torch.cuda, name): setattr(torch.cuda, name, getattr(Driver, name))
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
    torch._C._ensureCUDADeviceGuardSet()   # A guard that does nothing where there is no driver
    torch.Tensor.backward, Cards.fake = backward, Fake()
