"""The moments at which this process ends its steps of training. Both tracks note them; results.report turns them into seconds of each step.

`python -m handson predict` needs the spread of the steps and the number of parameters, and imports no torch to find them.
"""

import time

MOST = 2_000  # steps that a result keeps, the last ones

moments = []  # of time.perf_counter, at the end of each step
parameters = 0  # numbers of which a gradient has as many


def ended(count):
    """A step has ended here; count: a function that returns the number of parameters, called once."""
    global parameters
    if not moments:
        parameters = count()
    moments.append(time.perf_counter())


def forget():
    """Begin anew, as a script does that trains several times."""
    moments.clear()


def seconds(epochs):
    """Seconds of each step but the first of every epoch, since an evaluation precedes it; [] where the steps are not a multiple of the epochs."""
    if not epochs or len(moments) % epochs:
        return []
    of_epoch = len(moments) // epochs
    steps = [after - before for number, (before, after) in enumerate(zip(moments, moments[1:]), 1) if number % of_epoch]
    return [round(step, 7) for step in steps[-MOST:]]
