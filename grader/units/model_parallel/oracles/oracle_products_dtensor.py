"""The reference for products_dtensor.py: the results of the block that is not split."""

from grader.units.model_parallel.probes.probe_products import network
from handson.pytorch.transformer import Block


def plan(rank, ranks, case):
    """Return the outputs of the whole block, and the gradient of the tokens."""
    block, tokens, upstream = network(case, Block, case["width"], case["heads"])
    outputs = block(tokens)
    outputs.backward(upstream)
    return {"outputs": outputs.detach().numpy(), "of_tokens": tokens.grad.numpy()}
