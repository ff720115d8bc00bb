"""Confines a student's code with what the kernel offers: namespaces, Landlock, system call filters, limits. Only Linux has them.

`prepare` and `enter` make a small machine around a forked process, `limit_rank` then takes from each rank in it what it has no use
for. `layers` says which of the parts are in force here, `strong` whether they keep files, network and processes apart.
"""

from grader.sandbox.confine import SandboxError, bound_together, enter, limit_rank, prepare
from grader.sandbox.doctor import Layer, layers, missing, strong
from grader.sandbox.limits import Confinement, Limits, clean_environment, close_other_files, harmless_environment
from grader.sandbox.namespaces import interpreter_paths

__all__ = [
    "Confinement", "Layer", "Limits", "SandboxError", "bound_together", "clean_environment", "close_other_files", "enter",
    "harmless_environment", "interpreter_paths", "layers", "limit_rank", "missing", "prepare", "strong",
]  # fmt: skip
