"""The modules that the PyTorch track of the exercises imports: networks, devices, the first lines of the output,
batches."""

import logging

from handson.profiling import recorders

# it would print a line for each process that it ends after one has failed, which `uncaught` names in a sentence
logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
recorders.begin("pytorch")
