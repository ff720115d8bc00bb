"""Task 3 at each rate of the network between its two nodes: where communication becomes the limit.

Every step all-reduces the gradients over 4 ranks, of which each sends 2 (p - 1) / p = 1.5 of their bytes (Patarasuk and Yuan, 2009);
round a ring, as much leaves each node. That takes 1.5 * bytes * 8 / rate seconds at least. It is the limit where that is longer than a
step takes without any limit; there, the throughput must fall. The gradients of the course's network are small (0.3 MB), so it gets there
at some 20mbit with images of 256 px, and at 100mbit with small images, whose steps are shorter while the gradients are the same.
"""

import os
import sys

from handson.cluster.network import all_reduce_volume
from handson.cluster.virtual_nodes import bits_per_second
from handson.training.results import read
from tests.bench.nodes import job
from tests.bench.runs import ROOT, rate

RATES = ("none", "10gbit", "1gbit", "100mbit", "20mbit", "5mbit")
EPOCHS = {256: 2, 32: 4}  # pixels -> epochs, so that there is something to measure
RANKS, SELECT = 4, "2:ngpus=2:mpiprocs=2:ompthreads=1"
SCRIPT = ROOT / "solutions/03_multi_node/pytorch/train_cifar_multi_node.py"


def measure(folder):
    """Rows (what, value, target)."""
    os.environ["HANDSON_PBS_HOME"] = str(folder / "pbs")
    sent = all_reduce_volume(RANKS) * _gradient_bytes()
    rows = [("bytes that each node has to send in each step", f"{sent:,.0f}", "")]
    for size in EPOCHS:
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
        rows.append((f"Mbit/s below which communication is the limit at {size} px", f"{sent * 8 / computation / 1e6:.0f}", "by the bytes, and the step without a limit"))
    return rows


def _gradient_bytes():
    sys.path.insert(0, str(SCRIPT.parent))
    import train_cifar_multi_node as script

    return sum(4 * parameter.numel() for parameter in script.ConvNet().parameters())


def _training(folder, network, size):
    """The Result of task 3."""
    out = folder / f"task3_{size}_{network}"
    command = f'mpiexec -n {RANKS} -hostfile "$PBS_NODEFILE" python {SCRIPT} -e {EPOCHS[size]} --size {size} -o {out}'
    job(folder, command, network, SELECT)
    return read(out)
