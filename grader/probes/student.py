"""Runs one gap of a student's code, compiled with the line numbers of its file, with the names that the exercise defines before it."""

import ast
import contextlib
import re
import sys
from types import ModuleType

from grader.box.rank import Wrong
from grader.box.stacks import STUDENT
from grader.gaps import CELL, TO_DO

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

    The gap can use the file's imports and functions; what the file would do when run as a script is left out.
    """

    def __init__(self, source):
        self.file = STUDENT + source["file"]
        self.module = ModuleType("student")
        sys.modules["student"] = self.module
        for statement in _definitions(source["text"], self.file):
            try:
                exec(compile(ast.Module([statement], []), self.file, "exec"), vars(self.module))
            except Exception as error:  # the gap may not need it
                print(f"line {statement.lineno} of {source['file']} fails: {type(error).__name__}: {error}")
        self.tree = ast.parse("\n" * (source["line"] - 1) + source["code"], self.file)
        self.returns = _returns(self.tree)

    def run(self, **given):
        """Run the gap with the names `given`. Returns the Names after it."""
        names = {**vars(self.module), **given}
        with filled():
            if self.returns:
                return Names({RETURNED: self._call(names, given)})
            exec(compile(self.tree, self.file, "exec"), names)
        return Names(names)

    def _call(self, names, given):
        function = ast.parse(f"def gap({', '.join(given)}): pass", self.file)
        function.body[0].body = self.tree.body
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


def _definitions(text, file):
    """The statements of a file that define names: imports, functions, classes and, in scripts, assignments.

    Assignments of a notebook are left out, since they may submit jobs. A cell that is not valid Python does not affect other cells.
    """
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    if not file.endswith(".ipynb"):
        return [statement for statement in ast.parse(text, file).body if isinstance(statement, (*kinds, ast.Assign, ast.AnnAssign))]
    found = []
    for cell in re.split(f"^{CELL}.*$", text, flags=re.MULTILINE):
        with contextlib.suppress(SyntaxError):
            found += [statement for statement in ast.parse(cell, file).body if isinstance(statement, kinds)]
    return found


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
