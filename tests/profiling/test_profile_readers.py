"""Reading profiles: what is in real files and in databases of the documented schemas comes out; anything else is
refused in a sentence."""

import json

import made_profiles as made
import pytest

from handson.profiling import readers, report
from handson.profiling.timeline import COMMUNICATION, COMPUTE, COPY, HOST, LOADING, RANGE, STEP, ProfileError

real = pytest.mark.skipif(not made.REAL.is_dir(), reason="the real profiles are kept beside the project")


@real
def test_a_real_export_of_nsys_has_its_events():
    [timeline] = readers.read(made.REAL / "nsight-2025.5.2.sqlite")
    kernels, graphs = 3, 2
    counts = timeline.count(HOST), timeline.count(COMPUTE), timeline.count(COPY), len(timeline)
    assert counts == (33, kernels + graphs, 1, 39)
    assert timeline.pid == 945961 and timeline.on_gpu and timeline.tool == "nsys"
    assert "add_one(const float *, float *, int)" in timeline.names and "cudaLaunchKernel" in timeline.names
    first = timeline.kind.tolist().index(COMPUTE)
    assert timeline.begin[first] == 1785620044423518993 + 339316740
    assert timeline.end[first] - timeline.begin[first] == 1440
    assert timeline.lanes[timeline.lane[first]] == "GPU 0, stream 13"


@real
def test_a_real_trace_of_one_gpu_has_its_events():
    [timeline] = readers.read(made.REAL / "alexnet_a100.json.gz")
    assert (timeline.count(COMPUTE), timeline.count(COMMUNICATION), timeline.count(COPY)) == (79, 0, 16 + 3)
    assert timeline.count(HOST) == 361 + 359
    assert timeline.rank == 0 and timeline.on_gpu and timeline.pid == 2869224


@real
def test_real_traces_of_two_ranks_are_one_run():
    [run] = readers.load([made.REAL / f"nccl128_rank{rank}.json.gz" for rank in (1, 0)])
    assert [timeline.rank for timeline in run.timelines] == [0, 1]
    assert {timeline.size for timeline in run.timelines} == {128}
    zero, one = run.timelines
    assert (zero.count(COMPUTE), zero.count(COMMUNICATION), zero.count(COPY)) == (1154 - 10, 10, 50)
    assert (one.count(COMPUTE), one.count(COMMUNICATION)) == (1104 - 10, 10)
    assert zero.steps()[:, 0].tolist() == [551, 552]
    assert (zero.steps()[0, 2] - zero.steps()[0, 1]) == 607_312_000


def test_a_trace_of_a_core_has_operators_as_computation(tmp_path):
    events = [
        ("cpu_op", "aten::mm", 10, 30),
        ("user_annotation", "gloo:all_reduce", 20.5, 40),
        ("cpu_op", "c10d::allreduce_", 15, 2),
        ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 5),
        ("user_annotation", "ProfilerStep#4", 0, 100),
        ("user_annotation", "Optimizer.step#SGD.step", 90, 9),
        ("gpu_user_annotation", "Optimizer.step#SGD.step", 95, 9),
        ("Trace", "PyTorch Profiler (0)", 0, 100),
    ]
    facts = {"distributedInfo": {"rank": 3, "world_size": 4}, "host_name": "node2", "baseTimeNanoseconds": 10**18}
    [timeline] = readers.read(made.chrome_trace(tmp_path / "a.json", events, **facts))
    assert (timeline.rank, timeline.size, timeline.host, timeline.on_gpu) == (3, 4, "node2", False)
    assert {kind: timeline.count(kind) for kind in (COMPUTE, COMMUNICATION, LOADING, HOST, RANGE, STEP)} == {
        COMPUTE: 1,
        COMMUNICATION: 1,
        LOADING: 1,
        HOST: 1,
        RANGE: 1,
        STEP: 1,
    }
    assert timeline.steps().tolist() == [[4, 10**18, 10**18 + 100_000]]
    at = timeline.kind.tolist().index(COMMUNICATION)
    assert (timeline.begin[at], timeline.end[at]) == (10**18 + 20_500, 10**18 + 60_500)


