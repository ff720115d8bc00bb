"""What a submission gains without the work. docs/grading_reference.md lists it ("What the grader can't detect"); here each item
is tried, with the hidden cases. If a test fails because a submission gains less than it did, the guide can promise
more."""

import functools
import itertools
import json
import string
import tomllib
from pathlib import Path

import numpy
import pytest
import sandbox_runs

from answers.known import SITE, servers, verdicts
from grader.checks.notebook_functions import digest, recorded
from grader.course import UNITS
from grader.exercises import solved
from grader.instructors import hidden
from grader.probes.notebooks import decoded
from grader.verdict import GRADER_FAULT, PASSED

ROOT = Path(__file__).resolve().parents[2]
SUBMISSIONS = tomllib.loads((ROOT / "answers/forged/conceded.toml").read_text())["submission"]
SECTION = (ROOT / "docs/grading_reference.md").read_text().partition("## What the grader can't detect")[2]
NOTE = "a person should look at it"
FIT, SEARCH, PRINTED = (
    "A formula that fits all of them is the right formula",
    "a digest, which a short search finds",
    "Code can print the inputs of hidden cases",
)
SAYS = {submission["says"] for submission in SUBMISSIONS} | {FIT, SEARCH, PRINTED}


def place(name):
    """(the unit, the Part) of the file whose path ends so."""
    return next((unit, part) for unit, parts in UNITS.items() for part in parts if part.file.endswith(f"/{name}"))


PARAMETERS = [pytest.param(one, id=f"{place(one['part'])[0]} {one['name']}") for one in SUBMISSIONS]


@pytest.fixture(scope="module")
def server_for():
    with servers() as server_for:
        yield server_for


@pytest.fixture(scope="module")
def of_wrong_answer(server_for):
    """The points of a wrong answer, which is given as JSON; many submissions are compared with the same one."""
    return functools.cache(
        lambda name, gap, check, answer: points(judged(server_for, name, gap, check, json.loads(answer)))
    )


def judged(server_for, name, gap, check, answer, beside=None):
    """The verdicts of a gap's check on its code, or on [given, instead] lines of the solved file. beside: as in
    conceded.toml."""
    unit, part = place(name)
    text = solved(part.file, **(beside or {}), **({gap: answer.strip("\n")} if isinstance(answer, str) else {}))
    for given, instead in () if isinstance(answer, str) else answer:
        assert given in text, given
        text = text.replace(given, instead.strip("\n"))
    check = check or gap
    found = verdicts(unit, part, text, server_for(part.file), [check, *(beside or ())], hidden.cases(), SITE)
    return [verdict for verdict in found if verdict.gap.rpartition(":")[2] == check]


def points(found):
    """The points of verdicts; in a section with a star, where there are none, the number of criteria that are met."""
    return sum((verdict.points or 0) if verdict.max_points else verdict.status == PASSED for verdict in found)


def is_noted(found):
    return any(NOTE in verdict.message for verdict in found)


@pytest.mark.thorough
@sandbox_runs.needs_strong
@pytest.mark.parametrize("submission", PARAMETERS)
def test_a_submission_gains_what_the_guide_says_and_no_more(server_for, of_wrong_answer, submission):
    where = submission["part"], submission["gap"], submission.get("check")
    found = judged(server_for, *where, submission["code"], submission.get("beside"))
    assert [of_wrong_answer(*where, json.dumps(submission["wrong"])), points(found)] == submission["points"], found
    assert is_noted(found) == submission.get("noted", False), found
    assert {verdict.status for verdict in found} == {GRADER_FAULT} or submission.get("status") != GRADER_FAULT, found


@pytest.mark.thorough
@sandbox_runs.needs_strong
def test_a_formula_that_is_fitted_to_the_recorded_calls_is_one(server_for):
    calls = recorded("scaling")["gustafson"]["calls"]
    assert len(calls) == 42
    given, right = [decoded(given) for given, _, _ in calls], [value for _, value, _ in calls]
    terms = [[1, one["serial"], one["workers"], one["serial"] * one["workers"]] for one in given]
    a, b, c, d = numpy.linalg.lstsq(numpy.array(terms), numpy.array(right))[0].tolist()
    found = judged(
        server_for,
        "08_scaling.ipynb",
        "gustafson",
        None,
        f"return {a} + {b} * serial + {c} * workers + {d} * serial * workers",
    )
    assert points(found) == 2, found


@pytest.mark.thorough
@sandbox_runs.needs_strong
@pytest.mark.parametrize("gap", ["bottleneck", "slow_rank", "collectives"])
def test_a_digest_is_searched_in_a_moment(server_for, gap):
    entry = recorded("profiling")[gap]
    words = set(
        "".join(
            letter if letter in string.ascii_letters else " "
            for letter in (ROOT / place("04_profiling.ipynb")[1].file).read_text()
        ).split()
    )
    answer = next(one for one in itertools.chain(range(1000), words) if digest(gap, one) == entry["right"])
    assert points(judged(server_for, "04_profiling.ipynb", gap, None, f"{gap} = {answer!r}")) == 1


@pytest.mark.thorough
@sandbox_runs.needs_strong
def test_the_inputs_of_hidden_cases_are_printed(server_for):
    unit, part = place("pytorch/train_cifar_multi_gpu.py")
    last = hidden.cases()[unit, "pytorch", "throughput"][-1]  # the output that the feedback shows is of the last case
    code = (
        "print('the case', dist.get_world_size(), args.epoch)\nimages = len(train_set) * args.epoch\n"
        "throughput = images / seconds"
    )
    found = judged(server_for, part.file.removeprefix("exercises/"), "throughput", None, code)
    assert points(found) == 2
    assert "the case {ranks} {epochs}\n".format(**last) in found[0].output


def test_the_guide_has_the_words_of_each_submission():
    assert len({submission["name"] for submission in SUBMISSIONS}) == len(SUBMISSIONS)
    text = " ".join(SECTION.split())
    assert not [words for words in SAYS if words not in text]


def test_each_item_of_the_guide_has_a_submission():
    listed = [" ".join(item.split()) for item in SECTION.partition("\n\n`tests/grader")[0].split("\n- ")]
    assert len(listed) > 10
    assert not [item for item in listed if not any(words in item for words in SAYS)]
