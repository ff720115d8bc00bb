"""The display of a self-check while it runs and when it is done: HTML in a notebook, text in a terminal."""

import re
import shutil
import sys
from dataclasses import dataclass
from html import escape
from itertools import groupby

from grader.verdict import FAILED, GRADER_FAULT, NOT_ATTEMPTED, PASSED, UNTOUCHED, sign
from handson.language import marked, translated
from handson.words import ljust, rjust, width, wrapped

HEADINGS = ("Gap", "What is checked", "Result", "Points", "What to look at")
AS_ABOVE, HINT, PRINTED, OF = "as above", marked("Hint"), "What your code printed", marked("of")
STYLE = """/* The class stands twice to count more than the rules of JupyterLab. */
.handson-check { font-family: var(--jp-ui-font-family, sans-serif); font-size: 13px; line-height: 1.45; }
.handson-check.handson-check table { border-collapse: collapse; margin: 0; }
.handson-check.handson-check caption { caption-side: top; text-align: left; padding: 0 0 6px; font-size: 15px; color: inherit; }
.handson-check.handson-check table tr { background: none; }
.handson-check.handson-check table :is(th, td) { text-align: left; vertical-align: top; padding: 5px 10px; white-space: normal; max-width: 44em;
    border: 0; border-top: 1px solid rgba(128, 128, 128, .45); background: none; color: inherit; }
.handson-check.handson-check thead th { font-weight: 600; border-top: 0; }
.handson-check.handson-check tbody th { font-weight: 600; font-family: var(--jp-code-font-family, monospace); }
.handson-check.handson-check table td.points { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.handson-check.handson-check table td.result { white-space: nowrap; border-left: 4px solid #8a8a8a; }
.handson-check.handson-check table td.passed { border-left-color: #2e9e5b; }
.handson-check.handson-check table td.failed { border-left-color: #d9483b; }
.handson-check.handson-check summary { cursor: pointer; }
.handson-check.handson-check pre { max-height: 14em; overflow: auto; white-space: pre-wrap; margin: 4px 0 0; }
"""


@dataclass(frozen=True)
class Row:
    """Verdicts on one gap with the same result."""

    gap: str
    verdicts: tuple
    said: bool = False  # whether an earlier row has the same message

    @property
    def first(self):
        return self.verdicts[0]

    @property
    def message(self):
        again = self.said and self.first.status not in (PASSED, NOT_ATTEMPTED)
        return translated(AS_ABOVE if again else self.first.message)

    @property
    def titles(self):
        return translated("; ".join(verdict.check for verdict in self.verdicts))

    @property
    def result(self):
        return f"{sign(self.first.status)} {translated(self.first.status)}"

    @property
    def points(self):
        if self.first.status == GRADER_FAULT:
            return translated("not graded")
        points, most = (sum(getattr(one, name) for one in self.verdicts) for name in ("points", "max_points"))
        return f"{points:g} {translated(OF)} {most:g}" if most else translated("starred, no points")

    @property
    def hint(self):
        """Return the hint, or "" for gaps that passed, were not attempted, or failed because of a grader error."""
        return "" if self.first.status in (PASSED, GRADER_FAULT, *UNTOUCHED) else translated(self.first.hint)


def rows(checked):
    """Return the list of Rows for each gap. If several rows would have the same long sentence, for example on a missing
    file, only the first has it."""
    said = set()
    for _, of_gap in groupby(checked.verdicts, lambda verdict: (verdict.track, verdict.gap)):
        found = [Row(alike[0].gap, alike, alike[0].message in said) for _, alike in _by_result(of_gap)]
        said |= {row.first.message for row in found if len(row.first.message) > len(AS_ABOVE)}
        yield found


def _look_at(checked, row):
    """Return the location of the code with a wrong result, "" for other results, because an error names its line."""
    place = checked.places.get((row.first.track, row.gap)) if row.first.status == FAILED else None
    return translated(f"Look at {place}.") if place else ""


def _by_result(verdicts):
    return [(key, tuple(alike)) for key, alike in groupby(verdicts, lambda verdict: (verdict.status, verdict.message))]


def summary(checked):
    """Return the result in one line."""
    track = next((f", {marked(f'{verdict.track} track')}" for verdict in checked.verdicts if verdict.track), "")
    ungraded = " (some could not be graded: run it again)" if any(v.points is None for v in checked.verdicts) else ""
    if not checked.max_points:
        return translated(f"{checked.unit}{track}: starred, no points{ungraded}")
    return translated(f"{checked.unit}{track}: {checked.points:g} of {checked.max_points:g} points{ungraded}")


