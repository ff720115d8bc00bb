"""What the files of jobs/slurm/classroom give a job, and what is left of their Slurm."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from environments import QUICK_START
from slurm_harness import ENVIRONMENT, ROOT
from waiting import run_to_end, wait_until

TWO_HOSTS = ROOT / "jobs/slurm/classroom/two_hosts.py"
PROBE = """#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=3
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:01:00
#PBS -N probe
env | grep -E "^(PBS_|OMP_NUM|CUDA_)"
sed "s/^/node: /" "$PBS_NODEFILE"
eval "$(handson-launcher)"
export SET_IN_THE_SCRIPT=yes
handson-agent node2 'echo "agent: $(hostname) $SOMETHING $SET_IN_THE_SCRIPT, GPUs $CUDA_VISIBLE_DEVICES"'
"""
pytestmark = pytest.mark.thorough


def variables(output):
    return dict(re.findall(r"^(\w+)=(.*)$", output, re.MULTILINE))


def test_a_job_has_the_variables_of_a_pbs_job(jobs):
    output, number = jobs.run(PROBE)
    found = variables(output)
    expected = {
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_JOBID": number,
        "PBS_JOBNAME": "probe",
        "PBS_O_WORKDIR": str(jobs.folder),
    }
    expected |= {
        "PBS_QUEUE": "lecture",
        "PBS_O_PATH": ENVIRONMENT["PATH"],
        "OMP_NUM_THREADS": "3",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert re.findall("^node: (.*)$", output, re.MULTILINE) == ["node1", "node1", "node2", "node2"]
    wait_until(lambda: not os.path.exists(found["PBS_NODEFILE"]), "the node file to be removed", 10)


@pytest.mark.parametrize("arguments", [[], ["-V"], ["-v", "SOMETHING=else"]], ids=["", "-V", "-v"])
def test_a_job_has_the_path_of_its_submission_and_its_other_hosts_have_the_jobs_environment(jobs, arguments):
    """Slurm's qsub -v drops both. The launcher, which mpiexec needs for the other hosts, is found by the PATH."""
    output, _ = jobs.run(PROBE, *arguments, SOMETHING="else")
    assert variables(output)["PBS_O_PATH"] == ENVIRONMENT["PATH"]
    assert output.endswith("agent: node2 else yes, GPUs 0,1\n")


TORCHRUN = """#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=1
#PBS -l place=scatter
first=$(head -n 1 "$PBS_NODEFILE") rank=0
for node in $(uniq "$PBS_NODEFILE"); do
    handson-agent "$node" "cd '$PWD' && PATH='$PATH' torchrun --nnodes 2 --node-rank $rank --nproc-per-node 2 \\
        --master-addr $first --master-port 29500 rank.py -o out" &
    rank=$((rank + 1))
done
wait
"""
SRUN = """#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=1
#PBS -l place=scatter
srun --nodes=2 --ntasks-per-node=2 python rank.py -o out --patience 40
"""
RANK = """
import os, socket
from handson.training import options
import torch.distributed as dist
from handson.pytorch import devices
dist.init_process_group(devices.backend(options.parse(gpus=devices.first).gpu))
local_rank, node = int(os.environ["LOCAL_RANK"]), socket.gethostname().encode()
os.write(1, b"%d %d %s of %d\\n" % (dist.get_rank(), local_rank, node, dist.get_world_size()))
dist.destroy_process_group()
"""


def test_torchrun_reaches_the_other_host(jobs):
    """As docs/launching.md says."""
    (jobs.folder / "rank.py").write_text(RANK)
    output, _ = jobs.run(TORCHRUN, **QUICK_START)
    ranks = sorted(line.split() for line in output.splitlines() if line.endswith("of 4"))
    assert [(rank, intra_rank) for rank, intra_rank, *_ in ranks] == [("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")], (
        output
    )
    assert ranks[0][2] == ranks[1][2] != ranks[2][2] == ranks[3][2]
    # torchrun may log at its end that the other host was faster
    own = [line for line in output.splitlines() if "elastic/agent/server" not in line]
    assert not [line for line in own if "Traceback" in line]


@pytest.mark.parametrize("where", ["in a batch script", "on the login node"])
def test_srun_starts_the_ranks_of_pytorch(jobs, where):
    """The ranks meet on the first host, wherever srun was typed."""
    (jobs.folder / "rank.py").write_text(RANK)
    if where == "in a batch script":
        output, _ = jobs.run(SRUN, **QUICK_START)
    else:
        words = "srun --nodes=2 --ntasks-per-node=2 python rank.py -o out --patience 40".split()
        output = jobs.cluster.run(*words, folder=jobs.folder, env=ENVIRONMENT | QUICK_START)
    ranks = sorted(line.split()[:3] for line in output.splitlines() if line.endswith("of 4"))
    assert ranks == [["0", "0", "node1"], ["1", "1", "node1"], ["2", "0", "node2"], ["3", "1", "node2"]], output


def test_tasks_on_hosts_of_different_sizes_stand_in_the_node_file(tmp_path):
    (tmp_path / "scontrol").write_text('#!/bin/sh\n[ "$2" != hostnames ] || printf "%s\\n" a1 a2 a3 b\n')
    (tmp_path / "scontrol").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_JOB_ID": f"test.{os.getpid()}",
        "SLURM_JOB_NODELIST": "a[1-3],b",
    }
    environment |= {"SLURM_TASKS_PER_NODE": "2(x2),1,3"}
    printed = run_to_end([TWO_HOSTS.with_name("task_prolog.sh")], env=environment, check=True).stdout
    path = Path(re.search("^export PBS_NODEFILE=(.*)$", printed, re.MULTILINE)[1])
    assert path.read_text().split() == ["a1", "a1", "a2", "a2", "a3", "b", "b", "b"]
    subprocess.run([TWO_HOSTS.with_name("task_epilog.sh")], env=environment, check=True)
    assert not path.exists()


