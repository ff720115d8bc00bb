"""A gap is judged by itself: what is wrong elsewhere in a student's file is said, and costs the other gaps nothing."""

from dataclasses import replace

import pytest

from grader import exercises, judging, run_probes
from grader.checks.check import Check, Criterion
from grader.course import UNITS, name_of_gap
from grader.exercises import solved
from grader.gaps import TextError
from grader.instructors import hidden
from grader.judging import judge
from grader.sandbox import Outcome, RankOutcome
from grader.verdict import (
    DEADLOCK,
    ERROR,
    FAILED,
    GRADER_FAULT,
    KILLED,
    NOT_ATTEMPTED,
    NOT_FOUND,
    OUT_OF_MEMORY,
    PASSED,
    TIMEOUT,
)

SINGLE = next(part for part in UNITS["single_gpu"] if part.track == "pytorch")
SEVERAL = next(part for part in UNITS["multi_gpu"] if part.track == "pytorch")


@pytest.fixture
def verdicts(server):
    """Verdicts by gap, of the first criterion of each."""

    def verdicts(text, *gaps, part=SINGLE):
        checks = tuple(check for check in part.checks if not gaps or check.gap in gaps)
        unit = next(unit for unit, parts in UNITS.items() if part in parts)
        found = {}
        for verdict in judge(unit, (replace(part, checks=checks),), lambda file: text, server):
            found.setdefault(verdict.gap, verdict)
        return found

    return verdicts


def statuses(found):
    return {gap: verdict.status for gap, verdict in found.items()}


def test_one_gap_that_is_still_empty_hides_only_the_run_of_the_whole(verdicts):
    text = solved(SINGLE.file).replace(
        "    train_loader = DataLoader(train_set, args.batchsize, shuffle=True)\n", "    pass\n"
    )
    found = verdicts(text)
    assert statuses(found) == {
        "device": PASSED,
        "optimizer": PASSED,
        "loader": NOT_ATTEMPTED,
        "step": PASSED,
        "train_cifar_single_gpu.py:throughput": PASSED,
        "run": NOT_ATTEMPTED,
    }
    assert found["run"].message == "fill the other gaps first: loader"


def test_a_gap_that_is_judged_by_the_run_of_its_whole_script_is_no_other_gap(verdicts):
    """The scripts of the unit on profiling have one gap each."""
    part = next(part for part in UNITS["profiling"] if part.file.endswith("uneven_work.py"))
    found = verdicts(exercises.given_out(part.file).text, part=part)
    assert {(verdict.status, verdict.message) for verdict in found.values()} == {
        (NOT_ATTEMPTED, "this gap is still to be filled")
    }


def test_a_syntax_error_elsewhere_is_told_with_its_line_and_costs_nothing(verdicts):
    text = solved(SINGLE.file).replace("    start = time.perf_counter()\n", "    start = time.perf_counter(\n")
    line = 1 + text.splitlines().index("    start = time.perf_counter(")
    found = verdicts(text, "optimizer", "run")
    assert found["optimizer"].status == PASSED
    assert (
        f"line {line} of train_cifar_single_gpu.py is not valid Python ('(' was never closed)"
        in found["optimizer"].message
    )
    assert (found["run"].status, f"line {line}" in found["run"].message) == (ERROR, True)


def test_a_syntax_error_in_a_gap_is_the_gaps_and_told_with_its_line(verdicts):
    text = solved(SINGLE.file, optimizer="optimizer = torch.optim.SGD(model.parameters(), lr==args.lr)) ")
    line = next(number for number, line in enumerate(text.splitlines(), start=1) if "lr==args.lr" in line)
    found = verdicts(text, "optimizer", "step")
    assert found["optimizer"].status == ERROR
    assert found["optimizer"].message.endswith(f"(line {line} of train_cifar_single_gpu.py)")
    assert "can't be read" not in found["optimizer"].message
    assert found["step"].status == PASSED


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("x = " + "-" * 20_000 + "1", "this code is nested too deeply to be read"),
        ("x = " + "(" * 5000 + ")" * 5000, "too many nested parentheses"),
    ],
    ids=["deeper than the parser's stack", "brackets"],
)
def test_a_gap_that_is_nested_too_deeply_is_told_to_be_and_not_shown(verdicts, code, words):
    found = verdicts(solved(SINGLE.file, optimizer=code), "optimizer")["optimizer"]
    assert found.status == ERROR and words in found.message and len(found.message) < 1000


