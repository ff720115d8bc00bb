"""docs/teaching.md says what the course has: minutes, points, and every notebook."""

import re
from pathlib import Path

from grader.course import UNITS, most_points
from grader.exercises import folders

ROOT = Path(__file__).resolve().parent.parent


def test_the_syllabus_has_the_minutes_and_points_of_all_notebooks():
    rows = re.findall(r"^\| `(\d\d_\w+)` \| (\d+) \| ([\d.]+) \|", (ROOT / "docs/teaching.md").read_text(), re.MULTILINE)
    minutes = {name: re.search(r"In about (\d+) minutes", (ROOT / f"solutions/{name}/{name}.py").read_text())[1] for name in folders()}
    assert rows == [(name, minutes[name], f"{most_points(name.split('_', 1)[1]):g}") for name in folders() if name.split("_", 1)[1] in UNITS]
