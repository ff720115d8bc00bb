"""Known answers to the notebooks' gaps: a right one returns what the solution does, and a number shows that a wrong one does not.

`measure` takes those in grader/units; ``python -m tests.bench.proof_notebooks FILE`` takes a file in the same format whose entries also
name their `unit`. A function gets the inputs that the notebook gives it, measured here, and thousands of random ones of their kind. A
prediction is compared with what one can expect, and the name of a part or a count with real profiles.
"""

import ast
import contextlib
import copy
import functools
import io
import math
import os
import random
import re
import shutil
import sys
import tempfile
import tomllib
import traceback
from numbers import Integral, Real
from pathlib import Path

import numpy

from grader import gaps
from grader.exercises import given_out
from grader.instructors.known_answers import known, solved
from handson.notebook import profiled_runs, timing
from tests.bench.runs import ROOT

INPUTS = 3000
WHOLE = ("workers", "intra_rank", "updates", "largest_batch")  # functions that return whole numbers, by which lists are repeated or indexed
MEASURED = (
    "submit", "follow", "timing", "runs", "read", "profiled_runs", "one_worker", "big_batches", "compare", "plots", "drawings", "check", "contents", "doctor",
    "communication", "schedules", "sessions", "restarts", "run", "products", "memory_runs", "pipelined", "threads", "systems",
)  # fmt: skip
EXPECTED = {  # prediction -> the range of what one can reasonably expect
    "prediction": (0.5, 4),
    "prediction_backward": (0.5, 10),
    "prediction_error": (1, 100),  # percent
    "prediction_efficiency": (0.01, 1),
    "prediction_faster": (1, 50),
    "prediction_ring": (64, 1e7),  # bytes
    "prediction_bucket": (1, 1800),  # KB
    "prediction_sooner": (0.1, 100),
    "prediction_period": (1, 36),
    "prediction_staleness": (0, 100),
    "prediction_blocks": (0.1, 1000),
    "prediction_slower": (0.5, 10),
    "prediction_ranks": (1, 64),
    "prediction_pipeline": (0.2, 2),  # times one process
    "prediction_forward": (0, 1000),  # all-reduces
    "prediction_times": (0.01, 1000),
}
NAMED = {  # prediction -> each name once, in any order
    "prediction_order": ("plain", "float16", "1-bit", "top-1-percent", "double-buffering"),
    "prediction_last": ("1-bit", "local-sgd-4", "block-momentum-4", "asynchronous"),
}
SHOWN = ("bottleneck", "slow_rank", "collectives")  # choices: a profile shows what is right
BEFORE = {"bottleneck": "slow_loading.py", "prediction_faster": "slow_loading.py", "slow_rank": "uneven_work.py", "collectives": "waiting_every_step.py"}
SLOW = {"slow_loading.py": "--epoch 4 --size 128", "uneven_work.py": "--epoch 2 --size 128", "waiting_every_step.py": "--epoch 2 --size 32"}


def measure(folder):
    """Rows (what, value, target)."""
    rows, profiles = [], profiled(folder)
    inputs = real_inputs(profiles)
    for unit, file in notebooks().items():
        names = {gap.name for gap in given_out(file).gaps} & {*KINDS, *EXPECTED, *NAMED, *SHOWN}
        wrong, right = ([difference(unit, one["gap"], one["code"], inputs, profiles) for one in answers if one["gap"] in names] for answers in known(unit, None))
        rows.append((f"{unit}: right answers that do what the solution does", right.count(None), len(right)))
        rows.append((f"{unit}: wrong answers shown by a number", len(wrong) - wrong.count(None), len(wrong)))
    return rows


def notebooks():
    """unit -> its notebook."""
    return {path.parent.name[3:]: f"notebooks/{path.stem}.ipynb" for path in sorted(ROOT.glob("solutions/*/*.py")) if path.stem == path.parent.name}


