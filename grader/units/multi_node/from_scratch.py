"""The checks of mpi_accuracy.py and from_scratch.py."""

import re

import numpy

from grader.checks import criteria, training
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

ROUNDING = 1e-3  # the network computes in single precision
LARGEST = 100  # of a parameter
LAST = 10  # numbers that are printed; one of them is the throughput
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:[eE][+-]?\d+)?")  # in a line of output
PER_SECOND = re.compile(r"/ ?s(ec|\b)|per sec", re.IGNORECASE)
NEAR = 0.15  # of the throughput: who leaves out the first step is right, too
EXACT = 0.01  # the same, of what other ranks than rank 0 print, who may print other numbers, such as losses
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
            f"rank {found.index(None)} returns None: only one rank has the result; every rank needs it (allreduce gives"
            " it to all)"
        )
    wrong = {
        "that is the mean of the ranks' accuracies; ranks with few images then weigh as much as those with many": (
            own.mean()
        ),
        "that is each rank's own accuracy: nothing is put together": own,
        (
            "that is rank 0's accuracy, and no other rank's numbers are in it (bcast sends rank 0's; `+` of tuples"
            " only joins them)"
        ): own[0],
        "that is the sum of the ranks' accuracies": own.sum(),
        "what is right on all ranks is divided by each rank's own images": mixed,
        "scan adds up the ranks up to each one; every rank needs the sums of all": up_to,
        "that is of the largest numbers (MAX), and sums are needed": correct.max() / images.max(),
        "that is with the largest number of images (MAX), and their sum is needed": correct.sum() / images.max(),
        "each rank takes its own images times the number of ranks, but ranks have different numbers of images": (
            mixed / len(found)
        ),
        "`//` drops what comes after the point": correct.sum() // images.sum(),
        "that is in percent; an accuracy is between 0 and 1": 100 * right,
    }
    of_ranks = {sentence: numpy.broadcast_to(values, len(found)) for sentence, values in wrong.items()}
    problem = criteria.explained(found, [right] * len(found), of_ranks)
    if problem is None:
        return None
    if not problem and criteria.close(found[0], right):
        problem = (
            "only rank 0 has the sums: Reduce and reduce leave them there, Allreduce and allreduce give them to every"
            " rank"
        )
    rank = next(rank for rank, value in enumerate(found) if not criteria.close(value, right))
    counts = ", ".join(f"{one} of {of}" for one, of in case["counts"])
    shown, of_all = criteria.distinct_digits(found[rank], right)
    return criteria.with_reason(
        f"the ranks have {counts} right; rank {rank} returns {shown}, and it should be {of_all}", problem
    )


def one_group(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if of_rank["size"] != len(seen):
            return (
                f"while rank {rank} trains, its process group has {of_rank['size']} of {len(seen)} ranks: each rank"
                " must call dist.init_process_group first"
            )
    on_node, nodes = (
        [local for of_node in case["of_node"] for local in range(of_node)],
        " and ".join(map(str, case["of_node"])),
    )
    for rank, of_rank in enumerate(seen):
        if not of_rank["gpus"]:
            return (
                f"rank {rank} never calls devices.use(id), which chooses its GPU: without it, all ranks of a node would"
                " share one"
            )
        if others := set(of_rank["gpus"]) - {local := on_node[rank]}:
            return (
                f"rank {rank} uses GPU {min(others)} of its node; here the nodes have {nodes} ranks, and on its node it"
                f" is rank {local} (LOCAL_RANK)"
            )
    leaving = [rank for rank, of_rank in enumerate(seen) if of_rank["left"]]
    if 0 < len(leaving) < len(seen):
        return (
            f"only {criteria.ranks(leaving)} leave{'s' * (len(leaving) == 1)} the process group at the end; each rank"
            " must, by dist.destroy_process_group()"
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
            f"{criteria.ranks(strange)} train{'s' * (len(strange) == 1)} on images that are not data.load's training"
            " images, enlarged by data.enlarge"
        )
    counts = numpy.bincount(
        [image for of_rank in seen for batch in of_rank["batches"] for image in batch], minlength=case["images"]
    )
    if (counts == (made := int(counts[0]))).all() and made != case["EPOCHS"] and not _have_all(seen, case["images"]):
        return f"the training makes {made} epoch{'s' * (made > 1)}, and EPOCHS is {case['EPOCHS']}"
    if counts.sum() == case["images"] * case["EPOCHS"] * len(seen) and len(seen) > 1:
        return (
            f"every rank trains on all {case['images']} images: each rank needs a part of its own (DistributedSampler"
            " chooses it)"
        )
    if any(
        len(order) * case["EPOCHS"] != sum(map(len, of_rank["batches"]))
        for of_rank, orders in zip(seen, epochs)
        for order in orders
    ):
        return (
            f"the images of a rank are not a whole number of epochs: there should be EPOCHS = {case['EPOCHS']} of them"
        )
    for epoch in range(case["EPOCHS"]):
        if problem := criteria.partition([orders[epoch] for orders in epochs], case["images"]):
            return f"in epoch {epoch} {problem}"
    return None


def _have_all(seen, images):
    """Whether each rank trains on all images."""
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
                f"rank {rank} cuts its {images} images into {steps} batches of up to {longest}; BATCHSIZE,"
                f" {case['BATCHSIZE']}, is that of each rank"
            )
    return None


