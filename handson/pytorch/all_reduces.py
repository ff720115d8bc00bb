"""Time all-reduces that are written from scratch (unit communication), after each was checked and counted."""

import argparse
import json
import sys
import time

import torch
import torch.distributed as dist

from handson.errors import OneSentence
from handson.files import written_aside
from handson.language import speak
from handson.profiling import usage
from handson.pytorch import messages
from handson.pytorch.communicator import gloo_group
from handson.training import identity, launch, options, progress

SIZES = [4**power for power in range(2, 12)]  # numbers of 4 bytes: 64 B to 16 MB
SHARE = 0.2  # seconds for the repetitions of one size
WRONG = 1e-4  # relative; each algorithm adds float32 in another order


class WrongSum(OneSentence):
    """An all-reduce returns another result than the sum."""


def measure(algorithms):
    """Run a script of all-reduces: time each of `algorithms` (name -> function of a tensor), and write all_reduce.json.

    The file contains {"ranks": N, "nodes": their number, "usage": a Usage, "rows": [{"algorithm", "bytes", "seconds"
    (the shortest; of the slowest rank), "messages", "sent" (bytes; both per rank)}]}. A wrong sum ends all ranks with a
    sentence.
    """
    parser = options.OneSentenceParser(
        description="Time all-reduces of growing size.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("-g", "--gpu", type=options.gpu_ids, metavar="IDS", help="ids of GPUs; accepted, but not used")
    add(
        "--largest",
        type=options.positive(int, 1 << 30),
        default=4 * SIZES[-1],
        metavar="BYTES",
        help="size of the largest message in bytes",
    )
    add(
        "--patience",
        type=options.natural,
        default=30,
        metavar="SECONDS",
        help="seconds without a finished all-reduce after which a rank ends; 0: no limit",
    )
    _, script, track = identity.of(sys.argv[0])
    options.add_out(parser, script, track)
    args = parser.parse_args()
    if args.gpu and launch.launcher_rank() == 0:
        print("Warning: -g has no effect, as no GPU takes part here.")
    options.make_out(parser, args.out)
    torch.set_num_threads(1)
    with gloo_group(args) as comm:
        if comm.intra_rank == 0:
            usage.record(args.out, None)
        rows, begin = [], time.perf_counter()
        for numbers in (numbers for numbers in SIZES if 4 * numbers <= args.largest):
            for name, all_reduce in algorithms.items():
                rows.append({"algorithm": name, "bytes": 4 * numbers} | timed(name, all_reduce, numbers, comm))
        if comm.rank == 0:
            used = usage.read(args.out, time.perf_counter() - begin)
            if disturbance := usage.disturbance(used, comm.size):
                speak(f"Warning: {disturbance}.", file=sys.stderr, flush=True)
            measured = {"ranks": comm.size, "nodes": comm.inter_size, "usage": used, "rows": rows}
            with written_aside(args.out / "all_reduce.json") as file:
                file.write(json.dumps(measured).encode())
            print(f"{len(rows)} measurements: {args.out}/all_reduce.json")


def timed(name, all_reduce, numbers, comm):
    """Return the shortest time of several all-reduces, after a run that is checked and counted. Other programs can only
    make an all-reduce longer."""
    mine = torch.randn(numbers, generator=torch.Generator().manual_seed(comm.rank))
    right = mine.clone()
    dist.all_reduce(right)
    messages.sent.clear()
    found = mine.clone()
    with messages.lengths_compared(numbers):
        all_reduce(found)
    counted = comm.allgather([messages.sent["messages"], messages.sent["bytes"]])
    off = (found - right).abs().max().item()
    worst = max(comm.allgather(off))
    if not worst <= WRONG * comm.size:
        where = f"{name}: the result for {numbers} numbers on {comm.size} ranks"
        raise WrongSum(f"{where} is not the sum (off by {worst:.3g}): correct it before you measure it")
    times, begin, go_on = [], time.perf_counter(), torch.ones(1)
    while go_on.item() and len(times) < 30:
        again = mine.clone()
        dist.barrier()
        start = time.perf_counter()
        all_reduce(again)
        times.append(time.perf_counter() - start)
        progress.progress()
        go_on.fill_(float(time.perf_counter() - begin < SHARE or len(times) < 3))
        dist.broadcast(go_on, 0)
    return {
        "seconds": min(map(max, zip(*comm.allgather(times)))),
        "messages": [one for one, _ in counted],
        "sent": [one for _, one in counted],
    }
