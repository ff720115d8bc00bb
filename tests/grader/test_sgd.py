"""The judge reports what is wrong with an optimizer's updates: the rate, the momentum, or the use of the gradients."""

import numpy
import pytest

from grader.checks import sgd

LR = 0.037
RANDOM = numpy.random.RandomState(0)
START, GRADIENTS = RANDOM.normal(size=50), RANDOM.normal(size=(1, 3, 50))


def judged(**rule):
    """What the judge says of an optimizer: None, or a sentence."""
    seen = [{"parameters": updates(**rule)}]
    return sgd.updates("PyTorch")(seen, {"lr": LR}, {"start": START, "gradients": GRADIENTS})


def updates(lr=LR, momentum=0.9, dampening=0, decay=0, clip=numpy.inf, nesterov=False):
    """The parameters at the start and after each update, by the rules of torch.optim.SGD."""
    trace, velocity = [START], 0
    for number, gradient in enumerate(GRADIENTS[0]):
        gradient = gradient + decay * trace[-1]
        gradient = gradient * min(1, clip / numpy.linalg.norm(gradient))
        velocity = momentum * velocity + gradient * (1 if number == 0 else 1 - dampening)
        trace.append(trace[-1] - lr * (gradient + momentum * velocity if nesterov else velocity))
    return numpy.stack(trace)


def test_the_right_updates_are_right():
    assert judged() is None


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"momentum": 0}, "the optimizer has no momentum"),
        ({"momentum": 0.5}, "the momentum is 0.5, but it must be 0.9"),
        ({"lr": 0.001}, "the learning rate is PyTorch's default, 0.001"),
        ({"lr": 0.05}, "the learning rate is 0.05, but args.lr is 0.037"),
        ({"lr": -LR}, "up the gradient, not down"),
        ({"lr": 0}, "the parameters do not change"),
        ({"decay": 5e-4}, "weight decay of 0.0005 is added"),
        ({"dampening": 0.9}, "the optimizer dampens the gradients (0.9 of them is lost)"),
        ({"clip": 1}, "the gradients are scaled before they are used"),
        ({"nesterov": True}, "Nesterov's momentum"),
    ],
)
def test_a_mistake_is_named(rule, sentence):
    assert sentence in judged(**rule)


RANKS = RANDOM.normal(size=(4, 4, 50))  # of two nodes with two ranks each, in four updates
LATE = numpy.stack([START, START, *sgd.trace(START, RANKS.mean(axis=0)[1:-1], lr=LR)])
AT_ONCE = numpy.stack([START, *sgd.trace(START, RANKS.mean(axis=0)[1:], lr=LR)])
OF_NODES = [
    numpy.stack([START, *sgd.trace(START, RANKS[first : first + 2].mean(axis=0)[1:], lr=LR)]) for first in (0, 0, 2, 2)
]


@pytest.mark.parametrize(
    ("found", "late", "sentence"),
    [
        ([AT_ONCE] * 4, False, None),
        ([LATE] * 4, True, None),
        ([LATE] * 4, False, "one update later"),
        ([AT_ONCE] * 4, True, "double buffering is not switched on"),
        (OF_NODES, False, "rank 0 averages gradients only over the ranks of its node"),
        ([sgd.trace(START, of_rank, lr=LR) for of_rank in RANKS], False, "each rank updates with its own gradients"),
        ([sgd.trace(START, RANKS.mean(axis=0), lr=LR)] * 4, False, "the first update changes the parameters"),
        ([AT_ONCE - START] * 4, False, "only create the optimizer"),
    ],
)
def test_what_ranks_do_together_is_named(found, late, sentence):
    case = {"lr": LR, "ranks_per_node": 2, "double_buffering": late}
    said = sgd.updates("Chainer", late)(
        [{"parameters": one} for one in found], case, {"start": START, "gradients": RANKS}
    )
    assert said is None if sentence is None else sentence in said
