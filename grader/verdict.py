"""A verdict: what a check found in one gap. Self-checks show verdicts; the grader stores, exports and reports them."""

from dataclasses import dataclass, field

PASSED = "passed"
FAILED = "failed"  # it ran, and its result is wrong
NOT_ATTEMPTED = "not attempted"  # the gap is as it was given out
NOT_FOUND = "not found"  # the file, the cell or the place of the gap is missing
ERROR = "error"  # the student's code raised
DEADLOCK = "deadlock"  # ranks wait in a collective for ranks that never come
TIMEOUT = "timeout"
OUT_OF_MEMORY = "out of memory"
KILLED = "killed"  # ended by a signal, or by os._exit
GRADER_FAULT = "grader fault"  # the grader failed, not the student: ungraded, never 0 points

UNTOUCHED = (NOT_ATTEMPTED, NOT_FOUND)  # there is no work to judge
STATUSES = (PASSED, FAILED, NOT_ATTEMPTED, NOT_FOUND, ERROR, DEADLOCK, TIMEOUT, OUT_OF_MEMORY, KILLED, GRADER_FAULT)


def sign(status):
    """A status as one character, so that it can be read without colours."""
    return {PASSED: "✓", NOT_ATTEMPTED: "–", NOT_FOUND: "–", GRADER_FAULT: "?"}.get(status, "✗")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one criterion. `points` lies between 0 and `max_points`, or is None with GRADER_FAULT: not
    graded."""

    unit: str  # the task: "multi_gpu"
    track: str  # "pytorch", "chainer", or "" for a job script or a notebook
    gap: str  # the gap it judges, as grader.course.name_of_gap names it; these names are unique within unit and track
    check: str  # what is checked, in a few words
    status: str
    points: float | None
    max_points: float
    message: str = ""  # for the student: what was found, and what it was compared with
    hint: str = ""
    output: str = ""  # what the student's code printed; long output is cut, and the cut is marked
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    measured: dict | None = field(default=None, compare=False)  # numbers of a contest, by name


def counted(verdicts):
    """The verdicts that count for the score: of a unit's two tracks only the track with more points, or at equal points
    the one with more attempted checks. Job scripts and notebooks (track "") always count.
    """

    def worth(unit, track):
        of_track = [verdict for verdict in verdicts if (verdict.unit, verdict.track) == (unit, track)]
        attempted = sum(verdict.status not in UNTOUCHED for verdict in of_track)
        return sum(verdict.points or 0 for verdict in of_track), attempted, track == "pytorch"

    best = {}
    for unit, track in {(verdict.unit, verdict.track) for verdict in verdicts if verdict.track}:
        if unit not in best or worth(unit, track) > worth(unit, best[unit]):
            best[unit] = track
    return [verdict for verdict in verdicts if not verdict.track or best[verdict.unit] == verdict.track]


def most(points):
    """The most points that a student can get: of what both tracks share, and of the track that gives more. points:
    (track, points) pairs."""
    of_tracks = {}
    for track, worth in points:
        of_tracks[track] = of_tracks.get(track, 0) + worth
    return of_tracks.pop("", 0) + max(of_tracks.values(), default=0)
