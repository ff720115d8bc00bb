"""Whatever a submission does, its score is not above that of its answer, nothing of it is left, it has read and written
nothing that it should not, and the next one is graded as if it had never been."""

import json
import os
import secrets
import socket
import tempfile
import time
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from unittest import mock

import psutil
import pytest
import sandbox_runs
from waiting import wait_until

from grader import exercises, judging, run_probes
from grader.course import UNITS
from grader.exercises import solved
from grader.instructors.grade import work
from grader.probes import FOR_SCRIPTS
from grader.sandbox import Limits, Server
from grader.verdict import GRADER_FAULT, TIMEOUT

pytestmark = [pytest.mark.thorough, sandbox_runs.needs_strong]

ROOT = Path(__file__).resolve().parents[2]
SUBMISSIONS = tomllib.loads((ROOT / "answers/forged/hostile.toml").read_text())["submission"]
LIMITS = Limits(cpu_seconds=2, wall_seconds=20, memory_bytes=512 << 20, processes=48)
# seconds of CPU for what no time would be enough for, and for what ends by itself, whole runs among them
NEVER_ENDS, ENDS = 1, 10
PLACES = {  # gap: (unit, the end of its file's name)
    "optimizer": ("single_gpu", "pytorch/train_cifar_single_gpu.py"),
    "run": ("single_gpu", "pytorch/train_cifar_single_gpu.py"),
    "step": ("multi_gpu", "pytorch/train_cifar_multi_gpu.py"),
    "sampler": ("multi_gpu", "pytorch/train_cifar_multi_gpu.py"),
    "throughput": ("multi_gpu", "pytorch/train_cifar_multi_gpu.py"),
    "limit": ("single_gpu", "01_single_gpu.ipynb"),
    "loader": ("profiling", "slow_loading.py"),
    "losses": ("profiling", "waiting_every_step.py"),
}
NEIGHBOURS = {"optimizer": "throughput", "step": "replica"}  # a right gap that comes after it in the same ranks
RIGHT = {
    "optimizer": "optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)",
    "step": (
        "optimizer.zero_grad()\noutputs = model(images)\nloss = F.cross_entropy(outputs, labels)\nloss.backward()\n"
        "optimizer.step()"
    ),
}
WRONG = {
    "optimizer": "optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)",
    "step": ("outputs = model(images)\nloss = F.cross_entropy(outputs, labels)\nloss.backward()\noptimizer.step()"),
    "sampler": "sampler = torch.utils.data.RandomSampler(train_set)",
    "throughput": "images = throughput = 1",
    "limit": "return 0",
    "loader": (
        "train_loader = DataLoader(train_set, args.batchsize, sampler=sampler, collate_fn=lambda batch:"
        " default_collate([(decode(file), label) for file, label in batch]))"
    ),
    "losses": (
        "mean = loss.detach() / dist.get_world_size()\ndist.all_reduce(mean)\nlosses.append(mean.item())\ndist.barrier()"
    ),
}


