"""The gradients that the optimizer's probe uses, so that the criterion can compute the right updates from them."""

import numpy
import torch

from grader.probes.pytorch import flat, network


def gradients(rank, ranks, case):
    """The gradients that the optimizer's probe sets, (updates, parameters)."""
    generator = torch.Generator().manual_seed(case["seed"])
    shapes = [parameter.shape for parameter in network(case["seed"]).parameters()]
    return {"gradients": numpy.stack([flat(torch.randn(s, dtype=torch.float64, generator=generator) for s in shapes) for _ in range(3)])}
