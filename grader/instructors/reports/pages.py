"""HTML pages: the feedback for one student, the report on a class, and similarities. Each page is one file, without scripts, and can be
read on a phone and in print."""

import base64
import functools
import re
import time
from collections import Counter, defaultdict
from html import escape
from pathlib import Path
from statistics import median

import jinja2
from markupsafe import Markup

from grader.instructors.collect import file_name
from grader.instructors.reports.files import clean, moment, number
from grader.instructors.reports.in_words import grade
from grader.instructors.reports.tables import said
from grader.instructors.rules import Rules
from grader.verdict import PASSED, STATUSES, UNTOUCHED, sign

LONGEST = 8_000  # the most characters of output that are shown for a gap
PICTURE = 2_000_000  # bytes of the largest picture that is shown


def feedback(score, pictures=()):
    """The page for one student, from a Score. pictures: (name, data URI) pairs, from `plots`."""
    return _template("feedback.html").render(score=score, pictures=pictures, sentences=grade(score), language=score.rules.language)


def report(scores, absent=()):
    """The page on the class. absent: students whose submissions were not found this time."""
    graded = [score for score in scores if not score.submission.refused]
    final = [score for score in graded if score.complete and score.max_grade]
    return _template("report.html").render(
        scores=scores,
        graded=graded,
        absent=absent,
        language=scores[0].rules.language if scores else Rules.language,
        final=final,
        refused=[score for score in scores if score.submission.refused],
        shares=[score.grade / score.max_grade for score in final],
        units=[_of_unit([score.units[place] for score in graded]) for place in range(len(graded[0].units) if graded else 0)],
        gaps=hardest_gaps(graded),
        misconceptions=misconceptions(graded),
        adjustments=[
            (score, unit.name, gap, adjusted, sum(verdict.points or 0 for verdict in adjusted.verdicts) if adjusted.verdicts else None)
            for score in scores
            for unit in score.units
            for gap, adjusted in [*((gap.name, gap) for gap in unit.gaps), ("", unit)]
            if adjusted.adjustment
        ]
        + [(score, "", "", score, score.checked if score.units else None) for score in scores if score.adjustment],
        earlier=[row for score in scores for row in score.earlier],
        day=time.strftime("%Y-%m-%d %H:%M"),
    )


def similarity(pairs):
    """The page that shows each grader.instructors.similarity.Pair side by side."""
    return _template("similarity.html").render(pairs=pairs, language=Rules.language)


def plots(folder):
    """A student's pictures, the PNG and SVG files in `folder` if it exists, as (name, data URI) pairs. An SVG in an <img> runs no scripts."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        kind = {".png": "image/png", ".svg": "image/svg+xml"}.get(path.suffix)
        if kind and path.is_file() and not path.is_symlink() and path.stat().st_size <= PICTURE:
            found.append((path.stem, f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"))
    return found


def hardest_gaps(scores, most=10):
    """The gaps with the smallest share of points, as dicts: unit, track, gap, students, share (0 to 1), attempted (by how many students).

    Only students who began the gap's track are counted, also if their other track counts: a student who never began it did not fail at it.
    """
    gaps = defaultdict(list)
    for score in scores:
        for unit in score.units:
            for gap in unit.begun:
                if gap.complete and gap.max_points:
                    gaps[unit.name, gap.track, gap.name].append(gap)
    rows = [
        {
            "unit": unit,
            "track": track,
            "gap": name,
            "students": len(of_gap),
            "share": sum(gap.points / gap.max_points for gap in of_gap) / len(of_gap),
            "attempted": sum(gap.attempted for gap in of_gap),
        }
        for (unit, track, name), of_gap in gaps.items()
    ]
    return [row for row in sorted(rows, key=lambda row: (row["share"], row["unit"], row["track"], row["gap"])) if row["share"] < 1][:most]


def misconceptions(scores, most=12):
    """The messages that most students got, as dicts: unit, track, gap, message, hint, students.

    Messages that differ only in numbers count as one; the most common of them is given.
    """
    groups, hints = defaultdict(Counter), {}
    for score in scores:
        said_to_student = {
            (verdict.unit, verdict.track, verdict.gap, re.sub(r"\d[\d.,e+-]*", "#", verdict.message)): (verdict.message, verdict.hint)
            for unit in score.units
            for gap in unit.begun
            for verdict in gap.verdicts
            if verdict.message and verdict.points is not None and verdict.status not in (PASSED, *UNTOUCHED)
        }
        for key, (message, hint) in said_to_student.items():
            groups[key][message] += 1
            hints[key] = hint
    rows = [
        {"unit": unit, "track": track, "gap": gap, "message": messages.most_common(1)[0][0], "hint": hints[unit, track, gap, alike], "students": messages.total()}
        for (unit, track, gap, alike), messages in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row["students"], row["unit"], row["track"], row["gap"], row["message"]))[:most]


def _of_unit(units):
    """The results of a class in one unit, for the report."""
    final = sorted(unit.points / unit.max_points for unit in units if unit.complete and unit.max_points)
    graded = [unit for unit in units if unit.graded]
    statuses = Counter(verdict.status for unit in graded for verdict in unit.verdicts)
    return {
        "name": units[0].name,
        "max_points": max(unit.max_points for unit in units),
        "shares": final,
        "mean": sum(final) / len(final) if final else None,
        "ungraded": len(units) - len(final),
        "statuses": [(status, statuses[status]) for status in sorted(STATUSES, key=UNTOUCHED.__contains__) if statuses[status]],
        "verdicts": statuses.total(),
        "seconds": sorted(_once(unit, "seconds") for unit in graded),
        "cpu_seconds": sorted(_once(unit, "cpu_seconds") for unit in graded),
    }


def _once(unit, seconds):
    """The sum of a unit's seconds, each gap counted once: all verdicts on a gap have the time of the same run."""
    return sum(max((getattr(verdict, seconds) for verdict in gap.verdicts), default=0) for gap in unit.gaps)


def quantile(values, share):
    """The value below which `share` (0 to 1) of the sorted `values` lie."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def bins(shares, count=10):
    """How many of the shares lie in each of `count` equal parts of 0 to 1; shares above 1 count as 1."""
    counts = Counter(min(count - 1, int(share * count + 1e-9)) for share in shares)
    return [counts[number] for number in range(count)]


def cut(text):
    """`text`, or if it is too long its beginning and its end, with a mark in place of the middle."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}\n[... {len(text) - LONGEST} characters cut ...]\n{text[-LONGEST // 2 :]}"


def distinct(verdicts, name):
    """The different texts in a field of the verdicts; the verdicts on one gap often have the same text."""
    return list(dict.fromkeys(text for verdict in verdicts if (text := getattr(verdict, name).strip())))


@functools.cache
def _template(name):
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: clean(value) if type(value) is str else value,  # all text on the pages is cleaned
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {"points": number, "cut": cut, "distinct": distinct, "file_name": file_name, "said": said, "words": _words, "marked": _marked, "median": median}
    pages.filters |= {"quantile": quantile, "bins": bins, "percent": lambda share: f"{100 * share:.0f} %", "moment": moment}
    pages.globals["sign"] = sign
    return pages.get_template(name)


def _words(name):
    """The name of a unit or gap for people to read: multi gpu for multi_gpu."""
    return name.replace("_", " ")


def _marked(sentence):
    """A sentence as HTML; text between backticks is shown as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(clean(sentence))))
