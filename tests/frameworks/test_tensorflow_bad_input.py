"""What cannot work ends in a sentence with status 2, in the real scripts of TensorFlow's; nothing hangs."""

import json
import re
import shutil
import socket

import pytest
from forked import Script
from oracle import SOLUTIONS

pytestmark = pytest.mark.thorough
WORDS = ("-e", "1", "--size", "32", "-o", "out")
MULTI_WORKER, PARAMETER_SERVER = "train_cifar_multi_worker.py", "train_cifar_parameter_server.py"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def config(workers, index, role="worker"):
    return json.dumps({"cluster": {role: workers}, "task": {"type": role, "index": index}})


def copied(folder):
    """The scripts in a folder of their own; the names of folders are in a result."""
    return shutil.copytree(
        SOLUTIONS, folder / "07_frameworks/tensorflow", ignore=shutil.ignore_patterns("__pycache__", "results")
    )


def assert_one_sentence(script, words):
    script.ended()
    mine = [line for line in script.errors.splitlines() if line.strip()]
    assert len(mine) == 1 and re.search(words, mine[0]), script.errors
    assert script.status == 2 and "Throughput" not in script.out


@pytest.mark.parametrize(
    ("name", "tf_config", "words"),
    [
        (MULTI_WORKER, "", "neither TF_CONFIG nor .PBS_NODEFILE"),
        (PARAMETER_SERVER, "", "neither TF_CONFIG nor .PBS_NODEFILE"),
        (MULTI_WORKER, '{"cluster": ', "TF_CONFIG is malformed"),
        (MULTI_WORKER, config(["127.0.0.1:1", "127.0.0.1:2"], 2), "there is no worker 2"),
        (MULTI_WORKER, config(["127.0.0.1:1", "127.0.0.1:1"], 0), "two tasks have the same address"),
        (PARAMETER_SERVER, config(["127.0.0.1:1"], 0), "this script needs chief, ps, worker"),
        (MULTI_WORKER, config(["127.0.0.1:1"], 0, "ps"), "this script needs worker"),
    ],
)
def test_a_cluster_that_cannot_be(name, tf_config, words, tmp_path):
    assert_one_sentence(Script(SOLUTIONS / name, tmp_path, *WORDS, TF_CONFIG=tf_config, PBS_NODEFILE=""), words)


def test_a_last_step_that_leaves_a_replica_without_images_is_refused(tmp_path):
    """1,500 images are 214 steps of 7, and 2 more."""
    script = Script(SOLUTIONS / "train_cifar_mirrored.py", tmp_path, *WORDS, "-g", "0,1,2,3,4,5,6", "-b", "1")
    assert_one_sentence(script, "-b: batches of 1 for each of 7 replicas leave 2 of 1,500 images for the last step")


@pytest.mark.parametrize("place", ["mirrored", "build"])
def test_a_model_made_outside_of_the_scope_is_named(place, tmp_path):
    """Keras would train it on one device without a word."""
    scripts, name = copied(tmp_path), "train_cifar_mirrored.py" if place == "mirrored" else MULTI_WORKER
    changed = scripts / (name if place == "mirrored" else "replicas.py")
    text = changed.read_text()
    changed.write_text(text.replace("with strategy.scope():", "if True:"))
    assert changed.read_text() != text
    (tmp_path / "nodes").write_text("localhost\n")
    given = {"PBS_NODEFILE": str(tmp_path / "nodes"), "MASTER_PORT": str(free_port())}
    assert_one_sentence(
        Script(scripts / name, tmp_path, *WORDS, **given), "create it inside `with strategy.scope\\(\\):`"
    )
