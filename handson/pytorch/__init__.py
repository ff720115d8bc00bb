"""What the PyTorch track of the exercises imports: model, devices, workers, communicator, evaluation."""

import warnings

from handson.profiling import recorders

# torch 2.13 announces an option in its place that torch 2.11 lacks, and that does not do the same.
warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)

recorders.begin("pytorch")
