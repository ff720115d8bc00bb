"""A student's way through each notebook, in a real browser and from what students receive. Each is run once; the tests
look at what came."""

import re

import pytest
from lab import Notebook

from answers.known import of_unit
from grader import gaps
from grader.course import UNITS, most_points
from grader.instructors.release import GAP_IN_CELL, closing_checks
from handson.profiling import analysis, readers
from notebooks import ROOT, filled, source_of

PICTURES = {"00_start": 3, "01_single_gpu": 6, "02_multi_gpu": 9, "03_multi_node": 6, "04_profiling": 9}
SAYS = {"00_start": [r"This is job \d+\."], "04_profiling": ["virtual GPU", "waits the most, for rank"]}

pytestmark = pytest.mark.timeout(1000)


def gap_cells(cells):
    """{number: the names of its gaps} of the cells that have gaps."""
    found = {
        number: ["".join(names) for names in GAP_IN_CELL.findall(cell["source"])] for number, cell in enumerate(cells)
    }
    return {number: names for number, names in found.items() if names}


def pages(cell):
    return "".join("".join(output.get("data", {}).get("text/html", "")) for output in cell.get("outputs", ()))


def shown_by(ran):
    """The outputs that are pictures."""
    return [result for result in ran.outputs("execute_result") if "image/png" in result["data"]]


def test_a_notebook_with_its_gaps_filled_runs_without_error_and_its_check_is_all_green(ran):
    assert [cell["source"] for cell in ran.cells] == ran.sources, "it was typed as it stands in the solution"
    assert not ran.outputs("error")
    if ran.drawn is not None:
        assert not re.search(f"{ROOT}/(datasets|handson|exercises)", str(ran.cells)), (
            "jobs, too, use what the bundle has"
        )
        assert len(ran.drawn) >= 2 and min(ran.drawn) > 100
    checks = [pages(cell) for cell in ran.cells if cell["source"].startswith(("check(", "from grader import check"))]
    assert checks
    for table in checks:
        assert "✓ passed" in table and "✗" not in table and "– not" not in table


@pytest.mark.thorough
def test_it_shows_its_pictures_and_full_marks(ran):
    results, shown = ran.outputs("execute_result"), shown_by(ran)
    assert len(shown) >= PICTURES.get(ran.name, 2)
    assert all(picture["metadata"]["image/png"]["alt"].endswith(".") for picture in shown)
    assert all(re.search(words, ran.printed) for words in SAYS.get(ran.name, ()))
    (check,) = closing_checks(source_of(ran.name))
    assert "".join(results[-1]["data"]["text/plain"]) == f"{most_points(*check):g}"


@pytest.mark.thorough
@pytest.mark.parametrize("ran", ["04_profiling"], indirect=True)
def test_profiles_show_the_bottlenecks_before_and_not_after(ran, course):
    """By counts, and by shares of a step where these are far apart on a busy machine, too."""

    def runs(name):
        return readers.load([course / f"exercises/04_profiling/results/{name}_{when}" for when in ("before", "after")])

    before, after = runs("slow_loading")
    loading = [max(rank.share("loading") for rank in analysis.shares(run)) for run in (before, after)]
    assert loading[0] > 2 * loading[1]
    before, after = runs("waiting_every_step")
    calls = [
        sum(one[2] for one in analysis.operators(run.timelines[0], analysis.common_steps(run)[0], (1,)))
        for run in (before, after)
    ]
    assert calls == [3, 1]
    assert len(shown_by(ran)) == PICTURES[ran.name]


@pytest.mark.thorough
def test_a_wrong_answer_is_told_what_is_wrong_with_it(page, lab, pictures):
    """In a light and in a dark theme."""
    opened = Notebook(page, lab, "notebooks/00_start.ipynb")
    mistake = next(mistake for mistake in of_unit("start")[0] if mistake.gap == "workers")
    hint = next(check for check in UNITS["start"][0].checks if check.gap == "workers").criteria[0].hint.replace("`", "")
    sources = filled("00_start")
    wrong = gaps.fill(gaps.exercise(source_of("00_start"), ".py"), {"workers": mistake.code})
    cells = opened.cells()
    number = next(number for number, cell in enumerate(cells) if "def workers" in cell["source"])
    at = wrong.index("def workers")
    opened.type(number, wrong[at : wrong.index("# %%", at)].strip())
    opened.run_cell()
    opened.save()
    check = next(number for number, source in enumerate(sources) if 'check("start")' in source)
    page.locator(".jp-Notebook .jp-Cell").nth(check).locator(".cm-content").click()
    opened.run_cell()
    table = page.locator(".handson-check")
    table.wait_for(timeout=60_000)
    table.scroll_into_view_if_needed()
    assert not table.get_by_text(hint).is_visible()
    for one in table.get_by_text("Hint", exact=True).all():
        one.click()
    for theme in ("Dark", "Light"):
        page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", f"JupyterLab {theme}"
        )
        page.locator(f"body[data-jp-theme-name='JupyterLab {theme}']").wait_for(state="attached")
        if pictures:
            page.screenshot(path=pictures / f"wrong_answer_{theme}.png")
        assert table.get_by_text(hint).is_visible()
        assert table.get_by_text("✗ failed").is_visible()
    opened.end_kernel()
