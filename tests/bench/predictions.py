"""Predictions of many workers against runs on virtual nodes; `scaling` shows their speed, and how far they are from
published tables.

On the virtual nodes, ranks sleep for measured steps of one worker instead of computing (python -m handson rehearse), as
16 workers need 16 cores otherwise; their all-reduces are real. The model is fitted to one worker and to two at one
rate, and then also to a measurement of the network between two nodes. It predicts 4, 8 and 16 workers at three rates,
and with float16 and double buffering. The simulator's ranks sleep for what the real ones slept.
"""

import os
import resource
import statistics
import subprocess
import sys
import time

import numpy

from handson.scaling import measured_runs, message_times, model, published, rehearse, simulate
from handson.training.results import Result, write
from tests.bench.nodes import job
from tests.bench.runs import ROOT

FITTED_AT = "50mbit"
CASES = [(workers, rate, "") for rate in ("20mbit", "50mbit", "200mbit") for workers in (4, 8, 16)]
CASES += [(8, "20mbit", "--double-buffering"), (16, "20mbit", "--dtype float16"), (16, "50mbit", "--double-buffering")]
RANKS, BUCKETS = 4096, 100
STEPS = 30
SITE = """queue = "lecture"
group = "gt00"
mpi = "environment"
kill_delay = 10
[machine]
nodes = 16
gpus = 2
ncpus = 2
network = "none"
"""


def measure(folder):
    """Rows (what, value, target)."""
    return virtual_nodes(folder)


def quick(folder):
    """Rows that need no runs: the speed of the predictor and of the simulator, and the published tables."""
    one, two = one_worker(folder / "one"), one_worker(folder / "two", workers=2)
    words = ["predict", one, two, "--workers", "1,2,...,512", "--network", "25gbit", "-o", folder / "prediction.png"]
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "handson", *map(str, words)], stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, "predict failed, see above"
    rows = [
        ("seconds of python -m handson predict for 512 workers", f"{time.perf_counter() - begin:.2f}", "under 2"),
        ("  CPU seconds; MB of memory", f"{used.ru_utime + used.ru_stime:.2f}", f"{used.ru_maxrss / 1024:.0f} MB"),
    ]
    topology = simulate.Topology(
        message_times.Cluster(message_times.Link(1e-5, 3e9), message_times.Link(1e-6, 1e11), 8),
        RANKS,
        nodes_per_switch=16,
        oversubscription=4,
    )
    ready = simulate.backward(numpy.random.default_rng(0).uniform(1, 1.1, RANKS), BUCKETS)
    for algorithm in simulate.ALGORITHMS:
        begin = time.perf_counter()
        simulate.step(topology, [1e6] * BUCKETS, ready, algorithm)
        rows.append(
            (
                f"seconds to simulate {RANKS} ranks and {BUCKETS} buckets, {algorithm}",
                f"{time.perf_counter() - begin:.2f}",
                "under 10",
            )
        )
    rows.append(
        ("MB of memory of this process then", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}", "")
    )
    errors = [abs(row.error) for row in published.table()]
    return [
        *rows,
        (
            "median error of the rows of published tables",
            f"{statistics.median(errors):.1%}",
            f"at most 10 %; {sum(error <= 0.1 for error in errors)} of {len(errors)} rows are",
        ),
    ]


def one_worker(folder, workers=1):
    """The folder of a run of ConvNet's size, whose steps are drawn from one distribution."""
    random = numpy.random.default_rng(workers)
    steps = (0.09 + 0.02 * random.gamma(2, 0.5, (200, workers)).max(axis=1) + 0.002 * (workers > 1)).round(6).tolist()
    seconds = sum(steps)
    write(
        Result(
            unit="single_gpu",
            script="train_cifar_single_gpu",
            track="pytorch",
            profiled=False,
            workers=workers,
            nodes=1,
            device="virtual GPUs",
            dataset="digits",
            size=256,
            batchsize=32,
            epochs=1,
            seed=0,
            images=200 * 32 * workers,
            seconds=seconds,
            train_seconds=seconds,
            steps=steps,
            parameters=71_690,
        ),
        folder,
    )
    return folder


