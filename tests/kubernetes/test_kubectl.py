"""Submitting to a cluster, following a job, and what is said when something is wrong; with a stand-in for kubectl and
its cluster."""

import json
import re
import shutil
import sys
from pathlib import Path

import programs
import pytest
import yaml
from typer.testing import CliRunner

from handson import kubernetes as commands
from handson.cluster import site as sites
from handson.cluster.follow import JobFailed, follow
from handson.cluster.kubernetes import cluster_jobs, state
from handson.cluster.kubernetes.kubectl import Kubectl, KubernetesError

SITE = sites.read("kind")
SCRIPT = "print('task 3')\n"


class Cluster:
    """The stand-in's cluster."""

    def __init__(self, path):
        self.path = path
        self.write(objects={"secret/ssh-keys": {}}, pods=[], events=[], log="", refuse={}, calls=[])

    def write(self, **changes):
        self.path.write_text(json.dumps((self.read() if self.path.exists() else {}) | changes))

    def read(self):
        return json.loads(self.path.read_text())

    def verbs(self):
        return [
            next(
                word
                for word in call["words"]
                if not word.startswith("-") and word not in ("kind-handson", "handson", "handson-grader")
            )
            for call in self.read()["calls"]
        ]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    programs.need("kubectl")
    program = tmp_path / "bin/kubectl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("fake_kubectl.py")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("KUBECTL", shutil.which("kubectl"))
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("CLUSTER", str(tmp_path / "cluster.json"))
    (tmp_path / "exercises").mkdir()  # so that logs go there
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    return Cluster(tmp_path / "cluster.json")


def job(kind="Job", **conditions):
    return {
        "kind": kind,
        "metadata": {"name": "torchrun", "labels": {"app.kubernetes.io/part-of": "handson"}},
        "status": {
            "conditions": [{"type": name, "status": "True", "message": text} for name, text in conditions.items()]
        },
    }


def pod(name, phase="Running", waiting=None, ended=None, unscheduled=None, **status):
    container = {"state": {"waiting": waiting} if waiting else {"terminated": ended} if ended else {"running": {}}}
    conditions = [{"type": "PodScheduled", "status": "False", "message": unscheduled}] if unscheduled else []
    spec = {"containers": [{"image": "registry.example/handson:7"}]}
    made = {
        "phase": phase,
        "conditions": conditions,
        **({} if unscheduled else {"containerStatuses": [container]}),
        **status,
    }
    return {"metadata": {"name": name}, "spec": spec, "status": made}


