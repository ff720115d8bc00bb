"""The bar that a notebook shows while something takes long."""

import IPython.display
import pytest

from handson.notebook import progress


@pytest.fixture
def pages(monkeypatch):
    """What is displayed, in order."""
    shown = []

    class Handle:
        def update(self, page):
            shown.append(page.data)

    def display(page, display_id):
        shown.append(page.data)
        return Handle()

    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    return shown


def test_the_bar_is_drawn_updated_and_removed(pages, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0)
    with progress.bar("measuring") as show:
        show(0)
        show(0.5)
    assert "measuring: 0 %" in pages[0] and "measuring: 50 %, about " in pages[1] and pages[2:] == [""]


def test_what_is_over_at_once_has_no_bar(pages):
    with progress.bar("measuring") as show:
        show(0.9)
    assert pages == []


def test_the_time_left_follows_from_the_time_passed():
    assert progress.page_of("measuring", 0.25, 20).endswith("measuring: 25 %, about 60 s left")
