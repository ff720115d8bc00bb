"""How fast this machine computes now: a fixed piece of work on each core, by the clock and in CPU time. Called before a class is graded.

Usage: python -m grader.instructors.grade.speed, which prints both as JSON.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress

from handson.files import COURSE

TRUSTED = 1.5  # the slowdown up to which CPU seconds show how fast a core is
OBJECTS, TURNS = 10_000, 120  # some tenths of a second in all: long enough that other programs get their turns


def spin():
    """(how many times as long other programs make the work take on one core, the CPU seconds of its fastest turn; None where they are many).

    Objects are made and written out, which takes most of the time of Python programs. A loop that only counts shows less: where a core shares its
    arithmetic with another thread, it needed up to twice its CPU seconds, and students' code a tenth more.
    """
    began, used = time.perf_counter(), [time.process_time()]
    for _ in range(TURNS):
        json.dumps({str(number): [number] for number in range(OBJECTS)})
        used.append(time.process_time())
    clock = time.perf_counter() - began
    slowdown = max(1.0, clock / (used[-1] - used[0]))
    return slowdown, min(after - before for before, after in zip(used, used[1:])) if slowdown < TRUSTED else None


def here(engines):
    """What `spin` returns, of as many spins at once as the engines have cores; (1, None) where no process can be started."""
    command = [sys.executable, "-m", "grader.instructors.grade.speed"]
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        count = min(engines, len(os.sched_getaffinity(0)))
        running = [subprocess.Popen(command, cwd=COURSE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(count)]
        return mean([json.loads(one.communicate(timeout=60)[0]) for one in running])
    return 1.0, None


def mean(spins):
    """The mean of several spins; of CPU seconds, of those that have some."""
    slowdowns, seconds = zip(*spins)
    known = [one for one in seconds if one is not None]
    return sum(slowdowns) / len(slowdowns), sum(known) / len(known) if known else None


if __name__ == "__main__":
    print(json.dumps(spin()))
