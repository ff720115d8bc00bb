"""The tables and figures of notebook 07_frameworks: the throughput of each system in the student's runs, the number of
changed lines, and the silent steps of each system; and replicas in threads, as in torch.nn.DataParallel, next to
replicas in processes."""

import ast
import difflib
import functools
import json
import statistics
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from handson import compare, figures, frameworks
from handson.ipython import progress_bar
from handson.language import marked, speak
from handson.notebook import runs as of_student
from handson.notebook.measure import MeasurementFailed
from handson.profiling import usage
from handson.training.identity import OTHER_SYSTEMS
from handson.words import aligned, counted

PYTORCH, TENSORFLOW = (
    "01_single_gpu/pytorch/train_cifar_single_gpu.py",
    "07_frameworks/tensorflow/train_cifar_single_gpu.py",
)
JAX = "07_frameworks/jax/train_cifar_shard_map.py"  # one script, for one device and for several
DDP = "02_multi_gpu/pytorch/train_cifar_multi_gpu.py"


class System(NamedTuple):
    """The name of a system's runs, its files for several workers, and its script for one device."""

    name: str
    files: tuple
    single: str
    silently: str  # the steps that the system runs silently


SYSTEMS = {  # (track, name of the run)
    ("pytorch", "multi_gpu"): System(
        "DDP, of 02_multi_gpu",
        (DDP,),
        PYTORCH,
        "averages the gradients during backward, and broadcasts rank 0's weights",
    ),
    ("pytorch", "data_parallel"): System(
        "DataParallel",
        ("07_frameworks/pytorch/train_cifar_data_parallel.py",),
        PYTORCH,
        "splits each batch; runs loss and optimizer only on the first GPU; on GPUs, copies the model in each step",
    ),
    ("tensorflow", "single_gpu"): System("TensorFlow, fit", (), TENSORFLOW, "compiles the step at its first call"),
    ("tensorflow", "mirrored"): System(
        "TensorFlow, fit, mirrored",
        ("07_frameworks/tensorflow/train_cifar_mirrored.py",),
        TENSORFLOW,
        "splits each batch, sums the gradients; uses a mean of means for a short last batch",
    ),
    ("tensorflow", "multi_worker"): System(
        "TensorFlow, own loop, multi-worker",
        tuple(f"07_frameworks/tensorflow/{name}.py" for name in ("train_cifar_multi_worker", "replicas", "cluster")),
        TENSORFLOW,
        "broadcasts the first worker's variables, sums the gradients",
    ),
    ("tensorflow", "parameter_server"): System(
        "TensorFlow, parameter server",
        tuple(f"07_frameworks/tensorflow/{name}.py" for name in ("train_cifar_parameter_server", "cluster")),
        TENSORFLOW,
        "no worker waits, so gradients are stale, and images are not used equally often",
    ),
    ("lightning", "lightning"): System(
        "Lightning",
        ("07_frameworks/lightning/train_cifar_lightning.py",),
        PYTORCH,
        "starts the ranks, wraps the model in DDP, adds a DistributedSampler to loaders, moves batches to the device,"
        " calls zero_grad, backward and step",
    ),
    ("accelerate", "accelerate"): System(
        "Accelerate",
        ("07_frameworks/accelerate/train_cifar_accelerate.py",),
        PYTORCH,
        "wraps the model in DDP, splits the batches of loaders, repeats images to fill the last batches",
    ),
    ("jax", "shard_map"): System(
        "JAX, one process",
        (),
        JAX,
        "sums the gradients of parameters that all devices share; compiles again for a short last batch",
    ),
    ("jax", "multi_process"): System(
        "JAX, several processes", ("07_frameworks/jax/train_cifar_multi_process.py",), JAX, "as in one process"
    ),
}
WORDS = {"tiny": "21 tiny layers", "convolutions": "convolutions"}
ROUNDS, LIMIT = 3, 300  # rounds of a measurement, of which the best counts; seconds for all rounds
IDEAL = figures.IDEAL | {"linestyle": "-", "linewidth": 2, "label": None}  # a mark at the end of a bar
HEADINGS = marked(("system", "workers", "images/s", "speed-up", "first step", "whole run", "lines that differ"))
GAP = "raise NotImplementedError"


class Row(NamedTuple):
    """The runs of a system with one number of workers."""

    system: System
    workers: int
    rates: list  # images/s of each run, after compilation and warm-up
    whole: float  # median images/s of the whole run
    first: float | None  # median seconds of the first step; None if the log does not contain it
    alone: float | None  # images/s of this system on one worker, as in `rates`
    disturbed: bool

    @property
    def rate(self):
        return statistics.median(self.rates)

    @property
    def speedup(self):
        return self.alone and self.rate / self.alone

    @property
    def name(self):
        return f"{self.system.name}, {counted(self.workers, 'worker')}"


