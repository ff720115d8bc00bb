"""All timelines of some runs as one Chrome trace, for ui.perfetto.dev or chrome://tracing: a process for each rank, clocks set alike."""

import json

from handson.files import written_aside
from handson.profiling.timeline import KINDS, ProfileError

AT_ONCE = 10_000  # events joined into one piece of text


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
    """The JSON of each event, and of the names of processes and threads. Times count from the first event of the run, µs."""
    process = 0
    for run in runs:
        zero = min(int(timeline.begin[0]) for timeline in run.timelines)
        for timeline in run.timelines:
            process += 1
            yield json.dumps({"ph": "M", "name": "process_name", "pid": process, "args": {"name": f"{run.name}, rank {timeline.rank}"}})
            yield json.dumps({"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}})
            for lane, words in enumerate(timeline.lanes):
                yield json.dumps({"ph": "M", "name": "thread_name", "pid": process, "tid": lane, "args": {"name": words}})
            names = [json.dumps(name) for name in timeline.names]
            columns = (timeline.begin, timeline.end, timeline.name, timeline.kind, timeline.lane)
            for begin, end, name, kind, lane in zip(*(column.tolist() if len(column) < 10**6 else column for column in columns)):
                yield (f'{{"ph": "X", "cat": "{KINDS[kind]}", "name": {names[name]}, "pid": {process}, "tid": {lane}, '
                       f'"ts": {(begin - zero) / 1000:.3f}, "dur": {(end - begin) / 1000:.3f}}}')  # fmt: skip
