"""Submit a training run to Kubernetes, query it, and delete it: ``python -m handson kubernetes submit``.
`handson.cluster.follow` follows it.

A job's id is its site and its training, such as kind/torchrun. Only objects with the label of the course are
deleted.
"""

import json
import re
import secrets
import subprocess
import tempfile
from pathlib import Path

import yaml

from handson.cluster import site as sites
from handson.cluster.kubernetes import render, state
from handson.cluster.kubernetes.kubectl import Kubectl, KubernetesError
from handson.files import course_folder, written_aside
from handson.language import speak

KINDS = {"torchrun": "job", "mpi": "job", "mpijob": "mpijob", "trainjob": "trainjob"}
PODS = {  # labels of a job's pods, and of the pod with the log
    "job": ("job-name={}", "batch.kubernetes.io/job-completion-index=0"),
    "mpijob": ("training.kubeflow.org/job-name={}", "training.kubeflow.org/job-role=launcher"),
    "trainjob": ("jobset.sigs.k8s.io/jobset-name={}", "batch.kubernetes.io/job-completion-index=0"),
}
MARK = "app.kubernetes.io/part-of=handson"  # the label of all objects that the course creates


def cluster(name=None):
    """Return the Kubectl of a site (default: the chosen one). Raises SiteError and KubernetesError."""
    site = sites.read(name or sites.chosen())
    if site.kubernetes is None:
        raise sites.SiteError(
            f"the site {site.name} has no table [kubernetes]: name another with --site, or add it as in"
            " jobs/sites/kind.toml"
        )
    return Kubectl(site)


def apply(kubectl, part="course", say=speak):
    """Create the objects that the training runs of a site need (course), or the grader with its keys. Existing objects
    are kept."""
    with tempfile.TemporaryDirectory() as folder:
        say(kubectl.run("apply", "-k", str(render.render(kubectl.site.name, folder) / part), part=part).strip())
    if part == "grader":
        _keys_of_engines(Kubectl(kubectl.site, render.namespace(kubectl.at, part)), say)


def _keys_of_engines(kubectl, say):
    """Create the Secret with ipyparallel's connection files, unless it exists."""
    if kubectl.get("secret", "ipyparallel-keys") is not None:
        return
    label = dict([MARK.split("=")])
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "ipyparallel-keys", "labels": label},
        "stringData": connection_files(),
    }
    kubectl.run("create", "-f", "-", text=json.dumps(secret))
    say("the Secret ipyparallel-keys was created")


def connection_files():
    """Return {name: text} of ipyparallel's connection files: a new key that signs all messages, the controller's name,
    and fixed ports."""
    common = {
        "ssh": "",
        "interface": "tcp://*",
        "registration": 9010,
        "key": secrets.token_hex(32),
        "curve_serverkey": None,
        "location": "controller",
        "pack": "json",
        "unpack": "json",
        "signature_scheme": "hmac-sha256",
    }
    ports = {
        "control": 9011,
        "mux": 9012,
        "task": 9013,
        "iopub": 9014,
        "hb_ping": 9015,
        "hb_pong": 9016,
        "broadcast": [9017, 9018],
    }
    of_clients = {
        "control": 9019,
        "mux": 9020,
        "task": 9021,
        "task_scheme": "leastload",
        "iopub": 9022,
        "notification": 9023,
        "broadcast": 9024,
    }
    files = {"ipcontroller-engine.json": common | ports, "ipcontroller-client.json": common | of_clients}
    return {name: json.dumps(content) for name, content in files.items()}


def keys(kubectl, say=speak):
    """Create the Secret of ssh keys that mpi needs, unless it exists. The keys are written only to temporary files, and
    never shown."""
    if kubectl.get("secret", "ssh-keys") is not None:
        say(
            "the Secret ssh-keys exists already, so it is kept. To create new keys, delete it: kubectl delete secret"
            f" ssh-keys -n {kubectl.at.namespace}"
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "key")
        try:
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "handson", "-f", key],
                check=True,
                capture_output=True,
                timeout=60,
            )
        except FileNotFoundError:
            raise KubernetesError("there is no ssh-keygen on PATH: install openssh-client") from None
        files = [f"--from-file=ssh-privatekey={key}", f"--from-file=ssh-publickey={key}.pub"]
        kubectl.run("create", "secret", "generic", "ssh-keys", "--type=kubernetes.io/ssh-auth", *files)
    kubectl.run("label", "secret", "ssh-keys", MARK)
    say("the Secret ssh-keys was created")


