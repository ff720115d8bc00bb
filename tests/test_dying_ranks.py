"""Whatever ends a rank, and whatever has started it: all ranks end within seconds, a sentence names the rank, nothing is
left running.

The programs here do what training scripts do, but for the training. They run under the real mpiexec and torchrun, or
start their ranks by torch.multiprocessing.spawn.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from environments import QUICK_START
from waiting import PATIENCE, wait_until

from handson import linux
from handson.training import progress

SECONDS_TO_END = 30  # for all ranks, once one has failed; a few on a machine that has nothing else to do
PROGRAMS = sysconfig.get_path("scripts")

# A rank meets the others again and again. What a test writes into the file `way` happens to rank 1.
RANK = """
import os, signal, sys, time
from pathlib import Path
from handson.training.launch import launcher_rank
from handson.training import options, progress, rank_watcher

def live(rank, args, meet):
    progress.begin(args.patience)
    (args.out / f"rank{rank}").write_text(f"{os.getpid()}\\n")
    while True:
        meet()  # the collective
        progress.progress()
        if rank == 1 and (args.out / "way").exists():
            exec((args.out / "way").read_text())
"""
TORCH = """
def train(rank, args):
    dist.init_process_group("gloo", f"file://{args.out}/meeting", rank=rank, world_size=2)
    live(rank, args, lambda: dist.all_gather_object([None, None], 0))
"""
RANKS_OF_TORCH = f"""{RANK}
rank_watcher.watch()
import torch.distributed as dist
{TORCH}
train(launcher_rank(), options.parse(gpus=None))
"""
SPAWNED = f"""{RANK}
import torch.distributed as dist, torch.multiprocessing
{TORCH}
def worker(rank, args):
    rank_watcher.watch(rank)
    train(rank, args)

if __name__ == "__main__":
    torch.multiprocessing.spawn(worker, (options.parse(gpus=[0, 1]),), nprocs=2)
"""
RANKS_OF_CHAINER = f"""{RANK}
import handson.chainer
from handson.chainer.communicators import create_communicator
from handson.training.all_ranks import all_ranks_end_together
with all_ranks_end_together():
    args = options.parse(gpus=None)
    comm = create_communicator("naive")
    live(comm.rank, args, lambda: comm.allreduce_obj(0))
"""
MPIEXEC = [f"{PROGRAMS}/mpiexec", "-n", "2", sys.executable]
# By itself it looks after its ranks ten times a second, and may end one before that has said why it ends.
TORCHRUN = [sys.executable, *"-m torch.distributed.run --standalone --nproc-per-node=2 --monitor-interval=1".split()]
LAUNCHERS = {
    "mpiexec": (MPIEXEC, RANKS_OF_TORCH),
    "mpiexec, Chainer": (MPIEXEC, RANKS_OF_CHAINER),
    "torchrun": (TORCHRUN, RANKS_OF_TORCH),
    "spawn": ([sys.executable], SPAWNED),
}
# how rank 1 ends -> what it executes, what is printed
WAYS = {
    "is killed": (
        "os.kill(os.getpid(), signal.SIGKILL)",
        r"^(\S+: )?rank 1 on \S+ was killed by SIGKILL; all ranks end$",
    ),
    "aborts": ("os.abort()", r"^(\S+: )?rank 1 on \S+ was killed by SIGABRT; all ranks end$"),
    "raises": ("raise ArithmeticError('the sum is wrong')", r"^(\S+: )?rank 1 on \S+ failed.*; all ranks end$"),
    "has a sentence": (
        "from handson.errors import TrackError\nraise TrackError('there is no file x')",
        r"^program.py: rank 1 on \S+: there is no file x$",
    ),
    "leaves": (
        "sys.exit('rank 1 leaves')",
        r"^(\S+: )?rank 1 on \S+ ended with ('rank 1 leaves'|status 1); all ranks end$",
    ),
    "leaves at once": ("os._exit(3)", r"^(\S+: )?rank 1 on \S+ ended with status 3; all ranks end$"),
    "is stopped": (
        "os.kill(os.getpid(), signal.SIGSTOP)",
        r"^rank 1 on \S+ has finished no step for 3 s: it is stopped \(`kill -CONT \d+` would let it go on\)$",
    ),
    "hangs": ("time.sleep(1000)", r"^rank 1 on \S+ has finished no step for 3 s: it is in program.py, line \d+$"),
}
pytestmark = pytest.mark.thorough


class Run:
    """Two ranks that do nothing but meet, again and again, until something happens to them."""

    def __init__(self, folder, launcher):
        self.out, self.launcher = folder / "out", launcher
        self.out.mkdir()
        self.command, text = LAUNCHERS[launcher]
        self.program = folder / "program.py"
        self.program.write_text(text)

    def begin(self, *words, command=None):
        command = command or [*self.command, str(self.program), "-o", str(self.out), *words]
        self.process = subprocess.Popen(
            command,
            cwd=self.out.parent,
            env=os.environ | QUICK_START | {"OMP_NUM_THREADS": "1", "TEST_RUN": str(self.out)},
            text=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def wait_for_ranks(self):
        """Wait until both ranks work; returns their process ids."""
        files = [self.out / "rank0", self.out / "rank1"]

        def here():
            assert self.process.poll() is None, self.process.communicate()
            return all(file.exists() and file.read_text().endswith("\n") for file in files)

        wait_until(here, "both ranks work")
        return [int(file.read_text()) for file in files]

    def happens(self, code):
        (self.out / "part").write_text(code)
        (self.out / "part").rename(self.out / "way")

    def end(self):
        """Wait for the end, which comes soon; returns status and errors. Nothing of the run is left then."""
        begin = time.monotonic()
        _, errors = self.process.communicate(timeout=PATIENCE)
        assert time.monotonic() - begin < SECONDS_TO_END
        wait_until(lambda: not self.processes(), lambda: f"nothing is left: {self.processes()}")
        return self.process.returncode, errors

    def processes(self):
        """All processes of this run, known by their environment: mpiexec's ranks are in sessions of their own."""
        return [
            process for process in linux.every_pid() if f"TEST_RUN={self.out}".encode() in words(process, "environ")
        ]

    def watcher(self, rank):
        return next(
            process for process in linux.children(rank) if b"rank_sidecar" in b"".join(words(process, "cmdline"))
        )

    def clean_up(self):
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def words(process, file):
    try:
        return Path(f"/proc/{process}/{file}").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return []


