"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.checks import job_scripts
from grader.units.multi_node import by_hand, chainer, notebook, pytorch

CHECKS = {
    "pytorch/train_cifar_multi_node.py": pytorch.CHECKS,
    "chainer/train_cifar_multi_node.py": chainer.CHECKS,
    "run_multi_node_training.sh": job_scripts.checks(nodes=2, processes=2, program="train_cifar_multi_node.py"),
    "mpi_accuracy.py": by_hand.MPI_ACCURACY,
    "from_scratch.py": by_hand.FROM_SCRATCH,
    "notebook": notebook.CHECKS,
}
