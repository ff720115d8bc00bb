"""Profiling: what recording costs a training, how fast and in how much memory profiles are read, what watching costs.

Recorded and unrecorded steps take turns within each process, so that both see the same machine.
"""

import contextlib
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.runs import LIMIT, ROOT, finish, start

ROUNDS, TURNS = 3, 2  # processes, and turns in each
STEPS = 30  # recorded in a turn, as by default
PAIRS = 3  # of runs, with 1 and with 2 workers
SIZES = {"pytorch": "256", "chainer": "128"}  # pixels: of a step that takes some 100 ms
EVENTS, MANY = 1_000_000, 10_000_000
LOOKS = 20  # of `watch`, one a second

# In a process of its own: read the profile, then tell about it; the memory is what it took at most (bytes, with Python
# and NumPy).
READ = """
import resource, sys, time
from handson.profiling import readers, report
begin = time.perf_counter(), time.process_time()
[run] = readers.load([sys.argv[1]])
seconds = time.perf_counter() - begin[0], time.process_time() - begin[1]
report.text(run)
print(*seconds, len(run.timelines[0]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def measure(folder):
    """Rows (what, value, target)."""
    return recording(folder) + explaining(folder) + reading(folder) + watching()


def recording(folder):
    """The step time of task 1 while torch.profiler records, against that of unrecorded steps between."""
    ratios = []
    for turn in range(ROUNDS):
        out = folder / f"recorded_{turn}"
        command = [sys.executable, "-m", "tests.bench.profiling", str(out)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            cwd=ROOT,
            env=os.environ | {"KINETO_LOG_LEVEL": "99"},
        )
        if done.returncode:
            sys.exit(f"recording failed: {done.stderr}")
        ratios.append(float(done.stdout.split()[-1]))
    return [
        (
            "time of a recorded step / of one between them, torch.profiler, task 1",
            f"{statistics.median(ratios):.3f}",
            "under 1.10",
        )
    ]


def alternate(out):
    """Train as task 1 does, some steps recorded, some not, in turns. Prints the median ratio of their CPU times."""
    import torch

    from handson.profiling.recorders.torch_profiler import TorchRecorder
    from handson.profiling.recording import Plan
    from handson.pytorch import devices
    from handson.pytorch.model import ConvNet
    from handson.training import data

    train_set, _ = data.load("digits")
    devices.use(0)
    model = ConvNet(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    images, labels = data.enlarge(train_set.images[:32], 256), train_set.labels[:32]

    def seconds():
        begin = time.thread_time()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        return time.thread_time() - begin

    ratios = []
    for turn in range(TURNS):
        TorchRecorder(Plan("torch", 2, STEPS, Path(out) / str(turn)))
        times = [seconds() for _ in range(2 + 2 * STEPS)]
        # the last one recorded ends with writing
        ratios.append(statistics.median(times[2 : STEPS + 1]) / statistics.median(times[STEPS + 2 :]))
    print(statistics.median(ratios))


def explaining(folder):
    """What `explain` leaves unexplained of the recorded steps' loss, and how far it is from the loss of throughput, in
    some pairs of runs."""
    from handson.profiling import explain, readers

    rows = []
    for track in "pytorch", "chainer":
        found = []
        for turn in range(PAIRS):
            pair = folder / f"{track}_{turn}"
            for task, epochs in ("single_gpu", 1), ("multi_gpu", 2):  # about 48 steps each, of which 30 are recorded
                launcher = [sys.executable, "-m", "handson", "profile", "-o", str(pair / task), "--"]
                finish(
                    start(task, pair / task, "--size", SIZES[track], "-e", str(epochs), track=track, launcher=launcher)
                )
            found.append(explain.split(*readers.load([pair / "single_gpu", pair / "multi_gpu"])))
        losses = ", ".join(f"{100 * one.loss:.1f}" for one in found)
        rows.append(
            (
                f"points not explained of {losses}, {track}",
                f"{max(100 * abs(one.rest) for one in found):.2f}",
                f"within 5; the most of {PAIRS}",
            )
        )
        rows.append(
            (
                "points from there to the loss by the throughput of the whole runs",
                f"{max(one.apart for one in found):.1f}",
                f"within 5; the most of {PAIRS}",
            )
        )
    return rows


def reading(folder):
    """A million events in every format, and ten million in the largest; our own records of Chainer are Chrome traces,
    too."""
    rows = []
    for words, write, events in (
        ("Chrome trace", write_trace, EVENTS),
        ("nsys", write_nsys, EVENTS),
        ("nvprof", write_nvprof, EVENTS),
        ("Chrome trace", write_trace, MANY),
    ):
        path = folder / "profile"
        write(path, events)
        what = f"{events:,} events, {words} ({path.stat().st_size / 1e9:.2f} GB)"
        done = subprocess.run(
            [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, timeout=LIMIT, cwd=ROOT
        )
        path.unlink()
        if done.returncode:
            sys.exit(f"reading failed: {done.stderr}")
        seconds, busy, found, memory = map(float, done.stdout.split())
        assert found == events
        rows.append(
            (f"seconds to read {what}", f"{seconds:.2f}", f"{'under 10; ' * (events == EVENTS)}{busy:.2f} of a core")
        )
        rows.append((f"MB of memory to read and tell about {what}", f"{memory / 1e6:.0f}", "under 1,000"))
    return rows


def write_trace(path, events):
    """A Chrome trace of so many events, a thousand to a step, in torch.profiler's layout."""
    with open(path, "w") as file:
        file.write(
            '{\n  "schemaVersion": 1,\n  "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2},\n '
            ' "baseTimeNanoseconds": 1790857026000000000,\n'
        )
        file.write('  "traceEvents": [\n')
        for number in range(events):
            step = number % 1000 == 0
            kind, name = (
                ("user_annotation", f"ProfilerStep#{number // 1000}")
                if step
                else ("cpu_op", f"aten::operator_{number % 300}")
            )
            event = {
                "ph": "X",
                "cat": kind,
                "name": name,
                "pid": 4242,
                "tid": 4242 + number % 2,
                "ts": 4328803042131.125 + 6 * number,
                "dur": 5999.5 if step else 5.312,
                "args": {"External id": number, "Record function id": 0, "Ev Idx": number},
            }
            file.write(f"  {json.dumps(event)},\n")
        file.write(
            '  {"ph": "M", "name": "process_name", "pid": 4242, "tid": 0, "ts": 0, "args": {"name": "python"}}\n  ],'
            ' "traceName": "trace.json"\n}\n'
        )


