"""Simulate pipelines: each stage of a network has a GPU, and micro-batches travel from stage to stage.

A schedule has a list for each stage: its operations, in their order. "F0" is the forward of micro-batch 0, and "B0" its
backward. A backward has two halves, which may run apart: "I0" computes the gradient of the inputs, which the stage
before waits for, and "W0" the gradient of the weights, which no stage waits for. If each stage has several chunks of
the network, "F0.1" is the forward of micro-batch 0 in chunk 1: it follows chunk 0 of the last stage.

`simulate` trains nothing: its `Timeline` reports when each operation would start. A script that trains measures its own
Timeline, and refuses a schedule that deadlocks. Notebook 06b_model_parallel draws both.
"""

import re
from collections import Counter, namedtuple
from dataclasses import dataclass

from handson import figures
from handson.errors import OneSentence
from handson.language import marked

Operation = namedtuple("Operation", "stage name begin end")  # times in units of one forward of a stage
Parsed = namedtuple("Parsed", "kind number chunk")
OPERATION = re.compile(r"([FBIW])(0|[1-9][0-9]{0,3})(?:\.([0-9]))?")
BEHIND_NUMBERS = dict(facecolor="white", edgecolor="none", pad=0.8)
NAMES = {"F": "forward", "B": "backward", "I": "backward: inputs", "W": "backward: weights"}
COLOURS = {
    "F": figures.part("forward"),
    "B": figures.part("backward"),
    "I": figures.part("backward"),
    "W": figures.part("evaluate"),
}
LATER_CHUNK = dict(facecolor=figures.PALE_ORANGE)  # the hatching is that of chunk 0


class ScheduleError(OneSentence, ValueError):
    """A schedule cannot be executed."""


def simulate(schedule, forward=1.0, backward=2.0, transfer=0.0):
    """Return the Timeline of a schedule: each stage starts an operation as soon as the stage is free and the inputs of
    the operation have arrived.

    forward, backward: the duration of a stage's forward and backward, in all of its chunks together; each half of a
    backward takes half of its time. transfer: the time of a message between two stages. Raises ScheduleError, also for
    a deadlock.
    """
    _check(schedule)
    chunks = _chunks(schedule)
    seconds = {"F": forward, "B": backward, "I": backward / 2, "W": backward / 2}
    ended, free, done = {}, [0.0] * len(schedule), [0] * len(schedule)  # (stage, result) -> its end; of each stage
    operations = []
    while remaining := [stage for stage, names in enumerate(schedule) if done[stage] < len(names)]:
        ready = [
            stage
            for stage in remaining
            if (source := _source(len(schedule), chunks, stage, schedule[stage][done[stage]])) is None
            or source in ended
        ]
        if not ready:
            raise ScheduleError(_deadlock(schedule, done, remaining))
        for stage in ready:
            name = schedule[stage][done[stage]]
            source = _source(len(schedule), chunks, stage, name)
            arrives = ended[source] + transfer * (source[0] != stage) if source else 0.0
            begin = max(free[stage], arrives)
            free[stage] = begin + seconds[name[0]] / chunks
            if name[0] != "W":
                ended[stage, _result(name)] = free[stage]
            operations.append(Operation(stage, name, begin, free[stage]))
            done[stage] += 1
    return Timeline(schedule, operations)


def interleaved(stages, micro_batches, chunks=2):
    """Return the schedule of interleaved 1F1B (Narayanan et al. 2021): each stage has several chunks of the network,
    and runs `stages` micro-batches in one chunk before the next chunk. Raises ScheduleError."""
    if micro_batches % stages:
        raise ScheduleError(
            f"interleaved 1F1B needs a multiple of {stages} micro-batches for {stages} stages, not {micro_batches}"
        )
    total, group = micro_batches * chunks, stages * chunks

    def name(kind, place):
        chunk = place % group // stages
        number = place // group * stages + place % stages
        return f"{kind}{number}.{chunk if kind == 'F' else chunks - 1 - chunk}"

    def of_stage(stage):
        warm_up = min(2 * (stages - 1 - stage) + (chunks - 1) * stages, total)
        operations = [name("F", place) for place in range(warm_up)]
        for place in range(warm_up, total):
            operations += [name("F", place), name("B", place - warm_up)]
        return operations + [name("B", place) for place in range(total - warm_up, total)]

    return [of_stage(stage) for stage in range(stages)]


def zero_bubble(stages, micro_batches):
    """Return the zero-bubble schedule ZB-H1 (Qi et al. 2023): 1F1B whose stages postpone the gradients of the weights
    until they would be idle. No stage holds more micro-batches than stage 0 does with 1F1B."""

    def of_stage(stage):
        warm_up = min(stages - 1 - stage, micro_batches)
        operations = [f"F{number}" for number in range(warm_up)]
        for number in range(micro_batches):
            operations += [f"F{number + warm_up}"] if number + warm_up < micro_batches else []
            operations += [f"I{number}"]
            operations += [f"W{number - stage}"] if number >= stage else []
        return operations + [f"W{number}" for number in range(max(micro_batches - stage, 0), micro_batches)]

    return [of_stage(stage) for stage in range(stages)]


