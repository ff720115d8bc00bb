"""A student's code, one gap of it at a time: compiled under the lines of its own file, given what the exercise gives it there."""

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
    """The names after the student's code has run, as attributes too. A missing one is the student's mistake."""

    def __getattr__(self, name):
        if name not in self:
            raise Wrong(f"after your code there is no {name if name == RETURNED else f'`{name}`'}")
        return self[name]

    @property
    def returned(self):
        return getattr(self, RETURNED)


class Student:
    """`source` has the code of one gap (code, line), the text of the whole file around it (text) and the file's name (file).

    The file's imports and functions are there for the gap; what it would do when run as a script is left out.
    """

    def __init__(self, source):
        self.file = STUDENT + source["file"]
        self.module = ModuleType("student")
        sys.modules["student"] = self.module
        for statement in _definitions(source["text"], self.file):
            try:
                exec(compile(ast.Module([statement], []), self.file, "exec"), vars(self.module))
            except Exception as error:  # the gap may do without
                print(f"line {statement.lineno} of {source['file']} fails: {type(error).__name__}: {error}")
        self.tree = ast.parse("\n" * (source["line"] - 1) + source["code"], self.file)
        self.returns = _returns(self.tree)

    def run(self, **given):
        """Run the gap with the names `given`; returns the Names there are afterwards."""
        names = {**vars(self.module), **given}
        try:
            if self.returns:
                return Names({RETURNED: self._call(names, given)})
            exec(compile(self.tree, self.file, "exec"), names)
        except NotImplementedError as error:
            if str(error).startswith(TO_DO):
                raise Wrong(f'the line `raise NotImplementedError("{error}")` is still there: remove it') from None
            raise
        return Names(names)

    def _call(self, names, given):
        function = ast.parse(f"def gap({', '.join(given)}): pass", self.file)
        function.body[0].body = self.tree.body
        exec(compile(ast.fix_missing_locations(function), self.file, "exec"), names)
        return names["gap"](**given)


def _definitions(text, file):
    """The statements of a file that define names: imports, functions, classes and, in scripts, assignments.

    Those of a notebook may submit jobs; and a cell that is no Python harms no other.
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
    """Whether there is a `return` outside of the functions that the code itself defines."""
    stack = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Return):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            stack += ast.iter_child_nodes(node)
    return False
