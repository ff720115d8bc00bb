"""A verdict: the result of a check on one gap. Self-checks show verdicts; the grader stores, exports and reports
them."""

from dataclasses import dataclass, field

PASSED = "passed"
FAILED = "failed"  # it ran, and its result is wrong
NOT_ATTEMPTED = "not attempted"  # the gap is unchanged
NOT_FOUND = "not found"  # the file, the cell or the place of the gap is missing
ERROR = "error"  # the student's code raised an error
DEADLOCK = "deadlock"  # ranks wait in a collective for ranks that never enter it
TIMEOUT = "timeout"
OUT_OF_MEMORY = "out of memory"
KILLED = "killed"  # ended by a signal, or by os._exit
GRADER_FAULT = "grader fault"  # the grader failed, not the student: ungraded, never 0 points

UNTOUCHED = (NOT_ATTEMPTED, NOT_FOUND)  # there is no work to judge
STATUSES = (PASSED, FAILED, NOT_ATTEMPTED, NOT_FOUND, ERROR, DEADLOCK, TIMEOUT, OUT_OF_MEMORY, KILLED, GRADER_FAULT)


def sign(status):
    """Return a status as one character, so that it can be read without colours."""
    return {PASSED: "✓", NOT_ATTEMPTED: "–", NOT_FOUND: "–", GRADER_FAULT: "?"}.get(status, "✗")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one criterion. `points` is between 0 and `max_points`, or None with GRADER_FAULT: not graded."""

    unit: str  # the task: "multi_gpu"
    track: str  # "pytorch", "chainer", or "" for a job script or a notebook
    gap: str  # the gap, as named by grader.course.name_of_gap; these names are unique within unit and track
    check: str  # the criterion, in a few words
    status: str
    points: float | None
    max_points: float
    message: str = ""  # tells the student the observed and the expected value
    hint: str = ""
    output: str = ""  # the output of the student's code; long output is cut, with a mark
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    measured: dict | None = field(default=None, compare=False)  # numbers of a contest, by name


def counted(verdicts):
    """Return the verdicts that count for the score. If a unit has two tracks, only the track with more points counts,
    or at equal points the track with more attempted checks. Job scripts and notebooks (track "") always count."""

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
    """Return the largest points of a student: the points of shared files, and of the track that gives more. points:
    (track, points) pairs."""
    of_tracks = {}
    for track, worth in points:
        of_tracks[track] = of_tracks.get(track, 0) + worth
    return of_tracks.pop("", 0) + max(of_tracks.values(), default=0)
