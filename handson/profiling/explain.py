"""``python -m handson explain ONE MORE``: find why a run with more workers loses efficiency, from a profile of each
run.

With equal batches per worker, a step of N workers would ideally take as long as a step of one. The additional time,
averaged over all recorded steps and ranks, is the loss. It has four causes, each measured separately in the same steps;
the rest of the loss is reported as not explained:

    communication   not hidden by computation, after the last rank has entered it
    imbalance       waiting for the slowest rank
    contention      the same operators take longer: cores, caches, memory and links are shared
    overhead        additional calls of operators, and time in which no operator runs

The loss is compared with that of the whole runs' throughput (their result.json), which does not depend on profiles. The
two differ if the recorded steps are not typical, for example because other programs ran at the same time.
"""

from dataclasses import dataclass

from handson import compare, figures
from handson.language import marked, speak
from handson.profiling import analysis, readers
from handson.profiling.timeline import COMPUTE, COPY, LOADING, ProfileError
from handson.words import counted

CAUSES = {
    "communication": "communication not overlapped",
    "imbalance": "imbalance: waiting for the slowest rank",
    "contention": "contention: the same operators take longer",
    "overhead": "overhead of each step",
}
REST = marked("not explained")
APART = 5  # percentage points by which the explained and the measured loss may differ without a warning
LIKE = {"imbalance": "waiting"}  # cause -> the part of a step with its colour, if the names differ


@dataclass
class Explanation:
    """The seconds of a step with one worker and with more, and the causes of the difference as shares of the longer
    step."""

    workers: tuple  # the number in each run
    recorded: tuple  # number of steps
    steps: tuple  # seconds, means over recorded steps and ranks
    causes: dict  # each of CAUSES -> its share of the step with more workers; a negative share is a gain
    # seconds per step from the throughput of the whole runs' training iterations, if their results are known
    whole: tuple | None
    remarks: list  # sentences on reasons to doubt these numbers

    @property
    def loss(self):
        """Return 1 - efficiency, from the recorded steps."""
        return 1 - self.steps[0] / self.steps[1]

    @property
    def rest(self):
        """Return the part of `loss` that no cause explains."""
        return self.loss - sum(self.causes.values())

    @property
    def measured(self):
        """Return 1 - efficiency, from the throughput of the whole runs, or None if it is unknown."""
        return self.whole and 1 - self.whole[0] / self.whole[1]

    @property
    def apart(self):
        """Return the difference between explained and measured loss in percentage points, or None if the latter is
        unknown."""
        return self.whole and 100 * abs(sum(self.causes.values()) - self.measured)


def split(one, more):
    """Return the Explanation of two Runs. Raises ProfileError if they cannot be compared."""
    _check(one, more)
    of_one, of_more = _mean(one), _mean(more)
    longer, other = _operators(of_one, of_more)
    causes = {
        "communication": of_more["communication"] - of_one["communication"],
        "imbalance": of_more["waiting"] - of_one["waiting"],
        "contention": longer,
        "overhead": other + of_more["host"] - of_one["host"],
    }
    of_both = [(len(run.timelines), mean["recorded"], mean["step"]) for run, mean in ((one, of_one), (more, of_more))]
    shares = {cause: seconds / of_more["step"] for cause, seconds in causes.items()}
    explanation = Explanation(*zip(*of_both), shares, _whole(one, more), [])
    explanation.remarks = _remarks(explanation, [run.result for run in (one, more) if run.result])
    return explanation


def _remarks(explanation, results):
    """Return sentences on runs that other programs disturbed, and on an efficiency that the number of cores does not
    allow."""
    workers, cores = explanation.workers[1], compare.most_cores(results)
    remarks = compare.disturbed(results)
    if cores and 1 - explanation.loss > compare.TOLERANCE * cores / workers:
        remarks.append(
            f"An efficiency of {1 - explanation.loss:.3f} is more than {workers} workers can reach on"
            f" {counted(cores, 'core')}: something slowed the run with fewer workers down. Repeat both while the"
            " machine does nothing else."
        )
    return remarks


def _check(one, more):
    for run in one, more:
        if any(timeline.size and timeline.size > len(run.timelines) for timeline in run.timelines):
            raise ProfileError(
                f"the profiles of {run.name} are not of all its ranks: the mean over ranks needs them all"
            )
    if len(one.timelines) >= len(more.timelines):
        raise ProfileError(
            f"{one.name} has {len(one.timelines)} ranks and {more.name} has {len(more.timelines)}: give the run with"
            " fewer workers first"
        )
    if one.result and more.result:
        for name in ("track", "dataset", "size", "batchsize"):
            if getattr(one.result, name) != getattr(more.result, name):
                raise ProfileError(
                    f"{one.name} and {more.name} differ in {name} ({getattr(one.result, name)},"
                    f" {getattr(more.result, name)}): compare runs under the same conditions"
                )


