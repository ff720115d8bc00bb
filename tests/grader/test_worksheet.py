"""Moodle's grading worksheet goes round: what Moodle gives out is read, filled in, and read back by Moodle's own rules.

Columns are those of mod/assign/gradingtable.php, the rules those of mod/assign/feedback/offline/importgradeslib.php and
locallib.php (4.1).
"""

import csv
import io
import zipfile
from dataclasses import replace
from html import unescape
from zoneinfo import ZoneInfo

import pytest
from classes import handed_in, said, store

from grader.instructors import worksheet
from grader.instructors.export import export
from grader.instructors.grade import grading
from grader.instructors.grade.grading import grade
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import score_tables, scores_of, write_reports
from grader.instructors.reports.in_words import summary
from grader.instructors.rules import Rules
from grader.instructors.scores import scores
from grader.instructors.worksheet import WorksheetError
from handson.errors import OneSentence

HEAD = ["Identifier", "Full name", "Email address", "Status", "Grade", "Maximum grade", "Grade can be changed"]
HEAD += ["Last modified (submission)", "Last modified (grade)", "Feedback comments"]
JANE = ["Participant 11", "Jane Doe", "jane@example.org", "Submitted for grading", "", "100.00", "Yes"]
JANE += ["Friday, 20 November 2026, 5:59 PM", "-", ""]
MAX = ["Participant 12", "Max Roe", "max@example.org", "Submitted for grading", "7.00", "100.00", "Yes"]
MAX += ["Sunday, 25 October 2026, 2:30 AM", "Monday, 2 November 2026, 9:00 AM", "old"]
ZOE = ["Participant 13", "Zoe", "zoe@example.org", "No submission", "", "100.00", "Yes", "-", "-", ""]


def said_of(points, unit):
    return said("a", points, unit=unit, track="")


def write(path, *rows, head=HEAD, encoding="utf-8-sig"):
    text = io.StringIO()
    csv.writer(text).writerows([head, *rows])
    path.write_text(text.getvalue(), encoding=encoding)
    return path


def imported(text, grades):
    """What Moodle makes of a worksheet: {number: (grade, comments)}, beginning from its own `grades`, {number: the
    grade or None}."""
    head, *rows = csv.reader(io.StringIO(text))
    columns = {name: head.index(name) for name in ("Identifier", "Grade", "Last modified (grade)")}
    comments = head.index("Feedback comments")
    changed = {}
    for row in rows:
        number = row[columns["Identifier"]][len("Participant ") :]
        if number in grades and row[columns["Grade"]] and 0 <= float(row[columns["Grade"]]) <= 100:
            changed[number] = float(row[columns["Grade"]]), row[comments]
    return changed


def test_who_handed_in_when_is_read_with_the_zone_of_the_course(tmp_path):
    jane, maximal, zoe = worksheet.read(write(tmp_path / "w.csv", JANE, MAX, ZOE)).listed(ZoneInfo("Europe/Berlin"))
    assert (jane.student, jane.name, jane.number, jane.handed_in) == (
        "Jane Doe_11",
        "Jane Doe",
        "11",
        "2026-11-20T16:59:00+00:00",
    )
    assert maximal.handed_in == "2026-10-25T00:30:00+00:00", (
        "of an hour that clocks show twice, the one that is better for the student"
    )
    assert zoe.handed_in is None


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_worksheet_that_a_spreadsheet_has_saved_with_other_separators_is_read(tmp_path, separator):
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows([HEAD, JANE])
    (tmp_path / "w.csv").write_text(text.getvalue())
    [jane] = worksheet.read(tmp_path / "w.csv").listed(ZoneInfo("UTC"))
    assert (jane.student, jane.handed_in) == ("Jane Doe_11", "2026-11-20T17:59:00+00:00")


