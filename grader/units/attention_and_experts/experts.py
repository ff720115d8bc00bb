"""The checks of experts.py: the tokens that an expert accepts, the balancing loss, and both exchanges."""

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.units.attention_and_experts.attention import as_expected, one_all_to_all

PROBES, ORACLES = (
    "grader.units.attention_and_experts.probes.probe_experts:",
    "grader.units.attention_and_experts.oracles.oracle_experts:",
)


def first_ones(seen, case, expected):
    found = seen[0]["kept"]
    for kept, right, mistakes in zip(found, expected["right"], expected["mistakes"]):
        if kept == right:
            continue
        if sentence := next((words for words, values in mistakes.items() if values == kept), None):
            return sentence
        place = next(place for place, (one, other) in enumerate(zip(kept, right)) if one != other)
        what = "dropped, but its expert has room for it" if right[place] else "kept, but its expert is full"
        return f"`kept` is wrong for token {place}: it is {what}"
    return None


def value(seen, case, expected):
    problem = criteria.explained(seen[0]["loss"], expected["loss"], expected["mistakes"], criteria.SINGLE)
    return (
        problem
        if problem is None
        else problem or f"`loss` is {seen[0]['loss']:.5g}, but it must be {expected['loss']:.5g}"
    )


def trains_the_router(seen, case, expected):
    found = seen[0]["gradient"]
    if criteria.close(found, expected["gradient"], criteria.SINGLE):
        return None
    if not found.any():
        return "`loss` has no gradient for the router: compute it from `probabilities`, without detach() and item()"
    return "`loss` has the right value, but its gradient differs from that of the formula"


COUNTS = [[1, 0, 3], [2, 2, 0], [0, 1, 1]]  # [from][to]
TWO = [[0, 3], [2, 1]]


def _arrived(case):
    return {"arrived": Array((None, 2)), "sent": [(str, int)]}


def _returned(case):
    return {"of_tokens": Array((None, 2)), "sent": [(str, int)]}


CHECKS = (
    Check(
        "within_capacity",
        f"{PROBES}within_capacity",
        ({"experts": 4, "tokens": 14, "capacities": [2, 3]},),
        (
            Criterion(
                "first_ones",
                "`kept` marks the first tokens of each expert",
                2,
                first_ones,
                "counted.gather(1, expert[:, None]) numbers the tokens of each expert, starting at 1.",
            ),
        ),
        f"{ORACLES}within_capacity",
        observed=lambda case: {"kept": tuple((bool,) * case["tokens"] for _ in case["capacities"])},
    ),
    Check(
        "balancing_loss",
        f"{PROBES}balancing_loss",
        ({"experts": 4, "tokens": 10},),
        (
            Criterion(
                "balance",
                "`loss` is the balancing loss",
                2,
                value,
                "The mean of F.one_hot(expert, experts) over the tokens is the share. The other factor is"
                " probabilities.mean(0).",
            ),
            Criterion(
                "router_learns",
                "`loss` has a gradient for the router",
                1,
                trains_the_router,
                "Keep the graph of `probabilities`: use neither .detach() nor .item().",
                needs="balance",
            ),
        ),
        f"{ORACLES}balancing_loss",
        observed=lambda case: {"loss": float, "gradient": Array((case["tokens"], case["experts"]))},
    ),
    Check(
        "exchange_forward",
        f"{PROBES}exchange_forward",
        ({"ranks": 3, "counts": COUNTS}, {"ranks": 2, "counts": TWO}),
        (
            Criterion(
                "arrived_in_order",
                "each token arrives at its rank",
                2,
                as_expected(
                    "arrived", "`arrived` does not contain the tokens for this rank in the order of the sending ranks"
                ),
                "Call dist.all_to_all_single(arrived, tokens, receives, sends): the sizes of the output come first.",
            ),
            Criterion(
                "one_all_to_all",
                "one all-to-all is enough",
                1,
                one_all_to_all,
                "Call dist.all_to_all_single once.",
                needs="arrived_in_order",
            ),
        ),
        f"{ORACLES}exchange_forward",
        observed=_arrived,
    ),
    Check(
        "exchange_backward",
        f"{PROBES}exchange_backward",
        ({"ranks": 3, "counts": COUNTS}, {"ranks": 2, "counts": TWO}),
        (
            Criterion(
                "back_in_order",
                "each gradient returns to its token",
                2,
                as_expected(
                    "of_tokens", "`of_tokens` does not contain the gradients of this rank's tokens in their order"
                ),
                "Make the same call with `sends` and `receives` swapped.",
            ),
            Criterion(
                "one_all_to_all",
                "one all-to-all is enough",
                1,
                one_all_to_all,
                "Call dist.all_to_all_single once.",
                needs="back_in_order",
            ),
        ),
        f"{ORACLES}exchange_backward",
        observed=_returned,
    ),
)
