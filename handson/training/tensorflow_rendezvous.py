"""The processes of a TensorFlow cluster synchronise here before TensorFlow starts, and end together. TensorFlow itself
would wait for a missing process for minutes or forever. Task 0 (worker 0, or the chief) collects a line from every
other process and then lets all continue; the connections stay open."""

import contextlib
import json
import os
import select
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from handson.cluster.nodes import current_node, job_port
from handson.errors import OneSentence, say
from handson.training import launch, options, progress, rank_watcher, uncaught
from handson.words import counted, there

LIMIT = float(os.environ.get("HANDSON_MEETING") or 120)  # seconds for all processes to start, on a busy machine
# seconds that a process has to fail with its own error before another process's error ends it; often all have the same
GRACE = 3


class MeetingError(OneSentence, RuntimeError):
    """The reason why a TensorFlow cluster does not start, or ends."""


def lost(name):
    """Return a MeetingError for a process (in words) that cannot be reached any more."""
    return MeetingError(
        f"the connection to {name} is lost: it has died, or its node cannot be reached; all processes end"
    )


@dataclass
class Communicator:
    """A process's information on the cluster, with ChainerMN's names."""

    rank: int
    size: int
    intra_rank: int
    inter_size: int
    name: str  # the communication library
    devices: str  # the devices of all processes, in words


def port():
    """Return the first port that a cluster may use: MASTER_PORT, or the job's own."""
    return int(os.environ.get("MASTER_PORT") or job_port())


def of_job(make):
    """Return the TF_CONFIG, a dictionary, that make(lines, rank, port) returns for this process of a batch job;
    lines: the lines of $PBS_NODEFILE. Return None if TF_CONFIG is already set. Raises MeetingError if neither
    variable is set."""
    if os.environ.get("TF_CONFIG"):
        return None
    if not (nodes := os.environ.get("PBS_NODEFILE")):
        raise MeetingError(
            "neither TF_CONFIG nor $PBS_NODEFILE, from which it is built, is set: submit this script in a job, as"
            " run_script.sh does, or set TF_CONFIG"
        )
    try:
        lines = Path(nodes).read_text().splitlines(keepends=True)
    except OSError as error:
        raise MeetingError(
            f"$PBS_NODEFILE, {nodes}, cannot be read ({error.strerror}): submit this script in a job"
        ) from None
    return make(lines, launch.launcher_rank(), port())


def with_parameter_server(config):
    """Return the TF_CONFIG, a dictionary, of a process in a cluster with a chief, a parameter server and workers.
    config: the TF_CONFIG of a cluster of workers, whose first two become the chief and the parameter server. Raises
    MeetingError if there are fewer than three workers."""
    addresses, rank = config["cluster"]["worker"], config["task"]["index"]
    if len(addresses) < 3:
        job = os.environ.keys() & {"PBS_JOBID", "SLURM_JOB_ID"}
        cure = "submit it with -l select=2:ngpus=2:mpiprocs=2" if job else "start it with mpiexec -n 4"
        raise MeetingError(
            f"a chief, a parameter server and a worker are three ranks, but there are {len(addresses)}: {cure}"
        )
    role, index = [("chief", 0), ("ps", 0), *(("worker", number) for number in range(len(addresses) - 2))][rank]
    return {
        "cluster": {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]},
        "task": {"type": role, "index": index},
    }


