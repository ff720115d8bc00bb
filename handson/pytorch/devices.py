"""The device a worker trains on: a GPU, or a virtual one (a core) where there is none."""

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from handson import chosen_device
from handson.errors import TrackError
from handson.pytorch import memory_counter
from handson.training import equal_ranks, launch, progress, rank_watcher, step_times, virtual_gpus

_hook = None  # of this process's optimizers
_steps = 0  # that they have made


def count():
    """How many GPUs the ids of ``-g`` can name: the real ones, or the virtual ones of a machine without."""
    return torch.cuda.device_count() * chosen_device.parts or virtual_gpus.COUNT


def _real(gpu):
    """The GPU of which `gpu` is, or is a part."""
    return gpu // chosen_device.parts


def first(workers):
    """The ids of as many GPUs as there are `workers`; where there are fewer GPUs, workers share them."""
    return [gpu % count() for gpu in range(workers)]


def problem(gpus):
    """Which of the ids in `gpus` doesn't exist, or what else is wrong with them: a sentence, or None."""
    if found := chosen_device.problem(torch.cuda.is_available()):
        return found
    for gpu in gpus:
        if gpu >= count():
            kind = "GPU" if torch.cuda.is_available() else "virtual GPU"
            ids = f"{kind}s 0 to {count() - 1}" if count() > 1 else f"{kind} 0 (-g 0,0 lets two workers share it)"
            return f"-g: there is no {kind} {gpu}; this machine has {ids}"
    return None


def check(gpus):
    """Refuse ids that don't exist, before any worker starts. Raises TrackError."""
    if sentence := problem(gpus):
        raise TrackError(sentence)


def use(gpu):
    """Make this process train on GPU `gpu`, and return the torch device. A virtual GPU pins it to one core, with one
    thread.

    From now on, the steps of its optimizers tell that it makes progress; where --gpu-memory asks for it, its tensors
    are counted. Raises TrackError where the GPU has less memory.
    """
    _note_steps()
    if torch.cuda.is_available():
        device = torch.device("cuda", _real(gpu))
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
        virtual_gpus.pin(gpu)
        device = torch.device("cpu")
    memory_counter.begin(device, gpu)
    return device


def use_all(gpus):
    """Make this process train on all of these GPUs, and return the torch device of the first. Of virtual GPUs it has
    their cores; an operation has one thread."""
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
    """All ranks call it after the same step."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    checksum = [sum(parameter.double().pow(power).sum() for parameter in parameters).item() for power in (1, 2)]
    checksums = [None] * dist.get_world_size()
    dist.all_gather_object(checksums, checksum)
    equal_ranks.compare(checksums, _steps)


class Moment:
    """When the GPU of this process has done what was asked of it so far. Nobody waits for it but who subtracts two."""

    def __init__(self):
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record()

    def __sub__(self, before):
        """Seconds."""
        self.event.synchronize()
        return before.event.elapsed_time(self.event) / 1000


def wait_for_gpu():
    """Wait until the GPU of this process, if it has one, has done what was asked of it."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def wait_for_all():
    """Wait until the GPUs of all ranks have done what was asked of them."""
    wait_for_gpu()
    if dist.is_initialized():
        dist.barrier()


def place(gpu):
    """What a worker on GPU `gpu` of this machine uses: the GPU's id, or the core of a virtual GPU."""
    return gpu if torch.cuda.is_available() else virtual_gpus.core_of(gpu)


def describe(gpus, places=None):
    """Words for the output: the devices of workers on `gpus`, at `places` ((machine, place) of each; all on this one by
    default)."""
    check(gpus)
    places = places or [("here", place(gpu)) for gpu in gpus]
    if not torch.cuda.is_available():
        return virtual_gpus.describe(places)
    names = sorted({torch.cuda.get_device_name(_real(gpu)) for gpu in gpus})
    return virtual_gpus.describe_real(places, names)


def describe_threads(gpus):
    """Words for the output: the devices of one process that has a thread for each of `gpus`."""
    check(gpus)
    return describe(gpus) if torch.cuda.is_available() else virtual_gpus.describe_threads(gpus)


def library(backend):
    """The library that carries the gradients under `backend`: "nccl" or "gloo"."""
    return "nccl" if "nccl" in backend else "gloo"


def backend(gpus):
    """The communication library for the ranks of this node, on the GPUs `gpus`: NCCL if each has a GPU of its own, else
    gloo. Virtual nodes of one machine share its GPUs."""
    shared = len(set(map(_real, gpus))) < len(gpus) or launch.on_virtual_nodes()
    return "gloo" if shared or not torch.cuda.is_available() else "cpu:gloo,cuda:nccl"
