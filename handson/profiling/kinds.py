"""Derive the kind of an event from its name and its recorder's category. All readers use this."""

import re

from handson.profiling.timeline import COMMUNICATION, COMPUTE, COPY, HOST, LOADING, RANGE, STEP, step_number

OPERATOR = 255  # PyTorch's operator on a core: compute if the profile has no GPU, else host
COLLECTIVE_KERNEL = re.compile("nccl|rccl", re.IGNORECASE)
# torch's names for operations in a process group's own thread; NCCL runs kernels instead
COLLECTIVE = re.compile("(?:gloo|mpi|ucc):")
LAUNCH = re.compile("c10d::|record_param_comms")  # an operator that only starts a collective in that thread
LOADER = re.compile(r"enumerate\(DataLoader\)|data loading|loading")
CATEGORIES = {  # categories of Chrome traces, in lower case
    "kernel": COMPUTE,
    "gpu_memcpy": COPY,
    "gpu_memset": COPY,
    "memcpy": COPY,
    "memset": COPY,
    "cuda_runtime": HOST,
    "cuda_driver": HOST,
    "runtime": HOST,
    "python_function": HOST,
    "cuda_sync": RANGE,
    "cpu_op": OPERATOR,
    "operator": OPERATOR,
    "user_annotation": RANGE,  # its copy for the GPU, "gpu_user_annotation", is left out: it would count twice
    "compute": COMPUTE,
    "communication": COMMUNICATION,
    "loading": LOADING,
    "host": HOST,
}


def of_kernel(name):
    """Return the kind of a GPU's kernel."""
    return COMMUNICATION if COLLECTIVE_KERNEL.search(name) else COMPUTE


def of_range(name):
    """Return the kind of a named range (NVTX, record_function)."""
    if step_number(name) is not None:
        return STEP
    return LOADING if LOADER.match(name) else RANGE


def of_event(category, name):
    """Return the kind of an event of a Chrome trace, or OPERATOR, or None for events that are left out."""
    kind = CATEGORIES.get(category.lower())
    if kind == COMPUTE:
        return of_kernel(name)
    if kind == OPERATOR and LAUNCH.match(name):
        return HOST
    if category == "user_annotation":
        return COMMUNICATION if COLLECTIVE.match(name) else of_range(name)
    return kind
