"""Whatever is killed, lost or full: no job is lost silently, and afterwards qstat -x tells the truth."""

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from pbs_harness import PATIENCE, ROOT, SERVER
from waiting import run_to_end, wait_until

from handson.pbs import delivery, runner, scheduler, store

# A job with all that is hard to kill: a daemon in a session of its own, one that was forked twice, one that ignores
# TERM.
TREE = """
setsid sleep 1001 &
(setsid sh -c 'sleep 1002 & exit' &)
(trap '' TERM; sleep 1003; sleep 1004) &
env -i setsid sleep 1005 &
until [ "$(pgrep -u $(id -u) -fc '^sleep 100[1235]$')" -ge 4 ]; do sleep 0.02; done
touch "$HOME/begun.$PBS_JOBID"
sleep 1006
"""
pytestmark = pytest.mark.thorough


def begin(pbs, *arguments, text=TREE):
    """Submit a job and wait until it has begun; returns its id."""
    job_id = pbs.submit("-j", "oe", *arguments, pbs.script(text.replace("100", number(pbs))))
    wait_until((pbs.user_home / f"begun.{job_id}.{SERVER}").exists, "the job has begun")
    return job_id


def number(pbs):
    """Digits that stand in the command lines of this test's processes only."""
    return str(3_000_000 + os.getpid())


def left_over(pbs):
    return run_to_end(["pgrep", "-u", str(os.getuid()), "-fa", rf"^sleep {number(pbs)}[0-9]$"]).stdout


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def test_walltime_ends_the_whole_tree(pbs):
    job_id = begin(pbs, "-l", "walltime=2")
    assert pbs.finish(job_id)["Exit_status"] == "-29"
    assert not left_over(pbs), "when the job has ended, its processes have"


def test_deleting_ends_the_whole_tree(pbs):
    job_id = begin(pbs)
    pbs("qdel", job_id)
    pbs.finish(job_id)
    assert not left_over(pbs)


def test_the_end_of_the_script_ends_what_it_left_behind(pbs):
    job_id = begin(pbs, text=TREE.replace("sleep 1006", ""))
    assert pbs.finish(job_id)["Exit_status"] == "0"
    assert not left_over(pbs)


def test_jobs_go_on_when_the_scheduler_is_killed(pbs):
    job_id = begin(
        pbs,
        *"-l select=2:ngpus=2 -l place=scatter".split(),
        text='touch "$HOME/begun.$PBS_JOBID"; until [ -e go ]; do sleep 0.05; done\n',
    )
    waiting = pbs.submit("a.sh")
    kill(pbs.process("handson.pbs.scheduler"))
    wait_until(lambda: not pbs.scheduler_lives(), "the scheduler is dead")
    (pbs.user_home / "go").touch()
    wait_until(lambda: pbs.state(waiting) == "F", "the next one ran without any command being called")
    assert pbs.full(job_id)["Exit_status"] == pbs.full(waiting)["Exit_status"] == "0"


def test_what_a_job_submits_outlives_that_job(pbs):
    """Even when the job's qsub is what starts the scheduler, which then is a descendant of the job."""
    pbs.script(
        "touch inner; until [ -e outer.ended ]; do sleep 0.05; done; grep Cpus_allowed_list /proc/$PPID/status\n",
        "inner.sh",
    )
    text = (
        'touch "$HOME/begun.$PBS_JOBID"; until [ -e go ]; do sleep 0.05; done\ncd "$PBS_O_WORKDIR"; PATH="$PBS_O_PATH";'
        " qsub -j oe inner.sh\n"
    )
    # both run now, if there are two cores
    text += "for i in $(seq 100); do [ -e ~/inner ] && break; sleep 0.05; done\n"
    job_id = begin(pbs, "-l", "select=1:ngpus=1", text=text)
    kill(pbs.process("handson.pbs.scheduler"))
    wait_until(lambda: not pbs.scheduler_lives(), "the scheduler is dead")
    (pbs.user_home / "go").touch()
    wait_until(lambda: pbs.state(job_id) == "F", "the outer job has ended, without any command being called")
    (pbs.user_home / "outer.ended").touch()
    wait_until(lambda: pbs.state("1") == "F", "the inner job has ended")
    assert pbs.full("1")["Exit_status"] == "0"
    ours = Path("/proc/self/status").read_text()
    assert (pbs.directory / "inner.sh.o1").read_text().strip() in ours, (
        "the new scheduler is not pinned to the cores of the job"
    )


