"""A student's way through each notebook, in a real browser and from what students receive."""

import re
from pathlib import Path

import nbformat
import pytest
from lab import Notebook
from smaller import smaller

from grader import gaps
from grader.instructors.release import GAP_IN_CELL, notebook
from grader.instructors.known_answers import known

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
LIMIT = 400  # seconds for a notebook, on a busy machine

pytestmark = pytest.mark.timeout(600)


def filled(name):
    """The sources of a notebook's cells with its gaps filled, by number."""
    source = (ROOT / f"solutions/{name}/{name}.py").read_text()
    answers = gaps.answers(source)
    cells = nbformat.reads(notebook(gaps.fill(gaps.exercise(source, ".py"), answers)), as_version=4).cells
    return [cell.source for cell in cells]


def gap_cells(cells):
    """{number: the names of its gaps} of the cells that have gaps."""
    found = {number: ["".join(names) for names in GAP_IN_CELL.findall(cell["source"])] for number, cell in enumerate(cells)}
    return {number: names for number, names in found.items() if names}


def pages(cell):
    return "".join("".join(output.get("data", {}).get("text/html", "")) for output in cell.get("outputs", ()))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_with_its_gaps_filled_runs_without_error_and_its_check_is_all_green(name, page, lab, pictures):
    opened = Notebook(page, lab, f"notebooks/{name}.ipynb")
    sources = [smaller(source) for source in filled(name)]
    for number, cell in enumerate(opened.cells()):
        if cell["source"] != sources[number]:
            opened.type(number, sources[number])
    opened.run_all()
    opened.wait(LIMIT)
    opened.picture(pictures / f"{name}.png")
    cells = opened.cells()
    assert [cell["source"] for cell in cells] == sources, "it was typed as it stands in the solution"
    errors = [output for cell in cells for output in cell.get("outputs", ()) if output["output_type"] == "error"]
    assert not errors
    assert not re.search(f"{ROOT}/(datasets|handson|exercises)", str(cells)), "jobs, too, use what the bundle has"
    drawn = page.locator(".jp-OutputArea-output img, .jp-OutputArea-output svg").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert len(drawn) >= 2 and min(drawn) > 100
    checks = [pages(cell) for cell in cells if cell["source"].startswith(("check(", "from grader import check"))]
    assert checks
    for table in checks:
        assert "✓ passed" in table and "✗" not in table and "– not" not in table


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_wrong_answer_is_told_what_is_wrong_with_it(theme, page, lab, pictures):
    opened = Notebook(page, lab, "notebooks/00_start.ipynb")
    if theme == "dark":
        page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    mutant = next(mutant for mutant in known("start", "")[0] if mutant["gap"] == "workers")
    sources = filled("00_start")
    wrong = gaps.fill(gaps.exercise((ROOT / "solutions/00_start/00_start.py").read_text(), ".py"), {"workers": mutant["code"]})
    cells = opened.cells()
    number = next(number for number, names in gap_cells(cells).items() if "workers" in names)
    at = wrong.index("def workers")
    opened.type(number, wrong[at : wrong.index("# %%", at)].strip())
    opened.run_cell()
    check = next(number for number, source in enumerate(sources) if 'check("start")' in source)
    page.locator(".jp-Notebook .jp-Cell").nth(check).locator(".cm-content").click()
    opened.run_cell()
    table = page.locator(".handson-check")
    table.wait_for(timeout=60_000)
    table.scroll_into_view_if_needed()
    pictures.mkdir(exist_ok=True)
    page.screenshot(path=pictures / f"wrong_answer_{theme}.png")
    assert table.get_by_text(mutant["message"]).is_visible()
    assert table.get_by_text("✗ failed").is_visible()
