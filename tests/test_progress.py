"""The bar that a notebook shows while something takes long."""

import IPython.display
import pytest

from handson import ipython


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
    monkeypatch.setattr(ipython, "in_notebook", lambda: True)
    return shown


def test_the_bar_is_drawn_updated_and_removed(pages, monkeypatch):
    monkeypatch.setattr(ipython, "PATIENCE", 0)
    with ipython.progress_bar("measuring") as show:
        show(0)
        show(0.5)
    assert "measuring: 0 %" in pages[0] and "measuring: 50 %, about " in pages[1] and pages[2:] == [""]


def test_what_is_over_at_once_has_no_bar(pages):
    with ipython.progress_bar("measuring") as show:
        show(0.9)
    assert pages == []


def test_the_time_left_follows_from_the_time_passed():
    assert ipython.progress_page("measuring", 0.25, 20).endswith("measuring: 25 %, about 60 s left")
