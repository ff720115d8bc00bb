"""``python -m grader check UNIT``: the self-check in a terminal; and the instructor's commands, which students do not
receive."""

import sys

# a file in the working directory, such as a student's random.py, must not replace Python's own module
sys.path.append(sys.path.pop(0))

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from handson.errors import run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def commands():
    """Check your own work (`check`), or, for instructors, grade a class (`grade` and the commands around it)."""


@app.command()
def check(
    unit: Annotated[str, typer.Argument(help="Name of the unit, such as multi_gpu.")],
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of gaps or files to check. Default: all of the unit.")
    ] = None,
    track: Annotated[
        str | None, typer.Option(help="Track to check, pytorch or chainer. Default: both, and the better one counts.")
    ] = None,
    hints: Annotated[
        bool, typer.Option("--hints", help="Show a hint for each gap that was tried and is wrong.")
    ] = False,
):
    """Check your code for a unit. Report what passed, what failed, and where to look in exercises/ and notebooks/."""
    from grader.self_check import check

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupted)
    checked = check(unit, *names or (), track=track, hints=hints)
    raise typer.Exit(0 if checked.points == checked.max_points else 1)


def _interrupted(number, frame):
    """Handle Ctrl-C immediately, because it may take seconds until all processes have ended."""
    os.write(sys.stderr.fileno(), b"\n" * sys.stderr.isatty() + b"Interrupted.\n")  # print itself could be interrupted
    sys.exit(128 + number)


if Path(__file__).with_name("instructors").is_dir():
    from grader.instructors.commands import app as instructors

    app.add_typer(instructors)

if __name__ == "__main__":
    run(app, "grader")
