"""Known answers to the gaps of scripts that `proof_scripts` does not run, in real ranks: what they compute is compared with the solution's.

These are the scripts of the units communication and model_parallel, hanging.py, mpi_accuracy.py and from_scratch.py, all other gaps filled by the
solution. A right answer computes what the solution does. A wrong one computes something else, fails, waits for ever, sends other messages, or holds
more memory.
``python -m tests.bench.proof_ranks UNIT [GAP...]`` takes some of them.
"""

import collections
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from grader import gaps
from grader.instructors.known_answers import known, solved
from handson.pipelines import simulate
from handson.training import map_files
from tests.bench import watched_script
from tests.bench.proof_scripts import LIMIT, alike, difference, notes, ranks, run_in_processes
from tests.bench.runs import ROOT

IMAGES = "-e 4 -b 4 --size 16 --seed 3 --dataset {folder}/data.npz"
FEW_STEPS = IMAGES.replace("-e 4", "-e 2")  # of signs, which later depend on rounding
BUCKETS = "broadcast_buffers=False", "broadcast_buffers=False, bucket_cap_mb=0.1"  # several, also of a small network
FILES = "-e 1 -b 100 --seed 3 --dataset {folder}/digits"  # whose images are in digits_files
TRANSFORMER = "-e 3 -b {{batch}} --size 8 --width 16 --heads 2 --blocks 2 --seed 3 --dataset {folder}/data.npz --gpu-memory unlimited --method "
OF_12, OF_4 = (TRANSFORMER.replace("{{batch}}", batch) for batch in ("12", "4"))
FEWER = "1f1b --micro-batches 2"  # than stages
OF_5_LAYERS = OF_12.replace("blocks 2", "blocks 3")
TWO_EPOCHS = FILES.replace("-e 1", "-e 2")
# in the second epoch, right after a checkpoint
STOPPED = """            if step == 12 and not found:
                return
"""

LAST_FIRST = ("schedules.py", "gpipe", """
order = range(micro_batches)
operations = [f"F{number}" for number in order] + [f"B{number}" for number in (order if stage else order[::-1])]
""")  # with which stage 0 goes backward through another micro-batch first than the other stages
MESSAGES = {"messages", "sent"}  # of an all-reduce, as the course's own functions count them


class Run(NamedTuple):
    """How the gaps of a file are run: by which script beside it, in how many ranks, with which options, one run after the other.

    beside: (file, gap, its answer) of another script, in place of the solution's; replaced: text of the script, and what stands there
    instead; printed: which lines that an MPI script prints are a result, a pattern; goes_on: later runs find what earlier ones have
    written; in_any_order: the ranks' messages come in another order each time.
    """

    script: str
    ranks: int
    options: tuple = ("",)
    mpi: bool = False
    nodes: int = 1
    beside: tuple = ()
    replaced: tuple = ("", "")
    printed: str = ""
    goes_on: bool = False
    in_any_order: bool = False


