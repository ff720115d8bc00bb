"""What the training script costs beyond a bare loop over the same model and images: reports, progress, data set-up."""

import contextlib
import io
import statistics
import sys
import time

from tests.bench.runs import ROOT

ROUNDS = 7


def measure(folder):
    """Rows (what, value, target). CPU seconds of the process, the two taking turns within it."""
    import torch

    from handson.pytorch import devices
    from handson.training import data, options

    sys.path.insert(0, str(ROOT / "solutions/01_single_gpu/pytorch"))
    import train_cifar_single_gpu as script

    sys.argv = ["train_cifar_single_gpu.py", "-e", "1", "-o", str(folder / "overhead")]
    args = options.parse(gpus=[0])
    args.devices = devices.describe(args.gpu)
    train_set, test_set = data.load(args.dataset)
    device = devices.use(0)

    def scripted():
        with contextlib.redirect_stdout(io.StringIO()):
            begin = time.process_time()
            script.train(args, train_set, test_set)
            return time.process_time() - begin

    def bare():
        begin = time.process_time()
        model = script.ConvNet().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
        for indices in torch.randperm(len(train_set)).split(args.batchsize):
            images = data.enlarge(train_set.images[indices].to(device), args.size)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), train_set.labels[indices].to(device)).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for start in range(0, len(test_set), args.batchsize):
                model(data.enlarge(test_set.images[start : start + args.batchsize], args.size))
        return time.process_time() - begin

    scripted(), bare()  # the first of each loads code
    pairs = [(scripted(), bare()) for _ in range(ROUNDS)]
    script_seconds, bare_seconds = map(statistics.median, zip(*pairs))
    return [("CPU seconds of an epoch, script / bare loop", f"{script_seconds / bare_seconds:.3f}", "under 1.03")]