# Submitting --------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_script_goes_to_the_cluster_with_its_options_and_nothing_that_is_there_is_deleted(cluster, tmp_path):
    assert cluster_jobs.submit(Kubectl(SITE), "torchrun", tmp_path / "script.py", ["--epoch=1"]) == "kind/torchrun"
    made = cluster.read()["objects"]
    assert made["configmap/script"]["data"]["train_cifar_multi_node.py"] == SCRIPT
    assert made["job/torchrun"]["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--epoch=1"
    assert "service/torchrun" in made
    assert "delete" not in cluster.verbs()
    assert all("kind-handson" in call["words"] for call in cluster.read()["calls"]), (
        "the context is the site's, whichever is the current one"
    )


def test_what_is_refused_has_changed_nothing(cluster, tmp_path):
    cluster.write(objects={"job/torchrun": job(), "secret/ssh-keys": {}})
    with pytest.raises(
        KubernetesError, match="the name is taken .* python -m handson kubernetes delete torchrun --site kind"
    ):
        cluster_jobs.submit(Kubectl(SITE), "torchrun", tmp_path / "script.py")
    assert cluster.read()["objects"].keys() == {"job/torchrun", "secret/ssh-keys"}


def test_keys_are_made_once_and_shown_nowhere(cluster, tmp_path, capfd):
    cluster.write(objects={})
    said = []
    cluster_jobs.keys(Kubectl(SITE), said.append)
    [made] = [call["words"] for call in cluster.read()["calls"] if "generic" in call["words"]]
    files = [word.partition("=")[2].partition("=")[2] for word in made if word.startswith("--from-file")]
    assert len(files) == 2
    assert not any(Path(file).exists() for file in files)
    assert said == ["the Secret ssh-keys was created"]
    cluster.write(objects={"secret/ssh-keys": {}})
    cluster_jobs.keys(Kubectl(SITE), said.append)
    assert "kept" in said[-1] and len([call for call in cluster.read()["calls"] if "generic" in call["words"]]) == 1
    assert "PRIVATE KEY" not in "".join(capfd.readouterr()) + "".join(said)


def test_the_grader_gets_keys_of_its_own_in_its_own_namespace(cluster):
    cluster_jobs.apply(Kubectl(SITE), "grader", lambda said: None)
    secret = cluster.read()["objects"]["secret/ipyparallel-keys"]
    engine, client = (json.loads(secret["stringData"][f"ipcontroller-{who}.json"]) for who in ("engine", "client"))
    assert engine["key"] == client["key"] and len(engine["key"]) == 64
    ports = [
        port
        for one in (engine, client)
        for name, port in one.items()
        if isinstance(port, int) and name != "registration"
    ]
    assert len(set(ports)) == len(ports) and all(9010 < port <= 9030 for port in ports)
    assert "handson-grader" in cluster.read()["calls"][-1]["words"]


def test_without_a_context_of_the_site_the_current_one_needs_a_yes(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(
        cluster_jobs.sites, "read", lambda name: SITE._replace(kubernetes=SITE.kubernetes._replace(context=None))
    )
    refused = CliRunner().invoke(commands.app, ["delete", "torchrun", "--site", "kind"], input="n\n")
    assert refused.exit_code == 1 and "names no context. Use the current one, somebody-elses?" in refused.output
    assert cluster.verbs() == ["config"]


def test_only_what_the_course_has_made_is_deleted(cluster):
    cluster.write(objects={"job/mpi": {"metadata": {"name": "mpi"}}})
    with pytest.raises(KubernetesError, match="was not created by the course, so it stays"):
        cluster_jobs.delete(Kubectl(SITE), "mpi")
    cluster.write(objects={"job/mpi": job()})
    cluster_jobs.delete(Kubectl(SITE), "mpi", lambda said: None)
    [call] = [call["words"] for call in cluster.read()["calls"] if "delete" in call["words"]]
    assert "app.kubernetes.io/part-of=handson,handson-training=mpi" in call


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Unable to connect to the server: dial tcp 192.0.2.7:443: i/o timeout", "the cluster does not answer"),
        ("error: You must be logged in to the server (Unauthorized)", "the cluster does not accept your credentials"),
        (
            (
                'Error from server (Forbidden): error when creating "STDIN": jobs.batch is forbidden: User "student"'
                ' cannot create resource "jobs" in API group "batch" in the namespace "handson"'
            ),
            "you may not do this .* auth can-i --list -n handson",
        ),
        (
            (
                'Error from server (Forbidden): error when creating "STDIN": jobs.batch "torchrun" is forbidden:'
                " exceeded quota: small, requested: count/jobs.batch=1, used: count/jobs.batch=2, limited:"
                " count/jobs.batch=2"
            ),
            "quota is too small .* describe quota -n handson",
        ),
        (
            (
                'error: resource mapping not found for name: "mpijob" namespace: "handson" from "STDIN": no matches for'
                ' kind "MPIJob" in version "kubeflow.org/v2beta1"\nensure CRDs are installed first'
            ),
            "does not know this kind of job .* torchrun or mpi",
        ),
        (
            'Error from server (NotFound): error when creating "STDIN": namespaces "handson" not found',
            "namespace does not exist .* kubernetes apply --site kind",
        ),
        ("something new", "kubectl failed .something new.: run the same command by hand"),
    ],
)
def test_what_kubectl_refuses_is_told_with_the_next_command(cluster, tmp_path, said, words):
    cluster.write(refuse={"create": said})
    with pytest.raises(KubernetesError, match=words):
        cluster_jobs.submit(Kubectl(SITE), "torchrun", tmp_path / "script.py")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "kubectl has no such context .* get-contexts"),
        (
            {
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "contexts": [{"name": "kind-handson", "context": {"cluster": "c", "user": "u"}}],
            },
            "the cluster does not answer .* cluster-info",
        ),
    ],
)
def test_what_a_real_kubectl_says_without_a_cluster_is_understood(tmp_path, monkeypatch, config, words):
    programs.need("kubectl")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    if config:
        (tmp_path / "config").write_text(json.dumps({"apiVersion": "v1", "kind": "Config"} | config))
    with pytest.raises(KubernetesError, match=words):
        cluster_jobs.submit(Kubectl(SITE), "mpi")