RUNS = {
    "hanging.py": Run("hanging.py", 3),
    "mpi_accuracy.py": Run("mpi_accuracy.py", 4, mpi=True, printed="."),
    "from_scratch.py": Run("from_scratch.py", 2, replaced=("SIZE = 2, 32, 0.02, 64", "SIZE = 1, 32, 0.02, 16")),
    "pytorch/all_reduce.py": Run("all_reduce.py", 4, ("--largest 1024",)),
    "pytorch/data_parallel.py": Run("train_data_parallel.py", 2, (IMAGES + " --method 1-KB 600-KB",)),
    "pytorch/hooks.py": Run("train_hooks.py", 2, (FEW_STEPS + " --method 1-bit top-1-percent",), replaced=BUCKETS),
    "pytorch/half_and_late.py": Run("train_hooks.py", 2, (IMAGES + " --method float16 bfloat16 float16-double-buffering",), replaced=BUCKETS),
    "pytorch/local_sgd.py": Run("train_local_sgd.py", 2, (IMAGES + " --method local-sgd-4 block-momentum-4",)),
    "pytorch/parameter_server.py": Run("train_parameter_server.py", 2, (IMAGES + " --method asynchronous",)),
    "pytorch/train_restarts.py": Run(
        "train_restarts.py", 2, (TWO_EPOCHS + " --every 4 --noise 60",) * 2, goes_on=True, replaced=("        table.add", STOPPED + "        table.add")
    ),
    "pytorch/train_cntk.py": Run("train_cntk.py", 2, (FILES, f"{FILES} --by-hand"), mpi=True),
    "chainer/half_and_late.py": Run("train_hooks.py", 2, (IMAGES + " --method plain float16 float16-double-buffering",), mpi=True),
    "pytorch/save_memory.py": Run("train_memory.py", 1, (OF_12.replace("-b 12", "-b 11") + "accumulate-4 checkpoint-and-accumulate-4",)),
    "pytorch/zero.py": Run("train_sharded.py", 3, (OF_4 + "zero",)),
    "pytorch/schedules.py": Run("train_pipeline.py", 3, (OF_12 + "gpipe 1f1b --micro-batches 4", OF_12 + FEWER)),
    "pytorch/pipeline.py": Run("train_pipeline.py", 3, (OF_5_LAYERS + "gpipe 1f1b --micro-batches 4",), beside=LAST_FIRST),
    "pytorch/torch_pipeline.py": Run("train_pipeline.py", 3, (OF_12 + "torch-gpipe torch-1f1b --micro-batches 4",)),
    "pytorch/products.py": Run("train_mesh.py", 4, (OF_4 + "tensor-inside --dropout 0",), nodes=2),
    "pytorch/products_dtensor.py": Run("products_dtensor.py", 2, ("--width 16 --heads 2",)),
    "pytorch/mesh.py": Run("train_mesh.py", 4, (OF_4 + "tensor-inside data-inside --dropout 0",), nodes=2),
    "chainer/chain_list.py": Run("train_pipeline.py", 3, (OF_12.replace(" --gpu-memory unlimited", "") + "naive gpipe --micro-batches 4",), mpi=True),
}

DIVIDED = ("my_layers",)  # gaps whose right answers may divide the network otherwise: what all ranks compute is compared, added up
# Gradients of up to some 50,000: float16 holds each of them and their mean, but not their sum.
LARGE = Run("train_hooks.py", 2, (IMAGES + " --method float16 --lr 1e-10",), replaced=("F.cross_entropy(", "120_000 * F.cross_entropy("))
SLOW_WORKER = Run("train_parameter_server.py", 3, (IMAGES + " --method asynchronous-slow-worker",), in_any_order=True)
CNTK, MESH = RUNS["pytorch/train_cntk.py"], RUNS["pytorch/mesh.py"]
START = "    start = time.perf_counter()\n"
SAVED = """    tell, save = (lambda line: comm.rank or print(line, flush=True)), trainer.save_checkpoint
    trainer.save_checkpoint = lambda *arguments: (tell(f"A checkpoint after {trainer.total_number_of_samples_seen}"), save(*arguments))
"""
OF_GAP = {  # (file, gap): the runs for that gap, where others than those of its file show it
    ("pytorch/half_and_late.py", "half"): (RUNS["pytorch/half_and_late.py"], LARGE),
    ("pytorch/parameter_server.py", "serve"): (RUNS["pytorch/parameter_server.py"], SLOW_WORKER),
    ("pytorch/mesh.py", "mesh"): (MESH, MESH._replace(ranks=2, nodes=1)),  # as many nodes as ranks on each hide which is which
    ("pytorch/train_cntk.py", "source"): (CNTK._replace(options=(TWO_EPOCHS,)),),
    ("pytorch/train_cntk.py", "learner"): (CNTK._replace(options=(FILES, f"{FILES} --bits 1 --warm-up 200", f"{FILES} --block-size 400")),),
    ("pytorch/train_cntk.py", "session"): (
        CNTK._replace(options=(FILES, f"{TWO_EPOCHS} --restore", FILES), goes_on=True, printed="Finished|A checkpoint", replaced=(START, SAVED + START)),
    ),
    ("pytorch/train_cntk.py", "loop"): (CNTK._replace(options=(f"{TWO_EPOCHS} --by-hand",)),),
}
RANDOM = ("dropout",)  # gaps whose right answers draw other random numbers than the solution: what they compute cannot be compared


