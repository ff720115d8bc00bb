"""What the verdicts on a unit depend on, as a digest: the grader grades a unit again when it has changed, and only then."""

import ast
import functools
import hashlib
import importlib.metadata
import platform

from grader import exercises
from grader.course import UNITS
from handson.cluster import site as sites
from handson.files import COURSE
from handson.pbs import site as pbs_site

JUDGING = ("grader.judging", "grader.box.server", "grader.box.forkserver", "grader.probes.libraries", "grader.instructors.grade.work")
LIBRARIES = ("torch", "numpy", "chainer", "mpi4py", "pytorch-pfn-extras")
PACKAGES = ("grader", "handson")


def of_unit(unit):
    """The digest of everything that a unit's verdicts depend on: the modules that judge, the unit's checks, probes, oracles and hidden
    cases, what its scripts import, the exercises given out, the libraries, and for job scripts the chosen site. Raises SiteError."""
    digest = hashlib.sha256(repr(_versions()).encode())
    for name in sorted(_modules(unit)):
        digest.update(_file(name).read_bytes())
    for path in sorted((COURSE / "grader/units" / unit).rglob("*")):
        if path.is_file() and _counts(path):
            digest.update(path.read_bytes())
    for part in UNITS[unit]:
        digest.update(exercises.given_out(part.file).text.encode())
        if part.file.endswith(".sh"):
            digest.update(repr(sites.read(pbs_site.chosen())).encode())
    return digest.hexdigest()[:16]


def _counts(path):
    """Whether a file of the unit's folder takes part in verdicts. Its modules are counted where they are imported, and known answers only
    prove the checks."""
    return path.suffix in (".toml", ".json") and not path.name.startswith("known_")


def _modules(unit):
    """The modules of the course that are imported, by whichever way, where the unit's files are judged and run."""
    wanted = [*JUDGING, f"grader.units.{unit}.unit"]
    for part in UNITS[unit]:
        for check in part.checks:
            wanted += [name.split(":")[0] for name in (check.probe, check.oracle) if isinstance(name, str)]
        if part.file.endswith(".py"):
            wanted += _imported(ast.parse(exercises.given_out(part.file).text))
    found = {"grader"}  # which imports the self-check, for notebooks
    while wanted:
        name = wanted.pop()
        if name not in found and name.split(".")[0] in PACKAGES and _file(name):
            found.add(name)
            wanted += _imports(name)
            wanted.append(name.rpartition(".")[0])
    return found


@functools.cache
def _imports(name):
    return _imported(ast.parse(_file(name).read_text()), name)


def _imported(tree, name=""):
    """The names of the modules that the code of module `name` imports; of ``from package import name`` both, since either may be one."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = ".".join([*name.split(".")[: -node.level], *filter(None, [node.module])]) if node.level else node.module
            found += [package, *(f"{package}.{alias.name}" for alias in node.names)]
    return found


def _file(name):
    """The file of a module, or None for what is no module of the course."""
    path = COURSE.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@functools.cache
def _versions():
    return platform.python_version(), *(importlib.metadata.version(library) for library in LIBRARIES)
