"""One process per GPU of this machine, in the manner of Chainer's MultiprocessParallelUpdater: train_cifar_multi_gpu.py
starts its workers here."""

import ctypes
import logging
import os
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import resource_tracker

import torch.distributed as dist
import torch.multiprocessing as mp
from torch.optim.optimizer import register_optimizer_step_post_hook

from handson.errors import EndTogether, OneSentence, WorkerError, in_a_sentence, say
from handson.profiling import recording
from handson.pytorch.batches import check_division
from handson.training import gpu_memory, progress, rank_watcher, step_times
from handson.training.banner import name_devices
from handson.training.worker_processes import deaf_to_ctrl_c, kill_all

TIMEOUT = timedelta(minutes=5)  # for any one collective; a step takes well under a second


def _step_ended(optimizer, *_):
    progress.progress()
    step_times.ended(
        lambda: sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])
    )


register_optimizer_step_post_hook(_step_ended)


def spawn(worker, args, train_set, test_set):
    """Run ``worker(rank, meeting, args, train_set, test_set)`` in a process for each id of `args.gpu`.

    meeting: the path of a file for init_process_group, through which the ranks find each other; they leave the group
    together. Returns when all have finished. When one fails, all are stopped, and one sentence names it; Ctrl-C stops
    them too. Ends with a sentence where the images can't be shared out.
    """
    size = len(args.gpu)
    print(name_devices(args.gpu))
    check_division(len(train_set), size, args.batchsize)
    loopback()
    # it would print a line for each process that it stops
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    sys.stdout.flush()
    resource_tracker.ensure_running()  # if the block below started it, it would unblock Ctrl-C
    with tempfile.TemporaryDirectory() as folder:
        try:
            with deaf_to_ctrl_c():
                arguments = worker, f"{folder}/meeting", args, train_set, test_set
                workers = mp.spawn(_worker, arguments, nprocs=size, join=False)
            while not workers.join():
                pass
        except KeyboardInterrupt:
            kill_all()
            raise
        except mp.ProcessExitedException as error:
            if error.exit_code == 2:
                raise SystemExit(2) from None  # the worker has printed what the user can fix
            how = f"was killed by {error.signal_name}" if error.signal_name else f"ended with status {error.exit_code}"
            raise WorkerError(
                f"worker {error.error_index} (GPU {args.gpu[error.error_index]}) {how}; all workers were stopped"
            ) from None
        except mp.ProcessRaisedException as error:
            if isinstance(sentence := in_a_sentence(error), OneSentence):
                raise sentence from None
            failure = WorkerError(
                f"worker {error.error_index} (GPU {args.gpu[error.error_index]}) failed; all workers were stopped"
            )
            failure.add_note(error.msg.strip())
            raise failure from None


def _worker(rank, worker, meeting, args, *sets):
    rank_watcher.watch(rank)
    progress.begin(args.patience)
    gpu_memory.begin(args)
    try:
        worker(rank, meeting, args, *sets)
        destroy_group()
    except OneSentence as error:
        say(f"worker {rank} (GPU {args.gpu[rank]}): {error}")
        leave(error.status)
    except RuntimeError as error:
        if lost_peer(error):
            time.sleep(10)  # meanwhile the parent names the worker that died, and stops this one
        raise


def communicator():
    """The Communicator of a process group on one node."""
    rank = dist.get_rank()
    return Communicator(rank, dist.get_world_size(), intra_rank=rank, inter_size=1, name=dist.get_backend())


def destroy_group():
    """In place of dist.destroy_process_group(), which sometimes aborts after the work is done: wait for all ranks, then
    end this process."""
    dist.barrier()
    leave(0)


@dataclass
class Communicator:
    """One rank's view: its number among all ranks (rank) and on its node (intra_rank), how many ranks there are
    (size)."""

    rank: int
    size: int
    intra_rank: int
    inter_size: int  # the number of nodes
    name: str  # of the backend, which carries the gradients

    def allgather(self, thing):
        """A list with every rank's `thing`, the same on all ranks."""
        things = [None] * self.size
        dist.all_gather_object(things, thing)
        return things

    def gather(self, thing):
        """A list with every rank's `thing` on rank 0, None on the others."""
        things = [None] * self.size if self.rank == 0 else None
        dist.gather_object(thing, things)
        return things

    def barrier(self):
        """Wait until all ranks are here."""
        dist.barrier()

    def scatter(self, parts):
        """Rank 0's `parts`, one for each rank: returns this rank's. The values of other ranks are ignored."""
        mine = [None]
        dist.scatter_object_list(mine, parts if self.rank == 0 else None, src=0)
        return mine[0]


def loopback():
    """Let gloo use the loopback interface: workers of one machine need no name resolution and no network."""
    if any(name == "lo" for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def stop_together(problem):
    """Called by all ranks: end them all, with status 2, if any has a `problem` (a sentence, or None). One sentence is
    printed."""
    problems = [problem]
    if dist.is_initialized():
        problems = [None] * dist.get_world_size()
        dist.all_gather_object(problems, problem)
    if not any(problems):
        return
    try:
        if not dist.is_initialized() or dist.get_rank() == 0:
            say(next(filter(None, problems)))
        raise EndTogether(2)
    finally:
        if dist.is_initialized():
            dist.barrier()  # when one rank ends, the others are stopped; rank 0 must have printed its sentence before


def lost_peer(error):
    """Whether `error` is what a rank sees when another has died, rather than a mistake of its own."""
    return any(sign in str(error) for sign in ("Connection closed by peer", "Connection reset by peer", "Broken pipe"))


def leave(status):
    """End this process without Python's teardown of the process group, which sometimes aborts after the work is done.

    It calls C's exit, in which MPICH signs off from mpiexec.
    """
    recording.finish()
    progress.tell(progress.EXPLAINED)
    sys.stdout.flush()
    sys.stderr.flush()
    # DTensor frees Python's objects in C's exit, for which Python's lock is held.
    library = ctypes.PyDLL if "torch.distributed.tensor" in sys.modules else ctypes.CDLL
    library(None).exit(status)
