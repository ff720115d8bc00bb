"""What a training process does while it is recorded. `python -m handson profile` says so in VARIABLE; both tracks read it.

Training scripts stay as they are: importing handson.pytorch or handson.chainer begins the recording, and those packages tell
where steps and spans are. Where nothing is recorded, all of this does nothing. No torch, no Chainer is imported from here.
"""

import atexit
import contextlib
import json
import os
import statistics
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from handson.files import written_aside
from handson.training import virtual_gpus
from handson.training.options import launcher_rank

VARIABLE = "HANDSON_PROFILE"
recorder = None  # this process's, if it is recorded


@dataclass
class Plan:
    """What to record: `steps` steps after `skip` others, with `tool` (nvprof, nsys or torch), into files in `folder`."""

    tool: str
    skip: int
    steps: int
    folder: Path

    def __str__(self):
        return f"{self.tool}:{self.skip}:{self.steps}:{self.folder}"


def plan():
    """The Plan in the environment, or None."""
    if not (text := os.environ.get(VARIABLE)):
        return None
    tool, skip, steps, folder = text.split(":", 3)
    return Plan(tool, int(skip), int(steps), Path(folder))


def begin(track):
    """Record this process, if that is asked for; called when `track` ("pytorch" or "chainer") is imported."""
    global recorder
    if recorder or not (asked := plan()):
        return
    if asked.tool != "torch":
        from handson.profiling.gpu_marks import GpuMarks

        recorder = GpuMarks(asked, track)
    elif track == "pytorch":
        from handson.profiling.torch_recorder import TorchRecorder

        recorder = TorchRecorder(asked)
    else:
        from handson.profiling.chainer_hooks import install

        recorder = OwnRecorder(asked)
        install(recorder)
    atexit.register(finish)


def step():
    """One step of training ends here, and the next begins."""
    if recorder:
        recorder.step()


def span(category, name):
    """``with span("communication", "all-reduce"):`` a span of time in a recording of our own; of the categories of `kinds`."""
    return recorder.span(category, name) if recorder else contextlib.nullcontext()


def note(category, name, begin, end):
    """A span that has been, ns."""
    if recorder and recorder.state == "recording":
        recorder.add(begin, end, name, category)


def identify(rank, size=None):
    """Tell the recording which rank this process is, where no process group does."""
    if recorder:
        recorder.rank, recorder.size = rank, size or recorder.size


def forked(rank):
    """This process was forked from one that is recorded: its steps count anew, and it is `rank`."""
    if recorder:
        recorder.ended, recorder.moments = -1, {}
    identify(rank)


def seconds_writing():
    """What this process has spent on writing a recording, which is no training."""
    return recorder.seconds_writing if recorder else 0


def finish():
    """Write what is not yet written; called where a process ends."""
    global recorder
    if recorder:
        recorder.finish()
        recorder = None


class Recorder:
    """Counts steps and tells when to record. Tools override `start`, `mark`, `stop` and perhaps `span`."""

    def __init__(self, asked, steps_ended=0):
        self.plan, self.ended, self.state = asked, steps_ended, "before"
        self.seconds_writing = 0
        self.rank, self.size, self.moments = launcher_rank(), None, {}  # moments: number of steps ended -> perf_counter

    @property
    def last(self):
        """The number of the last step to record."""
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
        """Begin to record: `plan.skip` steps have ended."""

    def mark(self):
        """A step has ended, another begins."""

    def stop(self):
        """Write the recording: step number `last` has ended, or the training before it."""

    def span(self, category, name):
        return contextlib.nullcontext()

    def add(self, begin, end, name, category):
        """An event of this thread, ns."""

    def unrecorded_step(self):
        """The median time (s) of a step before the last of those to skip, in which a tool may warm up; None if there was none."""
        return self._median(2, self.plan.skip - 1)

    def _median(self, first, last):
        times = [self.moments[step] - self.moments[step - 1] for step in range(first, last + 1) if {step, step - 1} <= self.moments.keys()]
        return statistics.median(times) if times else None

    def finish(self):
        """The process ends: write a recording that has fewer steps than were asked for, and have rank 0 say how it went."""
        if self.state == "recording":
            self.state = "after"
            self.stop()
        if self.rank == 0 and self.moments:
            print(self.sentence(), file=sys.stderr, flush=True)

    def sentence(self):
        """How the recording went, with its overhead."""
        before, during = self.unrecorded_step(), self._median(self.plan.skip + 1, self.last)
        if during is None:
            return f"Nothing was recorded: the training ended after {self.ended} steps, of which {self.plan.skip} were to be skipped (--skip)"
        cost = f", {1000 * before:.1f} ms before that ({100 * (during / before - 1):+.0f} %)" if before else ""
        return f"Recorded {self.ended - self.plan.skip} steps in {self.plan.folder}: a step took {1000 * during:.1f} ms{cost}"


class OwnRecorder(Recorder):
    """A recording of our own, for Chainer: a Chrome trace of the steps and of what `span` was told."""

    def __init__(self, asked):
        super().__init__(asked, steps_ended=-1)  # `step` is called where a step begins
        self.events, self.step_began = [], None

    def start(self):
        self.step_began = time.time_ns()

    def mark(self):
        if self.state == "recording":
            began, self.step_began = self.step_began, time.time_ns()
            self.add(began, self.step_began, f"ProfilerStep#{self.ended}", "user_annotation")

    def span(self, category, name):
        return self._span(category, name) if self.state == "recording" else contextlib.nullcontext()

    @contextlib.contextmanager
    def _span(self, category, name):
        begin = time.time_ns()
        try:
            yield
        finally:
            self.add(begin, time.time_ns(), name, category)

    def add(self, begin, end, name, category):
        """An event of this thread, ns."""
        self.events.append((begin, end, name, category, threading.get_ident()))

    def stop(self):
        events = [event for event in self.events if event[0] < self.step_began]  # the others are of a step that did not end
        base, threads = min((event[0] for event in events), default=0), {}
        facts = {
            "handson": {"unrecorded_step_seconds": self.unrecorded_step()},
            "host_name": os.uname().nodename,
            "clock": virtual_gpus.machine(),
            "distributedInfo": {"rank": self.rank, "world_size": self.size or 1},
            "baseTimeNanoseconds": base,
        }
        facts["traceEvents"] = [
            {"ph": "X", "cat": category, "name": name, "pid": os.getpid(), "tid": threads.setdefault(thread, len(threads)),
             "ts": (begin - base) / 1000, "dur": (end - begin) / 1000}
            for begin, end, name, category, thread in events
        ]  # fmt: skip
        with written_aside(self.plan.folder / f"rank{self.rank}.json") as file:
            file.write(json.dumps(facts).encode())
