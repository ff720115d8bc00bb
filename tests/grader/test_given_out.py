"""What is given out tells students what they can't guess."""

from pathlib import Path

from handson.notebook import contents

ROOT = Path(__file__).resolve().parents[2]


def test_the_first_notebook_lists_all_of_them():
    assert "contents.show()" in (ROOT / "notebooks/00_start.ipynb").read_text()
    assert [name for name, title in contents.titles(ROOT / "notebooks") if title] == sorted(
        path.stem for path in (ROOT / "notebooks").glob("*.ipynb")
    )


def test_hints_say_what_cannot_be_guessed_from_the_script():
    for path in sorted((ROOT / "exercises").glob("0[123]_*/*/train_cifar_*.py")):
        hints = " ".join(path.read_text().replace("\n    # ", " ").split())
        assert "chainer" not in path.parts or "since `first_epoch` (in a resumed run, this is not 0)" in hints, path
        assert "set `device`" not in hints or "`devices.use(id)`" in hints, path
