"""Who imports whom, over all files of the course, imports within functions included: the rooms and their order, and no
circles."""

import ast
import functools
import graphlib
import re
from pathlib import Path

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
    "accelerate": {"pytorch"},
    "scaling": {"pytorch", *TRACK},
    "notebook": {"chainer", "pytorch", "scaling", *TRACK},
    "instructors": {"cluster"},
}


def offenders(paths, *packages):
    """name -> what it imports of the packages, of each file of `paths` that imports any."""
    return {name: found for name, path in paths.items() if (found := of(imports(path), *packages))}


def test_a_room_imports_only_those_that_it_stands_on():
    """The rooms are the packages of the course, those of handson and the units; a change of one unit must not grade
    another one again, so that what several share is in grader/checks, grader/probes and grader/oracles."""
    wrong = offenders(modules("handson"), "grader", "tests", "solutions", "exercises")
    wrong |= offenders(modules("grader"), "tests", "solutions", "exercises")
    for room in sorted(path.parent.name for path in ROOT.glob("handson/*/__init__.py")):
        others = MAY_IMPORT.keys() - {room, *MAY_IMPORT[room]}
        wrong |= offenders(modules(f"handson/{room}"), *(f"handson.{other}" for other in others))
    units = [f"grader.units.{path.parent.name}" for path in ROOT.glob("grader/units/*/__init__.py")]
    for unit in units:
        wrong |= offenders(modules(unit.replace(".", "/")), *(other for other in units if other != unit))
    assert not wrong


def test_students_files_import_handson_and_of_the_grader_check_alone():
    """A notebook checks the student's work; a script imports nothing of the grader."""
    found = offenders(modules("solutions"), "grader", "tests", "handson.instructors")
    is_notebook = lambda name: re.fullmatch(r"\w+\.(\d\d)_(\w+)\.\1[b-z]?_\2", name)
    assert {name: used for name, used in found.items() if used != ["grader.check"] or not is_notebook(name)} == {}


def test_students_modules_do_without_those_for_instructors():
    """Students receive no folder called `instructors`. Only the commands that have subcommands there look whether it
    exists."""
    importing = [
        name
        for name, path in COURSE.items()
        if not {"instructors", "tests"} & {*name.split(".")}
        and any("instructors" in found.split(".") for found in imports(path))
    ]
    assert importing == ["handson.__main__", "grader.__main__"]


def test_no_modules_import_each_other_in_a_circle():
    for package in ("handson", "grader"):
        graphlib.TopologicalSorter(graph(package)).prepare()  # raises CycleError, which names the circle


def test_batch_commands_and_cluster_tools_start_without_slow_libraries():
    """A qsub takes 50 ms, torch seconds."""
    quick = [name for name in COURSE if name.startswith(("handson.pbs", "handson.cluster")) and name != MEASURING]
    wrong = {
        (name, module): found
        for name in quick
        for module in reached(name)
        if (found := of(imports(COURSE[module], within_functions=False), *SLOW))
    }
    assert not wrong


def test_what_runs_beside_students_code_reaches_nothing_that_knows_what_is_right():
    probes = [name for name in COURSE if name.startswith("grader.") and "probes" in name.split(".")]
    knowing = {"checks", "oracles", "instructors"}
    assert not [(name, module) for name in probes for module in reached(name) if knowing & {*module.split(".")}]


def test_what_units_share_in_the_grader_names_none_of_them():
    """A unit is two folders that are found by their names: what is shared learns from a case what kind of script it
    runs. Units whose names are words of other meanings, too, are left out."""
    units = "|".join(path.name for path in (ROOT / "grader/units").iterdir() if "_" in path.name.strip("_"))
    named = re.compile(rf"(?<![a-z_])(\d\d_)?({units})(?![a-z_])")
    shared = [path for room in ("checks", "oracles", "probes") for path in modules(f"grader/{room}").values()]
    texts = [
        (path.name, getattr(node, "value", None)) for path in shared for node in ast.walk(ast.parse(path.read_text()))
    ]
    assert not [(file, text) for file, text in texts if isinstance(text, str) and named.search(text)]
