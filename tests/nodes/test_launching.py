"""The ways to other nodes that a site may have: ssh, over a real sshd; and Open MPI's mpiexec, through the launcher's
agent."""

import json
import os
import shutil
import subprocess

import pytest
import real_pbs
from node_jobs import Jobs

from handson.cluster import doctor, virtual_nodes
from handson.instructors import training_tour
from handson.pbs import command

SSHD = "/usr/sbin/sshd"
OPEN_MPI = shutil.which("mpiexec.openmpi")
pytestmark = pytest.mark.thorough


def need(program):
    """Skip a test whose program is missing; where programs are installed for the tests (.ci/run), it fails."""
    if not program or not os.path.exists(program):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "the program of this test is not installed here: see .ci/run"
        )


# ssh ---------------------------------------------------------------------------------

# A server on the other node. The rest of the job finds no sign of PBS, as on hosts that have no batch system.
OVER_SSH = """
handson-agent node2 "exec $PWD/sshd -f $PWD/sshd_config -E $PWD/sshd.log"
until ssh node2 true 2>ssh.log; do sleep 0.1; done
unset PBS_JOBID HANDSON_NODES HANDSON_NODE
handson-agent node2 'hostname; exit 7'
echo $?
cd {root}
exec python -m handson doctor
"""
CONFIG = """
Port 2222
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
"""


@pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}")
def test_where_there_is_no_batch_system_the_other_nodes_are_reached_by_ssh(tmp_path):
    need(SSHD)
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # sshd wants it of root
    programs = tmp_path / "bin"
    programs.mkdir()
    options = (
        f"-p 2222 -i {tmp_path}/work/key -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o"
        " UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    )
    (programs / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F none {options} "$@"\n')
    (programs / "ssh").chmod(0o755)
    jobs = Jobs(tmp_path, gpus=1, path=[programs])
    (jobs.folder / "sshd").symlink_to(SSHD)
    (jobs.folder / "sshd_config").write_text(CONFIG.format(folder=jobs.folder))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", jobs.folder / "key"], check=True, timeout=60)
    try:
        host, status, *rungs = jobs.run(OVER_SSH.format(root=real_pbs.ROOT), select="2:mpiprocs=1").splitlines()
    finally:
        jobs.close()
    assert (host, status) == ("node2", "7")
    assert {line.split()[0] for line in rungs} <= {"ok", "note"} and len(rungs) == len(doctor.HERE) + len(doctor.IN_JOB)
    assert any("reached by: sh, ssh" in line for line in rungs)


# Open MPI ------------------------------------------------------------------------------

RANKS = """
mpiexec -n $(wc -l <"$PBS_NODEFILE") -hostfile "$PBS_NODEFILE" python -c "
import json, os
from mpi4py import MPI
world, library, track = MPI.COMM_WORLD, MPI.Get_library_version().split(' v')[0], os.getenv('TRACK')
everybody = world.gather(f'{library} {world.rank} of {world.size} {os.uname().nodename} {track}')
if everybody:
    print(json.dumps(everybody))"
"""


@pytest.mark.parametrize("whose", ["embedded", "the site's own"])
def test_the_same_job_script_starts_with_the_mpiexec_of_open_mpi(tmp_path, whose):
    need(OPEN_MPI)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mpiexec").symlink_to(OPEN_MPI)
    own = [] if whose == "embedded" else [real_pbs.install(tmp_path / "own")]
    jobs = Jobs(tmp_path, path=[*own, tmp_path / "bin"])
    try:
        out = jobs.run(RANKS, "-v", "TRACK=chainer")
    finally:
        jobs.close()
    nodes = ["node1", "node1", "node2", "node2"] if virtual_nodes.why_not() is None else [os.uname().nodename] * 4
    assert [f"Open MPI {rank} of 4 {node} chainer" for rank, node in enumerate(nodes)] == json.loads(
        out.splitlines()[-1]
    )


# The tour ------------------------------------------------------------------------------

TRAINING = """#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=1
#PBS -l place=scatter
#PBS -N ranks
cd "$PBS_O_WORKDIR"
export PATH="$PBS_O_PATH"
eval "$(handson-launcher)"
mpiexec -n $(wc -l <"$PBS_NODEFILE") -hostfile "$PBS_NODEFILE" python $TRACK/ranks.py $OPTIONS
"""
SCRIPT = """
import os, sys
from mpi4py import MPI
from handson.training.results import Result, write
world = MPI.COMM_WORLD
nodes = world.allgather(os.uname().nodename)
if world.rank == 0:
    facts = dict(unit="ranks", script="ranks", track="pytorch", profiled=False, device="2 virtual GPUs", dataset="digits", size=32, batchsize=32)
    os.makedirs(out := f"results/ranks_pytorch_{os.environ['PBS_JOBID'].split('.')[0]}")
    write(Result(**facts, workers=world.size, nodes=2, epochs=1, seed=0, images=1500, seconds=10.0), out)
    print("options:", *sys.argv[1:], "nodes:", *nodes)
"""


def test_the_tour_runs_by_the_sites_own_pbs(tmp_path, monkeypatch):
    """Jobs are submitted, followed and compared with what a real PBS prints, and ranks reach the other node by its
    pbsdsh."""
    solutions = tmp_path / "solutions"
    (solutions / "07_ranks/pytorch").mkdir(parents=True)
    (solutions / "07_ranks/run_ranks_training.sh").write_text(TRAINING)
    (solutions / "07_ranks/pytorch/ranks.py").write_text(SCRIPT)
    jobs = Jobs(tmp_path, path=[real_pbs.install(tmp_path / "bin")])
    for name, value in jobs.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(training_tour, "SOLUTIONS", solutions)
    assert command.batch_system()[0] == "pbs"
    said = []
    try:
        training_tour.tour(tmp_path / "the tour", ["pytorch"], "-e 1 -g 0,1", said.append)
    finally:
        jobs.close()
    nodes = "node1 node1 node2 node2" if virtual_nodes.why_not() is None else " ".join([os.uname().nodename] * 4)
    assert f"options: -e 1 -g 0,1 nodes: {nodes}" in said
    table = "\n".join(said[said.index("") :])
    assert "4 (2 x 2)" in table and "150" in table and (tmp_path / "the tour/throughput.png").exists()
