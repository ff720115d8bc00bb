"""Which kind an event is, told from its name and from what its recorder calls its category. Shared by all readers."""

import re

from handson.profiling.timeline import COMMUNICATION, COMPUTE, COPY, HOST, LOADING, RANGE, STEP, step_number

OPERATOR = 255  # of PyTorch, on a core: compute where the profile has no GPU, host where it has
COLLECTIVE_KERNEL = re.compile("nccl|rccl", re.IGNORECASE)
COLLECTIVE = re.compile("(?:gloo|mpi|ucc):")  # as torch names what runs in a process group's own thread; NCCL has kernels
LAUNCH = re.compile("c10d::|record_param_comms")  # an operator that only hands a collective to that thread
LOADER = re.compile(r"enumerate\(DataLoader\)|data loading|loading")
CATEGORIES = {  # of Chrome traces, in lower case
    "kernel": COMPUTE, "gpu_memcpy": COPY, "gpu_memset": COPY, "memcpy": COPY, "memset": COPY,
    "cuda_runtime": HOST, "cuda_driver": HOST, "runtime": HOST, "python_function": HOST, "cuda_sync": RANGE,
    "cpu_op": OPERATOR, "operator": OPERATOR, "gpu_user_annotation": RANGE, "user_annotation": RANGE,
    "compute": COMPUTE, "communication": COMMUNICATION, "loading": LOADING, "host": HOST,
}  # fmt: skip


def of_kernel(name):
    """Of a GPU's kernel."""
    return COMMUNICATION if COLLECTIVE_KERNEL.search(name) else COMPUTE


def of_range(name):
    """Of a range that somebody named (NVTX, record_function)."""
    if step_number(name) is not None:
        return STEP
    return LOADING if LOADER.match(name) else RANGE


def of_event(category, name):
    """Of a Chrome trace's event, or OPERATOR; None for one that is left out."""
    kind = CATEGORIES.get(category.lower())
    if kind == COMPUTE:
        return of_kernel(name)
    if kind == OPERATOR and LAUNCH.match(name):
        return HOST
    if category == "user_annotation":
        return COMMUNICATION if COLLECTIVE.match(name) else of_range(name)
    return kind


