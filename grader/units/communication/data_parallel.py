"""The checks of data_parallel.py: the gradients are compared with those of one big batch, and the order of the
all-reduces with that of backward."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBES = "grader.units.communication.probes.probe_data_parallel:"
ORACLES = "grader.units.communication.oracles.oracle_data_parallel:"
MORE = 4  # additional numbers that may be sent with a bucket's gradients, such as a count of the ranks


def of_rank_0(seen, case, expected):
    right = expected["right"]
    for rank, of_rank in enumerate(seen):
        if problem := criteria.explained(
            of_rank["parameters"], right, {"the parameters are unchanged": expected["own"][rank]} if rank else {}
        ):
            return f"on rank {rank}, {problem}: all ranks need the parameters of rank 0"
        if not criteria.close(of_rank["parameters"], right):
            if numpy.count_nonzero(of_rank["parameters"] == right):
                return f"on rank {rank}, only some parameters are those of rank 0: broadcast each parameter"
            held = criteria.shares(of_rank["parameters"], expected["own"])
            instead = f"have {criteria.words_of_shares(held, rank)}" if held and any(held) else "are others"
            return f"on rank {rank}, the parameters {instead}: all ranks need the parameters with which rank 0 started"
    return None


def each_once(seen, case, expected):
    found, count = [one for bucket in seen[0]["buckets"] for one in bucket], len(case["sizes"])
    if lost := [number for number in range(count) if number not in found]:
        return (
            f"`buckets` lacks {len(lost)} of {count} parameters (parameter {lost[0]}, counted from 0): their gradients"
            " would never be averaged"
        )
    if len(found) > count:
        return "`buckets` has a parameter in more than one bucket: its gradient would be sent more than once"
    return None


def backwards(seen, case, expected):
    found = [one for bucket in seen[0]["buckets"] for one in bucket]
    if found == sorted(found, reverse=True):
        return None
    first = (
        "`buckets` starts with the first parameters"
        if found == sorted(found)
        else f"`buckets` has the parameters in the order {criteria.first_few(found, 6)}"
    )
    return f"{first}; backward finishes the last parameter first, so put it into the first bucket"


def full(seen, case, expected):
    """Judge that no bucket is too large, and no bucket was closed too early."""
    most, sizes, buckets = case["most"], case["sizes"], seen[0]["buckets"]
    if [] in buckets:
        return (
            f"bucket {buckets.index([])} is empty, so its all-reduce never starts, but training waits for it: open a"
            " bucket only for a parameter"
        )
    from_the_first, from_the_last = (
        _filled(order, sizes, most) for order in (range(len(sizes)), reversed(range(len(sizes))))
    )
    turned_around = backwards(seen, case, expected) is None and sorted(map(sorted, buckets)) == from_the_first
    if turned_around and from_the_first != sorted(map(sorted, from_the_last)):
        return (
            "`buckets` was filled in the order of the parameters, and then reversed: start with the last parameter,"
            " because backward finishes it first"
        )
    for number, bucket in enumerate(buckets):
        total = 4 * sum(sizes[one] for one in bucket)
        if total > most and len(bucket) > 1:
            return (
                f"bucket {number} has {total} bytes in {len(bucket)} parameters, but at most {most} bytes are allowed:"
                " close a bucket before a parameter that does not fit"
            )
        if number and 4 * sizes[bucket[0]] <= most - 4 * sum(sizes[one] for one in buckets[number - 1]):
            return (
                f"bucket {number - 1} is closed too early: the first parameter of bucket {number} would fit into its"
                f" {most} bytes (4 bytes per number)"
            )
    return None


def _filled(order, sizes, most):
    """Return buckets that are filled with the numbers of parameters in this order."""
    buckets, room = [], 0
    for number in order:
        if not buckets or 4 * sizes[number] > room:
            buckets.append([])
            room = most
        buckets[-1].append(number)
        room -= 4 * sizes[number]
    return buckets


def one_big_batch(seen, case, expected):
    right, ranks = expected["right"], len(seen)
    known = {sentence: values for sentence, values in expected.items() if sentence not in ("right", "own")}
    for rank, of_rank in enumerate(seen):
        for number, step in enumerate(of_rank["steps"]):
            where = f"on rank {rank}, in step {number + 1},"
            if not all(step["begun"]):
                bucket = step["begun"].index(False)
                left = "reset self.missing for the next step" if number else "set self.mean and self.work"
                return f"{where} bucket {bucket} has no all-reduce after backward: {left}"
            if step["changed"]:
                return (
                    f"{where} your code changes the tensor of an all-reduce that is in flight: the numbers that are"
                    " sent then depend on chance"
                )
            if step["shared"]:
                return (
                    f"{where} two all-reduces in flight share memory, so the second overwrites the numbers that the"
                    " first still sends: create a tensor for each all-reduce"
                )
            found = numpy.concatenate(step["means"])
            if criteria.close(found, right[number]):
                continue
            if ranks > 1 and criteria.close(found, expected["own"][rank][number]):
                return f"{where} `self.mean` has only the gradients of this rank"
            if sentence := next(
                (sentence for sentence, values in known.items() if criteria.close(found, values[number])), None
            ):
                return sentence
            return criteria.with_factor(
                f"{where} `self.mean` is not the mean of all ranks' gradients", found, right[number]
            )
    return None


def one_all_reduce(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        for number, step in enumerate(of_rank["steps"]):
            begun = [what for what, _ in step["events"] if what == "begin"]
            if len(begun) != len(case["buckets"]):
                return (
                    f"in step {number + 1}, rank {rank} starts {len(begun)} all-reduces for {len(case['buckets'])}"
                    " buckets: each bucket needs one all-reduce"
                )
            if len(step["sent"]) > len(begun):
                sent = ", ".join(name for name, _ in step["sent"])
                return (
                    f"in step {number + 1}, rank {rank} calls {sent}; one all-reduce for each of the"
                    f" {len(case['buckets'])} buckets is enough"
                )
            sent, size = sum(bytes_sent for _, bytes_sent in step["sent"]), 8 * sum(map(len, step["means"]))
            if sent > size + 8 * MORE * len(begun):
                return (
                    f"in step {number + 1}, rank {rank} passes {sent} bytes to all-reduces, but the gradients have only"
                    f" {size} bytes"
                )
    return None


def while_backward_goes_on(seen, case, expected):
    """Judge that each all-reduce starts right after the last gradient of its bucket, and no rank waits for it during
    backward."""
    for rank, of_rank in enumerate(seen):
        for number, step in enumerate(of_rank["steps"]):
            if "wait" in [what for what, _ in step["events"]]:
                return (
                    f"rank {rank} waits for an all-reduce during backward, so no communication is hidden: leave the"
                    " waiting to `wait`"
                )
            if [what for what, _ in step["events"]] != _events(case):
                return (
                    f"in step {number + 1}, rank {rank} does not start each all-reduce right after the last gradient"
                    " of its bucket"
                )
    return None


def _events(case):
    """Return the events in the right order.

    case["order"]: the places of the gradients, in the order in which backward finishes them; case["buckets"]: the
    number of places of each bucket.
    """
    bucket_of = [number for number, size in enumerate(case["buckets"]) for _ in range(size)]
    missing, events = list(case["buckets"]), []
    for place in case["order"]:
        missing[bucket_of[place]] -= 1
        events += ["gradient"] + ["begin"] * (not missing[bucket_of[place]])
    return events


def every_gradient(seen, case, expected):
    calls, count = seen[0]["calls"], sum(case["buckets"])
    for number, step in enumerate(calls):
        times = [[one for one, *_ in step].count(place) for place in range(count)]
        if not any(times):
            return f"in backward pass {number + 1}, `ready` is never called"
        place = next((place for place in range(count) if times[place] != 1), None)
        if place is not None:
            return (
                f"in backward pass {number + 1}, `ready` is called {times[place]} times for parameter {place}; it"
                " should be called once per backward pass"
            )
        if not all(there for _, there, _ in step):
            return "`ready` is called before parameter.grad is complete: use register_post_accumulate_grad_hook"
        if late := [place for place, _, last in step if not last]:
            return (
                f"`ready` is called too late for parameter {late[0]}, when gradients that backward computes after it"
                " are already complete: register a separate hook for each parameter, which calls `ready` at once"
            )
    return None


def means_in_place(seen, case, expected):
    for number, step in enumerate(seen[0]["steps"]):
        if step["parameters"]:
            return "`wait` changes the parameters: copy the means into parameter.grad; the optimizer updates parameters"
        if not criteria.close(step["gradients"], expected["right"][number]):
            if step["unwaited"]:
                return f"{_unwaited(step, case, number)}: call self.work.wait() before you read self.mean"
            if sentence := next(
                (
                    one
                    for one, values in expected.items()
                    if one != "right" and criteria.close(step["gradients"], values[number])
                ),
                None,
            ):
                return sentence
            return (
                f"in step {number + 1}, parameter.grad is not the part of `self.mean` that belongs to the parameter:"
                " split self.mean in the order of self.parameters"
            )
        if step["unwaited"]:
            return f"{_unwaited(step, case, number)}: call self.work.wait()"
    return None


def _unwaited(step, case, number):
    """Return how many all-reduces of a step are never waited for, in words."""
    return f"in step {number + 1}, {step['unwaited']} of {len(case['buckets'])} all-reduces are never waited for"


STEP = {
    "begun": [bool],
    "means": [Array((None,))],
    "events": [(str, int)],
    "sent": [(str, int)],
    "changed": bool,
    "shared": bool,
}
DONE = {"gradients": Array((None,)), "parameters": bool, "unwaited": int}
MEAN, ONE = "`self.mean` is the mean of all ranks' gradients", "each bucket starts one all-reduce"
CHECKS = (
    Check(
        "broadcast",
        PROBES + "broadcast",
        ({"ranks": 2},),
        (
            Criterion(
                "rank_0_everywhere",
                "every rank has the parameters of rank 0",
                1,
                of_rank_0,
                "dist.broadcast(tensor, 0) overwrites `tensor` on all other ranks.",
            ),
        ),
        ORACLES + "broadcast",
        observed=lambda case: {"parameters": Array((None,))},
    ),
    Check(
        "buckets",
        PROBES + "buckets",
        (
            {"sizes": [6, 4, 1, 5, 9, 2, 2], "most": 40},
            {"sizes": [3, 30, 3], "most": 24},
            {"sizes": [3, 9], "most": 24},
        ),
        (
            Criterion(
                "each_parameter_once",
                "each parameter is in one bucket",
                1,
                each_once,
                "Append every parameter to the last bucket, also if you have just opened this bucket for it.",
            ),
            Criterion(
                "last_parameter_first",
                "`buckets` starts with the last parameter",
                1,
                backwards,
                "reversed(parameters) goes through a list backwards.",
                needs="each_parameter_once",
            ),
            Criterion(
                "buckets_full",
                "the buckets are as full as possible",
                1,
                full,
                "Open a new bucket only if parameter.nbytes is more than the free bytes of the last bucket.",
                needs="each_parameter_once",
            ),
        ),
        observed=lambda case: {"buckets": [[int]]},
    ),
    Check(
        "ready",
        PROBES + "ready",
        ({"ranks": 2, "buckets": [2, 1, 1], "order": [1, 2, 0, 3], "steps": 2},),
        (
            Criterion(
                "mean_gradients",
                MEAN,
                2,
                one_big_batch,
                "torch.cat the flattened gradients, divide once, and keep self.mean and self.work.",
            ),
            Criterion(
                "one_all_reduce_per_bucket",
                ONE,
                1,
                one_all_reduce,
                "Count the gradients of the bucket, and start the all-reduce when none is missing.",
                needs="mean_gradients",
            ),
            Criterion(
                "overlaps_backward",
                "all-reduces start during backward",
                2,
                while_backward_goes_on,
                "dist.all_reduce(self.mean, async_op=True) returns at once.",
                needs="one_all_reduce_per_bucket",
            ),
        ),
        ORACLES + "ready",
        observed=lambda case: {"steps": (STEP,) * case["steps"]},
    ),
    Check(
        "hook",
        PROBES + "hook",
        ({"ranks": 2, "buckets": [1, 2, 1]},),
        (
            Criterion(
                "ready_for_each_gradient",
                "`ready` is called once for each gradient",
                2,
                criteria.on_each_rank(every_gradient),
                "The function that you register is called with the parameter as its only argument.",
            ),
        ),
        observed=lambda case: {"calls": ([(int, bool, bool)],) * 2},
    ),
    Check(
        "wait",
        PROBES + "wait",
        ({"ranks": 2, "buckets": [2, 1, 1]},),
        (
            Criterion(
                "means_gradients",
                "parameter.grad is the mean of all ranks' gradients",
                2,
                criteria.on_each_rank(means_in_place),
                "Call self.work.wait(), then use self.mean.split(...) and view_as(parameter).",
            ),
        ),
        ORACLES + "wait",
        observed=lambda case: {"steps": (DONE,) * 2},
    ),
)
