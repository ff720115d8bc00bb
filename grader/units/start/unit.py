"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.units.start import start_notebook

CHECKS = {"notebook": start_notebook.CHECKS}
