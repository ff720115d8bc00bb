"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.units.challenge import challenge_notebook, contest

CHECKS = {"notebook": challenge_notebook.CHECKS, "pytorch/challenge.py": contest.CHECKS}
