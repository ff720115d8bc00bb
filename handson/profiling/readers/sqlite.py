"""Read the SQLite files of nvprof (-o) and of Nsight Systems (nsys export --type sqlite). A table exists only if it has
rows.

Schemas: CUPTI's activity records in both; nsys adds StringIds and serialised process ids, documented with "nsys
export".
"""

import re
import sqlite3
from collections import defaultdict
from urllib.parse import quote

from handson.profiling import kinds
from handson.profiling.readers.launches import Launches
from handson.profiling.timeline import COPY, HOST, Builder, ProfileError

PUSH_POP, START_END, MARK = 59, 60, 34  # nsys: NVTX_EVENTS.eventType
MARKER_BEGIN, MARKER_END = 2, 4  # nvprof: flags of CUPTI_ACTIVITY_KIND_MARKER
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}  # CUpti_ActivityMemcpyKind
# CUPTI's numbers of the CUDA runtime functions that are used here (cupti_runtime_cbid.h).
FUNCTIONS = {
    20: "cudaMalloc",
    22: "cudaFree",
    31: "cudaMemcpy",
    41: "cudaMemcpyAsync",
    51: "cudaMemsetAsync",
    131: "cudaStreamSynchronize",
    135: "cudaEventRecord",
    137: "cudaEventSynchronize",
    165: "cudaDeviceSynchronize",
    211: "cudaLaunchKernel",
}
# the mark with which our recorders name the process in both tools
WHO = re.compile(r"handson: rank (\d+) of (\d+) on (.*)")
EMIT_NVTX = re.compile(r", (?:op_id|seq|sizes|input_op_ids) = .*")  # torch's emit_nvtx adds this to the names of ranges
COPY_TABLES = {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"}
UNNAMED = "without a name"
PID = "(({} >> 24) & 16777215)"


def read(path):
    """Return a Timeline for each process in the file. Raises ProfileError."""
    database = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    try:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "StringIds" in tables:
            return _Processes("nsys").nsys(database, tables)
        if "StringTable" in tables:
            return _Processes("nvprof").nvprof(database, tables)
    except sqlite3.OperationalError as error:
        if "no such column" in str(error) or "no such table" in str(error):
            raise ProfileError(
                f"{path} was written by a version of the profiler that this cannot read ({error}): "
                "export it with another version"
            ) from None
        raise ProfileError(f"{path} is damaged or was not written to its end ({error}): record again") from None
    except sqlite3.DatabaseError as error:
        raise ProfileError(f"{path} is damaged or was not written to its end ({error}): record again") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ProfileError(f"{path} has values that no profiler writes ({str(error)[:80]}): record again") from None
    finally:
        database.close()
    raise ProfileError(f"{path} is an SQLite file, but of neither nvprof nor nsys: give a profile")


class _Processes:
    """The processes of one file, by process id."""

    def __init__(self, tool):
        self.tool, self.builders, self.who, self.launches = tool, {}, {}, defaultdict(Launches)

    def add(self, pid, begin, end, name, kind, lane):
        self._builder(pid).add(begin, end, name, kind, lane)

    def _builder(self, pid):
        if pid not in self.builders:
            self.builders[pid] = Builder()
        return self.builders[pid]

    def range(self, pid, begin, end, name, lane):
        """Add a range, or a mark if `end` is None."""
        name = EMIT_NVTX.sub("", name)
        if found := WHO.fullmatch(name):
            self.who[pid] = {"rank": int(found[1]), "size": int(found[2]), "host": found[3]}
        elif end is not None:
            self.add(pid, begin, end, name, kinds.of_range(name), lane)

    def function(self, pid, begin, end, name, thread, correlation):
        """Add a CUDA function, which may be a launch."""
        self.add(pid, begin, end, name, HOST, f"thread {thread}")
        self.launches[pid].add(False, correlation, begin)

    def kernel(self, pid, begin, end, name, lane, correlation):
        self._on_gpu(pid, begin, end, name or UNNAMED, kinds.of_kernel(name or UNNAMED), lane, correlation)

    def copy(self, pid, begin, end, name, lane, correlation):
        self._on_gpu(pid, begin, end, name, COPY, lane, correlation)

    def _on_gpu(self, pid, begin, end, name, kind, lane, correlation):
        if begin and end:
            self.add(pid, begin, end, name, kind, lane)
            self.launches[pid].add(True, correlation, end)
        else:
            self._builder(pid).untimed += 1

    def timelines(self, base=0):
        timelines = []
        for pid, builder in self.builders.items():
            timelines.append(builder.finish(pid=pid, tool=self.tool, on_gpu=True, **self.who.get(pid, {})))
            timelines[-1].move_steps(self.launches[pid].settle)
            timelines[-1].shift(base)
        return timelines

    def nsys(self, database, tables):
        """Read an export of nsys: all processes that have used a GPU or NVTX."""
        names = dict(database.execute("SELECT id, value FROM StringIds"))
        for kind in tables & {"CUPTI_ACTIVITY_KIND_KERNEL"}:
            query = (
                f"SELECT start, end, {PID.format('globalPid')}, deviceId, streamId, demangledName, correlationId FROM"
                f" {kind}"
            )
            for begin, end, pid, device, stream, name, correlation in database.execute(query):
                self.kernel(pid, begin, end, names.get(name), f"GPU {device}, stream {stream}", correlation)
        # a CUDA graph: all of its kernels as one event, except with nsys --cuda-graph-trace=node
        for kind in tables & {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE"}:
            query = (
                f"SELECT start, end, {PID.format('globalPid')}, deviceId, streamId, graphId, correlationId FROM {kind}"
            )
            for begin, end, pid, device, stream, graph, correlation in database.execute(query):
                self.kernel(pid, begin, end, f"CUDA graph {graph}", f"GPU {device}, stream {stream}", correlation)
        for kind in tables & COPY_TABLES:
            query = (
                f"SELECT start, end, {PID.format('globalPid')}, deviceId, streamId, {_way(kind)}, correlationId FROM"
                f" {kind}"
            )
            for begin, end, pid, device, stream, way, correlation in database.execute(query):
                self.copy(pid, begin, end, _copy(kind, way), f"GPU {device}, stream {stream}", correlation)
        for kind in tables & {"CUPTI_ACTIVITY_KIND_RUNTIME"}:
            query = (
                f"SELECT start, end, {PID.format('globalTid')}, globalTid & 16777215, nameId, correlationId FROM {kind}"
            )
            for begin, end, pid, thread, name, correlation in database.execute(query):
                self.function(pid, begin, end, re.sub(r"_v\d+$", "", names.get(name, UNNAMED)), thread, correlation)
        for kind in tables & {"NVTX_EVENTS", "NVTX_EVENTS_V3"}:
            query = (
                f"SELECT start, end, {PID.format('globalTid')}, globalTid & 16777215, eventType, text, textId FROM"
                f" {kind}"
            )
            for begin, end, pid, thread, way, name, number in database.execute(
                f"{query} WHERE eventType IN ({PUSH_POP}, {START_END}, {MARK})"
            ):
                if way == MARK or end is not None:  # the end is missing if a range was never closed
                    self.range(
                        pid, begin, None if way == MARK else end, name or names.get(number, UNNAMED), f"thread {thread}"
                    )
        for kind in tables & {"TARGET_INFO_SESSION_START_TIME"}:
            [start] = database.execute(f"SELECT utcEpochNs FROM {kind}").fetchone() or [0]
            return self.timelines(start or 0)
        return self.timelines()

    def nvprof(self, database, tables):
        """Read a file of nvprof. With -o FILE%p it contains one process; otherwise a kernel belongs to the process that
        launched it."""
        names = dict(database.execute("SELECT _id_, value FROM StringTable"))
        functions = sorted(tables & {"CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"})
        pids = {pid for kind in functions for (pid,) in database.execute(f"SELECT DISTINCT processId FROM {kind}")}
        launched_by, only = {}, next(iter(pids), 0)
        for kind in functions:
            if len(pids) > 1:
                launched_by.update(database.execute(f"SELECT correlationId, processId FROM {kind}"))
            runtime = kind.endswith("RUNTIME")
            query = f"SELECT start, end, processId, threadId, cbid, correlationId FROM {kind}"
            for begin, end, pid, thread, number, correlation in database.execute(query):
                name = FUNCTIONS.get(number) if runtime else None
                self.function(
                    pid, begin, end, name or f"{'CUDA' if runtime else 'driver'} function {number}", thread, correlation
                )
        for kind in tables & {"CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL"}:
            query = f"SELECT start, end, correlationId, deviceId, streamId, name FROM {kind}"
            for begin, end, correlation, device, stream, name in database.execute(query):
                self.kernel(
                    launched_by.get(correlation, only),
                    begin,
                    end,
                    names.get(name),
                    f"GPU {device}, stream {stream}",
                    correlation,
                )
        for kind in tables & COPY_TABLES:
            for begin, end, correlation, device, way in database.execute(
                f"SELECT start, end, correlationId, deviceId, {_way(kind)} FROM {kind}"
            ):
                self.copy(
                    launched_by.get(correlation, only),
                    begin,
                    end,
                    _copy(kind, way),
                    f"GPU {device}, copies",
                    correlation,
                )
        for kind in tables & {"CUPTI_ACTIVITY_KIND_MARKER"}:
            begun = {}  # a range has two rows with the same id; the first has the name
            for number, flags, moment, name in database.execute(
                f"SELECT id, flags, timestamp, name FROM {kind} ORDER BY timestamp, _id_"
            ):
                if flags & MARKER_BEGIN:
                    begun[number] = moment, names.get(name, UNNAMED)
                elif flags & MARKER_END and number in begun:
                    begin, words = begun.pop(number)
                    self.range(only, begin, moment, words, "NVTX")
                elif not flags & MARKER_END:
                    self.range(only, moment, None, names.get(name, UNNAMED), "NVTX")
        return self.timelines()


def _way(table):
    return "copyKind" if table.endswith("MEMCPY") else "NULL"


def _copy(table, way):
    return "Memset" if table.endswith("MEMSET") else f"Memcpy {COPIES.get(way, '')}".rstrip()
