"""No process forks that has asked for a GPU: on a machine that has one, the new process could not use it."""

import os
import sys
import sysconfig
from pathlib import Path

import pytest
from waiting import run_to_end

ROOT = Path(__file__).resolve().parent.parent
RANKS = {"03": [f"{sysconfig.get_path('scripts')}/mpiexec", "-n", "2"]}
SCRIPTS = sorted(ROOT.glob("solutions/0[1-3]_*/*/train_*.py"))
TINY = "-e 1 --size 16 -b 100".split()


@pytest.fixture
def forks(tmp_path):
    """Runs a command, and returns it with the forks that must not be."""

    def run(*command):
        variables = {"PYTHONPATH": str(ROOT / "tests/no_fork"), "FORKS": str(tmp_path / "forks")}
        done = run_to_end(command, env=os.environ | variables, cwd=tmp_path)
        found = tmp_path / "forks"
        return done, found.read_text() if found.exists() else ""

    return run


def test_a_fork_after_a_question_for_a_gpu_is_found(forks):
    done, found = forks(sys.executable, "-c", "import os, torch\ntorch.cuda.is_available()\nos.fork()")
    assert done.returncode == 0 and "forks after torch.cuda.is_available" in found


@pytest.mark.thorough
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.parent.name}/{script.stem}")
def test_no_training_forks_after_it_has_asked_for_a_gpu(script, forks):
    options = [] if script.stem == "train_mnist" else TINY
    start = RANKS.get(script.parts[-3][:2], [])
    done, found = forks(*start, sys.executable, str(script), *options, "-o", "out")
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
