"""Detect whether a program runs in a notebook, which can show HTML instead of text, and show a progress bar there."""

import contextlib
import os
import sys
import time

PATIENCE = 3  # seconds before the bar appears


def shell():
    """Return the IPython shell that runs this program, or None. Does not import IPython."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def in_notebook():
    """Return whether this is a Jupyter kernel, which shows HTML."""
    return hasattr(shell(), "kernel")


def in_editor():
    """Return whether an editor that saves the notebook's file, such as JupyterLab or VS Code, has started this kernel.
    A program that only runs notebooks, such as nbgrader, does not save while it runs them."""
    return in_notebook() and ("JPY_SESSION_NAME" in os.environ or "__vsc_ipynb_file__" in shell().user_ns)


@contextlib.contextmanager
def progress_bar(what):
    """Context manager ``with progress_bar("measuring") as show``: show(share) draws the finished share, from 0 to 1.
    The bar is removed at the end; only notebooks have one."""
    begin, handle = time.monotonic(), None

    def show(share):
        nonlocal handle
        passed = time.monotonic() - begin
        if not in_notebook() or passed < PATIENCE:
            return
        from IPython.display import HTML, display

        page = HTML(progress_page(what, share, passed))
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


def progress_page(what, share, passed):
    """Return the bar as HTML, `passed` seconds after its start."""
    left = f", about {passed * (1 - share) / share:.0f} s left" if share > 0.02 else ""
    return f'<progress value="{share:.3f}" style="width: 20em"></progress> {what}: {100 * share:.0f} %{left}'