def gpu_trace(path, steps, kernels):
    """A trace of host steps (number, begin, length) and of kernels: (launched at, begins at, length), all in µs."""
    events = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{n}",
            "pid": 7,
            "tid": 7,
            "ts": begin,
            "dur": length,
        }
        for n, begin, length in steps
    ]
    for correlation, (launch, begin, length) in enumerate(kernels, start=1):
        args = {"correlation": correlation}
        events.append(
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "pid": 7,
                "tid": 9,
                "ts": launch,
                "dur": 1,
                "args": args,
            }
        )
        events.append(
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": begin, "dur": length, "args": args}
        )
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def test_a_step_of_a_gpu_lasts_until_the_gpu_has_done_what_was_launched_in_it(tmp_path):
    """The host, at 10 µs a step, runs ahead of a GPU that takes 30; the third step waits for the GPU and has a tail of
    its own."""
    steps = [(1, 0, 10), (2, 10, 10), (3, 20, 100)]
    kernels = [(2, 4, 30), (12, 34, 15), (14, 49, 15), (22, 64, 30)]
    [timeline] = readers.read(gpu_trace(tmp_path / "a.json", steps, kernels))
    assert (timeline.steps() - [0, timeline.begin[0], timeline.begin[0]]).tolist() == [
        [1, 0, 34_000],
        [2, 34_000, 64_000],
        [3, 64_000, 120_000],
    ]
    assert (timeline.begin[1:] >= timeline.begin[:-1]).all(), "events stay in order"


def test_facts_after_the_events_are_read_too_and_events_cannot_pose_as_facts(tmp_path):
    path = made.chrome_trace(tmp_path / "a.json", [("cpu_op", 'x "rank": 9, "baseTimeNanoseconds": 5', 1, 2)])
    content = json.loads(path.read_text()) | {"distributedInfo": {"rank": 2, "world_size": 3}}
    path.write_text(json.dumps(content))
    [timeline] = readers.read(path)
    assert (timeline.rank, timeline.size, timeline.begin[0]) == (2, 3, 1000)


def test_a_step_with_an_evaluation_is_none(tmp_path):
    events = [("user_annotation", f"ProfilerStep#{n}", 100 * n, 100) for n in (1, 2, 3)] + [
        ("user_annotation", "evaluation", 210, 20)
    ]
    [timeline] = readers.read(made.chrome_trace(tmp_path / "a.json", events))
    assert timeline.steps()[:, 0].tolist() == [1, 3]


def test_an_nvprof_database_is_read(tmp_path):
    [timeline] = readers.read(made.nvprof(tmp_path / "process4242.nvprof"))
    assert (timeline.pid, timeline.tool, timeline.rank) == (4242, "nvprof", None)
    assert (timeline.count(COMPUTE), timeline.count(COMMUNICATION), timeline.count(COPY), timeline.count(HOST)) == (
        1,
        1,
        1,
        3,
    )
    assert {
        "volta_sgemm",
        "ncclAllReduceRingLLKernel_sum_f32",
        "Memcpy HtoD",
        "cudaMemcpyAsync",
        "cudaLaunchKernel",
    } <= set(timeline.names)
    assert timeline.steps().tolist() == [[9, 300, 9000]]


def test_the_processes_in_an_nsys_file_are_the_ranks_that_their_marks_say(tmp_path):
    [run] = readers.load([made.nsys(tmp_path / "a.sqlite", pids=(300, 100))])
    assert [(one.rank, one.size, one.pid, one.host) for one in run.timelines] == [
        (0, 2, 300, "node0"),
        (1, 2, 100, "node1"),
    ]
    assert [(one.count(COMPUTE), one.count(COMMUNICATION), one.count(HOST)) for one in run.timelines] == [(1, 1, 1)] * 2
    assert run.timelines[0].steps().tolist() == [[3, 10**18 + 900, 10**18 + 4000]]


@pytest.mark.parametrize("make", [made.nvprof, made.nsys])
def test_a_step_of_a_host_that_runs_ahead_lasts_until_the_gpu_has_done_what_was_launched_in_it(tmp_path, make):
    """The last kernel of the first process ends at 8,000 (nvprof) and at 1,500 (nsys); here the step of its host ends
    earlier."""
    path = make(tmp_path / "a.sqlite")
    with made.sqlite3.connect(path) as connection:
        if make is made.nvprof:
            connection.execute("UPDATE CUPTI_ACTIVITY_KIND_MARKER SET timestamp = 600 WHERE flags = 4")
        else:
            connection.execute("UPDATE NVTX_EVENTS SET end = 960 WHERE end IS NOT NULL")
    connection.close()
    timeline = readers.read(path)[0]
    assert timeline.steps()[0, 2] - timeline.steps()[0, 1] == (8000 - 300 if make is made.nvprof else 1500 - 900)
    assert (timeline.begin[1:] >= timeline.begin[:-1]).all(), "events stay in order"


GRAPHS = (
    (
        "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,"
        " graphId INTEGER"
    ),
    [(1000, 1500, 0, 7, 21, (5 << 48) + (100 << 24), 1)],
)


def test_a_cuda_graph_of_nsys_is_work_of_the_gpu(tmp_path):
    [timeline] = readers.read(made.nsys(tmp_path / "a.sqlite", (100,), CUPTI_ACTIVITY_KIND_GRAPH_TRACE=GRAPHS))
    assert "CUDA graph 1" in timeline.names and timeline.count(COMPUTE) == 2


