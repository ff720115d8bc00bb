"""A stand-in for PyTorch's compiler: each process imports it with its first optimizer, though nothing is compiled, for
1.5 to 1.9 s of CPU.

Processes of notebooks in tests import this first, and those of most trainings, on a Slurm and in pods, too
(environments.py): half of what a rank takes to start is saved. It does what the compiler does where nothing is
compiled. When anything else is asked of it, the real one takes its place. All other tests and the tour have PyTorch as
it comes.

A third of what remains goes into what only tensors without data need: operators that compute nothing but shapes. They
are left out, too, until something in USE_SHAPES is imported. (Without them, such an operator says that it is not
implemented.)

Garbage is collected seldom, since what modules make as they load is none: another 6 %. And MPICH's ranks sleep between
two looks for a message: by themselves they look all the time, on cores that others need to compute (conftest.py).
"""

import functools
import gc
import importlib
import importlib.abc
import importlib.util
import os
import sys
from types import ModuleType, SimpleNamespace

SHAPES = ("torch._meta_registrations", "torch.distributed._meta_registrations", "torch.export")
USE_SHAPES = ("torch.distributed.tensor", "torch.distributed.fsdp", "torch.utils.flop_counter")
NOTHING = {  # module -> name -> what it does where nothing is compiled
    "torch._dynamo": {
        "graph_break": lambda *_, **__: None,
        "disable": lambda function=None, *_, **__: function or (lambda one: one),
    },
    "torch._dynamo.utils": {"get_optimize_ddp_mode": lambda: "ddp_optimizer"},
    "torch._dynamo.trace_rules": {"clear_lru_cache": lambda: None},
    "torch._inductor": {},
    "torch._inductor.config": {"triton": SimpleNamespace(cudagraphs=False)},  # PyTorch's profiler looks at it
    "torch._native": {},  # operators in Triton
    **{name: {} for name in SHAPES},
}


class StandIn(ModuleType):
    """A module that hands over to the real one when it is asked for what is not in NOTHING."""

    def __getattr__(self, name):
        if name.startswith("__"):  # what is asked of any module
            raise AttributeError(name)
        return getattr(real(self.__name__), name)


@functools.cache
def stand_in(name):
    module = StandIn(name)
    parts = {part: stand_in(part) for part in NOTHING if part.startswith(f"{name}.")}
    vars(module).update(NOTHING[name] | {part.rpartition(".")[2]: of_it for part, of_it in parts.items()})
    return module


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of NOTHING. Where one is imported that only the compiler has, it finds the real ones."""

    def find_spec(self, name, path, target=None):
        if name in NOTHING:
            return importlib.util.spec_from_loader(name, self, is_package=True)
        if name in USE_SHAPES and SHAPES[0] in NOTHING:
            forget(SHAPES)
            for module in SHAPES:
                del NOTHING[module]
                importlib.import_module(module)
        if name.rpartition(".")[0] in NOTHING:
            real(name)
            return importlib.util.spec_from_loader(name, self)
        return None

    def create_module(self, spec):
        return sys.modules.get(spec.name) or stand_in(spec.name)

    def exec_module(self, module):
        if module.__name__ == SHAPES[0]:  # it also does this, without which there is no torch.Generator
            torch = sys.modules["torch"]
            torch._C._set_generator_metaclass(importlib.import_module("torch._opaque_base").OpaqueBaseMeta)


FINDER = Finder()


def real(name):
    """The real module of a name. From now on there are no stand-ins."""
    if FINDER in sys.meta_path:
        sys.meta_path.remove(FINDER)
        forget(NOTHING)
        # before what it imports itself, as PyTorch does: the other way round is a circle
        importlib.import_module(SHAPES[0])
    return importlib.import_module(name)


def forget(names):
    """Let the next import of these modules make new ones."""
    for known in sys.modules.keys() & set(names):
        del sys.modules[known]
        package, _, last = known.rpartition(".")
        if package in sys.modules:
            vars(sys.modules[package]).pop(last, None)


sys.meta_path.insert(0, FINDER)
gc.set_threshold(100_000)
os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
