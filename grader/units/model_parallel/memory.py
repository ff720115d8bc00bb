"""The checks of the gaps on memory: formulas, accumulation and checkpointing, sharded state."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.checks.notebook_functions import function, prediction
from grader.probes.exact import numbers

PROBES, ORACLES = "grader.units.model_parallel.probes.", "grader.units.model_parallel.oracles."
TOLERANCE = 1e-6  # for values in single precision
ROUNDED = 0.03  # largest error by rounding to whole numbers or half precision, as a share of the largest number


def whole_batch(seen, case, expected):
    found = seen[0]["gradients"], seen[0]["loss"]
    for what, kind in (("the parameters' gradients are", 0), ("the gradients are right, but `total` is", 1)):
        if criteria.close(found[kind], expected["right"][kind], TOLERANCE):
            continue
        known = {sentence: values[kind] for sentence, values in expected.items() if sentence != "right"}
        if sentence := next(
            (sentence for sentence, value in known.items() if criteria.close(found[kind], value, TOLERANCE)), None
        ):
            return sentence if not kind else f"{what} not the mean loss of the batch: {sentence}"
        return f"{what} not equal to {'those' if not kind else 'the mean loss'} of the whole batch in one pass"
    return "`total` has a graph, which needs memory: add loss.detach() instead of loss" if seen[0]["graph"] else None


def one_at_a_time(seen, case, expected):
    most, sizes = max(seen[0]["kept"], default=0), sorted(seen[0]["sizes"], reverse=True)
    right = sorted((len(part) for part in numpy.array_split(numpy.arange(case["images"]), case["parts"])), reverse=True)
    if sizes != right:
        return (
            f"the network's forward gets {', '.join(map(str, sizes))} images, but the micro-batches have"
            f" {', '.join(map(str, right))}: call model(some) once for each micro-batch"
        )
    if most > 1:
        return (
            f"the activations of up to {most} micro-batches are in memory at the same time: call loss.backward() right"
            " after each forward, without retain_graph, to free them"
        )
    return None


def as_kept(seen, case, expected):
    found, right = seen[0], expected["right"]
    if not criteria.close(found["tokens"], right["tokens"]):
        if criteria.close(found["tokens"], expected["ones"]["tokens"]):
            return "backward starts with ones, but must start with `gradient`: call output.backward(gradient)"
        if criteria.close(found["tokens"], expected["parts"]["tokens"]):
            return (
                "`output` is computed from the layer's parts one after the other, but the layer also adds its input:"
                " call layer(tokens)"
            )
        otherwise = "`tokens.grad` is not the gradient of the input: run backward of `output` once, from `gradient`"
        return criteria.with_factor(otherwise, found["tokens"], right["tokens"])
    if criteria.close(found["parameters"], right["parameters"]):
        return None
    if criteria.close(found["parameters"], numpy.ones_like(right["parameters"])):
        return (
            "the layer's parameters get no gradients: call output.backward(gradient), which adds to the gradients of"
            " all leaves; torch.autograd.grad does not"
        )
    if criteria.close(found["parameters"], right["parameters"] - 1):
        return (
            "the gradients of the layer's parameters are replaced, but they contain the gradients of earlier"
            " micro-batches: add to them, as output.backward(gradient) does"
        )
    return "the gradients of the layer's parameters differ from those without checkpointing"


def once(seen, case, expected):
    if seen[0]["passes"] != 1:
        return f"the layer is called {seen[0]['passes']} times, but must be called once: output = layer(tokens)"
    return (
        "the recomputed activations stay in memory after backward: remove retain_graph and create_graph, so that"
        " backward frees them"
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
                f"`shard` has all {rows.size} numbers on rank {rank}, but must have one row of `values`, which has"
                f" {rows.shape[1]} numbers: values[rank]"
            )
        if (other := next((row for row in range(len(rows)) if criteria.close(found, rows[row])), None)) is not None:
            return f"`shard` is row {other} of `values` on rank {rank}, but must be row {rank}: values[rank]"
        return f"`shard` has {len(found)} numbers on rank {rank}, which are not row {rank} of `values`: values[rank]"
    return None


def in_place(seen, case, expected):
    apart = [name for of_rank in seen for name in of_rank["apart"]]
    if other := next((name for name in apart if name != "shard"), None):
        return (
            f"`{other}` is a new tensor after your code, but the network still uses views of the old tensor: do not"
            f" assign to `{other}`"
        )
    if not apart or own_row(seen, case, expected):  # a wrong row need not be a copy
        return None
    return "`shard` is a copy, which needs memory of its own: use the row of `values` without .clone()"


def its_state(seen, case, expected):
    length = expected["rows"].shape[1]
    for rank, of_rank in enumerate(seen):
        if not of_rank["made"]:
            return (
                "`optimizer` does not come from make_optimizer, so it lacks the options of the run: set it to"
                " make_optimizer([shard])"
            )
        if of_rank["optimizer"] != length:
            return (
                f"`optimizer` keeps a state for {of_rank['optimizer']} numbers on rank {rank}, but the shard has"
                f" {length} numbers: call make_optimizer([shard])"
            )
        if not of_rank["trained"]:
            return (
                f"`optimizer` does not update `shard` on rank {rank}, but another tensor, which never gets a gradient:"
                " call make_optimizer([shard])"
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
            f"`{field}` are rounded, but must keep their data type"
            if criteria.close(found, expected["right"], ROUNDED)
            else None
        )
        return next(sentences, None) or rounded or otherwise

    return judge


def mean_of_row(seen, case, expected):
    """Judge whether each rank has the mean of its row. The message names the rows from which wrong numbers come, if it
    can recognise them."""
    otherwise = "`mean` is not the mean over all ranks of this shard's gradients"
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
                    f"`mean` on rank {rank} is made from row {row}, with {criteria.words_of_shares(times, rank)}, but"
                    f" must be the mean of row {rank}"
                )
    return criteria.with_factor(problem, [of_rank["gradients"] for of_rank in seen], expected["right"])


def gathered(seen, case, expected):
    problem = _as_expected("values", "`values` does not contain the shard of each rank r in row r")(
        seen, case, expected
    )
    if problem and any(of_rank["moved"] for of_rank in seen):
        return (
            "`values` is a new tensor after your code, but the network's parameters are views of the old tensor: write"
            " into the rows of the old tensor with dist.all_gather(list(values), shard)"
        )
    names = [name for of_rank in seen for sent in of_rank["sent"] for name, _ in sent]
    if problem and "own shard" in problem and any("allgather" in name for name in names):
        return (
            "`values` keeps its old rows: the all-gather must write into them, as in dist.all_gather(list(values),"
            " shard)"
        )
    return problem


def _one(kind, words):
    def judge(seen, case, expected):
        size = 4 * case["length"] * (case["ranks"] if kind == "reduce_scatter" else 1)
        for rank, of_rank in enumerate(seen):
            for sent in of_rank["sent"]:
                one = [kind in name for name, _ in sent] == [True] and sent[0][1] <= size
                if not one and (sent or len(seen) > 1):  # a single rank needs no collective
                    shown = ", ".join(f"{name} of {count} bytes" for name, count in sent) or "no collective"
                    return f"rank {rank} calls {shown}: call one {words} of {size} bytes"
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
    "the gradients are those of the whole batch",
    "the gradients are the same as without checkpointing",
    "each rank has its own shard",
)
MEAN = "`mean` is the mean of the shard's gradients"
ALL = "every rank has all parameters"
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
                    "Set loss = F.cross_entropy(model(some), of_some) * len(some) / len(images).",
                ),
                Criterion(
                    "one_micro_batch_at_a_time",
                    "only one micro-batch has activations at a time",
                    1,
                    one_at_a_time,
                    "Call loss.backward() right after each forward: it frees the activations.",
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
                    "Compute output = layer(tokens) inside torch.enable_grad(), then call output.backward(gradient).",
                ),
                Criterion(
                    "recomputed_once",
                    "the layer is recomputed once",
                    1,
                    once,
                    "Run one forward and one backward.",
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
                Criterion("shard_rank", OWN, 1, own_row, "Use the row values[rank]."),
                Criterion(
                    "no_second_copy",
                    "the shard shares the memory of `values`",
                    1,
                    in_place,
                    "nn.Parameter(tensor) shares the memory of the tensor.",
                    needs="shard_rank",
                ),
                Criterion(
                    "state_of_shard",
                    "the optimizer has state only for the shard",
                    2,
                    its_state,
                    "Pass a list with only the shard: make_optimizer([shard]).",
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
                "Divide `gradients` by the number of ranks, then call dist.reduce_scatter(result, list(gradients)).",
            ),
            Criterion(
                "one_reduce_scatter",
                "the gradients need one reduce-scatter",
                1,
                _one("reduce_scatter", "reduce-scatter"),
                "Use dist.reduce_scatter: an all-reduce sends twice as many bytes.",
                needs="mean_gradients_shard",
            ),
            "gradients",
        ),
        _sharded(
            "all_gather",
            Criterion("all_parameters", ALL, 2, gathered, "Call dist.all_gather(list(values), shard)."),
            Criterion(
                "one_all_gather",
                "the parameters need one all-gather",
                1,
                _one("allgather", "all-gather"),
                "Call dist.all_gather once: list(values) contains the rows themselves, not copies.",
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
        "`block_parameters` is the number of parameters of a block",
        "A linear layer with n inputs and m outputs has n m weights and m biases. A norm has w weights and w biases.",
        uses=["handson.pytorch.transformer"],
    ),
    function(
        "state_bytes",
        "`state_bytes` is the memory of parameters, gradients and Adam's state",
        "A float32 number has 4 bytes. Adam keeps two numbers per parameter.",
    ),
    function(
        "activation_bytes",
        "`activation_bytes` is the memory of the activations",
        "Add up the widths of the table. Multiply the sum by width, blocks, tokens, batch, and 4 bytes per number.",
    ),
    function(
        "largest_batch",
        "`largest_batch` is the largest batch size that fits",
        "Subtract the network's bytes from the limit, divide by the bytes of an image, and round down.",
        whole="a batch has a whole number of images",
    ),
    function(
        "checkpointed_bytes",
        "`checkpointed_bytes` is the memory of the activations with checkpointing",
        "Add the inputs of all blocks, and the other 15 widths of the block that is recomputed.",
    ),
    prediction(
        "prediction_slower",
        1,
        10,
        "write a factor of at least 1: with 1 a step takes as long as without checkpointing, with 2 twice as long",
    ),
    function(
        "sharded_bytes",
        "`sharded_bytes` is the memory of the state per rank",
        "DDP shards nothing, ZeRO-1 shards the optimizer's state, FSDP shards all parts.",
    ),
    prediction("prediction_ranks", 1, 64, "write a whole number of ranks from 1 to 64", whole=True),
    prediction("prediction_gathers", 1, 64, "write a whole number of all-gathers from 1 to 64", whole=True),
)
