"""Probes of save_memory.py: gradients and live activations of a small network in double precision."""

import torch
from torch import nn

from grader.probes.pytorch_scripts import batch, flat, network, seed_of
from grader.probes.script import Script
from grader.sandbox.rank import StudentMistake
from grader.units.model_parallel.probes.probe_kept import Kept

WIDTHS = 3, 5  # the inputs and outputs of the layer that is recomputed


def accumulate(rank, ranks, source, case):
    """Return the gradients and the loss of a batch; `kept`, the number of micro-batches with live activations after
    each forward; and `sizes`, the number of images of each forward."""
    model, tokens, kept = network(seed_of(case)), [], []
    images, labels = batch(case["seed"], 0, [case["images"]], 0)

    def noted(images):
        scores = Kept.apply(model(images), tokens)
        kept.append(sum(token() is not None for token in tokens))
        return scores

    for name in ("zero_grad", "parameters", "train", "eval"):  # a student may use `model` as the network that it is
        setattr(noted, name, getattr(model, name))
    total = Script(source, {}, function="accumulate").run(lambda names: None, noted, images, labels, case["parts"])
    if not isinstance(total, torch.Tensor) or total.numel() != 1:
        raise StudentMistake(f"`total` is {total!r:.60}, not a tensor with one number")
    gradients = [parameter.grad for parameter in model.parameters()]
    if not model.passes:
        raise StudentMistake(
            "the network's forward is never called: `micro_batches` is a zip, which is empty after the first loop"
        )
    if any(gradient is None for gradient in gradients):
        raise StudentMistake("the parameters get no gradients: call loss.backward() for each micro-batch")
    sizes = [length for length, _ in model.passes]
    return {
        "gradients": flat(gradients),
        "loss": float(total),
        "graph": total.requires_grad,
        "kept": kept,
        "sizes": sizes,
    }


class Layer(nn.Module):
    """A layer with a residual connection, like a block of a transformer."""

    def __init__(self, narrow, wide):
        super().__init__()
        self.inner, self.outer = nn.Linear(narrow, wide), nn.Linear(wide, narrow)

    def forward(self, tokens):
        return tokens + self.outer(torch.tanh(self.inner(tokens)))


def layer_and_tokens(case):
    """Return (a layer, its input tokens, the gradient of its output), in double precision."""
    narrow, wide = WIDTHS
    generator = torch.Generator().manual_seed(case["seed"])
    layer = Layer(narrow, wide).double()
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.grad = torch.ones_like(parameter)  # an earlier micro-batch has left it
    tokens, gradient = (torch.randn(case["tokens"], narrow, generator=generator, dtype=torch.float64) for _ in range(2))
    return layer, tokens, gradient


def again(rank, ranks, source, case):
    """Return the gradient of the input; the gradients of the layer's parameters, which were 1 before; the number of
    forward passes; and `kept`, the number of passes whose activations are still alive."""
    layer, tokens, gradient = layer_and_tokens(case)
    # comes from the previous layer, whose graph backward must not enter
    before = torch.ones(len(WIDTHS) - 1, requires_grad=True, dtype=torch.float64)
    passes = []
    # layer.forward(...) does not call the hooks of the layer itself
    layer.inner.register_forward_hook(lambda *given: Kept.apply(given[-1], passes))
    saved = tokens * before
    with torch.no_grad():  # the backward of a Function runs without a graph, too
        returned = Script(source, {}, function="compute_again").run(lambda names: None, layer, saved, gradient)
    if returned is None:
        raise StudentMistake(
            "`tokens.grad` is None: set `tokens` to a new leaf, tokens.detach().requires_grad_(), before you call the"
            " layer"
        )
    if not isinstance(returned, torch.Tensor) or returned.shape != tokens.shape:
        raise StudentMistake(f"`tokens.grad` must have the shape of the input, {tuple(tokens.shape)}")
    if before.grad is not None:
        raise StudentMistake(
            "backward also runs through earlier layers, where autograd will run it again: set `tokens` to a new leaf,"
            " tokens.detach().requires_grad_()"
        )
    gradients = [parameter.grad for parameter in layer.parameters()]
    if any(gradient is None for gradient in gradients):
        raise StudentMistake(
            "the layer's parameters have lost their gradients, but must keep those of earlier micro-batches"
        )
    return {
        "tokens": flat([returned]),
        "parameters": flat(gradients),
        "passes": len(passes),
        "kept": sum(one() is not None for one in passes),
    }
