"""Gaps: build the students' exercise from a solution, and find the code of each gap in a submission. A solution marks
its gaps like this:

    ### BEGIN SOLUTION name: the hint that students read;
    ### a long hint continues in the lines below
    the solution
    ### GIVEN a line that students receive instead of the solution, in job scripts and in code that runs badly
    ### END SOLUTION

The markers are nbgrader's, so that its tools understand the sources too. This module handles only text, and runs no
student's code.
"""

import ast
import functools
import re
import textwrap
from dataclasses import dataclass
from difflib import SequenceMatcher

from grader import functions
from handson.errors import OneSentence
from handson.words import wrapped

BEGIN = re.compile(r"( *)### BEGIN SOLUTION ([a-z][a-z0-9_]*):(?: (\S.*))?")
MORE = re.compile(r" *### (?!BEGIN\b|END\b|GIVEN\b)(\S.*)")  # a further line of the hint, directly below its marker
END = re.compile(r" *### END SOLUTION")
GIVEN = re.compile(r"( *)### GIVEN(?: (.*))?")
LIKE_A_MARKER = re.compile(r"\s*#+\s*(begin|end|given)\b|.*\b(begin|end)\s*_?solution", re.IGNORECASE)
TO_DO = "PUT YOUR CODE"
REQUESTS_GO_HERE = (  # these lines replace the requests of a job script for profiles
    "Copy to this place the #PBS lines of your training job script: queue, resources, group and time. In a notebook,"
    " the course adds them."
)
RAISES = re.compile(rf' *raise NotImplementedError\("{TO_DO}: ')
# errors of ast.parse: bad syntax, a null character, nested too deep
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # the first bytes of its files
CONFLICT = re.compile(r"(<{7}|>{7})( |$)")  # a line in a file with a git merge conflict
BEHIND = "  # "  # between code and the comment after it
CELL = "# %%"  # starts a cell in a percent script, the text of a notebook
HOLDS = f"{CELL} with the gaps "  # starts a student's cell that has gaps, whose names follow


class GapError(OneSentence, ValueError):
    """A mistake in the markers of a solution, with file and line."""


class TextError(OneSentence, ValueError):
    """The reason why a student's file cannot be read."""


@dataclass(frozen=True)
class Gap:
    """A gap of an exercise: its lines are exercise.lines[first:end]."""

    name: str
    hint: str
    first: int
    end: int


@dataclass(frozen=True)
class Exercise:
    """A file in the form that students receive."""

    lines: tuple
    gaps: tuple
    kind: str  # the file's suffix

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"

    def gap(self, name):
        return next(gap for gap in self.gaps if gap.name == name)


@dataclass(frozen=True)
class Fragment:
    """A student's code in a gap: `code`, dedented, "" if nothing was written. It begins at `line` of the file, counted
    from 1."""

    code: str
    line: int


def exercise(solution, kind, where="text"):
    """Return the Exercise built from the source of a solution. kind: the file's suffix, ".py" or ".sh". Raises
    GapError.

    In Python an unfilled gap raises NotImplementedError with its name, so that running the file shows which gap is
    missing. A gap with GIVEN lines has these instead.
    """
    lines, gaps, begun = [], [], None
    for number, line in enumerate(_with_whole_hints(text_lines(solution)), start=1):
        at = f"{where}, line {number}"
        if begin := BEGIN.fullmatch(line):
            if begun:
                raise GapError(f"{at}: a gap begins inside the one of line {begun}; end that one first")
            indent, name, hint = begin.groups()
            if not hint:
                raise GapError(f"{at}: the gap {name} has no hint; write it after the colon or below the marker")
            if name in {gap.name for gap in gaps}:
                raise GapError(f"{at}: there is a gap called {name} already; give this one another name")
            if gaps and not any(line.strip() for line in lines[gaps[-1].end :]):
                raise GapError(
                    f"{at}: the gap {name} touches the gap {gaps[-1].name}; put a line that students keep between them"
                )
            begun, first = number, len(lines)
            lines += [f"{indent}# {part}" for part in wrapped(f"{TO_DO}: {hint}", 100)]
            to_raise = [f'{indent}raise NotImplementedError("{TO_DO}: {name}")'] if kind == ".py" else []
        elif END.fullmatch(line):
            if not begun:
                raise GapError(f"{at}: END SOLUTION without a BEGIN SOLUTION; remove it, or add the beginning")
            lines += to_raise
            gaps.append(Gap(name, hint, first, len(lines)))
            begun = None
        elif begun and (given := GIVEN.fullmatch(line)):
            lines.append(given[1] + given[2] if given[2] else "")
            to_raise = []
        elif LIKE_A_MARKER.match(line):
            raise GapError(
                f"{at}: {line.strip()!r} is not a marker; write `### BEGIN SOLUTION name: hint`, `### GIVEN line` or"
                " `### END SOLUTION`"
            )
        elif not begun:
            lines.append(line)
    if begun:
        raise GapError(f"{where}, line {begun}: the gap is never ended; add `### END SOLUTION`")
    return Exercise(tuple(lines), tuple(gaps), kind)


