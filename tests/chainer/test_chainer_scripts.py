"""The three scripts of the Chainer track: the lecture's output, the results, and how little sets them apart."""

import re
import subprocess

import handson.chainer  # noqa: F401
from handson.chainer.communicators import NAMES

import pytest
from mpi_runs import results
from script_runs import PYTHON, SCRIPTS, SIZE
from waiting import run_to_end

from handson.training.results import read

TABLE = r"""epoch       main/loss   validation/main/loss  main/accuracy  validation/main/accuracy  elapsed_time
(\d+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ *
){2}Throughput: ([\d.]+) \[images/sec\.\] \(400 / ([\d.]+)\)
"""
SINGLE = r"""Start a training script using a single GPU\.
# Minibatch-size: 32
# epoch: 2

Using 1 virtual GPU: a process with one thread on one core
Using squares dataset: \S+/squares\.npz
"""
MULTI_GPU = r"""Start a training script using multiple GPUs\.
# GPUs: 2
# Minibatch-size: 32
# epoch: 2

Using 2 virtual GPUs: processes with one thread each, [^\n]+
Using squares dataset: \S+/squares\.npz
MultiprocessParallelUpdater: handson's, one process and one pinned CPU core per device \(Chainer's own needs CuPy, NCCL, and a GPU for each device\)
\{'main': 0, 'gpu1': 1\}
"""
MULTI_NODE = r"""Communicator hierarchical: Chainer 7 does not have it; used instead: naive, MPI on CPUs\.
Start a training script using multiple nodes\.
==========================================
Num process \(COMM_WORLD\): 4
Using 4 virtual GPUs: processes with one thread each, [^\n]+
Using naive communicator
Num Minibatch-size: 32
Num epoch: 2
==========================================
Using squares dataset: \S+/squares\.npz
"""
pytestmark = pytest.mark.thorough


def test_ranks_that_do_not_average_their_gradients_say_so(run, tmp_path):
    script = tmp_path / "03_multi_node/chainer" / SCRIPTS["multi_node"].name
    script.parent.mkdir(parents=True)
    given = SCRIPTS["multi_node"].read_text()
    broken = re.sub(r"    optimizer = create_multi_node_optimizer\(.*\n", "", given)
    assert broken != given
    script.write_text(broken)
    ended = run(script, "-e", "1", "-o", tmp_path / "out", ranks=2)
    assert "rank 1's parameters differ from rank 0's after step 1:" in ended.errors
    assert read(tmp_path / "out").unequal


@pytest.mark.parametrize(
    "task, banner, workers, ranks",
    [("single_gpu", SINGLE, 1, None), ("multi_gpu", MULTI_GPU, 2, None), ("multi_node", MULTI_NODE, 4, 4)],
)
def test_a_script_prints_what_the_lecture_shows_and_writes_its_result(task, banner, workers, ranks, run, tmp_path):
    ended = run(task, "-e", "2", "-o", tmp_path / "out", ranks=ranks)
    assert ended.status == 0, ended.errors
    match = re.fullmatch(banner + TABLE, ended.out)
    assert match, ended.out
    warnings = re.findall("UserWarning: .*", ended.errors)
    [warning] = warnings or [""]
    assert warning.startswith(
        "UserWarning: optimizer.lr is changed to 0.01 by MultiprocessParallelUpdater for new batch size: "
    ) == (task == "multi_gpu")
    of_script = re.sub("^Warning: other programs took .*\n", "", ended.errors, flags=re.MULTILINE)
    assert warnings or not of_script
    result = read(tmp_path / "out")
    assert result.unequal == ""
    assert (result.unit, result.track, result.workers, result.nodes) == (task, "chainer", workers, 1)
    assert (result.communicator, result.gradients, result.double_buffering) == ("naive" if ranks else "", "", False)
    assert (result.size, result.batchsize, result.epochs, result.images) == (SIZE, 32, 2, 400)
    assert (result.throughput, result.seconds) == (pytest.approx(float(match[2])), pytest.approx(float(match[3])))
    assert 0 < result.train_seconds < result.seconds and "chainer" in result.versions
    assert result.parameters and len(result.steps) == -(-400 // (32 * workers)) - 2, (
        "all but the first, and the one after an evaluation"
    )
    assert sum(result.steps) < result.train_seconds
    assert f"{workers} virtual GPU" in result.device and result.dataset.endswith("squares.npz")
    assert [epoch["epoch"] for epoch in result.log] == [1, 2]
    assert result.log[1]["main/loss"] < result.log[0]["main/loss"] and "validation/main/accuracy" in result.log[1]
    left = {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith("usage_")}
    assert left == {"log", "result.json", "snapshot_epoch_1", "snapshot_epoch_2"}


