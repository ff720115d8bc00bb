"""The evaluation of a network on all devices of a mesh."""

from handson.jax.model import convnet, enlarge, losses

import jax
import jax.numpy as jnp
import numpy

from handson.training import progress


def evaluator(share, test_set, size, total):
    """Return a function evaluate(parameters, statistics) that returns (loss, accuracy), as means over the images of a
    test set.

    share(*arrays) sends each device its part, as in training. total: the images per step on all devices.
    """
    number = len(test_set)
    filled = number + -number % total  # padded with images of weight 0, so that all parts have the same length
    of_all = [numpy.resize(one, (filled, *one.shape[1:])) for one in (test_set.images, test_set.labels)] + [
        numpy.arange(filled) < number
    ]

    @jax.jit
    def sums(parameters, statistics, images, labels, counts):
        outputs, _ = convnet(parameters, statistics, enlarge(images, size), training=False)
        return jnp.stack([(counts * losses(outputs, labels)).sum(), (counts * (outputs.argmax(1) == labels)).sum()])

    def evaluate(parameters, statistics):
        found = numpy.zeros(2)
        for begin in range(0, filled, total):
            found += numpy.asarray(
                sums(parameters, statistics, *share(*(one[begin : begin + total] for one in of_all)))
            )
            progress.progress()
        return tuple(float(one) / number for one in found)

    return evaluate
