"""The checks of data_parallel.py: gradients against those of one big batch, and the order in which all-reduces
begin."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBES = "grader.units.communication.probes.probe_data_parallel:"
ORACLES = "grader.units.communication.oracles.oracle_data_parallel:"
MORE = 4  # numbers that may travel beside a bucket's gradients, such as a count of the ranks


def of_rank_0(seen, case, expected):
    right = expected["right"]
    for rank, of_rank in enumerate(seen):
        if problem := criteria.explained(
            of_rank["parameters"], right, {"each rank keeps its own": expected["own"][rank]} if rank else {}
        ):
            return f"on rank {rank}: {problem}; all ranks need the parameters of rank 0"
        if not criteria.close(of_rank["parameters"], right):
            if numpy.count_nonzero(of_rank["parameters"] == right):
                return f"rank {rank} has only some of rank 0's parameters: broadcast each of them"
            return f"the parameters of rank {rank} are not those that rank 0 had at the beginning"
    return None


def each_once(seen, case, expected):
    found, count = [one for bucket in seen[0]["buckets"] for one in bucket], len(case["sizes"])
    if lost := [number for number in range(count) if number not in found]:
        return (
            f"{len(lost)} of {count} parameters are in no bucket (parameter {lost[0]}, counted from 0): their gradients"
            " would never be averaged"
        )
    if len(found) > count:
        return "a parameter is in more than one bucket: its gradient would be sent more than once"
    return None


def backwards(seen, case, expected):
    found = [one for bucket in seen[0]["buckets"] for one in bucket]
    if found == sorted(found, reverse=True):
        return None
    first = (
        "the first parameters fill the first bucket"
        if found == sorted(found)
        else f"the parameters are in the order {criteria.first_few(found, 6)}"
    )
    return f"{first}; backward finishes the last parameter first, so it belongs into the first bucket"


def full(seen, case, expected):
    """A judge: no bucket is too large, and none was closed too early."""
    # no gradient waits for an empty one
    most, sizes, buckets = case["most"], case["sizes"], [bucket for bucket in seen[0]["buckets"] if bucket]
    from_the_first, from_the_last = (
        _filled(order, sizes, most) for order in (range(len(sizes)), reversed(range(len(sizes))))
    )
    turned_around = backwards(seen, case, expected) is None and sorted(map(sorted, buckets)) == from_the_first
    if turned_around and from_the_first != sorted(map(sorted, from_the_last)):
        return (
            "the buckets are filled from the first parameter on, and turned around afterwards: fill them from the last"
            " parameter on, since it is finished first"
        )
    for number, bucket in enumerate(buckets):
        total = 4 * sum(sizes[one] for one in bucket)
        if total > most and len(bucket) > 1:
            return (
                f"bucket {number} has {total} bytes in {len(bucket)} parameters; {most} are the most: close it before a"
                " parameter that does not fit"
            )
        if number and 4 * sizes[bucket[0]] <= most - 4 * sum(sizes[one] for one in buckets[number - 1]):
            return (
                f"bucket {number - 1} is closed too early: the first parameter of bucket {number} would fit into it"
                f" ({most} bytes, of 4 for each number)"
            )
    return None


def _filled(order, sizes, most):
    """Buckets that are filled with the numbers of parameters in an order."""
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
                left = "self.missing must be set for the next step" if number else "it needs self.mean and self.work"
                return f"{where} bucket {bucket} has no all-reduce after backward: {left}"
            if step["changed"]:
                return (
                    f"{where} the tensor of an all-reduce is changed while it is in flight: what is sent then is a"
                    " matter of chance"
                )
            if step["shared"]:
                return (
                    f"{where} two all-reduces in flight have the same memory: the second overwrites what the first"
                    " still sends; make a tensor for each"
                )
            found = numpy.concatenate(step["means"])
            if criteria.close(found, right[number]):
                continue
            if ranks > 1 and criteria.close(found, expected["own"][rank][number]):
                return f"{where} `self.mean` has the gradients of this rank alone"
            if sentence := next(
                (sentence for sentence, values in known.items() if criteria.close(found, values[number])), None
            ):
                return sentence
            return f"{where} the means are not the gradients of one big batch"
    return None


def one_all_reduce(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        for number, step in enumerate(of_rank["steps"]):
            begun = [what for what, _ in step["events"] if what == "begin"]
            if len(begun) != len(case["buckets"]):
                return (
                    f"in step {number + 1} rank {rank} starts {len(begun)} all-reduces; there are"
                    f" {len(case['buckets'])} buckets, and each needs one"
                )
            if len(step["sent"]) > len(begun):
                sent = ", ".join(name for name, _ in step["sent"])
                return (
                    f"in step {number + 1} rank {rank} hands over {sent}; one all-reduce for each of the"
                    f" {len(case['buckets'])} buckets does it"
                )
            sent, size = sum(bytes_sent for _, bytes_sent in step["sent"]), 8 * sum(map(len, step["means"]))
            if sent > size + 8 * MORE * len(begun):
                return f"in step {number + 1} rank {rank} hands {sent} bytes to all-reduces; the gradients have {size}"
    return None


def while_backward_goes_on(seen, case, expected):
    """A judge of the order of events: each all-reduce begins right after the last gradient of its bucket, and nobody
    waits."""
    for rank, of_rank in enumerate(seen):
        for number, step in enumerate(of_rank["steps"]):
            if "wait" in [what for what, _ in step["events"]]:
                return (
                    f"rank {rank} waits for an all-reduce while backward goes on: then nothing is hidden; leave that to"
                    " `wait`"
                )
            if [what for what, _ in step["events"]] != _events(case):
                return (
                    f"in step {number + 1} rank {rank} does not begin each all-reduce right after the last gradient of"
                    " its bucket"
                )
    return None


def _events(case):
    """The right order.

    case["order"]: that in which gradients are finished, as places; case["buckets"]: how many places each bucket has.
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
            return f"in backward pass {number + 1} nothing calls `ready`"
        place = next((place for place in range(count) if times[place] != 1), None)
        if place is not None:
            return (
                f"in backward pass {number + 1} `ready` is called {times[place]} times for parameter {place}; once,"
                " each time"
            )
        if not all(there for _, there, _ in step):
            return "`ready` is called before parameter.grad is complete: use register_post_accumulate_grad_hook"
        if late := [place for place, _, last in step if not last]:
            return (
                f"`ready` is called for parameter {late[0]} only when gradients after its own are complete, too: give"
                " each parameter a hook of its own that calls it at once"
            )
    return None


