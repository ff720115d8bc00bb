"""What a student wrote into a notebook's gaps is found, whatever happened to the cells around it."""

import json
import time

import pytest

from grader import gaps
from grader.notebook_cells import LOST, NotebookError, lost, text, without_magics, without_outputs

GIVEN = gaps.exercise(
    '''# %% [markdown]
# # Title

# %%
import numpy as np
# !ls

# %%
def speed_up(one, several):
    """How many times as fast."""
    ### BEGIN SOLUTION speed_up: the hint
    return several / one
    ### END SOLUTION

# %% [markdown]
# Text.

# %%
# What do you expect?
### BEGIN SOLUTION predict: a number as `prediction`
prediction = 1.5
### END SOLUTION
print(prediction)
''',
    ".py",
)
SPEED_UP = 'def speed_up(one, several):\n    """How many times as fast."""\n    return 2'
PREDICT = "# What do you expect?\nprediction = 2\nprint(prediction)"
UNFILLED = (
    '# What do you expect?\n# PUT YOUR CODE: a number as `prediction`\nraise NotImplementedError("PUT YOUR CODE:'
    ' predict")\nprint(prediction)'
)


def notebook(*sources):
    return json.dumps(
        {"nbformat": 4, "cells": [{"cell_type": "code", "source": source} for source in sources]}
    ).encode()


def cell(source, kind="code", names="", **more):
    return {"cell_type": kind, "source": source, "metadata": {"nbgrader": {"grade_id": names}}, **more}


def saved(*cells):
    return json.dumps({"nbformat": 4, "cells": list(cells)}).encode()


def found(data, executed=()):
    """The code in each gap; None where the gap is not found."""
    whole = text(data, GIVEN, executed)
    return [
        None if f"{LOST} {name}\n" in whole else gaps.find(GIVEN, name, whole).code for name in ("speed_up", "predict")
    ]


FILLED = ["return 2", "prediction = 2"]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["import numpy as np\n!ls", SPEED_UP, PREDICT], FILLED),
        ([PREDICT, "x = 1", SPEED_UP], FILLED),
        ([SPEED_UP, "def broken(:", "!ls\n%matplotlib inline\nnumpy?", PREDICT], FILLED),
        ([SPEED_UP.replace("2", "1"), SPEED_UP, PREDICT], FILLED),
        ([SPEED_UP, PREDICT, UNFILLED], FILLED),
        ([SPEED_UP.replace("\n", "\r\n"), PREDICT.replace("\n", "\r\n")], FILLED),
        ([SPEED_UP.replace("    ", "\t"), PREDICT], FILLED),
        ([SPEED_UP.replace('    """How many times as fast."""\n', ""), "prediction = 2\nprint(prediction)"], FILLED),
        ([SPEED_UP.replace("return 2", "return (")], ["return (", None]),
        ([SPEED_UP], ["return 2", None]),
        ([UNFILLED], [None, ""]),
        ([], [None, None]),
    ],
    ids=(
        "as given; moved; broken cells; copied, the last counts; an untouched copy; windows; tabs; "
        "given lines deleted; syntax error; deleted; untouched; all deleted"
    ).split("; "),
)
def test_gaps_are_found_in_what_was_saved(cells, expected):
    assert found(notebook(*cells)) == expected


@pytest.mark.parametrize(
    "code",
    [
        "return (several\n    != one)",
        "rest = 5\nreturn (several\n    %rest)",
        "return several \\\n    %one",
        "text = '''\n!ls\n%magic\n'''\nreturn text",
        'name = "a(\\"[b"  # (\nreturn 2',
    ],
    ids=["not equal", "remainder", "joined by a backslash", "in a text", "brackets in a text and in a comment"],
)
def test_a_line_is_ipythons_own_only_where_a_statement_begins(code):
    source = SPEED_UP.replace("return 2", code.replace("\n", "\n    "))
    data = notebook(f"%matplotlib inline\n{source}\n!ls 'it's (\nnumpy?", PREDICT)
    speed_up, predict = found(data)
    assert [line.strip() for line in code.split("\n")] == [line.strip() for line in speed_up.split("\n")][
        : code.count("\n") + 1
    ]
    assert predict == "prediction = 2"
    compile(text(data, GIVEN), "notebook", "exec")


@pytest.mark.parametrize("line", ["%time prediction = 2", "%time  prediction = (\n2)"])
def test_a_statement_that_is_timed_is_an_answer(line):
    source = PREDICT.replace("prediction = 2", line)
    assert found(notebook(SPEED_UP, source)) == ["return 2", line.replace("%time", "").strip()]
    assert without_magics("%timeit x = 1\n%time -n 3 x = 1\n") == "# %timeit x = 1\n# %time -n 3 x = 1\n"


