"""Correct answers and typical mistakes for notebooks' gaps. They are the source of recorded.json, which students'
checks use.

A unit's answers are in its instructors/TOPIC_functions.py, as ANSWERS, {gap: Function or Choice}. The same answers
always give the same file.
"""

import importlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy

from grader.checks.notebook_functions import CALLS, RECORDED, Call, digest
from grader.probes.notebooks import encoded

DIGITS = 5  # significant digits of inputs: enough to distinguish mistakes
DUE_DIGITS = 11  # significant digits of expected values, which the comparison needs more precisely than inputs


class Chance(random.Random):
    """Random numbers for several calls. `turn` returns the choices in order, so that every check has a call for each of
    them."""

    call = 0

    def turn(self, choices):
        return choices[self.call % len(choices)]


@dataclass(frozen=True)
class Function:
    """The answer to a gap that is a function's body. inputs(chance): the arguments of one call, by name; right: the
    correct function; mistakes: {sentence: a function with this mistake}; number: the calls in a check."""

    inputs: Callable
    right: Callable
    mistakes: dict
    number: int = CALLS

    def calls(self, seed):
        """Return `number` Calls with inputs drawn from `seed`."""
        chance, made = Chance(seed), []
        for chance.call in range(self.number):
            given = {name: _rounded(value) for name, value in self.inputs(chance).items()}
            values = {sentence: _due(mistake(**given)) for sentence, mistake in self.mistakes.items()}
            made.append(Call(encoded(given), _due(self.right(**given)), values))
        return made

    def recorded(self, gap):
        """Return the gap's entry in recorded.json: the mistakes' sentences, and calls as [given, right, the value of
        each mistake]."""
        calls = [
            [call.given, call.right, list(call.mistakes.values())]
            for seed in range(RECORDED)
            for call in self.calls(seed)
        ]
        return {"mistakes": list(self.mistakes), "calls": calls}


@dataclass(frozen=True)
class Choice:
    """The answer to a gap with a single correct answer. mistakes: {wrong answer: sentence}; otherwise: the sentence for
    all other answers, with a placeholder for the answer."""

    right: object
    mistakes: dict
    otherwise: str

    def recorded(self, gap):
        """Return the gap's entry in recorded.json, with digests instead of the answers."""
        mistakes = {digest(gap, value): sentence for value, sentence in self.mistakes.items()}
        return {"right": digest(gap, self.right), "mistakes": mistakes, "otherwise": self.otherwise}


def answers(unit):
    """Return a unit's ANSWERS."""
    return importlib.import_module(f"grader.units.{unit}.instructors.{unit}_functions").ANSWERS


def recorded(unit):
    """Return the text of a unit's recorded.json, which students receive."""
    entries = {gap: answer.recorded(gap) for gap, answer in answers(unit).items()}
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False) + "\n"


def _rounded(value, digits=DIGITS):
    """Return `value` with all floats rounded to `digits` significant digits, so that the recorded files stay short."""
    if isinstance(value, dict):
        return {key: _rounded(one, digits) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_rounded(one, digits) for one in value)
    if isinstance(value, numpy.ndarray):
        return numpy.array(_rounded(value.tolist(), digits))
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _due(value):
    """Return a function's result as a rounded number or lists of them."""
    return _rounded(numpy.asarray(value, dtype="float64").tolist(), DUE_DIGITS)
