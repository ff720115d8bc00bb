"""Run a script's whole `train`, and observe its output and its files."""

import contextlib
import io
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from grader.probes.gap_code import GapCode
from grader.sandbox.rank import StudentMistake
from handson.training import results


class Printed(io.StringIO):
    """Standard output that is also kept, so that it can be read afterwards."""

    def write(self, text):
        sys.__stdout__.write(text)
        return super().write(text)


def run(source, args, before, after):
    """Call the script's ``train(*before, args, *after)``, and return {"lines": on the throughput, "result": a
    dictionary or None, "problem": with it}.

    Every rank gets its own folder for results, which shows the ranks that write one.
    """
    args.out = Path(tempfile.mkdtemp(dir="."))
    train = getattr(GapCode(source).module, "train", None)
    if train is None:
        raise StudentMistake("the function `train` is missing: keep it")
    with contextlib.redirect_stdout(Printed()) as printed:
        train(*before, args, *after)
    result, problem = None, ""
    try:
        result = asdict(replace(results.read(args.out), folder=None)) if (args.out / "result.json").exists() else None
    except results.ResultError as error:
        problem = str(error)
    lines = [line for line in printed.getvalue().splitlines() if line.startswith("Throughput:")]
    return {"lines": lines[:3], "result": result, "problem": problem}
