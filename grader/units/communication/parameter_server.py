"""The checks of parameter_server.py. The probe simulates the network, so that the order of the gradients is known."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.probes.exact import numbers
from grader.units.communication.communication_numbers import LENGTH, RATE

PROBES = "grader.units.communication.probes.probe_parameter_server:"
TYPES = "torch.float64", "torch.float32"  # the types of `parameters` in the check and in a run


def simulated(case):
    """Return (the parameters after each update, [updates + 1][numbers]; the staleness of each gradient)."""
    parameters, has, staleness = [numpy.zeros(LENGTH)], {}, []
    for step, worker in enumerate(case["arrivals"]):
        parameters.append(parameters[-1] - RATE * numbers(case["seed"], step, LENGTH))
        staleness.append(step - has.get(worker, 0))
        has[worker] = step + 1
    return numpy.stack(parameters), staleness


def a_step_with_each(seen, case, expected):
    found, (right, _) = numpy.asarray(seen[0]["parameters"]), simulated(case)
    if criteria.close(found, right[1:]):
        return None
    wrong = {
        "the updates add lr * gradient: subtract it": -right[1:],
        "the updates lack the learning rate: multiply the gradient by `lr`": right[1:] / RATE,
        "`parameters` does not change: update it in place (parameters -= ...)": 0 * right[1:],
    }
    step = next((step for step in range(len(found)) if not criteria.close(found[step], right[step + 1])), 0)
    otherwise = f"after update {step + 1}, `parameters` is not the result of SGD with this gradient"
    times = criteria.times(found[step] - (found[step - 1] if step else 0), right[step + 1] - right[step])
    return criteria.explained(found, right[1:], wrong) or criteria.with_reason(
        otherwise, times and f"the update is {times:.3g} times lr * gradient"
    )


def answered_at_once(seen, case, expected):
    # another criterion judges the parameters
    own, answers = [numpy.zeros(LENGTH), *seen[0]["parameters"]], seen[0]["answers"]
    if len(answers) != len(case["arrivals"]):
        return (
            f"the server sends {len(answers)} answers to {len(case['arrivals'])} gradients, but each worker waits for"
            " an answer"
        )
    for step, (worker, sent) in enumerate(zip(case["arrivals"], answers)):
        if sent["to"] != worker:
            return f"gradient {step + 1} comes from worker {worker}, but the answer is sent to worker {sent['to']}"
        if len(sent["parameters"]) != LENGTH:
            return (
                f"worker {worker} receives {len(sent['parameters'])} numbers, but it waits for all {LENGTH} parameters"
            )
        if sent["type"] not in TYPES:
            return f"worker {worker} receives numbers of type {sent['type']}, but it waits for the type of `parameters`"
        if not criteria.close(values := sent["parameters"], own[step + 1]):
            if criteria.close(values, own[step]):
                return (
                    f"worker {worker} receives the parameters from before the update with its gradient: first update,"
                    " then send"
                )
            if not numpy.any(own[1:]):
                return (
                    "your answer is another tensor than `parameters`, which never changes: update `parameters` in place"
                    " (parameters -= ...), because the caller uses this tensor, too"
                )
            return f"worker {worker} does not receive `parameters` as they are after the update with its gradient"
    return None


def right_staleness(seen, case, expected):
    found, (_, right) = seen[0]["staleness"], simulated(case)
    if found == right:
        return None
    steps = list(range(len(right)))
    wrong = {
        "the update with the gradient itself does not count: compute the staleness before you increase `version`": [
            one + 1 for one in right
        ],
        "has[worker] never changes, but a worker receives new parameters with each answer": steps,
        (
            "has[worker] is the version before the update with the worker's own gradient, but the worker receives the"
            " parameters after this update"
        ): _behind(case["arrivals"]),
        "a worker has the parameters that it received last, not the newest parameters": [0] * len(right),
    }
    sentence = next((sentence for sentence, values in wrong.items() if found == values), "")
    return criteria.with_reason(
        f"`staleness` is {criteria.first_few(found, 8)}; for gradients of workers"
        f" {criteria.first_few(case['arrivals'], 8)}, it should be {criteria.first_few(right, 8)}",
        sentence,
    )


def _behind(arrivals):
    has, found = {}, []
    for step, worker in enumerate(arrivals):
        found.append(step - has.get(worker, 0))
        has[worker] = step
    return found


def sent_then_received(seen, case, expected):
    for number, step in enumerate(seen[0]["steps"]):
        what = [event for event, _ in step["events"]]
        if what[:1] == ["receive"]:
            return "the worker waits for an answer before it sends its gradient, so worker and server would deadlock"
        if what == ["send"]:
            return (
                f"in step {number + 1}, the worker receives no answer: use dist.recv, or call wait() on the work that"
                " dist.irecv returns"
            )
        if what != ["send", "receive"]:
            shown = ", then ".join(what) or "no message"
            return f"in step {number + 1}, the worker's messages are: {shown}; it should send once, then receive once"
        if wrong := [rank for _, rank in step["events"] if rank != 0]:
            return f"the worker exchanges a message with rank {wrong[0]}, but the server is rank 0"
        if not step["gradient"]:
            return f"in step {number + 1}, the worker does not send `gradient`"
        if not step["parameters"]:
            return f"in step {number + 1}, `parameters` does not hold the server's answer"
    return None


STEP = {"events": [(str, int)], "gradient": bool, "parameters": bool}
EACH = "the server updates `parameters` with each gradient"
CHECKS = (
    Check(
        "serve",
        PROBES + "serve",
        ({"arrivals": [1, 2, 1, 3, 1, 1, 2, 3, 1]},),
        (
            Criterion("step_per_gradient", EACH, 2, a_step_with_each, "parameters -= lr * gradient"),
            Criterion(
                "answered_at_once",
                "the server answers each worker at once",
                2,
                answered_at_once,
                "Call dist.send(parameters, worker) after the update.",
                needs="step_per_gradient",
            ),
            Criterion(
                "staleness",
                "`staleness` has the staleness of each gradient",
                2,
                right_staleness,
                "The staleness is version - has[worker]; then set has[worker] to the new version.",
                needs="step_per_gradient",
            ),
        ),
        observed=lambda case: {
            "parameters": Array((len(case["arrivals"]), LENGTH)),
            "answers": [{"to": int, "parameters": Array((None,)), "type": str}],
            "staleness": [int],
        },
    ),
    Check(
        "work",
        PROBES + "work",
        ({"steps": 3},),
        (
            Criterion(
                "gradient_for_parameters",
                "the worker sends a gradient and receives new parameters",
                1,
                sent_then_received,
                "Call dist.send(gradient, 0), then dist.recv(parameters, 0).",
            ),
        ),
        observed=lambda case: {"steps": (STEP,) * case["steps"]},
    ),
)