def difference(unit, gap, code, inputs, profiles):
    """None where `code` in a gap is right, or a sentence with the number that shows it is wrong."""
    if gap not in KINDS:
        return _wrong_value(gap, _value(unit, gap, code, profiles), profiles)
    return min(differences(unit, gap, code, inputs.get(gap, ())), key=len, default=None)


def differences(unit, gap, code, inputs=()):
    """A sentence for each input, of `inputs` and of random ones, for which a function with `code` in its gap does not do what the solution does."""
    answer = _function(unit, gap, code)
    for given, right in [*((given, _call(_function(unit, gap, None), given)) for given in inputs), *_by_chance(unit, gap, INPUTS)]:
        found = _call(answer, given)
        if not _same(right, found) or gap in WHOLE and not isinstance(found, Integral):
            arguments = ", ".join(f"{name}={_short(value)}" for name, value in given.items())
            yield f"{gap}({arguments}) is {_short(found)} in place of {_short(right)}"


@functools.cache
def _by_chance(unit, gap, count):
    """[(random inputs of a function, what the solution returns for them)]"""
    chance, solution = random.Random(0), _function(unit, gap, None)
    return [(given, _call(solution, given)) for given in (KINDS[gap](chance) for _ in range(count))]


@functools.cache
def _function(unit, gap, code):
    """A function of a notebook, its gap filled with `code` or, for None, by the solution."""
    return _run(unit, gap, {} if code is None else {gap: code})[gap]


def _value(unit, gap, code, profiles):
    return _run(unit, gap, {gap: code}, before=profiles.get(BEFORE.get(gap))).get(gap, "never assigned")


def _run(unit, gap, filled, **more):
    """The names that a notebook has after the cell of a gap."""
    number, before = _before(unit)[gap]
    names = {**before, **more}
    _execute(_cells(unit, filled)[number], names)
    return names


@functools.cache
def _before(unit):
    """gap -> (the number of its cell, the names that a notebook has above this cell), without what it measures, submits or draws, and
    whatever needs that."""
    [source] = ROOT.glob(f"solutions/??_{unit}/??_{unit}.py")
    names, found = {}, {}
    for number, (cell, with_markers) in enumerate(zip(_cells(unit, {}), source.read_text().split(gaps.CELL), strict=True)):
        found |= {name: (number, dict(names)) for _, name, _ in gaps.BEGIN.findall(with_markers)}
        _execute(cell, names, MEASURED)
    return found


def _cells(unit, filled):
    return solved(notebooks()[unit], **filled).split(gaps.CELL)


def _execute(cell, names, unwanted=()):
    """Run a cell's statements, without those that mention an unwanted name; imports run always. One that fails ends nothing."""
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
    """Whether two results are the same to within rounding: of dictionaries, lists, tuples and arrays, each part."""
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple, numpy.ndarray)):
        return isinstance(other, (list, tuple, numpy.ndarray)) and len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Real):
        return isinstance(other, Real) and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
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


def _wrong_value(gap, value, profiles):
    """None where a prediction can be expected, or a part or count is what the profile shows; else a sentence."""
    if gap in EXPECTED:
        low, high = EXPECTED[gap]
        fits = isinstance(value, Real) and not isinstance(value, bool) and low <= value <= high
        return None if fits else f"{gap} is {value!r}, where a number from {low:g} to {high:g} can be expected"
    if gap in NAMED:
        named = re.findall(r"\w+(?:-\w+)*", value) if isinstance(value, str) else []
        return None if sorted(named) == sorted(NAMED[gap]) else f"{gap} is {value!r}, which does not name each of {', '.join(NAMED[gap])} once"
    right = shown_by_profile(gap, profiles)
    return None if type(value) is type(right) and value == right else f"{gap} is {value!r}; the profile shows {right!r}"


