"""The checks of the scripts for Lightning and Accelerate. In both systems, the weights after each step must equal those
of one process with all images, the ranks must split the images, and an evaluation must cover all images."""

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
    """Return {sentence on a misconception: the function that combines the ranks' sums of gradients in this way}."""
    ranks, total = case["replicas"], case["total"]
    return {
        f"the updates are {ranks} times too small: DDP already averages over the ranks": scaled_mean(1 / ranks),
        f"the updates are {ranks} times too large: DDP averages over the ranks, so average over the rank's images": (
            scaled_mean(ranks)
        ),
        "`loss` is the sum over the rank's images: use the mean": scaled_mean(total / ranks),
        "`loss` is divided by args.batchsize, but the last batch can be smaller: use the mean": scaled_mean(
            total / (ranks * case.get("batchsize", 1))
        ),
        "the gradients still contain those of the last step: clear them before backward": kept(scaled_mean(1), 1),
        ("the parameters do not change: run a step of the optimizer that has the parameters of `model`"): scaled_mean(
            0
        ),
    }


def as_one_batch(seen, case, expected):
    """Judge whether the weights are those of SGD on all images of each step."""
    wrong = {sentence: kept(combine) for sentence, combine in mistakes(case).items()}
    return _judged(seen, case, kept(scaled_mean(1)), wrong | {NOT_BY_OPTIMIZER: scaled_mean(1)}, expected)


def prepared(seen, case, expected):
    """Judge like `as_one_batch`, with the optimizer that the gap gets."""
    right = scaled_mean(1)
    wrong = {
        f"the updates are {case['replicas']} times too large: keep the learning rate of the options": (
            kept(scaled_mean(case["replicas"]))
        ),
        "`optimizer` has no momentum: prepare the optimizer that the script has created": right,
        "the parameters do not change: `optimizer` must have the parameters of `model`": scaled_mean(0),
    }
    return _judged(seen, case, kept(right), wrong, expected)


def _judged(seen, case, right, wrong, expected):
    if problem := criteria.equal_on_all_ranks([of_rank["weights"] for of_rank in seen], "after the steps parameters"):
        return f"{problem}: call the prepared model, which averages the gradients"
    found = seen[0]["weights"]
    due, _ = trained(case, right)
    if criteria.close(found, due):
        return None
    for sentence, combine in wrong.items():
        if criteria.close(found, trained(case, combine)[0]):
            return sentence
    if "losses" in seen[0] and (problem := mean_loss(seen, case | {"steps": 1}, expected)):
        return f"{problem}, so the gradients belong to a loss other than the mean cross-entropy"
    return (
        f"after {case['steps']} steps the parameters differ by up to {numpy.abs(found - due).max():.2g} from those of"
        " one process that trains on all images of each step"
    )


def mean_loss(seen, case, expected):
    _, right = trained(case, kept(scaled_mean(1)))
    found = numpy.mean([of_rank["losses"][: case["steps"]] for of_rank in seen], axis=0)
    if criteria.close(found, right):
        return None
    return f"the mean of the ranks' `loss` in {of_worst_step(found, right, 'the mean over all images of the step')}"


def evaluations(case):
    """Return [[(sum of the losses, correct images, images) of each rank] of each batch], with zeros where a rank has
    one batch less."""
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
            "that is the mean over this rank's images only: `sync_dist=True` averages over all ranks": (
                sums[:, rank].sum(axis=0) / images[:, rank].sum()
            ),
            "that is only this rank's part of the mean: `sync_dist=True` combines the parts of all ranks": (
                sums[:, rank].sum(axis=0) / total
            ),
            "that is the mean of the batches' means: weight each batch by its number of images (`batch_size`)": (
                means.mean(axis=(0, 1))
            ),
            "that is the sum of the batches' means": means.sum(axis=(0, 1)),
            "that is the sum over the images, not the mean": sums.sum(axis=(0, 1)),
            "the parts of the mean are averaged instead of summed (`reduce_fx`)": (sums * images).sum(axis=(0, 1))
            / total**2,
            "that is the sum of two evaluations: start each evaluation at zero": 2 * right,
        }
        if not criteria.close(found, right, SINGLE):
            problem = next(
                (sentence for sentence, values in wrong.items() if criteria.close(found, values, SINGLE)), ""
            )
            (loss, right_loss), (accuracy, right_accuracy) = map(criteria.distinct_digits, found, right)
            who = f"in a second evaluation, rank {rank}" if evaluation else f"rank {rank}"
            there = (
                f"{who} logs loss {loss} and accuracy {accuracy}, but over all images they are {right_loss} and"
                f" {right_accuracy}"
            )
            return criteria.with_reason(there, problem)
    return None


def shared_out(seen, case, expected):
    """Judge whether each loader yields all images once over all ranks, apart from those that fill the last batches."""
    for loader, images in (("train_loader", case["images"]), ("test_loader", TESTS)):
        numbers = [number for of_rank in seen for number in of_rank[loader]]
        if missing := set(range(images)).difference(numbers):
            return f"{len(missing)} of the {images} images of `{loader}` reach no rank: prepare each loader once"
        steps = -(-images // (BATCH * len(seen)))
        if len(numbers) > (steps * BATCH * len(seen) if len(seen) > 1 else images):
            return (
                f"`{loader}` yields {len(numbers)} images over all ranks, but it has {images}: prepare it, so that each"
                " rank gets a part"
            )
    return None


def _steps(case):
    return {"weights": Array((case["steps"], FEATURES + 1, CLASSES)), "losses": (float,) * case["steps"]}


ONE_BATCH = "the update equals that of one process with all images"
RANKS = {"ranks": 2, "replicas": 2, "equal": True, "steps": 2, "total": 8, "batchsize": 5}
STEP_CASES = (RANKS, RANKS | {"ranks_per_node": 1, "edge": "ranks on nodes of their own"})
LOSS = Criterion(
    "loss_of_the_images",
    "`loss` is the mean over the rank's images",
    1,
    mean_loss,
    "Set `loss` to F.cross_entropy(outputs, labels).",
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
                "the loader yields all images in each epoch, in a new order",
                2,
                of_pytorch.new_order_every_epoch,
                "Return DataLoader(self.train_set, self.args.batchsize, shuffle=True).",
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
                "Run forward and compute the mean loss. Lightning clears the gradients, runs backward and the"
                " optimizer step.",
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
                "the logged values are means over the images of all ranks",
                2,
                mean_of_all,
                "self.log averages over the batches of a rank; with sync_dist=True, it also averages over the ranks.",
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
                "accelerator.prepare returns the prepared objects in the order of its arguments.",
            ),
            Criterion(
                "every_image_once",
                "each rank gets its part of the images",
                1,
                shared_out,
                "Prepare both loaders: then they split their images among the ranks.",
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
                "Write the step of the DDP script, with accelerator.backward(loss) instead of loss.backward().",
            ),
            LOSS,
        ),
        observed=_steps,
    ),
)