def ready(folder, script):
    """Return whether a script of `folder` can run here; if not, print why."""
    if script.endswith(DDP) and has_gaps(Path(folder, script)):
        speak(f"Skipped: exercises/{DDP} has gaps; fill them in {DDP.partition('/')[0]}.")
        return False
    return "/pytorch/" in f"/{script}" or frameworks.why_not() is None


def found(exercises):
    """Return the student's Results in all systems, under the conditions of the newest Result of this unit."""
    every = [run for run in of_student.find(exercises) if (run.track, run.name) in SYSTEMS]
    last = [run for run in every if run.unit == OTHER_SYSTEMS][-1]
    return [run for run in every if compare.conditions(run) == compare.conditions(last)]


def rows(results):
    """Return the Rows of Results, system by system. A system without a single-worker run is compared with another
    system of its track, for example mirrored replicas with `fit`."""
    groups = {}
    for system in SYSTEMS:
        for run in sorted((run for run in results if (run.track, run.name) == system), key=lambda run: run.workers):
            groups.setdefault((system, run.workers), []).append(run)
    rates = {group: list(map(steady, of_group)) for group, of_group in groups.items()}
    alone = {system: statistics.median(rates[system, workers]) for system, workers in groups if workers == 1}
    of_track = {}
    for (track, _), rate in alone.items():
        of_track.setdefault(track, rate)
    made = []
    for (system, workers), of_group in groups.items():
        first = [run.log[0]["first_step"] for run in of_group if run.log[0].get("first_step")]
        made.append(
            Row(
                SYSTEMS[system],
                workers,
                rates[system, workers],
                statistics.median(run.throughput for run in of_group),
                statistics.median(first) if first else None,
                alone.get(system, of_track.get(system[0])),
                any(run.disturbance for run in of_group),
            )
        )
    return made


def table(results, exercises):
    """Return the lines of the table of these Results, and the conclusions below it. exercises: the folder with the
    student's scripts."""
    exercises, lines, silent = Path(exercises), [], {}
    for row in rows(results):
        lines.append(
            (
                row.system.name,
                f"{row.workers}{' (disturbed)' * row.disturbed}",
                f"{row.rate:.0f}",
                f"{row.speedup:.2f}" if row.speedup else "-",
                f"{row.first:.2f} s" if row.first else "-",
                f"{row.whole:.0f}",
                differing(exercises, row.system.files, row.system.single),
            )
        )
        silent[row.system.name] = row.system.silently
    said = [*aligned(HEADINGS, lines), "", *compare.disturbed(results), *impossible(rows(results))]
    if has_gaps(exercises / PYTORCH):
        said.append(f"{PYTORCH} has gaps, so the number of different lines is unknown.")
    return [*said, "", "What they did silently:", *(f"  {name}: {what}" for name, what in silent.items())]


def impossible(rows):
    """Return a sentence for each Row whose speed-up is higher than its number of workers allows."""
    return [
        f"The speed-up of {row.name}, {row.speedup:.2f}, is more than {counted(row.workers, 'worker')} can give:"
        " something slowed down the single-worker run."
        for row in rows
        if row.speedup and row.speedup > compare.TOLERANCE * row.workers
    ]


def picture(results):
    """Draw the images/s after compilation and warm-up, and the time of the first step."""
    found = rows(results)
    drawing, left, right = figures.axes(10, 0.9 + 0.3 * len(found), columns=2, sharey=True, width_ratios=(3, 1))
    places = range(len(found))
    colours = [figures.BESIDE[0 if row.workers == 1 else 1] for row in found]
    style = dict(height=0.62, edgecolor="0.25", linewidth=0.6)
    style |= dict(color=[colour for colour, _ in colours], hatch=[hatch for _, hatch in colours])
    left.barh(places, [row.rate for row in found], **style)
    right.barh(places, [row.first or 0 for row in found], **style)
    for place, row in zip(places, found):
        if row.workers > 1 and row.alone:
            ends = [place - 0.4, place + 0.4]
            left.plot([row.workers * row.alone] * 2, ends, **IDEAL)
        words = f" {row.rate:.0f}" + (f", speed-up {row.speedup:.2f}" if row.workers > 1 and row.speedup else "")
        behind = max(row.rate, row.workers * row.alone if row.alone and row.workers > 1 else 0)
        left.text(behind, place, words + " (disturbed)" * row.disturbed, va="center", fontsize="small")
        right.text(row.first or 0, place, f" {row.first:.1f} s" if row.first else " -", va="center", fontsize="small")
    left.set(yticks=places, yticklabels=[row.name for row in found], ylim=(len(found) - 0.5, -0.5))
    left.set(
        xlabel="images/s after the first epoch",
        xlim=(0, 1.65 * max(row.workers * (row.alone or row.rate) for row in found)),
    )
    right.set(xlabel="first step [s]", xlim=(0, 1.4 * max(row.first or 1 for row in found)))
    left.plot([], [], **IDEAL | {"label": "ideal: each worker as fast as a single one"})
    figures.legend_above(left)
    words = "; ".join(
        f"{row.name} {row.rate:.0f} images/s"
        + (f", speed-up {row.speedup:.2f}" if row.speedup else "")
        + (f", first step {row.first:.1f} s" if row.first else "")
        for row in found
    )
    return figures.picture(drawing, f"Throughput after the first epoch: {words}." + compare.note(drawing, results))


