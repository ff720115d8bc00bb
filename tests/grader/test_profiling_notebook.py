"""The notebook on profiling, run as a student would: the slow scripts are profiled as they were given out, mended, and profiled again."""

import re

import nbformat
import pytest
from test_course_notebooks import NOT_PASSED, execute, outputs, points, printed

from grader.exercises import given_out
from grader.instructors.known_answers import solved
from handson.profiling import analysis, readers

SLOW = ("slow_loading", "uneven_work", "waiting_every_step")


def script(name):
    return f"exercises/04_profiling/pytorch/{name}.py"


@pytest.fixture(scope="module")
def course(course):
    """A course's folder in which all exercises are solved but the slow scripts."""
    for name in ("train_steps", *SLOW):
        text = solved(script(name)) if name == "train_steps" else given_out(script(name)).text
        (course / script(name)).write_text(text)
    return course


@pytest.fixture(scope="module")
def notebook(course):
    def mend(cell, cell_index):
        if again := re.search(r'"(\w+)\.py", "after"', cell.source):
            (course / script(again[1])).write_text(solved(script(again[1])))

    done = execute(solved("notebooks/04_profiling.ipynb") + NOT_PASSED, course, on_cell_start=mend)
    nbformat.write(done, course / "notebooks/04_profiling.ipynb")
    return done


@pytest.mark.timeout(900)
def test_the_solved_notebook_shows_its_pictures_and_full_marks(notebook):
    results = outputs(notebook, "execute_result")
    pictures = [result for result in results if "image/png" in result.data]
    assert len(pictures) == 9
    assert all(picture.metadata["image/png"]["alt"].endswith(".") for picture in pictures)
    assert "virtual GPU" in printed(notebook) and "waits the most, for rank" in printed(notebook)
    assert results[-1].data["text/plain"] == "[]"
    assert results[-2].data["text/plain"] == f"{max(points('profiling', track) for track in ('pytorch', 'chainer')):g}"


def runs(course, name):
    """A script's Runs before and after it was mended."""
    return readers.load([course / f"exercises/04_profiling/results/{name}_{when}" for when in ("before", "after")])


@pytest.mark.timeout(900)
def test_profiles_show_the_bottlenecks_before_and_not_after(notebook, course):
    """By counts, and by shares of a step where these are far apart on a busy machine, too."""
    before, after = runs(course, "slow_loading")
    loading = [max(rank.share("loading") for rank in analysis.shares(run)) for run in (before, after)]
    assert loading[0] > 2 * loading[1]
    before, after = runs(course, "waiting_every_step")
    calls = [sum(one[2] for one in analysis.operators(run.timelines[0], analysis.common_steps(run)[0], (1,))) for run in (before, after)]
    assert calls == [4, 1]
