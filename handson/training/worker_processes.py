"""Worker processes leave Ctrl-C to the process that started them, and don't outlive it. Both tracks start theirs with
this."""

import contextlib
import multiprocessing
import os
import signal

from handson import linux


@contextlib.contextmanager
def deaf_to_ctrl_c():
    """Processes that are started in this block never notice Ctrl-C. Their parent notices it when the block is over."""
    pressed = []
    handler = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    # children inherit this; other threads of this process may still get the signal
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, handler)
    if pressed:
        signal.raise_signal(signal.SIGINT)


def end_with_parent():
    """End this process with the one that started it."""
    linux.end_with_parent()
    parent = multiprocessing.parent_process()  # None while this process is still being started: then its start fails
    if parent and not parent.is_alive():
        os._exit(1)


def kill_all():
    """Kill all processes that this one has started by multiprocessing."""
    for process in multiprocessing.active_children():
        process.kill()
