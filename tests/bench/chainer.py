"""The Chainer track: two workers against two independent runs, and what double buffering and float16 gain on a slow
network.

HANDSON_BENCH_NETWORK is the rate of that network (20mbit, or none for one as fast as it goes).
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

from handson.cluster import virtual_nodes
from handson.training.results import read
from tests.bench.runs import LIMIT, SCRIPTS, finish, rate, start

ROUNDS = 3
EPOCH = ["-e", "1"]
SMALLER = ["--size", "128"]  # over a slow network; the gradients stay as large as they are
SITE = """
queue = "lecture"
[machine]
nodes = 2
gpus = 1  # so that the two nodes lie on two cores
ncpus = 1
"""
WAYS = {
    "float32": [],
    "float16": ["--allreduce-grad-dtype", "float16"],
    "float32, double buffering": ["--double-buffering"],
    "float16, double buffering": ["--allreduce-grad-dtype", "float16", "--double-buffering"],
}


def measure(folder):
    """Rows (what, value, target). What is compared takes turns, so that all see the same machine."""
    return workers(folder) + network(folder)


def workers(folder):
    """Two workers, of ChainerMN and of MultiprocessParallelUpdater, against the limit: two runs that know nothing of
    each other."""
    ratios = {"ChainerMN over MPI": [], "MultiprocessParallelUpdater": []}
    for turn in range(ROUNDS):
        at = folder / f"chainer_{turn}"
        pair = (
            start("single_gpu", at / name, "-g", gpu, *EPOCH, track="chainer") for name, gpu in (("a", "0"), ("b", "1"))
        )
        limit = sum(rate(run) for run in finish(*pair))
        for name, task, launcher in (
            ("ChainerMN over MPI", "multi_node", ["mpiexec", "-n", "2"]),
            ("MultiprocessParallelUpdater", "multi_gpu", []),
        ):
            (run,) = finish(start(task, at / task, *EPOCH, track="chainer", launcher=launcher))
            ratios[name].append(rate(run) / limit)
    return [
        (
            f"{name}, 2 workers / 2 independent runs, training iterations",
            f"{statistics.median(values):.3f}",
            "at least 0.85",
        )
        for name, values in ratios.items()
    ]


def network(folder):
    """Two nodes with a worker each, as batch jobs of the embedded PBS: blocking and double-buffered, float32 and
    float16."""
    asked = os.environ.get("HANDSON_BENCH_NETWORK", "20mbit")
    why_not = virtual_nodes.why_not()
    speed = f"unlimited ({why_not})" if why_not else asked
    rates = {way: [] for way in WAYS}
    for turn in range(ROUNDS):
        for way in WAYS:
            rates[way].append(
                rate(batch_job(folder / f"network_{turn}_{way.replace(', ', '_').replace(' ', '_')}", asked, WAYS[way]))
            )
    medians = {way: statistics.median(values) for way, values in rates.items()}
    rows = [("rate of the network between the two nodes", speed, "")]
    rows += [(f"images/s of 2 nodes with a worker each: {way}", f"{median:.1f}", "") for way, median in medians.items()]
    for dtype in ("float32", "float16"):
        gain = statistics.median(
            double / single for double, single in zip(rates[f"{dtype}, double buffering"], rates[dtype])
        )
        rows.append((f"double buffering / blocking, {dtype}", f"{gain:.2f}", "above 1 on a slow network"))
    return rows


def batch_job(out, network_rate, options):
    """The Result of a job of two nodes with `options`, in the new folder `out`."""
    out.mkdir()
    (out / "site.toml").write_text(SITE)
    script = SCRIPTS["multi_node", "chainer"]
    (out / "job.sh").write_text(f"""#!/bin/bash
#PBS -l select=2:ngpus=1:mpiprocs=1:ompthreads=1
#PBS -l place=scatter
export PATH="$PBS_O_PATH"
eval "$(handson-launcher)"
mpiexec -n 2 -hostfile "$PBS_NODEFILE" python "{script}" -o "{out}" {" ".join(EPOCH + SMALLER + options)}
""")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HANDSON_PBS_HOME": str(out.parent / "pbs"),
        "HANDSON_SITE": str(out / "site.toml"),
        "HANDSON_NETWORK": network_rate,
    }
    command = ["qsub", "-W", "block=true", "-j", "oe", "-N", "network", "job.sh"]
    done = subprocess.run(command, cwd=out, env=environment, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        printed = "".join(path.read_text() for path in out.glob("network.o*"))
        sys.exit(f"the job in {out} failed with status {done.returncode}: {done.stderr}{printed}")
    return read(out)
