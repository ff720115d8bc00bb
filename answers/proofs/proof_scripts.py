"""Known answers run in the real scripts: a right one does what the solution does, and a number shows that a wrong one
does not.

A track is the folder of a script: pytorch, chainer, or another system. The
scripts train on a few small images, all other gaps filled by the solution: from the start and, where they can, resumed.
`watched_script` notes what they do.
"""

import collections
import contextlib
import json
import math
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from answers.known import of_part
from answers.proofs import of_unit, watched_script
from grader import gaps
from grader.course import UNITS
from grader.exercises import solved
from handson import frameworks
from tests.bench.runs import ROOT

LIMIT = 90  # seconds for one run, on a busy machine
PRELOADED = (  # by the process that those of the scripts are forked from
    "answers.proofs.watched_script",
    "handson.pytorch.communicator",
    "handson.training.image_files",
    "handson.chainer.reports",
    "handson.chainer.updaters",
)
OF_SYSTEMS = {"lightning": ("handson.lightning.reports",), "accelerate": ("handson.accelerate",)}
NODES = ("a", "b", "b")  # of the ranks of a multi-node run
PARTS = ("forward", "backward", "all-reduce", "optimize")  # the ranges of the gap `mark`
# by every script
LOGGED = ("epoch", "iteration", "main/loss", "main/accuracy", "validation/main/loss", "validation/main/accuracy")
DEALS = ("split", "scatter", "iterators", "shard")  # gaps that may deal the images out at random in more than one way


def measure(folder):
    """Rows (what, value, target) of all known answers to the gaps of training scripts."""
    for unit, parts in UNITS.items():
        for part in parts:
            wrong, right = ([{"unit": unit, **asdict(answer)} for answer in answers] for answers in of_part(unit, part))
            yield from rows(folder, part.file.split("/")[-2], right, wrong)


def rows(folder, track, right, wrong):
    """Rows (what, value, target) of known answers."""
    answers = [{**answer, "right": some is right} for some in (right, wrong) for answer in some]
    for answer, difference in differences(folder, track, answers):
        value, target = "differs" if difference else "the same", "the same" if answer["right"] else "differs"
        yield (f"{answer['unit']} {answer['gap']}: {answer['name']}"[:74], value, target)
        if difference:
            yield f"    {difference}", "", ""


def differences(folder, track, answers):
    """Pairs (answer, how its runs differ from the solution's: words, "" where nothing differs) of those `answers` that
    belong to scripts."""
    of_scripts = collections.defaultdict(list)
    for answer in answers:
        if file := file_of(answer["unit"], answer["gap"], track):
            of_scripts[file].append(answer)
    for file, some in of_scripts.items():
        with tempfile.TemporaryDirectory(prefix="proof-", dir=folder) as folder_of_script:
            script = Script(Path(folder_of_script), file, track)
            right, wrong = ([answer for answer in some if answer["right"] == is_right] for is_right in (True, False))
            for together in filter(None, (right, *([answer] for answer in wrong))):
                yield from zip(together, script.differences(together))


def file_of(unit, gap, track):
    """The file below exercises/ of the training script that has this gap; None if none has, or there is no case for
    it."""
    for path in (
        () if track not in of_unit(unit, "CASES") else sorted(ROOT.glob(f"solutions/[0-9][0-9]_{unit}/{track}/*.py"))
    ):
        if gap in gaps.answers(path.read_text()):
            return f"exercises/{path.relative_to(ROOT / 'solutions')}"
    return None


