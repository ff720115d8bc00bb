"""The second environment as `make frameworks` leaves it."""

from importlib.util import cache_from_source
from pathlib import Path

from handson import frameworks


def test_modules_are_compiled_when_they_are_installed():
    """Else each process that can't keep what it compiles needs ten seconds more for TensorFlow."""
    modules = list((frameworks.folder() / "lib").rglob("*.py"))
    assert len(modules) > 1000
    assert [module for module in modules if not Path(cache_from_source(module)).exists()] == []
