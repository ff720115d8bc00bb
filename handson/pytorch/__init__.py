"""The modules that the PyTorch track of the exercises imports: networks, devices, the first lines of the output,
batches."""

import logging

from handson.profiling import recorders

# torchrun would otherwise print a line for each process that it ends after a failure; `uncaught` names the failed one
logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
recorders.begin("pytorch")
