"""Run one gap of a student's code, compiled with the line numbers of its file, with the names that the exercise defines
before it."""

import ast
import builtins
import contextlib
import functools
import operator
import re
import sys
from decimal import Decimal
from numbers import Real
from types import ModuleType

from grader.gaps import TO_DO, parsed
from grader.probes.names import DEFINITIONS, given_by_a_cell, names_given, needed_by, used_names
from grader.sandbox.rank import StudentMistake
from grader.sandbox.rank_stacks import STUDENT
from handson.words import a_kind

RETURNED = "the value returned"
SHORT = 40  # characters of a value in a sentence; a longer one, such as a batch of images, is replaced by its type
IMPORTS = {"np": "import numpy as np"} | {name: f"import {name}" for name in ("numpy", "torch", "chainer")}
SHELL = re.compile(r"=\s*!(?!=)")  # IPython's syntax for the output of a command


class Measured(StudentMistake):
    """Raised for a value that a cell above a notebook's gap measures, which a check does not have."""


class Names(dict):
    """The names after the student's code has run, also as attributes. Raises StudentMistake for a name that the code
    did not define."""

    def __missing__(self, name):
        raise StudentMistake(f"{_shown(name)} does not exist after your code")

    def __getattr__(self, name):
        return self[name]

    def as_number(self, name):
        """Return the value of a name as a float. Raises StudentMistake for a value that is not a number, including a
        string of digits."""
        value = self[name]
        if isinstance(value, (Real, Decimal)) or getattr(value, "ndim", None) == 0:
            with contextlib.suppress(TypeError, ValueError):
                return float(value)
        text = repr(value)
        raise StudentMistake(
            f"{_shown(name)} is {text if len(text) <= SHORT else f'of type {type(value).__name__}'}, not a number"
        )

    def is_whole(self, name):
        """Return whether the type of a name's value is an integer type: 3 is, also of NumPy or torch, and 3.0 is
        not."""
        try:
            return operator.index(self[name]) is not None
        except TypeError:
            return False

    @property
    def returned(self):
        return getattr(self, RETURNED)


def _shown(name):
    return name if name == RETURNED else f"`{name}`"


def what_is(source, name, value):
    """Return the type of a name's value, in words; for None, also the call that returned it."""
    if value is None:
        with contextlib.suppress(SyntaxError, ValueError):
            for node in ast.walk(parsed(source["code"])):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    if name in [target.id for target in node.targets if isinstance(target, ast.Name)]:
                        function = node.value.func
                        called = (
                            getattr(function, "attr", "") if "(" in ast.unparse(function) else ast.unparse(function)
                        )
                        return f"None, the result of `{called[:SHORT]}`"
    return a_kind(value)


