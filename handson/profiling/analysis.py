"""Analyse a run's timelines: the parts of each rank's time, which ranks wait for which, the longest operators, and a
verdict.

Every moment of a step belongs to exactly one of PARTS, so the parts add up to the step. Events that overlap with
computation are hidden by it, and cost no time.
"""

from dataclasses import dataclass, field

import numpy

from handson.language import marked, translated
from handson.profiling import rank_clocks, spans
from handson.profiling.timeline import COMMUNICATION, COMPUTE, COPY, LOADING, ProfileError
from handson.words import rjust, width

CLOCK_ERROR = 5_000_000  # ns; aligned clocks of ranks differ by less
PARTS = marked(("compute", "loading", "copy", "communication", "waiting", "host"))
WORDS = {
    "compute": "computation",
    "loading": "data loading",
    "copy": "copies between host and GPU",
    "communication": "communication that computation does not hide",
    "waiting": "waiting for other ranks",
    "host": "time between operators",
}


@dataclass
class Shares:
    """The times of a rank's recorded steps. `parts`: each of PARTS in seconds per step; `waits`: seconds per step, by
    the rank that is waited for."""

    rank: int
    steps: int
    step: float  # mean seconds
    parts: dict
    communication: float  # seconds per step, hidden or not, including waiting
    hidden: float  # seconds per step of communication while the device computes
    waits: dict = field(default_factory=dict)

    def share(self, part):
        """Return the share of the step that `part` takes, from 0 to 1."""
        return self.parts[part] / self.step

    @property
    def busy(self):
        """Return the share of the time in which the device works: it computes, copies or (on a core) loads data."""
        return self.share("compute") + self.share("copy") + self.share("loading")

    @property
    def overlap(self):
        """Return the share of communication that computation hides, or None without communication."""
        return self.hidden / self.communication if self.communication else None


def shares(run):
    """Return the Shares of each rank, over the steps that all ranks have recorded. Raises ProfileError if there are
    none."""
    steps = common_steps(run)
    collectives = rank_clocks.find(run.timelines)
    return [_shares(run, index, steps[index], collectives) for index in range(len(run.timelines))]


def common_steps(run):
    """Return the steps that all ranks have recorded, for each rank as Timeline.steps returns them. Raises
    ProfileError."""
    steps = [timeline.steps() for timeline in run.timelines]
    numbers = set.intersection(*(set(of_rank[:, 0].tolist()) for of_rank in steps))
    if not numbers:
        raise ProfileError(
            f"the profiles of {run.name} have no step in common to all ranks: record at least one step beyond"
            " evaluations (--skip, --steps)"
        )
    return [of_rank[numpy.isin(of_rank[:, 0], list(numbers))] for of_rank in steps]


def parts_of(timeline):
    """Return (part -> its moments that no part of higher priority hides, all moments of communication)."""
    compute, loading, copy, communication = (timeline.spans(kind) for kind in (COMPUTE, LOADING, COPY, COMMUNICATION))
    if timeline.on_gpu:  # the host loads data while the GPU works
        copy = spans.without(copy, compute)
        exposed = spans.without(communication, spans.either(compute, copy))
        loading = spans.without(loading, spans.either(compute, copy, communication))
    else:
        compute = spans.without(compute, loading)
        copy = spans.without(copy, spans.either(compute, loading))
        exposed = spans.without(communication, spans.either(compute, loading, copy))
    return {"compute": compute, "loading": loading, "copy": copy, "communication": exposed}, communication


def waiting(collectives, index):
    """Return when rank number `index` waits in a collective for the last rank to enter it: {number of the last rank:
    moments}."""
    # otherwise they are different collectives, because some were not recorded
    together = collectives.begin.max(axis=1) <= collectives.end.min(axis=1) + CLOCK_ERROR
    begins, ends = collectives.begin[together], collectives.end[together]
    if not len(begins):
        return {}
    last = begins.argmax(axis=1)
    begin, end = begins[:, index], numpy.minimum(begins.max(axis=1), ends[:, index])
    return {int(other): spans.union(begin[last == other], end[last == other]) for other in set(last.tolist()) - {index}}


