"""What only a machine with a GPU, or several, can show: `make test-gpu`. Nothing is left out without a word there.

`make test-gpu SIMULATED=2` runs these tests with two simulated GPUs (tests/simulated_gpus). Chainer's GPUs, NVIDIA's
recorders and the speed of GPUs are not simulated.
"""

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
import two_on_one
from gpu_scripts import MPIEXEC, OF_FRAMEWORKS, ON_CPUS, ROOT, SCRIPTS, command
from waiting import run_to_end

from grader.self_check import check
from handson import frameworks
from handson.notebook import device_ways
from handson.profiling import usage
from handson.training import results

pytestmark = pytest.mark.gpu
SIMULATED = "SIMULATED_GPUS" in os.environ
SINGLE = "01_single_gpu/pytorch/train_cifar_single_gpu.py"


@pytest.fixture(scope="module", autouse=True)
def gpus():
    """How many GPUs there are; at least one."""
    found = usage.count_gpus()
    assert found, "there is no GPU here: these tests are for a machine that has one (`nvidia-smi` shows it)"
    return found


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder with the data set `digits` as image files."""
    folder = tmp_path_factory.mktemp("data")
    environment = os.environ | {"HANDSON_DATA": str(folder)}
    run_to_end([sys.executable, "-m", "handson", "images", "digits"], env=environment, cwd=ROOT)
    return environment


def run(words, folder, **options):
    """Run a command in a folder; it must end well."""
    done = run_to_end(words, cwd=folder, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def kind_of(device):
    return "virtual" if "virtual" in device else "GPU"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_runs_and_names_its_device(script, tmp_path, images, gpus):
    printed = run(command(script, tmp_path / "out"), tmp_path, env=images)
    expected = "virtual" if any(name in script for name in ON_CPUS) else "GPU"
    if "/chainer/" in script and SIMULATED or script.startswith("03_multi_node/chainer") and gpus == 1:
        expected = "virtual"  # NCCL refuses ranks that share a GPU
    found = sorted((tmp_path / "out").rglob("result.json"))
    assert {kind_of(results.read(path).device) for path in found} <= {expected}, printed
    assert found or "all_reduce" in script or "mnist" in script


def test_a_script_from_an_empty_file_runs_with_a_gpu_for_each_rank(tmp_path, gpus):
    torchrun = [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node", str(min(gpus, 2))]
    printed = run([*torchrun, str(ROOT / "solutions/03_multi_node/from_scratch.py")], tmp_path)
    assert f"images/s on {min(gpus, 2)} GPU(s)" in printed


@pytest.mark.parametrize("script", OF_FRAMEWORKS)
def test_a_script_of_another_system_runs(script, tmp_path):
    if importlib.util.find_spec(OF_FRAMEWORKS[script][2]) is None and (problem := frameworks.why_not()):
        pytest.skip(problem)
    run(command(script, tmp_path / "out"), tmp_path)


def test_two_ranks_on_gpus_do_what_one_process_does_on_the_cpu(tmp_path):
    """In float32 without TF32. A sum of some hundred numbers in another order differs by about 1e-6 of it, and five
    steps with momentum make ten times that."""
    run([MPIEXEC, "-n", "2", sys.executable, two_on_one.__file__, str(tmp_path / "found.pt")], tmp_path)
    found = torch.load(tmp_path / "found.pt", weights_only=True)
    torch.testing.assert_close(found, two_on_one.alone(), rtol=1e-4, atol=1e-5)


def test_a_full_gpu_ends_a_run_with_a_sentence(tmp_path):
    done = run_to_end(command(SINGLE, tmp_path / "out", "--size", "256", "-b", "192", "--gpu-memory", "100MB"))
    assert done.returncode == 2 and "out of memory" in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_a_profile_shows_what_the_gpu_did(tool, tmp_path):
    if tool == "nsys" and shutil.which("nsys") is None:
        pytest.skip("nsys is not on PATH: its profiles of GPUs are not tested")
    record = [
        sys.executable,
        "-m",
        "handson",
        "profile",
        "--tool",
        tool,
        "--skip",
        "3",
        "--steps",
        "5",
        "-o",
        "profile",
    ]
    run([*record, "--", *command(SINGLE, tmp_path / "out")], tmp_path)
    report = run([sys.executable, "-m", "handson", "timeline", "profile"], tmp_path)
    assert "Longest computation, of rank 0" in report and re.search(r"^ *0 +5 ", report, re.MULTILINE), report
    assert SIMULATED or "HtoD" in report, report


@pytest.mark.skipif(SIMULATED, reason="the speed of GPUs is not simulated")
def test_what_keeps_a_gpu_at_work_is_measured():
    found = device_ways.ways()
    assert found["convnet, a CUDA graph"].busy > found["convnet"].busy, device_ways.show(found).alt
    assert all(0 < way.busy < 1.1 and way.memory > 0 for way in found.values()), device_ways.show(found).alt
    assert len(device_ways.copies()) == 4


def test_watch_names_each_gpu(tmp_path, gpus):
    shown = run([sys.executable, "-m", "handson", "watch", "--interval", "0.5", "--count", "2"], tmp_path)
    assert shown.count("GPU 0 (") == 2, shown


def test_a_class_is_graded_on_a_machine_with_gpus(tmp_path):
    """The checks see no GPU, so the solutions have full marks there, too."""
    shutil.copytree(ROOT / "solutions/01_single_gpu", tmp_path / "class/jane/exercises/01_single_gpu")
    shutil.copytree(ROOT / "exercises/01_single_gpu", tmp_path / "class/joe/exercises/01_single_gpu")
    grade = [sys.executable, "-m", "grader", "grade", str(tmp_path / "class"), "--out", str(tmp_path / "grades")]
    run([*grade, "--unit", "single_gpu", "--engines", "2"], ROOT)
    rows = [row.split(",") for row in (tmp_path / "grades/grades.csv").read_text().splitlines()[1:]]
    of_scripts = [row for row in rows if "ipynb" not in ",".join(row)]
    assert {row[5] for row in of_scripts if row[0] == "jane"} >= {"passed"}
    assert not any("grader fault" in row for row in map(",".join, rows))


def test_the_self_check_judges_on_a_machine_with_gpus(tmp_path):
    shutil.copytree(ROOT / "solutions/01_single_gpu", tmp_path / "exercises/01_single_gpu")
    judged = check("single_gpu", track="pytorch", folder=tmp_path).verdicts
    of_files = [one for one in judged if one.status != "not found"]  # there is no notebook
    assert {one.status for one in of_files} == {"passed"} and len(of_files) > 5
