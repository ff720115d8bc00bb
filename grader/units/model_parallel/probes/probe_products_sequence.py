"""The probe of products_sequence.py: both operators run on real ranks, in groups."""

import torch
import torch.distributed as dist

from grader.probes.count_collectives import Collectives
from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import join
from grader.sandbox.rank import StudentMistake
from grader.units.model_parallel.probes.probe_products import group_of
from handson.pytorch.sequences import all_gather, reduce_scatter

SHAPE = 2, 12, 3  # images, all tokens, width; 1 to 4 ranks divide the tokens


def numbers(case, rank, what, ranks=1):
    """Return the tokens (0 and 2) or their gradients (1 and 3) that a rank gives to an operator: all of them, or its
    share if `ranks` ranks divide them."""
    seeds = 1000 * case["seed"] + 10 * rank + what
    drawn = torch.rand(SHAPE, generator=torch.Generator().manual_seed(seeds), dtype=torch.float64)
    return drawn[:, : SHAPE[1] // ranks].clone()


def operators(rank, ranks, source, case):
    """Return for `Gather` and `Scatter` the result of forward, the gradient of backward, and the messages, as [name,
    bytes]."""
    join(rank, ranks)
    group, found = group_of(rank, case.get("groups")), {}
    size = dist.get_world_size(group)
    names = GapCode(source).run(all_gather=all_gather, reduce_scatter=reduce_scatter)
    for place, (name, takes, gives) in enumerate((("Gather", size, 1), ("Scatter", 1, size))):
        operator, collectives = getattr(names, name), Collectives()
        if not (isinstance(operator, type) and issubclass(operator, torch.autograd.Function)):
            raise StudentMistake(f"`{name}` is not a class that inherits from torch.autograd.Function")
        given = numbers(case, rank, 2 * place, takes).requires_grad_()
        upstream = numbers(case, rank, 2 * place + 1, gives)
        with collectives.noted(all_ended=True):
            result = operator.apply(given, group)
            if not isinstance(result, torch.Tensor) or result.shape != upstream.shape:
                shown = tuple(result.shape) if isinstance(result, torch.Tensor) else repr(result)[:40]
                raise StudentMistake(
                    f"in forward, `{name}` returns {shown}; it should return a tensor (images, tokens, width) of"
                    f" {tuple(upstream.shape)}"
                )
            forward = collectives.hand_over()
            result.backward(upstream)
        gradient = torch.zeros_like(given) if given.grad is None else given.grad
        found[name] = {
            "forward": result.detach().numpy().copy(),
            "backward": gradient.numpy().copy(),
            "sent": forward + collectives.hand_over(),
        }
    return found
