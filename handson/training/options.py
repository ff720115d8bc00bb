"""The command line that all training scripts of both tracks share. Invalid values end with one sentence and status
2."""

import argparse
import multiprocessing
import os
import re
import sys
import time
from pathlib import Path

from handson import chosen_device, sizes
from handson.cluster import site
from handson.cluster.nodes import current_node
from handson.errors import OneSentence
from handson.language import speak
from handson.profiling import usage
from handson.training import gpu_memory, identity, progress, rank_watcher, uncaught
from handson.training.launch import forget, launcher_rank, no_restart, prepare, started_by, under_mpiexec
from handson.words import counted, there

LEARNING_RATE = 0.02  # the default of --lr


class Options(argparse.Namespace):
    """The options of a run. A worker process that receives them from its parent, for example from
    torch.multiprocessing.spawn, is watched from then on."""

    def __setstate__(self, state):
        vars(self).update(state)
        # the name identifies such a process, because parent_process() is not set yet
        name, _, number = multiprocessing.current_process().name.rpartition("-")
        if name == "SpawnProcess" and not progress.is_watched():
            rank_watcher.watch(worker=int(number) - 1)
            progress.begin(self.patience)
            gpu_memory.begin(self)


class OneSentenceParser(argparse.ArgumentParser):
    """argparse without the usage lines before an error, which would hide the sentence in a job's output file."""

    def error(self, message):
        rank, sentence = launcher_rank(), f"{self.prog}: {message} (see --help)\n"
        progress.tell_end(OneSentence.status)
        if under_mpiexec():
            _end_in_mpi(rank, sentence)
        if rank:
            time.sleep(3)  # torchrun ends this rank once rank 0 has printed the sentence
        no_restart()
        self.exit(2, sentence)


def _end_in_mpi(rank, sentence):
    """End all ranks with status 2. If all ranks call it, as is usual, only rank 0 prints the sentence.

    mpiexec ends the other ranks with this one only after all have started MPI. Before that, they would wait for this
    rank forever.
    """
    from mpi4py import MPI

    everybody, end = MPI.COMM_WORLD.Ibarrier(), time.monotonic() + 3
    while not (all_are_here := everybody.Test()) and time.monotonic() < end:
        time.sleep(0.01)
    if rank == 0 or not all_are_here:
        speak(sentence, end="", file=sys.stderr, flush=True)
    if not all_are_here:
        os._exit(2)
    MPI.Finalize()
    sys.exit(2)


def difference(asked):
    """Return a sentence on an option that differs between ranks, or None if all are equal. asked: the options of each
    rank, as dictionaries."""
    for rank, theirs in enumerate(asked):
        for name, value in asked[0].items():
            if theirs.get(name) != value:
                return (
                    f"rank 0 has {name} {value}, but rank {rank} has {theirs.get(name)}: give all ranks the same"
                    " options"
                )
    return None


def positive(kind, largest=10**9):
    """Return an argparse type: a `kind` (int or float) above zero, up to `largest`."""

    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not 0 < value <= largest:
            what = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"must be a {what} above 0, of {largest:,} at most, not {text!r}")
        return value

    return convert


def gpu_ids(text):
    """Convert "0,1" to [0, 1], as an argparse type."""
    try:
        return [natural(word) for word in text.split(",")]
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"must be GPU ids separated by commas, such as 0,1, not {text!r}") from None


def natural(text):
    """Convert an integer from 0 to a billion, as an argparse type."""
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"must be a whole number of 0 or more, below 1,000,000,000, not {text!r}")
    return int(text)


def share(text):
    """Convert a number from 0 to below 1, as an argparse type."""
    try:
        if 0 <= float(text) < 1:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"must be a number of 0 or more, below 1, not {text!r}")


