"""The probe of all_reduce.py: it runs the functions on real ranks, and notes their messages where they leave the
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
    """Raise StudentMistake for the number of a chunk that does not exist, and for chunks of different lengths."""
    try:
        yield
    except RuntimeError as error:
        if not (lengths := UNLIKE.search(str(error))):
            raise
        raise StudentMistake(
            f"your code combines a chunk of {lengths[1]} numbers with a chunk of {lengths[2]} numbers, so these are"
            " different chunks: expect the chunk that your left neighbour sends, and add it to your own chunk with the"
            " same number"
        ) from error
    except IndexError as error:
        if "tuple index" not in str(error):
            raise
        raise StudentMistake(
            "your code uses a chunk number that does not exist: chunk 0 follows the last chunk, so take each number"
            " modulo `size`, in brackets: (...) % size"
        ) from error


def all_reduce(rank, ranks, source, case):
    """Return, for each of case["lengths"], the tensor after case["function"] and the messages of this rank."""
    join(rank, ranks)
    found = []
    for length in case["lengths"]:
        tensor = torch.from_numpy(numbers(case["seed"], rank, length))
        everybodys = [torch.from_numpy(numbers(case["seed"], other, length)) for other in range(ranks)]

        def reduced(chunks, step):
            """Replace the gap reduce_scatter: after the last step, this rank has the sum of its chunk."""
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
        # a barrier moves no numbers
        collectives = [name for name, _ in sent.collectives if not name.endswith("barrier")]
        found.append({"tensor": tensor.numpy(), "messages": messages, "collectives": collectives})
    return {"found": found}
