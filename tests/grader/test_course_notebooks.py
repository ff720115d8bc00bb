"""The notebooks run from top to bottom with the solutions filled in, show what they promise, and are clear about what is still to be filled."""

import shutil

import jupytext
import nbclient
import pytest
from smaller import smaller

from grader.course import UNITS
from grader.exercises import ROOT, given_out
from grader.instructors.known_answers import solved

NOTEBOOKS = {"start": "00_start", "single_gpu": "01_single_gpu", "multi_gpu": "02_multi_gpu", "multi_node": "03_multi_node"}
PICTURES = {"start": 3, "single_gpu": 6, "multi_gpu": 9, "multi_node": 6}
NOT_PASSED = """
# %%
[(verdict.gap, verdict.status, verdict.message) for verdict in _.verdicts if verdict.status != "passed"]
"""


def execute(script, course, **options):
    """The notebook of a percent script after it has been run."""
    notebook = jupytext.reads(smaller(script), fmt="py:percent")
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": course / "notebooks"}}, **options)
    return client.execute()


def outputs(notebook, kind):
    return [output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == kind]


def printed(notebook):
    return "".join(output.text for output in outputs(notebook, "stream"))


def points(unit, track):
    parts = [part for part in UNITS[unit] if part.track in (track, "")]
    return sum(criterion.points for part in parts for check in part.checks for criterion in check.criteria)


@pytest.mark.parametrize("unit", NOTEBOOKS)
@pytest.mark.timeout(600)
def test_a_solved_notebook_runs_and_shows_its_pictures_and_full_marks(unit, course):
    notebook = execute(solved(f"notebooks/{NOTEBOOKS[unit]}.ipynb") + NOT_PASSED, course)
    results = outputs(notebook, "execute_result")
    pictures = [result for result in results if "image/png" in result.data]
    assert len(pictures) >= PICTURES[unit]
    assert "This is job 0." in printed(notebook) or unit != "start"
    assert all(picture.metadata["image/png"]["alt"].endswith(".") for picture in pictures)
    assert results[-1].data["text/plain"] == "[]"
    assert results[-2].data["text/plain"] == f"{max(points(unit, track) for track in ('pytorch', 'chainer')):g}"


@pytest.mark.timeout(300)
def test_a_gap_still_to_be_filled_is_named_by_its_cell(course):
    notebook = execute(given_out("notebooks/00_start.ipynb").text, course, allow_errors=True)
    errors = [error for error in outputs(notebook, "error") if error.ename == "NotImplementedError"]
    assert {"PUT YOUR CODE: workers", "PUT YOUR CODE: prediction"} == {error.evalue for error in errors}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("filled", "sentence"), [((), "qsub refused"), (("run_single_gpu_training.sh",), "ended with status")])
def test_a_job_with_gaps_still_to_be_filled_says_so_in_a_sentence(course, tmp_path, filled, sentence):
    shutil.copytree(ROOT / "exercises/01_single_gpu", tmp_path / "exercises/01_single_gpu")
    for name in filled:
        shutil.copy(course / "exercises/01_single_gpu" / name, tmp_path / "exercises/01_single_gpu" / name)
    (tmp_path / "notebooks").mkdir()
    cells = given_out("notebooks/01_single_gpu.ipynb").text.split("# %%")
    chosen = [cell for cell in cells if "TRACK = " in cell or "job = submit(" in cell]
    notebook = execute("# %%".join(["", *chosen]), tmp_path, allow_errors=True)
    (error,) = outputs(notebook, "error")
    assert len(error.traceback) == 1 and sentence in error.traceback[0]
