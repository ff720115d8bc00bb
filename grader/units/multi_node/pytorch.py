"""The checks of train_cifar_multi_node.py, PyTorch."""

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.pytorch import DEVICE_OF_RANK, PROBES, REPLICA, SHUFFLE, SPLIT_CRITERIA, STEP_OF_RANKS, THROUGHPUT_OF_RANKS, run
from grader.units.multi_node.evaluation import evaluates_all

HERE = "grader.units.multi_node"


def trains_on(seen, case, expected):
    if evaluating := [rank for rank, of_rank in enumerate(seen) if not of_rank["training"]]:
        return f"after the evaluation the model of {criteria.ranks(evaluating)} is still in evaluation mode: `model.train()` must follow"
    if moved := [rank for rank, of_rank in enumerate(seen) if of_rank["moved"]]:
        return f"the evaluation has changed the running statistics of batch normalisation on {criteria.ranks(moved)}: test images must not"
    return None


SCATTER = Check("scatter", f"{PROBES}:split", ({"ranks": 4, "images": 42, "dealt": True},), SPLIT_CRITERIA)
EVALUATOR = Check(
    "evaluator",
    f"{HERE}.probes.pytorch:evaluator",
    ({"ranks": 3, "lengths": [8, 5, 2], "batchsize": 3},),
    (
        Criterion("loss and accuracy of the whole test set", 2, evaluates_all, "extensions.Evaluator has an option for parts on all ranks."),
        Criterion("training goes on as before", 1, trains_on, "Evaluation must leave the model in training mode, and its statistics alone."),
    ),
    oracle=f"{HERE}.oracles.pytorch:evaluation",
)
CHECKS = (
    DEVICE_OF_RANK,
    SCATTER,
    REPLICA,
    EVALUATOR,
    SHUFFLE,
    STEP_OF_RANKS,
    THROUGHPUT_OF_RANKS,
    run("multi_node", {"ranks": 4, "ranks_per_node": 2, "batchsize": 7}),
)
