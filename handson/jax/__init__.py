"""What the JAX scripts of the unit 07_frameworks import before JAX, which is in the second environment: it computes on
CPUs, with one thread for each device. Raises NoFrameworks."""

import os

from handson import frameworks

frameworks.add("jax", "optax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when JAX's library is loaded
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