def test_an_import_that_fails_is_told_and_costs_nothing_where_it_is_not_needed(verdicts):
    found = verdicts(solved(SINGLE.file).replace("import time\n", "import time\nimport no_such_module\n"), "optimizer")
    assert found["optimizer"].status == PASSED
    assert (
        "line 4 of train_cifar_single_gpu.py fails: ModuleNotFoundError: No module named 'no_such_module'"
        in found["optimizer"].output
    )


def test_the_line_that_raises_must_go(verdicts):
    given = exercises.given_out(SINGLE.file)
    text = given.text.replace(
        'PUT YOUR CODE: device")\n', 'PUT YOUR CODE: device")\n    device = devices.use(args.gpu[0])\n'
    )
    found = verdicts(text, "device")
    assert (found["device"].status, found["device"].message) == (
        FAILED,
        'the line `raise NotImplementedError("PUT YOUR CODE: device")` is still there: remove it',
    )


@pytest.mark.parametrize(
    "text",
    [None, "", "print('something else')\n" * 40, "x = 1\n" * 200_000],
    ids=["no file", "empty", "another", "too long"],
)
def test_without_a_file_or_a_place_nothing_is_found(verdicts, text):
    found = verdicts(text, "device", "step")
    assert set(statuses(found).values()) == {NOT_FOUND}


def test_a_criterion_that_fails_with_another_one_alone_gives_no_hint(server):
    """Nothing is wrong with it: a hint would tell a student to change what is right."""
    text = solved(SINGLE.file, throughput="images = len(train_set)\nthroughput = images / seconds")
    checks = tuple(check for check in SINGLE.checks if check.gap == "throughput")
    wrong, right = judge("single_gpu", (replace(SINGLE, checks=checks),), lambda file: text, server)
    assert wrong.hint and (right.status, right.hint) == (FAILED, "")
    assert right.message == f'this counts only if "{wrong.check}" passes, too'


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        pytest.param(
            "outputs = model(images)\nloss = outputs.sum()\nif dist.get_rank() == 0:\n    loss.backward()",
            DEADLOCK,
            "rank 0 waits in the all-reduce of",
            marks=pytest.mark.thorough,
        ),
        pytest.param("while True:\n    pass", TIMEOUT, "does a loop never end?", marks=pytest.mark.thorough),
        ("import os\nos._exit(0)", KILLED, "the process ended itself with exit status 0"),
        ("import os\nos.kill(os.getpid(), 11)", KILLED, "Segmentation fault"),
        pytest.param(
            "loss = [bytearray(1 << 26) for _ in range(100)]",
            OUT_OF_MEMORY,
            "your code needs more memory than the 512 MiB",
            marks=pytest.mark.thorough,
        ),
        ("raise SystemExit(3)", ERROR, "SystemExit: 3"),
        (
            (
                "outputs = model(images)\nif dist.get_rank() == 1:\n    outputs.no_such_thing\nloss ="
                " outputs.mean()\nloss.backward()"
            ),
            ERROR,
            "rank 1: AttributeError",
        ),
    ],
    ids=["backward on one rank", "loop", "exit", "crash", "memory", "SystemExit", "error on one rank"],
)
def test_what_stops_a_gap_is_named_with_rank_and_line(verdicts, monkeypatch, code, status, words):
    limits = replace(run_probes.LIMITS, memory_bytes=512 << 20)
    monkeypatch.setattr(run_probes, "LIMITS", replace(limits, cpu_seconds=2) if status == TIMEOUT else limits)
    text = solved(SEVERAL.file, step=code)
    (verdict,) = verdicts(text, "step", part=SEVERAL).values()
    assert (verdict.status, verdict.points) == (status, 0)
    assert words in verdict.message
    if status != KILLED:
        assert "of train_cifar_multi_gpu.py)" in verdict.message


