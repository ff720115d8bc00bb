"""A watcher for one rank: a small process of its own, `rank_sidecar`, which reports what the rank itself cannot: that
it was killed, is stopped, or makes no progress any more.

mpiexec ends all ranks when one dies, and does not say which one it was. The rank stays the process that mpiexec,
torchrun, srun or multiprocessing started, and is never forked: a process that has used CUDA, or has threads, must not
be.
"""

import atexit
import os
import signal
import sys

from handson.cluster.nodes import current_node
from handson.files import COURSE
from handson.training import progress
from handson.training.launch import launcher_rank
from handson.training.worker_processes import end_with_parent

# What users and launchers send to all processes of a rank is for the rank. But the watcher heeds SIGKILL: where mpiexec
# kills the remaining ranks, and their watchers, too, these do not report it.
TO_THE_RANK = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
trained = False  # whether this process has made a step in a process group
START = "import sys; sys.path.append(sys.argv.pop()); from handson.training import rank_sidecar; rank_sidecar.main()"


def name(rank=None):
    """What this rank is called."""
    return f"rank {launcher_rank() if rank is None else rank} on {current_node()}"


def watch(worker=None):
    """Start the watcher of this rank, before MPI or CUDA start.

    worker: the rank of a process that multiprocessing has started. It then leaves Ctrl-C to its parent, which also
    reports how it has died, and does not outlive it.
    """
    if progress.is_watched():
        return
    if worker is not None:
        # Not SIG_IGN: torch.multiprocessing asks for SIGINT, in place of what end_with_parent asks for, when the parent
        # dies. The watcher hears of it, and ends a rank that has not ended soon after.
        signal.signal(signal.SIGINT, lambda *_: None)
        end_with_parent()
    note = progress.Note()
    heard, wakeup = os.pipe()  # for the numbers of signals; the watcher also sees here that the rank has ended
    os.set_blocking(wakeup, False)
    role = "worker" if worker is not None else "other" if launcher_rank() else "first"
    rank = sys.argv[0], name(worker), role, os.getpid(), os.getppid(), heard, note.descriptor, COURSE
    # It needs the standard library alone, and starts in half the time without the libraries' folder. It has what
    # mpiexec gave to the rank, too: mpiexec then does not see that the rank has died before the watcher has said so.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", START, *map(str, rank)],
        os.environ,
        setsigmask=TO_THE_RANK,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            *((os.POSIX_SPAWN_DUP2, number, number) for number in (heard, note.descriptor)),
        ],
    )
    os.close(heard)
    progress.watched_by(note, wakeup)
    # written at once, even where Python has to wait for a library before it can raise KeyboardInterrupt
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    end_in_time()


def end_in_time():
    """From now on, this rank ends before Python takes itself apart, if it has made steps in a process group and has
    left that: a gloo thread may then still free the last all-reduce, which holds an object of Python's. It waits for
    ever, or C++ says "terminate called without an active exception"."""
    atexit.unregister(_end)
    atexit.register(_end)


def _end():
    progress.tell(progress.ENDING)
    distributed = sys.modules.get("torch.distributed")
    if not trained or distributed.is_initialized() or hasattr(sys, "last_value"):  # an error's status is not 0
        return
    if "mpi4py.MPI" in sys.modules:
        sys.modules["mpi4py.MPI"].Finalize()
    atexit.unregister(_end)
    atexit._run_exitfuncs()  # those that were registered before this one
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
