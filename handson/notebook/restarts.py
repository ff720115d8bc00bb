"""Kills a node of a job, and compares how runs of train_restarts.py ended: for notebook 05_communication."""

import os
import shutil
import signal
import time
from pathlib import Path

import numpy

from handson.cluster.follow import wait_until_it_runs
from handson.errors import OneSentence
from handson.notebook.plots import _axes, picture

LIMIT = 300  # seconds for a job that runs to write its first checkpoint


class NotKilled(OneSentence, RuntimeError):
    """Why no node was killed."""


def begin_anew(folder):
    """Remove what an earlier run has left in a folder of results: train_restarts.py would go on from its checkpoint."""
    shutil.rmtree(folder, ignore_errors=True)


def kill_node(job, node, checkpoint, limit=LIMIT, say=print):
    """Wait until `checkpoint` is there, then kill all processes that the job has on a node, as a power cut does. Raises
    NotKilled.

    Not its first node: the job script itself runs there, and the job would end. It finds the nodes of the embedded PBS,
    whose processes are on this machine.
    """
    wait_until_it_runs(job)
    end = time.monotonic() + limit
    while not Path(checkpoint).exists():
        if time.monotonic() > end:
            raise NotKilled(
                f"job {job} has written no {checkpoint} in {limit} seconds: look at its output, and submit it again"
            )
        time.sleep(0.05)
    killed = [process for process in _processes(job, node) if _kill(process)]
    if not killed:
        cluster = f"on a cluster, kill torchrun and its rank there by hand (`ssh {node}`)"
        raise NotKilled(
            f"no process of job {job} on {node} was found on this machine: if it has ended, submit it again; {cluster}"
        )
    say(f"{node} is dead: {len(killed)} processes were killed")


def _processes(job, node):
    """The processes of a job that run on a node: those whose environment says so."""
    import psutil

    found, number = [], str(job).split(".")[0]
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except psutil.Error:  # it has ended, or is somebody else's
            continue
        if environment.get("PBS_JOBID", "").split(".")[0] == number and environment.get("HANDSON_NODE") == node:
            found.append(process)
    return found


def _kill(process):
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def differences(one, other):
    """The largest difference between two checkpoints: name of a part -> number; of the residuals, for each rank."""
    import torch

    first, second = (torch.load(Path(folder, "checkpoint.pt"), weights_only=True) for folder in (one, other))
    found = {
        part: _largest(first["shared"][part], second["shared"][part]) for part in ("model", "optimizer", "batches")
    }
    for rank, (mine, theirs) in enumerate(zip(first["own"], second["own"], strict=True)):
        for part in ("residuals", "random"):
            found[f"{part} of rank {rank}"] = _largest(mine[part], theirs[part])
    return found


def _largest(one, other):
    """The largest difference between two nests of dictionaries and lists of tensors and numbers; infinite where their
    forms differ."""
    if isinstance(one, dict):
        return (
            max((_largest(one[name], other[name]) for name in one), default=0.0)
            if one.keys() == other.keys()
            else numpy.inf
        )
    if isinstance(one, (list, tuple)):
        return max(map(_largest, one, other), default=0.0) if len(one) == len(other) else numpy.inf
    if hasattr(one, "shape"):
        if one.shape != other.shape:
            return numpy.inf
        return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0
    if isinstance(one, (int, float)) and not isinstance(one, bool):
        return abs(one - other)
    return 0.0 if one == other else numpy.inf


def lost_shares(lost_share, checkpoint, betweens):
    """The share of the time that is lost against the seconds between two checkpoints, a line for each number of seconds
    between failures."""
    intervals = numpy.geomspace(2 * checkpoint, 3e5, 120)
    drawing, (axes,) = _axes(7, 3.4)
    words = []
    for line, between in zip(("-", "--", ":"), betweens):
        shares = numpy.array([lost_share(interval, checkpoint, between) for interval in intervals])
        best = int(shares.argmin())
        axes.plot(
            intervals, 100 * shares, color="black", linestyle=line, label=f"a failure every {between / 3600:g} hours"
        )
        axes.plot(intervals[best], 100 * shares[best], "o", color="#D55E00", markersize=7)
        words.append(
            f"a failure every {between / 3600:g} hours: best every {intervals[best]:.0f} s, {100 * shares[best]:.1f} %"
            " lost"
        )
    axes.set(
        xscale="log",
        ylim=(0, 40),
        xlabel="seconds between two checkpoints",
        ylabel="share of the time that is lost [%]",
    )
    axes.legend(fontsize="small", edgecolor="none", loc="upper center", bbox_to_anchor=(0.4, 1.0))
    return picture(
        drawing, "Share of the time that is lost against the seconds between checkpoints; " + "; ".join(words) + "."
    )
