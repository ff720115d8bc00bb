"""A training whose layers ranks share under mpiexec. Without PyTorch, which test_chainer_pipeline.py compares it with:
each rank would import it."""

from pathlib import Path
from types import SimpleNamespace

import handson.chainer  # noqa: F401
from handson.chainer import stages

import chainer
import numpy
from loading import load

PIPELINE = Path(__file__).resolve().parents[2] / "solutions/06_model_parallel/chainer/chain_list.py"
# five layers: stages of unequal length on 2, 3 or 4 ranks
OPTIONS = dict(seed=0, size=8, patch=2, width=8, heads=2, blocks=3, batchsize=8)
STEPS, MICRO_BATCHES = 3, 4


def batch(step):
    chance = numpy.random.RandomState(step)
    return chance.rand(8, 3, 8, 8).astype("float32"), chance.randint(0, 10, 8).astype("int32")


def numbers(layers):
    """All parameters of some layers, in their order. (The names that a Sequential gives its links are not in it.)"""
    return [
        number
        for layer in layers
        for _, parameter in sorted(layer.namedparams())
        for number in parameter.array.ravel().tolist()
    ]


def trained(comm, method):
    """(losses, parameters of this rank's stage) after some steps."""
    part, losses = stages.part(comm, SimpleNamespace(**OPTIONS), 10), []
    optimizer, script = chainer.optimizers.SGD(0.1).setup(part), load(PIPELINE)
    stage = script.make_stage(comm, part)
    for step in range(STEPS):
        images, labels = batch(step)
        part.cleargrads()
        if method == "naive":
            losses.append(script.naive_step(comm, stage, images, labels))
        else:
            losses.append(
                script.gpipe_step(comm, part, numpy.split(images, MICRO_BATCHES), numpy.split(labels, MICRO_BATCHES))
            )
        optimizer.update()
    return losses, numbers(part)
