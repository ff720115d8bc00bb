"""A class of 2,000 with submissions of 30 MB each: collecting, similarity and reports, and how much memory they take.

The 30 MB are two notebooks with one output each; all students share their bytes (hard links), and have scripts of their
own.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from answers.known import of_part
from grader.course import UNITS, name_of_gap
from grader.exercises import solved
from grader.instructors.gradebook import Gradebook
from grader.instructors.release import notebook
from grader.verdict import FAILED, NOT_ATTEMPTED, PASSED, Verdict
from tests.grader.classes import handed_in, store

ROOT = Path(__file__).resolve().parents[2]
STUDENTS, EARLY = 2000, 200
OUTPUT = 15_000_000  # bytes of a notebook's output
NOTEBOOKS = ("notebooks/01_single_gpu.ipynb", "notebooks/02_multi_gpu.ipynb")
UNIT, SCRIPT = "multi_gpu", next(part for part in UNITS["multi_gpu"] if part.track == "pytorch")
OF_ITSELF = """import json, resource, sys, time
from pathlib import Path
def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
begin, early = time.perf_counter(), 0
"""  # begins the processes whose time and memory are measured
COLLECT = """
from grader.instructors import collect
written = collect.shutil.rmtree
seen = []
def note(*arguments, **options):
    seen.append(most())
    return written(*arguments, **options)
collect.shutil.rmtree = note
found = collect.collect(Path(sys.argv[1]), Path(sys.argv[2]), collect.released())
assert len(found) == int(sys.argv[3]) and not any(one.refused for one in found), found[0]
print(json.dumps([time.perf_counter() - begin, seen[int(sys.argv[4])], most()]))
"""
SIMILARITY = """
from grader.instructors import collect, similarity
from grader.instructors.reports import pages
found = similarity.of_submissions(collect.collect(Path(sys.argv[1]), Path(sys.argv[2]), collect.released()))
page = pages.similarity(found)
print(json.dumps([time.perf_counter() - begin, most(), len(found), len(page)]))
"""
EMPTY = """
from grader.instructors import collect
from grader.instructors.gradebook import Gradebook
folder, number = Path(sys.argv[1]), int(sys.argv[2])
(folder / "handed_in").mkdir(parents=True)
for one in range(number):
    (folder / "handed_in" / f"s{one}.zip").write_bytes(b"PK\\x05\\x06" + bytes(18))
begin = time.perf_counter()
with Gradebook(folder / "out") as book:
    for _ in range(2):
        listed = [collect.Listed(one.student, one.name, "") for one in book.submissions()]
        book.record(collect.collect(folder / "handed_in", folder / "out/submissions", collect.released(), listed=listed))
print(json.dumps([time.perf_counter() - begin]))
"""
REPORT = """
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import write_reports
with Gradebook(Path(sys.argv[1]), writing=False) as book:
    assert write_reports(book, Path(sys.argv[1])) == int(sys.argv[2])
print(json.dumps([time.perf_counter() - begin, most()]))
"""


def measure(folder):
    """Rows (what, value, target)."""
    _hand_in(folder / "handed_in")
    seconds, early, late = _run(COLLECT, folder / "handed_in", folder / "collected", STUDENTS, EARLY)
    written = sum(path.stat().st_size for path in (folder / "collected").rglob("*") if path.is_file())
    yield f"seconds to collect {STUDENTS} submissions of 30 MB", f"{seconds:.0f}", ""
    yield f"  MB that it needs at most; after {EARLY} of them", f"{late:.0f}; {early:.0f}", "growth <= 20"
    yield "  MB on the disk afterwards", f"{written / 1e6:.0f}", f"of {STUDENTS * 30:,}"
    seconds, late, pairs, page = _run(SIMILARITY, folder / "collected", folder / "again")
    yield f"seconds of their similarity ({pairs} found)", f"{seconds:.0f}", "< 60"
    yield "  MB that it needs; MB of the page", f"{late:.0f}; {page / 1e6:.2f}", "page < 1"
    seconds = [_run(EMPTY, folder / f"empty_{number}", number)[0] for number in (10_000, 30_000)]
    yield "seconds to collect and record 10,000 and 30,000 empty archives", "{:.0f}; {:.0f}".format(*seconds), ""
    yield "  their ratio", f"{seconds[1] / seconds[0]:.1f}", "< 4"
    _grade(folder / "graded")
    seconds, late = _run(REPORT, folder / "graded", STUDENTS)
    yield f"seconds to report on {STUDENTS} students, with a page for each", f"{seconds:.0f}", "< 60"
    yield "  MB that it needs", f"{late:.0f}", ""
    yield "  MB of report.html", f"{(folder / 'graded/report.html').stat().st_size / 1e6:.2f}", "< 1"
    yield (
        "  MB of the largest page of a student",
        f"{max(path.stat().st_size for path in (folder / 'graded/feedback').iterdir()) / 1e6:.2f}",
        "< 1",
    )


def _run(code, *arguments):
    """What some code prints as JSON, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", OF_ITSELF + code, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def _hand_in(folder):
    folder.mkdir()
    for name in NOTEBOOKS:
        document = json.loads(notebook(solved(name)))
        cell = next(cell for cell in document["cells"] if cell["cell_type"] == "code")
        cell["outputs"] = [{"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * OUTPUT}}]
        (folder.parent / Path(name).name).write_text(json.dumps(document))
    codes = [entry for entries in of_part(UNIT, SCRIPT) for entry in entries]
    for number in range(STUDENTS):
        chance, place = random.Random(number), folder / f"student{number:04}"
        for name in (*NOTEBOOKS, SCRIPT.file):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
        for name in NOTEBOOKS:
            os.link(folder.parent / Path(name).name, place / name)
        chosen = {entry["gap"]: entry["code"] for entry in chance.sample(codes, 8)}
        (place / SCRIPT.file).write_text(f"{solved(SCRIPT.file, **chosen)}# {chance.random()}\n")


def _grade(out):
    """A gradebook with a result for each student and unit, as long as those of a class are."""
    with Gradebook(out) as book, book.together():
        for number in range(STUDENTS):
            chance, one = random.Random(number), handed_in(f"student{number:04}", digest=str(number))
            store(
                book,
                one,
                [
                    _verdict(chance, unit, part, check, criterion)
                    for unit, parts in UNITS.items()
                    for part in parts
                    for check in part.checks
                    for criterion in check.criteria
                ],
            )


def _verdict(chance, unit, part, check, criterion):
    status = NOT_ATTEMPTED if part.track == "chainer" else chance.choice([PASSED, PASSED, FAILED])
    message = (
        f"after 3 steps it is {chance.random():.4f}; it should be {chance.random():.4f}, the mean over all ranks"
        if status == FAILED
        else ""
    )
    points = criterion.points if status == PASSED else 0
    output = "epoch 1, loss 0.5\n" * 20 if status == FAILED else ""
    hint = criterion.hint if status == FAILED else ""
    return Verdict(
        unit,
        part.track,
        name_of_gap(unit, part.file, check.gap),
        criterion.title,
        status,
        points,
        criterion.points,
        message,
        hint,
        output,
        0.5,
        0.4,
    )
