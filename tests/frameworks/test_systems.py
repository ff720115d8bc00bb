"""The notebook 07_frameworks runs from top to bottom as a student has it: each system leaves a result, they stand in
one table, and Lightning computes what DistributedDataParallel does. Nobody sees what the systems print by
themselves."""

import os
import re
import subprocess
import sys
import zipfile

import pytest
from smaller import smaller
from waiting import run_to_end

from grader.course import UNITS
from grader.exercises import ROOT, solved
from grader.instructors.bundle import TOP, bundle
from grader.instructors.release import build
from handson import compare
from handson.notebook import other_frameworks
from handson.training import results

NOTEBOOK = "07_frameworks"
DDP = ROOT / "solutions/03_multi_node/pytorch/train_cifar_multi_node.py"
NOISE = re.compile(
    r"^[WIEF]\d{4} |warning[^s]|deprecat|tf-trt|onednn|rank_zero|💡|FutureWarning|not recommended",
    re.IGNORECASE | re.MULTILINE,
)
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """What a student has who filled all gaps."""
    folder = tmp_path_factory.mktemp("course")
    bundle(build(ROOT / "solutions", "local"), folder / "course.zip", "local")
    with zipfile.ZipFile(folder / "course.zip") as archive:
        archive.extractall(folder)
    scripts = [part.file for part in UNITS["frameworks"] if part.file.startswith("exercises/")]
    for file in (*scripts, f"exercises/{other_frameworks.DDP}"):
        (folder / TOP / file).write_text(solved(file))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HANDSON_PBS_HOME", str(folder / "pbs"))
        yield folder / TOP


@pytest.fixture(scope="module")
def ran(course):
    """The notebook after its run."""
    import jupytext
    import nbclient

    notebook = jupytext.reads(smaller((ROOT / f"solutions/{NOTEBOOK}/{NOTEBOOK}.py").read_text()), fmt="py:percent")
    return nbclient.NotebookClient(
        notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": course / "notebooks"}}
    ).execute()


@pytest.fixture(scope="module")
def found(ran, course):
    """The Results of its runs."""
    return [results.read(path) for path in sorted((course / "exercises" / NOTEBOOK / "results").iterdir())]


def outputs(notebook, kind):
    return [output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == kind]


def test_all_gaps_filled_earn_full_marks_and_figures_are_shown(ran):
    table = "".join(
        output.data.get("text/html", "") for output in outputs(ran, "display_data") + outputs(ran, "execute_result")
    )
    assert "✓ passed" in table and "✗" not in table and "– not" not in table
    shown = [output for output in outputs(ran, "execute_result") if "image/png" in output.data]
    assert len(shown) >= 2 and all(output.metadata["image/png"]["alt"].endswith(".") for output in shown)


def test_no_noise_of_the_libraries_reaches_a_student(ran):
    # the course's own begin so
    lines = [
        line
        for output in outputs(ran, "stream")
        for line in output.text.splitlines()
        if not line.startswith("Warning: ")
    ]
    assert [line for line in lines if NOISE.search(line)] == []


def test_all_runs_stand_in_one_table_with_their_first_step_apart(found):
    rows = compare.table(found)
    assert len({row.conditions for row in rows}) == 1
    wanted = {
        ("pytorch", "multi_gpu", 2),
        ("tensorflow", "mirrored", 2),
        ("tensorflow", "multi_worker", 2),
        ("tensorflow", "single_gpu", 1),
        ("lightning", "lightning", 2),
        ("accelerate", "accelerate", 2),
    }
    assert {(row.track, row.name, row.workers) for row in rows} >= wanted
    assert all(row.speedup for row in rows if row.track == "tensorflow")
    assert all(run.log[0]["first_step"] > 0 for run in found if run.track in ("tensorflow", "lightning"))
    assert all(run.log[-1]["main/loss"] < 2.3 for run in found)


def test_lightning_computes_what_ddp_computes(found, tmp_path):
    """The same sampler, batches and steps: equal evaluations, but for an image that Lightning counts twice. Accelerate
    shuffles in another order."""
    run = next(run for run in found if run.track == "lightning" and run.workers == 2)
    words = ["-e", run.epochs, "--size", run.size, "-b", run.batchsize, "--lr", run.lr, "-o", tmp_path]
    torchrun = [
        sys.executable,
        *"-m torch.distributed.run --standalone --nproc-per-node=2".split(),
        str(DDP),
        *map(str, words),
    ]
    done = subprocess.run(torchrun, capture_output=True, text=True, timeout=500, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ddp = results.read(tmp_path)
    assert run.images == ddp.images
    for name in ("validation/main/accuracy", "validation/main/loss"):
        assert run.log[0][name] == pytest.approx(ddp.log[0][name], rel=0.02), name


def test_without_the_second_environment_a_script_says_so_in_a_sentence(tmp_path):
    command = [sys.executable, ROOT / "solutions/07_frameworks/tensorflow/train_cifar_single_gpu.py", "-o", tmp_path]
    done = run_to_end(command, env=os.environ | {"HANDSON_FRAMEWORKS": os.devnull})
    assert done.returncode != 0 and "run `make frameworks`" in done.stderr and len(done.stderr.splitlines()) == 1
