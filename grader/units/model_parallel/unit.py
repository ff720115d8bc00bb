"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.units.model_parallel import memory, pipeline, products, schedules

# each has the CHECKS of its files, and the checks NOTEBOOK of its gaps there
PARTS = (memory, schedules, pipeline, products)
CHECKS = {file: checks for part in PARTS for file, checks in part.CHECKS.items()}
CHECKS["notebook"] = tuple(check for part in PARTS for check in part.NOTEBOOK)
