"""Which tool records, and what nvprof and nsys are told, by programs that stand in for them."""

import os
import sys
from pathlib import Path

import pytest
from waiting import run_to_end

from handson.profiling import profile_job_resources, recording, tools
from handson.profiling.recorders.base import Recorder
from handson.profiling.recorders.gpu_marks import GpuMarks


@pytest.fixture
def put_on_path(tmp_path, monkeypatch):
    """put_on_path("nvprof") puts a program of that name on PATH, which prints its words and becomes those after its
    options."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(*names):
        for name in names:
            (folder / name).write_text('#!/bin/sh\necho "$0" "$@"\n')
            (folder / name).chmod(0o755)

    return put


@pytest.mark.parametrize(
    ("on_path", "gpu", "tool", "why"),
    [
        (["nvprof", "nsys"], (7, 0), "nvprof", "as the GPU has compute capability 7.0"),
        (["nvprof", "nsys"], (8, 0), "nsys", "nvprof records those below 8.0 only"),
        (["nsys"], (7, 5), "nsys", "nvprof is not on PATH"),
        (["nvprof"], (9, 0), "torch", "nsys is not on PATH"),
        ([], (9, 0), "torch", "nsys is not on PATH"),
        (["nvprof", "nsys"], None, "torch", "needs no GPU, and there is none"),
    ],
)
def test_the_best_tool_that_works_is_chosen(put_on_path, on_path, gpu, tool, why):
    put_on_path(*on_path)
    chosen, words = tools.choose("auto", gpu)
    assert chosen == tool and why in words


def test_nvprof_is_refused_for_a_gpu_that_it_does_not_record(put_on_path):
    put_on_path("nvprof")
    with pytest.raises(tools.RecordError, match="nvprof does not record GPUs of compute capability 8.6"):
        tools.choose("nvprof", (8, 6))
    assert tools.choose("nvprof", (6, 1)) == ("nvprof", "as was asked for")


NSYS = "profile |--export=sqlite|--capture-range=cudaProfilerApi|--capture-range-end=stop"


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("nvprof", "--profile-child-processes|--profile-from-start off|-o {out}/process%p.nvprof python train.py -e 1"),
        ("nsys", f"{NSYS}|-o {{out}}/process_%h_%p python train.py -e 1"),
    ],
)
def test_the_command_runs_under_the_tool_with_a_file_for_each_process(put_on_path, tmp_path, tool, words):
    put_on_path(tool, "python")
    command = [sys.executable, *f"-m handson profile --tool {tool} -o {tmp_path}/out -- python train.py -e 1".split()]
    done = run_to_end(command)
    assert done.returncode == 0 and f"bin/{tool} " in done.stdout
    for word in words.format(out=tmp_path / "out").split("|"):
        assert word in done.stdout


def test_the_cost_of_a_recording_is_that_of_its_steps_against_those_before():
    """Step 1 may load code, and the tool warms up in the last step to skip: neither counts."""
    recorder = Recorder(recording.Plan("torch", 5, 2, Path("out")))
    recorder.ended, recorder.moments = 7, dict(enumerate((10, 20, 20.1, 20.2, 24, 24.11, 24.22), start=1))
    assert recorder.sentence() == "Recorded 2 steps in out: a step took 110.0 ms, 100.0 ms before that (+10 %)"
    assert recorder.unrecorded_step() == pytest.approx(0.1)


def test_a_process_tells_nvprof_and_nsys_who_it_is_and_where_its_steps_are(monkeypatch):
    import torch

    said = []

    class Names:
        def __enter__(self):
            said.append("names")

        def __exit__(self, *error):
            said.append("no names")

    for owner, name in (torch.cuda.nvtx, "range_push"), (torch.cuda.nvtx, "mark"):
        monkeypatch.setattr(owner, name, said.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: said.append("pop"))
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: said.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: said.append("stop"))
    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", Names)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 3)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    marks = GpuMarks(recording.Plan("nsys", 2, 2, Path("unused")), "pytorch")
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1)
    for _ in range(6):
        parameter.grad = torch.ones(1)
        optimizer.step()
    marks.state = "after"  # torch keeps the hook
    assert said[1].startswith("handson: rank 3 of 4 on ")
    assert [said[0], *said[2:]] == ["start", "names", "step 3", "pop", "step 4", "pop", "no names", "stop"]


TWO_NODES = "#PBS -q lecture\n#PBS -l select=2:ngpus=2:mpiprocs=2\n"
LACKS = (
    "run_multi_node_profile.sh has no #PBS lines for resources, so this job got 1 process, and"
    " run_multi_node_training.sh asks for 4: copy those lines, or submit it with them: qsub -q lecture -l"
    " select=2:ngpus=2:mpiprocs=2 -j oe run_multi_node_profile.sh"
)


@pytest.mark.parametrize(
    ("lines", "training", "says"),
    [
        ("node1\n", TWO_NODES, LACKS),
        ("node1\nnode1\nnode2\nnode2\n", TWO_NODES, ""),
        ("node1\n", "#PBS -l (nodes and so on: select=...)\n", "first fill its gaps (PUT YOUR CODE)"),
    ],
)
def test_a_job_without_the_resources_of_the_training_is_told_what_to_submit(
    lines, training, says, tmp_path, monkeypatch
):
    (tmp_path / "run_multi_node_training.sh").write_text(f"#!/bin/bash\n{training}")
    (tmp_path / "run_multi_node_profile.sh").write_text("#!/bin/bash\n#PBS -N multi_node_profile\n")
    (tmp_path / "nodes").write_text(lines)
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    said = profile_job_resources.lacking(tmp_path, {"PBS_JOBNAME": "multi_node_profile"})
    assert said == says or says and said.endswith(says)
    assert profile_job_resources.lacking(tmp_path, {"PBS_JOBNAME": "own"}) == ""
    if says:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PBS_JOBNAME", "multi_node_profile")
        with pytest.raises(tools.RecordError, match="run_multi_node_profile.sh has no #PBS lines"):
            tools.record(["true"], "auto", None, 5, 30)
