"""Checks of the PyTorch track's scripts that several units share: what a gap must do, in public cases."""

import numpy

from grader.checks import criteria, training
from grader.checks.check import Check, Criterion

PROBES, ORACLES = "grader.probes.pytorch", "grader.oracles.pytorch"


def every_image_once(seen, case, expected):
    length = case["lengths"][case["rank"]]
    if any(sorted(order) != list(range(length)) for order in seen[0]["orders"][0]):
        return f"an epoch does not contain each of the {length} images of the shard once"
    return None


def new_order_every_epoch(seen, case, expected):
    why = "the sampler is not told which epoch it is, or always the same"
    return every_image_once(seen, case, expected) or training.new_order_every_epoch(why)(seen, case, expected)


def order_follows_epoch(seen, case, expected):
    whole, resumed = seen[0]["orders"][0][2], seen[0]["resumed"]
    if whole == resumed:
        return None
    return (
        f"in epoch 2 a run begins with images {', '.join(map(str, whole[:3]))}; the same run, resumed at epoch 2, with "
        f"{', '.join(map(str, resumed[:3]))}: the number that is set must be `epoch`"
    )


def partition(seen, case, expected):
    return criteria.partition([of_rank["samples"] for of_rank in seen], case["images"])


def balanced(seen, case, expected):
    return criteria.balanced([of_rank["samples"] for of_rank in seen])


def at_random(seen, case, expected):
    return criteria.at_random([of_rank["samples"] for of_rank in seen])


def lengths_of_all(seen, case, expected):
    right = [len(of_rank["samples"]) for of_rank in seen]
    for rank, of_rank in enumerate(seen):
        if of_rank["lengths"] != right:
            return f"on rank {rank} `lengths` is {of_rank['lengths']}; the ranks have {right} images"
    return None


def equal_start(seen, case, expected):
    problem = criteria.equal_on_all_ranks([of_rank["start"] for of_rank in seen], "at the start parameters")
    if problem:
        return f"{problem}; the wrapper must send rank 0's to the others"
    return None if criteria.close(seen[0]["start"], expected["start"]) else "the parameters at the start are not those of rank 0's model"


