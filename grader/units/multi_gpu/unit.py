"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.checks import run_job_scripts
from grader.units.multi_gpu import hanging, multi_gpu_chainer, multi_gpu_notebook, multi_gpu_pytorch

CHECKS = {
    "pytorch/train_cifar_multi_gpu.py": multi_gpu_pytorch.CHECKS,
    "chainer/train_cifar_multi_gpu.py": multi_gpu_chainer.CHECKS,
    "run_multi_gpu_training.sh": run_job_scripts.checks(nodes=1, processes=2, program="train_cifar_multi_gpu.py"),
    "hanging.py": hanging.CHECKS,
    "notebook": multi_gpu_notebook.CHECKS,
}
