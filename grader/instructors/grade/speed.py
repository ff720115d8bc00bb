"""How fast this machine computes now: a fixed piece of work on each core, by the clock and in CPU time. Called before a
class is graded.

Usage: python -m grader.instructors.grade.speed TURNS, which prints both as JSON.
"""

import json
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress

from handson.files import COURSE

TRUSTED = 1.5  # the slowdown up to which CPU seconds show how fast a core is
OBJECTS = 10_000
# turns of a spin: over a second in all, in which other programs get their turns, too; where a class takes seconds, not
# as long
MOST, LEAST = 120, 10
TOUCHED = 100_000  # objects that a forked process looks at, so that the kernel copies their memory


def spin(turns=MOST):
    """(how many times as long other programs make the work take on one core, the CPU seconds of its fastest turn; None
    where they are many).

    As in grading, half of it is done by Python, which makes objects and writes them out, and half by the kernel, which
    forks a process and copies the memory that this one touches. The kernel may take twice as long on one day as on
    another; a loop that only counts shows neither.
    """
    objects = [str(number) for number in range(TOUCHED)]
    began, used = time.perf_counter(), [_cpu_seconds()]
    for _ in range(turns):
        json.dumps({str(number): [number] for number in range(OBJECTS)})
        forked = os.fork()
        if forked == 0:
            for _ in objects:
                pass
            os._exit(0)
        os.waitpid(forked, 0)
        used.append(_cpu_seconds())
    clock = time.perf_counter() - began
    slowdown = max(1.0, clock / (used[-1] - used[0]))
    return slowdown, min(after - before for before, after in zip(used, used[1:])) if slowdown < TRUSTED else None


def _cpu_seconds():
    """Of this process and of those that it has forked."""
    used = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def here(engines=1, expected=None):
    """What `spin` returns, of as many spins at once as the engines have cores; (1, None) where no process can be
    started.

    expected: the seconds that grading takes on an idle machine, if they are known: a spin takes a hundredth of them,
    within its limits.
    """
    turns = MOST if expected is None else max(LEAST, min(MOST, int(expected)))
    command = [sys.executable, "-m", "grader.instructors.grade.speed", str(turns)]
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        count = min(engines, len(os.sched_getaffinity(0)))
        running = [
            subprocess.Popen(command, cwd=COURSE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for _ in range(count)
        ]
        return mean([json.loads(one.communicate(timeout=60)[0]) for one in running])
    return 1.0, None


def mean(spins):
    """The mean of several spins; of CPU seconds, of those that have some."""
    slowdowns, seconds = zip(*spins)
    known = [one for one in seconds if one is not None]
    return sum(slowdowns) / len(slowdowns), sum(known) / len(known) if known else None


if __name__ == "__main__":
    print(json.dumps(spin(int(sys.argv[1]))))
