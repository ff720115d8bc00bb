"""Which outputs a page folds: long logs of jobs. Their last line stays visible."""

from html import escape

LOG = "log"  # the tag of a cell whose output is no script that it shows
LONG = 12  # lines: a longer log is folded


def summary(log, words):
    """The beginning of the HTML element that folds a log, or None if the log is short. words: what stands before its
    last line; {lines} is the number of lines."""
    lines = log.rstrip().splitlines()
    if len(lines) <= LONG:
        return None
    before = escape(words.format(lines=len(lines)))
    return f'<details class="log"><summary>{before} <code>{escape(lines[-1].strip())}</code></summary>'
