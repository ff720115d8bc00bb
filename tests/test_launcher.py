"""The launcher agent: mpiexec calls it where it would call ssh, and it takes what the place offers."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import types
from pathlib import Path

import pytest
from waiting import run_to_end, wait_until

from handson.cluster import launcher, nodes

PROGRAMS = sysconfig.get_path("scripts")
JOB = """#!/bin/bash
#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=1
#PBS -l place=scatter
#PBS -l walltime=00:04:00
cd "$PBS_O_WORKDIR"
export PATH="$PBS_O_PATH"
mpiexec -n 4 -hostfile "$PBS_NODEFILE" true >no_launcher 2>&1
eval "$(handson-launcher)"
echo "$PATH" >path
handson-agent -x node2 {command} >on_node2
handson-agent node2 'exit 7'
echo $? >status
handson-agent nosuch true 2>nosuch
mpiexec -n 4 -hostfile "$PBS_NODEFILE" python ranks.py -o out >ranks.json
"""
RANKS = """
import json, os
from handson.training import options
from handson.cluster.nodes import current_node
from handson.pytorch import devices
import torch.distributed as dist
from handson.pytorch.communicator import communicator
args = options.parse(gpus=devices.first)
dist.init_process_group(devices.backend(args.gpu))
comm = communicator(args)
devices.use(args.gpu[comm.intra_rank])
mine = [comm.rank, comm.intra_rank, current_node(), os.environ["OMP_NUM_THREADS"], len(os.sched_getaffinity(0)), comm.inter_size]
everybody = comm.allgather(mine)
if comm.rank == 0:
    print(json.dumps(everybody))
dist.destroy_process_group()
"""
# What a shell could spoil: spaces, quotes, a variable for the other side, a dollar sign that is none.
WORDS = ["two  spaces", "it's", 'a "quote"', "$HOME", "back\\slash", "*"]
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A job of the embedded PBS on two nodes, after its end: the folder with what it wrote."""
    folder = tmp_path_factory.mktemp("job of two nodes")
    (folder / "ranks.py").write_text(RANKS)
    command = shlex.quote(f"echo $HANDSON_NODE; printf '%s\\n' {shlex.join(WORDS)}")
    (folder / "job.sh").write_text(JOB.format(command=command))
    environment = os.environ | {
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        "HANDSON_PBS_HOME": str(tmp_path_factory.mktemp("pbs")),
    }
    environment["CUDA_VISIBLE_DEVICES"] = ""  # virtual GPUs, even where there are real ones
    done = run_to_end(["qsub", "-j", "oe", "-W", "block=true", "job.sh"], cwd=folder, env=environment)
    [output] = folder.glob("job.sh.o*")
    assert done.returncode == 0, done.stderr + output.read_text()
    return folder


def test_a_command_runs_on_the_node_it_is_meant_for_with_its_words_as_they_were(job):
    assert (job / "on_node2").read_text().splitlines() == ["node2", *WORDS]


def test_the_status_of_the_command_comes_back(job):
    assert (job / "status").read_text() == "7\n"


def test_a_host_that_cannot_be_reached_is_named(job):
    assert "nosuch" in (job / "nosuch").read_text()


def test_a_job_script_without_the_launcher_is_told_which_line_it_lacks(job):
    assert (
        'write the line eval "$(handson-launcher)" into the job script, before mpiexec'
        in (job / "no_launcher").read_text()
    )


def test_mpiexec_puts_two_ranks_on_each_node_of_the_node_file(job):
    everybody = json.loads((job / "ranks.json").read_text())
    assert [rank for rank, *_ in everybody] == [0, 1, 2, 3]
    assert [intra_rank for _, intra_rank, *_ in everybody] == [0, 1, 0, 1]
    assert [node for _, _, node, *_ in everybody] == ["node1", "node1", "node2", "node2"]
    assert {nodes for *_, nodes in everybody} == {2}


