"""Tables: what spreadsheets and other systems read. No grade that isn't one, no formula, no line too many."""

import csv
import io
from datetime import UTC, datetime, timedelta

import pytest
from classes import gradescopes, handed_in, not_done, said, store

from grader.instructors.reports import score_tables
from grader.instructors.reports.in_words import changes
from grader.instructors.reports.report_files import clean, number
from grader.instructors.rules import Rules, UnitRules
from grader.instructors.scores import scores


@pytest.fixture
def of_class(book):
    """Jane is done, Max has something ungraded, Zoe handed in something that can't be read."""
    store(
        book,
        handed_in("jane", "11"),
        [said("a", 1.25, message="after 2 steps"), said("b", 2.0), not_done("c", track="chainer")],
    )
    store(book, handed_in("max", "12", late=True), [said("a", None), said("b", 2.0)])
    book.record([handed_in("zoe", "13", digest="", refused="x.zip holds a link (<b>).")])
    return scores(book)


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_grades_has_a_row_for_each_check_that_counts(of_class):
    jane = [row for row in rows(score_tables.grades(of_class)) if row["student"] == "jane_11"]
    assert list(jane[0]) == ["student", "unit", "check", "points", "max_points", "status", "message"]
    assert [list(row.values())[1:] for row in jane] == [
        ["multi_gpu", "pytorch a: equal gradients", "1.25", "2", "failed", "after 2 steps"],
        ["multi_gpu", "pytorch b: equal gradients", "2", "2", "passed", ""],
    ]


def test_in_grades_the_ungraded_and_the_refused_have_no_points(of_class):
    table = rows(score_tables.grades(of_class))
    assert [(row["points"], row["status"]) for row in table if row["student"] == "max_12"] == [
        ("", "ungraded (grader fault)"),
        ("2", "passed"),
    ]
    [zoe] = [row for row in table if row["student"] == "zoe_13"]
    assert (zoe["points"], zoe["status"], zoe["message"]) == ("", "refused", "x.zip holds a link (<b>).")


def test_in_grades_the_points_add_up_with_adjustments(book, of_class):
    book.adjust("jane_11", "multi_gpu", "a", 0.5, "a typo", "Dr. Roe")
    book.adjust("jane_11", "multi_gpu", "", 3.75, "shown in class", "Dr. Roe")
    jane = [row for row in rows(score_tables.grades(scores(book))) if row["student"] == "jane_11"]
    assert sum(float(row["points"]) for row in jane) == 3.75
    assert [(row["check"], row["points"]) for row in jane if row["status"] == "adjusted"] == [
        ("a: adjusted", "-0.75"),
        ("adjusted", "1.25"),
    ]
    assert "a typo (Dr. Roe, 20" in next(row["message"] for row in jane if row["check"] == "a: adjusted")


def test_a_unit_not_graded_yet_has_a_row(book):
    store(book, handed_in("a"), [said(), said(unit="start")])
    store(book, handed_in("b"), [said()])
    assert ("b", "start", "", "ungraded") in [
        (row["student"], row["unit"], row["points"], row["status"]) for row in rows(score_tables.grades(scores(book)))
    ]


def test_moodle_reads_its_worksheet_back(of_class):
    """Its importer wants the columns of identifier, grade and last change by their English names, and the number behind
    "Participant "."""
    table = rows(score_tables.moodle(of_class))
    assert [(row["Identifier"], row["Full name"], row["Grade"], row["Maximum grade"]) for row in table] == [
        ("Participant 11", "jane", "3.25", "4"),
        ("Participant 12", "max", "", "4"),
        ("Participant 13", "zoe", "", "4"),
    ]
    assert all(row["Last modified (grade)"] == "" for row in table)
    assert table[0]["Feedback comments"] == "multi_gpu 3.25/4"
    assert table[1]["Feedback comments"] == "multi_gpu ungraded/4"
    assert "&lt;b&gt;" in table[2]["Feedback comments"], "Moodle shows comments as HTML"


def test_canvas_reads_its_gradebook_back_and_no_grade_there_is_lost(of_class):
    """An empty cell would take away a grade that Canvas has, so who has no final grade is left out."""
    text = score_tables.canvas(of_class)
    assert text.splitlines()[0].startswith("Student,ID,SIS User ID,SIS Login ID,Section,")
    points_possible, *table = list(csv.reader(io.StringIO(text)))[1:]
    assert points_possible[0] == "Points Possible" and points_possible[-1] == "4"
    assert [(row[0], row[1], row[-1]) for row in table] == [("jane", "11", "3.25")]


def test_nbgraders_columns_have_a_row_for_each_unit(of_class):
    text = score_tables.nbgrader(of_class)
    assert text.splitlines()[0] == (
        "assignment,duedate,timestamp,student_id,last_name,first_name,email,raw_score,late_submission_penalty,score,max_score"
    )
    assert [(row["assignment"], row["student_id"], row["score"], row["max_score"]) for row in rows(text)] == [
        ("multi_gpu", "jane_11", "3.25", "4"),
        ("multi_gpu", "max_12", "", "4"),
        ("multi_gpu", "zoe_13", "", "4"),
    ]


@pytest.fixture
def by_rules(book):
    """Jane's score in a course with deadlines, bonus points and a scale: two days late, 20 % less."""
    due = datetime(2026, 11, 20, 17, tzinfo=UTC)
    store(book, handed_in(handed_in=(due + timedelta(hours=30)).isoformat()), [said("a", 1.0), said("b", 2.0)])
    book.adjust("jane", "bonus", "", 0.5, "helped others", "Dr. Roe")
    course = Rules(title="Term", scale=100, bonus=1, units={"multi_gpu": UnitRules(due=due, per_day=10)})
    return scores(book, rules=course)


