"""The fixtures `cluster` and `jobs`: a Slurm of two hosts for all tests here, and the training jobs it runs."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "jobs/slurm/classroom"))

import two_hosts  # noqa: E402
from slurm_harness import Jobs  # noqa: E402

left_out = set()  # why the tests here could not run, for the line at the end


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    if problem := two_hosts.why_not():
        if os.environ.get("CI") == "true":
            pytest.fail(problem)
        left_out.add(problem)
        pytest.skip(problem)
    with two_hosts.slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def jobs(cluster, tmp_path_factory):
    return Jobs(cluster, tmp_path_factory.mktemp("jobs"))


def pytest_terminal_summary(terminalreporter):
    for problem in left_out:
        terminalreporter.write_line(f"The tests in tests/slurm were left out. {problem}")
