"""The probe of the gap that only this unit's Chainer script has."""

from types import SimpleNamespace

from grader.box.rank import Wrong
from grader.probes.student import Student


def devices(rank, ranks, source, case):
    """The names and the ids in `gpus`, in the order in which they stand there."""
    found = Student(source).run(args=SimpleNamespace(gpu=list(case["gpu"]))).gpus
    if not isinstance(found, dict):
        raise Wrong(f"`gpus` is {found!r}, no dictionary from names to ids, such as {{'main': 0, 'gpu1': 1}}")
    return {"names": [str(name) for name in found], "ids": [int(gpu) for gpu in found.values()]}
