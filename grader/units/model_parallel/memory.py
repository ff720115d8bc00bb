"""The checks of the gaps on memory: what fits, accumulation and checkpointing, sharded state."""

from grader.checks.notebook_functions import function

CHECKS = {}
NOTEBOOK = (
    function("block_parameters", "the parameters of a block", "A product of n x m has n m weights and m biases; a norm has a weight and a bias for each of the w numbers."),
)
