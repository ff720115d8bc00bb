"""What a student wrote into a gap is found by the lines that were given, whatever else became of the file."""

import pytest

from grader import exercises, gaps
from grader.exercises import solved

FILE = "exercises/02_multi_gpu/pytorch/train_cifar_multi_gpu.py"
FILES = [
    f"exercises/{topic}/{track}/train_cifar_{topic[3:]}.py"
    for topic in ("01_single_gpu", "02_multi_gpu", "03_multi_node")
    for track in ("pytorch", "chainer")
] + ["exercises/02_multi_gpu/run_multi_gpu_training.sh", "exercises/03_multi_node/run_multi_node_training.sh"]
FILES += [
    f"exercises/04_profiling/pytorch/{name}.py"
    for name in ("train_steps", "slow_loading", "uneven_work", "waiting_every_step")
]

SOLUTION = """\
first = 1
### BEGIN SOLUTION one: make `a`
a = first
### END SOLUTION
second = 2
third = 3
def function():
    fourth = 4
    ### BEGIN SOLUTION two: make `b`
    b = fourth
    if b:
        b += 1
    ### END SOLUTION
    fifth = 5
    return fifth
sixth = 6
"""
SMALL = gaps.exercise(SOLUTION, ".py")


def filled(**code):
    return gaps.fill(SMALL, gaps.answers(SOLUTION) | code)


def found(text, gap="two", exercise=SMALL):
    fragment = gaps.find(exercise, gap, text)
    return fragment and fragment.code


@pytest.mark.parametrize("file", FILES)
def test_every_gap_of_every_exercise_is_found_where_it_is(file):
    text, answers = solved(file), gaps.answers(exercises.solution(file).read_text())
    for gap in exercises.given_out(file).gaps:
        fragment = gaps.find(exercises.given_out(file), gap.name, text)
        assert fragment.code == answers[gap.name]
        assert text.splitlines()[fragment.line - 1].strip() == answers[gap.name].splitlines()[0]


@pytest.mark.parametrize("file", FILES)
def test_gaps_as_they_were_given_out_are_empty(file):
    given = exercises.given_out(file)
    assert {gaps.find(given, gap.name, given.text).code for gap in given.gaps} == {""}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace("    ", "\t"),
        lambda text: text.replace("\n", "   \n"),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.rstrip("\n"),
        lambda text: text + "\x00\udcff",
    ],
    ids=(
        "byte order mark; Windows line ends; old Mac line ends; tabs; blanks at line ends; empty lines; "
        "no last line end; odd bytes"
    ).split("; "),
)
def test_how_an_editor_saves_a_file_makes_no_difference(change):
    text = gaps.normal(change(solved(FILE)).encode(errors="surrogateescape"))
    assert text.startswith('"""Train a network')
    for name, answer in gaps.answers(exercises.solution(FILE).read_text()).items():
        code = found(text, name, exercises.given_out(FILE))
        assert [line.rstrip() for line in code.splitlines() if line.strip()] == [
            line for line in answer.splitlines() if line.strip()
        ]


def test_an_answer_may_be_written_below_the_hint_or_in_its_place():
    below = SMALL.text.replace('    raise NotImplementedError("PUT YOUR CODE: two")', "    b = 7")
    assert found(below) == "# PUT YOUR CODE: make `b`\nb = 7"
    assert found(filled(two="b = 7")) == "b = 7"


def test_an_answer_beside_the_line_that_raises_is_an_answer():
    beside = SMALL.text.replace(
        '    raise NotImplementedError("PUT YOUR CODE: two")',
        '    raise NotImplementedError("PUT YOUR CODE: two")\n    b = 7',
    )
    assert found(beside).endswith('raise NotImplementedError("PUT YOUR CODE: two")\nb = 7')


@pytest.mark.parametrize("nothing", ["", "pass", "# todo", '"""later"""', "...", "# todo\npass  # really"])
def test_comments_and_pass_are_no_answer(nothing):
    assert found(filled(two=nothing)) == ""


@pytest.mark.parametrize(
    "something",
    ["b =", "b = (", "raise ValueError", "return", "x" * 5 + "\n  y", "b = '\x00'", "-" * 100_000 + "1"],
    ids=range(7),
)
def test_what_is_no_python_yet_is_an_answer(something):
    assert found(filled(two=something)) == something


def test_an_answer_may_hold_lines_that_are_given_elsewhere():
    answer = "second = 2\nthird = 3\nb = 1\nsixth = 6"
    assert found(filled(two=answer)) == answer
    assert found(filled(two=answer), "one") == "a = first"


def test_code_added_elsewhere_does_not_move_a_gap():
    text = (
        "import os\n\ndef helper():\n    return 1\n\n"
        + filled().replace("third = 3\n", "third = 3\nextra = 1\nextra = 2\n")
        + "print(1)\n"
    )
    assert found(text, "one") == "a = first"
    assert found(text) == "b = fourth\nif b:\n    b += 1"


@pytest.mark.parametrize("line", ["first = 1", "second = 2", "    fourth = 4", "    fifth = 5"])
def test_one_given_line_beside_a_gap_may_be_deleted(line):
    text = filled().replace(f"{line}\n", "")
    assert "a = first" in found(text, "one")
    assert "b = fourth" in found(text)


