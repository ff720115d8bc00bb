"""Profiles whose contents are known, made for tests: timelines in memory, Chrome traces, and databases of nvprof's and
nsys's schemas."""

import json
import sqlite3
from pathlib import Path

from handson.profiling.timeline import COMMUNICATION, COMPUTE, COPY, HOST, LOADING, RANGE, STEP, Builder, Run

ROOT = Path(__file__).resolve().parents[2]
REAL = ROOT.parent / "shared/data/profiles"
MS = 1_000_000  # ns
KINDS = {"compute": COMPUTE, "communication": COMMUNICATION, "copy": COPY, "loading": LOADING, "host": HOST}
KINDS |= {"range": RANGE, "step": STEP}
HOUR = 3_600_000 * MS  # when made profiles begin


def timeline(rank, events, on_gpu=False, host=None, ahead=0, size=None):
    """A Timeline of (kind, begin, end) or (kind, begin, end, name) in ms, by a clock that is `ahead` (ns)."""
    builder = Builder()
    for kind, begin, end, *name in events:
        begin, end = (HOUR + round(moment * MS) + ahead for moment in (begin, end))
        builder.add(
            begin,
            end,
            name[0] if name else kind,
            KINDS[kind],
            "thread 0" if kind not in ("communication", "copy") else kind,
        )
    return builder.finish(rank=rank, size=size, host=host, on_gpu=on_gpu, tool="a test")


def step(number, begin, end):
    """The event of an iteration."""
    return "step", begin, end, f"ProfilerStep#{number}"


def run(*timelines, name="a run"):
    """A Run of these."""
    return Run(name, list(timelines))


def chrome_trace(path, events, **facts):
    """A trace as torch.profiler writes it, of (category, name, begin, length) in µs."""
    events = [
        {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": begin, "dur": length, "args": {}}
        for cat, name, begin, length in events
    ]
    others = [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "i", "name": "end", "ts": 9, "s": "g"},
    ]
    path.write_text(json.dumps({"schemaVersion": 1} | facts | {"traceEvents": events + others, "traceName": "x"}))
    return path


def database(path, **tables):
    """An SQLite file; each table is (its columns in one text, rows)."""
    with sqlite3.connect(path) as connection:
        for name, (columns, rows) in tables.items():
            connection.execute(f"CREATE TABLE {name} ({columns})")
            for row in rows:
                connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    connection.close()
    return path


def nvprof(path, pid=4242, **others):
    """An nvprof -o file: a step with two kernels (one of NCCL), a copy, and the functions that launched them; times in
    ns."""
    tables = {
        "StringTable": (
            "_id_ INTEGER PRIMARY KEY, value TEXT",
            [(1, "volta_sgemm"), (2, "ncclAllReduceRingLLKernel_sum_f32"), (3, "step 9")],
        ),
        "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": (
            (
                "_id_ INTEGER, start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER,"
                " name INTEGER"
            ),
            [(1, 1000, 5000, 0, 7, 11, 1), (2, 4000, 8000, 0, 14, 12, 2)],
        ),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (
            (
                "_id_ INTEGER, copyKind INTEGER, bytes INTEGER, start INTEGER, end INTEGER, deviceId INTEGER, streamId"
                " INTEGER, correlationId INTEGER"
            ),
            [(1, 1, 4096, 500, 900, 0, 7, 10)],
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            (
                "_id_ INTEGER, cbid INTEGER, start INTEGER, end INTEGER, processId INTEGER, threadId INTEGER,"
                " correlationId INTEGER"
            ),
            [(1, 41, 400, 450, pid, 1, 10), (2, 211, 460, 470, pid, 1, 11), (3, 211, 480, 490, pid, 1, 12)],
        ),
        "CUPTI_ACTIVITY_KIND_MARKER": (
            (
                "_id_ INTEGER, flags INTEGER, timestamp INTEGER, id INTEGER, objectKind INTEGER, name INTEGER, domain"
                " INTEGER"
            ),
            [(1, 2, 300, 1, 2, 3, 0), (2, 4, 9000, 1, 2, 0, 0)],
        ),
    }
    return database(path, **tables | others)


def nsys(path, pids=(100, 200), **others):
    """An export of nsys: in each process a step with a kernel and an all-reduce, named by our recorder's mark as rank
    0, 1, ..."""
    strings = [
        (1, "void gemm<float>(int)"),
        (2, "ncclDevKernel_AllReduce"),
        (3, "cudaLaunchKernel_v7000"),
        (4, "step 3"),
    ]
    kernels, functions, ranges = [], [], []
    for rank, pid in enumerate(pids):
        begin, whole = 1000 + 100 * rank, (5 << 48) + (pid << 24)
        kernels += [
            (begin, begin + 500, 0, 7, 21 + rank, whole, 1, 1),
            (begin + 400, 3000, 0, 9, 31 + rank, whole, 2, 2),
        ]
        functions += [(begin - 50, begin - 40, whole + pid, 21 + rank, 3)]
        ranges += [
            (900, 4000, 59, None, 4, whole + pid),
            (901, None, 34, f"handson: rank {rank} of {len(pids)} on node{rank}", None, whole + pid),
        ]
    tables = {
        "StringIds": ("id INTEGER PRIMARY KEY, value TEXT", strings),
        "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs INTEGER, utcTime TEXT, localTime TEXT", [(10**18, "", "")]),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            (
                "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid"
                " INTEGER, demangledName INTEGER, shortName INTEGER"
            ),
            kernels,
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER",
            functions,
        ),
        "NVTX_EVENTS": (
            "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER",
            ranges,
        ),
    }
    return database(path, **tables | others)
