"""Which outputs a page folds: long logs of training runs. Their last lines stay visible."""

import re
from html import escape

FIRST = "Start a training script "  # the first words of a run
LAST = re.compile(rf"Throughput: |Recorded \d|.*: epoch \d|{FIRST}")  # the first words of its last line, if it has one
LONG = 10  # lines: as many are folded at least


def parts(text):
    """The lines of an output that a page folds, and those that stay visible: the last line of the last run, and what a
    cell prints after it. None if it folds none."""
    lines = text.rstrip().splitlines()
    if not any(line.startswith(FIRST) for line in lines):
        return None
    last = max(number for number, line in enumerate(lines) if LAST.match(line))
    return ("\n".join(lines[:last]), "\n".join(lines[last:])) if last >= LONG else None


def folded(text, words):
    """The HTML of a text that the reader opens; words: what the reader sees first, with the number of {lines}."""
    summary = escape(words.format(lines=len(text.splitlines())))
    return (
        f'<details class="log"><summary>{summary}</summary>'
        f'<div class="output highlight"><pre>{escape(text)}</pre></div></details>'
    )
