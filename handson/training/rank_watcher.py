"""Start a watcher for one rank: a small separate process, `rank_sidecar`, which reports events that the rank cannot
report: that it was killed, is stopped, or makes no progress.

mpiexec ends all ranks when one dies, and does not print which one it was. The rank remains the process that mpiexec,
torchrun, srun or multiprocessing started, and is never forked, because a process with threads or CUDA must not be.
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

# Users and launchers send these signals to all processes of a rank, but only the rank should handle them. SIGKILL also
# ends the watcher: if mpiexec kills the remaining ranks and their watchers, these report nothing.
TO_THE_RANK = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
trained = False  # whether this process has run a step in a process group
START = "import sys; sys.path.append(sys.argv.pop()); from handson.training import rank_sidecar; rank_sidecar.main()"


def name(rank=None):
    """Return the name of this rank in messages."""
    return f"rank {launcher_rank() if rank is None else rank} on {current_node()}"


def watch(worker=None):
    """Start the watcher of this rank, before MPI or CUDA start.

    worker: the rank of a process that multiprocessing has started. Such a process leaves Ctrl-C to its parent, which
    also reports how it has died, and ends with its parent.
    """
    if progress.is_watched():
        return
    if worker is not None:
        # Not SIG_IGN: torch.multiprocessing makes the kernel send SIGINT when the parent dies, instead of the signal
        # that end_with_parent chooses. The watcher receives it, and ends a rank that does not end soon after.
        signal.signal(signal.SIGINT, lambda *_: None)
        end_with_parent()
    note = progress.Note()
    heard, wakeup = os.pipe()  # carries the numbers of signals; when it closes, the rank has ended
    os.set_blocking(wakeup, False)
    role = "worker" if worker is not None else "other" if launcher_rank() else "first"
    rank = sys.argv[0], name(worker), role, os.getpid(), os.getppid(), heard, note.descriptor, COURSE
    # The watcher needs only the standard library, and starts twice as fast without site-packages. It inherits the
    # rank's connection to mpiexec, which therefore sees the rank's death only after the watcher has reported it.
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
    # written immediately, even if Python waits in a library and cannot raise KeyboardInterrupt yet
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    end_in_time()


def end_in_time():
    """Make this rank end before Python's own clean-up, if it has run steps in a process group and has left it.
    Otherwise a gloo thread may still free the last all-reduce, which holds a Python object: it waits forever, or C++
    prints "terminate called without an active exception"."""
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
    atexit._run_exitfuncs()  # the functions that were registered before this one
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
