"""Helpers of products.py, products_dtensor.py and mesh.py (unit model_parallel): parts of layers, refusals of sizes
that cannot be divided, and a comparison of the split network with the whole one."""

import argparse
import copy
import json
import sys
from collections import Counter

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor.debug import CommDebugMode

from handson.cluster.nodes import current_node
from handson.errors import TrackError
from handson.files import written_aside
from handson.pytorch.communicator import gloo_group
from handson.pytorch.memory_formulas import size
from handson.pytorch.transformer import Transformer
from handson.training import identity, options, progress

STEPS, IMAGES, RATE = 3, 16, 0.1  # of the comparison: steps of SGD, images in each, learning rate


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


def compare(split):
    """Train the whole network and the split one in the same way, print both losses, and write them into products.json.

    split(model): splits a Transformer among all ranks, in place.
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
        part = split(copy.deepcopy(whole))
        found = [trained(model) for model in (whole, part)]
        if comm.rank == 0:
            with written_aside(args.out / "products.json") as file:
                file.write(json.dumps({"ranks": comm.size, "whole": found[0], "split": found[1]}).encode())
            print(f"{'':28} whole  split among {comm.size} ranks")
            for name, of_whole in found[0].items():
                print(f"{name:24} {in_words(of_whole):>8}  {in_words(found[1][name])}")


def trained(model):
    """Train some steps on the same images. Return the losses, the number of all-reduces in the last step, and the bytes
    of this rank's parameters."""
    chance, optimizer, found = torch.Generator().manual_seed(1), torch.optim.SGD(model.parameters(), RATE), {}
    images = torch.randn(IMAGES, 3, 8, 8, generator=chance, requires_grad=True)
    labels = torch.randint(10, (IMAGES,), generator=chance)
    for step in range(STEPS):
        optimizer.zero_grad()
        with CommDebugMode() as forward:
            loss = F.cross_entropy(model(images), labels)
        with CommDebugMode() as backward:
            loss.backward()
        optimizer.step()
        progress.progress()
        found[f"loss of step {step + 1}"] = loss.item()
    found["all-reduces in forward"], found["all-reduces in backward"] = (
        forward.get_total_counts(),
        backward.get_total_counts(),
    )
    return found | {"KB of parameters": round(sum(map(size, model.parameters())) / 1000)}


def in_words(number):
    return f"{number:.6f}" if isinstance(number, float) else f"{number:,}"
