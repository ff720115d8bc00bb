"""The rules of a course in words, for the head of a notebook, and the steps from a student's points to the grade."""

from grader.course import UNITS, most_points
from grader.instructors.reports.report_files import number
from grader.instructors.rules import BEST, LAST_IN_TIME, points_of, shown, total_of
from handson.words import aligned, counted

SO_FAR = "so far"


def head(rules, unit):
    """Return the rules of a unit, as Markdown."""
    here, points, by_check = rules.of(unit), points_of(rules, unit), most_points(unit)
    if not points:
        return "**Without points.**"
    start = f" From {shown(here.start, rules.zone, end=False)}." if here.start else ""
    due = f" Due {shown(here.due, rules.zone)}." if here.due else ""
    check = [f"The check counts in points of its own, up to {number(by_check)}."] if by_check != points else []
    return " ".join(
        [
            f"**{counted(number(points), 'point')}.{start}{due}**",
            *check,
            *_on_gaps(here),
            *_on_lateness(rules, here),
            *_on_attempts(rules, here),
        ]
    )


def _on_lateness(rules, here):
    if here.due is None:
        return
    if here.grace:
        yield f"Up to {counted(number(here.grace), 'minute')} late still counts as on time."
    if here.per_day:
        limit = f", at most {number(here.most)} %" if here.most < 100 else ""
        yield f"Late work loses {number(here.per_day)} % of its points for each day or part of a day{limit}."
        if rules.late_days:
            yield f"In the whole course, you may be {counted(number(rules.late_days), 'day')} late without a loss."


def _on_attempts(rules, here):
    if rules.attempts:
        yield f"You may hand in {counted(number(rules.attempts), 'time')}; later attempts do not count."
    if rules.counts == BEST:
        yield "Your best attempt counts."
    elif rules.counts == LAST_IN_TIME:
        yield "Your last attempt in time counts."
    elif here.due:
        yield "Your last attempt in time counts, or a late one that gives more."


def _on_gaps(here):
    if off := [f"`{gap}`" for gap, points in here.gaps.items() if not points]:
        yield f"To try, without points: {', '.join(off)}."


def grade(score):
    """Return sentences on how a Score's points became its grade, or [] if no rule changed it."""
    rules, lines = score.rules, []
    bonus = (
        [f"{counted(number(score.bonus['points']), 'bonus point')}: {score.bonus['reason']} ({score.bonus['author']})."]
        if score.bonus
        else []
    )
    if score.submission.refused and not score.by_hand:
        return bonus
    if (last := score.attempts[-1]).refused and last.refused != score.submission.refused:
        in_its_place = "" if score.refused else ", so an earlier one counts"
        lines.append(f"Attempt {last.attempt} could not be read{in_its_place}: {last.refused}")
    if score.group:
        names = dict.fromkeys(unit.attempt.name for unit in score.units if unit.attempt and unit.group == score.group)
        lines.append(f"Group {score.group}; handed in by {', '.join(names) or score.submission.name}.")
    for unit in score.units:
        lines += [f"{unit.name}: {sentence}" for sentence in of_unit(unit, score)]
    if free := score.free_days:
        lines.append(
            f"{free} of your {counted(number(rules.free_days(score.student)), 'free late day')}"
            f" {'is' if free == 1 else 'are'} used."
        )
    lines += bonus
    if ahead := [unit.name for unit in score.units if unit.waiting]:
        lines.append(f"Not due yet, and not part of the grade: {', '.join(ahead)}.")
    if score.dropped:
        lines.append(f"Dropped, as the lowest: {', '.join(unit.name for unit in score.dropped)}.")
    if lines or rules.scale is not None or rules.passing is not None:
        lines.append(_total(score))
    return lines


def of_unit(unit, score):
    """Return sentences on how the course's rules changed the points of a unit."""
    if unit.group and unit.group != score.group:
        yield f"group {unit.group}; handed in by {unit.attempt.name}."
    if unit.extended:
        yield f"your deadline was extended to {shown(unit.due, score.rules.zone)}."
    if len(score.attempts) > 1 and unit.attempt and unit.attempt.attempt != score.attempts[-1].attempt:
        yield f"attempt {unit.attempt.attempt} counts."
    yield from lateness(unit)


