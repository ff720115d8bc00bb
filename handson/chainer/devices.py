"""The device of a worker: a GPU through CuPy, or a virtual GPU (a core) if there is none."""

import os

from handson.chainer.threads import set_blas_threads

import chainer

from handson import chosen_device
from handson.cluster.nodes import gpu_of_machine
from handson.errors import TrackError
from handson.profiling import usage
from handson.training import options, virtual_gpus
from handson.words import counted, there

THERE = usage.count_gpus()  # number of GPUs, whether or not Chainer can use them
# Chainer's ranks cannot use parts of GPUs: NCCL refuses two ranks on one GPU, and Chainer does not support gloo
_gpus = THERE if chainer.backends.cuda.available and chosen_device.parts == 1 else 0


def has_gpus():
    """Return whether this process trains on GPUs."""
    return _gpus > 0


def count():
    """Return the number of GPUs that the ids of ``-g`` can name: real GPUs, or virtual ones on a machine without
    GPUs."""
    return _gpus or virtual_gpus.COUNT


def take_virtual_gpus():
    """Train on cores even if there are GPUs, and hide them from this process and its workers."""
    global _gpus
    _gpus = 0
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def use(gpu):
    """Make this process train on GPU `gpu`, and return Chainer's device. A virtual GPU pins it to one core, with one
    thread."""
    if has_gpus():
        device = chainer.get_device(f"@cupy:{place(gpu)}")
        device.use()
        return device
    set_blas_threads(1)
    virtual_gpus.pin(gpu)
    return chainer.get_device("@numpy")


def finish():
    """Wait until the GPU of this process has finished its work, before a clock is read."""
    if has_gpus():
        chainer.backends.cuda.Stream.null.synchronize()


def place(gpu):
    """Return the resource of a worker on GPU `gpu` of this machine: the GPU's id, or the core of a virtual GPU. Raises
    TrackError."""
    if gpu >= count():
        kind = "GPU" if has_gpus() else "virtual GPU"
        raise TrackError(f"-g: there is no {kind} {gpu}; this machine has {kind}s 0 to {count() - 1}")
    return gpu_of_machine(gpu, count()) if has_gpus() else virtual_gpus.core_of(gpu)


def describe(gpus, places=None):
    """Return words for the output: the devices of workers on `gpus`, at `places` ((machine, place) of each; by default
    all on this one)."""
    if problem := chosen_device.problem(THERE > 0):
        raise TrackError(problem)
    places = places or [("here", place(gpu)) for gpu in gpus]
    if not has_gpus():
        parts = " (the Chainer track does not support parts of GPUs)" if chosen_device.parts > 1 else ""
        return virtual_gpus.describe(places) + parts
    without = "" if chainer.backends.cuda.cudnn_enabled else ", without cuDNN, which this CuPy does not have"
    return virtual_gpus.describe_real(places) + without


def main(gpus):
    """Return Chainer's device for the main process of a MultiprocessParallelUpdater. (The updater pins that process
    itself.)"""
    return chainer.get_device(f"@cupy:{gpus[0]}" if has_gpus() else "@numpy")


def settle(comm, args):
    """Check that all ranks have the same options, and set args.gpu to the GPU of each rank of a node. All ranks must
    call it.

    `comm` records whether double buffering was requested, for `add_reports` to check. Return words for the devices of
    all ranks. Raises TrackError on all ranks.
    """
    # nodes may keep their files in different places, so only whether ranks resume is compared
    asked = comm.mpi_comm.allgather(vars(args) | {"out": None, "resume": vars(args).get("resume") and "a snapshot"})
    if difference := options.difference(asked):
        raise TrackError(difference, on_all_ranks=True)
    # the communicator forbids setting attributes
    vars(comm)["double_buffering"] = vars(args).get("double_buffering")
    args.gpu = args.gpu or [gpu % count() for gpu in range(comm.intra_size)]
    problems = comm.mpi_comm.allgather(_problem(args.gpu, comm))
    if any(problems):
        raise TrackError(next(filter(None, problems)), on_all_ranks=True)
    places = comm.mpi_comm.allgather((virtual_gpus.machine(), place(args.gpu[comm.intra_rank])))
    return describe(args.gpu, places)


def _problem(gpus, comm):
    if len(gpus) < comm.intra_size:
        return (
            f"-g names {counted(len(gpus), 'GPU')}, but {there(comm.intra_size, 'rank')} on a node: name one for each"
        )
    try:
        place(gpus[comm.intra_rank])
    except TrackError as error:
        return str(error)
