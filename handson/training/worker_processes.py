"""Start worker processes that leave Ctrl-C to their parent, and end with it. Both tracks use it."""

import contextlib
import multiprocessing
import os
import signal

from handson import linux


@contextlib.contextmanager
def deaf_to_ctrl_c():
    """Context manager: processes that are started in this block ignore Ctrl-C. Their parent receives it after the
    block."""
    pressed = []
    handler = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    # children inherit the blocked signal; other threads of this process may still receive it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, handler)
    if pressed:
        signal.raise_signal(signal.SIGINT)


def end_with_parent():
    """End this process when its parent ends."""
    linux.end_with_parent()
    parent = multiprocessing.parent_process()  # None while this process starts; its start then fails
    if parent and not parent.is_alive():
        os._exit(1)


def kill_all():
    """Kill all processes that this one has started with multiprocessing."""
    for process in multiprocessing.active_children():
        process.kill()
