"""The device on which a worker trains: a GPU, or a virtual GPU (a core) if there is none."""

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from handson import chosen_device
from handson.cluster.nodes import gpu_of_machine
from handson.errors import TrackError
from handson.pytorch import memory_counter
from handson.training import equal_ranks, gpu_memory, launch, progress, rank_watcher, step_times, virtual_gpus

_hook = None  # the hook that this process's optimizers call after each step
_steps = 0  # run by these optimizers


def count():
    """Return the number of GPUs that the ids of ``-g`` can name: real GPUs, or virtual ones on a machine without
    GPUs."""
    return torch.cuda.device_count() * chosen_device.parts or virtual_gpus.COUNT


def _of_machine(gpu):
    """Return the number of GPU `gpu` among those of all virtual nodes."""
    return gpu_of_machine(gpu, count())


def _real(gpu):
    """Return the real GPU to which `gpu` belongs."""
    return _of_machine(gpu) // chosen_device.parts


def first(workers):
    """Return the ids of one GPU per worker; if there are fewer GPUs, workers share them."""
    return [gpu % count() for gpu in range(workers)]


def problem(gpus):
    """Return what is wrong with the ids in `gpus`, such as an id that does not exist, as a sentence; or None."""
    if found := chosen_device.problem(torch.cuda.is_available()):
        return found
    for gpu in gpus:
        if gpu >= count():
            kind = "GPU" if torch.cuda.is_available() else "virtual GPU"
            if count() == 1:
                return f"-g: there is no {kind} {gpu}; this machine has {kind} 0 (-g 0,0 lets two workers share it)"
            return f"-g: there is no {kind} {gpu}; this machine has {kind}s 0 to {count() - 1}"
    return None


def check(gpus):
    """Refuse ids that do not exist, before any worker starts. Raises TrackError."""
    if sentence := problem(gpus):
        raise TrackError(sentence)


def use(gpu):
    """Make this process train on GPU `gpu`, and return the torch device. A virtual GPU pins it to one core, with one
    thread.

    From now on, the steps of its optimizers count as progress. With --gpu-memory, its tensors are counted. Raises
    TrackError if the GPU does not exist or has less memory.
    """
    _note_steps()
    workers = 1
    if torch.cuda.is_available():
        if gpu >= count():
            raise TrackError(
                f"there is no GPU {gpu}, as this machine has {count()}: HANDSON_DEVICE=cpu before the command lets"
                " ranks use cores"
            )
        device, workers = torch.device("cuda", _real(gpu)), gpu_memory.workers_on(gpu, count())
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
        virtual_gpus.pin(gpu)
        device = torch.device("cpu")
    memory_counter.begin(device, gpu, workers)
    return device


def use_all(gpus):
    """Make this process train on all of these GPUs, and return the torch device of the first one. With virtual GPUs,
    the process uses their cores, and an operation has one thread."""
    _note_steps()
    if torch.cuda.is_available():
        return use(gpus[0])
    torch.set_num_threads(1)
    virtual_gpus.share(gpus)
    memory_counter.begin(torch.device("cpu"), gpus[0])
    return torch.device("cpu")


def _note_steps():
    global _hook
    if _hook is None:
        rank_watcher.end_in_time()
    _hook = _hook or register_optimizer_step_post_hook(_step_ended)


def _step_ended(optimizer, *_):
    global _steps
    progress.progress()
    _steps += 1
    if dist.is_initialized():
        rank_watcher.trained = True
        if equal_ranks.due(_steps):
            _compare_ranks(optimizer)
    step_times.ended(
        lambda: sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"]),
        Moment() if torch.cuda.is_initialized() else None,
    )


@torch.no_grad()
def _compare_ranks(optimizer):
    """Compare the ranks' parameters. All ranks call it after the same step."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    checksum = [sum(parameter.double().pow(power).sum() for parameter in parameters).item() for power in (1, 2)]
    checksums = [None] * dist.get_world_size()
    dist.all_gather_object(checksums, checksum)
    equal_ranks.compare(checksums, _steps)


class Moment:
    """The time at which the GPU of this process has finished its queued work. Only the subtraction of two moments waits
    for the GPU."""

    def __init__(self):
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record()

    def __sub__(self, before):
        """Return the seconds between two moments."""
        self.event.synchronize()
        return before.event.elapsed_time(self.event) / 1000


def wait_for_gpu():
    """Wait until the GPU of this process, if it has one, has finished its queued work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def wait_for_all():
    """Wait until the GPUs of all ranks have finished their queued work."""
    wait_for_gpu()
    if dist.is_initialized():
        dist.barrier()


def place(gpu):
    """Return the resource of a worker on GPU `gpu` of this machine: the GPU's id, or the core of a virtual GPU."""
    return _of_machine(gpu) if torch.cuda.is_available() else virtual_gpus.core_of(gpu)


def describe(gpus, places=None):
    """Return words for the output: the devices of workers on `gpus`, at `places` ((machine, place) of each; by default
    all on this one)."""
    check(gpus)
    places = places or [("here", place(gpu)) for gpu in gpus]
    if not torch.cuda.is_available():
        return virtual_gpus.describe(places)
    names = sorted({torch.cuda.get_device_name(_real(gpu)) for gpu in gpus})
    return virtual_gpus.describe_real(places, names)


def describe_threads(gpus):
    """Return words for the output: the devices of one process with a thread for each of `gpus`."""
    check(gpus)
    return describe(gpus) if torch.cuda.is_available() else virtual_gpus.describe_threads(gpus)


def library(backend):
    """Return the library that sends the gradients under `backend`: "nccl" or "gloo"."""
    return "nccl" if "nccl" in backend else "gloo"


def needs_nccl(system, backend):
    """Refuse ranks that exchange the tensors of GPUs with gloo, for a system that expects NCCL. Raises TrackError."""
    if torch.cuda.is_available() and backend == "gloo":
        raise TrackError(
            f"{system} needs a GPU for each rank: HANDSON_DEVICE=cpu before the command lets ranks use cores"
        )


def backend(gpus):
    """Return the communication library for the ranks of this node on the GPUs `gpus`: NCCL if each has its own GPU,
    otherwise gloo. It is also gloo between virtual nodes."""
    shared = len(set(map(_real, gpus))) < len(gpus) or launch.on_virtual_nodes()
    return "gloo" if shared or not torch.cuda.is_available() else "cpu:gloo,cuda:nccl"
