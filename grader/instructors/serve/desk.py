"""The data of the live pages: the gradebook in its folder, the reports that are due, and a process that grades a
student again."""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

from grader.course import UNITS
from grader.instructors import adjustments
from grader.instructors.gradebook import Gradebook, Lock
from grader.instructors.reports import PROGRESS, scores_of

EVERY = 0.5  # seconds between two checks whether reports are due
PATIENCE = 20.0  # seconds in which a grader may store its results after a request to end


class Desk:
    """The gradebook in `folder` for the live pages."""

    def __init__(self, folder, engines, trusted):
        self.folder, self._engines, self._trusted = folder, engines, trusted
        self._lock = Lock(folder)
        self._scores, self._version = [], None
        self._due, self._problem, self._ended = False, "", False
        self._regrading = self._said = None

    def scores(self):
        """Return the Scores of the class from the current gradebook."""
        with Gradebook(self.folder, writing=False) as book:
            version = book.version()
            if version != self._version:
                self._scores, self._version = scores_of(book), version
        return self._scores

    def progress(self, student=None):
        """Return the data that an open page polls: the version of its content, and the progress of a running grader."""
        with Gradebook(self.folder, writing=False) as book:
            now = {
                "version": book.version(student),
                "grader": self.grader(),
                "done": 0,
                "pieces": 0,
                "problem": self._problem_of_grading() or self._problem,
                "said": self._what_changed(),
            }
        if now["grader"]:
            with suppress(OSError, ValueError):
                now |= json.loads((self.folder / PROGRESS).read_text())
        return now

    def grader(self):
        """Return the process that grades at the moment, as a text, or None."""
        if self._regrading and self._regrading.poll() is None:
            return "a grader"
        return self._lock.owner()

    def reports_are_due(self, *_):
        self._due = True

    async def keep_reports(self):
        """Write the reports after each change on these pages."""
        while not self._ended:
            await asyncio.sleep(EVERY)
            if self._due:
                await self._write_reports()

    async def _write_reports(self):
        self._due, self._problem = False, ""
        try:
            await asyncio.to_thread(adjustments.reports_again, self.folder)
        except Exception as error:  # any error is shown, and the next attempt follows
            self._due, self._problem = True, str(error)
            await asyncio.sleep(5 * EVERY)

    def grade_again(self, student, units):
        """Start a grader for some units of one student."""
        self._said = tempfile.TemporaryFile()
        words = [
            f"--student={student}",
            *(f"--unit={unit}" for unit in units if unit in UNITS),
            f"--engines={self._engines}",
            *["--trusted"] * self._trusted,
        ]
        command = [sys.executable, "-m", "grader", "regrade", *words, "--", str(self.folder.resolve())]
        self._regrading = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._said, stderr=subprocess.STDOUT, start_new_session=True
        )

    def _what_changed(self):
        """Return what the grader that was started here has changed, if it has ended well; otherwise ""."""
        if not self._regrading or self._regrading.poll() != 0:
            return ""
        self._said.seek(0)
        lines = [line for line in self._said.read().decode(errors="replace").splitlines() if line.startswith("    ")]
        return f"Graded again: {'; '.join(map(str.strip, lines)) or 'no grade has changed'}."

    def _problem_of_grading(self):
        """Return the last line of the grader's output if it has failed, otherwise ""."""
        if not self._regrading or not self._regrading.poll():
            return ""
        self._said.seek(0)
        return (self._said.read().decode(errors="replace").strip().splitlines() or ["the grader ended silently"])[-1]

    async def end(self, keeping):
        """End the grader that was started here, and write the reports that are due. Return the message to print.
        keeping: the task of `keep_reports`."""
        self._ended = True
        if self._regrading and self._regrading.poll() is None:
            self._regrading.send_signal(signal.SIGINT)
            deadline = time.monotonic() + PATIENCE
            while self._regrading.poll() is None and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            if self._regrading.poll() is None:
                self._regrading.kill()
        await keeping
        if self._due:
            await self._write_reports()
        return (
            f"Ended. The reports are not written: {self._problem}"
            if self._due
            else "Ended. All changes that were made here are in the reports."
        )
