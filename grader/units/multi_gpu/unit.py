"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.checks import job_scripts
from grader.units.multi_gpu import chainer, hanging, notebook, pytorch

CHECKS = {
    "pytorch/train_cifar_multi_gpu.py": pytorch.CHECKS,
    "chainer/train_cifar_multi_gpu.py": chainer.CHECKS,
    "run_multi_gpu_training.sh": job_scripts.checks(nodes=1, processes=2, program="train_cifar_multi_gpu.py"),
    "hanging.py": hanging.CHECKS,
    "notebook": notebook.CHECKS,
}
