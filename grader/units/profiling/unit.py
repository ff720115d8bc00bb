"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.units.profiling import profiling_notebook, profiling_pytorch

CHECKS = {
    "pytorch/train_steps.py": profiling_pytorch.TRAIN_STEPS,
    "pytorch/slow_loading.py": profiling_pytorch.SLOW_LOADING,
    "pytorch/uneven_work.py": profiling_pytorch.UNEVEN_WORK,
    "pytorch/waiting_every_step.py": profiling_pytorch.WAITING_EVERY_STEP,
    "notebook": profiling_notebook.CHECKS,
}
