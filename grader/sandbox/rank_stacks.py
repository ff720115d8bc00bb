"""Find where a rank of a check hangs, in the stacks that faulthandler has written: the collective, and the line of the
student's code."""

from handson.training import dump_stacks

STUDENT = "student:"  # compiled student code has file names that begin with this
COLLECTIVES = (*dump_stacks.COLLECTIVES, "grader/probes/gloo_for_chainermn.py")


def where(text):
    """Return (the collective in which a thread waits, "" if none; the innermost line of the student's code, None if no
    thread is in it)."""
    waiting, own = dump_stacks.where(text, lambda file: file.startswith(STUDENT), COLLECTIVES)
    return waiting, own and own[1]
