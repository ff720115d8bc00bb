"""Make ``import chainer`` work, without warnings, on NumPy 2 and Python 3.11 to 3.13, and its kernels with CuPy 14.
``import handson.chainer`` calls it once.

Chainer 7.8.1 (2022) uses three removed names: numpy.distutils (in its environment check), ``numpy.sctypes`` and
``numpy.float``. NumPy itself does not change: ``hasattr(numpy, "float")`` stays False for all other code. On a GPU, the
kernels that pack gradients use half precision, whose header CuPy 13 included into every kernel, and CuPy 14 does not.
"""

import importlib
import sys
import types
import warnings

import numpy


def import_chainer():
    """Import Chainer, with replacements for the removed names, unless it is imported already.

    Raises ImportError with one sentence if Chainer is not installed.
    """
    if "chainer" in sys.modules:
        return
    # an earlier "import chainer" that failed leaves half of Chainer's modules behind
    for name in [name for name in sys.modules if name.startswith("chainer.")]:
        del sys.modules[name]
    sys.modules["chainer._environment_check"] = _silent_environment_check()
    lacks_sctypes = not hasattr(numpy, "sctypes")
    if lacks_sctypes:
        numpy.sctypes = _scalar_types()
    try:
        with warnings.catch_warnings():
            # CuPy 14 has no cuDNN, which Chainer would advise to install again; devices.describe reports it
            warnings.filterwarnings("ignore", "cuDNN is not enabled")
            importlib.import_module("chainer")
    except ModuleNotFoundError as error:
        if error.name != "chainer":
            raise
        del sys.modules["chainer._environment_check"]
        raise ModuleNotFoundError(
            "Chainer is not installed in this Python: install it with "
            "PIP_CONSTRAINT=build-constraints.txt pip install -r requirements.txt",
            name="chainer",
        ) from None
    finally:
        if lacks_sctypes:
            del numpy.sctypes
    _give_old_numpy_names()
    cuda = sys.modules["chainer"].backends.cuda
    cuda.check_cuda_available._already_warned = True
    if cuda.available and cuda._cupy_major >= 14:
        include_half_precision(cuda)


def _silent_environment_check():
    """Replace the module that needs numpy.distutils and pkg_resources only to warn about versions."""
    module = types.ModuleType("chainer._environment_check", "Replaced by handson.chainer.compat.")
    module.check = lambda: None
    return module


def _scalar_types():
    """Return the part of NumPy 1's ``numpy.sctypes`` that Chainer reads."""
    return {
        "int": [numpy.int8, numpy.int16, numpy.int32, numpy.int64],
        "float": [numpy.float16, numpy.float32, numpy.float64, numpy.longdouble],
    }


def _give_old_numpy_names():
    """Add NumPy's old names to the globals of the two functions that use them at run time, and nowhere else."""
    as_strided = importlib.import_module("chainer.functions.array.as_strided")
    resize_images = importlib.import_module("chainer.functions.array.resize_images")
    old = types.ModuleType("numpy with NumPy 1's names")
    # Replacing "numpy" in the whole module would break resize_images, which tests "xp is numpy".
    old.__getattr__ = lambda name: getattr(numpy, name)
    old.float, old.sctypes = float, _scalar_types()
    grad = as_strided.AsStridedGrad
    grad.forward = _with_globals(grad.forward, np=old)
    resize_images.compute_indices_and_weights = _with_globals(resize_images.compute_indices_and_weights, numpy=old)


def include_half_precision(cuda):
    """Make the kernels that Chainer's module `cuda` creates from now on include the header of half precision if they
    use it."""
    elementwise, raw = cuda.elementwise, cuda.raw

    def elementwise_with_header(in_params, out_params, operation, name, **options):
        if "float16" in operation:
            options["preamble"] = "#include <cupy/float16.cuh>\n" + options.get("preamble", "")
        return elementwise(in_params, out_params, operation, name, **options)

    cuda.elementwise = elementwise_with_header
    cuda.raw = lambda code, name, **options: raw("#include <cuda_fp16.h>\n" + code, name, **options)


def _with_globals(function, **names):
    """Return the same function with other globals: ``names`` replace those of its module."""
    return types.FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
