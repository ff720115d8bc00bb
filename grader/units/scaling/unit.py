"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.units.scaling import scaling_notebook

CHECKS = {"notebook": scaling_notebook.CHECKS}
