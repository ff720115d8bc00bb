"""The checks of the gaps on tensor parallelism."""

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.checks.notebook_functions import choice, function, prediction
from grader.units.model_parallel import mesh, products_dtensor, products_sequence
from handson.words import counted

PROBES, ORACLES = (
    "grader.units.model_parallel.probes.probe_products:",
    "grader.units.model_parallel.oracles.oracle_products:",
)
ROUNDED = 0.03  # the largest change by rounding to whole numbers or half precision, as a share of the largest number
SHAPE = 3, 4  # the same as in the probes
TOKENS = 2, 3


def _other_shape(rank, found, right, case, joined):
    """Return a sentence if what a rank gets has another shape than what it gives, otherwise None. joined: what to do
    if there are too many numbers."""
    if found.shape == right.shape:
        return None
    problem = (
        f"on rank {rank}, `{case['gets']}` has the shape {found.shape}, but it should have the shape of"
        f" `{case['gives']}`, {right.shape}"
    )
    if found.size > right.size:
        return f"{problem}: {joined}"
    return criteria.with_reason(problem, "do not divide it" if found.size < right.size else "")


def sum_of_the_group(seen, case, expected):
    """Judge that after an operator each rank has the sum of its group's tensors."""
    gives = case["gives"]
    for rank, of_rank in enumerate(seen):
        found, right, size = (
            of_rank["found"],
            expected["sum"][rank],
            len(case["groups"][0]) if case.get("groups") else len(seen),
        )
        if criteria.close(found, right, criteria.SINGLE):
            continue
        if problem := _other_shape(rank, found, right, case, f"the ranks' `{gives}` are added, not joined"):
            return problem
        if criteria.close(found, expected["own"][rank]):
            return (
                f"on rank {rank}, `{case['gets']}` is only this rank's `{gives}`: dist.all_reduce adds the tensors of"
                " all ranks"
            )
        if criteria.close(found, right / size):
            return f"`{case['gets']}` is the mean, but it should be the sum: the ranks have terms of a sum"
        if criteria.close(found, expected["all"][rank]):
            return (
                f"`{case['gets']}` is the sum over all ranks: pass the group to dist.all_reduce, because ranks of other"
                " groups may have other images"
            )
        if criteria.close(found, right, ROUNDED):
            return f"on rank {rank}, `{case['gets']}` is rounded: it should have the data type of `{gives}`"
        return f"on rank {rank}, `{case['gets']}` is not the sum of the ranks' `{gives}`"
    return None


def left_alone(seen, case, expected):
    changed = [rank for rank, of_rank in enumerate(seen) if of_rank["changed"]]
    return (
        f"your code changes `{case['gives']}` itself, but autograd may have passed the same tensor to another layer:"
        " run dist.all_reduce on a clone"
        if changed
        else None
    )


def one_all_reduce(seen, case, expected):
    """Judge that an operator runs one all-reduce of one tensor."""
    size, alone = 8 * SHAPE[0] * SHAPE[1], len(case["groups"][0] if case.get("groups") else seen) == 1
    for rank, of_rank in enumerate(seen):
        # a group of one rank needs none
        if of_rank["sent"] != [["allreduce", size]] and (of_rank["sent"] or not alone):
            shown = ", ".join(f"{name} of {count} bytes" for name, count in of_rank["sent"]) or "nothing"
            return f"rank {rank} runs these collectives: {shown}; one all-reduce of {size} bytes is enough"
    return None


def as_it_is(seen, case, expected):
    """Judge that Leave's backward returns the gradient unchanged."""
    for rank, of_rank in enumerate(seen):
        own = expected["own"][rank]
        if criteria.close(of_rank["found"], own, criteria.SINGLE):
            continue
        if problem := _other_shape(rank, of_rank["found"], own, case, "do not join anything to it"):
            return problem
        if criteria.close(of_rank["found"], expected["sum"][rank]):
            return (
                "`of_term` is the sum of all ranks' gradients, but each rank already has the whole gradient of the sum:"
                " d(a + b)/da is 1"
            )
        if criteria.close(of_rank["found"], own / len(seen)):
            return "`of_term` is divided by the number of ranks, but d(a + b)/da is 1 for any number of terms"
        if criteria.close(of_rank["found"], own, ROUNDED):
            return f"on rank {rank}, `of_term` is rounded: it should have the data type of `gradient`"
        return f"on rank {rank}, `of_term` is not the gradient of the sum"
    return None


