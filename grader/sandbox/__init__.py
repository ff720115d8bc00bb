"""Confines a student's code by means of the Linux kernel: namespaces, Landlock, system call filters, limits.

`prepare` and `enter` make a small machine around a forked process. `limit_rank` then takes from each rank what a student's code does
not need. `layers` lists which of these layers are in force here; `strong` tells whether files, network and processes are isolated.
"""

from grader.sandbox.confine import SandboxError, bound_together, enter, limit_rank, prepare
from grader.sandbox.doctor import Layer, layers, missing, strong
from grader.sandbox.limits import BUSY, Confinement, Limits, clean_environment, close_other_files, harmless_environment
from grader.sandbox.namespaces import interpreter_paths

__all__ = [
    "BUSY", "Confinement", "Layer", "Limits", "SandboxError", "bound_together", "clean_environment", "close_other_files", "enter",
    "harmless_environment", "interpreter_paths", "layers", "limit_rank", "missing", "prepare", "strong",
]  # fmt: skip
