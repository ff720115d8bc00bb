"""Judges for the gaps of training scripts, for both tracks: each judges what probes observed (see
grader.checks.check.Criterion)."""

import math
import random
import re

import numpy

from grader.checks import criteria, sgd
from grader.checks.forms import Array

ALIKE = 1e-3  # relative difference up to which two factors are equal
# the observations of the probes of whole runs
RUN = {"lines": [str], "result": object, "problem": str, "parameters": Array((None,))}
THROUGHPUT = {"images": float, "throughput": float, "whole": bool}
EVALUATION = {"found": ((float, float), (float, float)), "counts seconds": bool, "passes": (int, int)}


def seconds(case):
    """Draw the time of a run, so that the throughput differs from seed to seed, and set 3 test images for each rank."""
    return {
        "seconds": round(case["seconds"] * random.Random(case["seed"]).uniform(0.5, 2), 3),
        "test_images": 3 * case.get("ranks", 1),
    }


def right_gpu(seen, case, expected):
    chosen, gpu = [of_rank["gpu"] for of_rank in seen], case["gpu"]
    per_node = case.get("ranks_per_node", len(seen))
    nodes = -(-len(seen) // per_node)
    on_node = [rank // nodes if case.get("in_turn") else rank % per_node for rank in range(len(seen))]
    for rank, found in enumerate(chosen):
        who = f"rank {rank} (intra_rank {on_node[rank]})" if len(seen) > 1 else "the script"
        if found == "nowhere" and on_node[rank] < len(gpu) != len(set(gpu)):
            return (
                f"{who} drops repeated ids from args.gpu, {gpu}: keep all of them, since the list has one entry for"
                " each rank, even if ranks share a GPU"
            )
        if found == "nowhere":
            return f"{who} finds no GPU at its index in args.gpu, {gpu}, which lists the GPUs of one node"
        if not isinstance(found, int):
            return (
                f"`device` is {found}, but it must be the device that `devices.use` returns: `devices.use` takes the"
                " id of a GPU, and prepares this process for it"
            )
    if chosen == [gpu[number] for number in on_node]:
        return None
    if len(seen) == 1:
        return f"the script uses GPU {chosen[0]}, not the first GPU of args.gpu = {gpu}"
    if chosen == [gpu[number - 1] for number in on_node]:
        return (
            f"ranks 0 to {len(seen) - 1} use GPUs {chosen} of args.gpu = {gpu} on each node: intra_ranks start at 0,"
            " as list indices do"
        )
    if len(set(chosen)) == 1:
        return f"all {len(seen)} ranks use GPU {chosen[0]}: give each rank of a node its own GPU"
    if chosen == on_node:
        return f"the ranks use GPUs {chosen}: intra_rank is an index into args.gpu ({gpu}), not a GPU id"
    where = f" ({criteria.ranks(range(0, len(seen), nodes))} are on the first one)" if case.get("in_turn") else ""
    return (
        f"ranks 0 to {len(seen) - 1} use GPUs {chosen} of args.gpu = {gpu} on each node{where}: the index of a rank"
        " in args.gpu is its number on its node, comm.intra_rank"
    )


def new_order_every_epoch(why):
    """Return a judge that requires a different order of the images in each epoch. `why`: the most common reason why all
    epochs have the same order.

    The observations: "parts", the images of each part, and "orders", for each part the order in each epoch. An oracle's
    "orders" are the right order in each epoch, for each rank.
    """

    def judge(seen, case, expected):
        for rank, of_rank in enumerate(seen):
            who, right = f"on rank {rank} " * (len(seen) > 1), expected["orders"][rank] if expected else ()
            for part, orders in zip(of_rank["parts"], of_rank["orders"]):
                if not part and not any(orders):
                    return f"{who}a part has no images, so nothing can be shuffled"
                if all(order == part for order in orders):
                    return f"{who}the images come in the order of the data set in every epoch: nothing shuffles them"
                if not all(orders):
                    return f"{who}only {sum(map(bool, orders))} of {len(orders)} epochs have images"
                if all(order == orders[0] for order in orders):
                    which = (
                        f"that of epoch {right.index(orders[0])}"
                        if orders[0] in right
                        else f"images {', '.join(map(str, orders[0][:3]))}, ..."
                    )
                    return f"{who}every epoch has the same order ({which}): {why}"
                if later := next((epoch for epoch, order in enumerate(orders) if order in orders[:epoch]), None):
                    return f"{who}epochs {orders.index(orders[later])} and {later} have the same order"
                if all(map(criteria.in_sequence, orders)):
                    return (
                        f"{who}nearly all images follow each other as in the data set, or at a fixed distance (in"
                        f" epoch 0: {criteria.first_few(orders[0])}): shuffle the images themselves, not only the"
                        " order of the batches or the position of the first image"
                    )
        return None

    return judge


def one_big_batch(seen, case, expected, tolerance=criteria.TOLERANCE, factors=lambda step: {}):
    """Judge that after each step the parameters (steps, numbers) equal those of one process that takes all workers'
    images as one batch. It judges the ranks for which the oracle has values. factors(step) returns {sentence on a
    mistake: the resulting length of a step, relative to the right one}."""
    right = expected["right"]
    found = numpy.stack([of_rank["parameters"] for of_rank in seen])[: len(right)]
    problem = criteria.explained_by(found, expected, tolerance)
    if not all(of_rank.get("training", True) for of_rank in seen):
        return (
            "the images go through the network in test mode (chainer.config.train is False), in which batch"
            " normalisation learns nothing: train in training mode"
        )
    if problem is None:
        return None
    if not problem and criteria.close(found, numpy.broadcast_to(found[:, :1], found.shape)):
        return "the parameters never change"
    step = next(step for step in range(found.shape[1]) if not criteria.close(found[:, step], right[:, step], tolerance))
    difference = numpy.abs(found[:, step] - right[:, step]).max()
    rank = next(
        rank for rank in range(len(found)) if not criteria.close(found[rank, step], right[rank, step], tolerance)
    )
    along = sgd.of_gradient(found[rank], right[rank], expected["start"], step, 100 * tolerance)
    if not problem and along:
        why = next((sentence for sentence, factor in factors(step).items() if abs(along / factor - 1) < ALIKE), None)
        problem = why or (
            f"this step is {criteria.distinct_digits(along, 1, 3)[0]} times as long as it should be: are the"
            " gradients clipped, is the loss divided or multiplied, or does the step update twice?"
        )
    several = case.get("workers", len(seen)) > 1
    right = "one process that takes the images of all workers as one batch" if several else "the right update"
    return criteria.with_reason(
        f"the parameters after step {step + 1} differ by up to {difference:.2g} from those of {right}", problem
    )


def ranks_stay_equal(seen, case, expected, tolerance=criteria.TOLERANCE):
    for step in range(len(seen[0]["parameters"])):
        if problem := criteria.equal_on_all_ranks(
            [of_rank["parameters"][step] for of_rank in seen], f"the parameters after step {step + 1}", tolerance
        ):
            still = [rank for rank, of_rank in enumerate(seen) if not numpy.ptp(of_rank["parameters"], axis=0).any()]
            if 0 < len(still) < len(seen):
                return f"the parameters of {criteria.ranks(still)} never change: run the step on every rank"
            return f"{problem} (are the gradients averaged over all ranks?)"
    return None


def images_of_all(seen, case, expected, also=None):
    """Judge rank 0's `images`: it must count the images of all workers, or be the number `also`, and it must be an
    integer, as in the script."""
    epochs, lengths, workers = case["epochs"] - case["first_epoch"], case["lengths"], len(case["lengths"])
    images, right, of_epoch = seen[0]["images"], sum(lengths) * epochs, -(-max(lengths) // case["batchsize"])
    right = also if images == also else right
    steps = case.get("steps", of_epoch * epochs)
    # images of an epoch's last step
    last = sum(length // of_epoch for length in lengths) if "steps" not in case else math.nan
    wrong = {
        f"`images` counts one epoch, but this run trained for {epochs}": sum(lengths),
        "`images` counts one worker only: count the images of all workers": lengths[0] * epochs,
        "`images` counts one worker in one epoch: count the images of all workers and all epochs": lengths[0],
        "`images` counts all epochs, but a run resumed at first_epoch trains only for the remaining ones": sum(lengths)
        * case["epochs"],
        "`images` counts one epoch too many: a run resumed at first_epoch trains for args.epoch - first_epoch epochs": (
            sum(lengths) * (epochs + 1)
        ),
        (
            "`images` is the images of the last step times the number of steps, but other steps have more images: add"
            " up all steps"
        ): (last * steps),
        "`images` counts rank 0's shard for every rank, but the shards differ in length": lengths[0] * workers * epochs,
        "`images` counts the images of all workers once for every worker": right * workers,
        "`images` counts every step as a full batch of args.batchsize images, but some batches are smaller": (
            steps * case["batchsize"] * workers
        ),
        (
            "`images` counts full batches of args.batchsize images of one worker only: count the images of all workers"
        ): steps * case["batchsize"],
        "`images` counts full batches only, but the training uses every image": (
            sum(length // case["batchsize"] for length in lengths) * case["batchsize"] * epochs
        ),
        (
            "`images` counts one epoch too few: epochs are numbered from 0, so the last number is one less than their"
            " count"
        ): (sum(lengths) * (epochs - 1)),
        "`images` counts steps, not images": steps,
        "`images` counts all of len(train_set), but the split leaves some images out: count the images in the parts": (
            case.get("images", math.nan) * epochs
        ),
        "`images` includes the evaluation, but throughput measures training only": (
            (sum(lengths) + case["test_images"]) * epochs
        ),
        "`images` counts the whole data set once for every worker": case.get("images", math.nan) * workers * epochs,
        "`images` is args.batchsize times the epochs: count the images of all steps": case["batchsize"] * epochs,
    }
    problem = criteria.images_counted(images, right, wrong, _who(seen))
    if problem or seen[0]["whole"]:
        return problem
    return f"`images` is {float(right)}, a float, but result.json needs a whole number, which * and // return"


def images_a_second(seen, case, expected):
    images, throughput, seconds, workers = (
        seen[0]["images"],
        seen[0]["throughput"],
        case["seconds"],
        len(case["lengths"]),
    )
    if criteria.close(throughput, images / seconds, criteria.SINGLE):
        return None
    wrong = (
        {
            "`throughput` is seconds per image: divide the other way around": seconds / images if images else 0,
            ("`throughput` is multiplied by the number of ranks, but `images` already counts all ranks"): (
                images / seconds * workers
            ),
            "`throughput` is divided by the number of ranks, but it must be the throughput of all ranks together": (
                images / seconds / workers
            ),
            "`throughput` is a whole number, since `//` drops the decimals: divide with `/`": images // seconds,
            "`throughput` is rounded: leave it as it is, since the script's last line formats it": round(
                images / seconds
            ),
            "`throughput` is images per minute, not per second": images / seconds * 60,
            "`throughput` is images per millisecond, not per second": images / seconds / 1000,
            "`throughput` divides one epoch's images by the seconds of all epochs": (
                images / seconds / (case["epochs"] - case["first_epoch"])
            ),
        }
        if math.isfinite(images)
        else {}
    )
    shown, right = criteria.distinct_digits(throughput, images / seconds)
    how = (
        criteria.explained(throughput, images / seconds, wrong, criteria.SINGLE)
        or f"`throughput` must be images / seconds, {right}"
    )
    return f"{_who(seen)}throughput = {shown} for {images:g} images in {seconds} seconds: {how}"


def _who(seen):
    """Return the beginning of a sentence on a number that rank 0 reports."""
    return "rank 0 has " if len(seen) > 1 else ""


def rank_0_reports(seen, case, expected):
    counts = [len(of_rank["lines"]) for of_rank in seen]
    if counts != [1] + [0] * (len(seen) - 1):
        printed = ", ".join(f"rank {rank} printed {count}" for rank, count in enumerate(counts))
        return f"exactly one line `Throughput: ...` must be printed, by rank 0, but {printed}"
    if writers := [rank for rank, of_rank in enumerate(seen) if of_rank["result"] and rank > 0]:
        return f"{criteria.ranks(writers)} wrote a result.json, too, but only rank 0 may write it"
    numbers = [float(number) for number in re.findall(r"[-+.\deE]*\d", seen[0]["lines"][0])]
    if len(numbers) != 3 or not criteria.close(numbers[0], numbers[1] / numbers[2], 1e-6):
        return (
            f"the line `{seen[0]['lines'][0]}` must have the form: Throughput: <images a second> [images/sec.]"
            " (<images> / <seconds>)"
        )
    result = seen[0]["result"]
    if result and not criteria.close(numbers[1:], [result["images"], result["seconds"]]):
        (images, images_of_result), (seconds, seconds_of_result) = map(
            criteria.distinct_digits, numbers[1:], (result["images"], result["seconds"]), (6, 6)
        )
        return (
            f"the printed line reports {images} images in {seconds} s, but result.json has {images_of_result} in"
            f" {seconds_of_result} s"
        )
    return None


def result_of_run(seen, case, expected):
    result = seen[0]["result"]
    if not result:
        return f"rank 0 wrote no readable result.json: {seen[0]['problem'] or 'none was written'}"
    right = {
        "images": case["images"] * case["epochs"],
        "epochs": case["epochs"],
        "workers": case.get("workers", len(seen)),
        "unit": case["task"],
    }
    for name, value in right.items():
        if result[name] != value:
            return f"result.json has {name} {result[name]}, but this run had {value}"
    if len(result["log"]) != case["epochs"] or any(
        epoch.get("validation/main/loss") is None for epoch in result["log"]
    ):
        return (
            f"the log in result.json must have losses, including validation losses, for each of {case['epochs']}"
            f" epochs, but it has {result['log']}"
        )
    return None


def same_end(seen, case, expected):
    if problem := criteria.equal_on_all_ranks([of_rank["parameters"] for of_rank in seen], "the parameters at the end"):
        return problem
    found, right = seen[0]["parameters"], expected["parameters"]
    if criteria.close(found, right, 1e-3):
        return None
    return (
        f"the parameters after {case['epochs']} epochs of {case['images']} images differ by up to"
        f" {numpy.abs(found - right).max():.2g} from those of our own run: fix the gaps that fail; if none fails,"
        " compare the lines between the gaps with the original file"
    )