def _epochs(of_rank, case):
    """The numbers of a rank's images in each epoch, in their order."""
    images = [image for batch in of_rank["batches"] for image in batch]
    length = len(images) // case["EPOCHS"]
    return [images[epoch * length : (epoch + 1) * length] for epoch in range(case["EPOCHS"])]


def new_order(seen, case, expected):
    orders = [_epochs(of_rank, case) for of_rank in seen]
    judge = training.new_order_every_epoch("does the sampler know the epoch (set_epoch)?")
    return judge([{"parts": [sorted(of_rank[0])], "orders": [of_rank]} for of_rank in orders], case, None)


def trained_together(seen, case, expected):
    traces, rate = [of_rank["parameters"].astype(float) for of_rank in seen], case["RATE"]
    largest = max(numpy.abs(trace).max() for trace in traces)
    if largest > LARGEST:  # beside which differences would be rounding errors
        return f"there is a parameter of {largest:.2g}: those of a ConvNet() are small numbers, and stay small"
    if criteria.close(traces[0][0], traces[0][-1]):
        return "the parameters never change"
    if asleep := next((layer for of_rank in seen for layer in of_rank["asleep"]), None):
        return (
            f"a {asleep} of the network is in evaluation mode while it trains: train() of the network is for all its"
            " layers"
        )
    if problem := criteria.equal_on_all_ranks([trace[0] for trace in traces], "before the first step parameters"):
        return f"{problem}; DistributedDataParallel sends rank 0's to all ranks"
    if problem := criteria.equal_on_all_ranks([trace[-1] for trace in traces], "after the training parameters"):
        return f"{problem}: is each step's forward that of the DistributedDataParallel, which averages the gradients?"
    own = [of_rank["gradients"][0] for of_rank in seen]
    if len(seen) > 1 and all(criteria.close(gradient, own[0], ROUNDING * numpy.abs(own[0]).max()) for gradient in own):
        return (
            "in the first step all ranks have the same gradients, as of the same images, so that nothing is left to"
            " average: each rank needs images of its own"
        )
    return _first_step(traces, own, rate) or _later_steps(traces, [of_rank["gradients"] for of_rank in seen], rate)


def _later_steps(traces, gradients, rate):
    """None if on all ranks each step goes along its own mean gradient, and along the step before less far, as momentum
    does; else a sentence."""
    moves = -numpy.diff(traces[0], axis=0) / rate
    for number in range(1, min(map(len, gradients))):
        if problem := criteria.equal_on_all_ranks(
            [trace[number + 1] for trace in traces], f"after step {number + 1} parameters"
        ):
            return f"{problem}: every step takes the mean of all ranks' gradients"
        own, before, moved = (
            numpy.mean([of_rank[number] for of_rank in gradients], axis=0),
            moves[number - 1],
            moves[number],
        )
        astray = f"step {number + 1} does not go along the mean of all ranks' gradients, as that of SGD would"
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
            return "the gradients are not cleared: those of the step before are still in the next one's (zero_grad)"
    return None


