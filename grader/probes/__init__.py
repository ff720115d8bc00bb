"""Runs in the process of student code, in a sandboxed rank. Students receive it: yes.

Probes run in the ranks, with a student's code: a probe gives a gap the names that it needs, and reports what the gap
does with them.

A probe has no expected values. It is called as ``probe(rank, ranks, source, case)`` and returns observations: JSON and
arrays.
"""

import importlib
from pathlib import Path

from handson.files import COURSE

FOR_SCRIPTS = ("grader.probes.libraries",)  # a sandbox's server loads these first, which takes seconds
# the same for scripts that need the second environment
FOR_FRAMEWORKS = (*FOR_SCRIPTS, "grader.probes.load_frameworks")
FOR_NOTEBOOKS = ("grader.probes.cases", "grader.probes.notebooks")  # the same for notebooks


def loaded_for(files):
    """Return the modules that a server loads before it runs gaps of these files."""
    files = [file for file in files if file.endswith(".py")]
    if files and all(map(needs_frameworks, files)):
        return FOR_FRAMEWORKS
    return FOR_SCRIPTS if files else FOR_NOTEBOOKS


def import_of_units(name):
    """Import the units' probes with file names that match the pattern `name`, because a rank cannot import them later
    in a sandbox."""
    for probes in sorted((COURSE / "grader/units").glob(f"*/probes/{name}.py")):
        importlib.import_module(".".join(probes.relative_to(COURSE).with_suffix("").parts))


def needs_frameworks(file):
    """Return whether a file is a script with gaps for a package of the second environment, in a folder with the
    package's name. JAX is not included, because its scripts have no gaps: no server loads it."""
    return Path(file).parent.name in ("tensorflow", "lightning", "accelerate")
