"""A course's rules: what course.toml may say, and what it makes of points. A student never loses by handing in more."""

import csv
import random
import re
import tomllib
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from classes import handed_in, said, store

from grader.course import UNITS, most_points
from grader.instructors import rules
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports.in_words import grade, head, term
from grader.instructors.reports.score_tables import grades
from grader.instructors.rules import BEST, LAST, LAST_IN_TIME, Rules, RulesError, StudentRules, UnitRules, total_of
from grader.instructors.scores import scores

ROOT = Path(__file__).resolve().parents[2]
DUE = datetime(2026, 11, 20, 17, tzinfo=UTC)
BERLIN = 'zone = "Europe/Berlin"\n'


@pytest.fixture
def read(tmp_path):
    def read(text):
        (tmp_path / "course.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return rules.read(tmp_path / "course.toml")

    return read


def of_unit(counts=LAST, per_day=10.0, **fields):
    """Rules with a deadline for multi_gpu."""
    unit = {name: fields.pop(name) for name in ("grace", "most", "points", "gaps") if name in fields}
    return Rules(counts=counts, units={"multi_gpu": UnitRules(due=DUE, per_day=per_day, **unit)}, **fields)


def attempts(book, *hours_and_points, student="jane", unit="multi_gpu"):
    """Store attempts, given as (hours after the deadline, points)."""
    for number, (hours, points) in enumerate(hours_and_points, start=1):
        time = None if hours is None else (DUE + timedelta(hours=hours)).isoformat()
        store(
            book,
            handed_in(student, attempt=number, digest=f"{student}{number}", handed_in=time),
            [said("step", points, 10.0, unit=unit)],
        )


def credit(book, course, student="jane"):
    return next(score.credit for score in scores(book, rules=course) if score.student == student)


# What the file may say


def test_without_rules_all_points_are_those_of_the_checks():
    assert [rules.points_of(Rules(), unit) for unit in UNITS] == [most_points(unit) for unit in UNITS]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("title = ", "Invalid value"),
        (b"scale = 100\ntitle = '\xfc'", "line 2 is not in UTF-8; save the file in UTF-8"),
        ("x = " + "[" * 10_000, "it is nested too deeply"),
        ("[units.start]\ndue = 25.10.2026", "line 2, `due = 25.10.2026`: a date is written 2026-11-20, a time"),
        ("[units.start]\ndue = 2026-11-22T18:00", "line 2, `due = 2026-11-22T18:00`: a date is written"),
        ("[units.start]\ndue = 2026-02-30", "line 2, `due = 2026-02-30`: a date is written"),
        (BERLIN + "[units.start]\ndue = 0001-01-01", "due = 0001-01-01, but no term is in the year 1"),
        (BERLIN + "[units.start]\ndue = 9999-12-31T23:59:59Z", "but no term is in the year 9999"),
        ("drop_lowest = -1", "drop_lowest = -1, but it must be a whole number from 0 to"),
        ("[units.single_gpu]\nsite = 'nowhere'", "[units.single_gpu]: site = 'nowhere', but the sites are local"),
        ("titel = 'x'", "there is no key 'titel': did you mean 'title'?"),
        ("[units.multigpu]", "there is no key 'multigpu': did you mean 'multi_gpu'?"),
        ("[units.multi_gpu]\ndeu = 2026-11-20", "[units.multi_gpu]: there is no key 'deu': did you mean 'due'?"),
        ("[units.multi_gpu.gaps]\nstpe = 1", "[units.multi_gpu]: there is no key 'stpe': did you mean 'step'?"),
        ("units = 1", "units = 1, but it must be a table"),
        ("scale = 0", "scale = 0, but it must be a number, above 0"),
        ("scale = nan", "scale = nan, but it must be a number"),
        ("counts = 'newest'", "counts = 'newest', but it must be 'last', 'best' or 'last in time'"),
        ("scale = 100\npass = 101", "pass = 101, but the highest grade is 100"),
        ("pass = 100000", f"pass = 100000, but the highest grade is {total_of(Rules()):g}"),
        ("site = 'nowhere'", "site = 'nowhere', but the sites are local"),
        ("language = 'English'", "language = 'English', but it must be a language such as en or de"),
        ("zone = 'Europe/Berln'", "zone = 'Europe/Berln', but it must be a time zone such as Europe/Berlin; did you"),
        ("[units.multi_gpu]\ndue = 2026-11-20", "due = 2026-11-20, but in which time zone? Add a line such as zone"),
        (BERLIN + "[units.multi_gpu]\ndue = '2026-11-20'", "due = '2026-11-20', but it must be a date"),
        (BERLIN + "[units.multi_gpu]\ndue = 2026-03-29T02:30:00", "clocks in Europe/Berlin skip this hour"),
        (BERLIN + "[units.multi_gpu]\nstart = 2026-11-21\ndue = 2026-11-20", "is before start, Saturday, 21"),
        (BERLIN + "[students.jane.extensions]\nmulti_gpu = 2026-11-20", "there is an extension for multi_gpu, which"),
        (
            BERLIN + "[units.multi_gpu]\ndue = 2026-11-20\n[students.jane.extensions]\nmulti_gpu = 2026-11-19",
            "is not after its deadline",
        ),
        ("[units.start]\npoints = 1\ngaps = {workers = 0, prediction = 0}", "points = 1, but all of its gaps have 0"),
        ("[groups]\na = 'jane'", "[groups]: a = 'jane', but it must be a list of students"),
        ("[groups]\na = ['jane', 'max']\nb = ['max']", "[groups]: 'max' is in a and in b"),
        ("[groups]\na = ['jane', 'jane']", "[groups]: 'jane' is in a twice"),
    ],
)
def test_what_is_wrong_in_the_file_is_one_sentence(read, text, sentence):
    with pytest.raises(RulesError) as error:
        read(text)
    assert sentence in str(error.value)
    assert "course.toml is invalid" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_byte_order_mark_is_no_mistake(read):
    assert read("\ufeffscale = 20").scale == 20


