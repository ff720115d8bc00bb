"""Runs beside student code, in a sandboxed rank. Students receive it: yes.

Probes run in the ranks, beside a student's code: a probe gives a gap the names that it needs, and reports what the
gap does with them.

A probe knows no expected value. It is called as ``probe(rank, ranks, source, case)`` and returns observations: JSON and
arrays.
"""

import importlib
from pathlib import Path

from handson.files import COURSE

FOR_SCRIPTS = ("grader.probes.libraries",)  # a sandbox's server loads these first, which takes seconds
# and these for scripts that need the second environment
FOR_FRAMEWORKS = (*FOR_SCRIPTS, "grader.probes.load_frameworks")
FOR_NOTEBOOKS = ("grader.probes.cases", "grader.probes.notebooks")  # all that a notebook needs


def loaded_for(files):
    """The modules that a server loads before it runs gaps of these files."""
    files = [file for file in files if file.endswith(".py")]
    if files and all(map(needs_frameworks, files)):
        return FOR_FRAMEWORKS
    return FOR_SCRIPTS if files else FOR_NOTEBOOKS


def import_of_units(name):
    """Import the units' probes whose files are called `name`, a pattern: a sandbox does not let a rank import them
    later."""
    for probes in sorted((COURSE / "grader/units").glob(f"*/probes/{name}.py")):
        importlib.import_module(".".join(probes.relative_to(COURSE).with_suffix("").parts))


def needs_frameworks(file):
    """Whether a file is a script with gaps for a package of the second environment: they are in folders with the
    packages' names. JAX is not among them, since its scripts have no gaps: no server loads it."""
    return Path(file).parent.name in ("tensorflow", "lightning", "accelerate")
