"""The probe of the gap that only this unit's PyTorch script has."""

from unittest import mock

from grader.probes.pytorch import NormalizingNetwork, Place, evaluate, examples, flat, part
from grader.probes.script import Enough
from handson.pytorch import communicator


def evaluator(rank, ranks, source, case):
    """What the evaluator reports on this rank, where the ranks have unequal parts of the test set; whether the model is in training mode
    after it; and whether it has changed ("moved") the model's buffers."""
    found, test_set = {}, examples(sum(case["lengths"]), case["seed"])

    def scatter(dataset, comm, seed):
        return part(test_set, case["lengths"], rank)

    def see(names):
        start = flat(names.model.buffers())
        found["found"] = evaluate(names.evaluator, names.manager)
        found["counts seconds"] = hasattr(names.evaluator, "seconds")
        found["training"] = all(module.training for module in names.model.modules())
        found["moved"] = bool((flat(names.model.buffers()) != start).any())
        raise Enough

    sharing = "shard lengths", lambda: (part(test_set, [1] * ranks, rank), [1] * ranks)
    with mock.patch.object(communicator, "scatter_dataset", scatter):
        Place(rank, ranks, source, case, examples(ranks, 0), test_set, kind=NormalizingNetwork, scatter=sharing).run(see)
    return found
