"""Pipelines of two stages: the part of the bubble's throughput that they reach, and what 1F1B holds. `model_parallel` measures them."""

import os
import statistics
import subprocess
import sys
from pathlib import Path

from handson.notebook import communication, pipelined
from tests.bench.runs import LIMIT, ROOT

SCRIPT = ROOT / "solutions/06_model_parallel/pytorch/train_pipeline.py"
STAGES, MICRO_BATCHES, TURNS = 2, 8, 5
METHODS = ("gpipe", "1f1b", "torch-gpipe", "torch-1f1b")
BUBBLE = (STAGES - 1) / (MICRO_BATCHES + STAGES - 1)
LARGE = ("--epoch", "1", "--batchsize", "128", "--width", "256", "--size", "16", "--micro-batches", str(MICRO_BATCHES))  # messages are cheap beside the products


def rows(folder):
    """Rows (what, value, target). In each turn: one process alone, two that share nothing, and the pipelines."""
    shares = {method: [] for method in METHODS}
    for turn in range(TURNS):
        out = folder / f"pipelines{turn}"
        [alone] = _runs([(1, "naive", out / "alone")])
        both = _runs([(1, "naive", out / f"both{number}") for number in range(STAGES)], pinned=True)
        cores = sum(run.throughput for run in both) / alone.throughput
        _start(STAGES, METHODS, out / "pipelines").wait(LIMIT)
        for method, [run] in communication.trainings(out / "pipelines").items():
            shares[method].append(run.throughput / alone.throughput / (cores * (1 - BUBBLE)))
    found = [
        (f"throughput of {method}, of what the bubble allows on these cores", f"{statistics.median(of_method):.2f}", "at least 0.9" if "torch" not in method else "for comparison")
        for method, of_method in shares.items()
    ]
    return [*found, *_held(folder)]


def _held(folder):
    """What each stage of four holds with 1F1B, as a multiple of what one micro-batch needs with GPipe."""
    _start(4, ("gpipe", "1f1b"), folder / "held", "--gpu-memory", "unlimited").wait(LIMIT)
    gpipe, alternating = (pipelined.held(folder / f"held/{method}_0") for method in ("gpipe", "1f1b"))
    held = [MICRO_BATCHES * one / all_of_them for one, all_of_them in zip(alternating, gpipe)]
    words = ", ".join(f"{one:.2f}" for one in held)
    return [("micro-batches whose activations stage 0 of 4 holds with 1F1B, by their bytes", f"{held[0]:.2f}", f"at most 4.2; all stages: {words}")]


def _start(ranks, methods, out, *more, launcher=()):
    command = [*launcher, Path(sys.executable).with_name("mpiexec"), "-n", str(ranks), sys.executable, SCRIPT, "-o", out, "--method", *methods, *LARGE, *more]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.Popen(list(map(str, command)), env=environment, stdout=subprocess.DEVNULL)


def _runs(asked, pinned=False):
    """The Results of runs (ranks, method, folder) at the same time; pinned: each on a virtual GPU of its own."""
    started = [_start(ranks, (method,), out, *(["-g", str(number)] if pinned else [])) for number, (ranks, method, out) in enumerate(asked)]
    if any(process.wait(LIMIT) for process in started):
        sys.exit(f"a run in {asked[0][2].parent} failed")
    return [communication.trainings(out)[method][0] for _, method, out in asked]
