"""The instructor's commands of ``python -m grader``. Each command imports what it needs when it runs."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from handson.files import COURSE


class Platform(StrEnum):
    moodle = "moodle"
    canvas = "canvas"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, no_args_is_help=True)


@app.command()
def release(
    solutions: Annotated[Path, typer.Option(help="Where the marked solutions are.")] = COURSE / "solutions",
    course: Annotated[
        Path, typer.Option(help="Where exercises/ and notebooks/ go; what was changed in them is kept beside them.")
    ] = COURSE,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if they are not up to date.")] = False,
    site: Annotated[
        str | None,
        typer.Option(
            help=(
                "The site whose queue, group and modules job scripts get, and that grading expects; else course.toml's,"
                " or the chosen one."
            )
        ),
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option(metavar="FILE.zip", help="Write what students receive into one archive, too.")
    ] = None,
):
    """Build exercises and notebooks from the solutions: every gap becomes PUT YOUR CODE with its hint."""
    from grader.instructors.bundle import bundle as write_bundle
    from grader.instructors.bundle import refuse_unwritable
    from grader.instructors.release import release

    if bundle:
        refuse_unwritable(bundle)
    built = release(solutions, course, check, typer.echo, site)
    if bundle:
        write_bundle(built, bundle, built.site)
        typer.echo(f"{bundle}: what students receive.")


@app.command()
def grade(
    submissions: Annotated[
        Path,
        typer.Argument(
            help="A folder or an archive for each student is in here; or the zip that Moodle or Canvas gives out."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where the gradebook and the reports go.")],
    engines: Annotated[int, typer.Option(min=1, help="How many engines to start on this machine.")] = 2,
    profile: Annotated[str | None, typer.Option(help="Use the running cluster of this ipyparallel profile.")] = None,
    cluster_file: Annotated[Path | None, typer.Option(help="Use the running cluster that this file describes.")] = None,
    unit: Annotated[list[str] | None, typer.Option(help="Only this unit (may be repeated).")] = None,
    trusted: Annotated[bool, typer.Option("--trusted", help="Run students' code without a sandbox.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Grade anew what is graded already.")] = False,
    worksheet: Annotated[
        Path | None,
        typer.Option(
            help="Moodle's grading worksheet: times of handing in, groups; moodle.csv is then this file, filled in."
        ),
    ] = None,
):
    """Grade a class on an ipyparallel cluster. After an interruption, the same command goes on where it stopped."""
    from grader.instructors.grade.grading import grade

    grade(submissions, out, engines, profile, cluster_file, trusted, force, unit, typer.echo, worksheet)


@app.command()
def verify(
    unit: Annotated[list[str] | None, typer.Option(help="Only this unit (may be repeated).")] = None,
    seeds: Annotated[int, typer.Option(min=0, help="Judge each known answer under so many seeds, too.")] = 0,
    real: Annotated[
        bool, typer.Option("--real", help="Run the known answers in the real scripts, too, which takes hours.")
    ] = False,
):
    """Prove all checks, at the chosen site: full marks for solutions, nothing for untouched exercises, every known
    mistake caught."""
    sys.path.insert(0, str(COURSE))  # the room answers/ is no installed package
    from answers.verify import verify

    raise typer.Exit(0 if verify(unit, typer.echo, seeds, real) else 1)


@app.command()
def tour(
    folder: Annotated[Path, typer.Option(help="Where the class and its grades go; what is in it is replaced.")] = Path(
        "results/tour_grading"
    ),
    trusted: Annotated[bool, typer.Option("--trusted", help="Run without a sandbox.")] = False,
):
    """Grade a class of known answers: solutions, untouched exercises, and some with a mistake."""
    sys.path.insert(0, str(COURSE))  # the room answers/ is no installed package
    from answers.tour import tour

    raise typer.Exit(0 if tour(folder, trusted, typer.echo) else 1)


@app.command()
def course():
    """Show the term as course.toml has it: units, points, deadlines, extensions, groups; or what is wrong there."""
    from grader.instructors.reports.in_words import term
    from grader.instructors.rules import FILE, read

    if not FILE.exists():
        typer.echo(f"There is no {FILE}: grades are the points of the checks. docs/course.toml is an example.")
    for line in term(read()):
        typer.echo(line)


cluster = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
app.add_typer(cluster, name="cluster", help="Engines for `grade --profile` in a job of the site's batch system.")


@cluster.command("start")
def start_cluster(
    site: Annotated[
        str | None, typer.Option(help="The site whose queue, group and nodes the job asks for; else the chosen one.")
    ] = None,
    engines: Annotated[int, typer.Option("--engines", "-n", min=1, help="How many engines, as many on each node.")] = 2,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="On how many nodes; else on as few as have the cores.")
    ] = None,
    profile: Annotated[str, typer.Option(help="The name of ipyparallel's profile, which is written anew.")] = "handson",
    walltime: Annotated[
        str | None, typer.Option(metavar="HH:MM:SS", help="Of the job; else the longest of the site, or two hours.")
    ] = None,
    wait: Annotated[int, typer.Option(min=1, help="Seconds that the job may wait and start.")] = 600,
):
    """Start a controller here and a job with engines, and wait until they are ready."""
    from grader.instructors.grade.site_cluster import start

    start(site, engines, nodes, profile, walltime, wait, typer.echo)


@cluster.command("stop")
def stop_cluster(profile: Annotated[str, typer.Option(help="As given to `start`.")] = "handson"):
    """End the controller and the engines' job."""
    from grader.instructors.grade.site_cluster import stop

    stop(profile, typer.echo)


