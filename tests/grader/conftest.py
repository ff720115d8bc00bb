"""For the grader's tests."""

import os
import shutil
from datetime import UTC, datetime

import loaded as libraries
import pytest

from answers.known import servers
from grader.exercises import ROOT
from grader.instructors.bundle import bundle
from grader.instructors.gradebook import Gradebook
from grader.instructors.release import build
from grader.probes import FOR_SCRIPTS, loaded_for
from grader.sandbox.forkserver import Forked


@pytest.fixture(scope="session")
def loaded(tmp_path_factory):
    """The folder in which a process forks servers that have the libraries; one for all tests."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "loaded"
    folder.mkdir(exist_ok=True)
    with libraries.in_folder(folder):
        yield folder


@pytest.fixture
def borrowing(loaded, monkeypatch):
    """The graders of this process load no libraries of their own."""
    libraries.borrow(loaded, monkeypatch.setattr)


@pytest.fixture(scope="session")
def server(loaded):
    """A box's server with the libraries loaded; one for all tests."""
    server = Forked(libraries.LIBRARIES, loaded)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def server_for(server):
    """A function: the box's server for a file, as grading chooses it; for scripts it is `server`."""
    with servers() as others:
        yield lambda file: server if loaded_for([file]) == FOR_SCRIPTS else others(file)


@pytest.fixture(autouse=True)
def after_the_term(monkeypatch):
    """All deadlines of the tests are past, whenever they run."""
    monkeypatch.setattr("grader.instructors.scores.clock", lambda: datetime(2030, 1, 1, tzinfo=UTC))


@pytest.fixture
def book(tmp_path):
    """A gradebook of its own."""
    with Gradebook(tmp_path) as book:
        yield book


@pytest.fixture(scope="session")
def built():
    """What `release` builds for the local site."""
    return build(ROOT / "solutions", "local")


@pytest.fixture(scope="session")
def archive(built, tmp_path_factory):
    """What students receive."""
    path = tmp_path_factory.mktemp("bundle") / "course.zip"
    bundle(built, path, "local")
    return path


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course's folder in which the exercises are solved, and whose jobs are kept apart from those of others."""
    folder = tmp_path_factory.mktemp("course")
    leave_out = shutil.ignore_patterns("__pycache__", "results", "*.[oe][0-9]*", "[0-9]*.py")
    shutil.copytree(ROOT / "solutions", folder / "exercises", ignore=leave_out)
    (folder / "notebooks").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HANDSON_PBS_HOME", str(folder / "pbs"))
        yield folder
