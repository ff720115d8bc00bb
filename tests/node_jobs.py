"""Jobs of several nodes for tests: an embedded PBS of its own, and what a job leaves in the kernel and on the disk."""

import os
import subprocess
import sysconfig
from pathlib import Path

from waiting import run_to_end, wait_until

from handson import linux

PATIENCE = 90  # seconds that a condition is waited for before the test fails
SITE = """
queue = "lecture"
group = "gt00"
kill_delay = 1
strict = {strict}
[machine]
name = "{name}"
nodes = {nodes}
gpus = {gpus}
ncpus = {gpus}
mem = "8gb"
"""
HEAD = """#!/bin/bash
cd "$PBS_O_WORKDIR"
export PATH="$PBS_O_PATH"
eval "$(handson-launcher)"
"""


class Jobs:
    """qsub and its like, run in `folder`, with a state directory that nobody else uses. release: they are as those of
    OpenPBS 23.06.06 (`strict` of a site), on nodes with other names."""

    def __init__(self, folder, nodes=2, gpus=2, path=(), release=False):
        self.folder, self.state = folder / "work", folder / "state"
        self.folder.mkdir()
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.site = folder / "site.toml"
        strict, name = ("true", "pbsn") if release else ("false", "node")
        self.site.write_text(SITE.format(nodes=nodes, gpus=gpus, strict=strict, name=name))
        path = os.pathsep.join([*map(str, path), sysconfig.get_path("scripts"), os.environ["PATH"]])
        unwanted = ("PBS_", "HANDSON_", "OMP_", "PMI")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        self.environment |= {
            "PATH": path,
            "HANDSON_PBS_HOME": str(self.state),
            "HANDSON_SITE": str(self.site),
            "TMPDIR": str(self.temporary),
        }

    def __call__(self, *command, **environment):
        return run_to_end(
            command, cwd=self.folder, env=self.environment | environment, timeout=PATIENCE, stdin=subprocess.DEVNULL
        )

    def submit(self, script, *arguments, select="2:ngpus=2:mpiprocs=2:ompthreads=1", **environment):
        """Submit HEAD and `script` as a job of several nodes; returns its number."""
        (self.folder / "job.sh").write_text(HEAD + script)
        resources = ["-l", f"select={select}", "-l", "place=scatter"]
        done = self("qsub", "-j", "oe", "-N", "job", *resources, *arguments, "job.sh", **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.split(".")[0]

    def ended(self, number):
        """The attributes of a job as a dict when it has ended, else None."""
        out = self("qstat", "-xf", number).stdout.replace("\n\t", "")
        return (
            dict(line.strip().split(" = ", 1) for line in out.splitlines() if " = " in line)
            if "job_state = F" in out
            else None
        )

    def finish(self, number):
        """Wait for the end of a job; returns its attributes."""
        return wait_until(lambda: self.ended(number), f"job {number} ends")

    def output(self, number):
        return (self.folder / f"job.o{number}").read_text()

    def run(self, script, *arguments, **options):
        """Submit, and wait; returns the output of a job that ended well."""
        number = self.submit(script, *arguments, **options)
        job = self.finish(number)
        assert job["Exit_status"] == "0", self.output(number)
        return self.output(number)

    def file(self, name):
        """Wait for a file that a job writes; returns its text."""
        wait_until((self.folder / name).exists, f"the job writes {name}")
        return (self.folder / name).read_text()

    def close(self):
        self("bash", "-c", "qdel -W force $(qstat | sed -n 's/^\\([0-9]*\\)\\..*/\\1/p')")
        wait_until(lambda: not self.processes(), f"nothing runs any more, but: {self.processes()}", 10)

    def processes(self):
        """pid -> command line of all that serves this PBS, belongs to a job of it, or holds its nodes."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words, environment = (Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
            except OSError:
                continue
            if words and (
                f"{self.state}/".encode() in words or f"HANDSON_PBS_HOME={self.state}".encode() in environment
            ):
                found[int(pid)] = words.replace(b"\0", b" ").decode()
        return found


def namespaces(pid, names=("net", "uts", "mnt", "pid", "ipc")):
    """What tells the namespaces of process `pid` from all others."""
    return {os.readlink(f"/proc/{pid}/ns/{name}") for name in names}


def living_namespaces(pids):
    """The namespaces of those of some processes that live."""
    found = set()
    for pid in pids:
        try:
            found |= namespaces(pid)
        except OSError:
            pass  # it has ended, or belongs to somebody else
    return found


def holders(names):
    """(pid, start) of all processes in one of these namespaces. The kernel gives a namespace's number again, to others'
    processes, which these two tell apart."""
    return {
        (pid, start)
        for pid in linux.every_pid()
        if names & living_namespaces([pid]) and (start := linux.start_time(pid)) is not None
    }


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
