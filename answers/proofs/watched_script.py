"""Runs a training script as its students do, and notes what it does. `proof_scripts` compares such notes of two runs.

A note is a line of JSON, [rank, what, value], in a file for each process: which GPU it takes, which images go through
the network (their numbers, which `write_images` puts into their first pixels), the parameters at the end, what counts
as `images`. An MPI rank of the Chainer track runs many scripts one after another: ``mpiexec -n 3 python -m
answers.proofs.watched_script LIST``.
"""

import collections.abc
import contextlib
import functools
import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import threading
import time
import types
import unittest.mock
import weakref
import zlib
from pathlib import Path

import numpy

from handson.training import banner, results, virtual_gpus

SCALE = 1024  # the first pixel of training image i is (i + 1) / SCALE; of test image i, half of full brightness more
# that a step of from_scratch.py takes by its clocks; with one, images a second and those of a step would be the same
# number
SECONDS = 0.61
folder = None  # where the notes go
track = None  # "pytorch", "chainer", or another system, which is one of PyTorch's
model = None  # a function: the network of this process
begun = None  # when its first training step has


def write_images(path, train, test):
    """A data set with `train` and `test` images of 8 x 8 pixels, which carry their numbers; their labels are the last
    digits of these."""
    random = numpy.random.default_rng(0)
    arrays = {"classes": [str(label) for label in range(10)], "maximum": numpy.float32(1)}
    for part, count, first in ("train", train, 1), ("test", test, 1 + SCALE // 2):
        images = random.random((count, 1, 8, 8), "float32")
        images[:, 0, 0, 0] = (numpy.arange(count) + first) / SCALE
        arrays |= {f"{part}_images": images, f"{part}_labels": numpy.arange(count) % 10}
    numpy.savez(path, **arrays)


def rank():
    """Of this process: its number, or the device of Chainer's MultiprocessParallelUpdater."""
    if track != "chainer":
        import torch.distributed as dist

        return str(dist.get_rank()) if dist.is_initialized() else os.environ.get("RANK", "0")
    if "mpi4py.MPI" in sys.modules:
        return str(sys.modules["mpi4py.MPI"].COMM_WORLD.rank)
    name = multiprocessing.current_process().name
    return name.split()[-1] if name.startswith("MultiprocessParallelUpdater") else "0"


def note(what, value):
    if folder is None:
        return  # the script has not begun: numpy.random, too, decompresses
    with open(folder / f"{os.getpid()}.notes", "a") as file:
        file.write(json.dumps([rank(), what, value]) + "\n")


def before(owner, name, action):
    """Have `action` called, with the same arguments, before the function or method `name` of `owner`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def watched(*arguments, **named):
        action(*arguments, **named)
        return original(*arguments, **named)

    setattr(owner, name, watched)


def forward(network, images, training):
    """Note which images go through the network."""
    global model, begun
    # a rank of Chainer's runs many scripts; others leave their process group when the function with the network has ended
    model = weakref.ref(network) if track == "chainer" else lambda: network
    begun = begun or (time.perf_counter() if training else None)
    numbers = numpy.rint(numpy.asarray(images[:, 0, 0, 0], "float64") * SCALE).astype(int) - 1
    note("train" if training else "test", [int(number) % (SCALE // 2) for number in numbers])
    note("pixels", images.shape[-1])


def parameters():
    """Three sums over all parameters of this process's network; none where there is no network, or no longer one."""
    network = model() if model else None
    if network is None:
        return []
    if track != "chainer":
        arrays = [whole(parameter).detach().clone().numpy() for parameter in network.parameters()]
    else:
        arrays = [parameter.array for _, parameter in sorted(network.namedparams())]
    flat = numpy.concatenate([numpy.ravel(array).astype("float64") for array in arrays])
    return [float(flat.sum()), float(flat @ flat), float(flat @ numpy.cos(numpy.arange(len(flat))))]


def whole(tensor):
    """A tensor of torch, of which each rank may have a part."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gradients(optimizer):
    """Two sums over the gradients that an optimizer of torch finds, those of this rank's parameters."""
    found = [
        whole(parameter.grad)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]
    return [float(sum(gradient.sum() for gradient in found)), float(sum(gradient.square().sum() for gradient in found))]


def named_ids(devices):
    """What Chainer's updater is told: whether the ids have names, the one of "main", and all of them."""
    if not isinstance(devices, collections.abc.Mapping):
        return [False, None, sorted(devices)]
    return [True, devices.get("main"), sorted(devices.values())]


def end(args, manager, evaluator, throughput, images, seconds):
    """Note how a rank of Chainer's ends: what rank 0, or the one process of several workers, reports."""
    note("end", (reported(throughput, images, seconds) if rank() == "0" else {}) | {"parameters": parameters()})


def end_of_rank_0(args, throughput, images, seconds, log, evaluation_seconds=0):
    """Note what rank 0 of another track reports, the only one that does."""
    note("end", reported(throughput, images, seconds) | {"parameters": parameters()})


def end_of_other_ranks(group=None):
    """Note the parameters of the ranks that report nothing, when they leave their process group."""
    if rank() != "0":
        note("end", {"parameters": parameters()})


def reported(throughput, images, seconds):
    """What is reported, in numbers that do not depend on the machine."""
    return {
        "images": float(images),
        "throughput * seconds": float(throughput * seconds),
        "all steps are in the seconds": begun is None or seconds > 0.9 * (time.perf_counter() - begun),
    }


def watch(of_track):
    """Let everything that a script of this track calls be noted."""
    global track
    track = of_track
    before(virtual_gpus, "pin", lambda gpu: note("gpu", gpu))
    before(results, "report", lambda *arguments, **named: note("report", "a result"))
    before(
        banner.LossTable, "add", lambda table, loss: note("epoch", {"loss": float(loss), "parameters": parameters()})
    )
    before(zlib, "decompress", lambda file: note("decompress", zlib.crc32(file)))
    if track == "accelerate":
        watch_accelerate()
    if track != "chainer":
        before(results, "report", end_of_rank_0)
        watch_torch()
    else:
        before(results, "finish", end)
        from handson.chainer import updaters
        from handson.chainer.model import ConvNet

        import chainer

        watch_device()
        before(
            updaters.MultiprocessParallelUpdater,
            "__init__",
            lambda *arguments, devices=(), **named: note("devices", named_ids(devices)),
        )
        before(chainer.links.Classifier, "forward", lambda classifier, images, labels: note("labels", labels.tolist()))
        before(ConvNet, "forward", lambda network, images: forward(network, images, bool(chainer.config.train)))


def watch_device():
    """Let Chainer's device be the CPU under the id of a GPU, and note which images are sent to it."""
    from handson.chainer import devices

    import chainer
    from chainer.dataset import convert

    class Device(chainer.backend.CpuDevice):
        name, number = "@watched", 7

        def send(self, arrays):
            if getattr(arrays, "ndim", 0) == 4 and arrays.shape[-1] >= 8:  # kernels are smaller
                note("sent", len(arrays))
            return super().send(arrays)

    def get_device(named):
        return Device() if named in (Device.name, Device.number) else found(named)

    def call(converter, batch, device):
        return (
            converter(batch, Device.number)
            if isinstance(device, Device) and not isinstance(converter, convert.Converter)
            else called(converter, batch, device)
        )

    use, found, called = devices.use, chainer.get_device, convert._call_converter
    devices.use = lambda gpu: use(gpu) and Device()
    chainer.get_device = chainer.backend.get_device = get_device
    convert._call_converter = call


def watch_accelerate():
    """Note which optimizers Accelerate prepares."""
    from accelerate.optimizer import AcceleratedOptimizer

    before(AcceleratedOptimizer, "__init__", lambda *arguments, **named: note("prepared", "an optimizer"))


def watch_torch():
    """Also what waits for the device or for other ranks, and which operations are in which named range."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    from handson.pytorch.batches import EpochBatches
    from handson.pytorch.model import ConvNet
    from handson.pytorch.transformer import Block

    before(dist, "destroy_process_group", end_of_other_ranks)
    torch.compile = lambda model=None, **options: model or (lambda model: model)  # it compiles nothing that notes
    before(Block, "forward", lambda block, tokens: note("operation", "forward of a block"))
    before(
        ConvNet,
        "forward",
        lambda network, images: (forward(network, images.detach(), network.training), note("operation", "forward")),
    )
    before(EpochBatches, "__iter__", lambda batches: note("totals", batches.totals))
    before(torch.optim.SGD, "step", lambda *arguments, **named: note("operation", "step"))
    before(torch.optim.Adam, "step", lambda optimizer, *arguments: note("update", gradients(optimizer)))
    before(torch.Tensor, "backward", lambda *arguments, **named: note("operation", "backward"))
    before(
        F,
        "cross_entropy",
        lambda outputs, labels, **named: (note("operation", "loss"), note("labels", labels.numpy().tolist())),
    )
    before(
        torch.Tensor,
        "detach",
        lambda tensor: (
            note("operation", "graph of a loss cut off") if tensor.requires_grad and tensor.dim() == 0 else None
        ),
    )
    before(dist.Work, "wait", lambda *arguments, **named: note("work", "waited for"))
    before(dist.Work, "is_completed", lambda *arguments: note("work", "asked"))
    ranges = torch.autograd.profiler.record_function
    before(ranges, "__enter__", lambda one: note("begin", one.name))
    before(ranges, "__exit__", lambda *arguments: note("finish", ""))
    # else it needs CUDA
    torch.cuda.nvtx._nvtx = types.SimpleNamespace(
        rangePushA=lambda name: note("begin", name), rangePop=lambda: note("finish", "")
    )
    for name in ("barrier", "all_gather", "all_gather_object", "all_reduce_coalesced", "broadcast", "reduce"):
        before(dist, name, lambda *arguments, name=name, **named: note("wait", name))
    for name in ("send", "recv"):
        before(dist.ProcessGroup, name, lambda *arguments, name=name, **named: note("wait", name))
    for name, place in (("allreduce", 0), ("allgather", 1), ("_allgather_base", 1)):
        before(
            dist.ProcessGroup,
            name,
            lambda group, *arguments, place=place: note("bytes", f"messages of {bytes_in(arguments[place])} bytes"),
        )
    before(dist.Store, "add", lambda *arguments: note("wait", "the store"))
    register = torch.Tensor.register_post_accumulate_grad_hook
    torch.Tensor.register_post_accumulate_grad_hook = lambda tensor, hook: register(
        tensor, lambda ready: (note("gradient", "complete"), hook(ready))[1]
    )
    before(
        dist,
        "all_reduce",
        lambda tensor, *arguments, **named: note(
            "operation", f"all-reduce of {'one' if tensor.numel() == 1 else 'many'}"
        ),
    )
    before(dist, "all_reduce", lambda tensor, *arguments, **named: note("type", str(tensor.dtype)))


def bytes_in(tensors):
    """The bytes of a tensor, or of those in a list."""
    return sum(map(bytes_in, tensors)) if isinstance(tensors, list) else tensors.nbytes


def watch_loading():
    """Let also be noted which images are pooled and scaled, by their pixels."""
    import torch
    import torch.nn.functional as F

    def note_each(what, images):
        note(what, [zlib.crc32(image.contiguous().numpy()) for image in images.view(-1, *images.shape[-3:])])

    before(F, "avg_pool2d", lambda images, *arguments, **named: note_each("pooled", images))
    before(torch.Tensor, "std", lambda images, *arguments, **named: note_each("scaled", images))


def watch_without_numbers():
    """Let the network be on a device whose tensors have no numbers, so that who fetches one fails, and note each step.
    (A GPU's have some, for which the host waits.)"""
    import torch
    import torch.distributed as dist

    from handson.pytorch import devices

    def no_inverse(*arguments):
        raise RuntimeError("whether there is an inverse can't be known without numbers")

    devices.use = lambda gpu: torch.device("meta")
    dist.all_reduce = lambda *arguments, **named: None
    torch.linalg.inv = no_inverse
    threading.excepthook = lambda failed: note("fails", str(failed.exc_value))
    before(torch.optim.SGD, "step", lambda *arguments: note("operation", "step"))


def watch_from_scratch(folder):
    """Let also be noted what all right answers of from_scratch.py have in common: they load few images, their networks
    begin with the same parameters, a mean gradient is that of all images, and by their clocks a step takes SECONDS."""
    import torch
    import torch.distributed as dist

    from handson.pytorch.model import ConvNet
    from handson.training import data

    steps, layers, load, images = [], set(), data.load_arrays, folder / f"{os.getpid()}.npz"

    def fix_statistics(layer):
        """Else a gradient depends on which images a rank has."""
        if layer not in layers and not layer.training:
            note("asleep", type(layer).__name__)
        layers.add(layer)
        layer.eval()

    write_images(images, 24, 5)
    data.load_arrays = lambda name: load(images)
    before(ConvNet, "__init__", lambda *arguments, **named: torch.manual_seed(0))
    before(torch.nn.BatchNorm2d, "forward", lambda layer, images: fix_statistics(layer))
    before(
        ConvNet, "forward", lambda network, images: network.training and note("step", [[*images.shape], parameters()])
    )
    before(
        torch.optim.SGD,
        "step",
        lambda optimizer, *arguments: (steps.append(1), note("gradients", gradients(optimizer))),
    )
    # since the real one sometimes aborts after the work is done
    dist.destroy_process_group = lambda *arguments: (note("end", {"parameters": parameters()}), dist.barrier())
    for name in ("time", "perf_counter", "monotonic"):
        watch_clock(name, lambda: 1e6 + SECONDS * len(steps))


def watch_clock(name, now):
    """Let a clock of Python's module `time` say now() to the script, and the real time to all else."""
    clock = getattr(time, name)

    def for_script():
        return (now if sys._getframe(1).f_globals.get("__name__") == "__main__" else clock)()

    setattr(time, name, for_script)


def note_draws(seed_dropout):
    """Note what all right functions ``seed_dropout(seed, rank)`` have in common: how many numbers all ranks draw with
    two seeds, on the CPU and on a GPU (for which another generator stands), and whether a seed gives the same ones
    again, in another process, too."""
    import torch
    import torch.distributed as dist

    gpu, mine = torch.Generator(), []
    instead = {
        "default_generators": (gpu,),
        "is_available": lambda: True,
        "manual_seed": gpu.manual_seed,
        "manual_seed_all": gpu.manual_seed,
    }
    with unittest.mock.patch.multiple(torch.cuda, **instead):
        for seed in (0, 1000, 0):
            seed_dropout(seed, dist.get_rank())
            mine.append([float(torch.rand((), generator=generator)) for generator in (torch.default_generator, gpu)])
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    for first, other, again in (
        zip(*([of_seed[device] for of_seed in of_rank] for of_rank in every)) for device in range(2)
    ):
        note("update", [len({*first, *other}), first == again])
    if dist.get_rank() == 0:
        file = Path(seed_dropout.__code__.co_filename)
        draw = (
            "import torch, torch.distributed as dist; dist.init_process_group('gloo', store=dist.HashStore(), rank=0,"
            " world_size=1); "
        )
        draw += f"import {file.stem} as of_ranks; of_ranks.seed_dropout(3, 0); print(torch.rand(()))"
        drawn = [
            subprocess.check_output(
                [sys.executable, "-c", draw], cwd=file.parent, env=os.environ | {"PYTHONHASHSEED": hashed}
            )
            for hashed in "12"
        ]
        note("update", [drawn[0] == drawn[1]])


def run(script, options, output, environment=()):
    """Run the file `script` with `options` in this process, its notes and output below the folder `output`."""
    global folder
    folder = output
    os.environ.update(environment)
    sys.argv = [str(script), *options]
    sys.path.insert(0, str(Path(script).parent))  # as Python does
    runpy.run_path(str(script), run_name="__main__")


def main_of_process(track, script, options, output, environment):
    """The main function of a process of its own for `run`."""
    os.setsid()  # so that `proof_scripts` can end it with all its workers
    Path(output).mkdir(parents=True, exist_ok=True)
    printed = os.open(f"{output}/printed", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    if track != "chainer":
        import torch.multiprocessing as mp

        mp.spawn = functools.partial(mp.start_processes, start_method="fork")  # the workers need not load torch again
    multiprocessing.set_start_method("fork", force=True)  # as where no fork server has started this process
    if Path(output).name == "without numbers":
        watch_without_numbers()
    else:
        watch(track)
    if Path(script).name == "slow_loading.py":
        watch_loading()
    if Path(script).name == "from_scratch.py":  # which has no options
        watch_from_scratch(Path(output))
    else:
        options = [*options, "-o", output]
    run(script, options, Path(output), environment)


def main():
    """An MPI rank: runs all of the [script, options, output] in a file of JSON."""
    import handson.chainer  # noqa: F401  before chainer

    from mpi4py import MPI

    watch("chainer")
    cores = os.sched_getaffinity(0)
    for script, options, output in json.loads(Path(sys.argv[1]).read_text()):
        os.sched_setaffinity(0, cores)
        Path(output).mkdir(parents=True, exist_ok=True)
        with open(f"{output}/printed", "a") as printed, contextlib.redirect_stdout(printed):
            run(script, [*options, "-o", output], Path(output))
        MPI.COMM_WORLD.Barrier()
        Path(output, "ended").touch()


if __name__ == "__main__":
    main()
