"""Every Python whose PYTHONPATH has this folder finds SIMULATED_GPUS GPUs, once `build.py` has run.

Operators compute on the CPU, with the CPU's results, but refuse what they refuse on GPUs: tensors on several devices,
NumPy, a process that was forked after CUDA was asked. Collectives are gloo's, also those of NCCL. There is one stream,
and no profile of kernels.
"""

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = HERE.parents[1] / "build/simulated_gpus/simulated_gpus.so"


class Finder(importlib.abc.MetaPathFinder):
    """Finds torch, and adds simulated GPUs to it."""

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def execute_and_add(module):
            # before torch asks for the first time whether there is CUDA
            ctypes.CDLL(str(Path(spec.origin).parent / "lib/libtorch_python.so"))
            ctypes.CDLL(str(LIBRARY))
            execute(module)
            place = importlib.util.spec_from_file_location("simulated_gpus", LIBRARY)
            gpus = importlib.util.module_from_spec(place)
            place.loader.exec_module(gpus)
            import simulated_cuda

            simulated_cuda.add(module, gpus)

        spec.loader.exec_module = execute_and_add
        return spec


sys.meta_path.insert(0, Finder())
