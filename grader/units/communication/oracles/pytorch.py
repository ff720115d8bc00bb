"""What the communication hooks should give: the definition of each method, simulated for all ranks in one process."""

import numpy
import torch

from grader.units.communication.probes.hooks import gradients

FEEDBACK = {
    "right": {},
    "what could not be sent is forgotten: the residual of the step before is not added to the gradients": {"feedback": False},
    "the residual is only the last gradient's: it must also hold what was still owed before (`owed`, not the gradients)": {"owed": False},
    "the residual has the wrong sign: it is what was owed minus what is sent": {"sign": -1},
}


def hook(rank, ranks, case):
    """{"right" or the sentence of a mistake: the gradients after backward, [steps][numbers], the same on all ranks}."""
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
    return {
        sentence: numpy.stack([sum(_flat([rule(one) for one in of_rank]) for of_rank in _given(case, step)) for step in _steps(case)])
        for sentence, rule in rules.items()
    }


def _steps(case):
    return range(2, 2 + case["steps"])


def _with_feedback(case, send, more=()):
    """Simulate a method with error feedback; send(owed) is what arrives in its place."""
    found = {}
    for sentence, rule in (FEEDBACK | dict(more)).items():
        residuals, trace = {}, []
        for step in _steps(case):
            mean = [torch.zeros(length) for length in case["lengths"]]
            for rank, of_rank in enumerate(_given(case, step)):
                for place, gradient in enumerate(of_rank):
                    owed = gradient + residuals.get((rank, place), 0) * rule.get("feedback", True)
                    sent = rule.get("send", send)(owed)
                    left = (owed if rule.get("owed", True) else gradient) - sent
                    residuals[rank, place] = rule.get("sign", 1) * left
                    mean[place] += sent / case["ranks"]
            trace.append(_flat(mean))
        found[sentence] = numpy.stack(trace)
    return found


def _signs(owed, scale=None):
    scale = owed.abs().mean() if scale is None else scale
    return torch.where(owed >= 0, scale, -scale)


def _one_bit(case):
    more = {
        "`scale` is the largest absolute value; it should be their mean": {"send": lambda owed: _signs(owed, owed.abs().max())},
        "`scale` is the mean of the values, which cancel each other: take that of the absolute values": {"send": lambda owed: _signs(owed, owed.mean())},
        "`scale` is 1: then all gradients have the same size": {"send": lambda owed: _signs(owed, torch.ones(()))},
        "0 counts as negative; `positive` is where `owed` is 0 or more": {"send": lambda owed: torch.where(owed > 0, owed.abs().mean(), -owed.abs().mean())},
    }
    return _with_feedback(case, _signs, more)


def _top(owed, share, size=torch.Tensor.abs):
    places = size(owed).topk(max(1, round(share * len(owed)))).indices
    return torch.zeros_like(owed).index_copy(0, places, owed[places])


def _top_k(case):
    share = case["share"]
    more = {
        "the largest values are sent, and large negative ones never: compare absolute values": {"send": lambda owed: _top(owed, share, lambda one: one)},
        "the absolute values are sent: the signs are lost": {"send": lambda owed: _top(owed, share).abs()},
    }
    return _with_feedback(case, lambda owed: _top(owed, share), more)


def _late(case):
    dtype = case.get("dtype", "float32")
    means, rounded = _means(case, getattr(torch, dtype)), _means(case, torch.float16)
    zeros = [numpy.zeros_like(means[0])]
    found = {
        "right": zeros + means,
        "each step uses its own mean, not that of the step before: then it has to wait for it": means,
        "each step uses the mean of two steps before": 2 * zeros + means,
        "the gradients are summed, not averaged: divide by the number of ranks": zeros + [case["ranks"] * mean for mean in means],
        "the first step uses its own mean; there is none yet, so it uses zeros": means[:1] + means,
    }
    if dtype == "float32":
        found["the gradients travel as float16; `dtype` is float32 here"] = zeros + rounded
    return {sentence: numpy.stack(steps[: case["steps"]]) for sentence, steps in found.items()}


def _means(case, dtype):
    """The mean of all ranks' gradients in each step, which travel as `dtype`."""
    return [_flat([sum((one / case["ranks"]).to(dtype) for one in of_ranks) for of_ranks in zip(*_given(case, step))]) for step in _steps(case)]
