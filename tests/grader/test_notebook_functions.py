"""The gaps of notebooks are judged alike by new inputs, as instructors grade, and by recorded ones, as students
check."""

import json
import re
import shutil

import numpy
import pytest

from grader.checks import notebook_functions
from grader.course import UNITS
from grader.gaps import GapError
from grader.instructors.grade import work
from grader.instructors.known_answers import known, solved
from grader.instructors.notebook_answers import Choice, Function, answers, recorded_files
from grader.instructors.release import release
from grader.judging import judge
from grader.probes import FOR_NOTEBOOKS
from grader.probes.notebooks import decoded, encoded
from grader.sandbox import Server
from grader.verdict import FAILED, PASSED
from handson.files import COURSE

SEEDS = range(20)
NEVER_RIGHT = [  # formulas that agree with the right one in some calls
    ("start", "workers", lambda select, mpiprocs: select**2),
    ("single_gpu", "throughput", lambda batchsize, step_seconds: batchsize / numpy.median(step_seconds)),
    ("multi_gpu", "speed_up", lambda single, several: max(1, several / single)),
    ("multi_gpu", "efficiency", lambda single, several, workers: min(1, several / single / workers)),
    (
        "multi_gpu",
        "waiting",
        lambda arrivals: abs(arrivals[:, 0] - arrivals[:, 1]).mean() * (arrivals.mean(axis=0) < arrivals.mean()),
    ),
    ("multi_gpu", "updates", lambda images, batchsize, workers, epochs: round(images / (batchsize * workers)) * epochs),
    ("multi_gpu", "learning_rate", lambda update, base, workers, warmup: base * workers ** min(1, update / warmup)),
    ("multi_node", "intra_rank", lambda rank, per_node: abs(rank - per_node)),
    ("profiling", "who_waits", lambda waits: (max(waits, key=lambda rank: sum(waits[rank].values())), 0)),
]
ROUNDED = "the number is right, but rounded: return it as it is, and round where it is printed"
ANSWERS = {unit: answers(unit) for unit in UNITS}
CHECKS = {(unit, check.gap): check for unit, parts in UNITS.items() for part in parts for check in part.checks}


def gaps(kind):
    return [
        pytest.param(unit, gap, id=f"{unit}-{gap}")
        for unit in ANSWERS
        for gap, answer in ANSWERS[unit].items()
        if isinstance(answer, kind)
    ]


@pytest.fixture(scope="module")
def given_out(tmp_path_factory):
    """The units as students have them, without folders called instructors."""
    return shutil.copytree(
        notebook_functions.FOLDER,
        tmp_path_factory.mktemp("given_out") / "units",
        ignore=shutil.ignore_patterns("instructors"),
    )


@pytest.fixture(params=["new", "recorded"])
def inputs(request, monkeypatch, given_out):
    """Where a check's inputs come from: the second way is that of students."""
    if request.param == "recorded":
        monkeypatch.setattr(notebook_functions, "FOLDER", given_out)


def said(unit, gap, seed, function):
    """What a check says of a function's values, or of those that it makes of the calls."""
    check = CHECKS[unit, gap]
    case = {"unit": unit, "seed": seed} | check.cases[0]
    given = [decoded(call) for call in check.given(case)["calls"]]
    values = [function(**one) for one in given]
    seen = {
        "values": [numpy.asarray(value, "float64") for value in values],
        "whole": not any(isinstance(value, float) for value in values),
    }
    return check.criteria[0].judge([seen], case, None)


@pytest.mark.parametrize(("unit", "gap"), gaps(Function))
def test_right_answers_and_each_typical_mistake_are_recognised(inputs, unit, gap):
    answer = ANSWERS[unit][gap]
    for seed in SEEDS:
        assert said(unit, gap, seed, answer.right) is None
        for sentence, mistake in answer.mistakes.items():
            assert said(unit, gap, seed, mistake) == sentence


