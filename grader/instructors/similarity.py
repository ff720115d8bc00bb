"""Find groups of submissions that share filled-in code which is not in the exercise, in the solution, or in most of the
class.

Code is compared as runs of tokens, without comments and layout. One token replaces all names that the exercise does not
use, and one all strings, as in winnowing (Schleimer, Wilkerson and Aiken 2003), but all runs are compared, because the
texts are short. Code that the same students share, or nearly the same, forms one group; a student can be in several.
Code of a large part of the class is common knowledge; copies of one text count once there, because thirty copies would
otherwise hide each other. A similarity is a reason to look at the submissions, not a proof: answers of one line are
often equal. Students who share nearly all of their code come first, in a separate group, because such a pair could
otherwise be hidden in several larger groups.
"""

import builtins
import keyword
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

import numpy as np

from grader import exercises
from grader.course import UNITS
from grader.gaps import GapError, TextError, answers, find, text_lines
from grader.instructors.collect import newest
from grader.judging import LONGEST_FILE
from grader.judging import MOST_LINES as MOST_LINES_OF_FILE
from handson.words import counted

RUN = 10  # tokens in a run
FEWEST = 21  # runs that the students of a group share at least, the number in 30 consecutive tokens
LONGEST = 20_000  # tokens of a file that are compared
COMMON = 5  # a run in more than this number of different texts is common knowledge, and is ignored; in large classes
COMMON_SHARE = 0.2  # the same as a share of the different texts
ALIKE = 0.5  # two parts of code are in one group if this share of the texts with either of them has both
NEARLY_ALL = 0.8  # two texts are copies if they share this part of the code that is rare in the class
MOST_GROUPS = 50  # number of groups of copies, and of other groups
LONG = 40  # tokens of a gap beyond which equal answers are not a coincidence
AROUND = 2  # lines shown before and after shared ones
MOST_LINES = 80  # lines shown of one student
TOKEN = re.compile(
    r"\s+|#[^\n]*"
    r"|(?P<text>[rbfuRBFU]{0,2}(?:\"\"\".*?(?:\"\"\"|\Z)|'''.*?(?:'''|\Z)|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?))"
    r"|(?P<name>[^\W\d]\w*)|(?P<number>\d[\w.]*)|(?P<sign>.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Side:
    """One student of a group."""

    student: str
    filled_in: int  # tokens that are neither in the exercise nor in the solution
    shared: int  # how many of them other students of the group also have
    # (file, number, text, whether it is shared): the shared lines with context; only for two students
    lines: tuple = ()

    @property
    def share(self):
        return self.shared / self.filled_in


@dataclass(frozen=True)
class Group:
    """Students with shared code, the one with the most shared code first."""

    sides: tuple
    files: tuple  # files with shared code, the one with the most shared code first
    gaps: tuple = ()  # (file, gap) of the shared code
    copies: bool = False  # whether they share nearly all of their code

    @property
    def tokens(self):
        """Return the number of shared tokens: "286", or "30 to 798" if it differs between students."""
        least, most = self.sides[-1].shared, self.sides[0].shared
        return f"{least} to {most}" if least < most else f"{most}"


@dataclass(frozen=True)
class _Known:
    """The course's own code in a file."""

    names: frozenset  # compared as they are
    lines: frozenset  # the lines of exercise and solution
    runs: frozenset  # the runs of lines in the solution


@dataclass(frozen=True)
class _Filled:
    """A student's own code."""

    runs: frozenset  # its runs of tokens, as numbers
    lines: dict  # file -> [(number, text)], without the course's lines


def of_submissions(submissions, say=lambda line: None):
    """Return the Groups among the newest submission of each student. Files that were not released are left out; `say`
    reports unreadable files."""
    given, solved, current = {}, {}, {submission.student: submission for submission in newest(submissions)}
    for submission in current.values():
        if submission.refused:
            say(f"{submission.student}: not compared, {submission.refused}")

    def read(submission, say=lambda line: None):
        for path in sorted(submission.path.rglob("*")) if submission.path else ():
            if path.is_file():
                file = str(path.relative_to(submission.path))
                try:
                    if file not in given:
                        given[file], solved[file] = exercises.given_out(file).text, exercises.solution(file).read_text()
                    yield file, exercises.handed_in(file, path.read_bytes()) or ""
                except TextError as error:
                    say(f"{submission.student}: {file} is not compared, {error}")
                except (OSError, KeyError, GapError):
                    continue

    found = groups(((student, dict(read(submission, say))) for student, submission in current.items()), given, solved)
    return [replace(group, gaps=_gaps(group, dict(read(current[group.sides[0].student])))) for group in found]


def as_solved(submissions):
    """Return sentences on students whose gaps are word for word the course's solutions, which are public, those with
    the most first. Only gaps count that are too long for a coincidence."""
    long, found = _long_gaps(), []
    for submission in newest(submissions):
        same = []
        for file, gaps in long.items():
            text = _text_of(submission, file)
            lines = {line.strip() for line in text_lines(text)}
            for gap, words, needed in gaps:
                fragment = find(exercises.given_out(file), gap, text) if needed <= lines else None  # finding is slow
                if fragment and _words(fragment.code) == words:
                    same.append(f"{gap} in {file}")
        if same:
            where = f"{', '.join(same[:3])}{' and more' if len(same) > 3 else ''}"
            long_gaps = counted(len(same), "long gap")
            sentence = f"{submission.student}: {long_gaps} word for word as in the course's solutions, {where}"
            found.append((-len(same), sentence))
    return [sentence for _, sentence in sorted(found)]


@cache
def _long_gaps():
    """Return {file: [(gap, the tokens of its solution, the solution's lines)]} of the gaps with at least LONG
    tokens."""
    found = defaultdict(list)
    for part in (part for parts in UNITS.values() for part in parts):
        solved = answers(exercises.solution(part.file).read_text())
        for gap in dict.fromkeys(check.gap for check in part.checks):
            code = solved.get(gap, "")
            needed = {line.strip() for line in text_lines(code) if not line.lstrip().startswith("#")} - {""}
            if len(_words(code)) >= LONG:
                found[part.file].append((gap, _words(code), needed))
    return found


def _words(code):
    """Return the tokens of some code, including its names."""
    return [match[0] for match in TOKEN.finditer(code) if match.lastgroup]


def _text_of(submission, file):
    """Return the text of a submitted file, or "" if it is missing, unreadable or far too long."""
    try:
        text = exercises.handed_in(file, (submission.path / file).read_bytes()) if submission.path else ""
    except (OSError, TextError):
        return ""
    return text if len(text) <= LONGEST_FILE and text.count("\n") <= MOST_LINES_OF_FILE else ""


def groups(students, given, solved):
    """Return the Groups among students: copies first, then those that share the most code. students: (student, {file:
    text}) pairs, which are read one at a time; given, solved: {file: its text as released, and as solved}."""
    known = cache(lambda file: _known(file, given[file], solved[file]))
    filled = {student: _filled(files, known) for student, files in students}
    copies = defaultdict(list)  # the runs of a text -> the students with exactly these
    for student, of_student in filled.items():
        copies[of_student.runs].append(student)
    copies.pop(frozenset(), None)
    texts = list(copies)
    limit = max(COMMON, COMMON_SHARE * len(texts))
    rare = defaultdict(set)  # the numbers of the texts with a run -> runs
    for run, owners in _owners(texts):
        if len(owners) <= limit:
            rare[owners].add(run)

    def several(numbers):
        return sum(len(copies[texts[number]]) for number in numbers) > 1

    parts = {owners: runs for owners, runs in rare.items() if several(owners)}

    def found(keys, among):
        """Return (the smallest number of runs, students, the runs) of the texts of `among` that have enough of the runs
        in some parts."""
        runs = set().union(*(parts[owners] for owners in keys))
        shared = {number: count for number in sorted(among) if (count := len(texts[number] & runs)) >= FEWEST}
        return (
            min(shared.values(), default=0),
            [student for number in shared for student in copies[texts[number]]],
            runs,
        )

    def largest(found):
        found = sorted(
            (group for group in found if len(group[1]) > 1), key=lambda group: (-group[0], -len(group[1]), group[1])
        )
        return found[:MOST_GROUPS]

    same = filter(several, _copies(rare, len(texts)))
    same = largest(found((owners for owners in parts if several(alike & {*owners})), alike) for alike in same)
    others = largest(found(joined, {number for owners in joined for number in owners}) for joined in _joined(parts))
    same = [one for one in same if not any({*one[1]} < {*other[1]} and other[0] >= ALIKE * one[0] for other in others)]
    others = [other for other in others if not any({*other[1]} <= {*one[1]} for one in same)]
    same = [replace(_group(students, filled, runs, known), copies=True) for _, students, runs in same]
    others = [_group(students, filled, runs, known) for _, students, runs in others]
    return [group for kind in (same, others) for group in sorted(kind, key=lambda group: -group.sides[-1].shared)]


def _group(members, filled, runs, known):
    sides = sorted(
        (_side(student, filled[student], runs, known) for student in members),
        key=lambda side: (-side.shared, side.student),
    )
    files = Counter(file for side in sides for file, _, _, alike in side.lines if alike)
    return Group(
        (*sides[:2], *(replace(side, lines=()) for side in sides[2:])), tuple(file for file, _ in files.most_common())
    )


def _owners(texts):
    """Yield (run, the numbers of the texts with it) for all runs."""
    if not texts:
        return
    runs = np.concatenate([np.fromiter(text, np.int64, len(text)) for text in texts])
    of_text = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    order = np.argsort(runs, kind="stable")
    runs, of_text = runs[order], of_text[order]
    starts = np.flatnonzero(np.append(True, runs[1:] != runs[:-1]))
    for start, end in zip(starts, np.append(starts[1:], len(runs)), strict=True):
        yield int(runs[start]), tuple(of_text[start:end].tolist())


def _copies(rare, count):
    """Return sets of the numbers of texts that are nearly equal. rare: {numbers of texts: their common runs}; count:
    the number of all texts."""
    shared = np.zeros((count, count), np.int32)  # number of common runs of each pair
    for owners, runs in rare.items():
        shared[np.ix_(owners, owners)] += len(runs)
    own = shared.diagonal()
    alike = (shared >= FEWEST) & (shared >= NEARLY_ALL * (own[:, None] + own - shared))
    left = set(range(count))
    for number in range(count):
        if number in left and (copies := left & {*np.flatnonzero(alike[number]).tolist()}):
            left -= copies
            yield copies


def _joined(parts):
    """Return lists of the keys of `parts` ({texts: runs}) with nearly the same texts as the first, largest part of the
    list."""
    joined, of_text = [], defaultdict(list)
    for texts in sorted(parts, key=lambda texts: (-len(parts[texts]), texts)):
        both = Counter(number for text in texts for number in of_text[text])
        best = max(both, key=lambda number: (both[number] / len({*texts, *joined[number][0]}), -number), default=None)
        if best is not None and both[best] / len({*texts, *joined[best][0]}) >= ALIKE:
            joined[best].append(texts)
        else:
            for text in texts:
                of_text[text].append(len(joined))
            joined.append([texts])
    return [keys for keys in joined if sum(len(parts[texts]) for texts in keys) >= FEWEST]


def _known(file, given, solved):
    names = (
        frozenset(match["name"] for match in TOKEN.finditer(given) if match["name"])
        | set(keyword.kwlist)
        | set(dir(builtins))
    )
    lines = frozenset(("", *(line.strip() for line in text_lines(given))))
    runs = frozenset(run for run, _ in _runs(file, _tokens(_lines(solved, lines), names)))
    return _Known(names, lines | {line.strip() for line in text_lines(solved)}, runs)


def _filled(files, known):
    lines = {file: _lines(text, known(file).lines) for file, text in files.items()}
    runs = {
        run
        for file in lines
        for run, _ in _runs(file, _tokens(lines[file], known(file).names))
        if run not in known(file).runs
    }
    return _Filled(frozenset(runs), lines)


def _lines(text, told):
    """Return (number, text) of the lines that are not in `told`."""
    return [(number, line) for number, line in enumerate(text_lines(text), start=1) if line.strip() not in told]


def _tokens(lines, names):
    """Return (token, number of its line) of some lines."""
    found = (
        (_token(match, names), number) for number, line in lines for match in TOKEN.finditer(line) if match.lastgroup
    )
    return list(islice(found, LONGEST))


def _runs(file, tokens):
    """Return (a number that identifies a run's file and tokens, the number of its first token)."""
    words = [token for token, _ in tokens]
    return ((hash((file, *words[start : start + RUN])), start) for start in range(len(words) - RUN + 1))


def _token(match, names):
    """Return a token for comparison. All strings become the same token. All of the student's own names become another,
    except names after a dot."""
    if match["text"]:
        return '"'
    own = match["name"] and match["name"] not in names and match.string[match.start() - 1 : match.start()] != "."
    return "v" if own else match[0]


def _side(student, filled, shared, known):
    own, alike, shown = 0, 0, []
    for file, lines in filled.lines.items():
        tokens = _tokens(lines, known(file).names)
        starts = [(run, start) for run, start in _runs(file, tokens) if run in filled.runs]
        own += len(_covered(starts))
        covered = _covered([(run, start) for run, start in starts if run in shared])
        alike += len(covered)
        shown += _shown(file, lines, {tokens[place][1] for place in covered})
    return Side(student, own, alike, tuple(shown[:MOST_LINES]))


def _covered(starts):
    """Return the numbers of the tokens in some runs."""
    return {start + step for _, start in starts for step in range(RUN)}


def _shown(file, lines, marked):
    """Return the marked lines and their context, in the form of a Side."""
    places = [place for place, (number, _) in enumerate(lines) if number in marked]
    near = {place + step for place in places for step in range(-AROUND, AROUND + 1)}
    return [(file, number, text, number in marked) for place, (number, text) in enumerate(lines) if place in near]


def _gaps(group, files):
    """Return the gaps that contain the shared code of a group's first student, whose `files` are {file: text}."""
    found = []
    for file in group.files:
        marked = {number for of_file, number, _, alike in group.sides[0].lines if alike and of_file == file}
        exercise = exercises.given_out(file)
        for gap in exercise.gaps:
            fragment = find(exercise, gap.name, files.get(file, ""))
            if fragment and marked & set(range(fragment.line, fragment.line + fragment.code.count("\n") + 1)):
                found.append((file, gap.name))
    return tuple(found)
