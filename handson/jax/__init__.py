"""What the JAX scripts of the unit 07_frameworks import: JAX itself, from the second environment, for CPUs and with one
thread for each device.

``from handson.jax import jax, jnp`` is the way to import both. Raises NoFrameworks.
"""

import os

from handson import frameworks

frameworks.add()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when JAX's library is loaded
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

jax.config.update("jax_platforms", "cpu")

__all__ = ["jax", "jnp", "multihost_utils"]
