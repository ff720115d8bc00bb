"""Probes of schedules, which functions of schedules.py return, or the notebook has in a list."""

from grader.box.rank import Wrong
from grader.probes.student import Student

LONGEST = 200  # operations of a stage that a student may give


def schedule(rank, ranks, source, case):
    """The operations of each stage, for each of case["sizes"], (stages, micro-batches): {"schedules": [[["F0", "B0"], ...], ...]}."""
    student = Student(source)

    def of_stage(stage, of, micro_batches):
        return _texts(student.run(stage=stage, stages=of, micro_batches=micro_batches).operations, "`operations`")

    return {"schedules": [[of_stage(stage, of, micro_batches) for stage in range(of)] for of, micro_batches in case["sizes"]]}


def puzzle(rank, ranks, source, case):
    """The schedule that the notebook's gap assigns to case["name"]: {"schedules": [schedule]}."""
    found = getattr(Student(source).run(), case["name"])
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, (list, tuple)) for one in found):
        raise Wrong(f"`{case['name']}` is {found!r:.60}: write a list of operations for each stage, [[...], [...], ...]")
    return {"schedules": [[_texts(one, f"stage {stage}") for stage, one in enumerate(found[:LONGEST])]]}


def _texts(operations, what):
    if not isinstance(operations, (list, tuple)) or not all(isinstance(one, str) for one in operations) or len(operations) > LONGEST:
        raise Wrong(f"{what} is {operations!r:.60}: it should be a list of texts such as ['F0', 'B0']")
    return [one[:20] for one in operations]
