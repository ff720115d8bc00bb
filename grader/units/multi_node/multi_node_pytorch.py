"""The checks of train_cifar_multi_node.py, PyTorch."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.pytorch_gaps import device_of_rank, replica, run, sampler, shuffle, step_of_ranks, throughput
from grader.units.multi_node.evaluation import in_words

HERE = "grader.units.multi_node"


def of_whole_test_set(seen, case, expected):
    """Judge that on each rank, `evaluate` returns loss and accuracy of the whole test set, in each of two epochs."""
    for rank, of_rank in enumerate(seen):
        first, second = map(numpy.array, of_rank["found"])
        wrong = {name: value for name, value in expected.items() if name not in ("right", "second", "own")}
        own = f"rank {rank} returns the result of its own part: add up the sums over the ranks (`dist.all_reduce`)"
        if rank:
            own = (
                f"only rank 0 has the result of all ranks, and rank {rank} has that of its own part: `reduce` sends"
                " the sums to one rank, `all_reduce` to all"
                if criteria.close(seen[0]["found"][0], expected["right"], criteria.SINGLE)
                else own
            )
        problem = criteria.explained(first, expected["right"], {own: expected["own"][rank]} | wrong, criteria.SINGLE)
        if problem is not None:
            if not problem and numpy.isnan(first).any() and 0 in case["lengths"]:
                problem = (
                    "a rank without test images divides 0 by 0: add up the sums and the numbers of images of all"
                    " ranks, then divide"
                )
            parts = ", ".join(map(str, case["lengths"]))
            found, right = in_words(first, expected["right"])
            return criteria.with_reason(
                f"rank {rank} returns {found}, but the {sum(case['lengths'])} test images (per rank: {parts}) have"
                f" {right}",
                problem,
            )
        if not criteria.close(second, expected["second"], criteria.SINGLE):
            found, right = in_words(second, expected["second"])
            return (
                f"rank {rank} returns {found} after the second epoch, but the test images have {right}; the first"
                " epoch is right: does each evaluation reset its sums?"
            )
    return None


ON_TWO_NODES, TWO_ON_EACH = {"ranks": 2, "ranks_per_node": 1}, {"ranks": 4, "ranks_per_node": 2}
UNEVEN, IN_TURN = "a node with more ranks than the other", "ranks that the launcher places on the nodes in turn"
EVALUATE = Check(
    "evaluate",
    f"{HERE}.probes.probe_multi_node_pytorch:evaluate",
    (
        {"ranks": 4, "ranks_per_node": 2, "lengths": [5, 8, 3, 2], "batchsize": 3},
        {
            "ranks": 4,
            "ranks_per_node": 4,
            "lengths": [3, 0, 2, 1],
            "batchsize": 3,
            "edge": "a rank without a test image",
        },
    ),
    (
        Criterion(
            "whole_test_set",
            "`loss` and `accuracy` are those of the whole test set",
            2.5,
            of_whole_test_set,
            "`dist.all_reduce(tensor)` sums a tensor over the ranks.",
        ),
        Criterion(
            "empty_part",
            "a rank may have no test images",
            0.5,
            of_whole_test_set,
            "Add up the sums and the numbers of images of all ranks, then divide.",
            "whole_test_set",
            edge=True,
        ),
    ),
    oracle=f"{HERE}.oracles.oracle_multi_node_pytorch:evaluation",
    observed=lambda case: {"found": ((float, float), (float, float))},
)
CHECKS = (
    device_of_rank(
        TWO_ON_EACH | {"gpu": [3, 1]},
        TWO_ON_EACH | {"gpu": [3, 3]},
        {"ranks": 4, "ranks_per_node": 3, "gpu": [5, 2, 4], "edge": UNEVEN},
        TWO_ON_EACH | {"gpu": [2, 6], "in_turn": True, "edge": IN_TURN},
    ),
    sampler({"ranks": 4, "ranks_per_node": 2, "images": 42}),
    replica(
        TWO_ON_EACH | {"lengths": [1, 2, 2, 1], "batchsize": 2}, ON_TWO_NODES | {"lengths": [3, 4], "batchsize": 4}
    ),
    EVALUATE,
    shuffle(ON_TWO_NODES | {"images": 24, "batchsize": 6}),
    step_of_ranks(
        ON_TWO_NODES | {"lengths": [5, 8], "steps": 3, "lr": 0.1},
        TWO_ON_EACH | {"lengths": [3, 4, 2, 4], "steps": 3, "lr": 0.1},
    ),
    throughput(
        ON_TWO_NODES | {"lengths": [14, 14], "epochs": 3, "first_epoch": 0, "seconds": 12.5, "batchsize": 8},
        ON_TWO_NODES | {"lengths": [13, 13], "epochs": 4, "first_epoch": 0, "seconds": 8.0, "batchsize": 8},
    ),
    run("multi_node", ON_TWO_NODES | {"batchsize": 12}),
)
