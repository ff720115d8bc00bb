"""Published tables that are older than this course. Each row is predicted without that row: from the other rows, or
from named facts on the hardware.

`table` returns all rows, including those that the model predicts wrongly. docs/scaling.md has the table, the sources
and the reasons.
"""

from dataclasses import dataclass

import numpy

from handson.scaling.message_times import Cluster, Link, hierarchical

# bytes of gradients in float32 (torchvision's resnet50; He, Zhang, Ren, Sun, arXiv 1512.03385)
RESNET_50 = 4 * 25_557_032
FDR = Link(2e-6, 54.5e9 / 8)  # InfiniBand FDR 4x: 14.0625 Gbit/s on each of 4 lanes, of which 64/66 are data
PCIE = Link(1e-5, 12e9)  # PCIe 3.0 x16: 15.75 GB/s, of which copies get about 12
# images/s of ResNet-50 with batch 30 on a Maxwell TITAN X (github.com/knjcode/mxnet-finetuner, docs/benchmark.md)
TITAN_X = 109.98

# workers -> images/s; batch 32 each
LECTURE = {1: 10_000 / 195.6037125121802, 2: 10_000 / 114.11609242390841, 4: 10_000 / 58.09866848913953}
CHAINERMN = 0.78  # efficiency of 128 GPUs
EKS = {  # (instance, table) -> workers -> iterations/s; the batch of 32 images is divided among the workers
    ("p2", "plain"): {2: 0.3347, 4: 0.4565, 8: 0.8147},
    ("p3", "plain"): {2: 1.5555, 4: 1.7036, 8: 1.7719},
    ("p3", "placement group"): {2: 1.5474, 4: 1.8987, 8: 1.8405},
    ("p2", "float16, double buffering"): {2: 0.36025, 4: 0.53916, 8: 1.5635},
    ("p3", "float16, double buffering"): {2: 1.6732, 4: 2.9366, 8: 4.0316},
}
# seconds
START = {
    "input": 0.5,
    "compute p2": 5.0,
    "compute p3": 0.8,
    "network p2": 0.3,
    "network p3": 0.3,
    "network p3 placement group": 0.3,
}
TRIALS, STARTS = 3000, 4  # each search tries this many points, from this many starts


@dataclass(frozen=True)
class Row:
    """One number of a published table, and its prediction."""

    table: str
    workers: int
    measured: float
    predicted: float
    unit: str
    source: str  # the rows or facts from which it was predicted

    @property
    def error(self):
        """The relative error of the prediction."""
        return self.predicted / self.measured - 1


def eks_step(seconds, instance, table, workers):
    """Return the seconds of an iteration of the SSD training on `workers` instances.

    seconds: name -> seconds of a whole batch on one instance, as in START. With N workers, loading and computing take 1
    / N of it; a ring takes 2 (N - 1) / N of the gradients' time in one direction. Two processes load the next batch at
    the same time, so the longer of both counts (chainercv, examples/ssd: batchsize // comm.size, n_processes=2). With
    double buffering, so does the longer of computation and network.
    """
    loading, compute = seconds["input"] / workers, seconds[f"compute {instance}"] / workers
    name = f"network {instance}" + " placement group" * (table == "placement group")
    network = seconds[name] * 2 * (workers - 1) / workers
    if "double buffering" in table:
        return max(loading, compute, network / 2)
    return max(loading, compute + network)


def fit_eks(rows):
    """Return the seconds of START that fit rows (instance, table, workers, iterations/s) best: the least sum of
    relative errors, found by random searches."""
    names = list(START)

    def cost(logarithms):
        seconds = dict(zip(names, numpy.exp(logarithms)))
        return sum(abs(numpy.log(eks_step(seconds, *row[:3]) * row[3])) for row in rows)

    _, best = min(
        (_search(cost, numpy.log(list(START.values())), seed) for seed in range(STARTS)), key=lambda found: found[0]
    )
    return dict(zip(names, map(float, numpy.exp(best))))


def _search(cost, best, seed):
    """Return (least cost, its arguments) of a search with steps in random directions, which grow after a success and
    shrink after a failure."""
    random, least, width = numpy.random.default_rng(seed), cost(best), 0.5
    for _ in range(TRIALS):
        tried = best + width * random.standard_normal(len(best)) * (random.random(len(best)) < 0.4)
        if (found := cost(tried)) < least:
            best, least, width = tried, found, width * 1.5
        else:
            width = max(width * 0.99, 1e-3)
    return least, best


def eks():
    """Return the Rows of the EKS tables, each predicted with the parameters that fit the other 14 rows best."""
    rows = [(*key, workers, rate) for key, of_table in EKS.items() for workers, rate in of_table.items()]
    found = []
    for row in rows:
        seconds = fit_eks([other for other in rows if other is not row])
        found.append(
            Row(
                f"EKS {row[0]}, {row[1]}",
                row[2],
                row[3],
                1 / eks_step(seconds, *row[:3]),
                "iterations/s",
                "the other 14 rows of EKS",
            )
        )
    return found


def lecture():
    """Return the Rows of the lecture, Reedbush-H with two GPUs per node: the messages of its hierarchical communicator
    between nodes take 2 % of a step."""
    step = {workers: 32 * workers / rate for workers, rate in LECTURE.items()}
    inside = hierarchical(RESNET_50, 2, Cluster(FDR, PCIE, 2))
    between = hierarchical(RESNET_50, 4, Cluster(FDR, PCIE, 2)) - inside
    predicted = {1: step[2] - inside, 2: step[4] - between, 4: step[2] + between}
    source = {1: "the row of 2 and PCIe", 2: "the row of 4 and InfiniBand FDR", 4: "the row of 2 and InfiniBand FDR"}
    return [
        Row("lecture", workers, LECTURE[workers], 32 * workers / predicted[workers], "images/s", source[workers])
        for workers in LECTURE
    ]


def chainermn():
    """Return the Row of 128 GPUs: 32 nodes with four TITAN X each and InfiniBand FDR, ResNet-50, batch 32 on each GPU
    (Chainer's blog, 8 February 2017)."""
    compute = 32 / TITAN_X
    step = compute + hierarchical(RESNET_50, 128, Cluster(FDR, PCIE, 4))
    return [
        Row("ChainerMN", 128, CHAINERMN, compute / step, "efficiency", "hardware alone: TITAN X, PCIe, InfiniBand FDR")
    ]


def table():
    """Return all Rows."""
    return lecture() + chainermn() + eks()


def text(rows):
    """Return the rows as lines of aligned text, with the median of the errors."""
    cells = [("table", "workers", "measured", "predicted", "error", "predicted from")]
    cells += [
        (
            row.table,
            str(row.workers),
            f"{row.measured:.4g} {row.unit}",
            f"{row.predicted:.4g}",
            f"{100 * row.error:+.1f} %",
            row.source,
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
    return [*lines, f"median error {100 * numpy.median([abs(row.error) for row in rows]):.1f} %"]
