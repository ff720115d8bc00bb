"""The probe of the gap that only this unit's PyTorch script has."""

import numpy
import torch

from grader.box.rank import Wrong
from grader.probes.pytorch import NormalizingNetwork, Place, dataset, flat
from grader.probes.script import Enough


def optimizer(rank, ranks, source, case):
    """The parameters before and after updates with given gradients: case["updates"] of them."""
    trace = []

    def see(names):
        if not isinstance(names.optimizer, torch.optim.Optimizer):
            raise Wrong(f"`optimizer` is a {type(names.optimizer).__name__}, which is no optimizer of torch.optim")
        model, generator = names.model, torch.Generator().manual_seed(case["seed"])
        trace.append(flat(model.parameters()))
        for _ in range(case["updates"]):
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator)
            names.optimizer.step()
            trace.append(flat(model.parameters()))
        raise Enough

    Place(rank, ranks, source, case, dataset(4), kind=NormalizingNetwork).run(see)
    return {"parameters": numpy.stack(trace)}
