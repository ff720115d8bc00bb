"""However a job on virtual nodes ends: five seconds later there is no process, namespace, mount or file of it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from node_jobs import HEAD, children, holders, living_namespaces, namespaces
from waiting import wait_until

from handson import linux
from handson.cluster import virtual_nodes
from handson.training import leftovers

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}"),
]
SOON = 30  # seconds, on a busy machine: the kernel frees namespaces when it finds the time

# A job that holds on to what it can: ranks on both nodes, a daemon on the other node, files in its TMPDIR and in shared
# memory.
CLINGING = """
echo "$TMPDIR" >tmpdir
echo something | tee "$TMPDIR/file" /dev/shm/handson_test_$PBS_JOBCOOKIE >/dev/null
handson-agent node2 'setsid sleep 1000 >/dev/null 2>&1 & disown; trap "" TERM; sleep 1000' &
mpiexec -n 4 -hostfile "$PBS_NODEFILE" sh -c 'touch "up.$PMI_RANK"; sleep 1000' &
until [ -e end ]; do sleep 0.05; done
"""


# Each run ends by the death of its four ranks, which have met. They load no mpi4py, which takes longer than the rest.
FAILING = """
for run in $(seq 1 RUNS); do
    mpiexec -n 4 -hostfile "$PBS_NODEFILE" python -I -S -c "
import ctypes, os, signal
ctypes.CDLL('LIBRARY', ctypes.RTLD_GLOBAL).MPI_Init(None, None)
os.write(1, b'met\\n')
os.kill(os.getpid(), signal.SIGKILL)"
done
exit 0
"""


@pytest.fixture
def running(jobs):
    """A job in full swing: `jobs`, with its number, the pids of those who may die, and its namespaces."""
    begin(jobs, lambda: jobs.submit(CLINGING))
    return jobs


def begin(jobs, submit):
    jobs.shared_memory = set(os.listdir("/dev/shm"))
    jobs.number = submit()
    for rank in range(4):
        jobs.file(f"up.{rank}")
    jobs.tmpdir = Path(jobs.file("tmpdir").strip())
    processes = jobs.processes()
    [jobs.unshare] = [
        pid for pid, words in processes.items() if words.startswith("unshare") and "virtual_nodes" in words
    ]
    [jobs.holder] = children(jobs.unshare)
    jobs.first_processes = [
        pid for pid in children(jobs.holder) if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0infinity")
    ]
    jobs.runner = int(Path(f"/proc/{jobs.unshare}/stat").read_text().rpartition(")")[2].split()[1])
    jobs.mpiexec = next(pid for pid, words in processes.items() if "mpiexec -n 4" in words)
    jobs.namespaces = set().union(*(namespaces(pid) for pid in [jobs.holder, *jobs.first_processes])) - namespaces(
        "self"
    )
    jobs.holders = holders(jobs.namespaces)
    assert len(jobs.first_processes) == 2 and len(jobs.namespaces) == 5 + 2 * 2, "5 of the job, and 2 of each node"


def nothing_is_left(jobs):
    wait_until(lambda: not jobs.processes(), f"no process is left, but: {jobs.processes()}", SOON)
    wait_until(lambda: not jobs.holders & holders(jobs.namespaces), "no namespace is left", SOON)
    directory = jobs.state / "jobs" / jobs.number
    mounted = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if str(directory) in mounts(pid)]
    assert not mounted and not directory.exists() and not jobs.tmpdir.exists()
    assert list(jobs.temporary.iterdir()) == []
    assert not {name for name in set(os.listdir("/dev/shm")) - jobs.shared_memory if name.startswith("handson_test")}


@pytest.mark.parametrize(
    ("select", "runs"), [("2:ngpus=2:mpiprocs=2", 12), ("1:ngpus=2:mpiprocs=4", 13)], ids=["two nodes", "one node"]
)
def test_when_ranks_were_killed_fifty_times(jobs, select, runs):
    """The shared memory of ranks on the machine's own node goes when the next training starts."""
    rooms, seen = [Path("/dev/shm"), Path(tempfile.gettempdir()), jobs.temporary], set()
    there = {path for room in rooms for path in room.iterdir()}
    number = jobs.submit(
        FAILING.replace("RUNS", str(runs)).replace("LIBRARY", f"{sys.prefix}/lib/libmpi.so.12"), select=select
    )

    def ended():
        seen.update(holders(living_namespaces(jobs.processes()) - namespaces("self")))
        return jobs.ended(number)

    def left():
        leftovers.remove()
        used = {name for pid in linux.pids_of_user() for name in leftovers._mapped(pid)}
        shared = {path for path in rooms[0].glob("mpich_shm_*") if path.name not in used}
        # while another mpiexec runs, its file can't be told from ours
        others = min(leftovers._starts_of_mpiexec(), default=time.time())
        return (
            shared | {path for room in rooms[1:] for path in room.glob("hydra_*") if path.stat().st_mtime < others}
        ) - there

    assert wait_until(ended, "the job ends")["Exit_status"] == "0"
    assert jobs.output(number).count("BAD TERMINATION") == runs, jobs.output(number)
    wait_until(lambda: not jobs.processes(), f"no process is left, but: {jobs.processes()}", SOON)
    wait_until(lambda: not left(), "nothing is left in the folders", leftovers.YOUNG + SOON)
    assert bool(seen) == select.startswith("2"), "only several nodes need namespaces"
    assert not seen & {(pid, linux.start_time(pid)) for pid in linux.every_pid()}
    assert list(jobs.temporary.iterdir()) == []