def test_each_rank_of_a_job_has_one_thread_on_one_core(job):
    everybody = json.loads((job / "ranks.json").read_text())
    assert [(threads, cores) for _, _, _, threads, cores, _ in everybody] == [("1", 1)] * 4


HERE = os.uname().nodename


@pytest.mark.parametrize(
    ("host", "environment", "programs", "way"),
    [
        (HERE, {"PBS_JOBID": "1.s"}, ["pbsdsh"], ["sh", "-c"]),
        ("localhost", {}, [], ["sh", "-c"]),
        ("n2", {"PBS_JOBID": "1.s"}, ["pbsdsh"], ["pbsdsh", "-n", "2", "--", "/bin/sh", "-c"]),
        ("n2", {"PBS_JOBID": "1.s", "SLURM_JOB_ID": "1"}, ["srun"], ["srun", "--nodelist=n2", "/bin/sh", "-c"]),
        ("n2", {"SLURM_JOB_ID": "1"}, ["pbsdsh", "srun"], ["srun", "--nodelist=n2", "/bin/sh", "-c"]),
        ("n2", {}, ["pbsdsh", "srun"], ["ssh", "n2"]),
        ("n2", {"PBS_JOBID": "1.s"}, [], ["ssh", "n2"]),
    ],
)
def test_the_way_to_a_host_is_what_the_place_offers(host, environment, programs, way, tmp_path):
    for name in programs:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "nodes").write_text("n1\nn1\nn2\nn2\n")
    found = launcher.way_to(host, environment | {"PATH": str(tmp_path), "PBS_NODEFILE": str(tmp_path / "nodes")})
    assert [word for word in found if word in way] == way
    assert found[0] == way[0] and found[-1] == way[-1]


@pytest.mark.parametrize(
    ("place", "program"),
    [({"PBS_JOBID": "1.s"}, "pbsdsh"), ({"SLURM_JOB_ID": "1"}, "srun"), ({}, "ssh")],
    ids=["PBS", "Slurm", "no job"],
)
def test_the_agent_hands_the_command_over_as_one_word(place, program, tmp_path):
    """As ssh takes it: a shell on the other side takes it apart. mpiexec's own options for ssh are dropped."""
    (tmp_path / program).write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
    (tmp_path / program).chmod(0o755)
    (tmp_path / "nodes").write_text("n1\nn2\n")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PBS_NODEFILE": str(tmp_path / "nodes")} | place
    done = run_to_end([f"{PROGRAMS}/handson-agent", "-x", "n2", "proxy", "--port", "'a b'"], env=environment)
    lines = (done.stdout + done.stderr).splitlines()
    assert lines[0] == str(tmp_path / program) and lines[-1] == "proxy --port 'a b'"


@pytest.mark.parametrize(("printed", "status"), [("", 0), ("exit status 7", 7), ("exit status 265", 137)])
def test_the_agent_ends_with_the_status_that_pbsdsh_prints(printed, status, tmp_path):
    """A real one ends with 0 whatever happens, and adds 256 to the number of a signal."""
    said = f"echo /opt/pbs/bin/pbsdsh: task 0x00000000 {printed}\n" if printed else ""
    (tmp_path / "pbsdsh").write_text(f"#!/bin/sh\necho a word of its own\n{said}")
    (tmp_path / "pbsdsh").chmod(0o755)
    (tmp_path / "nodes").write_text("n1\nn2\n")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PBS_JOBID": "1.s", "PBS_NODEFILE": str(tmp_path / "nodes")}
    done = run_to_end([f"{PROGRAMS}/handson-agent", "n2", "true"], env=environment)
    assert (done.returncode, done.stderr) == (status, "a word of its own\n")
    done = run_to_end([f"{PROGRAMS}/handson-agent", "n3", "true"], env=environment)
    assert done.stderr == "handson-agent: this job has no host n3; its hosts are: n1 n2\n" and done.returncode == 1


