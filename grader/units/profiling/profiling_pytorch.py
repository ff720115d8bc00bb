"""The checks of the scripts on profiling. They count what a script does, and measure no time."""

from itertools import chain

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array, Counts
from handson.profiling.timeline import PARTS, part_of_step

PROBES, ORACLES = (
    "grader.units.profiling.probes.probe_profiling_pytorch",
    "grader.units.profiling.oracles.oracle_profiling_pytorch",
)
BELONGS = {
    "the network's forward pass": "forward",
    "the loss": "forward",
    "loss.backward()": "backward",
    "the all-reduce": "all-reduce",
    "optimizer.step()": "optimize",
}


def four_ranges(seen, case, expected):
    without = [
        (rank, number)
        for rank, of_rank in enumerate(seen)
        for number, of_step in enumerate(of_rank["steps"], 1)
        if not of_step["entered"]
    ]
    if len(without) == sum(len(of_rank["steps"]) for of_rank in seen):
        return "no range is entered: `record_function(...)` creates a range, and `with` enters it"
    if without:
        return "rank {} enters no range in step {}: mark the parts of every step on all ranks".format(*without[0])
    for rank, of_rank in enumerate(seen):
        for of_step in of_rank["steps"]:
            entered = [step for step in map(part_of_step, of_step["entered"]) if step]
            if missing := [step for step in PARTS if step not in entered]:
                return (
                    f"the range {missing[0]!r} is missing: a step has the ranges"
                    f" {', '.join(map(repr, of_step['entered']))}"
                )
            if of_step["open"]:
                return f"the range {of_step['open'][-1]!r} is still open at the end of the step"
            if entered != list(PARTS):
                return (
                    f"a step on rank {rank} has the ranges {', '.join(entered)}, but it must have each of the four"
                    f" once, in this order: {', '.join(PARTS)}"
                )
            if not any(part_of_step(name) for _, open_ranges in of_step["work"] for name in open_ranges):
                return f"the four ranges are empty on rank {rank}: indent the work of a range below its `with`"
    return None


