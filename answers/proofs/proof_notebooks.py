"""Known answers to the notebooks' gaps: a right one returns what the solution does, and a number shows that a wrong one
does not.

A function gets the inputs that the notebook gives it, measured here, and
thousands of random ones of their kind. A prediction is compared with what one can expect, and the name of a part or a
count with real profiles.
"""

import ast
import contextlib
import copy
import functools
import io
import math
import os
import re
import shutil
import traceback
from numbers import Integral, Real

import numpy

from answers.proofs import entries, of_unit
from grader import gaps
from grader.checks.notebook_functions import TOLERANCE
from grader.course import UNITS
from grader.exercises import given_out, solution, solved
from grader.instructors import notebook_answers
from grader.instructors.notebook_answers import Chance, Function
from handson.notebook import measure as of_notebook
from handson.notebook import profiled_runs
from tests.bench.runs import ROOT

INPUTS = 3000
MEASURED = (
    "submit",
    "follow",
    "measure",
    "runs",
    "read",
    "profiled_runs",
    "figures",
    "checkpoints",
    "compare",
    "single_gpu",
    "multi_gpu",
    "drawings",
    "check",
    "contents",
    "doctor",
    "communication",
    "model_parallel",
    "attention_and_experts",
    "run",
    "other_frameworks",
)
PROFILED = ("bottleneck", "slow_rank", "collectives")  # choices: a profile shows what is right
BEFORE = {
    "bottleneck": "slow_loading.py",
    "prediction_faster": "slow_loading.py",
    "slow_rank": "uneven_work.py",
    "collectives": "waiting_every_step.py",
}
WORD = re.compile(r"\b(?!\d+\b(?!-))\w+(?:-\w+)*")  # not a number in front of one
SLOW = {
    "slow_loading.py": "--epoch 4 --size 128",
    "uneven_work.py": "--epoch 2 --size 128",
    "waiting_every_step.py": "--epoch 2 --size 32",
}


def measure(folder):
    """Rows (what, value, target)."""
    rows, profiles = [], profiled(folder)
    inputs = real_inputs(profiles)
    for unit in notebooks():
        names = gaps_of(unit)
        wrong, right = (
            [difference(unit, one["gap"], one["code"], inputs, profiles) for one in answers if one["gap"] in names]
            for answers in entries(unit)
        )
        rows.append((f"{unit}: right answers that do what the solution does", right.count(None), len(right)))
        rows.append((f"{unit}: wrong answers shown by a number", len(wrong) - wrong.count(None), len(wrong)))
    return rows


def gaps_of(unit):
    """The names of the gaps of a unit's notebooks whose answers are proved here."""
    values = (name for kind in ("EXPECTED", "NAMED", "SHOWN") for name in of_unit(unit, kind))
    return {gap.name for file in notebooks()[unit] for gap in given_out(file).gaps} & {
        *functions(unit),
        *values,
        *PROFILED,
    }


def notebooks():
    """unit -> its notebooks, in order."""
    return {unit: files for unit, parts in UNITS.items() if (files := [one.file for one in parts if is_notebook(one)])}


def is_notebook(part):
    return part.file.startswith("notebooks/")


def functions(unit):
    """{gap of the unit's notebook that is a function: function(chance) -> the arguments of a call, by name}"""
    return {
        gap: answer.inputs for gap, answer in notebook_answers.answers(unit).items() if isinstance(answer, Function)
    } | of_unit(unit, "INPUTS")


def difference(unit, gap, code, inputs, profiles):
    """None where `code` in a gap is right, or a sentence with the number that shows it is wrong."""
    if gap not in functions(unit):
        return _wrong_value(unit, gap, _value(unit, gap, code, profiles), profiles)
    return min(differences(unit, gap, code, inputs.get(gap, ())), key=len, default=None)


