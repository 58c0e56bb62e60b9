"The check of operators: what counts as a difference, as a fallback and as a failure, and how it is said."
import json

import numpy as np
import pytest
import torch

from torch.utils._python_dispatch import TorchDispatchMode

from alphazero_nb.cli import main
from alphazero_nb.core.device import Device
from alphazero_nb.training import operator_check as page
from alphazero_nb.training.operator_check import Job, OperatorFault, OperatorWatch, check_job, check_operators, describe_operators, difference, falls_back

CPU = Device("cpu", "CPU", "float32", "float32", False, False)
MPS = Device("mps", "Apple GPU", "float32", "float32", False, False)
aten = torch.ops.aten


@pytest.mark.parametrize("dtype, near, far", [(torch.float32, 1e-4, 1e-2), (torch.float16, 1e-2, .1), (torch.bfloat16, .05, .5)])
def test_rounding_is_no_difference(dtype, near, far):
    want = torch.linspace(-1, 1, 9).to(dtype)
    assert difference(want, want, 1.0) == 0 and difference(want + near, want, 1.0) < 1 < difference(want + far, want, 1.0)


@pytest.mark.parametrize("got, want", [(torch.ones(2), torch.ones(3)), (torch.ones(2), torch.ones(2).double()),
                                       (torch.tensor([torch.nan]), torch.ones(1)), (torch.ones(1), torch.tensor([torch.inf])),
                                       (torch.tensor([3]), torch.tensor([4]))])
def test_other_shapes_types_and_whole_numbers_are_a_difference(got, want): assert difference(got, want, 1.0) > 1


def test_the_same_infinity_is_no_difference():
    same = torch.tensor([torch.inf, torch.nan, 1.0])
    assert difference(same.clone(), same, 1.0) == 0


def test_a_sum_that_cancels_may_have_the_rounding_of_its_terms():
    assert difference(torch.tensor([1e-6]), torch.zeros(1), 1.0) < 1 < difference(torch.tensor([1e-6]), torch.zeros(1), 1e-3)


def test_what_mps_lacks_is_known_while_the_cpu_computes_it(monkeypatch):
    lacking, made_of_others = aten._fake_quantize_learnable_per_tensor_affine.default, aten.convolution.default
    monkeypatch.delenv("PYTORCH_ENABLE_MPS_FALLBACK", raising=False)
    assert not falls_back(lacking, MPS), "it raises an error instead"
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    assert falls_back(lacking, MPS) and not falls_back(made_of_others, MPS) and not falls_back(lacking, CPU)


def test_an_operator_is_taken_apart_unless_the_device_has_a_kernel_for_the_whole():
    library = torch.library.Library("alphazero_nb_test", "FRAGMENT")
    for name in ("whole", "parts"):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x.exp().neg(), "CompositeImplicitAutograd")
    library.impl("whole", lambda x: -x.exp(), "CPU")
    ops, watch = torch.ops.alphazero_nb_test, OperatorWatch(CPU)
    with torch.inference_mode(), watch: ops.parts(torch.ones(2)), ops.whole(torch.ones(2))
    assert watch.ran >= {"aten::exp", "aten::neg", "alphazero_nb_test::whole"} and "alphazero_nb_test::parts" not in watch.ran


class Broken(TorchDispatchMode):
    "A device with a fault in one operator. The watch asks the device first and the CPU second, so every other call is right."
    def __init__(self, name, fault):
        super().__init__()
        self.name, self.fault, self.calls = name, fault, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += func.name() == self.name
        return (self.fault if func.name() == self.name and self.calls % 2 else func)(*args, **kwargs or {})


def refuse(*args, **kwargs): raise NotImplementedError("The operator is not currently implemented for the MPS device.")


def test_the_cpu_takes_the_place_of_a_missing_operator():
    x, y = torch.zeros(3), torch.ones(3)
    for name, work in (("aten::lerp_.Scalar", lambda: x.lerp_(y, .25)), ("aten::exp", lambda: x.exp())):
        watch = OperatorWatch(CPU)
        with Broken(name, refuse), watch: result = work()
        assert [(fault.operator, fault.kind) for fault in watch.faults.values()] == [(name, "missing")] and watch.lacks()
    assert x.tolist() == [.25] * 3 and torch.equal(result, x.exp()), "in place too"


@pytest.mark.parametrize("name, fault, work", [
    ("aten::exp", lambda x: x + 1.1, lambda: torch.zeros(3).exp()),
    ("aten::lerp_.Scalar", lambda x, y, weight: x.add_(y), lambda: torch.zeros(3).lerp_(torch.ones(3), .25)),
    ("aten::_foreach_mul_.Scalar", lambda lists, by: None, lambda: torch._foreach_mul_([torch.ones(2), torch.ones(3)], 2.0))])
def test_an_operator_with_other_numbers_is_named_also_in_place_and_for_lists(name, fault, work):
    watch = OperatorWatch(CPU)
    with Broken(name, fault), watch: work()
    assert [(fault.operator, fault.kind) for fault in watch.faults.values()] == [(name, "wrong")]
    with (healthy := OperatorWatch(CPU)): work()
    assert name in healthy.ran and not healthy.faults


