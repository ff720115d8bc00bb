"""Gradient accumulation and activation checkpointing: both need less memory for activations, and more time.

train_memory.py trains with them.
"""

import torch
import torch.nn.functional as F


def accumulate(model, images, labels, parts):
    """Run forward and backward of a batch in `parts` micro-batches, and return the batch's mean loss. The gradients are
    those of the whole batch."""
    micro_batches = zip(images.tensor_split(parts), labels.tensor_split(parts))  # their lengths differ by at most 1
    total = torch.zeros(())
    # PUT YOUR CODE: For each (micro-batch, its labels), run forward and then backward, which adds to
    # parameter.grad. cross_entropy is a mean: multiply it by the micro-batch's share of the images. Set
    # `total` to the sum of these losses, without a graph.
    raise NotImplementedError("PUT YOUR CODE: accumulate")
    return total


class Again(torch.autograd.Function):
    """Apply a layer, and keep only its input for backward, which recomputes the layer."""

    @staticmethod
    def forward(ctx, tokens, layer):
        ctx.layer = layer
        ctx.save_for_backward(tokens)
        return layer(tokens)  # autograd keeps no activations inside a Function

    @staticmethod
    def backward(ctx, gradient):
        return compute_again(ctx.layer, *ctx.saved_tensors, gradient), None


def compute_again(layer, tokens, gradient):
    """Return the gradient of `tokens`, the layer's input, given the `gradient` of the layer's output. Also add to the
    gradients of the layer's parameters."""
    # PUT YOUR CODE: Set `tokens` to a new leaf with the values of the input:
    # tokens.detach().requires_grad_(). Run the layer's forward inside torch.enable_grad(), then backward
    # of its output, starting from `gradient`.
    raise NotImplementedError("PUT YOUR CODE: again")
    return tokens.grad


def checkpointed(model, images):
    """Return the network's class scores. Each block keeps only its input."""
    tokens = model.patches(images)
    for block in model.blocks:
        tokens = Again.apply(tokens, block)
    return model.head(tokens)
