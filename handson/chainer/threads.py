"""The number of threads of NumPy's matrix products: one for each worker that is pinned to a core."""

import ctypes

from handson import linux


def set_blas_threads(count):
    """Set the number of threads of the OpenBLAS that NumPy has loaded, and return the previous number.

    Returns None, and changes nothing, if NumPy uses another library: OMP_NUM_THREADS then sets the number of
    threads.
    """
    for path in linux.mapped_files("openblas"):
        library = ctypes.CDLL(path)
        for form in ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}"):
            try:
                before = getattr(library, form.format("get_num_threads"))()
                getattr(library, form.format("set_num_threads"))(count)
                return before
            except AttributeError:
                continue
    return None
