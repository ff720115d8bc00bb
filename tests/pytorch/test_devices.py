"""Which devices workers get, on machines with any number of GPUs: told to torch, since this one may have none."""

from types import SimpleNamespace

import pytest
import torch

from handson import chosen_device
from handson.errors import TrackError
from handson.pytorch import devices
from handson.training import gpu_memory, step_times


@pytest.fixture
def gpus(monkeypatch):
    """A machine with the given number of GPUs, as far as asking goes."""

    def have(count):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda gpu: "Example GPU")

    return have


def test_two_workers_share_the_only_gpu_over_gloo_and_say_so(gpus):
    gpus(1)
    assert devices.first(2) == [0, 0]
    places = [("machine", devices.place(gpu)) for gpu in devices.first(2)]
    assert devices.backend([0, 0]) == "gloo"
    assert devices.describe([0, 0], places) == "1 GPU (Example GPU) shared by 2 workers"


def test_a_gpu_for_each_worker_means_nccl(gpus):
    gpus(4)
    assert devices.first(2) == [0, 1]
    assert "nccl" in devices.backend([0, 1])
    assert devices.describe([0, 1]) == "2 GPUs (Example GPU)"


def test_parts_of_a_gpu_are_counted_and_named_and_communicate_over_gloo(gpus, monkeypatch):
    gpus(1)
    monkeypatch.setattr(chosen_device, "parts", 2)
    monkeypatch.setattr(chosen_device, "mps_runs", lambda: True)
    assert devices.count() == 2 and devices.first(2) == [0, 1]
    assert devices.backend([0, 1]) == "gloo"
    words = "with 1/2 of its memory and multiprocessors"
    assert devices.describe([0]) == f"a part of a GPU (Example GPU), {words}"
    assert devices.describe([0, 1]) == f"2 parts of GPUs (Example GPU), each {words}"
    assert devices.describe([0, 0]).endswith("shared by 2 workers")


def test_a_worker_on_a_gpu_that_others_share_gets_its_part_of_the_memory(gpus, monkeypatch):
    gpus(2)
    given = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda part, device: given.append(part))
    for ids in ([0], [0, 1], [1, 1], [1, 0, 1]):
        gpu_memory.begin(SimpleNamespace(gpu=ids, out="."))
        devices.use(ids[0])
    assert given == [0.5, 0.5]


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """A job of two virtual nodes, each with two workers."""
    (tmp_path / "nodes.json").write_text('{"node1": {"slots": [0, 1]}, "node2": {"slots": [2, 3]}}')
    monkeypatch.setenv("HANDSON_NODES", str(tmp_path / "nodes.json"))
    return lambda name: monkeypatch.setenv("HANDSON_NODE", name)


@pytest.mark.parametrize(
    "count, parts, words",
    [
        (4, 1, "4 GPUs (Example GPU)"),
        (2, 1, "2 GPUs (Example GPU) shared by 4 workers"),
        (1, 4, "4 parts of GPUs (Example GPU), each with 1/4 of its memory and multiprocessors"),
    ],
)
def test_virtual_nodes_have_different_gpus_if_there_are_enough(count, parts, words, gpus, nodes, monkeypatch):
    gpus(count)
    monkeypatch.setattr(chosen_device, "parts", parts)
    monkeypatch.setattr(chosen_device, "mps_runs", lambda: True)
    places = []
    for node in ("node1", "node2"):
        nodes(node)
        assert devices.first(2) == [0, 1] and devices.backend([0, 1]) == "gloo"
        places += [("machine", devices.place(gpu)) for gpu in (0, 1)]
    assert devices.describe([0, 1], places) == words


def test_workers_of_virtual_nodes_divide_the_memory_of_the_gpus_that_they_share(gpus, nodes, monkeypatch):
    given = []
    monkeypatch.setattr(torch.cuda, "set_device", given.append)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda part, device: given.append(part))
    nodes("node2")
    gpu_memory.begin(SimpleNamespace(gpu=[0, 1], out="."))
    for count, found in (4, [torch.device("cuda", 3)]), (2, [torch.device("cuda", 1), 0.5]):
        gpus(count)
        devices.use(1)
        assert given == found
        given.clear()


def test_without_gpus_workers_have_cores_and_gloo(gpus):
    gpus(0)
    assert devices.first(2) == [0, 1]
    assert devices.backend([0, 1]) == "gloo"
    assert "virtual GPUs" in devices.describe([0, 1])


def test_a_missing_gpu_is_named_with_those_that_there_are(gpus):
    gpus(1)
    assert devices.problem([0, 1]) == "-g: there is no GPU 1; this machine has GPU 0 (-g 0,0 lets two workers share it)"
    gpus(2)
    assert "GPUs 0 to 1" in devices.problem([0, 2])
    assert devices.problem([0, 1]) is None


def test_a_rank_for_which_there_is_no_gpu_ends_with_a_sentence(gpus):
    gpus(1)
    with pytest.raises(TrackError, match="there is no GPU 1"):
        devices.use(1)


def test_a_system_that_expects_nccl_refuses_ranks_that_share_a_gpu(gpus):
    gpus(2)
    devices.needs_nccl("A system", devices.backend([0, 1]))
    with pytest.raises(TrackError, match="A system needs a GPU for each rank"):
        devices.needs_nccl("A system", devices.backend([1, 1]))
    gpus(0)
    devices.needs_nccl("A system", devices.backend([1, 1]))


def test_a_step_on_a_gpu_ends_when_the_gpu_has_done_it(monkeypatch):
    """Not when it was launched: the next step's launch may come a second before."""
    done = iter((1000.0, 1250.0))  # ms, of the GPU's clock

    class Event:
        def __init__(self, enable_timing):
            self.moment = next(done)

        record = synchronize = lambda event: None

        def elapsed_time(self, later):
            return later.moment - self.moment

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(step_times, "moments", [])
    for _ in range(2):
        devices._step_ended(torch.optim.SGD([torch.zeros(1)]))
    assert step_times.seconds() == [0.25]
