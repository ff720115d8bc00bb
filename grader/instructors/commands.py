"""The instructor's commands of ``python -m grader``. Each command imports its modules only when it runs."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from handson.files import COURSE
from handson.language import ENGLISH


class Platform(StrEnum):
    moodle = "moodle"
    canvas = "canvas"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, no_args_is_help=True)


@app.command()
def release(
    solutions: Annotated[Path, typer.Option(help="Folder of the solutions.")] = COURSE / "solutions",
    course: Annotated[
        Path,
        typer.Option(
            help="Folder for exercises/ and notebooks/. Changed files in them are kept as copies next to them."
        ),
    ] = COURSE,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if exercises or notebooks are out of date.")
    ] = False,
    site: Annotated[
        str | None,
        typer.Option(
            help=(
                "Site whose queue, group and modules job scripts get, and that grading expects. Default: the site of"
                " course.toml, or the chosen site."
            )
        ),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.zip", help="Path of an archive with everything that students receive. Default: none."
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(help="Language, such as ja: a folder in locale/. Default: that of course.toml, or English."),
    ] = None,
):
    """Build exercises and notebooks from the solutions: every gap becomes PUT YOUR CODE with its hint."""
    from grader.instructors.bundle import bundle as write_bundle
    from grader.instructors.bundle import refuse_unwritable
    from grader.instructors.release import release

    if bundle:
        refuse_unwritable(bundle)
    built = release(solutions, course, check, typer.echo, site, language)
    if built.language != ENGLISH and course.resolve() != COURSE and not check:
        from grader.instructors.translation.pages import write_pages

        write_pages(built.language, course)
    if bundle:
        write_bundle(built, bundle, built.site)
        typer.echo(f"{bundle}: what students receive.")


catalogues = typer.Typer(help="Translate the course: docs/translating.md.", invoke_without_command=True)
app.add_typer(catalogues, name="catalogues")
OfLanguage = Annotated[str, typer.Option(help="Language: a folder in locale/.")]
Domain = Annotated[str, typer.Argument(help="Name of a catalogue, as `catalogues` lists them.")]


@catalogues.callback()
def update_catalogues(context: typer.Context, language: OfLanguage = "ja"):
    """Bring all catalogues up to date with the English texts, and count what is translated."""
    if not context.invoked_subcommand:
        from grader.instructors.translation.work import update_and_count

        update_and_count(language, typer.echo)


@catalogues.command("todo")
def to_do(domain: Domain, language: OfLanguage = "ja"):
    """Print as JSON what is not translated, or outdated: {English text: ""}, or OUTDATED: and its old translation."""
    from grader.instructors.translation.work import to_do

    typer.echo(to_do(language, domain))


@catalogues.command("put")
def put_translations(
    domain: Domain,
    file: Annotated[Path, typer.Argument(help="File that `todo` printed, with translations.")],
    language: OfLanguage = "ja",
):
    """Put translations into a catalogue; refuse those that differ in placeholders, code, numbers or links."""
    from grader.instructors.translation.work import put

    raise typer.Exit(put(language, domain, file, typer.echo))


@app.command()
def grade(
    submissions: Annotated[
        Path, typer.Argument(help="Zip from Moodle or Canvas, or folder with a folder or an archive per student.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the gradebook and the reports.")],
    engines: Annotated[int, typer.Option(min=1, help="Number of engines to start on this machine.")] = 2,
    profile: Annotated[
        str | None,
        typer.Option(help="Name of the ipyparallel profile of a running cluster. Default: start engines here."),
    ] = None,
    cluster_file: Annotated[
        Path | None, typer.Option(help="Path of the cluster file of a running cluster. Default: start engines here.")
    ] = None,
    unit: Annotated[list[str] | None, typer.Option(help="Unit to take; may be repeated. Default: all units.")] = None,
    trusted: Annotated[bool, typer.Option("--trusted", help="Run student code without a sandbox.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Grade everything again, including current results.")] = False,
    worksheet: Annotated[
        Path | None,
        typer.Option(
            help="Moodle's grading worksheet, with submission times and groups; moodle.csv is this file, filled in."
        ),
    ] = None,
):
    """Grade a class on an ipyparallel cluster. After an interruption, the same command continues where it stopped."""
    from grader.instructors.grade.grading import grade

    grade(submissions, out, engines, profile, cluster_file, trusted, force, unit, typer.echo, worksheet)


@app.command()
def verify(
    unit: Annotated[list[str] | None, typer.Option(help="Unit to take; may be repeated. Default: all units.")] = None,
    seeds: Annotated[
        int, typer.Option(min=0, help="Number of further seeds under which each known answer is judged.")
    ] = 0,
    real: Annotated[
        bool, typer.Option("--real", help="Also run the known answers in the real scripts, which takes hours.")
    ] = False,
):
    """Test all checks at the chosen site: solutions get full marks, untouched exercises get nothing, and every known
    mistake is found."""
    sys.path.insert(0, str(COURSE))  # the folder answers/ is not an installed package
    from answers.verify import verify

    raise typer.Exit(0 if verify(unit, typer.echo, seeds, real) else 1)


@app.command()
def tour(
    folder: Annotated[
        Path, typer.Option(help="Folder for the class and its grades, whose content is replaced.")
    ] = Path("results/tour_grading"),
    trusted: Annotated[bool, typer.Option("--trusted", help="Run the answers without a sandbox.")] = False,
):
    """Grade a class of known answers: solutions, untouched exercises, and answers with one mistake."""
    sys.path.insert(0, str(COURSE))  # the folder answers/ is not an installed package
    from answers.tour import tour

    raise typer.Exit(0 if tour(folder, trusted, typer.echo) else 1)


@app.command()
def course():
    """Show the term of course.toml (units, points, deadlines, extensions, groups), or the errors in that file."""
    from grader.instructors.reports.in_words import term
    from grader.instructors.rules import FILE, read

    if not FILE.exists():
        typer.echo(f"There is no {FILE}: grades are the points of the checks. docs/course.toml is an example.")
    for line in term(read()):
        typer.echo(line)


cluster = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
app.add_typer(
    cluster, name="cluster", help="Start and stop engines for `grade --profile` in a job of the batch system."
)


@cluster.command("start")
def start_cluster(
    site: Annotated[
        str | None, typer.Option(help="Site whose queue, group and nodes the job requests. Default: the chosen site.")
    ] = None,
    engines: Annotated[
        int, typer.Option("--engines", "-n", min=1, help="Number of engines, spread evenly over the nodes.")
    ] = 2,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Number of nodes. Default: the fewest with enough cores.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Name of the ipyparallel profile, which is overwritten.")] = "handson",
    walltime: Annotated[
        str | None,
        typer.Option(
            metavar="HH:MM:SS", help="Walltime of the engines' job. Default: the site's longest walltime, or 2 hours."
        ),
    ] = None,
    wait: Annotated[int, typer.Option(min=1, help="Seconds until all engines must be connected.")] = 600,
):
    """Start a controller here and a job with engines, and wait until they are ready."""
    from handson.cluster import engine_jobs

    engine_jobs.start(site, engines, nodes, profile, walltime, wait, typer.echo)
    typer.echo(f"Grade with: python -m grader grade SUBMISSIONS --out DIR --profile {profile}")
    typer.echo(f"At the end: python -m grader cluster stop --profile {profile}")


@cluster.command("stop")
def stop_cluster(
    profile: Annotated[str, typer.Option(help="Name of the ipyparallel profile that `start` used.")] = "handson",
):
    """End the controller and the engines' job."""
    from handson.cluster import engine_jobs

    engine_jobs.stop(profile, typer.echo)


