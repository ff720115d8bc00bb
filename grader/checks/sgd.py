"""SGD with momentum, as in the lecture's scripts of both tracks: judges an optimizer by its updates with known gradients."""

import numpy

from grader.checks import criteria

MOMENTUM = 0.9
DEFAULTS = {"PyTorch": 0.001, "Chainer": 0.01}  # the learning rates of the tracks' libraries


def step(velocity, gradient, lr, momentum=MOMENTUM, nesterov=False):
    """(the next velocity, the change of the parameters)."""
    velocity = momentum * velocity - lr * gradient
    return velocity, momentum * velocity - lr * gradient if nesterov else velocity


def trace(start, gradients, **rule):
    """The parameters at the start and after each update, (updates + 1, numbers)."""
    parameters, velocity = [start], 0
    for gradient in gradients:
        velocity, change = step(velocity, gradient, **rule)
        parameters.append(parameters[-1] + change)
    return numpy.stack(parameters)


def updates(library):
    """A judge: the parameters before and after updates with the oracle's gradients are those of SGD with args.lr and momentum 0.9.

    With several ranks, their gradients' mean counts, and the first update only makes the parameters equal, as ChainerMN's does.
    """

    def judge(seen, case, expected):
        start, gradients, lr = expected["start"], numpy.mean(expected["gradients"], axis=0), case["lr"]
        several = case["unit"] == "multi_node"
        right = trace(start, gradients[several:], lr=lr)
        for rank, found in enumerate(of_rank["parameters"] for of_rank in seen):
            if found.shape != (len(gradients) + 1, len(start)) or not criteria.close(found[0], start):
                return "your code changes the parameters of `model`, or their number: it should only make the optimizer"
            if several and len(seen) > 1 and criteria.close(found, trace(start, expected["gradients"][rank], lr=lr)):
                return "each rank updates with its own gradients: nothing takes their mean (keep what create_multi_node_optimizer returns)"
            if several and not criteria.close(found[1], start):
                return "the first update changes the parameters; that of a multi-node optimizer only makes them equal on all ranks"
            found = found[several:]
            if not criteria.close(found, right):
                moved, should = (numpy.abs(values[-1] - start).max() for values in (found, right))
                mistake = _mistake(found, gradients[several:], lr, library, case.get("workers", len(seen)), several)
                sentence = mistake or "the updates are not those of SGD with momentum"
                return (
                    f"{sentence}: {len(right) - 1} updates move parameters by up to {moved:.2g}; with learning rate "
                    f"{lr} and momentum {MOMENTUM} by up to {should:.2g}"
                )
        return None

    return judge


def _mistake(found, gradients, lr, library, workers, averaged):
    """What the first two updates show, or None."""
    first, second = found[0] - found[1], found[1] - found[2]
    if criteria.close(found, numpy.broadcast_to(found[0], found.shape)):
        return "the parameters do not change: does the optimizer have those of `model`?"
    if still := numpy.count_nonzero(first == 0):
        return f"{still} of {len(first)} parameters do not change: the optimizer needs all of `model`"
    if criteria.close(first, -lr * gradients[0]):
        return "the parameters go up the gradient, not down (`maximize`)"
    rate = _ratio(first, gradients[0])
    decay = _ratio(first / lr - gradients[0], found[0])
    if decay and abs(decay) > 1e-9:
        return f"weight decay of {decay:.3g} is added, which nothing asks for"
    if rate is None:
        return None
    if any(criteria.close(rate / lr, factor) for factor in (1 + MOMENTUM, 1 + MOMENTUM + MOMENTUM**2)):  # PyTorch's way, Chainer's way
        return "it uses Nesterov's momentum; the lecture's is the plain one"
    next_rate = _ratio(second - MOMENTUM * first, gradients[1])
    if next_rate is not None and not criteria.close(next_rate / rate, 1, 1e-4):
        if criteria.close(rate, lr):
            return f"the gradients are dampened ({1 - next_rate / lr:.3g} of them is lost): leave `dampening` at 0"
        return f"the gradients are changed before they are used: by {rate / lr:.2g} in one update, by {next_rate / lr:.2g} in the next"
    if not criteria.close(rate, lr):
        if criteria.close(rate, DEFAULTS[library]):
            return f"the learning rate is not args.lr ({library}'s default, {rate:g}, is used)"
        if workers > 1 and criteria.close(rate, lr / workers):
            who = "the gradients are a mean over them already" if averaged else "MultiprocessParallelUpdater divides it by them once more"
            return f"the learning rate is divided by the number of workers, but {who}: give the optimizer args.lr"
        if workers > 1 and criteria.close(rate, lr * workers):
            return "the learning rate is multiplied by the number of workers: this script trains with args.lr"
        return f"the learning rate is {rate:.4g}, not args.lr, which is {lr:g}"
    momentum = _ratio(second / lr - gradients[1], first / lr)
    if momentum is None:
        return None
    return "it updates without momentum" if abs(momentum) < 1e-9 else f"the momentum is {momentum:.3g}, not {MOMENTUM}"


def _ratio(one, other):
    """The number that `other` is multiplied by to give `one`, or None if there is none."""
    ratio = float(one @ other / (other @ other))
    return ratio if numpy.allclose(one, ratio * other, rtol=1e-6, atol=1e-9) else None
