"""How trainings with restarts end: the one that nothing interrupts, and those that lose something. All ranks in one
process."""

import copy

import torch

from grader.probes.pytorch_scripts import flat
from grader.units.communication.probes.probe_restarts import Run

LOST = {
    "the model begins anew": ("model",),
    "the optimizer's momentum is lost: after the restart it begins at 0": ("optimizer",),
    "the residuals are lost: what the ranks still owed before the restart is never sent": ("residuals",),
    "only the first bucket's residual comes back: each bucket has one": ("residuals but the first",),
    "the position in the epoch is lost: after the restart, images of this epoch are taken again": ("batches",),
    "the random numbers begin anew: the state of each rank's generator is lost": ("random",),
    "all ranks go on with the residuals of rank 0: each rank has its own": ("residuals of rank 0",),
    "all ranks go on with the random numbers of rank 0: each rank has its own": ("random of rank 0",),
    "residuals and random numbers are lost: a checkpoint needs what each rank has for itself, too": (
        "residuals",
        "random",
    ),
    "only the model comes back": ("optimizer", "residuals", "batches", "random"),
}


def restart(rank, ranks, case):
    """{"right" or the sentence of a loss: the parameters at the end}."""
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
