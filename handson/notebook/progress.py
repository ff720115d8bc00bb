"""A bar in the notebook for what takes longer than a few seconds: how much is done, and about how many seconds are
left."""

import contextlib
import time

from handson.ipython import in_notebook

PATIENCE = 3  # seconds before the bar appears


@contextlib.contextmanager
def bar(what):
    """``with bar("measuring") as show``: show(share) draws how much is done, from 0 to 1. The bar is removed at the
    end; only notebooks have one."""
    begin, handle = time.monotonic(), None

    def show(share):
        nonlocal handle
        passed = time.monotonic() - begin
        if not in_notebook() or passed < PATIENCE:
            return
        from IPython.display import HTML, display

        page = HTML(page_of(what, share, passed))
        if handle:
            handle.update(page)
        else:
            handle = display(page, display_id=True)

    try:
        yield show
    finally:
        if handle:
            from IPython.display import HTML

            handle.update(HTML(""))


def page_of(what, share, passed):
    """The bar as HTML, `passed` seconds after the beginning."""
    left = f", about {passed * (1 - share) / share:.0f} s left" if share > 0.02 else ""
    return f'<progress value="{share:.3f}" style="width: 20em"></progress> {what}: {100 * share:.0f} %{left}'
