"""Slurm on two virtual hosts of one machine, for tests and for trying things: ``python two_hosts.py [COMMAND...]``.

The hosts are virtual nodes (`handson.cluster.virtual_nodes`), so no root is needed. COMMAND, or a shell, runs on a third one, login, where
jobs are submitted. When COMMAND or this process ends, in whatever way, Slurm and its jobs end, too. The configuration includes
pbs_jobs.conf, as that of a real cluster does.
"""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from handson.cluster import virtual_nodes

HERE = Path(__file__).resolve().parent
LOGIN, NODES = "login", ("node1", "node2")
CPUS, GPUS = 2, ("/dev/null", "/dev/zero")  # per node; Slurm counts any device in gres.conf as a GPU
LIMIT = 60  # seconds for Slurm to start, and for one of its commands
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:/usr/bin:/bin"
PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sbatch": "slurm-wlm",
    "generate_pbs_nodefile": "slurm-wlm-torque",
}

CONFIGURATION = """\
ClusterName=classroom
SlurmctldHost=login({login})
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd_%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=1000
KillWait=2
GresTypes=gpu
NodeName={nodes} NodeAddr={addresses} CPUs={cpus} RealMemory=4000 Gres=gpu:{gpus}
PartitionName=lecture Nodes=ALL Default=YES MaxTime=01:00:00
Include {folder}/pbs_jobs.conf
"""


class Slurm:
    """A running Slurm. `folder`: where its files and logs are."""

    def __init__(self, folder, holder, hosts):
        self.folder, self.holder, self.hosts = folder, holder, hosts
        # In the user namespace of virtual nodes an ordinary user appears as root. As root, Slurm would try to become other
        # users, which do not exist. So a second user namespace makes it an ordinary user again.
        rooted = not os.path.samefile(f"/proc/{holder.pid}/ns/user", "/proc/self/ns/user")
        self.user = pwd.getpwnam("nobody") if rooted and os.getuid() == 0 else pwd.getpwuid(os.getuid())
        self._as_user = (
            ["unshare", "--user", f"--map-user={self.user.pw_uid}", f"--map-group={self.user.pw_gid}"] if rooted else []
        )

    def start(self, *command, folder="/", host=LOGIN, env=os.environ, **options):
        """A Popen of `command` on `host`, in `folder`. Slurm's commands use this Slurm there."""
        command = virtual_nodes.on(self.hosts[host]["pid"], *self._as_user, *command)
        command = virtual_nodes.inside(self.holder.inside, str(folder), *command)
        return subprocess.Popen(command, env={**env, "SLURM_CONF": str(self.folder / "slurm.conf")}, **options)

    def run(self, *command, **options):
        """Run `command` as `start` does and return its output, errors included. Raises CalledProcessError, TimeoutExpired."""
        with self.start(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
        ) as process:
            output, _ = process.communicate(timeout=LIMIT)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, output)
        return output


def why_not():
    """A sentence on why this machine cannot run it; None if it can."""
    if missing := [tool for tool in PACKAGES if not shutil.which(tool, path=PATH)]:
        packages = " ".join(dict.fromkeys(PACKAGES[tool] for tool in missing))
        return f"Slurm's {', '.join(missing)} are not on this machine: apt install {packages}"
    return virtual_nodes.why_not()


@contextlib.contextmanager
def slurm(folder):
    """``with slurm(folder) as cluster``: a `Slurm` with its files in `folder`, which must be empty. Raises OSError with one sentence."""
    hosts = {name: {} for name in (LOGIN, *NODES)}
    holder = virtual_nodes.start(hosts, "none", folder)
    cluster, daemons = Slurm(folder, holder, hosts), {}

    def start_daemon(*command, host=LOGIN):
        with open(folder / f"{command[0]}_{host}.log", "wb") as log:
            environment = os.environ | {"PATH": PATH}
            daemons[f"{command[0]} on {host}"] = cluster.start(
                *command,
                host=host,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    try:
        _configure(cluster)
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
        start_daemon(
            "munged",
            "--foreground",
            "--force",
            *(f"--{option}={folder}/munge/{name}" for option, name in files.items()),
        )
        _wait_until((folder / "munge/socket").exists, daemons, folder)
        start_daemon("slurmctld", "-D")
        for node in NODES:
            start_daemon("slurmd", "-D", "-N", node, host=node)
        _wait_until(lambda: _idle_nodes(cluster) == len(NODES), daemons, folder)
        yield cluster
    finally:
        holder.communicate(timeout=LIMIT)  # closes its standard input, which ends all processes inside
        for daemon in daemons.values():
            daemon.wait(LIMIT)


def _configure(cluster):
    folder, hosts = cluster.folder, cluster.hosts
    for file in ("pbs_jobs.conf", "job_submit.lua", "plugstack.conf", "task_prolog.sh", "task_epilog.sh"):
        (folder / file).write_text((HERE / file).read_text().replace("/etc/slurm", str(folder)))
        shutil.copymode(HERE / file, folder / file)
    addresses = ",".join(hosts[node]["address"] for node in NODES)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            folder=folder,
            user=cluster.user.pw_name,
            login=hosts[LOGIN]["address"],
            nodes=",".join(NODES),
            addresses=addresses,
            cpus=CPUS,
            gpus=len(GPUS),
        )
    )
    (folder / "gres.conf").write_text("".join(f"Name=gpu File={device}\n" for device in GPUS))
    for name in ("munge", "state", *(f"spool_{node}" for node in NODES)):
        (folder / name).mkdir(mode=0o700)
    key = folder / "munge/key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))


def _idle_nodes(cluster):
    with contextlib.suppress(subprocess.CalledProcessError):
        return len(
            cluster.run("sinfo", "--noheader", "--Node", "--states=idle", env=os.environ | {"PATH": PATH}).splitlines()
        )


def _wait_until(condition, daemons, folder):
    deadline = time.monotonic() + LIMIT
    while not condition():
        ended = [name for name, daemon in daemons.items() if daemon.poll() is not None]
        if ended or time.monotonic() > deadline:
            logs = "".join(log.read_text(errors="replace") for log in sorted(folder.glob("*.log")))
            what = f"{ended[0]} has ended" if ended else f"it was not ready after {LIMIT} s"
            raise OSError(
                0, f"Slurm did not come up: {what}; its logs end with: {(logs.strip().splitlines() or ['nothing'])[-1]}"
            )
        time.sleep(0.05)


def main():
    if problem := why_not():
        sys.exit(f"two_hosts.py: {problem}")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="slurm_") as folder:
        try:
            with slurm(Path(folder)) as cluster:
                process = cluster.start(*(sys.argv[1:] or [os.environ.get("SHELL", "/bin/sh")]), folder=os.getcwd())
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command handles Ctrl-C
                sys.exit(process.wait())
        except OSError as error:
            sys.exit(f"two_hosts.py: {error.strerror}")


if __name__ == "__main__":
    main()
