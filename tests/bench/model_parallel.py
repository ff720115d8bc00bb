"""Networks that are split: the pipeline against its bubble, what its schedules hold, ZeRO against
DistributedDataParallel, and what counting costs."""

import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from handson.notebook import runs as of_student
from tests.bench.runs import LIMIT, ROOT

UNIT = ROOT / "solutions/06_model_parallel/pytorch"
TURNS = 5  # of methods whose times are compared, one after the other
STAGES, MICRO_BATCHES = 2, 8
MICRO_BATCH = 16  # images
# bytes of an image of digits: as it was loaded, as the network gets it, in three colours, and its label
IMAGE = 4 * 64 + 4 * 3 * 64 + 8
PIPELINE = f"--width 256 --blocks 4 --batchsize {MICRO_BATCH * MICRO_BATCHES}"
ZERO = "--width 256 --blocks 2 --batchsize 64"


def measure(folder):
    """Rows (what, value, target)."""
    return [*_pipeline(folder / "pipeline"), *_zero(folder / "zero"), _counting(folder / "counting")]


def _pipeline(folder):
    bubble = (STAGES - 1) / (MICRO_BATCHES + STAGES - 1)
    cut = f"--epoch 2 --micro-batches {MICRO_BATCHES} {PIPELINE}"
    gains, shares, whole = {"gpipe": [], "1f1b": []}, {"gpipe": [], "1f1b": []}, []
    for turn in range(TURNS):
        alone = of_student.rate(_alone(folder / f"one{turn}", 0, f"--method naive --epoch 2 {PIPELINE}"))
        # what these cores do at once with the same micro-batches, where nobody waits for anybody
        with ThreadPoolExecutor(STAGES) as pool:
            both = sum(
                map(
                    of_student.rate,
                    pool.map(
                        lambda gpu: _alone(folder / f"both{turn}{gpu}", gpu, f"--method gpipe {cut}"), range(STAGES)
                    ),
                )
            )
        two = _run(folder / f"two{turn}", "train_pipeline", STAGES, f"--method gpipe 1f1b {cut}")
        whole.append(both / alone)
        for method in gains:
            gains[method].append(of_student.rate(two[method]) / alone)
            shares[method].append(of_student.rate(two[method]) / (both * (1 - bubble)))
    both = (
        f"{STAGES} processes beside each other with all layers and the same micro-batches: times one with the batch in"
        " one piece"
    )
    rows = [(both, f"{statistics.median(whole):.2f}", "")] + [
        (
            f"{method}, {STAGES} stages and {MICRO_BATCHES} micro-batches: times one process",
            f"{statistics.median(values):.2f}",
            f"{statistics.median(shares[method]):.2f} of what the bubble leaves of these, at least 0.9",
        )
        for method, values in gains.items()
    ]
    return [*rows, _held(folder)]


def _held(folder):
    """Compute from bytes of how many micro-batches stage 0 holds the activations with 1F1B. Temporary memory of operations
    is equal in all runs; the batch, which is kept during the whole step, does not count."""

    def most(method, micro_batches):
        size = f"--batchsize {MICRO_BATCH * micro_batches} --micro-batches {micro_batches}"
        counted = _run(
            folder / f"{method}{micro_batches}",
            "train_pipeline",
            STAGES,
            f"--method {method} --epoch 1 {PIPELINE} {size} --gpu-memory unlimited",
        )
        return counted[method].memory[0]["most"]["activations"] - micro_batches * MICRO_BATCH * IMAGE

    one, all_of_them = most("gpipe", 1), most("gpipe", MICRO_BATCHES)
    of_one = (all_of_them - one) / (MICRO_BATCHES - 1)
    held = 1 + (most("1f1b", MICRO_BATCHES) - one) / of_one
    return (
        "micro-batches whose activations stage 0 holds with 1F1B, by bytes",
        f"{held:.2f}",
        f"at most {STAGES}, beside the images of the batch",
    )


def _alone(out, gpu, options):
    """The Result of one process on a virtual GPU."""
    [result] = _run(out, "train_pipeline", 1, f"-g {gpu} {options}").values()
    return result


def _counting(folder):
    """What it costs to have tensors counted, in pairs of runs."""
    ratios = []
    for turn in range(TURNS):
        with_and_without = [
            of_student.rate(
                _run(folder / f"{turn}{name}", "train_memory", 1, f"--method plain --epoch 3 {ZERO} {words}")["plain"]
            )
            for name, words in (("without", ""), ("with", "--gpu-memory unlimited"))
        ]
        ratios.append(with_and_without[0] / with_and_without[1])
    return (
        "time of a step with all tensors counted, of that without",
        f"{statistics.median(ratios):.3f}",
        "nothing is counted unless --gpu-memory asks for it",
    )


def _zero(folder):
    ratios = []
    for turn in range(TURNS):
        runs = _run(folder / f"{turn}", "train_sharded", 2, f"--method ddp zero --epoch 3 {ZERO}")
        ratios.append(of_student.rate(runs["ddp"]) / of_student.rate(runs["zero"]))
    rows = [
        (
            "time of a step of ZeRO from scratch, of DistributedDataParallel's",
            f"{statistics.median(ratios):.2f}",
            "at most 1.15",
        )
    ]
    for ranks in (2, 4):
        runs = _run(
            folder / f"counted{ranks}",
            "train_sharded",
            ranks,
            f"--method ddp zero --epoch 1 {ZERO} --gpu-memory unlimited",
        )
        whole, *shares = (
            max(account["most"]["optimizer"] for account in runs[method].memory) for method in ("ddp", "zero")
        )
        rows.append(
            (
                f"optimizer state of a rank of {ranks}, times {ranks}, of the whole",
                f"{ranks * shares[0] / whole:.3f}",
                "0.98 to 1.02",
            )
        )
    return rows


def _run(out, script, ranks, options):
    """{method: Result} of a script of the unit on the cores of this machine."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["mpiexec", "-n", str(ranks), sys.executable, UNIT / f"{script}.py", "-o", out, *options.split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        sys.exit(f"{script} failed: {done.stderr}")
    return {method: result for method, [result] in of_student.of_methods(out).items()}