def _shares(run, index, steps, collectives):
    timeline, count = run.timelines[index], len(steps)
    waits = {run.timelines[other].rank: moments for other, moments in waiting(collectives, index).items()}
    totals = dict.fromkeys((*PARTS, "all", "hidden", "step"), 0) | {rank: 0 for rank in waits}  # ns
    for piece, within in timeline.pieces(steps):
        moments, communication = parts_of(piece)
        exposed = moments["communication"]
        moments |= {"all": communication, "hidden": spans.both(communication, moments["compute"]), "step": within}
        moments |= {rank: spans.both(exposed, of_other) for rank, of_other in waits.items()}
        for name, of_part in moments.items():
            totals[name] += spans.length(spans.both(of_part, within))
    seconds = {name: total / 1e9 / count for name, total in totals.items()}
    parts = {part: seconds[part] for part in PARTS}
    parts["waiting"] = min(sum(seconds[rank] for rank in waits), parts["communication"])
    parts["communication"] -= parts["waiting"]
    parts["host"] = max(seconds["step"] - sum(parts.values()), 0.0)
    return Shares(
        timeline.rank,
        count,
        seconds["step"],
        parts,
        seconds["all"],
        seconds["hidden"],
        {rank: seconds[rank] for rank in waits},
    )


def operators(timeline, steps, kinds=(COMPUTE, COMMUNICATION, COPY)):
    """Return [(name, seconds per step, calls per step), ...] of a device's events, the longest first. The time of an
    event excludes the events that it calls."""
    times, calls = numpy.zeros(len(timeline.names)), numpy.zeros(len(timeline.names), int)
    for piece, within in timeline.pieces(steps):
        at = numpy.searchsorted(within[:, 0], piece.begin, "right") - 1
        inside = numpy.isin(piece.kind, kinds) & (at >= 0) & (piece.begin < within[at, 1])
        calls += numpy.bincount(piece.name[inside], minlength=len(calls))
        for lane in set(piece.lane[inside].tolist()):
            chosen = numpy.flatnonzero(inside & (piece.lane == lane))
            times += numpy.bincount(
                piece.name[chosen], self_times(piece.begin[chosen], piece.end[chosen]), minlength=len(times)
            )
    order = numpy.argsort(-times, kind="stable")
    return [(timeline.names[i], float(times[i]) / 1e9 / len(steps), calls[i] / len(steps)) for i in order if calls[i]]


def self_times(begin, end):
    """Return the time (ns) of each event of one thread without its nested events; `begin` is sorted."""
    order = numpy.lexsort((-end, begin))
    begins, ends = begin[order], numpy.maximum(end[order], begin[order] + 1)
    depth = numpy.arange(len(begins)) - numpy.searchsorted(numpy.sort(ends), begins, "right")
    lengths = (ends - begins).astype(float)
    own, above = lengths.copy(), numpy.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = numpy.flatnonzero(depth == level)
        parents = above[numpy.maximum(numpy.searchsorted(above, here) - 1, 0)]
        numpy.subtract.at(own, parents, lengths[here])
        above = here
    result = numpy.empty_like(own)
    result[order] = numpy.maximum(own, 0)
    return result


@dataclass
class Finding:
    """The verdict on a run. `kind`: the part to improve, one of PARTS; "compute" if there is nothing to improve."""

    kind: str
    share: float  # the share of a step, from 0 to 1
    sentence: str
    rank: int | None = None  # the rank that loses the time; None if all ranks do
    slow_rank: int | None = None  # the rank that is waited for
    cause: str | None = None  # the part, one of PARTS, that delays the slow rank


