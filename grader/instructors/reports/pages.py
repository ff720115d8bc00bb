"""HTML pages: the feedback for one student, the report on a class, and similarities. Each page is one file, and can be
read on a phone and in print. The report has a script that sorts and searches the table of students; a browser runs no
script but ours there, and none at all on the other pages. `live` pages are those of `python -m grader serve`: they have
forms, too, and a script that shows what has changed."""

import base64
import functools
import hashlib
import math
import re
import time
from collections import Counter, defaultdict
from html import escape
from pathlib import Path
from statistics import median
from types import MappingProxyType

import jinja2
from markupsafe import Markup

from grader.instructors import worksheet
from grader.instructors.collect import file_name
from grader.instructors.gradebook import BONUS
from grader.instructors.reports.answers import by_file, file_of, given, written
from grader.instructors.reports.in_words import grade
from grader.instructors.reports.report_files import clean, moment, number
from grader.instructors.reports.score_tables import said
from grader.instructors.rules import NONE, Rules, shown
from grader.judging import ONLY_IF
from grader.verdict import FAILED, PASSED, STATUSES, UNTOUCHED, sign
from handson.language import translated
from handson.words import counted

LONGEST = 8_000  # characters of output that are shown for a gap
PICTURE = 2_000_000  # bytes of the largest picture that is shown
NAMED = 12  # students that are named with a misconception; the table lists all
MEMBERS = 200  # students of a group of similar submissions that are named
LISTED = 300  # adjustments that the report lists
BARS = 12  # bars of a histogram
STEPS = (1, 2, 5, 10)  # possible widths of a bar, in % of the points
TEMPLATES = Path(__file__).parent / "templates"
NO_BOARDS = MappingProxyType({})


def feedback(score, pictures=(), comments=None, live=None, boards=NO_BOARDS):
    """Return the page for one student, from a Score. pictures: (name, data URI) pairs, from `plots`; comments: {(unit,
    gap): a row}; live: what grader.instructors.serve.handlers.Page.live gives, for the live page; boards: from
    `leaderboards.standings`."""
    comments, earlier = comments or {}, {(row["unit"], row["gap"]): row for row in score.earlier}
    counting = {unit.name: unit.attempt.digest for unit in score.units if unit.attempt}
    older = {
        where for where, row in comments.items() if row["digest"] != counting.get(where[0], score.submission.digest)
    }
    return _render(
        "feedback.html",
        live,
        (),
        score=score,
        pictures=pictures,
        comments=comments,
        older=older,
        earlier=earlier,
        sentences=grade(score),
        first=first_to_fix(score),
        language=score.rules.language,
        boards=boards,
    )


def ask(score, form, comment, sentence, live):
    """Return the live page that asks a person to decide, after a change that was not stored. form: the person's input;
    comment: the present one, or None."""
    earlier = next((row for row in score.earlier if (row["unit"], row["gap"]) == (form.unit, form.gap)), None)
    thing = _thing(score, form.unit, form.gap)
    adjusted = (score.bonus if form.unit == BONUS else thing.adjustment) or earlier
    most = score.rules.bonus if form.unit == BONUS else thing.max_points
    return _render(
        "ask.html",
        live,
        (),
        score=score,
        typed=form,
        most=number(most),
        adjusted=adjusted,
        comment=comment,
        sentence=sentence,
    )


def _thing(score, unit, gap):
    """Return the Gap with these names; the Unit if gap is ""; the Score if unit is also ""."""
    of_unit = next((one for one in score.units if one.name == unit), score)
    return next((one for one in (*of_unit.gaps, *of_unit.others) if one.name == gap), of_unit) if gap else of_unit


def of_gap(unit, track, gap, same, live):
    """Return the live page on a class's answers to a gap. same: from `alike`."""
    rows = [(one, [(score, _of_track(score, unit, track, gap)) for score in one.scores]) for one in same]
    return _render(
        "gap.html",
        live,
        (),
        unit=unit,
        track=track,
        gap=gap,
        rows=rows,
        code=given(unit, track, gap),
        file=file_of(unit, track, gap),
    )


