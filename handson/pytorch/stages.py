"""Helpers for the pipelines of unit model_parallel: refuse sizes that cannot be divided before any rank waits, measure
when each operation ran, and call a step of PyTorch's pipelines."""

import json
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist

from handson.files import written_aside
from handson.pipelines import Operation, division_problem, schedule_problem
from handson.pytorch.communicator import stop_together

FILE = "pipeline.json"  # a file in a run's folder
_done = None  # [name, begin, end] of each operation of this rank's step, while it is recorded


def check(schedule, layers, batchsize, micro_batches, chunks=1):
    """End all ranks with a sentence if the schedule (a list of operations for each rank) cannot be executed, or if the
    layers or the batch cannot be divided. All ranks call it.

    chunks: the number of chunks of each rank; PyTorch makes the schedule of more than one.
    """
    problem = division_problem(len(schedule), layers, batchsize, micro_batches, chunks)
    stop_together(problem or (schedule_problem(schedule, micro_batches) if chunks == 1 else None))


def order(schedule):
    """Return the operations of each rank in a multi-chunk schedule of torch.distributed.pipelining, with their names in
    handson.pipelines."""

    def letter(kind):
        return kind.value if isinstance(kind.value, str) else str(kind)  # torch 2.8 has numbers as values

    return [
        [
            f"{letter(action.computation_type)}{action.microbatch_index}.{action.stage_index // dist.get_world_size()}"
            for action in schedule.pipeline_order[rank]
            if action is not None  # a moment in which the rank waits
        ]
        for rank in range(dist.get_world_size())
    ]


def left_out(method, device):
    """Return whether a method cannot run on this device; rank 0 then prints the reason. All ranks must call it."""
    if not method.startswith("torch-") or device.type != "cuda" or dist.get_backend() != "gloo":
        return False
    if dist.get_rank() == 0:
        print(
            f"\nMethod: {method} is left out: PyTorch's pipelines send from the GPU, but ranks that share a GPU"
            " use gloo, which sends only from the host's memory; the method runs with HANDSON_DEVICE=cpu"
        )
    return True


@contextmanager
def noted(name):
    """Context manager that records the time of operation `name` of this rank, inside `measured`."""
    begin = _now()
    yield
    if _done is not None:
        _done.append([name, begin, _now()])


def _now():
    """Return the time in seconds at which this rank's GPU has finished its queued work."""
    if _done is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


@contextmanager
def measured(comm, out, schedule):
    """Context manager that records the operations of one step, and writes them into the run's folder: {"schedule",
    "operations": [[stage, name, begin, end]]}, in seconds since the ranks started together. All ranks must call it."""
    global _done
    comm.barrier()
    _done, begin = [], time.perf_counter()
    try:
        yield
        mine = [[comm.rank, name, start - begin, end - begin] for name, start, end in _done]
    finally:
        _done = None
    everybodys = comm.gather(mine)
    if comm.rank == 0:
        operations = sorted(
            (Operation(*one) for of_rank in everybodys for one in of_rank), key=lambda operation: operation.begin
        )
        with written_aside(out / FILE) as file:
            file.write(json.dumps({"schedule": schedule, "operations": operations}).encode())


def torch_step(schedule, images, labels):
    """Run one step of a schedule of torch.distributed.pipelining, whose stages are the ranks. Return the batch's mean
    loss on the last rank, 0 on the others."""
    losses, last = [], dist.get_world_size() - 1
    inputs = (images,) if dist.get_rank() == 0 else ()
    schedule.step(*inputs, **({"target": labels, "losses": losses} if dist.get_rank() == last else {}))
    return torch.stack(losses).mean().detach() if losses else torch.zeros(())


def of_last_rank(loss):
    """Return the last rank's loss on every rank."""
    loss = torch.as_tensor(loss, dtype=torch.float32).detach().cpu().clone()
    dist.broadcast(loss, dist.get_world_size() - 1)
    return loss
