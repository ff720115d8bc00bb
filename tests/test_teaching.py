"""docs/teaching.md says what the course has: minutes, points, and every notebook."""

import json
import re
import subprocess
from pathlib import Path

from grader.course import UNITS
from grader.exercises import solution
from handson.notebook import contents

ROOT = Path(__file__).resolve().parent.parent


def points(name):
    """The points that the check at the end of a notebook gives."""
    cells = json.loads((ROOT / f"notebooks/{name}.ipynb").read_text())["cells"]
    (most,) = [found for cell in cells if (found := cell["metadata"].get("nbgrader", {}).get("points")) is not None]
    return f"{most:g}"


def test_the_syllabus_has_the_minutes_and_points_of_all_notebooks():
    rows = re.findall(
        r"^\| `(\d\db?_\w+)` \| (\d+) \| ([\d.]+) \|", (ROOT / "docs/teaching.md").read_text(), re.MULTILINE
    )
    right = [
        (name, re.search(r"In about (\d+) minutes", solution(f"notebooks/{name}.ipynb").read_text())[1], points(name))
        for name, _ in contents.titles(ROOT / "notebooks")
        if name.partition("_")[2] in UNITS
    ]
    assert rows and rows == right[: len(rows)], (
        "of all up to the last one that is named; a unit of one's own after it needs none"
    )


def test_the_loop_that_fills_the_single_gpu_scripts_gives_the_solutions_without_marks(tmp_path):
    loop = re.search(
        r"^    for file in .*?^    done$", (ROOT / "docs/teaching.md").read_text(), re.MULTILINE | re.DOTALL
    )[0]
    for track in ("pytorch", "chainer"):
        (tmp_path / "exercises/01_single_gpu" / track).mkdir(parents=True)
    subprocess.run(
        ["bash", "-e", "-c", loop.replace("handson-course", str(tmp_path))], cwd=ROOT, check=True, timeout=60
    )
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3 and not any(mark in path.read_text() for path in files for mark in ("###", "PUT YOUR CODE"))
    for path in files:
        solved = (ROOT / "solutions/01_single_gpu" / path.relative_to(tmp_path / "exercises/01_single_gpu")).read_text()
        assert path.read_text() == "".join(
            line for line in solved.splitlines(keepends=True) if not line.lstrip().startswith("### ")
        )
        assert path.suffix == ".sh" or compile(path.read_text(), path.name, "exec")
