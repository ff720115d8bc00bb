"""The moments at which this process ends its steps of training. Both tracks note them; results.report turns them into
seconds of each step.

`python -m handson predict` needs the spread of the steps and the number of parameters, and imports no torch to find
them.
"""

import time

MOST = 2_000  # steps that a result keeps, the last ones

moments = []  # of time.perf_counter, at the end of each step
interrupted_at = set()  # how many steps had ended when something else than a step began
parameters = 0  # numbers that a gradient consists of


def ended(count):
    """A step has ended here; count: a function that returns the number of parameters, called once."""
    global parameters
    if not moments:
        parameters = count()
    moments.append(time.perf_counter())


def interrupted():
    """An evaluation takes place here: the time until the next step has ended is none of a step."""
    interrupted_at.add(len(moments))


def forget():
    """Begin anew, as a script does that trains several times."""
    moments.clear()
    interrupted_at.clear()


def seconds():
    """Seconds of each step, without the first and those that an evaluation precedes."""
    pairs = enumerate(zip(moments, moments[1:]), 1)
    return [round(after - before, 7) for number, (before, after) in pairs if number not in interrupted_at][-MOST:]