@app.command()
def doctor():
    """Show how well a student's code can be confined on this machine, and what would improve it."""
    from grader.sandbox.layers_in_force import report

    for line in report():
        typer.echo(line)


@app.command()
def adjust(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where `grade --out` wrote.")],
    student: Annotated[str, typer.Option(help="As in the first column of grades.csv.")] = "",
    unit: Annotated[
        str, typer.Option(help="The task, such as multi_gpu; `all` for the whole grade, `bonus` for bonus points.")
    ] = "",
    reason: Annotated[str, typer.Option(help="Students read it.")] = "",
    author: Annotated[str, typer.Option(help="Who decided; students read it.")] = "",
    gap: Annotated[str, typer.Option(help="The gap; without it, the points are for the whole unit.")] = "",
    points: Annotated[
        float | None,
        typer.Option(help="In place of what the checks gave; without it, an earlier adjustment is taken back."),
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Let what was set for an earlier submission hold for the newest one.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="Only list what was set by hand.")] = False,
):
    """Set a student's points by hand, and write the reports again. The checks' points and all reasons are kept."""
    from grader.instructors import adjustments

    if show:
        for line in adjustments.adjustments(folder) or ["Nothing is set by hand."]:
            typer.echo(line)
        return
    if missing := [name for name, value in (("--student", student), ("--unit", unit)) if not value]:
        raise typer.BadParameter(f"{' and '.join(missing)} must be given, or --list")
    if confirm:
        adjustments.confirm(folder, student, unit, gap, author, typer.echo)
    else:
        adjustments.adjust(folder, student, unit, gap, points, reason, author, typer.echo)


@app.command()
def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where `grade --out` wrote.")]):
    """Write all tables and pages again from the gradebook, also while `grade` is still running."""
    from grader.instructors.gradebook import Gradebook
    from grader.instructors.reports import outdated, write_reports
    from grader.instructors.rules import in_gradebook, read

    with Gradebook(folder, writing=False) as book:
        for sentence in in_gradebook(read(), book.attempts()).unknown:
            typer.echo(sentence)
        if sentence := outdated(book):
            typer.echo(sentence)
        typer.echo(f"{write_reports(book, folder)} students: see {folder / 'report.html'}")


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where `grade --out` wrote.")],
    to: Annotated[Platform, typer.Option(help="Who takes it back.")],
    submissions: Annotated[
        Path | None, typer.Option(help="For Canvas: what was graded, as Canvas gave it out.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="For Moodle: the unit whose assignment takes it back, if each has its own.")
    ] = None,
):
    """Pack the feedback pages of a class into the zip that Moodle or Canvas takes back."""
    from grader.instructors.export import export

    export(folder, to.value, submissions, typer.echo, unit)


@app.command()
def gradescope(
    path: Annotated[Path, typer.Argument(metavar="FILE.zip", help="The autograder, to be uploaded.")],
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Let it run code without a sandbox if Gradescope's machine allows none.")
    ] = False,
):
    """Write this course's grader as an autograder for Gradescope."""
    from grader.instructors.gradescope import pack

    pack(path, trusted, say=typer.echo)


@app.command()
def regrade(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where `grade --out` wrote.")],
    student: Annotated[
        str | None, typer.Option(help="Only this student or group, whatever the checks; as in grades.csv.")
    ] = None,
    unit: Annotated[list[str] | None, typer.Option(help="Only this unit (may be repeated).")] = None,
    engines: Annotated[int, typer.Option(min=1, help="How many engines to start on this machine.")] = 2,
    trusted: Annotated[bool, typer.Option("--trusted", help="Run students' code without a sandbox.")] = False,
):
    """Grade again what was graded by older checks, of all attempts that may count, also of students who are gone."""
    from grader.instructors.grade.grading import again

    again(folder, student, unit, engines, trusted, typer.echo)


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where `grade --out` wrote.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of this computer; 0 for any free one.")] = 8765,
    engines: Annotated[int, typer.Option(min=1, help="How many engines grade a student again.")] = 2,
    trusted: Annotated[bool, typer.Option("--trusted", help="Grade again without a sandbox.")] = False,
):
    """Show report and feedback as live pages on this computer, to adjust grades, comment, and grade a student again."""
    from grader.instructors.serve import serve

    serve(folder, port, engines, trusted, typer.echo)


@app.command()
def similarity(
    submissions: Annotated[
        Path, typer.Argument(help="What the class handed in: a folder or archive for each student.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page that shows them side by side.")] = Path(
        "similarity.html"
    ),
):
    """List groups of submissions that share filled-in code which neither the exercise nor the solution has."""
    from tempfile import TemporaryDirectory

    from grader.instructors.collect import collect, released
    from grader.instructors.reports.pages import similarity
    from grader.instructors.reports.report_files import write
    from grader.instructors.similarity import of_submissions

    left_out = []
    with TemporaryDirectory() as workplace:
        groups = of_submissions(
            collect(submissions, workplace, released(), typer.echo, with_times=False), left_out.append
        )
    for group in groups:
        where = "; ".join(f"{gap} in {file}" for file, gap in group.gaps) or ", ".join(group.files)
        share = "share nearly all that they filled in," if group.copies else "share"
        typer.echo(
            f"{len(group.sides)} students {share} {group.tokens} tokens ({where}):"
            f" {', '.join(side.student for side in group.sides)}"
        )
    for sentence in left_out:
        typer.echo(sentence)
    write(out, similarity(groups, left_out))
    typer.echo(f"{len(groups)} group{'s' * (len(groups) != 1)}: see {out}")
