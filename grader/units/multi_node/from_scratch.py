"""The checks of mpi_accuracy.py and from_scratch.py."""

import re

import numpy

from grader.checks import criteria, training
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

ROUNDING = 1e-3  # the network computes in single precision
LARGEST = 100  # the largest value of a parameter
LAST = 10  # numbers that are printed; one of them is the throughput
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:[eE][+-]?\d+)?")  # a number in a line of output
PER_SECOND = re.compile(r"/ ?s(ec|\b)|per sec", re.IGNORECASE)
NEAR = 0.15  # tolerance of the throughput: it may leave out the first step
EXACT = 0.01  # the same for the output of other ranks, which may print other numbers, such as losses
DECAY = 2e-5  # weight decay that is more than rounding
PROBES = "grader.units.multi_node.probes.probe_from_scratch"


def of_all_ranks(seen, case, expected):
    correct, images = numpy.array(case["counts"]).T
    with numpy.errstate(all="ignore"):  # a rank may have no images
        right, own, mixed = correct.sum() / images.sum(), correct / images, correct.sum() / images
        up_to = correct.cumsum() / images.cumsum()
    found = seen[0]["returned"]
    if None in found:
        return (
            f"rank {found.index(None)} returns None, but every rank needs the result: `allreduce` gives it to all ranks"
        )
    wrong = {
        "the ranks' accuracies are averaged, so a rank with few images weighs as much as one with many": (own.mean()),
        "each rank returns its own accuracy: nothing combines the ranks": own,
        (
            "all ranks return rank 0's accuracy, without the numbers of the other ranks: `bcast` sends rank 0's, and"
            " `+` only joins tuples"
        ): own[0],
        "the ranks' accuracies are added up: add up images, then divide": own.sum(),
        (
            "the correct images of all ranks are divided by each rank's own images: divide by the images of all ranks"
        ): mixed,
        "`scan` sums up to each rank, but every rank needs the sums over all ranks": up_to,
        "the largest numbers (MAX) are divided: divide the sums": correct.max() / images.max(),
        (
            "the sum of correct images is divided by the largest number of images (MAX): divide it by the sum of images"
        ): correct.sum() / images.max(),
        "each rank multiplies its own images by the number of ranks, but the ranks have different numbers of images": (
            mixed / len(found)
        ),
        "`//` drops the decimals: divide with `/`": correct.sum() // images.sum(),
        "the accuracy is in percent: return a number from 0 to 1": 100 * right,
    }
    of_ranks = {sentence: numpy.broadcast_to(values, len(found)) for sentence, values in wrong.items()}
    problem = criteria.explained(found, [right] * len(found), of_ranks)
    if problem is None:
        return None
    if not problem and criteria.close(found[0], right):
        problem = (
            "only rank 0 has the sums: `Reduce` and `reduce` leave them there, `Allreduce` and `allreduce` give them"
            " to every rank"
        )
    rank = next(rank for rank, value in enumerate(found) if not criteria.close(value, right))
    counts = ", ".join(f"{one} of {of}" for one, of in case["counts"])
    shown, of_all = criteria.distinct_digits(found[rank], right)
    return criteria.with_reason(
        f"rank {rank} returns {shown}, but the ranks have {counts} correct, which is {of_all}", problem
    )


