"""What students receive holds no working answer: every function and constant of its packages is tried, and every line
of code compared.

Functions in notebooks are tried with the bundle's own checks. Choices must not stand in the clear. For scripts, code is
compared, and functions are tried with what has their parameters' names before the gap: here those of two and more
arguments that scripts call, and all by `make bench ARGS=calls`. Predictions have no right answer.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from every_call import FOUND, called_by_scripts, functions
from every_call import answers as answers_by_calls
from sandbox_runs import needs_strong

from grader import exercises, gaps
from grader.course import UNITS
from grader.instructors import notebook_answers
from grader.instructors.bundle import TOP
from grader.instructors.notebook_answers import Choice
from grader.probes import needs_frameworks

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
PLANTED = {
    ("start", "workers", "multiplied"),
    ("single_gpu", "throughput", "JUDGE.closure0"),
    ("single_gpu", "limit", "Table.limit"),
    ("multi_gpu", "speed_up", "_divided"),
    ("multi_gpu", "efficiency", "EFFICIENCY"),
    ("multi_gpu", "waiting", "TABLE['waiting'][0]"),
    ("multi_node", "intra_rank", "by_name_alone"),
    ("multi_node", "total_accuracy", "Table.accuracy"),
}
ALIKE = {  # (gap, exercise): the code is alike, and is no solution of the gap
    ("device", "03_multi_node/chainer/train_mnist.py"),  # ChainerMN's first example, which is complete
    ("updater", "01_single_gpu/chainer/train_cifar_single_gpu.py"),  # the evaluator has the same arguments
    ("updater", "03_multi_node/chainer/train_cifar_multi_node.py"),
    ("shards", "04_profiling/pytorch/uneven_work.py"),  # what is wrong there is the line before
}
PHRASE = 8  # syntax nodes; less is a phrase of the field, such as `batches.set_epoch(epoch)`


@pytest.fixture(scope="session")
def given(archive, tmp_path_factory):
    """An unpacked bundle."""
    folder = tmp_path_factory.mktemp("given")
    zipfile.ZipFile(archive).extractall(folder)
    return folder / TOP


@needs_strong
def test_no_function_or_constant_answers_a_gap_of_a_notebook(given, tmp_path):
    course = shutil.copytree(given, tmp_path / "course")
    shutil.copy(HERE / "every_function.py", course)
    shutil.copy(HERE / "planted.py", course / "handson")
    command = [sys.executable, "-P", "every_function.py", "1", tmp_path / "found.json"]
    done = subprocess.run(
        command, cwd=course, env=os.environ | {"PYTHONPATH": str(course)}, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    # another environment has them
    without_frameworks = {name: why for name, why in found["failed"].items() if not why.startswith("NoFrameworks")}
    assert without_frameworks == {} and found["tried"] > 1000 and len(found["constants"]) > 1000
    assert {tuple(one) for one in found["right"]} == {
        (unit, gap, f"handson.planted.{name}") for unit, gap, name in PLANTED
    }


def choices():
    return [
        pytest.param(unit, gap, one.right, id=gap)
        for unit in UNITS
        for gap, one in notebook_answers.answers(unit).items()
        if isinstance(one, Choice)
    ]


@pytest.mark.parametrize(("unit", "gap", "right"), choices())
def test_no_choice_stands_in_the_clear(given, unit, gap, right):
    """Where its check is, in code or records; elsewhere are words that it is chosen from, and numbers of any kind."""
    folder = given / "grader/units" / unit
    entry = json.loads((folder / "recorded.json").read_text())[gap]
    assert entry.keys() == {"right", "mistakes", "otherwise"}
    assert (
        all(len(digest) == 64 for digest in (entry["right"], *entry["mistakes"]))
        and entry["right"] not in entry["mistakes"]
    )
    trees = [ast.parse(path.read_text()) for path in folder.glob("*.py")]
    calls = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
    ]
    (call,) = [node for node in calls if node.args[0].value == gap]
    constants = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant)]
    assert right not in constants and not (
        isinstance(right, str) and any(right in str(text).split() for text in constants)
    )


def test_no_exercise_carries_what_students_write_in_another():
    assert same_code(exercises.ROOT / "exercises") == ALIKE


@needs_strong
def test_no_function_that_scripts_call_answers_a_gap_of_a_script(server):
    likely = {name for name, (needed, _) in functions().items() if len(needed) > 1} & called_by_scripts()
    tried = [answer for answer in answers_by_calls(likely) if not needs_frameworks(answer.part.file)]
    assert len(tried) > 150
    found = {(answer.check.gap, answer.function) for answer in tried if answer.passes(server)}
    assert found == set(FOUND)


def test_no_code_in_it_is_that_of_a_solution(given, tmp_path):
    """But in exercises, of which some begin where earlier ones end. Names may differ."""
    shutil.copytree(given, tmp_path / "course", ignore=shutil.ignore_patterns("exercises"))
    code = answers("exercises/04_profiling/pytorch/slow_loading.py")["loader"]
    assert code.count("decoded") == 2 and code.count("train_loader") == 1
    hidden = code.replace("decoded", "kept").replace("train_loader", "batches_of_it")
    (tmp_path / "course/handson/planted.py").write_text(
        f"def work():\n    first = 1\n{textwrap.indent(hidden, '    ')}\n    return first\n"
    )
    every_training_has_it = ("optimizer", "grader/units/profiling/oracles/oracle_profiling_pytorch.py")
    assert same_code(tmp_path / "course") == {("loader", "handson/planted.py"), every_training_has_it}


def answers(file):
    return gaps.answers(exercises.solution(file).read_text())


def same_code(folder):
    """{(gap, file)} of files below `folder` in which a gap's statements are, or what their last one returns or
    assigns."""
    wanted = {}
    for part in [part for parts in UNITS.values() for part in parts if not part.file.endswith(".sh")]:
        for gap, code in answers(part.file).items():
            statements = _Plain().visit(ast.parse(f"def gap():\n{textwrap.indent(code, '    ')}")).body[0].body
            last = getattr(statements[-1], "value", None)
            wanted |= {_normal(nodes): gap for nodes in (statements, [last] if last else []) if _size(nodes) >= PHRASE}
    shapes, found = {key[:2] for key in wanted}, set()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".ipynb")):
        tree = _Plain().visit(_tree(path))
        size = _sizes(tree)
        for nodes in _pieces(tree, max(len(kinds) for kinds, _ in shapes)):
            if (_kinds(nodes), sum(map(size.get, nodes))) in shapes and (key := _normal(nodes)) in wanted:
                found.add((wanted[key], str(path.relative_to(folder))))
    return found


class _Plain(ast.NodeTransformer):
    """Code that takes an option from `args` is like code that is given it."""

    def visit_Attribute(self, node):
        if isinstance(node.value, ast.Name) and node.value.id == "args":
            return ast.Name(id=f"args_{node.attr}", ctx=node.ctx)
        return self.generic_visit(node)


def _tree(path):
    if path.suffix == ".py":
        return ast.parse(path.read_text())
    cells = [cell["source"] for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    return ast.parse(
        "\n".join(
            line for cell in cells for line in "".join(cell).splitlines() if not line.lstrip().startswith(("!", "%"))
        )
    )


def _pieces(tree, longest):
    """All sequences of statements of up to `longest`, and all expressions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            yield [node]
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield from (
                    block[begin : begin + count]
                    for count in range(1, longest + 1)
                    for begin in range(len(block) - count + 1)
                )


def _normal(nodes):
    """What nodes are, whatever the names in them: (kinds, size, text)."""
    names = {}
    text = re.sub(
        r"(Name\(id|arg\(arg)='(\w+)'",
        lambda found: f"{found[1]}={names.setdefault(found[2], len(names))}",
        "\n".join(map(ast.dump, nodes)),
    )
    return _kinds(nodes), _size(nodes), text


def _kinds(nodes):
    return tuple(type(node).__name__ for node in nodes)


def _size(nodes):
    return sum(_sizes(node)[node] for node in nodes)


def _sizes(tree):
    """{node: how many nodes it and those below it are} of a tree, without what only says whether a name is read or
    assigned."""
    found = {}

    def of(node):
        found[node] = not isinstance(node, ast.expr_context)
        found[node] += sum(map(of, ast.iter_child_nodes(node)))
        return found[node]

    of(tree)
    return found