@pytest.mark.parametrize(
    ("code", "runs"),
    [
        ("model(images)\ndist.barrier()\nno_such_name", 1),
        pytest.param(
            "if dist.get_rank() == 1:\n    no_such_name\nmodel(images).mean().backward()", 3, marks=pytest.mark.thorough
        ),
    ],
    ids=["on all ranks", "on one rank"],
)
def test_a_gap_that_fails_leaves_the_other_gaps_in_the_ranks_that_they_share(server, verdicts, monkeypatch, code, runs):
    """If it ends the ranks, those before it and those behind it share a run each."""
    together, alone, run = [], [], server.run

    def watched(function, arguments, *others):
        together.extend(["a run"] * function.endswith(":run_isolated"))
        alone.extend(
            source["gap"] for _, sources, _ in arguments[0] for source in sources if function.endswith(":run_all")
        )
        return run(function, arguments, *others)

    monkeypatch.setattr(server, "run", watched)
    found = verdicts(solved(SEVERAL.file, step=code), "shuffle", "step", "throughput", part=SEVERAL)
    assert statuses(found) == {"shuffle": PASSED, "step": ERROR, "throughput": PASSED}
    assert (len(together), alone) == (runs, ["step"])


@pytest.mark.thorough
def test_a_collective_that_one_rank_calls_is_a_deadlock_of_that_rank(verdicts):
    text = solved(
        SEVERAL.file, sampler="if rank:\n    dist.barrier()\nsampler = DistributedSampler(train_set, seed=args.seed)"
    )
    (verdict,) = verdicts(text, "sampler", part=SEVERAL).values()
    assert verdict.status == DEADLOCK
    assert "ranks 1, 2 wait in barrier, but rank 0 never got there (line" in verdict.message


def test_what_gloo_prints_is_not_the_students():
    """That of torch 2.8 does."""
    line = "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1\n"
    assert judging._output(Outcome([RankOutcome(None, output=f"{line}mine\n")])) == "mine\n"
    assert judging._output(Outcome([RankOutcome(None, output=line)])) == ""


def test_what_was_printed_comes_with_the_verdict_rank_by_rank(verdicts):
    text = solved(SEVERAL.file, step="print('here is', dist.get_rank())\nraise ValueError")
    (verdict,) = verdicts(text, "step", part=SEVERAL).values()
    assert "[rank 0]\nhere is 0\n" in verdict.output and "[rank 1]\nhere is 1\n" in verdict.output


def test_a_crash_in_a_case_of_the_grading_hides_nothing_of_the_students_own_cases(server):
    check = next(check for check in SINGLE.checks if check.gap == "throughput")
    code = (
        "images = len(train_set)\nthroughput = images / seconds\nif args.batchsize > 60:\n    raise ValueError('too"
        " large')"
    )
    text = solved(SINGLE.file, throughput=code)
    images, rate = judge("single_gpu", (replace(SINGLE, checks=(check,)),), lambda file: text, server, hidden.cases())
    assert (images.status, "this run trained for 3" in images.message) == (FAILED, True)
    assert rate.status == ERROR
    assert rate.message.endswith("(in the case of a batch larger than the data set, which only the grading has)")


def test_an_oracle_that_fails_is_the_graders_fault_and_no_zero(server):
    check = replace(
        next(check for check in SINGLE.checks if check.gap == "step"),
        oracle="grader.oracles.pytorch_oracles:no_such_oracle",
    )
    found = list(judge("single_gpu", (replace(SINGLE, checks=(check,)),), lambda file: solved(SINGLE.file), server))
    assert {(verdict.status, verdict.points) for verdict in found} == {(GRADER_FAULT, None)}


@pytest.mark.parametrize("unit", UNITS)
def test_no_two_gaps_of_a_unit_have_the_same_name_in_one_track(unit):
    names = [(part.track, name_of_gap(unit, part.file, check.gap)) for part in UNITS[unit] for check in part.checks]
    shared = {name for track, name in names if not track}
    assert len(set(names)) == len(names) and not shared & {name for track, name in names if track}


def _without_inputs(seen, case, expected):
    return None


