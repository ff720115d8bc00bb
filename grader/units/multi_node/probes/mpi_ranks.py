"""Run the gap of mpi_accuracy.py on MPI ranks. The probe's process starts them with mpiexec, inside the sandbox.
Each rank writes its result, and the place where it waits, into files."""

import contextlib
import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from grader.probes.gap_code import RETURNED, GapCode
from grader.sandbox import Limits
from grader.sandbox.rank import RankEnded, StudentMistake, reported_error
from grader.sandbox.rank_stacks import where
from grader.verdict import DEADLOCK, ERROR
from handson.cluster import launcher
from handson.files import COURSE

MPICH = {  # the sandbox has no network but the loopback interface, no /sys, and no reading of another process's memory
    "UCX_TLS": "self,posix",
    "UCX_MODULES": "none",
    "UCX_LOG_LEVEL": "fatal",
    "HWLOC_HIDE_ERRORS": "2",
    "MPIR_CVAR_CH4_CMA_ENABLE": "0",
}
OPEN_MPI = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
# A rank that computes or waits for longer is deadlocked: seconds of CPU time, which a rank of MPI uses while it waits,
# too; and seconds by the clock, as a waiting rank yields its core to other programs, where there are any.
LONGEST, LATEST = 0.5, 3
MOMENT = 5  # seconds in which a rank writes its stack, on a busy machine


def run(source, counts):
    """Return the gap's result on each rank. counts: (correct, images) of each rank. Raises RankEnded."""
    folder = Path(tempfile.mkdtemp(dir="."))
    for rank, of_rank in enumerate(counts):
        (folder / f"given{rank}").write_text(json.dumps([source, *of_rank]))
    _copy_modules(folder / "modules")
    paths = f"{folder.absolute() / 'modules'}{os.pathsep}{COURSE}"
    variables = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": paths}
    variables |= MPICH | launcher.on_this_host()
    if launcher.uses_openmpi(mpiexec := shutil.which("mpiexec")):
        variables |= OPEN_MPI | launcher.for_openmpi(os.environ | variables)
    command = [mpiexec, "-n", str(len(counts)), sys.executable, "-m", __name__, str(folder)]
    ranks = subprocess.Popen(command, env=os.environ | variables, stdin=subprocess.DEVNULL)
    while not all(map(_is_over, found := [_last(folder, rank) for rank in range(len(counts))])):
        if ranks.poll() is not None:
            raise RankEnded(
                {"status": ERROR, "message": (f"the process of a rank ended in your code ({ranks.returncode})")}
            )
        time.sleep(0.005)
    waiting = {rank: _line(folder, rank, one["pid"]) for rank, one in enumerate(found) if "pid" in one}
    (folder / "over").touch()
    if waiting:
        ranks.kill()
    ranks.wait()
    for rank, one in enumerate(found):
        if "status" in one:
            raise RankEnded(one | {"message": f"rank {rank}: {one['message']}"})
    if waiting:
        raise RankEnded(_deadlock(waiting, source))
    return [one["returned"] for one in found]


def _copy_modules(folder):
    """Copy the grader's modules of this process. A new process cannot import the originals, because the sandbox does
    not allow it to list their folders."""
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] == "grader" and getattr(module, "__file__", None):
            copy = folder / Path(module.__file__).relative_to(COURSE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # it is not shown here, and then no rank needs it
                shutil.copy(module.__file__, copy)


def _last(folder, rank):
    """Return the last entry that a rank has written: {"pid", "begin", "since"}, {"returned"}, or the result of
    reported_error."""
    file = folder / f"told{rank}"
    return json.loads(file.read_text()) if file.exists() else {}


def _is_over(told):
    """Return whether a rank has finished, or has run for so long that it must be deadlocked."""
    if "pid" not in told:
        return bool(told)
    if time.monotonic() - told["since"] > LATEST:
        return True
    with contextlib.suppress(OSError):  # its process has ended, and mpiexec ends, too
        return time.clock_gettime(~told["pid"] << 3 | 2) - told["begin"] > LONGEST  # its clock: clock_getcpuclockid(3)
    return False


def _line(folder, rank, pid):
    """Return the line of the student's code in which a rank waits, or None."""
    os.kill(pid, signal.SIGUSR1)
    latest = time.monotonic() + MOMENT
    while "_run_module_as_main\n" not in (stack := (folder / f"stack{rank}").read_text()):  # its last line
        if time.monotonic() > latest:
            return None
        time.sleep(0.005)
    return where(stack)[1]


def _deadlock(waiting, source):
    """Return the end of the rank that runs the probe if its MPI ranks deadlock. waiting: {rank: line, or None}."""
    lines, ranks_in = source["text"].split("\n"), {}
    for rank, line in waiting.items():
        ranks_in.setdefault(line, []).append(rank)
    sentences = []
    for line, ranks in ranks_in.items():
        *others, last = map(str, ranks)
        who = f"ranks {', '.join(others)} and {last} wait" if others else f"rank {last} waits"
        sentences.append(f"{who} in {f'`{lines[line - 1].strip()}`' if line else 'MPI'}")
    return {"status": DEADLOCK, "message": "; ".join(sentences), "line": next(iter(ranks_in))}


@contextlib.contextmanager
def arrays_in_capitals():
    """Raise StudentMistake if a number is passed to a method of MPI that requires an array."""
    try:
        yield
    except TypeError as error:
        if "expecting buffer" not in str(error):
            raise
        raise StudentMistake(
            "a method of `comm` with a capital letter gets something other than an array: pass a NumPy array, or use"
            " the method with small letters, which takes numbers"
        ) from error


def main(folder):
    """Be one rank of MPI."""
    from mpi4py import MPI  # this import starts MPI, so the process that forks ranks must not do it

    import numpy  # noqa: F401  before the clock runs, since the student's code may need it

    comm = MPI.COMM_WORLD
    given = folder / f"given{comm.rank}"
    source, correct, images = json.loads(given.read_text())
    given.unlink()  # before any rank runs student code, which could read the counts of other ranks there
    gap = GapCode(source)
    comm.Barrier()

    def tell(told):
        (folder / f"part{comm.rank}").write_text(json.dumps(told))
        (folder / f"part{comm.rank}").rename(folder / f"told{comm.rank}")

    with open(folder / f"stack{comm.rank}", "w") as stack:
        faulthandler.register(signal.SIGUSR1, file=stack)
        tell({"pid": os.getpid(), "begin": time.process_time(), "since": time.monotonic()})
        try:
            with arrays_in_capitals():
                names = gap.run(comm=comm, correct=correct, images=images)
            found = {"returned": None if names.returned is None else names.as_number(RETURNED)}
        except BaseException as error:
            found = reported_error(error, Limits())
        sys.stdout.flush()
        tell(found)
        while not (folder / "over").exists():  # if this rank ended now, another one could end without what it needs
            time.sleep(0.005)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
