"""The tensor parallelism of products.py with PyTorch: torchrun --standalone --nproc-per-node 2 products_dtensor.py

Each rank holds a part of a DTensor (Shard) or all of it (Replicate). An operation on DTensors runs the collectives that
it needs.
"""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from handson.pytorch import products, sequences


def split(model):
    """Split the blocks of a Transformer in place among all ranks."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        products.check_heads(block.attention.heads, mesh.size())
        block.attention.heads //= mesh.size()
        # The input of the attention becomes one DTensor, so that the gradients of query, key and value are added before
        # an all-reduce.
        entrance = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
        ### BEGIN SOLUTION plan:
        ### Set `plan` to a dictionary: name of a module of the block -> its style. Use
        ### ColwiseParallel() or RowwiseParallel() for each of the six layers, with names such as
        ### "mlp.up", and `entrance` for "attention"
        plan = {
            "attention": entrance,
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.out": RowwiseParallel(),
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(),
        }
        ### END SOLUTION
        parallelize_module(block, mesh, plan)
    return model


def split_sequence(model):
    """Split the blocks of a Transformer, and the tokens between their split parts, in place among all ranks."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sequences.check_tokens(len(model.patches.position_embedding), mesh.size())
    all_tokens = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
    for block in model.blocks:
        products.check_heads(block.attention.heads, mesh.size())
        block.attention.heads //= mesh.size()
        plan = {
            "norm1": SequenceParallel(),  # computes this rank's tokens: dimension 1 is divided
            "attention": all_tokens,
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.out": RowwiseParallel(output_layouts=Shard(1)),
            "norm2": SequenceParallel(),
            "mlp": all_tokens,
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(block, mesh, plan)
    own_tokens = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1))
    all_local = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate(), use_local_output=True)
    parallelize_module(model, mesh, {"patches": own_tokens, "head": all_local})
    return model


if __name__ == "__main__":
    products.compare(split, split_sequence)
