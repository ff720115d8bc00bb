"""The checks of the scripts of Lightning and Accelerate: whatever the system, the weights after each step are those of
one big batch, each image is used once, and an evaluation is one of all images."""

import itertools

import numpy

from grader.checks import criteria
from grader.checks import pytorch_gaps as of_pytorch
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.units.frameworks.frameworks_numbers import CLASSES, FEATURES, TESTS, evaluated, start
from grader.units.frameworks.replicas import NOT_BY_OPTIMIZER, kept, of_worst_step, scaled_mean, trained

PROBES = "grader.units.frameworks.probes.probe_translated:"
SINGLE = 1e-6  # counts of images are in single precision


def mean_of_means(sums, counts):
    return sum(one / count for one, count in zip(sums, counts)) / len(sums)


def mistakes(case):
    """{a sentence on a misconception: what it makes of the ranks' sums of gradients and their numbers of images}."""
    ranks, total = case["replicas"], case["total"]
    return {
        (
            "each rank's mean counts the same, however many images it has: take the sum over its images, times the"
            " number of ranks, by `total`"
        ): (mean_of_means),
        "each rank divides by its own number of images, and the mean over the ranks is undone: divide by `total`": (
            lambda sums, counts: ranks * mean_of_means(sums, counts)
        ),
        (
            f"the steps are {ranks} times too small: DDP divides the sum over the ranks by their number, so multiply"
            f" the loss by it"
        ): scaled_mean(1 / ranks),
        (
            f"the steps are {ranks} times too large: DDP adds the gradients up and divides them by the number of"
            f" ranks already"
        ): scaled_mean(ranks),
        "the sum of the losses is divided by nothing: divide by `total`": scaled_mean(total),
        "the sum of a rank's losses is divided by nothing: divide by `total`, and multiply by the number of ranks": (
            scaled_mean(total / ranks)
        ),
        "the sum is divided by args.batchsize, but batches can be smaller: divide by `total`": scaled_mean(
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
    return _judged(seen, case, kept(scaled_mean(1)), wrong | {NOT_BY_OPTIMIZER: scaled_mean(1)})


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
    return _judged(seen, case, kept(right), wrong)


def _judged(seen, case, right, wrong):
    if problem := criteria.equal_on_all_ranks([of_rank["weights"] for of_rank in seen], "after the steps parameters"):
        return f"{problem}: the images must go through `replica`, which is prepared and averages the gradients"
    found = seen[0]["weights"]
    due, _ = trained(case, right)
    if criteria.close(found, due):
        return None
    for sentence, combine in wrong.items():
        if criteria.close(found, trained(case, combine)[0]):
            return sentence
    return (
        f"after {case['steps']} steps the parameters differ by up to {numpy.abs(found - due).max():.2g} from those of"
        " one process with all images of each step"
    )


def mean_loss(seen, case, expected):
    _, right = trained(case, kept(scaled_mean(1)))
    found = numpy.mean([of_rank["losses"] for of_rank in seen], axis=0)
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
    means, total = sums / numpy.maximum(images, 1), images.sum()  # a rank may have no images in the last batch
    rounded = total // case["ranks"] * case["ranks"]  # Lightning's number of all images, where they count as weights
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
            "parts of the mean are averaged, and not added up (`reduce_fx`)": (
                (sums * images).sum(axis=(0, 1)) / total / rounded
            ),
            (
                "Lightning weighs the ranks' means by whole numbers, and rounds: log parts of the mean, which it"
                " adds up (`reduce_fx`)"
            ): (sums.sum(axis=(0, 1)) / rounded),
            "each rank's mean counts the same, however many images it has": (
                (sums.sum(axis=0) / images.sum(axis=0)).mean(axis=0)
            ),
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


def each_once(seen, case, expected):
    if problem := criteria.partition([of_rank["used"] for of_rank in seen], case["images"]):
        return problem
    for rank, of_rank in enumerate(seen):
        if of_rank["tested"] != (due := len(range(rank, TESTS, len(seen)))):
            return (
                f"`test_loader` gives rank {rank} {of_rank['tested']} images of its part, which has {due}: it has this"
                " rank's images already, so leave it as it is"
            )
    return None


def _steps(case):
    return {"weights": Array((case["steps"], FEATURES + 1, CLASSES)), "losses": (float,) * case["steps"]}


ONE_BATCH, EACH_ONCE, EACH_IMAGE = (
    "the step of one big batch",
    "each image of the loader once",
    "each image on one rank",
)
RANKS = {"ranks": 2, "replicas": 2, "steps": 2, "total": 7, "batchsize": 5}
LOSS = Criterion(
    "loss_of_the_images",
    "a loss whose mean over the ranks is that of the images",
    1,
    mean_loss,
    'F.cross_entropy(..., reduction="sum") * ranks / total',
    needs="one_big_batch",
)
LIGHTNING = (
    Check(
        "shard",
        PROBES + "shard",
        ({"ranks": 2, "ranks_per_node": 1, "images": 25},),
        (
            Criterion(
                "every_image_on_one_rank",
                EACH_IMAGE,
                2,
                of_pytorch.partition,
                "random_split with the same seed everywhere; self.trainer.global_rank and .world_size are Lightning's"
                " names.",
            ),
            Criterion(
                "parts_equal_size",
                "parts of equal size",
                1,
                of_pytorch.balanced,
                "[Fraction(1, size)] * size",
                needs="every_image_on_one_rank",
            ),
            Criterion(
                "at_random",
                "random parts, by the seed",
                1,
                of_pytorch.at_random,
                "torch.Generator().manual_seed(self.args.seed)",
                needs="every_image_on_one_rank",
            ),
            Criterion(
                "lengths_of_all",
                "the lengths of all parts",
                1,
                of_pytorch.lengths_of_all,
                "[len(other) for other in shards]",
                needs="every_image_on_one_rank",
            ),
        ),
        observed=lambda case: {"samples": [int], "lengths": [int], "again": [int], "other": [int]},
    ),
    Check(
        "average",
        PROBES + "average",
        (RANKS, RANKS | {"totals": [7, 6], "ranks_per_node": 1, "edge": "ranks on nodes of their own"}),
        (
            Criterion(
                "one_big_batch",
                ONE_BATCH,
                2,
                as_one_batch,
                "The sum over this rank's images, times self.trainer.world_size, by total.",
            ),
            LOSS,
        ),
        observed=_steps,
    ),
    Check(
        "validation",
        PROBES + "validation",
        (
            {"ranks": 2, "images": 21, "batchsize": 4, "evaluations": 2},  # which 2 ranks can't share evenly
            {"ranks": 2, "images": 17, "batchsize": 4, "edge": "a rank that has one batch less"},
        ),
        (
            Criterion(
                "mean_over_all_images",
                "the mean over the images of all ranks",
                2,
                mean_of_all,
                'reduce_fx="sum" adds up the batches, and with sync_dist=True the ranks: log parts of the mean.',
            ),
        ),
        observed=lambda case: {"found": ((float, float),) * case.get("evaluations", 1)},
    ),
)
ACCELERATE = (
    Check(
        "prepare",
        PROBES + "prepare",
        ({"ranks": 2, "replicas": 2, "steps": 3, "total": 7, "images": 13},),
        (
            Criterion(
                "one_big_batch",
                ONE_BATCH,
                2,
                prepared,
                "accelerator.prepare(model, optimizer) returns both, in this order.",
            ),
            Criterion(
                "every_image_once",
                EACH_ONCE,
                1,
                each_once,
                "train_loader has the images of this rank already: a prepared one would divide them once more.",
                needs="one_big_batch",
            ),
        ),
        observed=lambda case: {"weights": Array((case["steps"], FEATURES + 1, CLASSES)), "used": [int], "tested": int},
    ),
    Check(
        "step",
        PROBES + "step",
        (RANKS, RANKS | {"ranks_per_node": 1, "edge": "ranks on nodes of their own"}),
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
