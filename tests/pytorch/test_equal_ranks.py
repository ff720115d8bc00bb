"""A data-parallel run whose ranks do not stay equal says so in its output, its result, and the table of compare."""

import pytest
import torch
from ranks import on_ranks
from torch.nn.parallel import DistributedDataParallel

from handson import compare
from handson.pytorch import devices
from handson.training import equal_ranks, results


def trained(comm, wrapped, steps=5):
    """What the ranks find in a training, with DistributedDataParallel or without."""
    equal_ranks.expected = lambda: True
    devices.use(0)
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    replica = DistributedDataParallel(model) if wrapped else model
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(comm.rank)
    for _ in range(steps):
        optimizer.zero_grad()
        replica(torch.randn(4, 3)).sum().backward()
        optimizer.step()
    return equal_ranks.problem


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_average_their_gradients_stay_equal(ranks):
    assert on_ranks(trained, ranks, True) == [""] * ranks


def test_ranks_without_an_all_reduce_differ_from_the_first_step_on():
    problems = on_ranks(trained, 3, False)
    assert len(set(problems)) == 1 and problems[0].startswith("rank 1's parameters differ from rank 0's after step 1: ")


def test_the_result_and_the_table_of_compare_tell_of_it(tmp_path):
    common = {"unit": "multi_gpu", "script": "train_cifar_multi_gpu", "track": "pytorch", "profiled": False}
    common |= {"workers": 2, "nodes": 1, "device": "2 virtual GPUs", "dataset": "digits", "size": 32, "batchsize": 8}
    run = results.Result(**common, epochs=1, seed=0, images=100, seconds=2.0, train_seconds=1.0, unequal="they differ?")
    results.write(run, tmp_path)
    read = results.read(tmp_path)
    assert read.unequal == "they differ?"
    lines = compare.text(compare.table([read])) + compare.remarks([read])
    assert any("the ranks differ" in line for line in lines)
    assert any(line.startswith(f"{tmp_path}: they differ? ") for line in lines)
