"""The first notebook shows which notebooks there are, whatever units the course has; and what each of them has at its
head and at its end."""

import ast
import json
import re
from pathlib import Path

import pytest

from grader import self_check
from grader.exercises import folder_of_notebook, solution
from handson.notebook import contents
from handson.profiling import analysis

ROOT = Path(__file__).resolve().parent.parent


def test_every_units_notebook_is_shown_with_its_title(capsys):
    contents.show(ROOT / "notebooks")
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split()[0] for line in lines]
    assert shown == sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert {folder_of_notebook(name) for name in shown} == {
        path.name for path in (ROOT / "solutions").iterdir() if path.is_dir()
    }
    assert lines[0].split()[:3] == ["00_start", "Start", "here"] and all(len(line.split()) > 1 for line in lines)
    assert all(re.search(r" \d+ minutes$", line) for line in lines), "a long title leaves a space before its minutes"


def test_no_notebook_names_the_next():
    """A unit can be put between two others without touching them."""
    names = {name for name, _ in contents.titles(ROOT / "notebooks")}
    for name in names:
        text = source_of(name)
        assert not [other for other in names - {name} if f"{other}.ipynb" in text]


def source_of(name):
    return solution(f"notebooks/{name}.ipynb").read_text()


NOTEBOOKS = [name for name, _ in contents.titles(ROOT / "notebooks")]


def cells(name, kind):
    found = json.loads((ROOT / f"notebooks/{name}.ipynb").read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def python_of(source):
    """A cell's code as an ast, without its lines for the shell or for IPython."""
    return ast.parse(re.sub(r"^(\s*)[!%]", r"\1pass  # ", source, flags=re.MULTILINE))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_each_cell_is_python_apart_from_lines_that_begin_with_a_command(name):
    """A comment that ends in one word and ? would become a request for help, such as "parameters?"."""
    for source in cells(name, "code"):
        python_of(source)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_says_at_its_head_what_for_and_how_long_and_at_its_end_what_one_can_do_now(name):
    first, *_, last = cells(name, "markdown")
    assert re.search(r"\*\*In about \d+ minutes you will\*\*\n\n- ", first)
    assert re.search(r"## What you can do now\n\n- ", last)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_links_of_a_notebook_lead_to_what_students_receive(name):
    links = re.findall(r"\]\((\.\./[^)#]+)\)", "\n".join(cells(name, "markdown")))
    assert "../docs/glossary.md" in links
    assert all((ROOT / "for_students" / link.removeprefix("../")).exists() for link in links)


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name != "00_start"])
def test_each_section_with_gaps_ends_with_a_check_of_them(name):
    """What the last of them has, the check of the whole notebook may check."""
    unit = name.partition("_")[2]
    *sections, last = re.split(r"^# ## ", source_of(name), flags=re.MULTILINE)
    of_sections = [
        (
            re.findall(r"### BEGIN SOLUTION (\w+)", section),
            re.findall(rf'^check\(\s*"{unit}"([^)]*)\)', section, re.MULTILINE),
        )
        for section in sections
    ]
    while not of_sections[-1][0]:
        of_sections.pop()
    for gaps, checks in of_sections[:-1]:
        named = [one for call in checks for one in re.findall(r'(?<!=)"([^"]+)"', call)]
        assert set(gaps) <= set(named)
        assert not named or self_check.named(unit, named)


@pytest.mark.parametrize("name", ["01_single_gpu", "02_multi_gpu", "03_multi_node", "04_profiling"])
def test_a_prediction_that_a_student_skips_is_missed_by_no_other_cell(name):
    """In the cell of a gap, PUT YOUR CODE says what is missing; later, a NameError would say nothing."""
    used = [
        node.id
        for source in cells(name, "code")
        if "# PUT YOUR CODE" not in source
        for node in ast.walk(python_of(source))
        if isinstance(node, ast.Name) and node.id.startswith("prediction_")
    ]
    assert used == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_section_writes_the_image_files_that_its_scripts_read_before_it_runs_them(name):
    """A section with a star can be left out, so each section writes them itself."""
    unit = solution(f"notebooks/{name}.ipynb").parent
    readers = {path.name for path in unit.glob("*/*.py") if "map_files.folder_of" in path.read_text()}
    readers |= {path.name for path in unit.glob("*.sh") if any(reader in path.read_text() for reader in readers)}
    for section in re.split(r"^# ## ", source_of(name), flags=re.MULTILINE):
        written = False
        for cell in re.split(r"^# %%", section, flags=re.MULTILINE):
            written |= "handson images digits" in cell
            started = "submit(" in cell and any(f'"{reader}"' in cell for reader in readers)
            assert written or not started, cell


def test_every_time_is_shown_beside_its_title(capsys):
    contents.show(ROOT / "notebooks")
    assert all(re.search(r"\d+ minutes$", line) for line in capsys.readouterr().out.splitlines())


def test_the_glossary_is_in_the_alphabets_order_and_explains_what_it_refers_to():
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)[1:]
    words = [word for word, _ in rows]
    assert words == sorted(words, key=lambda word: word.partition(",")[0].lower()) and len(words) > 50
    referred = {word for _, meaning in rows for word in re.findall(r"\*([^*]+)\*", meaning)}
    explained = {part.strip() for word in words for part in word.split(",")} | {"local rank", "total"}
    assert {word for word in referred if not {word, word.removesuffix("s")} & explained} == set()


@pytest.mark.parametrize("name", ["01_single_gpu", "02_multi_gpu", "03_multi_node"])
def test_every_training_of_a_notebook_gets_the_options_that_the_student_chose(name):
    code = "\n".join(cells(name, "code"))
    given = re.findall(r'OPTIONS(?:=|": )(f?"[^"]*"|\w+)', code) + re.findall(r"^options = (.*)", code, re.MULTILINE)
    given = [options for options in given if options != "options"]
    assert given and all(options == "OPTIONS" or "{OPTIONS}" in options for options in given)


def test_every_column_of_the_table_of_a_profile_is_explained():
    text = "\n".join(cells("04_profiling", "markdown"))
    columns = analysis.table([])[0].split("ms a step")[1].split()
    assert {"busy", "waiting", "overlap"} < set(columns)
    assert [
        column for column in columns if not re.search(rf"^\| {column} \||\*{column}\* is ", text, re.MULTILINE)
    ] == []


def test_optional_experiments_have_no_points():
    before, found, optional = (
        (ROOT / "notebooks/03_multi_node.ipynb").read_text("utf-8").partition("# Optional experiments")
    )
    assert found and "# PUT YOUR CODE" in before and "# PUT YOUR CODE" not in optional