def division_problem(stages, layers, batchsize, micro_batches, chunks=1):
    """Return why layers or a batch cannot be divided among stages, each with some chunks, and micro-batches, as a
    sentence; or None."""
    if stages * chunks > layers:
        most = layers // chunks
        return (
            f"{layers} layers cannot be split into {stages} stages{f' of {chunks} chunks' * (chunks > 1)}: start"
            f" {most} rank{'s' * (most > 1)} at most, or give the network more --blocks"
        )
    if chunks > 1 and micro_batches % stages:
        return f"stages of {chunks} chunks need a multiple of {stages} micro-batches: choose another --micro-batches"
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
            if (found := OPERATION.fullmatch(str(name))) and int(found[2]) >= micro_batches:
                return f"stage {stage} runs {name}, but the micro-batches are numbered from 0 to {micro_batches - 1}"
    return None


def divided_problem(schedule):
    """Return which operation is not a whole forward or backward of a stage, as a sentence; or None."""
    for stage, names in enumerate(schedule):
        for name in names:
            if OPERATION.fullmatch(str(name)) and not re.fullmatch("[FB][0-9]+", str(name)):
                return (
                    f"stage {stage} runs {name}, but pipeline.py runs only whole forwards and backwards, such"
                    " as F0 and B0"
                )
    return None


def schedule_problem(schedule, micro_batches):
    """Return why pipeline.py cannot execute a schedule with the micro-batches 0 to `micro_batches` - 1, as a sentence;
    or None."""
    if problem := beyond_problem(schedule, micro_batches) or divided_problem(schedule):
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
    """Return why the stages would deadlock, as a sentence; or None. Between two operations, a stage sends the result of
    the first operation and receives the input of the second one. It waits until both messages have been received, as
    NCCL does with large messages."""
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
                "the schedule deadlocks, because a stage receives the messages of another stage in the order in which"
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
    """The times at which each stage computes. `operations` have an order in which they can be executed; `unit` is the
    name of the unit of their times."""

    schedule: list
    operations: list
    unit: str = "forwards of a stage"

    @property
    def end(self):
        """The end of the last operation."""
        return max(operation.end for operation in self.operations)

    @property
    def chunks(self):
        """The number of chunks of each stage."""
        return _chunks(self.schedule)

    @property
    def bubble(self):
        """The idle share of all stages' time. With 1F1B it is (p - 1) / (m + p - 1) for p stages and m micro-batches,
        if transfers take no time."""
        busy = sum(operation.end - operation.begin for operation in self.operations)
        return 1 - busy / (self.end * len(self.schedule))

    @property
    def held(self):
        """The largest number of micro-batches whose activations each stage holds at once, from their forward to the end
        of their backward. A chunk holds its share of a micro-batch."""
        most = []
        for names in self.schedule:
            holds = [0]
            for name in names:
                holds.append(holds[-1] + {"F": 1, "I": 0}.get(name[0], -1))
            whole, part = divmod(max(holds), self.chunks)
            most.append(whole + part / self.chunks if part else whole)
        return most

    def picture(self, title=""):
        """Return the figure of the timeline, for a notebook."""
        return figures.picture(*self.draw(title))

    def draw(self, title=""):
        """Return the figure, a row for each stage, and its description."""
        stages = len(self.schedule)
        drawing, axes = figures.axes(9, 1.2 + 0.45 * stages, grid=False)
        for stage, name, begin, end in self.operations:
            number, style = _parsed(name).number, _style(name)
            axes.barh(stage, end - begin, left=begin, height=0.8, **style)
            axes.text((begin + end) / 2, stage, number, ha="center", va="center", fontsize="small", bbox=BEHIND_NUMBERS)
        words = f"{self.bubble:.1%} of the time idle"
        axes.set(
            xlabel=f"time [{self.unit}]",
            yticks=range(stages),
            yticklabels=[marked(f"stage {stage}") for stage in range(stages)],
            xlim=(0, self.end),
        )
        axes.set_title(f"{title}: {words}" if title else words, loc="left", fontsize="medium", parse_math=False)
        for stage, held in enumerate(self.held):
            axes.text(
                1.01, stage, f"holds {held:g}", va="center", fontsize="small", transform=axes.get_yaxis_transform()
            )
        drawing.legend(handles=self._legend(), loc="outside upper right", ncols=4, fontsize="small", frameon=False)
        axes.invert_yaxis()
        rows = " ".join(
            f"Stage {stage}: {', '.join(names)}. It holds at most {held:g}."
            for stage, (names, held) in enumerate(zip(self.schedule, self.held))
        )
        return drawing, f"Timeline of a pipeline of {stages} stages, {words}, and the micro-batches held. {rows}"

    def _legend(self):
        from matplotlib.patches import Patch

        kinds = {name[0] for names in self.schedule for name in names}
        found = [Patch(**COLOURS[kind], label=words) for kind, words in NAMES.items() if kind in kinds]
        if self.chunks > 1:
            found += [Patch(**COLOURS["F"] | LATER_CHUNK, label="later chunk")]
        return found


