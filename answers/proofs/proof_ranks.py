"""Known answers to the gaps of scripts that `proof_scripts` does not run, in real ranks: what they compute is compared
with the solution's.

Its unit's proof.py says how each is run; all other gaps are filled by the solution. A right answer computes
what the solution does. A wrong one computes something else, fails, waits for ever, sends other messages, or holds more
memory.
"""

import collections
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from answers.proofs import entries, of_unit, watched_script
from answers.proofs.proof_scripts import (
    LIMIT,
    alike,
    difference,
    epochs,
    notes,
    ranks,
    run_in_processes,
    values,
    wrong_labels,
)
from grader import gaps
from grader.course import UNITS
from grader.exercises import solved
from handson.pipelines import simulate
from handson.training import map_files
from tests.bench.runs import ROOT

MESSAGES = {"messages", "sent"}  # of an all-reduce, as the course's own functions count them


def measure(folder):
    """Rows (what, value, target) of all known answers to these gaps."""
    for unit in UNITS:
        yield from rows(folder, unit)


def rows(folder, unit, wanted=()):
    """Rows (what, value, target) of the known answers of a unit. wanted: names of gaps, all if there are none."""
    for file, run in of_unit(unit, "RUNS").items():
        for path in ROOT.glob(f"solutions/[0-9][0-9]_{unit}/{file}"):
            names = {gap for gap in gaps.answers(path.read_text()) if not wanted or gap in wanted}
            runs = {gap: of_unit(unit, "OF_GAP").get((file, gap), (run,)) for gap in names}
            of_runs = {one: see(folder, path, one) for one in set(runs.values())}
            right = {gap: of_runs[one] for gap, one in runs.items()}
            if failures := [seen["failure"] for seen in right.values() if seen["failure"]]:
                sys.exit(f"answers.proofs.proof_ranks: the solution of {file} itself does not run: {failures[0]}")
            for wrong, answers in zip(
                (True, False), entries(unit, path.parent.name if path.parent.name in ("pytorch", "chainer") else "")
            ):
                for answer in (answer for answer in answers if answer["gap"] in names):
                    gap = answer["gap"]
                    divided = not wrong and gap in of_unit(unit, "DIVIDED")
                    problem = problem_of(
                        right[gap], see(folder, path, runs[gap], {gap: answer["code"]}), wrong, divided
                    )
                    value, target = "differs" if problem else "the same", "differs" if wrong else "the same"
                    yield (
                        f"{unit} {answer['gap']}: {answer['name']}"[:74],
                        value,
                        target if value == target else f"{target} <-- missed",
                    )
                    if problem:
                        yield f"    {problem}"[:150], "", ""


def problem_of(right, found, wrong, divided=False):
    """How what was seen differs from what the solution does, in words; "" if it does not. A right answer may send other
    messages.

    divided: only what the ranks compute together has to be the same."""
    for what in ("failure", "total" if divided else "result", *["messages"] * wrong):
        if not alike(found[what], right[what]):
            return difference(what, found[what], right[what])
    return ""


def see(folder, path, runs, instead=None):
    """What the ranks do: {"failure": "" or its last line, "result": what they compute, "total": the same with the
    ranks' gradients added up, "messages": of each rank, name -> calls; and what they hold}.

    path: of a solution; instead: {gap: code in place of the solution's}."""
    prepare(Path(folder))
    found = {"failure": "", "result": [], "total": [], "messages": []}
    for run in runs:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            write_scripts(Path(place), path, run, instead or {})
            for options in run.options:
                out = Path(place, "out")
                seen = (in_mpi if run.mpi else in_torchrun)(
                    Path(place), run, options.format(folder=folder).split(), out
                )
                for what in ("result", "total"):
                    seen[what] += results(out, lambda name: name not in MESSAGES)
                seen["messages"] += results(out, MESSAGES.__contains__) + held(out)
                if run.in_any_order:
                    seen |= {"result": staleness(seen["result"], run.ranks - 1), "messages": []}
                for what in found:
                    found[what] += seen[what]
                if not run.goes_on:
                    shutil.rmtree(out, ignore_errors=True)
    return found


def write_scripts(place, path, run, instead):
    """Write the script of a Run into the folder `place`, and in its track those beside it. path, instead: as for
    `see`."""
    for script in path.parent.glob("*.py"):
        # beside a unit's own scripts is its notebook
        if script.name == path.name or path.parent.parent != ROOT / "solutions":
            file = f"exercises/{script.relative_to(ROOT / 'solutions')}"
            beside = dict([run.beside[1:]]) if run.beside[:1] == (script.name,) else {}
            text = solved(file, **(instead if script.name == path.name else beside))
            (place / script.name).write_text(
                text.replace(*run.replaced) if script.name == run.script and run.replaced[0] else text
            )


def staleness(logs, workers):
    """What is the same in each run of a parameter server with a slow worker: how many gradients it has used in each
    epoch, and whether one was so stale that nobody has waited for the slow worker."""
    times = [
        {int(name.split()[1]): value for name, value in row.items() if name.startswith("staleness")}
        for log in logs
        for row in log
    ]
    return [
        [sum(row.values()) for row in times],
        max((number for row in times for number in row), default=0) >= workers,
    ]


def prepare(folder):
    """Make the data sets of the runs in a folder."""
    if not (folder / "data.npz").exists():
        watched_script.write_images(folder / "data.npz", 24, 5)
        map_files.write("digits", folder / "digits_files", say=lambda line: None)


