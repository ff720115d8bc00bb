"""The checks of train_cifar_multi_node.py, PyTorch."""

from grader.checks import criteria, training
from grader.checks.check import Check, Criterion
from grader.checks.pytorch_gaps import device_of_rank, replica, run, shuffle, split, step_of_ranks, throughput
from grader.units.multi_node.evaluation import evaluates_all

HERE = "grader.units.multi_node"


def trains_on(seen, case, expected):
    if evaluating := [rank for rank, of_rank in enumerate(seen) if not of_rank["training"]]:
        return (
            f"after the evaluation the model of {criteria.ranks(evaluating)} is still in evaluation mode:"
            " `model.train()` must follow"
        )
    if moved := [rank for rank, of_rank in enumerate(seen) if of_rank["moved"]]:
        return (
            f"the evaluation has changed the {seen[moved[0]]['moved'][0]} on {criteria.ranks(moved)}: test images"
            " must not"
        )
    if off := [rank for rank, of_rank in enumerate(seen) if not of_rank["grad"]]:
        return (
            f"after the evaluation there are no gradients any more on {criteria.ranks(off)}: `with torch.no_grad()`"
            " switches them on again at its end"
        )
    return None


ON_TWO_NODES, TWO_ON_EACH = {"ranks": 2, "ranks_per_node": 1}, {"ranks": 4, "ranks_per_node": 2}
UNEVEN, IN_TURN = "a node with more ranks than the other", "ranks that the launcher deals to the nodes in turn"
EVALUATED = "loss and accuracy of the whole test set"
EVALUATOR = Check(
    "evaluator",
    f"{HERE}.probes.probe_multi_node_pytorch:evaluator",
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
            "whole_test_set", EVALUATED, 2, evaluates_all, "extensions.Evaluator has an option for parts on all ranks."
        ),
        Criterion(
            "training_goes_on",
            "training goes on as before",
            1,
            trains_on,
            "Evaluation must leave the model in training mode, and its statistics alone.",
            "whole_test_set",
        ),
    ),
    oracle=f"{HERE}.oracles.oracle_multi_node_pytorch:evaluation",
    observed=lambda case: training.EVALUATION | {"images": int, "training": bool, "moved": [str], "grad": bool},
)
CHECKS = (
    device_of_rank(
        TWO_ON_EACH | {"gpu": [3, 1]},
        TWO_ON_EACH | {"gpu": [3, 3]},
        {"ranks": 4, "ranks_per_node": 3, "gpu": [5, 2, 4], "edge": UNEVEN},
        TWO_ON_EACH | {"gpu": [2, 6], "in_turn": True, "edge": IN_TURN},
    ),
    split("scatter", {"ranks": 4, "ranks_per_node": 2, "images": 42, "another_seed": True}),
    replica(
        TWO_ON_EACH | {"lengths": [1, 2, 2, 1], "batchsize": 2}, ON_TWO_NODES | {"lengths": [3, 4], "batchsize": 4}
    ),
    EVALUATOR,
    shuffle(ON_TWO_NODES | {"lengths": [13, 11], "batchsize": 6}),
    step_of_ranks(
        ON_TWO_NODES | {"lengths": [5, 8], "batchsize": 5, "epochs": 2, "lr": 0.1},
        TWO_ON_EACH | {"lengths": [3, 4, 2, 4], "batchsize": 2, "epochs": 1, "lr": 0.1},
    ),
    throughput(
        ON_TWO_NODES | {"lengths": [12, 15], "epochs": 3, "first_epoch": 0, "seconds": 12.5, "batchsize": 8},
        ON_TWO_NODES | {"lengths": [15, 12], "epochs": 4, "first_epoch": 2, "seconds": 8.0, "batchsize": 8},
    ),
    run("multi_node", ON_TWO_NODES | {"batchsize": 13}),
)
