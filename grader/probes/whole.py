"""A whole run of a script's `train`: what it prints, and what it leaves behind."""

import contextlib
import io
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from grader.box.rank import Wrong
from grader.probes.student import Student
from handson.training import results


class Printed(io.StringIO):
    """Standard output that can be looked at afterwards."""

    def write(self, text):
        sys.__stdout__.write(text)
        return super().write(text)


def run(source, args, before, after):
    """Call ``train(*before, args, *after)`` of the script; returns its lines on the throughput, its result, and what is wrong with that.

    Every rank has a folder for results of its own, so that it shows who writes.
    """
    args.out = Path(tempfile.mkdtemp(dir="."))
    train = getattr(Student(source).module, "train", None)
    if train is None:
        raise Wrong("there is no function `train` any more")
    with contextlib.redirect_stdout(Printed()) as printed:
        train(*before, args, *after)
    result, problem = None, ""
    try:
        result = asdict(results.read(args.out)) if (args.out / "result.json").exists() else None
    except results.ResultError as error:
        problem = str(error)
    lines = [line for line in printed.getvalue().splitlines() if line.startswith("Throughput:")]
    return {"lines": lines[:3], "result": result, "problem": problem}
