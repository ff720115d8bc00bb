"""Virtual nodes: a host name and a network for each node of an embedded PBS job, on one machine and without root.

`start` is called by the job's runner. It starts a *holder*: the first process of new user, process, mount and network
namespaces, which makes a bridge and for each node a process with a network and a host name of its own. The holder lives as long as
the runner holds its pipe; with it end, by the kernel's hand, all processes, networks and mounts of the job, however they were left.
Linux's own tools do the work: unshare, nsenter, ip and tc. `handson.nodes` takes a process into a node.
"""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

SUBNET = "10.78.0."
LIMIT = 10  # seconds for the nodes to come up
RATES = re.compile(r"none|[1-9][0-9]*(mbit|gbit)")


def why_not():
    """Why this machine cannot have virtual nodes: one sentence with what would allow them; None if it can. Takes milliseconds."""
    if missing := [tool for tool in ("unshare", "nsenter", "ip", "tc", "mount") if not shutil.which(tool, path=_path())]:
        return f"virtual nodes need {' and '.join(missing)}, which this machine lacks: install util-linux and iproute2"
    tried = subprocess.run([*_unshare(), "true"], capture_output=True, text=True, timeout=LIMIT, env=os.environ | {"PATH": _path()})
    if tried.returncode == 0:
        return None
    for path, refusing, cure in (
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ):
        if _content(path) == refusing:
            return f"virtual nodes need user namespaces, which this machine refuses to ordinary users: an administrator can allow them by `{cure}`"
    reason = tried.stderr.strip().splitlines()[-1:] or ["unknown reason"]
    return f"virtual nodes need namespaces, which this machine refuses ({reason[0]}): in a container, allow it the unshare system call"


def check_rate(rate):
    """Raise OSError unless `rate` is one that `start` takes."""
    if not RATES.fullmatch(rate):
        raise OSError(0, f"the rate of a network is none, or a number with mbit or gbit such as 100mbit, not {rate!r}")


def start(nodes, rate, directory):
    """Bring up `nodes` (name -> properties), each with its network limited to `rate` ("100mbit", "10gbit" or "none").

    Adds to every node its "pid" (inside the holder's namespaces) and "address". Returns the holder: a Popen whose standard input
    keeps it alive, with the attribute `inside`, the pid of the namespaces' first process. Raises OSError, one sentence.
    """
    specification = directory / "virtual_nodes.json"
    specification.write_text(json.dumps({"names": list(nodes), "rate": rate, "hosts": str(directory / "hosts")}))
    command = [*_unshare(), "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m", "handson.virtual_nodes"]
    holder = subprocess.Popen(
        [*command, str(specification)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PATH": _path()}, start_new_session=True, cwd="/",
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),  # a deleted job's processes get time to end; so its nodes stay
    )  # fmt: skip
    ready, _, _ = select.select([holder.stdout], [], [], LIMIT)
    line = holder.stdout.readline() if ready else b""
    if not line:
        holder.kill()
        problem = holder.communicate()[1].decode(errors="replace").strip().splitlines()[-1:] or [f"not ready after {LIMIT} s"]
        raise OSError(0, f"the virtual nodes did not come up: {problem[0]}")
    for number, (name, pid) in enumerate(json.loads(line).items(), start=1):
        nodes[name].update(pid=pid, address=f"{SUBNET}{number}")
    holder.inside = int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()[0])
    return holder


def inside(holder_pid, folder, *command):
    """The command that runs `command`, in `folder`, in the namespaces whose first process is `holder_pid`."""
    command = ["sh", "-c", 'cd -- "$0"; exec "$@"', folder, *command]  # entering a mount namespace leads to its root
    user = ["--user", "--preserve-credentials"] if os.geteuid() else []
    return [shutil.which("nsenter", path=_path()), f"--target={holder_pid}", *user, "--mount", "--pid", "--net", "--uts", "--", *command]


def on(pid, *command):
    """The command that, inside those namespaces, runs `command` on the node whose first process is `pid`."""
    return [shutil.which("nsenter", path=_path()), f"--target={pid}", "--net", "--uts", "--", *command]


def _unshare():
    # For an ordinary user, root inside; root itself needs no user namespace, in which the files of others would be closed to it.
    user = ["--map-root-user"] if os.geteuid() else []
    return ["unshare", *user, "--net", "--mount", "--uts"]


def _path():
    """PATH with the folders of system tools, which ordinary users and batch jobs often lack."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:/usr/bin:/bin"


def _content(path):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _run(*command, lines=()):
    """Run a tool, `lines` on its standard input; its own words become the error."""
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")


def hold(names, rate, hosts):
    """The holder: make the nodes, tell their pids in one line of JSON, and stay until standard input ends."""
    addresses = {name: f"{SUBNET}{number}" for number, name in enumerate(names, start=1)}
    own = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else ""
    Path(hosts).write_text(own.rstrip("\n") + "\n" + "".join(f"{address} {name}\n" for name, address in addresses.items()))
    _run("mount", "--bind", hosts, "/etc/hosts")
    sleepers = {name: subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", 'hostname "$1" && exec sleep infinity', "sh", name]) for name in names}
    _run("ip", "-batch", "-", lines=["link set lo up", "link add bridge type bridge", f"addr add {SUBNET}254/24 dev bridge", "link set bridge up"])
    for name, sleeper in sleepers.items():
        _wait_for_name(sleeper, name)
        node = ["nsenter", f"--target={sleeper.pid}", "--net"]
        port = f"port{addresses[name].rpartition('.')[2]}"
        _run("ip", "-batch", "-", lines=[f"link add {port} type veth peer name eth0 netns {sleeper.pid}", f"link set {port} master bridge up"])
        _run(*node, "ip", "-batch", "-", lines=["link set lo up", f"addr add {addresses[name]}/24 dev eth0", "link set eth0 up"])
        if rate != "none":
            _run(*node, "tc", "-batch", "-", lines=[f"qdisc add dev eth0 {shape(rate)}"])
            _run("tc", "-batch", "-", lines=[f"qdisc add dev {port} {shape(rate)}"])  # what the node receives
    print(json.dumps({name: sleeper.pid for name, sleeper in sleepers.items()}), flush=True)
    _reap_until_input_ends()


def shape(rate):
    """tc's words for a token bucket of `rate`, deep enough that a tick of the kernel's clock doesn't empty it."""
    bits = int(rate[:-4]) * {"mbit": 10**6, "gbit": 10**9}[rate[-4:]]
    return f"root tbf rate {rate} burst {max(64 * 1024, bits // 8 // 250)} latency 50ms"


def _wait_for_name(sleeper, name):
    deadline = time.monotonic() + LIMIT
    while subprocess.run(["nsenter", f"--target={sleeper.pid}", "--uts", "hostname"], capture_output=True, text=True).stdout.strip() != name:
        if sleeper.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"node {name} did not start")
        time.sleep(0.002)


def _reap_until_input_ends():
    """The first process of a process namespace inherits its orphans, which would stay as zombies unless they are waited for."""
    while not select.select([sys.stdin], [], [], 1)[0]:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


if __name__ == "__main__":
    hold(**json.loads(Path(sys.argv[1]).read_text()))
