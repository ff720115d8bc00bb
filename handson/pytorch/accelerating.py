"""Accelerate for the script of the unit 07_frameworks; it is in the second environment, and imported when it is asked
for."""

import os

from handson import frameworks


def accelerate(device):
    """Accelerate's Accelerator for a rank that trains on `device`. It takes the process group that is there. Raises
    NoFrameworks.

    Under mpiexec, Accelerate asks for MASTER_ADDR and MASTER_PORT also where a group is there already; nothing is sent
    to them.
    """
    frameworks.add()
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    return Accelerator(
        cpu=device.type == "cpu", kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)]
    )
