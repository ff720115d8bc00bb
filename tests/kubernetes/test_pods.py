"""Task 3 in pods, executed: what the manifests say of each pod is done on this machine (tests/kubernetes/pods.py)."""

import re
import subprocess

import pods
import pytest
from environments import QUICK_START

from handson.cluster import site as sites
from handson.cluster.kubernetes import cluster_jobs, state
from handson.files import COURSE
from handson.training.results import read

THROUGHPUT = re.compile(r"^Throughput: [\d.]+ \[images/sec.\] \(1500 / [\d.]+\)$", re.MULTILINE)
# seconds for the rest to end, on a busy machine; usually one or two, since they wait for a connection to close, not for
# a time to pass
SEEN = 60
OPTIONS = ("--epoch=1", "--size=32")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """(private, public): keys as `python -m handson kubernetes keys` makes them."""
    folder = tmp_path_factory.mktemp("keys")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True, timeout=60)
    return (folder / "key").read_text(), (folder / "key.pub").read_text()


@pytest.fixture
def started(tmp_path, keys):
    """A function that runs a training's pods: a context manager that gives {host: process}."""
    pods.need()

    def start(part, track, arguments=(), options=(), **environment):
        script = COURSE / f"solutions/03_multi_node/{track}/train_cifar_multi_node.py"
        (tmp_path / "made").mkdir()
        made = cluster_jobs.manifests(sites.read("kind"), part, script, [*OPTIONS, *options], tmp_path / "made")
        [job] = [one for one in made if one["kind"].lower() == cluster_jobs.KINDS[part]]
        [sent] = [one for one in made if one["kind"] == "ConfigMap"]
        files = {"script": sent["data"], "keys": {"ssh-privatekey": keys[0], "ssh-publickey": keys[1]}}
        (tmp_path / "claim").mkdir()
        made = pods.of_mpijob(job, "handson", files, keys) if part == "mpijob" else pods.of_job(job, files)
        for pod in made:
            pod.environment |= QUICK_START | environment
            pod.spec["containers"][0]["args"] = list(arguments) or pod.spec["containers"][0]["args"]
        return pods.running(made, tmp_path / "claim", tmp_path)

    return start


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("part", "track", "first"),
    [
        ("torchrun", "pytorch", "torchrun-0"),
        pytest.param("mpi", "chainer", "mpi-0", marks=pytest.mark.thorough),
        pytest.param("mpijob", "pytorch", "mpijob-launcher", marks=pytest.mark.thorough),
        pytest.param("mpijob", "chainer", "mpijob-launcher", marks=pytest.mark.thorough),
    ],
)
def test_four_ranks_in_two_pods_train_as_a_job_of_pbs_does(started, tmp_path, keys, part, track, first):
    with started(part, track) as processes:
        status, log = pods.ended(processes[first])
        assert status == 0 and len(THROUGHPUT.findall(log)) == 1, log
    [path] = (tmp_path / "claim/results").glob("*/result.json")
    result = read(path)
    assert (result.workers, result.nodes, result.track, result.images) == (4, 2, track, 1500)
    private = keys[0].splitlines()[2]
    assert private not in log
    assert not [
        path for path in (tmp_path / "claim").rglob("*") if path.is_file() and private.encode() in path.read_bytes()
    ]


@pytest.mark.thorough
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("befall", "options", "sentence"),
    [
        (pods.kill, (), "lost its connection to another rank, which has died"),
        (pods.fall_silent, ("--patience=5",), r"has finished no step for 5 s: it waits in .*, line \d+.*"),
    ],
)
def test_a_lost_pod_of_torchrun_ends_the_training_with_a_sentence(started, befall, options, sentence):
    """A killed pod is noticed by its connections, and a silent one by the steps that do not end. Pods that mpiexec
    reaches: the next test."""
    first, other = "torchrun-0", "torchrun-1"
    with started("torchrun", "pytorch", options=options) as processes:
        for line in processes[first].stdout:
            if line.startswith("Using digits"):
                break
        befall(processes[other])
        status, log = pods.ended(processes[first], SEEN)
        assert status != 0 and not THROUGHPUT.search(log)
        assert re.search(rf"^rank \d on {first} {sentence}$", log, re.MULTILINE), log
        processes[other].wait(SEEN)
    shown = [_shown(first, status, "2026-01-01T00:00:02Z"), _shown(other, 137, "2026-01-01T00:00:01Z")]
    told = state.problem({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, shown, "AGAIN")
    assert told == f"ended in pod {other} with status 137; it was killed: AGAIN"


@pytest.mark.thorough
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("befall", "reason"),
    [(pods.fall_silent, "mpi-1.mpi: .* not responding"), (pods.kill, "mpi-1.mpi: the connection to it broke")],
)
def test_a_lost_pod_of_mpiexec_is_named_in_a_sentence(started, befall, reason):
    with started("mpi", "pytorch", ["mpi", "sh", "-c", "hostname; exec sleep 600"], SILENCE="4") as processes:
        for line in processes["mpi-0"].stdout:
            if line.startswith("mpi-1"):
                break
        befall(processes["mpi-1"])
        status, log = pods.ended(processes["mpi-0"], SEEN)
        pods.kill(processes["mpi-1"])
    assert status == 1 and re.search(
        rf"^entrypoint: a pod is lost \({reason}\): .*submit the job again$", log, re.MULTILINE
    ), log


def _shown(name, status, when):
    """A pod that has ended, as `kubectl get pods` shows it."""
    ended = {"state": {"terminated": {"exitCode": status, "reason": "Error", "finishedAt": when}}}
    return {"metadata": {"name": name}, "status": {"phase": "Failed", "containerStatuses": [ended]}}


@pytest.mark.thorough
@pytest.mark.timeout(1000)
def test_a_launcher_without_its_worker_says_so_in_a_sentence(started):
    with started("mpi", "pytorch", LIMIT="3") as processes:
        pods.kill(processes["mpi-1"])
        status, log = pods.ended(processes["mpi-0"])
        assert status == 1 and "mpi-1.mpi has not answered for" in log and "kubectl describe pod mpi-1" in log
