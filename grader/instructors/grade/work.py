"""A piece of work: some checks of one file of one submission. `pieces` creates pieces; `run` runs one on an engine."""

import fcntl
import functools
import os
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from grader import budget, exercises
from grader.course import UNITS, name_of_gap
from grader.instructors.grade import seeds
from grader.judging import judge
from grader.probes import loaded_for
from grader.sandbox import BUSY, SandboxError, interpreter_paths, missing
from grader.sandbox.forkserver import Forked
from grader.verdict import GRADER_FAULT, Verdict
from handson import frameworks
from handson.cluster import site as sites
from handson.files import COURSE

# folders of the grader, at any level, whose modules run in the processes of student code
BESIDE_STUDENTS = ("probes", "sandbox")
SHARED = "HANDSON_SHARED"  # the environment variable with the folder that all engines of a cluster share
CORE = "core"  # the files core0, core1, ... in it: each engine locks one, and uses that core
STARTING = 300  # seconds that an engine may take to load the libraries, on a busy machine
PATIENCE = STARTING + BUSY * budget.ALL  # seconds that an engine may take for a piece


@dataclass(frozen=True)
class Piece:
    """Checks of one part of a unit that need the same number of ranks."""

    student: str
    digest: str
    unit: str
    part: int  # its index in UNITS[unit]
    gaps: tuple
    ranks: int
    data: bytes | None  # the part's file
    seeds: tuple = (0, 0)  # the seeds of the inputs, see grader.instructors.grade.seeds
    site: str | None = None  # job scripts are checked for this site; None means the chosen one


def pieces(submission, unit, secret, site=None):
    """Return the pieces of a submission's unit. secret: determines their inputs; site: as in a Piece."""
    made, of_inputs = [], seeds.of(secret, submission.student, submission.digest)
    for number, part in enumerate(UNITS[unit]):
        path = submission.path / part.file
        data = path.read_bytes() if path.is_file() else None
        made += [
            Piece(submission.student, submission.digest, unit, number, gaps, ranks, data, of_inputs, site)
            for ranks, gaps in by_ranks(part)
        ]
    return made


def by_ranks(part):
    """Return [(ranks, gaps), ...] of the pieces into which a part of a unit is split."""
    found = {}
    for check in part.checks:
        found.setdefault(max((case.get("ranks", 1) for case in check.cases), default=1), []).append(check.gap)
    return [(ranks, tuple(gaps)) for ranks, gaps in sorted(found.items())]


def in_order(unit, verdicts):
    """Return the verdicts of all pieces of a unit, in the order of its parts and checks."""
    named = [(part.track, name_of_gap(unit, part.file, check.gap)) for part in UNITS[unit] for check in part.checks]
    places = {name: place for place, name in enumerate(named)}
    return sorted(verdicts, key=lambda verdict: places[verdict.track, verdict.gap])


def run(piece, trusted):
    """Run a piece on an engine, and return the verdicts as dictionaries. An engine that takes longer than PATIENCE
    ends.

    Raises SandboxError if a student's code cannot be confined, unless it is trusted.
    """
    if not trusted and (why := missing()):
        raise SandboxError(why)
    part = _part(piece)
    server = _server(loaded_for([part.file]))
    server.cores = _core() if piece.ranks == 1 else ()
    signal.alarm(PATIENCE)
    try:
        with sites.as_chosen(piece.site):
            verdicts = judge(
                piece.unit,
                (part,),
                lambda file: exercises.handed_in(file, piece.data),
                server,
                hidden=_hidden_cases(),
                readable=None if trusted else readable(),
                seed=piece.seeds[0],
                shared=piece.seeds[1],
            )
            return [asdict(verdict) for verdict in verdicts]
    finally:
        signal.alarm(0)


def not_handed_in(piece):
    """Return the verdicts of a piece whose file was not handed in."""
    return list(judge(piece.unit, (_part(piece),), lambda file: None, None))


def ungraded(piece, why):
    """Return the verdicts of a piece that could not be run."""
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
    """Return the piece's part of the unit, with only the checks of this piece."""
    part = UNITS[piece.unit][piece.part]
    return replace(part, checks=tuple(check for check in part.checks if check.gap in piece.gaps))


def readable():
    """Return the paths of this machine that are visible in a sandbox."""
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
def _core():
    """Return the core for this engine's work, as (number,); () for all cores. The engine locks it until it ends.

    Without this, the kernel often runs two engines' work on one core while another core is idle, because the work
    consists of short processes.
    """
    for path in sorted(Path(os.environ[SHARED]).glob(f"{CORE}*")) if SHARED in os.environ else ():
        with suppress(BlockingIOError):
            fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return (int(path.name.removeprefix(CORE)),)
    return ()


@functools.cache
def _hidden_cases():
    try:
        from grader.instructors import hidden
    except ImportError:
        return {}
    return hidden.cases()