def differences(unit, gap, code, inputs=()):
    """A sentence for each input, of `inputs` and of random ones, for which a function with `code` in its gap does not
    do what the solution does."""
    answer = _function(unit, gap, code)
    for given, right in [
        *((given, _call(_function(unit, gap, None), given)) for given in inputs),
        *_by_chance(unit, gap, INPUTS),
    ]:
        found = _call(answer, given)
        if (
            not _same(right, found)
            or gap in of_unit(unit, "WHOLE")
            and not numpy.issubdtype(numpy.asarray(found).dtype, numpy.integer)
        ):
            arguments = ", ".join(f"{name}={_short(value)}" for name, value in given.items())
            yield f"{gap}({arguments}) is {_short(found)} in place of {_short(right)}"


@functools.cache
def _by_chance(unit, gap, count):
    """[(random inputs of a function, what the solution returns for them)]"""
    chance, solution, pairs = Chance(0), _function(unit, gap, None), []
    for chance.call in range(count):
        given = functions(unit)[gap](chance)
        pairs.append((given, _call(solution, given)))
    return pairs


@functools.cache
def _function(unit, gap, code):
    """A function of a notebook, its gap filled with `code` or, for None, by the solution."""
    return _run(unit, gap, {} if code is None else {gap: code})[gap]


def _value(unit, gap, code, profiles):
    measured = of_unit(unit, "MEASURED") | {"before": profiles.get(BEFORE.get(gap))}
    return _run(unit, gap, {} if code is None else {gap: code}, **measured).get(gap, "never assigned")


def _run(unit, gap, filled, **more):
    """The names that a notebook has after the cell of a gap."""
    number, before = _before(unit)[gap]
    names = {**before, **more}
    _execute(_cells(unit, filled)[number], names)
    return names


@functools.cache
def _before(unit):
    """gap -> (the number of its cell, the names that a notebook has above this cell), without what it measures, submits
    or draws, and whatever needs that."""
    names, found = {}, {}
    sources = [cell for file in notebooks()[unit] for cell in solution(file).read_text().split(gaps.CELL)]
    for number, (cell, with_markers) in enumerate(zip(_cells(unit, {}), sources, strict=True)):
        found |= {name: (number, dict(names)) for _, name, _ in gaps.BEGIN.findall(with_markers)}
        _execute(cell, names, MEASURED)
    return found


def _cells(unit, filled):
    return [cell for file in notebooks()[unit] for cell in solved(file, **filled).split(gaps.CELL)]


def _execute(cell, names, unwanted=()):
    """Run a cell's statements, without those that mention an unwanted name; imports run always. One that fails ends
    nothing."""
    for statement in ast.parse(cell.partition("\n")[2]).body:
        mentioned = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        if isinstance(statement, (ast.Import, ast.ImportFrom)) or not mentioned & set(unwanted):
            with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                exec(compile(ast.Module([statement], []), "<cell>", "exec"), names)


def _call(function, given):
    """What a function returns, with what it raises or does to its inputs as text."""
    own = copy.deepcopy(given)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            found = function(**own)
    except Exception as error:
        return "".join(traceback.format_exception_only(error)).strip()
    return found if _same(given, own) else f"{_short(found)}, but it changes its input to {_short(own)}"


def _same(one, other):
    """Whether two results are the same to within rounding, also of float32: of dictionaries, lists, tuples and arrays,
    each part."""
    if isinstance(one, dict):
        return (
            isinstance(other, dict) and one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
        )
    if isinstance(one, (list, tuple, numpy.ndarray)):
        return (
            isinstance(other, (list, tuple, numpy.ndarray)) and len(one) == len(other) and all(map(_same, one, other))
        )
    if isinstance(one, Real):
        return isinstance(other, Real) and math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return one == other


def _short(value):
    text = value if isinstance(value, str) else repr(_plain(value))
    return text if len(text) < 300 else f"{text[:297]}..."


def _plain(value):
    """Without NumPy's types, and with six digits, for people to read."""
    if isinstance(value, numpy.ndarray):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(part) for part in value)
    return float(f"{value:.6g}") if isinstance(value, Real) and not isinstance(value, Integral) else value


