"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.checks import profiling

CHECKS = {
    "pytorch/train_steps.py": profiling.TRAIN_STEPS,
    "pytorch/slow_loading.py": profiling.SLOW_LOADING,
    "pytorch/uneven_work.py": profiling.UNEVEN_WORK,
    "pytorch/waiting_every_step.py": profiling.WAITING_EVERY_STEP,
    "notebook": profiling.NOTEBOOK,
}
