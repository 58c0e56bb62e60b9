"Fixtures that several modules use."
import pytest


@pytest.fixture(scope="module")
def one_thread_inside():
    "PyTorch computes with one thread: the last bit of a training step depends on how many threads share it."
    import torch
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
