"""The notebooks are clear about what is still to be filled. (tests/browser runs them with the solutions filled in.)"""

import shutil

import pytest
from smaller import smaller

from grader.exercises import ROOT, given_out

pytestmark = pytest.mark.slow


def execute(script, course, **options):
    """The notebook of a percent script after it has been run."""
    import jupytext  # takes a second, which all tests would wait for
    import nbclient

    notebook = jupytext.reads(smaller(script), fmt="py:percent")
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": course / "notebooks"}}, **options)
    return client.execute()


def outputs(notebook, kind):
    return [output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == kind]


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
