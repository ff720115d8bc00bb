"""What tests.bench.proof_ranks runs: every gap of a script that tests.bench.proof_scripts does not run; and that it tells answers apart."""

import pytest

from grader import exercises, gaps
from grader.course import UNITS
from tests.bench import proof_ranks, proof_scripts

WRONG = """
if rank == 0:
    for other in range(1, size):
        tensor += receive(tensor, other)
    for other in range(1, size):
        send(tensor + 1, other).wait()
else:
    send(tensor, 0).wait()
    tensor.copy_(receive(tensor, 0))
"""
RIGHT = WRONG.replace("tensor + 1", "tensor")


WITHOUT = ("frameworks",)  # its probes run each gap in a real strategy, Trainer or Accelerator already, and tests/frameworks holds the scripts to an oracle


def test_every_gap_of_a_script_can_be_run():
    for unit, parts in UNITS.items():
        if unit in WITHOUT:
            continue
        for part in (part for part in parts if part.file.endswith(".py")):
            for gap in gaps.answers(exercises.solution(part.file).read_text()):
                known = proof_scripts.file_of(unit, gap, part.track or "pytorch") or part.file.split("/", 2)[2] in proof_ranks.RUNS
                assert known, f"{part.file}: {gap}"


@pytest.mark.slow
def test_a_wrong_answer_differs_from_the_solution_and_a_right_one_does_not(tmp_path):
    [path] = proof_ranks.ROOT.glob("solutions/*/pytorch/all_reduce.py")
    run = proof_ranks.RUNS["pytorch/all_reduce.py"]._replace(options=("--largest 64",))
    right = proof_ranks.see(tmp_path, path, run)
    assert not right["failure"] and [row["algorithm"] for row in right["result"][0]] == ["naive", "ring", "doubling", "gloo"]
    assert not proof_ranks.problem_of(right, proof_ranks.see(tmp_path, path, run, {"naive": RIGHT}), wrong=False)
    assert proof_ranks.problem_of(right, proof_ranks.see(tmp_path, path, run, {"naive": WRONG}), wrong=True)
