"Fixtures that several modules use."
import signal

import pytest


@pytest.fixture
def ctrl_c():
    "Ctrl-C raises KeyboardInterrupt, also where whoever started the tests has it ignored."
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def one_thread_inside():
    "PyTorch computes with one thread: the last bit of a training step depends on how many threads share it."
    import torch
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def one_kernel(tmp_path_factory):
    from notebook_kernel import Kernel
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    try: yield kernel
    finally: kernel.close()


@pytest.fixture
def kernel(one_kernel):
    "The kernel of a module's tests, restarted if a test has left something running."
    yield one_kernel
    if one_kernel.cell.seconds is None or one_kernel.workers():
        print(one_kernel.cell, one_kernel.logged())
        one_kernel.restart()
