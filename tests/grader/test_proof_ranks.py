"""What tests.bench.proof_ranks runs, and that it tells answers apart."""

import pytest

from grader import gaps
from grader.course import UNITS
from grader.instructors.proofs import of_unit
from tests.bench import proof_ranks

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
RUNS = {unit: of_unit(unit, "RUNS") for unit in UNITS}


def test_runs_of_a_gap_belong_to_it_and_what_they_replace_is_in_the_script():
    for unit in UNITS:
        of_gap = of_unit(unit, "OF_GAP")
        for file, gap in of_gap:
            [path] = proof_ranks.ROOT.glob(f"solutions/??_{unit}/{file}")
            assert file in RUNS[unit] and gap in gaps.answers(path.read_text())
        for file, run in [*RUNS[unit].items(), *((file, run) for (file, _), runs in of_gap.items() for run in runs)]:
            [path] = proof_ranks.ROOT.glob(f"solutions/??_{unit}/{file}")
            assert run.replaced[0] in (path.parent / run.script).read_text(), (file, run.replaced[0])


def test_a_parameter_server_that_waits_for_the_slow_worker_is_told_by_its_staleness():
    free, waiting = {"epoch": 1, "staleness 0": 4, "staleness 3": 2}, {"epoch": 1, "staleness 0": 3, "staleness 1": 3}
    assert proof_ranks.staleness([[free]], workers=2) == [[6], True]
    assert proof_ranks.staleness([[waiting]], workers=2) == [[6], False]


@pytest.mark.slow
def test_a_wrong_answer_differs_from_the_solution_and_a_right_one_does_not(tmp_path):
    [path] = proof_ranks.ROOT.glob("solutions/*/pytorch/all_reduce.py")
    runs = (RUNS["communication"]["pytorch/all_reduce.py"]._replace(options=("--largest 64",)),)
    right = proof_ranks.see(tmp_path, path, runs)
    assert not right["failure"] and [row["algorithm"] for row in right["result"][0]] == [
        "naive",
        "ring",
        "doubling",
        "gloo",
    ]
    assert not proof_ranks.problem_of(right, proof_ranks.see(tmp_path, path, runs, {"naive": RIGHT}), wrong=False)
    assert proof_ranks.problem_of(right, proof_ranks.see(tmp_path, path, runs, {"naive": WRONG}), wrong=True)
