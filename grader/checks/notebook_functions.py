"""The checks of notebooks' gaps: functions, choices with one right answer, and predictions, for which any plausible
number passes.

Units call these in their TOPIC_notebook.py. The right answers are in units/TOPIC/instructors/TOPIC_functions.py, which
students do not have. Students receive units/TOPIC/recorded.json instead: inputs and right values.
"""

import functools
import hashlib
import importlib
import itertools
import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.probes.notebooks import decoded, short, words

PROBES = "grader.probes.notebooks"
FOLDER = Path(__file__).resolve().parent.parent / "units"
CALLS = 6  # a check calls a student's function so often, unless its answer sets another number
RECORDED = 7  # sets of calls in recorded.json, from which a student's check draws each of its calls
TOLERANCE = 3e-6  # relative, for a number that a student's function returns, which may compute in float32


@dataclass(frozen=True)
class Call:
    """A call of a gap's function. given: its arguments by name, encoded as in grader.probes.notebooks; right: the
    expected value; mistakes: the sentence of each typical mistake -> the resulting value."""

    given: dict
    right: object
    mistakes: dict


def function(gap, title, hint, points=2, whole="", uses=()):
    """Return the check of a gap that is a function's body. whole: the reason why it must return an integer or a list of
    integers, not floats; uses: modules of the course that the notebook imports and that an answer may use."""
    form = {"values": [Array()], "whole": bool, "unused": [str]}
    case, criterion = (
        {"gap": gap, "whole": whole, "uses": list(uses)},
        Criterion("value", title, points, _computes, hint),
    )
    return Check(gap, f"{PROBES}:value", (case,), (criterion,), given=_given, observed=lambda case: form)


def choice(gap, title, hint, points=1, of="prediction", before=None):
    """Return the check of an assignment to the gap's name with one right answer: a number, or with of="word" a text.

    before: values that the notebook measures above the gap and that an answer may use, {name: "module:function" that
    computes one}.
    """
    form, case = {"value": str if of == "word" else float}, {"gap": gap, "name": gap, "before": before or {}}
    return Check(
        gap, f"{PROBES}:{of}", (case,), (Criterion("value", title, points, _chosen, hint),), observed=lambda case: form
    )


def prediction(
    gap,
    low,
    high,
    why,
    hint="Write a number for which you have a reason. It need not come true.",
    before=None,
    whole=False,
    also=(),
):
    """Return the check of a prediction: an assignment of a number from `low` to `high`, or one of `also`, to the gap's
    name. whole: only integers pass; before: as for a `choice`. A value that is computed from other measured values
    above the gap passes, because the check does not have them."""
    case, criterion = (
        {"name": gap, "before": before or {}, "measured": low},
        Criterion("prediction", "the prediction is plausible", 1, sensible(low, high, why, whole, also), hint),
    )
    return Check(gap, f"{PROBES}:prediction", (case,), (criterion,), observed=lambda case: {"value": float})


def sensible(low, high, why, whole=False, also=()):
    """Return a judge of predictions: numbers from `low` to `high` and those in `also` pass, up to rounding; with
    `whole`, only integers. `why` is the explanation for other numbers."""

    def judge(seen, case, expected):
        value = seen[0]["value"]
        allowed = [numpy.clip(value, low, high), *also]
        if whole:
            allowed = numpy.rint(allowed)
        nearest = min(allowed, key=lambda one: abs(one - value))
        return (
            None
            if criteria.close(value, nearest)
            else f"`{case['name']}` is {criteria.distinct_digits(value, nearest, 6)[0]}: {why}"
        )

    return judge


def same(one, other):
    """Return whether `one` is `other` up to the rounding of float32, relative to the largest number of a list, or of a
    table's column."""
    one, other = numpy.asarray(one, dtype="float64"), numpy.asarray(other, dtype="float64")
    if one.shape != other.shape or not (numpy.isfinite(one).all() and numpy.isfinite(other).all()):
        return False
    largest, least = (
        numpy.abs(other).max(axis=0 if other.ndim else None, initial=0),
        criteria.TOLERANCE * max(1.0, numpy.abs(other).max(initial=0)),
    )
    return bool((numpy.abs(one - other) <= TOLERANCE * largest + least).all())


def calls(case):
    """Return the Calls of a case, drawn with its seed: new calls if the instructors' answers are present, otherwise
    recorded ones."""
    unit, gap, seed = case["unit"], case["gap"], case["seed"]
    if (FOLDER / unit / "instructors").is_dir():
        return _new(unit, gap, seed)
    entry, chance = recorded(unit)[gap], random.Random(seed)
    number = len(entry["calls"]) // RECORDED
    drawn = [chance.choice(entry["calls"][call::number]) for call in range(number)]
    return [Call(given, right, dict(zip(entry["mistakes"], values))) for given, right, values in drawn]


