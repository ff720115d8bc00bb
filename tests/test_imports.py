"""Who imports whom, over all files of the course, imports within functions included: the rooms and their order, and no
circles."""

import ast
import functools
import graphlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# to import: batch commands do without
SLOW = {"torch", "numpy", "chainer", "chainermn", "mpi4py", "scipy", "matplotlib", "typer", "IPython"}
MEASURING = "handson.cluster.network"  # a program for the ranks of a job, which has NumPy's arrays to send


def modules(package):
    """name -> path of each module of a package of the course, or of a room of one."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


COURSE = {name: path for package in ("handson", "grader", "tests") for name, path in modules(package).items()}
SCRIPTS = sorted(path for path in (ROOT / "solutions").rglob("*.py"))


@functools.cache
def imports(path, within_functions=True):
    """The absolute names that a file imports: modules, and what it takes from them as `module.name`."""
    return {name for node in nodes(ast.parse(path.read_text()), within_functions) for name in names(node)}


def nodes(tree, within_functions=True):
    """The import statements below a node of a syntax tree."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif within_functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from nodes(node, within_functions)


def names(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"line {node.lineno}: the course imports by whole names"
    return [f"{node.module}.{alias.name}" for alias in node.names]


def of(found, *packages):
    """Those of the names `found` that are `packages`, or within them."""
    return sorted(name for name in found if any(f"{name}.".startswith(f"{package}.") for package in packages))


def module_of(name):
    """The module of the course that an imported name is, or is in; None for one of a library."""
    return name if name in COURSE else name.rpartition(".")[0] if name.rpartition(".")[0] in COURSE else None


def of_course(found):
    return {module for name in found if (module := module_of(name))}


def graph(package):
    return {name: of_course(imports(path)) - {name} for name, path in COURSE.items() if name.split(".")[0] == package}


def reached(name):
    """The modules that a module imports at the top, those that these import there, and the packages around all of
    them."""
    seen, waiting = set(), [name]
    while waiting:
        module = waiting.pop()
        if module in COURSE and module not in seen:
            seen.add(module)
            parts = module.split(".")
            waiting += [".".join(parts[:length]) for length in range(1, len(parts))]
            waiting += of_course(imports(COURSE[module], within_functions=False))
    return seen


@pytest.mark.parametrize(
    ("package", "others"),
    [("handson", ["grader", "tests", "solutions", "exercises"]), ("grader", ["tests", "solutions", "exercises"])],
)
def test_a_package_imports_none_that_stands_on_it(package, others):
    wrong = {name: found for name, path in modules(package).items() if (found := of(imports(path), *others))}
    assert not wrong


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT / "solutions")))
def test_students_files_import_handson_and_of_the_grader_check_alone(path):
    """A notebook checks the student's work; a script imports nothing of the grader."""
    is_notebook = path.stem == path.parent.name
    assert of(imports(path), "grader", "tests") in ([], ["grader.check"] if is_notebook else [])
    assert not of(imports(path), "handson.instructors")


@pytest.mark.parametrize("package", ["handson", "grader"])
def test_students_modules_do_without_those_for_instructors(package):
    """Students receive no folder called `instructors`. Only the commands that have subcommands there look whether it
    exists."""
    students = {name: path for name, path in modules(package).items() if "instructors" not in name.split(".")}
    assert [
        name for name, path in students.items() if any("instructors" in found.split(".") for found in imports(path))
    ] == [f"{package}.__main__"]


@pytest.mark.parametrize("package", ["handson", "grader"])
def test_no_modules_import_each_other_in_a_circle(package):
    graphlib.TopologicalSorter(graph(package)).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize(
    "name", [name for name in COURSE if name.startswith(("handson.pbs", "handson.cluster")) and name != MEASURING]
)
def test_batch_commands_and_cluster_tools_start_without_slow_libraries(name):
    """A qsub takes 50 ms, torch seconds."""
    for module in reached(name):
        assert not of(imports(COURSE[module], within_functions=False), *SLOW), module


@pytest.mark.parametrize(
    "name", [name for name in COURSE if name.startswith("grader.") and "probes" in name.split(".")]
)
def test_what_runs_beside_students_code_reaches_nothing_that_knows_what_is_right(name):
    assert not [module for module in reached(name) if {"checks", "oracles", "instructors"} & set(module.split("."))]


def test_a_unit_s_checks_import_those_of_no_other_unit():
    """Else a change of one unit would grade another one again. What several share is in grader/checks, grader/probes
    and grader/oracles."""
    for name, path in modules("grader/units").items():
        unit = ".".join(name.split(".")[:3])
        assert not [found for found in of(imports(path), "grader.units") if not f"{found}.".startswith(f"{unit}.")], (
            name
        )


TRACK = {"cluster", "profiling", "training"}
MAY_IMPORT = {  # room of handson -> the other rooms that it may import; modules beside the rooms are for all
    "cluster": {"pbs"},  # what it needs to say what a job asked for; the embedded PBS runs its jobs on virtual nodes
    "pbs": {"cluster"},
    "training": {"cluster", "profiling"},
    "profiling": {"cluster", "pbs", "training"},
    "pytorch": TRACK,
    "chainer": TRACK,
    "cntk": {"cluster", "pytorch", "training"},
    "tensorflow": {"training"},
    "jax": {"cluster", "training"},
    "lightning": {"pytorch", "training"},
    "scaling": {"pytorch", *TRACK},
    "notebook": {"pytorch", "scaling", *TRACK},
    "instructors": {"cluster"},
}


@pytest.mark.parametrize("room", sorted(path.parent.name for path in ROOT.glob("handson/*/__init__.py")))
def test_a_room_of_handson_imports_only_those_that_it_stands_on(room):
    others = [name for name in MAY_IMPORT if name not in {room, *MAY_IMPORT[room]}]
    for name, path in modules(f"handson/{room}").items():
        assert not of(imports(path), *(f"handson.{other}" for other in others)), name


@pytest.mark.parametrize("room", ["checks", "oracles", "probes"])
def test_what_units_share_in_the_grader_names_none_of_them(room):
    """A unit is two folders that are found by their names: what is shared learns from a case what kind of script it
    runs. Units whose names are words of other meanings, too, are left out."""
    units = "|".join(path.name for path in (ROOT / "grader/units").iterdir() if "_" in path.name.strip("_"))
    texts = [
        (path.name, node.value)
        for path in modules(f"grader/{room}").values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
    ]
    assert [
        (file, text)
        for file, text in texts
        if isinstance(text, str) and re.search(rf"(?<![a-z_])(\d\d_)?({units})(?![a-z_])", text)
    ] == []
