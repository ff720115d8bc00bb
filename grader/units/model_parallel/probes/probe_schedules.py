"""The probe of the schedules that functions of schedules.py return."""

from grader.probes.gap_code import GapCode
from grader.sandbox.rank import StudentMistake

LONGEST = 200  # operations of a stage that a student may give


def schedule(rank, ranks, source, case):
    """Return the operations of each stage, for each of case["sizes"], (stages, micro-batches): {"schedules": [[["F0",
    "B0"], ...], ...]}."""
    student = GapCode(source)

    def of_stage(stage, of, micro_batches):
        return texts(student.run(stage=stage, stages=of, micro_batches=micro_batches).operations, "`operations`")

    return {
        "schedules": [
            [of_stage(stage, of, micro_batches) for stage in range(of)] for of, micro_batches in case["sizes"]
        ]
    }


def texts(operations, what):
    if (
        not isinstance(operations, (list, tuple))
        or not all(isinstance(one, str) for one in operations)
        or len(operations) > LONGEST
    ):
        raise StudentMistake(f"{what} is {operations!r:.60}: it should be a list of strings such as ['F0', 'B0']")
    return [one[:20] for one in operations]
