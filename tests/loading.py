"""The solutions' scripts as modules, for tests that call their functions."""

import importlib.util
import sys
from unittest import mock


def load(script):
    """The module of a script, a path, that does not run; it finds those beside it."""
    with mock.patch.object(sys, "path", [str(script.parent), *sys.path]):
        spec = importlib.util.spec_from_file_location(script.stem, script)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module
