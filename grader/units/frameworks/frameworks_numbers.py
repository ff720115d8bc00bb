"""The inputs of replicas: the probes use them, and the checks derive the right results from them."""

import numpy

FEATURES, CLASSES = 3, 4
RATE, MOMENTUM = 0.5, 0.9  # momentum shows a check whether the optimizer runs the steps
BATCH, TESTS = 3, 9  # size of the batches of `prepare`, images of its test set


def samples(case):
    """Return the number of images in a case."""
    return case["samples"] if "samples" in case else case["steps"] * case["total"]


def endless(case):
    """Return the number of steps that are observed in an epoch: four times the right number."""
    return 4 * -(-samples(case) // case["total"])


def start(case):
    """Return the first weights (FEATURES + 1, CLASSES) of a linear model; the last row is its bias."""
    return (
        numpy.random.RandomState(case["seed"] % 2**32)
        .normal(size=(FEATURES + 1, CLASSES))
        .astype("float32")
        .astype("float64")
    )


def parts(case, step):
    """Return [(images (n, FEATURES), labels (n,))] for each replica in a step. The parts have different lengths, so
    that a mean of means is wrong. With "equal" in the case they have the same length, as with samplers."""
    chance = numpy.random.RandomState((case["seed"] + 7919 * (step + 1)) % 2**32)
    total = case["total"]
    images, labels = chance.normal(size=(total, FEATURES)).astype("float32"), chance.randint(0, CLASSES, total)
    first, more = (total // case["replicas"],) * 2 if case.get("equal") else (2, 2)
    cuts = [0, *(more * number + first for number in range(case["replicas"] - 1)), total]
    return [(images[begin:end], labels[begin:end]) for begin, end in zip(cuts, cuts[1:])]


def evaluated(case):
    """Return [[(images (n, FEATURES), labels (n,)) of each batch] of each rank] in an evaluation of case["images"]
    images. The images are distributed to the ranks in turn, the same number to each."""
    chance = numpy.random.RandomState((case["seed"] + 104729) % 2**32)
    images, labels = (
        chance.normal(size=(case["images"], FEATURES)).astype("float32"),
        chance.randint(0, CLASSES, case["images"]),
    )
    mine = [range(rank, case["images"], case["ranks"]) for rank in range(case["ranks"])]
    batches = [
        [one[begin : begin + case["batchsize"]] for begin in range(0, len(one), case["batchsize"])] for one in mine
    ]
    return [[(images[[*batch]], labels[[*batch]]) for batch in of_rank] for of_rank in batches]
