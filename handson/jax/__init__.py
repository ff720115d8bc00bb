"""Import this package before JAX, which is in the second environment, in the scripts of the unit 07_frameworks. JAX
then computes on CPUs, with one thread per device. Raises NoFrameworks."""

import os

from handson import frameworks

frameworks.add("jax", "optax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when JAX's library is loaded
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
