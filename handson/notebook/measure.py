"""Time the parts of training steps, on one GPU or on several at once. The notebooks call this module.

Separate processes measure, each on a GPU as in the training scripts. Each records when every part of a step ends, with
the clock that all processes of a machine share.
"""

import contextlib
import itertools
import multiprocessing
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import connection

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader

from handson.errors import OneSentence
from handson.ipython import progress_bar
from handson.language import speak
from handson.profiling import usage
from handson.pytorch import devices, flops
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import get_model
from handson.training import data
from handson.training.launch import loopback
from handson.training.options import usual_model

PARTS = ("load", "enlarge", "forward", "backward", "all-reduce", "optimize")
# workers are forked from a process that has imported PyTorch, because the import takes seconds
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__, "torch._dynamo"])  # the optimizer imports the latter
WARM_UP = 3  # steps that are not counted, because the first steps are slower
ROUNDS = 3  # over all batch sizes
# seconds that a worker may take to start, and between two reports of progress: many times the time on an idle machine
LIMIT = 300


class MeasurementFailed(OneSentence, RuntimeError):
    """A measurement that failed, and the reason."""


@dataclass
class Steps:
    """The times of training steps. moments: seconds, (workers, steps, 7): when each step began, and when each of PARTS
    ended."""

    moments: numpy.ndarray
    batchsize: int  # per worker

    def seconds(self, rank=0):
        """Return PARTS -> the seconds of this part in each step."""
        return dict(zip(PARTS, numpy.diff(self.moments[rank]).T))

    def of_steps(self, rank=0):
        """Return the seconds of each step."""
        return (self.moments[rank, :, -1] - self.moments[rank, :, 0]).tolist()

    def mean(self, rank=0):
        """Return the mean seconds of a step."""
        return float(numpy.mean(self.of_steps(rank)))

    def began(self, part):
        """Return when each rank began a part: seconds since the first step began, (steps, workers)."""
        return (self.moments[:, :, PARTS.index(part)] - self.moments[:, 0, 0].min()).T

    def ended(self, part):
        """Return when each rank ended a part: seconds since the first step began, (steps, workers)."""
        return (self.moments[:, :, PARTS.index(part) + 1] - self.moments[:, 0, 0].min()).T


def steps(workers=1, batchsize=32, size=256, count=20, model=None):
    """Time `count` steps of `workers` workers with digits of `size` pixels, and return them as Steps. Raises
    MeasurementFailed.

    model: a value of --model. By default, it is the model that scripts train on this machine.
    """
    return Steps(numpy.stack(on_gpus(_train, batchsize, size, model, count, workers=workers)), batchsize)


def batch_sizes(sizes=(1, 2, 4, 8, 16, 32, 64, 128), size=256, images=192, model=None):
    """Return batch size -> the seconds of each step, for one worker that trains on about `images` images per batch
    size. Sizes that do not fit the GPU's memory are left out. Raises MeasurementFailed."""
    found = on_gpus(_with_batch_sizes, sizes, size, model, images)[0]
    if missing := ", ".join(str(batchsize) for batchsize in sizes if batchsize not in found):
        speak(f"Left out, because they do not fit the GPU's memory: batches of {missing} images.")
    return found


def epoch(batchsize=32, size=256, model=None):
    """Return the seconds of each part of one epoch on one worker: PARTS without the all-reduce, and "evaluate". Raises
    MeasurementFailed."""
    return on_gpus(_epoch, batchsize, size, model)[0]


def peak():
    """Return the FLOP/s that one worker reaches in a large matrix multiplication: see handson.pytorch.flops. Raises
    MeasurementFailed."""
    return on_gpus(_peak)[0]


def on_gpus(function, *arguments, workers=1):
    """Return [function(device, rank, workers, *arguments) of each rank]. Each rank is a process on its own GPU; several
    ranks can all-reduce.

    The function calls `done` to report progress. Raises MeasurementFailed if a worker ends without a result, or reports
    no progress for LIMIT seconds.
    """
    gpus = devices.first(workers)
    backend = devices.backend([devices.place(gpu) for gpu in gpus])
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        pipes = []
        for rank, gpu in enumerate(gpus):
            ours, theirs = CONTEXT.Pipe(duplex=False)
            arguments_of_all = (rank, workers, gpu, backend, f"{folder}/meeting", theirs, function, arguments)
            process = CONTEXT.Process(target=_on_gpu, args=arguments_of_all, daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
            theirs.close()
            pipes.append(ours)
        with usage.watched(workers):
            return _answers(pipes)


def _answers(pipes):
    """Return the answer of each rank, which follows any number of progress messages."""
    answers, shares, heard = {}, [0.0] * len(pipes), [time.monotonic()] * len(pipes)
    with progress_bar("measuring") as show:
        while len(answers) < len(pipes):
            waiting = [rank for rank in range(len(pipes)) if rank not in answers]
            due = min(heard[rank] for rank in waiting) + LIMIT
            ready = connection.wait([pipes[rank] for rank in waiting], max(0, min(1, due - time.monotonic())))
            for rank in (rank for rank in waiting if pipes[rank] in ready):
                try:
                    shares[rank], *answer = pipes[rank].recv()
                except EOFError:
                    raise MeasurementFailed(f"worker {rank} ended without a result: its output is above") from None
                heard[rank] = time.monotonic()
                answers |= {rank: answer[0]} if answer else {}
            if not ready and time.monotonic() >= due:
                late = min(waiting, key=heard.__getitem__)
                raise MeasurementFailed(
                    f"worker {late} has made no progress for {LIMIT} seconds: check with `top` which other programs"
                    " run here, then run the cell again"
                )
            show(min(shares))
    return [answers[rank] for rank in range(len(pipes))]


_pipe = None  # a worker sends its results to the notebook's process through it


def done(share):
    """Report from a worker that this share of its work, from 0 to 1, is done."""
    if _pipe:
        _pipe.send((share,))


def _on_gpu(rank, workers, gpu, backend, meeting, pipe, function, arguments):
    global _pipe
    _pipe, device = pipe, devices.use(gpu)
    done(0)
    if workers > 1:
        loopback()
        dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=workers)
    pipe.send((1, function(device, rank, workers, *arguments)))
    # the parent ends this process once all ranks have answered: they may still need its connections
    multiprocessing.parent_process().join()


