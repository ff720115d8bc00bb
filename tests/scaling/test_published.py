"""The published tables: most rows are predicted well without themselves, and docs/scaling.md shows the same numbers."""

import re
from pathlib import Path

import numpy
import pytest

from handson.scaling import published

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def rows():
    return published.table()


def test_the_median_error_is_at_most_ten_percent_over_all_rows(rows):
    assert len(rows) == 3 + 1 + 15
    assert numpy.median([abs(row.error) for row in rows]) <= 0.10


def test_no_row_is_predicted_from_itself(monkeypatch):
    before = {row.workers: row.predicted for row in published.lecture()}
    monkeypatch.setitem(published.LECTURE, 4, 2 * published.LECTURE[4])
    after = {row.workers: row.predicted for row in published.lecture()}
    assert after[4] == before[4] and after[2] != before[2]


def test_the_search_finds_the_seconds_that_made_a_table():
    truth = {
        "input": 1.0,
        "compute p2": 6.0,
        "compute p3": 0.8,
        "network p2": 0.4,
        "network p3": 0.3,
        "network p3 placement group": 0.2,
    }
    rows = [
        (*key, workers, 1 / published.eks_step(truth, *key, workers)) for key in published.EKS for workers in (2, 4, 8)
    ]
    assert published.fit_eks(rows) == pytest.approx(truth, rel=0.05)


def test_the_document_shows_these_rows(rows):
    text = (Path(__file__).resolve().parents[2] / "docs/scaling.md").read_text()
    shown = re.findall(
        r"^\| (?:Reedbush|ChainerMN|p[23],)[^|]*\| \d+ \|[^|]*\|[^|]*\| ([+-][\d.]+) % \|", text, re.MULTILINE
    )
    assert [float(error) for error in shown] == pytest.approx([100 * row.error for row in rows], abs=0.11)
