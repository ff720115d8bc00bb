"""The checks of the scripts of Lightning and Accelerate: whatever the system, the weights after each step are those of
one big batch, the ranks share the images, and an evaluation is one of all images."""

import itertools

import numpy

from grader.checks import criteria
from grader.checks import pytorch_gaps as of_pytorch
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.units.frameworks.frameworks_numbers import BATCH, CLASSES, FEATURES, TESTS, evaluated, start
from grader.units.frameworks.replicas import NOT_BY_OPTIMIZER, kept, of_worst_step, scaled_mean, trained

PROBES = "grader.units.frameworks.probes.probe_translated:"
SINGLE = 1e-6  # counts of images are in single precision


def mistakes(case):
    """{a sentence on a misconception: what it makes of the ranks' sums of gradients and their numbers of images}."""
    ranks, total = case["replicas"], case["total"]
    return {
        f"the steps are {ranks} times too small: DDP takes the mean over the ranks already": scaled_mean(1 / ranks),
        f"the steps are {ranks} times too large: DDP takes the mean over the ranks, so take that over the images": (
            scaled_mean(ranks)
        ),
        "the sum of a rank's losses is divided by nothing: take the mean": scaled_mean(total / ranks),
        "the sum is divided by args.batchsize, but batches can be smaller: take the mean": scaled_mean(
            total / (ranks * case.get("batchsize", 1))
        ),
        "the gradients are not cleared: those of the last step are still in them": kept(scaled_mean(1), 1),
        (
            "the parameters do not change: is there a step, of an optimizer that has the parameters of `model`?"
        ): scaled_mean(0),
    }


def as_one_batch(seen, case, expected):
    """A judge: the weights of SGD on all images of each step."""
    wrong = {sentence: kept(combine) for sentence, combine in mistakes(case).items()}
    return _judged(seen, case, kept(scaled_mean(1)), wrong | {NOT_BY_OPTIMIZER: scaled_mean(1)}, expected)


def prepared(seen, case, expected):
    """A judge: as `as_one_batch`, by the optimizer that is given."""
    right = scaled_mean(1)
    wrong = {
        f"the steps are {case['replicas']} times too large: the learning rate is that of the options, as on one GPU": (
            kept(scaled_mean(case["replicas"]))
        ),
        "the optimizer has no momentum: prepare the one that is given": right,
        "the parameters do not change: the optimizer must have those of `model`": scaled_mean(0),
    }
    return _judged(seen, case, kept(right), wrong, expected)


def _judged(seen, case, right, wrong, expected):
    if problem := criteria.equal_on_all_ranks([of_rank["weights"] for of_rank in seen], "after the steps parameters"):
        return f"{problem}: the images must go through the prepared model, which averages the gradients"
    found = seen[0]["weights"]
    due, _ = trained(case, right)
    if criteria.close(found, due):
        return None
    for sentence, combine in wrong.items():
        if criteria.close(found, trained(case, combine)[0]):
            return sentence
    if "losses" in seen[0] and (problem := mean_loss(seen, case | {"steps": 1}, expected)):
        return f"{problem}; so the gradients are those of another loss than the mean cross-entropy"
    return (
        f"after {case['steps']} steps the parameters differ by up to {numpy.abs(found - due).max():.2g} from those of"
        " one process with all images of each step"
    )


def mean_loss(seen, case, expected):
    _, right = trained(case, kept(scaled_mean(1)))
    found = numpy.mean([of_rank["losses"][: case["steps"]] for of_rank in seen], axis=0)
    if criteria.close(found, right):
        return None
    return f"the mean of the ranks' `loss` in {of_worst_step(found, right, 'the mean over all images of the step')}"


def evaluations(case):
    """[[(sum of the losses, images that are right, images)] of each rank] of each batch: zeros where a rank has one
    batch less."""
    weights, of_ranks = start(case), evaluated(case)
    found = numpy.zeros((max(map(len, of_ranks)), case["ranks"], 3))
    for rank, batches in enumerate(of_ranks):
        for number, (images, labels) in enumerate(batches):
            outputs = numpy.hstack([images, numpy.ones((len(images), 1))]) @ weights
            losses = numpy.log(numpy.exp(outputs).sum(axis=1)) - outputs[numpy.arange(len(labels)), labels]
            found[number, rank] = losses.sum(), (outputs.argmax(axis=1) == labels).sum(), len(labels)
    return found


