"""The contest: the grader trains with a student's code on two virtual nodes, and right after that with the plain
solution.

No measurement relies on the student's ranks, except for the memory, which is counted next to their code. The seconds
come from the grader's clock, and the bytes from the nodes' network. The loss is computed from the network that rank 0
returns, in a process without student code, on text that no rank had. The text and the seed differ from the student's.
"""

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from pathlib import Path

import numpy

from grader.checks import forms
from grader.checks.check import Check, Criterion
from grader.checks.notebook_functions import sensible
from grader.probes import FOR_SCRIPTS
from grader.sandbox import Limits, SandboxFault
from grader.sandbox.on_nodes import Nodes
from grader.verdict import TIMEOUT
from handson import challenge_limits as challenge
from handson import linux
from handson.made_text import made_text
from handson.sizes import words

PROBE = "grader.units.challenge.probes.probe_contest:train"
ORACLE = "grader.units.challenge.oracles.oracle_contest:loss"
LIMITS = Limits(
    cpu_seconds=2 * challenge.SECONDS,
    wall_seconds=challenge.SECONDS,
    waiting_seconds=challenge.SECONDS,
    memory_bytes=1 << 30,  # the limit of a process; the probe counts every byte on a virtual GPU
    memory_together=4,
    still_seconds=10,  # a large message on a slow network takes seconds, in which no rank computes
)
FORM = {"memory": int, "speed_up": float, "network": [forms.Array()]}
SEEN = {"loss": object, "problem": str, "memory": int, "predicted": object, "speed_up": object}  # None: there is none
SEEN |= {"others": float}
PORT = 29500  # rendezvous port of the first training run; the second run uses the next port
PATIENCE = 900  # seconds that a contest waits for its turn
BUSY, BUSY_FACTOR = 0.1, 30  # if other programs use this share of the cores, this factor is accepted
MOST = 1e6  # the largest prediction that counts


def run(cases, source, server, readable):
    """See Check.runner. Contests on one machine run one after the other, because they would slow each other down."""
    [case] = cases
    text = numpy.frombuffer(made_text(case["seed"], case["training"] + challenge.UNSEEN), "uint8")
    given, unseen = text[: case["training"]], text[case["training"] :]
    with _one_at_a_time(), Nodes(challenge.NODES, case["network"], FOR_SCRIPTS) as nodes:
        begin = _machine()
        theirs, sent = _train(nodes, case, source, given, readable, PORT)
        for rank in theirs.ranks:
            if rank.status == TIMEOUT:
                rank.message = f"`train` did not end within {LIMITS.wall_seconds} s: run fewer steps, or faster ones"
        if any(rank.status for rank in theirs.ranks):
            return [], (case, theirs)
        seen = _judged(theirs.observations, case, unseen, server)
        if reaches_loss([seen], case, None):  # there is nothing to compare
            return [(case, [seen], theirs)], None
        plain, sent_by_plain = _train(nodes, case, None, given, readable, PORT + 1)
        others = _by_others(begin, _machine(), theirs, plain)
    if problem := next((rank.message for rank in plain.ranks if rank.status), None):
        raise SandboxFault(f"the plain solution does not run here: {problem}")
    seen |= {"speed_up": plain.seconds / theirs.seconds, "others": others}
    theirs.measured = {name: seen[name] for name in ("speed_up", "loss", "memory", "predicted", "others")}
    theirs.measured |= {"seconds": theirs.seconds, "bytes": sent}
    theirs.measured |= {"plain_seconds": plain.seconds, "plain_bytes": sent_by_plain}
    theirs.ranks[0].output += f"\n{in_words(theirs.measured)}\n"
    return [(case, [seen], theirs)], None


