"""Import this package before Accelerate, which is in the second environment, in the scripts of the unit 07_frameworks.
Raises NoFrameworks."""

import os

import torch.distributed as dist

from handson import frameworks
from handson.pytorch import devices

frameworks.add("accelerate")


def use_gpu(gpu):
    """Make this rank train on GPU `gpu`; a virtual GPU is a core. Call this function before an Accelerator is created,
    which would otherwise use the GPU with the rank's local number, or without GPUs one process with several threads."""
    devices.needs_nccl("Accelerate", dist.get_backend())
    device = devices.use(gpu)
    os.environ["ACCELERATE_TORCH_DEVICE"] = str(device)
    os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"  # DDP would get the GPU with the local rank
    if device.type == "cpu":
        os.environ |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