def readings(given):
    """Ways of reading a call's lists and dictionaries in which some of what is in them is lost: pairs (way, the
    arguments that are left). What belongs together, as two lists with a number for each rank do, is lost together."""
    for name, value in given.items():
        if isinstance(value, dict):
            kept = list(value.items())
            found = {
                "the first": kept[1:],
                "the last": kept[:-1],
                "equal values": {repr(item[1]): item for item in kept}.values(),
            }
            yield from ((f"{way} of {name}", given | {name: dict(items)}) for way, items in found.items())
        elif isinstance(value, (list, tuple)):
            together = [
                other for other in given if isinstance(given[other], (list, tuple)) and len(given[other]) == len(value)
            ]
            found = {"the first": range(1, len(value)), "the last": range(len(value) - 1)}
            found["zeros"] = [number for number, one in enumerate(value) if one != 0]
            found["equal values"] = sorted({repr(one): number for number, one in enumerate(value)}.values())
            for way, numbers in found.items():
                yield (
                    f"{way} of {name}",
                    given | {other: [given[other][number] for number in numbers] for other in together},
                )


def differs(answer, given, call):
    """Whether the answer's value for `given` is not the right one of the call; that there is none counts."""
    try:
        return not notebook_functions.same(answer.right(**given), call.right)
    except (ValueError, ZeroDivisionError, KeyError, IndexError):
        return True


@pytest.mark.parametrize(("unit", "gap"), gaps(Function))
def test_each_check_sees_what_is_lost_in_reading_a_list(unit, gap):
    answer, seen = ANSWERS[unit][gap], {}
    for seed in SEEDS:
        for call in answer.calls(seed):
            given = decoded(call.given)
            for way, left in readings(given):
                if repr(left) != repr(given):
                    seen.setdefault(way, set()).update({seed} if differs(answer, left, call) else ())
    assert {way: len(seeds) for way, seeds in seen.items()} == dict.fromkeys(seen, len(SEEDS))


@pytest.mark.parametrize(("unit", "gap", "formula"), NEVER_RIGHT, ids=[gap for _, gap, _ in NEVER_RIGHT])
def test_a_formula_that_is_right_now_and_then_is_never_taken_for_right(inputs, unit, gap, formula):
    assert all(said(unit, gap, seed, formula) for seed in SEEDS)


@pytest.mark.parametrize(("unit", "gap"), gaps(Function))
def test_other_answers_are_shown_beside_what_is_due(inputs, unit, gap):
    right = ANSWERS[unit][gap].right
    assert said(unit, gap, 0, lambda **given: 1.5 + numpy.asarray(right(**given)) * 7).startswith("for ")
    assert "; it should be " in said(unit, gap, 0, lambda **given: [right(**given)])


def test_two_numbers_that_look_alike_are_shown_with_more_digits(inputs):
    right = ANSWERS["multi_gpu"]["speed_up"].right
    found, due = (
        said("multi_gpu", "speed_up", 0, lambda **given: right(**given) * (1 + 1e-5))
        .partition("it gives ")[2]
        .split("; it should be ")
    )
    assert found != due


@pytest.mark.parametrize(("unit", "gap"), gaps(Function))
def test_a_number_of_float32_is_right_and_one_in_100000_off_is_not(inputs, unit, gap):
    right = ANSWERS[unit][gap].right
    assert said(unit, gap, 0, lambda **given: numpy.asarray(right(**given), "float32")) is None
    assert said(unit, gap, 0, lambda **given: numpy.asarray(right(**given)) * (1 + 1e-5))


@pytest.mark.parametrize(
    ("unit", "gap"), [("single_gpu", "throughput"), ("multi_gpu", "speed_up"), ("multi_node", "total_accuracy")]
)
def test_rounded_numbers_are_recognised(inputs, unit, gap):
    assert said(unit, gap, 0, lambda **given: round(ANSWERS[unit][gap].right(**given), 2)) == ROUNDED


def test_a_float_is_no_number_of_times_to_repeat_a_list(inputs):
    right = ANSWERS["multi_gpu"]["updates"].right
    assert said("multi_gpu", "updates", 0, right) is None
    assert "a list can't be repeated 12.0 times" in said(
        "multi_gpu", "updates", 0, lambda **given: float(right(**given))
    )


@pytest.mark.parametrize("count", [0, 1, 5, 7])
def test_a_value_for_each_call_is_asked_for(inputs, count):
    check = CHECKS["start", "workers"]
    case = {"unit": "start", "seed": 1} | check.cases[0]
    values = [numpy.array(call.right) for call in notebook_functions.calls(case)] * 2
    assert (
        check.criteria[0].judge([{"values": values[:count], "whole": True}], case, None)
        == f"it was called 6 times, and {count} values were returned"
    )


