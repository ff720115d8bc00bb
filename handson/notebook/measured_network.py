"""Measurements of a network that cannot be slowed down: its rate, and what it costs a small and a large model. Jobs
measure both."""

import json
import statistics
from pathlib import Path

from handson.cluster import network
from handson.cluster.follow import follow, submit
from handson.files import COURSE
from handson.language import speak
from handson.training import results

ON_ONE, ON_TWO = "select=1:ngpus=2:mpiprocs=2:ompthreads=1", "select=2:ngpus=2:mpiprocs=2:ompthreads=1"


def megabits(folder):
    """Return the rate at which a rank can send to a rank on another node, in Mbit/s. A job measures it, and writes its
    results to `folder`. Raises JobFailed."""
    job = submit(folder, "-j", "oe", str(COURSE / "jobs/pbs/run_network.sh"))
    follow(job)
    content = json.loads(Path(folder, f"results/network_{job.split('.')[0]}.json").read_text())
    message = content["series"][0]["times"]
    _, bytes_per_second = network.fit({int(size): statistics.median(times) for size, times in message.items()})
    return 8e-6 * bytes_per_second


def of_models(folder, track, models):
    """Train each model for an epoch on one node with two workers, and on two nodes with four. Return model -> (seconds
    per step on one node, images/s on two). Raises JobFailed."""
    found = {}
    for model in models:
        runs = []
        for nodes, select in ((1, ON_ONE), (2, ON_TWO)):
            out = f"results/models/{model}_{nodes}"
            options = f"--model {model} --size 32 -e 1 -o {out}"
            speak(f"\n{model} on {nodes} node{'s' * (nodes > 1)}")
            arguments = ("-l", select, "-j", "oe", "run_multi_node_training.sh")
            follow(submit(folder, *arguments, TRACK=track, OPTIONS=options))
            runs.append(results.read(Path(folder, out)))
        one, two = ({"images/s": run.images / run.train_seconds, "batch": run.workers * run.batchsize} for run in runs)
        found[model] = one["batch"] / one["images/s"], two["images/s"]
    return found
