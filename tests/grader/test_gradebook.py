"""The gradebook: exactly one result counts, whatever happens in between; nothing is forgotten; one writer at a time."""

import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grader.instructors.collect import Submission
from grader.instructors.gradebook import Gradebook, GradebookError
from grader.instructors.reports import write_reports
from grader.instructors.rules import NONE, to_grade
from grader.instructors.scores import scores
from grader.verdict import GRADER_FAULT, PASSED, Verdict

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = {"single_gpu": "1", "multi_gpu": "7"}


def handed_in(student="jane", attempt=1, digest="d1", refused=None):
    return Submission(student, student, "", attempt, 1000.0, False, None, digest, ("a problem",), refused)


def said(unit="multi_gpu", points=2.0, status=PASSED, gap="step", track="pytorch"):
    return Verdict(unit, track, gap, "equal gradients", status, points, 3.0, message="a\ud800b\0")


@pytest.fixture
def book(tmp_path):
    with Gradebook(tmp_path / "out") as book:
        yield book


def pairs(submissions, units=VERSIONS):
    return [(submission, unit) for submission in submissions for unit in units]


def graded(book, *submissions, unit="multi_gpu", version="7", **fields):
    book.record(submissions)
    for submission in submissions:
        book.store(submission, unit, [said(unit, **fields)], version)


def test_everything_is_missing_at_first_and_nothing_when_it_is_graded(book):
    jane, maximal = handed_in(), handed_in("max", digest="d2")
    book.record([jane, maximal])
    assert book.what_is_missing(pairs([jane, maximal]), VERSIONS) == [
        (one, unit) for one in (jane, maximal) for unit in VERSIONS
    ]
    for one, unit in book.what_is_missing(pairs([jane, maximal]), VERSIONS):
        book.store(one, unit, [said(unit)], VERSIONS[unit])
    assert book.what_is_missing(pairs([jane, maximal]), VERSIONS) == []
    assert book.results() == {(one.student, unit): [said(unit)] for one in (jane, maximal) for unit in VERSIONS}


@pytest.mark.parametrize(
    "versions, resources, digest, missing",
    [
        (VERSIONS, "2 cores", "d1", []),
        ({**VERSIONS, "multi_gpu": "8"}, "2 cores", "d1", ["multi_gpu"]),
        (VERSIONS, "gpu", "d1", ["single_gpu", "multi_gpu"]),
        (VERSIONS, "2 cores", "d2", ["single_gpu", "multi_gpu"]),
    ],
    ids=["nothing", "a check", "resources", "the submission"],
)
def test_what_changed_is_graded_again(book, versions, resources, digest, missing):
    book.record([handed_in()])
    for unit, version in VERSIONS.items():
        book.store(handed_in(), unit, [said(unit)], version, "2 cores")
    changed = handed_in(digest=digest)
    book.record([changed])
    assert book.what_is_missing(pairs([changed]), versions, resources) == [(changed, unit) for unit in missing]


def test_what_the_grader_failed_at_is_tried_again(book):
    graded(book, handed_in(), status=GRADER_FAULT, points=None)
    assert book.what_is_missing(pairs([handed_in()], ["multi_gpu"]), {"multi_gpu": "7"}) == [(handed_in(), "multi_gpu")]


def test_the_newest_attempt_counts_and_the_others_are_history(book):
    attempts = [handed_in(attempt=number, digest=f"d{number}") for number in (1, 2, 3)]
    book.record(attempts[::-1])
    book.record(attempts)
    assert book.submissions() == [attempts[-1]]
    assert to_grade(NONE, book.attempts(), ["multi_gpu"]) == {("jane", "d3", "multi_gpu")}
    assert [row["digest"] for row in book.history("jane")] == ["d1", "d2", "d3"]


def test_going_back_to_an_older_attempt_brings_its_results_back(book):
    graded(book, handed_in(digest="old"), points=1.0)
    graded(book, handed_in(digest="new"), points=2.0)
    assert book.results()["jane", "multi_gpu"][0].points == 2.0
    book.record([handed_in(digest="old")])
    assert book.results()["jane", "multi_gpu"][0].points == 1.0
    assert book.what_is_missing(pairs([handed_in(digest="old")], ["multi_gpu"]), {"multi_gpu": "7"}) == []


