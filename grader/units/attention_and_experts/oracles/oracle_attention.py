"""What the gaps of attention.py should give, computed in one process, and what typical mistakes give."""

import torch

from grader.units.attention_and_experts.probes.probe_attention import heads_of, of_the_ring, partials, places


def _arrays(values):
    return {sentence: tensor.numpy() for sentence, tensor in values.items()}


def combine(rank, ranks, case):
    """For the one rank: {"total": {"right" or a sentence: values}, "taken": the same}."""
    one, other = partials(case)
    total = torch.logaddexp(one.total, other.total)
    of_one, of_other = ((of.total - total).exp()[..., None] for of in (one, other))
    totals = {
        "right": total,
        "`total` is the sum of two logarithms, which is that of a product": one.total + other.total,
        "`total` is the larger of both: the other one belongs to the sum, too": torch.maximum(one.total, other.total),
        "`total` is the sum itself: its logarithm is asked for, which does not overflow": total.exp(),
    }
    taken = {
        "right": of_one * one.taken + of_other * other.taken,
        "`taken` is the mean of both, as if the keys of both had the same weight": (one.taken + other.taken) / 2,
        "`taken` is the sum of both: weigh each with the share of the sum that its keys have": one.taken + other.taken,
        "the weights are in each other's place": of_other * one.taken + of_one * other.taken,
        "each is weighed with its total, which is a logarithm": (
            one.total[..., None] * one.taken + other.total[..., None] * other.taken
        )
        / (one.total + other.total)[..., None],
    }
    return [{"total": _arrays(totals), "taken": _arrays(taken)}]


def _softmax(query, key, value, seen=None):
    scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1) @ value


def ring(rank, ranks, case):
    """For each rank {"taken": {"right" or a sentence: values}}."""
    query, key, value = of_the_ring(case)
    found = []
    for mine in places(case):
        seen = torch.arange(key.shape[1]) <= mine[:, None] if case["causal"] else None
        own = mine <= mine[:, None] if case["causal"] else None
        found.append(
            {
                "taken": _arrays(
                    {
                        "right": _softmax(query[:, mine], key, value, seen),
                        "each rank has attended to its own keys only": _softmax(
                            query[:, mine], key[:, mine], value[:, mine], own
                        ),
                    }
                )
            }
        )
    return found


def to_heads(rank, ranks, case):
    """For each rank {"whole": {"right" or a sentence: values}}."""
    size, number = case["ranks"], case["heads"] // case["ranks"]
    parts = [heads_of(case, one) for one in range(size)]
    found = []
    for one in range(size):
        received = torch.cat([part[one * number : (one + 1) * number] for part in parts])
        shape = number, size * case["tokens"], received.shape[-1]
        values = {"right": torch.cat([part[one * number : (one + 1) * number] for part in parts], dim=1)}
        if number > 1:
            values[
                "the numbers of the ranks are in each other's place: dimension 0 of `received` has the ranks, then the"
                " heads; transpose before you flatten"
            ] = received.reshape(shape)
        values["the tokens of the ranks are in turns: the ranks' dimension must stand before the tokens'"] = (
            received.unflatten(0, (size, -1)).permute(1, 2, 0, 3).flatten(1, 2)
        )
        found.append({"whole": _arrays(values)})
    return found
