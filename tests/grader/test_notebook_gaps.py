"""A notebook's gap is judged by itself, whatever its other cells hold."""

import pytest

from grader.course import UNITS
from grader.exercises import solved
from grader.judging import judge
from grader.sandbox import Server
from grader.verdict import FAILED, PASSED

FILE = "notebooks/02_multi_gpu.ipynb"


@pytest.fixture(scope="module")
def server():
    server = Server(("grader.probes.cases", "grader.probes.notebooks"))
    yield server
    server.stop()


def statuses(text, server, *gaps, unit="multi_gpu"):
    part = next(
        part
        for part in UNITS[unit]
        if part.file.endswith(".ipynb") and set(gaps) <= {check.gap for check in part.checks}
    )
    chosen = type(part)(part.file, part.track, tuple(check for check in part.checks if check.gap in gaps))
    return [(verdict.status, verdict.message) for verdict in judge(unit, (chosen,), lambda file: text, server)]


def test_other_cells_are_not_run_and_their_mistakes_hide_nothing(server):
    text = "# %%\ndef broken(:\n\n# %%\nraise SystemExit\n\n# %%\nstuck = [0 for _ in iter(int, 1)]\n" + solved(FILE)
    assert statuses(text, server, "speed_up", "waiting", "prediction_error") == [(PASSED, "")] * 3


def test_a_gap_may_use_what_another_cell_imports_and_defines(server):
    helper = "# %%\nimport math as m\n\ndef total(batchsize, workers):\n    return batchsize * workers\n\n"
    text = helper + solved(FILE, updates="return epochs * m.ceil(images / total(batchsize, workers))")
    assert statuses(text, server, "updates") == [(PASSED, "")]


@pytest.mark.parametrize(
    "own",
    [
        "TOTAL = 32 * len(RANKS)",
        "TOTAL = 0\nfor rank in RANKS:\n    TOTAL += 32",
        "TOTAL = sum(of_rank(rank) for rank in RANKS)",
    ],
)
def test_a_gap_may_use_values_of_the_cells_above_it(server, own):
    helper = "# %%\ndef of_rank(rank):\n    return 32\n\n# %%\nRANKS = []\nRANKS.append(0)\nRANKS += [1]\n"
    # SEEDS: of a given cell
    code = "assert (SEEDS, TOTAL) == (4, 64)\nreturn -(-images // (batchsize * workers)) * epochs"
    assert statuses(f"{helper}\n# %%\n{own}\n{solved(FILE, updates=code)}", server, "updates") == [(PASSED, "")]


def test_an_argument_is_not_taken_from_another_cell(server):
    text = "# %%\nraise_here = 1 / 0\nsingle = several = raise_here\n" + solved(FILE)
    part = next(part for part in UNITS["multi_gpu"] if part.file == FILE)
    chosen = type(part)(part.file, part.track, tuple(check for check in part.checks if check.gap == "speed_up"))
    [verdict] = judge("multi_gpu", (chosen,), lambda file: text, server)
    assert (verdict.status, verdict.output) == (PASSED, "")


@pytest.mark.parametrize(
    ("gap", "code"),
    [
        ("bottleneck", "shares = analysis.shares(before)[0]\nbottleneck = max(analysis.PARTS[1:], key=shares.share)"),
        ("prediction_faster", "prediction_faster = 1 / (1 - analysis.shares(before)[0].share('loading'))"),
        ("slow_rank", "slow_rank = who_waits(profiled_runs.waits(before))[1]"),
        ("slow_rank", "slow_rank = who_waits(waited)[1]"),
        ("collectives", "collectives = round(calls)"),
    ],
)
def test_a_gap_may_use_the_profile_above_it(server, gap, code):
    own = (
        "from handson.profiling import analysis\n\nwaited = profiled_runs.waits(before)\noperators ="
        " analysis.operators(before.timelines[0], "
    )
    own += "analysis.common_steps(before)[0], (1,))\ncalls = 0\nfor _, _, times in operators:\n    calls += times\n"
    text = solved("notebooks/04_profiling.ipynb", **{gap: code}).replace("# %%\n# ", f"# %%\n{own}\n# %%\n# ")
    assert statuses(text, server, gap, unit="profiling") == [(PASSED, "")]


def test_a_measured_value_is_named_and_not_measured_again(server):
    code = "return len(curves) * epochs"
    assert "a check has no `curves`" in statuses(solved(FILE, updates=code), server, "updates")[0][1]
    assert (
        "use the function's arguments (images, batchsize, workers, epochs)"
        in statuses(solved(FILE, updates=code), server, "updates")[0][1]
    )
    assert (
        "write the answer itself"
        in statuses(solved(FILE, prediction_error="prediction_error = curves"), server, "prediction_error")[0][1]
    )


