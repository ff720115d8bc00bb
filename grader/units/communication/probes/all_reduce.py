"""The probe of all_reduce.py: the functions run on real ranks, and what they send is noted where it leaves the process."""

import torch
import torch.distributed as dist

from grader.probes.exact import numbers
from grader.probes.pytorch import join
from grader.probes.script import Script
from grader.probes.wire import Wire


def all_reduce(rank, ranks, source, case):
    """For each of case["lengths"]: the tensor after case["function"], and what this rank sent."""
    join(rank, ranks)
    found = []
    for length in case["lengths"]:
        tensor = torch.from_numpy(numbers(case["seed"], rank, length))
        everybodys = [torch.from_numpy(numbers(case["seed"], other, length)) for other in range(ranks)]

        def reduced(chunks, step):
            """In place of the gap reduce_scatter: after the last step, this rank has the sum of its chunk."""
            if step == ranks - 2:
                place = (rank + 1) % ranks
                chunks[place].copy_(sum(everybodys).tensor_split(ranks)[place])

        stand_ins = {"reduce_scatter": ("", reduced), "all_gather": ("", lambda: None), "naive": ("", lambda: None), "doubling": ("distance", lambda size: 2 * size)}
        stand_ins.pop(source["gap"], None)
        wire = Wire()
        with wire.noted(all_ended=True, all_sent=True):
            Script(source, stand_ins, function=case["function"]).run(lambda names: None, tensor)
        dist.barrier()
        found.append({"tensor": tensor.numpy(), "messages": wire.messages, "collectives": [name for name, _ in wire.collectives]})
    return {"found": found}