def nothing_sent(seen, case, expected):
    sent = [rank for rank, of_rank in enumerate(seen) if of_rank["sent"]]
    return (
        f"rank {sent[0]} runs a collective ({seen[sent[0]]['sent'][0][0]}), but `gradient` is already equal on all"
        " ranks"
        if sent
        else None
    )


def its_part(name, along):
    """Return a judge of `columns` and `rows`, which compares their parts of the weight or of the bias. along: the word
    for the divided dimension."""

    def judge(seen, case, expected):
        groups = case.get("groups") or [range(case["ranks"])]
        for number, of_process in enumerate(seen):
            group = next(group for group in groups if number in group)
            found, rank, size = of_process[name], group.index(number), len(group)
            of_rank = expected["parts"][name][rank]
            if criteria.close(found, of_rank):
                continue
            who = f"on rank {rank} of {size}, `{name}`"
            if len(groups) > 1 and criteria.close(found, expected["of_all"][name][number]):
                return (
                    f"{who} is the part of rank {number} of all {case['ranks']} ranks, but the layer is split among a"
                    " group: use `rank` and `size`, which count in the group"
                )
            if found.shape == expected["whole"][name].shape and size > 1:
                return f"{who} is the whole layer.{name}: take only this rank's part of it"
            if criteria.close(found, expected["other"][name][rank]):
                return (
                    f"{who} is divided in the wrong dimension: layer.weight is (outputs, inputs), and the {along}"
                    " should be divided"
                )
            if found.ndim == 2 and found.T.shape == of_rank.shape and criteria.close(found.T, of_rank):
                return f"{who} is transposed: like layer.weight, a part should be (outputs, inputs)"
            if criteria.close(found, expected["strided"][name][rank]):
                return (
                    f"{who} has one of every {size} numbers, but a part should be contiguous: otherwise it"
                    " has pieces of several heads"
                )
            parts = expected["parts"][name]
            if (other := next((one for one in range(size) if criteria.close(found, parts[one])), None)) is not None:
                return f"{who} is the part of rank {other} of {size}: parts should be in the order of the ranks"
            if found.shape != of_rank.shape:
                uneven = ": tensor_split gives the first ranks one more" if found.ndim == of_rank.ndim else ""
                return f"{who} has the shape {found.shape} instead of {of_rank.shape}{uneven}"
            return criteria.with_factor(f"{who} is not this rank's part of layer.{name}", found, of_rank)
        return None

    return judge


def outputs_of_the_whole(seen, case, expected):
    problems = [criteria.explained_by(of_rank["outputs"], right["outputs"]) for of_rank, right in zip(seen, expected)]
    rank = next((rank for rank, problem in enumerate(problems) if problem is not None), None)
    if rank is None:
        return None
    where = f"on rank {rank}, " if len(set(problems)) > 1 else ""
    return where + (problems[rank] or "`outputs` is not the output of the whole MLP")


def gradients_of_the_whole(seen, case, expected):
    return next(
        filter(
            None,
            (_gradient_of_the_whole(rank, *of_rank, case["ranks"]) for rank, of_rank in enumerate(zip(seen, expected))),
        ),
        None,
    )


def _gradient_of_the_whole(rank, found, right, ranks):
    of_tokens, of_bias, of_part = ((found[name], right[name]) for name in ("of_tokens", "of_bias", "of_part"))
    if criteria.close(of_part[0], ranks * of_part[1]) and ranks > 1:
        return (
            f"the gradients of self.part's parameters are {ranks} times too large: apply Enter before self.part,"
            " because after it, Enter's backward adds gradients that are already complete"
        )
    if criteria.close(of_tokens[0], right["of_tokens_alone"]) and ranks > 1:
        return "the gradient of the tokens comes only from this rank's part: apply Enter to `tokens`"
    if criteria.close(of_tokens[0], of_tokens[1] * ranks) and ranks > 1:
        return "the gradient of the tokens is summed over the ranks twice: apply Enter only once"
    if criteria.close(of_bias[0], 0 * of_bias[1]):
        return f"on rank {rank}, `self.bias` gets no gradient: add self.bias after Leave, on every rank"
    if criteria.close(of_bias[0], of_bias[1] / ranks) and ranks > 1:
        return f"each rank's bias gets only 1/{ranks} of its gradient: add the whole bias after Leave, on every rank"
    names = {"the tokens": of_tokens, "the bias": of_bias, "self.part's parameters": of_part}
    wrong = next((name for name, (found, right) in names.items() if not criteria.close(found, right)), None)
    return wrong and f"the gradient of {wrong} is not the gradient in the whole MLP"