def _of_track(score, unit, track, gap):
    """Return the Gap of this name and track of a Score."""
    of_unit = next(one for one in score.units if one.name == unit)
    return next(one for one in (*of_unit.gaps, *of_unit.others) if (one.track, one.name) == (track, gap))


def message(sentence, back=False):
    """Return a live page with one sentence, and a link to the class for those who may see it."""
    return _render("message.html", None, (), sentence=sentence, back=back)


def report(scores, absent=(), folder=None, live=None, boards=NO_BOARDS):
    """Return the page on the class. absent: students whose submissions were not found this time; folder: the unpacked
    submissions, for examples of students' code; live, boards: as in `feedback`."""
    graded = [score for score in scores if not score.submission.refused]
    final = [
        score
        for score in scores
        if score.complete and score.max_grade and (score.by_hand or not score.submission.refused)
    ]
    common = misconceptions(graded)
    with_it, to_look_at = defaultdict(list), defaultdict(list)
    sheet = worksheet.kept(folder) if folder else None
    for score in scores:
        for reason in score.flagged:
            to_look_at[reason].append(score.student)
    for place, row in enumerate(common):
        row["example"] = _example(row, folder)
        for score in row["scores"]:
            with_it[score.student].append(place)
    return _render(
        "report.html",
        live,
        ("report.js",),
        scores=scores,
        graded=graded,
        absent=set(absent) & {score.student for score in scores},
        unseen=set(absent) - {score.student for score in scores},
        nothing=sheet.nothing([score.submission for score in scores], scores[0].rules.groups)
        if sheet and scores
        else (),
        too_low=worksheet.of_one_unit(folder, scores) or sheet.too_low(scores[0].highest) if sheet and scores else None,
        language=scores[0].rules.language if scores else Rules.language,
        rules=scores[0].rules if scores else NONE,
        to_look_at=to_look_at,
        unfinished=len(graded) - sum(not score.submission.refused for score in final),
        refused=[score for score in scores if score.refused or score.submission.refused],
        shares=[score.grade / score.max_grade for score in final],
        units=[
            _of_unit([score.units[place] for score in graded]) for place in range(len(graded[0].units) if graded else 0)
        ],
        gaps=hardest_gaps(graded),
        misconceptions=common,
        with_it=with_it,
        adjustments=[
            (
                score,
                unit.name,
                gap,
                adjusted,
                sum(verdict.points or 0 for verdict in adjusted.verdicts) if adjusted.verdicts else None,
            )
            for score in scores
            for unit in score.units
            for gap, adjusted in [*((gap.name, gap) for gap in unit.gaps), ("", unit)]
            if adjusted.adjustment
        ]
        + [(score, "", "", score, score.checked if score.units else None) for score in scores if score.adjustment],
        earlier=[row for score in scores for row in score.earlier],
        boards=boards,
        day=time.strftime("%Y-%m-%d %H:%M"),
    )


def leaderboard(boards):
    """Return the instructor's page on contests. boards: from `leaderboards.standings`."""
    return _render("leaderboard.html", None, (), boards=boards, day=time.strftime("%Y-%m-%d %H:%M"))


def similarity(groups, left_out=(), solved=()):
    """Return the page that shows each grader.instructors.similarity.Group, with two of its students side by side.
    left_out: sentences on files that were not compared; solved: sentences on students who have the course's
    solutions."""
    return _render("similarity.html", None, (), groups=groups, left_out=left_out, solved=solved)


def plots(folder):
    """Return a student's pictures, the PNG and SVG files in `folder` if it exists, as (name, data URI) pairs. An SVG in
    an <img> runs no scripts."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        kind = {".png": "image/png", ".svg": "image/svg+xml"}.get(path.suffix)
        if kind and path.is_file() and not path.is_symlink() and path.stat().st_size <= PICTURE:
            found.append((path.stem, f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"))
    return found


def hardest_gaps(scores, most=10):
    """Return the gaps with the smallest share of points, as dicts: unit, track, gap, students, share (0 to 1),
    attempted (number of students).

    Only students who began the gap's track count, also if their other track counts: a student who never began it did
    not fail at it.
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
    return [
        row
        for row in sorted(rows, key=lambda row: (row["share"], row["unit"], row["track"], row["gap"]))
        if row["share"] < 1
    ][:most]


