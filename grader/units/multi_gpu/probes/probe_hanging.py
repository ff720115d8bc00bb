"""The probe of hanging.py."""

from numbers import Real

import torch

from grader.probes.count_collectives import Collectives
from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import join
from grader.sandbox.rank import StudentMistake


def report(rank, ranks, source, case):
    """Return the content of a rank's `log` after some epochs. case["losses"]: for each epoch, the loss of each rank."""
    join(rank, ranks)
    student, log = GapCode(source), []
    for of_ranks in case["losses"]:
        with Collectives().noted(all_ended=True):
            student.run(log=log, loss=torch.tensor(of_ranks[rank]))
    if others := [type(loss).__name__ for loss in log if not isinstance(loss, Real)]:
        raise StudentMistake(f"`log` gets a {others[0]}, not a float: `.item()` returns the number in a tensor")
    return {"log": [float(loss) for loss in log]}
