"""Runs a Python source under mpiexec, for the tests of what happens on several ranks."""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START = """
import json, os, sys, time
from pathlib import Path
import handson.chainer
import chainer, chainermn, numpy
import chainer.functions as F, chainer.links as L
from mpi4py import MPI
from handson.chainer import mean_gradients
from handson.chainer.communicators import create_communicator
from handson.chainer.optimizers import create_multi_node_optimizer
from handson.training import all_ranks, uncaught
RANK, FOLDER = MPI.COMM_WORLD.rank, Path(os.environ["TEST_FOLDER"])
def result(value):
    (FOLDER / f"{RANK}.json").write_text(json.dumps(value))
"""


def mpiexec(ranks, source, *arguments, folder=None):
    """The finished process of ``source``, which begins with START, on ``ranks`` ranks; every warning is an error."""
    scripts = sysconfig.get_path("scripts")
    environment = dict(
        os.environ,
        PYTHONPATH=f"{ROOT}:{ROOT}/tests:{Path(__file__).parent}",
        OMP_NUM_THREADS="1",
        PATH=f"{scripts}:{os.environ['PATH']}",
        TEST_FOLDER=str(folder or "/nowhere"),
    )
    command = [
        f"{scripts}/mpiexec",
        "-n",
        str(ranks),
        sys.executable,
        *"-W error -c".split(),
        START + source,
        *map(str, arguments),
    ]
    process = subprocess.Popen(
        command, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired as late:
        process.kill()
        process.wait(60)
        raise AssertionError(f"mpiexec still ran after 60 s, and had printed: {late.stdout}, {late.stderr}") from None
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def results(ranks, source, *arguments):
    """What each rank has given to ``result``, by rank."""
    with tempfile.TemporaryDirectory() as folder:
        process = mpiexec(ranks, source, *arguments, folder=folder)
        assert process.returncode == 0, process.stdout + process.stderr
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(ranks)]
