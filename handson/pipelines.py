"""A simulator of pipelines: stages of a network on GPUs of their own, which pass micro-batches on. It draws when each
stage does what.

A schedule is a list for each stage of the operations that it does, in their order: "F0" is the forward of micro-batch
0, "B0" its backward. `simulate` trains nothing: its `Timeline` says when each operation would begin. A script that
trains has measured its own, and refuses a schedule that is a deadlock. Notebook 06_model_parallel draws both.
"""

import re
from collections import Counter, namedtuple
from dataclasses import dataclass

from handson import figures
from handson.errors import OneSentence

Operation = namedtuple("Operation", "stage name begin end")  # times in units of one forward of a stage
BEHIND_NUMBERS = dict(facecolor="white", edgecolor="none", pad=0.8)
NAMES = {"F": "forward", "B": "backward"}
COLOURS = {"F": figures.part("forward"), "B": figures.part("backward")}


class ScheduleError(OneSentence, ValueError):
    """A schedule cannot be executed."""


def simulate(schedule, forward=1.0, backward=2.0, transfer=0.0):
    """The Timeline of a schedule: each stage begins an operation as soon as it is free and has what the operation
    needs.

    forward, backward: how long these take each stage; transfer: from one stage to the next. Raises ScheduleError, also
    for a deadlock.
    """
    _check(schedule)
    ended, free, done = {}, [0.0] * len(schedule), [0] * len(schedule)  # (stage, operation) -> its end; of each stage
    operations = []
    while remaining := [stage for stage, names in enumerate(schedule) if done[stage] < len(names)]:
        ready = [
            stage
            for stage in remaining
            if (source := _source(schedule, stage, schedule[stage][done[stage]])) is None or source in ended
        ]
        if not ready:
            raise ScheduleError(_deadlock(schedule, done, remaining))
        for stage in ready:
            name = schedule[stage][done[stage]]
            source = _source(schedule, stage, name)
            arrives = ended[source] + transfer * (source[0] != stage) if source else 0.0
            begin = max(free[stage], arrives)
            ended[stage, name] = free[stage] = begin + (forward if name[0] == "F" else backward)
            operations.append(Operation(stage, name, begin, free[stage]))
            done[stage] += 1
    return Timeline(schedule, operations)


def division_problem(stages, layers, batchsize, micro_batches):
    """Return why layers or a batch cannot be divided among stages and micro-batches, as a sentence; or None."""
    if stages > layers:
        return (
            f"{layers} layers cannot be split into {stages} stages: start {layers} rank{'s' * (layers > 1)} at most,"
            " or give the network more --blocks"
        )
    if batchsize % micro_batches:
        return (
            f"a batch of {batchsize} images cannot be split into {micro_batches} equal micro-batches: --micro-batches"
            " must divide --batchsize"
        )
    return None


def beyond_problem(schedule, micro_batches):
    """Return which operation refers to a micro-batch outside 0 to `micro_batches` - 1, as a sentence; or None."""
    for stage, names in enumerate(schedule):
        for name in names:
            if re.fullmatch("[FB][0-9]+", str(name)) and int(name[1:]) >= micro_batches:
                return f"stage {stage} runs {name}, but the micro-batches are numbered from 0 to {micro_batches - 1}"
    return None


def schedule_problem(schedule, micro_batches):
    """Return why a schedule cannot be executed with the micro-batches 0 to `micro_batches` - 1, as a sentence; or
    None."""
    if problem := beyond_problem(schedule, micro_batches):
        return problem
    try:
        simulate(schedule)
    except ScheduleError as error:
        return str(error)
    numbers = sorted({int(name[1:]) for name in schedule[0]})
    if numbers != list(range(micro_batches)):
        return (
            f"the schedule has the micro-batches {numbers}, but the batch is split into {micro_batches}: use each"
            f" number below {micro_batches} once"
        )
    return exchange_problem(schedule)


def exchange_problem(schedule):
    """Return the reason why the stages would deadlock, as a sentence; or None. Between two operations a stage sends
    what the first one has made and receives what the second one needs, and waits until both messages have been taken,
    as NCCL does with large ones."""
    exchanges = [_exchanges(schedule, stage) for stage in range(len(schedule))]
    offered, done = Counter(message for one in exchanges for message in one[0]), [0] * len(schedule)
    while remaining := [stage for stage, one in enumerate(exchanges) if done[stage] < len(one)]:
        free = [stage for stage in remaining if all(offered[one] == 2 for one in exchanges[stage][done[stage]])]
        if not free:
            waits = [
                f"stage {stage} waits until stage {to} receives {name}"
                if stage == source
                else f"stage {stage} waits for {name} of stage {source}"
                for stage in remaining
                for name, source, to in exchanges[stage][done[stage]]
                if offered[name, source, to] < 2
            ]
            return (
                "the schedule deadlocks, since a stage receives the messages of another stage in the order in which"
                f" they were sent: {', '.join(waits)}"
            )
        for stage in free:
            done[stage] += 1
            offered.update(exchanges[stage][done[stage]] if done[stage] < len(exchanges[stage]) else ())
    return None