def read(text):
    """Return ({role: addresses}, role, index) of the text of TF_CONFIG. Raises MeetingError if it is invalid."""
    if not text:
        raise MeetingError(
            'TF_CONFIG is not set: it should be {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker",'
            ' "index": 0}}'
        )
    try:
        content = json.loads(text)
        cluster, role, index = content["cluster"], content["task"]["type"], content["task"]["index"]
        addresses = [address.rpartition(":") for of_role in cluster.values() for address in of_role]
        if not all(host and 0 < int(number) < 65536 for host, _, number in addresses):
            raise ValueError("an address is not host:port")
        if len(set(addresses)) < len(addresses):
            raise ValueError("two tasks have the same address")
        if type(index) is not int or not 0 <= index < len(cluster[role]):
            raise ValueError(f"there is no {role} {index}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise MeetingError(f"TF_CONFIG is malformed ({what}): {text[:200]}") from None
    return cluster, role, index


def meet(args, config=None, roles=("worker",)):
    """Synchronise with the other processes of a cluster, set TF_CONFIG, and return a Communicator. Call it before
    TensorFlow computes anything.

    config: the cluster, a dictionary; by default that of TF_CONFIG. roles: those that the cluster must have. args.gpu
    becomes the ids of this node's GPUs. From now on, another process watches this one, and reports if it is killed or
    makes no progress. Raises MeetingError.
    """
    os.environ["TF_CONFIG"] = json.dumps(config) if config else os.environ.get("TF_CONFIG", "")
    cluster, role, index = read(os.environ["TF_CONFIG"])
    if sorted(cluster) != sorted(roles):
        raise MeetingError(
            f"TF_CONFIG has tasks of the kinds {', '.join(sorted(cluster))}; this script needs"
            f" {', '.join(sorted(roles))}"
        )
    cluster = {of_role: list(map(_reachable, addresses)) for of_role, addresses in cluster.items()}
    # TensorFlow also reads it
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
    rank_watcher.watch()
    tasks = [(of_role, number) for of_role, addresses in _in_order(cluster) for number in range(len(addresses))]
    rank = tasks.index((role, index))
    lines = _exchange(
        cluster,
        tasks,
        rank,
        {"node": current_node(), "options": {name: str(value) for name, value in vars(args).items() if name != "out"}},
    )
    nodes = [line["node"] for line in lines]
    if difference := options.difference([line["options"] for line in lines]):
        raise MeetingError(difference)
    intra_rank = nodes[:rank].count(nodes[rank])
    args.gpu = args.gpu or list(range(nodes.count(nodes[rank])))
    if len(args.gpu) <= intra_rank:
        raise MeetingError(
            f"-g names {counted(len(args.gpu), 'GPU')}, but {there(nodes.count(nodes[rank]), 'rank')} on"
            f" {nodes[rank]}: name one for each"
        )
    progress.begin(args.patience)
    return Communicator(rank, len(tasks), intra_rank, len(set(nodes)), "gRPC", "")


def _reachable(address):
    """Return an address whose host can be resolved: in a job on a single virtual node, this machine has a name that
    only the job knows."""
    host, _, number = address.rpartition(":")
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return f"127.0.0.1:{number}" if host == current_node() else address
    return address


def _in_order(cluster):
    """Return pairs (role, addresses), the chief first."""
    return sorted(cluster.items(), key=lambda item: (item[0] != "chief", item[0] != "ps"))


def _address(cluster, task):
    role, index = task
    host, _, number = cluster[role][index].rpartition(":")
    return host, int(number)


def _exchange(cluster, tasks, rank, mine):
    """Return a list of every process's `mine`, in the order of the tasks. Raises MeetingError."""
    role, index = tasks[rank]
    host, number = _address(cluster, tasks[rank])
    try:
        listening = socket.create_server(("", number), backlog=len(tasks))
    except OSError as error:
        raise MeetingError(
            f"port {number} of {host}, which TF_CONFIG gives to {role} {index}, cannot be used"
            f" ({os.strerror(error.errno)}): two tasks may have the same index, or another program uses the port;"
            " MASTER_PORT chooses other ports"
        ) from None
    with listening:
        end = time.monotonic() + LIMIT
        return _collect(listening, cluster, tasks, mine, end) if rank == 0 else _report(cluster, tasks, rank, mine, end)


def _collect(listening, cluster, tasks, mine, end):
    lines, connections, problem = {0: mine}, {}, None
    while len(lines) < len(tasks) and not problem:
        listening.settimeout(max(0.01, end - time.monotonic()))
        try:
            connection, _ = listening.accept()
            connection.settimeout(max(0.01, end - time.monotonic()))
            rank, line = json.loads(connection.makefile().readline())
        except TimeoutError:
            missing = [
                f"{task[0]} {task[1]} ({':'.join(map(str, _address(cluster, task)))})"
                for other, task in enumerate(tasks)
                if other not in lines
            ]
            problem = (
                f"{', '.join(missing)} did not connect within {LIMIT:g} s: look at its output, and check whether its"
                " node can be reached"
            )
            break
        except (OSError, ValueError):
            continue  # not a connection of this cluster
        if rank in lines:
            problem = (
                f"two processes claim to be {tasks[rank][0]} {tasks[rank][1]}: give each process its own index in"
                " TF_CONFIG"
            )
        lines[rank], connections[connection] = line, tasks[rank]
    answer = problem or [lines[rank] for rank in range(len(tasks))]
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.sendall((json.dumps(answer) + "\n").encode())
    if problem:
        raise MeetingError(problem)
    _kept.update(connections)
    return answer


def _report(cluster, tasks, rank, mine, end):
    first, connection = _address(cluster, tasks[0]), None
    where = f"{tasks[0][0]} 0 ({first[0]}:{first[1]})"
    while connection is None:
        try:
            connection = socket.create_connection(first, timeout=5)
        except OSError as error:
            if time.monotonic() > end:
                raise MeetingError(
                    f"{where} did not connect within {LIMIT:g} s ({error}): look at its output, and check whether its"
                    " node can be reached"
                ) from None
            time.sleep(0.1)
    try:
        connection.settimeout(max(1.0, end - time.monotonic() + 5))
        connection.sendall((json.dumps([rank, mine]) + "\n").encode())
        answer = json.loads(connection.makefile().readline())
    except (OSError, ValueError):
        raise MeetingError(f"{where} ended before all processes had connected: look at its output") from None
    if isinstance(answer, str):
        time.sleep(1)  # task 0 prints it
        raise SystemExit(2)
    connection.settimeout(None)
    _kept[connection] = tasks[0]
    return answer


# connection -> (role, index) at its other end; it closes when the process there ends
_kept = {}
_parted = threading.Event()  # this process has finished its work


def end_with_first():
    """End this process as soon as task 0 has ended for any reason, because TensorFlow's servers wait for work
    forever."""
    _watch(lambda task: uncaught.leave(0), heed_farewells=False)


def end_together():
    """End this process as soon as a process that is connected to it ends without `part`, because TensorFlow waits for a
    lost process for minutes or forever. Task 0 is connected to all others, and they to task 0."""

    def end(task):
        time.sleep(GRACE)
        say(lost("{} {}".format(*task)))
        uncaught.leave(1)

    _watch(end)


def part():
    """Record that this process has finished: from now on, processes may end in any order."""
    _parted.set()
    for connection in _kept:
        with contextlib.suppress(OSError):
            connection.sendall(b".")


def _watch(end, heed_farewells=True):
    """Call end(task) when a process ends before this one has parted. heed_farewells: not for a process that has parted
    itself."""

    def wait():
        connections = set(_kept)
        while connections:
            for connection in select.select(connections, [], [])[0]:
                parted = _says_farewell(connection)
                if parted and not heed_farewells:
                    continue  # wait until the process has ended
                if not parted and not _parted.is_set():
                    end(_kept[connection])
                connections.remove(connection)

    threading.Thread(target=wait, daemon=True).start()


def _says_farewell(connection):
    try:
        return bool(connection.recv(1))
    except OSError:
        return False