@functools.lru_cache(100)  # drawn for the inputs, and again for the judgement
def _new(unit, gap, seed):
    return importlib.import_module(f"grader.units.{unit}.instructors.{unit}_functions").ANSWERS[gap].calls(seed)


@functools.cache
def recorded(unit):
    """Return the content of a unit's recorded.json: gap -> its recorded calls or digest. It is generated from the
    instructors' answers if these are present."""
    if (FOLDER / unit / "instructors").is_dir():
        return json.loads(importlib.import_module("grader.instructors.notebook_answers").recorded(unit))
    return json.loads((FOLDER / unit / "recorded.json").read_text())


def digest(gap, value):
    """Return the digest of an answer to a choice, which recorded.json contains instead of the answer."""
    value = value.strip().lower() if isinstance(value, str) else float(value) + 0.0  # adding 0.0 converts -0.0 to 0.0
    return hashlib.sha256(f"{gap} {value!r}".encode()).hexdigest()


def _given(case):
    return {"calls": [call.given for call in calls(case)]}


def _computes(seen, case, expected):
    """Judge that the function returns the right value in each call."""
    made, found = calls(case), seen[0]["values"]
    if len(found) != len(made):
        return f"your function was called {len(made)} times, but {len(found)} values came back"
    for call, value in zip(made, found):
        if same(value, call.right):
            continue
        for sentence in call.mistakes:  # a mistake must explain all calls, because a single call may agree by chance
            if all(same(one, of_one.mistakes[sentence]) for of_one, one in zip(made, found)):
                return sentence
        if sentence := _in_a_part(made, found):
            return sentence
        if _rounded(found, [call.right for call in made]):
            return "the result is right but rounded: return it unrounded, and round only when you print it"
        found_here, right = _told_apart(value, call.right)
        if numpy.shape(value) != numpy.shape(call.right):
            found_here, right = f"{_form(value)} {found_here}", f"{_form(call.right)} {right}"
        values = f"your function returns {found_here} for {words(decoded(call.given))}, but it must return {right}"
        return criteria.with_reason(values, _in_general(made, found, seen[0]["unused"]))
    if case["whole"] and not seen[0]["whole"]:
        return (
            f"the numbers are right, but they are floats such as {float(numpy.ravel(found[0])[0])!r}: return whole"
            f" numbers, as math.ceil and // do, since {case['whole']}"
        )
    return None


def _in_a_part(made, found):
    """Return the sentence of a mistake that explains all values of a part of the results. A part is the calls that have
    one word as an argument, or one place of the lists. Return "" if there is none.

    A mistake counts only if it changes no other part. So each of two mistakes in different parts is recognised.
    """
    if any(numpy.shape(value) != numpy.shape(call.right) for value, call in zip(found, made)):
        return ""
    values, right = _joined(found), _joined([call.right for call in made])
    mistakes = {sentence: _joined([call.mistakes[sentence] for call in made]) for sentence in made[0].mistakes}
    for _, part in _parts(made):
        if part.sum() < 2 and numpy.abs(right[part]).max(initial=0) < 100:  # a small number may agree by chance
            continue
        for sentence, wrong in mistakes.items():
            if wrong.shape != right.shape:
                continue
            changed = ~numpy.isclose(wrong, right, rtol=TOLERANCE, atol=0)
            if changed[part].any() and not changed[~part].any() and _each_alike(values[part], wrong[part]):
                return sentence
    return ""


def _joined(values):
    return numpy.concatenate([numpy.ravel(numpy.asarray(value, dtype="float64")) for value in values])


def _parts(made):
    """Yield (a name, a mask of the joined values) for each part of the results: the calls with a certain word as an
    argument, and the values at each place of lists."""
    given, sizes = [decoded(call.given) for call in made], [numpy.size(call.right) for call in made]
    for name, value in given[0].items():
        if isinstance(value, str):
            for word in dict.fromkeys(one[name] for one in given):
                yield f"with {name} = {word!r}", numpy.repeat([one[name] == word for one in given], sizes)
    if all(numpy.ndim(call.right) == 1 for call in made):
        places = numpy.concatenate([numpy.arange(size) for size in sizes])
        yield from ((f"in entry {place}, counted from 0", places == place) for place in range(max(sizes)))


def _in_general(made, found, unused):
    """Return what is wrong with the values of all calls, or of a part of them; or "". The statement holds for each
    value."""
    fitting = all(numpy.shape(value) == numpy.shape(call.right) for value, call in zip(found, made))
    if fitting:
        values, wanted, arguments = _joined(found), _joined([call.right for call in made]), _numbers_given(made)
        if relation := _relation(values, wanted, arguments):
            return relation
    if unused:
        return f"your code does not use `{unused[0]}`"
    for name, part in _parts(made) if fitting else ():
        if relation := _relation(values[part], wanted[part], {one: given[part] for one, given in arguments.items()}):
            others_right = numpy.allclose(values[~part], wanted[~part], rtol=TOLERANCE, atol=0)
            return f"{name}, {relation}{'; all other results are right' if others_right else ''}"
    return _where(made, [same(value, call.right) for value, call in zip(found, made)])


