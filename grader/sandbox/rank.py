"""One rank: a process that runs a student's code. It calls a probe and sends the observations to the watcher."""

import contextlib
import faulthandler
import importlib
import os
import re
import signal
import sys
import traceback

from grader.sandbox import failing_line, protocol, rank_waits
from grader.sandbox.confine import limit_rank
from grader.sandbox.limits import clean_environment, close_other_files
from grader.sandbox.rank_stacks import STUDENT
from grader.verdict import ERROR, FAILED, GRADER_FAULT, OUT_OF_MEMORY
from handson import linux
from handson.errors import OneSentence

NO_THREAD = re.compile(  # the messages of Python, C++, OpenMP, TensorFlow and the C library
    r"can't start new thread|thread.{0,60} creation .{0,40}failed|thread constructor failed|thread-local data:"
    r" ABORT|system_error'?\s+what\(\): +Resource temporarily",
    re.IGNORECASE | re.DOTALL,
)
REASONS = {  # words of PyTorch's errors -> the reason, which these do not name
    "only for scalar outputs": (
        "backward of a tensor with several numbers starts from a gradient: call tensor.backward(gradient)"
    ),
    "mat1 and mat2 shapes cannot be multiplied": (
        "the inputs of a layer have another number of features than its weight (outputs, inputs)"
    ),
    "returned an incorrect number of gradients": (
        "backward returns one value for each argument of forward after the context, and None for an argument that has"
        " no gradient, such as a group"
    ),
    "returned an invalid gradient at index": (
        "a gradient that backward returns must have the shape of the argument that forward got"
    ),
}
IN_CALLBACK = re.compile(rf"^  {STUDENT}[^(\n]*\((\d{{1,6}})\): ", re.MULTILINE)
LONGEST_LINE = 300  # characters of an error's message


class StudentMistake(Exception):
    """Raised by a probe that cannot continue because of the student's code. Its text is a sentence for the student."""


class RankEnded(Exception):
    """Raised by a probe whose own child process with student code failed. told: the child's result of
    reported_error."""

    def __init__(self, told):
        super().__init__(told["message"])
        self.told = told


class MissingInCase(Exception):
    """Raised if a probe requests a key that its case does not have: an error of the course, not of the student."""


def be_rank(number, work, limits, channel, output, stack, waits):
    """Run the probe of `work`, send its observations or its error, and wait until the watcher kills this process. Never
    returns."""
    try:
        _prepare(limits, work["ranks"], channel, output, stack)
        rank_waits.use(waits)
    except BaseException as error:  # an error of the grader, not of the student
        channel.sendall(b"?" + describe(error).encode())
        os._exit(1)
    try:
        channel.sendall(b"!")  # shows the watcher this process's number
        module, function = work["function"].split(":")
        probe = getattr(importlib.import_module(module), function)
        first, ranks = work.get("group") or (0, work["ranks"])
        answer = protocol.pack({"observations": probe(first + number, ranks, *work["arguments"])})
    except BaseException as error:
        answer = protocol.pack(reported_error(error, limits))
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except Exception:
        pass  # the student's code may have closed or replaced the stream
    channel.sendall(answer)
    while True:
        signal.pause()  # if this rank ended now, ranks that still run would see a lost peer


def _prepare(limits, ranks, channel, output, stack):
    """Remove from this process everything that a student's code must not have."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, replaced in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, replaced)
    sys.stdout.reconfigure(line_buffering=True)
    # the watcher asks where the rank is; the CPU limit then ends it
    for asked in (signal.SIGUSR1, signal.SIGXCPU):
        faulthandler.register(asked, file=stack, all_threads=True, chain=asked == signal.SIGXCPU)
    linux.end_with_parent()
    close_other_files((channel.fileno(), stack))
    clean_environment(os.getcwd())
    # process 1 of a new namespace, because it was started first
    limit_rank(limits, range(2, 2 + ranks) if os.getppid() == 1 else ())


def reported_error(error, limits):
    """Return what the rank reports to the watcher about an exception."""
    if isinstance(error, RankEnded):
        return error.told
    if isinstance(error, StudentMistake):
        return {"status": FAILED, "message": str(error), "line": error.__cause__ and _line(error.__cause__)}
    if isinstance(error, MissingInCase):
        return {"status": GRADER_FAULT, "message": str(error)}
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error) or "bad_alloc" in str(error):
        return {
            "status": OUT_OF_MEMORY,
            "message": f"your code needs more memory than the {limits.memory_bytes >> 20} MiB that it may use",
            "line": _line(error),
        }
    return {"status": ERROR, "message": no_thread(str(error), limits) or _words(error), "line": _line(error)}


def no_thread(text, limits):
    """Return a sentence if the message of Python or a library means that it could not start a thread; otherwise ""."""
    if not NO_THREAD.search(text):
        return ""
    return (
        "a library, or the code itself, could not start one more thread: all ranks together may have"
        f" {limits.processes} processes and threads, and each rank {limits.memory_bytes >> 20} MiB of memory for those"
        " and all else"
    )


def _words(error):
    """Return the same as `describe`, but without the exception class for the course's own messages, and without the
    source location for text that is not Python, and with the reason for an error in REASONS, or else with the values in
    the expression that failed."""
    if isinstance(error, SyntaxError) and str(error.filename).startswith(STUDENT):
        return f"{type(error).__name__}: {error.msg}" + (f", in `{error.text.strip()[:200]}`" if error.text else "")
    if isinstance(error, OneSentence):
        return describe(error).partition(": ")[2]
    text = failing_line.without_dump(describe(error))
    reason = next((reason for words, reason in REASONS.items() if words in text), "")
    if not reason and not isinstance(error, (NameError, ImportError, SyntaxError)):
        with contextlib.suppress(Exception):  # a student's object may raise anything when it is looked at
            reason = failing_line.values(error)
    return f"{text}: {reason}" if reason else text


def describe(error):
    """Return an exception in the form of the last lines of Python's traceback, at most 1,000 characters. Long lines are
    cut, so that the last line, which names the error, is included."""
    lines = "".join(traceback.format_exception_only(error)).strip().split("\n")
    return "\n".join(line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} ..." for line in lines)[:1000]


def _line(error):
    """Return the innermost line of the student's file in the traceback, or None."""
    if isinstance(error, SyntaxError) and str(error.filename).startswith(STUDENT):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(STUDENT)]
    if lines:
        return lines[-1]
    in_callback = IN_CALLBACK.search(str(error))  # a future's callback, whose traceback is only a text
    return int(in_callback[1]) if in_callback else None
