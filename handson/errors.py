"""Errors for the user: one sentence that says what is wrong, where, and what to do. Commands print it without a
traceback."""

import errno
import os
import re
import signal
import sys
import threading
import traceback
from pathlib import Path

from handson.language import translated

# the last one is torch.save's message
DISK_IS_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "iostream error")
GPU_IS_FULL = re.compile(  # torch's message: requested; the GPU, its memory, and its free memory
    r"CUDA out of memory\. Tried to allocate ([0-9.]+ \w+)\.(?: (GPU \d+) has a total capacity of ([0-9.]+ \w+) of"
    r" which ([0-9.]+ \w+) is free(?:\..*?([0-9.]+ \w+) allowed;)?)?",
    re.DOTALL,
)
# the error of an unfilled gap, by itself or inside a worker's traceback
OPEN_GAP = re.compile(r"\APUT YOUR CODE: (\w+)|^NotImplementedError: PUT YOUR CODE: (\w+)", re.MULTILINE)
IN_FILE = re.compile(r'^\s*File "([^"\n]+)", line', re.MULTILINE)  # a line of a traceback


class OneSentence(Exception):
    """Base class of all such errors; `status` is the exit status of a command that ends with one."""

    status = 2  # the user can fix it

    def _render_traceback_(self):
        """Return what notebooks show instead of a traceback."""
        return [translated(str(self))]


class TrackError(OneSentence, ValueError):
    """The reason why training cannot work. With `on_all_ranks`, every rank has found the problem, and only rank 0
    prints it."""

    def __init__(self, sentence, on_all_ranks=False):
        super().__init__(sentence)
        self.on_all_ranks = on_all_ranks


class WorkerError(OneSentence, RuntimeError):
    """A device or a rank failed; its own traceback, if there is one, is a note of the error."""

    status = 1


class Stopped(OneSentence):
    """A user has pressed Ctrl-C during training."""

    status = 128 + signal.SIGINT  # shells use this status

    def __init__(self):
        super().__init__("stopped by Ctrl-C before the end, so it leaves no result")


class DiskFull(OneSentence, OSError):
    """A file could not be written."""

    def __init__(self):
        super().__init__(
            "the disk is full, so the run ends without a result: delete files that you no longer need, such as old"
            " folders in `results` (`du -sh results/*` shows their sizes, `df -h .` shows the free space), and start"
            " the run again"
        )


class GpuFull(OneSentence, RuntimeError):
    """A GPU has no free memory, in a run that does not count its use."""

    def __init__(self, asked, gpu, whole, free, allowed=None):
        of_gpu = f", and {free} of its {whole} are free" if gpu else ""
        if allowed:  # it shares the GPU with other workers
            of_gpu = f", and this worker may have {allowed} of its {whole}"
        super().__init__(
            f"{gpu or 'a GPU'} is out of memory: an operation tried to allocate {asked}{of_gpu}: take a smaller batch"
            " (-b) or smaller images (--size); --gpu-memory unlimited counts what holds its memory"
        )


class OpenGap(OneSentence, NotImplementedError):
    """A gap without code in the running script, or in a file next to it. In a job without TRACK, the message explains
    how to run the script of the other track."""

    on_all_ranks = True

    def __init__(self, gap, file=None):
        script = Path(sys.argv[0])
        other = script.parent.with_name("chainer") / script.name
        forgot = (
            script.parent.name == "pytorch"
            and other.exists()
            and not os.environ.keys().isdisjoint({"PBS_JOBID", "SLURM_JOB_ID"})
            and not os.environ.get("TRACK")
        )
        hint = (
            "; this is the script of the PyTorch track: to train with Chainer, submit the job with -v TRACK=chainer"
            if forgot
            else ""
        )
        beside = file and script.with_name(os.path.basename(file))
        place = beside if beside and beside.exists() else script
        super().__init__(f"the gap `{gap}` is still to be filled: look for PUT YOUR CODE in {place}{hint}")


def in_a_sentence(error):
    """Return the error to report: DiskFull for an error caused by a full disk, in this process or in a worker; GpuFull
    for one caused by a full GPU; OpenGap for a gap without code; Stopped for Ctrl-C, and for failures that Ctrl-C has
    caused; otherwise the error itself."""
    cause = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt) and not isinstance(error, OneSentence):
            return Stopped()
        if (found := OPEN_GAP.search(str(cause))) and not isinstance(cause, OneSentence):
            frames = traceback.extract_tb(cause.__traceback__) if found[1] else ()
            files = [frame.filename for frame in frames] or IN_FILE.findall(str(cause), 0, found.start())
            return OpenGap(found[1] or found[2], files[-1] if files else None)
        if any(sign in str(cause) for sign in DISK_IS_FULL):
            return DiskFull()
        if not isinstance(error, OneSentence) and (full := GPU_IS_FULL.search(str(cause))):
            return GpuFull(*full.groups())
        cause = cause.__cause__ or cause.__context__
    return error


def say(sentence):
    """Print a sentence for the user on standard error, after the name of the program."""
    print(f"{os.path.basename(sys.argv[0])}: {translated(str(sentence))}", file=sys.stderr, flush=True)


class GoneFolder(OneSentence, OSError):
    """The working directory was deleted."""

    def __init__(self):
        super().__init__("the working directory no longer exists: cd into one that does")


def refuse_gone_folder():
    """Raise GoneFolder if the working directory was deleted."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise GoneFolder from None


def run(app, package):
    """Run the commands of ``python -m package``: a user's mistake ends with one sentence and its status, and a signal
    leaves no half-written file."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup and background jobs ignore it
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
    sys.unraisablehook = _end_again
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a letter of a name shows ?
        if hasattr(stream, "reconfigure"):  # a notebook's stream has no such method
            stream.reconfigure(errors="replace")
    try:
        refuse_gone_folder()
        app(prog_name=f"python -m {package}")
    except OneSentence as error:
        print(f"{' '.join([package, *sys.argv[1:2]])}: {translated(str(error))}", file=sys.stderr)
        sys.exit(error.status)


def _end_again(ignored):
    """Exit immediately for a signal that arrives in `__del__` or in a callback of a weak reference, where Python
    ignores exceptions."""
    if isinstance(ignored.exc_value, SystemExit) and threading.current_thread() is threading.main_thread():
        status = ignored.exc_value.code
        signal.signal(signal.SIGALRM, lambda number, frame: sys.exit(status))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(ignored)
