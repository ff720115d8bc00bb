"""The order of a pipeline stage's operations: train_pipeline.py calls these functions, and pipeline.py executes the
lists that they return.

"F0" is the forward of micro-batch 0, and "B0" is its backward.
"""


def gpipe(stage, stages, micro_batches):
    """GPipe (Huang et al. 2019): all forwards, then all backwards, in the same order on every stage."""
    # PUT YOUR CODE: Set `operations` to a list of strings, such as ["F0", "F1", "B0", "B1"] for two
    # micro-batches
    raise NotImplementedError("PUT YOUR CODE: gpipe")
    return operations


def one_forward_one_backward(stage, stages, micro_batches):
    """1F1B (Narayanan et al. 2019): after a warm-up of forwards, a backward follows each forward, so that a stage holds
    few activations."""
    # PUT YOUR CODE: Set `operations` to a list with three parts. First comes one forward for each stage
    # after this one (at most `micro_batches`). Then forward and backward alternate. Last come the
    # remaining backwards
    raise NotImplementedError("PUT YOUR CODE: one_forward_one_backward")
    return operations
