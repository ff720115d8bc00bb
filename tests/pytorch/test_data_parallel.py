"""DataParallel on virtual GPUs: its steps are those of one big batch, and it keeps what torch.nn.DataParallel keeps."""

import copy
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from environments import QUICK_START
from torch import nn

from handson.notebook import other_frameworks
from handson.pytorch.data_parallel import data_parallel
from handson.training import results

SCRIPT = Path(__file__).resolve().parents[2] / "solutions/07_frameworks/pytorch/train_cifar_data_parallel.py"
without_gpus = pytest.mark.skipif(torch.cuda.is_available(), reason="torch.nn.DataParallel does it")


def trained(network, module, lengths):
    """Train `network` by steps through `module`, on batches of these lengths; all its parameters then."""
    chance, optimizer = torch.Generator().manual_seed(1), torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    for images in lengths:
        inputs, labels = (
            torch.randn(images, 3, 8, 8, dtype=torch.float64, generator=chance),
            torch.randint(5, (images,), generator=chance),
        )
        optimizer.zero_grad()
        F.cross_entropy(module(inputs), labels).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


@without_gpus
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_its_steps_are_those_of_one_big_batch_also_where_the_last_is_uneven(replicas):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).double()
    alone, lengths = copy.deepcopy(network), (8, 8, 5, 3)  # 5 images on 4 replicas are 2, 2 and 1
    start = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    found, right = trained(network, data_parallel(network, range(replicas)), lengths), trained(alone, alone, lengths)
    assert (found - right).abs().max() < 1e-12 and (found - start).abs().max() > 1e-3


class Noting(nn.Module):
    def __init__(self):
        super().__init__()
        self.normalise, self.threads, self.training_there = nn.BatchNorm1d(2), set(), set()
        self.lock = threading.Barrier(2)

    def __deepcopy__(self, memo):
        copied = Noting.__new__(Noting)
        nn.Module.__init__(copied)
        copied.normalise = copy.deepcopy(self.normalise, memo)
        copied.threads, copied.training_there, copied.lock = self.threads, self.training_there, self.lock
        return copied

    def forward(self, inputs):
        self.lock.wait(60)  # both replicas are under way
        self.threads.add(threading.current_thread())
        self.training_there.add(self.training)
        return self.normalise(inputs)


@without_gpus
def test_replicas_are_in_threads_and_the_first_ones_statistics_are_kept():
    network, inputs = Noting(), torch.tensor([[0.0, 1.0], [2.0, 3.0], [100.0, 100.0], [300.0, 500.0]])
    parallel = data_parallel(network, [0, 1])
    outputs = parallel(inputs)
    assert len(network.threads) == 2 and threading.main_thread() not in network.threads
    assert network.normalise.running_mean.tolist() == pytest.approx([0.1, 0.2])  # a tenth of the first half's
    assert outputs[0].tolist() == pytest.approx([-1, -1], abs=1e-3)  # normalised with the images of one replica
    parallel.eval()
    parallel(inputs)
    assert network.training_there == {True, False}


@pytest.mark.thorough
def test_its_script_leaves_a_result_for_the_table(tmp_path):
    words = ["-e", "1", "--size", "32", "-b", "64", "-g", "0,1", "-o", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, SCRIPT, *words],
        env=os.environ | QUICK_START,
        capture_output=True,
        text=True,
        timeout=500,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "# GPUs: 2" in done.stdout and "Throughput: " in done.stdout
    run = results.read(tmp_path / "out")
    assert (run.unit, run.name, run.track, run.workers, run.images) == (
        "frameworks",
        "data_parallel",
        "pytorch",
        2,
        1500,
    )
    assert run.log[0]["main/loss"] < 2.3
    head, row, *_, silently = other_frameworks.table([run], SCRIPT.parents[2])
    assert row.startswith("PyTorch, data_parallel  2") and "of" in row[head.index("lines that differ") :].split()[1]
    assert silently.startswith("  PyTorch, data_parallel: splits each batch")


def test_images_per_second_later_are_without_what_compiles():
    log = [
        {"first_step": 5.0, "training_time": 10.0},
        {"first_step": 5.0, "training_time": 15.0},
        {"first_step": 5.0, "training_time": 20.0},
    ]
    run = SimpleNamespace(images=300, epochs=3, batchsize=10, workers=2, train_seconds=20.0, log=log)
    assert other_frameworks.steady(run) == pytest.approx(300 * 2 / 3 / 10)
    run.images, run.epochs, run.train_seconds, run.log = 100, 1, 10.0, log[:1]
    assert other_frameworks.steady(run) == (100 - 20) / 5
    run.log = [{}]
    assert other_frameworks.steady(run) == 100 / 10
    run.epochs, run.seconds, run.log = 2, 14.0, [{"elapsed_time": 8.0}, {"elapsed_time": 14.0}]
    assert other_frameworks.steady(run) == 50 / (6 - 2), "without the two seconds of an epoch's evaluation"


def test_lines_that_differ_are_those_a_reader_would_count(tmp_path):
    exercises = tmp_path / "07_frameworks"
    exercises.mkdir()
    (tmp_path / "one.py").write_text('"""One."""\nimport a\n\nx = 1\ny = 2  # why\nprint(x + y)\n')
    (exercises / "two.py").write_text('"""Two."""\nimport a\nimport b\n\nx = b.c()\ny = 2\nprint(x + y)\n')
    assert other_frameworks.differing(tmp_path, ["07_frameworks/two.py"], "one.py") == "2 of 5"
