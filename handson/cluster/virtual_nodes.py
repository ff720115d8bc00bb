"""Virtual nodes: a host name and a network for each node of an embedded PBS job, on one machine and without root.

The job's runner calls `start`, which starts a *holder*: the first process of new user, process, mount and network
namespaces. It creates a bridge, and for each node a process with its own network and host name. The holder lives as
long as the runner keeps its pipe open. When it ends, the kernel ends all processes and removes all networks and mounts
of the job. Linux's own tools do the work: unshare, nsenter, ip and tc. `handson.cluster.nodes` moves a process into a
node.
"""

import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from handson import linux
from handson.pbs.processes import module_command

TOOLS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
    "hostname": "hostname",
}
LIMIT = 120  # seconds for the nodes to start, on a busy machine; usually less than one
UNITS = {"mbit": 10**6, "gbit": 10**9}


def bits_per_second(rate):
    """Return the number in ``100mbit`` or ``10gbit``, or None for ``none``. Raises ValueError, whose text is a sentence
    for the user."""
    match = re.fullmatch(r"([1-9][0-9]{0,3})(mbit|gbit)", str(rate))
    if not match and rate != "none":
        raise ValueError(f"the rate of a network is none, or a number with mbit or gbit such as 100mbit, not {rate!r}")
    return int(match[1]) * UNITS[match[2]] if match else None


def why_not():
    """Return why this machine cannot have virtual nodes: a sentence that also explains how to allow them. None if it
    can. Takes milliseconds."""
    if missing := [tool for tool in TOOLS if not shutil.which(tool, path=_path())]:
        packages = " and ".join(sorted({TOOLS[tool] for tool in missing}))
        return f"virtual nodes need {' and '.join(missing)}, which this machine lacks: install {packages}"
    if not os.path.exists("/etc/hosts"):
        return (
            "virtual nodes need a file /etc/hosts to put their names into, which this machine lacks: create an"
            " empty one"
        )
    try:
        tried = subprocess.run([*_unshare(), "true"], capture_output=True, text=True, timeout=LIMIT, env=_environment())
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"virtual nodes need the command unshare, which does not work here ({error}): try it by hand"
    if tried.returncode == 0:
        return None
    if setting := linux.refusing_setting():
        cure = f"sysctl {'='.join(setting)}"
        return (
            "virtual nodes need user namespaces, which this machine refuses to ordinary users: an administrator can"
            f" allow them by `{cure}`"
        )
    reason = _last_line(tried.stderr, "unknown reason")
    return (
        f"virtual nodes need namespaces, which this machine refuses ({reason}): in a container, allow it unshare, mount"
        " and a /proc of its own"
    )


