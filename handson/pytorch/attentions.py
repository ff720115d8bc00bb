"""The parts of attention.py (unit attention_and_experts) that are not its lesson: attention to some of the keys, errors
for sequences that cannot be split, and the main program, which checks and measures each way."""

import argparse
import json
import math
import statistics
import sys
import time
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from handson.errors import OneSentence, TrackError
from handson.files import written_aside
from handson.pytorch.communicator import gloo_group
from handson.pytorch.tensor_counter import TensorCounter
from handson.training import identity, options, progress

TOLERANCE = 1e-5  # relative: float32 sums have another order
REPEATS = 5
BLOCK = 128  # queries: the smaller, the fewer scores of hidden keys are computed


class Partial(NamedTuple):
    """The attention of queries to the keys that they have seen so far."""

    taken: torch.Tensor  # (heads, tokens, width of a head): the mean of the values, weighted by the softmax
    total: torch.Tensor  # (heads, queries): the logarithm of the sum of exp(score), -inf if no key was seen


class Sent(TorchDispatchMode):
    """`bytes`: the bytes that this rank has sent to other ranks, with messages and with all_to_all_single of equal
    parts."""

    bytes = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "c10d" and operator.__name__.startswith("send"):
            self.bytes += sum(tensor.nbytes for tensor in args[0])
        elif operator.namespace == "c10d" and operator.__name__.startswith("alltoall_base"):
            size = dist.get_world_size()
            self.bytes += args[1].nbytes * (size - 1) // size  # the rank's own part stays
        return operator(*args, **(kwargs or {}))


class WrongAttention(OneSentence):
    """A way of attention differs from attention in one process."""


def attend(query, key, value, query_places, key_places, causal):
    """Return the Partial of queries, keys and values (heads, tokens, width of a head) of some tokens.

    query_places, key_places: the positions of these tokens in the whole sequence, in ascending order. causal: a query
    sees only the keys up to its own position.
    """
    if not causal:
        return _attend(query, key, value)
    parts, runs = [], query_places.tensor_split((query_places.diff() != 1).nonzero().flatten() + 1)
    blocks = [block for run in runs for block in run.split(BLOCK)]
    for block, mine in zip(blocks, query.split([len(block) for block in blocks], dim=1)):
        seen = int((key_places <= block[-1]).sum())  # later keys are not computed at all
        hidden = key_places[:seen] > block[:, None]
        parts.append(_attend(mine, key[:, :seen], value[:, :seen], hidden))
    return Partial(*(torch.cat(of_parts, dim=1) for of_parts in zip(*parts)))


def _attend(query, key, value, hidden=None):
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(1, 2)
    if hidden is not None:
        scores.masked_fill_(hidden, -math.inf)
    total = scores.logsumexp(dim=-1)
    weights = scores.sub_(total[..., None]).exp_().nan_to_num_(0.0)  # no key was seen: -inf - -inf
    return Partial(weights @ value, total)


def check_division(tokens, heads, size):
    """Raise TrackError if the sequence or the heads cannot be split among `size` ranks."""
    if tokens % (2 * size):
        more = -(-tokens // (2 * size)) * 2 * size
        raise TrackError(
            f"a sequence of {tokens} tokens cannot be split into {2 * size} equal chunks, two per rank: pad it to"
            f" {more} tokens",
            True,
        )
    if heads % size:
        raise TrackError(
            f"{heads} heads cannot be split among {size} ranks: choose a multiple of {size} for --heads", True
        )


def measure(places_of, ways):
    """Run a script of attentions: check each of `ways`, measure it, and write attention.json.

    places_of(tokens, rank, size, zigzag): returns the positions of a rank's tokens. ways: name -> (function(query, key,
    value, positions of all ranks, causal), zigzag). The file contains {"ranks", "tokens", "heads", "width", "rows":
    [{"way", "causal", "seconds" (median, of the slowest rank), "computing" (seconds of each rank, the shortest),
    "bytes" (the peak of a rank's new tensors), "sent" (bytes, by a rank)}]}.
    """
    args = _arguments()
    torch.set_num_threads(1)
    with gloo_group(args) as comm, torch.no_grad():
        check_division(args.tokens, args.heads, comm.size)
        rows = []
        for name, (attention, zigzag) in ways.items():
            places = [places_of(args.tokens, rank, comm.size, zigzag) for rank in range(comm.size)]
            for causal in (False, True):
                row = _measured(f"{name}, causal" if causal else name, attention, places, causal, args, comm)
                rows.append({"way": name, "causal": causal} | row)
        if comm.rank == 0:
            sizes = {"tokens": args.tokens, "heads": args.heads, "width": args.width}
            with written_aside(args.out / "attention.json") as file:
                file.write(json.dumps({"ranks": comm.size} | sizes | {"rows": rows}).encode())
            print(f"{len(rows)} measurements, each equal to attention in one process: {args.out}/attention.json")


def _arguments():
    parser = options.OneSentenceParser(
        description="Check and measure attention over a sequence that is split among ranks.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add, whole = parser.add_argument, options.positive(int, 65536)
    add("-g", "--gpu", type=options.gpu_ids, metavar="IDS", help="accepted like in the training scripts, but not used")
    add("--tokens", type=whole, default=2048, metavar="N", help="tokens in the whole sequence")
    add("--heads", type=whole, default=4, metavar="N", help="heads of the attention")
    add("--width", type=whole, default=32, metavar="N", help="numbers per token and head")
    add(
        "--patience",
        type=options.natural,
        default=60,
        metavar="SECONDS",
        help="end ranks that wait this long; 0: never",
    )
    _, script, track = identity.of(sys.argv[0])
    options.add_out(parser, script, track)
    args = parser.parse_args()
    options.make_out(parser, args.out)
    return args


def _measured(name, attention, places, causal, args, comm):
    """Return one way's row of attention.json."""
    chance = torch.Generator().manual_seed(1)
    whole = torch.randn(3, args.heads, args.tokens, args.width, generator=chance)
    right = F.scaled_dot_product_attention(*whole, is_causal=causal)[:, places[comm.rank]]
    mine = whole[:, :, places[comm.rank]].contiguous()
    del whole
    with Sent() as sent, TensorCounter(math.inf) as counter:
        found = attention(*mine, places, causal)
    off = (found - right).abs().max().item() if found.shape == right.shape else math.inf
    if not (worst := max(comm.allgather(off))) <= TOLERANCE * max(1.0, right.abs().max().item()):
        raise WrongAttention(f"{name}: the result differs from that of one process by {worst:.3g}: fix it first")
    times, computing = [], []
    for _ in range(REPEATS):
        dist.barrier()
        start, used = time.perf_counter(), time.thread_time()
        attention(*mine, places, causal)
        computing.append(time.thread_time() - used)
        times.append(time.perf_counter() - start)
        progress.progress()
    return {
        "seconds": max(comm.allgather(statistics.median(times))),
        "computing": comm.allgather(min(computing)),  # other programs on the core only make it longer
        "bytes": max(comm.allgather(counter.highest)),
        "sent": max(comm.allgather(sent.bytes)),
    }
