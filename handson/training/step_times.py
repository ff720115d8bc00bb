"""The moments at which this process ends its steps of training. Both tracks note them; results.report turns them into
seconds of each step.

`python -m handson predict` needs the spread of the steps and the number of parameters, and imports no torch to find
them.
"""

import time

MOST = 2_000  # steps that a result keeps, the last ones

moments = []  # of the end of each step: of time.perf_counter, or what else gives seconds where two are subtracted
interrupted_at = set()  # how many steps had ended when something else than a step began
parameters = 0  # numbers that a gradient consists of


def ended(count, moment=None):
    """A step has ended; count: a function that returns the number of parameters, called once. moment: None for now; a
    GPU, which is still computing, has moments of its own."""
    global parameters
    if not moments:
        parameters = count()
    moments.append(time.perf_counter() if moment is None else moment)


def interrupted():
    """An evaluation takes place here: the time until the next step has ended is none of a step."""
    interrupted_at.add(len(moments))


def forget():
    """Forget all times, for a script that trains several times."""
    moments.clear()
    interrupted_at.clear()


def seconds():
    """Seconds of each step, without the first and those that an evaluation precedes."""
    pairs = enumerate(zip(moments, moments[1:]), 1)
    return [round(after - before, 7) for number, (before, after) in pairs if number not in interrupted_at][-MOST:]
