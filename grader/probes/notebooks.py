"""Probes for the gaps of notebooks: functions are called with the inputs of a case, and predictions are read."""

import ast
import functools
import importlib
import operator
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator, MappingView

import numpy

from grader.probes import import_of_units
from grader.probes.gap_code import GapCode, Measured
from grader.probes.names import statements_giving, used_names
from grader.sandbox.rank import StudentMistake
from handson.words import a_kind, decimal

LARGEST = 10_000  # numbers in an answer


def value(rank, ranks, source, case):
    """Return the results of a gap's code for each of case["calls"]: {"values": [array, ...], "whole": whether each is
    an integer by its type, "unused": the arguments that the code does not name}. A call is a dictionary of encoded
    arguments by name."""
    student = GapCode(source, arguments=decoded(case["calls"][0]), without="handson", but=case["uses"])
    if not student.returns:
        yields = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(student.tree))
        raise StudentMistake(
            "your code yields its values: collect them in a list, and return the list"
            if yields
            else "your code returns nothing: add a `return`"
        )
    found = [_returned(student, given) for given in case["calls"]]
    unused = sorted(set(decoded(case["calls"][0])) - used_names(student.tree))
    return {"values": list(map(_numbers, found)), "whole": all(map(_whole, found)), "unused": unused}


def prediction(rank, ranks, source, case):
    """Return the number that a gap's code assigns to the name case["name"]."""
    found = _assigned(source, case)
    if found is None or found is ...:
        raise StudentMistake(f"`{case['name']}` is {found!r}: assign a number")
    if callable(found):
        raise StudentMistake(f"`{case['name']}` is a function or a class: assign the number itself")
    if isinstance(found, tuple) and len(found) == 2 and all(map(_whole, found)):
        raise StudentMistake(
            f"`{case['name']}` is two numbers, {found[0]} and {found[1]}: write one number, with a decimal point if"
            f" needed, {found[0]}.{found[1]}"
        )
    number = _numbers(found)
    return {"value": float(number)} if number.ndim == 0 else _not_a_number(found)


def word(rank, ranks, source, case):
    """Return the text that a gap's code assigns to the name case["name"]."""
    found = _assigned(source, case)
    if not isinstance(found, str):
        raise StudentMistake(
            f"`{case['name']}` is {'`...`' if found is ... else a_kind(found)}: write one text in quotes"
        )
    return {"value": found[:100]}


def _assigned(source, case):
    """Return the value that a gap's code assigns to the name case["name"].

    case["before"]: {name: "module:function"} of the values that it may use; case["measured"]: the result for a value
    that is computed from other measured values above the gap, if that is allowed.
    """
    before = {name: functools.partial(_made_by, place) for name, place in case.get("before", {}).items()}
    student, name = GapCode(source, before=before), case["name"]
    statements = student.tree.body
    try:
        return _value(student, case)
    except StudentMistake:
        compared = [
            one.value.left for one in statements if isinstance(one, ast.Expr) and isinstance(one.value, ast.Compare)
        ]
        if any(isinstance(left, ast.Name) and left.id == name for left in compared):
            raise StudentMistake(
                f"`==` compares, but an assignment needs `=`: write `{name} = ` and your answer"
            ) from None
        raise


def _value(student, case):
    """Return the value of the name after the code, or, if another name needs a measured value, after the lines that
    define the name."""
    name = case["name"]
    try:
        return getattr(student.run(), name)
    except Measured:
        if "measured" not in case:
            raise
    student.tree.body = statements_giving({name}, student.tree.body)
    if not student.tree.body:
        raise StudentMistake(f"`{name}` does not exist after your code")
    try:
        return getattr(student.run(), name)
    except Measured:
        return case["measured"]


def _made_by(place):
    module, function = place.split(":")
    return getattr(importlib.import_module(module), function)()


def _returned(student, given):
    """Return the gap's result for encoded arguments. Raises StudentMistake if it is None, or if the gap changes an
    argument."""
    arguments = decoded(given)
    try:
        found = student.run(**arguments).returned
    except StudentMistake:
        raise
    except Exception as error:
        error.add_note(f"for {words(decoded(given))}")
        raise
    if changed := [name for name, value in decoded(given).items() if _content(arguments[name]) != _content(value)]:
        raise StudentMistake(f"your code changes `{changed[0]}`, which belongs to the caller: work on a copy")
    if found is None:
        raise StudentMistake(
            f"your code returns None for {words(arguments)}: does every path through it have a `return`?"
        )
    return found


