"""The probe of hanging.py."""

import torch

from grader.probes.pytorch import join
from grader.probes.student import Student


def report(rank, ranks, source, case):
    """What is in a rank's `log` after some epochs. case["losses"]: in each epoch, the loss of each rank."""
    join(rank, ranks)
    student, log = Student(source), []
    for of_ranks in case["losses"]:
        student.run(log=log, loss=torch.tensor(of_ranks[rank], dtype=torch.float64))
    return {"log": [float(loss) for loss in log]}
