"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.units.attention_and_experts import attention, experts
from grader.units.attention_and_experts.attention_and_experts_notebook import NOTEBOOK

CHECKS = {"pytorch/attention.py": attention.CHECKS, "pytorch/experts.py": experts.CHECKS, "notebook": NOTEBOOK}
