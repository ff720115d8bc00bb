"""The packages of unit 07_frameworks are taken from this Python where it has them, as that of a GPU image may."""

import pytest

from handson import frameworks


def test_a_script_needs_only_its_own_package(monkeypatch):
    monkeypatch.setattr(frameworks, "_is_there", lambda name: name in ("jax", "optax"))
    frameworks.add("jax", "optax")
    with pytest.raises(frameworks.NoFrameworks, match="make frameworks"):
        frameworks.add("lightning")
    assert "make frameworks" in frameworks.why_not(), "the unit as a whole needs all of them"
