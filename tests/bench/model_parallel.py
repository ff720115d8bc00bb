"""Networks that are split: the pipeline against its bubble, what its schedules hold, and ZeRO against DistributedDataParallel."""

import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from handson.notebook import communication
from tests.bench.runs import LIMIT, ROOT

UNIT = ROOT / "solutions/06_model_parallel/pytorch"
TURNS = 5  # of methods whose times are compared, one after the other
STAGES, MICRO_BATCHES = 2, 8
PIPELINE = "--width 256 --blocks 4 --batchsize 64"
ZERO = "--width 256 --blocks 2 --batchsize 64"


def measure(folder):
    """Rows (what, value, target)."""
    return [*_pipeline(folder / "pipeline"), *_zero(folder / "zero")]


def _pipeline(folder):
    bubble = (STAGES - 1) / (MICRO_BATCHES + STAGES - 1)
    gains, shares = {"gpipe": [], "1f1b": []}, {"gpipe": [], "1f1b": []}
    for turn in range(TURNS):
        alone = communication.rate(_alone(folder / f"one{turn}", 0))
        with ThreadPoolExecutor(STAGES) as pool:  # what these cores do at once, where nobody waits for anybody
            both = sum(map(communication.rate, pool.map(lambda gpu: _alone(folder / f"both{turn}{gpu}", gpu), range(STAGES))))
        two = _run(folder / f"two{turn}", "train_pipeline", STAGES, f"--method gpipe 1f1b --epoch 2 --micro-batches {MICRO_BATCHES} {PIPELINE}")
        for method in gains:
            gains[method].append(communication.rate(two[method]) / alone)
            shares[method].append(communication.rate(two[method]) / (both * (1 - bubble)))
    rows = [
        (f"{method}, {STAGES} stages and {MICRO_BATCHES} micro-batches: times one process", f"{statistics.median(values):.2f}",
         f"{statistics.median(shares[method]):.2f} of what the bubble allows on these cores, at least 0.9")
        for method, values in gains.items()
    ]  # fmt: skip
    counted = _run(folder / "counted", "train_pipeline", STAGES, f"--method gpipe 1f1b --epoch 1 --micro-batches {MICRO_BATCHES} {PIPELINE} --gpu-memory unlimited")
    held = {method: run.memory[0]["most"]["activations"] for method, run in counted.items()}
    of_one = held["gpipe"] / MICRO_BATCHES
    return [*rows, ("micro-batches whose activations stage 0 holds with 1F1B, by bytes", f"{held['1f1b'] / of_one:.2f}", f"at most {STAGES}, and what an operation needs for a moment")]


def _alone(out, gpu):
    """The Result of one process on a virtual GPU."""
    return _run(out, "train_pipeline", 1, f"--method naive --epoch 2 -g {gpu} {PIPELINE}")["naive"]


def _zero(folder):
    ratios = []
    for turn in range(TURNS):
        runs = _run(folder / f"{turn}", "train_sharded", 2, f"--method ddp zero --epoch 3 {ZERO}")
        ratios.append(communication.rate(runs["ddp"]) / communication.rate(runs["zero"]))
    rows = [("time of a step of ZeRO from scratch, of DistributedDataParallel's", f"{statistics.median(ratios):.2f}", "at most 1.15")]
    for ranks in (2, 4):
        runs = _run(folder / f"counted{ranks}", "train_sharded", ranks, f"--method ddp zero --epoch 1 {ZERO} --gpu-memory unlimited")
        whole, *shares = (max(account["most"]["optimizer"] for account in runs[method].memory) for method in ("ddp", "zero"))
        rows.append((f"optimizer state of a rank of {ranks}, times {ranks}, of the whole", f"{ranks * shares[0] / whole:.3f}", "0.98 to 1.02"))
    return rows


def _run(out, script, ranks, options):
    """{method: Result} of a script of the unit on the cores of this machine."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["mpiexec", "-n", str(ranks), sys.executable, UNIT / f"{script}.py", "-o", out, *options.split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        sys.exit(f"{script} failed: {done.stderr}")
    return {method: result for method, [result] in communication.trainings(out).items()}