@pytest.mark.parametrize("line", ["first = 1", "second = 2", "    fourth = 4", "    fifth = 5"])
def test_a_given_line_beside_a_gap_that_was_edited_counts_as_part_of_the_answer(line):
    text = filled().replace(line, f"{line} + 1")
    gap, answer = ("one", "a = first") if line in ("first = 1", "second = 2") else ("two", "b = fourth")
    assert answer in found(text, gap)
    assert f"{line.strip()} + 1" in found(text, gap)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: (
            text.replace("    fourth = 4\n", "").replace("    fifth = 5\n", "").replace("sixth = 6\n", "print(6)\n")
        ),
        lambda text: text.replace("def function():", 'def function(size: int = 3) -> int:\n    """Mine."""'),
        lambda text: text[text.index("def") :].replace("    return fifth\nsixth = 6\n", "") + "\n\nfunction()\n",
        lambda text: text.replace("first = 1", "first = ("),
    ],
    ids=["all lines around it changed", "another head", "the rest deleted, and code below", "an error elsewhere"],
)
def test_a_gap_is_found_by_its_function_whatever_became_of_the_lines_around_it(change):
    code = found(change(filled()))
    assert code.startswith(("b = fourth\nif b:\n    b += 1", "fourth = 4\nb = fourth"))
    assert "sixth" not in code and "function" not in code and "print" not in code


def test_a_given_line_that_was_changed_is_named_and_a_comment_is_not():
    assert gaps.changed_line(SMALL, "two", filled()) is None
    assert gaps.changed_line(SMALL, "two", filled().replace("fourth = 4", "fourth = 5")) == "fourth = 4"
    assert gaps.changed_line(SMALL, "two", filled().replace("second = 2", "second = 5")) is None


def test_the_gap_of_a_job_script_is_found_whatever_is_around_it():
    script = (
        "#!/bin/bash\n### BEGIN SOLUTION resources: the queue\n#PBS -q lecture\n### END SOLUTION\n#PBS -N a\n\ntrue\n"
    )
    given = gaps.exercise(script, ".sh")
    assert "#PBS -q lecture" in found("#!/bin/sh\n\n#PBS -q lecture\nsleep 1\n", "resources", given)
    assert found(given.text, "resources", given) == ""


def test_with_one_gap_lost_the_other_is_found():
    text = filled()
    text = text[text.index("third") :]
    assert found(text) == "b = fourth\nif b:\n    b += 1"
    assert found(text, "one") == ""


@pytest.mark.parametrize(
    ("code", "line"),
    [("a = 1\nb = (\n", 2), ("a = 1\n  b\n", 2), ("\x00", 1), ("(" * 10_000, 1), ("-" * 200_000 + "1", 1)],
)
def test_what_is_no_python_is_named_with_its_line(code, line):
    assert gaps.unreadable(code)[0] == line


MENDED = """\
first = 1
def function():
    ### BEGIN SOLUTION mend: do it once
    total = work()
    ### GIVEN for step in range(3):
    ### GIVEN     total = work()
    ### GIVEN     wait()  # for the others
    ### GIVEN
    ### GIVEN     wait()
    ### END SOLUTION
    return total
"""


def mended(change=lambda text: text):
    """What is found in the gap of an exercise that gives code to be fixed, after a student's change."""
    given = gaps.exercise(MENDED, ".py")
    return found(change(given.text), "mend", given)


def test_emptied_each_gap_raises_on_the_same_lines_also_one_with_working_code():
    given = gaps.exercise(MENDED, ".py")
    text = gaps.emptied(given)
    assert len(text.splitlines()) == len(given.lines) and "work()" not in text
    ((number, line),) = [(number, line) for number, line in enumerate(text.splitlines()) if "raise" in line]
    assert line == '    raise NotImplementedError("PUT YOUR CODE: mend")' and number == given.gap("mend").end - 1


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text.replace("  # for the others", ""),
        lambda text: text.replace("range(3)", "range( 3 )").replace("\n\n", "\n"),
        lambda text: text.replace("    # PUT YOUR CODE: do it once\n", "    # I think it is the waiting\n"),
        lambda text: text.replace("first = 1", "first = 2"),
    ],
    ids=["as given", "a comment less", "other layout", "another comment", "a change elsewhere"],
)
def test_code_that_was_given_to_be_mended_is_no_answer(change):
    assert mended(change) == ""


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (
            lambda text: text.replace("        wait()\n", ""),
            "# PUT YOUR CODE: do it once\nfor step in range(3):\n    total = work()\n    wait()  # for the others",
        ),
        (lambda text: text[: text.index("    # PUT")] + "    return total\n", "pass"),
        (lambda text: text.replace("range(3)", "range(3"), None),
        (lambda text: gaps.fill(gaps.exercise(MENDED, ".py"), gaps.answers(MENDED)), "total = work()"),
    ],
    ids=["a line deleted", "all deleted", "syntax error", "mended"],
)
def test_code_that_was_given_and_changed_is_an_answer(change, code):
    assert mended(change) == code if code else mended(change).endswith("wait()")


@pytest.mark.parametrize(
    ("gap", "answer"),
    [
        ("iterators", "numpy.random.seed(args.seed)\nparts = []"),
        ("iterators", "parts = []\nnumpy.random.seed(args.seed)"),
        (
            "iterators",
            "test_iterator = SerialIterator(test_set, args.batchsize, repeat=False, shuffle=False)\nparts = []",
        ),
        (
            "iterators",
            "parts = []\ntest_iterator = SerialIterator(test_set, args.batchsize, repeat=False, shuffle=False)",
        ),
        ("updater", "convert = Enlarge(args.size)\nupdater = 1"),
    ],
)
def test_an_answer_may_begin_or_end_with_the_given_lines_beside_its_gap(gap, answer):
    file = "exercises/02_multi_gpu/chainer/train_cifar_multi_gpu.py"
    assert found(solved(file, **{gap: answer}), gap, exercises.given_out(file)) == answer