def _with_whole_hints(lines):
    """Return the lines of a solution with each gap's complete hint after its marker; a line that was moved there
    becomes empty."""
    begin = None
    for number, line in enumerate(lines):
        if BEGIN.fullmatch(line):
            begin = number
        elif begin is not None and (more := MORE.fullmatch(line)):
            lines[begin], lines[number] = f"{lines[begin]} {more[1]}", ""
        else:
            begin = None
    return lines


@functools.lru_cache(maxsize=2)  # called for every gap of a file
def emptied(exercise):
    """Return the text of an exercise, with unchanged line numbers, in which each gap raises NotImplementedError, also
    if it has GIVEN lines."""
    lines = list(exercise.lines)
    for gap in exercise.gaps:
        indent = lines[gap.first][: len(lines[gap.first]) - len(lines[gap.first].lstrip())]
        lines[gap.first : gap.end] = [""] * (gap.end - gap.first - 1) + [
            f'{indent}raise NotImplementedError("{TO_DO}: {gap.name}")'
        ]
    return "\n".join(lines) + "\n"


def normal(data, ends="\r\n?"):
    """Return the bytes of a student's file as text with "\\n" line ends, spaces instead of tabs, and no byte order
    mark. ends: a pattern for other line ends."""
    return re.sub(ends, "\n", data.decode("utf-8-sig", errors="replace")).expandtabs(4)


def refuse_encoding(data, bytes_are_text=False):
    """Raise TextError for the bytes of a file that is not in UTF-8. bytes_are_text: allow other encodings, in which a
    letter is just a byte for a shell."""
    if data[:2] in UTF_16:
        raise TextError("it is in UTF-16, the encoding of Notepad and PowerShell: save it as UTF-8")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if not bytes_are_text:
            line = data.count(b"\n", 0, error.start) + 1
            raise TextError(
                f"line {line} is not valid UTF-8, so Python cannot read it: save the file as UTF-8"
            ) from None


def text_lines(text):
    """Return the lines of a text as Python counts them. splitlines() also splits at a form feed or a U+2028 inside a
    string."""
    return text.removesuffix("\n").split("\n") if text else []


def find(exercise, name, submitted):
    """Return the Fragment in gap `name` of `exercise` of a `submitted` text (see `normal`), or None if its place cannot
    be found.

    A gap in a function is in the function of this name, a gap of a notebook in the cell that HOLDS it. There, the given
    lines that were found again show where it begins and ends, so a student may remove hints and change the code around
    a gap. If given lines next to the gap were changed, they count as part of the answer. In other places, one of the
    three given lines above the gap or below it must still exist.
    """
    gap = exercise.gap(name)
    ours, theirs = _places(exercise, gap, submitted)
    given, same = _aligned(exercise, submitted, ours, theirs)
    before = max((pair for pair in same if pair[0] < gap.first), default=None)
    after = min((pair for pair in same if pair[0] >= gap.end), default=None)
    # a job script is judged as a whole, so its only gap is found anywhere
    whole = theirs == _whole(submitted) and not (exercise.kind == ".sh" and len(exercise.gaps) == 1)
    if whole and not _near(before, gap.first, given, -1) and not _near(after, gap.end, given, 1):
        return None
    first = before[1] + 1 if before else theirs.first
    lines = text_lines(submitted)[first : after[1] if after else theirs.end]
    if theirs.column and first == theirs.first:
        lines[0] = lines[0][theirs.column :]
    while lines and not lines[0].strip():
        lines.pop(0)
        first += 1
    lines = _without_other_gaps(exercise, gap, lines)
    code = _dedented(lines).rstrip() or "pass"  # the student may have deleted all lines of the gap
    if not _attempted(exercise, exercise.lines[gap.first : gap.end], lines):
        return Fragment("", first + 1)
    renamed = _renamed(exercise, gap, submitted)
    return Fragment(f"{renamed}\n{code}", first) if renamed and first else Fragment(code, first + 1)


def is_notebook(exercise):
    """Return whether an exercise is a notebook, as percent script."""
    return any(line.startswith(CELL) for line in exercise.lines)