class Script:
    """A training script, and what is seen of its runs in `folder` with answers in place of the solution."""

    def __init__(self, folder, file, track):
        self.folder, self.file, self.track, self.unit = folder, file, track, file.split("/")[1][3:]
        self.case, self.texts = of_unit(self.unit, "CASES")[track], 0
        watched_script.write_images(folder / "data.npz", self.case.images, 5)
        watched_script.write_images(folder / "few.npz", self.case.images, 2)  # fewer than the ranks
        watched_script.write_images(folder / "more.npz", self.case.more_images, 5)
        self.solution = self.see(
            [
                (
                    {},
                    sorted(
                        {
                            run
                            for gap in gaps.answers((ROOT / file.replace("exercises", "solutions")).read_text())
                            for run in self.runs(gap)
                        }
                    ),
                )
            ]
        )[0]
        if failures := [
            f"{run}: {notes['failure']}"
            for run, notes in self.solution.items()
            if notes["failure"] and run != "without numbers"
        ]:
            sys.exit(f"answers.proofs.proof_scripts: the solution of {file} itself does not run {', '.join(failures)}")

    def options(self, run):
        """The script's options for one of the `runs`."""
        # Rounding grows with the rate: at 0.019, a right answer differed by more than `alike` allows. Wrong answers
        # have rates of 0.01 and 0.02.
        always = (
            f"-g {self.case.gpus} -b {self.case.batchsize} --size 64 --lr 0.012 --seed 3 --dataset"
            f" {self.folder}/data.npz -e".split()
        )
        return (
            always
            + {
                # more images than small caches hold
                "from the start": ["4", "--size", "8"] if self.file.endswith("slow_loading.py") else ["2"],
                "resumed": ["3", "--resume", f"{self.folder}/{self.texts}/from the start/snapshot_epoch_1"],
                "with 2 test images": ["1", "--dataset", f"{self.folder}/few.npz"],
                "with another seed": ["2", "--seed", "4"],
                "with more images": ["2", "--dataset", f"{self.folder}/more.npz"],
                "on one node": ["1"],
                "with a GPU named twice": ["1", "-g", "2,2"],
                "with double buffering": ["2", "--double-buffering"],
                "without numbers": ["1", "-g", self.case.gpus[0]],
            }[run]
        )

    def runs(self, gap):
        """The names of the runs that show what a gap does."""
        which = {
            "resumed": self.track == "chainer",  # the other scripts write no snapshots
            "with 2 test images": gap in ("evaluator", "validation"),
        }
        which["with another seed"] = gap in (*DEALS, "shuffle")
        which["without numbers"] = gap == "losses" and self.unit == "profiling"
        which["with more images"] = self.case.more_images and gap in (*DEALS, "shuffle", "throughput")
        if (self.unit, self.track) == ("multi_node", "pytorch"):
            which |= {"on one node": gap == "evaluator", "with a GPU named twice": gap == "device"}
        which["with double buffering"] = gap == "optimizer" and (self.unit, self.track) == ("multi_node", "chainer")
        return ["from the start", *(run for run, asked in which.items() if asked)]

    def nodes(self, run):
        """Of the ranks of one of the `runs`."""
        return {"multi_node": ("a", "a") if run == "on one node" else NODES, "frameworks": ("a", "b")}.get(
            self.unit, ("a",)
        )

    def differences(self, answers):
        """How each of the `answers` differs from the solution, in words."""
        asked = [({answer["gap"]: answer["code"]}, self.runs(answer["gap"])) for answer in answers]
        return [next(self.compare(answer["gap"], seen), "") for answer, seen in zip(answers, self.see(asked))]

    def compare(self, gap, seen):
        """Sentences about what differs from the solution in what was `seen` (run -> notes)."""
        for run, notes in seen.items():
            shown = {"without numbers": steps_alone, "with more images": shared_out}.get(run, facts)
            mine, right = shown(gap, notes), shown(gap, self.solution[run])
            as_right = counts_of_steps(notes) if gap == "throughput" else {}
            for what, value in right.items():
                if not alike(mine.get(what), value) and not alike(mine.get(what), as_right.get(what, value)):
                    yield f"{run}: {mine.get('failure') or difference(what, mine.get(what), value)}"
                    break
        if "with another seed" in seen and not any(notes["failure"] for notes in seen.values()):
            for dealt in {"shuffle": (changes_of_order,), "iterators": (shards, changes_of_order)}.get(gap, (shards,)):
                if dealt(seen["with another seed"]) == dealt(seen["from the start"]):
                    yield f"the same {dealt.__name__} with another seed".replace("_", " ")
            if gap != "shuffle" and "resumed" in seen and shards(seen["resumed"]) != shards(seen["from the start"]):
                yield "resumed: other shards than in a run that goes on"
            if (
                gap == "shuffle"
                and "resumed" in seen
                and orders(seen["resumed"]) != orders(seen["from the start"], epoch=1)
            ):
                yield "resumed: other orders than in a run that goes on"
            if (
                gap == "shuffle"
                and "resumed" in seen
                and orders(seen["resumed"], epoch=1) == orders(seen["from the start"])
            ):
                yield "the third epoch has the order of the first"

    def see(self, asked):
        """For each of the `asked` ({gap: code}, runs): {run: its notes}."""
        jobs = []
        for instead, runs in asked:
            self.texts += 1
            folder = self.folder / str(self.texts)
            path = folder.joinpath(*self.file.split("/")[1:])
            path.parent.mkdir(parents=True)
            path.write_text(solved(self.file, **instead))
            jobs.append({run: (str(path), self.options(run), str(folder / run)) for run in runs})
        if (self.unit, self.track) == ("multi_node", "chainer"):
            run_in_mpi([job for of_text in jobs for job in of_text.values()], self.folder / "jobs.json")
        else:
            for name, job in (one for of_text in jobs for one in of_text.items()):
                run_in_processes(self.track, self.nodes(name), *job)
        return [{run: notes(Path(output)) for run, (_, _, output) in of_text.items()} for of_text in jobs]


