"""Recording with torch.profiler: a Chrome trace for each rank. A step lasts from one optimizer.step to the next, so
scripts need no marks."""

import json

import numpy
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from handson.files import written_aside
from handson.profiling.recorders.base import Recorder
from handson.profiling.timeline import AFTER_TRAINING
from handson.training import virtual_gpus

MEMORY = 16 * 2**20  # bytes per recorded step


def _touch_memory(length):
    """Allocate memory from the kernel and free it, so that it stays with this process (see
    virtual_gpus.keep_freed_memory).

    The profiler's small blocks would occupy the memory of a step's large arrays, which would then need new pages.
    Without this function, page faults (4,096 in a step of single_gpu) make a recorded step 10 % longer; with it, 1 %.
    """
    numpy.ones(length, numpy.uint8)


def count_steps(recorder):
    """Make `recorder` count the steps of the first optimizer that runs one. (An iteration may include steps of several
    optimizers.)"""
    first = None

    def stepped(optimizer, arguments, options):
        nonlocal first
        first = first or optimizer
        if optimizer is first:
            recorder.step()

    register_optimizer_step_post_hook(stepped)


class TorchRecorder(Recorder):
    """torch.profiler warms up in the last step to skip."""

    def __init__(self, asked):
        super().__init__(asked)
        self.profiler = None
        count_steps(self)

    def mark(self):
        if self.ended == self.plan.skip - 1 and not torch.cuda.is_available():
            _touch_memory(MEMORY * min(self.plan.steps, 20))
        if self.profiler:
            self.profiler.step()
            if self.ended == self.plan.skip:
                self.profiler.add_metadata_json("unrecorded_step_seconds", json.dumps(self.unrecorded_step()))
                self.profiler.add_metadata_json("clock", json.dumps(virtual_gpus.machine()))
            return
        if dist.is_initialized():
            self.rank, self.size = dist.get_rank(), dist.get_world_size()
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        when = schedule(wait=self.plan.skip - 2, warmup=1, active=self.plan.steps, repeat=1)
        self.profiler = profile(activities=activities, schedule=when, on_trace_ready=self._write, acc_events=True)
        self.profiler.start()

    def span(self, category, name):
        return record_function(name)

    def stop(self):
        if self.ended < self.last:
            with record_function(AFTER_TRAINING):  # the profiler counts the following events as one more step
                pass
        self.profiler.stop()

    def _write(self, profiler):
        with written_aside(self.plan.folder / f"rank{self.rank}.json") as file:
            profiler.export_chrome_trace(file.name)
