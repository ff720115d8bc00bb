"""Nodes made of namespaces: names, addresses, ranks that find each other, and bytes that go through the network."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from environments import environment_of
from node_jobs import Jobs, namespaces
from waiting import run_to_end, wait_until

from handson.cluster import virtual_nodes

ROOT = Path(__file__).resolve().parents[2]
needs_namespaces = pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}")

RATE = 10e6  # bits/s, of the job below
BYTES = 500_000  # of an all-reduce: at least 0.4 s

ABOUT_ME = """
import os, socket, sys, time

def sent():
    '''Bytes that this node has sent over its network, of /proc/net/dev.'''
    [line] = [line for line in open("/proc/net/dev") if line.strip().startswith("eth0:")]
    return int(line.split(":")[1].split()[8])

def timed(barrier, run):
    before = sent()  # nobody sends for `run` before all are at the barrier
    barrier()
    begin = time.perf_counter()
    run()
    seconds = time.perf_counter() - begin
    barrier()  # until then this node may still have to send what its rank was done with
    return {"seconds": seconds, "bytes": sent() - before}

def facts(rank):
    return {"rank": rank, "host": socket.gethostname(), "address": socket.gethostbyname(socket.gethostname()), "cores": sorted(os.sched_getaffinity(0))}
"""
CHAINER = """
import json, numpy
from about_me import facts, timed
import handson.chainer
from handson.chainer.communicators import create_communicator
comm = create_communicator("naive")
mine = facts(comm.rank) | {"intra_rank": comm.intra_rank, "inter_rank": comm.inter_rank}
world = comm.mpi_comm
buffer = numpy.ones(BYTES, numpy.uint8)
mine |= timed(world.Barrier, lambda: world.Allreduce(buffer, numpy.empty_like(buffer)))
everybody = world.gather(mine)
if comm.rank == 0:
    json.dump(everybody, open("chainer.json", "w"))
"""
TORCH = """
import json, sys, torch, torch.distributed as dist
from about_me import facts, timed
from handson.training import options
from handson.pytorch import devices
from handson.pytorch.communicator import communicator
args = options.parse(gpus=devices.first)
dist.init_process_group(devices.backend(args.gpu))
comm = communicator(args)
nodes = comm.allgather(facts(0)["host"])
mine = facts(comm.rank) | {"intra_rank": comm.intra_rank, "inter_rank": sorted(set(nodes)).index(nodes[comm.rank])}
buffer = torch.ones(BYTES, dtype=torch.uint8)
mine |= timed(dist.barrier, lambda: dist.all_reduce(buffer))
everybody = comm.allgather(mine)
if comm.rank == 0:
    json.dump(everybody, open(f"{args.out}.json", "w"))
dist.destroy_process_group()
"""
JOB = """
hostname >first_node
tc qdisc show dev eth0 >shape
pbsdsh -- sh -c 'cd "$PBS_O_WORKDIR"; hostname >task.$PBS_TASKNUM'
mpiexec -n 4 -hostfile "$PBS_NODEFILE" python chainer_ranks.py
mpiexec -n 4 -hostfile "$PBS_NODEFILE" python torch_ranks.py -o mpiexec
first=$(head -n 1 "$PBS_NODEFILE") rank=0
for node in $(uniq "$PBS_NODEFILE"); do
    handson-agent "$node" "cd '$PWD' && PATH='$PATH' torchrun --nnodes 2 --node-rank $rank --nproc-per-node 2 \\
        --master-addr $first --master-port 29500 torch_ranks.py -o torchrun" &
    rank=$((rank + 1))
