"""The runs of one file have a budget together: a file can't hold an engine for long, and what is right in it passes
nevertheless."""

from grader import budget
from grader.budget import Budgeted
from grader.run_probes import LIMITS
from grader.sandbox import Outcome, RankOutcome
from grader.verdict import TIMEOUT


class Server:
    """Takes notes of the limits, and of nothing else."""

    def __init__(self, cpu, waited):
        self.cpu, self.waited, self.limits = cpu, waited, []

    def run(self, function, arguments, ranks, limits, readable):
        self.limits.append(limits)
        return Outcome([RankOutcome(None)] * ranks, self.cpu, self.cpu + self.waited, self.waited)


def test_an_ordinary_file_has_its_limits_for_every_run():
    server = Server(0.5, 0.2)
    budgeted = Budgeted(server)
    for _ in range(25):
        budgeted.run("probe", limits=LIMITS)
    assert server.limits == [LIMITS] * 25


def test_a_file_that_waits_or_computes_at_the_limit_gets_less_and_then_nothing():
    for cpu, waited in ((5.4, 0), (0.4, 10), (2, 2)):
        server, outcomes = Server(cpu, waited), []
        budgeted = Budgeted(server)
        while len(outcomes) < 100:
            outcomes.append(budgeted.run("probe", ranks=2, limits=LIMITS))
        seconds = sum(outcome.cpu_seconds + outcome.waited_seconds for outcome in outcomes)
        assert seconds <= budget.ALL + 2 * LIMITS.waiting_seconds
        assert server.limits[0] == LIMITS
        assert server.limits[-1].cpu_seconds == server.limits[-1].waiting_seconds == budget.SHORT
        assert [(rank.status, "has already used" in rank.message) for rank in outcomes[-1].ranks] == [
            (TIMEOUT, True)
        ] * 2


def test_oracles_are_not_counted():
    server = Server(9, 9)
    budgeted = Budgeted(server)
    for _ in range(50):
        budgeted.run("oracle")
    assert (server.limits, budgeted.used) == ([None] * 50, 0.0)
