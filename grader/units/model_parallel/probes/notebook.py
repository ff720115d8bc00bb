"""The probe of a schedule that the notebook has in a list."""

from grader.box.rank import Wrong
from grader.probes.student import Student
from grader.units.model_parallel.probes.schedules import LONGEST, texts


def puzzle(rank, ranks, source, case):
    """The schedule that the notebook's gap assigns to case["name"]: {"schedules": [schedule]}."""
    found = getattr(Student(source).run(), case["name"])
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, (list, tuple)) for one in found):
        raise Wrong(f"`{case['name']}` is {found!r:.60}: write a list of operations for each stage, [[...], [...], ...]")
    return {"schedules": [[texts(one, f"stage {stage}") for stage, one in enumerate(found[:LONGEST])]]}
