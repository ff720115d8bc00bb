"""A made-up class in a gradebook, for the tests of what is told."""

import functools
import json

from grader.course import UNITS
from grader.instructors.collect import Submission
from grader.instructors.grade import digest
from grader.verdict import FAILED, GRADER_FAULT, NOT_ATTEMPTED, PASSED, Verdict


def handed_in(student="jane", number="", **fields):
    values = {
        "attempt": 1,
        "time": 1_790_000_000.0,
        "late": False,
        "path": None,
        "digest": "d",
        "problems": (),
        "refused": None,
    } | fields
    return Submission(f"{student}_{number}" if number else student, student, number, **values)


def said(
    gap="step",
    points=2.0,
    max_points=2.0,
    status=None,
    unit="multi_gpu",
    track="pytorch",
    check="equal gradients",
    **fields,
):
    status = status or (GRADER_FAULT if points is None else PASSED if points == max_points else FAILED)
    return Verdict(unit, track, gap, check, status, points, max_points, **fields)


def not_done(gap="step", **fields):
    return said(gap, 0.0, status=NOT_ATTEMPTED, **fields)


def store(book, submission, verdicts, version=None):
    """Record a submission, and what was said of it, as one result for each unit, by today's checks or by others."""
    book.record([submission])
    for unit in dict.fromkeys(verdict.unit for verdict in verdicts):
        book.store(submission, unit, [one for one in verdicts if one.unit == unit], version or today(unit))


@functools.cache
def today(unit):
    """The version of a unit's checks now."""
    return digest.of_unit(unit) if unit in UNITS else "1"


RESULTS = {
    "score": float,
    "execution_time": float,
    "output": str,
    "output_format": {"text"},
    "visibility": {"visible"},
    "tests": list,
}
TEST = {"score": float, "max_score": float, "name": str, "output": str, "output_format": {"text"}}
TEST |= {"visibility": {"visible"}, "status": {"passed", "failed"}}


def gradescopes(text):
    """A results.json, of which Gradescope's "Autograder Specifications" know every field with its type or values."""
    results = json.loads(text)
    for fields, thing in [(RESULTS, results), *((TEST, test) for test in results["tests"])]:
        for name, value in thing.items():
            allowed = fields[name]
            assert (
                value in allowed
                if isinstance(allowed, set)
                else isinstance(value, (int, float) if allowed is float else allowed)
            ), name
    return results
