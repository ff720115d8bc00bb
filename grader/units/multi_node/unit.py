"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.checks import run_job_scripts
from grader.units.multi_node import from_scratch, multi_node_chainer, multi_node_notebook, multi_node_pytorch

CHECKS = {
    "pytorch/train_cifar_multi_node.py": multi_node_pytorch.CHECKS,
    "chainer/train_cifar_multi_node.py": multi_node_chainer.CHECKS,
    "run_multi_node_training.sh": run_job_scripts.checks(nodes=2, processes=2, program="train_cifar_multi_node.py"),
    "mpi_accuracy.py": from_scratch.MPI_ACCURACY,
    "from_scratch.py": from_scratch.FROM_SCRATCH,
    "notebook": multi_node_notebook.CHECKS,
}
