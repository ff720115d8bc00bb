"""The checks of the gaps on memory: what fits, accumulation and checkpointing, sharded state."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.checks.notebook_functions import function, prediction
from grader.probes.exact import numbers

PROBES, ORACLES = "grader.units.model_parallel.probes.", "grader.units.model_parallel.oracles."
TOLERANCE = 1e-6  # of what is computed in single precision
ROUNDED = 0.03  # what rounding to whole numbers or half precision changes, of the largest number, at most


def whole_batch(seen, case, expected):
    found = seen[0]["gradients"], seen[0]["loss"]
    for what, kind in (("the gradients are", 0), ("the gradients are right, but `total` is", 1)):
        if criteria.close(found[kind], expected["right"][kind], TOLERANCE):
            continue
        known = {sentence: values[kind] for sentence, values in expected.items() if sentence != "right"}
        if sentence := next(
            (sentence for sentence, value in known.items() if criteria.close(found[kind], value, TOLERANCE)), None
        ):
            return sentence if not kind else f"{what} not the mean loss of the batch: {sentence}"
        return f"{what} not {'those' if not kind else 'that'} of the whole batch in one pass"
    return "`total` still has a graph, which keeps memory: add loss.detach()" if seen[0]["graph"] else None


def one_at_a_time(seen, case, expected):
    most, sizes = max(seen[0]["kept"], default=0), sorted(seen[0]["sizes"], reverse=True)
    right = sorted((len(part) for part in numpy.array_split(numpy.arange(case["images"]), case["parts"])), reverse=True)
    if sizes != right:
        return (
            f"the network goes forward with {', '.join(map(str, sizes))} images; the micro-batches have"
            f" {', '.join(map(str, right))}"
        )
    if most > 1:
        return (
            f"the activations of up to {most} micro-batches are kept at once: go backward right after each forward,"
            " which lets go of them (without retain_graph)"
        )
    return None


def as_kept(seen, case, expected):
    found, right = seen[0], expected["right"]
    if not criteria.close(found["tokens"], right["tokens"]):
        if criteria.close(found["tokens"], expected["ones"]["tokens"]):
            return "backward begins with ones: it must begin with `gradient`, output.backward(gradient)"
        if criteria.close(found["tokens"], expected["parts"]["tokens"]):
            return (
                "the layer's parts are computed one after the other, but a block also adds to the tokens that it gets:"
                " call layer(tokens)"
            )
        return "the gradient that is returned is not that of the layer's input"
    if criteria.close(found["parameters"], right["parameters"]):
        return None
    if criteria.close(found["parameters"], numpy.ones_like(right["parameters"])):
        return (
            "the layer's parameters get no gradients: output.backward(gradient) adds to those of all leaves;"
            " torch.autograd.grad to none"
        )
    if criteria.close(found["parameters"], right["parameters"] - 1):
        return (
            "the gradients of the layer's parameters are replaced; those of other micro-batches are in them, so add to"
            " them"
        )
    return "the gradients of the layer's parameters are not those that it has where its activations are kept"


def once(seen, case, expected):
    if seen[0]["passes"] != 1:
        return f"the layer goes forward {seen[0]['passes']} times; once is enough"
    return (
        "the activations that are computed again are kept after backward: it frees them, without retain_graph or"
        " create_graph"
        if seen[0]["kept"]
        else None
    )


def own_row(seen, case, expected):
    rows = expected["rows"]
    for rank, of_rank in enumerate(seen):
        found = of_rank["shard"]
        if criteria.close(found, rows[rank]):
            continue
        if len(found) == rows.size:
            return (
                f"on rank {rank}, `shard` has all {rows.size} numbers; it is one row of `values`, with {rows.shape[1]}"
            )
        if (other := next((row for row in range(len(rows)) if criteria.close(found, rows[row])), None)) is not None:
            return f"rank {rank} has row {other} of `values`; its own is row {rank}"
        return f"on rank {rank}, `shard` has {len(found)} numbers that are not row {rank} of `values`"
    return None


def in_place(seen, case, expected):
    apart = [name for of_rank in seen for name in of_rank["apart"]]
    if other := next((name for name in apart if name != "shard"), None):
        return (
            f"`{other}` is another tensor after your code: what the network has are views of the one before, and don't"
            " change with it"
        )
    return "`shard` is a copy: a row of `values` without .clone() needs no memory of its own" if apart else None


def its_state(seen, case, expected):
    length = expected["rows"].shape[1]
    for rank, of_rank in enumerate(seen):
        if not of_rank["made"]:
            return (
                "`optimizer` is not what make_optimizer gives, so it has other options than the run's:"
                " make_optimizer([shard])"
            )
        if of_rank["optimizer"] != length:
            return (
                f"what make_optimizer gives on rank {rank} has {of_rank['optimizer']} numbers, and keeps a state for"
                f" each; the shard has {length}: make_optimizer([shard])"
            )
        if not of_rank["trained"]:
            return (
                f"on rank {rank}, a step of `optimizer` does not change `shard`: it trains another tensor, which never"
                " gets a gradient: make_optimizer([shard])"
            )
    return None


def _as_expected(field, otherwise):
    def judge(seen, case, expected):
        found = [of_rank[field] for of_rank in seen]
        if criteria.close(found, expected["right"], TOLERANCE):
            return None
        sentences = (
            sentence
            for sentence, values in expected.items()
            if sentence != "right" and criteria.close(found, values, TOLERANCE)
        )
        rounded = (
            f"`{field}` are rounded: they must keep their type"
            if criteria.close(found, expected["right"], ROUNDED)
            else None
        )
        return next(sentences, None) or rounded or otherwise

    return judge


def mean_of_row(seen, case, expected):
    """A judge: each rank has the mean of its row. Of other numbers it says whose they are, as far as that shows."""
    otherwise = "`mean` is not the mean of all ranks' gradients of this shard"
    problem = _as_expected("gradients", otherwise)(seen, case, expected)
    if problem != otherwise:
        return problem
    size = case["ranks"]
    everybodys = [numbers(case["seed"] + 977, rank, size * case["length"]).reshape(size, -1) for rank in range(size)]
    for rank, of_rank in enumerate(seen):
        if criteria.close(of_rank["gradients"][0], numpy.mean(everybodys, axis=0)[rank], TOLERANCE):
            continue
        for row in range(size):
            times = criteria.shares(of_rank["gradients"][0], [of_other[row] for of_other in everybodys])
            if times and any(times):
                return (
                    f"`mean` of rank {rank} has row {row}, with {criteria.words_of_shares(times, rank)}; it should have"
                    f" the mean of row {rank}"
                )
    return problem


def gathered(seen, case, expected):
    problem = _as_expected("values", "`values` does not have the shards of all ranks in their rows")(
        seen, case, expected
    )
    if problem and any(of_rank["moved"] for of_rank in seen):
        return (
            "`values` is another tensor after your code, but the network's parameters are views of the one before:"
            " write into the rows of that one"
        )
    return problem


def _one(kind, words):
    def judge(seen, case, expected):
        size = 4 * case["length"] * (case["ranks"] if kind == "reduce_scatter" else 1)
        for rank, of_rank in enumerate(seen):
            for sent in of_rank["sent"]:
                one = [kind in name for name, _ in sent] == [True] and sent[0][1] <= size
                if not one and (sent or len(seen) > 1):  # one rank alone needs none
                    shown = ", ".join(f"{name} of {count} bytes" for name, count in sent) or "nothing"
                    return f"rank {rank} hands over {shown}; one {words} of {size} bytes does it"
        return None

    return judge


def _sharded(kind, criterion, more, field, **others):
    observed = {"ranks": 3, "length": 4, "steps": 2}
    return Check(
        kind,
        f"{PROBES}probe_zero:{kind}",
        (observed,),
        (criterion, more),
        f"{ORACLES}oracle_zero:{kind}",
        observed=lambda case: (
            {field: (Array((None,)),) * case["steps"], "sent": ([(str, int)],) * case["steps"]} | others
        ),
    )


SAME, KEPT, OWN = (
    "the gradients of the whole batch",
    "the gradients that kept activations give",
    "a shard for each rank",
)
MEAN, ALL = "the mean gradients of the shard", "all parameters on every rank"
CHECKS = {
    "pytorch/save_memory.py": (
        Check(
            "accumulate",
            f"{PROBES}probe_memory:accumulate",
            ({"images": 7, "parts": 3},),
            (
                Criterion(
                    "gradients_of_whole_batch",
                    SAME,
                    2,
                    whole_batch,
                    "loss = F.cross_entropy(model(some), of_some) * len(some) / len(images)",
                ),
                Criterion(
                    "one_micro_batch_at_a_time",
                    "one micro-batch at a time",
                    1,
                    one_at_a_time,
                    "loss.backward() frees what forward has kept.",
                    needs="gradients_of_whole_batch",
                ),
            ),
            f"{ORACLES}oracle_memory:accumulate",
            observed=lambda case: {
                "gradients": Array((None,)),
                "loss": float,
                "graph": bool,
                "kept": [int],
                "sizes": [int],
            },
        ),
        Check(
            "again",
            f"{PROBES}probe_memory:again",
            ({"tokens": 4},),
            (
                Criterion(
                    "same_gradients",
                    KEPT,
                    2,
                    as_kept,
                    "with torch.enable_grad(): output = layer(tokens); then output.backward(gradient).",
                ),
                Criterion(
                    "recomputed_once",
                    "computed again once",
                    1,
                    once,
                    "One forward, one backward.",
                    needs="same_gradients",
                ),
            ),
            f"{ORACLES}oracle_memory:again",
            observed=lambda case: {"tokens": Array((None,)), "parameters": Array((None,)), "passes": int, "kept": int},
        ),
    ),
    "pytorch/zero.py": (
        Check(
            "shard",
            f"{PROBES}probe_zero:shard",
            ({"ranks": 2},),
            (
                Criterion("shard_rank", OWN, 1, own_row, "values[rank]"),
                Criterion(
                    "no_second_copy",
                    "no second copy",
                    1,
                    in_place,
                    "nn.Parameter(tensor) keeps the tensor's memory.",
                    needs="shard_rank",
                ),
                Criterion(
                    "state_of_shard",
                    "the state of the shard alone",
                    2,
                    its_state,
                    "make_optimizer takes a list: [shard].",
                    needs="shard_rank",
                ),
            ),
            f"{ORACLES}oracle_zero:shard",
            observed=lambda case: {
                "shard": Array((None,)),
                "apart": [str],
                "optimizer": int,
                "made": bool,
                "trained": bool,
            },
        ),
        _sharded(
            "reduce_scatter",
            Criterion(
                "mean_gradients_shard",
                MEAN,
                2,
                mean_of_row,
                "Divide `gradients` by the number of ranks; dist.reduce_scatter(result, list(gradients)).",
            ),
            Criterion(
                "one_reduce_scatter",
                "one reduce-scatter",
                1,
                _one("reduce_scatter", "reduce-scatter"),
                "An all-reduce sends twice as much.",
                needs="mean_gradients_shard",
            ),
            "gradients",
        ),
        _sharded(
            "all_gather",
            Criterion("all_parameters", ALL, 2, gathered, "dist.all_gather(list(values), shard)"),
            Criterion(
                "one_all_gather",
                "one all-gather",
                1,
                _one("allgather", "all-gather"),
                "list(values) are the rows themselves, not copies.",
                needs="all_parameters",
            ),
            "values",
            moved=bool,
        ),
    ),
}
NOTEBOOK = (
    function(
        "block_parameters",
        "the parameters of a block",
        "A product of n x m has n m weights and m biases; a norm has a weight and a bias for each of the w numbers.",
        uses=["handson.pytorch.transformer"],
    ),
    function(
        "state_bytes",
        "the bytes of parameters, gradients and Adam's state",
        "A float32 has 4 bytes; Adam keeps two numbers for each parameter.",
    ),
    function(
        "activation_bytes",
        "the bytes of the activations",
        "Add up the table: so many times the width, for each token of each image, in each block; then 4 bytes for each"
        " number.",
    ),
    function(
        "largest_batch",
        "the largest batch that fits",
        "What the network does not take is left for images: divide, and round down.",
        whole="there is no half image",
    ),
    function(
        "checkpointed_bytes",
        "the activations with checkpointing",
        "The input of every block, and all activations of the one block that is computed again.",
    ),
    prediction(
        "prediction_slower",
        1,
        10,
        "write a factor from 1 on: 1 means as long as without checkpointing, 2 twice as long",
    ),
    function(
        "sharded_bytes",
        "the bytes of the state on a rank",
        "DDP: all of it. ZeRO-1 divides the optimizer's state; FSDP divides all.",
    ),
    prediction("prediction_ranks", 1, 64, "write a whole number of ranks, 1 to 64", whole=True),
    prediction("prediction_gathers", 1, 64, "write a whole number of all-gathers, 1 to 64", whole=True),
)
