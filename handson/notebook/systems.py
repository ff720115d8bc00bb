"""The table of the notebook 07_frameworks: what each system reached in the student's runs, how much of the script it
asked for, and what it did without being asked."""

import ast
import difflib
from pathlib import Path

from handson import compare
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
        "starts the ranks, wraps the model in DDP, moves batches, calls zero_grad, backward and step",
    ),
    ("accelerate", "accelerate"): (("accelerate/train_cifar_accelerate.py",), PYTORCH, "wraps the model in DDP"),
    ("jax", "shard_map"): (
        (),
        JAX,
        "adds up gradients of what is the same on all devices; compiles again for the shape of a short last batch",
    ),
    ("jax", "multi_process"): (("jax/train_cifar_multi_process.py",), JAX, "as shard_map does"),
}
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
        name = f"{compare.TRACKS[row.track][0]}, {row.name}"
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
        if (
            ast.get_docstring(node, clean=False)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            else None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return [line for line in ast.unparse(tree).splitlines() if line.strip()]