def memory(text):
    """Convert "300MB" to bytes, as an argparse type."""
    try:
        return sizes.bytes_of(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {sizes.SIZES}, not {text!r}") from None


# GB of a worker's GPU memory -> the network that keeps the GPU busy, with batches of 32 float32 images of 256 pixels:
# on an H200, convnet needs 31 % of the time, resnet18 (4 GB) 89 %, resnet50 (9 GB) 94 %
KEEPS_AT_WORK = {12: "resnet50", 6: "resnet18"}
SHARING = 4  # workers of 03_multi_node, which share the GPUs of this machine if it is the whole cluster


def usual_model(track="pytorch"):
    """Return the default of --model on this machine: on GPUs, a network that keeps them busy and fits each worker's
    part of the memory; on a core, one that trains in seconds."""
    usual = identity.MODELS[track][0]
    if track != "pytorch" or not (memory := usage.memory_of_gpus()):
        return usual
    places = len(memory) * chosen_device.parts
    workers = 1 if _has_batch_system() else -(-SHARING // places)  # of each place
    gigabytes = min(memory) / chosen_device.parts / workers / 1e9
    return next((model for least, model in KEEPS_AT_WORK.items() if gigabytes >= least), usual)


def _has_batch_system():
    """Return whether a batch system gives each worker its own GPU; otherwise this machine is the whole cluster."""
    try:
        return site.load().batch != "embedded"
    except site.SiteError:
        return False


def training_parser(program, gpus, add_options=None):
    """Return the parser of the training script `program` (its path).

    gpus: the default of -g, or None if the launcher of the ranks decides. add_options: a function that adds a script's
    own options to the parser.
    """
    unit, script, track = identity.of(program)
    parser = OneSentenceParser(description=f"The training script {script}, {track} track.")
    add = parser.add_argument
    add(
        "-b",
        "--batchsize",
        type=positive(int),
        default=32,
        metavar="N",
        help="batch size per worker. Default: %(default)s",
    )
    add("-e", "--epoch", type=positive(int), default=4, metavar="N", help="number of epochs. Default: %(default)s")
    add(
        "-g",
        "--gpu",
        type=gpu_ids,
        default=gpus,
        metavar="IDS",
        help="ids of the GPUs, or virtual GPUs, such as 0,1. Default: one per rank",
    )
    add(
        "--dataset",
        default="digits",
        metavar="NAME|PATH",
        help="name of a data set, or path of an .npz file. Default: %(default)s",
    )
    add(
        "--size",
        type=positive(int, 4096),
        default=256,
        metavar="PIXELS",
        help="side length of the enlarged images in pixels. Default: %(default)s",
    )
    model = identity.MODELS[track][0]
    if identity.offers_models(unit, script):
        model = usual_model(track)
        add("--model", choices=identity.MODELS[track], help="network to train. Default on this machine: %(default)s")
    add("--lr", type=positive(float), default=LEARNING_RATE, metavar="RATE", help="learning rate. Default: %(default)s")
    add(
        "--seed",
        type=natural,
        default=0,
        metavar="N",
        help="seed of initial weights and shuffling. Default: %(default)s",
    )
    add_out(parser, identity.name(unit, script), track)
    if track == "chainer":
        add(
            "--resume",
            type=Path,
            metavar="FILE",
            help="path of a snapshot from which to resume. Default: start from the beginning",
        )
    add(
        "--patience",
        type=natural,
        default=progress.LIMIT,
        metavar="SECONDS",
        help="seconds without a finished step after which a rank ends; 0: no limit. Default: %(default)s",
    )
    add(
        "--gpu-memory",
        type=memory,
        default=os.environ.get(gpu_memory.VARIABLE) or None,
        metavar="SIZE",
        help="GPU memory of each rank, such as 300MB; a rank that needs more ends. Default: memory is not counted",
    )
    if add_options:
        add_options(parser)
    # `announce` sets the last two
    parser.set_defaults(unit=unit, script=script, track=track, model=model, workers=1, nodes=1)
    return parser


def add_out(parser, name, track):
    """Add the option -o. The default is results/<name>_<track>_<job number>, or the time outside a batch job, so that
    no run overwrites another's results. The process number distinguishes runs that start in the same second; all ranks
    of a node have the same launcher, and so the same number."""
    process = os.getppid() if started_by() else os.getpid()
    job = os.environ.get("PBS_JOBID") or os.environ.get("SLURM_JOB_ID") or f"{time.strftime('%Y%m%d-%H%M%S')}-{process}"
    default = Path("results") / f"{name}_{track}_{job.split('.')[0]}"
    parser.add_argument(
        "-o", "--out", type=Path, default=default, metavar="DIR", help="folder for the results. Default: %(default)s"
    )


def parse(gpus, add_options=None):
    """Return the options of the running training script; see training_parser. Invalid values are refused here, before
    any worker starts.

    gpus: the default of -g; or, in a script whose ranks mpiexec, torchrun or srun starts, a function from the number of
    ranks on this node to the default. These ranks then have RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT,
    as torchrun sets them.
    """
    parser = training_parser(sys.argv[0], None if callable(gpus) else gpus, add_options)
    options = parser.parse_args(namespace=Options())
    if getattr(options, "resume", None) and not options.resume.is_file():
        parser.error(f"--resume: the snapshot {options.resume} does not exist")
    if gpus == [0] and len(options.gpu) > 1:
        parser.error(f"-g names {len(options.gpu)} GPUs, but this script trains on one: name one of them")
    # transformers have no batch normalisation
    if options.track == "pytorch" and options.size <= 32 and options.batchsize < 3 and "patch" not in options:
        parser.error(
            "-b: with so few images of at most 32 pixels, batch normalisation has only a single value: use -b 3 or a"
            " larger --size"
        )
    make_out(parser, options.out)
    if callable(gpus):
        begin_ranks(options.patience)
        on_node = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        options.gpu = options.gpu or gpus(on_node)
        if len(options.gpu) < on_node:
            parser.error(
                f"-g names {counted(len(options.gpu), 'GPU')}, but {there(on_node, 'rank')} on"
                f" {current_node()}: name one for each"
            )
    else:
        uncaught.install()
        progress.begin(options.patience, met=False)
        if gpus is not None:
            forget()
    gpu_memory.begin(options)
    if launcher_rank() == 0:
        gpu_memory.forget(options.out)
    return options


def begin_ranks(patience):
    """Set up a rank that mpiexec, torchrun or srun has started: it is watched, has the variables that torchrun sets,
    and must make progress every `patience` seconds. Raises TrackError."""
    uncaught.install()
    if started_by():
        rank_watcher.watch()
    prepare()
    if "mpi4py.MPI" in sys.modules:
        from handson.training import all_ranks

        all_ranks.install()
    progress.begin(patience)


def make_out(parser, out):
    """Create the folder of the option -o, or end with a sentence."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out: {out} cannot be used as a folder for results ({error.strerror})")
    if not os.access(out, os.W_OK | os.X_OK):
        parser.error(f"--out: {out} is a folder that you must not write to")
