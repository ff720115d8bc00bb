"""The floating-point operations that training needs, and the rate of a device: both halves of its model FLOPs
utilisation (MFU; the term is from the PaLM paper, 2022)."""

import time

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from handson.pytorch import devices
from handson.pytorch.model import get_model

SIDE = {"cpu": 1024, "cuda": 8192}  # rows of the matrices: so many that nothing but their product takes time
PRODUCTS = 8


def of_image(model, size, classes=10):
    """Return the FLOPs of forward and backward for one image of `size` x `size` pixels.

    A multiplication and the addition that follows count as two. PyTorch's counter includes matrix multiplications and
    convolutions, which are nearly all operations. model: a value of --model.
    """
    with torch.device("meta"):  # tensors without numbers: nothing is computed
        network = get_model(model, classes)
        images, labels = torch.empty(2, 3, size, size), torch.empty(2, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            F.cross_entropy(network(images), labels).backward()
    return counter.get_total_flops() // len(images)


def peak(device, dtype=torch.float32):
    """Return the FLOP/s of the fastest of some multiplications of two large matrices of this type, the rate that
    training could reach. On a GPU, float32 is rounded to TF32, as in PyTorch's convolutions by default."""
    torch.backends.cuda.matmul.allow_tf32 = True
    side = SIDE[device.type]
    left, right = (torch.rand(side, side, device=device).to(dtype) for _ in range(2))
    seconds = []
    for _ in range(PRODUCTS):
        begin = _now(device)
        left @ right
        seconds.append(_now(device) - begin)
    return 2 * side**3 / min(seconds)


def _now(device):
    if device.type == "cpu":
        return time.thread_time()  # the core's own time, without that of other programs
    devices.wait_for_gpu()
    return time.perf_counter()
