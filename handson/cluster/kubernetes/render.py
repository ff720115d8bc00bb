"""Write a site's Kubernetes settings as kustomize overlays of jobs/kubernetes/base: ``python -m handson kubernetes
render``.

An overlay is a folder for each part of the base. `kubectl kustomize FOLDER/PART` shows the manifests, `kubectl apply -k
FOLDER/PART` creates them. The same site file always gives the same overlays.
"""

import os
import shutil
from pathlib import Path

import yaml

from handson.cluster import site as sites
from handson.files import COURSE


class _Dumper(yaml.SafeDumper):
    """Write YAML for people: no references, and strings of several lines as blocks."""

    def ignore_aliases(self, data):
        return True


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)

ROOM = COURSE / "jobs/kubernetes"
BASE = ROOM / "base"
KINDS = {"mpijob": "MPIJob", "trainjob": "TrainJob"}  # the kinds of training runs that are not a Job
FOLDERS = {"course": "course", "grader": "grades"}  # parts with a volume -> the name of its claim
TRAININGS = ("torchrun", "mpi", "mpijob", "trainjob")
HEAD = (
    "# Made by `python -m handson kubernetes render --site {}` from jobs/sites/{}.toml: change that file, not this"
    " one.\n"
)


def parts():
    """Return the parts of the base: the parts that a site needs once (course, grader), and the training runs."""
    return sorted(path.name for path in BASE.iterdir())


def render(name, folder=None):
    """Write the overlays of the site `name` into `folder` (default: jobs/kubernetes/overlays/NAME), and return the
    folder. Raises SiteError."""
    site = sites.read(name)
    if site.kubernetes is None:
        raise sites.SiteError(
            f"jobs/sites/{name}.toml has no table [kubernetes]: jobs/sites/kind.toml shows what it says"
        )
    folder = Path(folder or ROOM / "overlays" / name)
    for part in parts():
        shutil.rmtree(folder / part, ignore_errors=True)
        (folder / part).mkdir(parents=True)
        base = os.path.relpath(BASE / part, folder / part)
        for file, content in overlay(site, part, base).items():
            (folder / part / file).write_text(HEAD.format(name, name) + _text(content))
    return folder


def overlay(site, part, base):
    """Return {file: content} of the overlay of one part of the base. base: the relative path of the base."""
    at = site.kubernetes
    image, _, tag = at.image.rpartition(":")
    files, made = (
        {},
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": namespace(at, part),
            "labels": [
                {
                    "pairs": (
                        {"app.kubernetes.io/part-of": "handson"}
                        | ({"handson-training": part} if part in TRAININGS else {})
                    )
                }
            ],
            "resources": [base],
            "images": (
                [{"name": "handson", "newName": image, "newTag": tag}]
                if image and "/" not in tag
                else [{"name": "handson", "newName": at.image}]
            ),
        },
    )
    if part in FOLDERS:
        folder = at.grades if part == "grader" else at.nfs or at.host_path
        made["patches"] = [_patch("PersistentVolumeClaim", _claim(at, part, folder))]
        if folder:
            files["volume.yaml"] = _volume(at, part, folder)
            made["resources"].append("volume.yaml")
    elif part in TRAININGS:
        made["patches"] = [_patch(*of_kind) for of_kind in _training(site, part)]
    return {"kustomization.yaml": made} | files


def namespace(at, part):
    """Return the namespace of a part. The grader's differs from the students'."""
    return f"{at.namespace}-grader" if part == "grader" else at.namespace


def submission(part, script, options):
    """Return {file: bytes} of a kustomization on top of an overlay in site/: a training script, and its options."""
    arguments = {
        "mpijob": "/spec/mpiReplicaSpecs/Launcher/template/spec/containers/0/args/-",
        "trainjob": "/spec/trainer/args/-",
    }
    path = arguments.get(part, "/spec/template/spec/containers/0/args/-")
    made = {
        "resources": [f"site/{part}"],
        "generatorOptions": {"disableNameSuffixHash": True},
        "configMapGenerator": [{"name": "script", "files": ["train_cifar_multi_node.py"]}],
        "patches": (
            [
                {
                    "target": {"kind": KINDS.get(part, "Job")},
                    "patch": _text([{"op": "add", "path": path, "value": str(one)} for one in options]),
                }
            ]
            if options
            else []
        ),
    }
    return {"kustomization.yaml": _text(made).encode(), "train_cifar_multi_node.py": script.read_bytes()}


def _patch(kind, changes):
    """Return a kustomize patch of the objects of a kind. changes: {JSON pointer: value}."""
    return {
        "target": {"kind": kind},
        "patch": _text([{"op": "add", "path": path, "value": value} for path, value in changes.items()]),
    }


def _claim(at, part, folder):
    """Return the changes of a claim: a volume for `folder`, or a volume that a storage class creates on demand."""
    changes = {"/spec/resources/requests/storage": at.size}
    if folder:
        return changes | {"/spec/storageClassName": "", "/spec/volumeName": f"{at.namespace}-{FOLDERS[part]}"}
    return changes | ({"/spec/storageClassName": at.storage_class} if at.storage_class else {})


def _volume(at, part, folder):
    """Return the PersistentVolume for a claim on a folder: "server:/path" for NFS, or "/path" on all nodes."""
    server, colon, path = folder.rpartition(":")
    if colon:
        source = {
            "mountOptions": ["nfsvers=4.1", "hard", "timeo=600", "retrans=2"],
            "nfs": {"server": server, "path": path},
        }
    else:
        source = {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}
    spec = {
        "capacity": {"storage": at.size},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        **source,
    }
    claim = {"claimRef": {"namespace": namespace(at, part), "name": FOLDERS[part]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{at.namespace}-{FOLDERS[part]}"},
        "spec": spec | claim,
    }


def processes(site):
    """Return the number of processes per pod: one for each GPU that the exercises use; without GPUs, the exercises'
    number of processes."""
    return min(site.gpus, site.exercise_gpus) if site.gpus else site.exercise_gpus


def _training(site, part):
    """Return [(kind, changes)] of a training: pods, processes, and their resources."""
    pods, each, at = site.exercise_nodes, processes(site), site.kubernetes
    needs = {"cpu": str(each * at.cpus), "memory": _times(each, at.memory)} | (
        {at.gpu_resource: str(each)} if site.gpus else {}
    )
    resources = {"requests": needs, "limits": needs}
    if part == "trainjob":
        return [
            (
                "TrainJob",
                {
                    "/spec/trainer/numNodes": pods,
                    "/spec/trainer/numProcPerNode": each,
                    "/spec/trainer/resourcesPerNode": resources,
                    "/spec/trainer/image": at.image,
                },
            )
        ]
    if part == "mpijob":
        worker = "/spec/mpiReplicaSpecs/Worker"
        return [
            (
                "MPIJob",
                {
                    "/spec/slotsPerWorker": each,
                    f"{worker}/replicas": pods,
                    f"{worker}/template/spec/containers/0/resources": resources,
                },
            )
        ]
    container = "/spec/template/spec/containers/0"
    count = {f"{container}/env/0/value": str(pods), f"{container}/env/1/value": str(each)}  # NODES and PROCESSES
    return [
        ("Job", {"/spec/completions": pods, "/spec/parallelism": pods, f"{container}/resources": resources} | count)
    ]


def _text(content):
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=150)


def _times(number, quantity):
    return f"{number * int(quantity[:-2])}{quantity[-2:]}"