def shown_by_profile(gap, profiles):
    """What a profile shows: the part of a step that is not the network's and takes longest, the rank that waits least, the collectives."""
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
    return round(sum(calls for _, _, calls in analysis.operators(run.timelines[0], analysis.common_steps(run)[0], (COMMUNICATION,))))


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
    steps, run = timing.steps(workers=2, size=32, count=10), profiles["uneven_work.py"]
    rates = timing.batch_sizes(sizes=(1, 2, 4, 8, 16, 32), size=64, images=64)
    rates = {size: size * len(seconds) / sum(seconds) for size, seconds in rates.items()}
    epoch = timing.epoch(size=32)
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


def _workers(chance):
    return {"select": chance.randint(1, 16), "mpiprocs": chance.randint(1, 8)}


def _throughput(chance):
    return {"batchsize": chance.choice((1, 8, 32, 100, 256)), "step_seconds": [chance.lognormvariate(-2, 0.5) for _ in range(chance.randint(1, 30))]}


def _smallest_batch(chance):
    """In some, a rate is exactly the share of the best one."""
    sizes = chance.sample([2**power for power in range(10)], chance.randint(2, 8))
    best, share = 16 * chance.randint(10, 60), chance.choice((0.5, 0.75, 0.875))
    rates = {size: chance.choice((chance.uniform(0.2, 1) * best, share * best)) for size in sizes}
    rates[chance.choice(sizes)] = float(best)
    return {"rates": rates} if chance.random() < 0.3 else {"rates": rates, "share": share}


def _limit(chance):
    seconds = {part: chance.lognormvariate(0, 1) for part in ("load", "enlarge", "forward", "backward", "optimize", "evaluate")}
    return {"seconds": seconds, "part": chance.choice(list(seconds))}


def _speed_up(chance):
    return {"single": chance.uniform(20, 900), "several": chance.uniform(20, 5000)}


def _efficiency(chance):
    return _speed_up(chance) | {"workers": chance.randint(1, 16)}


def _waiting(chance):
    steps, ranks = chance.randint(1, 20), chance.randint(1, 6)
    return {"arrivals": numpy.array([[step + chance.uniform(0, 0.3) for _ in range(ranks)] for step in range(steps)])}


def _updates(chance):
    batchsize, workers = chance.choice((1, 8, 32, 100)), chance.randint(1, 16)
    images = chance.choice((chance.randint(1, 5000), chance.randint(1, 20) * batchsize * workers))
    return {"images": images, "batchsize": batchsize, "workers": workers, "epochs": chance.randint(1, 10)}


def _learning_rate(chance):
    warmup = chance.randint(1, 40)
    update = chance.choice((0, warmup, chance.randint(0, 2 * warmup)))
    return {"update": update, "base": chance.uniform(0.001, 0.1), "workers": chance.randint(1, 16), "warmup": warmup}


def _intra_rank(chance):
    per_node = chance.randint(1, 8)
    return {"rank": chance.randrange(per_node * 8), "per_node": per_node}


def _total_accuracy(chance):
    images = [chance.randint(1, 100) for _ in range(chance.randint(1, 8))]
    return {"correct": [chance.randint(0, count) for count in images], "images": images}


def _scaling(chance):
    workers = [1, *chance.sample(range(2, 65), chance.randint(1, 5))]
    chance.shuffle(workers)
    return {"throughputs": {count: chance.uniform(0.2, 1) * 50 * count for count in workers}}


def _most_workers(chance):
    """A table of `scaling`. In some, an efficiency is exactly the least, or rises again with more workers."""
    table = [[1, 50.0, 1.0, 1.0]]
    for workers in sorted(chance.sample(range(2, 65), chance.randint(1, 5))):
        efficiency = chance.randint(10, 64) / 64
        table.append([workers, 50 * workers * efficiency, workers * efficiency, efficiency])
    return {"table": table, "least": chance.choice((chance.uniform(0.2, 1), chance.choice(table)[3]))}


def _allreduce_seconds(chance):
    return {"parameters": chance.randint(1, 10**8), "workers": chance.randint(1, 64), "megabits": chance.choice((10_000, 1_000, 100, 20))}


