"""The probe of fully_sharded.py: the student's code shards a small transformer on real ranks."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from grader.probes.count_collectives import Collectives
from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import flat, join
from grader.sandbox.rank import StudentMistake
from handson.pytorch.transformer import Transformer


def network(case):
    """Return the small transformer, with the same parameters on each call."""
    torch.manual_seed(case["seed"])
    return Transformer(classes=3, size=4, patch=2, width=case["width"], heads=2, blocks=case["blocks"])


def images(case, rank):
    """Return the images of a rank."""
    return torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(case["seed"] + 31 * rank))


def loss(model, of_rank):
    """Return a loss whose gradient differs between the outputs."""
    return model(of_rank).float().square().mean()


def divide(gap, model, mesh, dtype):
    """Run the student's code. Raises StudentMistake for a block that is wrapped after the whole model."""
    try:
        gap.run(model=model, mesh=mesh, dtype=dtype)
    except TypeError as error:
        if isinstance(model, FSDPModule) and not any(isinstance(block, FSDPModule) for block in model.blocks[1:]):
            raise StudentMistake(
                "`model` is wrapped before its blocks, so it holds all their parameters: call fully_shard for each"
                " block first, then for `model`"
            ) from error
        raise


def wrap(rank, ranks, source, case):
    """Shard the network with the student's code, and return

    - `whole`, the parameters that are not sharded
    - the gradients in float32, and the collectives of forward in float32 ("float32")
    - the collectives of forward and of backward with bfloat16, as [name, bytes]
    - `numbers`, the count of numbers in all shards of a rank
    """
    join(rank, ranks)
    mesh, gap, collectives = init_device_mesh("cpu", (ranks,)), GapCode(source), Collectives()
    found = {"whole": [], "gradients": flat([torch.zeros(1)]), "float32": [], "forward": [], "backward": []}
    model = network(case)
    # the last rank's rows may be fewer: they travel filled up to those of the first
    numbers = sum(-(-len(one) // ranks) * one[0].numel() for one in model.parameters())
    found["numbers"] = numbers
    divide(gap, model, mesh, torch.float32)
    parameters = dict(model.named_parameters())
    found["whole"] = [name for name, one in parameters.items() if not isinstance(one, DTensor)]
    if found["whole"]:  # such a model need not run
        return found
    with collectives.noted():
        value = loss(model, images(case, rank))
    found["float32"] = collectives.hand_over()
    value.backward()
    found["gradients"] = flat([one.grad.full_tensor() for one in parameters.values()])

    model = network(case)
    divide(gap, model, mesh, torch.bfloat16)
    with collectives.noted():
        value = loss(model, images(case, rank))
    found["forward"] = collectives.hand_over()
    with collectives.noted():
        value.backward()
    return found | {"backward": collectives.hand_over()}
