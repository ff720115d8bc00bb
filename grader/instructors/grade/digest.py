"""A digest of everything on which the verdicts on a unit depend. The grader grades a unit again only if its digest has
changed."""

import ast
import functools
import hashlib
import importlib.metadata
import platform

from grader import exercises
from grader.course import UNITS, uses_frameworks
from grader.probes import loaded_for
from handson.cluster import site as sites
from handson.files import COURSE

JUDGING = ("grader.judging", "grader.sandbox.server", "grader.sandbox.forkserver", "grader.instructors.grade.work")
# verdicts depend neither on these modules, nor on modules that only they import
FRONTS = {"grader", "grader.instructors.grade.digest", "handson.cluster.job_scripts"}
LIBRARIES = ("torch", "numpy", "chainer", "mpi4py", "pillow")
PACKAGES = ("grader", "handson")


def of_unit(unit, site=None):
    """Return the digest of everything on which a unit's verdicts depend.

    This includes the modules that judge, the unit's checks, probes, oracles and hidden cases, the imports of its
    scripts, the released exercises and their solutions, and the libraries. For job scripts it also includes the site,
    whose name follows the digest: "0123456789abcdef@local". site: its name; by default the chosen one. Raises
    SiteError.
    """
    digest = hashlib.sha256(repr(_versions()).encode())
    for name in sorted(_modules(unit)):
        digest.update(_content(_file(name)))
    for path in sorted(_folder(unit).rglob("*")):
        if path.suffix in (".toml", ".json"):
            digest.update(_content(path))
    with sites.as_chosen(site):
        for part in UNITS[unit]:
            digest.update(exercises.given_out(part.file).text.encode())
            # a check that also fails for the solution is an error of the grader
            digest.update(_content(exercises.solution(part.file)))
        if has_site(unit):
            here = sites.read(sites.chosen())
            digest.update(repr(here).encode())
    if uses_frameworks(unit):
        digest.update(_content(COURSE / "frameworks.txt"))  # contains the versions of the second environment
    return digest.hexdigest()[:16] + (f"@{here.name}" if has_site(unit) else "")


def of_units(units, course, book):
    """Return {unit: the version that its results should have}. The site of a unit's job scripts is that of course.toml,
    or else that of the first result, because correct scripts would fail at another site. course: the Rules."""
    return {unit: of_unit(unit, course.of(unit).site or site_of(book.first_version(unit))) for unit in units}


def outdated(course, book):
    """Return (student, digest, unit) of the results with another version. Raises SiteError."""
    found = book.versions()
    versions = of_units({unit for _, _, unit in found if unit in UNITS}, course, book)
    return {key for key, version in found.items() if version != versions.get(key[-1], version)}


def has_site(unit):
    """Return whether a unit's verdicts depend on a site, because it has job scripts."""
    return any(part.file.endswith(".sh") for part in UNITS[unit])


def site_of(version):
    """Return the name of the site in a version of the checks, or None without one."""
    return version.partition("@")[2] or None


def _content(path):
    return path.read_bytes()


def _folder(unit):
    return COURSE / "grader/units" / unit


def _modules(unit):
    """Return the course's modules that judging and running the unit's files import, directly or indirectly."""
    wanted = [
        *JUDGING,
        *(".".join(path.relative_to(COURSE).with_suffix("").parts) for path in _folder(unit).rglob("*.py")),
    ]
    for part in UNITS[unit]:
        wanted += loaded_for([part.file])
        for check in part.checks:
            wanted += [name.split(":")[0] for name in (check.probe, check.oracle) if isinstance(name, str)]
        if part.file.endswith(".py"):
            wanted += _imported(ast.parse(exercises.given_out(part.file).text))
    found = set(FRONTS)
    while wanted:
        name = wanted.pop()
        if name not in found and name.split(".")[0] in PACKAGES and _file(name):
            found.add(name)
            wanted += [*_imports(name), name.rpartition(".")[0]]
    return found - FRONTS


@functools.cache
def _imports(name):
    return _imported(ast.parse(_file(name).read_text()), name)


def _imported(tree, name=""):
    """Return the names of the modules that the code of module `name` imports. ``from package import name`` yields both,
    because `name` may be a module."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = (
                ".".join([*name.split(".")[: -node.level], *filter(None, [node.module])]) if node.level else node.module
            )
            found += [package, *(f"{package}.{alias.name}" for alias in node.names)]
    return found


def _file(name):
    """Return the file of a module, or None if the course has no such module."""
    path = COURSE.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@functools.cache
def _versions():
    return platform.python_version(), *(importlib.metadata.version(library) for library in LIBRARIES)
