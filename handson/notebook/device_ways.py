"""Time training steps in different ways on one GPU or core: data types, memory formats, batch sizes, CUDA graphs; and
ways to copy a batch to a GPU.

Notebooks 01_single_gpu and 04_profiling call it. As in `measure`, a separate process measures.
"""

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from handson import figures
from handson.figures import picture
from handson.language import speak
from handson.notebook import measure
from handson.pytorch.model import get_model
from handson.training import data
from handson.training.options import usual_model

WARM_UP, STEPS, PROFILED = 5, 20, 3  # steps
ON_A_CORE = {
    "convnet": {},
    "convnet, channels last": {"channels_last": True},
    "convnet, bfloat16": {"bfloat16": True},
    "convnet, batch 128": {"batchsize": 128},
}


@dataclass
class Way:
    """The measurements of one way to run a step. busy: the share of time in which kernels run; memory: the peak in
    bytes; both are None on a core."""

    images: float  # a second
    busy: float | None = None
    memory: int | None = None

    def words(self):
        found = f"{self.images:,.0f} images/s"
        return (
            found if self.busy is None else f"{found}, GPU at work {100 * self.busy:.0f} %, {self.memory / 1e9:.1f} GB"
        )


def on_a_gpu(large):
    """Return name -> options of `_way`, for a network whose launches take longer than its kernels, and a `large`
    one."""
    half = {"model": large, "bfloat16": True}
    return {
        "convnet": {},
        "convnet, a CUDA graph": {"graph": True},
        "convnet, batch 256": {"batchsize": 256},
        f"{large} without TF32": {"model": large, "tf32": False},
        large: {"model": large},
        f"{large}, bfloat16": half,
        f"{large}, bfloat16, channels last": half | {"channels_last": True},
        f"{large}, bfloat16, channels last, batch 128": half | {"channels_last": True, "batchsize": 128},
    }


def ways(size=256):
    """Return name -> Way: measurements of several ways to run a step on this machine's GPU, or on one core. Ways that
    do not fit the GPU's memory are left out."""
    return measure.on_gpus(_ways, size)[0]


def _ways(device, rank, workers, size):
    if device.type == "cpu":
        wanted = ON_A_CORE
    else:
        large = usual_model()
        wanted = on_a_gpu("resnet18" if large == "convnet" else large)
    found = {}
    for number, (name, options) in enumerate(wanted.items()):
        try:
            found[name] = _way(device, size, **options)
        except torch.OutOfMemoryError:
            speak(f"{name} is left out: it needs more memory than this GPU has")
        measure.done((number + 1) / len(wanted))
    return found


def _way(device, size, model="convnet", batchsize=32, bfloat16=False, channels_last=False, tf32=True, graph=False):
    """Return the Way of steps with these options. The images are already on the device."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    train_set, _ = data.load("digits")
    torch.manual_seed(0)
    model = get_model(model, len(train_set.classes)).to(device)
    images = data.enlarge(train_set.images[:batchsize].to(device), size)
    labels = train_set.labels[:batchsize].to(device)
    if channels_last:
        model, images = (thing.to(memory_format=torch.channels_last) for thing in (model, images))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def step():
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    if device.type == "cpu":
        return Way(batchsize / _seconds(step, device, warm_up=2, steps=5))
    torch.cuda.reset_peak_memory_stats(device)
    step = _as_graph(step, optimizer) if graph else step
    seconds = _seconds(step, device, WARM_UP, STEPS)
    return Way(batchsize / seconds, _kernel_seconds(step, device) / seconds, torch.cuda.max_memory_allocated(device))


def _as_graph(step, optimizer):
    """Return a function that starts all kernels of a step with one launch. PyTorch requires some ordinary steps before,
    in a separate stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _seconds(step, device, warm_up, steps):
    """Return the mean seconds per step."""
    for _ in range(warm_up):
        step()
    begin = measure.now()
    for _ in range(steps):
        step()
    return (measure.now() - begin) / steps


def _kernel_seconds(step, device):
    """Return the seconds in which kernels run in a step, according to PyTorch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize(device)
    on_gpu = [event for event in profile.events() if event.device_type.name == "CUDA"]
    return sum(event.time_range.elapsed_us() for event in on_gpu) / 1e6 / PROFILED


def copies(size=256, batchsize=32):
    """Return name -> seconds of a step that also copies a batch to the GPU, for several ways to copy, or {} without a
    GPU."""
    return measure.on_gpus(_copies, size, batchsize)[0] if torch.cuda.is_available() else {}


def _copies(device, rank, workers, size, batchsize):
    model = get_model(usual_model(), 10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    pageable = torch.rand(batchsize, 3, size, size), torch.randint(10, (batchsize,))
    pinned = tuple(part.pin_memory() for part in pageable)
    on_device = tuple(part.to(device) for part in pageable)
    found = {}
    for name, batch, non_blocking in (
        ("no copy: the batch is there", on_device, False),
        ("pageable memory", pageable, False),
        ("pinned memory", pinned, False),
        ("pinned memory, non_blocking", pinned, True),
    ):

        def step():
            images, labels = (part.to(device, non_blocking=non_blocking) for part in batch)
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()

        found[name] = _seconds(step, device, WARM_UP, STEPS)
        measure.done(len(found) / 4)
    return found


def show(found):
    """Draw a bar for each Way of `found` (name -> Way), with its measurements."""
    drawing, axes = figures.axes(7.5, 0.42 * len(found) + 0.9)
    names = list(found)
    for place, way in zip(itertools.count(), found.values()):
        axes.barh(place, way.images, height=0.6, color="0.75", edgecolor="black")
        axes.annotate(
            way.words(), (way.images, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize="small"
        )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    room = 2 if any(way.busy is not None for way in found.values()) else 1.3  # the longest bar ends in words
    axes.set(xlabel="throughput [images/s]", xlim=(0, room * max(way.images for way in found.values())))
    return picture(drawing, "; ".join(f"{name}: {way.words()}" for name, way in found.items()) + ".")