def measure(folder):
    """Rows (what, value, target) of all known answers to these gaps."""
    for unit in ("multi_gpu", "multi_node", "communication", "model_parallel"):
        yield from rows(folder, unit)


def rows(folder, unit, wanted=()):
    """Rows (what, value, target) of the known answers of a unit. wanted: names of gaps, all if there are none."""
    for file, run in RUNS.items():
        for path in ROOT.glob(f"solutions/[0-9][0-9]_{unit}/{file}"):
            names = {gap for gap in gaps.answers(path.read_text()) if gap not in RANDOM and (not wanted or gap in wanted)}
            runs = {gap: OF_GAP.get((file, gap), (run,)) for gap in names}
            of_runs = {one: see(folder, path, one) for one in set(runs.values())}
            right = {gap: of_runs[one] for gap, one in runs.items()}
            if failures := [seen["failure"] for seen in right.values() if seen["failure"]]:
                sys.exit(f"tests.bench.proof_ranks: the solution of {file} itself does not run: {failures[0]}")
            for wrong, answers in zip((True, False), known(unit, path.parent.name if path.parent.name in ("pytorch", "chainer") else None)):
                for answer in (answer for answer in answers if answer["gap"] in names):
                    gap = answer["gap"]
                    problem = problem_of(right[gap], see(folder, path, runs[gap], {gap: answer["code"]}), wrong, gap)
                    value, target = "differs" if problem else "the same", "differs" if wrong else "the same"
                    yield f"{unit} {answer['gap']}: {answer['name']}"[:74], value, target if value == target else f"{target} <-- missed"
                    if problem:
                        yield f"    {problem}"[:150], "", ""


def problem_of(right, found, wrong, gap=""):
    """How what was seen differs from what the solution does, in words; "" if it does not. A right answer may send other messages."""
    for what in ("failure", "total" if gap in DIVIDED and not wrong else "result", *["messages"] * wrong):
        if not alike(found[what], right[what]):
            return difference(what, found[what], right[what])
    return ""


def see(folder, path, runs, instead=None):
    """What the ranks do: {"failure": "" or its last line, "result": what they compute, "total": the same with the ranks' gradients added up,
    "messages": of each rank, name -> calls; and what they hold}.

    path: of a solution; instead: {gap: code in place of the solution's}."""
    prepare(Path(folder))
    found = {"failure": "", "result": [], "total": [], "messages": []}
    for run in runs:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            write_scripts(Path(place), path, run, instead or {})
            for options in run.options:
                out = Path(place, "out")
                seen = (in_mpi if run.mpi else in_torchrun)(Path(place), run, options.format(folder=folder).split(), out)
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
    """Write the script of a Run into the folder `place`, and in its track those beside it. path, instead: as for `see`."""
    for script in path.parent.glob("*.py"):
        if script.name == path.name or path.parent.name in ("pytorch", "chainer"):
            file = f"exercises/{script.relative_to(ROOT / 'solutions')}"
            beside = dict([run.beside[1:]]) if run.beside[:1] == (script.name,) else {}
            text = solved(file, **(instead if script.name == path.name else beside))
            (place / script.name).write_text(text.replace(*run.replaced) if script.name == run.script and run.replaced[0] else text)


