"""The checks of parameter_server.py. The probe plays the network, so that the order in which gradients come is
known."""

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.probes.exact import numbers
from grader.units.communication.communication_numbers import LENGTH, RATE

PROBES = "grader.units.communication.probes.probe_parameter_server:"
TYPES = "torch.float64", "torch.float32"  # that of `parameters` in the check and in a run


def simulated(case):
    """(the parameters after each step, [steps + 1][numbers]; the staleness of each gradient)."""
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
        "the steps go up the gradients, not down": -right[1:],
        "the gradients are not multiplied by the learning rate `lr`": right[1:] / RATE,
        "`parameters` does not change: make the step in place (parameters -= ...)": 0 * right[1:],
    }
    step = next((step for step in range(len(found)) if not criteria.close(found[step], right[step + 1])), 0)
    otherwise = f"after step {step + 1} the parameters are not those of SGD with this gradient"
    times = criteria.times(found[step] - (found[step - 1] if step else 0), right[step + 1] - right[step])
    return criteria.explained(found, right[1:], wrong) or criteria.with_reason(
        otherwise, times and f"the step is {times:.3g} times as long as lr * gradient"
    )


def answered_at_once(seen, case, expected):
    # whether they are right is another criterion's question
    own, answers = [numpy.zeros(LENGTH), *seen[0]["parameters"]], seen[0]["answers"]
    if len(answers) != len(case["arrivals"]):
        return f"{len(case['arrivals'])} gradients come, and {len(answers)} answers are sent: each worker waits for one"
    for step, (worker, sent) in enumerate(zip(case["arrivals"], answers)):
        if sent["to"] != worker:
            return f"gradient {step + 1} is worker {worker}'s, but worker {sent['to']} gets the answer"
        if len(sent["parameters"]) != LENGTH:
            return f"worker {worker} is sent {len(sent['parameters'])} numbers; it waits for all {LENGTH} parameters"
        if sent["type"] not in TYPES:
            return (
                f"worker {worker} is sent numbers of type {sent['type']}; it waits for numbers of the type of"
                " `parameters`"
            )
        if not criteria.close(values := sent["parameters"], own[step + 1]):
            if criteria.close(values, own[step]):
                return (
                    f"worker {worker} gets the parameters from before the step with its gradient: first make the step,"
                    " then send"
                )
            if not numpy.any(own[1:]):
                return (
                    "what is sent is not `parameters`, which never changes: make the step in place (parameters -= ...),"
                    " since others use this tensor, too"
                )
            return f"what worker {worker} is sent is not `parameters` after the step with its gradient"
    return None


def right_staleness(seen, case, expected):
    found, (_, right) = seen[0]["staleness"], simulated(case)
    if found == right:
        return None
    steps = list(range(len(right)))
    wrong = {
        "the step with the gradient itself does not count: note the staleness before you count it": [
            one + 1 for one in right
        ],
        "has[worker] never changes: a worker gets new parameters with each answer": steps,
        (
            "has[worker] is the number of steps before the one with its own gradient; the worker gets the parameters"
            " after it"
        ): _behind(case["arrivals"]),
        "a worker has the parameters that it was sent last, not the newest ones": [0] * len(right),
    }
    sentence = next((sentence for sentence, values in wrong.items() if found == values), "")
    return criteria.with_reason(
        f"`staleness` is {criteria.first_few(found, 8)}; for workers {criteria.first_few(case['arrivals'], 8)} it"
        f" should be {criteria.first_few(right, 8)}",
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
            return "the worker waits for an answer before it has sent its gradient: both would wait for ever"
        if what == ["send"]:
            return (
                f"in step {number + 1} no answer is received: dist.recv waits for it; of irecv, somebody has to wait"
                " for what it returns"
            )
        if what != ["send", "receive"]:
            shown = ", then ".join(what) or "nothing happens"
            return f"in step {number + 1}: {shown}; a worker sends its gradient once and receives one answer"
        if wrong := [rank for _, rank in step["events"] if rank != 0]:
            return f"messages go to or come from rank {wrong[0]}; the server is rank 0"
        if not step["gradient"]:
            return f"in step {number + 1} something else than `gradient` is sent"
        if not step["parameters"]:
            return f"in step {number + 1} `parameters` does not have what the server has sent"
    return None


STEP = {"events": [(str, int)], "gradient": bool, "parameters": bool}
EACH = "a step with each gradient"
CHECKS = (
    Check(
        "serve",
        PROBES + "serve",
        ({"arrivals": [1, 2, 1, 3, 1, 1, 2, 3, 1]},),
        (
            Criterion("step_per_gradient", EACH, 2, a_step_with_each, "parameters -= lr * gradient"),
            Criterion(
                "answered_at_once",
                "each worker is answered at once",
                2,
                answered_at_once,
                "dist.send(parameters, worker), after the step.",
                needs="step_per_gradient",
            ),
            Criterion(
                "staleness",
                "the staleness of each gradient",
                2,
                right_staleness,
                "version - has[worker]; then has[worker] = the new version.",
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
                "a gradient for new parameters",
                1,
                sent_then_received,
                "dist.send(gradient, 0), then dist.recv(parameters, 0).",
            ),
        ),
        observed=lambda case: {"steps": (STEP,) * case["steps"]},
    ),
)