def mean_of_all(seen, case, expected):
    made = evaluations(case)
    sums, images = made[..., :2], made[..., 2:]
    means, total = sums / images, images.sum()
    right = sums.sum(axis=(0, 1)) / total
    for (rank, of_rank), evaluation in itertools.product(enumerate(seen), range(case.get("evaluations", 1))):
        found = of_rank["found"][evaluation]
        wrong = {
            "that is the mean over this rank's images alone: `sync_dist=True` takes it over all ranks": (
                sums[:, rank].sum(axis=0) / images[:, rank].sum()
            ),
            "that is this rank's part of the mean alone: `sync_dist=True` adds up the parts of all ranks": (
                sums[:, rank].sum(axis=0) / total
            ),
            "that is the mean of the batches' means: a batch counts as often as it has images (`batch_size`)": (
                means.mean(axis=(0, 1))
            ),
            "that is the sum of the batches' means": means.sum(axis=(0, 1)),
            "that is the sum over the images, not the mean": sums.sum(axis=(0, 1)),
            "parts of the mean are averaged, and not added up (`reduce_fx`)": (sums * images).sum(axis=(0, 1))
            / total**2,
            "that is the sum of two evaluations, one after each epoch: each begins anew": 2 * right,
        }
        if not criteria.close(found, right, SINGLE):
            problem = next(
                (sentence for sentence, values in wrong.items() if criteria.close(found, values, SINGLE)), ""
            )
            (loss, right_loss), (accuracy, right_accuracy) = map(criteria.distinct_digits, found, right)
            there = (
                f"rank {rank} has loss {loss} and accuracy {accuracy}{' in a second evaluation' * evaluation}; over all"
                f" images they are {right_loss} and {right_accuracy}"
            )
            return criteria.with_reason(there, problem)
    return None


def shared_out(seen, case, expected):
    """A judge: each loader gives the ranks together all images once, and no more than fill their batches."""
    for loader, images in (("train_loader", case["images"]), ("test_loader", TESTS)):
        numbers = [number for of_rank in seen for number in of_rank[loader]]
        if missing := set(range(images)).difference(numbers):
            return f"{len(missing)} of the {images} images of `{loader}` are on no rank: prepare each loader once"
        steps = -(-images // (BATCH * len(seen)))
        if len(numbers) > (steps * BATCH * len(seen) if len(seen) > 1 else images):
            return (
                f"the ranks have {len(numbers)} images of `{loader}`, which has {images}: a loader that is prepared"
                " gives each rank a part"
            )
    return None


def _steps(case):
    return {"weights": Array((case["steps"], FEATURES + 1, CLASSES)), "losses": (float,) * case["steps"]}


ONE_BATCH = "the step of one big batch"
RANKS = {"ranks": 2, "replicas": 2, "equal": True, "steps": 2, "total": 8, "batchsize": 5}
STEP_CASES = (RANKS, RANKS | {"ranks_per_node": 1, "edge": "ranks on nodes of their own"})
LOSS = Criterion(
    "loss_of_the_images",
    "the mean loss of the rank's images",
    1,
    mean_loss,
    "F.cross_entropy(outputs, labels)",
    needs="one_big_batch",
)
LIGHTNING = (
    Check(
        "loader",
        PROBES + "loader",
        ({"ranks": 2, "ranks_per_node": 1, "images": 25, "batchsize": 4},),
        (
            Criterion(
                "new_order_every_epoch",
                "all images in each epoch, in a new order",
                2,
                of_pytorch.new_order_every_epoch,
                "DataLoader(self.train_set, self.args.batchsize, shuffle=True)",
            ),
        ),
        observed=lambda case: {"orders": ([int],) * 2, "sizes": ([int],) * 2},
    ),
    Check(
        "training_step",
        PROBES + "training_step",
        STEP_CASES,
        (
            Criterion(
                "one_big_batch",
                ONE_BATCH,
                2,
                as_one_batch,
                "Forward, and the mean loss; Lightning itself clears gradients, goes backward and optimizes.",
            ),
            LOSS,
        ),
        observed=_steps,
    ),
    Check(
        "validation",
        PROBES + "validation",
        ({"ranks": 2, "images": 22, "batchsize": 4, "evaluations": 2},),
        (
            Criterion(
                "mean_over_all_images",
                "the mean over the images of all ranks",
                2,
                mean_of_all,
                "self.log takes the mean over the batches of a rank; with sync_dist=True, over the ranks as well.",
            ),
        ),
        observed=lambda case: {"found": ((float, float),) * case.get("evaluations", 1)},
    ),
)
ACCELERATE = (
    Check(
        "prepare",
        PROBES + "prepare",
        ({"ranks": 2, "replicas": 2, "equal": True, "steps": 3, "total": 8, "images": 13},),
        (
            Criterion(
                "one_big_batch",
                ONE_BATCH,
                2,
                prepared,
                "accelerator.prepare returns as many things as it gets, in this order.",
            ),
            Criterion(
                "every_image_once",
                "a part of the images on each rank",
                1,
                shared_out,
                "Both loaders are prepared, and divide their images among the ranks.",
                needs="one_big_batch",
            ),
        ),
        observed=lambda case: {
            "weights": Array((case["steps"], FEATURES + 1, CLASSES)),
            "train_loader": [int],
            "test_loader": [int],
        },
    ),
    Check(
        "step",
        PROBES + "step",
        STEP_CASES,
        (
            Criterion(
                "one_big_batch",
                ONE_BATCH,
                2,
                as_one_batch,
                "As in the DDP script, with accelerator.backward(loss) in place of loss.backward().",
            ),
            LOSS,
        ),
        observed=_steps,
    ),
)
