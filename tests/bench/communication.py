"""Task 3 at each rate of the network between its two nodes: where communication becomes the limit; and what the unit on
communication wins back.

Every step all-reduces the gradients over 4 ranks, of which each sends 2 (p - 1) / p = 1.5 of their bytes (Patarasuk and
Yuan, 2009); round a ring, as much leaves each node. That takes 1.5 * bytes * 8 / rate seconds at least. It is the limit
where that is longer than a step takes without any limit; there, the throughput must fall. The gradients of the course's
network are small (0.3 MB), so it gets there at some 20mbit with images of 256 px, and at 100mbit with small images,
whose steps are shorter while the gradients are the same.
"""

import os
import statistics
import sys

from handson.cluster.network import all_reduce_volume
from handson.cluster.virtual_nodes import bits_per_second
from handson.notebook import runs as of_student
from handson.notebook.communication import seconds_to
from handson.training.results import read
from tests.bench.nodes import job
from tests.bench.runs import ROOT, rate

RATES = ("none", "10gbit", "1gbit", "100mbit", "20mbit", "5mbit")
EPOCHS_AT = {256: 2, 32: 4}  # pixels -> epochs, so that there is something to measure
RANKS, SELECT = 4, "2:ngpus=2:mpiprocs=2:ompthreads=1"
SCRIPT = ROOT / "solutions/03_multi_node/pytorch/train_cifar_multi_node.py"
UNIT = ROOT / "solutions/05_communication/pytorch"
TWO_NODES = "2:ngpus=1:mpiprocs=1:ompthreads=1"
SEEDS, EPOCHS, ACCURACY = 3, 7, 0.91
TURNS = 5  # of methods whose times are compared
HOOKS = (
    "plain",
    "float16",
    "1-bit",
    "1-bit-without-feedback",
    "top-1-percent",
    "powersgd",
    "double-buffering",
    "float16-double-buffering",
)
STEPS = 12  # in an epoch of 1,500 images, of which two ranks take 64 each
SELDOM = ("local-sgd-4", "local-sgd-12", "block-momentum-4")
# script, methods, ranks
METHODS = (("train_hooks", HOOKS, 2), ("train_local_sgd", SELDOM, 2), ("train_parameter_server", ("asynchronous",), 4))
FEW_BYTES = ("1-bit", "top-1-percent", "local-sgd-12")
PAYLOAD = {  # bytes that a node sends in a step to the only other one, of n parameters
    "plain": lambda n: 4 * n,
    "float16": lambda n: 2 * n,
    "1-bit": lambda n: n / 8 + 4,
    "top-1-percent": lambda n: 8 * round(n / 100),
}
RING = f"""
import argparse, sys
sys.path.insert(0, {str(UNIT)!r})
import torch.distributed as dist
from all_reduce import ring
from handson.pytorch import all_reduces
from handson.pytorch.communicator import gloo_group
with gloo_group(argparse.Namespace(gpu=None, patience=60)) as comm:
    for round in range(3):
        for name, all_reduce in ("ring", ring), ("gloo", dist.all_reduce):
            seconds = all_reduces.timed(name, all_reduce, 6_250_000, comm)["seconds"]
            if comm.rank == 0:
                print(name, seconds)
"""


def measure(folder):
    """Rows (what, value, target)."""
    os.environ["HANDSON_PBS_HOME"] = str(folder / "pbs")
    sent = all_reduce_volume(RANKS) * _gradient_bytes()
    rows = [("bytes that each node has to send in each step", f"{sent:,.0f}", "")]
    for size in EPOCHS_AT:
        speeds, steps = {}, {}
        for network in RATES:
            run = _training(folder, network, size)
            speeds[network], steps[network] = rate(run), run.workers * run.batchsize / rate(run)
        computation = steps["none"]
        for network in RATES:
            note = f"step {steps[network] * 1000:.0f} ms"
            if bits := bits_per_second(network):
                least = sent * 8 / bits
                note += f", communication at least {least * 1000:.1f} ms, {least / steps[network]:.0%} of it"
                if least > computation:
                    note += f"; it is the limit: {speeds[network] / speeds['none']:.2f} of none, to be under 0.8"
            rows.append((f"images/s of task 3 at {size} px, network {network}", f"{speeds[network]:.0f}", note))
        rows.append(
            (
                f"Mbit/s below which communication is the limit at {size} px",
                f"{sent * 8 / computation / 1e6:.0f}",
                "by the bytes, and the step without a limit",
            )
        )
    return rows + _methods(folder) + _ring(folder) + _overlap(folder)