# How a job is ------------------------------------------------------------------------


def unscheduled(message):
    """A pod that the scheduler finds no node for, in its words."""
    return pod(
        "torchrun-0",
        "Pending",
        unscheduled=(
            f"0/2 nodes are available: {message} preemption: 0/2 nodes are available: 2 Preemption is not helpful for"
            " scheduling."
        ),
    )


def warning(reason, message, name="torchrun-0"):
    return {"reason": reason, "message": message, "involvedObject": {"name": name}}


# all that a pod itself shows while a volume of its is missing; the reason is in an event
CREATING = {"reason": "ContainerCreating"}


@pytest.mark.parametrize(
    ("one", "events", "words"),
    [
        (
            pod(
                "torchrun-0",
                "Pending",
                {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "registry.example/handson:7"'},
            ),
            [],
            "torchrun-0: its node cannot pull the image registry.example/handson:7; push it there, or correct `image`",
        ),
        (unscheduled("2 Insufficient nvidia.com/gpu."), [], "no node has enough nvidia.com/gpu left, or offers it"),
        (unscheduled("pod has unbound immediate PersistentVolumeClaims."), [], "the claim `course` has no volume"),
        (unscheduled("2 node(s) had untolerated taint {nvidia.com/gpu: present}."), [], "no node is open for such"),
        (
            pod("torchrun-0", "Pending", CREATING),
            [warning("FailedMount", 'MountVolume.SetUp failed for volume "keys" : secret "ssh-keys" not found')],
            "the Secret ssh-keys is missing; python -m handson kubernetes keys --site kind",
        ),
        (
            pod("torchrun-0", "Pending", CREATING),
            [warning("FailedCreatePodSandBox", "Failed to create pod sandbox: no room")],
            "torchrun-0: FailedCreatePodSandBox Failed",
        ),
        (pod("torchrun-1", "Pending"), [], "torchrun-1: it is being started"),
        (pod("torchrun-1", "Running"), [], "^$"),
    ],
)
def test_a_pod_that_waits_says_why_and_what_to_do(one, events, words):
    assert re.search(words, state.waiting([one], events, SITE.kubernetes, "kind"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            (
                'Error creating: pods "torchrun-0-x7k2p" is forbidden: exceeded quota: small, requested:'
                " requests.cpu=2, used: requests.cpu=3, limited: requests.cpu=4"
            ),
            "the namespace's quota is too small; kubectl describe quota -n handson",
        ),
        (
            (
                'Error creating: pods "torchrun-0-x7k2p" is forbidden: violates PodSecurity "restricted:latest":'
                ' seccompProfile (pod or container "train" must set ...)'
            ),
            "the namespace refuses such pods; kubectl get events -n handson",
        ),
    ],
)
def test_a_job_whose_pods_are_refused_says_why(cluster, message, words):
    cluster.write(
        objects={"job/torchrun": job()},
        events=[
            warning("FailedCreate", 'secret "x" not found', "torchrun2"),
            warning("FailedCreate", message, "torchrun"),
        ],
    )
    assert cluster_jobs.look("kind/torchrun")[0] == state.waiting(
        [], [warning("FailedCreate", message)], SITE.kubernetes, "kind"
    )
    assert re.search(words, cluster_jobs.look("kind/torchrun")[0])


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (
            pod("torchrun-1", "Failed", ended={"exitCode": 137, "reason": "OOMKilled"}),
            "in pod torchrun-1 with status 137; it was out of memory: .* AGAIN$",
        ),
        (pod("torchrun-1", "Failed", ended={"exitCode": 137, "reason": "Error"}), "with status 137; it was killed"),
        (pod("torchrun-1", "Failed", ended={"exitCode": 1, "reason": "Error"}), "with status 1; its log: kubectl"),
        (
            pod("torchrun-1", "Failed", reason="Evicted", message="The node was low on resource: memory. "),
            "lost pod torchrun-1: Evicted .The node was low on resource: memory.; AGAIN$",
        ),
        (pod("torchrun-1", "Running"), "failed: Job was active longer than specified deadline; AGAIN$"),
    ],
)
def test_a_job_that_failed_names_the_pod_that_failed_first(one, words):
    later = pod("torchrun-0", "Failed", ended={"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T00:00:09Z"})
    if "terminated" in one["status"]["containerStatuses"][0]["state"]:
        one["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = "2026-01-01T00:00:05Z"
    pods = [one] if one["status"]["phase"] == "Running" else [later, one]
    assert re.search(words, state.problem(job(Failed="Job was active longer than specified deadline"), pods, "AGAIN"))


@pytest.mark.timeout(60)
@pytest.mark.thorough
def test_follow_shows_the_log_of_a_job_and_how_it_ended(cluster):
    cluster.write(
        objects={"job/torchrun": job(Complete="")},
        pods=[pod("torchrun-0", "Succeeded")],
        log="Throughput: 9.0 [images/sec.] (9 / 1)\n",
    )
    said = []
    follow("kind/torchrun", say=said.append)
    assert said == ["Throughput: 9.0 [images/sec.] (9 / 1)"]
    typed = CliRunner().invoke(commands.app, ["follow", "torchrun", "--site", "kind"])
    assert typed.exit_code == 0 and typed.output.splitlines() == said
    cluster.write(
        objects={"job/torchrun": job(Failed="BackoffLimitExceeded")},
        pods=[pod("torchrun-1", "Failed", ended={"exitCode": 137, "reason": "Error"})],
    )
    with pytest.raises(JobFailed, match="job kind/torchrun ended in pod torchrun-1 with status 137; it was killed"):
        follow("kind/torchrun", say=said.append)
    with pytest.raises(JobFailed, match="Kubernetes does not know job kind/mpi, .*kubectl get jobs"):
        follow("kind/mpi", say=said.append)
    cluster.write(objects={"job/torchrun": job()}, pods=[pod("torchrun-0")], log="a line of it\n")
    with pytest.raises(JobFailed, match="job kind/torchrun was deleted"):
        follow("kind/torchrun", say=lambda line: cluster.write(objects={}))


def test_manifests_that_are_sent_are_those_of_the_overlay(cluster, tmp_path):
    made = cluster_jobs.manifests(SITE, "mpijob", tmp_path / "script.py", ["--epoch=1"], tmp_path)
    [job] = [one for one in made if one["kind"] == "MPIJob"]
    roles = job["spec"]["mpiReplicaSpecs"]
    assert roles["Launcher"]["template"]["spec"]["containers"][0]["args"][-1] == "--epoch=1"
    assert roles["Worker"]["template"]["spec"]["containers"][0]["args"] == ["worker"]
    assert yaml.safe_dump(
        cluster_jobs.manifests(SITE, "mpijob", tmp_path / "script.py", ["--epoch=1"], tmp_path)
    ) == yaml.safe_dump(made)
