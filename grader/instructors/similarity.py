"""Finds pairs of submissions that share filled-in code which the exercise, the solution and most of the class do not have.

Code is compared as runs of tokens, without comments and layout. One token stands for all names that the exercise does not use, and one
for all strings, as in winnowing (Schleimer, Wilkerson and Aiken 2003), but all runs are compared, because the texts are short. A
similarity is a reason to look at both submissions, not a proof: answers of one line are often equal.
"""

import builtins
import keyword
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations, islice

from grader import exercises
from grader.gaps import GapError
from grader.instructors.collect import newest
from grader.notebook_cells import NotebookError

RUN = 10  # tokens in a run
FEWEST = 30  # tokens that a pair must share to be reported
LONGEST = 20_000  # tokens of one file that are compared, at most
COMMON = 5  # a run that more students have is common knowledge, and is ignored; in large classes
COMMON_SHARE = 0.2  # a run that more than this share of the class has
MOST_PAIRS = 50
TOKEN = re.compile(
    r"\s+|#[^\n]*"
    r"|(?P<text>[rbfuRBFU]{0,2}(?:\"\"\".*?(?:\"\"\"|\Z)|'''.*?(?:'''|\Z)|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?))"
    r"|(?P<name>[^\W\d]\w*)|(?P<number>\d[\w.]*)|(?P<sign>.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Side:
    """One student's side of a pair."""

    student: str
    filled_in: int  # tokens that are neither in the exercise nor in the solution
    shared: int  # those of them that the other student has, too
    lines: tuple  # (file, number, text, whether it is shared), from files in which something is shared

    @property
    def share(self):
        return self.shared / self.filled_in


@dataclass(frozen=True)
class Pair:
    """Two students with shared code. weight: the sum of 1 / (n - 1) over the shared runs, where n students have a run."""

    one: Side
    other: Side
    weight: float


@dataclass(frozen=True)
class _Filled:
    """What a student filled in: the runs of tokens and the lines."""

    runs: dict  # (file, the tokens of a run) -> the numbers of the tokens at which it starts in the file
    lines: dict  # file -> [(number, text)]
    of_token: dict  # file -> the line number of each token


def of_submissions(submissions):
    """The Pairs among the newest submission of each student. Files that were not given out are left out."""
    classes, given, solved = {}, {}, {}
    for submission in newest(submissions):
        files = {}
        for path in submission.path.rglob("*") if submission.path else ():
            if path.is_file():
                file = str(path.relative_to(submission.path))
                try:
                    if file not in given:
                        given[file], solved[file] = exercises.given_out(file).text, exercises.solution(file).read_text()
                    files[file] = exercises.handed_in(file, path.read_bytes()) or ""
                except (OSError, KeyError, GapError, NotebookError):
                    continue
        classes[submission.student] = files
    return pairs(classes, given, solved)


def pairs(students, given, solved):
    """The Pairs among students, the most similar first. students: {student: {file: text}}; given, solved: {file: its text as given out,
    and as solved}."""
    vocabulary = {file: _names(text) for file, text in given.items()}
    known = set(_filled(solved, given, vocabulary).runs)
    told = {file: f"{text}\n{solved[file]}" for file, text in given.items()}
    filled = {student: _filled(files, told, vocabulary, known) for student, files in students.items()}
    owners = defaultdict(list)
    for student, of_student in filled.items():
        for run in of_student.runs:
            owners[run].append(student)
    weights, shared = Counter(), defaultdict(list)
    for run, of_run in owners.items():
        if 2 <= len(of_run) <= max(COMMON, COMMON_SHARE * len(students)):
            for pair in combinations(of_run, 2):
                weights[pair] += 1 / (len(of_run) - 1)
                shared[pair].append(run)
    found = []
    for (one, other), weight in weights.most_common():
        sides = [_side(student, filled[student], shared[one, other]) for student in (one, other)]
        if min(side.shared for side in sides) >= FEWEST:
            found.append(Pair(*sides, weight))
        if len(found) == MOST_PAIRS:
            break
    return found


def _names(text):
    """The names in a text, and Python's own; these are compared as they are."""
    return {match["name"] for match in TOKEN.finditer(text) if match["name"]} | set(keyword.kwlist) | set(dir(builtins))


def _filled(files, told, vocabulary, known=frozenset()):
    """What `files` have besides the lines of `told` ({file: text}) and the `known` runs."""
    runs, of_token, lines = defaultdict(list), {}, {}
    for file, text in files.items():
        old = {"", *(line.strip() for line in told[file].splitlines())}
        lines[file] = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip() not in old]
        found = ((_token(match, vocabulary[file]), number) for number, line in lines[file] for match in TOKEN.finditer(line) if match.lastgroup)
        found = list(islice(found, LONGEST))
        tokens, of_token[file] = zip(*found) if found else ((), ())
        for start in range(len(tokens) - RUN + 1):
            run = file, tokens[start : start + RUN]
            if run not in known:
                runs[run].append(start)
    return _Filled(runs, lines, of_token)


def _token(match, vocabulary):
    """A token as it is compared: one token stands for all strings, and one for all names of the student's own that do not follow a dot."""
    if match["text"]:
        return '"'
    own = match["name"] and match["name"] not in vocabulary and match.string[match.start() - 1 : match.start()] != "."
    return "v" if own else match[0]


def _side(student, filled, shared):
    def places(runs):
        return {(file, start + step) for file, tokens in runs for start in filled.runs[file, tokens] for step in range(RUN)}

    alike = places(shared)
    marked = {(file, filled.of_token[file][token]) for file, token in alike}
    files = dict.fromkeys(file for file, _ in sorted(marked))
    lines = tuple((file, number, text, (file, number) in marked) for file in files for number, text in filled.lines[file])
    return Side(student, len(places(filled.runs)), len(alike), lines)
