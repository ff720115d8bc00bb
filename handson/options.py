"""The command line that all training scripts share, whichever the track. Bad values end with one sentence and status 2."""

import argparse
import atexit
import os
import sys
import time
from pathlib import Path

from handson.errors import OneSentence


class OneSentenceParser(argparse.ArgumentParser):
    """argparse, without the usage lines before an error: the sentence is what matters in a job's output file."""

    def error(self, message):
        if launcher_rank():
            time.sleep(1)  # rank 0 says it; the first to end has the others stopped
            self.exit(2)
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def launcher_rank():
    """The rank that mpiexec, torchrun or srun gave this process, known before MPI starts; 0 for a process of its own."""
    names = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
    return next((int(os.environ[name]) for name in names if name in os.environ), 0)


def positive(kind):
    """An argparse type: a `kind` (int or float) above zero."""

    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
        return value

    return convert


def gpu_ids(text):
    """An argparse type: "0,1" -> [0, 1]."""
    try:
        return [natural(word) for word in text.split(",")]
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"must be GPU ids separated by commas, such as 0,1, not {text!r}") from None


def natural(text):
    """An argparse type: an integer of 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of 0 or more, not {text!r}")
    return int(text)


def training_parser(task, track, gpus):
    """The parser of a training script. `gpus`: the ids used when -g is not given; None: decided by whatever starts the ranks."""
    parser = OneSentenceParser(description=f"Task {task}, {track} track.")
    add = parser.add_argument
    add("-b", "--batchsize", type=positive(int), default=32, metavar="N", help="images a worker takes in one step (32)")
    add("-e", "--epoch", type=positive(int), default=4, metavar="N", help="times to go through the data (4)")
    add("-g", "--gpu", type=gpu_ids, default=gpus, metavar="IDS", help="GPU ids such as 0,1; virtual GPUs where there are none")
    add("--dataset", default="digits", metavar="NAME|PATH", help="data set (digits)")
    add("--size", type=positive(int), default=256, metavar="PIXELS", help="side length that images are enlarged to (256)")
    add("--lr", type=positive(float), default=0.02, metavar="RATE", help="learning rate (0.02)")
    add("--seed", type=natural, default=0, metavar="N", help="seed of initial weights and shuffling (0)")
    add("-o", "--out", type=Path, default=default_out(task, track), metavar="DIR", help="where results go (%(default)s)")
    add("--resume", type=Path, metavar="FILE", help="continue from a snapshot of an interrupted run")
    if (task, track) == ("multi_node", "chainer"):
        add("--communicator", default="hierarchical", metavar="NAME", help="ChainerMN's communicator (%(default)s)")
        add("--allreduce-grad-dtype", choices=["float16", "float32"], help="type in which gradients travel (that of the parameters)")
        add("--double-buffering", action="store_true", help="communicate the last gradients while computing the next")
    parser.set_defaults(task=task, track=track)
    return parser


def default_out(task, track):
    """results/<task>_<track>_<job number>, or the time of day outside a batch job: no run overwrites another's results."""
    job = os.environ.get("PBS_JOBID") or os.environ.get("SLURM_JOB_ID") or time.strftime("%Y%m%d-%H%M%S")
    return Path("results") / f"{task}_{track}_{job.split('.')[0]}"


def parse(task, track, gpus):
    """The options of a training script. What can be refused is refused here, before any worker starts. `gpus`: see training_parser."""
    parser = training_parser(task, track, gpus)
    options = parser.parse_args()
    if options.resume and not options.resume.is_file():
        parser.error(f"--resume: there is no snapshot {options.resume}")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out: {options.out} cannot be used as a folder for results ({error.strerror})")
    sys.excepthook = _one_sentence
    return options


def _one_sentence(kind, error, traceback):
    """Instead of a traceback, where an error is a sentence for the user: print it, clean up, and end with the error's status."""
    if not issubclass(kind, OneSentence):
        return sys.__excepthook__(kind, error, traceback)
    for note in getattr(error, "__notes__", []):
        print(note, file=sys.stderr)
    print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr, flush=True)
    atexit._run_exitfuncs()  # such as ending worker processes; Python's own way out would end with status 1
    sys.stdout.flush()
    os._exit(error.status)


def fail(sentence, status=2):
    """End with one sentence on standard error; `status` 2 is for what the user can mend."""
    print(f"{Path(sys.argv[0]).name}: {sentence}", file=sys.stderr, flush=True)
    raise SystemExit(status)
