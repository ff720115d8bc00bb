"""Marks for nvprof and nsys: when to record, the rank of the process, and its steps (NVTX)."""

import contextlib
import sys

from handson.cluster.nodes import current_node
from handson.profiling.recorders.base import Recorder
from handson.profiling.timeline import AFTER_TRAINING


class GpuMarks(Recorder):
    """Marks for both tracks, which call NVTX and CUDA's profiler control in different ways."""

    def __init__(self, asked, track):
        super().__init__(asked, steps_ended=0 if track == "pytorch" else -1)
        if track == "pytorch":
            import torch

            from handson.profiling.recorders.torch_profiler import count_steps

            nvtx, self.profiler = torch.cuda.nvtx, torch.cuda.profiler
            self.push, self.pop, self.say = nvtx.range_push, nvtx.range_pop, nvtx.mark
            self.names = torch.autograd.profiler.emit_nvtx
            count_steps(self)
        else:
            from chainer.function_hooks import CUDAProfileHook
            from cupy.cuda import nvtx, profiler

            from handson.profiling.recorders.chainer_hooks import install_steps

            self.profiler, self.names = profiler, CUDAProfileHook
            self.push, self.pop, self.say = nvtx.RangePush, nvtx.RangePop, nvtx.Mark
            install_steps(self)
        self.open = contextlib.ExitStack()

    def start(self):
        distributed = sys.modules.get("torch.distributed")
        if distributed and distributed.is_initialized():
            self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self.profiler.start()
        self.say(f"handson: rank {self.rank} of {self.size or 1} on {current_node()}")
        self.open.enter_context(self.names())
        self.push(f"step {self.ended + 1}")

    def mark(self):
        if self.state == "recording":
            self.pop()
            if self.ended < self.last:
                self.push(f"step {self.ended + 1}")

    def stop(self):
        if self.ended < self.last:  # the last step has not ended
            self.push(AFTER_TRAINING)
            self.pop()
            self.pop()
        self.open.close()
        self.profiler.stop()

    def span(self, category, name):
        return self._span(name) if self.state == "recording" else contextlib.nullcontext()

    @contextlib.contextmanager
    def _span(self, name):
        self.push(name)
        try:
            yield
        finally:
            self.pop()
