"""The gaps of notebooks are judged alike by new inputs, as instructors grade, and by recorded ones, as students
check."""

import json

import numpy
import pytest

from answers.known import of_unit
from grader.checks import notebook_functions
from grader.course import UNITS
from grader.exercises import solved
from grader.instructors.grade import work
from grader.instructors.notebook_answers import Choice, Function, answers, recorded
from grader.judging import judge
from grader.probes import FOR_NOTEBOOKS
from grader.probes.notebooks import decoded
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
    folder = tmp_path_factory.mktemp("given_out")
    for unit in UNITS:
        (folder / unit).mkdir()
        (folder / unit / "recorded.json").write_text(recorded(unit))
    return folder


@pytest.fixture(params=["new", "recorded"])
def inputs(request, monkeypatch, given_out):
    """Where a check's inputs come from: the second way is that of students."""
    if request.param == "recorded":
        monkeypatch.setattr(notebook_functions, "FOLDER", given_out)


def said(unit, gap, seed, function, unused=()):
    """What a check says of a function's values, or of those that it makes of the calls."""
    check = CHECKS[unit, gap]
    case = {"unit": unit, "seed": seed} | check.cases[0]
    given = [decoded(call) for call in check.given(case)["calls"]]
    values = [function(**one) for one in given]
    seen = {
        "values": [numpy.asarray(value, "float64") for value in values],
        "whole": not any(isinstance(value, float) for value in values),
        "unused": list(unused),
    }
    return check.criteria[0].judge([seen], case, None)


@pytest.mark.parametrize(("unit", "gap"), gaps(Function))
def test_right_answers_and_each_typical_mistake_are_recognised(inputs, unit, gap):
    answer = ANSWERS[unit][gap]
    for seed in SEEDS:
        assert said(unit, gap, seed, answer.right) is None
        for sentence, mistake in answer.mistakes.items():
            assert said(unit, gap, seed, mistake) == sentence


def hook_bytes(method, parameters):
    return ANSWERS["communication"]["hook_bytes"].right(method, parameters)


@pytest.mark.parametrize(
    ("gap", "formula", "unused", "words"),
    [
        (
            "hook_bytes",
            lambda method, parameters: 1000 * hook_bytes(method, parameters),
            [],
            "every result is 1000 times",
        ),
        (
            "hook_bytes",
            lambda method, parameters: 1 / hook_bytes(method, parameters),
            [],
            "the inverse of the right one",
        ),
        ("hook_bytes", lambda method, parameters: 7 * parameters**2, ["method"], "your code does not use `method`"),
        (
            "hook_bytes",
            lambda method, parameters: hook_bytes(method, parameters) * (1 + (method == "float16")),
            [],
            "with method = 'float16', every result is 2 times the right one; all other results are right",
        ),
        (
            "hook_bytes",
            lambda method, parameters: hook_bytes(method, parameters) + (method == "float16") * parameters**1.5,
            [],
            "the results are right for all calls without method = 'float16'",
        ),
        ("hook_bytes", lambda method, parameters: 5 + 7 * parameters**2, [], ""),
    ],
    ids=[
        "k times",
        "inverted",
        "an argument without effect",
        "one word",
        "one word, in no simple way",
        "nothing general",
    ],
)
def test_what_is_wrong_with_all_values_is_said_beside_one_of_them(inputs, gap, formula, unused, words):
    for seed in SEEDS:
        sentence = said("communication", gap, seed, formula, unused)
        assert "it must return" in sentence and words in sentence
        assert words or sentence.count(": ") == 0, "nothing is claimed that was not seen"


def two_mistakes_of_bytes(algorithm, n, ranks):
    right = ANSWERS["communication"]["bytes_sent"].right(algorithm, n, ranks)
    return {"naive": right / 3, "ring": right / 2, "doubling": n}[algorithm]


def two_mistakes_of_a_line(sizes, seconds):
    alpha, beta = ANSWERS["communication"]["alpha_beta"].right(sizes, seconds)
    return [alpha / 1e6, 3 * beta]


