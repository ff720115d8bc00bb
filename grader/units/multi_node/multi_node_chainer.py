"""The checks of train_cifar_multi_node.py, Chainer."""

from grader.checks import criteria, sgd, training
from grader.checks.chainer_gaps import CONVERTED, PROBES, UPDATE, iterator, optimizer, run, throughput, updater
from grader.checks.check import Check, Criterion
from grader.units.multi_node.evaluation import evaluates_all

HERE = "grader.units.multi_node"


def training_parts(seen, case, expected):
    parts, images = [of_rank["train"] for of_rank in seen], case["images"]
    lengths = [len(part) for part in parts]
    if len(parts) > 1 and all(sorted(part) == sorted(parts[0]) for part in parts):
        return f"all {len(parts)} ranks have the same {lengths[0]} images: give each rank its own part"
    if missing := sorted(set(range(images)) - {sample for part in parts for sample in part}):
        return f"{len(missing)} of {images} training images are on no rank ({criteria.first_few(missing)})"
    if len(set(lengths)) > 1:
        return (
            f"the ranks have {', '.join(map(str, lengths))} training images, so ranks with more images run more steps"
            " and deadlock: make the training parts equally long (force_equal_length)"
        )
    if sum(lengths) - images >= len(parts):
        return (
            f"{sum(lengths) - images} training images are used more than once: this number must be smaller than the"
            " number of ranks"
        )
    return None


def scattered_at_random(seen, case, expected):
    runs = [[of_rank[run] for of_rank in seen] for run in ("train", "again", "other")]
    if problem := criteria.dealt_at_random(runs[0], runs[2]):
        return problem
    if runs[0] != runs[1]:
        return "two runs with the same args.seed distribute the images differently: pass the seed to scatter_dataset"
    return (
        ("another args.seed distributes the images in the same way: pass the seed to scatter_dataset")
        if runs[0] == runs[2]
        else None
    )


def test_images_once(seen, case, expected):
    parts = [of_rank["test"] for of_rank in seen]
    problem = criteria.partition(parts, case["test_images"])
    if problem and "more than once" in problem:
        problem += " (with force_equal_length, some test images count twice in the result)"
    return problem and f"test set: {problem}"


def equal_after_updates(seen, case, expected):
    return training.ranks_stay_equal([{"parameters": of_rank["parameters"][1:]} for of_rank in seen], case, expected)


def only_evaluates(seen, case, expected):
    if problem := evaluates_all(seen, case, expected):
        return problem
    if training := [rank for rank, of_rank in enumerate(seen) if of_rank["training"]]:
        return (
            "test images go through the network in training mode (chainer.config.train) on"
            f" {criteria.ranks(training)}, so batch normalisation learns from them: evaluate in test mode"
        )
    if moved := [rank for rank, of_rank in enumerate(seen) if of_rank["moved"]]:
        return f"the evaluation changes the parameters on {criteria.ranks(moved)}, but it must only read them"
    return None