def _who_waits(chance):
    ranks = range(chance.randint(2, 6))
    return {"waits": {rank: {other: chance.uniform(0, 0.02) for other in ranks if other != rank} for rank in ranks}}


def _waiting_share(chance):
    rounds, ranks = chance.randint(1, 20), chance.randint(1, 6)
    begin = numpy.array([[row + chance.uniform(0, 0.3) for _ in range(ranks)] for row in range(rounds)])
    return {"begin": begin, "end": numpy.array([[row.max() + chance.uniform(0.001, 0.2) for _ in range(ranks)] for row in begin])}


def _overlap(chance):
    return {"compute": _spans(chance, chance.randint(1, 8)), "communication": _spans(chance, chance.randint(1, 8))}


def _spans(chance, count):
    moments = sorted(chance.uniform(0, 1) for _ in range(2 * count))
    return [[begin, end] for begin, end in zip(moments[::2], moments[1::2])]


def _bytes_sent(chance):
    return {"algorithm": chance.choice(("naive", "ring", "doubling")), "n": chance.randint(1, 10**8), "ranks": 2 ** chance.randint(1, 10)}


def _alpha_beta(chance):
    """Messages of growing size, whose times are a little off the line."""
    sizes = sorted(chance.sample([4**power for power in range(2, 14)], chance.randint(3, 8)))
    alpha, beta = chance.uniform(1e-5, 1e-2), chance.uniform(1e6, 1e9)
    return {"sizes": numpy.array(sizes), "seconds": numpy.array([chance.uniform(1, 1.2) * (alpha + size / beta) for size in sizes])}


def _ring_wins_from(chance):
    return {"alpha": chance.uniform(1, 10_000), "beta": chance.uniform(0.1, 10_000), "ranks": 2 ** chance.randint(2, 10)}


def _hook_bytes(chance):
    return {"method": chance.choice(("plain", "float16", "1-bit", "top-1-percent")), "parameters": 800 * chance.randint(1, 10**6)}


def _block_bytes(chance):
    return {"parameters": chance.randint(1, 10**8), "steps": chance.randint(1, 1000), "period": chance.randint(1, 50), "ranks": chance.randint(2, 64)}


def _lost_share(chance):
    return {"interval": chance.uniform(10, 10_000), "checkpoint": chance.uniform(0.1, 300), "between": chance.uniform(1e4, 1e7)}


def _amdahl(chance):
    return {"serial": chance.uniform(0, 1), "workers": chance.randint(1, 4096)}


_gustafson = _amdahl


def _slowest(chance):
    return {"steps": [chance.uniform(0.01, 1) for _ in range(chance.randint(1, 100))], "workers": chance.randint(1, 512)}


def _ring(chance):
    return {"size": chance.uniform(1, 1e9), "ranks": chance.randint(1, 4096), "alpha": chance.uniform(0, 0.1), "beta": chance.uniform(1e5, 1e11)}


def _step_time(chance):
    return {"computing": chance.uniform(0, 2), "all_reduce": chance.uniform(0, 2), "double_buffering": chance.random() < 0.5}


def _cloud_step(chance):
    seconds = {name: chance.uniform(0, 5) for name in ("loading", "compute", "network")}
    return seconds | {"workers": chance.randint(1, 512), "double_buffering": chance.random() < 0.5}


def _order(chance):
    prices = [chance.randint(10, 99) for _ in range(chance.randint(1, 4))]
    most = chance.randint(1, 20)
    throughputs = [[chance.uniform(1, 1000) for _ in range(most)] for _ in prices]
    if chance.random() < 0.5:  # an order that costs the whole budget may be the best
        return {"budget": chance.choice(prices) * chance.randint(2, 20), "prices": prices, "throughputs": list(map(sorted, throughputs))}
    return {"budget": chance.randint(100, 2000), "prices": prices, "throughputs": throughputs}


def _products_bytes(chance):
    return {name: chance.randint(1, 256) for name in ("blocks", "images", "tokens", "width", "ranks")}


