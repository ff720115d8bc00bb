"""Whichever process of a TensorFlow cluster dies: the job ends soon, a sentence names the rank, and no process stays
behind."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from node_jobs import Jobs
from oracle import SOLUTIONS
from waiting import wait_until

pytestmark = pytest.mark.thorough
SOON = 30  # seconds, on a busy machine
PARAMETER_SERVER, MULTI_WORKER = "train_cifar_parameter_server.py", "train_cifar_multi_worker.py"
ROLES = [
    (PARAMETER_SERVER, 3, 0),
    (PARAMETER_SERVER, 3, 1),
    (PARAMETER_SERVER, 3, 2),
    (MULTI_WORKER, 2, 0),
    (MULTI_WORKER, 2, 1),
]
NAMES = ["chief", "ps", "worker of a chief", "worker 0", "worker 1"]


@pytest.fixture
def jobs(tmp_path):
    jobs = Jobs(tmp_path, nodes=1, gpus=4)
    jobs.environment |= {name: os.environ[name] for name in ("HANDSON_FRAMEWORKS",) if name in os.environ}
    shutil.copytree(
        SOLUTIONS.parent,
        jobs.folder,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("results", "*.o[0-9]*", "__pycache__"),
    )
    yield jobs
    jobs.close()


def submit(jobs, name, ranks, *words):
    select = f"select=1:ngpus={ranks}:mpiprocs={ranks}:ompthreads=1"
    options = " ".join(["--size 32 -b 100 -o out", *words])
    done = jobs(
        *"qsub -v SCRIPT,OPTIONS -l".split(),
        select,
        *"-j oe -N job run_script.sh".split(),
        SCRIPT=f"tensorflow/{name}",
        OPTIONS=options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(".")[0]


def rank_process(jobs, name, rank):
    """The number of the process that is a rank, and not the one that watches over it."""
    [found] = [
        pid
        for pid, words in jobs.processes().items()
        if name in words
        and "rank_sidecar" not in words
        and f"PMI_RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    ]
    return found


@pytest.mark.parametrize(("name", "ranks", "victim"), ROLES, ids=NAMES)
def test_all_processes_end_when_one_is_killed_in_the_midst_of_the_training(name, ranks, victim, jobs):
    number = submit(jobs, name, ranks, "-e 100000")
    spool = jobs.state / "jobs" / number / "spool.o"
    wait_until(
        lambda: "\n1 " in spool.read_text() if spool.exists() else jobs.ended(number),
        lambda: f"the first epoch ends: {spool.read_text()}",
        150,
    )
    assert not jobs.ended(number), jobs.output(number)
    os.kill(rank_process(jobs, name, victim), signal.SIGKILL)
    job = wait_until(lambda: jobs.ended(number), "the job ends", SOON)
    output = jobs.output(number)
    assert job["Exit_status"] != "0"
    assert f"rank {victim} on " in output
    # "has died" where mpiexec has asked for the rank's status before its watcher did
    assert "was killed by SIGKILL; all ranks end" in output or "has died; all ranks end" in output
    assert "Traceback" not in output, output
    wait_until(lambda: not [words for words in jobs.processes().values() if name in words], "no process is left", SOON)


def test_the_servers_end_with_a_chief_that_has_done_its_work(jobs):
    number = submit(jobs, PARAMETER_SERVER, 3, "-e 1")
    job = wait_until(lambda: jobs.ended(number), "the job ends", 150)
    assert job["Exit_status"] == "0" and "Throughput: " in jobs.output(number), jobs.output(number)
    wait_until(
        lambda: not [words for words in jobs.processes().values() if PARAMETER_SERVER in words],
        "no process is left",
        SOON,
    )