@pytest.mark.parametrize("code", ["result = 1", "raise KeyError('milliseconds')"])
def test_a_probe_that_asks_for_what_its_case_lacks_is_the_graders_fault(server, code):
    """And not the student's, whatever the student wrote."""
    part = replace(
        SINGLE,
        checks=(
            Check(
                "optimizer", "tests.grader.misbehaving:asks", ({},), (Criterion("it", "it", 1, _without_inputs, ""),)
            ),
        ),
    )
    [found] = judge("single_gpu", (part,), lambda file: solved(SINGLE.file, optimizer=code), server)
    assert (found.status, found.points) == (GRADER_FAULT, None)
    assert "a case of the check has no 'milliseconds'" in found.message


def test_inputs_that_cannot_be_made_are_the_graders_fault_and_cost_no_other_gap(server):
    def given(case):
        raise KeyError("milliseconds")

    checks = tuple(replace(check, given=given) if check.gap == "optimizer" else check for check in SINGLE.checks[:2])
    assert [check.gap for check in checks] == ["device", "optimizer"]
    found = judge("single_gpu", (replace(SINGLE, checks=checks),), lambda file: solved(SINGLE.file), server)
    assert {verdict.gap: (verdict.status, verdict.message) for verdict in found} == {
        "device": (PASSED, ""),
        "optimizer": (GRADER_FAULT, "not graded: the check cannot create its inputs (KeyError: 'milliseconds')"),
    }


def test_a_student_who_claims_that_a_case_lacks_something_is_judged(verdicts):
    """The solution shows that the case does not."""
    found = verdicts(
        solved(SINGLE.file, optimizer="from grader.sandbox.rank import MissingInCase\nraise MissingInCase('inputs')"),
        "optimizer",
    )["optimizer"]
    assert (found.status, found.points) == (ERROR, 0)


ALL_REDUCE = next(part for part in UNITS["communication"] if part.file.endswith("/all_reduce.py"))
RECEIVES_FIRST = """
theirs = receive(tensor, rank ^ distance)
send(tensor, rank ^ distance).wait()
tensor += theirs
distance *= 2
"""


def test_ranks_that_all_receive_first_are_said_to_wait_for_each_other(server_for):
    parts = [replace(ALL_REDUCE, checks=tuple(check for check in ALL_REDUCE.checks if check.gap == "doubling"))]
    text = solved(ALL_REDUCE.file, doubling=RECEIVES_FIRST.strip("\n"))
    verdict, *_ = judge("communication", parts, lambda file: text, server_for(ALL_REDUCE.file))
    assert verdict.status == DEADLOCK and "start the receive first" in verdict.message


def test_no_criterion_has_a_hint_for_what_stops_the_whole_run(server):
    (part,) = (replace(SINGLE, checks=tuple(check for check in SINGLE.checks if check.gap == "throughput")),)

    def hints(code):
        return [
            verdict.hint for verdict in judge("single_gpu", (part,), lambda file: solved(file, throughput=code), server)
        ]

    assert hints("images = len(nothing)\nthroughput = 1") == ["", ""]
    assert all(hints("images = 1\nthroughput = 1"))


@pytest.mark.parametrize(
    "file, encoding, words",
    [
        ("exercises/01_single_gpu/pytorch/train_cifar_single_gpu.py", "utf-16", "it is in UTF-16"),
        ("exercises/01_single_gpu/run_single_gpu_training.sh", "utf-16", "it is in UTF-16"),
        ("notebooks/01_single_gpu.ipynb", "utf-16", "it is in UTF-16"),
        ("exercises/01_single_gpu/pytorch/train_cifar_single_gpu.py", "latin-1", "line 2 is not valid UTF-8"),
    ],
)
def test_a_file_in_another_encoding_is_named_and_nothing_else_is_said_of_it(file, encoding, words):
    with pytest.raises(TextError, match=words):
        exercises.handed_in(file, "#\n# r\xfcckw\xe4rts\n".encode(encoding))


def test_a_shell_reads_a_comment_in_another_encoding_and_so_does_the_grader():
    file = "exercises/01_single_gpu/run_single_gpu_training.sh"
    assert exercises.handed_in(file, "# r\xfcck\nls\n".encode("latin-1")).endswith("\nls\n")


def test_a_merge_conflict_is_named_as_such():
    with pytest.raises(TextError, match="line 2 is a merge conflict marker of git"):
        exercises.handed_in("notebooks/01_single_gpu.ipynb", b'{\n<<<<<<< HEAD\n"cells": 1\n')
