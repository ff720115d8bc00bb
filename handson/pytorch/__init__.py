"""The modules that the PyTorch track of the exercises imports: networks, devices, the first lines of the output,
batches."""

import atexit
import logging
import time

from handson.profiling import recorders
from handson.training.launch import started_by

LAST_MESSAGES = 0.2  # seconds for gloo's threads to free the tensors of the last messages

# torchrun would otherwise print a line for each process that it ends after a failure; `uncaught` names the failed one
logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
recorders.begin("pytorch")
if started_by():
    # A thread that frees a tensor while Python ends aborts the process: "terminate called without an active exception".
    # A rank that has trained and left its process group ends before this: see rank_watcher.end_in_time.
    atexit.register(time.sleep, LAST_MESSAGES)
