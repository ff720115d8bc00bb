"""``mpiexec -n 16 python -m handson rehearse RUN``: run more workers than this machine has cores, with real all-reduces
and without computation.

Each rank sleeps for as long as a measured step of `RUN`, a single-worker run, took, and then all-reduces a gradient of
the same size with the other ranks, using gloo. A sleeping rank needs no core, so two cores are enough for 64 ranks; the
traffic on the network, real or virtual, is that of real training. The command writes a result.json like a training run,
so predictions can be compared with it.
"""

import argparse
import sys
import time

import numpy

from handson.cluster.nodes import current_node, job_nodes
from handson.errors import OneSentence
from handson.language import speak
from handson.profiling import usage
from handson.scaling import message_times
from handson.scaling.measured_runs import REHEARSAL
from handson.training import results

WARM_UP = 3  # steps that are not measured, because gloo connects the ranks in the first one


class RehearseError(OneSentence, ValueError):
    """A run cannot be rehearsed."""


def schedule(result, count, rank, seed=0):
    """Return the seconds that a rank computes in each of `count` steps: drawn from the measured steps of one worker,
    differently on each rank."""
    if result.workers != 1 or not result.steps:
        what = f"has {result.workers} workers" if result.workers != 1 else "does not contain the time of each step"
        raise RehearseError(
            f"{result.folder} {what}, and the ranks sleep for the steps of one worker: give a run of one worker of"
            " 01_single_gpu"
        )
    return numpy.random.default_rng([seed, rank]).choice(result.steps, count)


def rehearse(
    run, count, out, dtype="float32", double_buffering=False, overlap=False, parameters=None, seed=0, say=speak
):
    """Run `count` steps together with the other ranks; rank 0 writes the result into the folder `out`. The process ends
    with the others."""
    import torch
    import torch.distributed as dist

    from handson.pytorch.communicator import gloo_group

    torch.set_num_threads(1)
    result = results.read(run)
    result.parameters = parameters or result.parameters
    if not result.parameters:
        raise RehearseError(f"{run} does not contain its number of parameters: repeat the run")
    with gloo_group(argparse.Namespace(gpu=None, patience=120, out=out)) as comm:
        if comm.intra_rank == 0:
            usage.record(out, None)
        item = message_times.DTYPES[dtype]
        gradients = [
            torch.zeros(round(size / item), dtype=getattr(torch, dtype))
            for size in message_times.buckets(item * result.parameters)
        ]
        own = schedule(result, count + WARM_UP, comm.rank, seed)
        moments, waiting = [], []
        dist.barrier()
        for seconds in own:
            waiting = _step(seconds, gradients, waiting, double_buffering, overlap)
            moments.append(time.perf_counter())
        steps = numpy.diff(moments[WARM_UP - 1 :])
        if comm.rank == 0:
            rate = (
                job_nodes().get(current_node(), {}).get("rate", "none").replace("none", "")
                if comm.inter_size > 1
                else ""
            )
            used = usage.read(out, float(steps.sum()))
            path = results.write(_result(result, comm, steps, rate, dtype, double_buffering, used), out)
            say(
                f"{comm.size} workers that sleep: {1000 * steps.mean():.2f} ms a step,"
                f" {result.batchsize * comm.size / steps.mean():.1f} images/s: {path}"
            )
            sys.stdout.flush()


def _step(seconds, gradients, waiting, double_buffering, overlap):
    """Run one step: sleep and all-reduce. Return the all-reduces that double buffering leaves unfinished."""
    import torch.distributed as dist

    if double_buffering:
        time.sleep(seconds)
        for work in waiting:
            work.wait()
        return [dist.all_reduce(bucket, async_op=True) for bucket in gradients]
    begin = time.perf_counter()
    time.sleep(seconds * (1 - message_times.BACKWARD) if overlap else seconds)
    works = []
    for number, bucket in enumerate(gradients, 1):
        if overlap:  # backward fills the buckets evenly
            full = begin + seconds * (1 - message_times.BACKWARD * (1 - number / len(gradients)))
            time.sleep(max(0.0, full - time.perf_counter()))
        works.append(dist.all_reduce(bucket, async_op=True))
    for work in works:
        work.wait()
    return []


def _result(result, comm, steps, rate, dtype, double_buffering, used):
    """Return the Result of a rehearsal."""
    images = len(steps) * result.batchsize * comm.size
    return results.Result(
        unit="",
        script=REHEARSAL,
        track=result.track,
        profiled=False,
        workers=comm.size,
        nodes=comm.inter_size,
        device=f"{comm.size} virtual GPUs that sleep",
        dataset=result.dataset,
        size=result.size,
        batchsize=result.batchsize,
        epochs=1,
        seed=0,
        images=images,
        seconds=float(steps.sum()),
        train_seconds=float(steps.sum()),
        network=rate,
        communicator="gloo",
        gradients="" if dtype == "float32" else dtype,
        double_buffering=double_buffering,
        versions=result.versions,
        steps=[round(float(step), 7) for step in steps],
        parameters=result.parameters,
        usage=used,
    )
