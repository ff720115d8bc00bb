"""docs/customising.md, done exactly as it says in a copy of the course."""

import re

import pytest
from test_adding_a_unit import ROOT, Course

PAGE = (ROOT / "docs/customising.md").read_text()
SECTIONS = {name: text for name, text in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)}
RELEASE, VERIFY = re.findall(r"^    (\S.*)$", SECTIONS["Before you start"], re.MULTILINE)
RIGHT = "The checks of start are right about the solutions, the untouched exercises and "
pytestmark = pytest.mark.thorough


class Copy(Course):
    def type(self, command, status=0):
        return self.run(["bash", "-c", command], status=status)

    def apply(self, section):
        """Make the changes of a section's diffs."""
        for diff in re.findall(r"^```diff\n(.*?)^```$", SECTIONS[section], re.MULTILINE | re.DOTALL):
            (self.folder / "change.diff").write_text(diff)
            self.type("git apply change.diff")

    def verified(self, status=0):
        return self.type(VERIFY, status)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return Copy(tmp_path_factory.mktemp("customising") / "course")


def test_points_and_a_gap_more(course):
    course.apply("Points")
    course.apply("Add a gap")
    course.type(RELEASE)
    assert f"{RIGHT}" in course.verified()
    text = (course.folder / "notebooks/00_start.ipynb").read_text()
    assert "PUT YOUR CODE: milliseconds" in text and '"points": 6' in text


def test_a_gap_less_and_what_verify_says_until_its_known_answers_are_deleted(course):
    course.apply("Remove a gap")
    course.type(RELEASE)
    said = course.verified(status=1)
    assert re.search(
        r"notebook.toml has known answers \(\d+\) to prediction, which has no check: correct the name, or remove them",
        said,
    )
    path = course.folder / "answers/start/notebook.toml"
    entries = re.split(r"(?=^\[\w+\.)", path.read_text(), flags=re.MULTILINE)
    path.write_text("".join(entry for entry in entries if not entry.startswith("[prediction.")))
    assert RIGHT in course.verified()


def test_another_data_set(course):
    [code] = re.findall(r"^```python\n(.*?)^```$", SECTIONS["Another data set"], re.MULTILINE | re.DOTALL)
    (course.folder / "make.py").write_text(code)
    course.type("python make.py")
    [command] = re.findall(r"^    (python .*)$", SECTIONS["Another data set"], re.MULTILINE)
    assert "Throughput:" in course.type(command)
