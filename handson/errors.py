"""Errors whose text is for the user: one sentence that says what is wrong, where, and what to do. Commands print it, and no traceback."""


class OneSentence(Exception):
    """The base of all such errors; `status` is the exit status of a command that ends with one."""

    status = 2  # the user can mend it
