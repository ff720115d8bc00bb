"""The probe of the gap that only this unit's PyTorch script has."""

from types import SimpleNamespace

import torch
from pytorch_pfn_extras.reporting import Reporter
from torch.utils.data import DataLoader

from grader.box.rank import Wrong
from grader.probes.pytorch import batch, flat, join, normalizing_network
from grader.probes.student import Student
from handson.training.data import ImageDataset


def evaluator(rank, ranks, source, case):
    """What the evaluator reports on this rank, where the ranks have unequal parts of the test set; whether the model is in training mode
    after it; and whether it has changed ("moved") the model's buffers."""
    comm = join(rank, ranks)
    model = normalizing_network(case["seed"])
    images, labels = batch(case["seed"], 0, case["lengths"], rank)
    part = ImageDataset(images, labels, "numbers", None, tuple("0123456789"))
    names = Student(source).run(
        test_loader=DataLoader(part, case["batchsize"]),
        model=model,
        prepare=lambda images, labels: (images, labels),
        comm=comm,
        args=SimpleNamespace(batchsize=case["batchsize"]),
        device=torch.device("cpu"),
    )
    start, reporter = flat(model.buffers()), Reporter()
    with reporter, reporter.scope(observed := {}):
        names.evaluator()
    found = {name: [float(value) for key, value in observed.items() if key.endswith(name)] for name in ("loss", "accuracy")}
    for name, values in found.items():
        if len(values) != 1:
            raise Wrong(f"`evaluator` should report one {name}; it reports {', '.join(map(str, observed)) or 'nothing'}")
    training = all(module.training for module in model.modules())
    return {"found": found["loss"] + found["accuracy"], "training": training, "moved": bool((flat(model.buffers()) != start).any())}
