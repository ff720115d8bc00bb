"""The process that has the libraries loaded: forks a box for every piece of work that comes, one at a time.

Usage: python -m grader.box.server DESCRIPTOR MODULE... (a connected socket; what to import). Ends when its caller does.
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
from grader.box import messages, watch
from handson import linux


def load(libraries):
    """Import modules, for processes that are forked from this one."""
    gc.disable()  # a fifth of the time
    for library in libraries:
        importlib.import_module(library)
    gc.freeze()  # a collection in a rank would touch, and so copy, all that was loaded
    gc.enable()


def serve(connection):
    """Fork a box for each piece of work that comes over a connection, until that ends."""
    linux.adopt_orphans()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from now on it ends when its caller hangs up, after all that it runs
    sandbox.bound_together(sandbox.Limits())  # its layers are tried once, and known to all boxes
    while (work := messages.read(connection)) is not None:
        box = os.fork()
        if box == 0:
            _box(connection, work)
        work[:] = bytes(len(work))  # later boxes begin as copies of this process: what is left of earlier ones could be found there
        if not _wait(box, connection):
            return


def _box(connection, work):
    """Be the box: run the work, answer, end."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        answer = watch.run(messages.unpack(bytes(work)))
    except BaseException:
        answer = {"fault": traceback.format_exc()}
    try:
        connection.sendall(messages.pack(answer))
    finally:
        os._exit(0)


def _wait(box, connection):
    """Until the box has ended; kills it, and returns False, when the caller has gone."""
    ended = os.pidfd_open(box)
    try:
        ready, _, _ = select.select([ended, connection], [], [])
        gone = ended not in ready and not connection.recv(1, socket.MSG_PEEK)  # what can be read may be the next piece of work
        if gone:
            os.kill(box, signal.SIGKILL)
        _, status = os.waitpid(box, 0)
    finally:
        os.close(ended)
        watch.end_children()  # whose box was killed
    if status and not gone:
        connection.sendall(messages.pack({"died": True}))
    return not gone


if __name__ == "__main__":
    linux.end_with_parent()  # also while it still imports
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller's terminal means the caller
    with socket.socket(fileno=int(sys.argv[1])) as caller:
        load(sys.argv[2:])
        serve(caller)