def steady(run):
    """Return the images/s of training after compilation and warm-up: after the first epoch, because JAX also compiles
    the short last batch. In a run of a single epoch, it is the rate after the first step, if the log has its time; then
    it includes JAX's compilation of the last batch."""
    first, last, later = run.log[0], run.log[-1], 1 - 1 / run.epochs
    if "training_time" in first and later:
        return run.images * later / (last["training_time"] - first["training_time"])
    if "elapsed_time" in first and later:  # includes an evaluation after each epoch
        return (
            run.images
            * later
            / (last["elapsed_time"] - first["elapsed_time"] - later * (run.seconds - run.train_seconds))
        )
    first = first.get("first_step", 0.0)
    return (run.images - (run.batchsize * run.workers if first else 0)) / (run.train_seconds - first)


def differing(exercises, files, single):
    """Return, for example, "21 of 51": how many lines of the `files` are not in the script for one device, without
    comments and empty lines. "-" if there is no such script, or if it has gaps."""
    if not files or has_gaps(exercises / single):
        return "-"
    lines = [line for file in files for line in statements(exercises / file)]
    same = difflib.SequenceMatcher(None, statements(exercises / single), lines, autojunk=False).get_matching_blocks()
    return f"{len(lines) - sum(block.size for block in same)} of {len(lines)}"


def has_gaps(script):
    """Return whether a script is missing, or still has gaps."""
    return not script.is_file() or GAP in script.read_text(errors="replace")


def statements(path):
    """Return the lines of a script without docstrings, formatted by Python itself."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:] or [ast.Pass()]
    return [line for line in ast.unparse(tree).splitlines() if line.strip()]


@functools.cache
def measured(rounds=ROUNDS):
    """Return {"tiny" or "convolutions": {"rates": {"1 thread", "2 threads", "2 processes": steps/s of all replicas},
    "step": (its seconds, [(begin, end) of each operation])}}. A separate process measures, once. Raises
    MeasurementFailed."""
    command = [sys.executable, "-m", "handson.pytorch.thread_times", str(rounds)]
    with (
        usage.watched(workers=2),
        progress_bar("measuring") as show,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process,
    ):
        limit = threading.Timer(LIMIT, process.kill)
        limit.start()
        try:
            for line in process.stdout:
                answer = json.loads(line)
                if isinstance(answer, dict):
                    return answer
                show(answer)
        finally:
            limit.cancel()
            process.kill()
    raise MeasurementFailed(
        f"the measurement of threads failed, or took longer than {LIMIT} seconds: check with `top` which other programs"
        " run, then run the cell again"
    )


def one_step(kind):
    """Return one step of one replica: (its seconds, [(begin, end) of each operation, in seconds since the step
    began])."""
    return measured()[kind]["step"]


def compare_threads(seconds_in_python, threads_speedup):
    """Draw the speed-up of two replicas, and print it next to the speed-ups that the student's two functions predict
    for threads."""
    rows, gains = [], {"2 threads": [], "2 processes": []}
    for kind, words in WORDS.items():
        rates = measured()[kind]["rates"]
        seconds, operations = one_step(kind)
        python = seconds_in_python(seconds, operations)
        speedups = [threads_speedup(python, seconds - python, number) for number in (8, 2)]
        for name, gain in gains.items():
            gain.append(rates[name] / rates["1 thread"])
        numbers = [1000 * python, 1000 * (seconds - python), *speedups, *(gain[-1] for gain in gains.values())]
        rows.append((words, *(f"{number:.2f}" for number in numbers)))
    at_best = "8 threads at best", "2 threads at best", "2 threads, measured", "2 processes, measured"
    speak(*aligned(("a step of", "ms of Python", "ms in kernels", *at_best), rows), sep="\n")
    drawing, axes = figures.axes(6, 3.2, grid=False)
    figures.bars_beside(
        axes, gains, {"2 threads": [float(row[at_best.index("2 threads at best") + 3]) for row in rows]}
    )
    axes.plot([], [], color=figures.PREDICTED, linewidth=2.5, label="2 threads, by your functions")
    axes.axhline(2, **figures.IDEAL)
    axes.set(xticks=range(len(WORDS)), xticklabels=list(WORDS.values()), ylabel="speed-up over one replica")
    figures.legend_above(axes)
    words = "; ".join(
        f"{words}: 2 threads {two:.2f} times one replica, 2 processes {both:.2f}"
        for words, two, both in zip(WORDS.values(), *gains.values())
    )
    return figures.picture(drawing, f"Speed-up of two replicas in threads and in processes. {words}.")
