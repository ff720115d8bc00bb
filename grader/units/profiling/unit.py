"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.units.profiling import notebook, pytorch

CHECKS = {
    "pytorch/train_steps.py": pytorch.TRAIN_STEPS,
    "pytorch/slow_loading.py": pytorch.SLOW_LOADING,
    "pytorch/uneven_work.py": pytorch.UNEVEN_WORK,
    "pytorch/waiting_every_step.py": pytorch.WAITING_EVERY_STEP,
    "notebook": notebook.CHECKS,
}
