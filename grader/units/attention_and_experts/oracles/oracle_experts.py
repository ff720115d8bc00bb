"""The right results for the gaps of experts.py, computed in one process, and the results of typical mistakes."""

import torch

from grader.units.attention_and_experts.probes.probe_experts import chosen, probabilities, tokens_of


def within_capacity(rank, ranks, case):
    """Return, for each capacity, the `right` result, and `mistakes`: {sentence: wrong result}."""
    expert = chosen(case).tolist()

    def kept(capacity, order=range(len(expert))):
        room, found = {}, [False] * len(expert)
        for place in order:
            room[expert[place]] = room.get(expert[place], 0) + 1
            found[place] = room[expert[place]] <= capacity
        return found

    return {
        "right": [kept(capacity) for capacity in case["capacities"]],
        "mistakes": [
            {
                "`kept` has one token too few per expert: an expert with capacity c accepts c tokens": kept(
                    capacity - 1
                ),
                (
                    "`kept` has one token too many per expert: an expert accepts c tokens, and the first has the"
                    " number 1"
                ): kept(capacity + 1),
                "`kept` marks the last tokens of each expert, but it must mark the first ones": kept(
                    capacity, reversed(range(len(expert)))
                ),
                "`kept` marks the first tokens of the batch, but each expert has its own capacity": [
                    place < capacity for place in range(len(expert))
                ],
                "`kept` drops no token: an expert accepts only `capacity` tokens": [True] * len(expert),
            }
            for capacity in case["capacities"]
        ],
    }


def balancing_loss(rank, ranks, case):
    """Return the right `loss` and its `gradient`, and `mistakes`: {sentence: the loss}."""
    experts, expert, given = case["experts"], chosen(case), probabilities(case).requires_grad_()
    share = torch.bincount(expert, minlength=experts).double() / case["tokens"]
    loss = experts * (share * given.mean(0)).sum()
    loss.backward()
    mean = given.detach().mean(0)
    return {
        "loss": loss.item(),
        "gradient": given.grad.numpy(),
        "mistakes": {
            "`loss` lacks the factor `experts`, which makes it 1 for equal shares": loss.item() / experts,
            "`loss` has a factor that is a sum over the tokens: both factors are means over the tokens": loss.item()
            * case["tokens"],
            "`loss` squares the shares: one factor is the mean of the probabilities, which has a gradient": (
                experts * (share * share).sum().item()
            ),
            "`loss` squares the mean probabilities: one factor is the share of the tokens": (
                experts * (mean * mean).sum().item()
            ),
        },
    }


def _rows(case, name, back):
    """Return what each rank receives, in the order of the sending ranks. back: for the way back."""
    counts, size = case["counts"], case["ranks"]
    if back:
        counts = [list(column) for column in zip(*counts)]
    parts = [tokens_of(case, one, back).split(counts[one]) for one in range(size)]
    found = []
    for one in range(size):
        values = {"right": torch.cat([parts[other][one] for other in range(size)]).numpy()}
        values[f"`{name}` contains zeros or old memory: no exchange has filled it"] = 0 * values["right"]
        reverse = torch.cat([parts[other][one] for other in reversed(range(size))]).numpy()
        values[f"`{name}` has the ranks in reverse order"] = reverse
        found.append({name: values})
    return found


def exchange_forward(rank, ranks, case):
    """Return {"arrived": {"right" or a sentence: values}} for each rank."""
    return _rows(case, "arrived", back=False)


def exchange_backward(rank, ranks, case):
    """Return {"of_tokens": {"right" or a sentence: values}} for each rank."""
    return _rows(case, "of_tokens", back=True)
