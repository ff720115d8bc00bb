"""A piece of work: some checks of one file of one submission. `pieces` makes pieces; `run` carries one out, on an
engine."""

import functools
import os
import time
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from grader import budget, exercises
from grader.course import UNITS, name_of_gap
from grader.instructors.grade import seeds
from grader.judging import judge
from grader.probes import FOR_NOTEBOOKS, loaded_for
from grader.sandbox import BUSY, SandboxError, interpreter_paths, missing
from grader.sandbox.forkserver import Forked
from grader.verdict import GRADER_FAULT, Verdict
from handson import frameworks
from handson.files import COURSE

# the grader's folders, at any level, whose modules run in the processes of student code
BESIDE_STUDENTS = ("probes", "sandbox")
SHARED = "HANDSON_SHARED"  # names the environment variable with the folder of the forkserver that all engines share
STARTING = 300  # the most seconds that an engine may take to load the libraries, on a busy machine


@dataclass(frozen=True)
class Piece:
    """Checks of one part of a unit that need the same number of ranks."""

    student: str
    digest: str
    unit: str
    part: int  # its place in UNITS[unit]
    gaps: tuple
    ranks: int
    data: bytes | None  # the part's file
    seeds: tuple = (0, 0)  # of the inputs, see grader.instructors.grade.seeds
    untouched: bool = False  # whether the file is as it was given out

    @property
    def kind(self):
        """Equal for pieces of different students that take about the same time."""
        return _kind(self.unit, self.part, self.gaps, self.untouched)

    @property
    def heavy(self):
        """Whether it needs libraries that take seconds to load."""
        return loaded_for([UNITS[self.unit][self.part].file]) != FOR_NOTEBOOKS


class Cost(NamedTuple):
    """What a piece costs, in seconds that other programs do not change."""

    engine: float  # CPU seconds of the engine, which judges
    ranks: float  # CPU seconds of all processes of the student's code together
    waited: float  # seconds in which none of these processes computed, such as ranks that wait for each other

    def seconds(self, engines, stretch=1.0):
        """Seconds by the clock: ranks share the cores of `engines`, and nothing else runs while the engine judges.
        stretch: of computing."""
        return stretch * (self.engine + self.ranks / engines) + self.waited


@dataclass(frozen=True)
class Done:
    """What an engine returns of a piece. verdicts: as dictionaries."""

    verdicts: list
    cost: Cost = Cost(0.0, 0.0, 0.0)
    loading: float = 0.0  # seconds in which the piece waited for libraries, as the first one on an engine does


@dataclass
class Counting:
    """A server (grader.sandbox.Server) that counts what its runs take."""

    server: object
    cpu_seconds: float = 0.0
    waited_seconds: float = 0.0
    loading_seconds: float = 0.0

    def run(self, *arguments, **options):
        first, began = not self.server.answered, time.monotonic()
        outcome = self.server.run(*arguments, **options)
        if first:
            self.loading_seconds += time.monotonic() - began - outcome.seconds
        self.cpu_seconds += outcome.cpu_seconds
        self.waited_seconds += outcome.waited_seconds
        return outcome


def pieces(submission, unit, secret):
    """The pieces of a submission's unit. secret: what their inputs follow from."""
    made, of_inputs = [], seeds.of(secret, submission.student, submission.digest)
    for number, part in enumerate(UNITS[unit]):
        path = submission.path / part.file
        data = path.read_bytes() if path.is_file() else None
        same = _untouched(part.file, path)
        made += [
            Piece(submission.student, submission.digest, unit, number, gaps, ranks, data, of_inputs, same)
            for ranks, gaps in by_ranks(part)
        ]
    return made


def by_ranks(part):
    """[(ranks, gaps), ...] of the pieces that a part of a unit is graded in."""
    found = {}
    for check in part.checks:
        found.setdefault(max((case.get("ranks", 1) for case in check.cases), default=1), []).append(check.gap)
    return [(ranks, tuple(gaps)) for ranks, gaps in sorted(found.items())]


