"""Right answers and typical mistakes of notebooks' gaps, and what of them is recorded for students' checks.

A unit's answers are ANSWERS in its instructors/notebook.py, by gap. Recording is deterministic: the same answers give the same files.
"""

import importlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy

from grader.checks.notebook_functions import CALLS, FOLDER, Call, digest
from grader.probes.notebooks import encoded

RECORDED = 7  # checks' worth of calls: each of a student's CALLS is drawn from as many
DIGITS = 5  # of inputs: enough to tell mistakes apart
DUE_DIGITS = 11  # of the values that are due, which are compared more closely than inputs are chosen


class Chance(random.Random):
    """Random numbers for several calls. What matters for a misconception is no matter of luck: `turn` takes each choice in its turn."""

    call = 0

    def turn(self, choices):
        return choices[self.call % len(choices)]


@dataclass(frozen=True)
class Function:
    """inputs(chance): the arguments of one call, by name; right: a function that is right; mistakes: sentence -> a function with that mistake."""

    inputs: Callable
    right: Callable
    mistakes: dict

    def calls(self, seed):
        """CALLS Calls."""
        chance, made = Chance(seed), []
        for chance.call in range(CALLS):
            given = {name: _rounded(value) for name, value in self.inputs(chance).items()}
            values = {sentence: _due(mistake(**given)) for sentence, mistake in self.mistakes.items()}
            made.append(Call(encoded(given), _due(self.right(**given)), values))
        return made

    def recorded(self, gap):
        """What is recorded: the mistakes' sentences, and calls [given, right, what each mistake gives]."""
        calls = [[call.given, call.right, list(call.mistakes.values())] for seed in range(RECORDED) for call in self.calls(seed)]
        return {"mistakes": list(self.mistakes), "calls": calls}


@dataclass(frozen=True)
class Choice:
    """The right answer; for other answers what is wrong with them; and for all others a sentence with a place for the answer."""

    right: object
    mistakes: dict
    otherwise: str

    def recorded(self, gap):
        """What is recorded: digests in place of the answers."""
        mistakes = {digest(gap, value): sentence for value, sentence in self.mistakes.items()}
        return {"right": digest(gap, self.right), "mistakes": mistakes, "otherwise": self.otherwise}


def recorded_files():
    """The text of each unit's recorded.json, by its path below the course's folder."""
    files = {}
    for path in sorted(FOLDER.glob("*/instructors/notebook.py")):
        unit = path.parents[1].name
        answers = importlib.import_module(f"grader.units.{unit}.instructors.notebook").ANSWERS
        files[Path("grader/units", unit, "recorded.json")] = _text({gap: answer.recorded(gap) for gap, answer in answers.items()})
    return files


def _text(entries):
    """JSON with a line for each call."""
    whole = []
    for gap, entry in entries.items():
        fields = []
        for name, value in entry.items():
            text = "[\n" + ",\n".join(map(_compact, value)) + "\n]" if isinstance(value, list) else _compact(value)
            fields.append(f'"{name}": {text}')
        whole.append(f'"{gap}": {{' + ",\n".join(fields) + "}")
    return "{\n" + ",\n".join(whole) + "\n}\n"


def _compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _rounded(value, digits=DIGITS):
    """`value`, in which no number has more than so many digits: records are short."""
    if isinstance(value, dict):
        return {key: _rounded(one, digits) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_rounded(one, digits) for one in value)
    if isinstance(value, numpy.ndarray):
        return numpy.array(_rounded(value.tolist(), digits))
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _due(value):
    """What a function returned as plain numbers, or lists of them."""
    return _rounded(numpy.asarray(value, dtype="float64").tolist(), DUE_DIGITS)
