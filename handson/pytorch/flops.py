"""How many floating-point operations a training needs, and how many a device can do: the two halves of its model FLOPs
utilisation (MFU; the term is that of the paper on PaLM, 2022)."""

import time

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from handson.pytorch.model import get_model

SIDE = {"cpu": 1024, "cuda": 8192}  # of the matrices: large enough that nothing but their product takes time
PRODUCTS = 8


def of_image(model, size, classes=10):
    """FLOPs of forward and backward for one image of `size` x `size` pixels.

    A multiplication and the addition that follows it are two. PyTorch's counter counts products of matrices and
    convolutions, which are nearly all. model: as --model has it.
    """
    with torch.device("meta"):  # tensors without numbers: nothing is computed
        network = get_model(model, classes)
        images, labels = torch.empty(2, 3, size, size), torch.empty(2, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            F.cross_entropy(network(images), labels).backward()
    return counter.get_total_flops() // len(images)


def peak(device, dtype=torch.float32):
    """FLOP/s of the fastest of some products of two large matrices of this type: what a training could reach. On a GPU,
    float32 is rounded to TF32, as PyTorch's convolutions do by default."""
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
        return time.thread_time()  # what others take from the core is no limit of the core
    torch.cuda.synchronize(device)  # the GPU may still be at work
    return time.perf_counter()
