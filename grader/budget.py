"""The limit on all runs of one file. Each run has its own limits (grader.run_probes.LIMITS), but a file has many gaps,
and code that stays just below every limit could occupy an engine for ten minutes. grader.judging uses it for each
file."""

from dataclasses import replace

from grader.sandbox import Outcome, RankOutcome
from grader.verdict import TIMEOUT

PLENTY = 20  # seconds of computing and waiting; typical submissions need a few
SHORT = 3  # seconds that a run may compute, and wait, after PLENTY; a right gap needs less than one
ALL = 60  # seconds after which no code of a file runs


class Budgeted:
    """A server (grader.sandbox.Server) that counts the seconds in which a student's code computes or waits. On a busy
    machine, the time in which it is ready to compute and waits for a core does not count."""

    def __init__(self, server):
        self.server, self.used = server, 0.0

    def run(self, function, arguments=(), ranks=1, limits=None, readable=None):
        """Run like Server.run. A run without `limits`, that of an oracle, is not counted."""
        if limits is None:
            return self.server.run(function, arguments, ranks, limits, readable)
        if self.used > ALL:
            return Outcome(
                [
                    RankOutcome(
                        TIMEOUT,
                        message=(
                            f"this gap was not run, because the code of this file has already used {self.used:.0f}"
                            " seconds"
                        ),
                    )
                ]
                * ranks
            )
        if self.used > PLENTY:
            limits = replace(
                limits, cpu_seconds=min(limits.cpu_seconds, SHORT), waiting_seconds=min(limits.waiting_seconds, SHORT)
            )
        outcome = self.server.run(function, arguments, ranks, limits, readable)
        self.used += outcome.cpu_seconds + outcome.waited_seconds
        return outcome
