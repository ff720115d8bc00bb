"""Find the bodies of functions in a text, which need not be valid Python. No student's code runs here."""

import ast
import contextlib
import re
from dataclasses import dataclass

FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
DEFINITION = re.compile(r"( *)(?:async +)?(?:def|class) +(\w+)")
DOCSTRING = re.compile(r'\s*[rRuU]?("""|\'\'\'|"|\')')


@dataclass(frozen=True)
class Body:
    """The lines of a function after its head and its docstring: lines[first:end]. A body on the line of its head begins
    at `column`."""

    first: int
    end: int
    column: int = 0


def around(tree, line):
    """Return the names of the functions and classes around a line (from 1) of a tree, from the outside in."""
    names, inside = [], [tree]
    while inside:
        node = inside.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt) and child.lineno <= line <= child.end_lineno:
                inside.append(child)
                if _is_definition(child):
                    names.append(child.name)
    return tuple(names)


def body(text, names, parsed):
    """Return the Body of the last function of a text with these enclosing names, or None. parsed: a function that
    parses the text."""
    try:
        node = _node(parsed(text), names)
    except (SyntaxError, ValueError):
        return _by_indentation(text.split("\n"), names)
    return _of_node(node, text.split("\n")) if isinstance(node, FUNCTIONS) else None


def parameters(text, names, parsed):
    """Return the names of the parameters of the function that `body` finds, or [] if it finds none in valid Python."""
    try:
        node = _node(parsed(text), names)
    except (SyntaxError, ValueError):
        return []
    if not isinstance(node, FUNCTIONS):
        return []
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _node(tree, names):
    """Return the last definition in a tree with these enclosing names, or None."""
    for name in names:
        tree = next((one for one in reversed(_definitions(tree)) if one.name == name), None)
        if tree is None:
            return None
    return tree


def _is_definition(node):
    return isinstance(node, (*FUNCTIONS, ast.ClassDef))


def _definitions(node):
    """Return the functions and classes directly in a node, otherwise those in its children."""
    own = [one for one in node.body if _is_definition(one)]
    deeper = [one for one in ast.walk(node) if _is_definition(one) and one is not node and one not in own]
    return deeper + own


def _of_node(node, lines):
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
        return Body(first.end_lineno, node.end_lineno)
    head = _end_of_head(lines, node.lineno - 1, first.lineno - 1)
    if head is None:  # the body is on the line of the head
        column = len(lines[first.lineno - 1].encode()[: first.col_offset].decode())
        return Body(first.lineno - 1, node.end_lineno, column)
    return Body(head, node.end_lineno)


def _end_of_head(lines, first, end):
    """Return the number of the line after the colon that ends a function's head, before line `end`, or None if there is
    none."""
    return next(
        (number + 1 for number in range(first, end) if lines[number].split("#")[0].rstrip().endswith(":")), None
    )


def _by_indentation(lines, names):
    """Find a body like `body` in invalid Python: it ends at a line with the indentation of its head, or less."""
    first, end, start = 0, len(lines), None
    for name in names:
        places = [
            number for number in range(first, end) if (found := DEFINITION.match(lines[number])) and found[2] == name
        ]
        if not places:
            return None
        start = places[-1]
        depth = len(DEFINITION.match(lines[start])[1])
        end = next((number for number in range(start + 1, end) if _ends(lines[number], depth)), end)
        first = start + 1
    if start is None:
        return None
    first = _end_of_head(lines, start, end) or start + 1
    rest = "\n".join(lines[first:end])
    if documented := DOCSTRING.match(rest):
        with contextlib.suppress(ValueError):
            first += rest.count("\n", 0, rest.index(documented[1], documented.end()) + 1) + 1
    return Body(min(first, end), end)


def _ends(line, depth):
    """Return whether a line ends a function whose head has this indentation. The bracket that ends a long head does
    not, nor does a comment."""
    code = line.lstrip()
    return bool(code) and code[0] not in "#)]}" and len(line) - len(code) <= depth