def _first_step(traces, gradients, rate):
    """None if the first step of all ranks goes along their mean gradient, else a sentence."""
    right, start = -rate * numpy.mean(gradients, axis=0), traces[0][0]
    scale = numpy.abs(right).max()
    if not numpy.isfinite([right, *(trace[1] for trace in traces)]).all():
        return "after the first step parameters are infinite or NaN"
    for rank, (trace, own) in enumerate(zip(traces, gradients)):
        found = trace[1] - trace[0]
        (along, decay), *_ = numpy.linalg.lstsq(numpy.stack([right, -rate * start], axis=1), found, rcond=None)
        if (
            abs(decay) > DECAY
            and abs(along - 1) < 0.01
            and criteria.close((found + decay * rate * start) / scale, right / scale, ROUNDING)
        ):
            return f"weight decay of {decay:.2g} is added, which nothing asks for"
        if criteria.close(found / scale, right / scale, ROUNDING):
            continue
        if criteria.close(found / scale, -rate * own / scale, ROUNDING):
            return f"rank {rank} makes the first step with its own gradients: nothing averages them over the ranks"
        times = found @ right / (right @ right)
        if not criteria.close(found / scale, times * right / scale, ROUNDING):
            return (
                "the first step does not go along the mean of all ranks' gradients, as one process with all ranks'"
                " images would"
            )
        why = {
            len(traces): ": the gradients are added up over the ranks, not averaged, or RATE is multiplied by the ranks"
        }
        why[1 / len(traces)] = ": the gradients are divided by the number of ranks twice, or RATE is"
        likely = ": is it that of Nesterov's momentum?" if 1 < times < 2 else ""
        because = next((text for factor, text in why.items() if abs(times / factor - 1) < ROUNDING), likely)
        return (
            f"the first step is {criteria.distinct_digits(times, 1, 3)[0]} times as long as SGD makes it with the mean"
            f" gradient and the rate RATE{because}"
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
            f"{criteria.ranks(others)} print{'s' * (len(others) == 1)} a throughput, too: {too[others[0]][0][:80]!r};"
            " only rank 0 should"
        )
    numbers = [number for line in seen[0]["lines"] for number in _numbers(line)][-LAST:]
    if not numbers:
        return "rank 0 prints no number: it should be the images/s of all ranks"
    if not any(_near(number, throughput) for number in numbers):
        count = sum(len(_numbers(line)) for line in seen[0]["lines"])
        last = f", as the last {LAST} of {count} numbers" if count > LAST else ""
        shown = criteria.first_few([f"{number:g}" for number in numbers], 3)
        return (
            f"rank 0 prints {shown}{last}; the ranks train on {images} images in {seconds:g} seconds (a step takes"
            f" {case['seconds']} here), which are {throughput:.3g} a second"
        )
    return None


def _numbers(line):
    """The numbers in a line of output."""
    return [float(number.replace(",", "")) for number in NUMBER.findall(line)]


def _near(number, rate, distance=NEAR):
    return abs(number / rate - 1) < distance


def _has(line, rate):
    """Whether one of the numbers of a line is `rate`."""
    return any(_near(number, rate, EXACT) for number in _numbers(line))


MPI_ACCURACY = (
    Check(
        "mpi_accuracy",
        f"{PROBES}:accuracy",
        ({"counts": [[3000, 4010], [5070, 9060], [2040, 11030], [5070, 9060]]},),
        (
            Criterion(
                "accuracy_of_all_ranks",
                "the accuracy of all ranks, on every rank",
                2,
                of_all_ranks,
                "comm.allreduce(number) returns the sum over the ranks on every rank.",
            ),
        ),
        observed=lambda case: {"returned": (object,) * len(case["counts"])},
    ),
)
ONCE = "every image once an epoch, on one rank"
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
                "one process group of all ranks",
                1,
                one_group,
                "torchrun has put into the environment what dist.init_process_group needs.",
            ),
            Criterion(
                "every_image_once", ONCE, 2, every_image_once, "DistributedSampler(train_set) chooses each rank's part."
            ),
            Criterion(
                "batch_size",
                "batches of BATCHSIZE images on each rank",
                1,
                batches_of_the_size,
                "DataLoader(train_set, BATCHSIZE, sampler=...)",
                "every_image_once",
            ),
            Criterion(
                "new_order_every_epoch",
                "a new order every epoch, from scratch",
                1,
                new_order,
                "sampler.set_epoch(epoch), before each epoch.",
                "every_image_once",
            ),
            Criterion(
                "steps_of_mean_gradient",
                "on all ranks, the steps of the mean gradient",
                2,
                trained_together,
                "DistributedDataParallel(model) averages the gradients in backward.",
            ),
            Criterion(
                "rank_0_prints",
                "rank 0 alone prints the throughput",
                1,
                rank_0_prints,
                "if dist.get_rank() == 0: print(...)",
                "every_image_once",
            ),
        ),
        whole=True,
        observed=lambda case: FORM,
    ),
)
