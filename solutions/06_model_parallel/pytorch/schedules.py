"""The order of a pipeline stage's operations: train_pipeline.py calls these functions, and pipeline.py executes the
lists that they return.

"F0" is the forward of micro-batch 0, and "B0" is its backward.
"""


def gpipe(stage, stages, micro_batches):
    """GPipe (Huang et al. 2019): all forwards, then all backwards, in the same order on every stage."""
    ### BEGIN SOLUTION gpipe:
    ### Set `operations` to a list of strings, such as ["F0", "F1", "B0", "B1"] for two
    ### micro-batches
    forwards = [f"F{number}" for number in range(micro_batches)]
    backwards = [f"B{number}" for number in range(micro_batches)]
    operations = forwards + backwards
    ### END SOLUTION
    return operations


def one_forward_one_backward(stage, stages, micro_batches):
    """1F1B (Narayanan et al. 2019): after a warm-up of forwards, a backward follows each forward, so that a stage holds
    few activations."""
    ### BEGIN SOLUTION one_forward_one_backward:
    ### Set `operations` to a list with three parts. First comes one forward for each stage after
    ### this one (at most `micro_batches`). Then forward and backward alternate. Last come the
    ### remaining backwards
    warm_up = min(stages - 1 - stage, micro_batches)
    operations = [f"F{number}" for number in range(warm_up)]
    for number in range(warm_up, micro_batches):
        operations += [f"F{number}", f"B{number - warm_up}"]
    operations += [f"B{number}" for number in range(micro_batches - warm_up, micro_batches)]
    ### END SOLUTION
    return operations
