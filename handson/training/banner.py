"""The output of training scripts, as in the lecture and equal for both tracks: the first lines, and the tables."""

import os
import re
import sys
import time

from handson.cluster.nodes import current_node, job_nodes, job_processes
from handson.language import speak
from handson.profiling import usage
from handson.training import progress
from handson.words import counted

COLUMNS = ["epoch", "main/loss", "validation/main/loss", "main/accuracy", "validation/main/accuracy", "elapsed_time"]

SHARED_GPU = "share a GPU here, so they gain only what a single worker leaves idle"


def announce(using, args, train_set, devices, comm=None):
    """Print the first lines of a run `using` "a single GPU", "multiple GPUs" or "multiple nodes". devices: their names,
    in words.

    comm: the communicator of a multi-node run; only its rank 0 prints, and only rank 0 has a `train_set`. The function
    sets args.devices, args.workers, args.nodes, args.communicator and args.network for the result.
    """
    args.devices, args.communicator, args.network = devices, comm.name if comm else "", ""
    args.workers, args.nodes = (
        (comm.size, comm.inter_size) if comm else (len(args.gpu) if using == "multiple GPUs" else 1, 1)
    )
    if args.nodes > 1:
        args.network = job_nodes().get(current_node(), {}).get("rate", "none").replace("none", "")
    if comm is None or comm.intra_rank == 0:
        usage.record(args.out, args.gpu)
    if comm is not None and comm.rank != 0:
        return
    print(f"Start a training script using {using}.")
    if comm is not None:
        print("==========================================")
        print(f"Num process (COMM_WORLD): {comm.size}")
        print(f"Using {devices}")
        print(f"Using {comm.name} communicator")
        print(f"Num Minibatch-size: {args.batchsize}")
        print(f"Num epoch: {args.epoch}")
        print("==========================================")
    else:
        if using == "multiple GPUs":
            print(f"# GPUs: {len(args.gpu)}")
        print(f"# Minibatch-size: {args.batchsize}")
        print(f"# epoch: {args.epoch}\n")
        print(f"Using {devices}")
    if getattr(args, "model", None) not in (None, "convnet"):
        print(f"Using the network {args.model}")
    print(f"Using {train_set.name} dataset: {train_set.path}", flush=True)
    warn(args, comm)


def warn(args, comm=None):
    """Print a line for each property of a run that differs from its options. `args` and `comm` are those of
    `announce`."""
    for problem in filter(None, (beyond_the_job(args.workers, args.gpu, comm), *without_effect(args, comm))):
        speak(f"Warning: {problem}.", flush=True)


def without_effect(args, comm=None):
    """Yield sentences on options without effect, and on GPUs that workers share."""
    on_a_node = -(-comm.size // comm.inter_size) if comm else len(args.gpu)
    if len(args.gpu) > on_a_node:
        unused = ", ".join(map(str, args.gpu[on_a_node:]))
        yield (
            f"-g names {len(args.gpu)} GPUs, but only {counted(on_a_node, 'rank')}"
            f" {'run' if on_a_node > 1 else 'runs'} on a node, with one GPU each: {unused} not used"
        )
    if "shared by" in (places := getattr(args, "devices", "")):
        number = re.match(r"\d+", places)  # none in "a part of a GPU"
        parts = -(-args.workers // int(number[0] if number else 1))
        yield (
            f"the {args.workers} workers {SHARED_GPU}; HANDSON_DEVICE=gpu/{parts} gives each a part of it"
            " (docs/gpus.md), and HANDSON_DEVICE=cpu a core"
        )
    if getattr(args, "gpu_memory", None) is not None and args.track == "chainer":
        yield "--gpu-memory has no effect, as the Chainer track does not count its arrays"
    if comm is None and args.workers == 1 and getattr(args, "patience", progress.LIMIT) != progress.LIMIT:
        yield "--patience has no effect, as a single process waits for no other"


def beyond_the_job(workers, gpus, comm=None):
    """Return the resources that a run uses beyond its job's share, in words, or "" if there are none, or no job."""
    processes, share = job_processes(), job_nodes().get(current_node(), {}).get("slots")
    if comm and processes and workers > processes:
        return (
            f"{workers} ranks run in a job of {processes} process{'es' * (processes > 1)}, and share its cores, so"
            " their times are unreliable: request more with `select=...:mpiprocs=...`, or start fewer"
        )
    beyond = [gpu for gpu in gpus if share and gpu >= len(share)]
    if beyond:
        ids = "GPU 0" if len(share) == 1 else f"GPUs 0 to {len(share) - 1}"
        return (
            f"-g names GPU {beyond[0]}, but on {current_node()} this job has {ids}: workers share cores, so their times"
            " are unreliable"
        )
    return ""


def name_devices(gpus):
    """Return GPU ids as the dictionary of MultiprocessParallelUpdater: [0, 1] -> {'main': 0, 'gpu1': 1}."""
    return {"main" if index == 0 else f"gpu{index}": gpu for index, gpu in enumerate(gpus)}


class LossTable:
    """The progress table of a training run without evaluation: rank 0 prints the loss after each epoch, and `log` keeps
    it. epochs: the number of epochs that an earlier run has finished."""

    def __init__(self, rank, epochs=0):
        self.rank, self.epochs, self.log, self.start = rank, epochs, [], time.perf_counter()
        if self.rank == 0:
            print("epoch  main/loss  elapsed_time", flush=True)

    def add(self, loss):
        """Record the end of an epoch with this loss (a number, or a tensor with one)."""
        self.epochs += 1
        row = {"epoch": self.epochs, "main/loss": float(loss), "elapsed_time": time.perf_counter() - self.start}
        self.log.append(row)
        if self.rank == 0:
            print("{:<6} {:<9.4f}  {:.2f}".format(*row.values()), flush=True)


def on_terminal():
    """Return whether a person reads standard output. (Open MPI gives ranks a terminal even in a batch job, whose output
    is a file.)"""
    return sys.stdout.isatty() and os.environ.get("PBS_ENVIRONMENT") != "PBS_BATCH"


class TableOutput:
    """Standard output for PrintReport, without the control sequence that clears a line, if the output is a file."""

    def write(self, text):
        sys.stdout.write(text if on_terminal() else text.replace("\033[J", ""))

    def flush(self):
        sys.stdout.flush()
