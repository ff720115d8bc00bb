"""The probe of all_reduce.py: the functions run on real ranks, and what they send is noted where it leaves the
process."""

import contextlib
import re

import torch
import torch.distributed as dist

from grader.probes.count_collectives import Collectives
from grader.probes.exact import numbers
from grader.probes.pytorch_scripts import flat, join
from grader.probes.script import Script
from grader.sandbox.rank import StudentMistake
from handson.pytorch.messages import lengths_compared as messages_compared


UNLIKE = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)")


@contextlib.contextmanager
def chunks_in_a_ring():
    """Raises StudentMistake for the number of a chunk that there is not, and for chunks that do not fit together."""
    try:
        yield
    except RuntimeError as error:
        if not (lengths := UNLIKE.search(str(error))):
            raise
        raise StudentMistake(
            f"a chunk of {lengths[1]} numbers meets one of {lengths[2]}, so these are different chunks: expect the"
            " chunk to which you add what arrives, which is the one that your left neighbour sends"
        ) from error
    except IndexError as error:
        if "tuple index" not in str(error):
            raise
        raise StudentMistake(
            "there is no chunk with this number: after the last chunk comes chunk 0 again, so take each number modulo"
            " `size`, in brackets: (...) % size"
        ) from error


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

        stand_ins = {
            "reduce_scatter": ("", reduced),
            "all_gather": ("", lambda: None),
            "naive": ("", lambda: None),
            "doubling": ("distance", lambda size: 2 * size),
        }
        stand_ins.pop(source["gap"], None)
        sent = Collectives()
        with sent.noted(all_ended=True, all_sent=True):
            with chunks_in_a_ring(), messages_compared(length):
                Script(source, stand_ins, function=case["function"]).run(lambda names: None, tensor)
        dist.barrier()
        messages = [{"to": to, "numbers": flat([tensor])} for to, tensor in sent.messages]
        # who waits for all ranks has moved no numbers
        collectives = [name for name, _ in sent.collectives if not name.endswith("barrier")]
        found.append({"tensor": tensor.numpy(), "messages": messages, "collectives": collectives})
    return {"found": found}
