"""The server process: it has the libraries loaded, and forks a watcher for every piece of work that it receives, one at
a time.

Usage: python -m grader.sandbox.server DESCRIPTOR MODULE... (a connected socket; the modules to import). It ends when
its caller ends.
"""

import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback

from grader import sandbox
from grader.sandbox import protocol, watch_ranks
from handson import linux
from handson.errors import OneSentence


class Unloadable(OneSentence, ImportError):
    """Why this process can run nothing."""


def load(libraries):
    """Import modules, for processes that are forked from this one. Raises Unloadable."""
    gc.disable()  # garbage collection would take a fifth of the time
    for library in libraries:
        try:
            importlib.import_module(library)
        except Exception as error:  # also OSError, where a library of CUDA is missing
            raise Unloadable(
                f"{library} cannot be imported ({type(error).__name__}: {str(error).strip() or '?'}): run `make"
                " environment`; `python -m handson doctor` says whether this torch is one that the course was tested"
                " with"
            ) from error
    # else a garbage collection in a forked rank would write to all loaded objects, and so copy their memory
    gc.freeze()
    gc.enable()


def serve(connection):
    """Fork a watcher for each piece of work that a connection brings, until the connection ends."""
    linux.adopt_orphans()
    # from now on the server ends when its caller closes the connection, after its watchers
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sandbox.bound_together(sandbox.Limits())  # this also tries the sandbox's layers once, for all watchers forked later
    while (work := protocol.read(connection)) is not None:
        watcher = os.fork()
        if watcher == 0:
            _watcher(connection, work)
        # later watchers begin as copies of this process: they must not find earlier students' code in memory
        work[:] = bytes(len(work))
        if not _wait(watcher, connection):
            return


def refuse(connection, why):
    """Answer each piece of work that a connection brings with the fault `why`, at once."""
    while protocol.read(connection) is not None:
        connection.sendall(protocol.pack({"fault": str(why)}))


def _watcher(connection, work):
    """Be the watcher: run the work, answer, end."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        answer = watch_ranks.run(protocol.unpack(bytes(work)))
    except OneSentence as problem:
        answer = {"fault": str(problem)}
    except BaseException:
        answer = {"fault": traceback.format_exc()}
    try:
        connection.sendall(protocol.pack(answer))
    finally:
        os._exit(0)


def _wait(watcher, connection):
    """Wait until the watcher has ended. If the caller has closed the connection, kill the watcher and return False."""
    # not select.select, which can't wait for descriptors above 1023: a caller may have so many
    ended, either = os.pidfd_open(watcher), select.poll()
    try:
        either.register(ended, select.POLLIN)
        either.register(connection, select.POLLIN)
        # else the caller has sent its next piece of work
        gone = ended not in dict(either.poll()) and not connection.recv(1, socket.MSG_PEEK)
        if gone:
            os.kill(watcher, signal.SIGKILL)
        _, status = os.waitpid(watcher, 0)
    finally:
        os.close(ended)
        watch_ranks.end_children()  # the processes of a watcher that was killed
    if status and not gone:
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL  # no student's code can send that
        connection.sendall(
            protocol.pack(
                {"fault": "the system killed the process that watches the ranks"} if killed else {"died": True}
            )
        )
    return not gone


if __name__ == "__main__":
    linux.end_with_parent()  # also while it is still importing
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the caller's terminal is for the caller
    with socket.socket(fileno=int(sys.argv[1])) as caller:
        try:
            load(sys.argv[2:])
        except Unloadable as why:
            refuse(caller, why)
        else:
            serve(caller)