def changed_line(exercise, name, submitted):
    """Return a given line of the function around a script's gap that the student has changed or removed, or None if
    there is none."""
    ours, theirs = _places(exercise, exercise.gap(name), submitted)
    if exercise.kind != ".py" or theirs == _whole(submitted):
        return None
    there = {line.strip() for line in text_lines(submitted)[theirs.first : theirs.end]}
    in_gaps = {number for gap in exercise.gaps for number in range(gap.first, gap.end)}
    given = (exercise.lines[number].strip() for number in range(ours.first, ours.end) if number not in in_gaps)
    return next((line for line in given if line and not line.startswith("#") and line not in there), None)


def function_around(exercise, gap):
    """Return the names of the function around a gap, and of the classes and functions around it; () if the gap is in
    none."""
    if exercise.kind != ".py":
        return ()
    try:
        return functions.around(parsed(emptied(exercise)), gap.end)
    except UNREADABLE:  # the given lines of one of the course's own files
        return ()


@functools.lru_cache(maxsize=64)
def _places(exercise, gap, submitted):
    """Return (the place of a gap in the given lines, its place in those of `submitted`), each a Body."""
    ours, theirs = _whole(exercise.text), _whole(submitted)
    if (marked := _cell_with(gap.name, submitted)) is not None:
        starts = [number for number, line in enumerate(exercise.lines) if line.startswith(CELL)]
        ours = _between(starts, gap.first, len(exercise.lines))
        theirs = marked
    names = function_around(exercise, gap)
    text = "\n".join(text_lines(submitted)[theirs.first : theirs.end])
    if names and (found := functions.body(text, names, parsed)):
        ours = functions.body(emptied(exercise), names, parsed)
        theirs = functions.Body(theirs.first + found.first, theirs.first + found.end, found.column)
    return ours, theirs


def _renamed(exercise, gap, submitted):
    """Return an assignment to the student's names of the parameters of the function around a gap, or "", because a gap
    runs with the given parameters. It replaces a line of the head."""
    names = function_around(exercise, gap)
    theirs = functions.parameters(_text_of_cell(gap.name, submitted), names, parsed) if names else []
    ours = functions.parameters(emptied(exercise), names, parsed) if theirs else []
    if theirs == ours or len(theirs) != len(ours):
        return ""
    return f"{', '.join(theirs)} = {', '.join(ours)}"


def _text_of_cell(name, submitted):
    """Return the student's cell that HOLDS a gap; for a script, all of it."""
    cell = _cell_with(name, submitted)
    return submitted if cell is None else "\n".join(text_lines(submitted)[cell.first : cell.end])


def _whole(text):
    return functions.Body(0, len(text_lines(text)))


def _between(starts, line, end):
    """Return the lines between two of `starts` around a line."""
    first = max((one for one in starts if one <= line), default=-1)
    return functions.Body(first + 1, min((one for one in starts if one > line), default=end))


def _cell_with(name, submitted):
    """Return the place of the cell that HOLDS a gap in the text of a student's notebook, or None if there is none."""
    lines = text_lines(submitted)
    starts = [number for number, line in enumerate(lines) if line.startswith(CELL)]
    for start in starts:
        if lines[start].startswith(HOLDS) and name in lines[start].removeprefix(HOLDS).split():
            return _between(starts, start, len(lines))
    return None


def _without_other_gaps(exercise, gap, lines):
    """Return the lines of a fragment, with the given lines of other gaps emptied: two gaps of a cell have the same
    fragment if no given line is left between them."""
    others = {
        line.strip()
        for other in exercise.gaps
        if other != gap
        for line in exercise.lines[other.first : other.end]
        if TO_DO in line
    }
    return ["" if line.strip() in others else line for line in lines]