def run_in_processes(track, nodes, script, options, output):
    """Run a script as torchrun does, a rank for each of the `nodes`; a single rank is a process without a launcher."""
    if track in OF_SYSTEMS:
        frameworks.add()  # each process gets this one's path, whatever it was forked from
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, *OF_SYSTEMS.get(track, ())])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    launcher = (
        {"WORLD_SIZE": str(len(nodes)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} if len(nodes) > 1 else {}
    )
    ranks = []
    for rank, node in enumerate(nodes):
        environment = launcher | {"HANDSON_NODE": node}
        if launcher:
            environment |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(nodes[:rank].count(node)),
                "LOCAL_WORLD_SIZE": str(nodes.count(node)),
                "TORCHELASTIC_RUN_ID": "proof",
            }
        ranks.append(
            context.Process(target=watched_script.main_of_process, args=(track, script, options, output, environment))
        )
        ranks[-1].start()
    end = time.monotonic() + LIMIT
    while (
        any(rank.is_alive() for rank in ranks) and time.monotonic() < end and not any(rank.exitcode for rank in ranks)
    ):
        multiprocessing.connection.wait([rank.sentinel for rank in ranks if rank.is_alive()], timeout=1)
    succeeded = all(rank.exitcode == 0 for rank in ranks)
    for rank in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(rank.pid, signal.SIGKILL)  # its workers, too
        rank.kill()
        rank.join()
    if succeeded:
        Path(output, "ended").touch()


def run_in_mpi(jobs, file):
    """Run scripts one after another in the same MPI ranks: an error ends them all."""
    file.write_text(json.dumps(jobs))
    rank = [sys.executable, "-m", "answers.proofs.watched_script", str(file)]
    command = ["mpiexec"]
    for node in NODES:
        command += ["-n", "1", "-env", "HANDSON_NODE", node, *rank, ":"]
    with open(file.with_suffix(".printed"), "w") as printed:
        process = subprocess.Popen(command[:-1], cwd=ROOT, stdout=printed, stderr=printed)
    try:
        process.wait(LIMIT + 5 * len(jobs))
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
    for _, _, output in jobs:
        if Path(output).is_dir() and not Path(output, "ended").exists():
            Path(output, "printed").write_text(Path(printed.name).read_text())


def notes(output):
    """What the run with this output folder has noted: {"failure": "" or its last line, "log": of its result, "printed":
    the numbers of images in its lines with the throughput, rank: [[what, value], ...]}."""
    found = collections.defaultdict(list, failure="", log=[])
    for path in sorted(output.glob("*.notes")):
        for line in path.read_text().splitlines():
            rank, *one = json.loads(line)
            found[rank].append(one)
    if (result := output / "result.json").exists():
        found["log"] = [
            {name: value for name, value in epoch.items() if name != "elapsed_time"}
            for epoch in json.loads(result.read_text())["log"]
        ]
    printed = (output / "printed").read_text().split("\n") if (output / "printed").exists() else []
    found["printed"] = [line.partition("(")[2].partition(" /")[0] for line in printed if line.startswith("Throughput:")]
    if not (output / "ended").exists():
        errors = [line for line in printed if "Error" in line] or [line for line in printed if line.strip()]
        found["failure"] = f"it fails or waits for ever ({errors[-1][:150] if errors else 'nothing printed'})"
    return found


def ranks(notes):
    """Pairs (rank, its notes), in order."""
    return sorted((f"rank {rank}", noted) for rank, noted in notes.items() if rank not in ("failure", "log", "printed"))


def values(noted, what):
    return [value for name, value in noted if name == what]


def shards(notes):
    """Which images each rank trains on."""
    return [sorted({image for batch in values(noted, "train") for image in batch}) for _, noted in ranks(notes)]


def orders(notes, epoch=0):
    """The order of each rank's images in one of the epochs of a run."""
    return [epochs(noted)[epoch : epoch + 1] for _, noted in ranks(notes)]


def changes_of_order(notes):
    """For each rank: the places in its first epoch of the images of its second one, which do not depend on which images
    the rank has."""
    first, second = orders(notes), orders(notes, epoch=1)
    places = [{image: place for of_epoch in of_rank for place, image in enumerate(of_epoch)} for of_rank in first]
    return [[place.get(image) for of_epoch in of_rank for image in of_epoch] for place, of_rank in zip(places, second)]


