"""The parts of train_experts.py (unit attention_and_experts) that are not its lesson: its options, and a file with the
number of tokens per expert."""

import json

import torch
import torch.distributed as dist

from handson.files import written_aside
from handson.training import options, transformer_options


def add_options(methods):
    """Return a function that adds the options of transformer_options.add, and those for experts."""

    def add_to(parser):
        transformer_options.add(methods)(parser)
        add = parser.add_argument
        add(
            "--experts",
            type=options.positive(int, 4096),
            default=8,
            metavar="N",
            help="number of experts in each layer, on all ranks together. Default: %(default)s",
        )
        add(
            "--capacity-factor",
            type=options.positive(float, 1e6),
            default=1.25,
            metavar="TIMES",
            help="capacity of an expert, in multiples of an even share of the tokens. Default: %(default)s",
        )

    return add_to


class Load:
    """The numbers of tokens per expert, and of dropped tokens, in each step, over all layers and ranks. All ranks
    create a Load, and call its methods together."""

    def __init__(self, comm, layers):
        self.comm, self.layers, self.counts, self.dropped = comm, layers, [], []

    def add(self):
        """Record a finished step."""
        self.counts.append(torch.stack([layer.counts for layer in self.layers]))
        self.dropped.append(sum(layer.dropped for layer in self.layers))

    def write(self, out):
        """Write experts.json: {"ranks", "counts": for each step and each layer, the tokens that chose each expert,
        "dropped": for each step, of all layers}."""
        counts, dropped = torch.stack(self.counts), torch.tensor(self.dropped, device=self.counts[0].device)
        for one in counts, dropped:
            dist.all_reduce(one)
        if self.comm.rank == 0:
            found = {"ranks": self.comm.size, "counts": counts.tolist(), "dropped": dropped.tolist()}
            with written_aside(out / "experts.json") as file:
                file.write(json.dumps(found).encode())
