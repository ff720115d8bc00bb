"""The network command: the model it fits, what it measures in a job, and what it says where there is nothing to
measure."""

import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from handson.cluster import network, virtual_nodes
from handson.scaling.measured_runs import measured_network

pytestmark = pytest.mark.thorough


def times(alpha, beta, noise=0.0):
    """bytes -> seconds of messages that keep to the model."""
    chance = random.Random(1)
    return {size: (alpha + size / beta) * (1 + noise * chance.uniform(-1, 1)) for size in network.SIZES}


@pytest.mark.parametrize(("alpha", "beta"), [(1e-5, 1e9), (2e-4, 12.5e6), (6e-3, 1.25e8)])
def test_the_fit_finds_the_model_again(alpha, beta):
    assert network.fit(times(alpha, beta)) == pytest.approx((alpha, beta), rel=0.03)
    assert network.fit(times(alpha, beta, noise=0.1)) == pytest.approx((alpha, beta), rel=0.15)


def test_a_ring_sends_each_byte_nearly_twice():
    assert [network.all_reduce_volume(ranks) for ranks in (2, 4, 1000)] == pytest.approx([1, 1.5, 1.998])


@pytest.mark.parametrize(
    "command", [[sys.executable], ["mpiexec", "-n", "1", sys.executable]], ids=["alone", "mpiexec -n 1"]
)
def test_one_rank_has_no_network_to_measure(jobs, command):
    done = jobs(*command, "-m", "handson", "network")
    assert done.returncode == 2 and done.stdout == ""
    assert "only one: submit jobs/pbs/run_network.sh" in done.stderr


@pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}")
def test_a_job_sees_the_rate_of_its_network(jobs):
    jobs.site.write_text(jobs.site.read_text() + 'network = "50mbit"\n')
    out = jobs.run(
        'mpiexec -n 2 -hostfile "$PBS_NODEFILE" python -m handson network --largest 1 -o figures/seen.png',
        select="2:mpiprocs=1",
    )
    assert "2 ranks on node1 (1), node2 (1); each node's network is limited to 50mbit" in out
    rates = [float(rate) for rate in re.findall(r"beta ([0-9.]+) Mbit/s", out)]
    assert len(rates) == 3, out
    # Headers take 4 %; and a busy machine may make it slower, but nothing may make it faster.
    assert 30 < rates[0] < 52 and max(rates) < 55, out
    figures = jobs.folder / "figures"
    assert (figures / "seen.png").read_bytes().startswith(b"\x89PNG")
    description = " ".join(ElementTree.parse(figures / "seen.svg").getroot().itertext())
    assert "Time and bandwidth against message size, 2 ranks on 2 nodes, network 50mbit." in description
    measured = measured_network(figures / "seen.json")
    assert (measured.ranks, measured.nodes, measured.rate) == (2, 2, "50mbit") and len(measured.times) > 3


def test_ranks_of_one_node_are_told_that_it_is_no_network(jobs):
    out = jobs.run("mpiexec -n 2 python -m handson network --largest 0.02", select="1:mpiprocs=2")
    assert "2 ranks on node1 (2); on one node they use its memory, not a network" in out


def test_ranks_that_take_too_long_end_with_a_sentence():
    program = "from handson.cluster import network; import time; network._end_after(0.1)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "took more than 0.1 s, so the ranks end" in done.stderr


def test_a_figure_that_cannot_be_written_ends_all_ranks_with_one_sentence(jobs):
    (jobs.folder / "file").touch()
    out = jobs.run(
        'mpiexec -n 2 python -m handson network --largest 0.001 -o file/figure.png; echo "status $?"',
        select="1:mpiprocs=2",
    )
    assert out.count("cannot be written") == 1 and out.splitlines()[-1] == "status 2" and "Traceback" not in out, out
