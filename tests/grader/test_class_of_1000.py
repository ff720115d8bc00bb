"""A class of a thousand, whose engines, controller and grader are killed again and again: nobody is lost, graded twice
or given other points, and neither the grader nor the cluster's hub grows."""

import re
import subprocess
import threading
import time

import psutil
import pytest
from test_grade import LIMIT, ROOT, below, command, finished, results
from waiting import wait_until

from answers.known import of_unit
from grader import exercises
from grader.course import UNITS
from grader.exercises import solved

STUDENTS = 1000
UNIT = "single_gpu"
SCRIPT = next(part for part in UNITS[UNIT] if part.file.endswith(".sh"))
GROWTH = 60 << 20  # bytes that a process may grow by, from a tenth of the class to its end
BETWEEN = STUDENTS // 25  # results between the deaths of engines
pytestmark = pytest.mark.thorough


def job_scripts():
    """Job scripts, wrong and right ones: their checks need no libraries."""
    mistakes = [
        mistake for mistake in of_unit(UNIT, SCRIPT.track)[0] if mistake.gap in {check.gap for check in SCRIPT.checks}
    ]
    wrong = [solved(SCRIPT.file, **{mistake.gap: mistake.code}) for mistake in mistakes]
    return [solved(SCRIPT.file), exercises.given_out(SCRIPT.file).text, *wrong]


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thousand")
    texts = job_scripts()
    assert len(texts) > 5
    for number in range(STUDENTS):
        path = folder / f"student{number:04}" / SCRIPT.file
        path.parent.mkdir(parents=True)
        path.write_text(texts[number % len(texts)])
    return folder


@pytest.fixture(scope="module")
def undisturbed(handed_in, tmp_path_factory):
    """The results of a class that is graded in peace, and the most memory of grader and controller early on and at the
    end, in bytes."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    grader = subprocess.Popen(command(handed_in, out), cwd=ROOT, stdout=subprocess.DEVNULL)
    early, late = {}, {}
    while grader.poll() is None:
        into = early if finished(out) < STUDENTS // 10 else late
        for name, process in {
            "grader": [psutil.Process(grader.pid)],
            "controller": below(grader, "ipyparallel.controller"),
        }.items():
            try:
                into[name] = max([into.get(name, 0), *(one.memory_info().rss for one in process)])
            except psutil.Error:
                pass
        time.sleep(0.5)
    assert grader.returncode == 0
    return results(out), early, late


def test_memory_stays_flat(undisturbed):
    _, early, late = undisturbed
    assert set(early) == set(late) == {"grader", "controller"}
    for name in late:
        assert late[name] < early[name] + GROWTH, (name, early, late)


def test_no_death_loses_or_changes_a_result(undisturbed, handed_in, tmp_path):
    out, expected = tmp_path / "out", undisturbed[0]
    assert len(expected) == STUDENTS
    over = threading.Event()
    graders = []

    def kill_engines():
        at = BETWEEN
        while not over.wait(0.5):
            if (now := finished(out)) >= at:  # on a busy machine, the last victim's successor may need long to start
                at = now + BETWEEN
                for engine in below(graders[-1], "ipyparallel.engine")[:1]:
                    engine.kill()

    killer = threading.Thread(target=kill_engines)
    try:
        for share in (0.25, 0.5):
            graders.append(subprocess.Popen(command(handed_in, out), cwd=ROOT, stdout=subprocess.DEVNULL))
            killer.is_alive() or killer.start()
            wait_until(
                lambda: finished(out) > share * STUDENTS or graders[-1].poll() is not None,
                f"{share} of the class",
                LIMIT,
            )
            graders[-1].kill()
            graders[-1].wait()
        graders.append(subprocess.Popen(command(handed_in, out), cwd=ROOT, stdout=subprocess.PIPE, text=True))
        wait_until(lambda: finished(out) > 0.7 * STUDENTS or graders[-1].poll() is not None, "0.7 of the class", LIMIT)
        for controller in below(graders[-1], "ipyparallel.controller")[:1]:
            controller.kill()
        said, _ = graders[-1].communicate(timeout=500)
        assert graders[-1].returncode == 0
        left = int(re.search(r"(\d+) of \d+ pieces of work to grade", said)[1])
        assert "controller has ended" in said and 0 < left < 0.6 * STUDENTS, said
    finally:
        over.set()
        killer.join()
        for grader in graders:
            grader.kill()
    assert results(out) == expected
    assert STUDENTS <= finished(out) <= 1.02 * STUDENTS, "only what a kill left ungraded was stored again"
