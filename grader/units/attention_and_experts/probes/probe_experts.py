"""The probes of experts.py: routing runs in one process, exchanges run on real ranks."""

from types import SimpleNamespace

import torch

from grader.probes.count_collectives import Collectives
from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import join
from grader.sandbox.rank import StudentMistake
from grader.units.attention_and_experts.probes.probe_attention import a_tensor

WIDTH = 2


def chosen(case):
    """Return the expert of each token: most tokens choose expert 1, and no token chooses the last one."""
    chance = torch.Generator().manual_seed(case["seed"])
    return torch.randint(0, 2 * case["experts"], (case["tokens"],), generator=chance).where(
        torch.rand(case["tokens"], generator=chance) < 0.4, torch.tensor(1)
    ) % (case["experts"] - 1)


def within_capacity(rank, ranks, source, case):
    """Return which tokens are kept, for each capacity."""
    student, found = GapCode(source), []
    for capacity in case["capacities"]:
        kept = student.run(expert=chosen(case), experts=case["experts"], capacity=capacity).kept
        kept = a_tensor("kept", kept, (case["tokens"],))
        if kept.dtype != torch.bool:
            raise StudentMistake(f"`kept` has the type {kept.dtype}, but it must have a bool for each token")
        found.append(kept.tolist())
    return {"kept": found}


def probabilities(case):
    chance = torch.Generator().manual_seed(case["seed"] + 1)
    return torch.randn(case["tokens"], case["experts"], generator=chance).double().softmax(-1)


def balancing_loss(rank, ranks, source, case):
    """Return the loss, and its gradient with respect to the probabilities (zeros without a graph)."""
    given = probabilities(case).requires_grad_()
    loss = GapCode(source).run(probabilities=given, expert=chosen(case), experts=case["experts"]).loss
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise StudentMistake("`loss` must be a tensor with one number, computed from `probabilities`")
    if loss.requires_grad:
        loss.sum().backward()
    gradient = torch.zeros_like(given) if given.grad is None else given.grad
    return {"loss": float(loss), "gradient": gradient.numpy().copy()}


def tokens_of(case, rank, back=False):
    """Return the tokens that a rank sends, in the order of the target ranks; back: the gradients of received tokens."""
    counts = case["counts"]
    number = sum(of_rank[rank] for of_rank in counts) if back else sum(counts[rank])
    return torch.randn(number, WIDTH, generator=torch.Generator().manual_seed(case["seed"] + rank)).double()


def _exchange(rank, ranks, source, case, name, **given):
    join(rank, ranks)
    counts, collectives = case["counts"], Collectives()
    sends, receives = list(counts[rank]), [of_rank[rank] for of_rank in counts]
    context = SimpleNamespace(sends=sends, receives=receives)
    with collectives.noted(all_ended=True), torch.no_grad():
        found = getattr(GapCode(source).run(context=context, sends=sends, receives=receives, **given), name)
    number = sum(receives) if name == "arrived" else sum(sends)
    found = a_tensor(name, found, (number, WIDTH))
    return {name: found.numpy().copy(), "sent": collectives.hand_over()}


def exchange_forward(rank, ranks, source, case):
    """Return the tokens that arrived, and the messages that were sent."""
    return _exchange(rank, ranks, source, case, "arrived", tokens=tokens_of(case, rank))


def exchange_backward(rank, ranks, source, case):
    """Return the gradients that came back, and the messages that were sent."""
    return _exchange(rank, ranks, source, case, "of_tokens", gradient=tokens_of(case, rank, back=True))
