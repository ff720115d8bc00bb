"""Read Chrome traces ("Trace Event Format") of torch.profiler and of the course's Chainer recorder, plain or gzipped,
of any size.

Events are parsed one by one (ijson), so that only the columns of the timeline need memory. With a GPU, an iteration
includes the GPU's work for it: see `Launches`.
"""

import gzip
import json
import re

import ijson

from handson.profiling import kinds
from handson.profiling.readers.launches import Launches
from handson.profiling.timeline import COMPUTE, HOST, Builder, ProfileError

HEAD, TAIL = 2**20, 2**16  # bytes at the start and the end of a trace, which contain its metadata
LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime")
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")


def read(path):
    """Return the Timeline of one trace. Raises ProfileError, or OSError if the file cannot be read."""
    try:
        with _open(path) as file:
            head, tail = _ends(file)
            prefix = "item" if head.lstrip().startswith("[") else "traceEvents.item"
            try:
                builder, pid, launches = _events(file, prefix)
            except ijson.JSONError as error:
                if "overflow" not in str(error):
                    raise
                builder, pid, launches = _events(file, prefix, large_numbers=True)
    except (ijson.JSONError, EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        first = str(error).strip().splitlines() or ["it is cut off"]
        raise ProfileError(f"{path} is damaged or was not written to its end ({first[0][:80]}): record again") from None
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ProfileError(
            f"{path} is not a trace of torch.profiler ({type(error).__name__}: {str(error)[:80]}): give another file"
        ) from None
    facts = _facts(head, tail)
    base = facts.pop("base", 0)
    on_gpu = launches.on_gpu
    timeline = builder.finish(on_gpu=on_gpu, pid=pid, **facts)
    timeline.kind[timeline.kind == kinds.OPERATOR] = HOST if on_gpu else COMPUTE
    if on_gpu:
        timeline.move_steps(launches.settle)
    timeline.shift(base)
    return timeline


def _open(path):
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else open(path, "rb")


def _ends(file):
    """Return the start and the end of a trace, as strings; only events are between them."""
    head = tail = file.read(HEAD)
    if isinstance(file, gzip.GzipFile):
        while more := file.read(HEAD):
            tail = tail[-TAIL:] + more
    else:
        file.seek(-min(TAIL, file.seek(0, 2)), 2)
        tail = file.read()
    return head.decode("utf-8", "replace"), tail[-TAIL:].decode("utf-8", "replace")


def _facts(head, tail):
    """Return the metadata of a trace: rank, size, host, and the time (ns) at which its clock is zero."""
    before, after = head.split('"traceEvents"')[0], tail.rpartition("]")[2]

    def value(name, pattern):
        found = re.search(rf'"{name}"\s*:\s*{pattern}', before) or re.search(rf'"{name}"\s*:\s*{pattern}', after)
        return found and found[1]

    facts = {"tool": "handson" if value("handson", "({)") else "torch.profiler"}
    for key, name in ("host", "host_name"), ("clock", "clock"):
        facts[key] = value(name, '"([^"]*)"')
    for key, name, pattern in (
        ("base", "baseTimeNanoseconds", r"(\d+)"),
        ("rank", "rank", r"(\d+)"),
        ("size", "world_size", r"(\d+)"),
        ("unrecorded_step", "unrecorded_step_seconds", r"([\d.]+(?:e-\d+)?)"),
    ):
        if found := value(name, pattern):
            facts[key] = json.loads(found)
    return facts


def _events(file, prefix, large_numbers=False):
    """Return a Builder with all complete events, the process id, and the Launches. large_numbers: also parse integers
    beyond 2 ** 63, such as ids of communicators, which is slower."""
    file.seek(0)
    builder, pid, launches, known, lanes = Builder(), None, Launches(), {}, {}
    for event in ijson.items(file, prefix, use_float=not large_numbers):
        if event.get("ph") != "X":
            continue
        category, name = event.get("cat", ""), event["name"]
        if (category, name) not in known:
            known[category, name] = kinds.of_event(category, name)
        kind = known[category, name]
        if kind is None:
            continue
        if not event["ts"] and category in GPU_CATEGORIES:
            builder.untimed += 1
            continue
        if (place := (category in GPU_CATEGORIES, event["pid"], event["tid"])) not in lanes:
            gpu, process, thread = place
            lanes[place] = f"GPU {process}, stream {thread}" if gpu else f"thread {thread}"
            pid = process if pid is None and not gpu else pid
        begin = round(event["ts"] * 1000)
        end = begin + round(event.get("dur", 0) * 1000)
        builder.add(begin, end, name, kind, lanes[place])
        if place[0] or category in LAUNCHES:
            launches.add(place[0], event.get("args", {}).get("correlation", -1), end if place[0] else begin)
    return builder, pid, launches
