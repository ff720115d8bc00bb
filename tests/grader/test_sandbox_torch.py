"""Ranks in one sandbox train together, forked from a process that holds torch."""

import json
import os
import sys
from pathlib import Path

import pytest
import sandbox_runs
from waiting import run_to_end

pytestmark = [pytest.mark.thorough, sandbox_runs.needs_strong]


@pytest.fixture(scope="module")
def runs():
    script = Path(__file__).with_name("sandbox_training.py")
    environment = {**os.environ, "PYTHONPATH": str(script.parent.parent.parent)}
    ran = run_to_end([sys.executable, script], timeout=500, env=environment)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(params=sandbox_runs.CALLERS)
def came(request, runs):
    return runs[request.param]


@pytest.mark.parametrize("rendezvous", ["file", "tcp"])
def test_ranks_train_together_over_loopback(rendezvous, came):
    first, *others = came[rendezvous]
    assert len(first) == 8 and all(isinstance(value, float) for value in first), first
    assert others == [first, first], "DDP keeps the replicas equal"


def test_tensors_are_shared_between_processes(came):
    assert came["share"] == [1, 1, 1]


def test_tensors_cannot_take_more_memory_than_the_limit(came):
    assert came["flood"] == "RuntimeError"
