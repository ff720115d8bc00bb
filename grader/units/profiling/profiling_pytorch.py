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
        return "no range is entered: `record_function(...)` alone makes one, and `with` enters it"
    if without:
        return "rank {} enters no range in step {}: all ranks mark the parts of all their steps".format(*without[0])
    for rank, of_rank in enumerate(seen):
        for of_step in of_rank["steps"]:
            entered = [step for step in map(part_of_step, of_step["entered"]) if step]
            if missing := [step for step in PARTS if step not in entered]:
                return (
                    f"there is no range {missing[0]!r}; the ranges of a step are"
                    f" {', '.join(map(repr, of_step['entered']))}"
                )
            if of_step["open"]:
                return f"the range {of_step['open'][-1]!r} is still open when the step is over"
            if entered != list(PARTS):
                return (
                    f"on rank {rank} a step has the ranges {', '.join(entered)}; each of the four comes once, in this"
                    f" order: {', '.join(PARTS)}"
                )
            if not any(part_of_step(name) for _, open_ranges in of_step["work"] for name in open_ranges):
                return (
                    f"on rank {rank} the four ranges have nothing in them: what belongs into a range is indented below"
                    " its `with`"
                )
    return None


def work_in_its_range(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if len(of_rank["steps"]) != len(expected["parameters"]):
            return f"rank {rank} makes {len(of_rank['steps'])} steps; there should be {len(expected['parameters'])}"
        for of_step in of_rank["steps"]:
            for what, open_ranges in of_step["work"]:
                inside = [step for step in map(part_of_step, open_ranges) if step]
                if inside != [BELONGS[what]]:
                    where = f"in the range {inside[-1]!r}" if inside else "in none of the four ranges"
                    where = f"in {' and '.join(map(repr, inside))} at once" if len(inside) > 1 else where
                    return f"on rank {rank} {what} is {where}; it belongs into {BELONGS[what]!r} alone"
            if missing := [what for what in BELONGS if what not in {what for what, _ in of_step["work"]}]:
                return f"{missing[0]} has gone missing from the step"
    return None


def same_steps(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if not criteria.close(of_rank["parameters"], expected["parameters"]):
            return f"on rank {rank} the updates are not those of the step without marks: marks must change nothing"
    return None


def decoded_once(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        counts = of_rank["decoded"]
        if max(counts) > 1:
            image = counts.index(max(counts))
            often = f"on rank {rank} image {image} is decoded {counts[image]} times in {case['epochs']} epochs"
            return f"{often}; once is enough, if what was decoded is kept"
        if of_rank["made"] > case["images"]:
            return (
                f"on rank {rank} {of_rank['made']} images are pooled or scaled in {case['epochs']} epochs, and there"
                f" are {case['images']}: keep the image that `decode` returns, since pooling and scaling take longer"
                " than decompressing"
            )
    never = numpy.flatnonzero(numpy.sum([of_rank["decoded"] for of_rank in seen], axis=0) == 0)
    if len(never) == case["images"]:
        return "no image is decoded in the way that is counted, by zlib: keep the script's `decode`"
    if len(never):
        return (
            f"{len(never)} of {case['images']} images are decoded on no rank ({criteria.first_few(never)}): each file"
            " has an image of its own"
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
                    f"rank {rank} makes {made} steps in {case['epochs']} epochs, not {steps}: `sampler` deals out its"
                    " images, in batches of args.batchsize"
                )
            at_the_end, difference = (
                f"on rank {rank}, after {case['epochs']} epochs,",
                numpy.abs(of_rank["parameters"] - expected["parameters"]).max(),
            )
            if not numpy.isfinite(difference):
                return f"{at_the_end} parameters are infinite or NaN: only the speed of the script may change"
            first, *later = (
                of_rank["batches"][begin : begin + expected["steps"]] for begin in range(0, steps, expected["steps"])
            )
            if first in later and case.get("files"):  # others are not told apart
                return (
                    f"on rank {rank} a later epoch has the same batches as the first one: `sampler` must be asked for"
                    " the order in each epoch"
                )
            return (
                f"{at_the_end} parameters differ by up to {difference:.2g} from those of the script as it was given:"
                " only its speed may change"
            )
        for passes in map(len, (of_rank["batches"], of_rank["meetings"], of_rank["fetched"])):
            if passes != steps:
                return (
                    f"rank {rank} makes {passes} forward passes in {steps} steps: each step makes one, with its images"
                )
    return None


def mislabelled(seen):
    """None, or a sentence on images that go through the network with the label of another image."""
    for rank, of_rank in enumerate(seen):
        if images := of_rank["mislabelled"]:
            return (
                f"on rank {rank} {len(images)} images ({criteria.first_few(images)}) come with the label of another"
                " image: images and labels need the same order"
            )
    return None


def equal_work(seen, case, expected):
    for number, of_ranks in enumerate(zip(*(of_rank["batches"] for of_rank in seen))):
        lengths = [len(of_rank) for of_rank in of_ranks]
        if max(lengths) - min(lengths) > 1:
            most, least = lengths.index(max(lengths)), lengths.index(min(lengths))
            images = f"in step {number} rank {most} has {lengths[most]} images and rank {least} has {lengths[least]}"
            return f"{images}: rank {least} has to wait for rank {most}"
    return None


def every_image_once(seen, case, expected):
    if len({len(of_rank["batches"]) for of_rank in seen}) > 1:
        return (
            f"the ranks make {', '.join(str(len(of_rank['batches'])) for of_rank in seen)} steps: all must make as many"
        )
    everybodys = [number for of_rank in seen for number in chain(*of_rank["batches"]) if 0 <= number < case["images"]]
    counts = numpy.bincount(everybodys, minlength=case["images"])
    for number, count in enumerate(counts):
        if count != case["epochs"]:
            used = f"image {number} is used {count} times by all ranks together in {case['epochs']} epochs"
            return f"{used}: every image belongs to one rank, and to each epoch once"
    for rank, of_rank in enumerate(seen):
        if strange := [number for number, batch in enumerate(of_rank["batches"], 1) if min(batch, default=0) < 0]:
            return (
                f"rank {rank} gets images that are not of the training set {often(strange, of_rank['batches'])}: shards"
                " are made of its images alone"
            )
    if problem := mislabelled(seen):
        return problem
    steps, longest = len(seen[0]["batches"]), -(-case["images"] // len(seen))
    if steps != (right := -(-longest // case["batchsize"]) * case["epochs"]):
        return (
            f"each rank makes {steps} steps; with equal shards, in batches of args.batchsize = {case['batchsize']}"
            f" images as before, there are {right}"
        )
    return None


def in_the_epochs(of_steps, expected):
    """The numbers of the steps in which something is noted: all but the last of each epoch, after which an epoch's
    result is taken."""
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
                f"beside the gradients' all-reduce, rank {rank} calls {calls} {often(steps, beside, case['epochs'])}:"
                " each time it waits for the other ranks"
            )
    return None


def fetches_once_an_epoch(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if len(steps := in_the_epochs(of_rank["fetched"], expected)) > case["epochs"]:
            fetched = f"rank {rank} fetches numbers from its device {often(steps, of_rank['fetched'], case['epochs'])}"
            return (
                f"{fetched}, as .item(), float(), .tolist(), .numpy(), .cpu(), printing and masks do: each time a GPU"
                " must first finish its work"
            )
    return None


def same_losses(seen, case, expected):
    found = seen[0]["losses"]
    if len(found) != case["epochs"] or any(not isinstance(loss, float) for loss in found):
        return f"the log should have a loss for each of {case['epochs']} epochs; it has {found}"
    if criteria.close(found, expected["losses"], 1e-3):
        return None
    reported, right = (", ".join(f"{loss:.4f}" for loss in losses) for losses in (found, expected["losses"]))
    again = {
        "they are divided by the number of ranks once more than below": numpy.array(expected["losses"]) / len(seen)
    }
    return criteria.with_reason(
        f"the mean losses of the epochs are reported as {reported}; they are {right}",
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
                "four ranges in every step",
                1,
                four_ranges,
                "`with record_function(name):`, four times.",
                needs="same_updates",
            ),
            Criterion(
                "work_in_ranges",
                "the work of each step in its range",
                2,
                work_in_its_range,
                "Only what is indented below a `with` is in its range.",
            ),
            Criterion(
                "same_updates",
                "the same updates as without marks",
                1,
                same_steps,
                "The calls and their order stay as they were.",
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
    """The check of a slow script that the student makes faster. The whole script runs, since the student may change it
    anywhere."""
    return (Check(gap, f"{PROBES}:training", cases, criteria, oracle=oracle, whole=True, observed=_observed),)


def _same_training(faster):
    """The training is the same, and the script is faster: each counts only together with the other."""
    return Criterion(
        "same_training", SAME, 1, same_training, "Look at what the network gets, and in which order.", needs=faster
    )


SAME, LOSSES = "the same training as before", "the mean losses as before"
DECODED, WORK, MEETINGS = (
    "every image is decoded once",
    "equal work in every step",
    "the ranks don't wait for each other in every step",
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
        "What does not change from epoch to epoch can be kept.",
        needs="same_training",
    ),
    _same_training("decoded_once"),
)
ONCE = "every image once an epoch"
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
        "Look at the timeline: which rank computes longer? Then look at what it is given.",
        needs="every_image_once",
    ),
    Criterion(
        "every_image_once",
        ONCE,
        1,
        every_image_once,
        "Deal the images out, each of them to one rank.",
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
        "Which calls let all ranks meet? The profile counts them.",
        needs="same_training",
    ),
    Criterion(
        "no_device_wait",
        "no waiting for the device in every step",
        1,
        fetches_once_an_epoch,
        "A loss may stay a tensor until the epoch is over; detach() frees its graph.",
        needs="same_losses",
    ),
    Criterion(
        "same_losses",
        LOSSES,
        1,
        same_losses,
        "`losses` is averaged over the steps and the ranks below.",
        needs="ranks_do_not_wait",
    ),
    _same_training("ranks_do_not_wait"),
)