def _numbers_given(made):
    """Return {argument: its number for each of the joined values} of the arguments that are numbers in all calls."""
    given, sizes = [decoded(call.given) for call in made], [numpy.size(call.right) for call in made]
    names = [name for name in given[0] if all(isinstance(one[name], (int, float)) for one in given)]
    return {name: numpy.repeat([float(one[name]) for one in given], sizes) for name in names}


def _relation(values, wanted, arguments):
    """Return how all values follow from the right ones, in a sentence, or "". arguments: as of `_numbers_given`."""
    if not numpy.isfinite(values).all() or len(set(wanted)) < 2:
        return ""
    if (factor := _factor(values, wanted)) is not None:
        sentence = f"every result is {factor:.6g} times the right one"
        whole = any(abs(one - round(one)) < 1e-4 for one in (factor, 1 / factor))
        return sentence if whole else criteria.with_reason(sentence, _difference(values, wanted, arguments))
    if wanted.all() and _each_alike(values, 1 / wanted):
        return "every result is the inverse of the right one: swap numerator and denominator"
    for name, given in arguments.items():
        if given.all() and _each_alike(values, wanted * given):
            return f"every result is `{name}` times the right one"
        if given.all() and _each_alike(values, wanted / given):
            return f"every result is the right one divided by `{name}`"
    return _difference(values, wanted, arguments)


def _difference(values, wanted, arguments):
    """Return by which multiple of a product of arguments all values are wrong, in a sentence, or ""."""
    factors = (itertools.combinations_with_replacement(arguments, count) for count in range(1, 5))
    for chosen in itertools.chain.from_iterable(factors):
        product = numpy.prod([arguments[name] for name in chosen], axis=0)
        number = numpy.rint((values[0] - wanted[0]) / product[0]) if product.all() and len(set(product)) > 1 else 0
        off, allowed = numpy.abs(values - wanted - number * product), numpy.abs([TOLERANCE * wanted, product / 1000])
        if number and abs(number) <= 100 and (off <= allowed.min(axis=0)).all():
            amount = " * ".join([*[f"{abs(number):.0f}"] * int(abs(number) != 1), *(f"`{name}`" for name in chosen)])
            return f"every result is too {'large' if number > 0 else 'small'} by {amount}"
    return ""


def _factor(values, wanted):
    """Return the number by which all values must be divided to be right, if there are at least two different right
    values; otherwise None."""
    if len(set(wanted[wanted != 0])) < 2 or not numpy.isfinite(values).all() or not values.any():
        return None
    factor = numpy.median(values[wanted != 0] / wanted[wanted != 0])
    return factor if abs(factor - 1) > 1e-4 and _each_alike(values, factor * wanted) else None


def _each_alike(values, others):
    return numpy.allclose(values, others, rtol=TOLERANCE, atol=0)


def _where(made, passed):
    """Return in which calls the value is wrong, if these are exactly the calls that have one word, or truth value, as
    an argument."""
    if sum(passed) < 2:
        return ""
    given = [decoded(call.given) for call in made]
    for name, value in given[0].items():
        if isinstance(value, (str, bool)):
            wrong, others = (
                {one[name] for one, right in zip(given, passed) if right == which} for which in (False, True)
            )
            if len(wrong) == 1 and not wrong & others:
                return f"the results are right for all calls without {name} = {wrong.pop()!r}"
    return ""


def _rounded(found, right):
    """Return whether the values are the right ones rounded, also down or up, to a number of digits; not if most are
    0."""
    if sum(not same(one, numpy.zeros_like(one)) for one in found) <= len(found) / 2:
        return False
    exact = [numpy.asarray(one, dtype="float64") for one in right]
    return any(
        all(same(value, way(one * 10**digits) / 10**digits) for value, one in zip(found, exact))
        for digits, way in itertools.product(range(4), (numpy.rint, numpy.floor, numpy.ceil))
    )


def _chosen(seen, case, expected):
    """Judge that the answer has the digest of the right answer."""
    value, entry = seen[0]["value"], recorded(case["unit"])[case["gap"]]
    found = digest(case["gap"], value)
    value = value.strip().lower() if isinstance(value, str) else value
    return None if found == entry["right"] else entry["mistakes"].get(found, entry["otherwise"].format(value))


def _form(value):
    return ("the number", "the list", "the table")[min(numpy.ndim(value), 2)]


def _told_apart(one, other):
    """Return two values as texts, with more digits than usual if they would look equal."""
    pairs = [(short(one, digits), short(other, digits)) for digits in (4, 6, 8, 12, 17)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])