class World:
    """A server, secrets around it that no submission may read, and folders in which none may write."""

    def __init__(self, folder):
        self.folder, self.token = folder, secrets.token_hex(8)
        names = (
            "gradebook.sqlite",
            ".ssh/id_ed25519",
            "security/ipcontroller-engine.json",
            "another/exercises/train.py",
        )
        self.secrets = [folder / name for name in names]
        for path in self.secrets:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"CANARY-{self.token}-{path.name}")
        self.canaries = [
            *map(str, self.secrets),
            f"/proc/{os.getpid()}/environ",
            str(ROOT / "solutions"),
            str(ROOT / "grader/units/multi_gpu/instructors"),
        ]
        self.leaks = [
            self.token,
            "LEAKED",
            "BEGIN SOLUTION",
            (ROOT / "grader/units/multi_gpu/instructors/hidden_pytorch.toml").read_text().splitlines()[0],
        ]
        self.outside = [folder, ROOT, ROOT / "grader", Path.home(), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.server = Server(FOR_SCRIPTS)

    def code(self, submission):
        answers = RIGHT if submission.get("right") else WRONG
        gap = filled(submission.get("gap", "optimizer"))
        code = submission["code"].strip("\n")
        for name, value in {
            "canaries": self.canaries,
            "outside": list(map(str, self.outside)),
            "port": self.listener.getsockname()[1],
        }.items():
            code = code.replace(f"{{{name}}}", str(value))
        return code.replace("ANSWER", answers[gap]) if "\nANSWER\n" in code else f"{code}\n{answers[gap]}"

    def verdicts(self, gap, code, cpu_seconds=None):
        unit, file = PLACES[gap]
        part = next(part for part in UNITS[unit] if part.file.endswith(file))
        text = solved(part.file, **{filled(gap): code})
        checks = {check.gap: check for check in part.checks}
        only = replace(part, checks=tuple(checks[name] for name in (gap, NEIGHBOURS.get(gap)) if name))
        with mock.patch.object(run_probes, "LIMITS", replace(LIMITS, cpu_seconds=cpu_seconds or LIMITS.cpu_seconds)):
            found = list(judging.judge(unit, (only,), lambda file: text, self.server, readable=work.readable(), seed=7))
        assert all(verdict.points == verdict.max_points for verdict in found if verdict.gap != gap), (
            "it costs another gap points"
        )
        return [verdict for verdict in found if verdict.gap == gap]


def seconds(submission):
    """The limit of CPU seconds, if LIMITS has another one: a whole run takes more than 2 on a busy machine."""
    return (
        NEVER_ENDS
        if submission.get("status") == TIMEOUT
        else ENDS
        if submission.get("gap") in ("loader", "losses")
        else None
    )


def filled(gap):
    """The gap that the code is put into: the whole run is checked with a wrong optimizer."""
    return "optimizer" if gap == "run" else gap


def score(verdicts):
    return sum(verdict.points for verdict in verdicts)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("world")
        world = World(folder)
        patch.setenv("TOKEN", f"CANARY-{world.token}-environment")
        patch.setattr(run_probes, "LIMITS", LIMITS)
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("workplaces")))
        world.server.start()
        world.honest = {
            gap: world.verdicts(gap, f"# CANARY-{world.token}-earlier\n{WRONG[filled(gap)]}") for gap in PLACES
        }
        yield world
        world.server.stop()
        world.listener.close()


@pytest.mark.parametrize("submission", [pytest.param(one, id=one["name"]) for one in SUBMISSIONS])
def test_nothing_is_gained_and_nothing_is_left(world, submission):
    gap = submission.get("gap", "optimizer")
    found = world.verdicts(gap, world.code(submission), seconds(submission))
    if submission.get("status") == GRADER_FAULT:  # it looks like the machine's fault, and is never graded
        assert {(verdict.status, verdict.points) for verdict in found} == {(GRADER_FAULT, None)}, found
        return
    assert GRADER_FAULT not in {verdict.status for verdict in found}, found
    if submission.get("right"):
        assert score(found) == sum(verdict.max_points for verdict in found), found
    else:
        assert score(found) <= score(world.honest[gap]), found
    if "status" in submission:
        assert {verdict.status for verdict in found} == {submission["status"]}, found
    assert any(submission.get("says", "") in verdict.message for verdict in found), found
    told = "".join(str(value) for verdict in found for value in asdict(verdict).values())
    assert not [leak for leak in world.leaks if leak in told], told
    assert len(told) < 50_000
    assert not [folder for folder in world.outside if (folder / "hostile_was_here").exists()]
    assert all(world.token in path.read_text() for path in world.secrets)
    assert not os.listdir(tempfile.gettempdir()), "a workplace was left"
    wait_until(lambda: not psutil.Process(world.server.process.pid).children(recursive=True), "no process is left", 10)
    following = world.verdicts("optimizer", RIGHT["optimizer"])
    assert score(following) == sum(verdict.max_points for verdict in following), following


