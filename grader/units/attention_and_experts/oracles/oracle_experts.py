"""What the gaps of experts.py should give, computed in one process, and what typical mistakes give."""

import torch

from grader.units.attention_and_experts.probes.probe_experts import chosen, probabilities, tokens_of


def within_capacity(rank, ranks, case):
    """For each capacity what is `right`, and `mistakes`: {sentence: what it gives}."""
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
                "an expert with capacity c takes c tokens; here it takes one less": kept(capacity - 1),
                "an expert with capacity c takes c tokens; here it takes one more: the first token is number 1": kept(
                    capacity + 1
                ),
                "the last tokens of an expert are kept; the first ones are asked for": kept(
                    capacity, reversed(range(len(expert)))
                ),
                "that is the first tokens of all; each expert has a capacity of its own": [
                    place < capacity for place in range(len(expert))
                ],
                "no token is dropped": [True] * len(expert),
            }
            for capacity in case["capacities"]
        ],
    }


def balancing_loss(rank, ranks, case):
    """The right `loss` and its `gradient`, and `mistakes`: {sentence: the loss}."""
    experts, expert, given = case["experts"], chosen(case), probabilities(case).requires_grad_()
    share = torch.bincount(expert, minlength=experts).double() / case["tokens"]
    loss = experts * (share * given.mean(0)).sum()
    loss.backward()
    mean = given.detach().mean(0)
    return {
        "loss": loss.item(),
        "gradient": given.grad.numpy(),
        "mistakes": {
            "`loss` lacks the factor `experts`, which makes it 1 if all is even": loss.item() / experts,
            "one factor is added up over the tokens; both are means over the tokens": loss.item() * case["tokens"],
            "the shares are squared: one factor is the mean of the probabilities, which has a gradient": (
                experts * (share * share).sum().item()
            ),
            "the mean probabilities are squared: one factor is the share of the tokens": (
                experts * (mean * mean).sum().item()
            ),
        },
    }


def _rows(case, name, back):
    """What each rank gets, in the ranks' order. back: of the way back."""
    counts, size = case["counts"], case["ranks"]
    if back:
        counts = [list(column) for column in zip(*counts)]
    parts = [tokens_of(case, one, back).split(counts[one]) for one in range(size)]
    found = []
    for one in range(size):
        values = {"right": torch.cat([parts[other][one] for other in range(size)]).numpy()}
        values["the numbers are zeros, or what was in the memory before: nothing is exchanged"] = 0 * values["right"]
        reverse = torch.cat([parts[other][one] for other in reversed(range(size))]).numpy()
        values["the ranks are in the reverse order"] = reverse
        found.append({name: values})
    return found


def exchange_forward(rank, ranks, case):
    """For each rank {"arrived": {"right" or a sentence: values}}."""
    return _rows(case, "arrived", back=False)


def exchange_backward(rank, ranks, case):
    """For each rank {"of_tokens": {"right" or a sentence: values}}."""
    return _rows(case, "of_tokens", back=True)
