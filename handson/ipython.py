"""Whether a program runs in a notebook, which can show HTML instead of text."""

import sys


def shell():
    """The IPython shell that runs this program, or None. Does not import IPython."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def in_notebook():
    """Whether this is a Jupyter kernel, which shows HTML."""
    return hasattr(shell(), "kernel")
