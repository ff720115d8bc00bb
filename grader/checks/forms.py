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


def fits(thing, form):
    """Return whether `thing`, which may be anything, has a form."""
    if isinstance(form, Array):
        return isinstance(thing, numpy.ndarray) and (form.shape is None or _same(thing.shape, form.shape))
    if isinstance(form, dict):
        return (
            isinstance(thing, dict)
            and thing.keys() == form.keys()
            and all(fits(thing[name], form[name]) for name in form)
        )
    if isinstance(form, Counts):
        return isinstance(thing, dict) and all(fits(one, form.form) for one in thing.values())
    if isinstance(form, tuple):
        return isinstance(thing, list) and len(thing) == len(form) and all(map(fits, thing, form))
    if isinstance(form, list):
        return isinstance(thing, list) and all(fits(one, form[0]) for one in thing)
    if isinstance(thing, bool):
        return form in (bool, object)
    return isinstance(thing, (int, float) if form is float else form)


def _same(shape, wanted):
    return len(shape) == len(wanted) and all(length in (own, None) for own, length in zip(shape, wanted))
