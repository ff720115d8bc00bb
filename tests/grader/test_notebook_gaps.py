"""A notebook's gap is judged by itself, whatever its other cells hold."""

import pytest

from grader.box import Server
from grader.course import UNITS
from grader.judging import judge
from grader.instructors.known_answers import solved
from grader.verdict import FAILED, PASSED

FILE = "notebooks/02_multi_gpu.ipynb"


@pytest.fixture(scope="module")
def server():
    server = Server(("grader.probes.cases", "grader.probes.notebooks"))
    yield server
    server.stop()


def statuses(text, server, *gaps):
    part = next(part for part in UNITS["multi_gpu"] if part.file == FILE)
    chosen = type(part)(part.file, part.track, tuple(check for check in part.checks if check.gap in gaps))
    return [(verdict.status, verdict.message) for verdict in judge("multi_gpu", (chosen,), lambda file: text, server)]


def test_other_cells_are_not_run_and_their_mistakes_hide_nothing(server):
    text = "# %%\ndef broken(:\n\n# %%\nraise SystemExit\n\n# %%\nstuck = [0 for _ in iter(int, 1)]\n" + solved(FILE)
    assert statuses(text, server, "speed_up", "waiting", "prediction_error") == [(PASSED, "")] * 3


def test_a_gap_may_use_what_another_cell_imports_and_defines(server):
    helper = "# %%\nimport math as m\n\ndef total(batchsize, workers):\n    return batchsize * workers\n\n"
    text = helper + solved(FILE, updates="return epochs * m.ceil(images / total(batchsize, workers))")
    assert statuses(text, server, "updates") == [(PASSED, "")]


def test_the_value_of_another_cell_is_named(server):
    code = "return len(curves) * epochs"
    assert "no `curves` here" in statuses(solved(FILE, updates=code), server, "updates")[0][1]
    assert "use the function's arguments (images, batchsize, workers, epochs)" in statuses(solved(FILE, updates=code), server, "updates")[0][1]
    assert "write the answer itself" in statuses(solved(FILE, prediction_error="prediction_error = curves"), server, "prediction_error")[0][1]


def test_what_a_gap_does_not_need_is_not_loaded(server):
    text = "# %%\nimport torch\n\ndef heavy():\n    return torch\n\ndef light(number):\n    return number\n\n"
    code = "import sys\n\nreturn light(several / single) + ('torch' in vars(sys)['mod' 'ules'])"
    assert statuses(text + solved(FILE, speed_up=code), server, "speed_up") == [(PASSED, "")]


@pytest.mark.parametrize(("code", "right"), [("arrivals -= arrivals.max(axis=1)[:, None]\nreturn -arrivals.mean(axis=0)", False),
                                             ("arrivals = arrivals - arrivals.max(axis=1)[:, None]\nreturn -arrivals.mean(axis=0)", True)])  # fmt: skip
def test_a_function_leaves_its_arguments_as_they_are(server, code, right):
    ((status, message),) = statuses(solved(FILE, waiting=code), server, "waiting")
    assert (status == PASSED) == right and ("your code changes `arrivals` itself" in message) != right


@pytest.mark.parametrize(("code", "words"), [
    ("return None", "is there a `return`?"), ("return 'much'", "'much'"), ("return [0] * 20_000", "20,000 numbers"), ("return {1, 2}", "no number"),
])  # fmt: skip
def test_an_answer_that_is_no_number_is_named(server, code, words):
    ((status, message),) = statuses(solved(FILE, speed_up=code), server, "speed_up")
    assert status == FAILED and words in message
