"""Runs the ranks of a check in processes of their own, and reports how each rank ended, whatever it did.

    caller -> server (libraries loaded, one thread; forks) -> box (reads, watches, kills) -> init (may be confined) -> ranks

The caller, the server, the box and init are trusted: a student's code runs only in the ranks. All these processes exchange JSON and
plain arrays of bounded size through sockets.
"""

from grader.box.client import BoxFault, Outcome, RankOutcome, Server

__all__ = ["BoxFault", "Outcome", "RankOutcome", "Server"]
