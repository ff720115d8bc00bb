"""The right results of the communication hooks: each method is simulated for all ranks in one process."""

import numpy
import torch

from grader.units.communication.hooks import LOST
from grader.units.communication.probes.probe_hooks import gradients

LAST_ONLY = "the residual lacks the older residual: compute it from `owed`, not from the gradients"
FEEDBACK = {  # sentence -> the rule of this mistake: see `_with_feedback`
    "right": {},
    LOST: {"residual": lambda kept, gradient: 0},
    "in the first step, the gradients are added to themselves: there is no residual yet": {
        "residual": lambda kept, gradient: gradient if kept is None else kept
    },
    LAST_ONLY: {"left": lambda owed, sent, gradient: gradient - sent},
    "the residual has the wrong sign: it is `owed` minus the value that is sent": {
        "left": lambda owed, sent, gradient: sent - owed
    },
    "the residual is all of `owed`, so the values that are sent are sent again and again: subtract them": {
        "left": lambda owed, sent, gradient: owed
    },
    "the residual is the value that is sent: it must be `owed` minus this value": {
        "left": lambda owed, sent, gradient: sent
    },
    "the old residual is added to the new residual once more: `owed` contains it already": {
        "left": lambda owed, sent, gradient: owed - gradient + owed - sent
    },
}


def hook(rank, ranks, case):
    """Return {"right" or the sentence of a mistake: the gradients after backward, [steps][numbers] if they are equal on
    all ranks, else [ranks][steps][numbers]}."""
    return {"half": _half, "one_bit": _one_bit, "top_k": _top_k, "late": _late}[case["function"]](case)


def _given(case, step):
    """Return the gradients of all ranks in a step: [ranks][parameters]."""
    return [gradients(case, step, rank) for rank in range(case["ranks"])]


def _flat(parts):
    return torch.cat(parts).double().numpy()


def _half(case):
    dtype, ranks = getattr(torch, case["dtype"]), case["ranks"]
    rules = {
        "right": lambda one: (one / ranks).to(dtype).double(),
        "the result is the sum of the gradients: divide by the number of ranks": lambda one: one.to(dtype).double(),
        "the gradients are divided by the number of ranks twice: divide once": lambda one: (
            (one / ranks**2).to(dtype).double()
        ),
    }
    found = {
        sentence: numpy.stack(
            [sum(_flat([rule(one) for one in of_rank]) for of_rank in _given(case, step)) for step in _steps(case)]
        )
        for sentence, rule in rules.items()
    }
    own = _own(case)
    found["the result is the sum of the mean and the rank's own gradients: replace the gradients with the mean"] = (
        own + found["right"]
    )
    found["each rank keeps its own gradients: derive `future` from the all-reduce"] = own
    found["each rank keeps its own gradients, divided by the number of ranks: derive `future` from the all-reduce"] = (
        own / ranks
    )
    return found | {sentence: numpy.stack(means) for sentence, means in _of_another_type(case, case["dtype"]).items()}


def _of_another_type(case, dtype):
    """Return {a sentence on a wrong type: the means of all steps in this type}. The wrong type is not longer."""
    other = {"float32": "float16", "float16": "bfloat16"}.get(dtype)
    return (
        {f"the gradients are sent as {other}, but `dtype` is {dtype} here": _means(case, getattr(torch, other))}
        if other
        else {}
    )


def _steps(case):
    return range(2, 2 + case["steps"])