def epochs(noted):
    """A rank's images in the order in which it trains on them, in each epoch."""
    images = sum(values(noted, "train"), [])
    length = len({*images}) or 1
    return [images[begin : begin + length] for begin in range(0, len(images), length)]


def facts(gap, notes):
    """What has to be as with the solution for an answer to `gap` to be right: what -> value."""
    found = {
        "failure": notes["failure"],
        "GPU ids": {rank: list(dict.fromkeys(values(noted, "gpu"))) for rank, noted in ranks(notes)},
    }
    ends = {rank: values(noted, "end") or [{}] for rank, noted in ranks(notes)}
    for what in "images", "throughput * seconds", *["all steps are in the seconds"] * (gap == "step"):
        found[what] = {rank: end[-1].get(what) for rank, end in ends.items()}
    if gap in (*DEALS, "shards"):
        return found | deals(gap, notes)
    if gap == "shuffle":
        return found | shuffles(notes)
    found["training batches"] = {rank: values(noted, "train") for rank, noted in ranks(notes)}
    found["test images"] = {rank: sorted(sum(values(noted, "test"), [])) for rank, noted in ranks(notes)}
    found["parameters"] = {rank: end[-1].get("parameters") for rank, end in ends.items()}
    found["epochs"] = {rank: values(noted, "epoch") for rank, noted in ranks(notes)}
    # evaluation depends on running means, which a replica may send or not
    logged = ("main/loss", "main/accuracy") if gap == "replica" else LOGGED
    found["log"] = [{name: value for name, value in epoch.items() if name in logged} for epoch in notes["log"]]
    if gap == "throughput":
        found["printed"] = notes["printed"]
        found["results"] = {rank: len(values(noted, "report")) for rank, noted in ranks(notes)}
    if gap == "updater":
        found["batches sent to the device"] = {rank: batches_sent(noted) for rank, noted in ranks(notes)}
    if gap == "prepare":  # where gradients are scaled or accumulated, and in checkpoints, Accelerate cares for these
        found["optimizers that Accelerate knows"] = {
            rank: len(values(noted, "prepared")) for rank, noted in ranks(notes)
        }
    if gap == "devices":
        found["devices"] = {rank: values(noted, "devices") for rank, noted in ranks(notes)}
    if gap == "loader":
        found["files decompressed again"] = {rank: again(values(noted, "decompress")) for rank, noted in ranks(notes)}
        for what in "pooled", "scaled":
            found[f"images {what} again"] = {rank: again(sum(values(noted, what), [])) for rank, noted in ranks(notes)}
    if gap == "losses":
        found["waits between steps"] = {rank: waits(noted) for rank, noted in ranks(notes)}
    if gap == "mark":
        found["ranges"] = {rank: ranges(noted) for rank, noted in ranks(notes)}
    return found


def counts_of_steps(notes):
    """What the gap `throughput` may count as well: the images of all steps, of which the last one takes some of another
    epoch."""
    count = sum(len(batch) for _, noted in ranks(notes) for batch in values(noted, "train"))
    reported = {
        rank: float(count) if any("images" in end for end in values(noted, "end")) else None
        for rank, noted in ranks(notes)
    }
    return {"images": reported, "throughput * seconds": reported, "printed": [str(count)]}


def shared_out(gap, notes):
    """What ranks have in common that don't have equally many full batches: all make as many steps, and no image is left
    out for good."""
    steps = {len(values(noted, "train")) for _, noted in ranks(notes)}
    found = {
        "failure": notes["failure"],
        "images of all ranks": len({*sum(shards(notes), [])}),
        "all ranks make as many steps": len(steps) == 1,
    }
    counted = facts(gap, notes) if gap == "throughput" else {}
    return found | {what: counted[what] for what in ("images", "throughput * seconds") if counted}


def steps_alone(gap, notes):
    """How far a run comes whose network has no numbers, and how many of its threads fail."""
    return {
        what: {rank: len(values(noted, name)) for rank, noted in ranks(notes)}
        for what, name in (("steps", "operation"), ("threads that fail", "fails"))
    }


def again(values):
    """How many of the values have been there before."""
    return len(values) - len({*values})


