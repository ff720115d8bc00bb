"""For the grader's tests."""

import pytest

from grader.box import Server


@pytest.fixture(scope="session")
def server():
    """A box's server with the libraries loaded; one for all tests."""
    server = Server(("grader.probes.libraries", "tests.grader.misbehaving"))
    server.start()
    yield server
    server.stop()
