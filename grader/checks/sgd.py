"""Judge an optimizer by its updates with known gradients: SGD with momentum, as in the lecture's scripts of both
tracks."""

import numpy

from grader.checks import criteria

MOMENTUM = 0.9
DEFAULTS = {"PyTorch": 0.001, "Chainer": 0.01}  # the default learning rates of the libraries


def step(velocity, gradient, lr, momentum=MOMENTUM, nesterov=False):
    """Return the next velocity and the change of the parameters."""
    velocity = momentum * velocity - lr * gradient
    return velocity, momentum * velocity - lr * gradient if nesterov else velocity


def trace(start, gradients, **rule):
    """Return the parameters at the start and after each update, shape (updates + 1, numbers)."""
    parameters, velocity = [start], 0
    for gradient in gradients:
        velocity, change = step(velocity, gradient, **rule)
        parameters.append(parameters[-1] + change)
    return numpy.stack(parameters)


def updates(library, double_buffering=False):
    """Return a judge that the parameters before and after updates with the oracle's gradients are those of SGD with
    args.lr and momentum 0.9. It judges the cases with double buffering, or those without.

    With several ranks, the mean of their gradients counts, and the first update only makes the parameters equal, as
    ChainerMN's does. With double buffering, the second update only starts an all-reduce, and each later one uses the
    previous gradients.
    """

    def judge(seen, case, expected):
        start, of_ranks, lr, late = (
            expected["start"],
            expected["gradients"],
            case["lr"],
            case.get("double_buffering", False),
        )
        if late != double_buffering:
            return None
        mean, several = of_ranks.mean(axis=0), "ranks_per_node" in case

        def after(gradients, late=late):
            return numpy.stack(
                [*[start] * (several + late), *trace(start, gradients[several : len(gradients) - late], lr=lr)]
            )

        for rank, found in enumerate(of_rank["parameters"] for of_rank in seen):
            found, divided = (found[:-1], found[-1]) if "workers" in case else (found, None)
            if found.shape != (len(mean) + 1, len(start)) or not criteria.close(found[0], start):
                return "your code changes the parameters of `model`, or their number: only create the optimizer"
            if criteria.close(found, after(mean)):
                if divided is None or _at_divided_rate(
                    divided - found[-1], found[-1] - found[-2], lr * mean[-1], case["workers"]
                ):
                    continue
                return (
                    "the updater divides `optimizer.lr` by the number of GPUs, but your optimizer keeps its own rate,"
                    " so its steps are too long"
                )
            if several and (problem := _with_other_ranks(found, rank, case, start, of_ranks, after)):
                return problem
            found, right = found[several + late :], after(mean)[several + late :]
            moved, should = (numpy.abs(values[-1] - start).max() for values in (found, right))
            rest = lr, library, case.get("workers", len(seen)), several
            mistake = _mistake(found, mean[several:], *rest) or _mistake_of_some(found, right, mean[several:], *rest)
            sentence = mistake or "the updates are not those of SGD with momentum"
            if f"{moved:.2g}" == f"{should:.2g}":
                return sentence
            return (
                f"{sentence} ({len(right) - 1} updates move parameters by up to {moved:.2g}; the right ones move them"
                f" by up to {should:.2g})"
            )
        return None

    return judge


def _at_divided_rate(change, before, step, workers):
    """Return whether an update uses the learning rate divided by the number of workers: only the step is shorter, or
    also the velocity (CorrectedMomentumSGD)."""
    return any(
        criteria.close(change, right)
        for right in (MOMENTUM * before - step / workers, (MOMENTUM * before - step) / workers)
    )


def _with_other_ranks(found, rank, case, start, of_ranks, after):
    """Return a sentence on how a rank combines its gradients with those of other ranks wrongly, or None.

    after(gradients, late) returns the parameters that these gradients lead to.
    """
    late, per_node = case.get("double_buffering", False), case["ranks_per_node"]
    first_two_lost = numpy.stack([start, start, *trace(start, of_ranks.mean(axis=0)[2:], lr=case["lr"])])
    of_node = of_ranks[rank - rank % per_node :][:per_node].mean(axis=0)
    if len(of_ranks) > 1 and criteria.close(found, trace(start, of_ranks[rank], lr=case["lr"])):
        return (
            "each rank updates with its own gradients, which nothing averages: keep the optimizer that"
            " create_multi_node_optimizer returns"
        )
    if criteria.close(found, after(of_ranks.mean(axis=0), late=not late)):
        if late:
            return "double buffering is not switched on: pass args.double_buffering to create_multi_node_optimizer"
        return (
            "double buffering is on, so each batch's gradients are applied one update later: let"
            " args.double_buffering decide"
        )
    if not late and criteria.close(found, first_two_lost):
        return (
            "the optimizer is wrapped twice, so two updates are lost to making parameters equal: call"
            " create_multi_node_optimizer once"
        )
    if criteria.close(found, after(of_node)):
        return (
            f"rank {rank} averages gradients only over the ranks of its node: pass `comm`, which has all ranks, to"
            " create_multi_node_optimizer"
        )
    if not criteria.close(found[1], start):
        return (
            "the first update changes the parameters, but the first update of a multi-node optimizer only makes"
            " them equal on all ranks"
        )
    return None