DEVICE_OF_RANK = Check(
    "device",
    f"{PROBES}:device",
    (
        {"ranks": 4, "ranks_per_node": 2, "gpu": [3, 1]},
        {"ranks": 2, "ranks_per_node": 1, "gpu": [3, 2]},
        {"ranks": 4, "ranks_per_node": 3, "gpu": [5, 2, 4], "edge": "a node with more ranks than the other"},
        {
            "ranks": 4,
            "ranks_per_node": 2,
            "gpu": [2, 6],
            "in_turn": True,
            "edge": "ranks that the launcher places on the nodes in turn",
        },
    ),
    (
        Criterion(
            "gpu_of_rank",
            "`device` is the rank's own GPU on its node",
            1,
            training.right_gpu,
            "`comm.intra_rank` is the rank's number on its node.",
        ),
    ),
    observed=lambda case: {"gpu": object},
)
BIG_BATCH = Criterion(
    "one_big_batch",
    "an update equals that of one big batch",
    1.5,
    sgd.updates("Chainer"),
    "The multi-node optimizer averages the gradients over the ranks.",
)
BUFFERED = Criterion(
    "double_buffering",
    "args.double_buffering switches double buffering on",
    0.5,
    sgd.updates("Chainer", double_buffering=True),
    "`create_multi_node_optimizer` has an argument `double_buffering`. The option is args.double_buffering.",
    "one_big_batch",
)
RETURNED = "`create_multi_node_optimizer(optimizer, comm)` returns the optimizer to use."
EQUAL = Criterion(
    "equal_parameters", "the parameters stay equal on all ranks", 1, equal_after_updates, RETURNED, "one_big_batch"
)
EQUAL_PARTS = "the training parts are equally long"
SCATTER = Check(
    "scatter",
    f"{HERE}.probes.probe_multi_node_chainer:scatter",
    (
        {"ranks": 3, "ranks_per_node": 2, "images": 44, "test_images": 10},
        {"ranks": 3, "ranks_per_node": 3, "images": 23, "test_images": 2, "edge": "a rank without a test image"},
    ),
    (
        Criterion(
            "equal_training_parts",
            EQUAL_PARTS,
            1,
            training_parts,
            "`chainermn.scatter_dataset` makes parts of equal length by default.",
        ),
        Criterion(
            "at_random",
            "the images are distributed at random",
            1,
            scattered_at_random,
            "`scatter_dataset` has the arguments `shuffle` and `seed`.",
            "equal_training_parts",
        ),
        Criterion(
            "every_test_image_once",
            "every test image is on exactly one rank",
            1,
            test_images_once,
            "`scatter_dataset(..., force_equal_length=False)` repeats no image.",
        ),
    ),
    observed=lambda case: dict.fromkeys(("train", "test", "again", "other"), [int]),
)
EVALUATOR = Check(
    "evaluator",
    f"{HERE}.probes.probe_multi_node_chainer:evaluator",
    (
        {"ranks": 3, "ranks_per_node": 2, "lengths": [4, 7, 3], "batchsize": 3},
        {"ranks": 3, "ranks_per_node": 3, "lengths": [4, 2, 0], "batchsize": 3, "edge": "a rank without a test image"},
    ),
    (
        Criterion(
            "whole_test_set",
            "`evaluator` reports the mean over the whole test set",
            2.5,
            only_evaluates,
            "chainermn.create_multi_node_evaluator(evaluator, comm)",
        ),
        Criterion(
            "empty_part",
            "a rank may have no test images",
            0.5,
            only_evaluates,
            "Add up the sums and the numbers of images of all ranks, then divide.",
            "whole_test_set",
            edge=True,
        ),
    ),
    oracle=f"{HERE}.oracles.oracle_multi_node_chainer:evaluation",
    observed=lambda case: training.EVALUATION | {"training": bool, "moved": bool},
)
ON_TWO_NODES = {"ranks": 2, "ranks_per_node": 1}
CHECKS = (
    DEVICE_OF_RANK,
    SCATTER,
    iterator(ON_TWO_NODES | {"images": 23, "batchsize": 5}),
    optimizer(
        (EQUAL, BIG_BATCH, BUFFERED),
        {"ranks": 3, "ranks_per_node": 2, "updates": 4, "lr": 0.037, "batchsize": 8},
        ON_TWO_NODES
        | {"updates": 5, "lr": 0.037, "batchsize": 8, "double_buffering": True, "edge": "--double-buffering"},
    ),
    updater((UPDATE, CONVERTED), ON_TWO_NODES | {"batchsize": 4, "updates": 3, "lr": 0.037}),
    EVALUATOR,
    throughput(
        {
            "ranks": 3,
            "ranks_per_node": 2,
            "lengths": [25, 25, 25],
            "batchsize": 7,
            "epochs": 4,
            "first_epoch": 0,
            "seconds": 12.5,
        },
        ON_TWO_NODES | {"lengths": [24, 24], "batchsize": 6, "epochs": 5, "first_epoch": 2, "seconds": 8.0},
    ),
    run("multi_node", workers=2, batchsize=12, epochs=3, **ON_TWO_NODES),
)
