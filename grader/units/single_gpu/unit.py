"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.checks import job_scripts
from grader.units.single_gpu import chainer, notebook, pytorch

CHECKS = {
    "pytorch/train_cifar_single_gpu.py": pytorch.CHECKS,
    "chainer/train_cifar_single_gpu.py": chainer.CHECKS,
    "run_single_gpu_training.sh": job_scripts.checks(nodes=1, processes=1, program="train_cifar_single_gpu.py"),
    "notebook": notebook.CHECKS,
}