def test_a_signal_to_the_agent_ends_what_pbsdsh_runs(tmp_path):
    (tmp_path / "pbsdsh").write_text(
        "#!/bin/sh\ntrap 'touch ended; kill $!; exit' TERM\ntouch begun\nsleep 60 & wait\n"
    )
    (tmp_path / "pbsdsh").chmod(0o755)
    (tmp_path / "nodes").write_text("n1\nn2\n")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PBS_JOBID": "1.s", "PBS_NODEFILE": str(tmp_path / "nodes")}
    for number in (signal.SIGTERM, signal.SIGKILL):  # mpiexec ends its agents with either
        agent = subprocess.Popen([f"{PROGRAMS}/handson-agent", "n2", "true"], env=environment, cwd=tmp_path)
        wait_until((tmp_path / "begun").exists, "pbsdsh runs")
        agent.send_signal(number)
        wait_until((tmp_path / "ended").exists, "pbsdsh has got TERM")
        agent.wait(60)
        (tmp_path / "begun").unlink(), (tmp_path / "ended").unlink()


def test_the_agent_says_what_it_lacks():
    done = subprocess.run([f"{PROGRAMS}/handson-agent", "n2"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "handson-agent: give a host and a command\n")
    done = run_to_end([f"{PROGRAMS}/handson-agent", "n2", "true"], env={"PATH": "/nowhere"})
    assert done.returncode == 1 and done.stderr == "handson-agent: cannot reach n2, since ssh is not on PATH here\n"


def test_the_launcher_makes_every_mpiexec_use_the_agent():
    script = f'eval "$({PROGRAMS}/handson-launcher)"; env'
    done = run_to_end(["bash", "-c", script], env={"PATH": "/usr/bin:/bin", "HANDSON_NODE": "node1"})
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines())
    agent = f"{PROGRAMS}/handson-agent"
    assert variables["HYDRA_LAUNCHER"] == "ssh" and variables["HYDRA_LAUNCHER_EXEC"] == agent
    assert variables["OMPI_MCA_plm_rsh_agent"] == variables["PRTE_MCA_plm_ssh_agent"] == agent
    assert os.access(agent, os.X_OK)
    assert "HANDSON_NODE" not in variables


@pytest.mark.parametrize(("others", "address"), [((), "127.0.0.1"), (("another",), os.uname().nodename)])
def test_ranks_of_one_host_meet_without_a_network(others, address):
    world = types.SimpleNamespace(allgather=lambda host: [host, host, *others])
    assert nodes.meeting_address(world) == address


def test_a_chainer_rank_does_not_wait_for_ever_for_one_that_ends_before_mpi_starts(tmp_path):
    script = tmp_path / "lonely.py"
    script.write_text(
        "import os, sys, handson.training.mpi\n"
        "if os.environ['PMI_RANK'] == '1': sys.exit(3)\n"
        "handson.training.mpi.MEETING = 1\n"
        "import handson.chainer\n"
        "import chainermn\n"
    )
    done = run_to_end([f"{PROGRAMS}/mpiexec", "-n", "2", sys.executable, script])
    assert done.returncode
    assert "rank 0 on " in done.stderr
    assert " has waited too long for the other ranks to start" in done.stderr


def test_mpiexec_in_a_job_on_one_host_has_a_port_that_no_other_server_is_given(tmp_path):
    """A client that looks for a server which has ended would otherwise find mpiexec there, and let it wait forever."""
    (tmp_path / "nodes.json").write_text('{"this": {}}')
    script = 'eval "$(handson-launcher)"; mpiexec -n 1 sh -c \'tr "\\0" " " </proc/$PPID/cmdline\''
    environment = {"PATH": f"{PROGRAMS}:/usr/bin:/bin", "HANDSON_NODES": str(tmp_path / "nodes.json")}
    done = run_to_end(["bash", "-c", script], env=environment)
    port = re.search(r"--control-port \S+:(\d+) ", done.stdout)  # of the proxy that mpiexec starts on a host
    assert port, done.stdout + done.stderr
    assert int(port[1]) < int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