def test_moodle_reads_its_own_worksheet_back_with_grades_and_comments(tmp_path):
    write(tmp_path / worksheet.NAME, JANE, MAX, ZOE)
    with Gradebook(tmp_path) as book:
        store(book, handed_in("Jane Doe", "11"), [said("a", 1.25, message="x"), said("b", 2.0)])
        store(book, handed_in("Max Roe", "12"), [said("a", None)])
        write_reports(book, tmp_path)
    text = (tmp_path / "moodle.csv").read_text()
    assert imported(text, {"11": None, "12": 7.0, "13": None}) == {
        "11": (3.25, "multi_gpu 3.25/4"),
        "12": (7.0, "old"),
    }, "ungraded is left alone"
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == HEAD
    assert [row["Last modified (grade)"] for row in rows] == ["-", MAX[8], "-"]
    assert rows[0]["Email address"] == "jane@example.org"


def test_each_member_of_a_group_gets_the_groups_grade(tmp_path):
    head = [*HEAD[:4], "Group", *HEAD[4:]]
    rows = [[*row[:4], group, *row[4:]] for row, group in ((JANE, "Group A"), (MAX, "Group A"), (ZOE, "Default group"))]
    write(tmp_path / worksheet.NAME, *rows, head=head)
    with Gradebook(tmp_path) as book:
        store(book, handed_in("Group A", "13"), [said("a", 2.0)])  # 13: the group's number, not a student's
        write_reports(book, tmp_path)
    assert {
        number: grade
        for number, (grade, _) in imported(
            (tmp_path / "moodle.csv").read_text(), dict.fromkeys(("11", "12", "13"))
        ).items()
    } == {"11": 2.0, "12": 2.0}


def of_groups(path, *groups):
    """A worksheet in which JANE and MAX are in these groups."""
    return write(
        path,
        *([*row[:4], group, *row[4:]] for row, group in zip((JANE, MAX), groups)),
        head=[*HEAD[:4], "Group", *HEAD[4:]],
    )


@pytest.mark.parametrize("groups", [("Alpha", "alpha"), ("Betá", "Ｂetá"), ("Group A", "Group  A")])
def test_groups_whose_names_are_nearly_the_same_have_their_own_grades_times_and_feedback(tmp_path, groups):
    sheet = worksheet.read(of_groups(tmp_path / worksheet.NAME, *groups))
    with Gradebook(tmp_path) as book:
        for group, number, points in zip(groups, ("77", "78"), (2.0, 1.0)):
            store(book, handed_in(group, number), [said("a", points, message=f"for {group}.")])
        write_reports(book, tmp_path)
    found = imported((tmp_path / "moodle.csv").read_text(), dict.fromkeys(("11", "12")))
    assert {number: grade for number, (grade, _) in found.items()} == {"11": 2.0, "12": 1.0}
    with zipfile.ZipFile(export(tmp_path, "moodle", say=str)) as pack:
        pages = {name.split("_")[1]: pack.read(name).decode() for name in pack.namelist()}
    for number, own, other in ("11", *groups), ("12", *reversed(groups)):
        assert f"for {own}." in pages[number] and f"for {other}." not in pages[number]
    assert sheet.missing([handed_in(groups[0], "77")], {}) == ["Max Roe_12"]


@pytest.mark.parametrize(
    "groups, names, reason",
    [
        # Moodle writes underscores as spaces
        (("Team Rhein", "Team_Rhein"), ["Team Rhein_77"], "could be of the group 'Team Rhein' or 'Team_Rhein', as"),
        (("alpha", "Beta"), ["Alpha_77", "Alpha_78"], "could be of the group 'alpha', as another one could: give each"),
    ],
)
def test_a_group_of_which_nobody_can_say_whose_submission_it_is_is_refused_and_stops_nobody(
    tmp_path, groups, names, reason
):
    pack = zipped(tmp_path / "class.zip", *names, "Jane Doe_11")
    graded_with(tmp_path, pack, of_groups(tmp_path / "w.csv", *groups))
    with Gradebook(tmp_path / "out") as book:
        refused = {one.student: one.refused for one in book.submissions()}
    assert all(reason in refused.pop(name) for name in names) and "RAR" in refused["Jane Doe_11"]


