"""The inputs of checks follow from the instructor's secret and from what was handed in."""

import stat
from pathlib import Path

import pytest

from grader import judging
from grader.course import UNITS
from grader.exercises import solved
from grader.instructors.collect import Submission
from grader.instructors.grade import seeds, work
from grader.instructors.grade.seeds import SecretError


def test_a_secret_is_made_once_and_nobody_else_can_read_it(tmp_path):
    made = seeds.secret(tmp_path)
    assert seeds.secret(tmp_path) == made and len(made) == 32
    [path] = tmp_path.iterdir()
    assert path.name == seeds.NAME and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_gradebook_has_another_secret(tmp_path):
    (tmp_path / "other").mkdir()
    assert seeds.secret(tmp_path) != seeds.secret(tmp_path / "other")


def test_a_secret_that_can_not_be_read_is_named(tmp_path):
    (tmp_path / seeds.NAME).write_text("no number\n")
    with pytest.raises(SecretError, match=seeds.NAME):
        seeds.secret(tmp_path)


def test_the_same_files_get_the_same_inputs_and_all_others_get_other_ones():
    made = seeds.of(b"secret", "jane", "digest")
    assert made == seeds.of(b"secret", "jane", "digest")
    others = [
        seeds.of(b"other", "jane", "digest"),
        seeds.of(b"secret", "john", "digest"),
        seeds.of(b"secret", "jane", "another"),
    ]
    assert len({own for own, _ in [made, *others]}) == 4


def test_a_class_shares_a_few_sets_of_inputs_where_oracles_work():
    found = [seeds.of(b"secret", f"student{number}", "digest") for number in range(300)]
    assert len({own for own, _ in found}) == 300
    assert len({shared for _, shared in found}) == seeds.SETS


def test_the_pieces_of_a_submission_have_its_seeds():
    submission = Submission("jane", "Jane", "", 1, 0.0, False, Path("/nowhere"), "digest", (), None)
    assert {piece.seeds for piece in work.pieces(submission, "single_gpu", b"secret")} == {
        seeds.of(b"secret", "jane", "digest")
    }


def test_all_files_of_a_unit_are_checked_with_the_seeds_that_were_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(
        judging, "_cases", lambda unit, check, hidden, seed: asked.append((bool(check.oracle), seed)) or []
    )
    for part in UNITS["multi_gpu"]:
        judging._prepared("multi_gpu", part, solved, None, seed=1, shared=2)
    assert set(asked) == {(True, 2), (False, 1)}
