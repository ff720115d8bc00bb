"""The checks of train_cntk.py: the source, the learners, the session and the loop by hand, judged by what they do."""

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
        return "the source gives no image at all"
    if any(not 0 <= number < case["samples"] for number in found["numbers"]):
        return "the source gives images that the map file does not name"
    if wrong := [place for place, number in enumerate(found["numbers"]) if found["labels"][place] != labels[number]]:
        place = wrong[0]
        return (
            f"image {found['numbers'][place]} comes with the label {found['labels'][place]}; in the map file it has"
            f" {labels[found['numbers'][place]]}"
        )
    return None


def as_many(seen, case, expected):
    count = len(seen[0]["numbers"])
    if count > 10 * case["samples"]:
        return f"the source never ends: it should give max_samples = {case['max_samples']} images"
    if count != case["max_samples"]:
        of_each = (
            ": each worker opens the whole source, and next_minibatch divides its minibatches"
            if count * len(seen) == case["max_samples"]
            else ""
        )
        return f"the source gives {count} images; max_samples is {case['max_samples']}{of_each}"
    return None


def random_if_asked(seen, case, expected):
    numbers = seen[0]["numbers"]
    sweeps = [numbers[begin : begin + case["samples"]] for begin in range(0, len(numbers), case["samples"])]
    in_order = all(sweep == list(range(len(sweep))) for sweep in sweeps)
    if other := next((rank for rank in range(len(seen)) if seen[rank]["numbers"] != numbers), None):
        return (
            f"workers 0 and {other} get the images in different orders: next_minibatch gives each its part of the same"
            " order, so all need the same seed"
        )
    if case["randomize"] and in_order:
        return "the images come in the order of the map file, but randomize is True"
    if case["randomize"] and sweeps[0] in sweeps[1:]:
        return "the images come in the same order in each epoch, but randomize is True"
    if not case["randomize"] and not in_order:
        return "the images come in a random order, but randomize is False"
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
    return criteria.with_reason(
        f"with {asked}, after minibatch {step + 1} parameters are not those of the definition", problem
    )


