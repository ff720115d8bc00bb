"""Of an optimizer's updates the judge says what is wrong with them: the rate, the momentum, or what else was done with the gradients."""

import numpy
import pytest

from grader.checks import sgd

LR = 0.037
RANDOM = numpy.random.RandomState(0)
START, GRADIENTS = RANDOM.normal(size=50), RANDOM.normal(size=(1, 3, 50))


def judged(**rule):
    """What the judge says of an optimizer: None, or a sentence."""
    seen = [{"parameters": updates(**rule)}]
    return sgd.updates("PyTorch")(seen, {"lr": LR, "unit": "single_gpu"}, {"start": START, "gradients": GRADIENTS})


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
        ({"momentum": 0}, "it updates without momentum"),
        ({"momentum": 0.5}, "the momentum is 0.5, not 0.9"),
        ({"lr": 0.001}, "PyTorch's default, 0.001, is used"),
        ({"lr": 0.05}, "the learning rate is 0.05, not args.lr, which is 0.037"),
        ({"lr": -LR}, "up the gradient, not down"),
        ({"lr": 0}, "the parameters do not change"),
        ({"decay": 5e-4}, "weight decay of 0.0005 is added"),
        ({"dampening": 0.9}, "the gradients are dampened (0.9 of them is lost)"),
        ({"clip": 1}, "the gradients are changed before they are used"),
        ({"nesterov": True}, "Nesterov's momentum"),
    ],
)
def test_a_mistake_is_named(rule, sentence):
    assert sentence in judged(**rule)
