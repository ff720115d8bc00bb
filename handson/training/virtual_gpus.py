"""GPUs for a machine without GPUs: a virtual GPU is one core, and one process with one thread pinned to it. Both tracks
use them. If HANDSON_DEVICE is set accordingly, a virtual GPU is a part of a real one."""

import ctypes
import os

from handson import chosen_device, linux
from handson.words import counted

COUNT = 8  # ids 0 to 7 exist on every machine, so that the same command lines work everywhere


def cores():
    """Return the cores that this process may run on, in order. Virtual GPU i is core i of them; numbers beyond the last
    core start again at the first one."""
    return sorted(os.sched_getaffinity(0))


def core_of(gpu):
    """Return the core of virtual GPU `gpu`. Call it before `pin`, which restricts this process to one core."""
    available = cores()
    return available[gpu % len(available)]


def pin(gpu):
    """Pin this process to the core of virtual GPU `gpu`, and make it keep freed memory, as a GPU's allocator does."""
    os.sched_setaffinity(0, [core_of(gpu)])
    keep_freed_memory()


def share(gpus):
    """Run the threads of this process, which are the virtual GPUs `gpus`, on their cores, and keep freed memory."""
    os.sched_setaffinity(0, {core_of(gpu) for gpu in gpus})
    keep_freed_memory()


def keep_freed_memory():
    """Make malloc keep freed memory, because the next step needs the same amount.

    If the large arrays of 32 images were returned to the kernel after every step, page faults would take a third of the
    training time. Sets mallopt's M_MMAP_THRESHOLD (-3), M_TRIM_THRESHOLD (-1) and M_TOP_PAD (-2), in bytes; only glibc
    has it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for parameter, value in ((-3, 1 << 30), (-1, 1 << 30), (-2, 64 << 20)) if mallopt else ():
        mallopt(parameter, value)


def machine():
    """Return an identity of this machine. Its virtual nodes have different host names, but share its cores."""
    try:
        return linux.boot_id()
    except OSError:
        return os.uname().nodename


def describe(places):
    """Return words for the output. `places`: (machine, core) of each worker's virtual GPU."""
    workers, distinct = len(places), len(set(places))
    if workers == 1:
        return "1 virtual GPU: a process with one thread on one core"
    if distinct == workers:
        return f"{workers} virtual GPUs: processes with one thread each, on {workers} cores"
    return f"{workers} virtual GPUs: processes with one thread each, sharing {counted(distinct, 'core')} equally"


def describe_real(places, names=()):
    """Return words for the output: workers on GPUs called `names`, or on parts of them. `places`: (machine, id) of each
    worker's GPU."""
    workers, distinct, parts = len(places), len(set(places)), chosen_device.parts
    called = f" ({', '.join(names)})" if names else ""
    if parts == 1:
        words = f"{counted(distinct, 'GPU')}{called}"
    elif distinct == 1:
        words = f"a part of a GPU{called}, with 1/{parts} of its memory and multiprocessors"
    else:
        words = f"{distinct} parts of GPUs{called}, each with 1/{parts} of its memory and multiprocessors"
    return f"{words} shared by {workers} workers" if distinct < workers else words


def describe_threads(gpus):
    """Return words for the output: virtual GPUs that are threads of one process; see `describe`."""
    if len(gpus) == 1:
        return describe([("here", core_of(gpus[0]))])
    cores = len({core_of(gpu) for gpu in gpus})
    shared = f", sharing {counted(cores, 'core')} equally" if cores < len(gpus) else f", on {cores} cores"
    return f"{len(gpus)} virtual GPUs: threads of one process{shared}"
