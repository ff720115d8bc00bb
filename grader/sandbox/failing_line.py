"""Describe the values in the expression of a student's code that failed, because an error of a library names only
types."""

import dis
import re
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from grader.sandbox.rank_stacks import STUDENT
from handson.words import a_kind

MOST, LONGEST = 4, 40  # values; characters of one
NOT_SHOWN = ModuleType, FunctionType, BuiltinFunctionType, MethodType, type
OF_SHAPES = re.compile(r"\b(size|shape|dimension|dtype|type)", re.IGNORECASE)
# functions of torch.distributed that return None, unless they return a work
NO_RESULT = (
    "all_reduce broadcast reduce all_gather gather scatter reduce_scatter all_gather_into_tensor reduce_scatter_tensor"
    " all_to_all all_to_all_single barrier send"
).split()


def values(error):
    """Return the variables in the innermost expression of the student's code, in words, if their types or shapes may be
    the cause of the error, or otherwise ""."""
    frames = [one for one in _frames(error.__traceback__) if one.tb_frame.f_code.co_filename.startswith(STUDENT)]
    if not frames:
        return ""
    names = frames[-1].tb_frame.f_globals | frames[-1].tb_frame.f_locals
    used = [
        name for name in _loaded(frames[-1], "LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF") if name in names
    ]
    shown = {name: _described(names[name]) for name in used if name != "self" and _may_be_the_cause(error, names[name])}
    if "'NoneType'" in str(error) and (call := next((one for one in _called(frames[-1]) if one in NO_RESULT), "")):
        return f"`{call}` returns None: it writes its result into a tensor that it gets"
    return ", ".join(f"`{name}` is {what}" for name, what in list(shown.items())[:MOST])


def _may_be_the_cause(error, value):
    """Return whether an error may come from the type, the shape or the keys of a value."""
    if isinstance(value, NOT_SHOWN):
        return False
    if isinstance(error, AttributeError):
        return f"'{type(value).__name__}' object" in str(error)
    if isinstance(error, LookupError):
        return isinstance(value, (dict, list, tuple)) or hasattr(value, "dtype")
    return isinstance(error, TypeError) or hasattr(value, "dtype") and bool(OF_SHAPES.search(str(error)))


def _frames(trace):
    while trace:
        yield trace
        trace = trace.tb_next


def _loaded(trace, *operations):
    """Return the names that instructions of these kinds load in the failing expression, in their order."""
    code = trace.tb_frame.f_code
    begin, end, first, last = list(code.co_positions())[trace.tb_lasti // 2]
    found = []
    for one in dis.get_instructions(code):
        at = one.positions
        inside = None not in (at.lineno, at.end_lineno, at.col_offset, at.end_col_offset, begin, first) and (
            (begin, first) <= (at.lineno, at.col_offset) and (at.end_lineno, at.end_col_offset) <= (end, last)
        )
        if inside and one.opname.startswith(operations):
            found += one.argval if isinstance(one.argval, tuple) else [one.argval]
    return list(dict.fromkeys(found))


def _called(trace):
    return _loaded(trace, "LOAD_ATTR", "LOAD_METHOD")


def _described(value):
    """Return a value in a few words: a number itself, the shape of a tensor, the keys of a dictionary."""
    if type(value) in (bool, int, float, str):
        text = f"{value:.4g}" if type(value) is float else repr(value)
        return f"the {type(value).__name__} {text}" if len(text) <= LONGEST else a_kind(value)
    if type(value) is dict and value and all(type(key) in (str, int) for key in value):
        keys = ", ".join(map(repr, list(value)[:MOST]))
        return f"a dict with the keys {keys}" if len(keys) <= 2 * LONGEST else a_kind(value)
    if hasattr(value, "dtype") and isinstance(getattr(value, "shape", None), tuple):
        return f"{a_kind(value)} of the shape {tuple(value.shape)} and the type {str(value.dtype)[:LONGEST]}"
    return a_kind(value)[:LONGEST]


def without_dump(text):
    """Return the message of an error without what libraries add: the stack of a callback, and all arguments."""
    text = text.partition("\n\nAt:\n")[0].partition(". The following argument types are supported:")[0]
    return text.rpartition("Got the following error when running the callback: ")[2]
