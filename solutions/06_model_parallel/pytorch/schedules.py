"""The order in which a stage of a pipeline does its operations: train_pipeline.py calls these functions, and
pipeline.py carries their lists out.

"F0" is the forward of micro-batch 0, "B0" its backward.
"""


def gpipe(stage, stages, micro_batches):
    """GPipe (Huang et al. 2019): all forwards, then all backwards, in the same order on every stage."""
    ### BEGIN SOLUTION gpipe:
    ### `operations`: a list of texts, such as ["F0", "F1", "B0", "B1"] for two micro-batches
    forwards = [f"F{number}" for number in range(micro_batches)]
    backwards = [f"B{number}" for number in range(micro_batches)]
    operations = forwards + backwards
    ### END SOLUTION
    return operations


def one_forward_one_backward(stage, stages, micro_batches):
    """1F1B (Narayanan et al. 2019): after a warm-up of forwards, a backward follows each forward, so that few
    activations are held."""
    ### BEGIN SOLUTION one_forward_one_backward:
    ### `operations`: as many forwards as stages come after this one (and not more than there are
    ### micro-batches); then a forward and a backward by turns; at the end the backwards that are
    ### left
    warm_up = min(stages - 1 - stage, micro_batches)
    operations = [f"F{number}" for number in range(warm_up)]
    for number in range(warm_up, micro_batches):
        operations += [f"F{number}", f"B{number - warm_up}"]
    operations += [f"B{number}" for number in range(micro_batches - warm_up, micro_batches)]
    ### END SOLUTION
    return operations