def _images_bytes(chance):
    return {"parameters": chance.randint(1, 10**8), "model_ranks": chance.randint(1, 16), "image_ranks": chance.randint(1, 16)}


def _step_seconds(chance):
    return {"computing": chance.uniform(0.001, 10), "sent": chance.randint(1, 10**8), "ranks": chance.randint(1, 16), "rate": chance.uniform(1, 10_000)}


def _images_of_equal_bytes(chance):
    return {"blocks": chance.randint(1, 100), "tokens": chance.randint(1, 1000), "width": chance.randint(1, 4096), "parameters": chance.randint(1, 10**8)}


def _raise(error):
    raise error


def _block_parameters(chance):
    return {"width": chance.randint(1, 512)}


def _state_bytes(chance):
    return {"parameters": chance.randint(1, 10**10)}


def _activation_bytes(chance):
    return {name: chance.randint(1, 256) for name in ("batch", "tokens", "width", "blocks")}


_checkpointed_bytes = _activation_bytes


def _largest_batch(chance):
    of_an_image, network = chance.randint(1, 10**7), chance.randint(0, 10**9)
    return {"limit": network + chance.randint(0, 100) * of_an_image + chance.choice((0, chance.randrange(of_an_image))), "network": network, "of_an_image": of_an_image}


def _sharded_bytes(chance):
    return {"method": chance.choice(["ddp", "zero", "fsdp"]), "parameters": chance.randint(1, 10**10), "ranks": chance.randint(1, 1024)}


def _bubble(chance):
    return {"stages": chance.randint(2, 64), "micro_batches": chance.randint(1, 256)}


def _held_bytes(chance):
    stages = chance.randint(2, 16)
    sizes = {"micro_batches": chance.randint(1, 32), "activations": chance.randint(1, 10**9)}
    return {"schedule": chance.choice(["gpipe", "1f1b"]), "stage": chance.randrange(stages), "stages": stages, **sizes}


def _weights_of_fit(chance):
    return {"parts": [chance.randint(1, 64) for _ in range(chance.randint(1, 8))]}


def _seconds_in_python(chance):
    step = chance.uniform(1, 20)
    return {"step": step, "operations": sorted(tuple(sorted((chance.uniform(0, step), chance.uniform(0, step)))) for _ in range(chance.randint(1, 6)))}


def _threads_speedup(chance):
    return {"python": chance.uniform(0.1, 10), "kernels": chance.uniform(0, 50), "threads": chance.randint(1, 16)}


KINDS = {
    name: globals()[f"_{name}"]
    for name in (
        "workers", "throughput", "smallest_batch", "limit", "speed_up", "efficiency", "waiting", "updates", "learning_rate",
        "intra_rank", "total_accuracy", "scaling", "most_workers", "allreduce_seconds", "who_waits", "waiting_share", "overlap",
        "bytes_sent", "alpha_beta", "ring_wins_from", "hook_bytes", "block_bytes", "lost_share",
        "amdahl", "gustafson", "slowest", "ring", "step_time", "cloud_step", "order",
        "block_parameters", "state_bytes", "activation_bytes", "largest_batch", "checkpointed_bytes", "sharded_bytes", "bubble", "held_bytes",
        "products_bytes", "images_bytes", "step_seconds", "images_of_equal_bytes",
        "weights_of_fit", "seconds_in_python", "threads_speedup",
    )
}  # fmt: skip


def main(path):
    """Print what shows that each wrong answer of a file is wrong, and what a right one has wrong, if anything."""
    answers = tomllib.loads(Path(path).read_text())
    with tempfile.TemporaryDirectory(prefix="handson-proof-") as folder:
        profiles = profiled(Path(folder))
        inputs = real_inputs(profiles)
        for kind in ("mutant", "variant"):
            for one in answers.get(kind, []):
                print(f"{kind} {one['gap']}, {one['name']}: {difference(one['unit'], one['gap'], one['code'], inputs, profiles)}")


if __name__ == "__main__":
    main(sys.argv[1])