def _methods(folder):
    """Rows about the methods of the unit's notebook, at one slow network. Each seed is a round with all methods, and
    without a limit."""
    slow, fast, at = {}, {}, None
    for seed in range(SEEDS):
        _add(fast, _unit(folder, "train_hooks", ("plain",), "none", seed))
        at = at or _slow_network(fast["plain"][0])
        for script, methods, ranks in METHODS:
            _add(slow, _unit(folder, script, methods, at, seed, ranks=ranks))

    def share(method, of=fast):
        """The median over the rounds of a method's throughput, as a share of plain's."""
        return statistics.median(
            of_student.rate(one) / of_student.rate(other) for one, other in zip(slow[method], of["plain"])
        )

    rows = [(f"throughput of plain at {at}, of that without a limit", f"{share('plain'):.2f}", "at most 0.45")]
    rows.append(
        (
            "throughput of float16-double-buffering, of plain",
            f"{share('float16-double-buffering', slow):.2f}",
            "at least 2.2",
        )
    )
    shares = {method: share(method) for method in FEW_BYTES}
    rows += [
        (
            f"throughput of {method}, of plain without a limit",
            f"{value:.2f}",
            f"the best at least 0.9: {max(shares.values()):.2f}",
        )
        for method, value in shares.items()
    ]
    for method, payload in PAYLOAD.items():
        first, last = slow[method][0].log[0], slow[method][0].log[-1]
        steps = STEPS * (last["epoch"] - first["epoch"])
        counted, formula = (last["bytes"] - first["bytes"]) / steps, _on_the_wire(payload(_parameters()))
        rows.append(
            (
                f"bytes that a node sends in a step, {method}",
                f"{counted:,.0f}",
                f"{counted / formula:.2f} of the formula with headers, {formula:,.0f}: 0.9 to 1.1",
            )
        )
    reached = {method: [seconds_to(run, ACCURACY) or float("inf") for run in runs] for method, runs in slow.items()}
    plain = statistics.median(reached["plain"])
    for method, seconds in reached.items():
        middle, words = (
            statistics.median(seconds),
            ", ".join(f"{one:.2f}" if one < float("inf") else "never" for one in seconds),
        )
        rows.append(
            (
                f"seconds to an accuracy of {ACCURACY}, {method}",
                f"{middle:.2f}",
                f"seeds: {words}" + f"; {plain / middle:.2f} times sooner than plain" * (middle < float("inf")),
            )
        )
    best = min(map(statistics.median, reached.values()))
    return [*rows, ("how many times sooner than plain the best method is there", f"{plain / best:.2f}", "at least 3")]


def _slow_network(plain):
    """The network on which the gradients take three times as long as a step without a limit, of which backward hides
    some: plain should get to a third of its throughput, and sending half the bytes meanwhile to twice or three times
    plain's."""
    step = plain.images / plain.epochs / STEPS / of_student.rate(plain)
    return f"{_on_the_wire(PAYLOAD['plain'](_parameters())) * 8 / (3 * step) / 1e6:.0f}mbit"


def _on_the_wire(payload):
    """Bytes of Ethernet frames: 66 of headers on every 1,448 bytes, and 66 of acknowledgement for every two frames that
    arrive."""
    frames = -(-payload // 1448)
    return payload + 66 * frames + 66 * frames / 2


def _parameters():
    from handson.pytorch.model import WideNet

    return sum(parameter.numel() for parameter in WideNet().parameters())


def _add(runs, more):
    for method, of_method in more.items():
        runs.setdefault(method, []).extend(of_method)


def _unit(folder, script, methods, network, seed, more=f"--epoch {EPOCHS}", ranks=2):
    """{method: [Result]} of a script of the unit on two nodes."""
    out = folder / f"{script}_{network}_{seed}"
    options = f"--method {' '.join(methods)} --seed {seed} {more} -o {out}"
    job(
        folder,
        f'mpiexec -n {ranks} -hostfile "$PBS_NODEFILE" python {UNIT}/{script}.py {options}',
        network,
        TWO_NODES if ranks == 2 else SELECT,
    )
    return of_student.of_methods(out)


def _ring(folder):
    (folder / "ring.py").write_text(RING)
    out = job(folder, f'PYTHONPATH={ROOT} mpiexec -n 2 -hostfile "$PBS_NODEFILE" python ring.py', "1gbit", TWO_NODES)
    seconds = {
        name: [float(words[1]) for words in map(str.split, out.splitlines()) if words[0] == name]
        for name in ("ring", "gloo")
    }
    ratio = statistics.median(ring / gloo for ring, gloo in zip(seconds["ring"], seconds["gloo"]))
    return [
        (
            "seconds of the ring from scratch for 25 MB at 1gbit, of gloo's",
            f"{ratio:.2f}",
            f"at most 1.3; {statistics.median(seconds['ring']):.3f} s",
        )
    ]


def _overlap(folder):
    """What data parallel from scratch hides of its all-reduces, as a share of what DistributedDataParallel hides: the
    methods take turns."""
    methods = ("one-bucket", "600-KB", "torch-ddp")
    runs = _unit(folder, "train_data_parallel", methods, "100mbit", 0, f"--seeds {TURNS} --epoch 2 --batchsize 50")
    steps = zip(*([1 / of_student.rate(run) for run in runs[method]] for method in methods))
    hidden = [(one - ours) / (one - ddp) for one, ours, ddp in steps]
    words = ", ".join(f"{share:.2f}" for share in hidden)
    return [
        (
            "what overlap from scratch hides, of what DistributedDataParallel hides",
            f"{statistics.median(hidden):.2f}",
            f"at least 0.8; the turns: {words}",
        )
    ]


def _gradient_bytes():
    sys.path.insert(0, str(SCRIPT.parent))
    import train_cifar_multi_node as script

    return sum(4 * parameter.numel() for parameter in script.get_model("convnet", 10).parameters())


def _training(folder, network, size):
    """The Result of task 3."""
    out = folder / f"task3_{size}_{network}"
    command = (
        f'mpiexec -n {RANKS} -hostfile "$PBS_NODEFILE" python {SCRIPT} -e {EPOCHS_AT[size]} --size {size} -o {out}'
    )
    job(folder, command, network, SELECT)
    return read(out)
