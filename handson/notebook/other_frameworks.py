"""What notebook 07_frameworks shows: what each system reached in the student's runs, how much of the script it asked
for, and what it did without being asked; and replicas in threads, as torch.nn.DataParallel has them, beside replicas in
processes."""

import ast
import difflib
import functools
import json
import subprocess
import sys
from pathlib import Path

from handson import compare, figures
from handson.words import aligned

PYTORCH, TENSORFLOW = (
    "01_single_gpu/pytorch/train_cifar_single_gpu.py",
    "07_frameworks/tensorflow/train_cifar_single_gpu.py",
)
JAX = "07_frameworks/jax/train_cifar_shard_map.py"  # one script, for one device and for several
SYSTEMS = {  # (track, name of the run): the files for several workers, the script for one device, what is done silently
    ("pytorch", "data_parallel"): (
        ("pytorch/train_cifar_data_parallel.py",),
        PYTORCH,
        "divides each batch; loss and optimizer on the first GPU alone; on GPUs, copies the model in each step",
    ),
    ("tensorflow", "single_gpu"): ((), TENSORFLOW, "compiles the step when it is first called"),
    ("tensorflow", "mirrored"): (
        ("tensorflow/train_cifar_mirrored.py",),
        TENSORFLOW,
        "divides each batch, adds gradients up; in a short last batch a mean of means",
    ),
    ("tensorflow", "multi_worker"): (
        ("tensorflow/train_cifar_multi_worker.py", "tensorflow/replicas.py", "tensorflow/cluster.py"),
        TENSORFLOW,
        "sends the first worker's variables to all, adds gradients up",
    ),
    ("tensorflow", "parameter_server"): (
        ("tensorflow/train_cifar_parameter_server.py", "tensorflow/cluster.py"),
        TENSORFLOW,
        "no worker waits: gradients are of older parameters, images are not used equally often",
    ),
    ("lightning", "lightning"): (
        ("lightning/train_cifar_lightning.py",),
        PYTORCH,
        "starts the ranks, wraps the model in DDP, gives loaders a DistributedSampler, moves batches, calls zero_grad,"
        " backward and step",
    ),
    ("accelerate", "accelerate"): (
        ("accelerate/train_cifar_accelerate.py",),
        PYTORCH,
        "wraps the model in DDP, divides the batches of loaders; repeats images to fill the last ones",
    ),
    ("jax", "shard_map"): (
        (),
        JAX,
        "adds up gradients of what is the same on all devices; compiles again for the shape of a short last batch",
    ),
    ("jax", "multi_process"): (("jax/train_cifar_multi_process.py",), JAX, "as shard_map does"),
}
WORDS = {"tiny": "21 tiny layers", "convolutions": "convolutions"}
ROUNDS, LIMIT = 3, 300  # of a measurement, of which the best one counts; seconds for all of them
HEADINGS = ("system", "workers", "images/s", "speed-up", "first step", "images/s later", "lines that differ")


def table(results, exercises):
    """The lines of the table of Results of the unit frameworks, and of a list below it. exercises: the folder with the
    student's scripts."""
    rows, silent = [], {}
    for row in compare.table(results):
        if (row.track, row.name) not in SYSTEMS:
            continue
        files, single, silently = SYSTEMS[row.track, row.name]
        runs = [run for run in results if (run.track, run.name, run.workers) == (row.track, row.name, row.workers)]
        first = [run.log[0]["first_step"] for run in runs if "first_step" in run.log[0]]
        name = f"{figures.TRACKS[row.track]['label']}, {row.name}"
        rows.append(
            (
                name,
                str(row.workers),
                f"{row.throughput:.0f}",
                f"{row.speedup:.2f}" if row.speedup else "-",
                f"{min(first):.2f} s" if first else "-",
                f"{max(map(steady, runs)):.0f}",
                differing(Path(exercises), files, single),
            )
        )
        silent[name] = silently
    return [
        *aligned(HEADINGS, rows),
        "",
        "What they did silently:",
        *(f"  {name}: {what}" for name, what in silent.items()),
    ]


def steady(run):
    """images/s in training, once all is compiled and warm: after the first epoch (JAX compiles the short last batch,
    too). Of a single epoch, after the first step where the log has its time; JAX's last batch is compiled in it."""
    first, last, later = run.log[0], run.log[-1], 1 - 1 / run.epochs
    if "training_time" in first and later:
        return run.images * later / (last["training_time"] - first["training_time"])
    if "elapsed_time" in first and later:  # with an evaluation after each epoch
        return (
            run.images
            * later
            / (last["elapsed_time"] - first["elapsed_time"] - later * (run.seconds - run.train_seconds))
        )
    first = first.get("first_step", 0.0)
    return (run.images - (run.batchsize * run.workers if first else 0)) / (run.train_seconds - first)


def differing(exercises, files, single):
    """ "21 of 51": how many lines of the `files` are not in the script for one device. Comments and empty lines don't
    count."""
    if not files:
        return "-"
    unit, lines = exercises / "07_frameworks", []
    for file in files:
        lines += statements(unit / file)
    same = difflib.SequenceMatcher(None, statements(exercises / single), lines, autojunk=False).get_matching_blocks()
    return f"{len(lines) - sum(block.size for block in same)} of {len(lines)}"


def statements(path):
    """The lines of a script, written as Python itself writes them, without docstrings."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:] or [ast.Pass()]
    return [line for line in ast.unparse(tree).splitlines() if line.strip()]


@functools.cache
def measured(rounds=ROUNDS):
    """{"tiny" or "convolutions": {"rates": {"1 thread", "2 threads", "2 processes": steps/s of all replicas}, "step":
    (its seconds, [(begin, end) of each operation])}}, measured in a process of its own, once."""
    command = [sys.executable, "-m", "handson.pytorch.thread_times", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    return json.loads(done.stdout)


def one_step(kind):
    """One step of one replica: (its seconds, [(begin, end) of each operation, seconds since the step's begin])."""
    return measured()[kind]["step"]


def compare_threads(seconds_in_python, threads_speedup):
    """The picture of what two replicas gain over one; and a table beside what the student's two functions expect of
    threads."""
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
    print(*aligned(("a step of", "ms of Python", "ms in kernels", *at_best), rows), sep="\n")
    drawing, axes = figures.axes(6, 3.2, grid=False)
    figures.bars_beside(axes, gains)
    axes.axhline(2, **figures.IDEAL)
    axes.set(xticks=range(len(WORDS)), xticklabels=list(WORDS.values()), ylabel="speed-up over one replica")
    figures.legend_above(axes)
    words = "; ".join(
        f"{words}: 2 threads {two:.2f} times one replica, 2 processes {both:.2f}"
        for words, two, both in zip(WORDS.values(), *gains.values())
    )
    return figures.picture(drawing, f"Speed-up of two replicas in threads and in processes. {words}.")