def lateness(unit):
    """Return a sentence on the cost of a late submission, or none."""
    if unit.days_late:
        free = f", {unit.free_days} of them free" if unit.free_days else ""
        cost = f"−{number(100 * unit.deduction)} %, {number(unit.points)} points become {number(unit.credit)}"
        yield (
            f"{counted(number(unit.days_late), 'day')}"
            f" late{free}{f': {cost}' if unit.deduction else ', which costs nothing'}."
        )


def _total(score):
    so_far = "" if score.complete and not score.so_far else " so far"
    line = f"{number(score.credit)} of {number(score.max_points)} points{so_far}"
    if score.rules.scale is not None:
        line += f" give the grade {number(score.grade)} of {number(score.rules.scale)}"
    if score.passed is not None:
        line += (
            f": {'passed' if score.passed else 'not passed'} ({number(score.rules.passing)}"
            f" {'is' if score.rules.passing == 1 else 'are'} needed)"
        )
    return f"{line}."


def term(rules):
    """Return the term as lines: units with points and deadlines, and exceptions for students."""
    rows = []
    for unit in UNITS:
        here = rules.of(unit)
        start = shown(here.start, rules.zone, end=False) if here.start else ""
        due = shown(here.due, rules.zone) if here.due else ""
        rows.append((unit, number(points_of(rules, unit)), start, due, here.site or ""))
    yield from aligned(("unit", "points", "from", "due", "site"), rows)
    scale = f", on the scale to {number(rules.scale)}" if rules.scale is not None else ""
    passing = f"; {number(rules.passing)} to pass" if rules.passing is not None else ""
    yield f"{number(total_of(rules))} points{scale}{passing}."
    for student, own in rules.students.items():
        until = [f"{unit} until {shown(moment, rules.zone)}" for unit, moment in own.extensions.items()]
        late = [f"{counted(own.late_days, 'late day')}"] if own.late_days is not None else []
        yield f"{student}: {'; '.join(until + late) or 'nothing of their own'}."
    for unit, groups in (("", rules.groups), *((unit, rules.of(unit).groups) for unit in UNITS)):
        for group, members in groups.items():
            yield f"Group {group}{f' in {unit}' if unit else ''}: {', '.join(members)}."


def total(score):
    """Return a grade in short: "3.5 points so far", "3.5 points (not finished)", or "35" on a scale."""
    grade = number(score.grade) if score.rules.scale else counted(number(score.grade), "point")
    state = standing(score)
    return f"{grade} ({state})" if state not in ("", SO_FAR) else f"{grade} {state}".rstrip()


def standing(score):
    """Return why a grade is not final: nothing could be read, a result is missing, or a deadline is in the future; ""
    if it is final."""
    if score.refused:
        return "not read"
    if not score.complete:
        return "not finished"
    return SO_FAR if score.so_far else ""


def changes(before, of_class):
    """Return lines on grades that differ from `before`, {student: the result of `total`}."""
    changed = [
        f"    {score.student}: {before[score.student]} -> {total(score)}"
        for score in of_class
        if before.get(score.student, total(score)) != total(score)
    ]
    return ["Changed grades:", *changed] if changed else []


def summary(of_class, missing=0):
    """Return a line that summarises a class. missing: the number of students without a submission this time."""
    refused = [score.student for score in of_class if score.refused]
    graded = [score for score in of_class if score.complete and score.max_grade and score.student not in refused]
    unfinished = len(of_class) - len(graded) - len(refused)
    words = [
        f"{len(graded)} graded",
        *([f"{len(refused)} refused ({some(refused)})"] if refused else []),
        *([f"{unfinished} not finished"] if unfinished else []),
        *([f"{missing} missing"] if missing else []),
    ]
    if graded:
        words.append(f"mean {100 * sum(score.grade / score.max_grade for score in graded) / len(graded):.0f} %")
    return f"{', '.join(words)}."


def some(names, most=5):
    """Return the first of some names, and the number of further names."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
