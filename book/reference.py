"""The book's pages of reference: the commands, from the programs' own parsers, and the functions of `handson` that
exercises use, from their docstrings."""

import argparse
import ast
import importlib
import importlib.util
import re
from pathlib import Path

import typer

from grader.exercises import ROOT

PBS = ("qsub", "qstat", "qdel", "qhold", "qrls", "qalter", "qselect", "qsig", "pbsnodes", "pbsdsh")
PROGRAMS = ("handson", "grader")
COMMANDS = """# Commands

This page is for everyone who looks up a command or an option. It is made from the programs themselves; each command
also prints it with `--help`.

"""
FUNCTIONS = """# Functions

This page is for students who read or change a script. It has the functions and classes of the package `handson` that
exercises and notebooks use, with their descriptions from the source.

"""


def commands():
    """Return the page of the commands, as Markdown."""
    parts = [COMMANDS]
    for program in PROGRAMS:
        command = typer.main.get_command(importlib.import_module(f"{program}.__main__").app)
        parts.append(f"## python -m {program}\n\n{_prose(command.help)}\n")
        parts += _of_group(command, f"python -m {program}")
    parts.append(_training_scripts())
    parts.append("## The batch system\n\nThese are the commands of the [embedded PBS](../docs/embedded_pbs.md).\n")
    for name in PBS:
        if usage := getattr(importlib.import_module(f"handson.pbs.{name}"), "USAGE", ""):
            parts.append(f"### {name}\n\n```text\n{usage.strip()}\n```\n")
    return "\n".join(parts)


def _of_group(group, words):
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _of_group(command, f"{words} {name}")
            continue
        usage = " ".join(command.collect_usage_pieces(typer.Context(command)))
        yield f"### {words} {name}\n\n```text\n{words} {name} {usage}\n```\n"
        yield f"{_prose(command.help)}\n"
        rows = [_row(one) for one in command.params if getattr(one, "help", "") and not getattr(one, "hidden", False)]
        if rows:
            yield "| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"


def _row(parameter):
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{(parameter.metavar or parameter.name).upper()}`"
    return f"| {names} | {_prose(parameter.help)} |".replace("\n", " ")


def _prose(text):
    """Return a help text as Markdown, with its special characters escaped."""
    return re.sub(r"([*_<>\[\]])", r"\\\1", (text or "").replace("\b\n", "").strip())


def _training_scripts():
    from handson.training.options import training_parser

    parser = training_parser("exercises/02_multi_gpu/pytorch/train_cifar_multi_gpu.py", None)
    rows = []
    for action in parser._actions:  # argparse has no other way to list them
        if action.help in (None, argparse.SUPPRESS):
            continue
        words = action.help % {"default": "results/NAME" if action.dest == "out" else action.default, "prog": ""}
        rows.append(f"| {', '.join(f'`{name}`' for name in action.option_strings)} | {_prose(words)} |")
    head = (
        "## Training scripts\n\nEvery training script has these options; `--help` also lists those of one script only."
    )
    return f"{head}\n\n| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"


# --- Functions


def used():
    """Return {module: names} of the functions and classes of `handson` that scripts and notebooks of the course use."""
    found = {}
    for path in sorted((ROOT / "solutions").glob("*/**/*.py")):
        if "results" in path.parts:
            continue
        lines = path.read_text().splitlines()
        tree = ast.parse("\n".join("" if re.match(r"\s*# *[!%]", line) else line for line in lines))
        for module, name in _names(tree):
            found.setdefault(module, set()).add(name)
    return {module: sorted(names) for module, names in sorted(found.items())}


def _names(tree):
    modules = {}  # how a module is called in this file
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "handson":
            for alias in node.names:
                if _file(f"{node.module}.{alias.name}"):
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                else:
                    yield node.module, alias.name
        elif isinstance(node, ast.Import):
            modules |= {alias.name: alias.name for alias in node.names if alias.name.split(".")[0] == "handson"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (module := modules.get(ast.unparse(node.value))):
            if not _file(f"{module}.{node.attr}"):
                yield module, node.attr


def _file(module):
    """Return the source of a module, without importing it, or None if there is none."""
    place = ROOT / Path(*module.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists()), None)


def functions():
    """Return the page of the functions, as Markdown."""
    parts = [FUNCTIONS]
    for module, names in used().items():
        tree = ast.parse(_file(module).read_text())
        described = [text for name in names if (text := _described(module, tree, name))]
        if described:
            parts.append(f"## {module}\n\n{_first_paragraph(ast.get_docstring(tree))}\n")
            parts += described
    return "\n".join(parts)


def _described(module, tree, name):
    """Return the entry of a function or class, or "" if it has no docstring, or is not defined in this module."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name and ast.get_docstring(node):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            arguments = node.args if kind == "function" else _init(node)
            signature = f"({_signature(arguments)})" if arguments else ""
            if kind == "class":
                signature = re.sub(r"^\(self(, )?", "(", signature)
            return f"````{{py:{kind}}} {module}.{name}{signature}\n{ast.get_docstring(node)}\n````\n"
    return ""


def _signature(arguments):
    """Return the arguments as they are defined, with an ellipsis for each default that is computed."""
    plain = (ast.Constant, ast.Name, ast.Attribute, ast.UnaryOp, ast.Tuple, ast.List, ast.Dict, type(None))
    for defaults in (arguments.defaults, arguments.kw_defaults):
        defaults[:] = [one if isinstance(one, plain) else ast.Constant(...) for one in defaults]
    return ast.unparse(arguments)


def _init(node):
    return next((one.args for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)


def _first_paragraph(text):
    return (text or "").split("\n\n")[0]