def epoch_after_epoch(sampler, batches):
    """Yield the `batches` of endless epochs, in the order of `sampler` (EpochBatches) for each epoch."""
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from batches


class _Training:
    """A rank's training as in the scripts, step by step."""

    def __init__(self, device, rank, workers, batchsize, size, model):
        self.device, self.workers, self.size = device, workers, size
        train_set, self.test_set = data.load("digits")
        shard = torch.utils.data.Subset(train_set, range(rank, len(train_set), workers))
        self.batches = EpochBatches(
            [len(range(other, len(train_set), workers)) for other in range(workers)], rank, batchsize, seed=0
        )
        self.loader = DataLoader(shard, batch_sampler=self.batches)
        torch.manual_seed(0)
        self.model = get_model(model or usual_model(), len(train_set.classes)).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)

    def step(self, batches):
        """Run a step, and return its moments."""
        moments = [now()]
        images, labels = next(batches)
        moments.append(now())
        images, labels = data.enlarge(images.to(self.device), self.size), labels.to(self.device)
        moments.append(now())
        loss = F.cross_entropy(self.model(images), labels)
        moments.append(now())
        self.optimizer.zero_grad()
        loss.backward()
        moments.append(now())
        if self.workers > 1:
            self.average_gradients()
        moments.append(now())
        self.optimizer.step()
        return [*moments, now()]

    def average_gradients(self):
        """Average the gradients of all ranks with one all-reduce."""
        gradients = [parameter.grad for parameter in self.model.parameters()]
        together = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(together)
        together /= self.workers
        for gradient, mean in zip(gradients, together.split([gradient.numel() for gradient in gradients])):
            gradient.copy_(mean.view_as(gradient))

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            for images, labels in DataLoader(self.test_set, 32):
                self.model(data.enlarge(images.to(self.device), self.size)).argmax(dim=1)
        self.model.train()


def now():
    """Return the time at which the GPU of this worker, if it has one, has finished its queued work."""
    devices.wait_for_gpu()
    return time.perf_counter()


def _train(device, rank, workers, batchsize, size, model, count):
    """Return the moments of `count` steps."""
    training = _Training(device, rank, workers, batchsize, size, model)
    batches, moments = epoch_after_epoch(training.batches, training.loader), []
    for number in range(WARM_UP + count):
        moments.append(training.step(batches))
        done((number + 1) / (WARM_UP + count))
    return numpy.array(moments)[WARM_UP:]


def _with_batch_sizes(device, rank, workers, sizes, size, model, images):
    """Return batch size -> seconds of each step, without sizes that do not fit the GPU. Each round runs all sizes, so
    that other programs on this machine slow all of them down."""
    found, trainings = {batchsize: [] for batchsize in sizes}, {}
    for batchsize in sizes:
        training = _Training(device, rank, workers, batchsize, size, model)
        trainings[batchsize] = training, epoch_after_epoch(training.batches, training.loader)
    counts = {batchsize: max(1, images // batchsize // ROUNDS) for batchsize in sizes}  # per round
    made, steps = itertools.count(1), len(sizes) * WARM_UP + ROUNDS * sum(counts.values())
    for number in range(ROUNDS):
        for batchsize in list(found):
            training, batches = trainings[batchsize]
            warm_up = 0 if number else WARM_UP
            for step in range(warm_up + counts[batchsize]):
                try:
                    moments = training.step(batches)
                except torch.OutOfMemoryError:
                    del found[batchsize]
                    break
                if step >= warm_up:
                    found[batchsize].append(moments[-1] - moments[0])
                done(next(made) / steps)
    return found


def _peak(device, rank, workers):
    return flops.peak(device)


def _epoch(device, rank, workers, batchsize, size, model):
    training = _Training(device, rank, workers, batchsize, size, model)
    batches = epoch_after_epoch(training.batches, training.loader)
    moments, count = [], WARM_UP + len(training.batches)
    for number in range(count):
        moments.append(training.step(batches))
        done((number + 1) / (count + 1))
    found = dict(zip(PARTS, numpy.diff(moments[WARM_UP:]).sum(axis=0).tolist()))
    del found["all-reduce"]
    begin = now()
    training.evaluate()
    return found | {"evaluate": now() - begin}