def _mistake(found, gradients, lr, library, workers, averaged):
    """Return the mistake that the first two updates show, or None."""
    first, second = found[0] - found[1], found[1] - found[2]
    if criteria.close(found, numpy.broadcast_to(found[0], found.shape)):
        return "the parameters do not change: does the optimizer have the parameters of `model`?"
    if still := numpy.count_nonzero(first == 0):
        return f"{still} of {len(first)} parameters do not change: give the optimizer all parameters of `model`"
    if criteria.close(first, -lr * gradients[0]):
        return "the parameters move up the gradient, not down: leave out `maximize`"
    rate = ratio(first, gradients[0])
    decay = ratio(first / lr - gradients[0], found[0])
    if decay and abs(decay) > 1e-9:
        return f"weight decay of {decay:.3g} is added, but the exercise asks for none"
    if rate is None:
        return None
    # PyTorch's way, Chainer's way
    if any(criteria.close(rate / lr, factor) for factor in (1 + MOMENTUM, 1 + MOMENTUM + MOMENTUM**2)):
        return "the optimizer uses Nesterov's momentum, but the exercise asks for plain momentum"
    next_rate = ratio(second - MOMENTUM * first, gradients[1])
    if next_rate is not None and not criteria.close(next_rate / rate, 1, 1e-4):
        if criteria.close(rate, lr) and library == "Chainer":
            return (
                f"the learning rate changes from {lr:.3g} to {next_rate:.3g} after an epoch: keep args.lr for the"
                " whole run"
            )
        if criteria.close(rate, lr):
            return (
                f"the optimizer dampens the gradients ({1 - next_rate / lr:.3g} of them is lost): leave `dampening`"
                " at 0"
            )
        one, other = criteria.distinct_digits(rate / lr, next_rate / lr, 2)
        return f"the gradients are scaled before they are used: by {one} in one update, by {other} in the next"
    if not criteria.close(rate, lr):
        if criteria.close(rate, DEFAULTS[library]):
            return f"the learning rate is {library}'s default, {rate:g}: pass args.lr"
        if workers > 1 and criteria.close(rate, lr / workers):
            who = (
                "the gradients are already averaged over them"
                if averaged
                else "MultiprocessParallelUpdater already divides it by them"
            )
            return f"the learning rate is divided by the number of workers, but {who}: pass args.lr to the optimizer"
        if workers > 1 and criteria.close(rate, lr * workers):
            return "the learning rate is multiplied by the number of workers, but this script trains with args.lr"
        found, right = criteria.distinct_digits(rate, lr)
        return f"the learning rate is {found}, but args.lr is {right}"
    momentum = ratio(second / lr - gradients[1], first / lr)
    if momentum is None:
        return None
    return (
        "the optimizer has no momentum"
        if abs(momentum) < 1e-9
        else f"the momentum is {criteria.distinct_digits(momentum, MOMENTUM, 3)[0]}, but it must be {MOMENTUM}"
    )


def _mistake_of_some(found, right, gradients, *rest):
    """Return the mistake in the updates of some parameters if the others are updated correctly, otherwise None."""
    wrong = (numpy.abs(found - right) > criteria.TOLERANCE * max(1.0, numpy.abs(right).max())).any(axis=0)
    mistake = _mistake(found[:, wrong], gradients[:, wrong], *rest) if wrong.any() and not wrong.all() else None
    return mistake and f"for {wrong.sum()} of the {len(wrong)} parameters {mistake}"


def of_gradient(found, right, start, step, tolerance=1e-6):
    """Return the ratio of an update to the correct one along its gradient, or None if it has another direction. found,
    right: the parameters after each update; start: those before; step: the first update in which they differ."""
    trace = [start, start, *right]
    coasting = trace[step + 1] + MOMENTUM * (trace[step + 1] - trace[step])
    return ratio(found[step] - coasting, right[step] - coasting, tolerance)


def ratio(one, other, tolerance=1e-6):
    """Return the factor between `one` and `other` (one = factor * other) up to a relative tolerance, or None."""
    if not other.any():
        return None
    ratio = float(one @ other / (other @ other))
    return ratio if numpy.allclose(one, ratio * other, rtol=tolerance, atol=tolerance / 1000) else None