def test_a_command_starts_the_scheduler_again(pbs):
    pbs.script("echo hello\n")
    assert pbs("qsub", "a.sh").returncode == 0
    pbs.finish("0")
    done = without_scheduler(pbs, "qsub", "a.sh")
    assert done.returncode == -signal.SIGKILL and pbs.state("1") == "Q"
    pbs("qstat")
    assert pbs.finish("1")["Exit_status"] == "0"


def without_scheduler(pbs, command, *arguments, before="handson.pbs.scheduler.ensure"):
    """Run a command that is killed at the moment when it calls the function `before`."""
    module, _, function = before.rpartition(".")
    code = (
        f"import os, signal, sys; sys.path.append({str(ROOT)!r}); import {module}\n"
        f"{module}.{function} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"sys.argv[0] = {command!r}; from handson.pbs.{command} import main; main()"
    )
    return pbs(sys.executable, "-c", code, *arguments)


def test_qsub_killed_before_the_job_is_stored_leaves_nothing(pbs):
    pbs.script("echo hello\n")
    pbs.submit("a.sh")
    done = without_scheduler(pbs, "qsub", "a.sh", before="handson.pbs.depend.register")
    assert done.returncode == -signal.SIGKILL and done.stdout == ""
    assert pbs.submit("a.sh") == "1", "the number was not used up"
    pbs.finish("1")
    assert len(pbs("qstat", "-x").stdout.splitlines()) == 4


@pytest.mark.parametrize("also_the_scheduler", [False, True], ids=["runner", "runner and scheduler"])
def test_a_job_whose_runner_is_killed_fails_with_the_reason(pbs, also_the_scheduler):
    # with both gone, only what carries the job's name is found
    text = TREE if not also_the_scheduler else TREE.replace("env -i ", "")
    job_id = begin(pbs, text=text)
    waiting = pbs.submit("-l", "select=2:ngpus=2", pbs.script("echo next\n", "next.sh"))
    if also_the_scheduler:
        kill(pbs.process("handson.pbs.scheduler"))
    kill(pbs.process("handson.pbs.runner"))
    if also_the_scheduler:
        pbs("qstat")
    job = pbs.finish(job_id)
    assert job["comment"].endswith(
        " and failed; the process that ran it was killed, and so was what was left of the job"
    )
    assert job["Exit_status"] == "-2"
    assert not left_over(pbs)
    assert (pbs.directory / "a.sh.o0").exists(), "its output so far is delivered"
    assert pbs.finish(waiting)["Exit_status"] == "0"


def test_that_a_job_has_started_is_stored_before_its_script_begins(pbs, monkeypatch):
    """Or it would begin twice, if its runner were killed between the two."""
    monkeypatch.setenv("HANDSON_PBS_HOME", str(pbs.home))
    monkeypatch.setenv("HANDSON_SITE", str(pbs.site))
    job_id = pbs.submit("-h", pbs.script("exit\n"))
    with store.transaction() as db:
        [job] = scheduler.plan(db, [store.get(db, job_id) | {"state": "Q", "hold": "n"}], 0)
    directory = store.job_directory(job_id)
    directory.mkdir()

    def begin(*words, **options):
        with store.reading() as db:
            seen.append(store.get(db, job_id))
        raise OSError

    seen = []
    with monkeypatch.context() as patched, pytest.raises(OSError):
        patched.setattr(runner.subprocess, "Popen", begin)
        runner.start(job, directory)
    last = seen[-1]  # the login shell, which says the PATH, comes before
    assert last["started"] and Path(last["tmpdir"]).is_dir()
    delivery.remove_files(last)
    pbs("qdel", "-W", "force", job_id)


