"""For all tests: signals as in a terminal, and the order in which several processes share the
files."""

import gc
import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

from handson.cluster import launcher

SLOWEST = 5  # scopes that are named at the end of a run
MOST_OPEN = 200  # files in one process of pytest, all servers and databases of its fixtures among them
SCOPES = (  # of tests that share a process, where that is not a file: what stands in the groups names the scope
    r"(tests/slurm/)",  # one Slurm
    r"(tests/grader/test_sandbox_)",  # a user whose processes are counted
    # a process that ranks are forked from
    r"(tests/pytorch/)test_(?:attention_and_experts|batches|cntk|communication|evaluator|memory|memory_saved|one_big_batch|pipeline|products|resume|schedules|train_restarts)\.",
    r"(tests/grader/)test_judging",  # a sandbox's server
    # a process that imports the systems for all others
    r"(tests/frameworks/)test_(?:jax|several_processes|tensorflow_bad_input|translated_scripts)",
    r"(tests/grader/test_known_answers.py::\w+\[[a-z_]+-)",  # the known answers of a unit
    r"(tests/gpu/test_on_gpus.py::.*)",  # each for itself
    r"(tests/browser/)",  # one Chromium and one JupyterLab, and notebooks that use each other's runs
)
LONGEST = (  # these begin, in this order
    "tests/browser/",
    "tests/grader/test_known_answers.py",
    "tests/grader/test_class_of_1000.py",
    "tests/grader/test_hostile.py",
    "tests/grader/test_grade.py",
    "tests/grader/test_clusters.py",
    "tests/grader/test_nbgrader.py",
    "tests/pytorch/test_failing_ranks.py",
    "tests/slurm/",
)

os.environ["HANDSON_LANGUAGE"] = "en"  # of messages, whatever the system speaks

# Threads that wait for work sleep. By itself libgomp lets them spin, on cores that several processes of tests share:
# half of what PyTorch takes there.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # the same for NumPy's: half of what its import takes
# and ranks of MPICH sleep between two looks: else one that waits takes a whole core
os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")

# other tests' servers end, and their clients look for them
os.environ["MPIEXEC_PORT_RANGE"] = launcher.on_this_host()["MPIEXEC_PORT_RANGE"]

# in the names of tests that need the second environment
OTHER_SYSTEMS = r"tests/frameworks/|tests/grader/test_(?:known_answers|conceded)\.py.*\[frameworks"

# as in a shell's background; what tests start would ignore Ctrl-C, too
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class ByScope(LoadFileScheduling):
    """The tests of a scope run one after the other in one process: they share what is started once for all of them."""

    def _split_scope(self, nodeid):
        return scope(nodeid)

    def _reschedule(self, node):
        """xdist hands out the next scope when this one has two tests left. If the first of them is long, that scope
        would wait for it."""
        if self._pending_of(self.assigned_work[node]) <= 1 or not self.workqueue:
            super()._reschedule(node)


def scope(nodeid):
    """The name of a test's scope."""
    found = next(filter(None, (re.match(pattern, nodeid) for pattern in SCOPES)), None)
    return "".join(found.groups()) if found else nodeid.split("::")[0]


def pytest_xdist_auto_num_workers(config):
    """Of `-n auto`, on two cores: many tests wait."""
    return 4


def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return ByScope(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep what pytest makes of the tests' files for the next run, also where PYTHONDONTWRITEBYTECODE is set: it is
    half of the collection. Nothing that it makes becomes garbage, so that looking for it only takes time, then and
    later."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    gc.disable()
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = before
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path, config):
    """Leave out the files that have only thorough tests where none are wanted: each process would import them."""
    if (
        config.option.markexpr == "not thorough"
        and collection_path.suffix == ".py"
        and re.search(r"^pytestmark = .*mark\.thorough", collection_path.read_text(), re.MULTILINE)
    ):
        return True


def pytest_addoption(parser):
    parser.addoption(
        "--frameworks",
        action="store_true",
        help="the tests that need the second environment (make frameworks), and no others",
    )
    parser.addoption(
        "--pictures", type=Path, metavar="FOLDER", help="keep pictures of the notebooks that run in a browser"
    )


def pytest_configure(config):
    """Without -m gpu there are no GPUs, and without --frameworks there is no second environment, as on most machines;
    which tests pass then does not depend on what the machine has."""
    if "gpu" not in config.option.markexpr:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the same tests on all machines
    os.environ["HANDSON_FRAMEWORKS"] = (
        str(Path(__file__).parents[1] / ".venv-frameworks") if config.getoption("--frameworks") else os.devnull
    )


def pytest_collection_modifyitems(config, items):
    """Leave out the tests of the other systems, or all but these. The longest scopes come first, then the files with
    thorough tests, so that all processes end at about the same time."""
    unwanted = {
        item for item in items if bool(re.search(OTHER_SYSTEMS, item.nodeid)) != config.getoption("--frameworks")
    }
    if "gpu" not in config.option.markexpr:
        unwanted |= {item for item in items if item.get_closest_marker("gpu")}
    config.hook.pytest_deselected(items=list(unwanted))
    items[:] = [item for item in items if item not in unwanted]
    thorough = {item.path for item in items if item.get_closest_marker("thorough")}
    items.sort(
        key=lambda item: (
            next((place for place, start in enumerate(LONGEST) if item.nodeid.startswith(start)), len(LONGEST)),
            item.path not in thorough,
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Who leaves files open is found here, and not by a later test that can't open any more."""
    result = yield
    opened = len(os.listdir("/proc/self/fd"))
    assert opened < MOST_OPEN, f"after this test, {opened} files are open in pytest's process"
    return result


def pytest_terminal_summary(terminalreporter):
    """Name the scopes that took the longest, so that people who add to them see it."""
    seconds = Counter()
    for report in (
        report for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "duration")
    ):
        seconds[scope(report.nodeid)] += report.duration
    for name, spent in seconds.most_common(SLOWEST):
        terminalreporter.write_line(f"{spent:5.0f} s  {name}")