def test_the_lowest_units_are_dropped(book):
    store(
        book,
        handed_in(),
        [said("a", 1.0), said("b", 2.0, unit="start", track=""), said("c", 0.5, unit="scaling", track="")],
    )
    [score] = scores(book, rules=Rules(drop_lowest=1, scale=10))
    assert ([unit.name for unit in score.dropped], score.max_points, score.grade) == (["scaling"], 4.0, 7.5)
    assert "Dropped, as the lowest: scaling." in grade(score)
    rows = list(csv.DictReader(grades([score]).splitlines()))
    assert sum(float(row["points"]) for row in rows) == 7.5 and sum(float(row["max_points"]) for row in rows) == 10
    [score] = scores(book, rules=Rules(drop_lowest=5))
    assert [unit.name for unit in score.counting] == ["start"], "one always counts"


def test_the_term_is_shown_as_a_table(read):
    course = read(
        BERLIN
        + "scale = 100\n[units.start]\npoints = 5\ndue = 2026-10-25\n[students.jane.extensions]\nstart = 2026-11-01\n[groups]\nA = ['jane', 'max']"
    )
    lines = list(term(course))
    assert any(re.match(r"start +5 +Sunday, 25 October 2026, 24:00 \(Europe/Berlin\)", line) for line in lines)
    assert (
        "jane: start until Sunday, 1 November 2026, 24:00 (Europe/Berlin)." in lines and "Group A: jane, max." in lines
    )


def test_a_course_for_another_site_than_the_chosen_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(rules, "FILE", tmp_path / "course.toml")
    (tmp_path / "course.toml").write_text("site = 'reedbush'")
    with pytest.raises(
        RulesError,
        match="course.toml names the site reedbush, but the chosen one is local: run `python -m grader release`",
    ):
        rules.at_its_site()
    monkeypatch.setattr(rules.sites, "chosen", lambda: "reedbush")
    assert rules.at_its_site().site == "reedbush"


