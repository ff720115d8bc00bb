"""Runs the ranks of a check in processes of their own, and says how each ended, whatever they do.

    caller -> server (libraries loaded, one thread; forks) -> box (reads, watches, kills) -> init (may be confined) -> ranks

The caller is trusted, and so are the server, the box and init; only in the ranks is a student's code run. Everything between them
goes through sockets as JSON and plain arrays of bounded size.
"""

from grader.box.client import BoxFault, Outcome, RankOutcome, Server

__all__ = ["BoxFault", "Outcome", "RankOutcome", "Server"]
