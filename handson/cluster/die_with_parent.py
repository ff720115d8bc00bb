"""Run a Python module, and kill it and all its descendants when another process ends, so that no controller or engine
is left over. The folder with the cluster's keys is removed, too.

Usage: python -m handson.cluster.die_with_parent PID FOLDER MODULE [ARGUMENT...], as the leader of a process group.
"""

import contextlib
import os
import runpy
import select
import shutil
import signal
import sys
import threading

from handson import linux


def tie(pid, folder):
    """Remove `folder` and kill this process's group when process `pid` ends."""
    try:
        other = os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(1)
    threading.Thread(target=_wait, args=(other, folder), daemon=True).start()
    os.register_at_fork(after_in_child=linux.end_with_parent)  # the controller forks the schedulers


def _wait(other, folder):
    select.select([other], [], [])
    gone = f"{folder}-gone"
    with contextlib.suppress(OSError):  # removed first, because engines that are just starting end without it
        os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    _, pid, folder, module, *arguments = sys.argv
    tie(int(pid), folder)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
