"""The model into which all profiles are converted: a `Timeline` for each process, a `Run` for the processes of one
training run.

Times are nanoseconds since 1970 on the clock of the process's machine. Events are columns, so that ten million of them
take 250 MB. Time without events of a process is idle time.
"""

import re
from array import array
from dataclasses import dataclass, field, replace

import numpy

from handson.errors import OneSentence
from handson.profiling import spans

# Kinds of events. A device is a GPU, or a core if the profile has no GPU.
COMPUTE = 0  # a kernel; an operator on a core
COMMUNICATION = 1  # a collective, from the moment at which this rank is ready, so it includes waiting for other ranks
COPY = 2  # between host and GPU
LOADING = 3  # fetching the next batch
HOST = 4  # the work of a GPU's process on its core: operators, CUDA functions
RANGE = 5  # a named span: NVTX, record_function
STEP = 6  # an iteration, from one optimizer step to the next
KINDS = ("compute", "communication", "copy", "loading", "host", "range", "step")

# names of ranges: steps that contain one are left out
EVALUATION, AFTER_TRAINING = NO_STEPS = "evaluation", "after training"
PARTS = ("forward", "backward", "all-reduce", "optimize")  # names of the ranges that students mark in a step

COLUMNS = ("begin", "end", "name", "kind", "lane")
AT_ONCE = 1_000_000  # events to process at a time


class ProfileError(OneSentence, ValueError):
    """The reason why a profile cannot be read or analysed."""


def part_of_step(name):
    """Return the part, one of PARTS, that a range's name means, or None. Only letters count, in lower or upper case."""
    return {_letters(part): part for part in PARTS}.get(_letters(name))


def _letters(name):
    return re.sub("[^a-z]", "", name.lower())


@dataclass
class Timeline:
    """The events of one process. The columns `begin`, `end` (ns), `name`, `kind`, `lane` have equal lengths, and are
    sorted by begin."""

    begin: numpy.ndarray
    end: numpy.ndarray
    name: numpy.ndarray  # index into `names`
    kind: numpy.ndarray  # index into KINDS
    lane: numpy.ndarray  # index into `lanes`
    names: list
    lanes: list  # words: "thread 17", "GPU 0, stream 7"
    rank: int | None = None  # None if the file does not contain it
    size: int | None = None  # number of ranks
    host: str | None = None
    clock: str | None = None  # identity of the machine, whose virtual nodes share its clock
    pid: int | None = None
    on_gpu: bool = False  # whether a GPU computes
    source: str = ""  # path of the file
    tool: str = ""  # the tool that recorded it
    unrecorded_step: float | None = None  # seconds of a step before recording
    untimed: int = 0  # GPU events without a time, which are left out

    def __len__(self):
        return len(self.begin)

    def spans(self, *kinds):
        """Return the moments of all events of some kinds."""
        chosen = numpy.isin(self.kind, kinds)
        return spans.union(self.begin[chosen], self.end[chosen])

    def count(self, kind):
        """Return the number of events of a kind."""
        return int((self.kind == kind).sum())

    def steps(self):
        """Return (number, begin, end) of every recorded iteration without an evaluation, as an int64 array (n, 3).

        A profile without marks of iterations counts as a single step, number 0. Events of zero length are not steps.
        """
        chosen = numpy.flatnonzero((self.kind == STEP) & (self.end > self.begin))
        if not len(chosen):
            busy = self.kind != RANGE
            return (
                numpy.array([[0, self.begin[busy].min(), self.end[busy].max()]])
                if busy.any()
                else numpy.empty((0, 3), numpy.int64)
            )
        numbers = [step_number(self.names[index]) for index in self.name[chosen]]
        steps = numpy.stack([numbers, self.begin[chosen], self.end[chosen]], axis=1)
        others = (self.kind == RANGE) & numpy.isin(
            self.name, [i for i, name in enumerate(self.names) if name in NO_STEPS]
        )
        evaluation = spans.union(self.begin[others], self.end[others])
        return steps[[not len(spans.both(step[None, 1:], evaluation)) for step in steps]] if len(evaluation) else steps

    def move_steps(self, moved):
        """Replace the begins and ends of the recorded iterations with ``moved(begins, ends)``."""
        chosen = numpy.flatnonzero((self.kind == STEP) & (self.end > self.begin))
        self.begin[chosen], self.end[chosen] = moved(self.begin[chosen], self.end[chosen])
        order = numpy.argsort(self.begin, kind="stable")
        for column in COLUMNS:
            setattr(self, column, getattr(self, column)[order])

    def between(self, begin, end):
        """Return the Timeline of all events that overlap [begin, end). It may also contain earlier events."""
        first = int(numpy.searchsorted(numpy.maximum.accumulate(self.end), begin))
        chosen = slice(first, max(first, int(numpy.searchsorted(self.begin, end))))
        return replace(self, **{column: getattr(self, column)[chosen] for column in COLUMNS})

    def pieces(self, steps):
        """Yield (Timeline, spans of steps) for AT_ONCE events at a time, because arrays derived from all events would
        need much memory."""
        cuts = self.begin[AT_ONCE::AT_ONCE]
        edges = [steps[0, 1], *cuts[(cuts > steps[0, 1]) & (cuts < steps[-1, 2])], steps[-1, 2]]
        for begin, end in zip(edges, edges[1:]):
            yield (
                self.between(begin, end),
                spans.both(spans.union(steps[:, 1], steps[:, 2]), numpy.array([[begin, end]])),
            )

    def shift(self, nanoseconds):
        """Set the clock of this process forward by `nanoseconds`."""
        self.begin += nanoseconds
        self.end += nanoseconds


STEP_NAME = re.compile(r"(?:ProfilerStep#|step |iteration )(\d+)", re.IGNORECASE)


def step_number(name):
    """Return the number in the name of an iteration's range, such as ProfilerStep#12 or "step 12", or None for other
    names."""
    found = STEP_NAME.fullmatch(name)
    return int(found[1]) if found else None


@dataclass
class Run:
    """The processes of one training run, in the order of their ranks, with aligned clocks."""

    name: str
    timelines: list
    offsets: dict = field(default_factory=dict)  # rank -> ns added to its clock
    usage: dict | None = None  # the use of the devices, from result.json
    result: object = None  # the Result next to the profiles, or None


class Builder:
    """Collect the events of one process, one by one.

    `untimed`: the number of GPU events without a time. CUPTI, which records GPUs for all tools, writes 0 for a time
    that it could not measure.
    """

    def __init__(self):
        self.columns = {name: array(code) for name, code in zip(COLUMNS, "qqiBH")}
        self.names, self.lanes, self.untimed = {}, {}, 0
        self._adders = [column.append for column in self.columns.values()]

    def add(self, begin, end, name, kind, lane):
        """Add an event: begin and end in ns, its name, one of the kinds, the name of its lane."""
        add_begin, add_end, add_name, add_kind, add_lane = self._adders
        add_begin(begin)
        add_end(end)
        add_name(self.names.setdefault(name, len(self.names)))
        add_kind(kind)
        add_lane(self.lanes.setdefault(lane, len(self.lanes)))

    def finish(self, **facts):
        """Return the Timeline of all added events; `facts` are its other fields."""
        columns = {name: numpy.array(column) for name, column in self.columns.items()}
        self.columns.clear()
        self._adders.clear()
        order = numpy.argsort(columns["begin"], kind="stable")
        for name in columns:
            columns[name] = columns[name][order]
        facts["untimed"] = self.untimed
        return Timeline(**columns, names=list(self.names), lanes=list(self.lanes), **facts)
