"""Runs pods as their manifests say, on this machine: each in a virtual node with its host name, as user 1000, with its
mounts and variables.

It does what Kubernetes does with an indexed Job, a Deployment and their Services, and Kubeflow's MPI operator with an
MPIJob, as far as these manifests use it: the names of pods, of hosts and of Services, $(NAME) in arguments, Secrets,
ConfigMaps, claims, empty folders, the operator's keys and host file. bubblewrap makes the root of a pod: this machine's
programs, read-only, and the course at the place where the image has it. Like the filter of system calls that Kubernetes
calls RuntimeDefault, it lets a pod make no user namespaces, unless the manifest says Unconfined.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import programs
import psutil
import pytest
from waiting import run_to_end

from handson.cluster import virtual_nodes
from handson.files import COURSE

IMAGE = "/opt/handson"  # where the image has the course
BWRAP = shutil.which("bwrap")
PATH = f"{IMAGE}/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of the Containerfile
LIMIT = 240  # seconds for a pod to end
ANSWER = 60  # seconds for another pod to answer: the entrypoint's LIMIT


@dataclass
class Pod:
    """host: its name; names: by which other pods know it. spec: of its template. environment: what the cluster adds.
    files: {name of a volume: {file: text}}."""

    host: str
    names: tuple
    spec: dict
    environment: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)


def need():
    """Skip the test where a program is missing, or this machine can have no virtual nodes; in CI, a missing program is
    a failure."""
    programs.need("kubectl", "bwrap", "sshd", "ssh")
    if reason := virtual_nodes.why_not():
        pytest.skip(reason)


def of_job(job, files):
    """The pods of an indexed Job, whose Service has the Job's name."""
    name, template = job["metadata"]["name"], job["spec"]["template"]
    assert job["spec"]["completionMode"] == "Indexed" and template["spec"]["subdomain"] == name
    hosts = [f"{name}-{index}" for index in range(job["spec"]["completions"])]
    return [
        Pod(host, (f"{host}.{name}",), template["spec"], {"JOB_COMPLETION_INDEX": str(index)}, files)
        for index, host in enumerate(hosts)
    ]


def of_deployment(deployment, files, service=None):
    """The pods of a Deployment. service: the name of the one that leads to its only pod."""
    name, spec = deployment["metadata"]["name"], deployment["spec"]
    hosts = [spec["template"]["spec"].get("hostname", f"{name}-{index}") for index in range(spec["replicas"])]
    return [Pod(host, (service,) if service else (), spec["template"]["spec"], {}, files) for host in hosts]


def of_mpijob(job, namespace, files, keys):
    """The pods of an MPIJob as Kubeflow's operator makes them, the launcher last. keys: (private, public)."""
    name, spec = job["metadata"]["name"], job["spec"]
    assert spec["mpiImplementation"] == "MPICH" and spec["runPolicy"]["cleanPodPolicy"] == "Running"
    workers = [f"{name}-worker-{index}" for index in range(spec["mpiReplicaSpecs"]["Worker"]["replicas"])]
    full = {host: f"{host}.{name}.{namespace}.svc" for host in workers}
    secret = {"id_rsa": keys[0], "id_rsa.pub": keys[1], "authorized_keys": keys[1]}
    hostfile = "".join(f"{full[host]}:{spec['slotsPerWorker']}\n" for host in workers)

    def pod(role, host, names, environment, more):
        made = json.loads(json.dumps(spec["mpiReplicaSpecs"][role]["template"]["spec"]))
        made["volumes"] += [{"name": volume} for volume in more]
        mounts = {"ssh-auth": spec["sshAuthMountPath"], "mpi-job-config": "/etc/mpi"}
        made["containers"][0]["volumeMounts"] += [{"name": volume, "mountPath": mounts[volume]} for volume in more]
        return Pod(host, names, made, environment, files | more)

    of_launcher = {"ssh-auth": secret, "mpi-job-config": {"hostfile": hostfile}}
    launcher = pod("Launcher", f"{name}-launcher", (), {"HYDRA_HOST_FILE": "/etc/mpi/hostfile"}, of_launcher)
    return [pod("Worker", host, (full[host],), {}, {"ssh-auth": secret}) for host in workers] + [launcher]


@contextlib.contextmanager
def running(pods, claim, folder):
    """Start the pods, and end them with the block: {host: a Popen whose stdout is the pod's log}. claim: the folder of
    the shared volume."""
    nodes = {pod.host: {"cores": []} for pod in pods}
    holder = virtual_nodes.start(nodes, "none", folder)
    hosts = (folder / "hosts").read_text() + "".join(
        f"{nodes[pod.host]['address']} {name}\n" for pod in pods for name in pod.names
    )
    (folder / "hosts_of_pods").write_text(hosts)
    (folder / "passwd").write_text(
        "root:x:0:0::/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\nhandson:x:1000:1000::/home/handson:/bin/bash\n"
    )
    started = {}
    try:
        for pod in pods:
            command = virtual_nodes.inside(
                holder.inside, "/", *virtual_nodes.on(nodes[pod.host]["pid"], *_box(pod, claim, folder))
            )
            started[pod.host] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            started[pod.host].pod, started[pod.host].holder, started[pod.host].port = (
                pod,
                holder.inside,
                f"port{len(started) - 1}",
            )
        yield started
    finally:
        holder.stdin.close()
        holder.wait(LIMIT)
        for one in started.values():
            one.communicate(timeout=LIMIT)


