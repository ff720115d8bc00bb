"""The final parameters of runs with a restart: an exact run, and runs that lose a part of the state. All ranks run in
one process."""

import copy

import torch

from grader.probes.pytorch_scripts import flat
from grader.units.communication.probes.probe_restarts import Run

LOST = {
    "the model is lost: it starts again": ("model",),
    "the optimizer's momentum is lost: it starts again at 0": ("optimizer",),
    "the residuals are lost: the gradients that were not sent yet are never sent": ("residuals",),
    "only the residual of the first bucket is restored: each bucket has a residual": ("residuals but the first",),
    "the position in the epoch is lost: images of this epoch are used again": ("batches",),
    "the random numbers start again: the state of each rank's generator is lost": ("random",),
    "all ranks resume with the residuals of rank 0: each rank has its own residuals": ("residuals of rank 0",),
    "all ranks resume with the random numbers of rank 0: each rank has its own random numbers": ("random of rank 0",),
    "residuals and random numbers are lost: a checkpoint also needs the state of each rank": ("residuals", "random"),
    "only the model is restored: restore all five parts": ("optimizer", "residuals", "batches", "random"),
}


def restart(rank, ranks, case):
    """Return {"right" or the sentence of a loss: the final parameters}."""
    return {"right": _train(case, None)} | {sentence: _train(case, lost) for sentence, lost in LOST.items()}


def _train(case, lost):
    runs, randoms = [], []
    for rank in range(case["ranks"]):
        runs.append(Run(case, rank))
        randoms.append(torch.get_rng_state())
    for step in range(case["steps"]):
        if step == case["stop"] and lost is not None:
            runs, randoms = _restarted(case, runs, randoms, lost)
        sent = []
        for rank, run in enumerate(runs):
            torch.set_rng_state(randoms[rank])
            sent.append(run.sent())
            randoms[rank] = torch.get_rng_state()
        for run in runs:
            run.update(sum(sent) / case["ranks"])
    return flat(runs[0].model.parameters())


def _restarted(case, runs, randoms, lost):
    fresh, states = [], []
    shared = copy.deepcopy(runs[0].state()[0])
    for rank in range(case["ranks"]):
        source = 0 if "residuals of rank 0" in lost else rank
        residuals = {} if "residuals" in lost else copy.deepcopy(runs[source].residuals)
        if "residuals but the first" in lost:
            residuals = {0: residuals[0]}
        run = Run(case, rank)
        begun = torch.get_rng_state()
        begin, _ = copy.deepcopy(run.state())
        run.restore(
            {name: begin[name] if name in lost else value for name, value in copy.deepcopy(shared).items()},
            {"residuals": residuals, "random": begun},
        )
        fresh.append(run)
        states.append(begun if "random" in lost else randoms[0 if "random of rank 0" in lost else rank])
    return fresh, states
