"""Grades as tables, for people and for other systems. A grade that is not final is left empty, never 0."""

import csv
import html
import io
import json
import re
import time
from datetime import datetime

from grader.instructors.collect import file_name
from grader.instructors.reports.in_words import grade, lateness, standing
from grader.instructors.reports.report_files import clean, moment, number
from grader.instructors.rules import Rules
from grader.instructors.worksheet import COMMENTS, NAMES
from grader.verdict import PASSED
from handson.words import counted

FORMULA = tuple("=+-@|%\t＝＋－＠")  # a spreadsheet interprets text with one of these first characters as a formula
# other separators of cells in spreadsheets
INSIDE = re.compile(rf'([;,]\s*"*)(?=[{re.escape("".join(FORMULA))}])')

# a name that Canvas would confuse with the row of this title
POINTS_POSSIBLE = re.compile(r"(points)\s+(possible)", re.IGNORECASE)

__all__ = ["canvas", "file_name", "grades", "gradescope", "moodle", "nbgrader", "overview"]


class Foreign(str):
    """A cell of another system's file, which is returned unchanged."""


def table(head, rows, digits=2):
    """Return CSV of a head and rows of texts, numbers (rounded to `digits` decimals), None (an empty cell) and Foreign.
    Each text becomes one line, and never a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow(_cell(value, digits) for value in row)
    return out.getvalue()


def _cell(value, digits):
    if value is None:
        return ""
    if isinstance(value, Foreign):
        return value
    if isinstance(value, str):
        line = " ".join(clean(value).split())
        line = INSIDE.sub(r"\1'", line)
        return f"'{line}" if line.startswith(FORMULA) else line
    return number(value, digits)


def grades(scores):
    """Return a row for each check that counts, and for each adjustment. The points of a student's rows add up to the
    grade; ungraded rows have no points. A grade that is not final is in points so far, and not on the scale."""
    rows = []
    for score in scores:
        if score.submission.refused:
            rows.append([score.student, "", "submission", None, None, "refused", score.submission.refused])
        for unit in score.units:
            if not unit.graded and not unit.adjustment and unit.max_points and not score.submission.refused:
                why = ("refused", unit.refused) if unit.refused else ("ungraded", "not graded yet")
                rows.append([score.student, unit.name, "", None, unit.max_points, *why])
            for gap in unit.gaps:
                for verdict in gap.verdicts:
                    check = f"{' '.join(filter(None, [verdict.track, gap.name]))}: {verdict.check}"
                    rows.append(
                        [
                            score.student,
                            unit.name,
                            check,
                            verdict.points,
                            verdict.max_points,
                            _status(verdict),
                            verdict.message,
                        ]
                    )
                if gap.adjustment:
                    rows.append(
                        [
                            score.student,
                            unit.name,
                            f"{gap.name}: adjusted",
                            gap.points - gap.checked,
                            0,
                            "adjusted",
                            said(gap.adjustment),
                        ]
                    )
            if unit.adjustment:
                rows.append(
                    [
                        score.student,
                        unit.name,
                        "adjusted",
                        unit.points - unit.checked,
                        0,
                        "adjusted",
                        said(unit.adjustment),
                    ]
                )
        if score.adjustment:
            rows.append(
                [score.student, "", "adjusted", score.points - score.checked, 0, "adjusted", said(score.adjustment)]
            )
        rows += [
            [score.student, unit, what, points, most, what, sentence]
            for unit, what, points, most, sentence in _by_rules(score)
        ]
    return table(["student", "unit", "check", "points", "max_points", "status", "message"], rows, digits=6)


def overview(scores):
    """Return a row for each student, with a column for each unit, for spreadsheets, which recognise UTF-8 by the first
    character. A unit that was not begun is "-"; an ungraded unit is empty."""
    units = [unit.name for unit in scores[0].units] if scores else []
    rows = []
    for score in scores:
        refused = score.submission.refused and not score.by_hand
        of_units = [
            "–" if unit.untouched else unit.credit if unit.complete and not refused else None for unit in score.units
        ]
        status = standing(score) or {True: "passed", False: "not passed", None: ""}[score.passed]
        who = [score.student, score.submission.name, score.submission.number, score.group]
        rows.append([*who, *of_units, None if refused else _grade(score), status])
    return "\ufeff" + table(["student", "name", "number", "group", *units, "grade", "status"], rows)


def _by_rules(score):
    """Return the effects of the course's rules on the points, and on the largest points: (unit, what, points, largest
    points, a sentence) for each."""
    own = score.points
    for unit in () if score.adjustment else score.units:
        if unit.deduction:
            own += unit.credit - unit.points
            yield (
                unit.name,
                "late",
                unit.credit - unit.points,
                0,
                f"{counted(unit.days_late, 'day')} late: -{number(100 * unit.deduction)} %",
            )
    for unit in () if score.adjustment else score.units:
        if unit.waiting:
            yield unit.name, "not due", 0.0, -unit.max_points, "not due yet, and not part of the grade"
        elif unit in score.dropped:
            own -= unit.credit
            yield unit.name, "dropped", -unit.credit, -unit.max_points, "the lowest, and not part of the grade"
    if score.bonus:
        yield "", "bonus", score.credit - own, 0, said(score.bonus)
    if score.rules.scale is not None and score.complete:
        yield (
            "",
            "scale",
            score.grade - score.credit,
            score.max_grade - score.max_points,
            f"to {number(score.rules.scale)}",
        )


def said(adjustment):
    day = time.strftime("%Y-%m-%d", time.localtime(adjustment["time"]))
    return f"{adjustment['reason']} ({adjustment['author']}, {day})"


def _status(verdict):
    return f"ungraded ({verdict.status})" if verdict.points is None else verdict.status


def moodle(scores, worksheet=None, unit=None):
    """Return the offline grading worksheet of Moodle's assignments (mod/assign/feedback/offline): Moodle's own with
    grades and comments, or a new one. unit: the unit whose points are the grade; None: the whole grade.

    A new worksheet has no dates of the last change, so Moodle keeps existing grades unless its option to update them is
    selected; an empty grade changes nothing. Comments are HTML.
    """
    if worksheet is None:
        head = ["Identifier", "Full name", "Grade", "Maximum grade", "Last modified (grade)", COMMENTS]
        return table(
            head,
            [
                [
                    f"Participant {score.submission.number}" if score.submission.number else "",
                    score.submission.name,
                    _grade(score),
                    score.highest,
                    None,
                    _comment(score),
                ]
                for score in scores
            ],
        )
    head = list(dict.fromkeys([*worksheet.head, COMMENTS]))
    rows = []
    for row, score in worksheet.grades(scores):
        own = (_of_unit(score, unit) if unit else _of_all(score)) if score else {}
        # Moodle does not read names and groups, and students choose some of them
        own |= {column: row.get(column, "") for column in NAMES}
        rows.append([own[column] if column in own else Foreign(row.get(column, "")) for column in head])
    return table(head, rows)


def _of_all(score):
    """Return grade and comment for the worksheet. A refused submission has no grade, and the comment is the reason."""
    if _grade(score) is None and not score.submission.refused:
        return {}
    return (
        {"Grade": _grade(score), COMMENTS: _comment(score)}
        if _grade(score) is not None
        else {COMMENTS: _comment(score)}
    )


def _of_unit(score, name):
    """Return the same for one unit."""
    unit = next((one for one in score.units if one.name == name), None)
    if score.submission.refused and not (unit and unit.complete):
        return {COMMENTS: _comment(score)}
    if unit and unit.refused:
        return {COMMENTS: html.escape(clean(f"Not graded: {unit.refused}"))}
    if unit is None or unit.waiting or not unit.complete:
        return {}
    comment = f"{number(unit.credit)} of {counted(number(unit.max_points), 'point')}."
    return {"Grade": unit.credit, COMMENTS: html.escape(" ".join([comment, *lateness(unit)]))}


def _comment(score):
    return html.escape(clean(_summary(score)))


def canvas(scores):
    """Return Canvas's gradebook (lib/gradebook_importer.rb) with one column, which the instructor renames to the
    assignment's name and number in Canvas. Students without a final grade are left out, because an empty cell would
    delete their grade in Canvas."""
    total = max((score.highest for score in scores), default=0)
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", scores[0].rules.title if scores else Rules.title]
    graded = [score for score in scores if _grade(score) is not None]
    return table(
        head,
        [["Points Possible", "", "", "", "", total]]
        + [
            [POINTS_POSSIBLE.sub(r"\1-\2", score.submission.name), score.submission.number, "", "", "", _grade(score)]
            for score in graded
        ],
    )


def nbgrader(scores):
    """Return the columns of `nbgrader export` (nbgrader/plugins/export.py), with a row for each unit and student; a
    unit is an assignment."""
    head = [
        "assignment",
        "duedate",
        "timestamp",
        "student_id",
        "last_name",
        "first_name",
        "email",
        "raw_score",
        "late_submission_penalty",
        "score",
        "max_score",
    ]
    rows = []
    for number_of_unit in range(len(scores[0].units) if scores else 0):
        for score in scores:
            unit = score.units[number_of_unit]
            one = unit.attempt or score.submission
            points, credit = (unit.points, unit.credit) if unit.complete and not unit.waiting else (None, None)
            due = f"{unit.due:%Y-%m-%d %H:%M:%S}" if unit.due else ""
            written = moment(
                datetime.fromisoformat(one.handed_in).timestamp() if one.handed_in else one.time,
                "%Y-%m-%d %H:%M:%S",
                time.gmtime,
            )
            rows.append(
                [
                    unit.name,
                    due,
                    written,
                    score.student,
                    "",
                    "",
                    "",
                    points,
                    unit.points - unit.credit,
                    credit,
                    unit.max_points,
                ]
            )
    return table(head, rows)


def gradescope(score, comments=None):
    """Return Gradescope's results.json (its "Autograder Specifications"). If anything is ungraded, it has no scores at
    all, because Gradescope would add up the present ones. comments: {(unit, gap): a row of the gradebook}."""
    one = score.submission
    tests = []
    for unit in score.units:
        for gap in unit.gaps:
            tests += [_test(unit, gap, verdict) for verdict in gap.verdicts]
            if gap.adjustment:
                tests.append(_by_hand(f"{unit.name}, {gap.name}: adjusted", gap))
        if unit.adjustment:
            tests.append(_by_hand(f"{unit.name}: adjusted", unit))
    if score.adjustment:
        tests.append(_by_hand("the whole grade: adjusted", score))
    for unit, what, points, most, sentence in _by_rules(score):
        name = ", ".join(filter(None, (unit, what)))
        tests.append(
            {
                "name": name,
                "score": round(points, 4),
                "max_score": most,
                "output": clean(sentence),
                "output_format": "text",
            }
        )
    if not score.complete:
        tests = [{name: value for name, value in test.items() if name != "score"} for test in tests]
    told = [
        f"{row['author']}{' on ' * any(where)}{', '.join(filter(None, where))}: {row['text']}"
        for where, row in (comments or {}).items()
    ]
    results = {
        "output": clean("\n".join([_summary(score), *one.problems, *told])),
        "output_format": "text",
        "visibility": "visible",
        "tests": tests,
    }
    if score.complete:
        results["score"] = round(score.grade, 4)
    seconds = sum(verdict.seconds for unit in score.units for verdict in unit.verdicts)
    return json.dumps(results | {"execution_time": round(seconds, 2)})


def _test(unit, gap, verdict):
    output = [
        verdict.message,
        verdict.hint and f"Hint: {verdict.hint}",
        verdict.output and f"It printed:\n{verdict.output}",
    ]
    if verdict.points is None:
        output.insert(0, "Ungraded: the grader failed here, and no points are lost.")
    test = {
        "name": f"{unit.name}, {gap.name}: {verdict.check}",
        "max_score": verdict.max_points,
        "output": clean("\n\n".join(filter(None, output))),
        "output_format": "text",
        "visibility": "visible",
    }
    if verdict.points is not None:
        test |= {"score": verdict.points, "status": "passed" if verdict.status == PASSED else "failed"}
    return test


def _by_hand(name, adjusted):
    score = round(adjusted.points - adjusted.checked, 4)
    return {
        "name": name,
        "score": score,
        "max_score": 0,
        "output": clean(said(adjusted.adjustment)),
        "output_format": "text",
    }


def _grade(score):
    return score.grade if score.complete else None


def _summary(score):
    if score.submission.refused and not score.by_hand:
        return " ".join([f"Not graded: {score.submission.refused}", *grade(score)])
    of_units = [
        f"{unit.name} {number(unit.points) if unit.complete else 'ungraded'}/{number(unit.max_points)}"
        for unit in score.counting
        if unit.max_points
    ]
    points = (
        f"set to {number(score.points)}/{number(score.max_points)} by hand" if score.adjustment else "; ".join(of_units)
    )
    sentences = " ".join(grade(score))
    return f"{points}. {sentences}" if sentences else points
