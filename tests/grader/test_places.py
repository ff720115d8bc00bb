"""A gap of a script runs in its place: with the names that are there, at its line, and without the other gaps'
mistakes."""

import sys
import traceback

import pytest

from grader import gaps
from grader.probes.script import Script, StopScript
from grader.sandbox.rank import StudentMistake

SOLUTION = '''"""A script."""

import math


def train(args, numbers):
    ### BEGIN SOLUTION scale: `scale`: a number
    scale = 2
    ### END SOLUTION
    print("not the student's output")
    for step in range(args):
        ### BEGIN SOLUTION total: `total`: the sum of `numbers`, scaled
        total = sum(numbers) * scale
        ### END SOLUTION
        checked = total.as_integer_ratio()
    ### BEGIN SOLUTION mean: `mean`: of `numbers`
    mean = sum(numbers) / len(numbers)
    ### END SOLUTION
    return mean
'''
EXERCISE = gaps.exercise(SOLUTION, ".py")
STAND_INS = {
    "scale": ("scale", lambda: 10),
    "total": ("total", lambda numbers, scale: 0),
    "mean": ("mean", lambda: None),
}


def script(gap, code, above="", **others):
    """The Script of a student who filled `gap` with `code`, and other gaps."""
    text = above + gaps.fill(EXERCISE, {gap: code, **others})
    fragments = {one.name: gaps.find(EXERCISE, one.name, text) for one in EXERCISE.gaps}
    source = {"file": "script.py", "text": text, "code": fragments[gap].code, "line": fragments[gap].line, "gap": gap}
    given = {name: [one.code, one.line] for name, one in fragments.items() if name != gap and one.code}
    hint = next(one.hint for one in EXERCISE.gaps if one.name == gap)
    return Script(
        source
        | {"hint": hint, "given": gaps.emptied(EXERCISE), "lines": gaps.lines_of(EXERCISE, text), "others": given},
        STAND_INS,
    )


def seen(gap, code, name=None, steps=2, **others):
    """What `name` is each time the gap has run."""
    found = []
    script(gap, code, **others).run(lambda names: found.append(names[name or gap]), steps, [3, 4, 5])
    return found


def test_a_gap_has_the_names_before_it_and_runs_as_often_as_its_loop():
    assert seen("total", "total = args + step + scale + math.prod(numbers)") == [72, 73]


def test_another_gap_is_replaced_so_that_its_mistakes_cost_nothing():
    assert seen("total", "total = sum(numbers) * scale", scale="raise ValueError('wrong')") == [120, 120]


def test_a_name_that_only_another_gap_of_the_students_gives_is_there():
    assert seen("mean", "mean = sum(numbers) / amount", scale="amount = len(numbers)\nscale = amount") == [4]


def test_the_script_ends_where_the_probe_has_seen_enough():
    found = []

    def see(names):
        found.append(names.step)
        raise StopScript

    script("total", "total = 1").run(see, 5, [1])
    assert found == [0]


def test_what_the_script_prints_is_left_out_and_what_the_gap_prints_is_kept(capfd):
    seen("total", "total = 1\nprint('the student')", steps=1)
    sys.__stdout__.flush()
    assert capfd.readouterr().out == "the student\n"


def test_an_error_has_the_line_of_the_students_file_also_between_the_gaps():
    above = "# a comment of the student's\n\n"
    with pytest.raises(AttributeError) as caught:
        script("total", "total = None", above).run(lambda names: None, 1, [1])
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    text = (above + gaps.fill(EXERCISE, {"total": "total = None"})).splitlines()
    assert frame.filename == "student:script.py" and "as_integer_ratio" in text[frame.lineno - 1]


@pytest.mark.parametrize("code", ["total = 1\nreturn total", "break", "continue"])
def test_leaving_the_place_is_reported(code):
    with pytest.raises(StudentMistake, match="leaves the gap before its last line"):
        seen("total", code)


def test_a_gap_that_only_a_return_follows_may_return():
    assert script("mean", "return 7").run(lambda names: None, 1, [1]) == 7


@pytest.mark.parametrize("code", ["args = scale = 3", "scale, args = 1, [args]"])
def test_a_value_that_the_script_still_needs_must_stay(code):
    with pytest.raises(StudentMistake, match="your code changes the value of `args`"):
        seen("scale", code)


@pytest.mark.parametrize(
    "code", ["numbers = sorted(numbers)\nscale = 1", "args = args + 0\nscale = 1", "step = scale = 1"]
)
def test_what_is_like_the_value_before_and_what_nothing_needs_may_change(code):
    assert seen("scale", code) == [1]


def test_the_line_that_raises_must_go():
    with pytest.raises(StudentMistake, match="is still there: remove it"):
        seen("mean", 'mean = 1\nraise NotImplementedError("PUT YOUR CODE: mean")')


def test_a_missing_name_is_named():
    with pytest.raises(StudentMistake, match="`total` does not exist after your code"):
        script("total", "sum_of_all = 1").run(lambda names: names.total, 1, [1])


def test_the_cause_of_an_error_is_named_where_its_own_words_do_not():
    with pytest.raises(StudentMistake, match="`numbers` is None on this rank: only rank 0 has the data"):
        script("total", "total = len(numbers)").run(lambda names: None, 1, None)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (
            "from torch.utils.data import DataLoader\ntotal = DataLoader([1], sampler=[0], shuffle=True)",
            "leave out `shuffle`",
        ),
        ("from torch.utils.data import DataLoader\ntotal = DataLoader([1]).set_epoch(1)", "belongs to the sampler"),
    ],
)
def test_what_many_do_has_a_cause_in_place_of_a_librarys_own_words(code, cause):
    with pytest.raises(StudentMistake, match=cause):
        script("total", code).run(lambda names: None, 1, [1])


def test_a_name_that_the_gap_makes_local_is_named_where_lines_above_use_it():
    with pytest.raises(
        StudentMistake,
        match="this gap assigns or imports `range`, so `range` has no value in the lines of `train` above",
    ):
        script("mean", "mean = 1\nrange = None").run(lambda names: None, 1, [1])
