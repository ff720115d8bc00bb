"""``mpiexec -n 2 -hostfile $PBS_NODEFILE python -m handson network``: measure the network between the ranks of a job.

It measures messages between two nodes, and the all-reduce of MPI and of gloo, on which data-parallel training spends
its communication time. Both are compared with the latency-bandwidth model t = alpha + n / beta for n bytes: alpha
seconds before the first byte arrives, beta bytes/s from then on (Hockney, "The communication challenge for MPP: Intel
Paragon and Meiko CS-2", Parallel Computing 20, 1994).

An all-reduce of n bytes over p ranks that passes parts around a ring takes 2 (p - 1) steps, each with n / p bytes from
every rank: t = 2 (p - 1) alpha + 2 (p - 1) / p * n / beta, and no algorithm sends fewer bytes (Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel and Distributed Computing 69, 2009).
"""

import json
import os
import socket
import statistics
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy

from handson import linux
from handson.cluster.nodes import current_node, job_nodes, meeting_address
from handson.errors import OneSentence
from handson.files import written_aside
from handson.language import speak

SIZES = [4**k for k in range(3, 13)]  # bytes: 64 B to 16 MB
LONGEST = 4  # seconds: longer messages are not measured
SHARE = 0.3  # seconds to repeat each size for: at least 3 times and at most 30
LIMIT = 1200  # seconds for the whole measurement on a busy machine; it usually takes less than 60
ONE_RANK = (
    "the network between ranks needs at least two ranks, but there is only one: submit jobs/pbs/run_network.sh, or"
    " start it with mpiexec -n 2"
)


class NetworkError(OneSentence):
    """The reason why nothing can be measured here."""


@dataclass
class Series:
    """Measured times of messages, and the model fitted to them."""

    name: str
    volume: float  # bytes that each rank has to send for a message of one byte
    times: dict  # bytes -> [seconds of each repeat]

    @property
    def medians(self):
        """Return bytes -> median seconds."""
        return {size: statistics.median(times) for size, times in self.times.items()}

    @property
    def fit(self):
        """Return (alpha in seconds, bytes/s) of t = alpha + n / rate."""
        return fit(self.medians)


def all_reduce_volume(ranks):
    """Return the bytes that each rank has to send for every byte that `ranks` ranks all-reduce: 2 (p - 1) / p."""
    return 2 * (ranks - 1) / ranks


def fit(medians):
    """Return alpha (seconds) and beta (bytes/s) of t = alpha + n / beta, with the least absolute errors in seconds.

    medians: bytes -> seconds. The long times of large messages determine beta. Small messages may behave differently,
    for example if they fit into a network buffer. So alpha is the time of the smallest message, minus its bytes /
    beta.
    """
    sizes, seconds = numpy.array(list(medians)), numpy.array(list(medians.values()))
    alpha, per_byte = seconds[0], seconds[-1] / sizes[-1]
    for _ in range(100):  # reweighted least squares: the weights follow from the last solution
        errors = abs(seconds - alpha - sizes * per_byte)
        weights = 1 / numpy.maximum(errors, 1e-3 * seconds[-1])
        per_byte = max((weights * (seconds - alpha) * sizes).sum() / (weights * sizes**2).sum(), 1e-15)
        alpha = max(seconds[0] - sizes[0] * per_byte, 0.5 * seconds[0])
    return float(alpha), float(1 / per_byte)


def network(figure, largest=SIZES[-1], say=speak):
    """Measure messages of up to `largest` bytes together with the other ranks. Rank 0 prints the results, and draws
    them as `figure`.

    The process ends here, together with the other ranks. Raises NetworkError.
    """
    world = _world()
    threading.Thread(target=_end_after, args=(LIMIT,), daemon=True).start()
    nodes = world.allgather(current_node())
    partner = next((rank for rank, node in enumerate(nodes) if node != nodes[0]), 1)
    sizes = [size for size in SIZES if size <= max(largest, SIZES[2])]
    series = [Series(f"message from rank 0 to {partner}, MPI", 1, measure(ping_pong(world, partner), sizes))]
    for name, all_reduce in ("MPI", mpi_all_reduce), ("gloo", gloo_all_reduce):
        series.append(
            Series(
                f"all-reduce over {world.size} ranks, {name}",
                all_reduce_volume(world.size),
                measure(all_reduce(world), sizes),
            )
        )
    problem = None
    if world.rank == 0:
        rate = job_nodes().get(current_node(), {}).get("rate", "none")
        for line in text(series, nodes, rate):
            say(line)
        from handson import figures  # rank 0 alone loads matplotlib

        try:
            say(figures.told(draw(series, nodes, rate, Path(figure))))
            say(f"Numbers, for python -m handson predict: {write(series, nodes, rate, Path(figure))}")
        except OneSentence as error:
            problem = error
            print(f"handson network: {problem}", file=sys.stderr)
    end_together(world, problem.status if problem else 0)