def test_the_same_run_gives_the_same_result(run, tmp_path):
    logs = []
    for name in ("one", "two"):
        ended = run("multi_gpu", "-e", "1", "-b", "16", "--seed", "3", "-g", "1,0", "-o", tmp_path / name)
        assert ended.status == 0 and "{'main': 1, 'gpu1': 0}" in ended.out, ended.errors
        logs.append(
            [
                {name: value for name, value in epoch.items() if name != "elapsed_time"}
                for epoch in read(tmp_path / name).log
            ]
        )
    assert logs[0] == logs[1]


# Several runs in one process for each rank; what they have in common is started once.
IN_ONE_PROCESS = """
import contextlib, io, runpy
script, *common = sys.argv[1:]
cores = os.sched_getaffinity(0)
def run(*words):
    os.sched_setaffinity(0, cores)
    sys.argv = [script, *common, *map(str, words)]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(script, run_name="__main__")
    return out.getvalue()
"""


def test_every_communicator_of_the_lecture_can_be_asked_for(small_set, tmp_path):
    """With float16 and double buffering too; the output says what runs."""
    common = [SCRIPTS["multi_node"], "--dataset", small_set, "--size", SIZE, "-e", 1, "-o", tmp_path]
    first, other = results(
        2,
        IN_ONE_PROCESS
        + f"""
outs = {{name: run("--communicator", name) for name in {NAMES}}}
outs["float16"] = run("--communicator", "pure_nccl", "--allreduce-grad-dtype", "float16")
outs["both"] = run("--allreduce-grad-dtype", "float16", "--double-buffering")
result(outs)
""",
        *common,
    )
    assert set(other.values()) == {""}, "only rank 0 prints"
    for name, out in first.items():
        asked = {"float16": "pure_nccl", "both": "hierarchical"}.get(name, name)
        assert out.startswith(f"Communicator {asked}: ") == (asked != "naive")
        assert "Using naive communicator\n" in out and "Throughput: " in out
        assert ("with float16 on the wire" in out) == (name in ("float16", "both"))
    last = read(tmp_path)
    assert (last.communicator, last.gradients, last.double_buffering, last.network) == ("naive", "float16", True, "")


def test_scripts_and_package_import_without_a_warning_and_run_nothing():
    for script in SCRIPTS.values():
        code = (
            f"import sys; sys.path.insert(0, {str(script.parent)!r}); import importlib.util as u; s ="
            f" u.spec_from_file_location('script', {str(script)!r}); s.loader.exec_module(u.module_from_spec(s))"
        )
        done = subprocess.run([*PYTHON, "-c", code], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("task", ["multi_gpu", "multi_node"])
def test_what_distribution_adds_is_a_short_diff(task, tmp_path):
    for name in ("single_gpu", task):
        lines = SCRIPTS[name].read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(line for line in lines if "### " not in line))
    changed = run_to_end(["diff", tmp_path / "single_gpu", tmp_path / task]).stdout
    assert 10 < len(re.findall("^[<>]", changed, re.MULTILINE)) < 40, changed
