"""Probes for the gaps of notebooks: functions are called with the inputs of a case, and predictions are read."""

import functools
import importlib
import operator

import numpy

from grader.box.rank import Wrong
from grader.probes import import_of_units
from grader.probes.student import Student

LARGEST = 10_000  # the most numbers that an answer may have


def value(rank, ranks, source, case):
    """What a gap's code returns for each of case["calls"]: {"values": [array, ...], "whole": whether each is a whole number by its kind}. A
    call is a dictionary of encoded arguments by name."""
    student = Student(source, arguments=decoded(case["calls"][0]))
    if not student.returns:
        raise Wrong("your code returns nothing: a function needs a `return`")
    found = [_returned(student, given) for given in case["calls"]]
    return {"values": list(map(_numbers, found)), "whole": all(map(_whole, found))}


def prediction(rank, ranks, source, case):
    """The number that a gap's code assigns to the name case["name"]."""
    found = _assigned(source, case)
    if found is None or found is ...:
        raise Wrong(f"`{case['name']}` is {found!r}: write a number")
    number = _numbers(found)
    return {"value": float(number)} if number.ndim == 0 else _not_a_number(found)


def word(rank, ranks, source, case):
    """The text that a gap's code assigns to the name case["name"]."""
    found = _assigned(source, case)
    if not isinstance(found, str):
        raise Wrong(f"`{case['name']}` should be a word in quotes")
    return {"value": found[:100]}


def _assigned(source, case):
    """What a gap's code assigns to the name case["name"]. case["before"]: {name: "module:function"} of the values that it may use."""
    before = {name: functools.partial(_made_by, place) for name, place in case.get("before", {}).items()}
    return getattr(Student(source, before=before).run(), case["name"])


def _made_by(place):
    module, function = place.split(":")
    return getattr(importlib.import_module(module), function)()


def _returned(student, given):
    """What the gap returns for encoded arguments. Raises Wrong if it changes one of them."""
    arguments = decoded(given)
    found = student.run(**arguments).returned
    if changed := [name for name, value in decoded(given).items() if _content(arguments[name]) != _content(value)]:
        raise Wrong(f"your code changes `{changed[0]}` itself, which the notebook uses again afterwards: leave it as it is, or work on a copy")
    return found


def _whole(found):
    """Whether a value counts: 3 does, and 3.0 does not."""
    try:
        return operator.index(found) is not None
    except TypeError:
        return False


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


def _content(value):
    """What is in an argument, in an order of its own: a list that was only sorted has the same content."""
    if isinstance(value, numpy.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _content(one) for key, one in value.items()}
    return sorted(map(_content, value), key=repr) if isinstance(value, (list, tuple)) else value


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


import_of_units("notebook")
