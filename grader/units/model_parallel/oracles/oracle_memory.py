"""What save_memory.py should give: the gradients of the whole batch in one pass, and the same with typical mistakes."""

import torch
import torch.nn.functional as F

from grader.probes.pytorch_scripts import batch, flat, network, seed_of
from grader.units.model_parallel.probes.probe_memory import layer_and_tokens


def accumulate(rank, ranks, case):
    """{"right" or the sentence of a mistake: (gradients, loss)}."""
    images, labels = batch(case["seed"], 0, [case["images"]], 0)
    parts = list(zip(images.tensor_split(case["parts"]), labels.tensor_split(case["parts"])))
    means = [_gradients(case, *part) for part in parts]
    shares = [len(part[0]) / len(images) for part in parts]

    def together(weights):
        return [sum(weight * mean[kind] for weight, mean in zip(weights, means)) for kind in range(2)]

    count = len(parts)
    return {
        "right": _gradients(case, images, labels),
        "the means of the micro-batches are added up: weigh each by its share of the images, len(some) / len(images)": (
            together([1] * count)
        ),
        (
            "each micro-batch counts as much as every other one, but they are not of the same size: weigh by"
            " len(some) / len(images)"
        ): together([1 / count] * count),
        "each loss is divided by the number of micro-batches once more: its share of the images is all of its weight": (
            together([share / count for share in shares])
        ),
        "the last micro-batch is left out": together([*shares[:-1], 0]),
        (
            "only the last micro-batch counts: those of all are added up, so nothing may set the sum to zero, or"
            " replace it, in between"
        ): together([*[0] * (count - 1), shares[-1]]),
    }


def _gradients(case, images, labels):
    model = network(seed_of(case))
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    return flat(parameter.grad for parameter in model.parameters()), float(loss)


def again(rank, ranks, case):
    """The gradients that the layer leaves where nothing is computed again, and those of mistakes."""
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
