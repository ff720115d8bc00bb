"""A training that ranks run under mpiexec and a test repeats alone: the model, the batches, and their gradients."""

import handson.chainer  # noqa: F401

import chainer
import chainer.functions as F
import chainer.links as L
import numpy


def make_model(seed):
    """Parameters of four sizes, none a multiple of another."""
    numpy.random.seed(seed)
    return L.Classifier(chainer.Sequential(L.Linear(9, 5), F.tanh, L.Linear(5, 3)))


def batch(rank, step):
    random = numpy.random.RandomState(100 * rank + step)
    return random.rand(4, 9).astype("f"), random.randint(3, size=4).astype("i")


def parameters(model):
    return [parameter for _, parameter in sorted(model.namedparams())]


def values(model):
    return [parameter.array.tolist() for parameter in parameters(model)]


def gradients(model, rank, step):
    model.cleargrads()
    model(*batch(rank, step)).backward()
    return [parameter.grad.copy() for parameter in parameters(model)]
