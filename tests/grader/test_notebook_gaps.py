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


def statuses(text, server, *gaps, unit="multi_gpu"):
    part = next(part for part in UNITS[unit] if part.file.endswith(".ipynb"))
    chosen = type(part)(part.file, part.track, tuple(check for check in part.checks if check.gap in gaps))
    return [(verdict.status, verdict.message) for verdict in judge(unit, (chosen,), lambda file: text, server)]


def test_other_cells_are_not_run_and_their_mistakes_hide_nothing(server):
    text = "# %%\ndef broken(:\n\n# %%\nraise SystemExit\n\n# %%\nstuck = [0 for _ in iter(int, 1)]\n" + solved(FILE)
    assert statuses(text, server, "speed_up", "waiting", "prediction_error") == [(PASSED, "")] * 3


def test_a_gap_may_use_what_another_cell_imports_and_defines(server):
    helper = "# %%\nimport math as m\n\ndef total(batchsize, workers):\n    return batchsize * workers\n\n"
    text = helper + solved(FILE, updates="return epochs * m.ceil(images / total(batchsize, workers))")
    assert statuses(text, server, "updates") == [(PASSED, "")]


@pytest.mark.parametrize("own", ["TOTAL = 32 * len(RANKS)", "TOTAL = 0\nfor rank in RANKS:\n    TOTAL += 32", "TOTAL = sum(of_rank(rank) for rank in RANKS)"])
def test_a_gap_may_use_values_of_the_cells_above_it(server, own):
    helper = "# %%\ndef of_rank(rank):\n    return 32\n\n# %%\nRANKS = []\nRANKS.append(0)\nRANKS += [1]\n"
    code = "assert (SEEDS, TOTAL) == (4, 64)\nreturn -(-images // (batchsize * workers)) * epochs"  # SEEDS: of a given cell
    assert statuses(f"{helper}\n# %%\n{own}\n{solved(FILE, updates=code)}", server, "updates") == [(PASSED, "")]


def test_a_value_of_a_cell_below_the_gap_is_not_there(server):
    [(status, message)] = statuses(solved(FILE, updates="return epochs * warmup"), server, "updates")
    assert status == FAILED and "no `warmup` here" in message


def test_an_argument_is_not_taken_from_another_cell(server):
    text = "# %%\nraise_here = 1 / 0\nsingle = several = raise_here\n" + solved(FILE)
    part = next(part for part in UNITS["multi_gpu"] if part.file == FILE)
    chosen = type(part)(part.file, part.track, tuple(check for check in part.checks if check.gap == "speed_up"))
    [verdict] = judge("multi_gpu", (chosen,), lambda file: text, server)
    assert (verdict.status, verdict.output) == (PASSED, "")


@pytest.mark.parametrize(("gap", "code"), [
    ("bottleneck", "shares = analysis.shares(before)[0]\nbottleneck = max(analysis.PARTS[1:], key=shares.share)"),
    ("prediction_faster", "prediction_faster = 1 / (1 - analysis.shares(before)[0].share('loading'))"),
    ("slow_rank", "slow_rank = who_waits(profiled_runs.waits(before))[1]"),
    ("slow_rank", "slow_rank = who_waits(waited)[1]"),
    ("collectives", "collectives = round(calls)"),
])  # fmt: skip
def test_a_gap_may_use_the_profile_above_it(server, gap, code):
    own = "from handson.profiling import analysis\n\nwaited = profiled_runs.waits(before)\noperators = analysis.operators(before.timelines[0], "
    own += "analysis.common_steps(before)[0], (1,))\ncalls = 0\nfor _, _, times in operators:\n    calls += times\n"
    text = solved("notebooks/04_profiling.ipynb", **{gap: code}).replace("# %%\n# ", f"# %%\n{own}\n# %%\n# ")
    assert statuses(text, server, gap, unit="profiling") == [(PASSED, "")]


def test_a_measured_value_is_named_and_not_measured_again(server):
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
