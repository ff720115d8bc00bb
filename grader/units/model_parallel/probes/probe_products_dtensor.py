"""The probe of products_dtensor.py: PyTorch splits a block by the student's plan, on real ranks."""

import fnmatch

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import PrepareModuleInput, parallelize_module
from torch.distributed.tensor.parallel.style import ParallelStyle

from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import join
from grader.sandbox.rank import StudentMistake
from grader.units.model_parallel.probes.probe_products import network
from handson.pytorch.transformer import Block


def plan(rank, ranks, source, case):
    """Return `divided`, the split dimension of each layer's weight (-1 if it is not split); the outputs and the
    gradient of the tokens; and the all-reduces [in forward, in backward]."""
    join(rank, ranks)
    block, tokens, upstream = network(case, Block, case["width"], case["heads"])
    entrance = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    made = GapCode(source).run(block=block, entrance=entrance).plan
    if not isinstance(made, dict) or not all(isinstance(style, ParallelStyle) for style in made.values()):
        raise StudentMistake("`plan` should be a dictionary: name of a module -> its style")
    modules = dict(block.named_modules())
    # parallelize_module takes patterns
    if missing := [pattern for pattern in made if not fnmatch.filter(modules, pattern)]:
        raise StudentMistake(
            f"a block has no module {missing[0]!r}; it has {', '.join(name for name in modules if '.' in name)}"
        )
    block.attention.heads //= ranks
    parallelize_module(block, init_device_mesh("cpu", (ranks,)), made)
    weights = {
        name.removesuffix(".weight"): weight
        for name, weight in block.named_parameters()
        if name.endswith("weight") and weight.ndim == 2
    }
    divided = {
        name: next((place.dim for place in weight.placements if place.is_shard()), -1)
        if isinstance(weight, DTensor)
        else -1
        for name, weight in weights.items()
    }
    found = {
        "divided": divided,
        "outputs": tokens.detach().numpy(),
        "of_tokens": tokens.detach().numpy(),
        "counts": [0, 0],
        "problem": "",
    }
    try:
        with CommDebugMode() as forward:
            outputs = block(tokens)
        with CommDebugMode() as backward:
            outputs.backward(upstream)
    except (
        RuntimeError,
        ValueError,
        TypeError,
    ) as error:  # parts that don't fit together; which layer it is follows from `divided`
        return found | {"problem": str(error).splitlines()[0][:200]}
    counts = [forward.get_total_counts(), backward.get_total_counts()]
    return found | {"outputs": outputs.detach().numpy(), "of_tokens": tokens.grad.numpy(), "counts": counts}
