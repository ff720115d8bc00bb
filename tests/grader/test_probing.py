"""Gaps of a file share their ranks, which is cheaper; and no verdict depends on that."""

import ast
from dataclasses import replace

import pytest

from grader import run_probes
from grader.course import UNITS
from grader.exercises import solved
from grader.instructors import hidden
from grader.judging import judge
from grader.probes import needs_frameworks
from grader.verdict import ERROR, FAILED, KILLED, PASSED, TIMEOUT
from handson.files import COURSE

PARTS = {(unit, part.track, part.file.rsplit(".")[-1]): part for unit, parts in UNITS.items() for part in parts}
SINGLE, SEVERAL, NOTEBOOK = (
    PARTS["single_gpu", "pytorch", "py"],
    PARTS["multi_gpu", "pytorch", "py"],
    PARTS["multi_gpu", "", "ipynb"],
)
pytestmark = pytest.mark.thorough


class Counting:
    """A server that notes the ranks of each run of student's code."""

    def __init__(self, server):
        self.server, self.runs = server, []

    def run(self, function, arguments=(), ranks=1, *more):
        if "oracles" not in arguments[0][0][0]:
            self.runs.append(ranks)
        return self.server.run(function, arguments, ranks, *more)


def judged(server, part, text, seed=3, cases=None):
    unit = next(unit for unit, parts in UNITS.items() if part.file in {one.file for one in parts})
    return list(judge(unit, (part,), lambda file: text, server, cases, seed=seed))


def said(verdicts):
    return [
        (verdict.gap, verdict.check, verdict.status, verdict.points, verdict.message)
        for verdict in verdicts
        if verdict.gap != "run"
    ]


def test_the_server_has_loaded_what_scripts_import(server):
    """Else each rank of each check imports it."""
    scripts = [
        part.file
        for parts in UNITS.values()
        for part in parts
        if part.file.endswith(".py") and not needs_frameworks(part.file)
    ]
    nodes = [node for script in scripts for node in ast.parse(solved(script)).body]
    imported = [
        (getattr(node, "module", None), alias.name)
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    ]
    wanted = {module or name for module, name in imported}
    wanted |= {
        f"{module}.{name}"
        for module, name in imported
        if module and (COURSE / module.replace(".", "/") / f"{name}.py").exists()
    }
    assert "handson.training.options" in wanted
    [rank] = server.run("tests.grader.misbehaving:loaded").ranks
    neighbours = {path.stem for path in (COURSE / "solutions").rglob("*.py")}
    assert wanted - neighbours - set(rank.observations) == set()


@pytest.mark.parametrize(
    ("part", "runs"), [(SINGLE, [1]), (SEVERAL, [2]), (NOTEBOOK, [1])], ids=["script", "several ranks", "notebook"]
)
def test_right_gaps_that_need_as_many_ranks_share_them(server, part, runs):
    counting = Counting(server)
    part = replace(
        part,
        checks=tuple(check for check in part.checks if all(case.get("ranks", 1) == runs[0] for case in check.cases)),
    )
    assert len(part.checks) > 1
    assert {verdict.status for verdict in judged(counting, part, solved(part.file))} == {PASSED}
    assert sorted(counting.runs) == runs


@pytest.mark.parametrize(
    ("code", "alone"),
    [("images, throughput = 1, 2", 1), ("raise ValueError", 2)],
    ids=["both cases", "then the first case"],
)
def test_a_gap_that_is_wrong_runs_once_more_by_itself(server, code, alone):
    counting = Counting(server)
    found = judged(counting, SINGLE, solved(SINGLE.file, throughput=code))
    assert {verdict.gap for verdict in found if verdict.status != PASSED} == {
        "train_cifar_single_gpu.py:throughput",
        "run",
    }
    assert counting.runs == [1] * (alone + 2), "all, throughput, run"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("torch.set_default_dtype(torch.float16); torch.Tensor.backward = None; raise ValueError", ERROR),
        ("import os; os._exit(0)", KILLED),
        ("while True: pass", TIMEOUT),
        ("import sys, os; sys.stdout.close(); os.close(1); optimizer = None", FAILED),
        ("import os, shutil; here = os.getcwd(); shutil.rmtree(here); os.symlink('/tmp', here); x = 1", FAILED),
        (
            (
                "import random, numpy; numpy.stack = numpy.random = None; DataLoader.__iter__ = lambda self:"
                " iter(())\nx = 1"
            ),
            FAILED,
        ),
    ],
    ids=(
        "changes torch, and raises; exits; never ends; closes its output; "
        "puts a link in place of its folder; breaks numpy and the loader"
    ).split("; "),
)
def test_what_a_gap_does_to_the_process_costs_the_others_nothing(server, monkeypatch, code, status):
    monkeypatch.setattr(run_probes, "LIMITS", replace(run_probes.LIMITS, cpu_seconds=2))
    found = {verdict.gap: verdict.status for verdict in judged(server, SINGLE, solved(SINGLE.file, optimizer=code))}
    assert found.pop("optimizer") == status
    assert found.pop("run") != PASSED
    assert set(found.values()) == {PASSED}


@pytest.mark.parametrize("put_there", ["None", "type('Tee', (), {'write': lambda self, text: None})()"])
def test_another_standard_output_costs_nothing(server, put_there):
    text = solved(SINGLE.file).replace("import time\n", f"import sys\nimport time\n\nsys.stdout = {put_there}\n", 1)
    assert {verdict.status for verdict in judged(server, SINGLE, text)} == {PASSED}


@pytest.mark.parametrize(
    ("part", "gap", "code"),
    [
        (SINGLE, "shuffle", "batches.set_epoch(0)"),
        (SEVERAL, "replica", "replica = model"),
        (SEVERAL, "step", "raise KeyError(comm.rank)"),
        (NOTEBOOK, "efficiency", "return 0"),
        (PARTS["multi_gpu", "chainer", "py"], "throughput", "images, throughput = 1, 2"),
        (PARTS["multi_node", "chainer", "py"], "evaluator", "pass"),
    ],
)
def test_verdicts_are_the_same_as_without_sharing(server, monkeypatch, part, gap, code):
    text = solved(part.file, **{gap: code})
    shared = judged(server, part, text, cases=hidden.cases())
    monkeypatch.setattr(run_probes, "together", lambda *arguments: {})
    assert said(shared) == said(judged(server, part, text, cases=hidden.cases()))


def test_each_gap_has_what_it_printed_itself(server):
    text = solved(
        SINGLE.file,
        device="print('one')\ndevice = devices.use(args.gpu[0])",
        optimizer="print('two')\noptimizer = torch.optim.SGD(model.parameters(), args.lr, 0.9)",
    )
    found = {verdict.gap: verdict.output for verdict in judged(server, SINGLE, text)}
    assert (found["device"], found["optimizer"], found["step"]) == ("one\none\n", "two\n", "")


def test_a_gap_that_prints_what_stands_between_gaps_gets_processes_of_its_own(server):
    counting = Counting(server)
    text = solved(
        SINGLE.file, optimizer="print('two\\x1ethree')\noptimizer = torch.optim.SGD(model.parameters(), args.lr, 0.9)"
    )
    found = {verdict.gap: (verdict.status, verdict.output) for verdict in judged(counting, SINGLE, text)}
    assert found["optimizer"] == (PASSED, "two\x1ethree\n") and found["step"] == (PASSED, "")
    assert len(counting.runs) == 1 + len(SINGLE.checks)
