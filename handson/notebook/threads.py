"""Replicas in threads, as torch.nn.DataParallel has them, and in processes: measured for the notebook 07_frameworks.

On a machine without GPUs DataParallel silently trains the model alone, so what it is made of is measured: a replica of the model in each thread.
"""

import subprocess
import sys

from handson import figures

ROUNDS, LIMIT = 3, 300  # of which the best one counts; seconds for all of them
WORDS = {"tiny": "21 tiny layers", "convolutions": "convolutions"}
PROGRAM = """
import json, os, sys, threading, time
import torch, torch.nn as nn, torch.nn.functional as F
import torch.multiprocessing as mp
torch.set_num_threads(1)
KINDS = {
    "tiny": (lambda: nn.Sequential(*[nn.Linear(32, 32) for _ in range(20)], nn.Linear(32, 10)), (16, 32), 150),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(4), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)), (16, 3, 64, 64), 20),
}
def steps(kind, number):
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
    number = KINDS[kind][2]
    workers = [threading.Thread(target=go, args=(number,)) for go in [steps(kind, number) for _ in range(workers)]]
    begin = time.perf_counter()
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    return len(workers) * number / (time.perf_counter() - begin)
def in_process(kind, barrier, spans):
    torch.set_num_threads(1)
    go = steps(kind, 0)
    barrier.wait(60)
    begin = time.perf_counter()
    go(KINDS[kind][2])
    spans.put((begin, time.perf_counter()))
def in_processes(kind, workers):
    context = mp.get_context("fork")
    barrier, spans = context.Barrier(workers), context.Queue()
    started = [context.Process(target=in_process, args=(kind, barrier, spans), daemon=True) for _ in range(workers)]
    for one in started: one.start()
    found = [spans.get(timeout=120) for _ in started]
    for one in started: one.join(60)
    return workers * KINDS[kind][2] / (max(end for _, end in found) - min(begin for begin, _ in found))
found = {kind: {} for kind in KINDS}
for _ in range(int(sys.argv[1])):
    for kind, of_kind in found.items():
        for name, rate in (("2 processes", in_processes(kind, 2)), ("1 thread", in_threads(kind, 1)), ("2 threads", in_threads(kind, 2))):
            of_kind[name] = max(of_kind.get(name, 0), rate)
print(json.dumps(found))
"""


def measure(rounds=ROUNDS):
    """{"tiny" or "convolutions": {"1 thread", "2 threads", "2 processes": steps/s of all replicas}}, measured in a process of its own."""
    import json

    done = subprocess.run([sys.executable, "-c", PROGRAM, str(rounds)], capture_output=True, text=True, timeout=LIMIT, check=True)
    return json.loads(done.stdout)


def measured(rounds=ROUNDS):
    """The picture of what `measure` found: the speed-up of two replicas over one."""
    from matplotlib.figure import Figure

    found = measure(rounds)
    speedups = {kind: [of_kind[name] / of_kind["1 thread"] for name in ("2 threads", "2 processes")] for kind, of_kind in found.items()}
    drawing = Figure(figsize=(6, 3.2), layout="constrained")
    axes = drawing.subplots()
    for place, (name, hatch) in enumerate((("2 threads", "//"), ("2 processes", ""))):
        axes.bar([kind + 0.4 * place for kind in range(len(WORDS))], [speedups[kind][place] for kind in WORDS], 0.35, label=name, hatch=hatch, edgecolor="white")
    axes.axhline(2, color="0.5", linestyle="--", label="ideal")
    axes.set(xticks=[0.2, 1.2], xticklabels=list(WORDS.values()), ylabel="speed-up over one replica")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize="small", edgecolor="none")
    words = "; ".join(f"{WORDS[kind]}: 2 threads {two:.2f} times one replica, 2 processes {both:.2f}" for kind, (two, both) in speedups.items())
    print(words)
    return figures.picture(drawing, f"Speed-up of two replicas in threads and in processes. {words}.")
