"""Runs one gap of a student's code, compiled with the line numbers of its file, with the names that the exercise defines before it."""

import ast
import contextlib
import functools
import sys
from types import ModuleType

from grader.box.rank import Wrong
from grader.box.stacks import STUDENT
from grader.gaps import TO_DO
from grader.probes.names import DEFINITIONS, needed_by, used_names

RETURNED = "the value returned"


class Names(dict):
    """The names after the student's code has run, also as attributes. Raises Wrong for a name that the code did not define."""

    def __getattr__(self, name):
        if name not in self:
            raise Wrong(f"after your code there is no {name if name == RETURNED else f'`{name}`'}")
        return self[name]

    def as_number(self, name):
        """The value of a name as a float. Raises Wrong for what is no number."""
        try:
            return float(self[name])
        except (TypeError, ValueError):
            raise Wrong(f"`{name}` is {self[name]!r:.60}, no number") from None

    @property
    def returned(self):
        return getattr(self, RETURNED)


class Student:
    """One gap of a student's file. source: a dictionary of the gap's code (code, line), the file's whole text (text) and its name (file).

    The gap can use the file's imports and functions; what the file would do when run as a script is left out. The gap of a notebook can also
    use the values of the cells before it, but not those that a cell measures. arguments: the names that the gap gets when it is run;
    before: of measured values that cells before the gap give, {name: a function that makes one}.
    """

    def __init__(self, source, arguments=(), before=None):
        self.file = STUDENT + source["file"]
        self.module = ModuleType("student")
        sys.modules["student"] = self.module
        self.tree = ast.parse("\n" * (source["line"] - 1) + source["code"], self.file)
        self.returns = _returns(self.tree)
        self.last = [] if self.file.endswith(".ipynb") else _return_after(source["text"], source["line"] + source["code"].count("\n"))
        statements, before = self._statements(source["text"], arguments, before or {}), before or {}
        if before:
            names = set().union(*map(used_names, [self.tree, *statements])) & before.keys()
            vars(self.module).update((name, before[name]()) for name in names)
        for statement in statements:
            try:
                exec(_compiled(statement, self.file), vars(self.module))
            except Exception as error:  # the gap may not need it
                print(f"line {statement.lineno} of {source['file']} fails: {type(error).__name__}: {error}")

    def run(self, /, **given):
        """Run the gap with the names `given`, one of which may be `self`. Returns the Names after it."""
        names = {**vars(self.module), **given}
        with filled(), self._without_measured_values(given):
            if self.returns:
                return self._returned(self._call(names, given))
            exec(compile(self.tree, self.file, "exec"), names)
        return Names(names)

    def _statements(self, text, arguments, known):
        """The statements of the file that the gap may need. Of a script, those that define names: imports, functions, classes, assignments."""
        if self.file.endswith(".ipynb"):
            return needed_by(self.tree, text, self.file, arguments, known)
        return _definitions_in_script(text, self.file)

    @contextlib.contextmanager
    def _without_measured_values(self, given):
        """Raises Wrong for a value that a cell of a notebook measures. given: the arguments that the gap has instead."""
        try:
            yield
        except UnboundLocalError:
            raise
        except NameError as error:
            if not self.file.endswith(".ipynb"):
                raise
            instead = f"use the function's arguments ({', '.join(given)})" if given else "write the answer itself: a number, or a word in quotes"
            raise Wrong(f"there is no `{error.name}` here: a check measures nothing and submits no jobs; {instead}") from error

    def _returned(self, value):
        """The Names after code that returns `value` by itself: those that the line after the gap would return have it, too."""
        names = self.last[0].value if self.last else None
        several = isinstance(names, ast.Tuple) and isinstance(value, tuple) and len(value) == len(names.elts)
        pairs = zip(names.elts, value) if several else [(names, value)]
        return Names({name.id: one for name, one in pairs if isinstance(name, ast.Name)} | {RETURNED: value})

    def _call(self, names, given):
        function = ast.parse(f"def gap({', '.join(given)}): pass", self.file)
        function.body[0].body = [*self.tree.body, *self.last]
        exec(compile(ast.fix_missing_locations(function), self.file, "exec"), names)
        return names["gap"](**given)


@contextlib.contextmanager
def filled():
    """Raises Wrong for the line that an unfilled gap raises."""
    try:
        yield
    except NotImplementedError as error:
        if str(error).startswith(TO_DO):
            raise Wrong(f'the line `raise NotImplementedError("{error}")` is still there: remove it') from None
        raise


@functools.lru_cache(256)  # all gaps of a file that share a rank have the same statements
def _compiled(statement, file):
    return compile(ast.Module([statement], []), file, "exec")


@functools.lru_cache(1)
def _definitions_in_script(text, file):
    """The imports, functions, classes and assignments of a script."""
    return [statement for statement in ast.parse(text, file).body if isinstance(statement, (*DEFINITIONS, ast.Assign, ast.AnnAssign))]


def _return_after(text, line):
    """[the `return` that is all that follows a gap in its function], else []. line: the last one of the gap."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:  # in another gap
        return []
    function = next((node for node in nodes if isinstance(node, ast.FunctionDef) and node.lineno <= line <= node.end_lineno), None)
    rest = [statement for statement in function.body if statement.lineno > line] if function else []
    return rest if len(rest) == 1 and isinstance(rest[0], ast.Return) else []


def _returns(tree):
    """Whether the code has a `return` outside of the functions that it defines."""
    stack = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Return):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            stack += ast.iter_child_nodes(node)
    return False