def _train(nodes, case, source, text, readable, port):
    """Return (the Outcome of a training run, the bytes that left its nodes). source: the student's file, or None for
    the plain solution."""
    # the case's seed determines the text, so the ranks get another seed, from which the text cannot be found
    seed = int(hashlib.sha256(f"first parameters {case['seed']}".encode()).hexdigest()[:6], 16)
    told = {"seed": seed, "memory": case["memory"], "plain_steps": case["plain_steps"]}
    told |= {"address": nodes.address, "port": port}
    before = nodes.bytes_sent()
    outcome = nodes.run(PROBE, [source, told, text], challenge.RANKS // challenge.NODES, LIMITS, readable)
    return outcome, nodes.bytes_sent() - before


def _machine():
    """Return (seconds of a clock, CPU seconds of all programs), both since an unknown moment, or None if the machine
    hides them."""
    try:
        return time.monotonic(), sum(linux.busy_ticks(linux.BY_PROGRAMS).values()) / linux.TICKS
    except (OSError, ValueError, IndexError):
        return None


def _by_others(begin, end, *outcomes):
    """Return the share of the cores that other programs used between two results of `_machine`; 0.0 if unknown."""
    if not (begin and end):
        return 0.0
    seconds, used = end[0] - begin[0], end[1] - begin[1]
    return max(0.0, used - sum(outcome.cpu_seconds for outcome in outcomes)) / seconds / len(os.sched_getaffinity(0))


def _judged(observations, case, unseen, server):
    """Judge the observations of a student's ranks in another process. Raises SandboxFault."""
    seen = {"loss": None, "problem": "", "memory": 0, "predicted": None, "speed_up": None, "others": 0.0}
    if not all(forms.fits(of_rank, FORM) for of_rank in observations):
        return seen | {"problem": "a rank returns something other than numbers: return the trained network"}
    [judged] = server.run(ORACLE, [observations[0]["network"], unseen]).ranks
    if judged.status:
        raise SandboxFault(f"the loss could not be computed: {judged.message}")
    predicted = observations[0]["speed_up"]
    return (
        seen
        | judged.observations
        | {
            # the counter refuses memory beyond the limit, but code in the same process could bypass it
            "memory": max(min(max(of_rank["memory"], 0), case["memory"]) for of_rank in observations),
            "predicted": float(predicted) if 0 < predicted < MOST else None,
        }
    )


@contextlib.contextmanager
def _one_at_a_time():
    """Wait until no other contest of this user runs on this machine, and keep others out. Raises SandboxFault."""
    path = Path(tempfile.gettempdir(), f"handson-contest-{os.getuid()}.lock")
    deadline = time.monotonic() + PATIENCE
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SandboxFault(f"another contest has run here for {PATIENCE} s: grade again later") from None
                time.sleep(0.2)
        yield


def within_limits(seen, case, expected):
    """Judge whether the network has learned something: a run beyond the limits has ended before, but a run that does
    nothing also stays within them."""
    [found] = seen
    if found["problem"] or found["loss"] is None or found["loss"] <= case["learned"]:
        return None
    return f"`train` stays within the limits, but its network has learned almost nothing (loss {found['loss']:.2f})"


def reaches_loss(seen, case, expected):
    [found] = seen
    if found["problem"]:
        return found["problem"]
    if found["loss"] is None:
        return "the loss of your network is infinite or NaN: lower the learning rate"
    if found["loss"] > case["loss"]:
        return (
            f"the loss of your network is {found['loss']:.3f} on text that no rank has seen, but it must be at most"
            f" {case['loss']:g} for each text and seed: train some steps more than your own text needs"
        )
    return None


def prediction(seen, case, expected):
    [found] = seen
    measured, predicted = found["speed_up"], found["predicted"]
    if measured is None:  # the loss is not reached
        return None
    if predicted is None:
        return "`SPEED_UP` must be a number above 0"
    factor = challenge.FACTOR if found["others"] < BUSY else BUSY_FACTOR
    if max(measured, predicted) / min(measured, predicted) <= factor:
        return None
    return (
        f"`SPEED_UP` is {predicted:.3g}, but the grader measured {measured:.3g}: they differ by more than a factor of"
        f" {factor}"
    )


def in_words(measured):
    """Return the measurements of a contest as a sentence for the student."""
    return (
        f"{measured['speed_up']:.2f} times as fast as the plain solution ({measured['seconds']:.1f} s against"
        f" {measured['plain_seconds']:.1f} s), {measured['bytes'] / 1e6:.1f} MB between the nodes (plain:"
        f" {measured['plain_bytes'] / 1e6:.1f} MB), at most {words(measured['memory'])} on a virtual GPU"
    )


CASE = {
    "ranks": challenge.RANKS,
    "network": challenge.NETWORK,
    "memory": challenge.MEMORY,
    "loss": challenge.LOSS,
    "learned": 3.0,  # far below the loss of a network that was not trained, 5.6
    "training": challenge.TRAINING,
    "plain_steps": None,
}
CHECKS = (
    Check(
        "prediction",
        "grader.units.challenge.probes.probe_contest:prediction",
        ({},),
        (
            Criterion(
                "number",
                "`SPEED_UP` is a prediction",
                1,
                sensible(0.01, 1000, "it must be the plain solution's seconds divided by yours, from 0.01 to 1000"),
                "Divide the seconds of the plain solution by the seconds that you predict for yours.",
            ),
        ),
        given=lambda case: {"name": "SPEED_UP"},
        observed=lambda case: {"value": float},
    ),
    Check(
        "train",
        PROBE,
        (CASE,),
        (
            Criterion(
                "within_limits",
                "`train` stays within the limits of memory and time",
                3,
                within_limits,
                "Take fewer windows at a time, or split the data that a rank holds. The notebook shows time and"
                " memory.",
            ),
            Criterion(
                "reaches_loss",
                f"`train` reaches a loss of {challenge.LOSS:g}",
                4,
                reaches_loss,
                "Compute the loss on text that you hold back, and train until this loss is well below the limit.",
            ),
            Criterion(
                "prediction",
                f"`SPEED_UP` is right within a factor of {challenge.FACTOR}",
                3,
                prediction,
                "A step takes its computing time plus the bytes of its messages divided by the rate of the network.",
                needs="reaches_loss",
            ),
        ),
        whole=True,
        observed=lambda case: SEEN,
        runner=run,
        contest=True,
    ),
)
