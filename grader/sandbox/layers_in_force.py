"""Find which layers of the sandbox work on this machine by trying them in a child process. Forked processes inherit the
result."""

import errno
import functools
import json
import os
import tempfile
from dataclasses import dataclass

from grader.sandbox import cgroups, kernel, landlock, namespaces, seccomp
from handson import linux

USERS, PROCESSES, NETWORK = "user namespace", "PID namespace", "network namespace"
NAMES, FILES = "IPC and UTS namespaces", "mount namespace"
LANDLOCK, SECCOMP, LIMITS, CGROUPS = "Landlock", "seccomp", "resource limits", "control groups"
GUARDS = {
    USERS: "lets ordinary users make the others; for root, another user",
    PROCESSES: "processes: none is visible, signalled or left running",
    NETWORK: "network: only its own loopback interface",
    NAMES: "hostname and shared memory of other programs",
    FILES: "files: only those that are needed exist",
    LANDLOCK: "files: only those that are needed can be opened; ranks are separate",
    SECCOMP: "the kernel: rare system calls fail",
    LIMITS: "the machine: memory, CPU time, processes, file sizes",
    CGROUPS: "the machine: memory of all ranks together",
}


@dataclass(frozen=True)
class Layer:
    """One layer of the sandbox. strength: a "strong" layer is sufficient, a "second" one adds to it, a "limit" bounds
    resources."""

    name: str
    in_force: bool
    strength: str
    guards: str
    why_not: str = ""  # why it is not available, and how to allow it


def strong():
    """Return whether files, network and processes are all isolated from the rest of the machine."""
    return {USERS, PROCESSES, NETWORK, FILES} <= in_force()


def missing():
    """Return a sentence on why the sandbox is not strong, or "" if it is."""
    if strong():
        return ""
    refused = {layer.why_not for layer in layers() if not layer.in_force and layer.strength == "strong"}
    return "A student's code cannot be confined here: " + "; ".join(sorted(refused)) + "."


def in_force():
    """Return the names of the active layers."""
    return {layer.name for layer in layers() if layer.in_force}


@functools.cache
def layers():
    """Return all layers, as a list of Layer. Takes some milliseconds the first time."""
    refused = _refused_namespaces() | _refused(LANDLOCK, landlock.abi) | _refused(SECCOMP, seccomp.supported)
    refused |= _refused(CGROUPS, cgroups.places)
    strength = {
        USERS: "strong",
        PROCESSES: "strong",
        NETWORK: "strong",
        FILES: "strong",
        LIMITS: "limit",
        CGROUPS: "limit",
    }
    return [
        Layer(
            name,
            name not in refused,
            strength.get(name, "second"),
            guards,
            _why_not(name, *refused[name]) if name in refused else "",
        )
        for name, guards in GUARDS.items()
    ]


def works(function):
    return not _refused("", function)


def _refused(name, function, *arguments):
    """Return {} if the function works, {name: [errno, error]} if it raises OSError."""
    try:
        function(*arguments)
        return {}
    except OSError as error:
        return {name: [error.errno, f"{error.filename or error.strerror}"]}


def _refused_namespaces():
    with tempfile.TemporaryDirectory() as workplace:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _try_namespaces(writing, workplace)
            finally:
                os._exit(1)
        os.close(writing)
        with open(reading, "rb") as file:
            answer = file.read()
        os.waitpid(child, 0)
    if not answer:
        return {name: [errno.EPERM, "the trial was killed"] for name in (USERS, PROCESSES, NETWORK, NAMES, FILES)}
    return json.loads(answer)


def _try_namespaces(writing, workplace):
    """Create namespaces as `enter` does, and write {name: [errno, error]} for those that the kernel refuses."""
    try:
        user = namespaces.users()
    except OSError as error:
        refused = {name: [error.errno, error.strerror] for name in (USERS, PROCESSES, NETWORK, NAMES, FILES)}
    else:
        refused = _refused(PROCESSES, kernel.unshare, kernel.NEW_PROCESSES)
        if child := os.fork():
            os.waitpid(child, 0)
            os._exit(0)
        refused |= _refused(NETWORK, namespaces.new_network) | _refused(NAMES, namespaces.new_names)
        refused |= _refused(FILES, namespaces.new_files, [], workplace, 1 << 20, user)
        refused |= _refused(USERS, namespaces.give_up_power, user)
    os.write(writing, json.dumps(refused).encode())
    os._exit(0)


def report():
    """Return the lines of a table, and a closing sentence."""
    width = max(len(layer.name) for layer in layers())
    for layer in layers():
        yield (
            f"{layer.name:{width}}  {'in force' if layer.in_force else 'missing ':8}  {layer.strength:6} "
            f" {layer.guards}"
        )
    for reason in dict.fromkeys(layer.why_not for layer in layers() if layer.why_not):
        yield f"Missing: {reason}."
    yield missing() or "Files, network and processes of a student's code are isolated from the rest of this machine."


def _why_not(name, number, error):
    if name == LANDLOCK:
        how = "boot with `lsm=landlock,...`" if number == errno.EOPNOTSUPP else "it needs Linux 5.13 or newer"
        return f"this kernel offers no Landlock: {how}"
    if name == CGROUPS:
        return (
            "no control groups may be created here: `systemd-run --user --scope -p Delegate=yes python -m grader ...`"
            " often allows it"
        )
    if name == SECCOMP:
        return f"system calls cannot be filtered: {error}"
    if setting := linux.refusing_setting():
        profile = ", or an AppArmor profile for this Python with `userns,`," if "apparmor" in setting[0] else ""
        return f"this machine forbids user namespaces: `sysctl -w {'='.join(setting)}`{profile} allows them"
    if number == errno.ENOSYS:
        return "this kernel is too old for namespaces with read-only mounts: Linux 5.12 or newer has them"
    if "KUBERNETES_SERVICE_HOST" in os.environ:  # Kubernetes sets it in each container
        needs = "`hostUsers: false`, `seccompProfile: Unconfined` and `procMount: Unmasked`"
        return (
            f"namespaces are refused ({error}), as in most pods: a pod of engines needs {needs}"
            " (jobs/kubernetes/base/grader/engines.yaml), a namespace that admits such pods, and nodes that let"
            " ordinary users make namespaces"
        )
    return (
        f"namespaces are refused ({error}), as in most containers: start the container with `--cap-add SYS_ADMIN "
        "--security-opt seccomp=unconfined --security-opt apparmor=unconfined`, or grade outside it"
    )
