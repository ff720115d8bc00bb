"""Probes run in the ranks, beside a student's code: a probe gives a gap the names that it needs, and reports what the gap does with them.

A probe knows no expected value. It is called as ``probe(rank, ranks, source, case)`` and returns observations: JSON and arrays.
"""

FOR_SCRIPTS = ("grader.probes.libraries",)  # a box's server loads these first, which takes seconds
FOR_NOTEBOOKS = ("grader.probes.cases", "grader.probes.notebooks")  # all that a notebook needs


def loaded_for(files):
    """The modules that a server loads before it runs gaps of these files."""
    return FOR_SCRIPTS if any(file.endswith(".py") for file in files) else FOR_NOTEBOOKS
