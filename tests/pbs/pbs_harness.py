"""A PBS of its own for every test: commands as pip makes them, an empty state directory, a site that kills quickly."""

import contextlib
import fcntl
import os
import pwd
import re
import sqlite3
import stat
import subprocess
from pathlib import Path

from waiting import run_to_end, wait_until

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("qsub", "qstat", "qdel", "qhold", "qrls", "qalter", "qselect", "qsig", "pbsnodes", "pbsdsh")
SERVER = os.uname().nodename.split(".")[0]
PATIENCE = 60  # seconds that a condition is waited for before the test fails
SITE = """
queue = "lecture"
group = "gt00"
kill_delay = 0.3
[machine]
nodes = 2
gpus = 2
ncpus = 2
mem = "8gb"
"""


class PBS:
    """The commands, run in `directory`, with a state directory that nobody else uses."""

    def __init__(self, bin_directory, directory):
        self.home = directory / "state"
        self.directory = directory / "work"
        self.directory.mkdir()
        self.user_home = directory / "home"
        self.user_home.mkdir()
        self.site = directory / "quick.toml"
        self.site.write_text(SITE)
        self.bin = bin_directory
        self.environment = {
            "PATH": f"{bin_directory}:/usr/bin:/bin",
            "HOME": str(self.user_home),
            "HANDSON_PBS_HOME": str(self.home),
            "HANDSON_SITE": str(self.site),
            "SHELL": "/bin/bash",
            "MAIL": "/var/mail/somebody",
        }

    def __call__(self, *command, stdin="", **environment):
        """Run a command; returns what subprocess.run returns, as text."""
        return run_to_end(
            command, input=stdin, cwd=self.directory, env=self.environment | environment, timeout=PATIENCE
        )

    def script(self, text, name="a.sh"):
        (self.directory / name).write_text(text)
        return name

    def submit(self, *arguments, **environment):
        """qsub; returns the id without the server's name."""
        done = self("qsub", *arguments, **environment)
        assert done.returncode == 0 and re.fullmatch("(hint: this job will wait forever, .*\n)?", done.stderr), (
            done.stderr
        )
        match = re.fullmatch(rf"(\d+(\[\])?)\.{SERVER}\n", done.stdout)
        assert match, done.stdout
        return match[1]

    def full(self, job_id):
        """``qstat -xf`` of one job as a dict."""
        done = self("qstat", "-xf", job_id)
        assert done.returncode == 0, done.stderr
        return dict(
            line.strip().split(" = ", 1) for line in done.stdout.replace("\n\t", "").splitlines() if " = " in line
        )

    def state(self, job_id):
        """The job's state, read from the database itself: looking must not be what keeps the queue going."""
        try:
            with contextlib.closing(
                sqlite3.connect(f"file:{self.home}/jobs.sqlite?mode=ro", uri=True, timeout=PATIENCE)
            ) as db:
                row = db.execute("SELECT state FROM jobs WHERE id = ?", [job_id]).fetchone()
        except sqlite3.OperationalError:
            return None  # not there yet
        return row and row[0]

    def wait_for_state(self, job_id, *states):
        """Wait until the job is in one of `states`; returns its attributes."""
        wait_until(lambda: self.state(job_id) in states, f"job {job_id} in state {' or '.join(states)}")
        return self.full(job_id)

    def finish(self, job_id):
        return self.wait_for_state(job_id, "F")

    def run(self, text, *arguments, **environment):
        """Submit a script with -j oe, wait for its end; returns (output, attributes).

        A line in which a job of several nodes says that this machine has no virtual nodes is left out.
        """
        job_id = self.submit("-j", "oe", *arguments, self.script(text), **environment)
        job = self.finish(job_id)
        output = Path(job["Output_Path"].split(":", 1)[1]).read_text()
        return re.sub(r"^handson: .*; the nodes of this job are groups of plain processes\n", "", output), job

    def login_path(self):
        """The PATH that the user's login shell sets."""
        shell = pwd.getpwuid(os.geteuid()).pw_shell
        return subprocess.check_output(
            [shell, "-l", "-c", "echo $PATH"], env={"HOME": str(self.user_home)}, text=True, timeout=PATIENCE
        ).strip()

    def scheduler_lives(self):
        if not (self.home / "scheduler.lock").exists():
            return False
        with open(self.home / "scheduler.lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            except BlockingIOError:
                return True

    def processes(self):
        """pid -> command line of every process that serves or belongs to this PBS."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if f"HANDSON_PBS_HOME={self.home}".encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if command:
                        found[int(name)] = command
            except OSError:
                continue
        return found

    def process(self, text):
        """The pid of the one process whose command line contains `text`."""
        return wait_until(
            lambda: next((pid for pid, command in self.processes().items() if text in command), None),
            f"a process with {text}",
        )

    def close(self):
        """Delete everything, and see that nothing is left running."""
        with_jobs = self.home.exists() and re.findall(r"^(\S+)\." + SERVER, self("qstat").stdout, re.M)
        if with_jobs:
            self("qdel", "-W", "force", *with_jobs)
        wait_until(lambda: not self.processes(), f"nothing is left running, but: {self.processes()}")
        log = self.home / "scheduler.log"
        return log.read_text() if log.exists() else ""


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)