@pytest.mark.parametrize(
    "begin", ['"' * 100_000, "'''", "(" * 100_000, "\\" * 100_000, '\\"' * 50_000, "''''" * 30_000, "!\n" * 60_000]
)
def test_what_never_ends_is_read_in_no_time(begin):
    before = time.process_time()
    assert len(without_magics(begin)) >= len(begin)
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    "cells",
    [
        [SPEED_UP + "\n\nprint(speed_up(1, 2))", PREDICT],
        [SPEED_UP + "\n\n\nassert speed_up(1, 2) == 2  # right\n# tried", PREDICT],
        ["def helper():\n    return 1\n\n\n" + SPEED_UP + "\n\ndef late():\n    return 3", PREDICT],
        [f"{SPEED_UP}\n\n{PREDICT}"],
        [f"{PREDICT}\n{SPEED_UP}"],
        [SPEED_UP.replace("How many times as fast.", "Mine,\n    of two lines."), PREDICT],
        [SPEED_UP.replace("one, several):", "one: float,\n    several: float = 1,\n) -> float:"), PREDICT],
        ["def speed_up(one, several): return 2", PREDICT],
        ["def speed_up(first: int, then):\n    return then / first", PREDICT],
        ["def speed_up(several, one):\n    return one / several", PREDICT],
        ["# %% mine\n" + SPEED_UP, PREDICT],
        [
            SPEED_UP.replace('    """How', '# my note\n    """How').replace("    return", "# another\n    return"),
            PREDICT,
        ],
    ],
    ids=(
        "a call below; an assertion and a comment below; helpers; merged; merged in another order; "
        "another docstring; annotated; on one line; other parameters; parameters exchanged; percent cell; comments at the margin"
    ).split("; "),
)
def test_what_stands_around_an_answer_does_not_spoil_it(cells):
    speed_up, predict = found(notebook(*cells))
    names = {}
    exec("def speed_up(one, several):\n    " + speed_up.replace("\n", "\n    "), names)
    exec(predict, names)
    assert (names["speed_up"](1, 2), names["prediction"]) == (2, 2)


def test_a_cell_split_in_two_and_one_without_any_given_line_are_found_by_their_names():
    two = saved(cell("# What do", names="predict"), cell("prediction = 2", names="predict"))
    assert found(two)[1] == "prediction = 2"
    assert found(saved(cell("prediction = 1 + 1\nprint('so be it')", names="predict")))[1].startswith("prediction = 1")


def test_a_gap_that_was_deleted_from_its_function_is_not_found_below_it():
    assert found(notebook(SPEED_UP.replace("    return 2", "") + "\n\nprint(3)"))[0] == ""


@pytest.mark.parametrize(("kind", "word"), [("markdown", "Markdown"), ("raw", "Raw")])
def test_a_cell_that_was_turned_into_text_is_named(kind, word):
    whole = text(saved(cell(SPEED_UP, kind), cell(PREDICT)), GIVEN)
    assert f"is a {word} cell" in lost(whole, "n.ipynb", "speed_up", GIVEN)
    assert lost(whole, "n.ipynb", "predict", GIVEN) is None
    assert "no cell with `def speed_up`" in lost(text(saved(cell(PREDICT)), GIVEN), "n.ipynb", "speed_up", GIVEN)


def test_a_notebook_without_its_outputs_is_read_as_before():
    data = saved(cell("prediction = 2", names="predict", outputs=["x"]), cell(SPEED_UP, "markdown"))
    assert text(without_outputs(data), GIVEN) == text(data, GIVEN) and b"outputs" not in without_outputs(data)


def test_what_was_run_counts_more_than_what_was_saved_and_the_last_run_most():
    assert found(notebook(SPEED_UP, PREDICT), [PREDICT.replace("2", "7"), "1 + 1", PREDICT.replace("2", "3")]) == [
        "return 2",
        "prediction = 3",
    ]
    assert found(None, [PREDICT]) == [None, "prediction = 2"]
    assert found(notebook(SPEED_UP, UNFILLED), [PREDICT, UNFILLED]) == FILLED


def test_what_the_students_own_cells_give_is_kept_in_its_place_and_nothing_else_of_them():
    own = "import torch\nshares = [1]\nshares.append(2)\nprint(shares)\ndef mine():\n    return 3"
    whole = text(notebook(SPEED_UP, own, "import numpy as np\n!ls", PREDICT, "late = 1"), GIVEN)
    kept = "\n".join(own.splitlines()[:3] + own.splitlines()[4:])
    assert whole.index("return 2") < whole.index(kept) < whole.index("prediction = 2") < whole.index("late = 1")
    assert "print(shares)" not in whole and whole.count("import numpy") == 1


def test_the_last_run_of_an_own_cell_counts():
    whole = text(notebook("size = 1", SPEED_UP), GIVEN, ["size = 2", "size = 1"])
    assert whole.count("size = 1") == 1 and whole.index("size = 2") < whole.index("size = 1") < whole.index("return 2")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b'{"cells": [', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a notebook"),
        (b'{"nbformat": 4}', "not a notebook"),
        (b'{"nbformat": 4, "cells": [{"cell_type": "code"}]}', "not a notebook"),
        (b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": [1]}]}', "not a notebook"),
        (b'{"nbformat": 3, "worksheets": []}', "has format 3, not 4"),
    ],
)
def test_what_is_no_notebook_is_named_in_a_sentence(data, words):
    with pytest.raises(NotebookError, match=words) as refused:
        text(data, GIVEN)
    assert "\n" not in str(refused.value)
