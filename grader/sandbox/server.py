"""The server process: it has loaded the libraries, and forks a watcher for every piece of work that it receives, one at
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
    """The reason why this process can run nothing."""


def load(libraries):
    """Import modules for processes that are forked from this one. Raises Unloadable."""
    gc.disable()  # otherwise garbage collection would take a fifth of the time
    for library in libraries:
        try:
            importlib.import_module(library)
        except Exception as error:  # also OSError, if a library of CUDA is missing
            raise Unloadable(
                f"{library} cannot be imported ({type(error).__name__}: {str(error).strip() or '?'}): run `make"
                " environment`; `python -m handson doctor` says whether this torch is one that the course was tested"
                " with"
            ) from error
    # otherwise a garbage collection in a forked rank would write to all loaded objects, and so copy their memory
    gc.freeze()
    gc.enable()


def serve(connection):
    """Fork a watcher for each piece of work that arrives on a connection, until the connection ends."""
    linux.adopt_orphans()
    # from now on, the server ends after its watchers when its caller closes the connection
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sandbox.bound_together(sandbox.Limits())  # this also tries the sandbox's layers once, for all watchers forked later
    while (work := protocol.read(connection)) is not None:
        watcher = os.fork()
        if watcher == 0:
            _watcher(connection, work)
        # later watchers start as copies of this process, in which earlier students' code must not be in memory
        work[:] = bytes(len(work))
        if not _wait(watcher, connection):
            return


def refuse(connection, why):
    """Answer each piece of work that arrives on a connection with the fault `why`."""
    while protocol.read(connection) is not None:
        connection.sendall(protocol.pack({"fault": str(why)}))


def _watcher(connection, work):
    """Run the work as the watcher, answer, and end."""
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
    # select.select cannot wait for descriptors above 1023, which a caller may have
    ended, either = os.pidfd_open(watcher), select.poll()
    try:
        either.register(ended, select.POLLIN)
        either.register(connection, select.POLLIN)
        # otherwise the caller has sent its next piece of work
        gone = ended not in dict(either.poll()) and not connection.recv(1, socket.MSG_PEEK)
        if gone:
            os.kill(watcher, signal.SIGKILL)
        _, status = os.waitpid(watcher, 0)
    finally:
        os.close(ended)
        watch_ranks.end_children()  # the processes of a watcher that was killed
    if status and not gone:
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL  # a student's code cannot send it
        connection.sendall(
            protocol.pack(
                {"fault": "the system killed the process that watches the ranks"} if killed else {"died": True}
            )
        )
    return not gone


if __name__ == "__main__":
    linux.end_with_parent()  # also while it imports modules
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C in its terminal
    with socket.socket(fileno=int(sys.argv[1])) as caller:
        try:
            load(sys.argv[2:])
        except Unloadable as why:
            refuse(caller, why)
        else:
            serve(caller)
