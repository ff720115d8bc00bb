"""The parameters at the start and the gradients that the optimizer's probe uses, so that the criterion can compute the
right updates."""

import numpy

from grader.probes.pytorch_scripts import NormalizingNetwork, flat, network, seed_of
from grader.units.single_gpu.probes import probe_single_gpu_pytorch as probes


def gradients(rank, ranks, case):
    """Return {"start": the parameters, "gradients": those that the probe sets (1, updates, parameters)}."""
    parameters = list(network(seed_of(case), NormalizingNetwork).parameters())
    return {
        "start": flat(parameters),
        "gradients": numpy.stack(list(map(flat, probes.gradients(case, parameters))))[None],
    }
