"""Run a job script under bash, as a job of the embedded PBS, in which mpiexec, python and similar commands only record
what they would do (grader/probes/stand_in.py)."""

import json
import os
import re
import select
import shlex
import subprocess
import sys
import tempfile
from contextlib import suppress
from itertools import islice
from pathlib import Path

from grader.probes import stand_in
from handson.pbs import command_options, directives, qsub, resources
from handson.pbs.pbs_errors import PBSError

# finds lines that look like a directive
LOOKS_LIKE_ONE = re.compile(r"\s*#+\s*(PBS|SBATCH)(\s*-\S|\s+[a-z]\s)", re.IGNORECASE)
BLANKS = (" ", "\t")
MOST, MOST_SLOTS = 500, 5000  # directives, or started programs; lines of the node file
PATIENCE = 2000  # milliseconds for processes that a script leaves in the background
GONE = re.compile(r": (/\S+): No such file or directory")  # bash's message on a command of another machine
# folders that another machine may have, and the student's own folder, which is the simulated one here
FUNCTIONS = """\
module() { :; }; ml() { :; }; ulimit() { :; }
command_not_found_handle() { echo "$1: command not found" >&2; }
cd() { [[ ${!#} = /* && ${!#} != ${PBS_O_WORKDIR%/work}* ]] && set -- "$PBS_O_WORKDIR"; builtin cd "$@"; }
if [ -z "$JOB_BEGAN" ]; then export JOB_BEGAN=1; trap 'echo "$BASH_COMMAND" >"$PBS_JOBDIR/last"' EXIT; fi
"""
VARIABLES = """\
BASH_ENV={folder}/functions
HOME={folder}/home
LANG=C.UTF-8
NCPUS={threads}
OPTIONS=
OMP_NUM_THREADS={threads}
PATH={folder}/bin:/usr/local/bin:/usr/bin:/bin
PBS_ENVIRONMENT=PBS_BATCH
PBS_JOBDIR={folder}/home
PBS_JOBID=1.pbs
PBS_JOBNAME=job
PBS_NODEFILE={folder}/nodefile
PBS_O_HOME={folder}/home
PBS_O_PATH={folder}/bin:/usr/local/bin:/usr/bin:/bin
PBS_O_WORKDIR={folder}/work
TMPDIR={folder}/tmp
TRACK=pytorch
"""


def run(rank, ranks, source, case):
    """Return the requests and actions of a job script:

    "lines": those that are or look like directives, each with the text after #PBS, or None if PBS does not read it
    "runs": the programs that Python would run, as recorded; left: whether the script ends before the program
    "last": the last command
    "windows": whether its lines end as in Windows, which qsub refuses
    """
    text, folder = source["text"].replace("\r\n", "\n"), Path(tempfile.mkdtemp(dir=os.getcwd()))
    of_slurm = case["batch"] == "slurm"  # Slurm's directives neither continue in the next line, nor follow blanks
    text = text if of_slurm else directives.joined(text.encode()).decode()
    read = directives.numbered(text.encode())
    lines = [
        [line, None if of_slurm and line[:1] in BLANKS else read.get(number)]
        for number, line in enumerate(text.split("\n"))
    ]
    read = {number: behind for number, (_, behind) in enumerate(lines) if behind is not None}
    lines = [[line, behind] for line, behind in lines if behind or LOOKS_LIKE_ONE.match(line)]
    environment = _environment(folder, read.values(), case)
    script, functions, missing = _furnish(folder, source["file"], text, case["program"]), FUNCTIONS, {None}
    while missing:
        (folder / "functions").write_text(functions)
        runs, errors = _tried(folder, script, environment, case)
        missing = {path for path in GONE.findall(errors) if Path(path).name in stand_in.NAMES and path not in functions}
        functions += "".join(f'function {path} {{ {Path(path).name} "$@"; }}\n' for path in missing)
    os.write(2, errors.encode(errors="replace"))
    last = folder / "home/last"
    return {
        "lines": lines[:MOST],
        "runs": runs,
        "last": last.read_text(errors="replace") if last.exists() else "",
        "windows": "\r\n" in source["text"],
    }


def _furnish(folder, file, text, program):
    """Create the folders of a student and of the stand-ins. Return the path of the script."""
    for name in ("bin", "home", "tmp", "work/results", "work/pytorch", "work/chainer"):
        (folder / name).mkdir(parents=True)
    for name in stand_in.NAMES:
        command = shlex.join([sys.executable, "-IS", stand_in.__file__, str(folder / "notes"), name])
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    # replaces any Python that the script names
    instead = f"import os, sys\nos.execv({str(folder / 'bin/python')!r}, ['python', *sys.argv])\n"
    for track in ("pytorch", "chainer"):
        (folder / "work" / track / program).write_text(instead)
    (folder / "work" / file).write_text(text)
    return folder / "work" / file


def _environment(folder, read, case):
    """Return the variables of the job, and create its node file, from its directives, as far as qsub accepts them."""
    nodes, processes = case["wanted"]
    options, chunks, variables = command_options.Options(), [{"count": nodes, "mpiprocs": processes}], {}
    for text in read:
        with suppress(PBSError):
            options.add(qsub.in_directive(text, command_options.Options()))
    with suppress(PBSError):
        chunks = resources.parse(options.resources)["chunks"]
    with suppress(PBSError):
        variables = command_options.variable_list(options.values.get("v", ""), {})
    hosts = (chunk for chunk in chunks for _ in range(chunk["count"]))
    slots = (f"node{number}\n" for number, chunk in enumerate(hosts, 1) for _ in range(chunk.get("mpiprocs", 1)))
    (folder / "nodefile").write_text("".join(islice(slots, MOST_SLOTS)))
    threads = chunks[0].get("ompthreads", "" if case["batch"] == "slurm" else chunks[0].get("ncpus", 1))
    given = VARIABLES.format(folder=folder, threads=threads).splitlines()
    return dict(variable.split("=", 1) for variable in given) | variables


def _tried(folder, script, environment, case):
    """Return (the programs that Python would run, bash's messages) of a script."""
    notes, errors = folder / "notes", folder / "errors"
    notes.write_text("")
    ended, open_by_all = os.pipe()
    with open(errors, "wb") as stderr:
        home = folder / ("work" if case["batch"] == "slurm" else "home")
        streams = {"stdin": subprocess.DEVNULL, "stderr": stderr, "pass_fds": [open_by_all]}
        job = subprocess.Popen(["bash", script], cwd=home, env=environment, **streams)
    os.close(open_by_all)
    job.wait()
    in_time = [note["run"] for about, note in _noted(notes) if about == "ends"]
    background = select.poll()
    background.register(ended, select.POLLHUP)
    background.poll(PATIENCE)
    os.close(ended)
    runs = [note for about, note in _noted(notes) if about == "begins"]
    runs = [note | {"left": note["run"] not in in_time} for note in runs]
    return runs, errors.read_text(errors="replace")[:10_000]


def _noted(notes):
    with open(notes, errors="replace") as file:
        return [json.loads(line) for line in islice(file, 2 * MOST)]