def _whole(found):
    """Return whether a value is an integer by its type: 3 is, and 3.0 is not; for a list, whether all elements are."""
    try:
        return operator.index(found) is not None
    except TypeError:
        return numpy.ndim(found) > 0 and all(map(_whole, found))


def encoded(value):
    """Return an argument in the form of JSON: lists, numbers and texts stay; dictionaries, arrays and tuples become
    {kind: content}."""
    if isinstance(value, dict):
        return {"dict": [[key, encoded(one)] for key, one in value.items()]}
    if isinstance(value, numpy.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, tuple):
        return {"tuple": [encoded(one) for one in value]}
    return [encoded(one) for one in value] if isinstance(value, list) else value


def decoded(value):
    """Return the argument that `encoded` has converted."""
    if isinstance(value, list):
        return [decoded(one) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    if kind == "array":
        return numpy.array(inside)
    return tuple(map(decoded, inside)) if kind == "tuple" else {key: decoded(one) for key, one in inside}


def words(given):
    """Return a call's arguments in words."""
    return ", ".join(f"{name} = {short(value)}" for name, value in given.items())


def short(value, digits=4):
    """Return a value as a short text: integers in full, other numbers with `digits` digits, and the first of many
    numbers."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {short(one, digits)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple, numpy.ndarray)) and numpy.ndim(value):
        return "[" + ", ".join(short(one, digits) for one in value[:6]) + ", ..." * (len(value) > 6) + "]"
    if isinstance(value, str):
        return repr(value)
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e12 else decimal(number, digits)


def _content(value):
    """Return the content of an argument in a fixed order: a list that was only sorted has the same content. An object
    whose type no argument has equals nothing, because a student's class can define equality."""
    kind = type(value)
    if value is None or any(kind is one for one in numpy.ScalarType):
        return value.item() if isinstance(value, numpy.generic) else value
    if kind is numpy.ndarray:
        return value.tolist()
    if kind is dict:
        return sorted([[_content(key), _content(one)] for key, one in value.items()], key=repr)
    return sorted(map(_content, value), key=repr) if kind is list or kind is tuple else object()


def _numbers(found):
    """Return a student's answer as an array of numbers. Raises Wrong."""
    try:
        if isinstance(found, (str, bytes, bool)):
            return _not_a_number(found)
        if text := next((one for one in _single(found) if isinstance(one, (str, bytes))), None):
            raise StudentMistake(
                f"your code returns strings, such as {str(text)[:60]!r}: return the numbers, and format them when you"
                " print"
            )
        array = numpy.asarray(found, dtype="float64")
    except OverflowError:
        raise StudentMistake("your code returns a number that is far too large") from None
    except (TypeError, ValueError):
        return _not_a_number(found)
    if array.size > LARGEST:
        raise StudentMistake(f"your code returns {array.size:,} numbers, which are far too many")
    if array.ndim > 2:
        raise StudentMistake(
            f"your code returns numbers in {array.ndim} dimensions, but an answer is a number, a list or a table"
        )
    return array


def _single(found):
    """Yield the elements of an answer's lists, tuples and arrays."""
    if isinstance(found, numpy.ndarray):
        return found.ravel().tolist()
    return [one for inside in found for one in _single(inside)] if isinstance(found, (list, tuple)) else [found]


def _not_a_number(found):
    what = "`...`" if found is ... else _with_article(type(found).__name__)
    if (
        isinstance(found, MappingView)
        or isinstance(found, Iterator)
        and getattr(found, "__name__", "<genexpr>") == "<genexpr>"
    ):
        what += ": convert it to a list, list(...)"
    elif isinstance(found, (Generator, Coroutine, AsyncGenerator)):
        what = f"the {type(found).__name__} of a function with `yield` or `async`: use only `return`"
    elif isinstance(found, (str, bytes, bool)):
        what += f" {str(found)[:60]!r}" + ": a number has no quotes" * (not isinstance(found, bool))
    elif isinstance(found, dict):
        what = "a dictionary: leave out the keys, and return the number or a list of numbers"
    elif isinstance(found, (list, tuple)) and any(isinstance(row, dict) for row in found):
        what = f"{what} of dictionaries: convert each to a list of numbers"
    elif (
        isinstance(found, (list, tuple))
        and len({numpy.shape(row) for row in found if isinstance(row, (list, tuple))}) > 1
    ):
        what = f"{what} with rows of different lengths"
    raise StudentMistake(f"your code must return numbers, but it returns {what}")


def _with_article(name):
    return f"a{'n' * (name[0].lower() in 'aeiou')} {name}"


import_of_units("probe_*_notebook")