def one_in_each_direction(seen, case, expected):
    right = [(1, 1), (0, 0)] if case["ranks"] == 1 else [(1, 1)]  # one rank has nothing to add up
    entered, left = seen[0]["entered"], seen[0]["left"]
    return (
        None
        if (entered, left) in right
        else (
            f"your code applies Enter {counted(entered, 'time')} and Leave {counted(left, 'time')}: each time costs an"
            " all-reduce, so apply each of them once"
        )
    )


def terms_of_the_whole(seen, case, expected):
    found = sum(of_rank["term"] for of_rank in seen)
    if problem := criteria.explained_by(found, expected["terms"]):
        return problem
    if problem == "":
        return "the sum of the ranks' attentions is not the output of the whole attention without its bias"
    mine = case["width"] // case["ranks"]
    for rank, of_rank in enumerate(seen):
        if whole := [name for name, width in zip(("query", "key", "value"), of_rank["widths"]) if width != mine]:
            return (
                f"on rank {rank}, attention.{whole[0]} computes {case['width']} numbers per token, but this rank's"
                f" heads need {mine}: split the layer with `columns`"
            )
    return None


def bias_of_the_whole(seen, case, expected):
    whole = expected["bias"].shape
    for rank, of_rank in enumerate(seen):
        if of_rank["bias"].shape != whole:
            return (
                f"on rank {rank}, `bias` has the shape {of_rank['bias'].shape}, but the whole bias has {whole}: every"
                " rank adds it after Leave, so do not divide it"
            )
        if not criteria.close(of_rank["bias"], expected["bias"]):
            return f"on rank {rank}, `bias` is not the bias of the whole attention.out"
        if not of_rank["trained"]:
            return (
                "`bias` has the right numbers, but it is not a parameter, so no optimizer trains it: use"
                " attention.out.bias itself, not a copy"
            )
    return None


def _operator(gap, gives, gets, criteria, group=True):
    case = {"ranks": 2, "gives": gives, "gets": gets}
    cases = (case, case | {"groups": [[0], [1]]}) if group else (case,)
    form = {"found": Array(), "changed": bool, "sent": [(str, int)]}
    return Check(gap, f"{PROBES}operator", cases, criteria, f"{ORACLES}operator", observed=lambda case: form)


def _layer(gap, criteria, bias):
    case = {"ranks": 2, "inputs": 6, "outputs": 4, "bias": bias}
    cases = case, case | {"ranks": 3, "inputs": 10, "outputs": 7}, case | {"groups": [[0], [1]]}
    form = {name: Array() for name in ("weight", "bias")[: 1 + bias]}
    return Check(gap, f"{PROBES}part", cases, criteria, f"{ORACLES}part", observed=lambda case: form)


def _outputs(case):
    shape = *TOKENS, case["width"]
    return {
        "outputs": Array(shape),
        "of_tokens": Array(shape),
        "of_bias": Array((case["width"],)),
        "of_part": Array((None,)),
        "entered": int,
        "left": int,
    }


def _terms(case):
    return {"term": Array((*TOKENS, case["width"])), "bias": Array(), "trained": bool, "widths": (int, int, int)}


