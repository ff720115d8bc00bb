"""A class graded on a real cluster: who gets what, and that nothing is lost or changed when something dies."""

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from handing_in import small_class
from waiting import wait_until

from grader.instructors.grade import grading, seeds
from grader.instructors.gradebook import Gradebook, GradebookError
from grader.verdict import FAILED, NOT_ATTEMPTED, NOT_FOUND, PASSED
from handson import linux
from handson.errors import OneSentence

ROOT = Path(__file__).resolve().parents[2]
UNIT = "single_gpu"
LIMIT = 240  # seconds for a grader; far more than it takes


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class graded without a disturbance: where, what was printed, and how many students it has."""
    folder = tmp_path_factory.mktemp("class")
    students = small_class(folder / "handed_in")
    done = subprocess.run(
        command(folder / "handed_in", folder / "out"), cwd=ROOT, text=True, capture_output=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout, students


def command(submissions, out, *options, loaded=None):
    """loaded: the folder of the tests' process that has libraries loaded, where it does not matter that the grader
    loads its own."""
    grader = ["-m", "grader"] if loaded is None else ["tests/grader/loaded.py", str(loaded)]
    return [sys.executable, *grader, "grade", str(submissions), "--out", str(out), "--unit", UNIT, *options]


def beside(graded, folder):
    """A folder for the grades of the same class, with the secret that the inputs follow from: what is graded there gets
    the same results."""
    out = folder / "out"
    out.mkdir()
    shutil.copy(graded[0] / "out" / seeds.NAME, out)
    return out


def results(out):
    """What counts now, without times: (student, unit) -> what every check said."""
    with Gradebook(out, writing=False) as book:
        return {
            key: [(v.gap, v.check, v.status, v.points, v.message) for v in verdicts]
            for key, verdicts in book.results().items()
        }


def finished(out):
    """How many units are in the gradebook of a grader that runs."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{out}/gradebook.sqlite?mode=ro", uri=True)) as database:
            return database.execute("SELECT count(*) FROM results").fetchone()[0]
    except sqlite3.Error:
        return 0


def below(process, word):
    """The processes that `process` has started and whose command line holds `word`."""
    found = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # this one has ended
                if word in " ".join(child.cmdline()):
                    found.append(child)
    return found


def test_solutions_get_everything_untouched_exercises_nothing_and_mutants_what_they_deserve(graded):
    found = results(graded[0] / "out")
    assert {status for _, _, status, _, _ in found["ann", UNIT]} == {PASSED, NOT_FOUND}
    assert {(status, points) for _, _, status, points, _ in found["bob", UNIT]} == {(NOT_ATTEMPTED, 0), (NOT_FOUND, 0)}
    for (student, _), verdicts in found.items():
        if student.startswith("mutant"):
            wrong = {gap for gap, _, status, _, _ in verdicts if status not in (PASSED, NOT_FOUND)}
            assert len(wrong - {"run"}) == 1 and FAILED in {status for _, _, status, _, _ in verdicts}, verdicts
    assert f"{len(found)} of {len(found)} pieces graded" in graded[1]