def test_an_end_that_was_found_out_but_not_recorded_is_recorded_later(pbs):
    job_id = begin(pbs)
    shell, runner = int(pbs.full(job_id)["session_id"]), pbs.process("handson.pbs.runner")
    kill(pbs.process("handson.pbs.scheduler"))
    with database_locked(pbs):  # so that the runner cannot record it
        kill(shell)
        wait_until(
            lambda: b"exit_status" in (pbs.home / "jobs" / job_id / "outcome").read_bytes(), "the runner knows the end"
        )
        kill(runner)
    pbs("qstat")
    assert pbs.finish(job_id)["Exit_status"] == "137"
    assert (pbs.directory / "a.sh.o0").exists()


def crash(pbs, job_id):
    """What a power cut does to the processes."""
    shell = int(pbs.full(job_id)["session_id"])
    kill(pbs.process("handson.pbs.scheduler"))
    kill(pbs.process("handson.pbs.runner"))
    os.killpg(shell, signal.SIGKILL)
    wait_until(lambda: not pbs.processes(), f"all is dead, but: {pbs.processes()}")


ONCE = 'echo run >> "$HOME/runs"; touch "$HOME/begun.$PBS_JOBID"; [ -e "$HOME/rebooted" ] || exec sleep 1006\n'


def test_after_a_power_cut_a_job_is_put_back_into_the_queue_and_runs_again(pbs):
    job_id = begin(pbs, text=ONCE)
    waiting = pbs.submit("-h", "a.sh")
    crash(pbs, job_id)
    (pbs.user_home / "rebooted").touch()
    pbs("qstat", HANDSON_PBS_BOOT_ID="another boot")
    job = pbs.finish(job_id)
    assert job["Exit_status"] == "0" and job["run_count"] == "2"
    assert job["comment"].endswith(" (again: the machine went down during run 1) and finished")
    assert (pbs.user_home / "runs").read_text() == "run\nrun\n"
    assert pbs.full(waiting)["job_state"] == "H"


def test_after_a_power_cut_a_job_that_must_not_run_again_has_failed(pbs):
    job_id = begin(pbs, "-r", "n", text=ONCE)
    crash(pbs, job_id)
    pbs("qstat", HANDSON_PBS_BOOT_ID="another boot")
    job = pbs.finish(job_id)
    assert job["comment"].endswith(" and failed; the machine went down while it ran, and it is not rerunnable (-r n)")
    assert job["Exit_status"] == "-4"
    assert (pbs.user_home / "runs").read_text() == "run\n"


def test_a_job_that_brings_the_machine_down_again_and_again_is_held(pbs):
    job_id = begin(pbs, text=ONCE)
    crash(pbs, job_id)
    with contextlib.closing(sqlite3.connect(pbs.home / "jobs.sqlite")) as db, db:
        db.execute("UPDATE jobs SET data = replace(data, '\"run_count\": 1', '\"run_count\": 21')")
    pbs("qstat", HANDSON_PBS_BOOT_ID="another boot")
    job = pbs.wait_for_state(job_id, "H")
    assert (job["Hold_Types"], job["comment"]) == ("s", "job held, too many failed attempts to run")


def test_two_people_submitting_at_once_lose_no_job(pbs):
    loop = "for i in 1 2 3 4 5 6 7 8 9 10; do qsub -- /bin/true || exit 1; done"
    both = [
        subprocess.Popen(
            ["bash", "-c", loop], cwd=pbs.directory, env=pbs.environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    printed = sorted(
        int(line.split(".")[0]) for process in both for line in process.communicate(timeout=PATIENCE)[0].split()
    )
    assert printed == list(range(20))
    wait_until(lambda: all(pbs.state(str(seq)) == "F" for seq in range(20)), "all 20 jobs have run")
    assert all("and finished" in line for line in pbs("qstat", "-xs").stdout.splitlines() if line.startswith("   J"))


# Full disks --------------------------------------------------------------------


@pytest.fixture
def small_disk(pbs):
    """The state directory on a disk of 1 MB; where this may not be mounted, one that can't take files beyond 200 kB."""
    pbs.home.mkdir()
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", pbs.home], capture_output=True
        ).returncode
        == 0
    )
    yield mounted
    if mounted:
        pbs.close()
        subprocess.run(["umount", "-l", pbs.home], check=True)


def fill(pbs):
    with contextlib.suppress(OSError), open(pbs.home / "filler", "wb", buffering=0) as filler:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(b"x" * size)