def mean_gradients(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        wrong = {
            "after backward each rank has its own gradients: nothing averages them": expected["own"][rank],
            "the gradients are summed over the ranks, not averaged": expected["sum"],
        }
        problem = criteria.explained(of_rank["gradients"], expected["mean"], wrong if len(seen) > 1 else {})
        if problem is not None:
            found, right = (numpy.abs(values).max() for values in (of_rank["gradients"], expected["mean"]))
            problem = problem or "the gradients are not the mean of all ranks' gradients"
            return f"{problem} (on rank {rank} the largest is {found:.3g}; of the mean it is {right:.3g})"
    return None


DEVICE = Check(
    "device",
    f"{PROBES}:device",
    ({"workers": 1, "gpu": [0]}, {"workers": 1, "gpu": [1]}),
    (Criterion("the GPU asked for", 1, training.right_gpu, "devices.use(id) chooses a GPU; args.gpu is a list of ids."),),
)
DEVICE_OF_RANK = Check(
    "device",
    f"{PROBES}:device",
    ({"workers": 2, "gpu": [0, 1]}, {"workers": 2, "gpu": [1, 0]}, {"workers": 4, "gpu": [1, 0]}),
    (Criterion("a GPU for each rank of a node", 1, training.right_gpu, "comm.intra_rank is this rank's number on its node; args.gpu is a list of ids."),),
)
SHUFFLE = Check(
    "shuffle",
    f"{PROBES}:shuffle",
    ({"lengths": [23], "rank": 0, "batchsize": 5}, {"lengths": [12, 11], "rank": 1, "batchsize": 4}),
    (
        Criterion("a new order every epoch", 1, new_order_every_epoch, "A sampler's set_epoch chooses the order of its next pass."),
        Criterion("the order follows from the epoch", 1, order_follows_epoch, "set_epoch wants the number of the epoch that begins."),
    ),
)
STEP = Check(
    "step",
    f"{PROBES}:step",
    ({"lengths": [6], "steps": 3, "lr": 0.1},),
    (Criterion("the update of one step", 3, training.one_big_batch, "Four lines: zero_grad, forward and loss, backward, step."),),
    oracle=f"{ORACLES}:step",
)
STEP_OF_RANKS = Check(
    "step",
    f"{PROBES}:step",
    ({"ranks": 2, "lengths": [4, 3], "steps": 2, "lr": 0.1, "distributed": True},),
    (
        Criterion("equal parameters on all ranks", 1, training.ranks_stay_equal, "Forward must go through `replica`, which averages the gradients."),
        Criterion(
            "the update of one big batch",
            2,
            training.one_big_batch,
            "Gradients are averaged over the ranks, each with the same weight: the mean of the ranks' `loss` must be the mean over all `total` "
            "images, also where ranks have different numbers of them.",
        ),
    ),
    oracle=f"{ORACLES}:step",
)
REPLICA = Check(
    "replica",
    f"{PROBES}:replica",
    ({"ranks": 2, "lengths": [4, 3]},),
    (
        Criterion("all ranks start from rank 0's parameters", 1, equal_start, "DistributedDataParallel(model) sends them when it is made."),
        Criterion("backward gives the mean gradients", 1, mean_gradients, "DistributedDataParallel(model) averages them during backward."),
    ),
    oracle=f"{ORACLES}:replica",
)
SPLIT_CRITERIA = (
    Criterion("every image on exactly one rank", 1, partition, "All ranks must cut in the same way: from the same seed."),
    Criterion("shards of equal size but for one image", 1, balanced, "Deal the remainder out, an image to a rank."),
    Criterion("at random", 1, at_random, "The data set may be sorted: shuffle before cutting."),
    Criterion("`lengths` of all shards", 1, lengths_of_all, "A list with the number of images of every rank, the same on all ranks."),
)
THROUGHPUT_CRITERIA = (
    Criterion("images of all ranks and epochs", 1, training.images_of_all, "What went through the network: all images, times the epochs of this run."),
    Criterion("images per second", 1, training.images_a_second, "Throughput is images divided by seconds."),
)
THROUGHPUT = Check(
    "throughput",
    f"{PROBES}:throughput",
    (
        {"lengths": [50], "epoch": 4, "first_epoch": 0, "seconds": 12.5, "batchsize": 32},
        {"lengths": [50], "epoch": 4, "first_epoch": 1, "seconds": 8.0, "batchsize": 32},
    ),
    THROUGHPUT_CRITERIA,
)
THROUGHPUT_OF_RANKS = Check(
    "throughput",
    f"{PROBES}:throughput",
    (
        {"lengths": [26, 25], "epoch": 4, "first_epoch": 0, "seconds": 12.5, "batchsize": 8},
        {"lengths": [13, 13, 13, 12], "epoch": 4, "first_epoch": 1, "seconds": 8.0, "batchsize": 8},
    ),
    THROUGHPUT_CRITERIA,
)


def run(task, *cases):
    """The check of a whole script. On a single GPU the images differ and are shuffled into batches. With several ranks all images are
    equal, because the result must not depend on which rank gets which image."""
    return Check(
        "run",
        f"{PROBES}:run",
        tuple({"task": task, "images": 25, "epochs": 2, "batchsize": 9} | case for case in cases),
        (
            Criterion("rank 0 alone reports the throughput", 1, training.rank_0_reports, "Printing and saving are the duties of rank 0."),
            Criterion("result.json tells what was run", 1, training.result_of_run, "What is counted at the end goes into result.json."),
            Criterion("the parameters of our own run, on all ranks", 1, training.same_end, "If all gaps pass, look at the lines between them."),
        ),
        oracle=f"{ORACLES}:run",
        whole=True,
    )
