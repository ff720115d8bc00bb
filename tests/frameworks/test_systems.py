"""The scripts of all systems: each leaves a result, they stand in one table, and Lightning and Accelerate compute what DistributedDataParallel does."""

import subprocess
import sys
from pathlib import Path

import pytest

from handson import compare
from handson.training import results

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "solutions/07_frameworks"
DDP = ROOT / "solutions/03_multi_node/pytorch/train_cifar_multi_node.py"
WORDS = ["-e", "1", "--size", "32", "-b", "64", "--lr", "0.01"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(out, *command, env=None):
    done = subprocess.run([*map(str, command), *WORDS, "-o", str(out)], capture_output=True, text=True, timeout=280, env=env, cwd=out.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    noise = [line for line in done.stderr.splitlines() if "torch" not in line.lower() and line.strip("*\n ")]
    return results.read(out), noise


def torchrun(script):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("systems")


def test_lightning_and_accelerate_compute_what_ddp_computes(out):
    """The same shards, batches and loss: equal losses, to rounding."""
    ddp, _ = run(out / "ddp", *torchrun(DDP))
    accelerated, noise = run(out / "accelerate", *torchrun(UNIT / "accelerate/train_cifar_accelerate.py"))
    assert noise == []
    lightning, noise = run(out / "lightning", sys.executable, UNIT / "lightning/train_cifar_lightning.py", "-g", "0,1")
    assert noise == []
    for other in (accelerated, lightning):
        assert other.log[0]["main/loss"] == pytest.approx(ddp.log[0]["main/loss"], rel=1e-4)
        assert (other.workers, other.images) == (2, ddp.images)
    assert accelerated.log[0]["validation/main/loss"] == pytest.approx(ddp.log[0]["validation/main/loss"], rel=1e-4)


def test_tensorflows_scripts_learn_and_stand_in_one_table_with_the_others(out, tmp_path):
    single, noise = run(out / "single", sys.executable, UNIT / "tensorflow/train_cifar_single_gpu.py")
    assert noise == []
    mirrored, noise = run(out / "mirrored", sys.executable, UNIT / "tensorflow/train_cifar_mirrored.py")
    assert noise == []
    (tmp_path / "nodes").write_text("localhost\nlocalhost\n")
    import os

    environment = os.environ | {"PBS_NODEFILE": str(tmp_path / "nodes"), "MASTER_PORT": "23456"}
    several, _ = run(out / "multi_worker", "mpiexec", "-n", "2", sys.executable, UNIT / "tensorflow/train_cifar_multi_worker.py", env=environment)
    found = [single, mirrored, several, *(results.read(path) for path in sorted(out.iterdir()) if path.name in ("ddp", "accelerate", "lightning"))]
    assert [run.log[-1]["main/loss"] < 2.3 for run in found[:3]] == [True] * 3
    assert all(run.log[0]["first_step"] > 0 for run in found[:3])
    rows = compare.table(found)
    assert len({row.conditions for row in rows}) == 1
    assert {(row.track, row.name, row.workers) for row in rows} >= {("tensorflow", "mirrored", 2), ("tensorflow", "multi_worker", 2), ("tensorflow", "single_gpu", 1)}
    assert all(row.speedup for row in rows if row.track == "tensorflow")


def test_without_the_second_environment_a_script_says_so_in_a_sentence(tmp_path):
    import os

    command = [sys.executable, UNIT / "tensorflow/train_cifar_single_gpu.py", "-o", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=os.environ | {"HANDSON_FRAMEWORKS": os.devnull})
    assert done.returncode != 0 and "type `make frameworks`" in done.stderr