def in_torchrun(place, run, options, out):
    """Run a script as torchrun does. The options and the result are those of `see`."""
    # the first has the fewest ranks
    nodes = [f"node{run.nodes - 1 - (run.ranks - 1 - rank) * run.nodes // run.ranks}" for rank in range(run.ranks)]
    run_in_processes("pytorch", nodes, str(place / run.script), options, str(out))
    seen = notes(out)
    of_ranks = [noted for _, noted in ranks(seen)]
    updates = [[value for what, value in noted if what == "update"] for noted in of_ranks]
    printed = (out / "printed").read_text()
    computed = [trained(seen, printed)] if run.script == "from_scratch.py" else [one for one in updates if one]
    lines = [_rounded(line) for line in printed.splitlines() if "mean losses" in line]
    messages = [
        dict(
            collections.Counter(
                value for what, value in noted if what in ("wait", "operation", "work", "type", "bytes")
            )
        )
        for noted in of_ranks
    ]
    messages += [begun(noted) for noted in of_ranks]
    total = [[[sum(numbers) for numbers in zip(*of_step)] for of_step in zip(*updates)]]
    return {"failure": seen["failure"], "result": computed + lines, "total": total + lines, "messages": messages}


def _rounded(line):
    """A line with its numbers as single precision has them, in which means of the same numbers may differ."""
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.5g}", line)


def begun(noted):
    """How many gradients were complete when each all-reduce of gradients began, of all steps."""
    gradients, found = 0, []
    for what, value in noted:
        gradients += what == "gradient"
        found += [gradients] * (value == "all-reduce of many")
    return found


def trained(seen, printed):
    """What from_scratch.py does, in whatever order its images come: see `watched_script.watch_from_scratch`. printed:
    by all ranks."""
    of_ranks = [noted for _, noted in ranks(seen)]
    steps = [values(noted, "step") for noted in of_ranks]
    ends = [end["parameters"] for noted in of_ranks for end in values(noted, "end")]
    batches = [values(noted, "train") for noted in of_ranks]
    taken = sum(sum(batches, []), [])
    # then a step does not depend on the order of images
    at_once = len({*taken}) == sum(len(of_rank[0]) for of_rank in batches if of_rank)
    gradients = zip(*(values(noted, "gradients")[:2] for noted in of_ranks))  # later ones depend on the momentum
    means = [sum(one for one, _ in of_step) / len(of_ranks) for of_step in gradients]
    rate = len(taken) / max([1, *map(len, steps)]) / watched_script.SECONDS  # images a second, of all ranks
    lines = [[float(number) for number in re.findall(r"\d+(?:\.\d+)?", line)] for line in printed.splitlines()]
    return {
        "images of each step": [[shape for shape, _ in of_rank] for of_rank in steps],
        "times each image is taken": sorted(collections.Counter(taken).items()),
        "wrong labels": wrong_labels({rank: [one for one in noted if one[0] != "test"] for rank, noted in ranks(seen)}),
        "orders of a rank": [len({*map(tuple, epochs(noted))}) for noted in of_ranks],
        "layers in evaluation mode": [values(noted, "asleep") for noted in of_ranks],
        "GPU ids": [values(noted, "gpu")[-1:] for noted in of_ranks],
        "mean gradients of two steps": means if at_once else [],
        "parameters after a step": [[parameters for _, parameters in of_rank[1:2]] for of_rank in steps if at_once],
        "alike at the end": all(alike(end, ends[0]) for end in ends),
        "lines with the throughput": sum(
            any(math.isclose(number, rate, abs_tol=0.5) for number in line) for line in lines
        ),
    }


def in_mpi(place, run, options, out):
    """Run a script by mpiexec, as `in_torchrun`, in a job as it were; its messages are not noted."""
    (place / "nodes").write_text("localhost\n" * run.ranks)
    job = os.environ | {"PBS_NODEFILE": str(place / "nodes")}
    command = [
        str(Path(sys.executable).with_name("mpiexec")),
        "-n",
        str(run.ranks),
        sys.executable,
        run.script,
        *options,
        "-o",
        str(out),
    ]
    try:
        done = subprocess.run(command, cwd=place, env=job, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {"failure": "it waits for ever", "result": [], "total": [], "messages": []}
    failure = (
        f"it fails ({(done.stderr.strip().splitlines() or ['nothing printed'])[-1]:.120})" if done.returncode else ""
    )
    lines = sorted(
        re.sub(r" [\d.]+s$", "", line)
        for line in done.stdout.splitlines()
        if run.printed and re.search(run.printed, line)
    )
    return {"failure": failure, "result": lines, "total": list(lines), "messages": []}


def results(out, wanted):
    """What the results in a folder say, without seconds: the log of a training, the rows of a table. wanted: tells by
    its name whether a value is."""
    found = []
    for path in sorted(out.glob("**/*.json")):
        content = json.loads(path.read_text())
        log = (
            (content.get("log") or content.get("rows") or [content.get("split", {})])
            if isinstance(content, dict)
            else []
        )
        # of a node's interfaces, whoever sends
        measured = {
            "elapsed_time",
            "first_step",
            "training_time",
            "seconds",
            *["bytes"] * ("epoch" in (log or [{}])[0]),
        }
        found.append(
            [{name: value for name, value in row.items() if name not in measured and wanted(name)} for row in log]
        )
    return found


def held(out):
    """What a right answer may do otherwise: the most that each part of a rank's memory has held where it was counted,
    in steps of a tenth, and how long the stages of a pipeline wait, and hold what."""
    found = []
    for path in sorted(out.glob("**/*.json")):
        content = json.loads(path.read_text())
        if path.name == "pipeline.json":
            timeline = simulate(content["schedule"])
            found.append([timeline.bubble, timeline.held])
        elif path.name.startswith("memory_rank"):
            found.append([round(10 * math.log(1 + size)) for size in content["most"].values()])
    return found