def _mean(run):
    """Return means over the ranks of a run, in seconds per step: each of PARTS, "step", and "operators": name ->
    (seconds, calls); and the number of steps, "recorded"."""
    of_ranks, steps = analysis.shares(run), analysis.common_steps(run)
    count = len(of_ranks)
    mean = {part: sum(rank.parts[part] for rank in of_ranks) / count for part in analysis.PARTS}
    mean |= {"recorded": len(steps[0]), "step": sum(rank.step for rank in of_ranks) / count, "operators": {}}
    for timeline, of_rank in zip(run.timelines, steps):
        for name, seconds, calls in analysis.operators(timeline, of_rank, (COMPUTE, COPY, LOADING)):
            before = mean["operators"].get(name, (0, 0))
            mean["operators"][name] = before[0] + seconds / count, before[1] + calls / count
    return mean


def _operators(of_one, of_more):
    """Return (the additional seconds of the calls that both runs make, the seconds of the calls that only one run
    makes).

    Operators that overlap on a GPU count with their share of the step.
    """
    longer = other = 0
    for name in of_one["operators"] | of_more["operators"]:
        (before, calls), (after, calls_after) = (run["operators"].get(name, (0, 0)) for run in (of_one, of_more))
        same = min(calls, calls_after) * (after / calls_after - before / calls) if calls and calls_after else 0
        longer, other = longer + same, other + after - before - same
    own = sum(seconds for seconds, _ in of_more["operators"].values())
    seen = sum(of_more[part] for part in ("compute", "copy", "loading"))
    visible = min(1, seen / own) if own else 0
    return longer * visible, other * visible


def _whole(one, more):
    """Return the seconds per step of each whole run, from its result.json, or None without results."""
    results = one.result, more.result
    if not all(result and result.train_seconds for result in results):
        return None
    return tuple(result.train_seconds * result.batchsize * result.workers / result.images for result in results)


def text(explanation):
    """Return the explanation as lines."""
    one, more = explanation.recorded
    shares = {CAUSES[cause]: share for cause, share in explanation.causes.items()} | {REST: explanation.rest}
    lines = [
        f"In the recorded steps ({one} and {more}), a step takes {_both(explanation, explanation.steps)}: "
        f"efficiency {1 - explanation.loss:.3f}, {_lost(explanation.loss)}. By cause:"
    ]
    lines += [marked(f"  {round(100 * share, 1) + 0:6.1f} points") + f"  {words}" for words, share in shares.items()]
    if explanation.whole:
        lines.append(
            f"By the throughput of the whole runs, it takes {_both(explanation, explanation.whole)}:"
            f" {_lost(explanation.measured)}, {explanation.apart:.1f} points from what is explained."
        )
        if explanation.apart > APART:
            lines.append(
                "The recorded steps are not like the others: record more of them (--steps, more epochs), while this"
                " machine does nothing else."
            )
    return lines + explanation.remarks


def _lost(share):
    """Return words for the efficiency that is lost; a negative share is gained."""
    percent = f"{100 * abs(share):.1f}"
    return f"{percent} % is gained" if round(100 * share, 1) < 0 else f"{percent} % is lost"


def _both(explanation, steps):
    one, more = explanation.workers
    return f"{1000 * steps[0]:.2f} ms with {counted(one, 'worker')} and {1000 * steps[1]:.2f} ms with {more}"


def draw(explanation):
    """Return a matplotlib Figure for notebooks: a step with fewer workers above one with more, on one scale, and the
    causes of the difference."""
    drawing, axes = figures.axes(10, 2.6, grid=False)
    one, more = explanation.workers
    shorter, longer = (1000 * seconds for seconds in explanation.steps)
    of_one = f"a step of {counted(one, 'worker')}"
    axes.barh(
        [1, 0], [shorter, shorter], height=0.6, label=f"{of_one}: the ideal for {more}, too", **figures.part("compute")
    )
    left = shorter
    shares = explanation.causes | ({REST: explanation.rest} if explanation.rest >= 0.0005 else {})
    shares = dict(sorted(shares.items(), key=lambda item: item[1] < 0))  # gains after the losses
    for cause, share in shares.items():
        style = (
            dict(facecolor="white", edgecolor="0.25", linewidth=0.6)
            if cause == REST
            else figures.part(LIKE.get(cause, cause))
        )
        label = f"{CAUSES.get(cause, cause)}, {100 * share:.1f} points"
        if share < 0:  # drawn back over the losses, which the gain offsets
            style["alpha"] = 0.5
            label += " (a gain)"
        axes.barh(0, longer * abs(share), left=left - longer * max(-share, 0), height=0.6, label=label, **style)
        left += longer * share
    axes.axvline(shorter, **figures.IDEAL | {"label": None})
    axes.set_yticks([1, 0], [of_one, f"a step of {more} workers"])
    axes.set(xlabel=f"time of a step [ms]; efficiency {1 - explanation.loss:.2f}", xlim=(0, None))
    drawing.legend(loc="outside upper center", ncols=2, fontsize="small", edgecolor="none")
    return drawing


def explain(one, more, figure_path=None, say=speak):
    """Read two runs, and `say` and draw why efficiency is lost. The figure goes into the folder of `more`, if
    `figure_path` is None. Raises ProfileError, ResultError or FigureError."""
    runs = [run for path in (one, more) for run in readers.load([path])]
    explanation = split(*runs)
    lines = text(explanation)
    for line in lines:
        say(line)
    path = figures.place(figure_path, more, "efficiency.png")
    say(figures.told(figures.save(draw(explanation), path, " ".join(lines))))
