"""A replacement of mpiexec, python and other commands while grader/probes/simulated_job.py runs a job script: it
records what would train, runs the command of a launcher once, and does nothing else.

    python -IS stand_in.py NOTES NAME ARGUMENTS...

It needs only the standard library, so that it starts fast.
"""

import json
import os
import re
import shutil
import sys
import time

LAUNCHERS = ("mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.openmpi", "mpirun.openmpi", "orterun", "srun")
TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
ON_A_NODE = ("ssh", "handson-agent")
PYTHONS = ("python", "python3", *(f"python3.{minor}" for minor in range(8, 16)))
WRAPPERS = ("numactl", "conda", "nsys", "apptainer", "singularity")  # commands that start one command
IDLE = ("handson", "handson-launcher", "nvidia-smi", "pip", "pip3", "qsub", "qstat", "qdel", "pbsnodes", "sbatch")
NAMES = (*LAUNCHERS, *TORCHRUN, *ON_A_NODE, "pbsdsh", *PYTHONS, *WRAPPERS, *IDLE, "sleep")
RANKS, BY, TOGETHER = "JOB_RANKS", "JOB_STARTED_BY", "JOB_TOGETHER"  # variables of the command that a launcher starts
OF_RANKS = re.compile(r"\s--?(?:n|np|ntasks|nproc[-_]per[-_]node)[ =]?(\d+|gpu|auto)(?=\s)")
OF_VARIABLES = re.compile(r"\s-(?:g?env|x) (\w+)(?:=| (?!-))(\S+)")
BEFORE_A_NAME = re.compile(
    r"--?(launcher|bootstrap|rsh|map-by|bind-to|rank-by|wdir|g?env)"
)  # options that a command may also have
TRAINS = 0.05  # seconds: programs that a script does not wait for have not ended by then
FASTER, LONGEST = 100, 0.5  # speed-up of `sleep`, and its longest duration in seconds
MANY = 10_000  # bytes of notes, after which training takes no time


def main(notes, name, *words):
    """Do what the command `name` does here, and return its exit status."""
    words, own = list(words), os.getpid()
    if name in PYTHONS:
        return _python(notes, words)
    if name in LAUNCHERS:  # possibly in parts: mpiexec -n 1 A : -n 3 B
        parts = [part.split("\0") for part in "\0".join(words).split("\0:\0")]
        return max(_launch(name, part, len(_slots()), own) for part in parts)
    if name in TORCHRUN:
        return _launch(name, words, 1, own)
    if name == "pbsdsh":
        return _launch(name, words, len(set(_slots()) if "-u" in words else _slots()), "nodes")
    if name in ON_A_NODE:
        node = next(place for place, word in enumerate(words) if not word.startswith("-"))
        return _launch(name, ["bash", "-c", " ".join(words[node + 1 :])], 1, "nodes")
    if name in WRAPPERS:
        return _run(words[_command(words) :])
    if name == "sleep":
        time.sleep(min(LONGEST, float(words[0]) / FASTER) if re.fullmatch("[0-9.]+", words[0]) else LONGEST)
    return 0


def _python(notes, words):
    """Record what Python would run, and that it has ended."""
    if words[:1] == ["-m"] and words[1] in TORCHRUN:
        return main(notes, *words[1:])
    if words[:1] == ["-m"] and "--" in words:  # python -m handson profile ... -- python ...
        return _run(words[words.index("--") + 1 :])
    program = next((word for word in words if word.endswith(".py")), None)
    if program is None or "-c" in words[: words.index(program)]:
        return 0
    note = {
        "run": os.getpid(),
        "program": os.path.basename(program),
        "there": os.path.isabs(program) or os.path.isfile(program),
        "help": "-h" in words or "--help" in words,
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "ranks": int(os.environ.get(RANKS, 1)),
        "by": os.environ.get(BY, ""),
        "together": os.environ.get(TOGETHER, str(os.getpid())),
    }
    with open(notes, "a") as file:
        print(json.dumps(["begins", note]), file=file, flush=True)
        time.sleep(TRAINS if file.tell() < MANY else 0)
        print(json.dumps(["ends", note]), file=file)
    return 0


def _launch(name, words, ranks, together):
    """Run once what a launcher starts in `ranks` processes, or in the number of an option. together: the same for
    processes that train together."""
    place = _command(words)
    options, command = " ".join(["", *words[:place], ""]), words[place:]
    if numbers := OF_RANKS.findall(options):
        ranks = int(numbers[-1]) if numbers[-1].isdecimal() else _slots().count(_slots()[0])
    if name in TORCHRUN and command and command[0].endswith(".py"):
        command = ["python", *command]
    above = os.environ
    below = {BY: above.get(BY, name), TOGETHER: above.get(TOGETHER, str(together))}
    below[RANKS] = str(ranks * int(above.get(RANKS, 1)))
    return _run(command, **below, **dict(OF_VARIABLES.findall(options)))


def _command(words):
    """Return the index of the command among the words after a launcher."""
    for place, word in enumerate(words):
        known = word.endswith(".py") or os.path.basename(word) in NAMES or shutil.which(word)
        if known and not (place and BEFORE_A_NAME.fullmatch(words[place - 1])):
            return place
    return len(words)


def _run(command, **variables):
    """Run a command, or its stand-in if it is in a folder that this machine lacks. Return its exit status."""
    if not command:
        return 2
    path = shutil.which(command[0]) or shutil.which(os.path.basename(command[0])) or command[0]
    return os.spawnve(os.P_WAIT, path, command, os.environ | variables)


def _slots():
    with open(os.environ["PBS_NODEFILE"]) as file:
        return file.read().split()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