def deals(gap, notes):
    """How the images were dealt out."""
    mine = shards(notes)
    every = sum((values(noted, "train") for _, noted in ranks(notes)), [])
    times = collections.Counter(collections.Counter(sum(every, [])).values())
    tests = collections.Counter(sum((sum(values(noted, "test"), []) for _, noted in ranks(notes)), []))
    found = {"times an image is taken: images": dict(times), "images of a rank": sorted(map(len, mine))}
    found["steps"] = [len(values(noted, "train")) for _, noted in ranks(notes)]
    found["wrong labels"] = wrong_labels(notes)
    found["times a test image is taken"] = dict(sorted(tests.items()))
    found["test images of a rank"] = sorted(len({*sum(values(noted, "test"), [])}) for _, noted in ranks(notes))
    found["steps that have not `totals` images"] = sum(wrong_totals(notes))
    if gap == "shards":
        found["pixels of a row"] = sorted({size for _, noted in ranks(notes) for size in values(noted, "pixels")})
        found["steps of the optimizer"] = sorted(values(noted, "operation").count("step") for _, noted in ranks(notes))
        found["images with a loss"] = sorted(sum(map(len, values(noted, "labels"))) for _, noted in ranks(notes))
    if gap == "iterators":
        found["orders"] = shuffles(notes)["orders"]
    if gap != "shards":
        owner = {image: rank for rank, shard in enumerate(mine) for image in shard}
        changes = [owner.get(image) != owner.get(image + 1) for image in range(max(owner, default=0))]
        found["in their order"] = sum(changes) <= len(mine) or all(changes)  # also if they begin elsewhere
    return found


def shuffles(notes):
    """How the images of each epoch were ordered: any order is right that is another one in each epoch and fits
    `totals`, where ranks divide by it."""
    of_ranks = {rank: epochs(noted) for rank, noted in ranks(notes)}
    found = {"images of each epoch": {rank: list(map(sorted, every)) for rank, every in of_ranks.items()}}
    found["orders"] = {rank: len({*map(tuple, every)}) for rank, every in of_ranks.items()}
    found["wrong labels"] = wrong_labels(notes)
    return found | ({"steps that have not `totals` images": sum(wrong_totals(notes))} if len(of_ranks) > 1 else {})


def wrong_labels(notes):
    """How many images have gone through the network with a label that is not their own."""
    wrong = 0
    for _, noted in ranks(notes):
        images = [batch for what, batch in noted if what in ("train", "test")]
        wrong += sum(
            image % 10 != label for pair in zip(images, values(noted, "labels")) for image, label in zip(*pair)
        )
    return wrong


def wrong_totals(notes):
    """Of each step of all ranks: whether the number of its images is not in `totals` of EpochBatches."""
    first = [values(noted, "totals")[:1] for _, noted in ranks(notes)]
    if not all(first):
        return []
    taken = zip(*(map(len, values(noted, "train")) for _, noted in ranks(notes)))
    return [any(sum(step) != totals[0][index % len(totals[0])] for totals in first) for index, step in enumerate(taken)]


def batches_sent(noted):
    """How many training batches were sent to the device of the gap `device`, before they went through the network."""
    sent = count = 0
    for what, _ in noted:
        if what == "sent":
            sent = 1
        elif what in ("train", "test"):
            sent, count = 0, count + sent * (what == "train")
    return count


def waits(noted):
    """How often a rank waits for the device or for others between two steps of an epoch."""
    count = pending = steps = 0
    for what, value in noted:
        if what == "wait" or value == "all-reduce of one":
            pending += 1
        elif what == "train":
            count, pending, steps = count + pending * (steps > 0), 0, steps + 1
        elif what == "epoch":
            steps = 0
    return count


def ranges(noted):
    """How often each operation is in each of the ranges that the gap `mark` names."""
    found, inside = collections.Counter(), []
    for what, value in noted:
        if what == "begin":
            inside.append(value.lower().replace("allreduce", "all-reduce"))
        elif what == "finish":
            inside.pop()
        elif what == "operation":
            found.update(f"{value} in {part}" for part in sorted({*inside} & {*PARTS}) or ["none"])
    return dict(sorted(found.items())) | {"left open": len(inside)}


def difference(what, mine, right):
    """The first place where a fact is not as it should be, in words."""
    if isinstance(right, dict) and isinstance(mine, dict) and mine.keys() == right.keys():
        key = next(key for key in right if not alike(mine[key], right[key]))
        return difference(f"{what}, {key}", mine[key], right[key])
    if isinstance(right, list) and isinstance(mine, list) and len(mine) == len(right) and isinstance(right[0], dict):
        return next(difference(what, one, other) for one, other in zip(mine, right) if not alike(one, other))
    return f"{what}: {str(mine)[:100]}, not {str(right)[:100]}"


def alike(one, other):
    """Whether two facts are equal, numbers to within rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-4)
    return one == other
