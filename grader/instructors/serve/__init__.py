"""Runs on the instructor's machine. Students receive it: no.

``python -m grader serve DIR``: serve the report and the feedback as live pages on this computer. A person can adjust
grades, comment on gaps, and grade a student again, also while a grader runs.

The server listens only on 127.0.0.1. A browser needs the token that it prints, and then gets a cookie.
"""

import asyncio
import errno
import secrets
import signal

import tornado.httpserver
import tornado.netutil

from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import scores_of
from grader.instructors.serve.desk import Desk
from grader.instructors.serve.handlers import application
from handson.errors import OneSentence

HOST = "127.0.0.1"


class ServeError(OneSentence, OSError):
    """The reason why there are no live pages."""


def serve(folder, port, engines, trusted, say=print):
    """Serve the pages on the gradebook in `folder` until Ctrl-C. engines, trusted: for grading again. Raises
    OneSentence errors."""
    with Gradebook(folder, writing=False) as book:
        scores_of(book)  # raises if there is no gradebook, or if a rule of the course is invalid
    asyncio.run(_serve(folder, port, engines, trusted, say))


async def _serve(folder, port, engines, trusted, say):
    try:
        sockets = tornado.netutil.bind_sockets(port, HOST)
    except (OSError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise ServeError(
                f"port {port} is in use, perhaps by another `serve`: choose another with --port, or --port 0 for any"
                " free one"
            ) from None
        raise ServeError(
            f"port {port} can't be used ({getattr(error, 'strerror', None) or error}): choose another with --port"
        ) from None
    port = sockets[0].getsockname()[1]
    token, ended, loop = secrets.token_urlsafe(24), asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    desk = Desk(folder, engines, trusted)
    server = tornado.httpserver.HTTPServer(application(desk, token, port), max_body_size=1_000_000)
    server.add_sockets(sockets)
    say(
        f"The pages are at http://{HOST}:{port}/?token={token}\nKeep this address private: anybody who has it can"
        " change grades. Ctrl-C ends it."
    )
    keeping = asyncio.create_task(desk.keep_reports())
    try:
        await ended.wait()
    finally:
        server.stop()
        await server.close_all_connections()
        say(await desk.end(keeping))