@app.command()
def doctor():
    """Report how well student code is confined on this machine, and how to improve it."""
    from grader.sandbox.layers_in_force import report

    for line in report():
        typer.echo(line)


@app.command()
def adjust(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `grade --out` wrote.")],
    student: Annotated[str, typer.Option(help="Name of the student, as in the first column of grades.csv.")] = "",
    unit: Annotated[
        str,
        typer.Option(help="Name of the unit, such as multi_gpu; `all` for the whole grade, `bonus` for bonus points."),
    ] = "",
    reason: Annotated[str, typer.Option(help="Reason, which the student reads.")] = "",
    author: Annotated[str, typer.Option(help="Name of the person who decided, which the student reads.")] = "",
    gap: Annotated[str, typer.Option(help="Name of the gap. Default: the whole unit.")] = "",
    points: Annotated[
        float | None,
        typer.Option(help="Points that replace those of the checks. Default: remove an earlier adjustment."),
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Apply the adjustment of an earlier submission to the newest one.")
    ] = False,
    everybody: Annotated[
        bool, typer.Option("--everybody", help="Set the points for all students who have a result there.")
    ] = False,
    new: Annotated[bool, typer.Option("--new", help="Add a student who has submitted nothing.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Only list the adjustments.")] = False,
):
    """Set a student's points by hand, and rewrite the reports. The checks' points and all reasons are kept."""
    from grader.instructors import adjustments

    if show:
        for line in adjustments.adjustments(folder) or ["Nothing is set by hand."]:
            typer.echo(line)
        return
    if everybody and (student or confirm or new):
        raise typer.BadParameter("--everybody goes with no --student, --confirm or --new")
    if missing := [name for name, value in (("--student", student or everybody), ("--unit", unit)) if not value]:
        raise typer.BadParameter(f"{' and '.join(missing)} must be given, or --list")
    if everybody:
        adjustments.adjust_all(folder, None, unit, gap, points, reason, author, typer.echo)
        return
    if new:
        student = adjustments.add(folder, student, typer.echo)
    if confirm:
        adjustments.confirm(folder, student, unit, gap, author, typer.echo)
    else:
        adjustments.adjust(folder, student, unit, gap, points, reason, author, typer.echo)