def mounts(pid):
    try:
        return Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError:
        return ""


def test_when_it_has_finished(running):
    (running.folder / "end").touch()
    assert running.finish(running.number)["Exit_status"] == "0"
    nothing_is_left(running)


def test_when_it_is_deleted(running):
    running("qdel", running.number)
    assert running.finish(running.number)["comment"].endswith(" and terminated")
    nothing_is_left(running)


def test_a_deleted_job_that_ends_at_once_is_not_waited_for(jobs):
    """The script is asked to end, the nodes it runs on are not; and they are no reason to wait for the time it could
    have taken."""
    jobs.site.write_text(jobs.site.read_text().replace("kill_delay = 1", "kill_delay = 600"))
    number = jobs.submit('trap "exit 7" TERM\ntouch up\nwhile sleep 0.05; do :; done\n')
    jobs.file("up")
    jobs("qdel", number)
    assert jobs.finish(number)["Exit_status"] == "7"


def test_when_its_walltime_is_over(jobs):
    begin(jobs, lambda: jobs.submit(CLINGING, "-l", "walltime=5"))
    assert jobs.finish(jobs.number)["Exit_status"] == "-29"
    nothing_is_left(jobs)


@pytest.mark.parametrize("victim", ["runner", "holder", "unshare"])
def test_when_what_holds_it_is_killed(running, victim):
    os.kill(getattr(running, victim), signal.SIGKILL)
    job = running.finish(running.number)
    assert job["Exit_status"] != "0" and "was killed" in job["comment"]
    nothing_is_left(running)


@pytest.mark.parametrize("node", [0, 1])
def test_when_a_node_dies_the_job_is_told_which(running, node):
    os.kill(running.first_processes[node], signal.SIGKILL)
    job = running.finish(running.number)
    sentence = f"its virtual node node{node + 1} was killed"
    assert job["comment"].endswith(f" and failed; {sentence}")
    assert f"=>> PBS: job killed: {sentence}\n" in running.output(running.number)
    nothing_is_left(running)


def test_when_mpiexec_is_killed_its_ranks_end_and_the_job_goes_on(running):
    os.kill(running.mpiexec, signal.SIGKILL)
    wait_until(
        lambda: not [words for words in running.processes().values() if "up.$PMI_RANK" in words], "the ranks end", SOON
    )
    (running.folder / "end").touch()
    assert running.finish(running.number)["Exit_status"] == "0"
    nothing_is_left(running)


def test_when_the_runner_and_the_scheduler_are_killed_together(running):
    """Nobody is left to clean up processes: the kernel does. The files go when the next command looks."""
    [scheduler] = [pid for pid, words in running.processes().items() if "handson.pbs.scheduler" in words]
    for pid in (scheduler, running.runner):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not running.holders & holders(running.namespaces), "no namespace is left", SOON)
    running.finish(running.number)
    nothing_is_left(running)


def test_when_the_terminal_it_was_submitted_from_is_closed_it_goes_on(jobs):
    (jobs.folder / "job.sh").write_text(HEAD + CLINGING)

    def submit():
        words = "qsub -j oe -N job -l select=2:ngpus=2:mpiprocs=2 -l place=scatter job.sh; sleep 1000"
        terminal = subprocess.Popen(
            ["bash", "-c", words],
            cwd=jobs.folder,
            env=jobs.environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        number = terminal.stdout.readline().split(".")[0]
        for rank in range(4):
            jobs.file(f"up.{rank}")
        os.killpg(terminal.pid, signal.SIGHUP)
        terminal.wait(10)
        return number

    begin(jobs, submit)
    (jobs.folder / "end").touch()
    assert jobs.finish(jobs.number)["Exit_status"] == "0"
    nothing_is_left(jobs)
