"""The split of products.py, made by PyTorch: torchrun --standalone --nproc-per-node 2 products_dtensor.py

A DTensor is a tensor of which each rank has a part (Shard) or all (Replicate). A product of two of them finds out what
has to be sent.
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

from handson.pytorch import products


def split(model):
    """Split the blocks of a Transformer among all ranks, in place."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        products.check_heads(block.attention.heads, mesh.size())
        block.attention.heads //= mesh.size()
        # The input of the attention becomes one DTensor, so that the gradients of query, key and value are added up
        # before they are sent.
        entrance = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
        # PUT YOUR CODE: `plan`: {name of a module of the block: its style}, with ColwiseParallel() and
        # RowwiseParallel() for the six layers, named as in "mlp.up", and `entrance` for "attention"
        raise NotImplementedError("PUT YOUR CODE: plan")
        parallelize_module(block, mesh, plan)
    return model


def split_sequence(model):
    """Split the blocks of a Transformer among all ranks, and the tokens between the split parts, in place."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    products.check_tokens(len(model.patches.place), mesh.size())
    all_tokens = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
    for block in model.blocks:
        products.check_heads(block.attention.heads, mesh.size())
        block.attention.heads //= mesh.size()
        plan = {
            "norm1": SequenceParallel(),  # of this rank's tokens: dimension 1 is divided
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
