"""A watcher for one rank. It names the rank if that is killed (when memory runs out, for instance), which the rank itself can't.

mpiexec ends all ranks when one dies, and doesn't say which it was. The watcher is the process that mpiexec started; the rank goes on as
its child, and the watcher prints how the child ended before mpiexec notices.
"""

import os
import signal
import sys
import threading


def watch(name):
    """Fork: the parent becomes the watcher of rank `name` and never returns, the child returns. Call before MPI or CUDA start."""
    sys.stdout.flush()
    sys.stderr.flush()
    watcher_lives, held_by_watcher = os.pipe()
    rank = os.fork()
    if rank == 0:
        os.close(held_by_watcher)
        threading.Thread(target=_end_with_watcher, args=(name, watcher_lives), daemon=True).start()
        return
    os.close(watcher_lives)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: os.kill(rank, number))
    status = os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1])
    if status == -signal.SIGALRM:  # the communicator sets this alarm, because the start of MPI has no limit of its own
        print(f"{name} has waited in vain for the other ranks to start", file=sys.stderr, flush=True)
    elif status < 0:
        print(f"{name} was killed by {signal.Signals(-status).name}; all ranks end", file=sys.stderr, flush=True)
    os._exit(status if status >= 0 else 128 - status)


def _end_with_watcher(name, watcher_lives):
    os.read(watcher_lives, 1)  # returns when the watcher has ended, however it ended
    print(f"{name} was killed; all ranks end", file=sys.stderr, flush=True)
    os._exit(1)