def test_times_are_in_the_courses_zone_and_a_date_lasts_to_its_end(read):
    course = read(
        BERLIN + "[units.multi_gpu]\ndue = 2026-07-01\n[units.multi_node]\nstart = 2026-07-01\ndue ="
        " 2026-12-01T18:00:00\n[units.profiling]\ndue = 2026-12-01T18:00:00-05:00"
    )
    assert course.due("multi_gpu") == datetime(2026, 7, 1, 22, tzinfo=UTC)
    assert course.of("multi_node").start == datetime(2026, 6, 30, 22, tzinfo=UTC)
    assert course.due("multi_node") == datetime(2026, 12, 1, 17, tzinfo=UTC)
    assert course.due("profiling") == datetime(2026, 12, 1, 23, tzinfo=UTC)
    assert rules.shown(course.due("multi_gpu"), course.zone) == "Wednesday, 1 July 2026, 24:00 (Europe/Berlin)"
    assert rules.shown(course.due("multi_node"), course.zone) == "Tuesday, 1 December 2026, 18:00 (Europe/Berlin)"


def test_what_holds_for_all_units_holds_for_one_unless_it_says_otherwise(read):
    course = read(
        BERLIN + "[late]\nper_day = 10\ngrace = 15\ndays = 3\n[units.multi_gpu]\nper_day = 50\ndue = 2026-11-20\n"
    )
    assert (course.of("multi_gpu").per_day, course.of("single_gpu").per_day, course.late_days) == (50, 10, 3)
    assert course.of("multi_gpu").grace == course.of("single_gpu").grace == 15


# Students' names


@pytest.mark.parametrize("name, number", [("jane_7", "7"), ("jane", "7"), ("JANE", "7"), ("jane", ""), ("jane_7", "")])
def test_a_name_finds_its_student_where_one_of_them_has_no_number(book, name, number):
    store(book, handed_in("jane", number, handed_in=(DUE + timedelta(days=1)).isoformat()), [said("step", 10.0, 10.0)])
    course = replace(of_unit(), students={name: StudentRules(extensions={"multi_gpu": DUE + timedelta(days=2)})})
    assert credit(book, course, "jane_7" if number else "jane") == 10.0
    assert rules.in_gradebook(course, book.attempts()).unknown == ()


def test_unknown_students_are_named_with_who_could_be_meant(book):
    attempts(book, (0, 10.0))
    store(book, handed_in("max", "1", digest="m"), [said("step")])
    store(book, handed_in("max", "2", digest="n"), [said("step")])
    course = Rules(students={name: StudentRules() for name in ("jnae", "nobody", "max")})
    assert rules.in_gradebook(course, book.attempts()).unknown == (
        "course.toml names 'jnae', who has handed in nothing; did you mean 'jane'?",
        "course.toml names 'nobody', who has handed in nothing.",
        "course.toml names 'max', who could be 'max_1' or 'max_2': write the name with its number.",
    )


def test_two_names_of_one_student_are_refused(book):
    store(book, handed_in("jane", "7"), [said()])
    with pytest.raises(RulesError, match="two names for one student, 'jane' and 'jane_7': use one of them"):
        scores(book, rules=Rules(students={"jane": StudentRules()}, groups={"a": ("jane_7",)}))


# Points


def test_points_of_gaps_and_units_are_those_of_the_course(book):
    store(book, handed_in(), [said("a", 1.0), said("b", 2.0), said("c", 0.0, unit="start", track="")])
    course = Rules(units={"multi_gpu": UnitRules(points=30, gaps={"b": 4}), "start": UnitRules(points=0)})
    [score] = scores(book, rules=course)
    multi_gpu, start = score.units
    assert [(gap.name, gap.points, gap.max_points) for gap in multi_gpu.gaps] == [("a", 5.0, 10.0), ("b", 20.0, 20.0)]
    assert (start.points, start.max_points, score.points, score.max_points) == (0, 0, 25.0, 30.0)


def test_a_gap_that_is_switched_off_is_shown_and_costs_nothing_even_ungraded(book):
    store(book, handed_in(), [said("a", 2.0), said("b", None)])
    [score] = scores(book, rules=Rules(units={"multi_gpu": UnitRules(gaps={"b": 0})}))
    assert (score.grade, score.max_grade, score.complete) == (2.0, 2.0, True)
    assert [gap.name for gap in score.units[0].gaps] == ["a", "b"]


