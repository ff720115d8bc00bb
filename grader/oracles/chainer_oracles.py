"""The expected observations of the Chainer track's probes, and those of misconceptions. One process computes them with
simple formulas, without a student's code. grader/oracles/pytorch_oracles.py describes how they are called."""

from handson.chainer.data import Enlarge

import chainer
import chainer.links as L
import numpy
from chainer.dataset import concat_examples

from grader.checks import sgd
from grader.probes.chainer_scripts import (
    Double,
    NetworkOfRun,
    flat,
    gradients,
    network,
    part,
    pictures,
    seed_of,
    serial,
)


def optimizer(rank, ranks, case):
    """Return {"start": the parameters, "gradients": those that the probe sets (ranks, updates, parameters)}."""
    start = flat(network(seed_of(case)))
    return {
        "start": start,
        "gradients": numpy.stack([gradients(case, number, len(start)) for number in range(case.get("ranks", 1))]),
    }


def updater(rank, ranks, case):
    """Return {"start": the initial parameters; "right": those (ranks, updates, parameters) after each update of one
    process that takes the workers' batches as one batch; sentence on a misconception: the resulting parameters}."""
    workers, several_nodes = case.get("workers", case.get("ranks", 1)), "ranks_per_node" in case
    rules = {"right": {}}
    rules["the images come to the network as they are stored: batches do not go through `convert`"] = {
        "converted": False
    }
    rules["it trains with the batches of the test set"] = {"test_set": True}
    rules["each batch makes two updates: an updater makes one of each"] = {"times": 2}
    rules["the gradients are not cleared: those of the last update are still in them (`model.cleargrads()`)"] = {
        "clear": False
    }
    rules["the loss is divided by the number of images once more: `model` gives their mean"] = {
        "factor": 1 / case["batchsize"]
    }
    if workers > 1 and several_nodes:
        rules["each rank updates with its own gradients: `optimizer`, which takes their mean, is not what updates"] = {
            "alone": True
        }
        rules[
            "the gradients are divided by the number of ranks once too often: the multi-node optimizer takes their mean"
            " already"
        ] = {"factor": 1 / workers}
    elif workers > 1:
        rules["only the main device's images are trained with: give the updater all iterators, and all devices"] = {
            "only_main": True
        }
        rules[
            "the learning rate is divided by the number of devices twice: MultiprocessParallelUpdater does it by itself"
        ] = {"factor": 1 / workers}
        rules[
            "the gradients of the devices are added, and the learning rate is not divided by their number: leave to "
            "MultiprocessParallelUpdater what it changes"
        ] = {"factor": workers}
    found = {sentence: _of_ranks(case, workers, several_nodes, **how) for sentence, how in rules.items()}
    return found | {"start": flat(network(seed_of(case)))}


def _of_ranks(case, workers, several_nodes, alone=False, only_main=False, **how):
    ranks = case.get("ranks", 1)
    if alone:
        return numpy.stack([_train(case, workers, [worker], **how) for worker in range(ranks)])
    return numpy.stack(
        [_train(case, workers, [0] if only_main else range(workers), begin=several_nodes, **how)] * ranks
    )


def _train(case, of_all, workers, begin=False, factor=1.0, converted=True, test_set=False, times=1, clear=True):
    """Return the parameters after each update with the batches of some or all workers. begin: ChainerMN's first update
    only makes the parameters equal; times: number of updates per batch."""
    model, convert, lengths = (
        network(seed_of(case)),
        Double() if converted else concat_examples,
        [case["batchsize"] * case["updates"]] * of_all,
    )
    everything = pictures(sum(lengths), case["seed"] + test_set)
    iterators = [serial(part(everything, lengths, worker), case) for worker in workers]
    velocity, trace = 0, []
    model.cleargrads()
    for update in range(case["updates"]):
        batch = [sample for iterator in iterators for sample in iterator.next()]
        for _ in range(times - (begin and update == 0)):
            if clear:
                model.cleargrads()
            model(*convert(batch, None)).backward()
            velocity, change = sgd.step(velocity, flat(model, "grad"), lr=case["lr"] * factor)
            _move(model, change)
        trace.append(flat(model))
    return numpy.stack(trace)


def _move(model, steps):
    for _, parameter in sorted(model.namedparams()):
        step, steps = steps[: parameter.size], steps[parameter.size :]
        parameter.array += step.reshape(parameter.shape)


def run(rank, ranks, case):
    """Return the parameters at the end of a run in one process with all images in each step."""
    # ChainerMN's first update only makes the parameters equal
    seed, spent = case["seed"] % 1000, int("ranks_per_node" in case)
    images = Enlarge(NetworkOfRun.SIZE)(list(pictures(case["images"], seed)), None)
    numpy.random.seed(seed)
    model = L.Classifier(NetworkOfRun())
    optimizer = chainer.optimizers.MomentumSGD(case["lr"], momentum=0.9).setup(model)
    for _ in range(spent, case["epochs"]):
        optimizer.update(model, *images)
    return {"parameters": flat(model.predictor)}
