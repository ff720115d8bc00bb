"""The recorders of a training process: PyTorch's profiler, the course's own trace for Chainer, and marks for nvprof and
nsys, which record from outside the process.

`begin` chooses one of them; handson.pytorch and handson.chainer call it when they are imported.
"""

import atexit

from handson.profiling import recording


def begin(track):
    """Record this process, if the environment asks for it. track: "pytorch" or "chainer"."""
    if recording.recorder or not (asked := recording.plan()):
        return
    if asked.tool != "torch":
        from handson.profiling.recorders.gpu_marks import GpuMarks

        recording.recorder = GpuMarks(asked, track)
    elif track == "pytorch":
        from handson.profiling.recorders.torch_profiler import TorchRecorder

        recording.recorder = TorchRecorder(asked)
    else:
        from handson.profiling.recorders.chainer_hooks import install
        from handson.profiling.recorders.own_trace import OwnRecorder

        recording.recorder = OwnRecorder(asked)
        install(recording.recorder)
    atexit.register(recording.finish)
