"""Helpers of products.py, products_dtensor.py, products_sequence.py and mesh.py (unit model_parallel): parts of layers,
refusals of sizes that cannot be divided, and a comparison of split networks with the whole one."""

import argparse
import copy
import json
import math
import sys
from collections import Counter

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from handson.cluster.nodes import current_node
from handson.errors import TrackError
from handson.files import written_aside
from handson.pytorch import memory_counter
from handson.pytorch.communicator import gloo_group
from handson.pytorch.memory_formulas import size
from handson.pytorch.transformer import Transformer
from handson.training import identity, options, progress

STEPS, IMAGES, RATE = 3, 16, 0.1  # the comparison runs 3 steps of SGD with 16 images each


def linear(weight, bias):
    """Return an nn.Linear with copies of a weight (outputs, inputs) and of a bias (outputs), which may be None."""
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias is not None, weight.device, weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


def check_heads(heads, ranks):
    """Refuse a number of heads that cannot be divided among `ranks` ranks. Raises TrackError."""
    if heads % ranks:
        fitting = ", ".join(str(number) for number in range(1, heads + 1) if heads % number == 0)
        cure = f"split them among {fitting} ranks, or choose another --heads"
        raise TrackError(f"the {heads} heads of an attention cannot be divided among {ranks} ranks: {cure}", True)


class Collectives(TorchDispatchMode):
    """Count the collectives of this rank: `counts`, and the bytes that a ring `sent` for them."""

    KINDS = {"all-reduces": "allreduce", "all-gathers": "allgather", "reduce-scatters": "reducescatter"}

    def __init__(self):
        super().__init__()
        self.counts, self.sent = dict.fromkeys(self.KINDS, 0), 0.0

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        if any(issubclass(one, DTensor) for one in types):
            return NotImplemented  # DTensor then calls the collectives of its parts
        result = operator(*arguments, **(options or {}))
        if operator.namespace in ("c10d", "_c10d_functional"):
            name = operator.name().split(":")[-1].replace("_", "")
            for kind, word in self.KINDS.items():
                if name.startswith(word):
                    self._add(kind, [*arguments, result])
        return result

    def _add(self, kind, values):
        def total(value):
            if isinstance(value, torch.Tensor):
                return size(value)
            return sum(map(total, value)) if isinstance(value, (list, tuple)) else 0

        whole = max(map(total, values))  # an all-gather's result, a reduce-scatter's argument
        self.counts[kind] += 1
        ranks = dist.get_world_size()
        self.sent += (1 + (kind == "all-reduces")) * (ranks - 1) / ranks * whole


def ranks_of_a_node(comm):
    """Return the number of ranks per node. Raises TrackError if the nodes have different numbers, or if the ranks of a
    node are not consecutive."""
    nodes = comm.allgather(current_node())
    counts = Counter(nodes)
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{count} on {node}" for node, count in counts.items())
        raise TrackError(
            (
                f"the ranks do not form a mesh ({shown}): give each node the same number of ranks, with mpiprocs in"
                " `select`"
            ),
            True,
        )
    if nodes != list(counts.elements()):
        raise TrackError(
            f"the ranks are on {', '.join(nodes)}, but the ranks of a node must be consecutive: sort the lines of the"
            " hostfile",
            True,
        )
    return comm.size // len(counts)


def compare(*splits):
    """The main program of a script that splits a network: train the whole network and split copies of it in the same
    way, print the losses of all, and write them into products.json.

    splits: functions that split a Transformer among all ranks, in place; a second one also splits the sequences.
    """
    shown = argparse.ArgumentDefaultsHelpFormatter
    parser = options.OneSentenceParser(description="Compare a split network with the whole one.", formatter_class=shown)
    add = parser.add_argument
    add("-g", "--gpu", type=options.gpu_ids, metavar="IDS", help="ids of GPUs; accepted, but not used")
    add("--width", type=options.positive(int, 4096), default=128, metavar="N", help="width: numbers per token")
    add("--heads", type=options.positive(int, 64), default=4, metavar="N", help="number of attention heads")
    add("--blocks", type=options.positive(int, 64), default=2, metavar="N", help="number of transformer blocks")
    add(
        "--patience",
        type=options.natural,
        default=30,
        metavar="SECONDS",
        help="seconds of waiting after which a rank ends; 0: no limit",
    )
    _, script, track = identity.of(sys.argv[0])
    options.add_out(parser, script, track)
    args = parser.parse_args()
    if args.width % args.heads:
        parser.error(f"--width {args.width} cannot be divided among {args.heads} heads: give a multiple of --heads")
    options.make_out(parser, args.out)
    torch.set_num_threads(1)
    with gloo_group(args) as comm:
        torch.manual_seed(0)
        whole = Transformer(width=args.width, heads=args.heads, blocks=args.blocks)
        models = [whole] + [split(copy.deepcopy(whole)) for split in splits]
        names = ["whole", "split", "sequence"][: len(models)]
        found = {name: trained(model) for name, model in zip(names, models)}
        if comm.rank == 0:
            with written_aside(args.out / "products.json") as file:
                file.write(json.dumps({"ranks": comm.size} | found).encode())
            print_table(found, comm.size)


def print_table(found, ranks):
    """Print a row for each number of `found`, {"whole", "split", perhaps "sequence"}: leave out collectives that no
    network uses."""
    titles = {"whole": "whole", "split": f"split among {ranks} ranks", "sequence": "sequences, too"}
    print(f"{'':30}", *(f"{titles[name]:>{max(12, len(titles[name]))}}" for name in found), sep="  ")
    for row in found["whole"]:
        numbers = {name: of_one[row] for name, of_one in found.items()}
        if any(numbers.values()) or row.startswith("all-reduces"):
            print(
                f"{row:30}",
                *(f"{in_words(number):>{max(12, len(titles[name]))}}" for name, number in numbers.items()),
                sep="  ",
            )


def trained(model):
    """Run some steps with the same images for each model. Return the losses, the collectives and bytes of the last
    step, and the bytes of this rank's parameters and of the activations that forward keeps for backward."""
    chance, optimizer, found = torch.Generator().manual_seed(1), torch.optim.SGD(model.parameters(), RATE), {}
    kept = math.inf
    images = torch.randn(IMAGES, 3, 8, 8, generator=chance)
    labels = torch.randint(10, (IMAGES,), generator=chance)
    for step in range(STEPS):
        optimizer.zero_grad()
        with memory_counter.Counter(math.inf) as memory, Collectives() as forward:
            loss = F.cross_entropy(model(images), labels)
            # all steps keep the same; but gloo's threads may free the tensors of a message a moment later
            kept = min(kept, memory.in_use["activations"])
        with Collectives() as backward:
            loss.backward()
            optimizer.step()  # DTensor adds up the gradients of its norms here
        progress.progress()
        found[f"loss of step {step + 1}"] = loss.item()
    for kind in Collectives.KINDS:
        found[f"{kind} in forward"], found[f"{kind} in backward"] = forward.counts[kind], backward.counts[kind]
    return found | {
        "KB sent by a ring": round((forward.sent + backward.sent) / 1000),
        "KB of parameters": round(sum(map(size, model.parameters())) / 1000),
        "KB of activations": round(kept / 1000),
    }


def in_words(number):
    return f"{number:.6f}" if isinstance(number, float) else f"{number:,}"