def test_results_of_the_same_content_are_each_students_own(book):
    graded(book, handed_in("jane"), points=1.0)
    graded(book, handed_in("max"), points=2.0)
    assert [book.results()[student, "multi_gpu"][0].points for student in ("jane", "max")] == [1.0, 2.0]


def test_the_last_result_counts_and_all_are_history(book):
    for points in (0.0, 3.0, 1.5):
        graded(book, handed_in(), points=points)
    assert book.results() == {("jane", "multi_gpu"): [said(points=1.5)]}
    stored = [json.loads(row["verdicts"])[0]["points"] for row in book.history("jane") if row["table"] == "results"]
    assert stored == [0.0, 3.0, 1.5]


@pytest.mark.parametrize(
    "bad",
    [
        said(points=math.nan),
        said(points=math.inf),
        said(points=-0.5),
        said(points=3.5),
        said(points=None),
        said(unit="other"),
        said(status="fine"),
        said(status=GRADER_FAULT, points=0.0),
        replace(said(), max_points=math.inf),
    ],
    ids=str,
)
def test_impossible_verdicts_are_not_stored(book, bad):
    graded(book, handed_in(), points=1.0)
    with pytest.raises(ValueError):
        book.store(handed_in(), "multi_gpu", [said(), bad], "7")
    assert book.results()["jane", "multi_gpu"][0].points == 1.0


def test_adjustments_replace_one_another_and_can_be_taken_back(book):
    graded(book, handed_in())
    for points in (1.0, 2.5):
        book.adjust("jane", "multi_gpu", "step", points, "a typo", "Dr. Roe")
    [(key, adjustment)] = book.adjustments().items()
    assert key == ("jane", "multi_gpu", "step")
    assert (adjustment["points"], adjustment["reason"], adjustment["author"]) == (2.5, "a typo", "Dr. Roe")
    assert adjustment["time"] == pytest.approx(time.time(), abs=60)
    book.adjust("jane", "multi_gpu", "step", None, "it was right", "Dr. Roe")
    assert book.adjustments() == {}
    assert [row["points"] for row in book.history("jane") if row["table"] == "adjustments"] == [1.0, 2.5, None]


def test_an_adjustment_outlives_a_new_grading_and_not_a_new_submission(book):
    graded(book, handed_in())
    book.adjust("jane", "multi_gpu", "", 3.0, "shown in class", "Dr. Roe")
    graded(book, handed_in(), version="8")
    [score] = scores(book)
    assert score.points == 3.0 and score.earlier == ()
    graded(book, handed_in(digest="d2", attempt=2), version="8")
    [score] = scores(book)
    assert score.points == 2.0 and [row["points"] for row in score.earlier] == [3.0]
    book.record([handed_in()])  # the first one counts again
    [score] = scores(book)
    assert score.points == 3.0 and score.earlier == ()


def test_the_whole_grade_can_be_set_up_to_the_points_of_all_units(book):
    graded(book, handed_in())
    book.record([handed_in("max", digest="", refused="max.zip is encrypted.")])
    book.adjust("max", "", "", 3.0, "shown in class", "Dr. Roe")
    assert book.adjustments()["max", "", ""]["points"] == 3.0
    with pytest.raises(GradebookError, match="3.5 points can't be given: the whole grade has from 0 to 3"):
        book.adjust("max", "", "", 3.5, "shown in class", "Dr. Roe")


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"student": "joan"}, "no student 'joan'"),
        ({"unit": "multi"}, "result in 'multi': it is one of multi_gpu"),
        ({"gap": "setp"}, "no gap 'setp': it is one of step"),
        ({"points": math.nan}, "nan points"),
        ({"points": 3.5}, "3.5 points can't be given: multi_gpu, step has from 0 to 3$"),
        ({"reason": " "}, "a reason"),
        ({"author": ""}, "an author"),
    ],
)
def test_wrong_adjustments_are_refused(book, change, sentence):
    graded(book, handed_in())
    fields = {
        "student": "jane",
        "unit": "multi_gpu",
        "gap": "step",
        "points": 1.0,
        "reason": "why",
        "author": "who",
    } | change
    with pytest.raises(GradebookError, match=sentence):
        book.adjust(**fields)
    assert book.adjustments() == {}