SCRIPT, JOB, NOTEBOOK = (part.file for part in UNITS["single_gpu"] if part.track == "pytorch" or not part.track)
WHOLE = {
    "null characters": (SCRIPT, lambda right: b"\0" * 1000 + right),
    "no text at all": (SCRIPT, lambda right: bytes(range(256)) * 100),
    "a hundred thousand lines": (SCRIPT, lambda right: right + b"x = 1\n" * 100_000),
    "the same line again and again": (SCRIPT, lambda right: right + right.splitlines(keepends=True)[-1] * 2500),
    "nested as deep as can be": (SCRIPT, lambda right: right + b"x = " + b"-" * 50_000 + b"1\n"),
    "attributes of attributes": (SCRIPT, lambda right: right + b"x = a" + b".a" * 25_000 + b"\n"),
    "a line that is slow to read": (SCRIPT, lambda right: right + b"x = f'" + b"{1}" * 17_000 + b"'\n"),
    "exits when it is imported": (
        SCRIPT,
        lambda right: right.replace(b"import torch\n", b"import torch\nimport os\nx = os._exit(0)\n", 1),
    ),
    "empty lines before mpiexec": (JOB, lambda right: right + b"\n" * 2900 + b"mpiexec"),
    "a number with ten thousand digits": (JOB, lambda right: right + b"mpiexec -n " + b"9" * 10_000 + b"\n"),
    "a select with ten thousand chunks": (
        JOB,
        lambda right: b"#!/bin/bash\n#PBS -l select=" + b"1+" * 10_000 + b"1\n" + right,
    ),
    "cells of empty lines": (NOTEBOOK, lambda right: cells("\n" * 90_000)),
    "cells nested as deep as can be": (
        NOTEBOOK,
        lambda right: cells("def f():\n    return a" + ".b" * 280, "x = " + "+".join("1" * 900)),
    ),
    "a hundred thousand cells": (NOTEBOOK, lambda right: cells(*["x = 1"] * 100_000)),
    "JSON nested as deep as can be": (NOTEBOOK, lambda right: b"[" * 100_000 + b"]" * 100_000),
    "JSON that is no notebook": (
        NOTEBOOK,
        lambda right: b'{"nbformat": 4, "cells": [1, {"cell_type": "code", "source": [1, {}]}]}',
    ),
}


def cells(*sources):
    return json.dumps(
        {"nbformat": 4, "cells": [{"cell_type": "code", "source": source} for source in sources]}
    ).encode()


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_that_is_hard_to_read_is_judged_in_time(world, name):
    file, change = WHOLE[name]
    [part] = [part for part in UNITS["single_gpu"] if part.file == file]
    data, begin = change(solved(file).encode()), time.process_time()
    found = list(
        judging.judge(
            "single_gpu",
            (part,),
            lambda file: exercises.handed_in(file, data),
            world.server,
            readable=work.readable(),
            seed=7,
        )
    )
    assert GRADER_FAULT not in {verdict.status for verdict in found}, found
    assert time.process_time() - begin < 20
    assert score(found) <= sum(verdict.max_points for verdict in found) and len(str(found)) < 100_000


def test_code_that_names_what_is_outside_of_its_gap_is_pointed_out(world):
    code = (
        "from grader.sandbox import protocol as messages\npack = messages.pack\nmessages.pack = lambda thing:"
        " pack({'observations':"
        " [{'samples': [], 'lengths': []}]})\n"
    )
    assert all(
        "a person should look at it" in verdict.message
        for verdict in world.verdicts("sampler", f"{code}{WRONG['sampler']}")
    )
    assert not any("a person" in verdict.message for verdict in world.verdicts("sampler", WRONG["sampler"]))


def test_there_are_enough_of_them():
    assert len({one["name"] for one in SUBMISSIONS}) == len(SUBMISSIONS) >= 50
