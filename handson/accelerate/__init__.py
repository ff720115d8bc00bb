"""What the Accelerate script of the unit 07_frameworks imports before Accelerate, which is in the second environment.
Raises NoFrameworks."""

import os

from handson import frameworks
from handson.pytorch import devices

frameworks.add("accelerate")


def use_gpu(gpu):
    """Make this rank train on GPU `gpu`, where it is a virtual one on its core. Call it before an Accelerator is made,
    which would take the GPU with the rank's number on its node, and without GPUs one process with several threads."""
    device = devices.use(gpu)
    os.environ["ACCELERATE_TORCH_DEVICE"] = str(device)
    os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"  # else it hands DDP the GPU with the rank's number on its node
    if device.type == "cpu":
        os.environ |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
