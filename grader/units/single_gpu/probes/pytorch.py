"""The probe of the gap that only this unit's PyTorch script has."""

from types import SimpleNamespace

import numpy
import torch

from grader.probes.pytorch import flat, network
from grader.probes.student import Student


def optimizer(rank, ranks, source, case):
    """The parameters after three updates with given gradients."""
    model = network(case["seed"])
    names = Student(source).run(model=model, args=SimpleNamespace(lr=case["lr"]))
    generator = torch.Generator().manual_seed(case["seed"])
    trace = [flat(model.parameters())]
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator)
        names.optimizer.step()
        trace.append(flat(model.parameters()))
    return {"parameters": numpy.stack(trace)}