done
wait
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A job on two nodes with a slow network, after its end: the folder with what its ranks found."""
    folder = tmp_path_factory.mktemp("nodes")
    jobs = Jobs(folder, path=[environment_of(ROOT, folder / "venv")])  # a third less for each of ten starts of PyTorch
    for name, text in ("about_me", ABOUT_ME), ("chainer_ranks", CHAINER), ("torch_ranks", TORCH):
        (jobs.folder / f"{name}.py").write_text(text.replace("BYTES", str(BYTES)))
    (jobs.folder / "output").write_text(jobs.run(JOB, "-l", "network=10mbit"))
    jobs.close()
    return jobs.folder


RANKS = ("chainer", "mpiexec", "torchrun")  # ChainerMN and PyTorch under mpiexec, PyTorch under torchrun


def ranks_of(job, how):
    return sorted(json.loads((job / f"{how}.json").read_text()), key=lambda rank: rank["rank"])


@pytest.mark.thorough
@needs_namespaces
def test_the_script_runs_on_the_first_node_and_pbsdsh_on_all(job):
    assert (job / "first_node").read_text() == "node1\n"
    assert [(job / f"task.{number}").read_text() for number in (2, 3, 4, 5)] == [
        "node1\n",
        "node1\n",
        "node2\n",
        "node2\n",
    ]


@needs_namespaces
@pytest.mark.parametrize("how", RANKS)
def test_ranks_have_the_numbers_of_the_lecture(job, how):
    found = [(rank["rank"], rank["intra_rank"], rank["inter_rank"]) for rank in ranks_of(job, how)]
    assert found == [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)]


@needs_namespaces
@pytest.mark.parametrize("how", RANKS)
def test_nodes_have_host_names_and_addresses_of_their_own(job, how):
    found = [(rank["host"], rank["address"]) for rank in ranks_of(job, how)]
    assert found == [("node1", "10.78.0.1")] * 2 + [("node2", "10.78.0.2")] * 2


@pytest.mark.thorough
@needs_namespaces
@pytest.mark.parametrize("how", RANKS)
def test_an_all_reduce_goes_through_the_network_at_its_rate(job, how):
    """The ranks of two nodes have to send BYTES from node to node, whichever way they take; memory would carry them in
    a millisecond."""
    shortest = BYTES * 8 / RATE
    for rank in ranks_of(job, how):
        assert rank["bytes"] > 0.95 * BYTES, "eth0 has counted them"
    assert max(rank["seconds"] for rank in ranks_of(job, how)) > 0.9 * shortest


@pytest.mark.thorough
@needs_namespaces
def test_the_rate_is_that_of_the_request(job):
    assert "tbf" in (job / "shape").read_text() and "rate 10Mbit" in (job / "shape").read_text()


# Rates --------------------------------------------------------------------------


@pytest.mark.thorough
def test_what_is_no_rate_is_refused_at_once(jobs):
    for words in (["-v", "HANDSON_NETWORK=fast"], ["-l", "network=100mb"]):
        done = jobs("qsub", "-l", "select=2", *words, "--", "true")
        assert done.returncode != 0 and "network" in done.stderr.lower() and "Traceback" not in done.stderr
    jobs.site.write_text(jobs.site.read_text() + 'network = "0mbit"\n')
    done = jobs("qsub", "-l", "select=2", "--", "true")
    assert done.returncode == 2
    assert "the rate of a network is none, or a number with mbit or gbit such as 100mbit, not '0mbit'" in done.stderr


@pytest.mark.thorough
@needs_namespaces
def test_the_request_comes_before_the_variable_and_the_variable_before_the_site(jobs):
    jobs.site.write_text(jobs.site.read_text() + 'network = "30mbit"\n')
    look = "tc qdisc show dev eth0 | grep -o 'rate [^ ]*'"
    options = {"select": "2:mpiprocs=1"}
    assert jobs.run(look, **options) == "rate 30Mbit\n"
    assert jobs.run(look, HANDSON_NETWORK="20mbit", **options) == "rate 20Mbit\n"
    assert jobs.run(look, "-v", "HANDSON_NETWORK=20mbit", **options) == "rate 20Mbit\n"
    assert jobs.run(look, "-l", "network=10mbit", "-v", "HANDSON_NETWORK=20mbit", **options) == "rate 10Mbit\n"
    assert jobs.run(f"{look} || echo unlimited", "-l", "network=none", **options) == "unlimited\n"


# Coming up ----------------------------------------------------------------------


@pytest.fixture
def bring_up(tmp_path):
    holders = []

    def bring_up(*names, rate="none"):
        folder = tmp_path / str(len(holders))
        folder.mkdir()
        nodes = {name: {} for name in names}
        holders.append(virtual_nodes.start(nodes, rate, folder))
        return holders[-1], nodes

    yield bring_up
    for holder in holders:
        holder.communicate(timeout=10)  # closes its standard input


def on_node(holder, node, *command):
    return run_to_end(
        virtual_nodes.inside(holder.inside, "/", *virtual_nodes.on(node["pid"], *command)), timeout=20
    ).stdout


@pytest.mark.thorough
@needs_namespaces
def test_jobs_at_the_same_time_have_networks_of_their_own(bring_up):
    (one, nodes), (other, _) = bring_up("node1", "node2"), bring_up("node1", "node2")
    assert not namespaces(one.inside) & namespaces(other.inside)
    assert nodes["node1"]["address"] == "10.78.0.1"


@pytest.mark.thorough
@needs_namespaces
def test_nodes_know_each_other_by_name_whatever_the_machine_calls_them(bring_up):
    holder, nodes = bring_up("node1", "node2")
    for node in nodes.values():
        for name, other in nodes.items():
            assert on_node(holder, node, "getent", "ahostsv4", name).split()[0] == other["address"]


@pytest.mark.thorough
def test_a_runner_that_is_killed_while_its_nodes_come_up_leaves_none(tmp_path):
    program = (
        "import sys, pathlib; from handson.cluster import virtual_nodes as v; v.start({'node1': {}, 'node2': {}},"
        " 'none', pathlib.Path(sys.argv[1]))"
    )
    for delay in (0, 0.02, 0.04, 0.08, 0.12):
        runner = subprocess.Popen(
            [sys.executable, "-c", program + "; print('up', flush=True); input()", tmp_path],
            stdin=subprocess.PIPE,
            cwd=ROOT,
        )
        wait_until(lambda: children(runner.pid) or runner.poll() is not None, "it has begun")
        time.sleep(delay)  # the moment matters, and there is no condition for it
        runner.kill()
        runner.communicate(timeout=10)
        wait_until(lambda: not mentioning(tmp_path), f"nothing is left after {delay} s", 5)


def children(pid):
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def mentioning(path):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if str(path).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            pass
    return found


# Where they cannot be -----------------------------------------------------------

REFUSED = """
exec 2>&1
hostname
mpiexec -n 4 -hostfile "$PBS_NODEFILE" python ranks.py -o out
"""
PLAIN = """
from handson.training import options
from handson.cluster.nodes import current_node
import torch.distributed as dist
from handson.pytorch import devices
from handson.pytorch.communicator import communicator
args = options.parse(gpus=devices.first)
dist.init_process_group(devices.backend(args.gpu))
comm = communicator(args)
everybody = comm.allgather(f"{comm.rank} {comm.intra_rank} {current_node()} {comm.inter_size}")
if comm.rank == 0:
    print(*everybody, sep="\\n")
