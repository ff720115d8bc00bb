"""Whether a program runs in a notebook, whose pages show more than text."""

import sys


def shell():
    """The IPython that runs this program, or None; it is not imported for that."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def in_notebook():
    """Whether this is a Jupyter kernel, which shows HTML."""
    return hasattr(shell(), "kernel")