def _with_feedback(case, send, more=()):
    """Simulate a method with error feedback, and with each mistake.

    The rule of a mistake can replace four functions. "residual": of the stored residual (None at first) and the
    gradients. "send": of `owed` and the gradients, returns the values that are sent. "left": of `owed`, the values that
    are sent, and the gradients, returns the new residual. "arrives": of the values that are sent.
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
        "`scale` is the sum of the absolute values: use their mean": {
            "send": lambda owed, gradient: _signs(owed, owed.abs().sum())
        },
        "`scale` is the largest absolute value: use the mean of the absolute values": {
            "send": lambda owed, gradient: _signs(owed, owed.abs().max())
        },
        "`scale` is the mean of the values, which cancel each other: use the mean of the absolute values": {
            "send": lambda owed, gradient: _signs(owed, owed.mean())
        },
        "`scale` is 1: use the mean of the absolute values": {
            "send": lambda owed, gradient: _signs(owed, torch.ones(()))
        },
        "`scale` is computed from the gradients: compute it from `owed`": {
            "send": lambda owed, gradient: _signs(owed, gradient.abs().mean())
        },
        "`positive` is computed from the gradients: compute it from `owed`": {
            "send": lambda owed, gradient: _signs(owed, owed.abs().mean(), gradient >= 0)
        },
        "`scale` and `positive` are computed from the gradients: compute them from `owed`": {
            "send": lambda owed, gradient: _signs(gradient, gradient.abs().mean())
        },
        "`positive` is True where `owed` is below 0: it should be True where `owed` is 0 or more": {
            "send": lambda owed, gradient: -send(owed, gradient)
        },
        (
            "`positive` is True where `owed` is below 0, but -scale is sent there: it should be True where"
            " `owed` is 0 or more"
        ): {"send": lambda owed, gradient: -send(owed, gradient), "left": left},
        (
            "`positive` is computed from the residual: compute it before you subtract the sent value from `owed` in"
            " place"
        ): {
            "send": lambda owed, gradient: _signs(owed, owed.abs().mean(), left(owed, None, gradient) >= 0),
            "left": left,
        },
        "`positive` is False where `owed` is 0: it should be True where `owed` is 0 or more": {
            "send": lambda owed, gradient: _signs(owed, owed.abs().mean(), owed > 0)
        },
        "the residual is wrong where `owed` is 0: scale is sent there, but `.sign()` is 0": {
            "left": lambda owed, sent, gradient: owed - owed.abs().mean() * owed.sign()
        },
        "the residual is `owed` minus the sign: subtract the value that is sent, scale or -scale": {
            "left": lambda owed, sent, gradient: owed - _signs(owed, torch.ones(()))
        },
        "the residual is `owed` minus scale everywhere: subtract -scale where -scale is sent": {
            "left": lambda owed, sent, gradient: owed - sent.abs()
        },
    }
    return _with_feedback(case, send, more)


def _top(values, share, by):
    """Return `values` at the indices of the largest numbers of `by`, and 0 elsewhere."""
    places = by.topk(max(1, round(share * len(by)))).indices
    return torch.zeros_like(values).index_copy(0, places, values[places])


def _top_k(case):
    share = case["share"]
    send = lambda owed, gradient: _top(owed, share, owed.abs())
    more = {
        "the hook sends the largest values, and large negative values never: compare absolute values": {
            "send": lambda owed, gradient: _top(owed, share, owed)
        },
        "`values` are absolute values, so the signs are lost: take the numbers of `owed`": {
            "send": lambda owed, gradient: _top(owed, share, owed.abs()).abs()
        },
        "`values` are absolute values, so the signs are lost on the way: take the numbers of `owed`": {
            "arrives": torch.abs
        },
        "`places` are the indices of the smallest values: use the largest absolute values": {
            "send": lambda owed, gradient: _top(owed, share, -owed.abs())
        },
        LAST_ONLY: {"left": lambda owed, sent, gradient: torch.where(sent == 0, gradient, 0)},
        "`values` are 0: take them from `owed` before you set these numbers to 0": {"arrives": torch.zeros_like},
        "`places` are the indices of the largest gradients: use the largest numbers of `owed`": {
            "send": lambda owed, gradient: _top(owed, share, gradient.abs())
        },
        "`values` are the gradients at these indices: use the numbers of `owed`": {
            "send": lambda owed, gradient: _top(gradient, share, owed.abs()),
            "left": lambda owed, sent, gradient: owed - _top(owed, share, owed.abs()),
        },
        "`places` and `values` are computed from the gradients: compute them from `owed`": {
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
        "each step uses its own mean, so it has to wait for it: use the mean of the previous step": means,
        "each step uses the mean of two steps before: use the mean of the previous step": 2 * zeros + means,
        "the result is the sum of the gradients: divide by the number of ranks": (
            zeros + [case["ranks"] * mean for mean in means]
        ),
        "the first step uses its own mean: use zeros, because there is no previous step": means[:1] + means,
    }
    found |= {sentence: zeros + rounded for sentence, rounded in _of_another_type(case, dtype).items()}
    found = {sentence: numpy.stack(steps[: case["steps"]]) for sentence, steps in found.items()}
    own = _own(case)
    with_own = numpy.stack([[of_rank[0], *found["right"][1:]] for of_rank in own])
    return found | {
        "the first step uses the rank's own gradients: use zeros, because there is no previous step": with_own,
        "each rank uses its own gradients: use the mean of the previous step": own,
    }


def _own(case):
    """Return the gradients of each rank in each step: [ranks][steps][numbers]."""
    return numpy.stack([[_flat(of_rank) for of_rank in _given(case, step)] for step in _steps(case)], axis=1)


def _means(case, dtype):
    """Return the mean of all ranks' gradients in each step, if they are sent as `dtype`."""
    return [
        _flat([sum((one / case["ranks"]).to(dtype) for one in of_ranks) for of_ranks in zip(*_given(case, step))])
        for step in _steps(case)
    ]