def test_a_unit_that_is_switched_off_is_not_waited_for(book):
    store(book, handed_in("jane"), [said()])
    store(book, handed_in("max", digest="m"), [said(), said(unit="start")])
    assert [score.complete for score in scores(book)] == [False, True]
    assert [score.complete for score in scores(book, rules=Rules(units={"start": UnitRules(points=0)}))] == [True, True]


@pytest.mark.parametrize(
    "points, grade, passed", [(4.0, 40.0, False), (4.999999, 50.0, True), (5.0, 50.0, True), (10.0, 100.0, True)]
)
def test_the_grade_is_on_the_scale_and_passes_as_it_is_shown(book, points, grade, passed):
    attempts(book, (0, points))
    [score] = scores(book, rules=Rules(scale=100, passing=50))
    assert (score.grade, score.max_grade, score.passed) == (grade, 100, passed)


# Lateness


@pytest.mark.parametrize(
    "hours, days", [(-100, 0), (0, 0), (0.5, 0), (0.51, 1), (24, 1), (24.1, 2), (240, 10), (None, 0)]
)
def test_each_day_begun_after_the_grace_counts_from_the_deadline(book, hours, days):
    attempts(book, (hours, 10.0))
    [score] = scores(book, rules=of_unit(grace=30))
    assert (score.units[0].days_late, score.late) == (days, days > 0) and score.credit == pytest.approx(10.0 - days)
    assert bool(score.flagged) == (hours is None), "a time that is not known costs nothing, and a person should look"


def test_the_deduction_has_a_limit(book):
    attempts(book, (1000, 10.0))
    assert credit(book, of_unit(most=50)) == 5.0 and credit(book, of_unit()) == 0.0


def test_an_extension_is_its_students_alone(book):
    for student in ("jane", "max"):
        attempts(book, (20, 10.0), student=student)
    course = of_unit(students={"jane": StudentRules(extensions={"multi_gpu": DUE + timedelta(days=1)})})
    assert [(score.credit, score.units[0].extended) for score in scores(book, rules=course)] == [
        (10.0, True),
        (9.0, False),
    ]


@pytest.mark.parametrize("counts, expected", [(LAST, 9.0), (BEST, 9.0), (LAST_IN_TIME, 4.0)])
def test_a_late_attempt_that_gives_more_counts_where_the_course_allows_it(book, counts, expected):
    attempts(book, (-50, 8.0), (-1, 4.0), (1, 10.0))
    [score] = scores(book, rules=of_unit(counts))
    assert score.credit == expected
    attempts(book, (-50, 8.0), student="max")


@pytest.mark.parametrize("counts, expected", [(LAST, (5.0, 2)), (BEST, (8.0, 1)), (LAST_IN_TIME, (5.0, 2))])
def test_a_late_attempt_never_takes_what_was_handed_in_on_time(book, counts, expected):
    attempts(book, (-50, 8.0), (-1, 5.0), (1, 2.0), (100, 9.0))
    [score] = scores(book, rules=of_unit(counts))
    assert (score.credit, score.units[0].attempt.attempt) == expected


def test_the_same_files_handed_in_again_later_are_not_later(book):
    store(book, handed_in(digest="d", handed_in=(DUE + timedelta(hours=1)).isoformat()), [said("step", 10.0, 10.0)])
    store(
        book,
        handed_in(digest="d", attempt=2, handed_in=(DUE + timedelta(days=5)).isoformat()),
        [said("step", 10.0, 10.0)],
    )
    [score] = scores(book, rules=of_unit())
    assert (score.credit, len(score.attempts)) == (9.0, 2)


def test_a_late_attempt_that_can_not_be_read_leaves_the_one_in_time_and_the_student_reads_it(book):
    attempts(book, (-1, 5.0))
    book.record(
        [
            handed_in(
                digest="", attempt=2, refused="jane.zip is encrypted.", handed_in=(DUE + timedelta(hours=2)).isoformat()
            )
        ]
    )
    [score] = scores(book, rules=of_unit())
    assert (score.credit, score.complete, score.submission.refused) == (5.0, True, None)
    assert grade(score)[0] == "Attempt 2 could not be read, so an earlier one counts: jane.zip is encrypted."
    assert score.flagged == ("The last attempt could not be read.",)
    [newest] = scores(book)
    assert newest.submission.refused and not newest.complete and grade(newest) == []


