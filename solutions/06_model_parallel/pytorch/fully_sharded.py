"""PyTorch's FSDP, which is stage 3 of ZeRO. This command counts the collectives of one step:
torchrun --standalone --nproc-per-node 2 fully_sharded.py

Zhao et al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", VLDB 2023.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.debug import CommDebugMode

from handson.pytorch import transformer


def shard(model, mesh, dtype):
    """Shard the float32 masters of a Transformer among the ranks of a mesh, and return it. Each block is gathered in
    `dtype` for its forward, and again for its backward."""
    ### BEGIN SOLUTION wrap:
    ### Call fully_shard(module, mesh=..., mp_policy=..., reshard_after_forward=...) for each of
    ### model.blocks, then for `model`, which takes the remaining parameters. The policy gathers
    ### parameters in `dtype`, and sums gradients in float32.
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    ### END SOLUTION
    return model


def count():
    """Print the number of collectives in one step of a network with two blocks."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = shard(transformer.Transformer(width=64, blocks=2), mesh, torch.bfloat16)
    images = torch.rand(4, 3, 8, 8, requires_grad=True)  # CommDebugMode warns if no input needs a gradient
    with CommDebugMode() as forward:
        loss = model(images).float().mean()
    with CommDebugMode() as backward:
        loss.backward()
    if dist.get_rank() == 0:
        for name, counted in (("forward", forward), ("backward", backward)):
            calls = {operator.__name__.strip("_"): times for operator, times in counted.get_comm_counts().items()}
            print(f"{name:8} {calls}")
    dist.destroy_process_group()


if __name__ == "__main__":
    count()
