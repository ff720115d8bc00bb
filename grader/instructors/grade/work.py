"""A piece of work: some checks of one file of one submission. Pieces are made here, and carried out here, on the engines."""

import functools
import hashlib
import os
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from grader import exercises, sandbox
from grader.box import link, switch
from grader.box.forkserver import Forked
from grader.checks import UNITS
from grader.judging import judge
from grader.observing import longest
from grader.probes import FOR_SCRIPTS, loaded_for
from grader.sandbox import interpreter_paths
from grader.sandbox.doctor import TUN, in_force
from grader.verdict import GRADER_FAULT, Verdict
from handson.cluster import nodes
from handson.cluster import site as sites
from handson.pbs import site as pbs_site

GRADER = Path(__file__).resolve().parents[2]
UNITS_PROBES = ("units/__init__.py", "units/*/__init__.py", "units/*/probes", "units/*/probes.py")
PUBLIC = ("box", "probes", "sandbox", "__init__.py", "gaps.py", "verdict.py", *UNITS_PROBES)  # of the grader; what ranks may read
JUDGING = ("box", "checks", "hidden", "probes", "units", "gaps.py", "exercises.py", "judging.py", "notebook_cells.py", "observing.py")  # what a verdict depends on
SHARED = "HANDSON_SHARED"  # the variable that names the folder in which loaded libraries are shared with engines
STARTING = 60  # seconds for an engine to load the libraries, at most


@dataclass(frozen=True)
class Place:
    """Where an engine is: its host, and the (address, port) pairs at which engines on others reach it; none where ranks can't be spread."""

    host: str
    addresses: tuple = ()


@dataclass(frozen=True)
class Spreading:
    """Over which hosts the ranks of a piece are spread: how many engines on each, where the first of them listens, and its key."""

    engines: tuple
    addresses: tuple
    key: bytes


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

    @property
    def kind(self):
        """What pieces of other students take as long as this one."""
        return self.unit, self.part, self.gaps

    @property
    def heavy(self):
        """Whether it needs libraries that take seconds to load."""
        return loaded_for([UNITS[self.unit][self.part].file]) == FOR_SCRIPTS


def pieces(submission, unit):
    """The pieces of a submission's unit."""
    made = []
    for number, part in enumerate(UNITS[unit]):
        path = submission.path / part.file
        data = path.read_bytes() if path.is_file() else None
        by_ranks = {}
        for check in part.checks:
            by_ranks.setdefault(max((case.get("ranks", 1) for case in check.cases), default=1), []).append(check.gap)
        made += [
            Piece(submission.student, submission.digest, unit, number, tuple(gaps), ranks, data) for ranks, gaps in sorted(by_ranks.items())
        ]
    return made


def patience(piece):
    """Seconds after which an engine that has not carried out a piece never will."""
    part, hidden = _part(piece), _hidden_cases()
    return STARTING + sum(longest(check, len(hidden.get((piece.unit, part.track, check.gap), ()))) for check in part.checks)


def in_order(unit, verdicts):
    """The verdicts of all pieces of a unit, in the order of its parts and checks."""
    places = {(part.track, check.gap): place for place, (part, check) in enumerate((p, c) for p in UNITS[unit] for c in p.checks)}
    return sorted(verdicts, key=lambda verdict: places[verdict.track, verdict.gap])


def place():
    """The Place of the engine in which this is called."""
    listens = sandbox.strong() and TUN in in_force()
    return Place(nodes.current_node(), tuple(_listener()[1]) if listens else ())


def run(piece, trusted, cores=(), spreading=None):
    """Carry out a piece, on an engine: a list of verdicts as dictionaries. cores: of this host, for its ranks; spreading: has other engines
    run some of them."""
    part = _part(piece)
    own = _server(loaded_for([part.file]))
    own.cores = cores
    with switch.Spread(own, spreading.engines, _listener()[0], spreading.key) if spreading else nullcontext(own) as server:
        verdicts = judge(
            piece.unit,
            (part,),
            lambda file: exercises.handed_in(file, piece.data),
            server,
            hidden=_hidden_cases(),
            readable=None if trusted else readable(),
            seed=_seed(piece.unit),
        )
        return [asdict(verdict) for verdict in verdicts]


def follow(piece, number, spreading):
    """Run ranks of a piece that another engine carries out, until it has; number: this host's place in `spreading`."""
    switch.follow(number, _server(loaded_for([_part(piece).file])), readable(), spreading.addresses, spreading.key, patience(piece))


def not_handed_in(piece):
    """The verdicts of a piece whose file is not there."""
    return list(judge(piece.unit, (_part(piece),), lambda file: None, None))


def ungraded(piece, why):
    """The verdicts of a piece that could not be carried out."""
    part = _part(piece)
    return [
        Verdict(piece.unit, part.track, check.gap, criterion.title, GRADER_FAULT, None, criterion.points, f"not graded: {why}")
        for check in part.checks
        for criterion in check.criteria
    ]


def _part(piece):
    """The part of the unit that a piece is about, with no more than its checks."""
    part = UNITS[piece.unit][piece.part]
    return replace(part, checks=tuple(check for check in part.checks if check.gap in piece.gaps))


@functools.cache
def _seed(unit):
    """Of a unit's inputs: no student knows it, and it is the same for all, so that what is expected is worked out once."""
    return int(version(unit)[:7], 16)


def version(unit):
    """What a unit's verdicts depend on, as a digest: checks, probes, hidden cases, the exercises given out, and for job scripts the
    chosen site. Raises SiteError."""
    digest = _of_all().copy()
    for part in UNITS[unit]:
        digest.update(exercises.given_out(part.file).text.encode())
        if part.file.endswith(".sh"):
            digest.update(repr(sites.read(pbs_site.chosen())).encode())
    return digest.hexdigest()[:16]


@functools.cache
def _of_all():
    """The digest of what the verdicts of all units depend on."""
    digest = hashlib.sha256()
    for path in [path for name in JUDGING for path in ([GRADER / name] if name.endswith(".py") else sorted((GRADER / name).rglob("*")))]:
        if path.suffix in (".py", ".toml") and path.is_file():
            digest.update(path.read_bytes())
    return digest


def readable():
    """What a sandbox shows of this machine."""
    return [*interpreter_paths(), GRADER.parent / "handson", GRADER.parent / "datasets", *(path for name in PUBLIC for path in sorted(GRADER.glob(name)))]


@functools.cache
def _server(libraries):
    return Forked(libraries, os.environ.get(SHARED, ""))


@functools.cache
def _listener():
    return link.listen()


@functools.cache
def _hidden_cases():
    try:
        from grader import hidden
    except ImportError:
        return {}
    return hidden.cases()
