"""The instructor's commands: ``python -m grader COMMAND``. Each command imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from handson.errors import run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, help=__doc__)
ROOT = Path(__file__).resolve().parent.parent


@app.callback()
def commands():
    """The instructor's commands."""


@app.command()
def release(
    solutions: Annotated[Path, typer.Option(help="Where the marked solutions are.")] = ROOT / "solutions",
    course: Annotated[Path, typer.Option(help="Where exercises/ and notebooks/ go; what is in them is replaced.")] = ROOT,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if they are not up to date.")] = False,
):
    """Build exercises and notebooks from the solutions: every gap becomes PUT YOUR CODE with its hint."""
    from grader.release import release

    release(solutions, course, check, typer.echo)


@app.command()
def doctor():
    """Say how well a student's code can be confined on this machine, and what would improve it."""
    from grader.sandbox.doctor import report

    for line in report():
        typer.echo(line)


def main():
    run(app, "grader")


if __name__ == "__main__":
    main()
