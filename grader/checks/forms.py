"""The form of a probe's observations: which fields, how many entries, arrays of which shape. grader/judging.py checks
it before any criterion, because a criterion that loops over too few entries would find no mistake.

A form is `int`, `float` (any number), `bool`, `str` or `object` (anything); an `Array`; [form] for a list of any
length; (form, form) for a list of exactly these entries; {name: form} for a dictionary of exactly these fields,
`Counts` for one of any fields.
"""

from dataclasses import dataclass

import numpy


@dataclass(frozen=True)
class Array:
    """An array of numbers. shape: its lengths, None for any length; without it, any shape."""

    shape: tuple | None = None


@dataclass(frozen=True)
class Counts:
    """A dictionary with any keys, whose values have the same form."""

    form: object


def fits(thing, form, same=None):
    """Return whether `thing`, which may be anything, has a form. same(array, its Array) returns whether an array's
    shape is right; by default, `shape` decides."""
    same = same or _right_shape
    if isinstance(form, Array):
        return isinstance(thing, numpy.ndarray) and same(thing, form)
    if isinstance(form, dict):
        return (
            isinstance(thing, dict)
            and thing.keys() == form.keys()
            and all(fits(thing[name], form[name], same) for name in form)
        )
    if isinstance(form, Counts):
        return isinstance(thing, dict) and all(fits(one, form.form, same) for one in thing.values())
    if isinstance(form, tuple):
        return (
            isinstance(thing, list)
            and len(thing) == len(form)
            and all(fits(one, of_one, same) for one, of_one in zip(thing, form))
        )
    if isinstance(form, list):
        return isinstance(thing, list) and all(fits(one, form[0], same) for one in thing)
    if isinstance(thing, bool):
        return form in (bool, object)
    return isinstance(thing, (int, float) if form is float else form)


def other_shape(thing, form):
    """Return (the shape of the first array that has another one than in the form, the right shape) if `thing` has the
    form except for shapes; otherwise None. Such a thing is the work of a student's code."""
    others = []

    def noted(array, of_array):
        if not _right_shape(array, of_array):
            others.append((array.shape, of_array.shape))
        return True

    return others[0] if fits(thing, form, noted) and others else None


def _right_shape(array, form):
    return form.shape is None or (
        len(array.shape) == len(form.shape)
        and all(length in (own, None) for own, length in zip(array.shape, form.shape))
    )
