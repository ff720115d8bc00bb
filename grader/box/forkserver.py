"""Libraries that are loaded once for all servers on a machine: a process that has them forks one for everybody who connects.

Usage: python -m grader.box.forkserver DESCRIPTOR MODULE... (a socket that listens; what to import). Ends when its starter does.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass

from grader.box.client import Server, begin
from grader.box.server import load, serve
from handson import linux


@dataclass
class Forked(Server):
    """A server from the process that shares its libraries in `folder`; where there is none, it loads them itself."""

    folder: str = ""

    def start(self):
        if self.connection is None:
            connection = socket.socket(socket.AF_UNIX)
            try:
                _at(self.folder, self.libraries, connection.connect)
                self.connection = connection
            except OSError:
                connection.close()
        if self.connection is None or self.process:
            super().start()


@contextmanager
def started(folder, libraries):
    """While `libraries` are loaded, and then shared with whoever may look into `folder`. Waits for nothing."""
    with socket.socket(socket.AF_UNIX) as listening:
        _at(folder, libraries, listening.bind)
        listening.listen()
        process = begin("grader.box.forkserver", listening, libraries, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _at(folder, libraries, call):
    """Call a function with the socket's path; it is short, as a socket's must be, however long that of the folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        call(f"/proc/self/fd/{descriptor}/{libraries[-1]}")
    finally:
        os.close(descriptor)


def fork_servers(listening, libraries):
    """Be the process that has the libraries."""
    load(libraries)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how servers end
    while True:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                serve(connection)
            finally:
                os._exit(0)
        connection.close()


if __name__ == "__main__":
    linux.end_with_parent()
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        fork_servers(listening, sys.argv[2:])