@pytest.mark.parametrize(("unit", "gap"), gaps(Choice))
def test_choices_are_recognised(inputs, unit, gap):
    answer, check = ANSWERS[unit][gap], CHECKS[unit, gap]

    def judged(value):
        value = value if isinstance(value, str) else float(value)
        return check.criteria[0].judge([{"value": value}], {"unit": unit, "seed": 1} | check.cases[0], None)

    assert judged(answer.right) is None
    for value, sentence in answer.mistakes.items():
        assert judged(value) == sentence
    other = " Other" if isinstance(answer.right, str) else 77
    assert judged(other) == answer.otherwise.format("other" if other == " Other" else other)
    assert not isinstance(answer.right, str) or judged(f" {answer.right.upper()} ") is None


@pytest.mark.parametrize(("unit", "gap"), gaps(Function))
def test_what_a_students_process_gets_is_inputs_alone(inputs, unit, gap):
    check = CHECKS[unit, gap]
    case = {"unit": unit, "seed": 3} | check.cases[0]
    given = check.given(case)
    assert given == {"calls": [call.given for call in notebook_functions.calls(case)]}
    assert json.loads(json.dumps(given)) == given
    assert given != check.given(case | {"seed": 4})


def test_inputs_arrive_as_they_were_made():
    made = {"by_rank": {0: {1: 0.5}}, "spans": [(0.1, 0.2)], "part": "load", "count": 3}
    assert decoded(json.loads(json.dumps(encoded(made)))) == made
    array = decoded(encoded({"begin": numpy.array([[1.5, 2], [3, 4]])}))["begin"]
    assert array.shape == (2, 2) and array.max(axis=1).tolist() == [2, 4]


@pytest.mark.slow
def test_students_read_what_instructors_grade(inputs):
    """One known mistake in a box, with either kind of inputs."""
    file, server = "notebooks/02_multi_gpu.ipynb", Server(FOR_NOTEBOOKS)
    part = next(part for part in UNITS["multi_gpu"] if part.file == file)
    mutant = next(mutant for mutant in known("multi_gpu", "")[0] if mutant["gap"] == "learning_rate")
    try:
        for code, status, words in ((None, PASSED, ""), (mutant["code"], FAILED, mutant["message"])):
            text = solved(file, **({"learning_rate": code} if code else {}))
            found = {one.gap: one for one in judge("multi_gpu", (part,), lambda file: text, server)}
            assert found["learning_rate"].status == status and words in found["learning_rate"].message
            assert {one.status for gap, one in found.items() if gap != "learning_rate"} == {PASSED}
    finally:
        server.stop()


def test_records_follow_from_the_answers_and_stay_small():
    files = recorded_files()
    assert files == recorded_files()
    for name, text in files.items():
        assert (notebook_functions.FOLDER.parents[1] / name).read_text() == text, (
            f"run `python -m grader release`: {name}"
        )
        for entry in json.loads(text).values():
            assert "right" in entry or len(entry["calls"]) >= 40
    assert sum(map(len, files.values())) < 55_000 * len(files), "students receive them"


def test_stale_records_are_named_and_made_anew(tmp_path):
    (tmp_path / "solutions").mkdir()
    (tmp_path / "grader/units").mkdir(parents=True)
    release(tmp_path / "solutions", tmp_path, say=lambda line: None)
    path = tmp_path / "grader/units/start/recorded.json"
    made = path.read_text()
    path.write_text("{}")
    with pytest.raises(GapError, match=r"start/recorded\.json is not what the answers beside it give"):
        release(tmp_path / "solutions", tmp_path, check=True, say=lambda line: None)
    release(tmp_path / "solutions", tmp_path, say=lambda line: None)
    assert path.read_text() == made


def test_a_sandbox_shows_units_probes_and_no_answers():
    shown = work.readable()
    assert COURSE / "grader/units/profiling/probes" in shown
    for path in (COURSE / "grader").rglob("*"):
        if "instructors" in path.parts or path.name == "recorded.json":
            assert not any(path.is_relative_to(one) for one in shown), path


def test_the_guide_names_the_functions_that_must_return_whole_numbers():
    guide = (COURSE / "docs/grading.md").read_text()
    named = re.findall("`([a-z_]+)`", guide.partition("may be a float such as 3.0")[2].partition(".")[0])
    assert sorted(named) == sorted(gap for (_, gap), check in CHECKS.items() if check.cases[0].get("whole"))
