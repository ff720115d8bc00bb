"""The checks of mpi_accuracy.py and from_scratch.py."""

import re

import numpy

from grader.checks import criteria, training
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

ROUNDING = 1e-3  # the network computes in single precision
LARGEST = 100  # of a parameter
NEAR = 0.15  # of the throughput: who leaves out the first step is right, too
PROBES = "grader.units.multi_node.probes.by_hand"


def of_all_ranks(seen, case, expected):
    correct, images = numpy.array(case["counts"]).T
    with numpy.errstate(all="ignore"):  # a rank may have no images
        right, own, mixed = correct.sum() / images.sum(), correct / images, correct.sum() / images
    for rank, of_rank in enumerate(seen):
        value = of_rank["returned"]
        if value is None:
            return f"rank {rank} returns None: only one rank has the result; every rank needs it (allreduce gives it to all)"
        wrong = {
            "that is the mean of the ranks' accuracies; ranks with few images then weigh as much as those with many": own.mean(),
            "that is this rank's own accuracy: nothing is put together": own[rank],
            "that is the sum of the ranks' accuracies": own.sum(),
            "what is right on all ranks is divided by this rank's images": mixed[rank],
        }
        problem = criteria.explained(value, right, wrong if len(seen) > 1 else {})
        if problem is not None:
            counts = ", ".join(f"{one} of {of}" for one, of in case["counts"])
            return criteria.because(f"the ranks have {counts} right; rank {rank} returns {value:.4g}, and it should be {right:.4g}", problem)
    return None


