"""The values that the Chainer track's probes should observe, and those that misconceptions lead to. They are computed in one process
by plain formulas, without a student's code, and called as grader/oracles/pytorch.py says."""

import chainer
import chainer.links as L
import numpy
from chainer.dataset import concat_examples

from grader.checks import sgd
from grader.probes.chainer import Double, NetworkOfRun, flat, network, pictures, serial
from handson.chainer.data import Enlarge


def training(rank, ranks, case):
    """{"right": the parameters (ranks, updates, parameters) after each update of one process that takes the workers' batches as one
    batch; sentence on a misconception: the parameters that it leads to}."""
    several = case["workers"] > 1
    rules = {"right": {}}
    if case["gap"] == "optimizer":
        rules |= {sentence: {"rule": rule} for sentence, rule in sgd.mistakes("Chainer", 0.01).items()}
        if several and case.get("multi_node"):
            rules["each rank updates with its own gradients: nothing takes their mean (keep what create_multi_node_optimizer "
                  "returns)"] = {"alone": True}  # fmt: skip
            rules["the learning rate is divided by the number of ranks; the gradients are a mean over them already, so that each "
                  "rank then learns too slowly"] = {"factor": 1 / case["workers"]}  # fmt: skip
        elif several:
            rules["the learning rate is divided by the number of GPUs here, and once more by MultiprocessParallelUpdater: give "
                  "the optimizer args.lr"] = {"factor": 1 / case["workers"]}  # fmt: skip
        rules["the learning rate is multiplied by the number of workers: this script trains with args.lr"] = {"factor": case["workers"]}
    else:
        rules["the images come to the network as they are stored: batches do not go through `convert`"] = {"converted": False}
        rules["it trains with the batches of the test set"] = {"test_set": True}
        if several and case.get("multi_node"):
            rules["each rank updates with its own gradients: `optimizer`, which takes their mean, is not what updates"] = {"alone": True}
        elif several:
            rules["only the main device's images are trained with: give the updater all iterators, and all devices"] = {"only_main": True}
            rules["the learning rate is divided by the number of devices twice: MultiprocessParallelUpdater does it by "
                  "itself"] = {"factor": 1 / case["workers"]}  # fmt: skip
            rules["the gradients of the devices are added, and the learning rate is not divided by their number: leave to "
                  "MultiprocessParallelUpdater what it changes"] = {"factor": case["workers"]}  # fmt: skip
    return {sentence: _of_ranks(case, **how) for sentence, how in rules.items()}


def _of_ranks(case, alone=False, only_main=False, **how):
    ranks = case.get("ranks", 1)
    if alone:
        return numpy.stack([_train(case, [worker], case["seed"] + worker * (case["gap"] == "optimizer"), **how) for worker in range(ranks)])
    together = ranks > 1 or case["gap"] == "updater" and not only_main
    workers = range(case["workers"]) if together else [0]
    return numpy.stack([_train(case, workers, case["seed"], begin=bool(case.get("multi_node")), **how)] * ranks)


def _train(case, workers, seed, begin=False, factor=1.0, rule=(), converted=True, test_set=False):
    """begin: ChainerMN's first update only makes the parameters equal."""
    model, iterators, convert = network(seed), [serial(case, worker) for worker in workers], concat_examples
    if converted and case["gap"] == "updater":
        convert = Double()
    velocity, trace = 0, []
    for update in range(case["updates"]):
        batch = [sample for iterator in iterators for sample in iterator.next()]
        if test_set:
            batch = list(pictures(case["batchsize"], case["seed"] + 1))
        if update > 0 or not begin:
            model.cleargrads()
            model(*convert(batch, None)).backward()
            velocity, change = sgd.step(velocity, flat(model, "grad"), **{"lr": case["lr"] * factor} | dict(rule))
            _move(model, change)
        trace.append(flat(model))
    return numpy.stack(trace)


def _move(model, steps):
    for _, parameter in sorted(model.namedparams()):
        step, steps = steps[: parameter.size], steps[parameter.size :]
        parameter.array += step.reshape(parameter.shape)


def run(rank, ranks, case):
    """Parameters at the end of a run in one process with all images in each step."""
    seed, spent = case["seed"] % 1000, int(case["task"] == "multi_node")  # ChainerMN's first update only makes the parameters equal
    images = Enlarge(NetworkOfRun.SIZE)(list(pictures(case["images"], seed)), None)
    numpy.random.seed(seed)
    model = L.Classifier(NetworkOfRun())
    optimizer = chainer.optimizers.MomentumSGD(case["lr"], momentum=0.9).setup(model)
    for _ in range(spent, case["epochs"]):
        optimizer.update(model, *images)
    return {"parameters": flat(model.predictor)}
