"""For all tests: signals as in a terminal, which tests are quick, and the order in which several processes share the files."""

import signal
from collections import Counter

from xdist.scheduler import LoadFileScheduling

SLOWEST = 5  # files that are named at the end of a run
TOGETHER = ("tests/slurm/", "tests/grader/test_sandbox_")  # files that share a process: one Slurm; and a user whose processes are counted

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background; what tests start would ignore Ctrl-C, too
    signal.signal(signal.SIGINT, signal.default_int_handler)


class ByFile(LoadFileScheduling):
    """The tests of a file run one after the other in one process: they share what is started once for all of them."""

    def _split_scope(self, nodeid):
        return next((start for start in TOGETHER if nodeid.startswith(start)), super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(items):
    """Mark all tests `quick` but the slow ones. Files with slow tests come first, so that all processes end at about the same time."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    for item in items:
        if not item.get_closest_marker("slow"):
            item.add_marker("quick")


def pytest_terminal_summary(terminalreporter):
    """Name the files that took the longest, so that whoever adds to them sees it."""
    seconds = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "duration")):
        seconds[report.nodeid.split("::")[0]] += report.duration
    for file, spent in seconds.most_common(SLOWEST):
        terminalreporter.write_line(f"{spent:5.0f} s  {file}")
