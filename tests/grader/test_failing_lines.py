"""A mistake that ends a gap: the student reads the values in the line that failed, and the idea that is wrong."""

from dataclasses import replace

import numpy
import pytest

from grader import judging
from grader.checks.notebook_functions import Call, _in_general
from grader.course import UNITS
from grader.exercises import solved
from grader.probes.gap_code import what_is
from grader.probes.notebooks import encoded
from grader.sandbox import failing_line
from grader.units.communication import data_parallel
from grader.verdict import PASSED


@pytest.fixture
def verdicts(server):
    """A function: the Verdicts on a gap of a file, with the given code."""

    def verdicts(unit, file, gap, code):
        part = next(part for part in UNITS[unit] if part.file.endswith(file))
        part = replace(part, checks=tuple(check for check in part.checks if check.gap == gap))
        return list(judging.judge(unit, (part,), lambda name: solved(part.file, **{gap: code}), server))

    return verdicts


def error_of(code, **names):
    try:
        exec(compile(code, "student:gap.py", "exec"), names)
    except Exception as error:
        return error


@pytest.mark.parametrize(
    ("code", "names", "words"),
    [
        ("scale.reshape(other)", {"scale": 0.5, "other": 1}, "`scale` is the float 0.5"),
        ("own['random']", {"own": {"model": 1, "batches": 2}}, "`own` is a dict with the keys 'model', 'batches'"),
        ("a + b", {"a": [1], "b": None}, "`a` is a list, `b` is None"),
        ("a @ b", {"a": numpy.ones((2, 3)), "b": numpy.ones(2)}, "`a` is an ndarray of the shape (2, 3)"),
        (
            "x = dist.all_reduce(a) / 2",
            {"a": 1, "dist": type("", (), {"all_reduce": print})},
            "`all_reduce` returns None",
        ),
        ("1 / a", {"a": 0}, ""),
    ],
)
def test_an_error_shows_the_values_that_may_be_its_cause(code, names, words):
    found = failing_line.values(error_of(code, **names))
    assert words in found and bool(words) == bool(found)


def test_an_error_is_shown_without_the_stack_and_the_arguments_that_a_library_adds():
    text = "RuntimeError: Got the following error when running the callback: TypeError: no\n\nAt:\n  here"
    assert failing_line.without_dump(text) == "TypeError: no"
    assert (
        failing_line.without_dump("TypeError: f(): bad. The following argument types are supported:\n1")
        == "TypeError: f(): bad"
    )


def test_a_name_that_is_none_comes_with_the_call_that_returned_it():
    assert what_is({"code": "of_x = dist.all_reduce(x)"}, "of_x", None) == "None, the result of `dist.all_reduce`"
    assert what_is({"code": "of_x = None"}, "of_x", None) == "None"
    assert what_is({"code": "of_x = ("}, "of_x", 3) == "an int"


@pytest.mark.parametrize(
    ("given", "right", "found", "words"),
    [
        ([{"n": 2, "w": 3}, {"n": 5, "w": 4}], [7, 8], [14, 40], "every result is `n` times the right one"),
        ([{"n": 2}, {"n": 5}], [8, 20], [6, 15], "0.75 times the right one: every result is too small by `n`"),
        ([{"n": 2, "w": 3}, {"n": 5, "w": 4}], [6, 10], [3, 2], "every result is the right one divided by `n`"),
        ([{"n": 2, "w": 3}, {"n": 5, "w": 4}], [7, 8], [1, 0], "every result is too small by 2 * `w`"),
        ([{"n": 2, "w": 3}, {"n": 5, "w": 4}], [7, 8], [13, 28], "every result is too large by `n` * `w`"),
        (
            [{"m": "a"}, {"m": "b"}, {"m": "b"}],
            [5, 3, 4],
            [5, 6, 8],
            "with m = 'b', every result is 2 times the right one",
        ),
        (
            [{"n": 2}, {"n": 5}],
            [[1, 2], [1, 3]],
            [[1, 6], [1, 9]],
            "in entry 1, counted from 0, every result is 3 times",
        ),
        ([{"n": 2, "w": 3}, {"n": 5, "w": 4}], [7, 8], [8, 8.5], ""),
    ],
)
def test_wrong_results_are_compared_with_the_right_ones_by_arguments_and_parts(given, right, found, words):
    made = [Call(encoded(of_call), value, {}) for of_call, value in zip(given, right)]
    said = _in_general(made, [numpy.array(value) for value in found], [])
    assert words in said and bool(words) == bool(said)


@pytest.mark.parametrize(
    ("file", "gap", "code", "words"),
    [
        (
            "communication all_reduce.py",
            "all_gather",
            "handle = expect(chunks[rank - step], left)\nsend(chunks[(rank - step + 1) % size], right).wait()",
            "never waits for `expect`",
        ),
        (
            "model_parallel fully_sharded.py",
            "wrap",
            "fully_shard(model, mesh=mesh)\nfor block in model.blocks:\n    fully_shard(block, mesh=mesh)",
            "`model` is wrapped before its blocks",
        ),
        (
            "model_parallel products.py",
            "split_forward",
            "outputs = Leave(self.part(Enter(tokens, self.group)), self.group) + self.bias",
            "call Enter.apply(...)",
        ),
    ],
)
def test_a_call_in_the_wrong_way_is_named(verdicts, file, gap, code, words):
    [verdict, *_] = verdicts(*file.split(), gap, code)
    assert words in verdict.message


@pytest.mark.parametrize("where", ["before", "inside"])
def test_gradients_may_be_cleared_on_the_model_before_but_not_between_micro_batches(verdicts, where):
    step = "loss = F.cross_entropy(model(some), right) * len(some) / len(images)\n    loss.backward()\n    total += loss.detach()"
    lines = ["model.zero_grad()", "for some, right in micro_batches:", f"    {step}"]
    if where == "inside":
        lines = [lines[1], "    model.zero_grad()", lines[2]]
    [verdict, *_] = verdicts("model_parallel", "save_memory.py", "accumulate", "\n".join(lines))
    assert verdict.status == PASSED if where == "before" else "only the last micro-batch counts" in verdict.message


@pytest.mark.parametrize(("code", "noted"), [("12 * width ^ 2", True), ("12 * width", False)])
def test_a_wrong_power_in_a_notebook_is_named(verdicts, code, noted):
    [verdict] = verdicts("model_parallel", "06_model_parallel.ipynb", "block_parameters", f"return {code}")
    assert verdict.status != PASSED and ("write `**`" in verdict.message) == noted


def test_an_empty_bucket_is_refused_because_training_would_wait_for_it():
    case = {"sizes": [3, 9], "most": 24}
    assert "bucket 0 is empty" in data_parallel.full([{"buckets": [[], [1], [0]]}], case, None)
    assert data_parallel.full([{"buckets": [[1], [0]]}], case, None) is None
