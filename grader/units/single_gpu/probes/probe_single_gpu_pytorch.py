"""The probe of the gap that only this unit's PyTorch script has."""

import numpy
import torch

from grader.probes.pytorch_scripts import GapInScript, NormalizingNetwork, dataset, flat
from grader.probes.script import StopScript
from grader.sandbox.rank import StudentMistake
from handson.words import a_kind


def gradients(case, parameters):
    """Return the gradients of some parameters in each update. They become smaller from parameter to parameter, so
    that a change of their length is visible."""
    generator = torch.Generator().manual_seed(case["seed"])
    return [
        [size * torch.randn(one.shape, dtype=torch.float64, generator=generator) for one in parameters]
        for size in range(case["updates"], 0, -1)
    ]


def optimizer(rank, ranks, source, case):
    """Return the parameters before and after case["updates"] updates with given gradients."""
    trace = []

    def see(names):
        if not isinstance(names.optimizer, torch.optim.Optimizer):
            raise StudentMistake(
                f"`optimizer` is {a_kind(names.optimizer)}, but it must be an optimizer of torch.optim"
            )
        parameters = list(names.model.parameters())
        if not all(parameter.requires_grad for parameter in parameters):
            raise StudentMistake(
                "your code freezes parameters of `model` (requires_grad is False), so they are not trained"
            )
        if not all(module.training for module in names.model.modules()):
            raise StudentMistake("your code puts `model` into evaluation mode, but the training needs training mode")
        trace.append(flat(parameters))
        for of_update in gradients(case, parameters):
            for parameter, gradient in zip(parameters, of_update):
                parameter.grad = gradient.to(parameter.dtype)
            names.optimizer.step()
            trace.append(flat(parameters))
        raise StopScript

    GapInScript(rank, ranks, source, case, dataset(4), kind=NormalizingNetwork, dtype=torch.float64).run(see)
    return {"parameters": numpy.stack(trace)}
