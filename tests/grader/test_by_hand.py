"""Adjusting says what it changes, and makes no folder."""

import pytest
from classes import handed_in, said, store

from grader.instructors.by_hand import adjust
from grader.instructors.gradebook import Gradebook, GradebookError


def lines(folder, gap, points):
    told = []
    adjust(folder, "jane", "multi_gpu", gap, points, "why", "who", told.append)
    return told


def test_the_old_and_the_new_total_are_told_and_what_counts_of_unit_and_gap(tmp_path):
    with Gradebook(tmp_path) as book:
        store(book, handed_in(), [said("step", 0.5), said("other", 1.0)])
    assert lines(tmp_path, "step", 1.5) == ["jane: 1.5 -> 2.5 points."]
    overrides = "What is set for multi_gpu as a whole, 4 points, counts in place of what is set for its gaps (step)."
    assert lines(tmp_path, "", 4.0) == ["jane: 2.5 -> 4 points.", overrides]
    assert lines(tmp_path, "step", 2.0) == ["jane: 4 -> 4 points.", overrides]
    assert lines(tmp_path, "", None) == ["jane: 4 -> 3 points."]


def test_a_folder_without_a_gradebook_is_refused_and_left_alone(tmp_path):
    with pytest.raises(GradebookError, match="has no gradebook.sqlite"):
        lines(tmp_path / "nowhere", "", 1.0)
    assert list(tmp_path.iterdir()) == []
