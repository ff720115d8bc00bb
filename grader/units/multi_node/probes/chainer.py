"""The probes of the gaps that only this unit's Chainer script has."""

from types import SimpleNamespace

import handson.chainer  # noqa: F401 (before chainer: lets it run on today's NumPy)
import chainer
from chainer.iterators import SerialIterator

from grader.box.rank import Wrong
from grader.probes.chainer import CPU, Double, dataset, network, pictures, samples
from grader.probes.communicator import join
from grader.probes.student import Student
from handson.chainer.reports import TimedEvaluator


def scatter(rank, ranks, source, case):
    """The samples in one rank's parts of the training and the test set, where only rank 0 has the data. For the training set also the parts
    of a second run with the same seed ("again"), and of a run with another seed ("other")."""
    comm, student = join(rank, ranks), Student(source)

    def run(seed):
        train_set, test_set = (dataset(case["images"], case["seed"]), dataset(case["test_images"], case["seed"])) if rank == 0 else (None, None)
        args = SimpleNamespace(seed=seed, batchsize=4)
        names = student.run(train_set=train_set, test_set=test_set, comm=comm, args=args, images_in_all=case["images"], classes=10)
        for name in ("train_set", "test_set"):
            if not hasattr(names[name], "__len__"):
                raise Wrong(f"`{name}` is {names[name]!r} on this rank: every rank must call scatter_dataset, and keep what it returns")
        return samples(names.train_set, case), samples(names.test_set, case, "test_images")

    seed = case["seed"] % 1000
    train, test = run(seed)
    return {"train": train, "test": test, "again": run(seed)[0], "other": run(seed + 1)[0]}


def evaluator(rank, ranks, source, case):
    """The loss and the accuracy that one rank's evaluator reports. case["lengths"]: the test images of each rank."""
    comm, convert, model = join(rank, ranks), Double(), network(case["seed"])
    data, begin = pictures(sum(case["lengths"]), case["seed"]), sum(case["lengths"][:rank])
    test_set = chainer.datasets.SubDataset(data, begin, begin + case["lengths"][rank])
    iterator = SerialIterator(test_set, case["batchsize"], repeat=False, shuffle=False)
    evaluator = TimedEvaluator(iterator, model, converter=convert, device=CPU)
    names = Student(source).run(
        evaluator=evaluator, comm=comm, test_set=test_set, test_iterator=iterator, model=model, convert=convert, device=CPU
    )
    if not callable(names.evaluator):
        raise Wrong(f"`evaluator` is a {type(names.evaluator).__name__}, which is no evaluator")
    result = names.evaluator()
    return {"found": [float(result["main/loss"]), float(result["main/accuracy"])]}