@app.command()
def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `grade --out` wrote.")]):
    """Rewrite all tables and pages from the gradebook, also while `grade` is still running."""
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
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `grade --out` wrote.")],
    to: Annotated[Platform, typer.Option(help="Platform that imports the zip.")],
    submissions: Annotated[
        Path | None, typer.Option(help="For Canvas: path of the zip that was graded, as downloaded.")
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="For Moodle: unit whose assignment imports the zip, if each unit has its own. Default: all units."
        ),
    ] = None,
):
    """Pack the feedback pages of a class into a zip that Moodle or Canvas imports."""
    from grader.instructors.export import export

    export(folder, to.value, submissions, typer.echo, unit)


@app.command()
def gradescope(
    path: Annotated[Path, typer.Argument(metavar="FILE.zip", help="Path of the autograder to upload.")],
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Run code without a sandbox if Gradescope's machine does not allow one.")
    ] = False,
):
    """Write this course's grader as an autograder for Gradescope."""
    from grader.instructors.gradescope import pack

    pack(path, trusted, say=typer.echo)


@app.command()
def regrade(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `grade --out` wrote.")],
    student: Annotated[
        str | None,
        typer.Option(
            help="Student or group, as in grades.csv, to grade again in any case. Default: all outdated results."
        ),
    ] = None,
    unit: Annotated[list[str] | None, typer.Option(help="Unit to take; may be repeated. Default: all units.")] = None,
    engines: Annotated[int, typer.Option(min=1, help="Number of engines to start on this machine.")] = 2,
    trusted: Annotated[bool, typer.Option("--trusted", help="Run student code without a sandbox.")] = False,
):
    """Grade all attempts again that may count and have results of older checks, also of students who have left."""
    from grader.instructors.grade.grading import again

    again(folder, student, unit, engines, trusted, typer.echo)


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `grade --out` wrote.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this computer; 0 takes any free port.")] = 8765,
    engines: Annotated[int, typer.Option(min=1, help="Number of engines that grade a student again.")] = 2,
    trusted: Annotated[bool, typer.Option("--trusted", help="Grade a student again without a sandbox.")] = False,
):
    """Serve report and feedback as live pages on this computer: adjust grades, comment, grade a student again."""
    from grader.instructors.serve import serve

    serve(folder, port, engines, trusted, typer.echo)


@app.command()
def similarity(
    submissions: Annotated[Path, typer.Argument(help="Submissions of the class, as for `grade`.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Path of the page that shows similar submissions side by side.")
    ] = Path("similarity.html"),
):
    """List groups of submissions that share filled-in code which is neither in the exercise nor in the solution, and
    submissions that contain the course's solutions."""
    from tempfile import TemporaryDirectory

    from grader.instructors.collect import collect, released
    from grader.instructors.reports.pages import similarity
    from grader.instructors.reports.report_files import write
    from grader.instructors.similarity import as_solved, of_submissions

    left_out = []
    with TemporaryDirectory() as workplace:
        collected = collect(submissions, workplace, released(), typer.echo, with_times=False)
        groups, solved = of_submissions(collected, left_out.append), as_solved(collected)
    for group in groups:
        where = "; ".join(f"{gap} in {file}" for file, gap in group.gaps) or ", ".join(group.files)
        share = "share nearly all that they filled in," if group.copies else "share"
        typer.echo(
            f"{len(group.sides)} students {share} {group.tokens} tokens ({where}):"
            f" {', '.join(side.student for side in group.sides)}"
        )
    for sentence in (*solved, *left_out):
        typer.echo(sentence)
    write(out, similarity(groups, left_out, solved))
    typer.echo(f"{len(groups)} group{'s' * (len(groups) != 1)}: see {out}")
