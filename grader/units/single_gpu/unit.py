"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.checks import run_job_scripts
from grader.units.single_gpu import single_gpu_chainer, single_gpu_notebook, single_gpu_pytorch

CHECKS = {
    "pytorch/train_cifar_single_gpu.py": single_gpu_pytorch.CHECKS,
    "chainer/train_cifar_single_gpu.py": single_gpu_chainer.CHECKS,
    "run_single_gpu_training.sh": run_job_scripts.checks(nodes=1, processes=1, program="train_cifar_single_gpu.py"),
    "notebook": single_gpu_notebook.CHECKS,
}
