"""What runs beside a student's code, in its ranks: a probe gives a gap the names it needs, and reports what it made of them.

A probe knows no expected value. It is called as ``probe(rank, ranks, source, case)`` and returns observations: JSON and arrays.
"""

FOR_SCRIPTS = ("grader.probes.libraries",)  # what a box's server loads before; it takes seconds
FOR_NOTEBOOKS = ("grader.probes.cases", "grader.probes.notebooks")  # a notebook alone needs little of it


def loaded_for(files):
    """What a server loads before gaps of these files are run."""
    return FOR_SCRIPTS if any(file.endswith(".py") for file in files) else FOR_NOTEBOOKS