def test_on_a_full_disk_qsub_refuses_and_stores_nothing(pbs, small_disk):
    pbs.submit("-h", pbs.script("#" * 100_000 + "\n"))
    if small_disk:
        fill(pbs)
        done = pbs("qsub", "-h", "a.sh")
    else:
        limited = (
            "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (150_000,) * 2); os.execvp('qsub',"
            " ['qsub', '-h', 'a.sh'])"
        )
        done = pbs(sys.executable, "-c", limited)
    assert (done.stdout, done.returncode) == ("", 1)
    assert re.fullmatch(
        rf"qsub: the job database in {pbs.home} cannot be used \(.*disk.*full\): nothing was changed\n", done.stderr
    )
    with contextlib.suppress(FileNotFoundError):
        (pbs.home / "filler").unlink()
    assert pbs.submit("-h", "a.sh") == "1"
    assert len(pbs("qstat").stdout.splitlines()) == 4


def test_a_job_that_ends_on_a_full_disk_is_recorded(pbs, small_disk):
    text = 'touch "$HOME/begun.$PBS_JOBID"; until [ -e go ]; do sleep 0.05; done; head -c 300000 /dev/zero; exit 9\n'
    job_id = begin(pbs, text=text)
    if small_disk:
        fill(pbs)
    (pbs.user_home / "go").touch()
    job = pbs.finish(job_id)
    assert job["Exit_status"] == "9"
    if small_disk:
        assert "is full, so its output may be incomplete" in job["comment"]


@contextlib.contextmanager
def database_locked(pbs):
    locked = sqlite3.connect(pbs.home / "jobs.sqlite", isolation_level=None)
    locked.execute("BEGIN EXCLUSIVE")
    yield
    locked.execute("ROLLBACK")
    locked.close()


# Damage ------------------------------------------------------------------------


def test_a_damaged_database_is_put_aside_and_what_can_be_read_goes_on(pbs):
    job_id = begin(pbs, text='touch "$HOME/begun.$PBS_JOBID"; until [ -e go ]; do sleep 0.05; done; exit 4\n')
    pbs.submit("-h", "a.sh")
    size = (pbs.home / "jobs.sqlite").stat().st_size
    (pbs.home / "jobs.sqlite").write_bytes(b"no database any more" * (size // 20))
    told = r"qstat: the job database was damaged and is kept as (\S+); 1 of its jobs could be read and go on: .*\n"
    match = wait_until(
        lambda: re.fullmatch(told, pbs("qstat").stderr), "it is told, also when the scheduler has seen it first"
    )
    assert Path(match[1]).read_bytes().startswith(b"no database any more")
    assert pbs.full(job_id)["job_state"] == "R", "the job that runs is known from its own directory"
    assert pbs.submit("-h", "a.sh") == "2", "no number is given twice"
    assert pbs("qstat").stderr == "", "it is told once"
    (pbs.user_home / "go").touch()
    assert pbs.finish(job_id)["Exit_status"] == "4"


def test_a_half_damaged_database_loses_only_what_cannot_be_read(pbs):
    for _ in range(30):
        pbs.submit("-h", pbs.script("#" * 5000 + "\n"))
    path = pbs.home / "jobs.sqlite"
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    path.write_bytes(content)
    done = pbs("qstat", "-x")
    assert "was damaged and is kept as" in done.stderr
    kept = int(re.search(r"; (\d+) of its jobs", done.stderr)[1])
    assert kept == len(pbs("qstat").stdout.splitlines()[2:])
    assert kept > 0
    assert pbs.submit("-h", "a.sh") == "30"


# Other people ------------------------------------------------------------------


def test_a_state_directory_of_somebody_else_is_refused(pbs):
    if os.getuid() == 0:
        pbs.home.mkdir()
        os.chown(pbs.home, 65534, 65534)
    else:
        pbs.home = Path("/proc/1")  # it belongs to root
        pbs.environment["HANDSON_PBS_HOME"] = "/proc/1"
    done = pbs("qsub", pbs.script("echo\n"))
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert str(pbs.home) in done.stderr
    pbs.home = pbs.directory / "none"