def test_of_attempts_only_the_first_ones_count(book):
    attempts(book, (-3, 1.0), (-2, 5.0), (-1, 9.0))
    assert [credit(book, of_unit(attempts=number)) for number in (1, 2, 3, 9)] == [1.0, 5.0, 9.0, 9.0]


def test_the_first_attempts_are_the_first_ones_that_are_there(book):
    store(book, handed_in(attempt=3), [said("step", 5.0, 10.0)])
    assert credit(book, of_unit(attempts=2)) == 5.0


def test_an_attempt_that_may_count_and_is_not_graded_keeps_the_grade_open(book):
    attempts(book, (-1, 5.0))
    book.record([handed_in(digest="jane2", attempt=2, handed_in=(DUE + timedelta(hours=2)).isoformat())])
    assert not scores(book, rules=of_unit())[0].complete
    assert scores(book, rules=of_unit(LAST_IN_TIME))[0].complete


def test_free_days_are_spent_where_they_give_most(book):
    late = {"start": 31, "multi_gpu": 30, "single_gpu": 10}  # hours: two, two and one day
    time = {unit: DUE - timedelta(hours=hours) for unit, hours in late.items()}
    course = Rules(late_days=3, units={unit: UnitRules(due=time[unit], per_day=10) for unit in late})
    store(
        book,
        handed_in(handed_in=DUE.isoformat()),
        [said("a", 10.0, 10.0, unit="start"), said("a", 20.0, 20.0), said("a", 40.0, 40.0, unit="single_gpu")],
    )
    [score] = scores(book, rules=course)
    assert {unit.name: (unit.free_days, unit.days_late) for unit in score.units} == {
        "start": (0, 2),
        "multi_gpu": (2, 2),
        "single_gpu": (1, 1),
    }
    assert score.credit == 8 + 20 + 40
    assert scores(book, rules=replace(course, students={"jane": StudentRules(late_days=0)}))[0].credit == 8 + 16 + 36


def test_a_free_day_counts_in_all_units_of_a_deadline(book):
    units = {unit: UnitRules(due=DUE, per_day=10) for unit in ("start", "single_gpu", "multi_gpu")}
    course = Rules(late_days=1, units=units | {"multi_gpu": UnitRules(due=DUE + timedelta(hours=1), per_day=10)})
    late = (DUE + timedelta(hours=2)).isoformat()
    store(
        book,
        handed_in(handed_in=late),
        [said("a", 10.0, 10.0, unit="start"), said("a", 20.0, 20.0), said("a", 20.0, 20.0, unit="single_gpu")],
    )
    [score] = scores(book, rules=course)
    assert {unit.name: unit.credit for unit in score.units} == {"start": 10, "single_gpu": 20, "multi_gpu": 18}
    assert score.free_days == 1
    assert "1 of your 1 free late day is used." in grade(score)


def test_an_adjustment_counts_with_the_attempt_it_was_made_for(book):
    attempts(book, (-1, 5.0), (30, 6.0))
    [score] = scores(book, rules=of_unit())
    assert score.units[0].attempt.attempt == 1
    book.adjust("jane", "multi_gpu", "step", 9.0, "why", "who", score.units[0].attempt)
    [score] = scores(book, rules=of_unit())
    assert (score.credit, score.adjusted, score.earlier) == (9.0, True, ())
    [newest] = scores(book)
    assert newest.points == 6.0 and [row["points"] for row in newest.earlier] == [9.0]


# Groups


