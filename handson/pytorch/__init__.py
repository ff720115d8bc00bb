"""What the PyTorch track of the exercises imports: model, devices, workers, communicator, evaluation."""

import warnings

from handson.profiling import recorders

# torch 2.13 recommends another option, which torch 2.11 lacks and which does something else.
warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)

recorders.begin("pytorch")
