"""A script that was killed goes on from its last snapshot as if nothing had happened, to the last bit."""

import json
import os
import signal

import handson.chainer  # noqa: F401

import numpy
import pytest
from mpi_runs import results
from script_runs import SCRIPTS, SIZE, wait_for
from test_chainer_scripts import IN_ONE_PROCESS

TIMES = {"_snapshot_elapsed_time", "extensions/LogReport/_log"}
pytestmark = pytest.mark.thorough


def snapshot(path):
    """name -> array of a snapshot, and its log, without anything measured by a clock."""
    with numpy.load(path) as file:
        log = json.loads(str(file["extensions/LogReport/_log"]))
        return {name: file[name] for name in file.files if name not in TIMES}, [drop_time(epoch) for epoch in log]


def drop_time(epoch):
    return {name: value for name, value in epoch.items() if name != "elapsed_time"}


def assert_same_snapshot(one, other):
    (mine, my_log), (its, its_log) = snapshot(one), snapshot(other)
    assert mine.keys() == its.keys()
    different = [name for name in its if not numpy.array_equal(mine[name], its[name])]
    assert not different and my_log == its_log
    assert len(its_log) > 1 and any("/W/v" in name for name in its) and any("avg_var" in name for name in its)


@pytest.mark.parametrize("task, ranks", [("single_gpu", None), ("multi_gpu", None), ("multi_node", 2)])
def test_a_killed_run_goes_on_to_the_last_bit(task, ranks, start, run, tmp_path):
    whole = run(task, "-e", "3", "-o", tmp_path / "whole", ranks=ranks)
    assert whole.status == 0, whole.errors
    killed = start(task, "-e", "1000", "-o", tmp_path / "killed", ranks=ranks)
    wait_for(tmp_path / "killed/snapshot_epoch_1", killed)
    os.kill(killed.process.pid, signal.SIGKILL)  # the main process, or mpiexec: the others end by themselves
    assert killed.end().status == -signal.SIGKILL
    assert not (tmp_path / "killed/result.json").exists()
    resumed = run(
        task, "-e", "3", "-o", tmp_path / "resumed", "--resume", tmp_path / "killed/snapshot_epoch_1", ranks=ranks
    )
    assert resumed.status == 0, resumed.errors
    assert "[images/sec.] (400 / " in resumed.out, "only two of the three epochs were trained here"
    assert_same_snapshot(tmp_path / "resumed/snapshot_epoch_3", tmp_path / "whole/snapshot_epoch_3")
    first, last = snapshot(tmp_path / "whole/snapshot_epoch_1")[0], snapshot(tmp_path / "whole/snapshot_epoch_3")[0]
    assert all(
        not numpy.array_equal(first[name], last[name]) for name in first if name.endswith(("/W", "avg_mean", "order"))
    )


@pytest.mark.parametrize(
    "options",
    [
        ["--double-buffering"],
        ["--allreduce-grad-dtype", "float16"],
        ["--double-buffering", "--allreduce-grad-dtype", "float16"],
    ],
)
def test_ways_of_communicating_resume_to_the_last_bit(options, small_set, tmp_path):
    """With double buffering there are gradients in flight when a snapshot is written."""
    common = [SCRIPTS["multi_node"], "--dataset", small_set, "--size", SIZE, "-e", 2, *options]
    results(
        2,
        IN_ONE_PROCESS
        + f"""
run("-o", "{tmp_path}/whole")
run("-o", "{tmp_path}/resumed", "--resume", "{tmp_path}/whole/snapshot_epoch_1")
result("done")
""",
        *common,
    )
    assert_same_snapshot(tmp_path / "resumed/snapshot_epoch_2", tmp_path / "whole/snapshot_epoch_2")