def _dedented(lines):
    """Return the lines of a fragment as code that begins at the first column, by the indentation of its first
    statement, because comments and lines inside strings may be indented less."""
    code = (line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    depth = _indentation(next(code, next(filter(str.strip, lines), "")))
    return "\n".join(line[min(depth, _indentation(line)) :] if line.strip() else "" for line in lines)


def _indentation(line):
    return len(line) - len(line.lstrip(" "))


@functools.lru_cache(maxsize=2)
def lines_of(exercise, submitted):
    """Return for each line of the exercise the number, from 1, of the same line in `submitted`, or of the nearest given
    line above it."""
    _, pairs = _aligned(exercise, submitted, _whole(exercise.text), _whole(submitted))
    found, last = dict(pairs), 1
    return tuple(last := found.get(number, last - 1) + 1 for number in range(len(exercise.lines)))


def _as_given(line, given):
    """Return a line with the comment that students received, if the line has a comment in another language."""
    if line.isascii() or BEHIND not in line:
        return line
    code = line.partition(BEHIND)[0]
    return next((one for _, one in given if one.partition(BEHIND)[0] == code), line)


@functools.lru_cache(maxsize=8)  # called for every gap of a file
def _aligned(exercise, submitted, ours, theirs):
    """Return the given lines in a place, as (number, line). For the lines that a place of `submitted` also contains,
    return (number in the exercise, number in `submitted`)."""
    of_gaps = {number for gap in exercise.gaps for number in range(gap.first, gap.end)}
    given = [
        (number, exercise.lines[number].rstrip())
        for number in range(ours.first, ours.end)
        if number not in of_gaps and exercise.lines[number].strip()
    ]
    lines = text_lines(submitted)
    found = [
        (number, _as_given(lines[number].rstrip(), given))
        for number in range(theirs.first, theirs.end)
        if lines[number].strip()
    ]
    # A gap is None among the given lines, which equals no line. Otherwise an answer's first line that equals the given
    # line below would count as that line.
    here = sorted([*given, *((gap.first, None) for gap in exercise.gaps if ours.first <= gap.first < ours.end)])
    matcher = SequenceMatcher(None, [line for _, line in here], [line for _, line in found], autojunk=False)
    pairs = [(block.a + step, block.b + step) for block in matcher.get_matching_blocks() for step in range(block.size)]
    return given, [(here[one][0], found[other][0]) for one, other in pairs]


def _attempted(exercise, given, lines):
    """Return whether the `lines` in a gap contain more than the `given` ones; if working code was given, whether the
    code differs."""
    if exercise.kind == ".py" and not any(RAISES.match(line) for line in given):
        return _code(given) != _code(lines)
    given_out = {line.strip() for line in given}
    written = "\n".join(line for line in lines if line.strip() not in given_out)
    return bool(written.strip()) if exercise.kind == ".sh" else _does_something(textwrap.dedent(written))


def _near(pair, edge, given, direction):
    """Return whether `pair`, a given line found in the submission, is one of the three given lines next to the gap's
    edge."""
    numbers = sorted((number for number, _ in given if (number < edge) == (direction < 0)), reverse=direction < 0)
    return pair is not None and pair[0] in numbers[:3]


@functools.lru_cache(maxsize=16)  # called for every gap of a file
def parsed(code, file="<unknown>"):
    """Return the syntax tree of `code`. Raises SyntaxError, also for code that is nested deeper than Python allows, and
    ValueError for a null character."""
    try:
        return ast.parse(code, file)
    except (RecursionError, MemoryError):
        raise SyntaxError("this code is nested too deeply to be read") from None


def unreadable(code):
    """Return None if `code` is valid Python, otherwise (line, what is wrong there)."""
    try:
        parsed(code)
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except ValueError as error:
        return 1, str(error)
    return None


def _does_something(code):
    """Return whether `code` has more than comments, strings and `pass`. Code that cannot be parsed counts as an
    attempt."""
    try:
        statements = ast.parse(code).body
    except UNREADABLE:
        return any(line.strip() and not line.strip().startswith("#") for line in text_lines(code))
    return any(
        not isinstance(statement, ast.Pass)
        and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in statements
    )


def same_code(one, other):
    """Return whether two texts are the same code, ignoring comments and layout."""
    return _code(text_lines(one)) == _code(text_lines(other))


def _code(lines):
    """Return the code in some lines, without comments and layout; their text if they cannot be parsed."""
    text = textwrap.dedent("\n".join(lines))
    try:
        return ast.dump(ast.parse(text))
    except UNREADABLE:
        return text


def answers(solution):
    """Return {gap's name: the solution's code, dedented}."""
    found, name = {}, None
    for line in _with_whole_hints(text_lines(solution)):
        if begin := BEGIN.fullmatch(line):
            name = begin[2]
            found[name] = []
        elif END.fullmatch(line):
            name = None
        elif name and not GIVEN.fullmatch(line):
            found[name].append(line)
    return {name: textwrap.dedent("\n".join(lines)).lstrip("\n") for name, lines in found.items()}


def fill(exercise, answers):
    """Return the text of an exercise. answers: {gap's name: the code that fills it}; other gaps stay unfilled."""
    lines, position = [], 0
    for gap in exercise.gaps:
        lines += exercise.lines[position : gap.first]
        given = exercise.lines[gap.first : gap.end]
        indent = given[0][: len(given[0]) - len(given[0].lstrip())]
        lines += (
            [indent + line if line.strip() else line for line in text_lines(answers[gap.name])]
            if gap.name in answers
            else given
        )
        position = gap.end
    return "\n".join([*lines, *exercise.lines[position:]]) + "\n"
