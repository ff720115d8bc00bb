"""Two ways to need less memory for activations on the same GPU; both take time. train_memory.py trains with them."""

import torch
import torch.nn.functional as F


def accumulate(model, images, labels, parts):
    """Forward and backward of a batch in `parts` micro-batches. Afterwards the gradients are those of the whole batch;
    returns its mean loss."""
    micro_batches = zip(images.tensor_split(parts), labels.tensor_split(parts))  # their lengths differ by one at most
    total = torch.zeros(())
    # PUT YOUR CODE: for each (micro-batch, its labels): forward, then backward at once; backward adds to
    # parameter.grad. cross_entropy is a mean: weigh it by the micro-batch's share of the images. `total`:
    # the sum of these, without a graph
    raise NotImplementedError("PUT YOUR CODE: accumulate")
    return total


class Again(torch.autograd.Function):
    """What a layer computes, with nothing kept for backward but its input: backward computes the layer once again."""

    @staticmethod
    def forward(ctx, tokens, layer):
        ctx.layer = layer
        ctx.save_for_backward(tokens)
        return layer(tokens)  # inside of a Function, autograd keeps nothing

    @staticmethod
    def backward(ctx, gradient):
        return compute_again(ctx.layer, *ctx.saved_tensors, gradient), None


def compute_again(layer, tokens, gradient):
    """The gradient of `tokens`, the layer's input, from the `gradient` of its output. Those of the layer's parameters
    are added to theirs."""
    # PUT YOUR CODE: `tokens`: the input as a new leaf, tokens.detach().requires_grad_(). Forward of the
    # layer within torch.enable_grad(), then backward of its output from `gradient`
    raise NotImplementedError("PUT YOUR CODE: again")
    return tokens.grad


def checkpointed(model, images):
    """The network's scores. Each block keeps its input alone."""
    tokens = model.patches(images)
    for block in model.blocks:
        tokens = Again.apply(tokens, block)
    return model.head(tokens)