def test_who_has_submitted_and_is_not_in_the_zip_is_named(tmp_path):
    late = ["Participant 14", "Ann", "a@example.org", "Submitted for grading - 2 hours late", *JANE[4:]]
    sheet = worksheet.read(write(tmp_path / "w.csv", JANE, MAX, ZOE, late))
    assert sheet.missing([handed_in("Max Roe", "12", refused="x")], {}) == ["Ann_14", "Jane Doe_11"], (
        "Zoe has submitted nothing"
    )
    assert sheet.nothing([handed_in("Max Roe", "12", refused="x")], {}) == ["Zoe_13"], (
        "and nothing else is expected of her"
    )
    assert sheet.missing([handed_in("Rhine")], {"Rhine": ("Jane Doe_11", "Max Roe_12"), "Elbe": ("Ann_14",)}) == [
        "Ann_14"
    ]
    assert sheet.missing([handed_in("Max Roe", "12")], {"Rhine": ("Jane Doe", "Max Roe_12")}) == ["Ann_14"]
    head = [*HEAD[:4], "Group", *HEAD[4:]]
    sheet = worksheet.read(
        write(
            tmp_path / "w.csv",
            *([*row[:4], group, *row[4:]] for row, group in ((JANE, "Group_A"), (MAX, "Group_A"), (late, "B"))),
            head=head,
        )
    )
    assert sheet.missing([handed_in("Group A", "14")], {}) == ["Ann_14"], "14 is the number of a group there"


def test_a_download_that_was_cut_off_is_noticed(tmp_path):
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as pack:
        # can't be read, so nothing has to be graded here
        pack.writestr("Max Roe_12_assignsubmission_file_/work.rar", b"Rar!")
    told = []
    grade(
        tmp_path / "class.zip",
        tmp_path / "out",
        trusted=True,
        say=told.append,
        sheet=write(tmp_path / "w.csv", JANE, MAX, ZOE),
    )
    [sentence] = [line for line in told if line.startswith("Submitted according to Moodle's worksheet, but not in ")]
    assert "class.zip: Jane Doe_11. Download the submissions again;" in sentence
    report = (tmp_path / "out/report.html").read_text()
    assert "Jane Doe_11" in report and "Submitted nothing, according to Moodle's worksheet: Zoe_13." in unescape(report)


def test_of_a_worksheet_that_was_kept_only_the_names_count_and_not_the_times(tmp_path):
    for name, zipped in ("Jane Doe_11", "first.zip"), ("Max Roe_12", "second.zip"):
        with zipfile.ZipFile(tmp_path / zipped, "w") as pack:
            pack.writestr(f"{name}_assignsubmission_file_/work.rar", b"Rar!")
    grade(tmp_path / "first.zip", tmp_path / "out", trusted=True, say=str, sheet=write(tmp_path / "w.csv", JANE, MAX))
    grade(tmp_path / "second.zip", tmp_path / "out", trusted=True, say=str)
    with Gradebook(tmp_path / "out") as book:
        known = {one.student: one.handed_in is not None for one in book.attempts()}
    assert known == {"Jane Doe_11": True, "Max Roe_12": False}
    assert "Jane Doe" in (tmp_path / "out/moodle.csv").read_text()
    assert "Max Roe" in (tmp_path / "out/moodle.csv").read_text()


def test_a_maximum_of_moodles_that_is_too_low_is_said(tmp_path):
    low = [*JANE[:5], "3,00", *JANE[6:]]
    write(tmp_path / worksheet.NAME, MAX, low)
    with Gradebook(tmp_path) as book:
        store(book, handed_in("Jane Doe", "11"), [said("a", 2.0), said("b", 2.0)])
        write_reports(book, tmp_path)
    lines = []
    export(tmp_path, "moodle", say=lines.append)
    assert lines[0].startswith(
        "Moodle's maximum grade is 3, and it ignores higher ones; here the highest is 4: change it in Moodle"
    )
    assert "maximum grade is 3" in (tmp_path / "report.html").read_text()
    write(tmp_path / worksheet.NAME, MAX, JANE)
    assert worksheet.kept(tmp_path).too_low(100.0) is None and worksheet.kept(tmp_path).too_low(100.5)
    assert worksheet.read(write(tmp_path / "w.csv", [*JANE[:5], "-", *JANE[6:]])).too_low(100.5) is None


