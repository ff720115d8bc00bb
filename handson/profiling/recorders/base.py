"""The code that all recorders share: they count a process's steps, decide when to record, and measure the overhead."""

import contextlib
import statistics
import sys
import time

from handson.training.launch import launcher_rank


class Recorder:
    """Count steps, and call `start` and `stop` around the steps to record. Subclasses override `start`, `mark`, `stop`
    and perhaps `span`."""

    def __init__(self, asked, steps_ended=0):
        self.plan, self.ended, self.state = asked, steps_ended, "before"
        self.seconds_writing = 0
        self.rank, self.size, self.moments = launcher_rank(), None, {}  # moments: number of steps ended -> perf_counter

    @property
    def last(self):
        """Return the number of the last step to record."""
        return self.plan.skip + self.plan.steps

    def step(self):
        if self.state == "after":
            return
        self.ended += 1
        self.moments[self.ended] = time.perf_counter()
        self.mark()
        if self.ended == self.plan.skip:
            self.state = "recording"
            self.start()
        elif self.ended == self.last:
            self.state = "after"
            self.stop()
        self.seconds_writing += time.perf_counter() - self.moments[self.ended]

    def start(self):
        """Start recording, after `plan.skip` steps."""

    def mark(self):
        """Mark the end of a step, and the beginning of the next one."""

    def stop(self):
        """Write the recording: step number `last` has ended, or training has ended before it."""

    def span(self, category, name):
        return contextlib.nullcontext()

    def add(self, begin, end, name, category):
        """Add an event of this thread; times in ns."""

    def unrecorded_step(self):
        """Return the median time (s) of the skipped steps without the last one, in which a tool may warm up. Return
        None if there are no such steps."""
        return self._median(2, self.plan.skip - 1)

    def _median(self, first, last):
        times = [
            self.moments[step] - self.moments[step - 1]
            for step in range(first, last + 1)
            if {step, step - 1} <= self.moments.keys()
        ]
        return statistics.median(times) if times else None

    def finish(self):
        """Write a recording that is still open at the end of the process, with fewer steps than planned; rank 0 prints
        a summary."""
        if self.state == "recording":
            self.state = "after"
            self.stop()
        if self.rank == 0 and self.moments:
            print(self.sentence(), file=sys.stderr, flush=True)

    def sentence(self):
        """Return a summary of the recording, with its overhead."""
        before, during = self.unrecorded_step(), self._median(self.plan.skip + 1, self.last)
        if during is None:
            return (
                f"Nothing was recorded: the training ended after {self.ended} steps, and the first {self.plan.skip}"
                " are skipped (--skip)"
            )
        cost = f", {1000 * before:.1f} ms before that ({100 * (during / before - 1):+.0f} %)" if before else ""
        return (
            f"Recorded {self.ended - self.plan.skip} steps in {self.plan.folder}: a step took {1000 * during:.1f}"
            f" ms{cost}"
        )