def write_nsys(path, events):
    """An export of nsys of so many events: launches and kernels by turns, and a step for each thousand."""
    numbers, process = range((events - events // 1000) // 2), 4242 << 24
    _write_tables(
        path,
        StringIds=("id INTEGER PRIMARY KEY, value", ((number, f"kernel_{number}") for number in range(300))),
        CUPTI_ACTIVITY_KIND_KERNEL=(
            "start, end, deviceId, streamId, globalPid, demangledName",
            ((2000 * n, 2000 * n + 1500, 0, 7, process, n % 300) for n in numbers),
        ),
        CUPTI_ACTIVITY_KIND_RUNTIME=(
            "start, end, globalTid, nameId",
            ((2000 * n, 2000 * n + 500, process + 4242, n % 300) for n in numbers),
        ),
        NVTX_EVENTS=(
            "start, end, eventType, text, textId, globalTid",
            ((10**6 * n, 10**6 * (n + 1), 59, f"step {n}", None, process + 4242) for n in range(events // 1000)),
        ),
    )


def write_nvprof(path, events):
    """The same as nvprof writes it."""
    numbers, steps = range((events - events // 1000) // 2), range(events // 1000)
    _write_tables(
        path,
        StringTable=(
            "_id_ INTEGER PRIMARY KEY, value",
            ((n, f"kernel_{n}" if n < 300 else f"step {n - 300}") for n in range(300 + len(steps))),
        ),
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL=(
            "start, end, correlationId, deviceId, streamId, name",
            ((2000 * n, 2000 * n + 1500, n, 0, 7, n % 300) for n in numbers),
        ),
        CUPTI_ACTIVITY_KIND_RUNTIME=(
            "start, end, processId, threadId, cbid, correlationId",
            ((2000 * n, 2000 * n + 500, 4242, 1, 211, n) for n in numbers),
        ),
        CUPTI_ACTIVITY_KIND_MARKER=(
            "_id_, id, flags, timestamp, name",
            ((2 * n + way, n, 2 + 2 * way, 10**6 * (n + way), 300 + n) for n in steps for way in (0, 1)),
        ),
    )


def _write_tables(path, **tables):
    """An SQLite file; each table is (its columns, rows)."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        for name, (columns, rows) in tables.items():
            database.execute(f"CREATE TABLE {name} ({columns})")
            width = columns.count(",") + 1
            database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * width)})", rows)
        database.commit()


def watching():
    """CPU time of a look at the devices, with writing it down, against a second of a core."""
    import tempfile

    from handson.profiling import usage, watch

    with tempfile.TemporaryDirectory() as folder:
        samples = usage.Samples(Path(folder) / "samples", usage.devices(), 1)
        begin = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(LOOKS):
            watch.table(samples.devices.names, samples.take(), None, 1)
        end = resource.getrusage(resource.RUSAGE_SELF)
    seconds = (end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime) / LOOKS
    return [("% of a core that watching takes, at a look a second", f"{100 * seconds:.3f}", "under 1")]


if __name__ == "__main__":
    alternate(sys.argv[1])