def virtual_nodes(folder):
    """Rows of predicted and measured steps on virtual nodes."""
    os.environ["HANDSON_PBS_HOME"] = str(folder / "pbs")
    (folder / "site.toml").write_text(SITE)
    before = os.environ.get("HANDSON_SITE")
    os.environ["HANDSON_SITE"] = str(folder / "site.toml")
    try:
        one = one_worker(folder / "one")
        two = rehearsed(folder, one, 2, FITTED_AT)
        job(
            folder,
            'mpiexec -n 2 -hostfile "$PBS_NODEFILE" python -m handson network -o network.png --largest 1',
            FITTED_AT,
            "2:ngpus=1:mpiprocs=1:ompthreads=1",
        )
        return compared([one, two], folder / "network.json", [(case, rehearsed(folder, one, *case)) for case in CASES])
    finally:
        del os.environ["HANDSON_SITE"]
        if before is not None:
            os.environ["HANDSON_SITE"] = before


def rehearsed(folder, one, workers, rate, options=""):
    """The folder of a rehearsal on as many nodes as workers."""
    out = folder / f"{workers}_{rate}{options.replace(' ', '')}"
    command = (
        f'mpiexec -n {workers} -hostfile "$PBS_NODEFILE" python -m handson rehearse {one} --steps {STEPS} -o {out}'
        f" {options}"
    )
    job(folder, command, rate, f"{workers}:ngpus=1:mpiprocs=1:ompthreads=1")
    return out


def compared(fitted_to, measured, cases):
    """Rows of predicted, simulated and measured steps. cases: ((workers, rate, options), folder of the run); measured:
    the network's, for a second fit."""
    found, _, _ = measured_runs.read(fitted_to)
    fits = {
        "1 and 2 workers": model.fit(found),
        "also the network": model.fit(found, measured_runs.read([measured])[1]),
    }
    rows, errors = [], {name: [] for name in (*fits, "simulated")}
    for (workers, rate, options), folder in cases:
        plan = model.Plan(
            message_times.rate(rate), 1, "ring", "float16" if "float16" in options else "float32", "double" in options
        )
        [run], _, _ = measured_runs.read([folder])
        words = []
        for name, fitted in fits.items():
            step = model.predict(fitted, workers, plan).step
            middle, (low, high) = numpy.median(step), numpy.quantile(step, model.BAND)
            errors[name].append(abs(middle / run.step - 1))
            words.append(
                f"{name} {1000 * middle:.1f} ({1000 * low:.1f} to {1000 * high:.1f}), {middle / run.step - 1:+.1%}"
            )
        if "double" not in options:
            found_by = simulated(found[0].result, fits["1 and 2 workers"], workers, plan)
            errors["simulated"].append(abs(found_by / run.step - 1))
            words.append(f"simulated {1000 * found_by:.1f}, {found_by / run.step - 1:+.1%}")
        rows.append(
            (f"ms a step of {workers} workers at {rate} {options}".rstrip(), f"{1000 * run.step:.1f}", "; ".join(words))
        )
    return rows + [
        (f"median error on virtual nodes, {name}", f"{statistics.median(found):.1%}", "at most 10 %")
        for name, found in errors.items()
    ]


def simulated(one, fitted, workers, plan):
    """Seconds of a step in which the simulator's ranks sleep for what the real ones slept, with the fitted overhead and
    latency."""
    link = message_times.Link(float(numpy.median(fitted.latency)), plan.rate)
    topology = simulate.Topology(message_times.Cluster(link), workers)
    sleeps = numpy.array([rehearse.schedule(one, STEPS + rehearse.WARM_UP, rank) for rank in range(workers)])
    now, ends = numpy.zeros(workers), []
    for of_step in sleeps.T:
        now = simulate.all_reduce(
            topology, fitted.parameters * message_times.DTYPES[plan.dtype], now + of_step
        ) + float(numpy.median(fitted.overhead))
        ends.append(now[0])
    return float(numpy.diff(ends[rehearse.WARM_UP - 1 :]).mean())
