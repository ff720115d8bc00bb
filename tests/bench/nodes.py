"""Virtual nodes: how fast a cluster starts, and how near its networks come to their rates.

An all-reduce over p nodes has each of them send 2 (p - 1) / p of its bytes (Patarasuk and Yuan, 2009), 25 MB for 25 MB
and two nodes: the theoretical time is 25e6 * 8 bits / rate. Headers of Ethernet, IP and TCP, 66 of 1,514 bytes, are 4.6
% on top of that.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from handson.cluster import virtual_nodes
from tests.bench.runs import LIMIT, ROOT

ROUNDS = 3
BYTES = 25_000_000
RATES = ("none", "10gbit", "1gbit", "100mbit")
HELD_TO = ("1gbit", "100mbit")  # within 10 %; the cores of two nodes are not always fast enough for 10gbit
HEAD = '#!/bin/bash\ncd "$PBS_O_WORKDIR"\nexport PATH="$PBS_O_PATH"\neval "$(handson-launcher)"\n'
ALL_REDUCE = f"""
from handson.cluster import network
from mpi4py import MPI
world = MPI.COMM_WORLD
for name, all_reduce in ("MPI", network.mpi_all_reduce), ("gloo", network.gloo_all_reduce):
    times = network.measure(all_reduce(world), [{BYTES}])[{BYTES}]
    if world.rank == 0:
        print(name, *times)
network.end_together(world)
"""


def measure(folder):
    """Rows (what, value, target)."""
    os.environ["HANDSON_PBS_HOME"] = str(folder / "pbs")
    rows = [
        (
            "seconds until it is known whether there can be virtual nodes",
            f"{_median(virtual_nodes.why_not):.3f}",
            "under 0.1",
        ),
        (
            "seconds until 2 virtual nodes are up",
            f"{statistics.median(_up(folder) for _ in range(ROUNDS)):.2f}",
            "under 0.5",
        ),
        (
            "seconds from qsub to the end of an empty mpiexec -n 4 on 2 nodes",
            f"{_median(_empty, folder):.2f}",
            "under 2",
        ),
    ]
    for network in RATES:
        for name, seconds in _all_reduces(folder, network).items():
            bits = virtual_nodes.bits_per_second(network)
            target = f"in theory {BYTES * 8 / bits:.3f}" if bits else ""
            target += f", at most {1.1 * BYTES * 8 / bits:.3f}" if network in HELD_TO else ""
            rows.append(
                (f"seconds of an all-reduce of 25 MB over 2 nodes, {name}, network {network}", f"{seconds:.3f}", target)
            )
    return rows


def job(folder, script, network, select):
    """Run a job of several nodes to its end; returns its output."""
    (folder / "job.sh").write_text(HEAD + script)
    words = [
        "-j",
        "oe",
        "-W",
        "block=true",
        "-o",
        str(folder / "job.out"),
        "-l",
        f"select={select}",
        "-l",
        "place=scatter",
        "-l",
        f"network={network}",
    ]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["qsub", *words, "job.sh"], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    out = (folder / "job.out").read_text()
    if done.returncode:
        sys.exit(f"a job failed: {done.stderr}{out}")
    return out


def _up(folder):
    begin = time.perf_counter()
    holder = virtual_nodes.start({"node1": {}, "node2": {}}, "1gbit", folder)
    seconds = time.perf_counter() - begin
    holder.communicate(timeout=LIMIT)  # closes its standard input
    return seconds


def _median(call, *arguments):
    """Seconds of a call."""
    took = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        call(*arguments)
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def _empty(folder):
    job(folder, 'mpiexec -n 4 -hostfile "$PBS_NODEFILE" true', "none", "2:ngpus=2:mpiprocs=2")


def _all_reduces(folder, network):
    """Median seconds of the all-reduces: {"MPI": ..., "gloo": ...}."""
    (folder / "all_reduce.py").write_text(ALL_REDUCE)
    out = job(
        folder,
        f'PYTHONPATH={ROOT} mpiexec -n 2 -hostfile "$PBS_NODEFILE" python all_reduce.py',
        network,
        "2:ngpus=1:mpiprocs=1",
    )
    return {
        name: statistics.median(map(float, times))
        for name, *times in map(str.split, out.splitlines())
        if name in ("MPI", "gloo")
    }
