"""The scripts as texts that teach by their differences, and as programs that say what they do wherever they run."""

import contextlib
import difflib
import itertools
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from environments import QUICK_START
from ranks import ROOT, SOLUTIONS

from handson import compare, memory
from handson.pytorch.model import ConvNet
from handson.training import gpu_memory
from handson.training.results import read

# the scripts beside it are this loop with one thing that is slow
PLAIN = ROOT / "solutions/04_profiling/pytorch/train_steps.py"
SINGLE, *DISTRIBUTED, DATA_PARALLEL = SOLUTIONS.values()
LECTURE = [SINGLE, *DISTRIBUTED]
HOOKS = ROOT / "solutions/05_communication/pytorch/train_hooks.py"
NEIGHBOURS = [*itertools.pairwise(LECTURE), (SINGLE, DATA_PARALLEL), (HOOKS, HOOKS.with_name("train_data_parallel.py"))]
NEIGHBOURS += [(PLAIN, path) for path in sorted(PLAIN.parent.glob("*.py")) if path != PLAIN]
SCRIPTS = sorted((ROOT / "solutions").glob("*/pytorch/*.py"))
TRAININGS = [path for path in SCRIPTS if "def train(" in path.read_text()]
WITH_GAPS = [path for path in SCRIPTS if "SOLUTION" in path.read_text()]
FILES = [*SCRIPTS, *sorted((ROOT / "handson/pytorch").glob("*.py"))]


def lines(script):
    """What a student reads: the script without the markers of the gaps."""
    return [line for line in script.read_text().splitlines() if "### " not in line]


@pytest.mark.parametrize("pair", NEIGHBOURS, ids=lambda pair: " -> ".join(path.stem for path in pair))
def test_neighbouring_scripts_differ_in_fewer_than_40_lines(pair):
    """The difference is the lesson."""
    changed = [line for line in difflib.ndiff(*map(lines, pair)) if line[0] in "+-"]
    assert len(changed) < 40


@pytest.mark.parametrize("script", TRAININGS, ids=lambda path: path.stem)
def test_every_training_has_the_same_skeleton(script):
    """train, what each process does where there are several, and main; what a script has beside them comes first."""
    functions = re.findall(r"^def (\w+)", script.read_text(), re.MULTILINE)
    skeleton = [name for name in functions if name in ("train", "worker", "main")]
    assert functions[-len(skeleton) :] == skeleton and skeleton in (["train", "main"], ["train", "worker", "main"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_in_a_students_path_are_short(path):
    # gaps' markers, which students don't see
    text = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("### ")]
    assert len(text) < (95 if path in LECTURE else 100 if "solutions" in path.parts else 200)
    assert max((len(line) for line in text), default=0) <= 120
    if path in LECTURE:
        assert max(map(len, text[1:])) < 100, "beside the line that says what it is"


@pytest.mark.parametrize("script", WITH_GAPS, ids=lambda path: path.stem)
def test_gaps_are_marked_from_beginning_to_end_with_a_name_and_a_hint(script):
    names, open_gap = [], None
    text = script.read_text().splitlines()
    for line, below in zip(text, [*text[1:], ""]):
        if "### BEGIN SOLUTION" in line:
            assert open_gap is None
            open_gap = re.fullmatch(r" *### BEGIN SOLUTION ([a-z_]+):( \S.{10,})?", line)
            assert open_gap and (open_gap[2] or below.strip().startswith("### ")), line
            names.append(open_gap[1])
        elif "### END SOLUTION" in line:
            assert open_gap is not None
            assert line.index("#") == open_gap[0].index("#")
            open_gap = None
        elif open_gap is None or not line.strip().startswith("### "):  # a hint, or a line that is given
            assert "###" not in line and "SOLUTION" not in line
    assert open_gap is None
    assert names and len(set(names)) == len(names)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_without_its_gaps_a_script_is_still_python(script):
    text = re.sub(
        r"( *)### BEGIN SOLUTION.*?### END SOLUTION",
        r"\1raise NotImplementedError",
        script.read_text(),
        flags=re.DOTALL,
    )
    compile(text, script.name, "exec")


def run_with_torchrun(task, out, *words):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        SOLUTIONS[task],
        "-o",
        out,
        *words,
    ]
    environment = os.environ | QUICK_START | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [str(word) for word in command], cwd=out, env=environment, capture_output=True, text=True, timeout=500
    )


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory):
    """The multi-node script, which torchrun starts as well as mpiexec: the folder, and the finished process."""
    out = tmp_path_factory.mktemp("torchrun")
    return out, run_with_torchrun("multi_node", out, "-e", 2, "--size", 16, "--gpu-memory", "300MB")