def test_groups_may_differ_from_unit_to_unit(book):
    for student, points in ("ann", 9.0), ("bob", 4.0):
        own = handed_in(student, digest=student, handed_in=DUE.isoformat())
        store(book, own, [said("step", points, 10.0), said("c", points / 10, unit="start", track="")])
    pairs = UnitRules(groups={"One": ("ann", "zoe"), "Two": ("bob", "max")})
    course = Rules(groups={"All": ("ann", "max")}, units={"multi_gpu": pairs})
    found = {score.student: score for score in scores(book, rules=course)}
    credits = {student: {unit.name: unit.credit for unit in score.units} for student, score in found.items()}
    assert credits["max"] == {"multi_gpu": 4.0, "start": 0.9}
    assert credits["zoe"] == {"multi_gpu": 9.0, "start": 0.0} and found["zoe"].complete, "zoe has handed in no start"
    assert "multi_gpu: group Two; handed in by bob." in grade(found["max"])
    wanted = rules.to_grade(course, book.attempts(), ["multi_gpu", "start"])
    assert wanted == {(one, one, unit) for one in ("ann", "bob") for unit in ("multi_gpu", "start")}


def test_each_member_of_a_group_gets_what_one_of_them_handed_in(book):
    attempts(book, (-5, 4.0), student="ann")
    attempts(book, (-1, 9.0), student="bob")
    attempts(book, (-1, 1.0), student="max")
    of_class = scores(book, rules=of_unit(groups={"alpha": ("ann", "bob", "Cy Roe_12")}))
    assert [(score.student, score.credit, score.group) for score in of_class] == [
        ("Cy Roe_12", 9.0, "alpha"),
        ("ann", 9.0, "alpha"),
        ("bob", 9.0, "alpha"),
        ("max", 1.0, ""),
    ]
    assert [score.units[0].attempt.name for score in of_class[:3]] == ["bob"] * 3 and len(of_class[0].attempts) == 2
    assert (of_class[0].submission.name, of_class[0].submission.number) == ("Cy Roe", "12")
    assert grade(of_class[1])[0] == "Group alpha; handed in by bob."


# In general: what holds for any class

THREE = ("multi_gpu", "start", "profiling")


def any_rules(seed, ways=(LAST, BEST, LAST_IN_TIME)):
    chance = random.Random(seed)
    units = {
        unit: UnitRules(
            due=chance.choice([None, DUE, DUE + timedelta(days=chance.randint(0, 9))]),
            grace=chance.choice([0, 30]),
            per_day=chance.choice([0, 5, 10, 50, 100]),
            most=chance.choice([30, 100]),
            points=chance.choice([None, 0, 7.5]),
        )
        for unit in THREE
    }
    return Rules(
        units=units, counts=chance.choice(ways), late_days=chance.choice([0, 0, 1, 4]), scale=chance.choice([None, 100])
    )


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """Pairs of students, with the same three attempts at any times; the second of each has a fourth one, after all
    deadlines."""
    chance = random.Random(0)
    with Gradebook(tmp_path_factory.mktemp("crowd")) as book, book.together():
        for pair in range(10):
            late = [chance.randint(-100, 200) for _ in range(3)] + [24 * chance.randint(10, 20)]
            points = [[float(chance.randint(0, 10)) for _ in THREE] for _ in late]
            for student, number_of in ((f"{pair}a", 3), (f"{pair}b", 4)):
                for number in range(number_of):
                    one = handed_in(
                        student,
                        attempt=number + 1,
                        digest=f"{student}{number}",
                        handed_in=(DUE + timedelta(hours=late[number])).isoformat(),
                    )
                    store(
                        book,
                        one,
                        [
                            said("step", worth, 10.0, unit=unit)
                            for unit, worth in zip(THREE, points[number], strict=True)
                        ],
                    )
        yield book


