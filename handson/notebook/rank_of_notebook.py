"""The code of a notebook's rank besides running cells: it joins the other ranks in a process group or a communicator,
writes its stack when asked for its location, and frees itself from a collective that hangs. Runs in ipyparallel's
engines, called by handson.notebook.live_ranks."""

import faulthandler
import os
import signal
import socket
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

from IPython import get_ipython

from handson.cluster.nodes import current_node
from handson.training import launch

LET_GO = "let_go"  # a file in the folder of the ranks: when it is touched, waiting collectives end
LOOK = 0.2  # seconds between looks at this file
_sockets = []  # the sockets of this rank's process group


def stack_file(folder, rank):
    """Return the file to which a rank writes its stack on the signal SIGUSR1."""
    return Path(folder, f"stack_of_rank_{rank}.txt")


def begin(folder, track):
    """Join the other ranks, and create the variables that cells need. Return (rank, node). All ranks must call it,
    once. Raises TrackError."""
    launch.prepare()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    faulthandler.register(signal.SIGUSR1, open(stack_file(folder, rank), "a"))
    threading.Thread(target=_listen, args=(Path(folder, LET_GO),), daemon=True).start()
    names = get_ipython().user_ns
    names |= {"rank": rank, "local_rank": local_rank, "world_size": int(os.environ["WORLD_SIZE"])}
    if track == "chainer":
        _begin_chainer(local_rank, names)
    else:
        _begin_pytorch(local_rank, names)
    return rank, current_node()


def _begin_pytorch(local_rank, names):
    import torch
    import torch.distributed as dist

    from handson.pytorch import devices

    gpus = devices.first(int(os.environ["LOCAL_WORLD_SIZE"]))
    names |= {"torch": torch, "dist": dist, "device": devices.use(gpus[local_rank])}
    meet(int(os.environ["MASTER_PORT"]), devices.backend(gpus))


def _begin_chainer(local_rank, names):
    import handson.chainer  # noqa: F401  before chainer
    from handson.chainer import communicators, devices

    import chainer
    import chainermn

    comm = communicators.create_communicator("naive")
    names |= {"chainer": chainer, "chainermn": chainermn, "comm": comm, "device": devices.use(local_rank)}


def meet(port, backend=None):
    """Form the process group, at a port of rank 0's host, and destroy an earlier group. backend: None for that of the
    earlier group."""
    import torch.distributed as dist

    if dist.is_initialized():
        backend = backend or dist.get_backend()
        with suppress(RuntimeError):  # its connections are closed
            dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(port)
    before = set(_connections())
    dist.init_process_group(backend)
    _sockets[:] = set(_connections()) - before


def _connections():
    """Yield the descriptors of this process's TCP connections, except those to the store of the process group."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with socket.socket(fileno=os.dup(descriptor)) as found:
                    if found.family in (socket.AF_INET, socket.AF_INET6):
                        ports = found.getsockname()[1], found.getpeername()[1]  # a listener has no peer: OSError
                        if int(os.environ["MASTER_PORT"]) not in ports:
                            yield descriptor


def _listen(file):
    """Whenever `file` is touched, end the collective in which this rank's main thread waits. End this rank when the
    folder of the ranks is gone, because the notebook has then ended."""
    seen = file.stat().st_mtime_ns if file.exists() else 0
    while True:
        time.sleep(LOOK)
        if not file.parent.is_dir():
            os._exit(1)
        with suppress(OSError):
            asked = file.stat().st_mtime_ns
            if asked != seen:
                seen = asked
                _let_go()


def _let_go():
    """End the collectives in which this rank waits: gloo's end with an error when their connections close, and NCCL's
    when the group is aborted."""
    import torch
    import torch.distributed as dist

    if torch.cuda.is_initialized() and dist.get_backend() == "nccl":
        dist.group.WORLD._get_backend(torch.device("cuda")).abort()
    for descriptor in _sockets:
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            connection.shutdown(socket.SHUT_RDWR)
