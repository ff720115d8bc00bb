"""No process forks that has asked for a GPU: on a machine that has one, the new process could not use it."""

import os
import sys
from pathlib import Path

import pytest
from gpu_scripts import SCRIPTS, command
from waiting import run_to_end

from handson.training import map_files

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def forks(tmp_path):
    """Runs a command, and returns it with the forks that must not be."""

    def run(*command):
        variables = {"PYTHONPATH": str(ROOT / "tests/no_fork"), "FORKS": str(tmp_path / "forks")}
        done = run_to_end(command, env=os.environ | variables, cwd=tmp_path)
        found = tmp_path / "forks"
        return done, found.read_text() if found.exists() else ""

    return run


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The data set `digits` as image files, which some scripts read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HANDSON_DATA", str(tmp_path_factory.mktemp("data")))
        map_files.write("digits", say=lambda words: None)
        yield


def test_a_fork_after_a_question_for_a_gpu_is_found(forks):
    done, found = forks(sys.executable, "-c", "import os, torch\ntorch.cuda.is_available()\nos.fork()")
    assert done.returncode == 0 and "forks after torch.cuda.is_available" in found


@pytest.mark.thorough
@pytest.mark.parametrize("script", SCRIPTS)
def test_no_script_forks_after_it_has_asked_for_a_gpu(script, forks, images):
    done, found = forks(*command(script, "out"))
    assert (done.returncode, found) == (0, ""), done.stderr


@pytest.mark.thorough
def test_the_graders_server_has_asked_for_no_gpu_before_it_forks(forks):
    """It has an environment of its own, so this does what it does."""
    done, found = forks(
        sys.executable,
        "-c",
        "import os\nfrom grader.probes import FOR_SCRIPTS\nfrom grader.sandbox.server import load\n"
        "load(FOR_SCRIPTS)\nos.fork()",
    )
    assert (done.returncode, found) == (0, ""), done.stderr
