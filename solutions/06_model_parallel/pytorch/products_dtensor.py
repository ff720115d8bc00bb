"""The split of products.py, made by PyTorch: torchrun --standalone --nproc-per-node 2 products_dtensor.py

A DTensor is a tensor of which each rank has a part (Shard) or all (Replicate). A product of two of them finds out what
has to be sent.
"""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module

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
        ### BEGIN SOLUTION plan:
        ### `plan`: {name of a module of the block: its style}, with ColwiseParallel() and
        ### RowwiseParallel() for the six layers, named as in "mlp.up", and `entrance` for
        ### "attention"
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


if __name__ == "__main__":
    products.compare(split)
