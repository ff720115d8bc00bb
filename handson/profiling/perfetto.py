"""Write all timelines of some runs as one Chrome trace, for ui.perfetto.dev or chrome://tracing: a process for each
rank, with all clocks aligned."""

import itertools
import json

import numpy

from handson.files import written_aside
from handson.profiling.timeline import COLUMNS, KINDS, STEP, ProfileError

AT_ONCE = 10_000  # events per string
# thread numbers of each process: Perfetto merges threads with equal numbers, even of different processes, and ignores 0
THREADS = 10_000


def write(runs, path):
    """Write the runs to `path`. Raises ProfileError."""
    try:
        with written_aside(path) as file:
            file.write(b'{"displayTimeUnit": "ms", "traceEvents": [\n')
            pieces, begun = [], False
            for piece in _events(runs):
                pieces.append(piece)
                if len(pieces) == AT_ONCE:
                    file.write((",\n" * begun + ",\n".join(pieces)).encode())
                    pieces, begun = [], True
            file.write((",\n" * (begun and bool(pieces)) + ",\n".join(pieces)).encode() + b"\n]}\n")
    except OSError as error:
        raise ProfileError(f"{path} cannot be written ({error.strerror}): give another place with --export") from None


def _events(runs):
    """Yield the JSON of each event, and of the names of processes and threads. Times are in µs from the run's first
    event."""
    process = 0
    for run in runs:
        zero = min(int(timeline.begin[0]) for timeline in run.timelines)
        for timeline in run.timelines:
            process += 1
            first = THREADS * process
            yield json.dumps(
                {
                    "ph": "M",
                    "name": "process_name",
                    "pid": process,
                    "args": {"name": f"{run.name}, rank {timeline.rank}"},
                }
            )
            yield json.dumps({"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}})
            names, lanes, unended = [json.dumps(name) for name in timeline.names], [*timeline.lanes, "steps"], {}
            order = numpy.lexsort((-timeline.end, timeline.begin))  # an event comes before its nested events
            for chosen in numpy.array_split(order, len(order) // AT_ONCE + 1):
                for begin, end, name, kind, lane in zip(
                    *(getattr(timeline, column)[chosen].tolist() for column in COLUMNS)
                ):
                    lane = len(lanes) - 1 if kind == STEP else lane
                    thread = first + lane + len(lanes) * _row(unended, lane, begin, end)
                    yield (
                        f'{{"ph": "X", "cat": "{KINDS[kind]}", "name": {names[name]}, "pid": {process}, "tid":'
                        f' {thread}, "ts": {(begin - zero) / 1000:.3f}, "dur": {(end - begin) / 1000:.3f}}}'
                    )
            for lane, row in unended:
                words = lanes[lane] + f", row {row + 1}" * (row > 0)
                yield json.dumps(
                    {
                        "ph": "M",
                        "name": "thread_name",
                        "pid": process,
                        "tid": first + lane + len(lanes) * row,
                        "args": {"name": words},
                    }
                )


def _row(unended, lane, begin, end):
    """Return the first row of a lane in which no event overlaps this one partly, because Perfetto drops such events.

    unended: (lane, row) -> the ends of its events that have not ended yet.
    """
    for row in itertools.count():
        ends = unended.setdefault((lane, row), [])
        while ends and ends[-1] <= begin:
            ends.pop()
        if not ends or end <= ends[-1]:
            ends.append(end)
            return row