def misconceptions(scores, most=12):
    """Return the most frequent messages, as dicts: unit, track, gap, message, hint, scores (of the students who got it,
    sorted).

    Messages that differ only in numbers count as one, and the most common of them is returned.
    """
    groups, hints = defaultdict(dict), {}
    for score in scores:
        said_to_student = {
            (verdict.unit, verdict.track, verdict.gap, re.sub(r"\d[\d.,e+-]*", "#", verdict.message)): (
                verdict.message,
                verdict.hint,
            )
            for unit in score.units
            for gap in unit.begun
            for verdict in gap.verdicts
            if verdict.message
            and verdict.points is not None
            and verdict.status not in (PASSED, *UNTOUCHED)
            and not verdict.message.startswith(ONLY_IF)
        }
        for key, (message, hint) in said_to_student.items():
            groups[key][score.student] = score, message
            hints[key] = hint
    rows = []
    for (unit, track, gap, alike), of_students in groups.items():
        [(message, _)] = Counter(message for _, message in of_students.values()).most_common(1)
        example_of = next(score for score, told in of_students.values() if told == message)
        rows.append(
            {
                "unit": unit,
                "track": track,
                "gap": gap,
                "message": message,
                "hint": hints[unit, track, gap, alike],
                "scores": [score for score, _ in of_students.values()],
                "common": len(of_students) > 1,
                "example_of": example_of,
            }
        )
    return sorted(rows, key=lambda row: (-len(row["scores"]), row["unit"], row["track"], row["gap"], row["message"]))[
        :most
    ]


def _example(row, folder):
    """Return the code of the student whose message is shown, or "" if it is missing."""
    return written(folder, row["example_of"].submission, row["unit"], row["track"], row["gap"]) if folder else ""


def first_to_fix(score):
    """Return (the Unit, the Gap, the Verdict) that a student should look at first, or None if nothing is left to do.

    Later gaps build on earlier ones, so it is the first failed gap; if no gap failed, the first unfilled one. Gaps on
    which a person has decided are left out.
    """
    units = () if score.adjustment else [unit for unit in score.units if not unit.adjustment]
    open_gaps = [
        (unit, gap)
        for unit in units
        for gap in unit.gaps
        if gap.complete and gap.points < gap.max_points and not gap.adjustment
    ]
    for untouched in (False, True):
        for unit, gap in open_gaps:
            wrong = [
                verdict
                for verdict in gap.verdicts
                if verdict.status != PASSED and (verdict.status in UNTOUCHED) == untouched
            ]
            if wrong:
                return (
                    unit,
                    gap,
                    min(wrong, key=lambda verdict: (verdict.message.startswith(ONLY_IF), verdict.status != FAILED)),
                )
    return None


def _of_unit(units):
    """Return the results of a class in one unit, for the report."""
    final = sorted(unit.points / unit.max_points for unit in units if unit.complete and unit.max_points)
    graded = [unit for unit in units if unit.graded]
    statuses = Counter(verdict.status for unit in graded for verdict in unit.verdicts)
    return {
        "name": units[0].name,
        "max_points": max(unit.max_points for unit in units),
        "shares": final,
        "mean": sum(final) / len(final) if final else None,
        "ungraded": len(units) - len(final),
        "statuses": [
            (status, statuses[status]) for status in sorted(STATUSES, key=UNTOUCHED.__contains__) if statuses[status]
        ],
        "verdicts": statuses.total(),
        "seconds": sorted(_once(unit, "seconds") for unit in graded),
        "cpu_seconds": sorted(_once(unit, "cpu_seconds") for unit in graded),
    }


def _once(unit, seconds):
    """Return the sum of a unit's seconds, each gap counted once, because all verdicts on a gap have the time of the
    same run."""
    return sum(max((getattr(verdict, seconds) for verdict in gap.verdicts), default=0) for gap in unit.gaps)