def test_what_the_grader_does_not_fill_in_goes_back_to_moodle_unchanged(tmp_path):
    head = [*HEAD[:4], "Remark", *HEAD[4:]]
    strange = ["-", "=7*3", "-1; +x", " Friday,\u202f 9:12\u202fPM", "two\nlines"]
    rows = [[*row[:4], text, *row[4:]] for row, text in zip([JANE, MAX, ZOE] * 2, strange, strict=False)]
    rows = [[f"Participant {number}", *row[1:]] for number, row in enumerate(rows, start=11)]
    sheet = worksheet.read(write(tmp_path / "w.csv", *rows, head=head))
    assert list(csv.reader(io.StringIO(score_tables.moodle([], sheet)))) == [head, *rows]


def test_a_name_that_is_a_formula_is_none_in_the_worksheet_that_goes_back(tmp_path):
    sheet = worksheet.read(write(tmp_path / "w.csv", ["Participant 11", "=HYPERLINK(1)", "+1@example.org", *JANE[3:]]))
    [_, row] = csv.reader(io.StringIO(score_tables.moodle([], sheet)))
    assert row == ["Participant 11", "'=HYPERLINK(1)", "'+1@example.org", *JANE[3:]]


def zipped(path, *names):
    with zipfile.ZipFile(path, "w") as pack:
        for name in names:
            pack.writestr(f"{name}_assignsubmission_file_/work.rar", b"Rar!")  # needs no grading
    return path


def numbered(row, number, name=None, mail=None):
    return [f"Participant {number}", name or row[1], row[2] if mail is None else mail, *row[3:]]


def graded_with(tmp_path, pack, sheet, unit=None):
    told = []
    grade(pack, tmp_path / "out", trusted=True, say=told.append, sheet=sheet, units=unit and [unit])
    return " ".join(told)


def test_a_worksheet_that_has_nobody_of_the_download_is_refused_and_who_is_not_in_it_is_named(tmp_path):
    pack = zipped(tmp_path / "class.zip", "Ann Lee_1", "Max Roe_12")
    with pytest.raises(OneSentence, match="is not the worksheet of .*: it has none of Ann Lee_1, Max Roe_12. Download"):
        graded_with(tmp_path, pack, write(tmp_path / "w.csv", JANE))
    assert not (tmp_path / "out").exists()
    said = graded_with(tmp_path, pack, write(tmp_path / "w.csv", JANE, MAX))
    assert "class.zip, but not in the worksheet, and so not in moodle.csv: Ann Lee_1." in said


def test_an_assignment_for_each_unit_is_one_student_with_a_worksheet_for_each(tmp_path):
    """Moodle gives a student another number in each assignment: the address, or the full name, says who it is."""
    first = write(tmp_path / "1.csv", JANE, MAX, numbered(ZOE, 13))
    graded_with(tmp_path, zipped(tmp_path / "1.zip", "Jane Doe_11", "Max Roe_12", "Zoe_13"), first, "start")
    rows = [numbered(JANE, 71), numbered(MAX, 72, "Maximilian Roe"), numbered(ZOE, 73, mail="")]
    second = zipped(tmp_path / "2.zip", "Jane Doe_71", "Maximilian Roe_72", "Zoe_73")
    with pytest.raises(OneSentence, match="is of another assignment of Moodle's .*: name its unit, with --unit"):
        graded_with(tmp_path, second, write(tmp_path / "2.csv", *rows))
    said = graded_with(tmp_path, second, write(tmp_path / "2.csv", *rows), "single_gpu")
    assert "its grades are in moodle_single_gpu.csv" in said and "maximum grade is" not in said
    with Gradebook(tmp_path / "out") as book:
        assert {one.student for one in book.submissions()} == {"Jane Doe_11", "Max Roe_12", "Zoe_13"}
        jane = next(one for one in book.submissions() if one.student == "Jane Doe_11")
        for unit, points in ("start", 2.0), ("single_gpu", 1.5):
            one = replace(jane, digest=unit, number="11" if unit == "start" else "71", refused=None)
            store(book, one, [said_of(points, unit)])
        write_reports(book, tmp_path / "out")
    assert not (tmp_path / "out/moodle.csv").exists(), "there is no assignment for the whole grade"
    for unit, number, points in ("start", "11", 2.0), ("single_gpu", "71", 1.5):
        text = (tmp_path / f"out/moodle_{unit}.csv").read_text()
        assert imported(text, {number: None})[number] == (points, f"{points:g} of 2 points.")

    with pytest.raises(OneSentence, match="name one with --unit, of start, single_gpu"):
        export(tmp_path / "out", "moodle", say=str)
    with zipfile.ZipFile(export(tmp_path / "out", "moodle", say=str, unit="start")) as pack:
        assert "Jane Doe_11_assignfeedback_file_/feedback.html" in pack.namelist()