def test_qsub_is_the_courses_own_where_slurm_is_installed_but_not_set_up(cluster, tmp_path):
    if os.path.exists("/etc/slurm/slurm.conf"):
        pytest.skip("this machine belongs to a Slurm")
    environment = ENVIRONMENT | {"HANDSON_PBS_HOME": str(tmp_path)}
    (tmp_path / "script.sh").write_text("#!/bin/sh\n")
    done = run_to_end(["qsub", "-h", "script.sh"], cwd=tmp_path, env=environment)
    assert (done.stdout, done.stderr) == (f"0.{os.uname().nodename.split('.')[0]}\n", "")
    subprocess.run(["qdel", "0"], cwd=tmp_path, env=environment, check=True)


def processes(folder):
    """Command lines of processes that have something to do with `folder`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (path / "environ").read_bytes() + (path / "cmdline").read_bytes():
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_slurm_that_was_killed(cluster, tmp_path, how):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [
        sys.executable,
        TWO_HOSTS,
        "bash",
        "-c",
        "sbatch --nodes=2 --wrap 'srun sleep 600' && echo up && sleep 600",
    ]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("Submitted"), "Slurm did not come up"
        assert [line for line in processes(tmp_path) if line.startswith("slurmctld")]
        process.send_signal(how)
        process.wait(timeout=60)
    wait_until(lambda: not processes(tmp_path), "all processes of Slurm and its job to end", 20)
    assert how == signal.SIGKILL or not list(tmp_path.glob("slurm_*"))


def test_the_status_of_the_command_comes_back(cluster):
    assert run_to_end([sys.executable, TWO_HOSTS, "sh", "-c", "hostname; exit 7"]).returncode == 7


def test_a_machine_without_slurm_is_told_what_to_install():
    code = (
        f"import sys; sys.path.insert(0, {str(TWO_HOSTS.parent)!r}); import two_hosts; two_hosts.PATH = '/nowhere';"
        " two_hosts.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("not on this machine: apt install munge slurm-wlm slurm-wlm-torque\n")


FOLLOW = """
from handson.cluster.follow import JobFailed, follow, submit
number = submit(".", "-j", "oe", "follow.sh", OPTIONS="-e 1, 2")
follow(number)
follow(number, say=lambda line: print("again:", line))
try:
    follow(submit(".", "-j", "oe", "follow.sh", OPTIONS="no"))
except JobFailed as error:
    print(error)
"""


def test_a_job_can_be_followed_from_python(jobs):
    """Slurm names the output after the script, and forgets a job soon after its end."""
    (jobs.folder / "follow.sh").write_text(
        '#!/bin/bash\n#PBS -N other\necho "options: $OPTIONS"\n[ "$OPTIONS" != no ] || exit 3\n'
    )
    printed = jobs.cluster.run(
        sys.executable, "-c", FOLLOW, folder=jobs.folder, env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
    )
    lines = [line for line in printed.splitlines() if " waits in partition lecture: " not in line]
    assert lines[:3] == ["options: -e 1, 2", "again: options: -e 1, 2", "options: no"], printed
    assert re.fullmatch(rf"job (\d+) ended with status 3; its output is in {jobs.folder}/follow\.sh\.o\1", lines[3])


def test_the_doctor_knows_slurm(cluster):
    code = "from handson.cluster import doctor; print(doctor.batch()); doctor.summary()"
    printed = cluster.run(sys.executable, "-c", code, env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)})
    assert re.search(r"^qsub is /usr/bin/qsub, Slurm's \(slurm\S* \d+\.\d+\S*\)$", printed, re.MULTILINE), printed
    assert "batch system   Slurm (/usr/bin/qsub); site " in printed


def test_the_script_for_a_classroom_writes_a_configuration_that_slurm_reads(cluster, tmp_path):
    etc, script = tmp_path / "etc", TWO_HOSTS.with_name("set_up.sh")
    (tmp_path / "bin").mkdir()
    for name, text in (
        ("apt-get", f'echo "$@" >>{tmp_path}/called'),
        ("systemctl", f'echo "$@" >>{tmp_path}/called'),
        ("hostname", "echo localhost"),
    ):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SLURM_ETC": str(etc)}

    def plugins():
        return re.search(r"^JobSubmitPlugins=(\S+)", (etc / "pbs_jobs.conf").read_text(), re.MULTILINE)[1]

    def set_up(login, nodes):
        done = subprocess.run([script, login, nodes], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        read = run_to_end(["scontrol", "ping"], env=environment | {"SLURM_CONF": str(etc / "slurm.conf")})
        assert "is DOWN" in read.stdout and not re.search(
            "parsing error|fatal|unrecognized", read.stderr, re.IGNORECASE
        ), read
        return (tmp_path / "called").read_text().split("\n")[-3:-1]

    assert set_up("localhost", "NodeName=node[1-2] CPUs=2 RealMemory=4000 Gres=gpu:2") == [
        "restart munge",
        "restart slurmctld",
    ]
    assert (etc / "gres.conf").read_text() == "Name=gpu File=/dev/nvidia[0-1]\n"
    assert "GresTypes=gpu\n" in (etc / "slurm.conf").read_text()
    assert plugins() == "pbs,lua" and os.access(etc / "task_prolog.sh", os.X_OK)
    assert set_up("login", "NodeName=node[1-2] CPUs=2 RealMemory=4000") == ["restart munge", "restart slurmd"]
    assert not (etc / "gres.conf").exists() and plugins() == "pbs"
    assert subprocess.run([script], env=environment, capture_output=True).returncode == 2