def one_group(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if of_rank["size"] != len(seen):
            return (
                f"the process group of rank {rank} has {of_rank['size']} of {len(seen)} ranks during training: call"
                " dist.init_process_group first, on each rank"
            )
    on_node, nodes = (
        [local for of_node in case["of_node"] for local in range(of_node)],
        " and ".join(map(str, case["of_node"])),
    )
    for rank, of_rank in enumerate(seen):
        if not of_rank["gpus"]:
            return (
                f"rank {rank} never calls devices.use(id), which chooses its GPU, so all ranks of a node would share"
                " one"
            )
        if others := set(of_rank["gpus"]) - {local := on_node[rank]}:
            return (
                f"rank {rank} uses GPU {min(others)} of its node, but its LOCAL_RANK is {local} (the nodes have {nodes}"
                " ranks): pass LOCAL_RANK to devices.use"
            )
    leaving = [rank for rank, of_rank in enumerate(seen) if of_rank["left"]]
    if 0 < len(leaving) < len(seen):
        return (
            f"only {criteria.ranks(leaving)} leave{'s' * (len(leaving) == 1)} the process group at the end: call"
            " dist.destroy_process_group() on each rank"
        )
    return None


def every_image_once(seen, case, expected):
    epochs = [_epochs(of_rank, case) for of_rank in seen]
    if strange := [
        rank
        for rank, of_rank in enumerate(seen)
        if any(not 0 <= image < case["images"] for batch in of_rank["batches"] for image in batch)
    ]:
        return (
            f"{criteria.ranks(strange)} train{'s' * (len(strange) == 1)} on images that are not the training images"
            " of data.load, enlarged by data.enlarge"
        )
    counts = numpy.bincount(
        [image for of_rank in seen for batch in of_rank["batches"] for image in batch], minlength=case["images"]
    )
    if (counts == (made := int(counts[0]))).all() and made != case["EPOCHS"] and not _have_all(seen, case["images"]):
        return f"the training runs for {made} epoch{'s' * (made > 1)}, but EPOCHS is {case['EPOCHS']}"
    if counts.sum() == case["images"] * case["EPOCHS"] * len(seen) and len(seen) > 1:
        return (
            f"every rank trains on all {case['images']} images: give each rank its own part (DistributedSampler"
            " chooses it)"
        )
    if any(
        len(order) * case["EPOCHS"] != sum(map(len, of_rank["batches"]))
        for of_rank, orders in zip(seen, epochs)
        for order in orders
    ):
        return f"a rank ends in the middle of an epoch: train for EPOCHS = {case['EPOCHS']} whole epochs on each rank"
    for epoch in range(case["EPOCHS"]):
        if problem := criteria.partition([orders[epoch] for orders in epochs], case["images"]):
            return f"epoch {epoch}: {problem}"
    return None


def _have_all(seen, images):
    """Return whether each rank trains on all images."""
    return all(len({image for batch in of_rank["batches"] for image in batch}) == images for of_rank in seen)


def batches_of_the_size(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        steps, longest, images = (
            len(of_rank["batches"]) // case["EPOCHS"],
            max(map(len, of_rank["batches"])),
            len(_epochs(of_rank, case)[0]),
        )
        if longest > case["BATCHSIZE"] or steps != -(-images // case["BATCHSIZE"]):
            return (
                f"rank {rank} splits its {images} images into {steps} batches of up to {longest}, but BATCHSIZE,"
                f" {case['BATCHSIZE']}, is the batch size of each rank"
            )
    return None


def _epochs(of_rank, case):
    """Return the numbers of a rank's images in each epoch, in their order."""
    images = [image for batch in of_rank["batches"] for image in batch]
    length = len(images) // case["EPOCHS"]
    return [images[epoch * length : (epoch + 1) * length] for epoch in range(case["EPOCHS"])]


def new_order(seen, case, expected):
    orders = [_epochs(of_rank, case) for of_rank in seen]
    judge = training.new_order_every_epoch("is the epoch passed to the sampler (set_epoch)?")
    return judge([{"parts": [sorted(of_rank[0])], "orders": [of_rank]} for of_rank in orders], case, None)


def trained_together(seen, case, expected):
    traces, rate = [of_rank["parameters"].astype(float) for of_rank in seen], case["RATE"]
    largest = max(numpy.abs(trace).max() for trace in traces)
    if largest > LARGEST:  # next to it, differences would be rounding errors
        return f"a parameter has the value {largest:.2g}, but those of a ConvNet() are small numbers and stay small"
    if criteria.close(traces[0][0], traces[0][-1]):
        return "the parameters never change"
    if asleep := next((layer for of_rank in seen for layer in of_rank["asleep"]), None):
        return (
            f"a {asleep} of the network is in evaluation mode during training: `train()` of the network switches all"
            " its layers"
        )
    if problem := criteria.equal_on_all_ranks([trace[0] for trace in traces], "the parameters before the first step"):
        return f"{problem} (DistributedDataParallel sends rank 0's to all ranks)"
    if problem := criteria.equal_on_all_ranks([trace[-1] for trace in traces], "the parameters after the training"):
        return f"{problem} (does each forward pass use the DistributedDataParallel, which averages the gradients?)"
    own = [of_rank["gradients"][0] for of_rank in seen]
    if len(seen) > 1 and all(criteria.close(gradient, own[0], ROUNDING * numpy.abs(own[0]).max()) for gradient in own):
        return (
            "all ranks have the same gradients in the first step, so they use the same images: give each rank its own"
            " images"
        )
    return _first_step(traces, own, rate) or _later_steps(traces, [of_rank["gradients"] for of_rank in seen], rate)


def _later_steps(traces, gradients, rate):
    """Return None if each step on all ranks is its mean gradient plus less than the step before, as with momentum, or
    otherwise a sentence."""
    moves = -numpy.diff(traces[0], axis=0) / rate
    for number in range(1, min(map(len, gradients))):
        if problem := criteria.equal_on_all_ranks(
            [trace[number + 1] for trace in traces], f"the parameters after step {number + 1}"
        ):
            return f"{problem} (every step needs the mean of all ranks' gradients)"
        own, before, moved = (
            numpy.mean([of_rank[number] for of_rank in gradients], axis=0),
            moves[number - 1],
            moves[number],
        )
        astray = f"step {number + 1} does not follow the mean of all ranks' gradients, as SGD would"
        if not numpy.isfinite([own, before, moved]).all():
            return astray
        (along_own, along_before), *_ = numpy.linalg.lstsq(numpy.stack([own, before], axis=1), moved, rcond=None)
        scale = numpy.abs(own).max()
        if (
            not criteria.close((along_own * own + along_before * before) / scale, moved / scale, ROUNDING)
            or abs(along_own - 1) > 0.01
            or along_before < -0.01
        ):
            return astray
        if along_before > 0.999:
            return "the gradients are not cleared, so each step also has those of the step before: call `zero_grad`"
    return None


def _first_step(traces, gradients, rate):
    """Return None if the first step of all ranks follows their mean gradient, or otherwise a sentence."""
    right, start = -rate * numpy.mean(gradients, axis=0), traces[0][0]
    scale = numpy.abs(right).max()
    if not numpy.isfinite([right, *(trace[1] for trace in traces)]).all():
        return "the parameters are infinite or NaN after the first step"
    for rank, (trace, own) in enumerate(zip(traces, gradients)):
        found = trace[1] - trace[0]
        (along, decay), *_ = numpy.linalg.lstsq(numpy.stack([right, -rate * start], axis=1), found, rcond=None)
        if (
            abs(decay) > DECAY
            and abs(along - 1) < 0.01
            and criteria.close((found + decay * rate * start) / scale, right / scale, ROUNDING)
        ):
            return f"weight decay of {decay:.2g} is added, but the exercise asks for none"
        if criteria.close(found / scale, right / scale, ROUNDING):
            continue
        if criteria.close(found / scale, -rate * own / scale, ROUNDING):
            return f"rank {rank} makes the first step with its own gradients: nothing averages them over the ranks"
        times = found @ right / (right @ right)
        if not criteria.close(found / scale, times * right / scale, ROUNDING):
            return (
                "the first step does not follow the mean of all ranks' gradients, as one process with all ranks'"
                " images would"
            )
        why = {
            len(traces): (
                ": the gradients are summed over the ranks, not averaged, or RATE is multiplied by the number of ranks"
            )
        }
        why[1 / len(traces)] = ": the gradients are divided by the number of ranks twice, or RATE is divided by it"
        likely = ": does SGD use Nesterov's momentum?" if 1 < times < 2 else ""
        because = next((text for factor, text in why.items() if abs(times / factor - 1) < ROUNDING), likely)
        return (
            f"the first step is {criteria.distinct_digits(times, 1, 3)[0]} times as long as a step of SGD with the"
            f" mean gradient and learning rate RATE{because}"
        )
    return None


def rank_0_prints(seen, case, expected):
    images, seconds = case["images"] * case["EPOCHS"], case["seconds"] * len(seen[0]["batches"])
    throughput = images / seconds
    alike = throughput, throughput / len(seen)
    too = [
        [line for line in of_rank["lines"] if PER_SECOND.search(line) or any(_has(line, rate) for rate in alike)]
        for of_rank in seen
    ]
    if others := [rank for rank, lines in enumerate(too) if rank and lines]:
        return (
            f"{criteria.ranks(others)} print{'s' * (len(others) == 1)} a throughput, too"
            f" ({too[others[0]][0][:80]!r}), but only rank 0 may print it"
        )
    numbers = [number for line in seen[0]["lines"] for number in _numbers(line)][-LAST:]
    if not numbers:
        return "rank 0 prints no number: print the images/s of all ranks"
    if not any(_near(number, throughput) for number in numbers):
        count = sum(len(_numbers(line)) for line in seen[0]["lines"])
        last = f", as the last {LAST} of {count} numbers" if count > LAST else ""
        shown = criteria.first_few([f"{number:g}" for number in numbers], 3)
        return (
            f"rank 0 prints {shown}{last}, but the ranks train on {images} images in {seconds:g} seconds (a step"
            f" takes {case['seconds']} here), which is {throughput:.3g} images/s"
        )
    return None


def _numbers(line):
    """Return the numbers in a line of output."""
    return [float(number.replace(",", "")) for number in NUMBER.findall(line)]


def _near(number, rate, distance=NEAR):
    return abs(number / rate - 1) < distance


def _has(line, rate):
    """Return whether one of the numbers of a line is `rate`."""
    return any(_near(number, rate, EXACT) for number in _numbers(line))


MPI_ACCURACY = (
    Check(
        "mpi_accuracy",
        f"{PROBES}:accuracy",
        ({"counts": [[3000, 4010], [5070, 9060], [2040, 11030], [5070, 9060]]},),
        (
            Criterion(
                "accuracy_of_all_ranks",
                "every rank returns the accuracy of all ranks",
                2,
                of_all_ranks,
                "`comm.allreduce(number)` returns the sum over the ranks on every rank.",
            ),
        ),
        observed=lambda case: {"returned": (object,) * len(case["counts"])},
    ),
)
ONCE = "every image is used once per epoch, on one rank"
FORM = {
    "batches": [[int]],
    "size": int,
    "lines": [str],
    "gpus": [int],
    "left": bool,
    "asleep": [str],
    "parameters": Array((None, None)),
    "gradients": Array((None, None)),
}
FROM_SCRATCH = (
    Check(
        "from_scratch",
        f"{PROBES}:from_scratch",
        # A step takes so many seconds that no other number of the training is near the throughput.
        (
            {
                "ranks": 3,
                "of_node": [1, 2],
                "images": 36,
                "EPOCHS": 2,
                "BATCHSIZE": 8,
                "RATE": 0.03,
                "SIZE": 32,
                "seconds": 0.61,
            },
        ),
        (
            Criterion(
                "one_process_group",
                "all ranks are in one process group",
                1,
                one_group,
                "torchrun sets the environment variables that `dist.init_process_group` needs.",
            ),
            Criterion(
                "every_image_once",
                ONCE,
                2,
                every_image_once,
                ("`DistributedSampler(train_set)` chooses each rank's part."),
            ),
            Criterion(
                "batch_size",
                "each rank uses batches of BATCHSIZE images",
                1,
                batches_of_the_size,
                "`DataLoader(train_set, BATCHSIZE, sampler=...)`",
                "every_image_once",
            ),
            Criterion(
                "new_order_every_epoch",
                "every epoch uses the images in a new order",
                1,
                new_order,
                "Call `sampler.set_epoch(epoch)` before each epoch.",
                "every_image_once",
            ),
            Criterion(
                "steps_of_mean_gradient",
                "every step uses the mean gradient of all ranks",
                2,
                trained_together,
                "`DistributedDataParallel(model)` averages the gradients during backward.",
            ),
            Criterion(
                "rank_0_prints",
                "only rank 0 prints the throughput",
                1,
                rank_0_prints,
                "`if dist.get_rank() == 0: print(...)`",
                "every_image_once",
            ),
        ),
        whole=True,
        observed=lambda case: FORM,
    ),
)
