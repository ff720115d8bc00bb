"""Replicas in threads, as torch.nn.DataParallel has them, and in processes: measured for the notebook 07_frameworks."""

import functools
import json
import subprocess
import sys

from handson import figures
from handson.words import aligned

ROUNDS, LIMIT = 3, 300  # of which the best one counts; seconds for all of them
WORDS = {"tiny": "21 tiny layers", "convolutions": "convolutions"}


@functools.cache
def measured(rounds=ROUNDS):
    """{"tiny" or "convolutions": {"rates": {"1 thread", "2 threads", "2 processes": steps/s of all replicas}, "step":
    (its seconds, [(begin, end) of each operation])}}, measured in a process of its own, once."""
    command = [sys.executable, "-m", "handson.pytorch.thread_times", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    return json.loads(done.stdout)


def step(kind):
    """One step of one replica: (its seconds, [(begin, end) of each operation, seconds since the step's begin])."""
    return measured()[kind]["step"]


def compared(seconds_in_python, threads_speedup):
    """The picture of what two replicas gain over one; and a table beside what the student's two functions expect of
    threads."""
    from matplotlib.figure import Figure

    rows, gains = [], {}
    for kind, words in WORDS.items():
        found = measured()[kind]
        seconds, operations = found["step"]
        python = seconds_in_python(seconds, operations)
        gains[kind] = [found["rates"][name] / found["rates"]["1 thread"] for name in ("2 threads", "2 processes")]
        numbers = [
            1000 * python,
            1000 * (seconds - python),
            *(threads_speedup(python, seconds - python, number) for number in (8, 2)),
            *gains[kind],
        ]
        rows.append((words, *(f"{number:.2f}" for number in numbers)))
    print(
        "\n".join(
            aligned(
                (
                    "a step of",
                    "ms of Python",
                    "ms in kernels",
                    "8 threads at best",
                    "2 threads at best",
                    "2 threads, measured",
                    "2 processes, measured",
                ),
                rows,
            )
        )
    )
    drawing = Figure(figsize=(6, 3.2), layout="constrained")
    axes = drawing.subplots()
    for place, (name, hatch) in enumerate((("2 threads", "//"), ("2 processes", ""))):
        axes.bar(
            [kind + 0.4 * place for kind in range(len(WORDS))],
            [gains[kind][place] for kind in WORDS],
            0.35,
            label=name,
            hatch=hatch,
            edgecolor="white",
        )
    axes.axhline(2, color="0.5", linestyle="--", label="ideal")
    axes.set(xticks=[0.2, 1.2], xticklabels=list(WORDS.values()), ylabel="speed-up over one replica")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, fontsize="small", edgecolor="none")
    words = "; ".join(
        f"{WORDS[kind]}: 2 threads {two:.2f} times one replica, 2 processes {both:.2f}"
        for kind, (two, both) in gains.items()
    )
    return figures.picture(drawing, f"Speed-up of two replicas in threads and in processes. {words}.")
