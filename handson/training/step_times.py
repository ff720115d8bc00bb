"""The times at which this process ends its training steps. Both tracks record them; results.report converts them to
seconds of each step.

`python -m handson predict` needs the spread of the steps and the number of parameters, without importing torch.
"""

import time

MOST = 2_000  # steps that a result keeps, the last ones

moments = []  # the end of each step, in time.perf_counter or in objects whose difference is seconds
interrupted_at = set()  # how many steps had ended before each interruption
parameters = 0  # number of elements of a gradient


def ended(count, moment=None):
    """Record the end of a step. count: a function that returns the number of parameters, called once. moment: None for
    now; a GPU, which is still computing, supplies its own times."""
    global parameters
    if not moments:
        parameters = count()
    moments.append(time.perf_counter() if moment is None else moment)


def interrupted():
    """Record an evaluation: the time until the end of the next step does not belong to a step."""
    interrupted_at.add(len(moments))


def forget():
    """Forget all times, for a script that trains several times."""
    moments.clear()
    interrupted_at.clear()


def seconds():
    """Return the seconds of each step, without the first step and steps that follow an evaluation."""
    pairs = enumerate(zip(moments, moments[1:]), 1)
    return [round(after - before, 7) for number, (before, after) in pairs if number not in interrupted_at][-MOST:]