def test_a_refused_submission_gets_points_for_a_whole_unit_as_others_could(book):
    graded(book, handed_in())
    book.record([handed_in("max", digest="", refused="max.zip is encrypted.")])
    with pytest.raises(GradebookError, match="max has no result in multi_gpu: leave the gap out"):
        book.adjust("max", "multi_gpu", "step", 1.0, "why", "who")
    with pytest.raises(GradebookError, match="from 0 to 3"):
        book.adjust("max", "multi_gpu", "", 4.0, "why", "who")
    book.adjust("max", "multi_gpu", "", 2.0, "shown in class", "who")
    assert book.adjustments()["max", "multi_gpu", ""]["points"] == 2.0


@pytest.mark.parametrize("table", ["submissions", "results", "adjustments"])
@pytest.mark.parametrize("statement", ["DELETE FROM {}", "UPDATE {} SET student = 'max'"])
def test_history_can_not_be_changed(book, table, statement):
    graded(book, handed_in())
    book.adjust("jane", "multi_gpu", "step", 1.0, "why", "who")
    with (
        sqlite3.connect(book.folder / "gradebook.sqlite") as database,
        pytest.raises(sqlite3.DatabaseError, match="history is kept"),
    ):
        database.execute(statement.format(table))


def test_a_reader_can_not_write_and_may_read_while_it_is_written(tmp_path):
    with Gradebook(tmp_path) as book, Gradebook(tmp_path, writing=False) as reader:
        graded(book, handed_in())
        assert reader.results()
        with pytest.raises(GradebookError, match="can't be written .attempt to write a readonly database"):
            reader.record([handed_in("max")])


def test_what_can_not_be_a_gradebook_is_said(tmp_path):
    with pytest.raises(GradebookError, match="has no gradebook.sqlite"):
        Gradebook(tmp_path, writing=False)
    (tmp_path / "gradebook.sqlite").write_text("not a database, " * 1000)
    for writing in (True, False, True):  # and the lock is free again
        with pytest.raises(GradebookError, match="can't be used"):
            Gradebook(tmp_path, writing)
    (tmp_path / "file").touch()
    with pytest.raises(GradebookError, match="name another folder"):
        Gradebook(tmp_path / "file")


@pytest.mark.parametrize("left", [b"", None], ids=["empty", "gone"])
def test_a_lost_gradebook_is_not_begun_anew_beside_its_grades(tmp_path, left):
    with Gradebook(tmp_path) as book:
        graded(book, handed_in())
        write_reports(book, tmp_path)
    (tmp_path / "gradebook.sqlite").unlink()
    if left is not None:
        (tmp_path / "gradebook.sqlite").write_bytes(left)
    before = (tmp_path / "grades.csv").read_bytes()
    with pytest.raises(
        GradebookError,
        match=f"is {'gone' if left is None else 'empty'}, but grades.csv was made of it: put a copy of it back",
    ):
        Gradebook(tmp_path)
    assert (tmp_path / "grades.csv").read_bytes() == before
    assert (tmp_path / "gradebook.sqlite").exists() == (left is not None)
    (tmp_path / "grades.csv").unlink()
    Gradebook(tmp_path).close()


@pytest.mark.thorough
@pytest.mark.parametrize("writing", [True, False])
def test_a_damaged_page_or_row_is_a_sentence(tmp_path, writing):
    with Gradebook(tmp_path) as book:
        graded(book, *(handed_in(f"s{number}", digest=f"d{number}") for number in range(200)))
    path, pages = tmp_path / "gradebook.sqlite", 0
    whole = path.read_bytes()
    for begin in range(4096, len(whole), 4096):
        path.write_bytes(whole[:begin] + b"\xff" * 4096 + whole[begin + 4096 :])
        with Gradebook(tmp_path, writing) as book:
            try:
                (
                    book.submissions(),
                    book.results(),
                    book.adjustments(),
                    book.what_is_missing(pairs([handed_in()]), VERSIONS),
                    book.history("s1"),
                )
            except GradebookError as error:
                pages += "is damaged (" in str(error) and str(error).endswith("put a copy of it back")
    assert pages > 10
    path.write_bytes(whole.replace(b'[{"unit": "multi_gpu"', b'[{"unit" ! "multi_gpu"'))
    with Gradebook(tmp_path, writing) as book, pytest.raises(GradebookError, match="is damaged"):
        book.results()


def test_a_gradebook_of_another_time_is_refused(tmp_path):
    Gradebook(tmp_path).close()
    with sqlite3.connect(tmp_path / "gradebook.sqlite") as database:
        database.execute("PRAGMA user_version = 9")
    with pytest.raises(GradebookError, match="has schema 9, and this grader supports 2"):
        Gradebook(tmp_path)


