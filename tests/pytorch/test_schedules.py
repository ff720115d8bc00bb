"""When ranks communicate: during backward (data parallel from scratch), seldom (local SGD), or without waiting (a
parameter server)."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from environments import QUICK_START
from ranks import image_set, on_ranks, run_ranks
from test_communication import SCRIPTS, solution
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from waiting import run_to_end

from handson import linux
from handson.pytorch import pytorch_method_runs

MPIEXEC = str(Path(sys.executable).with_name("mpiexec"))


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(768, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 10)
    ).double()


def vector(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def backward(model, images, labels):
    F.cross_entropy(model(images.double()), labels).backward()


def gradients(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def in_buckets(comm, most):
    """(gradients of each of two steps from scratch, those of DistributedDataParallel, of one big batch, events of the
    first step)."""
    script, everything, events = solution("data_parallel"), image_set(4 * comm.size), []
    mine = slice(4 * comm.rank, 4 * comm.rank + 4)
    model = network(seed=comm.rank)
    script.broadcast(model)
    buckets = [script.Bucket(parameters) for parameters in script.fill_buckets(list(model.parameters()), most)]
    for bucket in buckets:
        bucket.register()
    model[1].weight.register_post_accumulate_grad_hook(lambda parameter: events.append("backward has ended"))
    original, found = dist.all_reduce, []

    def noted(*arguments, **options):
        events.append("all-reduce")
        return original(*arguments, **options)

    for step in range(2):
        model.zero_grad()
        with mock.patch.object(dist, "all_reduce", noted):
            backward(model, everything.images[mine], everything.labels[mine])
        for bucket in buckets:
            bucket.wait()
        found.append(gradients(model))
    replica, big = DistributedDataParallel(network()), network()
    backward(replica, everything.images[mine], everything.labels[mine])
    backward(big, everything.images, everything.labels)
    return found, gradients(replica), gradients(big), events[: len(events) // 2], len(buckets)


@pytest.mark.parametrize(("size", "most", "buckets"), [(2, 1, 6), (3, 500, 3), (2, 10**9, 1)])
def test_data_parallel_from_scratch_equals_ddp_and_one_big_batch(size, most, buckets):
    for found, ddp, big, events, count in on_ranks(in_buckets, size, most):
        assert all(torch.allclose(step, big, rtol=0, atol=1e-9) for step in found)
        assert torch.allclose(ddp, big, rtol=0, atol=1e-9)
        assert count == events.count("all-reduce") == buckets
        if buckets > 1:
            assert events.index("all-reduce") < events.index("backward has ended")


def two_blocks(comm, momentum):
    """The parameters of this rank after each of 4 steps in blocks of 2, each of which adds a number of its own."""
    script, model, found = solution("local_sgd"), nn.Linear(3, 1, bias=False).double(), []
    nn.init.zeros_(model.weight)
    block = script.Block(vector(model), 2, momentum)
    for step in range(4):
        with torch.no_grad():
            model.weight += (1 + step) * (1 + comm.rank)
        script.after_step(model, block)
        found.append(model.weight[0, 0].item())
    return found


def test_local_sgd_takes_the_mean_at_the_end_of_each_block():
    assert on_ranks(two_blocks, 2, 0.0) == [[1, 4.5, 7.5, 15], [2, 4.5, 10.5, 15]]


def test_block_momentum_adds_what_the_block_before_has_changed():
    assert on_ranks(two_blocks, 2, 0.5) == [[1, 4.5, 7.5, 15 + 2.25], [2, 4.5, 10.5, 15 + 2.25]]


STEPS = 6


def served(comm):
    """The staleness of gradients where worker 2 begins its only step, and does not go on before worker 1 has made all
    of its steps but one."""
    script, model, store = (
        solution("parameter_server"),
        nn.Linear(1, 2).double(),
        dist.distributed_c10d._get_default_store(),
    )
    if comm.rank == 0:
        return script.serve(
            vector(model), 0.1, STEPS, lambda version: store.set("enough", "") if version == STEPS - 1 else None
        )

    def batches():
        for step in range(STEPS + 1):
            if comm.rank == 2 or step == STEPS - 1:
                store.wait(["enough"])
            yield torch.ones(1, 1).double(), torch.zeros(1).long()

    script.work(model, batches())
    return None


def test_a_slow_worker_does_not_hold_up_the_others():
    staleness, _, _ = on_ranks(served, 3)
    assert staleness[: STEPS - 1] == [0] * (STEPS - 1) and staleness[-1] in (0, STEPS - 1)


def guarded(comm, sizes, steps):
    model = nn.Linear(sizes[comm.rank], 1)
    pytorch_method_runs.guard(model, steps[comm.rank])
    model(torch.full((2, sizes[0]), float("nan") if comm.rank == 1 else 1.0)).sum().backward()


@pytest.mark.parametrize(
    ("sizes", "steps", "sentence"),
    [
        ((3, 4), (5, 5), "rank 0 has 4 parameters in its model, but rank 1 has 5: use the same number on all ranks"),
        ((3, 3), (5, 6), "rank 0 has 5 steps in an epoch, but rank 1 has 6: use the same number on all ranks"),
    ],
)
def test_ranks_that_would_wait_for_each_other_for_ever_end_with_a_sentence(sizes, steps, sentence):
    ranks = run_ranks(guarded, 2, sizes, steps)
    assert [rank.status for rank in ranks] == [2, 2]
    assert sentence in ranks[0].errors and not ranks[1].errors


def alone(comm):
    pytorch_method_runs.guard(nn.Linear(1, 1), 1, least=2)


def test_a_server_without_workers_ends_with_a_sentence():
    [rank] = run_ranks(alone, 1)
    assert rank.status == 2 and "this training needs at least 2 ranks" in rank.errors


def test_a_gradient_that_is_no_number_ends_the_run_with_the_rank_that_computed_it():
    ranks = run_ranks(guarded, 2, (3, 3), (5, 5))
    assert ranks[0].status == 0
    assert "rank 1: the gradient of weight is infinite or NaN" in ranks[1].errors


def trained(script, ranks, out, *words):
    """(output, method -> result.json) of a short training with every method."""
    words = ["--method", "all", "-e", "1", "--size", "16", "-o", str(out), *words]
    command = [MPIEXEC, "-n", str(ranks), sys.executable, SCRIPTS / script, *words]
    run = run_to_end(command, env=os.environ | QUICK_START)
    assert run.returncode == 0, run.stderr
    return {path.parent.name.removesuffix("_0"): json.loads(path.read_text()) for path in out.glob("*/result.json")}


@pytest.mark.thorough
def test_buckets_of_all_sizes_train_as_ddp_does(tmp_path):
    results = trained("train_data_parallel.py", 2, tmp_path, "-b", "150")
    losses = [result["log"][-1]["main/loss"] for result in results.values()]
    assert len(losses) == 5 and losses == pytest.approx([losses[0]] * 5, rel=1e-4)


@pytest.mark.thorough
def test_every_period_of_local_sgd_trains(tmp_path):
    results = trained("train_local_sgd.py", 2, tmp_path, "-b", "100")
    assert len(results) == 6
    assert all(result["log"][-1]["validation/main/accuracy"] > 0.05 for result in results.values())


@pytest.mark.thorough
def test_a_parameter_server_trains_and_notes_the_staleness(tmp_path):
    # 2 workers: 5 steps with both, or 10 with one
    results = trained("train_parameter_server.py", 3, tmp_path, "-b", "150")
    stale = {
        method: {name: times for name, times in result["log"][-1].items() if name.startswith("staleness")}
        for method, result in results.items()
    }
    assert stale["synchronous"] == {"staleness 0": 5} and sum(stale["asynchronous"].values()) == 10
    assert len(stale) == 4 and all(result["images"] == 1500 for result in results.values())


@pytest.mark.thorough
def test_a_worker_that_is_killed_ends_the_server_and_all_workers_with_its_rank(tmp_path):
    words = ["--method", "asynchronous", "-e", "1000", "--size", "16", "-o", str(tmp_path)]
    run = subprocess.Popen(
        [MPIEXEC, "-n", "3", sys.executable, SCRIPTS / "train_parameter_server.py", *words],
        env=os.environ | QUICK_START | {"TEST_RUN": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in run.stdout:
        if line.startswith("1 "):  # an epoch is over
            break
    [worker] = [process for process in linux.every_pid() if is_rank(process, 2, tmp_path)]
    os.kill(worker, signal.SIGKILL)
    begin = time.monotonic()
    _, errors = run.communicate(timeout=120)
    assert run.returncode and "rank 2" in errors, errors
    assert time.monotonic() - begin < 30


def is_rank(process, rank, folder):
    """Whether a process is this rank of the run in `folder`, and not what watches over it."""
    try:
        environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return {f"TEST_RUN={folder}".encode(), f"PMI_RANK={rank}".encode()} <= set(environment) and b"--method" in words
