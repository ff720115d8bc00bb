"""What the course asks NVML, of simulated GPUs."""

import os
import time
from types import SimpleNamespace

MEMORY = 4 << 30  # bytes


class NVMLError(Exception):
    """As pynvml has it."""


class NVMLError_NotFound(NVMLError):
    """As pynvml has it."""


def nvmlInit():
    pass


def nvmlDeviceGetCount():
    return int(os.environ["SIMULATED_GPUS"])


def nvmlDeviceGetHandleByIndex(index):
    if index >= nvmlDeviceGetCount():
        raise NVMLError("Invalid Argument")
    return index


def nvmlDeviceGetName(handle):
    return "Simulated GPU"


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(used=MEMORY // 4, total=MEMORY)


def nvmlDeviceGetUtilizationRates(handle):
    return SimpleNamespace(gpu=50)


def nvmlDeviceGetProcessUtilization(handle, since):
    raise NVMLError_NotFound("Not Found")


def nvmlDeviceGetTotalEnergyConsumption(handle):
    return int(time.monotonic() * 1e5)


def nvmlDeviceGetCudaComputeCapability(handle):
    return 9, 0