def test_a_prediction_may_be_computed_from_what_is_measured_above_it(server):
    measured = "# %%\nfrom handson.scaling import message_times as network\n\nseconds = network.measured()\nshare = seconds[0] / seconds[1]\n"
    text = measured + solved(FILE, prediction_error="prediction_error = 100 * share")
    assert statuses(text, server, "prediction_error") == [(PASSED, "")]
    below = solved(FILE, prediction_error="prediction_error = 100 * share") + "\n" + measured
    assert "a check has no `share`" in statuses(below, server, "prediction_error")[0][1]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("return np.sum(several) / single", "`np` is not defined: is `import numpy as np` missing?"),
        ("return math.fsum([several]) / single", "is `import math` missing?"),
        ("return several / singel", "`singel` is not defined in the notebook: is it misspelt?"),
        ("return max([]) / single", "for single = "),
        ("return (several / single", "SyntaxError: '(' was never closed, in `return (several / single`"),
    ],
)
def test_what_python_can_not_run_is_named_with_what_helps(server, code, words):
    ((_, message),) = statuses(solved(FILE, speed_up=code), server, "speed_up")
    assert words in message and "student:" not in message


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("prediction_error == 25", "`==` compares, but an assignment needs `=`"),
        ("def prediction_error():\n    return 25", "a function or a class: assign the number"),
        ("prediction_error = 12,5", "with a decimal point if needed, 12.5"),
        ("prediction_error = '25'", "a number has no quotes"),
        ("prediction_error = !cat results.txt", "a check runs no shell commands"),
    ],
)
def test_a_prediction_that_is_not_a_number_is_told_what_it_is(server, code, words):
    ((status, message),) = statuses(solved(FILE, prediction_error=code), server, "prediction_error")
    assert status == FAILED and words in message


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("arrivals -= arrivals.max(axis=1)[:, None]\nreturn -arrivals.mean(axis=0)", False),
        ("arrivals = arrivals - arrivals.max(axis=1)[:, None]\nreturn -arrivals.mean(axis=0)", True),
    ],
)
def test_a_function_leaves_its_arguments_as_they_are(server, code, right):
    ((status, message),) = statuses(solved(FILE, waiting=code), server, "waiting")
    assert (status == PASSED) == right and ("your code changes `arrivals`, which" in message) != right


SECONDS = "network.ring(4 * parameters, workers, network.Cluster(network.Link(0, megabits * 1e6 / 8)))"


@pytest.mark.parametrize(
    ("own", "code", "words"),
    [
        (
            "",
            f"from handson.scaling import message_times as network\nreturn {SECONDS}",
            "your code uses `handson.scaling`, which has the course's own formulas",
        ),
        (
            "",
            f"import handson.scaling.message_times as network\nreturn {SECONDS}",
            "your code uses `handson.scaling.message_times`",
        ),
        (
            "",
            f"network = __import__('handson.scaling.message_times').scaling.network\nreturn {SECONDS}",
            "from the function's arguments (parameters, workers, megabits)",
        ),
        (
            "from handson.scaling import message_times as network",
            f"return {SECONDS}",
            "your code uses `handson.scaling`",
        ),
        (
            f"def mine(parameters, workers, megabits):\n    from handson.scaling import message_times as network\n    return {SECONDS}",
            "return mine(parameters, workers, megabits)",
            "uses `handson.scaling`",
        ),
    ],
)
def test_a_function_does_not_get_its_answer_from_the_courses_package(server, own, code, words):
    text = f"# %%\n{own}\n\n{solved('notebooks/03_multi_node.ipynb', allreduce_seconds=code)}"
    ((status, message),) = statuses(text, server, "allreduce_seconds", unit="multi_node")
    assert status == FAILED and words in message


def test_a_module_that_may_be_used_lets_no_other_one_in(server):
    code = (
        "from handson import pipelines, scaling\n\nreturn (micro_batches if schedule == 'gpipe' else min(stages -"
        " stage, micro_batches)) * activations"
    )
    for imported, words in (
        (code, "your code uses `handson.scaling`, which has the course's own formulas"),
        (code.replace(", scaling", ""), ""),
    ):
        ((_, message),) = statuses(
            solved("notebooks/06b_model_parallel.ipynb", held_bytes=imported),
            server,
            "held_bytes",
            unit="model_parallel",
        )
        assert message.startswith(words) and bool(message) == bool(words)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("return [several / single]", "your function returns the list ["),
        ("yield several / single\nreturn 2", "returns the generator of a function with `yield`"),
        ("return object()", "must return numbers, but it returns an object"),
        ("if single > 1e9:\n    return 1", "returns None for single = "),
        ("return [0] * 20_000", "20,000 numbers"),
        ("return {0: several / single}", "a dictionary: leave out the keys"),
        ("return (one for one in [2])", "generator: convert it to a list"),
        ("yield several / single", "your code yields its values"),
        ("return [[1], [1, 2]]", "rows of different lengths"),
        ("return [{'speed_up': 2}]", "list of dictionaries"),
        ("return f'{several / single}'", "a number has no quotes"),
    ],
)
def test_an_answer_that_is_no_number_is_named(server, code, words):
    ((status, message),) = statuses(solved(FILE, speed_up=code), server, "speed_up")
    assert status == FAILED and words in message and "0x" not in message
