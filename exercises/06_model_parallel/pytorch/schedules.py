"""The order in which a stage of a pipeline does its operations: train_pipeline.py calls these functions, and
pipeline.py carries their lists out.

"F0" is the forward of micro-batch 0, "B0" its backward.
"""


def gpipe(stage, stages, micro_batches):
    """GPipe (Huang et al. 2019): all forwards, then all backwards, in the same order on every stage."""
    # PUT YOUR CODE: `operations`: a list of texts, such as ["F0", "F1", "B0", "B1"] for two micro-batches
    raise NotImplementedError("PUT YOUR CODE: gpipe")
    return operations


def one_forward_one_backward(stage, stages, micro_batches):
    """1F1B (Narayanan et al. 2019): after a warm-up of forwards, a backward follows each forward, so that few
    activations are held."""
    # PUT YOUR CODE: `operations`: as many forwards as stages come after this one (and not more than there
    # are micro-batches); then a forward and a backward by turns; at the end the backwards that are left
    raise NotImplementedError("PUT YOUR CODE: one_forward_one_backward")
    return operations
