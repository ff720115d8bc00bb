"""Tries every function of the course's packages as the answer to every gap of a script: called with what has its
parameters' names there.

`make bench ARGS=calls` tries all of them, test_no_answers.py those that scripts call.
"""

import ast
import textwrap
from dataclasses import dataclass
from pathlib import Path

from grader import exercises, gaps, judging
from grader.course import UNITS, ready
from grader.instructors.grade import work
from grader.instructors.known_answers import solved
from grader.verdict import PASSED

ROOT = Path(__file__).resolve().parents[2]
# rooms of one library each: scripts of another track don't have it
TRACKS = {folder.parent.name for folder in ROOT.glob("handson/*/model.py")}
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
FOUND = {  # (gap, function) -> why it is there. A student who finds these has read what later scripts do
    (
        "optimizer",
        "handson.pytorch.profiling_helpers.sgd",
    ): "scripts of later units, whose lesson is another one, make their optimizer with it",
    ("device", "handson.pytorch.pytorch_method_runs.device"): "scripts of 05_communication choose their GPU with it",
    ("device", "handson.chainer.chainer_method_runs.device"): "scripts of 05_communication choose their GPU with it",
}


@dataclass
class Answer:
    """Code for a gap that calls one function."""

    unit: str
    part: object
    check: object
    function: str
    code: str

    def passes(self, server):
        """Whether a student's own check passes it."""
        source = judging._source(self.check, self.part, solved(self.part.file, **{self.check.gap: self.code}))
        found, _ = judging._apply(
            self.check, judging._cases(self.unit, self.check, (), 1), source, server, work.readable()
        )
        return all(status == PASSED for status, _, _ in found)


def functions():
    """{name with its module: ([parameters without a default], {those that go by name only})} of what students
    receive."""
    found = {}
    for path in sorted(
        path
        for package in ("handson", "grader")
        for path in (ROOT / package).rglob("*.py")
        if "instructors" not in path.parts
    ):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, FUNCTION):
                by_place, by_name = [*node.args.posonlyargs, *node.args.args], node.args.kwonlyargs
                needed = by_place[: len(by_place) - len(node.args.defaults)]
                needed += [one for one, default in zip(by_name, node.args.kw_defaults) if default is None]
                if needed:
                    found[f"{module}.{node.name}"] = [one.arg for one in needed], {one.arg for one in by_name}
    return found


def called_by_scripts():
    """The functions of the packages that scripts import, or call by their module's name."""
    found = set()
    for path in (ROOT / "exercises").rglob("*.py"):
        tree, modules = ast.parse(path.read_text()), {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                modules |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        found |= set(modules.values())
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                found.add(f"{modules[node.value.id]}.{node.attr}")
    return found


def answers(of=None):
    """Yields all Answers by functions; of: only by those whose names are in it."""
    known = {name: parameters for name, parameters in functions().items() if of is None or name in of}
    for unit in ready():
        for part in UNITS[unit]:
            if not part.file.endswith(".py"):
                continue
            text = exercises.solution(part.file).read_text()
            solutions = gaps.answers(text)
            for check in part.checks:
                if check.gap not in solutions or callable(check.probe):
                    continue
                there = _names(text, check.gap)
                for name, (needed, by_name) in known.items():
                    if set(needed) <= there and not (TRACKS - {part.track}) & set(name.split(".")[:2]):
                        module, _, function = name.rpartition(".")
                        call = f"_there.{function}({', '.join(f'{one}={one}' if one in by_name else one for one in needed)})"
                        for form in _forms(solutions[check.gap]):
                            yield Answer(unit, part, check, name, f"import {module} as _there\n{form.format(call)}")


def _names(text, gap):
    """The names that the functions around a gap have given values before it."""
    lines = text.splitlines()
    begin = next(number for number, line in enumerate(lines, 1) if f"### BEGIN SOLUTION {gap}:" in line)
    found = set()
    for function in [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, FUNCTION) and node.lineno <= begin <= node.end_lineno
    ]:
        found |= {one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
        stored = [node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        found |= {node.id for node in stored if node.lineno < begin}
    return found


def _forms(code):
    """What a call can stand in, with {} in its place: the solution returns it, assigns all of its names or the last
    ones, or does it."""
    body = ast.parse(f"def gap():\n{textwrap.indent(code, '    ')}").body[0].body
    if isinstance(body[-1], ast.Return):
        return ["return {}"]
    targets = [target for statement in body if isinstance(statement, ast.Assign) for target in statement.targets]
    names = dict.fromkeys(node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
    if not names:
        return ["{}"]
    return list(dict.fromkeys([", ".join(names) + " = {}", ast.unparse(targets[-1]) + " = {}"]))