@pytest.mark.thorough
@pytest.mark.parametrize("terminal", [True, False])
def test_how_many_how_fast_and_how_long_still_is_told_in_a_terminal_and_elsewhere(
    monkeypatch, capsys, tmp_path, terminal
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    said = []
    with grading._progress(4, tmp_path, said.append) as tick:
        for student in "abcd":
            tick((student, UNIT), 2)
    shown = capsys.readouterr().err
    pattern = (
        r"4/4 \[[\d:]+<00:00, .*(piece/s|s/piece), 2 engines"
        if terminal
        else r"4 of 4 pieces graded, .*(piece/s|s/piece), 00:00 left \(2 engines\)"
    )
    assert re.search(pattern, shown if terminal else said[-1])
    assert terminal == (not said) == bool(shown)


@pytest.mark.thorough
def test_what_is_graded_is_not_graded_again_unless_it_changes(graded, tmp_path, borrowing):
    out = tmp_path / "out"
    small_class(tmp_path / "handed_in")
    subprocess.run(["cp", "-r", str(graded[0] / "out"), str(out)], check=True)
    said = []
    grading.grade(tmp_path / "handed_in", out, units=[UNIT], say=said.append)
    assert f"0 of {graded[2]} pieces of work to grade." in said
    script = tmp_path / "handed_in/bob/exercises/01_single_gpu/pytorch/train_cifar_single_gpu.py"
    script.write_text(
        (tmp_path / "handed_in/ann/exercises/01_single_gpu/pytorch/train_cifar_single_gpu.py").read_text()
    )
    said.clear()
    grading.grade(tmp_path / "handed_in", out, engines=1, units=[UNIT], say=said.append)
    assert f"1 of {graded[2]} pieces of work to grade." in said
    found = results(out)
    assert [row[3] for row in found["bob", UNIT]] == [row[3] for row in found["ann", UNIT]]


@pytest.mark.parametrize(
    ("victim", "place", "number"),
    [
        ("ipyparallel.engine", 0, signal.SIGKILL),
        pytest.param("ipyparallel.engine", 0, signal.SIGSTOP, marks=pytest.mark.thorough),
        pytest.param("ipyparallel.controller", 0, signal.SIGKILL, marks=pytest.mark.thorough),
        pytest.param("ipyparallel.controller", -1, signal.SIGKILL, marks=pytest.mark.thorough),  # one of its queues
    ],
)
def test_an_engine_that_is_killed_or_stopped_or_a_killed_controller_or_queue_changes_no_result(
    graded, loaded, tmp_path, victim, place, number
):
    grader = subprocess.Popen(
        command(graded[0] / "handed_in", beside(graded, tmp_path), loaded=loaded), cwd=ROOT, stdout=subprocess.DEVNULL
    )
    wait_until(lambda: finished(tmp_path / "out") or grader.poll() is not None, "a result", LIMIT)
    if processes := below(grader, victim):
        processes[place].send_signal(number)
    assert grader.wait(LIMIT) == 0
    assert results(tmp_path / "out") == results(graded[0] / "out")


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_grader_that_is_ended_leaves_no_process_and_goes_on_where_it_stopped(
    graded, loaded, tmp_path, monkeypatch, number
):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    # so that it is ended before it has graded all
    slowly = command(graded[0] / "handed_in", beside(graded, tmp_path), "--engines", "1")
    grader = subprocess.Popen(slowly, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: finished(tmp_path / "out") or grader.poll() is not None, "a result", LIMIT)
    family = below(grader, "")
    assert family
    os.kill(grader.pid, number)
    printed = grader.communicate(timeout=30)[0]
    if number == signal.SIGINT:
        assert re.search(rf"\n[1-9]\d* of {graded[2]} pieces graded; the same command continues\.\n", printed)
    wait_until(lambda: not [one for one in family if linux.runs(one.pid)], "no process is left")
    before = finished(tmp_path / "out")
    assert not list(temporary.glob("handson-cluster-*")), "the folder with the keys"
    again = subprocess.run(
        command(graded[0] / "handed_in", tmp_path / "out", loaded=loaded),
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=LIMIT,
    )
    assert again.returncode == 0 and f"\n{graded[2] - before} of {graded[2]} pieces of work to grade." in again.stdout
    assert results(tmp_path / "out") == results(graded[0] / "out")
    assert finished(tmp_path / "out") == graded[2], "none was graded twice"
    assert not list(temporary.glob("handson-*")), "nothing of either is left"


@pytest.mark.thorough
def test_a_full_disk_ends_with_what_to_do_and_never_with_a_report_of_what_is_not_graded(
    graded, tmp_path, monkeypatch, borrowing
):
    """The disk is full from the beginning, or when the first results are stored."""

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    small_class(tmp_path / "handed_in")
    for place in (
        "grader.instructors.reports.report_files.written_aside",
        "grader.instructors.grade.ipp_cluster.temporary_folder",
        "pathlib.Path.write_bytes",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            with pytest.raises(OneSentence, match="No space left on device.*make room") as error:
                grading.grade(tmp_path / "handed_in", tmp_path / "out", units=[UNIT], say=lambda line: None)
            assert "grader report" not in str(error.value)


@pytest.mark.thorough
def test_what_stops_the_grading_is_told_even_if_no_report_can_be_written(graded, tmp_path, monkeypatch):
    def store(*arguments):
        monkeypatch.setattr(
            "grader.instructors.reports.report_files.written_aside",
            lambda *arguments, **options: (_ for _ in ()).throw(OSError(28, "No space")),
        )
        raise GradebookError("gradebook.sqlite can't be written (disk full): make room, and run the same command again")

    monkeypatch.setattr(grading, "_grade", store)
    with pytest.raises(GradebookError, match="disk full"):
        grading.grade(graded[0] / "handed_in", tmp_path / "out", units=[UNIT], say=lambda line: None)


@pytest.mark.thorough
def test_a_second_grader_on_the_same_folder_is_refused_politely(graded):
    with Gradebook(graded[0] / "out"):
        refused = subprocess.run(
            command(graded[0] / "handed_in", graded[0] / "out"), cwd=ROOT, text=True, capture_output=True, timeout=LIMIT
        )
    assert refused.returncode != 0 and "Traceback" not in refused.stderr and str(os.getpid()) in refused.stderr


@pytest.mark.thorough
def test_without_a_sandbox_nothing_is_graded_unless_the_code_is_trusted(graded, tmp_path, monkeypatch):
    monkeypatch.setattr(grading.sandbox, "strong", lambda: False)
    with pytest.raises(grading.GradeError, match="--trusted"):
        grading.grade(graded[0] / "handed_in", tmp_path / "out", units=[UNIT])
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("submissions", "out"), [("class", "class/out"), ("class", "class"), ("out/submissions", "out")]
)
def test_grades_may_not_be_written_among_the_submissions(tmp_path, submissions, out):
    (tmp_path / submissions / "jane").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(grading.GradeError, match="where submissions are read"):
        grading.grade(tmp_path / submissions, tmp_path / out, trusted=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.thorough
def test_students_who_are_gone_stay_in_the_gradebook_and_are_named(graded, tmp_path):
    out, said = tmp_path / "out", []
    small_class(tmp_path / "handed_in")
    subprocess.run(["cp", "-r", str(graded[0] / "out"), str(out)], check=True)
    shutil.rmtree(tmp_path / "handed_in/bob")
    grading.grade(tmp_path / "handed_in", out, units=[UNIT], say=said.append)
    assert "In the gradebook, but not in this download: bob." in said and ("bob", UNIT) in results(out)
    assert "In the gradebook, but not in this download: bob." in (out / "report.html").read_text()


@pytest.mark.thorough
def test_an_unknown_unit_is_named_with_those_there_are(tmp_path):
    with pytest.raises(grading.GradeError, match="no unit multigpu.*multi_gpu"):
        grading.grade(tmp_path, tmp_path / "out", units=["multigpu"], trusted=True)


@pytest.mark.parametrize(("settled", "says"), [(60, False), (0, True)])
def test_the_time_that_is_left_is_named_when_the_rate_has_settled(settled, says, tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "SETTLED", settled)
    said = []
    with grading._progress(4, tmp_path, said.append) as tick:
        tick(("student", "unit"), 2)
    assert said[0].startswith("1 of 4 pieces graded, ") and (" left (2 engines)" in said[0]) == says