class GapCode:
    """One gap of a student's file. source: a dictionary of the gap's code (code, line), the file's whole text (text)
    and its name (file).

    The gap can use the file's imports and functions; the file's main program is left out. The gap of a notebook can
    also use the values of the cells before it, except measured ones.

    arguments: the names that the gap gets when it runs. before: measured values of cells before the gap, {name: a
    function that computes one}. without: a package that cannot be imported because it contains the answer, except its
    modules in `but`. instead: {name: a value that replaces the file's assignment}, also for a parameter's default.
    """

    def __init__(self, source, arguments=(), before=None, without=None, but=(), instead=None):
        self.file = STUDENT + source["file"]
        self.module = ModuleType("student")
        if without:
            self.module.__builtins__ = {
                **vars(builtins),
                "__import__": functools.partial(_import, without, but, tuple(arguments)),
            }
        sys.modules["student"] = self.module
        self.tree = _without_shell("\n" * (source["line"] - 1) + source["code"], self.file)
        self.returns = _returns(self.tree)
        self.text, self.end = source["text"], source["line"] + source["code"].count("\n")
        self.line, self.refused = source["line"], {}
        statements, before = self._statements(source["text"], arguments, before or {}), before or {}
        if before:
            names = set().union(*map(used_names, [self.tree, *statements])) & before.keys()
            vars(self.module).update((name, before[name]()) for name in names)
        for statement in statements:
            try:
                exec(_compiled(statement, self.file), vars(self.module))
            except StudentMistake as wrong:
                self.refused |= dict.fromkeys(names_given(statement), wrong)
            except Exception as error:  # the gap may not need it
                print(f"line {statement.lineno} of {source['file']} fails: {type(error).__name__}: {error}")
            vars(self.module).update(
                (name, value) for name, value in (instead or {}).items() if name in vars(self.module)
            )

    @functools.cached_property
    def last(self):
        """Return [the `return` statement that is the only code after a script's gap in its function], otherwise []."""
        functions = [] if self.file.endswith(".ipynb") else _functions_in(self.text)
        function = next((one for one in functions if one.lineno <= self.end <= one.end_lineno), None)
        rest = [statement for statement in function.body if statement.lineno > self.end] if function else []
        return rest if len(rest) == 1 and isinstance(rest[0], ast.Return) else []

    def run(self, /, **given):
        """Run the gap with the names `given`, one of which may be `self`. Return the Names after it."""
        names = {**vars(self.module), **given}
        with filled(), self._without_measured_values(given):
            if self.returns:
                return self._returned(self._call(names, given))
            exec(compile(self.tree, self.file, "exec"), names)
        return Names(names)

    def _statements(self, text, arguments, known):
        """Return the statements of the file that the gap may need. In a script, these define names: imports, functions,
        classes, assignments."""
        if self.file.endswith(".ipynb"):
            return needed_by(self.tree, text, self.file, arguments, known)
        return _definitions_in_script(text, self.file)

    @contextlib.contextmanager
    def _without_measured_values(self, given):
        """Raise StudentMistake for a missing name, and Measured for a value that a cell above measures. given: the
        arguments of the gap."""
        try:
            yield
        except UnboundLocalError:
            raise
        except NameError as error:
            if not self.file.endswith(".ipynb"):
                raise
            above = given_by_a_cell(self.text, self.file, error.name, self.line)
            raise self.refused.get(error.name) or (Measured if above else StudentMistake)(
                self._on_missing(error.name, given)
            ) from error

    def _on_missing(self, name, given):
        """Return a sentence on a missing name."""
        if given_by_a_cell(self.text, self.file, name):
            instead = (
                f"use the function's arguments ({', '.join(given)})"
                if given
                else "write the answer itself: a number, or a word in quotes"
            )
            return (
                f"a check has no `{name}`, because it measures nothing, submits no jobs and reads no other files:"
                f" {instead}"
            )
        if name in IMPORTS or name in sys.stdlib_module_names:
            return f"`{name}` is not defined: is `{IMPORTS.get(name, f'import {name}')}` missing?"
        return (
            f"`{name}` is not defined in the notebook: is it"
            f" misspelt{'' if given else ', or must it be a word in quotes'}?"
        )

    def _returned(self, value):
        """Return the Names after code that returns `value` itself: the names in the `return` line after the gap get
        it."""
        names = self.last[0].value if self.last else None
        pairs = [(names, value)]
        if isinstance(names, ast.Tuple) and isinstance(value, tuple) and len(value) == len(names.elts):
            pairs = zip(names.elts, value)
        elif isinstance(names, ast.Dict) and isinstance(value, dict):
            pairs = [
                (name, value[key.value])
                for key, name in zip(names.keys, names.values)
                if isinstance(key, ast.Constant) and key.value in value
            ]
        return Names({name.id: one for name, one in pairs if isinstance(name, ast.Name)} | {RETURNED: value})

    def _call(self, names, given):
        function = ast.parse(f"def gap({', '.join(given)}): pass", self.file)
        function.body[0].body = [*self.tree.body, *self.last]
        exec(compile(ast.fix_missing_locations(function), self.file, "exec"), names)
        return names["gap"](**given)


def _import(without, but, arguments, name, globals=None, locals=None, fromlist=(), level=0):
    """Replace `__import__` for a student's code that computes its answer from `arguments`, `without` one package `but`
    for some of its modules."""
    wanted = {f"{name}.{one}" for one in fromlist or ()} or {name}
    if name.split(".")[0] == without and name not in but and (other := wanted.difference(but)):
        raise StudentMistake(
            f"your code uses `{min(other) if name == without else name}`, which has the course's own formulas:"
            f" compute the answer from the function's arguments ({', '.join(arguments)})"
        )
    return __import__(name, globals, locals, fromlist, level)


def _without_shell(code, file):
    """Return the tree of a gap's code. Raises SyntaxError, or StudentMistake if it runs a shell command."""
    try:
        return parsed(code, file)
    except SyntaxError as error:
        if SHELL.search(error.text or ""):
            raise StudentMistake("a check runs no shell commands such as `!`: write the answer itself") from error
        raise


@contextlib.contextmanager
def filled():
    """Context manager that raises StudentMistake for the line of an unfilled gap."""
    try:
        yield
    except NotImplementedError as error:
        if str(error).startswith(TO_DO):
            raise StudentMistake(f'the line `raise NotImplementedError("{error}")` is still there: remove it') from None
        raise


@functools.lru_cache(256)  # all gaps of a file that share a rank have the same statements
def _compiled(statement, file):
    return compile(ast.Module([statement], []), file, "exec")


@functools.lru_cache(1)
def _definitions_in_script(text, file):
    """Return the imports, functions, classes and assignments of a script."""
    return [
        statement
        for statement in parsed(text, file).body
        if isinstance(statement, (*DEFINITIONS, ast.Assign, ast.AnnAssign))
    ]


@functools.lru_cache(1)
def _functions_in(text):
    """Return the functions of a script, or none if another gap is not valid Python."""
    try:
        return [node for node in ast.walk(parsed(text)) if isinstance(node, ast.FunctionDef)]
    except SyntaxError:
        return []


def _returns(tree):
    """Return whether the code has a `return` outside the functions that it defines."""
    stack = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Return):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            stack += ast.iter_child_nodes(node)
    return False
