"""``python -m grader estimate --record``: grades a class of known answers and keeps what it cost, for machines that
have graded nothing yet."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from grader import exercises
from grader.course import UNITS, ready
from grader.instructors.grade import estimate, remembered, speed, work
from grader.instructors.grade.grading import grade
from grader.instructors.known_answers import of_part, solved
from grader.instructors.release import notebook
from grader.probes import loaded_for
from handson.files import COURSE, written_aside

WRONG = 3  # wrong answers to each file, which cost more than right ones: their gaps run a second time


def record(say, units=None):
    """Grade a class that hands in solutions, wrong answers and untouched files of `units` (all that are ready), and
    write remembered.REFERENCE.

    What REFERENCE has of other units stays. Other programs change the result little: it consists of CPU seconds. The
    overhead alone follows from the clock, and is kept as it was where the machine is busy.
    """
    with TemporaryDirectory(prefix="handson-record-") as folder, state_in(Path(folder) / "state"):
        hand_in(Path(folder) / "class", units or ready(), 2 * WRONG)
        hand_in_untouched(Path(folder) / "class" / "untouched", units or ready())
        grade(Path(folder) / "class", Path(folder) / "graded", units=units, say=say)
        new = remembered.of_this_machine()
    new["loading"] = loading_seconds(units or ready())
    new["spin"] = min(new["spin"], speed.here()[1] or new["spin"])
    say(keep(new))


def keep(new):
    """Write what is known `new`, beside what REFERENCE has of other kinds and libraries. Returns what was done, in
    words."""
    names, before = {estimate.name(kind) for kind in all_kinds()}, remembered.read_reference()
    pieces, loading = before["pieces"] | new["pieces"], before["loading"] | new["loading"]
    pieces = {name: pieces[name] for name in sorted(names & set(pieces))}
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps([[round(seconds, 3) for seconds in cost] for cost in some])}"
        for name, some in pieces.items()
    )
    head = ", ".join(
        [*(f'"{name}": {new[name]:.4g}' for name in remembered.NUMBERS), f'"loading": {json.dumps(loading)}']
    )
    with written_aside(remembered.REFERENCE) as file:
        file.write(f'{{{head},\n"pieces": {{\n{lines}\n}}}}\n'.encode())
    return f"{remembered.REFERENCE}: {len(pieces)} of {len(names)} kinds of checks; {len(new['pieces'])} are new."


def loading_seconds(units):
    """{the last of the modules that are loaded for some files of `units`: CPU seconds}."""
    found = {}
    for libraries in {loaded_for([part.file]) for unit in units for part in UNITS[unit]}:
        process = subprocess.Popen(
            [sys.executable, "-c", f"from grader.sandbox.server import load; load({libraries})"], cwd=COURSE
        )
        _, _, used = os.wait4(process.pid, 0)
        found[libraries[-1]] = round(used.ru_utime + used.ru_stime, 2)
    return found


def all_kinds():
    """The kinds of all pieces that there can be."""
    parts = [(unit, number, part) for unit, of_unit in UNITS.items() for number, part in enumerate(of_unit)]
    return [
        (unit, number, gaps, *untouched)
        for unit, number, part in parts
        for _, gaps in work.by_ranks(part)
        for untouched in ((), ("untouched",))
    ]


def hand_in(folder, units, students):
    """Write the files of `students` students, student000 and so on: in turns the solution, and one of its wrong
    answers."""
    for unit in units:
        for part in UNITS[unit]:
            wrong = of_part(unit, part)[0]
            wrong = [
                solved(part.file, **{one["gap"]: one["code"]}) for one in wrong[:: max(1, 2 * len(wrong) // students)]
            ]
            for number in range(students):
                write(
                    folder / f"student{number:03}" / part.file,
                    wrong[number // 2 % len(wrong)] if number % 2 else solved(part.file),
                )


def hand_in_untouched(folder, units):
    """Write the files of `units` as they were given out."""
    for unit in units:
        for part in UNITS[unit]:
            write(folder / part.file, exercises.given_out(part.file).text)


def write(path, text):
    """Write a file that is handed in; a notebook is given as its text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook(text) if path.suffix == ".ipynb" else text)


@contextmanager
def state_in(folder):
    """In a `with`: nothing is remembered of earlier gradings, and what is remembered then is in `folder`."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("XDG_STATE_HOME")
        if before is not None:
            os.environ["XDG_STATE_HOME"] = before