@pytest.mark.parametrize(
    ("gap", "formula", "words"),
    [
        ("bytes_sent", two_mistakes_of_bytes, "your ring has only N - 1 messages"),
        ("alpha_beta", two_mistakes_of_a_line, "your alpha is in seconds"),
    ],
    ids=["calls with one word", "one place of a list"],
)
def test_a_mistake_in_a_part_of_the_results_is_named_also_if_another_part_is_wrong(inputs, gap, formula, words):
    for seed in SEEDS:
        assert words in said("communication", gap, seed, formula)


@pytest.mark.parametrize(("unit", "gap", "formula"), NEVER_RIGHT, ids=[gap for _, gap, _ in NEVER_RIGHT])
def test_a_formula_that_is_right_now_and_then_is_never_taken_for_right(inputs, unit, gap, formula):
    assert all(said(unit, gap, seed, formula) for seed in SEEDS)


@pytest.mark.parametrize(("unit", "gap"), gaps(Function))
def test_a_number_of_float32_is_right_and_one_in_100000_off_is_not(inputs, unit, gap):
    right = ANSWERS[unit][gap].right
    assert said(unit, gap, 0, lambda **given: numpy.asarray(right(**given), "float32")) is None
    assert said(unit, gap, 0, lambda **given: numpy.asarray(right(**given)) * (1 + 1e-5))


@pytest.mark.parametrize("count", [0, 1, 5, 7])
def test_a_value_for_each_call_is_asked_for(inputs, count):
    check = CHECKS["start", "workers"]
    case = {"unit": "start", "seed": 1} | check.cases[0]
    values = [numpy.array(call.right) for call in notebook_functions.calls(case)] * 2
    assert (
        check.criteria[0].judge([{"values": values[:count], "whole": True, "unused": []}], case, None)
        == f"your function was called 6 times, but {count} values came back"
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


@pytest.mark.thorough
def test_students_read_what_instructors_grade(inputs):
    """One known mistake in a box, with either kind of inputs."""
    file, server = "notebooks/02_multi_gpu.ipynb", Server(FOR_NOTEBOOKS)
    part = next(part for part in UNITS["multi_gpu"] if part.file == file)
    mistake = next(mistake for mistake in of_unit("multi_gpu", "")[0] if mistake.gap == "learning_rate")
    try:
        for code, status in ((None, PASSED), (mistake.code, FAILED)):
            text = solved(file, **({"learning_rate": code} if code else {}))
            found = {one.gap: one for one in judge("multi_gpu", (part,), lambda file: text, server)}
            assert found["learning_rate"].status == status
            assert {one.status for gap, one in found.items() if gap != "learning_rate"} == {PASSED}
    finally:
        server.stop()


def test_records_follow_from_the_answers_and_stay_small():
    files = {unit: recorded(unit) for unit in UNITS}
    assert files == {unit: recorded(unit) for unit in UNITS}
    for text in files.values():
        for entry in json.loads(text).values():
            assert "right" in entry or len(entry["calls"]) >= 40
    assert sum(map(len, files.values())) < 55_000 * len(files), "students receive them"


def test_a_sandbox_shows_units_probes_and_no_answers():
    shown = work.readable()
    assert COURSE / "grader/units/profiling/probes" in shown
    for path in (COURSE / "grader").rglob("*"):
        if "instructors" in path.parts or path.name == "recorded.json":
            assert not any(path.is_relative_to(one) for one in shown), path


FEW_CHOICES = {"smallest_batch", "most_workers", "who_waits"}
ALL_FUNCTIONS = [one.values for one in gaps(Function)]


@pytest.mark.parametrize(
    ("unit", "gap"),
    [pytest.param(*one, marks=[pytest.mark.thorough][one[1] in FEW_CHOICES :]) for one in ALL_FUNCTIONS],
)
def test_the_right_results_differ_from_seed_to_seed(unit, gap):
    """Else a counter and a list of numbers get full points, also in the next run."""
    found = {tuple(repr(call.right) for call in ANSWERS[unit][gap].calls(seed)) for seed in range(500)}
    assert len(found) >= 50