def handed_in(submission, unit):
    """(kind, ranks) of each piece of a unit whose file was handed in."""
    paths = [(number, part, submission.path / part.file) for number, part in enumerate(UNITS[unit])]
    there = [(number, part, _untouched(part.file, path)) for number, part, path in paths if path.is_file()]
    return [
        (_kind(unit, number, gaps, untouched), ranks)
        for number, part, untouched in there
        for ranks, gaps in by_ranks(part)
    ]


def _kind(unit, part, gaps, untouched):
    return unit, part, gaps, *["untouched"] * untouched


def _untouched(file, path):
    """Whether `file` is at `path` as it was given out. Most files have another size, and need not be read."""
    given = _given(file)
    return path.is_file() and path.stat().st_size == len(given) and path.read_bytes() == given


@functools.cache
def _given(file):
    """The bytes of a file that was given out. Of a notebook, those in this course's folder, if it is there; Jupyter
    changes them when it saves."""
    if file.endswith(".ipynb"):
        return (COURSE / file).read_bytes() if (COURSE / file).is_file() else b""
    return exercises.given_out(file).text.encode()


def patience(piece):
    """The most seconds that an engine can take for a piece; after these it will never finish."""
    return STARTING + BUSY * budget.ALL


def in_order(unit, verdicts):
    """The verdicts of all pieces of a unit, in the order of its parts and checks."""
    named = [(part.track, name_of_gap(unit, part.file, check.gap)) for part in UNITS[unit] for check in part.checks]
    places = {name: place for place, name in enumerate(named)}
    return sorted(verdicts, key=lambda verdict: places[verdict.track, verdict.gap])


def run(piece, trusted, cores=()):
    """Carry out a piece, on an engine. Returns what is Done. cores: this host's cores for the piece's ranks.

    Raises SandboxError where a student's code can't be confined, unless it is trusted.
    """
    if not trusted and (why := missing()):
        raise SandboxError(why)
    part, used = _part(piece), time.process_time()
    server = _server(loaded_for([part.file]))
    server.cores = cores
    counting = Counting(server)
    verdicts = judge(
        piece.unit,
        (part,),
        lambda file: exercises.handed_in(file, piece.data),
        counting,
        hidden=_hidden_cases(),
        readable=None if trusted else readable(),
        seed=piece.seeds[0],
        shared=piece.seeds[1],
    )
    verdicts = [asdict(verdict) for verdict in verdicts]
    return Done(
        verdicts,
        Cost(time.process_time() - used, counting.cpu_seconds, counting.waited_seconds),
        counting.loading_seconds,
    )


def not_handed_in(piece):
    """The verdicts of a piece whose file was not handed in."""
    return list(judge(piece.unit, (_part(piece),), lambda file: None, None))


def ungraded(piece, why):
    """The verdicts of a piece that could not be carried out."""
    part = _part(piece)
    return [
        Verdict(
            piece.unit,
            part.track,
            check.gap,
            criterion.title,
            GRADER_FAULT,
            None,
            criterion.points,
            f"not graded: {why}",
        )
        for check in part.checks
        for criterion in check.criteria
    ]


def _part(piece):
    """The part of the unit that a piece is about, with only the checks of this piece."""
    part = UNITS[piece.unit][piece.part]
    return replace(part, checks=tuple(check for check in part.checks if check.gap in piece.gaps))


def readable():
    """The paths of this machine that a sandbox shows."""
    grader = COURSE / "grader"
    beside = [path for name in BESIDE_STUDENTS for path in sorted(grader.rglob(name)) if path.is_dir()]
    second = [frameworks.folder()] if frameworks.folder().is_dir() else []
    return [
        *interpreter_paths(),
        *second,
        COURSE / "handson",
        COURSE / "datasets",
        *sorted(grader.glob("*.py")),
        *beside,
    ]


@functools.cache
def _server(libraries):
    return Forked(libraries, os.environ.get(SHARED, ""))


@functools.cache
def _hidden_cases():
    try:
        from grader.instructors import hidden
    except ImportError:
        return {}
    return hidden.cases()