def verdict(run, of_ranks=None):
    """Return the Finding about a Run. `of_ranks`: its shares, if they are known already."""
    of_ranks = of_ranks or shares(run)
    waiter = max(of_ranks, key=lambda rank: rank.share("waiting"))
    mean = {part: sum(rank.share(part) for rank in of_ranks) / len(of_ranks) for part in PARTS}
    if waiter.share("waiting") >= 0.1:
        finding = _waiting(of_ranks, waiter)
        # every rank loses this time
        by_all = max(min(rank.share(part) for rank in of_ranks) for part in ("loading", "copy"))
        if finding.share > by_all and (finding.slow_rank is not None or finding.share > mean["communication"]):
            return finding
    worst = max(("loading", "copy", "communication", "host"), key=mean.get)
    if mean[worst] < 0.1:
        return Finding(
            "compute",
            mean["compute"],
            f"{_percent(mean['compute'])} of each step is computation: no other part takes 10 %",
        )
    sentence = f"{_percent(mean[worst])} of each step is {WORDS[worst]}"
    if worst == "communication":
        sentence += _longest_collective(run)
    elif worst == "host":
        sentence += _synchronisation(run)
    return Finding(worst, mean[worst], sentence)


def _waiting(of_ranks, waiter):
    """Return the rank for which `waiter` waits, and what this slow rank does at that time."""
    slow, seconds = max(waiter.waits.items(), key=lambda item: item[1])
    culprit = next(rank for rank in of_ranks if rank.rank == slow)
    back = culprit.waits.get(waiter.rank, 0)
    share = waiter.share("waiting")
    if back > seconds / 2:
        sentence = (
            f"rank {waiter.rank} and rank {slow} wait for each other in turns, {_percent(share)} of each step: no rank"
            " is slow, but steps are uneven"
        )
        return Finding("waiting", share, sentence, waiter.rank)
    longer = {part: culprit.parts[part] - waiter.parts[part] for part in ("loading", "compute", "copy", "host")}
    cause = max(longer, key=longer.get)
    sentence = (
        f"rank {waiter.rank} waits {_percent(seconds / waiter.step)} of each step for rank {slow}: {WORDS[cause]}"
    )
    return Finding("waiting", share, sentence, waiter.rank, slow, cause)


def _longest_collective(run):
    timeline = run.timelines[0]
    found = operators(timeline, common_steps(run)[0], (COMMUNICATION,))
    return f", most of it in {found[0][0][:60]} ({found[0][2]:.3g} a step)" if found else ""


def _synchronisation(run):
    """Return words for the function with which a GPU's process waits for the GPU."""
    timeline, steps = run.timelines[0], common_steps(run)[0]
    for name in timeline.names if timeline.on_gpu else ():
        if "Synchronize" in name:
            chosen = timeline.begin[timeline.name == timeline.names.index(name)]
            calls = (numpy.searchsorted(chosen, steps[:, 2]) - numpy.searchsorted(chosen, steps[:, 1])).mean()
            if calls >= 1:
                return f" in which the GPU idles, and {name} is called {calls:.3g} times"
    return " in which the GPU idles" if timeline.on_gpu else ""


def _percent(share):
    return f"{100 * share:.0f} %"


def table(of_ranks):
    """Return the shares of all ranks as lines of aligned text."""
    headings = *marked(("rank", "steps", "ms a step", "busy")), *PARTS, marked("overlap")
    rows = [tuple(map(translated, headings))]
    for rank in of_ranks:
        overlap = "-" if rank.overlap is None else _percent(rank.overlap)
        rows.append(
            (
                str(rank.rank),
                str(rank.steps),
                f"{1000 * rank.step:.2f}",
                _percent(rank.busy),
                *(_percent(rank.share(part)) for part in PARTS),
                overlap,
            )
        )
    widths = [max(map(width, column)) for column in zip(*rows)]
    return ["  ".join(map(rjust, row, widths)) for row in rows]
