"""What the communication hooks should give: the definition of each method, simulated for all ranks in one process."""

import numpy
import torch

from grader.units.communication.probes.probe_hooks import gradients

LAST_ONLY = (
    "the residual is only the last gradient's: it must also hold what was still owed before (`owed`, not the gradients)"
)
FEEDBACK = {  # sentence -> what is done otherwise: see `_with_feedback`
    "right": {},
    "what could not be sent is forgotten: the residual of the step before is not added to the gradients": {
        "residual": lambda kept, gradient: 0
    },
    "in the first step there is no residual, and the gradients are added to themselves": {
        "residual": lambda kept, gradient: gradient if kept is None else kept
    },
    LAST_ONLY: {"left": lambda owed, sent, gradient: gradient - sent},
    "the residual has the wrong sign: it is what was owed minus what is sent": {
        "left": lambda owed, sent, gradient: sent - owed
    },
    "the residual is all of `owed`, also what is sent: then that is sent again and again": {
        "left": lambda owed, sent, gradient: owed
    },
    "the residual is what is sent: it must be what is not": {"left": lambda owed, sent, gradient: sent},
    "what was owed before is added to the new residual once more: `owed` has it already": {
        "left": lambda owed, sent, gradient: owed - gradient + owed - sent
    },
}


def hook(rank, ranks, case):
    """{"right" or the sentence of a mistake: the gradients after backward, [steps][numbers], the same on all ranks, or
    [ranks][steps][numbers]}."""
    return {"half": _half, "one_bit": _one_bit, "top_k": _top_k, "late": _late}[case["function"]](case)


def _given(case, step):
    """The gradients of all ranks in a step: [ranks][parameters]."""
    return [gradients(case, step, rank) for rank in range(case["ranks"])]


def _flat(parts):
    return torch.cat(parts).double().numpy()


def _half(case):
    dtype, ranks = getattr(torch, case["dtype"]), case["ranks"]
    rules = {
        "right": lambda one: (one / ranks).to(dtype).double(),
        "the gradients are summed, not averaged: divide by the number of ranks": lambda one: one.to(dtype).double(),
        "the gradients are divided by the number of ranks twice": lambda one: (one / ranks**2).to(dtype).double(),
    }
    found = {
        sentence: numpy.stack(
            [sum(_flat([rule(one) for one in of_rank]) for of_rank in _given(case, step)) for step in _steps(case)]
        )
        for sentence, rule in rules.items()
    }
    own = _own(case)
    found["the mean is added to each rank's own gradients: it must take their place"] = own + found["right"]
    found["each rank keeps its own gradients: `future` must be of what the all-reduce gives"] = own
    found[
        "each rank keeps its own gradients, divided by the number of ranks: `future` must be of what the all-reduce"
        " gives"
    ] = own / ranks
    return found | {sentence: numpy.stack(means) for sentence, means in _of_another_type(case, case["dtype"]).items()}


def _of_another_type(case, dtype):
    """{a sentence on a wrong type: the means of all steps in it}, of a shorter one, or of one that is as long."""
    other = {"float32": "float16", "float16": "bfloat16"}.get(dtype)
    return (
        {f"the gradients travel as {other}; `dtype` is {dtype} here": _means(case, getattr(torch, other))}
        if other
        else {}
    )


def _steps(case):
    return range(2, 2 + case["steps"])


def _with_feedback(case, send, more=()):
    """Simulate a method with error feedback. What a rule of a mistake can replace: "residual" of what was kept (None at
    first) and the gradients; "send" of what is owed and the gradients: what arrives in its place; "left" of both and
    the gradients: what is kept; "arrives" of what is sent.
    """
    found = {}
    for sentence, rule in (FEEDBACK | dict(more)).items():
        residuals, trace = {}, []
        for step in _steps(case):
            mean = [torch.zeros(length) for length in case["lengths"]]
            for rank, of_rank in enumerate(_given(case, step)):
                for place, gradient in enumerate(of_rank):
                    owed = gradient + rule.get("residual", _nothing_at_first)(residuals.get((rank, place)), gradient)
                    sent = rule.get("send", send)(owed, gradient)
                    residuals[rank, place] = rule.get("left", _what_is_not_sent)(owed, sent, gradient)
                    mean[place] += rule.get("arrives", lambda sent: sent)(sent) / case["ranks"]
            trace.append(_flat(mean))
        found[sentence] = numpy.stack(trace)
    return found


def _nothing_at_first(kept, gradient):
    return 0 if kept is None else kept


def _what_is_not_sent(owed, sent, gradient):
    return owed - sent


def _signs(owed, scale, positive=None):
    return torch.where(owed >= 0 if positive is None else positive, scale, -scale)


