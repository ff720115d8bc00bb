"""The image itself, where podman is and HANDSON_IMAGE names it: task 3 in real containers, as the manifests say. docs/kubernetes.md builds it.

    HANDSON_IMAGE=localhost/handson make test ARGS="tests/kubernetes/test_image.py"
"""

import os
import re
import subprocess

import pods
import pytest

from handson.cluster import site as sites
from handson.cluster.kubernetes import jobs
from handson.files import COURSE
from handson.training.results import read

IMAGE = os.environ.get("HANDSON_IMAGE")
PODMAN = ["podman", *os.environ.get("HANDSON_PODMAN", "").split()]  # such as --runtime runc
RUN = os.environ.get("HANDSON_PODMAN_RUN", "").split()  # such as --ulimit nofile=1024:1024
SUBNET = "10.123.77"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not IMAGE, reason="no image was named in HANDSON_IMAGE")]


def podman(*words, timeout=300):
    done = subprocess.run([*PODMAN, *map(str, words)], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _log(container):
    return subprocess.run([*PODMAN, "logs", container], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60).stdout


@pytest.fixture
def network():
    podman("network", "create", "--subnet", f"{SUBNET}.0/24", "handson-test")
    yield "handson-test"
    podman("network", "rm", "--force", "handson-test")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("part", "track"), [("torchrun", "pytorch"), ("mpijob", "chainer")])
def test_four_ranks_in_two_containers_train(tmp_path, network, part, track):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True, timeout=60)
    keys = (tmp_path / "key").read_text(), (tmp_path / "key.pub").read_text()
    (tmp_path / "made").mkdir()
    script = COURSE / f"solutions/03_multi_node/{track}/train_cifar_multi_node.py"
    made = jobs.manifests(sites.read("kind"), part, script, ["--epoch=1", "--size=32"], tmp_path / "made")
    [job] = [one for one in made if one["kind"].lower() == jobs.KINDS[part]]
    files = {"script": {"train_cifar_multi_node.py": script.read_text()}}
    made = pods.of_mpijob(job, "handson", files, keys) if part == "mpijob" else pods.of_job(job, files)
    claim = tmp_path / "claim"
    claim.mkdir()
    for folder in (tmp_path, claim):
        folder.chmod(0o777)
    addresses = {pod.host: f"{SUBNET}.{number}" for number, pod in enumerate(made, 10)}
    names = [f"--add-host={name}:{addresses[pod.host]}" for pod in made for name in (pod.host, *pod.names)]
    try:
        for pod in made:
            podman("run", "--detach", *_container(pod, claim, tmp_path), f"--network={network}", f"--ip={addresses[pod.host]}", *names, IMAGE, *pods.arguments(pod))
        first = f"{part}-launcher" if part == "mpijob" else f"{part}-0"
        status = podman("wait", first, timeout=600).strip()
        log = _log(first)
        assert status == "0" and re.search(r"^Throughput: ", log, re.MULTILINE), log
    finally:
        subprocess.run([*PODMAN, "rm", "--force", "--time", "0", *addresses], capture_output=True, timeout=120)
    [path] = (claim / "results").glob("*/result.json")
    result = read(path)
    assert (result.workers, result.nodes, result.track) == (4, 2, track)


def _container(pod, claim, folder):
    """Options of `podman run` for a pod."""
    [container] = pod.spec["containers"]
    words = [f"--name={pod.host}", f"--hostname={pod.host}", "--user=1000:1000", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", *RUN]
    words += [f"--workdir={container['workingDir']}", *(f"--env={name}={value}" for name, value in pods.environment(pod).items())]
    return words + [f"--tmpfs={path}:mode=1777" if source is None else f"--volume={source}:{path}{'' if source == claim else ':ro'}"
                    for path, source in pods.mounts(pod, claim, folder)]  # fmt: skip


def test_the_image_has_no_keys_and_no_root():
    assert podman("run", "--rm", *RUN, IMAGE, "id", "-u").strip() == "1000"
    assert podman("run", "--rm", *RUN, IMAGE, "sh", "-c", "ls /etc/ssh/ssh_host_* ~/.ssh 2>/dev/null; true") == ""