def marks(score, absent=False):
    """Return the marks in a student's row, which instructors search for; each is "" if it does not apply. absent:
    whether the submission was not found this time."""
    gaps = [gap for unit in score.units for gap in unit.gaps]
    days, waiting = score.days_late, sum(not unit.complete for unit in score.units)
    return {
        "late": counted(days, "day") if days else "late" if score.late else "",
        "attempt": score.submission.attempt,
        "by hand": "to confirm" if score.earlier else "by hand" if score.adjusted else "",
        "ungraded": ""
        if score.adjustment or score.submission.refused or not waiting
        else sum(not gap.complete for gap in gaps) or counted(waiting, "task"),
        "look": "not read" if score.refused else "missing" if absent else "look" if score.flagged else "",
    }


def quantile(values, share):
    """Return the value below which `share` (0 to 1) of the sorted `values` lie."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def bins(shares):
    """Return a histogram of shares of the points (1 is all points), from the smallest share to the largest: [(the lower
    edge in %, the upper edge, the number in between)]. Full points belong to the last bar."""
    if not shares:
        return []
    values = [100 * share for share in shares]
    for step in STEPS:
        first, last = (math.floor(edge(values) / step + 1e-9) for edge in (min, max))
        # the last bar includes its upper edge
        if last * step == round(max(values), 9) and (last > first or last * step == 100):
            first, last = min(first, last - 1), last - 1
        if last - first < BARS:
            break
    counts = Counter(min(math.floor(value / step + 1e-9), last) for value in values)
    return [(place * step, (place + 1) * step, counts[place]) for place in range(first, last + 1)]


def cut(text):
    """Return `text`, or if it is too long its beginning and its end, with a mark in between."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}\n[... {len(text) - LONGEST} characters cut ...]\n{text[-LONGEST // 2 :]}"


def distinct(verdicts, name):
    """Return the different texts in a field of the verdicts; the verdicts on one gap often have the same text."""
    return list(dict.fromkeys(text for verdict in verdicts if (text := getattr(verdict, name).strip())))


def _render(name, live, scripts, **values):
    """Return a page. scripts: the names of its scripts; its policy allows only these, by their digests."""
    texts = [(TEMPLATES / script).read_text() for script in (*scripts, *["live.js"] * bool(live))]
    digests = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts
    )
    policy = ["default-src 'none'", "style-src 'unsafe-inline'", "img-src data:", "base-uri 'none'"]
    policy += ["form-action 'self'", "connect-src 'self'"] if live else ["form-action 'none'"]
    policy += [f"script-src {digests}"] * bool(texts)
    values = {"language": Rules.language, "student": values["score"].student if "score" in values else ""} | values
    return _template(name).render(
        live=live, scripts=[Markup(text) for text in texts], policy=Markup("; ".join(policy)), **values
    )


@functools.cache
def _template(name):
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: clean(value) if type(value) is str else value,  # all text on the pages is cleaned
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "points": number,
        "cut": cut,
        "distinct": distinct,
        "file_name": file_name,
        "said": said,
        "translated": translated,
        "told": lambda text, language, **values: translated(text, language).format(**values),
        "words": _words,
        "marked": _marked,
        "median": median,
    }
    pages.filters |= {
        "quantile": quantile,
        "bins": bins,
        "percent": lambda share: f"{100 * share:.0f} %",
        "moment": moment,
    }
    pages.filters |= {
        "marks": marks,
        "by_file": by_file,
        "shown": shown,
        "counted": lambda points: counted(number(points), "point"),
    }
    pages.filters["gap"] = lambda name: _words(name.rpartition(":")[2])  # its file is named already
    pages.globals |= {
        "sign": sign,
        "BONUS": BONUS,
        "NAMED": NAMED,
        "MEMBERS": MEMBERS,
        "LISTED": LISTED,
        "UNTOUCHED": UNTOUCHED,
        "file_of": file_of,
        "given": given,
    }
    return pages.get_template(name)


def _words(name):
    """Return the name of a unit or gap for people: multi gpu for multi_gpu; the file follows the name of a gap that
    includes it."""
    file, _, gap = name.rpartition(":")
    return gap.replace("_", " ") + (f" in {file}" if file else "")


def _marked(sentence):
    """Return a sentence as HTML, in which text between backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(clean(sentence))))