VERSION_1 = """
CREATE TABLE submissions (id INTEGER PRIMARY KEY, student TEXT NOT NULL, name TEXT NOT NULL, number TEXT NOT NULL, attempt INTEGER NOT NULL,
    time REAL NOT NULL, late INTEGER NOT NULL, digest TEXT NOT NULL, problems TEXT NOT NULL, refused TEXT, recorded REAL NOT NULL);
CREATE TABLE results (id INTEGER PRIMARY KEY, student TEXT NOT NULL, digest TEXT NOT NULL, unit TEXT NOT NULL, version TEXT NOT NULL,
    resources TEXT NOT NULL, ungraded INTEGER NOT NULL, verdicts TEXT NOT NULL, stored REAL NOT NULL);
CREATE TABLE adjustments (id INTEGER PRIMARY KEY, student TEXT NOT NULL, unit TEXT NOT NULL, gap TEXT NOT NULL, points REAL,
    reason TEXT NOT NULL, author TEXT NOT NULL, time REAL NOT NULL);
CREATE VIEW current_submissions AS SELECT * FROM submissions WHERE id IN (SELECT max(id) FROM submissions GROUP BY student);
CREATE VIEW current_results AS SELECT results.* FROM results JOIN current_submissions USING (student, digest)
    WHERE results.id IN (SELECT max(id) FROM results GROUP BY student, digest, unit);
CREATE VIEW current_adjustments AS SELECT * FROM adjustments WHERE id IN (SELECT max(id) FROM adjustments GROUP BY student, unit, gap);
"""


def of_version_1(path):
    """A gradebook as version 1 wrote it: a submission, its result and an adjustment, then another submission."""
    with sqlite3.connect(path) as database:
        database.executescript(VERSION_1 + "PRAGMA user_version = 1")
        columns = "student, name, number, attempt, time, late, digest, problems, refused, recorded"
        for digest, recorded in (("d1", 10.0), ("d2", 30.0)):
            database.execute(
                f"INSERT INTO submissions ({columns}) VALUES ('jane', 'jane', '', 1, 1.0, 0, ?, '[]', NULL, ?)",
                (digest, recorded),
            )
        database.execute(
            "INSERT INTO adjustments (student, unit, gap, points, reason, author, time) VALUES ('jane', 'multi_gpu',"
            " '', 1.0, 'why', 'who', 20.0)"
        )


@pytest.mark.parametrize("writing", [True, False])
def test_a_gradebook_of_version_1_is_upgraded_and_loses_nothing(tmp_path, writing):
    of_version_1(tmp_path / "gradebook.sqlite")
    for _ in range(2):
        with Gradebook(tmp_path, writing) as book:
            assert [(one.digest, one.attempt, one.handed_in) for one in book.attempts()] == [
                ("d1", 1, None),
                ("d2", 2, None),
            ]
            [adjustment] = book.adjustments().values()
            assert (adjustment["points"], adjustment["digest"]) == (1.0, "d1"), (
                "it was made for what counted at that time"
            )
    with Gradebook(tmp_path) as book:
        graded(book, handed_in(digest="d3"))
        book.adjust("jane", "multi_gpu", "step", 1.0, "why", "who")
        assert book.submissions()[0].digest == "d3"
        assert book.adjustments()["jane", "multi_gpu", "step"]["digest"] == "d3"
        book.comment("jane", "multi_gpu", "", "well done", "who", "d3")
        with pytest.raises(sqlite3.Error, match="history is kept"):
            book._database.execute("DELETE FROM comments")


def test_the_newest_comment_counts_and_can_be_taken_back(book):
    book.record([handed_in()])
    for text in ("first", "second "):
        book.comment("jane", "multi_gpu", "step", text, "who", "d")
    assert {key: row["text"] for key, row in book.comments().items()} == {("jane", "multi_gpu", "step"): "second"}
    book.comment("jane", "multi_gpu", "step", "", "who", "d")
    assert book.comments() == {} and len([row for row in book.history("jane") if row["table"] == "comments"]) == 3
    with pytest.raises(GradebookError, match="needs an author"):
        book.comment("jane", "", "", "text", " ", "d")


