"""The other systems at one and two workers, beside the PyTorch track; each against two independent runs of itself, and
against the loop that its documentation shows. Needs `make frameworks`. HANDSON_BENCH_SIZE is the images' side in
pixels, HANDSON_BENCH_TURNS how often all is measured.
"""

import os
import statistics
import subprocess
import sys

from handson import frameworks
from handson.notebook import other_frameworks
from tests.bench import runs

UNIT = runs.ROOT / "solutions/07_frameworks"
SIZE, EPOCHS = os.environ.get("HANDSON_BENCH_SIZE", "256"), "2"
WORDS = ("-e", EPOCHS, "--size", SIZE)
TURNS = int(os.environ.get("HANDSON_BENCH_TURNS", 3))  # of which the medians count
AT_LEAST = 0.95  # of the documented loop's images/s
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
ALONE = {  # a script for one GPU, whose id follows -g
    "PyTorch": "01_single_gpu/pytorch/train_cifar_single_gpu.py",
    "TensorFlow": "07_frameworks/tensorflow/train_cifar_single_gpu.py",
    "Lightning": "07_frameworks/lightning/train_cifar_lightning.py",
    "Accelerate": "07_frameworks/accelerate/train_cifar_accelerate.py",
    "JAX": "07_frameworks/jax/train_cifar_shard_map.py",
}
TOGETHER = {  # (system, how), script, what starts it
    ("PyTorch", "DataParallel"): ("07_frameworks/pytorch/train_cifar_data_parallel.py", ()),
    ("PyTorch", "DistributedDataParallel"): ("02_multi_gpu/pytorch/train_cifar_multi_gpu.py", ()),
    ("TensorFlow", "MirroredStrategy"): ("07_frameworks/tensorflow/train_cifar_mirrored.py", ()),
    ("TensorFlow", "MultiWorkerMirroredStrategy"): (
        "07_frameworks/tensorflow/train_cifar_multi_worker.py",
        ("mpiexec", "-n", "2", sys.executable),
    ),
    ("Lightning", "ddp"): ("07_frameworks/lightning/train_cifar_lightning.py", ()),
    ("Accelerate", "ddp"): ("07_frameworks/accelerate/train_cifar_accelerate.py", TORCHRUN),
    ("JAX", "shard_map"): ("07_frameworks/jax/train_cifar_shard_map.py", ()),
    ("JAX", "two processes"): (
        "07_frameworks/jax/train_cifar_multi_process.py",
        ("mpiexec", "-n", "2", sys.executable),
    ),
}


def measure(folder):
    """Rows (what, value, target)."""
    if problem := frameworks.why_not():
        return [(problem, "-", "")]
    nodes = folder / "nodes"
    nodes.write_text("localhost\nlocalhost\n")
    os.environ["PBS_NODEFILE"] = str(nodes)
    single, double, both, first, documented = ({} for _ in range(5))
    for turn in range(TURNS):
        for system, script in ALONE.items():
            [one] = _run(folder / f"{system}_{turn}", [(script, (), ("-g", "0"))])
            documented.setdefault(system, []).append(_documented(system))
            pair = _run(folder / f"{system}_pair_{turn}", [(script, (), ("-g", gpu)) for gpu in "01"])
            single.setdefault(system, []).append(other_frameworks.steady(one))
            double.setdefault(system, []).append(sum(map(other_frameworks.steady, pair)))
            first.setdefault(system, []).append(one.log[0].get("first_step", 0.0))
        for key, (script, launcher) in TOGETHER.items():
            words = () if launcher else ("-g", "0,1")
            [two] = _run(folder / f"{key[0]}_{key[1]}_{turn}", [(script, launcher, words)])
            both.setdefault(key, []).append(other_frameworks.steady(two))
    rows = [
        (f"images/s of {system}, one worker", f"{statistics.median(rates):.0f}", "") for system, rates in single.items()
    ]
    for system, rates in documented.items():
        share = statistics.median(ours / theirs for ours, theirs in zip(single[system], rates))
        rows.append(
            (
                f"images/s of {system}, of its documented loop's {statistics.median(rates):.0f}",
                f"{share:.2f}",
                f"at least {AT_LEAST}",
            )
        )
    rows += [
        (f"seconds of the first step of {system}", f"{statistics.median(seconds):.2f}", "")
        for system, seconds in first.items()
        if max(seconds)
    ]
    for (system, how), rates in both.items():
        rows.append((f"images/s of {system}, {how}, two workers", f"{statistics.median(rates):.0f}", ""))
        share = statistics.median(rate / limit for rate, limit in zip(rates, double[system]))
        rows.append((f"{system}, {how}: of two independent runs of {system}", f"{share:.2f}", ""))
    return rows


def _run(out, scripts):
    """The Results of scripts that run at the same time; scripts: (script, what starts it, its options)."""
    started = []
    for number, (script, launcher, words) in enumerate(scripts):
        command = [
            *(launcher or (sys.executable,)),
            str(runs.ROOT / "solutions" / script),
            "-o",
            str(out / str(number)),
            *WORDS,
            *words,
        ]
        started.append(
            (subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), out / str(number))
        )
    return runs.finish(*started)


def _documented(system):
    """images/s of the loop of tests.bench.documented."""
    command = [sys.executable, "-m", "tests.bench.documented", system.lower(), SIZE, EPOCHS]
    done = subprocess.run(command, cwd=runs.ROOT, capture_output=True, text=True, timeout=runs.LIMIT, check=True)
    return float(done.stdout.split()[-1])