@pytest.fixture
def run(tmp_path, request):
    run = Run(tmp_path, request.param)
    yield run
    run.clean_up()


def started_by(*names):
    return pytest.mark.parametrize("run", names, indirect=True)


@started_by(*LAUNCHERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_ends_is_named_and_all_end(run, way):
    code, sentence = WAYS[way]
    patience = "3" if way in ("is stopped", "hangs") else "100"
    run.begin("--patience", patience)
    run.wait_for_ranks()
    run.happens(code)
    status, errors = run.end()
    lost = run.launcher == "torchrun" and re.search(r"rank 0 on \S+ lost its connection to another rank", errors)
    # torchrun has a report of its own, and ends one rank while the other one, or its watcher, is about to say why
    assert status != 0 and (re.search(sentence, errors, re.MULTILINE) or lost and "local_rank: 1" in errors), errors
    assert len(re.findall("rank 1 on", errors)) <= 1 or run.launcher == "spawn", errors
    if run.launcher != "torchrun":
        assert errors.count("Traceback (") == (way == "raises"), errors
        assert errors.count("ArithmeticError: the sum is wrong\n") == (way == "raises")
    if patience == "3":
        assert re.search(
            r"^rank 0 on \S+ has finished no step for 3 s: it waits in program.py, line \d+, in (all_gather_object|allreduce_obj)$",
            errors,
            re.MULTILINE,
        ), errors


@started_by(*LAUNCHERS)
def test_the_watcher_of_a_rank_may_be_killed_too(run):
    """The run goes on, and ends as it would have done."""
    run.begin()
    _, rank = run.wait_for_ranks()
    os.kill(watcher := run.watcher(rank), signal.SIGKILL)
    wait_until(lambda: not linux.runs(watcher), "the watcher has ended")
    run.happens(WAYS["raises"][0])
    status, errors = run.end()
    assert status != 0 and errors.count("ArithmeticError: the sum is wrong\n") == 1, errors


@started_by("mpiexec", "mpiexec, Chainer", "spawn")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_whoever_ends_the_run_ends_all_ranks(run, number):
    """As qdel does, or Ctrl-C, or a machine without memory."""
    run.begin()
    run.wait_for_ranks()
    os.killpg(run.process.pid, number) if number == signal.SIGINT else os.kill(run.process.pid, number)
    status, errors = run.end()
    assert status != 0
    if number == signal.SIGINT:
        assert "Traceback" not in errors
        assert errors.count("stopped by Ctrl-C before the end, so it leaves no result\n") == 1, errors


@started_by("mpiexec", "mpiexec, Chainer")
def test_ranks_do_not_outlive_mpiexecs_own_process_on_their_node(run):
    """On another node, mpiexec cannot end them without it."""
    run.begin()
    ranks = run.wait_for_ranks()
    [proxy] = {linux.parent(rank) for rank in ranks}
    os.kill(proxy, signal.SIGKILL)
    wait_until(lambda: not any(map(linux.runs, ranks)), "both ranks have ended")
    run.process.kill()
    run.end()


@started_by("mpiexec", "mpiexec, Chainer")
@pytest.mark.parametrize("where", ["this node has", "another node have"])
def test_ranks_do_not_wait_for_ever_for_one_that_never_starts(run, where):
    """mpiexec doesn't mind a program that ends before it has called MPI, and the others wait for it. On another node,
    nobody is left to notice it."""
    run.program.write_text("import os, sys\nif os.environ['PMI_RANK'] == '1': sys.exit(3)\n" + run.program.read_text())
    hosts = "-launcher fork -hosts one,other -ppn 1".split() if where == "another node have" else []
    run.begin(command=[MPIEXEC[0], *hosts, *MPIEXEC[1:], str(run.program), "-o", str(run.out)])
    status, errors = run.end()
    assert status != 0 and errors.count("\n") == 1
    assert re.match(
        rf"rank 0 on \S+ waits for ranks that cannot start, since .*{where} ended before; all ranks end$", errors
    ), errors


def test_a_watcher_hears_the_status_that_the_system_keeps(monkeypatch):
    told = []
    monkeypatch.setattr(progress, "tell", told.append)
    for status in (0, 2, -1, 256):
        progress.tell_end(status)
    assert told == [progress.EXPLAINED + heard for heard in (0, 2, 100, 0)]