def means_in_place(seen, case, expected):
    for number, step in enumerate(seen[0]["steps"]):
        if step["parameters"]:
            return "the parameters change; the means belong into parameter.grad, and the optimizer does the rest"
        if not criteria.close(step["gradients"], expected["right"][number]):
            if step["unwaited"]:
                never = f"{step['unwaited']} of {len(case['buckets'])} all-reduces are not waited for"
                return f"in step {number + 1}, {never}: a mean is read before self.work.wait(), or not at all"
            if sentence := next(
                (
                    one
                    for one, values in expected.items()
                    if one != "right" and criteria.close(step["gradients"], values[number])
                ),
                None,
            ):
                return sentence
            return f"in step {number + 1}, the gradients are not the parts of `self.mean` that belong to them"
        if step["unwaited"]:
            return f"in step {number + 1}, {step['unwaited']} of {len(case['buckets'])} all-reduces are not waited for"
    return None


STEP = {
    "begun": [bool],
    "means": [Array((None,))],
    "events": [(str, int)],
    "sent": [(str, int)],
    "changed": bool,
    "shared": bool,
}
DONE = {"gradients": Array((None,)), "parameters": bool, "unwaited": int}
MEAN, ONE = "the mean gradients, as of one big batch", "an all-reduce for each bucket"
CHECKS = (
    Check(
        "broadcast",
        PROBES + "broadcast",
        ({"ranks": 2},),
        (
            Criterion(
                "rank_0_everywhere",
                "the parameters of rank 0 on every rank",
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
        ({"sizes": [6, 4, 1, 5, 9, 2, 2], "most": 40}, {"sizes": [3, 30, 3], "most": 24}),
        (
            Criterion(
                "each_parameter_once",
                "each parameter in one bucket",
                1,
                each_once,
                "Append every parameter to the last bucket, after the place where you may open a new one.",
            ),
            Criterion(
                "last_parameter_first",
                "the last parameter first",
                1,
                backwards,
                "reversed(parameters) goes through a list backwards.",
                needs="each_parameter_once",
            ),
            Criterion(
                "buckets_full",
                "buckets as full as they can be",
                1,
                full,
                "Open a new bucket only when parameter.nbytes is more than the room left.",
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
                "Count the bucket's gradients; start when none is missing.",
                needs="mean_gradients",
            ),
            Criterion(
                "overlaps_backward",
                "begun while backward goes on",
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
                "`ready` is called for each gradient",
                2,
                criteria.on_each_rank(every_gradient),
                "The function that you register gets the parameter as its only argument.",
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
                "the means are the gradients",
                2,
                criteria.on_each_rank(means_in_place),
                "self.work.wait(); then self.mean.split(...) and view_as(parameter).",
            ),
        ),
        ORACLES + "wait",
        observed=lambda case: {"steps": (DONE,) * 2},
    ),
)