@pytest.mark.thorough
def test_torchrun_starts_it_too(torchrun):
    out, done = torchrun
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "\033" not in done.stdout
    text = done.stdout.splitlines()
    assert text[0] == "Start a training script using multiple nodes."
    assert "Num process (COMM_WORLD): 2" in text
    assert [line.split()[0] for line in text[-4:]] == ["epoch", "1", "2", "Throughput:"]
    assert len(text) == 13


@pytest.mark.thorough
def test_under_torchrun_the_result_tells_ranks_and_nodes(torchrun):
    out, done = torchrun
    result = json.loads((out / "result.json").read_text())
    assert (result["workers"], result["nodes"], result["epochs"], result["images"]) == (2, 1, 2, 3000)
    assert len(result["steps"]) == 2 * 24 - 2 and sum(result["steps"]) < result["train_seconds"], (
        "all but the first, and the one after an evaluation"
    )
    assert result["parameters"] == sum(parameter.numel() for parameter in ConvNet().parameters())
    assert (
        done.stdout.splitlines()[-1] == f"Throughput: {result['throughput']} [images/sec.] (3000 / {result['seconds']})"
    )
    left = sorted(name for name in os.listdir(out) if not name.startswith("usage_"))
    assert left == ["memory_rank0.json", "memory_rank1.json", "result.json"]


@pytest.mark.thorough
def test_the_result_has_the_memory_of_each_rank(torchrun):
    out, _ = torchrun
    ranks = json.loads((out / "result.json").read_text())["memory"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    network = ConvNet()
    weights = sum(4 * parameter.numel() for parameter in network.parameters())
    kept = weights + sum(buffer.numel() * buffer.element_size() for buffer in network.buffers())
    for rank in ranks:
        assert {part: rank["most"][part] for part in ("parameters", "gradients", "optimizer")} == {
            "parameters": kept,
            "gradients": 2 * weights,
            "optimizer": weights,
        }, "gradients are in buckets, too"
        assert rank["predicted"] == {
            "parameters": kept,
            "gradients": 2 * weights,
            "optimizer": weights,
            "activations": None,
        }
        assert sum(rank["peak"].values()) < rank["limit"] == 300 * 2**20
    steps = [account["step"] for account in gpu_memory.read(out)]
    assert [[phase for phase, _ in itertools.groupby(moment[1] for moment in step)] for step in steps] == [
        ["forward", "backward", "optimize"]
    ] * 2
    lines = memory.table(memory.read([out]))
    assert sum("predicted" in line for line in lines) == 2
    assert "memory counted" in compare.conditions(read(out)), (
        "which takes time, so that other runs are not compared with it"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("task", ["single_gpu", "multi_gpu"])
def test_ctrl_c_ends_all_of_a_training_with_one_sentence(task, tmp_path):
    command = [sys.executable, SOLUTIONS[task], "-o", tmp_path, "-e", "1000", "--size", "16"]
    run = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=os.environ | QUICK_START,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert any(line.startswith("1 ") for line in run.stdout), "an epoch has ended"
        os.killpg(run.pid, signal.SIGINT)
        _, errors = run.communicate(timeout=20)  # no worker holds the pipe any more
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert (run.returncode, errors) == (
        130,
        f"{SOLUTIONS[task].name}: stopped by Ctrl-C before the end, so it leaves no result\n",
    )
    assert not (tmp_path / "result.json").exists()