def work_in_its_range(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if len(of_rank["steps"]) != len(expected["parameters"]):
            return f"rank {rank} runs {len(of_rank['steps'])} steps, but it must run {len(expected['parameters'])}"
        for of_step in of_rank["steps"]:
            for what, open_ranges in of_step["work"]:
                inside = [step for step in map(part_of_step, open_ranges) if step]
                if inside != [BELONGS[what]]:
                    where = f"in the range {inside[-1]!r}" if inside else "in none of the four ranges"
                    where = f"in {' and '.join(map(repr, inside))} at once" if len(inside) > 1 else where
                    return f"{what} is {where} on rank {rank}, but it must be in {BELONGS[what]!r} only"
            if missing := [what for what in BELONGS if what not in {what for what, _ in of_step["work"]}]:
                return f"{missing[0]} is missing from the step"
    return None


def same_steps(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if not criteria.close(of_rank["parameters"], expected["parameters"]):
            return (
                f"the updates on rank {rank} differ from those of the step without marks: the marks must not change"
                " the step"
            )
    return None


def decoded_once(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        counts = of_rank["decoded"]
        if max(counts) > 1:
            image = counts.index(max(counts))
            often = f"image {image} is decoded {counts[image]} times in {case['epochs']} epochs on rank {rank}"
            return f"{often}: decode it once, and keep the result"
        if of_rank["made"] > case["images"]:
            return (
                f"{of_rank['made']} images are pooled or scaled in {case['epochs']} epochs on rank {rank}, but there"
                f" are {case['images']}: keep the image that `decode` returns, since pooling and scaling take longer"
                " than decompressing"
            )
    never = numpy.flatnonzero(numpy.sum([of_rank["decoded"] for of_rank in seen], axis=0) == 0)
    if len(never) == case["images"]:
        return "no image is decoded with zlib, which is how decoding is counted: keep the script's `decode`"
    if len(never):
        return (
            f"{len(never)} of {case['images']} images are not decoded on any rank ({criteria.first_few(never)}): each"
            " file has a different image"
        )
    return None


def same_training(seen, case, expected):
    steps = expected["steps"] * case["epochs"]
    if problem := mislabelled(seen):
        return problem
    for rank, of_rank in enumerate(seen):
        if not criteria.close(of_rank["parameters"], expected["parameters"], 1e-3):
            if (made := sum("allreduce" in of_step for of_step in of_rank["meetings"])) != steps:
                return (
                    f"rank {rank} runs {made} steps in {case['epochs']} epochs, not {steps}: `sampler` chooses its"
                    " images, in batches of args.batchsize"
                )
            at_the_end, difference = (
                f"after {case['epochs']} epochs on rank {rank},",
                numpy.abs(of_rank["parameters"] - expected["parameters"]).max(),
            )
            if not numpy.isfinite(difference):
                return f"{at_the_end} the parameters are infinite or NaN: change only the speed of the script"
            first, *later = (
                of_rank["batches"][begin : begin + expected["steps"]] for begin in range(0, steps, expected["steps"])
            )
            if first in later and case.get("files"):  # others are not told apart
                return (
                    f"a later epoch on rank {rank} has the same batches as the first one: ask `sampler` for the order"
                    " in each epoch"
                )
            return (
                f"{at_the_end} the parameters differ by up to {difference:.2g} from those of the original script:"
                " change only its speed"
            )
        for passes in map(len, (of_rank["batches"], of_rank["meetings"], of_rank["fetched"])):
            if passes != steps:
                return (
                    f"rank {rank} makes {passes} forward passes in {steps} steps: make one in each step, with the"
                    " images of the step"
                )
    return None


def mislabelled(seen):
    """None, or a sentence on images that go through the network with the label of another image."""
    for rank, of_rank in enumerate(seen):
        if images := of_rank["mislabelled"]:
            return (
                f"{len(images)} images on rank {rank} ({criteria.first_few(images)}) have the label of another image:"
                " images and labels must be in the same order"
            )
    return None


def equal_work(seen, case, expected):
    for number, of_ranks in enumerate(zip(*(of_rank["batches"] for of_rank in seen))):
        lengths = [len(of_rank) for of_rank in of_ranks]
        if max(lengths) - min(lengths) > 1:
            most, least = lengths.index(max(lengths)), lengths.index(min(lengths))
            images = f"rank {most} has {lengths[most]} images in step {number}, but rank {least} has {lengths[least]}"
            return f"{images}, so rank {least} has to wait for rank {most}"
    return None


def every_image_once(seen, case, expected):
    if len({len(of_rank["batches"]) for of_rank in seen}) > 1:
        return (
            f"the ranks run {', '.join(str(len(of_rank['batches'])) for of_rank in seen)} steps, but all ranks"
            " must run the same number"
        )
    everybodys = [number for of_rank in seen for number in chain(*of_rank["batches"]) if 0 <= number < case["images"]]
    counts = numpy.bincount(everybodys, minlength=case["images"])
    for number, count in enumerate(counts):
        if count != case["epochs"]:
            used = f"all ranks together use image {number} {count} times in {case['epochs']} epochs"
            return f"{used}: give every image to one rank, which uses it once per epoch"
    for rank, of_rank in enumerate(seen):
        if strange := [number for number, batch in enumerate(of_rank["batches"], 1) if min(batch, default=0) < 0]:
            return (
                f"rank {rank} gets images that are not in the training set {often(strange, of_rank['batches'])}:"
                " build the shards from the images of `train_set` only"
            )
    if problem := mislabelled(seen):
        return problem
    steps, longest = len(seen[0]["batches"]), -(-case["images"] // len(seen))
    if steps != (right := -(-longest // case["batchsize"]) * case["epochs"]):
        return (
            f"each rank runs {steps} steps, but equal shards in batches of args.batchsize = {case['batchsize']}"
            f" images take {right}"
        )
    return None


def in_the_epochs(of_steps, expected):
    """Return the numbers of the steps in which something is noted: all but the last of each epoch, after which an
    epoch's result is taken."""
    return [number for number, noted in enumerate(of_steps, 1) if noted and number % expected["steps"]]


def often(steps, of_steps, left_out=0):
    """In which of the steps, in words. left_out: how many steps can't be in `steps`."""
    if len(steps) == len(of_steps) - left_out:
        return "in every step"
    return f"in {len(steps)} of {len(of_steps)} steps" + f" (numbers {criteria.first_few(steps)})" * (
        len(steps) < len(of_steps) - 2
    )


def meets_once_an_epoch(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        beside = [
            {name for name, count in of_step.items() if count > (name == "allreduce")}
            for of_step in of_rank["meetings"]
        ]
        if len(steps := in_the_epochs(beside, expected)) > case["epochs"]:
            calls = ", ".join(sorted({name for number in steps for name in beside[number - 1]}))
            return (
                f"rank {rank} calls {calls} in addition to the gradients' all-reduce"
                f" {often(steps, beside, case['epochs'])}: each call waits for the other ranks"
            )
    return None


def fetches_once_an_epoch(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if len(steps := in_the_epochs(of_rank["fetched"], expected)) > case["epochs"]:
            fetched = f"rank {rank} reads numbers from its device {often(steps, of_rank['fetched'], case['epochs'])}"
            return (
                f"{fetched}, as .item(), float(), .tolist(), .numpy(), .cpu(), printing and masks do: each time, a"
                " GPU must finish its queued work first"
            )
    return None


def same_losses(seen, case, expected):
    found = seen[0]["losses"]
    if len(found) != case["epochs"] or any(not isinstance(loss, float) for loss in found):
        return f"the log has the losses {found}, but it must have one for each of {case['epochs']} epochs"
    if criteria.close(found, expected["losses"], 1e-3):
        return None
    reported, right = (", ".join(f"{loss:.4f}" for loss in losses) for losses in (found, expected["losses"]))
    again = {
        "`losses` are divided by the number of ranks, but the code below divides them again": numpy.array(
            expected["losses"]
        )
        / len(seen)
    }
    return criteria.with_reason(
        f"the log reports the mean losses {reported}, but the epochs had {right}",
        criteria.explained(found, expected["losses"], again, 1e-3),
    )


TRAIN_STEPS = (
    Check(
        "mark",
        f"{PROBES}:marks",
        ({"ranks": 2, "images": 13, "epochs": 2, "batchsize": 4, "lr": 0.1},),
        (
            Criterion(
                "four_ranges",
                "every step has four ranges",
                1,
                four_ranges,
                "Write `with record_function(name):` four times.",
                needs="same_updates",
            ),
            Criterion(
                "work_in_ranges",
                "each part of a step is in its range",
                2,
                work_in_its_range,
                "A range contains the lines that are indented below its `with`.",
            ),
            Criterion(
                "same_updates",
                "the marks do not change the updates",
                1,
                same_steps,
                "Keep the calls and their order.",
                needs="four_ranges",
            ),
        ),
        oracle=f"{ORACLES}:marks",
        observed=lambda case: {
            "steps": [{"entered": [str], "open": [str], "work": [(str, [str])]}],
            "parameters": Array((None, None)),
        },
    ),
)


def _observed(case):
    of_epochs, images = [[int]], case["images"] * bool(case.get("files"))
    counts = {"decoded": (int,) * images, "made": int, "meetings": [Counts(int)], "fetched": [int]}
    return {"batches": of_epochs, "mislabelled": [int], **counts, "losses": [object], "parameters": Array((None,))}


def _fixed(gap, cases, *criteria, oracle=f"{ORACLES}:training"):
    """Return the check of a slow script that the student makes faster. The whole script runs, since the student may
    change it anywhere."""
    return (Check(gap, f"{PROBES}:training", cases, criteria, oracle=oracle, whole=True, observed=_observed),)


def _same_training(faster):
    """The training is the same, and the script is faster: each counts only together with the other."""
    return Criterion(
        "same_training",
        SAME,
        1,
        same_training,
        ("Compare which images the network gets, and in which order."),
        needs=faster,
    )


SAME, LOSSES = "the training result is the same as before", "`losses` has the same mean losses as before"
DECODED, WORK, MEETINGS = (
    "every image is decoded once",
    "the ranks have equal work in every step",
    "the ranks do not wait for each other in every step",
)
SLOW_LOADING = _fixed(
    "loader",
    (
        {"ranks": 2, "images": 26, "epochs": 2, "batchsize": 8, "files": True},
        # functools.lru_cache keeps 128, too few for the 200 of a run
        {"ranks": 1, "images": 132, "epochs": 2, "batchsize": 132, "files": True},
    ),
    Criterion(
        "decoded_once",
        DECODED,
        2,
        decoded_once,
        "Keep results that do not change from epoch to epoch.",
        needs="same_training",
    ),
    _same_training("decoded_once"),
)
ONCE = "every image is used once per epoch"
UNEVEN_WORK = _fixed(
    "shards",
    (
        {"ranks": 2, "images": 21, "epochs": 2, "batchsize": 4, "numbers": True},
        {"ranks": 3, "images": 26, "epochs": 1, "batchsize": 5, "numbers": True},
    ),
    Criterion(
        "equal_work",
        WORK,
        2,
        equal_work,
        "In the timeline, which rank computes longer? How many images does it get?",
        needs="every_image_once",
    ),
    Criterion(
        "every_image_once",
        ONCE,
        1,
        every_image_once,
        "Split the images, so that each image is on one rank.",
        needs="equal_work",
    ),
    oracle=None,
)
WAITING_EVERY_STEP = _fixed(
    "losses",
    (
        {"ranks": 2, "images": 44, "epochs": 1, "batchsize": 1},  # so many steps that waiting in every tenth shows
        {"ranks": 2, "images": 7, "epochs": 2, "batchsize": 3},  # each rank has a last batch of one image
    ),
    Criterion(
        "ranks_do_not_wait",
        MEETINGS,
        2,
        meets_once_an_epoch,
        "Which calls are collectives? The profile counts them.",
        needs="same_training",
    ),
    Criterion(
        "no_device_wait",
        "the host does not wait for the device in every step",
        1,
        fetches_once_an_epoch,
        "A loss can stay a tensor until the end of the epoch. `detach()` frees its graph.",
        needs="same_losses",
    ),
    Criterion(
        "same_losses",
        LOSSES,
        1,
        same_losses,
        "The code below averages `losses` over the steps and the ranks.",
        needs="ranks_do_not_wait",
    ),
    _same_training("ranks_do_not_wait"),
)