SUM = "the result is the sum over the group's ranks"
WHOLE, TERMS = "`outputs` are those of the whole layer", "the ranks' terms add up to the whole attention"
CHECKS = {
    "pytorch/products.py": (
        _operator(
            "enter_backward",
            "gradient",
            "of_x",
            (
                Criterion(
                    "sum_all_ranks",
                    SUM,
                    2,
                    sum_of_the_group,
                    "of_x = gradient.clone(), then dist.all_reduce(of_x, group=context.group).",
                ),
                Criterion(
                    "one_all_reduce",
                    "one all-reduce, and the argument stays unchanged",
                    1,
                    lambda *all: one_all_reduce(*all) or left_alone(*all),
                    "dist.all_reduce works in place: pass a clone.",
                    needs="sum_all_ranks",
                ),
            ),
        ),
        _operator(
            "leave_forward",
            "term",
            "total",
            (
                Criterion(
                    "sum_all_ranks",
                    SUM,
                    2,
                    sum_of_the_group,
                    "total = term.clone(), then dist.all_reduce(total, group=group).",
                ),
                Criterion(
                    "one_all_reduce",
                    "one all-reduce, and the argument stays unchanged",
                    1,
                    lambda *all: one_all_reduce(*all) or left_alone(*all),
                    "dist.all_reduce works in place: pass a clone.",
                    needs="sum_all_ranks",
                ),
            ),
        ),
        _operator(
            "leave_backward",
            "gradient",
            "of_term",
            (
                Criterion(
                    "gradient_term",
                    "`of_term` is the gradient of a term",
                    2,
                    as_it_is,
                    "d(a + b)/da is 1: the gradient of a term is the gradient of the sum.",
                ),
                Criterion(
                    "nothing_sent",
                    "the ranks do not communicate",
                    1,
                    nothing_sent,
                    "All ranks continue with the same sum, so all have the same gradient.",
                    needs="gradient_term",
                ),
            ),
            group=False,
        ),
        _layer(
            "columns",
            (
                Criterion(
                    "rank_outputs",
                    "`weight` is for this rank's outputs",
                    2,
                    its_part("weight", "outputs"),
                    "layer.weight.tensor_split(size)[rank]: dimension 0 has the outputs.",
                ),
                Criterion(
                    "biases",
                    "`bias` is for this rank's outputs",
                    1,
                    its_part("bias", "outputs"),
                    "Each output has its own bias.",
                ),
            ),
            True,
        ),
        _layer(
            "rows",
            (
                Criterion(
                    "rank_inputs",
                    "`weight` is for this rank's inputs",
                    2,
                    its_part("weight", "inputs"),
                    "Split dimension 1 of layer.weight, the inputs.",
                ),
            ),
            False,
        ),
        Check(
            "split_forward",
            f"{PROBES}whole",
            ({"ranks": 2, "width": 4},),
            (
                Criterion(
                    "whole_outputs",
                    WHOLE,
                    2,
                    outputs_of_the_whole,
                    "Leave adds the ranks' terms; add the bias to the sum.",
                ),
                Criterion(
                    "whole_gradients",
                    "the gradients are those of the whole layer",
                    1,
                    gradients_of_the_whole,
                    "Apply Enter to `tokens`, before self.part; add the bias after Leave.",
                    needs="whole_outputs",
                ),
                Criterion(
                    "one_all_reduce_direction",
                    "one all-reduce in each direction",
                    1,
                    criteria.on_each_rank(one_in_each_direction),
                    "Apply Enter once and Leave once.",
                    needs="whole_outputs",
                ),
            ),
            f"{ORACLES}whole",
            observed=_outputs,
        ),
        Check(
            "split_attention",
            f"{PROBES}attention",
            ({"ranks": 2, "width": 8, "heads": 4},),
            (
                Criterion(
                    "terms_whole",
                    TERMS,
                    2,
                    terms_of_the_whole,
                    "Use `columns` for query, key and value, `rows` for out, and this rank's number of heads.",
                ),
                Criterion(
                    "bias_once",
                    "`bias` is the bias of the whole attention.out",
                    1,
                    bias_of_the_whole,
                    "Set bias = attention.out.bias before `rows` replaces the layer.",
                    needs="terms_whole",
                ),
            ),
            f"{ORACLES}attention",
            observed=_terms,
        ),
    ),
    "pytorch/products_sequence.py": products_sequence.CHECKS,
    "pytorch/products_dtensor.py": products_dtensor.CHECKS,
    "pytorch/mesh.py": mesh.CHECKS,
}
NOTEBOOK = (
    function(
        "products_bytes",
        "`products_bytes` is the number of bytes that a rank sends in tensor parallelism",
        "A block needs 4 all-reduces of 4 x images x tokens x width bytes; a ring sends 2 (N - 1) / N of them.",
    ),
    prediction("prediction_forward", 0, 1000, "write a number of all-reduces: an integer, 0 or more", whole=True),
    function(
        "images_bytes",
        "`images_bytes` is the number of bytes that a rank sends for the gradients",
        "A rank has parameters / model_ranks parameters, with a gradient of 4 bytes each.",
    ),
    function(
        "step_seconds",
        "`step_seconds` is the time of a step",
        "Add `computing` to the bits that all ranks of the node send, divided by the bits per second.",
    ),
    choice(
        "inside",
        "`inside` is what the ranks of a node should share",
        "Compare the bytes that the cell above prints: the arrangement that sends fewer bytes is better.",
        of="word",
    ),
    prediction("prediction_times", 0.01, 1000, "1 means equally long, 2 means twice as long"),
    function(
        "images_of_equal_bytes",
        "`images_of_equal_bytes` is the number of images at which both arrangements send equally many bytes",
        "Solve: images x (bytes of one image's tokens) = bytes of half of the gradients.",
    ),
)
