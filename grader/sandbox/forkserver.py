"""Load libraries once for all servers on a machine: a process that has loaded them forks a server for each client that
connects.

Usage: python -m grader.sandbox.forkserver DESCRIPTOR MODULE... (a listening socket; the modules to import). It ends
when its parent ends.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass

from grader.sandbox.client import Server, begin
from grader.sandbox.server import Unloadable, load, refuse, serve
from handson import linux


@dataclass
class Forked(Server):
    """A server forked by the process that listens in `folder`. If no process listens there, the server loads the
    libraries itself."""

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
    """Context manager with a process that loads `libraries` and forks servers for every process that can open `folder`.
    It does not wait for the loading."""
    with socket.socket(socket.AF_UNIX) as listening:
        _at(folder, libraries, listening.bind)
        listening.listen()
        process = begin(
            "grader.sandbox.forkserver", listening, libraries, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _at(folder, libraries, call):
    """Call a function with the socket's path. The path must be short, so it goes through /proc, because `folder` may be
    long."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        call(f"/proc/self/fd/{descriptor}/{libraries[-1]}")
    finally:
        os.close(descriptor)


def fork_servers(listening, libraries):
    """Load the libraries, then fork a server for every connection. Never returns."""
    unloadable = None
    try:
        load(libraries)
    except Unloadable as why:
        unloadable = why
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes servers that have ended
    while True:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                refuse(connection, unloadable) if unloadable else serve(connection)
            finally:
                os._exit(0)
        connection.close()


if __name__ == "__main__":
    linux.end_with_parent()
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        fork_servers(listening, sys.argv[2:])