@pytest.mark.parametrize("seed", range(20))
def test_a_late_attempt_more_costs_nobody_anything(crowd, seed):
    course = replace(any_rules(seed), late_days=0)
    of_class = scores(crowd, rules=course)
    for before, after in zip(of_class[::2], of_class[1::2], strict=True):
        assert 0 <= after.credit <= after.max_points + 1e-9 and 0 <= after.grade <= after.max_grade + 1e-9
        for one, other in zip(before.units, after.units, strict=True):
            if one.due and (one.days_late == 0 or course.counts != LAST_IN_TIME):
                assert other.credit >= one.credit - 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_free_days_cost_nobody_anything_and_more_time_nobody_whose_best_attempt_counts(crowd, seed):
    course = any_rules(seed, (LAST, BEST))
    by_days = [[score.credit for score in scores(crowd, rules=replace(course, late_days=days))] for days in (0, 1, 4)]
    assert all(
        fewer <= more + 1e-9
        for one, other in zip(by_days, by_days[1:], strict=False)
        for fewer, more in zip(one, other, strict=True)
    )
    best = replace(course, counts=BEST, late_days=0)
    later = replace(
        best,
        units={name: replace(unit, due=unit.due and unit.due + timedelta(days=2)) for name, unit in best.units.items()},
    )
    for one, other in zip(scores(crowd, rules=best), scores(crowd, rules=later), strict=True):
        assert one.credit <= other.credit + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_what_may_count_is_graded_and_nothing_else(crowd, seed):
    course = any_rules(seed)
    wanted = rules.to_grade(course, crowd.attempts(), THREE)
    assert {unit for _, _, unit in wanted} == {unit for unit in THREE if course.of(unit).points != 0}
    for score in scores(crowd, rules=course):
        for unit in score.units:
            assert (score.student, unit.attempt.digest, unit.name) in wanted or course.of(unit.name).points == 0


# What students read


def test_a_notebooks_head_says_points_deadline_and_what_lateness_costs(read):
    course = read(
        BERLIN + "counts = 'last'\nattempts = 5\n[late]\nper_day = 10\nmost = 50\ngrace = 30\ndays = 3\n"
        "[units.multi_gpu]\npoints = 20\ndue = 2026-11-20T18:00:00\ngaps = {step = 0}\n[units.start]\npoints = 0\n"
    )
    assert (
        head(course, "multi_gpu")
        == "**20 points. Due Friday, 20 November 2026, 18:00 (Europe/Berlin).** The check counts in points of its own,"
        f" up to {most_points('multi_gpu'):g}. To try, without points: `step`. Up to 30 minutes late still counts as on time."
        " Late work loses 10 % of its points for each day or part of a day, at most 50 %. In the whole course,"
        " you may be 3 days late without a loss. You may hand in 5 times; later attempts do not count. Your last"
        " attempt in time counts, or a late one that gives more."
    )
    assert head(course, "start") == "**Without points.**"
    assert head(course, "single_gpu").startswith(f"**{most_points('single_gpu'):g} points.** You may hand in 5 times")


def test_the_example_in_docs_is_right_and_shows_every_key(read):
    example = (ROOT / "docs/course.toml").read_text()
    course = read(example)
    tables = rules.LatenessOfAll, rules.UnitRules, rules.StudentRules
    keys = {*rules.KEYS, *(key.name for table in tables for key in fields(table))}
    assert keys <= set(re.findall(r"^\[?(\w+)", example, re.MULTILINE)) | set(
        tomllib.loads(example)["units"]["multi_gpu"]
    )
    assert course.groups == {"Group A": ("Jane Doe_12345", "Max Roe_12346")}
    assert course.free_days("Jane Doe_12345") == 5
    assert course.free_days("Max Roe_12346") == 3
    assert rules.points_of(course, "start") == 0 and rules.points_of(course, "multi_gpu") == pytest.approx(40)
    assert "From Monday, 12 October 2026, 00:00 (Europe/Berlin). Due Sunday, 25 October 2026, 24:00" in head(
        course, "single_gpu"
    )


def test_feedback_says_how_points_became_a_grade(book):
    attempts(book, (-1, 5.0), (30, 10.0))
    course = of_unit(
        late_days=1,
        scale=100,
        passing=50,
        bonus=2,
        students={"jane": StudentRules(extensions={"multi_gpu": DUE + timedelta(hours=1)})},
    )
    book.adjust("jane", "bonus", "", 0.5, "helped others", "Dr. Roe")
    assert grade(scores(book, rules=course)[0]) == [
        "multi_gpu: your deadline was extended to Friday, 20 November 2026, 18:00 (UTC).",
        "multi_gpu: 2 days late, 1 of them free: −10 %, 10 points become 9.",
        "1 of your 1 free late day is used.",
        "0.5 bonus points: helped others (Dr. Roe).",
        "9.5 of 10 points give the grade 95 of 100: passed (50 are needed).",
    ]
    assert grade(scores(book)[0]) == []