def one_group(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if of_rank["size"] != len(seen):
            return f"while rank {rank} trains, its process group has {of_rank['size']} of {len(seen)} ranks: each rank must call dist.init_process_group first"
    for rank, of_rank in enumerate(seen):
        if others := set(of_rank["gpus"]) - {rank % 2}:
            return f"rank {rank} uses GPU {min(others)} of its node; each node has two ranks here, and on its node it is rank {rank % 2} (LOCAL_RANK)"
    return None


def every_image_once(seen, case, expected):
    epochs = [_epochs(of_rank, case) for of_rank in seen]
    if strange := [rank for rank, of_rank in enumerate(seen) if any(image < 0 for batch in of_rank["batches"] for image in batch)]:
        return f"{criteria.ranks(strange)} trains on images that are not those of data.load, enlarged by data.enlarge and otherwise as they are"
    total = sum(len(batch) for of_rank in seen for batch in of_rank["batches"])
    if total == case["images"] * case["EPOCHS"] * len(seen) and len(seen) > 1:
        return f"every rank trains on all {case['images']} images: each rank needs a part of its own (DistributedSampler chooses it)"
    if any(len(order) * case["EPOCHS"] != sum(map(len, of_rank["batches"])) for of_rank, orders in zip(seen, epochs) for order in orders):
        return f"the images of a rank are not a whole number of epochs: there should be EPOCHS = {case['EPOCHS']} of them"
    for epoch in range(case["EPOCHS"]):
        if problem := criteria.partition([orders[epoch] for orders in epochs], case["images"]):
            return f"in epoch {epoch} {problem}"
    return None


def batches_of_the_size(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        steps, longest, images = len(of_rank["batches"]) // case["EPOCHS"], max(map(len, of_rank["batches"])), len(_epochs(of_rank, case)[0])
        if longest > case["BATCHSIZE"] or steps != -(-images // case["BATCHSIZE"]):
            return f"rank {rank} cuts its {images} images into {steps} batches of up to {longest}; BATCHSIZE, {case['BATCHSIZE']}, is that of each rank"
    return None


def _epochs(of_rank, case):
    """The numbers of a rank's images in each epoch, in their order."""
    images = [image for batch in of_rank["batches"] for image in batch]
    length = len(images) // case["EPOCHS"]
    return [images[epoch * length : (epoch + 1) * length] for epoch in range(case["EPOCHS"])]


def new_order(seen, case, expected):
    orders = _epochs(seen[0], case)
    return training.new_order_every_epoch("does the sampler know the epoch (set_epoch)?")([{"parts": [sorted(orders[0])], "orders": [orders]}], case, None)


def trained_together(seen, case, expected):
    largest = max(numpy.abs([of_rank[name] for name in ("begin", "end")]).max() for of_rank in seen)
    if largest > LARGEST:  # beside which differences would be rounding errors
        return f"there is a parameter of {largest:.2g}: those of a ConvNet() are small numbers, and stay small"
    if criteria.close(seen[0]["begin"], seen[0]["end"]):
        return "the parameters never change"
    if problem := criteria.equal_on_all_ranks([of_rank["begin"] for of_rank in seen], "before the first step parameters"):
        return f"{problem}; DistributedDataParallel sends rank 0's to all ranks"
    if problem := criteria.equal_on_all_ranks([of_rank["end"] for of_rank in seen], "after the training parameters"):
        return f"{problem}: is each step's forward that of the DistributedDataParallel, which averages the gradients?"
    first, gradients = [of_rank["second"] - of_rank["begin"] for of_rank in seen], [of_rank["gradient"] for of_rank in seen]
    return _first_step(first, gradients, case["RATE"]) or _second_step(seen, numpy.mean(gradients, axis=0), case["RATE"])


def _second_step(seen, before, rate):
    """None if the second step goes along its own mean gradient, and along the one `before` less far, as momentum does; else a sentence."""
    own = numpy.mean([of_rank["next gradient"] for of_rank in seen], axis=0)
    moved = (seen[0]["second"] - seen[0]["third"]) / rate
    astray = "the second step does not go along the mean of all ranks' gradients, as that of SGD would"
    if not numpy.isfinite([own, before, moved]).all():
        return astray
    (along_own, along_before), *_ = numpy.linalg.lstsq(numpy.stack([own, before], axis=1), moved, rcond=None)
    scale = numpy.abs(own).max()
    if not criteria.close((along_own * own + along_before * before) / scale, moved / scale, ROUNDING) or abs(along_own - 1) > 0.01:
        return astray
    if along_before > 0.999:
        return "the gradients are not cleared: those of the first step are still in the second one's (zero_grad)"
    return None


def _first_step(moved, gradients, rate):
    """None if the first step of all ranks goes along their mean gradient, else a sentence."""
    right = -rate * numpy.mean(gradients, axis=0)
    scale = numpy.abs(right).max()
    for rank, (found, own) in enumerate(zip(moved, gradients)):
        if criteria.close(found / scale, right / scale, ROUNDING):
            continue
        if criteria.close(found / scale, -rate * own / scale, ROUNDING):
            return f"rank {rank} makes the first step with its own gradients: nothing averages them over the ranks"
        times = found @ right / (right @ right)
        if not criteria.close(found / scale, times * right / scale, ROUNDING):
            return "the first step does not go along the mean of all ranks' gradients, as one process with all ranks' images would"
        why = {len(moved): ": the gradients are added up over the ranks, not averaged, or RATE is multiplied by the ranks"}
        why[1 / len(moved)] = ": the gradients are divided by the number of ranks twice, or RATE is"
        because = next((text for factor, text in why.items() if abs(times / factor - 1) < ROUNDING), "")
        return f"the first step is {times:.3g} times as long as SGD makes it with the mean gradient and the rate RATE{because}"
    return None


def rank_0_prints(seen, case, expected):
    if others := [rank for rank, of_rank in enumerate(seen) if rank and of_rank["lines"]]:
        return f"{criteria.ranks(others)} print{'s' * (len(others) == 1)}, too: {seen[others[0]]['lines'][0][:80]!r}; only rank 0 should"
    numbers = [float(number.replace(",", "")) for line in seen[0]["lines"] for number in re.findall(r"\d[\d,]*\.?\d*(?:[eE][+-]?\d+)?", line)]
    if not numbers:
        return "rank 0 prints no number: it should be the images/s of all ranks"
    images, seconds = case["images"] * case["EPOCHS"], len(seen[0]["batches"])
    if not any(abs(number * seconds / images - 1) < NEAR for number in numbers):
        shown = criteria.some([f"{number:g}" for number in numbers], 3)
        return f"rank 0 prints {shown}; the ranks train on {images} images in {seconds} seconds (a step takes a second here), which are {images / seconds:g} a second"
    return None


MPI_ACCURACY = (
    Check(
        "mpi_accuracy",
        f"{PROBES}:accuracy",
        ({"ranks": 3, "counts": [[3, 4], [5, 9], [2, 11]]},),
        (Criterion("the accuracy of all ranks, on every rank", 2, of_all_ranks, "comm.allreduce(number) returns the sum over the ranks on every rank."),),
        observed=lambda case: {"returned": object},
    ),
)
ONCE = "every image once an epoch, on one rank"
TRACE = "begin", "second", "third", "end", "gradient", "next gradient"
FROM_SCRATCH = (
    Check(
        "from_scratch",
        f"{PROBES}:from_scratch",
        ({"ranks": 3, "images": 36, "EPOCHS": 2, "BATCHSIZE": 8, "RATE": 0.03, "SIZE": 32},),
        (
            Criterion("one process group of all ranks", 1, one_group, "torchrun has put into the environment what dist.init_process_group needs."),
            Criterion(ONCE, 2, every_image_once, "DistributedSampler(train_set) chooses each rank's part."),
            Criterion("batches of BATCHSIZE images on each rank", 1, batches_of_the_size, "DataLoader(train_set, BATCHSIZE, sampler=...)", ONCE),
            Criterion("a new order every epoch, from scratch", 1, new_order, "sampler.set_epoch(epoch), before each epoch.", ONCE),
            Criterion("on all ranks, the steps of the mean gradient", 2, trained_together, "DistributedDataParallel(model) averages the gradients in backward."),
            Criterion("rank 0 alone prints the throughput", 1, rank_0_prints, "if dist.get_rank() == 0: print(...)", ONCE),
        ),
        whole=True,
        observed=lambda case: {"batches": [[int]], "size": int, "lines": [str], "gpus": [int]} | dict.fromkeys(TRACE, Array((None,))),
    ),
)