def _parsed(name):
    kind, number, chunk = OPERATION.fullmatch(name).groups()
    return Parsed(kind, int(number), int(chunk or 0))


def _result(name):
    """Return the Parsed result of an operation that other operations wait for: "I0" and "B0" have the same one."""
    parsed = _parsed(name)
    return parsed._replace(kind="F" if parsed.kind == "F" else "B")


def _chunks(schedule):
    return 1 + max(_parsed(name).chunk for names in schedule for name in names)


def _style(name):
    """Return the style of an operation's bar."""
    kind, _, chunk = _parsed(name)
    return COLOURS[kind] | (LATER_CHUNK if chunk else {})


def _source(stages, chunks, stage, name):
    """Return the (stage, result) that an operation needs, or None for the first forward of a micro-batch."""
    kind, number, chunk = _parsed(name)
    if kind == "W":
        return stage, _result(name)
    if kind == "F":
        before = (stage - 1, chunk) if stage else (stages - 1, chunk - 1)
        return None if before[1] < 0 else (before[0], Parsed("F", number, before[1]))
    after = (stage + 1, chunk) if stage + 1 < stages else (0, chunk + 1)
    return (stage, Parsed("F", number, chunk)) if after[1] == chunks else (after[0], Parsed("B", number, after[1]))


def _check(schedule):
    """Raise ScheduleError unless each stage runs one forward and then one backward, or both of its halves, for each of
    the same micro-batches in each chunk."""
    if not schedule or not all(schedule):
        raise ScheduleError(
            "a schedule needs a list of operations for each stage, such as [['F0', 'B0'], ['F0', 'B0']]"
        )
    for stage, names in enumerate(schedule):
        done = set()
        for name in names:
            if not isinstance(name, str) or not OPERATION.fullmatch(name):
                raise ScheduleError(
                    f"stage {stage}: {name!r} is not an operation; F0 is the forward of micro-batch 0, and B0 its"
                    " backward"
                )
            if problem := _order_problem(name, done):
                raise ScheduleError(f"stage {stage} runs {problem}")
            done.add(_parsed(name))
    chunks = _chunks(schedule)
    everything = {(_parsed(name).number, chunk) for names in schedule for name in names for chunk in range(chunks)}
    for stage, names in enumerate(schedule):
        kinds = {place: set() for place in sorted(everything)}
        for kind, *place in map(_parsed, names):
            kinds[tuple(place)].add(kind)
        for (number, chunk), of_one in kinds.items():
            if missing := _missing(of_one):
                shown = f"{missing}{number}" + f".{chunk}" * (chunks > 1)
                raise ScheduleError(
                    f"stage {stage} never runs {shown}: each stage needs a forward and a backward for each micro-batch"
                )


def _order_problem(name, done):
    """Return why an operation cannot follow those that its stage has `done`, as a part of a sentence; or None."""
    parsed, place = _parsed(name), name[1:]
    kind = parsed.kind
    if parsed in done:
        return f"{name} twice"
    if kind in "BI" and parsed._replace(kind="F") not in done:
        return f"{name} before F{place}, whose activations it needs"
    if kind == "W" and parsed._replace(kind="I") not in done:
        return f"{name} before I{place}, whose gradients it needs"
    if kind in "BI" and parsed._replace(kind="I" if kind == "B" else "B") in done:
        return f"B{place} and I{place}: B{place} is the whole backward, and I{place} and W{place} are its two halves"
    return None


def _missing(kinds):
    """Return the first operation that a micro-batch lacks on a stage, whose operations have these kinds; or ""."""
    if "F" not in kinds:
        return "F"
    if not kinds & {"B", "I"}:
        return "B"
    return "W" if "I" in kinds and "W" not in kinds else ""


def _deadlock(schedule, done, remaining):
    """Return which stage waits for which operation, as a sentence."""
    waits = []
    for stage in remaining:
        name = schedule[stage][done[stage]]
        source, result = _source(len(schedule), _chunks(schedule), stage, name)
        needed = next(one for one in schedule[source] if one[0] != "W" and _result(one) == result)
        waits.append(f"stage {stage} waits for {needed} of stage {source} to start {name}")
    return "the schedule deadlocks: " + ", ".join(waits)