def staleness(logs, workers):
    """What is the same in each run of a parameter server with a slow worker: how many gradients it has used in each epoch, and whether one was
    so stale that nobody has waited for the slow worker."""
    times = [{int(name.split()[1]): value for name, value in row.items() if name.startswith("staleness")} for log in logs for row in log]
    return [[sum(row.values()) for row in times], max((number for row in times for number in row), default=0) >= workers]


def prepare(folder):
    """Make the data sets of the runs in a folder."""
    if not (folder / "data.npz").exists():
        watched_script.write_images(folder / "data.npz", 24, 5)
        map_files.write("digits", folder / "digits_files", say=lambda line: None)


def in_torchrun(place, run, options, out):
    """Run a script as torchrun does. The options and the result are those of `see`."""
    nodes = [f"node{rank * run.nodes // run.ranks}" for rank in range(run.ranks)]
    run_in_processes("pytorch", nodes, str(place / run.script), options, str(out))
    seen = notes(out)
    of_ranks = [noted for _, noted in ranks(seen)]
    updates = [[value for what, value in noted if what == "update"] for noted in of_ranks]
    computed = trained(of_ranks) if run.script == "from_scratch.py" else [one for one in updates if one]
    lines = [_rounded(line) for line in (out / "printed").read_text().splitlines() if "mean losses" in line]
    messages = [dict(collections.Counter(value for what, value in noted if what in ("wait", "operation", "work"))) for noted in of_ranks]
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


def trained(of_ranks):
    """What from_scratch.py does, whatever its seed: the sizes of each rank's batches, and whether all ranks end with the same parameters."""
    sizes = [[len(batch) for what, batch in noted if what == "train"] for noted in of_ranks]
    ends = [value["parameters"] for noted in of_ranks for what, value in noted if what == "end"]
    return [sizes, len(ends), all(alike(one, ends[0]) for one in ends)]


def in_mpi(place, run, options, out):
    """Run a script by mpiexec, as `in_torchrun`; its messages are not noted."""
    command = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(run.ranks), sys.executable, run.script, *options, "-o", str(out)]
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {"failure": "it waits for ever", "result": [], "total": [], "messages": []}
    failure = f"it fails ({(done.stderr.strip().splitlines() or ['nothing printed'])[-1]:.120})" if done.returncode else ""
    lines = sorted(re.sub(r" [\d.]+s$", "", line) for line in done.stdout.splitlines() if run.printed and re.search(run.printed, line))
    return {"failure": failure, "result": lines, "total": list(lines), "messages": []}


def results(out, wanted):
    """What the results in a folder say, without seconds: the log of a training, the rows of a table. wanted: tells by its name whether a value
    is."""
    found = []
    for path in sorted(out.glob("**/*.json")):
        content = json.loads(path.read_text())
        log = (content.get("log") or content.get("rows") or [content.get("split", {})]) if isinstance(content, dict) else []
        measured = {"elapsed_time", "seconds", *["bytes"] * ("epoch" in (log or [{}])[0])}  # of a node's interfaces, whoever sends
        found.append([{name: value for name, value in row.items() if name not in measured and wanted(name)} for row in log])
    return found


def held(out):
    """What a right answer may do otherwise: the most that each part of a rank's memory has held where it was counted, in steps of a tenth, and how
    long the stages of a pipeline wait, and hold what."""
    found = []
    for path in sorted(out.glob("**/*.json")):
        content = json.loads(path.read_text())
        if path.name == "pipeline.json":
            timeline = simulate(content["schedule"])
            found.append([timeline.bubble, timeline.held])
        elif path.name.startswith("memory_rank"):
            found.append([round(10 * math.log(1 + size)) for size in content["most"].values()])
    return found


def main(unit, *wanted):
    with tempfile.TemporaryDirectory() as folder:
        for what, value, target in rows(folder, unit, wanted):
            print(f"  {what:<74} {value:>9}  {target}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