def end_together(world, status=0):
    """End this process at the same time as all ranks, with rank 0's `status`, because gloo's own teardown sometimes
    aborts a rank."""
    from mpi4py import MPI

    status = world.bcast(status)
    MPI.Finalize()
    sys.stdout.flush()
    sys.stderr.flush()
    linux.libc().exit(status)  # MPICH disconnects from mpiexec here


def _world():
    """Return MPI's communicator of all ranks. Raises NetworkError if there are no other ranks."""
    started = next(
        (int(os.environ[name]) for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS") if name in os.environ),
        1,
    )
    if started < 2:
        raise NetworkError(ONE_RANK)
    from mpi4py import MPI

    if MPI.COMM_WORLD.size < 2:
        raise NetworkError(
            f"{started} ranks were started, but each reports rank 0 of 1: python -m handson doctor gives the reason"
        )
    return MPI.COMM_WORLD


def _end_after(seconds):
    time.sleep(seconds)
    print(
        f"handson network: on {current_node()} it took more than {seconds} s, so the ranks end: python -m handson"
        " doctor looks for the reason",
        file=sys.stderr,
    )
    sys.stderr.flush()
    os._exit(1)


@dataclass
class Operation:
    """An operation to time: ``prepare(size)`` returns the function that runs it once; a message takes `share` of its
    time.

    Between two operations the ranks synchronise with `barrier`, and take the time of the slowest rank from `largest`.
    Both belong to the operation's own library, because waiting MPI ranks keep their cores busy, which gloo's threads
    need.
    """

    prepare: callable
    barrier: callable
    largest: callable
    share: float = 1


def ping_pong(world, partner):
    """Return the Operation of a message from rank 0 to `partner` and back, with MPI."""

    def prepare(size):
        buffer = numpy.ones(size, numpy.uint8)

        def run():
            if world.rank == 0:
                world.Send(buffer, partner)
                world.Recv(buffer, partner)
            elif world.rank == partner:
                world.Recv(buffer, 0)
                world.Send(buffer, 0)

        return run

    return Operation(prepare, world.Barrier, lambda seconds: max(world.allgather(seconds)), share=0.5)


def mpi_all_reduce(world):
    """Return the Operation of an all-reduce of float32 numbers over all ranks, with MPI."""

    def prepare(size):
        mine, total = numpy.ones(size // 4, numpy.float32), numpy.empty(size // 4, numpy.float32)
        return lambda: world.Allreduce(mine, total)

    return Operation(prepare, world.Barrier, lambda seconds: max(world.allgather(seconds)))


def gloo_all_reduce(world):
    """Return the same with gloo, which DistributedDataParallel uses on CPUs."""
    import torch
    import torch.distributed as dist

    limit = timedelta(seconds=40)
    torch.set_num_threads(1)
    address = world.bcast(meeting_address(world))
    if address == "127.0.0.1" and any(name == "lo" for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = (
        dist.TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=limit) if world.rank == 0 else None
    )
    port = world.bcast(store and store.port)
    store = store or dist.TCPStore(address, port, is_master=False, timeout=limit)
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size, timeout=limit)

    def prepare(size):
        values = torch.ones(size // 4)
        return lambda: dist.all_reduce(values)

    def largest(seconds):
        seconds = torch.tensor(seconds)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return float(seconds)

    return Operation(prepare, dist.barrier, largest)


def measure(operation, sizes):
    """Return bytes -> [seconds of each repeat on the slowest rank]. All ranks get the same numbers, so all run the same
    number of repeats."""
    times = {}
    for size in sizes:
        run = operation.prepare(size)

        def once():
            operation.barrier()
            begin = time.perf_counter()
            run()
            return operation.largest(time.perf_counter() - begin) * operation.share

        first = once()  # includes one-time costs such as connections, so it does not count
        times[size] = [once() for _ in range(min(30, max(3, round(SHARE / first))))]
        if 4 * statistics.median(times[size]) > LONGEST:
            break
    return times


def write(series, nodes, rate, figure):
    """Write the measured times next to the figure, as .json, and return the path. Raises NetworkError."""
    path = figure.with_suffix(".json")
    content = {
        "ranks": len(nodes),
        "nodes": len(set(nodes)),
        "rate": rate,
        "series": [{"name": one.name, "times": one.times} for one in series],
    }
    try:
        with written_aside(path) as file:
            file.write(json.dumps(content).encode() + b"\n")
    except OSError as error:
        raise NetworkError(f"{path} cannot be written ({error.strerror}): give another place with -o") from None
    return path


def text(series, nodes, rate):
    """Return the results as lines: the measured connection, a table of times, and the fitted models next to the
    ring's."""
    messages, *reduces = series
    latency, bandwidth = messages.fit
    where = f"{len(nodes)} ranks on {', '.join(f'{node} ({nodes.count(node)})' for node in dict.fromkeys(nodes))}"
    chosen = f"; each node's network is limited to {rate}" if rate != "none" else ""
    if len(set(nodes)) == 1:
        chosen = "; on one node they use its memory, not a network"
    sizes = [size for size in SIZES if any(size in one.times for one in series)]
    rows = [("size", *(f"{name} [ms]" for name in ("message", "MPI all-reduce", "gloo all-reduce", "ring, in theory")))]
    ranks = len(nodes)
    for size in sizes:
        ring = 2 * (ranks - 1) * latency + all_reduce_volume(ranks) * size / bandwidth
        rows.append(
            (
                readable(size),
                *(f"{one.medians[size] * 1000:.3f}" if size in one.times else "-" for one in series),
                f"{ring * 1000:.3f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows)]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]
    lines = [where + chosen, "", *table, "", "t = alpha + n / beta, fitted to the medians:"]
    for one in series:
        alpha, rate_of_message = one.fit
        lines.append(
            f"  {one.name}: alpha {alpha * 1000:.3f} ms, beta {mbit(rate_of_message)}"
            + (
                f"; each rank sends {one.volume:.3g} n, so its network carries {mbit(rate_of_message * one.volume)}"
                if one in reduces
                else ""
            )
        )
    return lines + [
        "ring, in theory: 2 (p - 1) alpha + 2 (p - 1) / p * n / beta, with alpha and beta of the message (Patarasuk and"
        " Yuan, 2009)"
    ]


def readable(size):
    """Return, for example, "1 KB" for 1024, in powers of 1024."""
    return f"{size // 2**20} MB" if size >= 2**20 else f"{size // 2**10} KB" if size >= 2**10 else f"{size} B"


def mbit(rate):
    """Return bytes/s in words, such as "94 Mbit/s"."""
    megabits = rate * 8 / 1e6
    return f"{megabits / 1000:.3g} Gbit/s" if megabits >= 1000 else f"{megabits:.3g} Mbit/s"


def draw(series, nodes, rate, path):
    """Draw the times and the resulting bandwidths against the message size, as `path` with the suffixes .png and .svg,
    and return both paths."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    from handson import figures
    from handson.cluster.virtual_nodes import bits_per_second

    drawing, left, right = figures.axes(10, 4.6, columns=2)
    drawing.get_layout_engine().set(wspace=0.06)
    where = f"{len(nodes)} ranks on {len(set(nodes))} node{'s' * (len(set(nodes)) > 1)}"
    drawing.suptitle(where + (f", network {rate}" if rate != "none" else ""), fontsize="medium")
    for one, style in zip(series, figures.SERIES):
        alpha, beta = one.fit
        grid = numpy.geomspace(min(one.times), max(one.times), 100)
        model = alpha + grid / beta
        label = f"{one.name}\nmodel: {alpha * 1000:.2g} ms + n / ({mbit(beta)})"
        for axes, curve, value in (
            (left, model * 1000, lambda size, seconds: seconds * 1000),
            (right, one.volume * grid * 8 / 1e6 / model, lambda size, seconds: one.volume * size * 8 / 1e6 / seconds),
        ):
            points = [(size, value(size, seconds)) for size, times in one.times.items() for seconds in times]
            medians = [(size, value(size, seconds)) for size, seconds in one.medians.items()]
            axes.plot(grid, curve, **style | {"marker": "", "linewidth": 1.3})
            small = dict(markersize=2.5, alpha=0.35, markeredgewidth=0, markerfacecolor=style["color"])
            axes.plot(*zip(*points), **style | small | {"linestyle": ""})
            axes.plot(*zip(*medians), **style | {"linestyle": "", "markersize": 6.5, "markeredgewidth": 1.3})
        left.plot([], [], **style, label=label)
    if bits := bits_per_second(rate):
        right.axhline(bits / 1e6, color="0.4", linewidth=1)
        at = dict(xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points")
        right.annotate(f"rate: {rate}", (0.02, bits / 1e6), fontsize="small", color="0.3", **at)
    left.set(ylabel="time [ms]")
    right.set(ylabel="bandwidth that each rank gets [Mbit/s]")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="size of the message [bytes]")
        axes.xaxis.set_major_locator(FixedLocator(SIZES[::2]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: readable(int(size))))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    left.set_ylim(top=20 * left.get_ylim()[1])  # leaves room for the legend
    left.legend(loc="upper left", fontsize="small", edgecolor="none", labelspacing=0.8)
    return figures.save(drawing, path, describe(series, where, rate))


def describe(series, where, rate):
    """Return a description of the figure for people who cannot see it."""
    sentences = [f"Time and bandwidth against message size, {where}, network {rate}."]
    for one in series:
        alpha, beta = one.fit
        sentences.append(f"{one.name}: {alpha * 1000:.2g} ms plus the bytes at {mbit(beta)}.")
    return " ".join(sentences)
