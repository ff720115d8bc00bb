"""The checks of train_cntk.py: the results of the source, the learners, the session and the loop by hand."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.units.communication.communication_numbers import pixels

PROBES, ORACLES = "grader.units.communication.probes.probe_cntk", "grader.units.communication.oracles.oracle_cntk"


def right_labels(seen, case, expected):
    _, labels = pixels(case)
    found = seen[0]
    if not found["numbers"]:
        return "the source returns no images"
    if any(not 0 <= number < case["samples"] for number in found["numbers"]):
        return "the source returns images that are not in the map file"
    if wrong := [place for place, number in enumerate(found["numbers"]) if found["labels"][place] != labels[number]]:
        place = wrong[0]
        return (
            f"image {found['numbers'][place]} has the label {found['labels'][place]}; in the map file, its label is"
            f" {labels[found['numbers'][place]]}"
        )
    return None


def as_many(seen, case, expected):
    count = len(seen[0]["numbers"])
    if count > 10 * case["samples"]:
        return f"the source never ends: it should return max_samples = {case['max_samples']} images"
    if count != case["max_samples"]:
        of_each = (
            ": each worker opens the whole source, and next_minibatch splits the minibatches"
            if count * len(seen) == case["max_samples"]
            else ""
        )
        return f"the source returns {count} images, but max_samples is {case['max_samples']}{of_each}"
    return None


def random_if_asked(seen, case, expected):
    numbers = seen[0]["numbers"]
    sweeps = [numbers[begin : begin + case["samples"]] for begin in range(0, len(numbers), case["samples"])]
    in_order = all(sweep == list(range(len(sweep))) for sweep in sweeps)
    if other := next((rank for rank in range(len(seen)) if seen[rank]["numbers"] != numbers), None):
        return (
            f"workers 0 and {other} read the images in different orders: next_minibatch splits one common order, so use"
            " the same seed on all workers"
        )
    if case["randomize"] and in_order:
        return "the source returns the images in the order of the map file, but randomize is True"
    if case["randomize"] and sweeps[0] in sweeps[1:]:
        return "the source returns the images in the same order in each epoch, but randomize is True"
    if not case["randomize"] and not in_order:
        return "the source returns the images in a random order, but randomize is False"
    return None


def as_simulated(seen, case, expected):
    found = numpy.stack([of_rank["parameters"] for of_rank in seen])
    right = expected["right"]
    if criteria.close(found, right):
        return None
    wrong = {
        sentence: values
        for sentence, values in expected.items()
        if sentence != "right" and not criteria.close(values, right)
    }
    problem = criteria.explained(found, right, wrong)
    step = next(step for step in range(right.shape[1]) if not criteria.close(found[:, step], right[:, step]))
    asked = (
        f"{'block_size' if case['block_size'] else 'bits'}={case['block_size'] or case['bits']},"
        f" warm_up={case['warm_up']}"
    )
    return criteria.with_reason(f"with {asked}, the parameters are wrong after minibatch {step + 1}", problem)


def once_each(seen, case, expected):
    sweeps = [[number for step in of_rank["steps"] for number in step] for of_rank in seen]
    return _each_once(sweeps, case["samples"], case["max_samples"] // case["samples"])


def _each_once(of_ranks, samples, sweeps):
    """Return None if all ranks together take each sample once per sweep, or otherwise a sentence."""
    taken = [number for of_rank in of_ranks for number in of_rank]
    if not taken:
        return "your code trains on no images: call trainer.train_minibatch(part)"
    if any(not 0 <= number < samples for number in taken):
        return (
            "your code trains on images that are not from the source: pass the result of source.next_minibatch to"
            " trainer.train_minibatch"
        )
    if len(of_ranks) > 1 and len(taken) == samples * sweeps * len(of_ranks):
        return (
            f"each worker trains on all {samples} images of an epoch: it should train on its partition, with"
            " num_data_partitions and partition_index"
        )
    if len(of_ranks) > 1 and all(sorted(of_rank) == sorted(of_ranks[0]) for of_rank in of_ranks):
        return f"all workers train on the same {len(of_ranks[0])} images: set partition_index to the worker's own rank"
    counts = numpy.bincount(taken, minlength=samples)
    if (counts != sweeps).any():
        image = int(numpy.flatnonzero(counts != sweeps)[0])
        return (
            f"all workers together train on image {image} {counts[image]} times in"
            f" {sweeps} epoch{'s' * (sweeps > 1)}; they should train on it once per epoch"
        )
    return None


def _whole(case):
    """Return the sizes of the minibatches: a minibatch ends with its epoch."""
    whole, rest = divmod(case["samples"], case["minibatch"])
    return (whole * [case["minibatch"]] + [rest] * (rest > 0)) * (case["max_samples"] // case["samples"])


def whole_minibatches(seen, case, expected):
    found = [sum(map(len, of_step)) for of_step in zip(*(of_rank["steps"] for of_rank in seen))]
    if not found:
        return (
            "your code trains on no images"
            if not any(of_rank["steps"] for of_rank in seen)
            else "not all workers train, but all workers must run the same number of steps"
        )
    steps = {len(of_rank["steps"]) for of_rank in seen}
    if len(steps) > 1:
        return (
            f"the workers run different numbers of steps ({', '.join(map(str, sorted(steps)))}): all must run the same"
            " number"
        )
    if max(found) != case["minibatch"]:
        return (
            f"a minibatch of all workers has {max(found)} images; minibatch_size = {case['minibatch']} counts the"
            " images of all workers together"
        )
    if found != (right := _whole(case)):
        return (
            f"the minibatches of all workers have {criteria.first_few(found, 8)} images; with minibatch_size, they"
            f" should have {criteria.first_few(right, 8)}"
        )
    return None


def as_one_big_batch(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if not criteria.close(of_rank["parameters"], expected["parameters"]):
            return (
                f"at the end, the parameters of rank {rank} differ from those of one process that trains on whole"
                " minibatches"
            )
    return None


def trained_with_all(seen, case, expected):
    first = [of_rank["runs"][0] for of_rank in seen]
    of_ranks = [[number for step in run["steps"] for number in step] for run in first]
    if (ended := sum(map(len, of_ranks))) == case["samples"]:
        return (
            f"the session ends after {ended} of {2 * ended} samples: the source itself ends after all epochs, so leave"
            " out max_samples"
        )
    if problem := _each_once(of_ranks, case["samples"], 2):
        return problem
    largest = max(sum(map(len, of_step)) for of_step in zip(*(run["steps"] for run in first)))
    right = case["batchsize"] * len(seen)
    if largest != right:
        each = (
            " (mb_size counts the images of all workers together)"
            if len(seen) > 1 and largest == case["batchsize"]
            else ""
        )
        return (
            f"a minibatch has {largest} images; for {len(seen)} workers with args.batchsize = {case['batchsize']}, it"
            f" should have {right}{each}"
        )
    for rank, run in enumerate(first):
        if not criteria.close(run["parameters"], expected["two"]):
            return (
                f"at the end, the parameters of rank {rank} differ from those of one process that trains on whole"
                " minibatches"
            )
    return None


def saved_and_restored(seen, case, expected):
    """The first run and the third have two epochs; the second has three, and args.restore."""
    if trained_with_all(seen, case, expected):
        return None
    runs, samples = seen[0]["runs"], case["samples"]
    saved, steps = runs[0]["saved"], [len(run["steps"]) for run in runs]
    if not saved:
        return "the session writes no checkpoint: pass a CheckpointConfig as checkpoint_config"
    if not {samples, 2 * samples} <= set(saved) or len(saved) > 3:  # a session also writes one at its end
        return (
            f"in two epochs, the session writes checkpoints after {', '.join(map(str, saved[:5]))} samples; it should"
            f" write one after every args.samples = {samples}"
        )
    if steps[1] > steps[0]:
        return "with args.restore, training starts again: pass restore=args.restore to CheckpointConfig"
    if steps[2] < steps[0]:
        return "without args.restore, training resumes from the checkpoint, but it should start again"
    if not all(criteria.close(of_rank["runs"][1]["parameters"], expected["three"]) for of_rank in seen):
        return "two epochs and a third epoch after a restart do not end with the parameters of three epochs in one run"
    return None


def tested_at_the_end(seen, case, expected):
    tested = sorted(number for of_rank in seen for number in of_rank["runs"][0]["tested"])
    if not tested:
        return "the session tests no images: pass cntk.TestConfig(test_source) as test_config"
    if tested != list(range(case["samples"])):
        return (
            f"the session tests {len(tested)} images, {len(set(tested))} of them different; test_source has"
            f" {case['samples']} images"
        )
    if any(
        run["before the test"] < len(run["steps"]) for run in (of_rank["runs"][0] for of_rank in seen) if run["tested"]
    ):
        return "the session tests before the end of training, but it should test the trained network"
    return None


def a_line_an_epoch(seen, case, expected):
    lines = seen[0]["runs"][0]["lines"]
    if lines != 2:
        return (
            f"a run of two epochs prints {lines} line{'s' * (lines != 1)} of progress; with progress_frequency ="
            " args.samples, it prints one line per epoch"
        )
    return None


SOURCE = {"ranks": 1, "samples": 20, "minibatch": 6}
LABELS, ALL = "the source returns images with their labels", "all workers together use each image once per epoch"
LEARNER = {"ranks": 2, "samples": 24, "minibatch": 8, "max_samples": 56, "lr": 0.1}
TRAINED = "the session trains on the minibatches of all workers"
_RUN = {
    "steps": [[int]],
    "saved": [int],
    "tested": [int],
    "before the test": int,
    "lines": int,
    "parameters": Array((None,)),
}
CHECKS = (
    Check(
        "source",
        f"{PROBES}:source",
        (
            SOURCE | {"ranks": 2, "classes": 7, "randomize": True, "max_samples": 50},
            SOURCE | {"classes": 13, "randomize": False, "max_samples": 20},
        ),
        (
            Criterion(
                "images_with_labels",
                LABELS,
                1,
                right_labels,
                'StreamDef(field="image") and StreamDef(field="label", shape=classes).',
            ),
            Criterion(
                "number_asked_for",
                "the source ends after max_samples images",
                1,
                as_many,
                "Pass max_samples to the MinibatchSource.",
                "images_with_labels",
            ),
            Criterion(
                "order_asked_for",
                "randomize decides the order of the images",
                1,
                random_if_asked,
                "Pass randomize to the MinibatchSource.",
                "images_with_labels",
            ),
        ),
        observed=lambda case: {"numbers": [int], "labels": [int]},
    ),
    Check(
        "learner",
        f"{PROBES}:learner",
        (
            LEARNER | {"bits": 1, "warm_up": 16, "block_size": 0},
            LEARNER | {"bits": 32, "warm_up": 16, "block_size": 0},
            LEARNER | {"bits": 1, "warm_up": 0, "block_size": 0},
            LEARNER | {"bits": 32, "warm_up": 16, "block_size": 16},
        ),
        (
            Criterion(
                "updates_as_asked",
                "the learner updates as the options require",
                3,
                as_simulated,
                "Use data_parallel_distributed_learner(local, ...) or block_momentum_distributed_learner(local, ...)."
                " Both have the option distributed_after.",
            ),
        ),
        oracle=f"{ORACLES}:learner",
        observed=lambda case: {"parameters": Array((None, None))},
    ),
    Check(
        "session",
        f"{PROBES}:session",
        ({"ranks": 2, "samples": 20, "batchsize": 4, "lr": 0.1},),
        (
            Criterion(
                "minibatches_of_all",
                TRAINED,
                2,
                trained_with_all,
                "mb_size counts the samples of all workers: args.batchsize for each.",
            ),
            Criterion(
                "checkpoint_every_epoch",
                "the session writes a checkpoint after every epoch",
                2,
                saved_and_restored,
                "Pass cntk.CheckpointConfig(filename=..., frequency=..., restore=...).",
                "minibatches_of_all",
            ),
            Criterion(
                "progress_every_epoch",
                "the session prints a line of progress after every epoch",
                1,
                a_line_an_epoch,
                "progress_frequency counts the samples of all workers.",
                "minibatches_of_all",
            ),
            Criterion(
                "test_at_the_end",
                "the session tests the trained network",
                1,
                tested_at_the_end,
                "Pass test_config=cntk.TestConfig(test_source).",
                "minibatches_of_all",
            ),
        ),
        oracle=f"{ORACLES}:sessions",
        observed=lambda case: {"runs": (_RUN,) * 3},
    ),
    Check(
        "loop",
        f"{PROBES}:loop",
        ({"ranks": 2, "samples": 21, "minibatch": 10, "max_samples": 42, "lr": 0.1},),
        (
            Criterion(
                "every_image_once",
                ALL,
                2,
                once_each,
                "Set num_data_partitions to the number of workers, and partition_index to the rank of this worker.",
            ),
            Criterion(
                "whole_minibatches",
                "minibatch_size counts the images of all workers",
                1,
                whole_minibatches,
                "Pass minibatch_size as it is: next_minibatch splits it among the workers.",
                "every_image_once",
            ),
            Criterion(
                "as_one_big_batch",
                "the parameters equal those of one process with whole minibatches",
                1,
                as_one_big_batch,
                "Call trainer.train_minibatch(part) once per minibatch.",
                "every_image_once",
            ),
        ),
        oracle=f"{ORACLES}:big_batch",
        observed=lambda case: {"steps": [[int]], "parameters": Array((None,))},
    ),
)
