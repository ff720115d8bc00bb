"""The reference for save_memory.py: the gradients of the whole batch in one pass, and those of typical mistakes."""

import torch
import torch.nn.functional as F

from grader.probes.pytorch_scripts import batch, flat, network, seed_of
from grader.units.model_parallel.probes.probe_memory import layer_and_tokens


def accumulate(rank, ranks, case):
    """Return {"right" or the sentence of a mistake: (gradients, loss)}."""
    images, labels = batch(case["seed"], 0, [case["images"]], 0)
    parts = list(zip(images.tensor_split(case["parts"]), labels.tensor_split(case["parts"])))
    means = [_gradients(case, *part) for part in parts]
    shares = [len(part[0]) / len(images) for part in parts]

    def together(weights):
        return [sum(weight * mean[kind] for weight, mean in zip(weights, means)) for kind in range(2)]

    count = len(parts)
    return {
        "right": _gradients(case, images, labels),
        "the micro-batches' means are summed: multiply each loss by its share of the images, len(some) / len(images)": (
            together([1] * count)
        ),
        (
            "all micro-batches have the same weight, but their sizes differ: multiply each loss by"
            " len(some) / len(images)"
        ): together([1 / count] * count),
        "each loss is also divided by the number of micro-batches: multiply it only by its share of the images": (
            together([share / count for share in shares])
        ),
        "the last micro-batch is missing: run forward and backward for all micro-batches": together([*shares[:-1], 0]),
        (
            "only the last micro-batch counts: sum over all micro-batches, and do not reset or replace the sum in"
            " between"
        ): together([*[0] * (count - 1), shares[-1]]),
    }


def _gradients(case, images, labels):
    model = network(seed_of(case))
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    return flat(parameter.grad for parameter in model.parameters()), float(loss)


def again(rank, ranks, case):
    """Return the layer's gradients without recomputation, and the gradients of typical mistakes."""
    found = {}
    for name in "right", "ones", "parts":
        layer, tokens, gradient = layer_and_tokens(case)
        tokens.requires_grad_()
        forward = torch.nn.Sequential(*layer.children()) if name == "parts" else layer
        forward(tokens).backward(torch.ones_like(gradient) if name == "ones" else gradient)
        found[name] = {
            "tokens": flat([tokens.grad]),
            "parameters": flat(parameter.grad for parameter in layer.parameters()),
        }
    return found
