"""FSDP, which is ZeRO, stage 3, by PyTorch: mpiexec -n 2 python fully_sharded.py counts what one step sends.

Zhao et al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", VLDB 2023.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.debug import CommDebugMode

from handson.pytorch import transformer


def shard(model, mesh, dtype):
    """Divide a Transformer among the ranks of a mesh: float32 masters in shards, from which each block is gathered in
    `dtype` for its forward, and again for its backward."""
    # PUT YOUR CODE: fully_shard(module, mesh=..., mp_policy=..., reshard_after_forward=...) each of
    # model.blocks, then `model`, which takes the rest; parameters in `dtype`, sums of gradients in
    # float32
    raise NotImplementedError("PUT YOUR CODE: wrap")
    return model


def count():
    """Print how often the ranks communicate in one step of a network with two blocks."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = shard(transformer.Transformer(width=64, blocks=2), mesh, torch.bfloat16)
    images = torch.rand(4, 3, 8, 8, requires_grad=True)  # without it, CommDebugMode warns
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
