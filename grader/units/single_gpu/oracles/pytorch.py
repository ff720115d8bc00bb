"""The parameters at the start and the gradients that the optimizer's probe uses, so that the criterion can compute the right updates."""

import numpy
import torch

from grader.probes.pytorch import NormalizingNetwork, flat, network, seed_of


def gradients(rank, ranks, case):
    """{"start": the parameters, "gradients": those that the probe sets (1, updates, parameters)}."""
    generator, model = torch.Generator().manual_seed(case["seed"]), network(seed_of(case), NormalizingNetwork)
    drawn = [[torch.randn(one.shape, dtype=torch.float64, generator=generator) for one in model.parameters()] for _ in range(case["updates"])]
    return {"start": flat(model.parameters()), "gradients": numpy.stack([flat(of_update) for of_update in drawn])[None]}