def _wrong_value(unit, gap, value, profiles):
    """None where a prediction can be expected, or a part or count is what the profile shows; else a sentence."""
    if gap in of_unit(unit, "EXPECTED"):
        (low, high), whole = of_unit(unit, "EXPECTED")[gap], gap in of_unit(unit, "WHOLE")
        fits = (
            isinstance(value, Real)
            and not isinstance(value, bool)
            and low <= value <= high
            and not (whole and value % 1)
        )
        return (
            None
            if fits
            else f"{gap} is {value!r}, where a {'whole ' * whole}number from {low:g} to {high:g} can be expected"
        )
    if gap in of_unit(unit, "NAMED"):
        names, named = of_unit(unit, "NAMED")[gap], WORD.findall(value.lower()) if isinstance(value, str) else []
        return (
            None
            if sorted(named) == sorted(names)
            else f"{gap} is {value!r}, which does not name each of {', '.join(names)} once"
        )
    if gap in of_unit(unit, "SHOWN"):
        found, right = (
            _call(of_unit(unit, "SHOWN")[gap], {"value": one}) for one in (value, _value(unit, gap, None, profiles))
        )
        return None if _same(found, right) else f"{gap} has {_short(found)} in place of {_short(right)}"
    right = shown_by_profile(gap, profiles)
    same = type(value) is type(right) and (value.lower() if isinstance(value, str) else value) == right
    return None if same else f"{gap} is {value!r}; the profile shows {right!r}"


def shown_by_profile(gap, profiles):
    """What a profile shows: the part of a step that is not the network's and takes longest, the rank that waits least,
    the collectives."""
    from handson.profiling import analysis
    from handson.profiling.timeline import COMMUNICATION

    if gap == "bottleneck":
        [shares] = analysis.shares(profiles["slow_loading.py"])[:1]
        parts = {name: seconds for name, seconds in shares.parts.items() if name != "compute"}
        return max(parts, key=parts.get)
    if gap == "slow_rank":
        waits = profiled_runs.waits(profiles["uneven_work.py"])
        return min(waits, key=lambda rank: sum(waits[rank].values()))
    run = profiles["waiting_every_step.py"]
    return round(
        sum(
            calls
            for _, _, calls in analysis.operators(run.timelines[0], analysis.common_steps(run)[0], (COMMUNICATION,))
        )
    )


def profiled(folder):
    """script -> the Run that its profile shows: of the slow scripts of the unit `profiling`, as students get them."""
    place = folder / "exercises/04_profiling"
    shutil.copytree(ROOT / "exercises/04_profiling", place, ignore=shutil.ignore_patterns("results"))
    shutil.copy(ROOT / "solutions/04_profiling/run_profile.sh", place)
    os.environ["HANDSON_PBS_HOME"] = str(folder / "pbs")
    with contextlib.redirect_stdout(io.StringIO()):
        return {script: profiled_runs.of_script(place, script, "before", options) for script, options in SLOW.items()}


def real_inputs(profiles):
    """gap -> inputs that the notebooks measure for it, of small images."""
    steps, run = of_notebook.steps(workers=2, size=32, count=10), profiles["uneven_work.py"]
    rates = of_notebook.batch_sizes(sizes=(1, 2, 4, 8, 16, 32), size=64, images=64)
    rates = {size: size * len(seconds) / sum(seconds) for size, seconds in rates.items()}
    epoch = of_notebook.epoch(size=32)
    begin, end = profiled_runs.meetings(run)
    compute, communication = profiled_runs.spans(run)
    return {
        "throughput": [{"batchsize": 32, "step_seconds": steps.of_steps()}],
        "smallest_batch": [{"rates": rates}],
        "limit": [{"seconds": epoch, "part": part} for part in epoch],
        "waiting": [{"arrivals": steps.began("all-reduce")}],
        "who_waits": [{"waits": profiled_runs.waits(run)}],
        "waiting_share": [{"begin": begin, "end": end}],
        "overlap": [{"compute": compute, "communication": communication}],
    }
