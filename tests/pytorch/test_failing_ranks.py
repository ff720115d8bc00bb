"""Ranks that fail, are killed or cannot begin: all others end within seconds, a sentence names the rank, nothing is
left running.

The programs here do what the training scripts do, but for the training, which would only cost time. They run under the
real mpiexec and torchrun, or start workers as the multi-GPU script does. No process needs what no_compiler.py stands in
for.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from environments import QUICK_START
from ranks import SOLUTIONS

PATIENCE = 100  # seconds until a test gives up; what is measured takes a few
SECONDS_TO_END = 20  # for all ranks, once one has failed; a few on a machine that has nothing else to do

BEGIN = """
import os
import torch
import torch.distributed as dist
from handson.pytorch import devices
from handson.pytorch.communicator import announce, of_all_ranks
from handson.training import data, options, progress

def train(rank, args):
    (args.out / f"rank{rank}").write_text(f"{os.getpid()} {os.getppid()}")
    while True:
        gap = any(of_all_ranks((args.out / "gap").exists()))  # all ranks reach an open gap in the same step
        progress.progress()
        if (args.out / "fill").exists() and rank == 1:
            torch.zeros(1000, device=devices.use(0))
        if gap:
            raise NotImplementedError("PUT YOUR CODE: step")
"""
MULTI_NODE = f"""{BEGIN}
args = options.parse(gpus=devices.first)
dist.init_process_group(devices.backend(args.gpu))
train_set, test_set = data.load(args.dataset)
announce("multiple nodes", args, train_set)
train(dist.get_rank(), args)
"""
MULTI_GPU = f"""{BEGIN}
import torch.multiprocessing as mp
from handson.training import launch

def worker(rank, args):
    dist.init_process_group(devices.backend(args.gpu), rank=rank, world_size=len(args.gpu))
    train(rank, args)

if __name__ == "__main__":
    args = options.parse(gpus=[0, 1])
    data.load(args.dataset)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(launch.free_port())
    mp.spawn(worker, (args,), nprocs=len(args.gpu))
"""
PROGRAMS = sysconfig.get_path("scripts")
START = {
    "mpiexec": [f"{PROGRAMS}/mpiexec", "-n", "2", sys.executable],
    # By itself it looks after its ranks ten times a second, and may end one before that has said why it ends.
    "torchrun": [
        sys.executable,
        *"-m torch.distributed.run --standalone --nproc-per-node=2 --monitor-interval=1".split(),
    ],
    "spawn": [sys.executable],
}
pytestmark = pytest.mark.thorough


class Run:
    """Two ranks that do nothing but meet, again and again, until something happens to them."""

    def __init__(self, folder, start):
        self.out, self.start = folder / "out", start
        self.program = folder / "program.py"
        self.program.write_text(MULTI_GPU if start == "spawn" else MULTI_NODE)
        self.process = None

    def begin(self, *words, command=None, **environment):
        command = command or [*START[self.start], str(self.program), "-o", str(self.out), *words]
        environment = os.environ | QUICK_START | {"OMP_NUM_THREADS": "1", "TEST_RUN": str(self.out)} | environment
        self.process = subprocess.Popen(
            command,
            cwd=self.out.parent,
            env=environment,
            text=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def wait_for_ranks(self):
        """Wait until both ranks work; returns the process ids of each: its own, and that of its parent."""
        files = [self.out / "rank0", self.out / "rank1"]
        end = time.monotonic() + PATIENCE
        while not all(file.exists() and file.read_text().count(" ") for file in files):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end
            time.sleep(0.02)
        numbers = [[int(number) for number in file.read_text().split()] for file in files]
        assert {rank for rank, _ in numbers} <= set(self.processes())
        return numbers

    def end(self):
        """Wait for the end; returns status, output, errors. Nothing of the run is left then."""
        out, errors = self.process.communicate(timeout=PATIENCE)
        end = time.monotonic() + PATIENCE
        while self.processes():
            assert time.monotonic() < end, f"still running: {self.processes()}"
            time.sleep(0.02)
        return self.process.returncode, out, errors

    def processes(self):
        """All processes of this run, known by their environment: mpiexec's ranks are in sessions of their own."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if f"TEST_RUN={self.out}".encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
            except OSError:
                continue
        return found

    def clean_up(self):
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.fixture
def run(tmp_path, request):
    run = Run(tmp_path, request.param)
    yield run
    run.clean_up()


def start_with(*names):
    return pytest.mark.parametrize("run", names, indirect=True)


