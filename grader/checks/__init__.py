"""The public checks. `UNITS` says which files make up a task and what is checked in each; the other modules say how."""

from dataclasses import dataclass

from grader.checks import chainer, job_scripts, pytorch
from grader.units.multi_gpu import notebook as multi_gpu
from grader.units.multi_node import notebook as multi_node
from grader.units.profiling import notebook as profiling
from grader.units.profiling import scripts as profiling_scripts
from grader.units.single_gpu import notebook as single_gpu
from grader.units.start import notebook as start


@dataclass(frozen=True)
class Part:
    """One file of a unit: its place below the course's folder, its track ("" where both share it), and its gaps' checks."""

    file: str
    track: str
    checks: tuple


UNITS = {
    "start": (Part("notebooks/00_start.ipynb", "", start.CHECKS),),
    "single_gpu": (
        Part("exercises/01_single_gpu/pytorch/train_cifar_single_gpu.py", "pytorch", pytorch.SINGLE_GPU),
        Part("exercises/01_single_gpu/chainer/train_cifar_single_gpu.py", "chainer", chainer.SINGLE_GPU),
        Part("exercises/01_single_gpu/run_single_gpu_training.sh", "", job_scripts.SINGLE_GPU),
        Part("notebooks/01_single_gpu.ipynb", "", single_gpu.CHECKS),
    ),
    "multi_gpu": (
        Part("exercises/02_multi_gpu/pytorch/train_cifar_multi_gpu.py", "pytorch", pytorch.MULTI_GPU),
        Part("exercises/02_multi_gpu/chainer/train_cifar_multi_gpu.py", "chainer", chainer.MULTI_GPU),
        Part("exercises/02_multi_gpu/run_multi_gpu_training.sh", "", job_scripts.MULTI_GPU),
        Part("notebooks/02_multi_gpu.ipynb", "", multi_gpu.CHECKS),
    ),
    "multi_node": (
        Part("exercises/03_multi_node/pytorch/train_cifar_multi_node.py", "pytorch", pytorch.MULTI_NODE),
        Part("exercises/03_multi_node/chainer/train_cifar_multi_node.py", "chainer", chainer.MULTI_NODE),
        Part("exercises/03_multi_node/run_multi_node_training.sh", "", job_scripts.MULTI_NODE),
        Part("notebooks/03_multi_node.ipynb", "", multi_node.CHECKS),
    ),
    "profiling": (
        Part("exercises/04_profiling/pytorch/train_steps.py", "pytorch", profiling_scripts.TRAIN_STEPS),
        Part("exercises/04_profiling/pytorch/slow_loading.py", "pytorch", profiling_scripts.SLOW_LOADING),
        Part("exercises/04_profiling/pytorch/uneven_work.py", "pytorch", profiling_scripts.UNEVEN_WORK),
        Part("exercises/04_profiling/pytorch/waiting_every_step.py", "pytorch", profiling_scripts.WAITING_EVERY_STEP),
        Part("notebooks/04_profiling.ipynb", "", profiling.CHECKS),
    ),
}