def _one_bit(case):
    send = lambda owed, gradient: _signs(owed, owed.abs().mean())
    left = lambda owed, sent, gradient: owed - send(owed, gradient)
    more = {
        "`scale` is the sum of the absolute values; it should be their mean": {
            "send": lambda owed, gradient: _signs(owed, owed.abs().sum())
        },
        "`scale` is the largest absolute value; it should be their mean": {
            "send": lambda owed, gradient: _signs(owed, owed.abs().max())
        },
        "`scale` is the mean of the values, which cancel each other: take that of the absolute values": {
            "send": lambda owed, gradient: _signs(owed, owed.mean())
        },
        "`scale` is 1: then all gradients have the same size": {
            "send": lambda owed, gradient: _signs(owed, torch.ones(()))
        },
        "`scale` is that of the gradients; it should be that of `owed`": {
            "send": lambda owed, gradient: _signs(owed, gradient.abs().mean())
        },
        "`positive` is where the gradients are 0 or more; it should be where `owed` is": {
            "send": lambda owed, gradient: _signs(owed, owed.abs().mean(), gradient >= 0)
        },
        "`scale` and `positive` are those of the gradients; they should be those of `owed`": {
            "send": lambda owed, gradient: _signs(gradient, gradient.abs().mean())
        },
        "`positive` is where `owed` is below 0; it should be where it is 0 or more": {
            "send": lambda owed, gradient: -send(owed, gradient)
        },
        "`positive` is where `owed` is below 0, which is where -scale belongs: it should be where it is 0 or more": {
            "send": lambda owed, gradient: -send(owed, gradient),
            "left": left,
        },
        (
            "`positive` is where the residual is 0 or more: it must be computed before what is sent is subtracted"
            " from `owed` in place"
        ): {
            "send": lambda owed, gradient: _signs(owed, owed.abs().mean(), left(owed, None, gradient) >= 0),
            "left": left,
        },
        "0 counts as negative; `positive` is where `owed` is 0 or more": {
            "send": lambda owed, gradient: _signs(owed, owed.abs().mean(), owed > 0)
        },
        "where `owed` is 0, scale is sent, and the residual does not count it: `.sign()` is 0 there": {
            "left": lambda owed, sent, gradient: owed - owed.abs().mean() * owed.sign()
        },
        "the residual is `owed` minus the sign alone; what is sent is scale or -scale": {
            "left": lambda owed, sent, gradient: owed - _signs(owed, torch.ones(()))
        },
        "the residual is `owed` minus scale, also where -scale is sent": {
            "left": lambda owed, sent, gradient: owed - sent.abs()
        },
    }
    return _with_feedback(case, send, more)


def _top(values, share, by):
    """`values` where the absolute values of `by`, or what else it has, are the largest; elsewhere 0."""
    places = by.topk(max(1, round(share * len(by)))).indices
    return torch.zeros_like(values).index_copy(0, places, values[places])


def _top_k(case):
    share = case["share"]
    send = lambda owed, gradient: _top(owed, share, owed.abs())
    more = {
        "the largest values are sent, and large negative ones never: compare absolute values": {
            "send": lambda owed, gradient: _top(owed, share, owed)
        },
        "the absolute values are sent: the signs are lost": {
            "send": lambda owed, gradient: _top(owed, share, owed.abs()).abs()
        },
        "the signs of the values are lost: absolute values are sent": {"arrives": torch.abs},
        "the smallest values are sent; they should be the largest absolute ones": {
            "send": lambda owed, gradient: _top(owed, share, -owed.abs())
        },
        LAST_ONLY: {"left": lambda owed, sent, gradient: torch.where(sent == 0, gradient, 0)},
        "the values that are sent are 0: take them from `owed` before these places are set to 0": {
            "arrives": torch.zeros_like
        },
        "the places are those of the largest gradients; they should be those of the largest of `owed`": {
            "send": lambda owed, gradient: _top(owed, share, gradient.abs())
        },
        "the values that are sent are the gradients at these places; they should be what is owed there": {
            "send": lambda owed, gradient: _top(gradient, share, owed.abs()),
            "left": lambda owed, sent, gradient: owed - _top(owed, share, owed.abs()),
        },
        "places and values are those of the gradients; they should be those of `owed`": {
            "send": lambda owed, gradient: _top(gradient, share, gradient.abs())
        },
    }
    return _with_feedback(case, send, more)


def _late(case):
    dtype = case.get("dtype", "float32")
    means = _means(case, getattr(torch, dtype))
    zeros = [numpy.zeros_like(means[0])]
    found = {
        "right": zeros + means,
        "each step uses its own mean, not that of the step before: then it has to wait for it": means,
        "each step uses the mean of two steps before": 2 * zeros + means,
        "the gradients are summed, not averaged: divide by the number of ranks": (
            zeros + [case["ranks"] * mean for mean in means]
        ),
        "the first step uses its own mean; there is none yet, so it uses zeros": means[:1] + means,
    }
    found |= {sentence: zeros + rounded for sentence, rounded in _of_another_type(case, dtype).items()}
    found = {sentence: numpy.stack(steps[: case["steps"]]) for sentence, steps in found.items()}
    own = _own(case)
    with_own = numpy.stack([[of_rank[0], *found["right"][1:]] for of_rank in own])
    return found | {
        "the first step uses the rank's own gradients; there is no mean yet, so it uses zeros": with_own,
        "each rank uses its own gradients, not a mean": own,
    }


def _own(case):
    """The gradients of each rank in each step: [ranks][steps][numbers]."""
    return numpy.stack([[_flat(of_rank) for of_rank in _given(case, step)] for step in _steps(case)], axis=1)


def _means(case, dtype):
    """The mean of all ranks' gradients in each step, which travel as `dtype`."""
    return [
        _flat([sum((one / case["ranks"]).to(dtype) for one in of_ranks) for of_ranks in zip(*_given(case, step))])
        for step in _steps(case)
    ]
