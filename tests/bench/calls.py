"""Answers by one call: every function that students receive, tried as the answer to every gap of a script that has its
parameters' names."""

import time

from grader.instructors.known_answers import servers
from tests.grader.every_call import FOUND, answers


def measure(folder):
    """Rows (what, value, target)."""
    begin, tried, found = time.perf_counter(), 0, []
    with servers() as server_for:
        for answer in answers():
            tried += 1
            if answer.passes(server_for(answer.part.file)) and (answer.check.gap, answer.function) not in FOUND:
                found.append(answer)
                print(f"  {answer.part.file}: {answer.code!r}", flush=True)
    return [
        (
            (
                f"calls that answer a gap of a script, of {tried:,}, but for the {len(FOUND)} of"
                " tests/grader/every_call.py"
            ),
            f"{len(found)}",
            "0",
        ),
        ("  minutes that took", f"{(time.perf_counter() - begin) / 60:.1f}", ""),
    ]
