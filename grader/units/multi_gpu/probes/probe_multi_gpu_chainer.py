"""The probe of the gap that only this unit's Chainer script has."""

from numbers import Integral

from grader.probes.chainer_scripts import GapInScript, dataset
from grader.probes.script import StopScript
from grader.sandbox.rank import StudentMistake


def devices(rank, ranks, source, case):
    """Return the names and the ids in `gpus`, in their order."""
    found = []

    def see(names):
        found.append(names.gpus)
        raise StopScript

    GapInScript(rank, ranks, source, case | {"workers": len(case["gpu"])}, dataset(8), [4, 4]).run(see)
    (gpus,) = found
    if not isinstance(gpus, dict):
        raise StudentMistake(
            f"`gpus` is {gpus!r:.80}, but it must be a dictionary from names to ids, such as {{'main': 0, 'gpu1': 1}}"
        )
    if strange := [gpu for gpu in gpus.values() if not isinstance(gpu, Integral)]:
        raise StudentMistake(f"`gpus` has the id {strange[0]!r:.80}, but ids are the whole numbers in args.gpu")
    return {"names": [str(name) for name in gpus], "ids": [int(gpu) for gpu in gpus.values()]}
