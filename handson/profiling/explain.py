"""``python -m handson explain ONE MORE``: where the efficiency goes that a run with more workers loses, from a profile of each.

With equal batches per worker, a step of N workers would ideally take as long as a step of one. What it takes longer is split by the
parts of a step, in which every moment is counted once, so that the causes add up to the loss:

    communication   not hidden by computation, after the last rank has come to it
    imbalance       waiting for the slowest rank
    contention      the same operators take longer: cores, caches, memory and links are shared
    overhead        what a step does besides: more calls of operators, and time between them
"""

from dataclasses import dataclass
from pathlib import Path

from handson.figures import save
from handson.profiling import analysis, readers
from handson.profiling.timeline import COMPUTE, COPY, LOADING, ProfileError

CAUSES = {
    "communication": "communication not overlapped",
    "imbalance": "imbalance: waiting for the slowest rank",
    "contention": "contention: the same operators take longer",
    "overhead": "overhead of each step",
}
STYLES = {"communication": ("#636363", ""), "imbalance": ("#FFFFFF", "/////"), "contention": ("#FDD9A0", "...."), "overhead": ("#C7B9DA", "||||")}


@dataclass
class Explanation:
    """Seconds of a step with one worker and with more; the causes as shares of the longer one, which add up to `loss`."""

    workers: tuple  # of both runs
    steps: tuple  # seconds, means over ranks
    causes: dict  # of CAUSES -> share of the step with more workers; a negative one is a gain
    measured: float | None  # the loss by the whole runs' throughput in training iterations, where their results are known

    @property
    def loss(self):
        """1 - efficiency, by the recorded steps."""
        return 1 - self.steps[0] / self.steps[1]


def split(one, more):
    """The Explanation of two Runs. Raises ProfileError where they cannot be compared."""
    _check(one, more)
    of_one, of_more = _mean(one), _mean(more)
    step = of_more["step"]
    causes = {
        "communication": of_more["communication"] - of_one["communication"],
        "imbalance": of_more["waiting"] - of_one["waiting"],
        "contention": _contention(of_one, of_more),
    }
    causes["overhead"] = step - of_one["step"] - sum(causes.values())
    shares = {cause: seconds / step for cause, seconds in causes.items()}
    return Explanation((len(one.timelines), len(more.timelines)), (of_one["step"], step), shares, _measured(one, more))


def _check(one, more):
    for run in one, more:
        if any(timeline.size and timeline.size > len(run.timelines) for timeline in run.timelines):
            raise ProfileError(f"the profiles of {run.name} are not of all its ranks: the mean over ranks needs them all")
    if len(one.timelines) >= len(more.timelines):
        raise ProfileError(f"{one.name} has {len(one.timelines)} ranks and {more.name} has {len(more.timelines)}: give the run with fewer workers first")
    if one.result and more.result:
        for name in ("track", "dataset", "size", "batchsize"):
            if getattr(one.result, name) != getattr(more.result, name):
                raise ProfileError(f"{one.name} and {more.name} differ in {name} ({getattr(one.result, name)}, {getattr(more.result, name)}): "
                                   "compare runs under the same conditions")  # fmt: skip


def _mean(run):
    """Means over the ranks of a run, in seconds a step: each of PARTS, "step", and "operators": name -> (seconds, calls)."""
    of_ranks, steps = analysis.shares(run), analysis.common_steps(run)
    count = len(of_ranks)
    mean = {part: sum(rank.parts[part] for rank in of_ranks) / count for part in analysis.PARTS}
    mean["step"], mean["operators"] = sum(rank.step for rank in of_ranks) / count, {}
    for timeline, of_rank in zip(run.timelines, steps):
        for name, seconds, calls in analysis.operators(timeline, of_rank, (COMPUTE, COPY, LOADING)):
            before = mean["operators"].get(name, (0, 0))
            mean["operators"][name] = before[0] + seconds / count, before[1] + calls / count
    return mean


def _contention(of_one, of_more):
    """How much longer the calls take that both runs make; operators that hide each other on a GPU count for what they take of the step."""
    longer = 0
    for name, (seconds, calls) in of_one["operators"].items():
        if more := of_more["operators"].get(name):
            longer += min(calls, more[1]) * (more[0] / more[1] - seconds / calls)
    own = sum(seconds for seconds, _ in of_more["operators"].values())
    seen = sum(of_more[part] for part in ("compute", "copy", "loading"))
    return longer * min(1, seen / own) if own else 0


def _measured(one, more):
    """1 - efficiency of the whole runs, by their result.json; None without these."""
    if not (one.result and more.result and one.result.train_seconds and more.result.train_seconds):
        return None
    rates = [run.result.images / run.result.train_seconds / run.result.workers for run in (one, more)]
    return 1 - rates[1] / rates[0]


def text(explanation):
    """The explanation as lines."""
    one, more = explanation.workers
    before, after = (1000 * seconds for seconds in explanation.steps)
    lines = [f"A step takes {before:.2f} ms with {one} worker{'s' * (one > 1)} and {after:.2f} ms with {more}: "
             f"efficiency {1 - explanation.loss:.3f}, {100 * explanation.loss:.1f} % is lost. Of this:"]  # fmt: skip
    lines += [f"  {100 * share:6.1f} points  {CAUSES[cause]}" for cause, share in explanation.causes.items()]
    if explanation.measured is not None:
        lines.append(f"The throughput of the whole runs says {100 * explanation.measured:.1f} %, which differs by "
                     f"{100 * abs(explanation.measured - explanation.loss):.1f} points.")  # fmt: skip
    return lines


def draw(explanation):
    """A matplotlib Figure: the efficiency that is left, and what became of the rest; notebooks show it as it is."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(10, 2.4), layout="constrained")
    axes = drawing.subplots()
    one, more = explanation.workers
    left = 100 * (1 - explanation.loss)
    style = dict(height=0.6, edgecolor="black", linewidth=0.6)
    axes.barh([1, 0], [100, left], facecolor="#9ECAE1", label="as with one worker" if one == 1 else f"as with {one} workers", **style)
    for cause, share in explanation.causes.items():
        colour, hatch = STYLES[cause]
        width = max(100 * share, 0)
        axes.barh(0, width, left=left, facecolor=colour, hatch=hatch, label=f"{CAUSES[cause]}, {100 * share:.1f} points", **style)
        left += width
    axes.set_yticks([1, 0], [f"{one} worker{'s' * (one > 1)}", f"{more} workers"])
    axes.set(xlabel=f"share of a step of {more} workers [%]; what is left of the blue bar is the efficiency", xlim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    drawing.legend(loc="outside upper center", ncols=2, fontsize="small", edgecolor="none")
    return drawing


def explain(one, more, figure_path="efficiency.png", say=print):
    """Read two runs, `say` and draw where the efficiency goes. Raises ProfileError, ResultError or FigureError."""
    runs = [run for path in (one, more) for run in readers.load([path])]
    explanation = split(*runs)
    lines = text(explanation)
    for line in lines:
        say(line)
    say("Figure: " + " and ".join(map(str, save(draw(explanation), Path(figure_path), " ".join(lines)))))