def html(checked):
    """Return the table for a notebook, without its last column if that is empty. All text of a student's code is
    escaped."""
    gaps = [[(row, _html_look(checked, row)) for row in of_gap] for of_gap in rows(checked)]
    columns = len(HEADINGS) - (not any(look for of_gap in gaps for _, look in of_gap))
    head = "".join(f'<th scope="col">{translated(heading)}</th>' for heading in HEADINGS[:columns])
    body = "".join(f"<tbody>{_html_rows(of_gap, columns)}</tbody>" for of_gap in gaps)
    note = f'<div class="note">{_marked(translated(checked.note))}</div>' if checked.note else ""
    caption = f"<caption><b>{escape(summary(checked))}</b>{note}</caption>"
    return (
        f'<div class="handson-check"><style>{STYLE}</style><table>{caption}<thead><tr>{head}</tr></thead>{body}</table>'
        "</div>"
    )


def _html_look(checked, row):
    """Return what to look at in a row: the message, the place, the hint, and what the code printed."""
    look = _marked(row.message)
    if place := _look_at(checked, row):
        look += f"<div>{_marked(place)}</div>"
    if row.hint:
        look += f"<details><summary>{translated(HINT)}</summary><div>{_marked(row.hint)}</div></details>"
    if row.first.output and row.first.status != PASSED:
        look += f"<details><summary>{translated(PRINTED)}</summary><pre>{escape(row.first.output)}</pre></details>"
    return look


def _html_rows(of_gap, columns):
    lines = []
    for number, (row, look) in enumerate(of_gap):
        gap = f'<th scope="rowgroup" rowspan="{len(of_gap)}">{escape(row.gap)}</th>' if number == 0 else ""
        kind = "passed" if row.first.status == PASSED else "failed" if row.result.startswith("✗") else "open"
        last = f"<td>{look}</td>" if columns == len(HEADINGS) else ""
        lines.append(
            f'<tr>{gap}<td>{_marked(row.titles)}</td><td class="result {kind}">{escape(row.result)}</td>'
            f'<td class="points">{escape(row.points)}</td>{last}</tr>'
        )
    return "".join(lines)


def _marked(text):
    """Return a sentence as HTML; text between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def text(checked):
    """Return the result as text that fits the terminal's width."""
    columns = min(shutil.get_terminal_size().columns, 120) - 1
    lines, name = (
        [summary(checked), *wrapped(translated(checked.note), columns)],
        max((len(verdict.gap) for verdict in checked.verdicts), default=0),
    )
    every = [row for of_gap in rows(checked) for row in of_gap]
    points = max([11, *(width(row.points) for row in every)])
    for row in every:
        first = f"{ljust(row.result, 15)} {row.gap:{name}} {rjust(row.points, points)}  "
        lines += wrapped(row.titles, columns, first, " " * width(first))
        hint = row.hint and checked.hints and f"{translated(HINT)}: {row.hint}"
        for sentence in filter(None, (row.message, _look_at(checked, row), hint)):
            lines += wrapped(sentence, columns, "      ", "      ", break_on_hyphens=False)
    if not checked.hints and any(row.hint for row in every):
        lines.append(translated("For hints on what failed, add --hints."))
    return "\n".join(lines)


class Progress:
    """Show which gap is being checked, in one place of a notebook's output or on one line of the terminal."""

    def __init__(self, unit, notebook):
        self.unit, self.place = unit, None
        if notebook:
            from IPython.display import display

            self.place = display(self._page(""), display_id=True)
        self.line = not notebook and sys.stderr.isatty()

    def now(self, gap, done, total):
        """Show that `done` of `total` criteria have been checked, and that `gap` is checked now."""
        self._say(
            f"Checking {self.unit}: {gap} ({done} of {total} done)",
            f'<progress value="{done}" max="{total}"></progress> ',
        )

    def end(self, words):
        """Replace the progress with `words` in a notebook, and remove it from a terminal."""
        if self.place:
            self.place.update(self._page(escape(translated(words))))
        elif self.line:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _say(self, words, bar):
        words = translated(words)
        if self.place:
            self.place.update(self._page(f"{bar}{escape(words)}"))
        elif self.line:
            print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)

    @staticmethod
    def _page(text):
        from IPython.display import HTML

        return HTML(f'<div role="status">{text}</div>')