def test_a_download_with_the_worksheet_of_another_assignment_is_refused_and_leaves_nothing(tmp_path):
    """The names are the same in both, and the numbers are not: nobody must become a second student."""
    first = write(tmp_path / "1.csv", JANE, MAX)
    graded_with(tmp_path, zipped(tmp_path / "1.zip", "Jane Doe_11", "Max Roe_12"), first, "start")
    second = zipped(tmp_path / "2.zip", "Jane Doe_71", "Max Roe_72")
    with pytest.raises(OneSentence, match="1.csv is not the worksheet of .*2.zip"):
        graded_with(tmp_path, second, first, "single_gpu")
    with pytest.raises(OneSentence, match="2.zip is of another assignment .* --worksheet, and its unit with --unit"):
        graded_with(tmp_path, second, None, "single_gpu")
    with Gradebook(tmp_path / "out") as book:
        assert {one.student for one in book.submissions()} == {"Jane Doe_11", "Max Roe_12"}
    graded_with(tmp_path, second, write(tmp_path / "2.csv", numbered(JANE, 71), numbered(MAX, 72)), "single_gpu")
    with Gradebook(tmp_path / "out") as book:
        assert {one.student for one in book.submissions()} == {"Jane Doe_11", "Max Roe_12"}


def test_the_first_worksheet_of_a_unit_with_an_assignment_of_its_own_needs_no_other_maximum(tmp_path):
    row = [*JANE[:5], "2.00", *JANE[6:]]
    graded_with(tmp_path, zipped(tmp_path / "1.zip", "Jane Doe_11"), write(tmp_path / "1.csv", row), "start")
    with Gradebook(tmp_path / "out") as book:
        jane = replace(book.submissions()[0], digest="start", refused=None)
        store(book, jane, [said_of(2.0, "start"), said_of(2.0, "single_gpu")])
        sentence = worksheet.of_one_unit(tmp_path / "out", scores_of(book))
    assert sentence == "Moodle's maximum grade is 2, as the points of start: upload moodle_start.csv, not moodle.csv."


def test_a_student_who_is_renamed_is_the_same_student_by_the_number(tmp_path):
    graded_with(
        tmp_path, zipped(tmp_path / "1.zip", "Jane Doe_11"), write(tmp_path / "1.csv", numbered(JANE, 11, mail=""))
    )
    renamed = write(tmp_path / "2.csv", numbered(JANE, 11, "Jane Meier", ""))
    graded_with(tmp_path, zipped(tmp_path / "2.zip", "Jane Meier_11"), renamed)
    with Gradebook(tmp_path / "out") as book:
        assert {one.student for one in book.submissions()} == {"Jane Doe_11"}


def test_two_people_of_one_name_are_not_mixed_up_between_assignments(tmp_path):
    first = write(tmp_path / "1.csv", JANE, numbered(JANE, 12, mail=""))
    graded_with(tmp_path, zipped(tmp_path / "1.zip", "Jane Doe_11", "Jane Doe_12"), first, "start")
    second = write(tmp_path / "2.csv", numbered(JANE, 71), numbered(JANE, 72, mail=""))
    graded_with(tmp_path, zipped(tmp_path / "2.zip", "Jane Doe_71", "Jane Doe_72"), second, "single_gpu")
    with Gradebook(tmp_path / "out") as book:
        found = {one.number: (one.student, one.refused) for one in book.submissions()}
    assert found["71"][0] == "Jane Doe_11", "by the address"
    graded_with(
        tmp_path,
        zipped(tmp_path / "3.zip", "Jane Doe_81"),
        write(tmp_path / "3.csv", numbered(JANE, 81, mail="")),
        "multi_gpu",
    )
    with Gradebook(tmp_path / "out") as book:
        [reason] = [one.refused for one in book.submissions() if one.number == "81"]
    assert "could be of Jane Doe_11 or Jane Doe_12: give worksheets with the e-mail address of each" in reason


