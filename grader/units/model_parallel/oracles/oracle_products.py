"""The reference for products.py: the results of the network that is not split, computed in one process, and the
results of typical mistakes."""

import torch
import torch.nn.functional as F

from grader.units.model_parallel.probes.probe_products import layer, network, numbers, part_of_mlp
from handson.pytorch.transformer import Attention


def operator(rank, ranks, case):
    """Return for each rank: its own contribution ("own"), the sum in its group ("sum"), and the sum of all ranks
    ("all")."""
    own = [numbers(case, other) for other in range(case["ranks"])]
    groups = case.get("groups") or [list(range(case["ranks"]))]
    sums = [
        next(sum(own[other] for other in group) for group in groups if place in group) for place in range(case["ranks"])
    ]
    return {
        name: torch.stack(values).numpy()
        for name, values in {"own": own, "sum": sums, "all": [sum(own)] * case["ranks"]}.items()
    }


def whole(rank, ranks, case):
    """Return for each rank `outputs`, {"right" or the sentence of a mistake: the outputs}; the right gradients
    `of_tokens`, `of_bias` and `of_part`; and `of_tokens_alone`, the gradient of the tokens through this rank's part
    only."""
    size, terms, alone, of_parts = case["ranks"], [], [], []
    for one in range(size):
        mlp, bias, tokens, upstream = part_of_mlp(case, one)
        term = mlp(tokens)
        term.backward(upstream)  # Leave gives each rank's term the whole gradient
        terms.append(term.detach())
        alone.append(tokens.grad.numpy())
        of_parts.append(torch.cat([parameter.grad.flatten() for parameter in mlp.parameters()]).numpy())
    bias, total = bias.detach(), sum(terms)

    def outputs(term):
        values = {
            "right": total + bias,
            f"the bias is added {size} times, because each rank adds it to its term: add it after Leave": (
                total + size * bias
            ),
            "the bias is missing: `self.part` has none of its own": total,
            "`outputs` is only this rank's term: Leave adds the terms of all ranks": term + bias,
            "the sum of the ranks' terms is divided by their number: do not divide it": total / size + bias,
            (
                "this rank's term is multiplied by the number of ranks, but the ranks have different terms: Leave adds"
                " them"
            ): (size * term + bias),
        }
        return {sentence: value.numpy() for sentence, value in values.items()}

    common = {"of_tokens": sum(alone), "of_bias": upstream.sum(dim=(0, 1)).numpy()}
    return [
        common | {"outputs": outputs(terms[one]), "of_tokens_alone": alone[one], "of_part": of_parts[one]}
        for one in range(size)
    ]


def attention(rank, ranks, case):
    """Return {"right" or the sentence of a mistake: the sum of the ranks' partial sums}, and the `bias` of the whole
    layer."""
    size, width, heads = case["ranks"], case["width"], case["heads"]
    made, tokens, _ = network(case, Attention, width, heads)
    mine, bias = width // size, made.out.bias.detach()
    with torch.no_grad():
        query, key, value = made.query(tokens), made.key(tokens), made.value(tokens)

        def term(place, heads):
            """Return the partial sum of one rank, whose slice of the width has `heads` heads."""
            parts = [
                one[..., place * mine : (place + 1) * mine].unflatten(2, (heads, -1)).transpose(1, 2)
                for one in (query, key, value)
            ]
            taken = F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
            return F.linear(taken, made.out.weight[:, place * mine : (place + 1) * mine])

        terms = {"right": sum(term(place, heads // size) for place in range(size))}
        if size > 1 and mine % heads == 0:
            sentence = (
                f"each rank divides its part of the width among {heads} heads, but it has only {heads // size}: set"
                " attention.heads"
            )
            terms[sentence] = sum(term(place, heads) for place in range(size))
        if size > 1:
            terms["all ranks have the first heads: pass this rank to `columns`"] = size * term(0, heads // size)
            terms["every rank adds the bias of attention.out: set `out` to the result of `rows`, which has no bias"] = (
                terms["right"] + size * bias
            )
    return {"terms": {sentence: values.numpy() for sentence, values in terms.items()}, "bias": bias.numpy()}


def part(rank, ranks, case):
    """Return for each rank of a group the `parts` of the weight and of the bias; `whole`, the complete weight and
    bias; the parts of typical mistakes; and `of_all`, each rank's parts if all ranks were one group."""
    made, size = layer(case), len(case["groups"][0]) if case.get("groups") else case["ranks"]
    tensors = {"weight": made.weight.detach(), "bias": made.bias.detach()}
    dimension = {"weight": 0 if case["bias"] else 1, "bias": 0}

    def parts(way):
        return {name: [one.numpy().copy() for one in way(tensor, dimension[name])] for name, tensor in tensors.items()}

    def strided(tensor, along):
        return [tensor.index_select(along, torch.arange(place, tensor.shape[along], size)) for place in range(size)]

    return {
        "parts": parts(lambda tensor, along: tensor.tensor_split(size, along)),
        "other": parts(lambda tensor, along: tensor.tensor_split(size, (1 - along) % tensor.ndim)),
        "strided": parts(strided),
        "of_all": parts(lambda tensor, along: tensor.tensor_split(case["ranks"], along)),
        "whole": {name: tensor.numpy() for name, tensor in tensors.items()},
    }