def test_an_event_of_the_gpu_without_a_time_is_left_out_and_counted(tmp_path):
    graphs = GRAPHS[0], [(0, 0, 0, 7, 77, (5 << 48) + (100 << 24), 1)]
    [timeline] = readers.read(made.nsys(tmp_path / "a.sqlite", (100,), CUPTI_ACTIVITY_KIND_GRAPH_TRACE=graphs))
    assert (timeline.untimed, timeline.count(COMPUTE)) == (1, 1)
    path = made.chrome_trace(
        tmp_path / "a.json", [("kernel", "gemm", 1714000000000000.0, 800), ("kernel", "gemm", 0, 0)]
    )
    [run] = readers.load([path])
    assert run.timelines[0].steps().tolist() == [[0, 1714000000000000000, 1714000000000800000]]
    assert "1 event of the GPU has no time, which the recorder could not take: left out." in report.text(run)


def test_a_trace_with_numbers_beyond_63_bits_is_read(tmp_path):
    path = made.chrome_trace(tmp_path / "a.json", [("cpu_op", "aten::mm", 10, 30)])
    path.write_text(path.read_text().replace('"args": {}', f'"args": {{"Comms Id": {2**64 - 2}}}'))
    [timeline] = readers.read(path)
    assert (timeline.begin.tolist(), timeline.end.tolist()) == ([10_000], [40_000])


def test_files_without_ranks_get_them_in_the_order_of_their_processes(tmp_path):
    for pid in (30, 4, 200):
        made.nvprof(tmp_path / f"process{pid}.nvprof", pid=pid)
    [run] = readers.load([tmp_path])
    assert [(one.rank, one.pid) for one in run.timelines] == [(0, 4), (1, 30), (2, 200)]


def test_folders_are_runs_and_so_are_files_of_one_folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for rank in (0, 1):
            made.chrome_trace(
                tmp_path / name / f"rank{rank}.json",
                [("cpu_op", "aten::mm", 1, 1)],
                distributedInfo={"rank": rank, "world_size": 2},
            )
    runs = readers.load([tmp_path / "b", tmp_path / "a/rank0.json", tmp_path / "a/rank1.json"])
    assert [(run.name, len(run.timelines)) for run in runs] == [("b", 2), ("a", 2)]


def test_profiles_left_by_a_run_with_more_ranks_are_noticed(tmp_path):
    for rank, size in (0, 2), (1, 2), (2, 4):
        made.chrome_trace(
            tmp_path / f"rank{rank}.json",
            [("cpu_op", "aten::mm", 1, 1)],
            distributedInfo={"rank": rank, "world_size": size},
        )
    refused("of runs with 2 and 4 ranks", tmp_path)


def refused(words, *paths):
    with pytest.raises(ProfileError, match=words) as error:
        readers.load(paths)
    assert "\n" not in str(error.value) and str(paths[0]) in str(error.value)


def test_a_missing_file_and_a_folder_without_profiles_are_refused(tmp_path):
    refused("No such file", tmp_path / "a.json")
    for name in ("pipeline.json", "products.json", "memory_rank12.json"):  # of a run of unit model_parallel
        (tmp_path / name).write_text("{}")
    refused("has no profiles", tmp_path)


@pytest.mark.parametrize("length", [0.3, 0.9, 0.999])
def test_a_truncated_trace_is_refused(tmp_path, length):
    path = made.chrome_trace(tmp_path / "a.json", [("cpu_op", f"aten::{n}", n, 1) for n in range(500)])
    path.write_bytes(path.read_bytes()[: int(length * path.stat().st_size)])
    refused("is damaged or was not written to its end", path)


@pytest.mark.parametrize("make", [made.nvprof, made.nsys])
def test_a_truncated_database_is_refused(tmp_path, make):
    path = make(tmp_path / "a.sqlite")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused("is damaged|version of the profiler", path)


def test_a_database_of_a_version_with_other_columns_is_refused(tmp_path):
    changed = (
        "begin INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,"
        " demangledName INTEGER"
    )
    refused(
        "version of the profiler that this cannot read .*start",
        made.nsys(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=(changed, [])),
    )


@pytest.mark.parametrize("content", ["hello", "\x7fELF", "<html></html>"])
def test_a_foreign_file_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    refused("not a profile of nvprof, nsys or torch.profiler", tmp_path / "a.json")


@pytest.mark.parametrize(
    "content",
    [
        '{"a": 1}',
        "[]",
        '{"traceEvents": [{"ph": "X"}]}',
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": "soon"}]}',
    ],
)
def test_json_of_something_else_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    refused("has no events|not a trace of torch.profiler", tmp_path / "a.json")


def test_the_own_format_of_nsys_is_refused_with_the_command_that_helps(tmp_path):
    (tmp_path / "a.nsys-rep").write_bytes(b"\x00\x01\x02")
    refused("nsys export --type sqlite", tmp_path / "a.nsys-rep")
