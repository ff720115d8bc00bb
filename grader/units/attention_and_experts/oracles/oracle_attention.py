"""The right results for the gaps of attention.py, computed in one process, and the results of typical mistakes."""

import torch

from grader.units.attention_and_experts.probes.probe_attention import heads_of, of_the_ring, partials, places


def _arrays(values):
    return {sentence: tensor.numpy() for sentence, tensor in values.items()}


def combine(rank, ranks, case):
    """Return, for the single rank, {"total": {"right" or a sentence: values}, "taken": the same}."""
    one, other = partials(case)
    total = torch.logaddexp(one.total, other.total)
    of_one, of_other = ((of.total - total).exp()[..., None] for of in (one, other))
    totals = {
        "right": total,
        "`total` is the sum of two logarithms, which is the logarithm of a product: use torch.logaddexp": one.total
        + other.total,
        "`total` is the larger of both, but the smaller one belongs to the sum, too": torch.maximum(
            one.total, other.total
        ),
        "`total` is the sum itself: keep its logarithm, which does not overflow": total.exp(),
    }
    taken = {
        "right": of_one * one.taken + of_other * other.taken,
        "`taken` is the plain mean of both: weight each with its share of the sum": (one.taken + other.taken) / 2,
        "`taken` is the plain sum of both: multiply each by its share of the sum": one.taken + other.taken,
        "`taken` swaps the weights of the two": of_other * one.taken + of_one * other.taken,
        "`taken` uses the totals as weights, but these are logarithms: use exp(total of each - total)": (
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
    """Return {"taken": {"right" or a sentence: values}} for each rank."""
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
                        "`result` covers only the rank's own keys: combine it with the Partial of each block": _softmax(
                            query[:, mine], key[:, mine], value[:, mine], own
                        ),
                    }
                )
            }
        )
    return found


def to_heads(rank, ranks, case):
    """Return {"whole": {"right" or a sentence: values}} for each rank."""
    size, number = case["ranks"], case["heads"] // case["ranks"]
    parts = [heads_of(case, one) for one in range(size)]
    found = []
    for one in range(size):
        received = torch.cat([part[one * number : (one + 1) * number] for part in parts])
        shape = number, size * case["tokens"], received.shape[-1]
        values = {"right": torch.cat([part[one * number : (one + 1) * number] for part in parts], dim=1)}
        if number > 1:
            values[
                "`whole` mixes up the numbers of the ranks: dimension 0 of `received` has the ranks, then the heads, so"
                " transpose before you flatten"
            ] = received.reshape(shape)
        values["`whole` alternates the tokens of the ranks: move the ranks' dimension before the tokens' dimension"] = (
            received.unflatten(0, (size, -1)).permute(1, 2, 0, 3).flatten(1, 2)
        )
        found.append({"whole": _arrays(values)})
    return found