def test_a_known_name_with_another_address_is_refused_unless_the_address_is_known(tmp_path):
    other = numbered(JANE, 12, mail="other@example.org")  # of the same name, has handed in nothing yet
    graded_with(tmp_path, zipped(tmp_path / "1.zip", "Jane Doe_11"), write(tmp_path / "1.csv", JANE, other), "start")
    sheet = write(tmp_path / "2.csv", numbered(other, 72), numbered(JANE, 73, mail="new@example.org"))
    graded_with(tmp_path, zipped(tmp_path / "2.zip", "Jane Doe_72", "Jane Doe_73"), sheet, "single_gpu")
    with Gradebook(tmp_path / "out") as book:
        found = {one.number: one.refused for one in book.submissions()}
    assert "could be of Jane Doe_11: give worksheets" in found["73"] and "RAR" in found["72"]


def test_without_a_worksheet_a_known_name_with_another_number_is_refused(tmp_path):
    graded_with(tmp_path, zipped(tmp_path / "1.zip", "Jane Doe_11"), write(tmp_path / "1.csv", JANE, MAX), "start")
    graded_with(tmp_path, zipped(tmp_path / "2.zip", "Jane Doe_71", "Max Roe_12"), None, "single_gpu")
    with Gradebook(tmp_path / "out") as book:
        [reason] = [one.refused for one in book.submissions() if one.number == "71"]
    assert "has the name of Jane Doe_11 and another number, as in another assignment: name its grading work" in reason


def test_what_could_not_be_read_for_one_unit_is_refused_there_whatever_is_graded_in_another(tmp_path):
    """Each unit has an assignment of its own: the student reads why, and nobody waits for a grade."""
    graded_with(
        tmp_path, zipped(tmp_path / "1.zip", "Jane Doe_11", "Max Roe_12"), write(tmp_path / "1.csv", JANE, MAX), "start"
    )
    rows = numbered(JANE, 71), numbered(MAX, 72)
    graded_with(tmp_path, zipped(tmp_path / "2.zip", "Jane Doe_71"), write(tmp_path / "2.csv", *rows), "single_gpu")
    with Gradebook(tmp_path / "out") as book:
        [bad] = [one for one in book.submissions() if one.number == "71"]
        jane = replace(bad, number="11", digest="good", refused=None)
        store(book, jane, [said_of(2.0, "start")])
        book.record([bad])
        store(book, handed_in("Max Roe", "12", digest="max"), [said_of(2.0, "start"), said_of(1.0, "single_gpu")])
        write_reports(book, tmp_path / "out")
        of_class = scores_of(book)
    assert "Not graded: work.rar is a RAR" in (tmp_path / "out/moodle_single_gpu.csv").read_text()
    assert "2 of 2 points." in (tmp_path / "out/moodle_start.csv").read_text()
    assert ',single_gpu,,,2,refused,"work.rar' in (tmp_path / "out/grades.csv").read_text()
    assert summary(of_class).startswith("1 graded, 1 refused (Jane Doe_11)")
    assert "so an earlier one counts" not in (tmp_path / "out/feedback/Jane Doe_11.html").read_text()


def test_a_partner_who_hands_in_nothing_gets_the_grade_in_the_assignment_of_the_unit(tmp_path):
    """Moodle's number of the partner in this assignment is in its worksheet alone."""
    write(tmp_path / worksheet.OF_UNIT.format("start"), JANE, MAX)
    write(tmp_path / worksheet.OF_UNIT.format("single_gpu"), numbered(JANE, 71), numbered(MAX, 72), numbered(ZOE, 73))
    jane, roe = (handed_in(name, number, digest="start") for name, number in (("Jane Doe", "11"), ("Max Roe", "12")))
    with Gradebook(tmp_path) as book:
        for one in jane, roe:
            store(book, one, [said_of(2.0, "start")])
        store(book, replace(jane, number="71", digest="single", attempt=2), [said_of(1.5, "single_gpu")])
        elsewhere = worksheet.of_other_units(book.attempts(), tmp_path)
        of_class = scores(book, rules=Rules(groups={"Pair": ("Jane Doe_11", "Max Roe_12")}), elsewhere=elsewhere)
        sheet = worksheet.with_people(worksheet.kept_for_units(tmp_path)["single_gpu"], book.attempts(), tmp_path)
    grades = imported(score_tables.moodle(of_class, sheet, "single_gpu"), dict.fromkeys(("71", "72", "73")))
    assert {number: grade for number, (grade, _) in grades.items()} == {"71": 1.5, "72": 1.5}
    assert sheet.members(of_class)["Max Roe_12"] == [("Max Roe", "72")]


