"""What the training script costs beyond a bare loop over the same model and images: reports, progress, data set-up; and
what counting memory costs."""

import contextlib
import io
import math
import statistics
import sys
import time

from tests.bench.runs import ROOT

ROUNDS = 7


def measure(folder):
    """Rows (what, value, target). CPU seconds of the process, or seconds on a GPU; the ways take turns within it."""
    import torch

    from handson.pytorch import devices
    from handson.training import data, gpu_memory, options

    sys.path.insert(0, str(ROOT / "solutions/01_single_gpu/pytorch"))
    import train_cifar_single_gpu as script

    sys.argv = ["train_cifar_single_gpu.py", "-e", "1", "-o", str(folder / "overhead")]
    args = options.parse(gpus=[0])
    args.devices = devices.describe(args.gpu)
    train_set, test_set = data.load(args.dataset)
    device = devices.use(0)

    def now():
        devices.wait_for_gpu()
        return time.process_time() if device.type == "cpu" else time.perf_counter()

    def scripted():
        with contextlib.redirect_stdout(io.StringIO()):
            begin = now()
            script.train(args, train_set, test_set)
            return now() - begin

    def bare():
        begin = now()
        model = script.get_model(args.model, len(train_set.classes)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
        for indices in torch.randperm(len(train_set)).split(args.batchsize):
            images = data.enlarge(train_set.images[indices].to(device), args.size)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), train_set.labels[indices].to(device)).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for start in range(0, len(test_set), args.batchsize):
                model(data.enlarge(test_set.images[start : start + args.batchsize].to(device), args.size))
        return now() - begin

    def counted():
        gpu_memory.limit = math.inf
        try:
            return scripted()
        finally:
            gpu_memory.limit = None

    ways = scripted, bare, counted
    for way in ways:  # the first of each loads code
        way()
    script_seconds, bare_seconds, counted_seconds = (
        statistics.median(seconds) for seconds in zip(*([way() for way in ways] for _ in range(ROUNDS)))
    )
    kind = "CPU seconds" if device.type == "cpu" else "seconds"
    return [
        (f"{kind} of an epoch, script / bare loop", f"{script_seconds / bare_seconds:.3f}", "under 1.03"),
        (
            f"{kind} of an epoch, with --gpu-memory / without",
            f"{counted_seconds / script_seconds:.3f}",
            "off unless asked for",
        ),
    ]
