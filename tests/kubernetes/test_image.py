"""The image itself: built with buildah from a base made here, and run with podman: the entrypoint's roles, and task 3
as the manifests say.

By default, the image's first stage is built, in about a minute, and this machine's .venv and Python are mounted into
its containers. With HANDSON_IMAGE, an image that was built in full is used: `make test-containers` builds one.
"""

import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pods
import programs
import pytest
import yaml
from waiting import run_to_end, wait_until

from handson.cluster import site as sites
from handson.cluster.kubernetes import cluster_jobs
from handson.files import COURSE
from handson.training.results import read

IMAGE = os.environ.get("HANDSON_IMAGE")  # such as localhost/handson:1
# of this run: others may be at work
BASE, SYSTEM = (f"localhost/handson-{name}:test-{secrets.token_hex(4)}" for name in ("base", "system"))
SUBNET = "10.123.77"
USUAL = (
    "--user=1000:1000",
    "--read-only",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--tmpfs=/tmp:mode=1777",
    "--env=HOME=/tmp",
)
RUNTIMES = ([], ["--runtime=runc"])  # of podman: crun needs rights that containers often lack
LIMITS = ("--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096")
pytestmark = pytest.mark.thorough


def run(*words, timeout=500):
    """What a command prints. Raises AssertionError where it fails."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def run_where_allowed(*words):
    """`run`, but skips the test where this machine forbids what the command needs, as containers often do with
    mounts."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=500)
    if done.returncode and (
        refused := re.search(
            r".*(?:operation not permitted|permission denied|cannot mount).*", done.stderr, re.IGNORECASE
        )
    ):
        pytest.skip(f"{words[0]} may not work here: {refused[0].strip()}")
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A small Debian with the Python that .venv was made from, or room for it, and a user 1000, as Ubuntu has one; the
    name of its image."""
    path = tmp_path_factory.mktemp("base") / "base.tar"
    # where pyenv's Pythons are; of a container, it holds nothing else
    reachable = '--customize-hook=chmod 755 "$1/root"'
    user = '--customize-hook=chroot "$1" useradd --uid 1000 --create-home --shell /bin/bash ubuntu'
    quick = ["force-unsafe-io", *(f"path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man"))]
    options = [
        *"--quiet --variant=minbase --include=ca-certificates,python3".split(),
        *(f"--dpkgopt={one}" for one in quick),
        reachable,
        user,
    ]
    run_where_allowed("mmdebstrap", *options, "bookworm", path)
    run_where_allowed("podman", "import", "--quiet", path, BASE)
    return BASE


@pytest.fixture(scope="module")
def podman(request):
    """A function that calls podman with an image of the course: podman("run", ..., IMAGE, ...); its `image` and
    `options` of `run`."""
    programs.need("kubectl", "podman", "buildah", *([] if IMAGE else ["mmdebstrap"]))
    options, image = [*LIMITS], IMAGE
    if not IMAGE:
        image = SYSTEM
        request.addfinalizer(
            lambda: subprocess.run(["podman", "rmi", "--force", SYSTEM, BASE], capture_output=True, timeout=120)
        )
        build = [
            *"--isolation=chroot --network=host --target=system".split(),
            f"--build-arg=BASE={request.getfixturevalue('base')}",
        ]
        run_where_allowed(
            "buildah", "bud", "--quiet", *build, "--tag", SYSTEM, "--file", COURSE / "containers/Containerfile", COURSE
        )
        mounted = {COURSE / ".venv": f"{pods.IMAGE}/.venv", COURSE: COURSE}
        if not sys.base_prefix.startswith("/usr"):
            mounted[sys.base_prefix] = sys.base_prefix
        options += [f"--volume={source}:{place}:ro" for source, place in mounted.items()]

    def call(*words, timeout=500):
        return run("podman", *call.runtime, *words, timeout=timeout)

    for runtime in RUNTIMES:
        tried = run_to_end(["podman", *runtime, "run", "--rm", *options, image, "true"], timeout=500)
        if tried.returncode == 0:
            break
    else:
        pytest.skip(f"this machine lets podman run no containers: {tried.stderr.strip().splitlines()[-1]}")
    call.runtime, call.options, call.image = runtime, options, image
    return call


@pytest.mark.timeout(1000)
def test_the_image_has_no_root_no_keys_and_what_each_role_needs(podman):
    def printed(*words, more=()):
        return podman("run", "--rm", *USUAL, *podman.options, *more, podman.image, *words)

    keys = (
        "ls /etc/ssh/ssh_host_* /home/*/.ssh 2>/dev/null; grep -rlE 'BEGIN [A-Z ]*PRIVATE' /opt/handson"
        " --exclude-dir=.venv"
    )
    assert printed("sh", "-c", f"id -u; id -un; eval echo ~handson; {keys}; true").split() == [
        "1000",
        "handson",
        "/home/handson",
    ]
    size = int(json.loads(podman("image", "inspect", podman.image))[0]["Size"])
    print(f"{podman.image}: {size / 1e9:.2f} GB")
    assert size < (8e9 if IMAGE else 6e8)
    assert printed("python", "-c", "import torch, mpi4py, grader, handson; print('all there')").strip() == "all there"
    tracks = ["--track", "chainer"] if not IMAGE else []  # whose ranks start fast
    tour = printed(
        *"tour train --output /tmp/tour".split(),
        *tracks,
        "--options",
        "-e 1 --size 32",
        more=("--env=HANDSON_PBS_HOME=/tmp/pbs",),
    )
    assert "images/sec" in tour, tour


@pytest.mark.skipif(bool(IMAGE), reason="this is about the first stage, which is tested without HANDSON_IMAGE")
def test_an_editors_container_finds_the_checkout_and_its_environment(podman):
    """As devcontainer.json says it: its build is the first stage."""
    told = json.loads((COURSE / ".devcontainer/devcontainer.json").read_text())
    path = told["remoteEnv"]["PATH"].replace(
        "${containerEnv:PATH}", podman("run", "--rm", *podman.options, podman.image, "printenv", "PATH").strip()
    )
    place = [
        f"--user={told['remoteUser']}",
        f"--volume={COURSE}:{told['workspaceFolder']}:ro",
        f"--workdir={told['workspaceFolder']}",
        f"--env=PATH={path}",
    ]
    shown = podman(
        "run", "--rm", *podman.options, *place, podman.image, "sh", "-c", "command -v python; git --version; make help"
    )
    assert shown.startswith(f"{told['remoteEnv']['VIRTUAL_ENV']}/bin/python\ngit version") and "make lab" in shown


@pytest.mark.timeout(1000)
def test_a_worker_takes_keys_from_its_secret_and_no_password(podman, tmp_path):
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key")
    keys = tmp_path / "keys"
    keys.mkdir()
    for name, file in {"ssh-privatekey": "key", "ssh-publickey": "key.pub"}.items():
        (keys / name).write_text((tmp_path / file).read_text())
        (keys / name).chmod(0o444)  # as open as a Secret's files may be: ssh itself would refuse such a key
    options = [*USUAL, *podman.options, "--env=SSH_KEYS=/keys", f"--volume={keys}:/keys:ro"]
    with _running(podman, *options, podman.image, "worker") as worker:
        wait_until(lambda: "Server listening" in _log(podman, worker), "sshd listens", 60)
        ssh = (
            "ssh -F none -p 2222 -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null localhost"
        )
        allowed = podman("exec", worker, "sh", "-c", f"{ssh} -i /tmp/ssh/key hostname")
        assert allowed.strip() == podman("exec", worker, "hostname").strip()
        refused = podman("exec", worker, "sh", "-c", f"{ssh} -o PubkeyAuthentication=no true 2>&1; true")
        assert re.search(r"Permission denied \(publickey\)", refused), (
            "no password, nor anything else, takes the place of a key"
        )
        assert "PRIVATE KEY" not in _log(podman, worker)
    alone = run_to_end(["podman", *podman.runtime, "run", "--rm", *USUAL, *podman.options, podman.image, "worker"])
    assert alone.returncode == 1
    assert "there are no ssh keys in" in alone.stderr
    assert "handson kubernetes keys" in alone.stderr


@pytest.mark.timeout(1000)
def test_the_lab_answers_and_wants_its_token(podman):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with _running(podman, "--network=host", *USUAL, *podman.options, podman.image, "lab", f"--port={port}") as lab:
        wait_until(lambda: re.search(r"/lab\?token=(\w+)", _log(podman, lab)), "the lab prints its address", 120)
        token = re.search(r"token=(\w+)", _log(podman, lab))[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status?token={token}", timeout=60) as answer:
            assert "kernels" in json.load(answer)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status", timeout=60)


@pytest.fixture
def network(podman):
    """The name of a network for containers. Skips the test where the machine lets podman make none."""
    podman("network", "create", "--subnet", f"{SUBNET}.0/24", "handson-test")
    try:
        command = [
            "podman",
            *podman.runtime,
            *"run --rm --network=handson-test".split(),
            *podman.options,
            podman.image,
            "true",
        ]
        tried = subprocess.run(command, capture_output=True, text=True, timeout=500)
        if tried.returncode:
            pytest.skip(f"this machine lets podman make no network: {tried.stderr.strip().splitlines()[-1]}")
        yield "handson-test"
    finally:
        podman("network", "rm", "--force", "handson-test")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("part", "track"), [("mpijob", "chainer"), *([("torchrun", "pytorch")] if IMAGE else [])])
def test_four_ranks_in_two_containers_train(tmp_path, podman, network, part, track):
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key")
    keys = (tmp_path / "key").read_text(), (tmp_path / "key.pub").read_text()
    (tmp_path / "made").mkdir()
    script = COURSE / f"solutions/03_multi_node/{track}/train_cifar_multi_node.py"
    made = cluster_jobs.manifests(sites.read("kind"), part, script, ["--epoch=1", "--size=32"], tmp_path / "made")
    [job] = [one for one in made if one["kind"].lower() == cluster_jobs.KINDS[part]]
    files = {"script": {"train_cifar_multi_node.py": script.read_text()}}
    made = pods.of_mpijob(job, "handson", files, keys) if part == "mpijob" else pods.of_job(job, files)
    with _containers(podman, network, made, tmp_path) as (claim, containers):
        first = containers[f"{part}-launcher" if part == "mpijob" else f"{part}-0"]
        status = podman("wait", first, timeout=600).strip()
        log = _log(podman, first)
        assert status == "0" and re.search(r"^Throughput: ", log, re.MULTILINE), log
    [path] = (claim / "results").glob("*/result.json")
    result = read(path)
    assert (result.workers, result.nodes, result.track) == (4, 2, track)


@pytest.mark.skipif(not IMAGE, reason="without containers, tests/kubernetes/test_grader.py has both roles")
@pytest.mark.timeout(1000)
def test_engines_reach_their_controller(tmp_path, podman, network):
    made = run_to_end(["kubectl", "kustomize", COURSE / "jobs/kubernetes/overlays/kind/grader"], check=True)
    objects = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(made.stdout)}
    files = {"keys": cluster_jobs.connection_files()}
    [controller] = pods.of_deployment(objects["Deployment", "controller"], files, "controller")
    engines = pods.of_deployment(objects["Deployment", "engines"], files)
    with _containers(podman, network, [controller, *engines], tmp_path) as (_, containers):
        registered = "registration::finished registering engine"
        wait_until(
            lambda: _log(podman, containers["controller"]).count(registered) == len(engines),
            "the engines are registered",
            120,
        )
        ask = (
            "import ipyparallel;"
            " print(ipyparallel.Client(profile='default')[:].apply_sync(__import__('socket').gethostname))"
        )
        assert all(engine.host in podman("exec", containers["controller"], "python", "-c", ask) for engine in engines)


@contextlib.contextmanager
def _running(podman, *words):
    """A container in the background, by podman's own name for it, which no other run of the tests can have taken; it is
    removed at the end."""
    container = podman("run", "--detach", *words).strip()
    try:
        yield container
    finally:
        subprocess.run(["podman", "rm", "--force", "--time", "0", container], capture_output=True, timeout=120)


@contextlib.contextmanager
def _containers(podman, network, made, folder):
    """Run pods in containers of a network, under their names, and remove them at the end. Gives the folder that is
    their claim, and {host: container}."""
    claim = folder / "claim"
    claim.mkdir()
    for one in (folder, claim):
        one.chmod(0o777)
    addresses = {pod.host: f"{SUBNET}.{number}" for number, pod in enumerate(made, 10)}
    names = [f"--add-host={name}:{addresses[pod.host]}" for pod in made for name in (pod.host, *pod.names)]
    with contextlib.ExitStack() as stack:
        containers = {}
        for pod in made:
            where = [f"--network={network}", f"--ip={addresses[pod.host]}", *names]
            words = [*_container(pod, claim, folder), *podman.options, *where, podman.image, *pods.arguments(pod)]
            containers[pod.host] = stack.enter_context(_running(podman, *words))
        yield claim, containers


def _container(pod, claim, folder):
    """Options of `podman run` for a pod."""
    [container] = pod.spec["containers"]
    words = [
        f"--hostname={pod.host}",
        *"--user=1000:1000 --read-only --cap-drop=all --security-opt=no-new-privileges".split(),
    ]
    words += [
        f"--workdir={container['workingDir']}",
        *(f"--env={name}={value}" for name, value in pods.environment(pod).items()),
    ]
    return words + [
        f"--tmpfs={path}:mode=1777" if source is None else f"--volume={source}:{path}{'' if source == claim else ':ro'}"
        for path, source in pods.mounts(pod, claim, folder)
    ]


def _log(podman, container):
    done = subprocess.run(
        ["podman", *podman.runtime, "logs", container],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.stdout
