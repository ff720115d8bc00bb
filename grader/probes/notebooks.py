"""Probes for the gaps of notebooks: functions are called with the inputs of a case, and predictions are read."""

import re

import numpy

from grader.box.rank import Wrong
from grader.probes.student import Student

LARGEST = 10_000  # the most numbers that an answer may have
HEAVY = ("handson", "grader", "torch", "pytorch_pfn_extras", "chainer")


def value(rank, ranks, source, case):
    """What a gap's code returns for each of case["calls"]: {"values": [array, ...]}. A call is a dictionary of encoded arguments by name."""
    student = Student(_light(source))
    if not student.returns:
        raise Wrong("your code returns nothing: a function needs a `return`")
    return {"values": [_numbers(student.run(**decoded(given)).returned) for given in case["calls"]]}


def prediction(rank, ranks, source, case):
    """The number that a gap's code assigns to the name case["name"]."""
    found = Student(_light(source)).run()[case["name"]]
    number = _numbers(found)
    return {"value": float(number)} if number.ndim == 0 else _not_a_number(found)


def word(rank, ranks, source, case):
    """The text that a gap's code assigns to the name case["name"]."""
    found = Student(_light(source)).run()[case["name"]]
    if not isinstance(found, str):
        raise Wrong(f"`{case['name']}` should be a word in quotes")
    return {"value": found[:100]}


def encoded(value):
    """An argument as JSON can hold it: lists, numbers and texts stay; dictionaries, arrays and tuples become {kind: content}."""
    if isinstance(value, dict):
        return {"dict": [[key, encoded(one)] for key, one in value.items()]}
    if isinstance(value, numpy.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, tuple):
        return {"tuple": [encoded(one) for one in value]}
    return [encoded(one) for one in value] if isinstance(value, list) else value


def decoded(value):
    """The argument that `encoded` was given."""
    if isinstance(value, list):
        return [decoded(one) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    if kind == "array":
        return numpy.array(inside)
    return tuple(map(decoded, inside)) if kind == "tuple" else {key: decoded(one) for key, one in inside}


def _light(source):
    """The source without heavy imports that the gap does not use: loading torch takes longer than the check."""
    text = source["text"]
    for name in HEAVY:
        if name not in source["code"]:
            text = re.sub(rf"^(from|import) {name}\b.*$", "", text, flags=re.MULTILINE)
    return source | {"text": text}


def _numbers(found):
    """A student's answer as an array of numbers. Raises Wrong."""
    try:
        if found is None or isinstance(found, (str, bytes, bool)):
            return _not_a_number(found)
        array = numpy.asarray(list(found.values()) if isinstance(found, dict) else found, dtype="float64")
    except (TypeError, ValueError):
        return _not_a_number(found)
    if array.size > LARGEST:
        raise Wrong(f"your code gives {array.size:,} numbers")
    return array


def _not_a_number(found):
    what = "`...`" if found is ... else "None: is there a `return`?" if found is None else f"{type(found).__name__} {str(found)[:60]!r}"
    raise Wrong(f"your code gives no number, but {what}")