def test_the_same_files_are_one_attempt_also_if_their_time_is_known_later(book):
    for when in (None, "2026-11-20T17:00:00+00:00", None):
        book.record([replace(handed_in(), handed_in=when)])
    [attempt] = book.attempts()
    assert (attempt.attempt, attempt.handed_in) == (1, "2026-11-20T17:00:00+00:00")
    book.record([replace(handed_in(), handed_in="2026-11-22T17:00:00+00:00")])
    book.record([replace(handed_in(digest="d2"), handed_in="2026-11-21T17:00:00+00:00")])
    assert [(one.digest, one.attempt, one.handed_in[8:10]) for one in book.attempts()] == [
        ("d1", 1, "20"),
        ("d1", 2, "22"),
        ("d2", 3, "21"),
    ]


OPENER = (
    "import sys\nfrom grader.instructors.gradebook import Gradebook\nbook = Gradebook(sys.argv[1])\nprint('open',"
    " flush=True)\nsys.stdin.read()"
)


@pytest.mark.parametrize("end", [signal.SIGKILL, None])
def test_a_second_grader_is_refused_until_the_first_ends_however_it_ends(tmp_path, end):
    first = subprocess.Popen(
        [sys.executable, "-c", OPENER, tmp_path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout.readline() == "open\n"
    with pytest.raises(
        GradebookError, match=f"in use by a grader, process {first.pid} on {os.uname().nodename}: let it finish"
    ):
        Gradebook(tmp_path)
    first.send_signal(end) if end else first.stdin.close()
    first.wait(timeout=60)
    first.stdout.close()
    Gradebook(tmp_path).close()


def test_children_of_a_dead_grader_do_not_keep_its_lock(tmp_path):
    forker = OPENER.replace(
        "sys.stdin.read()", "import os\nif os.fork():\n    os.kill(os.getpid(), 9)\nsys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", forker, tmp_path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.wait(timeout=60)
    Gradebook(tmp_path).close()
    process.stdin.close()
    process.stdout.read()  # until the child has ended, too


# Stores the same results over and over in another order, and says each one after it is stored.
STORER = """
import itertools, sys
from dataclasses import replace
from grader.instructors.gradebook import Gradebook
sys.path.insert(0, sys.argv[2])
from classes import handed_in, said
book = Gradebook(sys.argv[1])
students = [handed_in(f"s{number}", digest=f"d{number}") for number in range(20)]
print("open", flush=True)
for turn in itertools.count(1):
    book.record([replace(one, digest=f"{one.digest}-{turn}", attempt=turn) for one in students])
    for one in book.submissions():
        book.store(one, "multi_gpu", [said(points=turn % 4 * 0.75), said(points=turn % 4 * 0.75, gap="other")], str(turn))
        print(one.student, turn, flush=True)
"""


@pytest.mark.thorough
def test_a_gradebook_survives_kill_9_at_any_moment(tmp_path):
    chance = random.Random(1)
    for _ in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", STORER, tmp_path, Path(__file__).parent], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "open\n"
        # before and after a class is written down, or in between
        for _ in range(chance.choice([0, 20, 40, chance.randrange(60)])):
            process.stdout.readline()
        process.kill()
        told = process.stdout.read().splitlines()
        process.wait(timeout=60)
        with sqlite3.connect(tmp_path / "gradebook.sqlite") as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        with Gradebook(tmp_path) as book:
            assert len(book.submissions()) in (0, 20), "a class is written down entirely or not at all"
            assert len({one.attempt for one in book.submissions()}) <= 1
            turn = max((one.attempt for one in book.submissions()), default=0)
            for (student, unit), verdicts in book.results().items():
                assert [one.points for one in verdicts] == [turn % 4 * 0.75] * 2 and unit == "multi_gpu"
            [complete] = [line for line in told[-1:] if line.count(" ") == 1] or [""]
            if complete.endswith(f" {turn}"):
                assert (complete.split()[0], "multi_gpu") in book.results(), "what was said to be stored is there"


def test_recording_a_class_reads_the_gradebook_once(book):
    """A student who hands in 30,000 empty archives, or 30,000 students, must not stop the grading."""
    asked = []
    book._database.set_trace_callback(lambda statement: asked.append(statement.startswith("SELECT")))
    for size in (10, 500):
        asked.clear()
        book.record([handed_in(f"{size}-{number}", attempt=attempt) for number in range(size) for attempt in (1, 2)])
        assert sum(asked) == 1 and len(asked) < 2 * size + 10
