"""The memory of a network and its optimizer by formulas, which `python -m handson memory` shows next to the counts."""

import torch

STATES = {  # optimizer -> how many numbers of its state belong to each parameter
    torch.optim.SGD: lambda group: bool(group["momentum"]),
    torch.optim.Adagrad: lambda group: 1,
    torch.optim.RMSprop: lambda group: 1 + bool(group["momentum"]) + group["centered"],
    torch.optim.Adam: lambda group: 2 + group["amsgrad"],
    torch.optim.AdamW: lambda group: 2 + group["amsgrad"],
}


def predicted(parameters, optimizers, buckets=0):
    """Return the bytes of each of gpu_memory.PARTS, or None if there is no formula. parameters: with the buffers;
    buckets: the bytes that DistributedDataParallel keeps of gradients in addition to the gradients themselves."""
    states = [state(optimizer) for optimizer in optimizers]
    return {
        "parameters": sum(map(size, parameters)),
        "gradients": sum(size(parameter) for parameter in parameters if parameter.requires_grad) + buckets,
        "optimizer": sum(states) if states and None not in states else None,
        "activations": None,
    }


def size(tensor):
    """Return the bytes of a tensor on this rank; for a sharded tensor (a DTensor), those of its shard."""
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).nbytes


def state(optimizer):
    """Return the bytes of an optimizer's state, or None for an optimizer that is not in STATES."""
    states = STATES.get(type(optimizer))
    if states is None:
        return None
    return sum(
        states(group) * size(parameter)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad
    )


def buckets(replica):
    """Return the bytes of the buckets of a DistributedDataParallel: 0 if its gradients are views of them."""
    return (
        0
        if replica.gradient_as_bucket_view
        else sum(parameter.nbytes for parameter in replica.parameters() if parameter.requires_grad)
    )
