"""Find the collectives that all ranks take part in, to align the ranks' clocks and to compute waiting times.

No rank can leave an all-reduce before the last rank has entered it. With aligned clocks, every end is therefore later
than every begin, and the ends of one collective differ by at most the network's latency.
"""

import re
from dataclasses import dataclass

import numpy

from handson.profiling.timeline import COMMUNICATION

# point-to-point operations, as in a pipeline: the nth of one rank does not belong to the nth of another
MESSAGE = re.compile(r"(?:\b|_)i?(?:send|recv)", re.IGNORECASE)


@dataclass
class Collectives:
    """Collectives that all ranks have recorded, sorted by begin on the first rank. `begin`, `end`: ns, (collectives,
    ranks); `step`, `name` of each."""

    begin: numpy.ndarray
    end: numpy.ndarray
    step: list
    name: list


def find(timelines):
    """Return the Collectives of some ranks: the nth collective of a name in a step is the same one on all ranks.

    If the ranks have different numbers of collectives of a name in a step, some belong to a smaller group or were not
    recorded; then all of them are left out.
    """
    everybodys = [_by_key(timeline) for timeline in timelines]
    found = []
    for key, first in everybodys[0].items():
        of_all = [of_rank.get(key, ()) for of_rank in everybodys]
        if len(timelines) > 1 and all(len(of_rank) == len(first) for of_rank in of_all):
            found += [(key, numpy.array(one)) for one in zip(*of_all)]
    found.sort(key=lambda one: one[1][0, 0])
    moments = numpy.array([one for _, one in found], numpy.int64).reshape(-1, len(timelines), 2)
    return Collectives(moments[..., 0], moments[..., 1], [key[0] for key, _ in found], [key[1] for key, _ in found])


def _by_key(timeline):
    """Return (step, name) -> [(begin, end), ...] of a rank's collectives that begin in a step."""
    messages = [index for index, name in enumerate(timeline.names) if MESSAGE.search(name)]
    chosen = (timeline.kind == COMMUNICATION) & ~numpy.isin(timeline.name, messages)
    begins, ends, names = timeline.begin[chosen], timeline.end[chosen], timeline.name[chosen]
    by_key = {}
    for number, begin, end in timeline.steps():
        for index in range(*numpy.searchsorted(begins, (begin, end))):
            by_key.setdefault((int(number), timeline.names[names[index]]), []).append((begins[index], ends[index]))
    return by_key


def align(timelines):
    """Align all clocks with that of the first rank, and return rank -> ns added. Ranks of one machine share a clock, so
    they get the same correction.

    One number per rank is enough: during a recording of seconds, clocks drift apart by microseconds.
    """
    first, offsets = timelines[0], {timelines[0].rank: 0}
    for other in timelines[1:]:
        one_clock = bool(first.clock and first.clock == other.clock or first.host and first.host == other.host)
        offsets[other.rank] = 0 if one_clock else _offset(first, other)
        if offsets[other.rank]:
            other.shift(offsets[other.rank])
    return offsets


def _offset(first, other):
    """Return the correction for the clock of `other`: the median difference of ends, within the bounds that causality
    sets."""
    both = find([first, other])
    if len(both.begin):
        lowest = (both.begin[:, 0] - both.end[:, 1]).max()
        highest = (both.end[:, 0] - both.begin[:, 1]).min()
        middle = numpy.median(both.end[:, 0] - both.end[:, 1])
        # clocks that drift can make the bounds contradictory; the median is then the best estimate
        return int(numpy.clip(middle, lowest, highest) if lowest <= highest else middle)
    mine, theirs = first.steps(), other.steps()
    apart = len(mine) and len(theirs) and (theirs[0, 1] > mine[-1, 2] or mine[0, 1] > theirs[-1, 2])
    # without common collectives, assume that steps begin together
    return int(mine[0, 1] - theirs[0, 1]) if apart else 0
