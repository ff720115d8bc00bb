"""Apply HANDSON_DEVICE to this machine's GPUs: `cpu` hides them, so that virtual GPUs are cores; `gpu/2` divides each
GPU into two virtual GPUs with NVIDIA's MPS. If it is not set, GPUs are used if there are any.

`import handson` calls it, before any library has opened a GPU.
"""

import os
import re

VARIABLE = "HANDSON_DEVICE"
parts = 1  # virtual GPUs per GPU


def choose():
    """Apply HANDSON_DEVICE to this process and its children."""
    global parts
    if _chosen() == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif found := re.fullmatch("gpu/([1-9][0-9]?)", _chosen()):
        parts = int(found[1])
        # MPS reads it when a process uses its first GPU
        os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(max(1, 100 // parts))


def _chosen():
    return os.environ.get(VARIABLE, "").strip().lower()


def problem(has_gpus):
    """Return a sentence on why HANDSON_DEVICE cannot be applied, or None. has_gpus: whether this process sees a GPU."""
    if not re.fullmatch("|cpu|gpu|gpu/[1-9][0-9]?", _chosen()):
        return (
            f"{VARIABLE} is {os.environ[VARIABLE]!r}: give cpu, gpu, or gpu/2 for two virtual GPUs made of each GPU, or"
            " unset it"
        )
    if _chosen().startswith("gpu") and not has_gpus:
        return f"{VARIABLE} is {_chosen()}, but this process sees no GPU: unset it to use virtual GPUs"
    if parts > 1 and not mps_runs():
        return (
            f"{VARIABLE} is {_chosen()}, but NVIDIA's MPS, which divides a GPU among processes, is not running: start"
            " it with `nvidia-cuda-mps-control -d`, or set HANDSON_DEVICE=cpu to use cores as virtual GPUs"
        )
    return None


def mps_runs():
    """Return whether a process of this machine would reach NVIDIA's MPS. The folder is the default in its manual."""
    return os.path.exists(os.path.join(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control"))