def once_each(seen, case, expected):
    sweeps = [[number for step in of_rank["steps"] for number in step] for of_rank in seen]
    return _each_once(sweeps, case["samples"], case["max_samples"] // case["samples"])


def _each_once(of_ranks, samples, sweeps):
    """None if all ranks together take each sample as often as there are sweeps."""
    taken = [number for of_rank in of_ranks for number in of_rank]
    if not taken:
        return "nothing is trained on: trainer.train_minibatch takes a minibatch"
    if any(not 0 <= number < samples for number in taken):
        return (
            "the network is trained on images that are none of the source's: give trainer.train_minibatch what"
            " source.next_minibatch returns"
        )
    if len(of_ranks) > 1 and len(taken) == samples * sweeps * len(of_ranks):
        return (
            f"each worker takes all {samples} images of an epoch: it should take its partition, by num_data_partitions"
            " and partition_index"
        )
    if len(of_ranks) > 1 and all(sorted(of_rank) == sorted(of_ranks[0]) for of_rank in of_ranks):
        return f"all workers take the same {len(of_ranks[0])} images: partition_index is the worker's own rank"
    counts = numpy.bincount(taken, minlength=samples)
    if (counts != sweeps).any():
        image = int(numpy.flatnonzero(counts != sweeps)[0])
        return (
            f"image {image} is taken {counts[image]} times in {sweeps} epoch{'s' * (sweeps > 1)}, by all workers"
            " together; once an epoch is right"
        )
    return None


def _whole(case):
    """How many images the minibatches have: a minibatch ends with its epoch."""
    whole, rest = divmod(case["samples"], case["minibatch"])
    return (whole * [case["minibatch"]] + [rest] * (rest > 0)) * (case["max_samples"] // case["samples"])


def whole_minibatches(seen, case, expected):
    found = [sum(map(len, of_step)) for of_step in zip(*(of_rank["steps"] for of_rank in seen))]
    if not found:
        return (
            "nothing is trained on"
            if not any(of_rank["steps"] for of_rank in seen)
            else "not all workers train: all must make the same number of steps"
        )
    steps = {len(of_rank["steps"]) for of_rank in seen}
    if len(steps) > 1:
        return f"the workers make {sorted(steps)} steps: all must make the same number"
    if max(found) != case["minibatch"]:
        return (
            f"a minibatch of all workers has {max(found)} images; minibatch_size, {case['minibatch']}, is that of all"
            " workers together"
        )
    if found != (right := _whole(case)):
        return (
            f"the minibatches of all workers have {criteria.first_few(found, 8)} images; by minibatch_size there are"
            f" {criteria.first_few(right, 8)}"
        )
    return None


def as_one_big_batch(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if not criteria.close(of_rank["parameters"], expected["parameters"]):
            return (
                f"at the end, parameters of rank {rank} are not those of one process that takes the minibatches whole"
            )
    return None


def trained_with_all(seen, case, expected):
    first = [of_rank["runs"][0] for of_rank in seen]
    of_ranks = [[number for step in run["steps"] for number in step] for run in first]
    if (ended := sum(map(len, of_ranks))) == case["samples"]:
        return (
            f"the training ends after {ended} of {2 * ended} samples: the source itself ends after all epochs, so"
            " max_samples is not needed"
        )
    if problem := _each_once(of_ranks, case["samples"], 2):
        return problem
    largest = max(sum(map(len, of_step)) for of_step in zip(*(run["steps"] for run in first)))
    right = case["batchsize"] * len(seen)
    if largest != right:
        each = (
            " (mb_size counts those of all workers together)" if len(seen) > 1 and largest == case["batchsize"] else ""
        )
        return (
            f"a minibatch has {largest} images; {len(seen)} workers with args.batchsize = {case['batchsize']} have"
            f" {right}{each}"
        )
    for rank, run in enumerate(first):
        if not criteria.close(run["parameters"], expected["two"]):
            return (
                f"at the end, parameters of rank {rank} are not those of one process that takes the minibatches whole"
            )
    return None


def saved_and_restored(seen, case, expected):
    """The first run and the third have two epochs; the second has three, and args.restore."""
    if trained_with_all(seen, case, expected):
        return None
    runs, samples = seen[0]["runs"], case["samples"]
    saved, steps = runs[0]["saved"], [len(run["steps"]) for run in runs]
    if not saved:
        return "no checkpoint is written: checkpoint_config says where and how often"
    if not {samples, 2 * samples} <= set(saved) or len(saved) > 3:  # a session writes one at its end, too
        return (
            f"in two epochs checkpoints are written after {', '.join(map(str, saved[:5]))} samples; one after every"
            f" args.samples = {samples} is asked for"
        )
    if steps[1] > steps[0]:
        return "with args.restore the training begins anew: the CheckpointConfig must restore"
    if steps[2] < steps[0]:
        return "without args.restore the training goes on from the checkpoint: it should begin anew"
    if not all(criteria.close(of_rank["runs"][1]["parameters"], expected["three"]) for of_rank in seen):
        return "two epochs, and another one after a restart, do not give the parameters of three epochs in one run"
    return None


def tested_at_the_end(seen, case, expected):
    tested = sorted(number for of_rank in seen for number in of_rank["runs"][0]["tested"])
    if not tested:
        return "nothing is tested: test_config takes a TestConfig of test_source"
    if tested != list(range(case["samples"])):
        return (
            f"{len(tested)} images are tested, {len(set(tested))} of them different; test_source has {case['samples']}"
        )
    if any(
        run["before the test"] < len(run["steps"]) for run in (of_rank["runs"][0] for of_rank in seen) if run["tested"]
    ):
        return "the test comes before the training is over; it should show what the trained network can do"
    return None


def a_line_an_epoch(seen, case, expected):
    lines = seen[0]["runs"][0]["lines"]
    if lines != 2:
        return (
            f"a run of two epochs prints {lines} line{'s' * (lines != 1)} of progress; progress_frequency ="
            " args.samples gives one for each epoch"
        )
    return None


SOURCE = {"ranks": 1, "samples": 20, "minibatch": 6}
LABELS, ALL = "images with their labels", "the images of all workers, once an epoch"
LEARNER = {"ranks": 2, "samples": 24, "minibatch": 8, "max_samples": 56, "lr": 0.1}
TRAINED = "the minibatches of all workers"
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
                "as many as asked for",
                1,
                as_many,
                "max_samples goes on to the MinibatchSource.",
                "images_with_labels",
            ),
            Criterion(
                "order_asked_for",
                "in the order asked for",
                1,
                random_if_asked,
                "randomize goes on to the MinibatchSource.",
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
                "updates as the options say",
                3,
                as_simulated,
                "data_parallel_distributed_learner(local, ...) or block_momentum_distributed_learner(local, ...); both"
                " have distributed_after.",
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
                "a checkpoint after every epoch",
                2,
                saved_and_restored,
                "CheckpointConfig(filename=..., frequency=..., restore=...).",
                "minibatches_of_all",
            ),
            Criterion(
                "progress_every_epoch",
                "a line of progress after every epoch",
                1,
                a_line_an_epoch,
                "progress_frequency counts samples of all workers.",
                "minibatches_of_all",
            ),
            Criterion(
                "test_at_the_end",
                "a test at the end",
                1,
                tested_at_the_end,
                "test_config=cntk.TestConfig(test_source)",
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
                "num_data_partitions: how many workers there are; partition_index: which one this is.",
            ),
            Criterion(
                "whole_minibatches",
                "whole minibatches",
                1,
                whole_minibatches,
                "minibatch_size counts the images of all workers.",
                "every_image_once",
            ),
            Criterion(
                "as_one_big_batch",
                "as one big batch",
                1,
                as_one_big_batch,
                "trainer.train_minibatch(minibatch), once for each minibatch.",
                "every_image_once",
            ),
        ),
        oracle=f"{ORACLES}:big_batch",
        observed=lambda case: {"steps": [[int]], "parameters": Array((None,))},
    ),
)