@start_with("mpiexec", "torchrun", "spawn")
def test_a_rank_whose_gpu_is_full_ends_all_with_one_sentence(run):
    run.begin("--gpu-memory", "3KB")
    run.wait_for_ranks()
    (run.out / "fill").touch()
    status, _, errors = run.end()
    # mpiexec may end with that of a rank that it has killed
    assert status == 2 if run.start == "spawn" else status != 0
    sentence = (
        r"(rank 1 on \S+|worker 1 \(GPU 1\)): virtual GPU 0 is out of memory: \w+ tried to allocate 3.9 KiB, but 3.0 KiB"
        r" of 3.0 KiB are free; in use are "
    )
    assert re.search(sentence, errors) and errors.count("out of memory") == 1, errors
    assert "Traceback" not in errors or run.start == "torchrun"  # it has a report of its own


@start_with("mpiexec")
def test_an_open_gap_is_said_once(run):
    run.begin()
    run.wait_for_ranks()
    (run.out / "gap").touch()
    status, _, errors = run.end()
    assert status and errors.count("the gap `step` is still to be filled") == 1 and "Traceback" not in errors, errors


@start_with("spawn")
def test_ctrl_c_while_workers_start_ends_them_too(run):
    run.begin()
    end = time.monotonic() + PATIENCE
    while len([process for process in run.processes() if loads_torch(process)]) < 3:
        assert time.monotonic() < end and run.process.poll() is None
        time.sleep(0.02)
    os.killpg(run.process.pid, signal.SIGINT)
    begin = time.monotonic()
    status, _, errors = run.end()
    assert time.monotonic() - begin < SECONDS_TO_END
    assert status == 130
    assert errors.endswith("program.py: stopped by Ctrl-C before the end, so it leaves no result\n")


def loads_torch(process):
    try:
        return "libtorch" in Path(f"/proc/{process}/maps").read_text()
    except OSError:
        return False


def refused(run, *arguments, **environment):
    """What a run says that must not begin: one sentence."""
    run.begin(*arguments, **environment)
    status, out, errors = run.end()
    assert status == 2, (status, out, errors)
    sentences = [
        line
        for line in errors.splitlines()
        if not line.startswith(("W1", "E1", "[W")) and "torch.distributed" not in line
    ]
    assert "Traceback (most recent call last)" not in errors
    assert len(sentences) == 1, errors
    return sentences[0]


@start_with("mpiexec")
def test_ranks_that_disagree_about_options_are_told_which(run):
    begin = [sys.executable, str(run.program), "-o", str(run.out)]
    command = [f"{PROGRAMS}/mpiexec", "-n", "1", *begin, ":", "-n", "1", *begin, "-b", "16"]
    sentence = refused(run, command=command)
    assert "rank 0 has batchsize 32, but rank 1 has 16: give all ranks the same options" in sentence


@start_with("mpiexec")
def test_a_wrong_option_of_one_rank_alone_is_said(run):
    begin = [sys.executable, str(run.program), "-o", str(run.out)]
    run.begin(command=[f"{PROGRAMS}/mpiexec", "-n", "1", *begin, ":", "-n", "1", *begin, "-b", "0"])
    status, _, errors = run.end()
    assert status != 0 and errors.count("-b/--batchsize: must be a whole number above 0") == errors.count("\n") == 1


@start_with("mpiexec")
def test_too_few_gpu_ids_for_the_ranks_of_a_node_are_refused(run):
    assert "-g names 1 GPU, but there are 2 ranks on" in refused(run, "-g", "0")


@start_with("mpiexec", "spawn")
def test_an_unknown_data_set_is_said_once(run):
    assert "there is no data set named 'digit': give the path" in refused(run, "--dataset", "digit")


@start_with("mpiexec")
def test_a_port_in_use_is_named(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"MASTER_PORT {port} is in use on" in refused(run, MASTER_PORT=str(port))


@start_with("mpiexec")
def test_an_mpiexec_of_another_mpi_is_named(run):
    """Its ranks would each believe to be alone. The variable is what such an mpiexec leaves in their environment."""
    sentence = refused(run, command=[sys.executable, str(run.program), "-o", str(run.out)], PMI_SIZE="2", PMI_RANK="0")
    assert (
        "mpiexec started 2 ranks, but each reports rank 0 of 1" in sentence
        and "put its mpiexec first on PATH" in sentence
    )


@start_with("spawn")
def test_a_gpu_that_does_not_exist_is_named(run):
    """By a training script itself, before any worker starts."""
    sentence = refused(run, command=[sys.executable, str(SOLUTIONS["multi_gpu"]), "-o", str(run.out), "-g", "0,99"])
    assert re.search(r"-g: there is no (virtual )?GPU 99; this machine has ", sentence)
