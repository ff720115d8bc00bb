"""Time steps of a small network in one thread, in two threads and in two processes, and divide one step into
operations.

``python -m handson.pytorch.thread_times ROUNDS`` prints lines of JSON: the share of the work that is done, repeatedly,
and finally the best rates of all rounds. handson.notebook.other_frameworks starts it as a process, since a process
cannot change the number of torch's threads twice.
"""

import itertools
import json
import sys
import threading
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

# prefixes of operations that compute without Python's lock; others, such as optimizers, are Python
OPERATIONS = ("aten::", "autograd::")
STEPS = 20  # the profiled step with the median length counts


def tiny():
    return nn.Sequential(*[nn.Linear(32, 32) for _ in range(20)], nn.Linear(32, 10))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


# the network, its input's shape, steps to time
KINDS = {"tiny": (tiny, (16, 32), 150), "convolutions": (convolutions, (16, 3, 64, 64), 20)}


def steps(kind):
    """Return a function that runs a given number of steps of its own network."""
    make, shape, _ = KINDS[kind]
    model, images, labels = make(), torch.randn(shape), torch.randint(0, 10, shape[:1])
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def go(count):
        for _ in range(count):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()

    go(3)
    return go


def in_threads(kind, workers):
    """Return the steps/s of all threads together."""
    number = KINDS[kind][2]
    threads = [threading.Thread(target=go, args=(number,)) for go in [steps(kind) for _ in range(workers)]]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return workers * number / (time.perf_counter() - begin)


def in_process(kind, barrier, spans):
    torch.set_num_threads(1)
    go = steps(kind)
    barrier.wait(60)
    begin = time.perf_counter()
    go(KINDS[kind][2])
    spans.put((begin, time.perf_counter()))


def in_processes(kind, workers):
    """Return the steps/s of all processes together."""
    context = mp.get_context("fork")
    barrier, spans = context.Barrier(workers), context.Queue()
    started = [context.Process(target=in_process, args=(kind, barrier, spans), daemon=True) for _ in range(workers)]
    for one in started:
        one.start()
    found = [spans.get(timeout=120) for _ in started]
    for one in started:
        one.join(60)
    return workers * KINDS[kind][2] / (max(end for _, end in found) - min(begin for begin, _ in found))


def profiled(kind):
    """Return (seconds of a step, [(begin, end) of each of its operations, in seconds since the step began]). Operations
    are nested."""
    go, spans = steps(kind), []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(STEPS):
            with torch.profiler.record_function("step"):
                go(1)
    events = [(event.name, event.time_range.start, event.time_range.end) for event in profile.events()]
    spans = sorted(((begin, end) for name, begin, end in events if name == "step"), key=lambda span: span[1] - span[0])
    first, last = spans[len(spans) // 2]
    inside = sorted(
        (begin, end) for name, begin, end in events if name.startswith(OPERATIONS) and first <= begin and end <= last
    )
    return (last - first) / 1e6, [((begin - first) / 1e6, (end - first) / 1e6) for begin, end in inside]


def main():
    torch.set_num_threads(1)
    rounds = int(sys.argv[1])
    work = len(KINDS) * (3 * rounds + 1)  # measurements
    made = itertools.count(1)

    def rate(measure, *arguments):
        """Run a measurement, print the share of the work that is done, and return the result."""
        found = measure(*arguments)
        print(json.dumps(next(made) / work), flush=True)
        return found

    # first: a process with threads is not forked
    rates = {kind: {"2 processes": max(rate(in_processes, kind, 2) for _ in range(rounds))} for kind in KINDS}
    for kind, of_kind in rates.items():
        turns = [[rate(in_threads, kind, threads) for threads in (1, 2)] for _ in range(rounds)]
        of_kind |= dict(zip(("1 thread", "2 threads"), map(max, zip(*turns))))
    print(json.dumps({kind: {"rates": rates[kind], "step": profiled(kind)} for kind in KINDS}), flush=True)


if __name__ == "__main__":
    main()
