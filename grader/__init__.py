"""Runs on the student's and on the instructor's machine. Students receive it: yes, without the folders instructors.

The grader: instructors run ``python -m grader``, students call `check` in their notebooks."""


def check(unit, *names, track=None):
    """Check what you wrote for a task such as "multi_gpu", and show what passed, what didn't and what to look at.

    names: the gaps or files to check; all if none is given. track: "pytorch" or "chainer"; both if it is None, and the
    better one counts. Returns an object with `points`, `max_points` and `verdicts`.
    """
    from grader.self_check import check

    return check(unit, *names, track=track)