def test_who_is_missing_has_the_name_of_the_gradebook_and_is_counted_once(tmp_path):
    graded_with(
        tmp_path, zipped(tmp_path / "1.zip", "Jane Doe_11", "Max Roe_12"), write(tmp_path / "1.csv", JANE, MAX), "start"
    )
    rows = write(tmp_path / "2.csv", numbered(JANE, 71), numbered(MAX, 72))
    said = graded_with(tmp_path, zipped(tmp_path / "2.zip", "Jane Doe_71"), rows, "single_gpu")
    assert "not in this download: Max Roe_12." in said and "Max Roe_72" not in said and " 1 missing" in said


def test_a_refused_submission_stays_repaired_when_the_same_download_is_graded_again(tmp_path):
    sheet = write(tmp_path / "w.csv", JANE)
    graded_with(tmp_path, zipped(tmp_path / "class.zip", "Jane Doe_11"), sheet)
    note = tmp_path / "repaired/Jane Doe_11/notebooks/00_start.ipynb"
    note.parent.mkdir(parents=True)
    note.write_text("{}")
    moodle = tmp_path / "out/moodle.csv"
    assert "RAR" in moodle.read_text(), "the student reads the reason in Moodle"
    for pack in (tmp_path / "repaired", tmp_path / "class.zip"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(grading, "_grade", lambda *words: None)
            graded_with(tmp_path, pack, sheet, "start")
        with Gradebook(tmp_path / "out") as book:
            [one] = book.submissions()
        assert (one.student, one.number, one.refused) == ("Jane Doe_11", "11", None) and one.handed_in


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda path: path, "can't be read (No such file or directory): name the grading worksheet"),
        (
            lambda path: write(path, JANE, head=["Kennung", *HEAD[1:]]),
            "has no column 'Identifier': .* with Moodle in English",
        ),
        (
            lambda path: write(path, [*JANE[:7], "Freitag, 20. November 2026, 17:59", *JANE[8:]]),
            "of Participant 11 is 'Freitag, .*', which is not a date",
        ),
        (lambda path: write(path, JANE, JANE), "has Participant 11 twice"),
        (lambda path: write(path, [*JANE[:1], "Zoë", *JANE[2:]], encoding="utf-16"), "is not a CSV in UTF-8"),
        (lambda path: path.write_bytes(b""), "has no column 'Identifier'"),
    ],
    ids=["missing", "German", "a German date", "twice", "UTF-16", "empty"],
)
def test_a_file_that_is_no_worksheet_is_refused_in_a_sentence(tmp_path, make, reason):
    make(tmp_path / "w.csv")
    with pytest.raises(WorksheetError, match=reason.replace("(", r"\(").replace(")", r"\)")):
        worksheet.read(tmp_path / "w.csv").listed(ZoneInfo("UTC"))


@pytest.mark.parametrize(
    "submissions, sheet", [("empty", None), ("one", None), ("class", "missing.csv"), ("class", "bad.csv")]
)
def test_what_is_refused_leaves_nothing(tmp_path, submissions, sheet):
    for place in ("empty", "one/notebooks", "class/jane/notebooks"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "bad.csv").write_text(
        "Identifier,Grade,Last modified (grade),Last modified (submission)\nParticipant 1,,-,morgen\n"
    )
    with pytest.raises(OneSentence):
        grade(tmp_path / submissions, tmp_path / "out", trusted=True, sheet=sheet and tmp_path / sheet)
    assert not (tmp_path / "out").exists()
