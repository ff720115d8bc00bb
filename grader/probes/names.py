"""Find the statements of a notebook's cells that a gap needs, because they define names that it uses. Nothing is run
for this.

A statement that measures or submits a job takes minutes, and is left out. So is every statement that uses the course's
package `handson`, unless it begins with a value that the check has.
"""

import ast
import contextlib
import re

from grader.gaps import CELL, parsed

DEFINITIONS = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef


def needed_by(tree, text, file, arguments=(), known=()):
    """Return the statements that a gap needs, in order. Functions, classes and imports may be anywhere in the notebook,
    other statements must be above the gap.

    tree: the gap's code, with the line numbers of the notebook's `text`; arguments: names that the gap gets when it
    runs; known: names above the gap whose values the check has.
    """
    statements = _above(text, file, min((statement.lineno for statement in tree.body), default=0))
    return statements_giving(free_names(tree) - set(arguments), _not_measured(statements, set(known)))


def given_by_a_cell(text, file, name, line=float("inf")):
    """Return whether a statement in any cell of a notebook defines a name; with `line`, only statements above it."""
    return any(name in names_given(statement) for statement in _above(text, file, line))


def used_names(tree):
    """Return the names that a tree uses."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def free_names(tree):
    """Return the names that a tree uses and does not bind itself."""
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return used_names(tree) - bound - {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _above(text, file, line):
    """Return the statements of a notebook above a line, and its imports, functions and classes. A cell that is not
    valid Python does not affect other cells."""
    found, above = [], 0
    for cell in re.split(f"^(?={CELL})", text, flags=re.MULTILINE):
        with contextlib.suppress(SyntaxError):
            found += parsed("\n" * above + cell, file).body
        above += cell.count("\n")
    return [statement for statement in found if isinstance(statement, DEFINITIONS) or statement.lineno < line]


def _not_measured(statements, known):
    """Return `statements` without those that use the course's package, but with those that begin with a value that is
    `known`."""
    definitions = [statement for statement in statements if isinstance(statement, DEFINITIONS)]
    found = []
    for statement in statements:
        if statement not in definitions:
            uses = free_names(statement)
            if uses & known:
                known = known | names_given(statement)
            elif any(map(_of_course, statements_giving(uses, definitions))):
                continue
        found.append(statement)
    return found


def _of_course(statement):
    """Return whether a definition is an import from the course's package."""
    if isinstance(statement, ast.ImportFrom):
        return (statement.module or "").split(".")[0] == "handson"
    return isinstance(statement, ast.Import) and any(alias.name.split(".")[0] == "handson" for alias in statement.names)


def statements_giving(wanted, statements):
    """Return the statements of a notebook that define wanted names, or names that these need."""
    imported = {
        name
        for statement in statements
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        for name in names_given(statement)
    }
    wanted, needed = wanted | {"*"}, []
    while more := [
        one for one in statements if one not in needed and wanted & (names_given(one) | _changes(one) - imported)
    ]:
        needed += more
        wanted = wanted.union(*map(free_names, more))
    return [one for one in statements if one in needed]


def names_given(statement):
    """Return the names that a statement defines: an import, a function, a class, an assignment, a loop."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _changes(statement):
    """Return the names of objects that a statement may change in place: x in `x.append(1)` and in `x["a"] = 1`."""
    if isinstance(statement, DEFINITIONS):
        return set()
    places = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    places += [
        node
        for node in ast.walk(statement)
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store)
    ]
    return {
        place.value.id
        for place in places
        if isinstance(place, (ast.Attribute, ast.Subscript)) and isinstance(place.value, ast.Name)
    }
