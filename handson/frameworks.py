"""The second environment, which `make frameworks` creates: it contains TensorFlow, Lightning, Accelerate and JAX, which
only the unit 07_frameworks needs.

Scripts, notebooks and probes of that unit run with the course's own Python. They call `add` before they import one of
these packages. If one environment contains everything, as with environment-frameworks.yml, `add` changes nothing.
"""

import contextlib
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path

from handson.errors import OneSentence
from handson.files import COURSE
from handson.training import uncaught

PACKAGES = ("tensorflow", "keras", "lightning", "accelerate", "jax", "optax")
# the folder of another environment, for example one that a site's users share
VARIABLE = "HANDSON_FRAMEWORKS"


class NoFrameworks(OneSentence, ImportError):
    """The second environment is missing."""


def folder():
    """Return the folder of the second environment."""
    return Path(os.environ.get(VARIABLE) or COURSE / ".venv-frameworks").expanduser()


def why_not(needed=PACKAGES):
    """Return why the packages cannot be imported, as a sentence, or None if they can. needed: packages that this Python
    may have without a second environment."""
    if all(map(_is_there, needed)):
        return None
    there = (folder() / "handson-stamp").exists()
    if there and not _packages().is_dir():
        return (
            f"the second environment in {folder()} was created for a Python other than {sys.version.split()[0]}: run"
            " `make frameworks` in the course's folder"
        )
    if not there or not all((_packages() / name).is_dir() or _is_there(name) for name in PACKAGES):
        return (
            "TensorFlow, Lightning, Accelerate and JAX need the second environment, which is missing or incomplete:"
            " run `make frameworks` in the course's folder (1.9 GB, a minute), then try again"
        )
    return None


def add(*needed):
    """Make the packages of the second environment importable, after those of the first. This does nothing if the
    packages `needed` (all by default) are available already, as in the Python of a GPU image. Raises NoFrameworks."""
    needed = needed or PACKAGES
    if problem := why_not(needed):
        uncaught.install()  # scripts import packages that need it before they read their options
        raise NoFrameworks(problem)
    if not all(map(_is_there, needed)):
        sys.path.append(str(_packages()))


@contextlib.contextmanager
def silently(number=2):
    """Context manager that discards the output of C libraries: on standard error, or with descriptor 1 on standard
    output."""
    sys.stdout.flush()
    kept, nowhere = os.dup(number), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)
        os.close(nowhere)


def _is_there(name):
    """Return whether a package can be imported; a folder of this name, such as those of the exercises, does not
    count."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def _packages():
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(folder())}))
