"""Every Python whose PYTHONPATH has this folder notes in the file FORKS if it forks after it has asked for a GPU: the
forked process could not use one ("Cannot re-initialize CUDA in forked subprocess"), although it works without GPUs."""

import importlib.abc
import importlib.machinery
import os
import sys
import traceback

asked = []  # the stack of the first call


class Finder(importlib.abc.MetaPathFinder):
    """Finds torch.cuda, and has its functions note that they are called."""

    def find_spec(self, name, path, target=None):
        if name != "torch.cuda":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (execute(module), watch(module))
        return spec


def watch(cuda):
    for name in ("is_available", "device_count", "init", "_lazy_init"):
        setattr(cuda, name, noting(name, getattr(cuda, name)))


def noting(name, function):
    def call(*arguments):
        asked or asked.append(f"torch.cuda.{name}\n{''.join(traceback.format_stack(limit=8))}")
        return function(*arguments)

    return call


def before_fork():
    with open(os.environ["FORKS"], "a") as file:
        if asked:
            print("".join(traceback.format_stack(limit=8)), "forks after", asked[0], file=file)


sys.meta_path.insert(0, Finder())
os.register_at_fork(before=before_fork)