def submit(kubectl, part="torchrun", script=None, options=(), say=speak):
    """Start the training `part` of the base with a script of 03_multi_node and its options. Return the job's id. Raises
    KubernetesError."""
    if part not in KINDS:
        raise KubernetesError(f"there is no training {part!r}: they are {', '.join(KINDS)}")
    script = Path(script or course_folder() / "exercises/03_multi_node/pytorch/train_cifar_multi_node.py")
    if not script.is_file():
        raise KubernetesError(f"there is no script {script}: name it with --script")
    if part == "mpi" and kubectl.get("secret", "ssh-keys") is None:
        raise KubernetesError(
            f"the Secret ssh-keys is missing: python -m handson kubernetes keys --site {kubectl.site.name}"
        )
    with tempfile.TemporaryDirectory() as folder:
        made = manifests(kubectl.site, part, script, options, Path(folder))
    [job] = [one for one in made if one["kind"].lower() == KINDS[part]]
    rest = [one for one in made if one is not job]
    # invalid input is refused before anything changes
    kubectl.run("create", "--dry-run=server", "-f", "-", text=yaml.safe_dump(job), part=part)
    kubectl.run("apply", "-f", "-", text=yaml.safe_dump_all(rest), part=part)
    kubectl.run("create", "-f", "-", text=yaml.safe_dump(job), part=part)
    return f"{kubectl.site.name}/{part}"


def manifests(site, part, script, options, folder):
    """Return the objects of a training as dictionaries: the site's overlay of `part`, the script as a ConfigMap, and
    the options."""
    render.render(site.name, folder / "site")
    for file, content in render.submission(part, script, options).items():
        (folder / file).write_bytes(content)
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise KubernetesError(
            f"kubectl cannot put {part} together ({done.stderr.strip().splitlines()[-1]}): it needs kubectl 1.21 or"
            " later"
        )
    return list(yaml.safe_load_all(done.stdout))


def look(job_id):
    """Return (waits, over, problem, the file with its log) of a job for `follow`, or None if there is no such job."""
    site, _, name = job_id.partition("/")
    kind, kubectl = KINDS.get(name), cluster(site)
    if kind is None:
        return None
    job = kubectl.get(kind, name, part=name)
    if job is None:
        return None
    of_all, of_log = PODS[kind]
    pods = kubectl.get("pods", "--selector", of_all.format(name))["items"]
    events = kubectl.get("events", "--field-selector", "type=Warning")["items"] if state.incomplete(pods) else []
    events = [event for event in events if re.fullmatch(rf"{name}(-.*)?", event["involvedObject"]["name"])]
    well = state.over(job)
    log = course_folder() / "results/kubernetes" / f"{name}.log"
    text = (
        kubectl.run("logs", "--selector", f"{of_all.format(name)},{of_log}", "--tail=-1", missing="")
        if _has_run(pods)
        else ""
    )
    with written_aside(log, durable=False) as file:
        file.write(text.encode())
    waits = "" if well is not None else state.waiting(pods, events, kubectl.at, kubectl.site.name)
    again = f"python -m handson kubernetes delete {name} --site {site}, then submit it again"
    return waits, well is not None, state.problem(job, pods, again) if well is False else "", str(log)


def delete(kubectl, part, say=speak):
    """Delete a training and its Service; results stay on the claim. Raises KubernetesError if the course did not create
    it."""
    if part not in KINDS:
        raise KubernetesError(f"there is no training {part!r}: they are {', '.join(KINDS)}")
    job = kubectl.get(KINDS[part], part)
    if job is None:
        say(f"there is no {KINDS[part]}/{part}")
        return
    name, _, value = MARK.partition("=")
    if job["metadata"].get("labels", {}).get(name) != value:
        raise KubernetesError(
            f"{KINDS[part]}/{part} was not created by the course, so it stays: delete it by hand if it is yours"
        )
    say(
        kubectl.run(
            "delete", f"{KINDS[part]},service", "--selector", f"{MARK},handson-training={part}", "--wait=false"
        ).strip()
    )


def _has_run(pods):
    return any(pod.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed") for pod in pods)