def test_random_numbers_are_not_compared_and_not_drawn_twice():
    "A device draws other numbers than the CPU, and the second draw of a generator is another one."
    draw = lambda chance: (torch.randn(5, generator=chance), torch.empty(5).uniform_(generator=chance))
    with (watch := OperatorWatch(CPU)): drawn = draw(torch.Generator().manual_seed(0))
    assert {"aten::randn.generator", "aten::uniform_"} <= watch.ran and not watch.faults
    assert all(map(torch.equal, drawn, draw(torch.Generator().manual_seed(0))))


def test_an_error_of_device_and_cpu_is_raised():
    with pytest.raises(RuntimeError, match="must match"), OperatorWatch(CPU): torch.ones(2) + torch.ones(3)


def test_operators_on_the_cpu_are_noted_once(monkeypatch):
    monkeypatch.setattr(page, "falls_back", lambda func, device: func.name() == "aten::tanh")
    watch = OperatorWatch(CPU)
    watch.where = "Learning (tiny, connect4)"
    with watch: torch.ones(3).tanh(), torch.ones(3).tanh().exp()
    assert list(watch.faults.values()) == [OperatorFault("aten::tanh", "slow", "Learning (tiny, connect4)")] and not watch.lacks()


def job(run, want=1.0): return Job("Learning (tiny, connect4)", run, np.array([want]), "float32")


def test_numbers_of_a_whole_job_are_compared():
    watch = OperatorWatch(CPU)
    check_job(job(lambda: np.array([1.0])), watch)
    assert not watch.faults
    check_job(job(lambda: np.array([1.1])), watch)
    assert [(fault.kind, fault.where) for fault in watch.faults.values()] == [("wrong", "Learning (tiny, connect4)")]


def test_an_error_of_a_job_is_a_fault_and_no_memory_is_an_error():
    def fails(error): raise error
    watch = OperatorWatch(CPU)
    check_job(job(lambda: fails(RuntimeError("the gradient is not finite\nmore"))), watch)
    assert [fault.detail for fault in watch.faults.values()] == ["the gradient is not finite"]
    with pytest.raises(torch.OutOfMemoryError): check_job(job(lambda: fails(torch.OutOfMemoryError("out of memory"))), watch)


def test_a_fault_is_a_sentence_and_advice_follows():
    faults = [OperatorFault("aten::tanh", "missing", "Learning (tiny, connect4)"), OperatorFault("aten::exp", "slow", "Playing"),
              OperatorFault("", "wrong", "Playing (mlp, connect4, float16)", "its numbers differ from those of the CPU")]
    report = dict(device="mps", operators=["aten::tanh", "aten::exp"], faults=[vars(fault) for fault in faults])
    lines = describe_operators(report)
    assert lines[0] == "mps has no operator aten::tanh. First used by: Learning (tiny, connect4)."
    assert lines[1].startswith("mps has no operator aten::exp, so the CPU computes it")
    assert lines[2] == "Playing (mlp, connect4, float16) on mps: its numbers differ from those of the CPU."
    assert any("PYTORCH_ENABLE_MPS_FALLBACK=1" in line for line in lines) and any("--device cpu" in line for line in lines)
    assert not any("FALLBACK" in line for line in describe_operators(dict(report, device="cuda:0")))
    assert describe_operators(dict(report, faults=[])) == ["mps has all 2 operators that learning and playing use, and their numbers "
                                                           "agree with those of the CPU."]


def test_an_unknown_device_is_refused(capsys):
    with pytest.raises(ValueError, match="it has: .*cpu"): check_operators("cuda:97")
    assert main(["check-device", "--device", "cuda:97"]) == 2 and "cuda:97" in capsys.readouterr().err


def test_the_command_reports_the_operators(monkeypatch, capsys):
    found = dict(device="cpu", operators=["aten::tanh"], faults=[vars(OperatorFault("aten::tanh", "missing", "Learning"))])
    monkeypatch.setattr(page, "check_operators", lambda device: dict(found, device=str(device)))
    assert main(["check-device", "--device", "cpu"]) == 0 and "cpu has no operator aten::tanh" in capsys.readouterr().out
    assert main(["check-device", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operators"] == found


def test_operators_of_a_device_that_does_not_work_are_left_alone(monkeypatch, capsys):
    import alphazero_nb.core.device as devices
    monkeypatch.setattr(devices, "probe_device", lambda device: dict(works=False, milliseconds=0.0, error="dead"))
    monkeypatch.setattr(page, "check_operators", lambda device: 1 / 0)
    assert main(["check-device"]) == 0 and "does not work: dead" in capsys.readouterr().out


def test_an_error_after_the_fault_of_another_job_is_noted():
    def fail(): raise RuntimeError("boom")
    watch = OperatorWatch(CPU)
    watch.faults["aten::tanh"] = OperatorFault("aten::tanh", "slow", "Playing")
    check_job(job(fail), watch)
    assert "boom" in [fault.detail for fault in watch.faults.values()]
