"""The probe of the gap that only this unit's PyTorch script has, and the parts of it that the probe of Chainer's
evaluator shares."""

import torch
import torch.nn.functional as F

from grader.probes.gap_code import RETURNED, GapCode
from grader.probes.pytorch_scripts import SIZE, enlarge, examples, join, network, part
from grader.probes.script import causes
from grader.sandbox.rank import StudentMistake
from handson.words import a_kind

# the weights are multiplied by it before the first evaluation, and twice before the second, like trained weights
TRAINED = 0.5


def sums(case, trained, rank):
    """Return the summed loss and the number of right answers of a rank's part of the test set."""
    model, mine = network(case["seed"]), part(examples(sum(case["lengths"]), case["seed"]), case["lengths"], rank)
    with torch.no_grad():
        model[-1].weight *= trained
        outputs = model(enlarge(mine.images))
    loss = F.cross_entropy(outputs, mine.labels, reduction="sum")
    return loss.item(), (outputs.argmax(dim=1) == mine.labels).sum().item()


def evaluate(rank, ranks, source, case):
    """Return `loss` and `accuracy` of `evaluate` on this rank after each of two epochs ("found"). The ranks have
    unequal parts of the test set."""
    join(rank, ranks, case["ranks_per_node"])
    gap, found = GapCode(source), []
    mine = part(examples(sum(case["lengths"]), case["seed"]), case["lengths"], rank)
    loader = torch.utils.data.DataLoader(mine, case["batchsize"])
    given = {"model": network(case["seed"]), "loader": loader, "device": torch.device("cpu"), "size": SIZE}
    for epoch in (1, 2):
        loss_sum, correct = sums(case, TRAINED**epoch, rank)
        with torch.no_grad(), causes():
            names = gap.run(**given, loss_sum=loss_sum, correct=correct)
        returned = names[RETURNED] if RETURNED in names else (names.loss, names.accuracy)
        try:
            found.append([float(number) for number in returned])
        except (TypeError, ValueError):
            raise StudentMistake(
                f"`loss` and `accuracy` are {returned!r:.60} on this rank, but they must be two numbers"
            ) from None
    return {"found": found}


def reported(observed):
    """Return [loss, accuracy] from an evaluator's report {key: value}. Raises StudentMistake if one of them is
    missing or occurs twice."""
    found = {
        name: [float(value) for key, value in observed.items() if key.endswith(name)] for name in ("loss", "accuracy")
    }
    for name, values in found.items():
        if len(values) != 1:
            raise StudentMistake(
                f"`evaluator` must report one {name}, but it reports {', '.join(map(str, observed)) or 'nothing'}"
            )
    return found["loss"] + found["accuracy"]


def called_once_an_epoch(evaluator, get_trigger, interval):
    """Raise StudentMistake if `evaluator` cannot be called, or if `extend` would call it at another interval.
    get_trigger, interval: the function and the class of the track."""
    if not callable(evaluator):
        raise StudentMistake(f"`evaluator` is {a_kind(evaluator)}, which is not an evaluator")
    trigger = get_trigger(getattr(evaluator, "trigger", (1, "iteration")))
    if isinstance(trigger, interval) and (trigger.period, trigger.unit) != (1, "epoch"):
        raise StudentMistake(
            f"`evaluator` is called every {trigger.period:g} {trigger.unit}(s), but the table needs it after each"
            " epoch: its trigger must be (1, 'epoch')"
        )