def execute(process, *command):
    """Run a command in a pod's container, as `kubectl exec` does: (status, what it printed)."""
    numbers = [_numbers(child.pid) for child in psutil.Process(process.pid).children(recursive=True)]
    # the entrypoint: 1 is bubblewrap
    _, outside, _ = min((of for of in numbers if len(of) == 3 and of[2] > 1), key=lambda of: of[2])
    enter = ["nsenter", f"--target={outside}", *"--user --preserve-credentials --mount --pid --net --uts --ipc".split()]
    [container] = process.pod.spec["containers"]
    within = [
        "env",
        "--ignore-environment",
        f"--chdir={container['workingDir']}",
        *(f"{name}={value}" for name, value in _variables(process.pod).items()),
    ]
    done = run_to_end(virtual_nodes.inside(process.holder, "/", *enter, "--", *within, *map(str, command)))
    return done.returncode, done.stdout + done.stderr


def _numbers(pid):
    """A process's numbers in its PID namespaces: on this machine, in the virtual nodes, in its pod."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [int(number) for line in lines if line.startswith("NSpid:") for number in line.split()[1:]]


def kill(process):
    """Kill a pod: nsenter, which began it, bubblewrap, and with that all processes of the pod."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def fall_silent(process):
    """Cut a pod off from the others: nothing comes from it any more, and no connection to it is closed."""
    subprocess.run(
        virtual_nodes.inside(process.holder, "/", "ip", "link", "set", process.port, "nomaster"),
        check=True,
        timeout=LIMIT,
    )


def _box(pod, claim, folder):
    """The command that runs a pod's container."""
    spec, [container] = pod.spec, pod.spec["containers"]
    user = spec["securityContext"]
    assert user["runAsNonRoot"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    words = [
        BWRAP,
        *"--die-with-parent --unshare-user --unshare-pid --unshare-ipc --clearenv --uid".split(),
        str(user["runAsUser"]),
        "--gid",
        str(user["runAsGroup"]),
    ]
    words += ["--disable-userns"] if user["seccompProfile"]["type"] == "RuntimeDefault" else []
    for name in sorted(os.listdir("/")):
        if os.path.islink(f"/{name}"):
            words += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif name in ("usr", "bin", "lib", "lib32", "lib64", "sbin", "opt"):
            words += ["--ro-bind", f"/{name}", f"/{name}"] if name != "opt" else []
    for name in sorted(set(os.listdir("/etc")) - {"passwd", "hosts", "mpi"}):
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += [
        "--ro-bind",
        folder / "passwd",
        "/etc/passwd",
        "--ro-bind",
        folder / "hosts_of_pods",
        *"/etc/hosts --proc /proc --dev /dev".split(),
    ]
    words += ["--ro-bind", "/sys", "/sys", "--dir", "/home/handson"]
    for path, source in mounts(pod, claim, folder):
        words += ["--tmpfs", path] if source is None else ["--bind" if source == claim else "--ro-bind", source, path]
    for place in (IMAGE, COURSE):
        words += ["--ro-bind", COURSE, place]
    if not sys.base_prefix.startswith("/usr"):
        words += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    for name, value in _variables(pod).items():
        words += ["--setenv", name, value]
    return [
        str(word)
        for word in [*words, "--chdir", container["workingDir"], f"{IMAGE}/containers/entrypoint", *arguments(pod)]
    ]


def _variables(pod):
    """All variables of a pod's container."""
    return {
        "PATH": PATH,
        "VIRTUAL_ENV": f"{IMAGE}/.venv",
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "LIMIT": ANSWER,
    } | environment(pod)


def environment(pod):
    """What a pod's container finds in its environment besides that of the image."""
    [container] = pod.spec["containers"]
    return pod.environment | {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def arguments(pod):
    """The words after the image's entrypoint, with $(NAME) replaced as Kubernetes does it."""
    [container] = pod.spec["containers"]
    return [re.sub(r"\$\((\w+)\)", lambda found: environment(pod)[found[1]], word) for word in container["args"]]


def mounts(pod, claim, folder):
    """[(path, the folder that is mounted there; None: an empty one in memory)]."""
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    found = []
    for mount in pod.spec["containers"][0]["volumeMounts"]:
        volume = volumes[mount["name"]]
        source = (
            None
            if "emptyDir" in volume
            else claim
            if "persistentVolumeClaim" in volume
            else _written(pod, volume, folder)
        )
        found.append((mount["mountPath"], source))
    return found


def _written(pod, volume, folder):
    """A folder with the files of a volume: those that it names, or all."""
    place = folder / "volumes" / pod.host / volume["name"]
    place.mkdir(parents=True)
    files = pod.files[volume["name"]]
    chosen = volume.get("secret", {}).get("items") or [{"path": name, "key": name} for name in files]
    for name, text in ((item["path"], files[item["key"]]) for item in chosen):
        (place / name).write_text(text)
        (place / name).chmod(0o444)
    return place


def ended(process, limit=LIMIT):
    """(status, log) of a pod's process, when it has ended."""
    log, _ = process.communicate(timeout=limit)
    return process.returncode, log
