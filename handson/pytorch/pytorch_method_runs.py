"""Shared code of the scripts that compare methods: their main program, the progress table of a run, and checks that end
ranks which would deadlock. Both tracks share handson.training.method_runs."""

import itertools
import time
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader, DistributedSampler

from handson.errors import TrackError
from handson.profiling.timeline import EVALUATION
from handson.pytorch import devices
from handson.pytorch.communicator import announce
from handson.training import data, method_runs, options, progress, step_times


def train_each(train, methods):
    """Run a script that compares methods: create the process group, and call train(rank, args, method, train_set,
    test_set) for each seed and each of the `methods` that --method names."""
    args = options.parse(gpus=devices.first, add_options=partial(add_options, methods=methods))
    dist.init_process_group(devices.backend(args.gpu))  # reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    train_set, test_set = data.load(args.dataset)
    announce("multiple nodes", args, train_set)
    for method, seed in method_runs.runs(args):
        train(dist.get_rank(), method_runs.one_run(args, method, seed), method, train_set, test_set)
    dist.destroy_process_group()


def add_options(parser, methods):
    """Add the options that only these scripts have. methods: the names that --method takes."""
    method_runs.add_options(parser, methods)
    parser.add_argument(
        "--warm-up",
        type=options.natural,
        default=2,
        metavar="STEPS",
        help="number of full-precision steps before a method starts. Default: %(default)s",
    )


class Forgetful(dict):
    """The state of a hook without error feedback: in each call, the hook receives an empty dictionary instead. See
    `after_warm_up`."""


def after_warm_up(hook, steps, plain):
    """Return a communication hook that calls `plain` in the first steps, and then `hook`.

    DistributedDataParallel rebuilds its buckets after the first step, so a residual of this step would not fit.
    """
    done = {}

    def warm(state, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        done[bucket.index()] = done.get(bucket.index(), 0) + 1
        return (
            plain(None, bucket)
            if done[bucket.index()] <= max(1, steps)
            else hook({} if isinstance(state, Forgetful) else state, bucket)
        )

    return warm


def guard(model, steps, least=1):
    """End all ranks with a sentence if their models or their numbers of steps differ (they would deadlock), or if there
    are fewer than `least` ranks. From now on, an infinite or NaN gradient also ends all ranks."""
    mine = {
        "parameters in its model": sum(parameter.numel() for parameter in model.parameters()),
        "steps in an epoch": steps,
    }
    everybodys = [None] * dist.get_world_size()
    dist.all_gather_object(everybodys, mine)
    problem = None
    if len(everybodys) < least:
        problem = f"this training needs at least {least} ranks: start it with mpiexec -n {least}"
    for what, first in everybodys[0].items():
        for rank, theirs in enumerate(everybodys):
            if theirs[what] != first:
                problem = problem or (
                    f"rank 0 has {first:,} {what}, but rank {rank} has {theirs[what]:,}: use the same number on all"
                    " ranks, since they would deadlock otherwise"
                )
    if problem:
        raise TrackError(problem, on_all_ranks=True)
    refuse_nan(model)


def refuse_nan(model):
    """From now on, end all ranks if a gradient is infinite or NaN, with a sentence that names its rank. An all-reduce
    would spread this gradient to all ranks and to the next checkpoint."""
    count, sums = sum(1 for _ in model.parameters()), {}

    def check(name, gradient):
        sums[name] = gradient.sum()  # finite only if all numbers of the gradient are
        if len(sums) < count:
            return
        finite = torch.stack(list(sums.values())).isfinite()  # the host waits for the device only here
        if not finite.all():
            wrong = list(sums)[finite.tolist().index(False)]
            raise TrackError(
                f"rank {dist.get_rank()}: the gradient of {wrong} is infinite or NaN, so the run ends: try a lower --lr"
            )
        sums.clear()

    for name, parameter in model.named_parameters():
        parameter.register_hook(partial(check, name))


def endless(train_set, args, part, parts, device, pause=0.0):
    """Yield batches of one of `parts` shards of the images, epoch after epoch, on a device. pause: seconds of sleep
    before each batch, for a slow worker."""
    sampler = DistributedSampler(train_set, parts, part, seed=args.seed)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(train_set, args.batchsize, sampler=sampler):
            time.sleep(pause)
            progress.progress()
            yield data.enlarge(images.to(device), args.size), labels.to(device)


@torch.no_grad()
def settle(model, train_set, args, device, batches=4):
    """Compute the statistics of batch normalisation from some training images, for parameters that other ranks have
    trained. Return the loss of these images."""
    some = list(itertools.islice(endless(train_set, args, 0, 1, device), batches))
    update_bn(some, model)
    images, labels = some[-1]
    return F.cross_entropy(model(images), labels)


def wait(state):
    """Wait for the all-reduces in a hook's state that are in flight: with double buffering, (tensor, work) of each
    bucket."""
    for one in state.values() if isinstance(state, dict) else ():
        if isinstance(one, tuple):
            one[1].wait()


class Progress(method_runs.Progress):
    """The progress table of a run with PyTorch. together: whether all ranks create a table, and call `add` together."""

    def __init__(self, rank, method, together=True):
        super().__init__(rank, method, devices.wait_for_all if together else devices.wait_for_gpu)

    def add(self, loss, model, test_set, size):
        """Add an epoch. Rank 0 evaluates the model while the clock is stopped. loss: a number, or a function that is
        called during this time."""
        super().add(loss, lambda: accuracy(model, test_set, size))


@torch.no_grad()
def accuracy(model, test_set, size):
    """Return the fraction of the images of `test_set` that the model classifies correctly."""
    device = next(model.parameters()).device
    step_times.interrupted()
    model.eval()
    with torch.profiler.record_function(EVALUATION):
        correct = 0
        for images, labels in DataLoader(test_set, 256):
            outputs = model(data.enlarge(images.to(device), size))
            correct += (outputs.argmax(dim=1) == labels.to(device)).sum().item()
            progress.progress()
    model.train()
    return correct / len(test_set)
