"""Grading on engines in a job of Slurm, on both of its hosts, with the profile of jobs/ipyparallel."""

import subprocess
import sys

import pytest
from slurm_harness import ENVIRONMENT, PATIENCE, ROOT

sys.path.append(str(ROOT / "tests/grader"))

from handing_in import hand_in  # noqa: E402

from grader.course import UNITS  # noqa: E402
from grader.exercises import solved  # noqa: E402
from grader.instructors.gradebook import Gradebook  # noqa: E402
from grader.verdict import NOT_FOUND, PASSED  # noqa: E402

UNIT = "multi_gpu"
HOSTS = """
import ipyparallel
from handson.cluster import nodes
print(sorted(ipyparallel.Client(profile="slurm", timeout=60)[:].apply_sync(nodes.current_node)))
"""
pytestmark = pytest.mark.thorough


@pytest.fixture
def on_login(cluster, tmp_path):
    """A function that runs a command of Python where jobs are submitted; returns what it prints."""
    environment = ENVIRONMENT | {"IPYTHONDIR": str(tmp_path / "ipython"), "PYTHONPATH": str(ROOT)}

    def run(*arguments):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with cluster.start(sys.executable, *arguments, folder=tmp_path, env=environment, **options) as process:
            printed, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, printed
        return printed

    return run


def test_a_class_is_graded_on_both_hosts_of_a_job(on_login, tmp_path):
    place = next(place for place, part in enumerate(UNITS[UNIT]) if part.track == "pytorch")
    hand_in(tmp_path / "handed_in", "ann", UNIT, {place: solved(UNITS[UNIT][place].file)})
    on_login(*"-m grader cluster start --site=slurm --profile=slurm -n 2 --nodes=2 --walltime=00:30:00".split())
    try:
        printed = on_login("-m", "grader", "grade", "handed_in", "--out", "out", "--unit", UNIT, "--profile", "slurm")
        assert on_login("-c", HOSTS) == "['node1', 'node2']\n", (
            "one engine on each, which runs pairs of ranks by itself"
        )
    finally:
        on_login("-m", "grader", "cluster", "stop", "--profile=slurm")
    assert "2 engines" in printed
    with Gradebook(tmp_path / "out", writing=False) as book:
        assert {verdict.status for verdict in book.results()["ann", UNIT]} == {PASSED, NOT_FOUND}
