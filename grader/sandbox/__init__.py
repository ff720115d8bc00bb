"""Runs around student code; the module rank runs in its process. Students receive it: yes.

Run the ranks of a check in separate processes, confined by the Linux kernel, and report how each rank ended, whatever
it did.

    caller -> server (libraries loaded, one thread; forks) -> watcher (reads, watches, kills) -> init (may be confined)
    -> ranks

The caller, the server, the watcher and init are trusted: a student's code runs only in the ranks. All these processes
exchange JSON and plain arrays of bounded size through sockets.

`prepare` and `enter` create a small machine around a forked process: namespaces, Landlock, system call filters, limits.
`limit_rank` then removes from each rank all permissions that a student's code does not need. `layers` lists which of
these layers are active here; `strong` returns whether files, network and processes are isolated.
"""

from grader.sandbox.confine import SandboxError, bound_together, enter, limit_rank, prepare
from grader.sandbox.layers_in_force import Layer, layers, missing, strong
from grader.sandbox.limits import BUSY, Confinement, Limits, clean_environment, close_other_files, harmless_environment
from grader.sandbox.namespaces import interpreter_paths

from grader.sandbox.client import Outcome, RankOutcome, SandboxFault, Server  # isort: skip  (it needs the names above)

__all__ = [
    "BUSY",
    "Confinement",
    "Layer",
    "Limits",
    "Outcome",
    "RankOutcome",
    "SandboxError",
    "SandboxFault",
    "Server",
    "bound_together",
    "clean_environment",
    "close_other_files",
    "enter",
    "harmless_environment",
    "interpreter_paths",
    "layers",
    "limit_rank",
    "missing",
    "prepare",
    "strong",
]