def test_rows_add_up_to_the_grade_and_say_which_rule_gave_what(by_rules):
    table = rows(score_tables.grades(by_rules))
    assert sum(float(row["points"]) for row in table) == by_rules[0].grade == 72.5
    assert sum(float(row["max_points"]) for row in table) == by_rules[0].max_grade == 100
    assert [(row["unit"], row["check"], row["points"], row["message"]) for row in table[2:]] == [
        ("multi_gpu", "late", "-0.6", "2 days late: -20 %"),
        ("", "bonus", "0.5", table[3]["message"]),
        ("", "scale", "69.6", "to 100"),
    ]


def test_platforms_get_the_grade_on_the_courses_scale(by_rules):
    [moodle] = rows(score_tables.moodle(by_rules))
    assert (moodle["Grade"], moodle["Maximum grade"]) == ("72.5", "100")
    assert moodle["Feedback comments"].startswith("multi_gpu 3/4. multi_gpu: 2 days late: −20 %")
    assert list(csv.reader(io.StringIO(score_tables.canvas(by_rules))))[0][-1] == "Term"
    [nbgrader] = rows(score_tables.nbgrader(by_rules))
    assert [nbgrader[name] for name in ("duedate", "raw_score", "late_submission_penalty", "score")] == [
        "2026-11-20 17:00:00",
        "3",
        "0.6",
        "2.4",
    ]
    assert nbgrader["timestamp"] == "2026-11-21 23:00:00"  # when the platform got it, and not the time of its file
    results = gradescopes(score_tables.gradescope(by_rules[0]))
    assert results["score"] == 72.5 and sum(test["score"] for test in results["tests"]) == pytest.approx(72.5)


def test_gradescope_gets_scores_that_add_up(book, of_class):
    book.adjust("jane_11", "multi_gpu", "a", 2.0, "a typo", "Dr. Roe")
    results = gradescopes(score_tables.gradescope(scores(book)[0]))
    assert results["score"] == 4.0 == sum(test["score"] for test in results["tests"])
    assert [(test["name"], test.get("status")) for test in results["tests"]] == [
        ("multi_gpu, a: equal gradients", "failed"),
        ("multi_gpu, a: adjusted", None),
        ("multi_gpu, b: equal gradients", "passed"),
    ]


def test_gradescope_gets_no_score_for_the_ungraded_and_the_refused(of_class):
    """Nor one of a test: without a total Gradescope adds up those that there are."""
    ungraded, refused = (gradescopes(score_tables.gradescope(score)) for score in of_class[1:])
    assert "score" not in ungraded and not any("score" in test for test in ungraded["tests"])
    assert "Ungraded" in ungraded["tests"][0]["output"] and ungraded["tests"][1]["status"] == "passed"
    assert "score" not in refused and refused["tests"] == [] and "x.zip holds a link" in refused["output"]


HOSTILE = ["=cmd|' /C calc'!A0", "+1", "-1+2", "@SUM(1)", "|x", "%x", "\t=1", "\r=1", "\n=1", " =1", "＝1", "\x00=1"]
HOSTILE += ["\x1b[31m=1", "\u200b=1"]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_a_formula_or_a_line_of_its_own(book, text):
    store(book, handed_in(text.strip("\0"), "1"), [said(message=text, points=0.0, output=text)])
    for make in (score_tables.grades, score_tables.moodle, score_tables.canvas, score_tables.nbgrader):
        table = list(csv.reader(io.StringIO(make(scores(book)))))
        assert len({len(row) for row in table}) == 1 and len(table) <= 3
        for cell in (cell for row in table for cell in row):
            assert not cell.startswith(score_tables.FORMULA) and cell.isprintable()


@pytest.mark.parametrize(
    "value, text",
    [(0, "0"), (2.0, "2"), (2.5, "2.5"), (1 / 3, "0.33"), (100, "100"), (-0.25, "-0.25"), (1234567.0, "1234567")],
)
def test_points_read_as_people_write_them(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    "text, cleaned",
    [
        ("plain ä 日", "plain ä 日"),
        ("a\r\nb\rc\td", "a\nb\nc\td"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("a\x00b\x07", "a\ufffdb\ufffd"),
        ("a\u202eb", "a\ufffdb"),
        ("a\ud800", "a\ufffd"),
        ("\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
    ],
)
def test_text_loses_what_a_terminal_or_browser_would_act_on(text, cleaned):
    assert clean(text) == cleaned


def test_the_overview_has_a_row_for_each_student_and_a_column_for_each_unit_and_excel_reads_it(book):
    store(book, handed_in("Jörg", "7"), [said("a", 1.0), not_done("b", unit="start", track="")])
    store(book, handed_in("=Zoe", digest="", refused="x"), [])
    text = score_tables.overview(scores(book))
    head, *rows = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    assert text.startswith("\ufeff") and head == [
        "student",
        "name",
        "number",
        "group",
        "multi_gpu",
        "start",
        "grade",
        "status",
    ]
    assert rows == [["'=Zoe", "'=Zoe", "", "", "", "", "", "not read"], ["Jörg_7", "Jörg", "7", "", "1", "–", "1", ""]]


def test_changed_grades_and_the_overview_say_the_same_of_a_grade_that_is_not_final(of_class):
    statuses = {row["student"]: row["status"] for row in rows(score_tables.overview(of_class).removeprefix("\ufeff"))}
    assert statuses == {"jane_11": "", "max_12": "not finished", "zoe_13": "not read"}
    _, *lines = changes({score.student: "another" for score in of_class}, of_class)
    for (student, status), line in zip(statuses.items(), lines, strict=True):
        assert student in line and line.endswith(f"({status})" if status else "points")
