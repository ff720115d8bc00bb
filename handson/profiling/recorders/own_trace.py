"""A recorder for Chainer, which has no profiler that writes traces."""

import contextlib
import json
import os
import threading
import time

from handson.files import written_aside
from handson.profiling.recorders.base import Recorder
from handson.training import virtual_gpus


class OwnRecorder(Recorder):
    """Record a Chrome trace of the steps, and of the calls of `span` and `add`."""

    def __init__(self, asked):
        super().__init__(asked, steps_ended=-1)  # `step` is called at the start of a step here
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
        """Add an event of this thread; times in ns."""
        self.events.append((begin, end, name, category, threading.get_ident()))

    def stop(self):
        # later events belong to a step that did not end
        events = [event for event in self.events if event[0] < self.step_began]
        base, threads = min((event[0] for event in events), default=0), {}
        facts = {
            "handson": {"unrecorded_step_seconds": self.unrecorded_step()},
            "host_name": os.uname().nodename,
            "clock": virtual_gpus.machine(),
            "distributedInfo": {"rank": self.rank, "world_size": self.size or 1},
            "baseTimeNanoseconds": base,
        }
        facts["traceEvents"] = [
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": os.getpid(),
                "tid": threads.setdefault(thread, len(threads)),
                "ts": (begin - base) / 1000,
                "dur": (end - begin) / 1000,
            }
            for begin, end, name, category, thread in events
        ]
        with written_aside(self.plan.folder / f"rank{self.rank}.json") as file:
            file.write(json.dumps(facts).encode())