def start(nodes, rate, directory, private=(), temporary=None):
    """Start `nodes` (name -> properties), each with its network limited to `rate` ("100mbit", "10gbit" or "none"), and
    return the holder.

    private: folders that are separate on each node, and empty at first; the node's "private" is then true. temporary: a
    folder to create on each node, if it is inside one of these. The function adds to every node its "pid" (inside the
    holder's namespaces), "address" and "rate". The holder is a Popen whose standard input keeps the nodes alive, with
    the attributes `inside`, the pid of the namespaces' first process, and `own`, the pids of all processes that
    implement the nodes (without the job's own processes). Raises OSError with one sentence.
    """
    specification = directory / "virtual_nodes.json"
    hosts = str(directory / "hosts")
    own = {"private": private, "temporary": temporary}
    specification.write_text(json.dumps({"names": list(nodes), "rate": rate, "hosts": hosts, **own}))
    holder = subprocess.Popen(
        [*_unshare(), *module_command(__name__, str(specification))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        start_new_session=True,
        cwd="/",
    )
    ready = _has_data(holder.stdout, LIMIT)
    line = holder.stdout.readline() if ready else b""
    if not line:
        holder.kill()
        silence = "their holder ended without a message" if ready else f"not ready after {LIMIT} s"
        problem = _last_line(holder.communicate(timeout=LIMIT)[1].decode(errors="replace"), silence)
        raise OSError(0, f"the virtual nodes did not start: {problem}")
    pids = json.loads(line)
    for name, address in addresses(nodes).items():
        nodes[name].update(pid=pids[name], address=address, rate=rate, **({"private": True} if private else {}))
    [holder.inside] = linux.children(holder.pid)
    holder.own = {holder.pid, holder.inside, *linux.children(holder.inside)}
    return holder


def fallen(holder):
    """Return why the nodes ended too early, as a sentence, or None if they did not. Call it after the job's shell was
    killed."""
    if not _has_data(holder.stderr, 0.5):
        return None
    said = re.search("its virtual node .* was killed", os.read(holder.stderr.fileno(), 4096).decode(errors="replace"))
    return said[0] if said else "the process that kept its virtual nodes was killed"


def _has_data(file, seconds):
    """Return whether `file` can be read, or has ended, within `seconds`. select.select would fail in a program with
    1,024 open files."""
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    return bool(waiting.poll(1000 * seconds))


def addresses(names):
    """Return the address of each node: 10.78.0.1, 10.78.0.2, ..."""
    return {name: f"10.78.{number // 250}.{number % 250 + 1}" for number, name in enumerate(names)}


def inside(holder_pid, folder, *command):
    """Return the command that runs `command`, in `folder`, in the namespaces whose first process is `holder_pid`."""
    command = ["sh", "-c", 'cd -- "$0"; exec "$@"', folder, *command]  # entering a mount namespace changes to its root
    user = [] if linux.has_capability(linux.SYS_ADMIN) else ["--user", "--preserve-credentials"]
    spaces = ["--mount", "--pid", "--net", "--uts", "--ipc"]
    return [shutil.which("nsenter", path=_path()), f"--target={holder_pid}", *user, *spaces, "--", *command]


def on(pid, *command, folder=None):
    """Return the command that, inside those namespaces, runs `command` on the node whose first process is `pid`.
    folder: the working folder on that node."""
    spaces = ["--net", "--uts"]
    if folder:  # entering a mount namespace changes to its root
        spaces, command = [*spaces, "--mount"], ["sh", "-c", 'cd -- "$0"; exec "$@"', folder, *command]
    return [shutil.which("nsenter", path=_path()), f"--target={pid}", *spaces, "--", *command]


def networks(holder, nodes):
    """Return how a process outside the namespaces reaches the networks of `nodes`, which `start` has created with this
    holder: node -> (its first process, as numbered here; the command prefix that runs a program in its network)."""
    user = [] if linux.has_capability(linux.SYS_ADMIN) else ["--user", "--preserve-credentials"]
    enter = [shutil.which("nsenter", path=_path()), *user, "--net"]
    first = {linux.number_inside(process): process for process in linux.children(holder.inside)}
    return {
        name: (first[node["pid"]], [*enter, f"--target={first[node['pid']]}", "--"]) for name, node in nodes.items()
    }


def _unshare():
    """Return the command prefix that runs a program as the first process of new namespaces, and kills it when it is
    killed itself."""
    # An ordinary user becomes root of a user namespace. Root needs none, and would lose access to other users' files.
    user = [] if linux.has_capability(linux.SYS_ADMIN) else ["--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _path():
    """Return PATH with the folders of system tools, which ordinary users and batch jobs often lack."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:/usr/bin:/bin"


def _environment():
    not_ours = "HANDSON_PBS_PROCESS"  # marks processes that serve the queue and outlive the job
    return {name: value for name, value in os.environ.items() if name != not_ours} | {"PATH": _path()}


def _last_line(text, default):
    return (text.strip().splitlines() or [default])[-1]


def _run(*command, lines=()):
    """Run a tool with `lines` on its standard input. If it fails, end this process with the tool's own message."""
    try:
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        sys.exit(str(error))
    if done.returncode:
        sys.exit(
            f"{' '.join(command)}:"
            f" {done.stderr.strip().splitlines()[0] if done.stderr.strip() else f'status {done.returncode}'}"
        )


def hold(names, rate, hosts, private, temporary):
    """Run the holder: create the nodes, print their pids as one line of JSON, and wait until standard input ends or a
    node dies."""
    node_addresses = addresses(names)
    Path(hosts).write_text(hosts_file(node_addresses, Path("/etc/hosts").read_text()))
    _run("mount", "--bind", hosts, "/etc/hosts")
    if os.path.isdir("/dev/shm"):
        # so that the shared memory of killed processes is freed with the job
        _run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
    own = "".join(f" && mount -t tmpfs -o mode=1777 tmpfs {folder}" for folder in private)
    own += f" && mkdir -p -m 700 {shlex.quote(temporary)}" if private and temporary else ""
    sleep = f'hostname "$1"{own} && echo && exec sleep infinity >/dev/null 2>&1'
    spaces = ["--net", "--uts", *["--mount"] * bool(private)]
    sleepers = {
        name: subprocess.Popen(
            ["unshare", *spaces, "sh", "-c", sleep, "sh", name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        for name in names
    }
    for name, sleeper in sleepers.items():
        if not sleeper.stdout.readline():
            sys.exit(f"node {name} did not start")
    links = ["link set lo up", "link add bridge type bridge", "link set bridge up"]
    for number, sleeper in enumerate(sleepers.values()):
        links += [
            f"link add port{number} type veth peer name eth0 netns {sleeper.pid}",
            f"link set port{number} master bridge up",
        ]
    _run("ip", "-batch", "-", lines=links)
    for name, sleeper in sleepers.items():
        node = ["nsenter", f"--target={sleeper.pid}", "--net"]
        _run(
            *node,
            "ip",
            "-batch",
            "-",
            lines=["link set lo up", f"addr add {node_addresses[name]}/16 dev eth0", "link set eth0 up"],
        )
        if rate != "none":
            # The kernel passes segments of up to 64 KB. It would have to split those that exceed the bucket, which
            # costs a whole core.
            _run(*node, "ip", "link", "set", "eth0", "gso_max_size", str(min(65536, bucket(rate) // 2)))
            # limits what the node sends
            _run(*node, "tc", *f"qdisc add dev eth0 root tbf rate {rate} burst {bucket(rate)} latency 50ms".split())
    if rate != "none":  # limits what each node receives, which exceeds one node's rate only if several send to it
        queues = [
            f"qdisc add dev port{number} root tbf rate {rate} burst {4 * bucket(rate)} latency 50ms"
            for number in range(len(names))
        ]
        _run("tc", "-batch", "-", lines=queues)
    print(json.dumps({name: sleeper.pid for name, sleeper in sleepers.items()}), flush=True)
    _stay({os.pidfd_open(sleeper.pid): name for name, sleeper in sleepers.items()})


def hosts_file(node_addresses, own):
    """Return the content of /etc/hosts on the nodes: the nodes' names, and then all lines of the machine's file, `own`,
    that do not name a node."""
    kept = [line for line in own.splitlines() if not set(line.partition("#")[0].split()) & set(node_addresses)]
    pairs = [(address, name) for name, address in node_addresses.items()]
    # torch and other programs resolve the name of an IPv6 socket's peer
    mapped = [(f"::ffff:{address}", name) for address, name in pairs]
    return "\n".join(["127.0.0.1 localhost", *(f"{address} {name}" for address, name in pairs + mapped), *kept]) + "\n"


def bucket(rate):
    """Return the bytes in the token bucket of a node's network, which pass without limit.

    Half a millisecond at `rate`, and at least two packets: little enough that only measurements of small messages show
    it, and enough to last until the next timer interrupt on a busy machine.
    """
    return max(3100, bits_per_second(rate) // 8 // 2000)


def _stay(nodes):
    """Wait until standard input ends, or one of `nodes` (descriptor of its first process -> name), because the end of a
    node ends the job.

    The first process of a process namespace inherits orphans, which would remain zombies unless it waits for them.
    """
    while not (ready := select.select([sys.stdin, *nodes], [], [], 1)[0]):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
    for descriptor in ready:
        if descriptor in nodes:
            print(f"its virtual node {nodes[descriptor]} was killed", file=sys.stderr)


def main():
    hold(**json.loads(Path(sys.argv[1]).read_text()))