def _exchanges(schedule, stage):
    """Return the messages (operation, from, to) before each operation of a stage, and after the last one."""
    last, names = len(schedule) - 1, schedule[stage]
    found = [[] for _ in range(len(names) + 1)]
    for place, name in enumerate(names):
        before, after = (stage - 1, stage + 1) if name[0] == "F" else (stage + 1, stage - 1)
        found[place] += [(name, before, stage)] if 0 <= before <= last else []
        found[place + 1] += [(name, stage, after)] if 0 <= after <= last else []
    return found


@dataclass
class Timeline:
    """The times at which each stage works: `operations`, in an order in which they can be executed. unit: of their
    times, in words."""

    schedule: list
    operations: list
    unit: str = "forwards of a stage"

    @property
    def end(self):
        """The end of the last operation."""
        return max(operation.end for operation in self.operations)

    @property
    def bubble(self):
        """The idle share of all stages' time: (p - 1) / (m + p - 1) for p stages and m micro-batches, if transfers take
        no time."""
        busy = sum(operation.end - operation.begin for operation in self.operations)
        return 1 - busy / (self.end * len(self.schedule))

    @property
    def held(self):
        """For each stage, the largest number of micro-batches whose activations it holds, from their forward to the end
        of their backward."""
        most = []
        for names in self.schedule:
            holds = [0]
            for name in names:
                holds.append(holds[-1] + (1 if name[0] == "F" else -1))
            most.append(max(holds))
        return most

    def picture(self, title=""):
        """Return the figure of the timeline, for a notebook."""
        return figures.picture(*self.draw(title))

    def draw(self, title=""):
        """Return the figure, a row for each stage, and its description."""
        from matplotlib.patches import Patch

        stages = len(self.schedule)
        drawing, axes = figures.axes(9, 1.2 + 0.45 * stages, grid=False)
        for stage, name, begin, end in self.operations:
            axes.barh(stage, end - begin, left=begin, height=0.8, **COLOURS[name[0]])
            axes.text(
                (begin + end) / 2, stage, name[1:], ha="center", va="center", fontsize="small", bbox=BEHIND_NUMBERS
            )
        words = f"{self.bubble:.1%} of the time idle"
        axes.set(
            xlabel=f"time [{self.unit}]",
            yticks=range(stages),
            yticklabels=[f"stage {stage}" for stage in range(stages)],
            xlim=(0, self.end),
        )
        axes.set_title(f"{title}: {words}" if title else words, loc="left", fontsize="medium", parse_math=False)
        drawing.legend(
            handles=[Patch(**COLOURS[letter], label=f"{name} of micro-batch") for letter, name in NAMES.items()],
            loc="outside upper right",
            ncols=2,
            fontsize="small",
            frameon=False,
        )
        axes.invert_yaxis()
        rows = " ".join(f"Stage {stage}: {', '.join(names)}." for stage, names in enumerate(self.schedule))
        return drawing, f"Timeline of a pipeline of {stages} stages, {words}. {rows}"


def _source(schedule, stage, name):
    """Return the (stage, operation) whose result an operation needs; None for the forward of the first stage."""
    if name[0] == "F":
        return (stage - 1, name) if stage else None
    return (stage + 1, name) if stage + 1 < len(schedule) else (stage, f"F{name[1:]}")


def _check(schedule):
    """Raises ScheduleError unless each stage does one forward and then one backward for each of the same
    micro-batches."""
    if not schedule or not all(schedule):
        raise ScheduleError(
            "a schedule needs a list of operations for each stage, such as [['F0', 'B0'], ['F0', 'B0']]"
        )
    for stage, names in enumerate(schedule):
        for place, name in enumerate(names):
            if not isinstance(name, str) or not re.fullmatch("[FB](0|[1-9][0-9]{0,3})", name):
                raise ScheduleError(
                    f"stage {stage}: {name!r} is not an operation; F0 is the forward of micro-batch 0, and B0 its"
                    " backward"
                )
            if name in names[:place]:
                raise ScheduleError(f"stage {stage} runs {name} twice")
            if name[0] == "B" and f"F{name[1:]}" not in names[:place]:
                raise ScheduleError(f"stage {stage} runs {name} before F{name[1:]}, whose activations it needs")
    everybodys = [set(names) for names in schedule]
    everything = set.union(*everybodys) | {f"B{name[1:]}" for name in set.union(*everybodys)}
    for stage, names in enumerate(everybodys):
        if missing := sorted(everything - names, key=lambda name: (int(name[1:]), name[0] == "B")):
            raise ScheduleError(
                f"stage {stage} never runs {missing[0]}: each stage needs a forward and a backward for each micro-batch"
            )


def _deadlock(schedule, done, remaining):
    """Return which stage waits for which operation, as a sentence."""
    waits = []
    for stage in remaining:
        name = schedule[stage][done[stage]]
        source, needed = _source(schedule, stage, name)
        waits.append(f"stage {stage} waits for {needed} of stage {source} to start {name}")
    return "the schedule deadlocks: " + ", ".join(waits)
