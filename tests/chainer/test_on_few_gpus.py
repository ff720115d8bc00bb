"""Chainer's workers on GPUs, and on machines with fewer GPUs than workers: NCCL refuses them, so they take virtual GPUs
and say so. CuPy and NVML have stand-ins, since this machine may have no GPU."""

import signal
import subprocess
import sys
from types import SimpleNamespace

import handson.chainer  # noqa: F401
from handson.chainer import communicators, devices, reports

import chainer
import numpy
import pytest
from chainermn.communicators.flat_communicator import FlatCommunicator
from chainermn.extensions import AllreducePersistent

GPUS = """
import os, sys
import handson.chainer, chainer
from handson.profiling import usage
chainer.backends.cuda.available, usage.count_gpus = True, lambda: int(sys.argv[1])
chainer.training.updaters.MultiprocessParallelUpdater.available = staticmethod(lambda: True)
from handson.chainer import devices
assert devices.has_gpus() and devices.describe([0]) == "1 GPU, without cuDNN, which this CuPy does not have"
from handson.chainer import updaters
from handson.training import progress
assert progress.is_watched() == updaters.MultiprocessParallelUpdater.__module__.startswith("chainer.")
print(updaters.MultiprocessParallelUpdater.__module__, devices.describe([0, 1]), os.environ.get("CUDA_VISIBLE_DEVICES"))
"""


@pytest.mark.parametrize(
    "gpus, updater, words", [(1, "handson.chainer", "2 virtual GPUs"), (2, "chainer.training", "2 GPUs")]
)
def test_the_updater_of_several_gpus_needs_one_for_each_worker(gpus, updater, words, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("HANDSON_DEVICE", "gpu")
    command = [sys.executable, "-c", GPUS, str(gpus)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(updater) and words in done.stdout
    assert done.stdout.endswith(" \n" if gpus == 1 else "None\n"), "the workers see no GPU if they do not use one"


WORKER = """
import multiprocessing, os, signal, time
import handson.chainer
from handson.chainer import updaters
started = multiprocessing.Event()
class Worker(multiprocessing.Process):
    def run(self):
        started.set()
        time.sleep(100)
updaters.end_together(Worker)
Worker().start()
started.wait(20)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_of_chainers_updater_end_with_the_main_process():
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, "a worker that lives keeps the output open"


@pytest.mark.parametrize(
    "machines, gpus, found",
    [
        ("aa", [1, 1], (False, True)),
        ("aa", [2, 2], (True, False)),
        ("ab", [1, 1], (True, False)),
        ("ab", [1, 0], (False, False)),
        ("a", [1], (True, False)),
    ],
)
def test_ranks_that_would_share_a_gpu_are_noticed_on_all_ranks(machines, gpus, found, monkeypatch):
    monkeypatch.setattr(devices, "has_gpus", lambda: True)
    monkeypatch.setattr(communicators.nccl, "_available", True)
    comm = SimpleNamespace(allgather=lambda mine: list(zip(machines, gpus)))
    assert communicators._gpus(comm) == found


def test_what_takes_the_place_of_nccl_says_why():
    runs, why = communicators.choose("pure_nccl", "float16", has_gpus=False, shared=True)
    assert runs == "naive" and "NCCL needs a GPU for each rank" in why and "float16 on the wire" in why


def test_the_clock_of_an_evaluation_starts_when_the_gpu_has_finished_the_training_step(monkeypatch):
    done = []
    monkeypatch.setattr(devices, "has_gpus", lambda: True)
    stream = SimpleNamespace(null=SimpleNamespace(synchronize=lambda: done.append("step")))
    monkeypatch.setattr(chainer.backends.cuda, "Stream", stream)
    monkeypatch.setattr(reports.time, "perf_counter", lambda: done.append("clock") or 0)
    monkeypatch.setattr(reports.Evaluator, "evaluate", lambda self: done.append("evaluation"))
    object.__new__(reports.TimedEvaluator).evaluate()
    assert done[:3] == ["step", "clock", "evaluation"]


class OnGpu(numpy.ndarray):
    """Stands for an array of CuPy."""


class Communicator(FlatCommunicator):
    """Chainer's, whose MPI crashes on arrays of a GPU, and has two ranks of equal arrays."""

    def __init__(self):
        vars(self)["mpi_comm"] = SimpleNamespace(Bcast=self.check)

    def check(self, array):
        assert type(array) is numpy.ndarray

    def _multi_node_mean(self, sent, received):
        self.check(received)
        received[...] = (received if sent is None else sent) + 1

    def bcast_data(self, model):
        for parameter in model.params():
            self.check(parameter.array)


def test_mpi_gets_only_arrays_of_the_host_from_communicators_of_gpus(monkeypatch):
    monkeypatch.setattr(chainer.backends.cuda, "to_cpu", numpy.array)
    monkeypatch.setattr(chainer.backends.cuda, "to_gpu", lambda array: array.view(OnGpu))
    model = chainer.Sequential(chainer.links.BatchNormalization(3))
    for parameter in model.params():
        parameter.array = parameter.array.view(OnGpu)
    model[0].avg_mean = numpy.arange(3, dtype="f").view(OnGpu)
    sums = numpy.zeros(3, "f").view(OnGpu)
    communicator = Communicator()
    communicators.send_through_host(communicator)
    communicator.bcast_data(model)
    AllreducePersistent(model, communicator)()
    communicator._multi_node_mean(model[0].avg_mean, sums)
    assert (model[0].avg_mean.tolist(), sums.tolist()) == ([1, 2, 3], [2, 3, 4])
