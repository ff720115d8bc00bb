"""The checks of each file of the unit, by its path in the folder of solutions."""

from grader.checks.check import starred
from grader.units.communication import (
    all_reduce,
    cntk,
    communication_chainer,
    communication_notebook,
    data_parallel,
    half_and_late,
    hooks,
    local_sgd,
    parameter_server,
    restarts,
)

CHECKS = {
    "pytorch/all_reduce.py": all_reduce.CHECKS,
    "pytorch/data_parallel.py": data_parallel.CHECKS,
    "pytorch/half_and_late.py": half_and_late.CHECKS,
    "chainer/half_and_late.py": communication_chainer.CHECKS,
    "pytorch/hooks.py": hooks.CHECKS,
    "pytorch/local_sgd.py": local_sgd.CHECKS,
    "pytorch/parameter_server.py": parameter_server.CHECKS,
    "pytorch/train_cntk.py": starred(cntk.CHECKS),
    "pytorch/train_restarts.py": starred(restarts.CHECKS),
    "notebook": communication_notebook.ALL_REDUCES,
    "notebook_b": starred(communication_notebook.METHODS, "prediction_blocks", "lost_share"),
}
