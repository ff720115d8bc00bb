"""The first notebook shows which notebooks there are, whatever units the course has."""

from pathlib import Path

from handson.notebook import contents

ROOT = Path(__file__).resolve().parent.parent


def test_every_units_notebook_is_shown_with_its_title(capsys):
    contents.show(ROOT / "notebooks")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(path.name for path in (ROOT / "solutions").iterdir() if path.is_dir())
    assert lines[0].split(maxsplit=1) == ["00_start", "Start here"] and all(len(line.split()) > 1 for line in lines)


def test_no_notebook_names_the_next():
    """A unit can be put between two others without touching them."""
    names = {name for name, _ in contents.titles(ROOT / "notebooks")}
    for name in names:
        text = (ROOT / f"solutions/{name}/{name}.py").read_text()
        assert not [other for other in names if f"{other}.ipynb" in text]