dist.destroy_process_group()
"""


@pytest.mark.thorough
def test_without_namespaces_a_job_says_why_and_its_ranks_are_the_same(tmp_path):
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    (stubs / "unshare").write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    (stubs / "unshare").chmod(0o755)
    jobs = Jobs(tmp_path, path=[stubs, environment_of(ROOT, tmp_path / "venv")])
    (jobs.folder / "ranks.py").write_text(PLAIN)
    sentence, host, *ranks = jobs.run(REFUSED).splitlines()
    jobs.close()
    assert sentence.startswith("handson: virtual nodes need ")
    assert sentence.endswith("; the nodes of this job are groups of plain processes")
    assert "sysctl" in sentence or "Operation not permitted" in sentence
    assert host == os.uname().nodename
    assert ranks == ["0 0 node1 2", "1 1 node1 2", "2 0 node2 2", "3 1 node2 2"]


@pytest.mark.thorough
@needs_namespaces
def test_a_kernel_that_refuses_namespaces_is_told_from_its_setting():
    """Really refused: in a user namespace that may have none below it, by a process without the right to do without."""
    code = (
        "import sys; sys.path.append(sys.argv[1]); from handson.cluster import virtual_nodes;"
        " print(virtual_nodes.why_not())"
    )
    shell = (
        "echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin"
        f" {sys.executable} -c '{code}' {ROOT}"
    )
    done = run_to_end(["unshare", "--map-root-user", "sh", "-c", shell], timeout=20)
    assert "user namespaces" in done.stdout and "`sysctl user.max_user_namespaces=10000`" in done.stdout, done


@pytest.mark.thorough
def test_missing_tools_are_named_with_their_package(monkeypatch):
    which = shutil.which
    monkeypatch.setattr(
        virtual_nodes.shutil, "which", lambda name, path=None: None if name == "tc" else which(name, path=path)
    )
    assert virtual_nodes.why_not() == "virtual nodes need tc, which this machine lacks: install iproute2"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "why"), [("exit 0", "without a message"), ("echo no bridges here >&2; exit 1", "no bridges here")]
)
def test_a_holder_that_fails_is_an_error_with_its_words(tmp_path, monkeypatch, program, why):
    (tmp_path / "unshare").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(OSError, match=f"the virtual nodes did not start: .*{why}"):
        virtual_nodes.start({"node1": {}}, "none", tmp_path)
